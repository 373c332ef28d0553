//! The processor: the decoder's operations as parallel regions over kernels.
//!
//! Each operation is one or two parallel regions over the rows of its weights and fuses what would otherwise be a pass
//! over memory of its own: the norm in front, the sum with the residual or the gated activation behind.

mod activation;
mod attention;
mod classifier;
mod embedding;
mod experts;
mod heads;
mod mamba;
mod matrix;
mod norm;
mod operand;
mod page;
mod routing;
mod scratch;
mod states;

pub use experts::Routed;
pub use matrix::Matrix;
pub use norm::NormVectors;
pub use operand::Operands;
pub use page::KvPage;
use page::PageLayout;

use crate::decoder::{
    AllocatePage, AttentionOptions, Batch, Classifier, Conv, CopyPage, DeltaNet, Device, EmbeddingInput, Experts,
    HeadOptions, JoinedInput, LayerEmbedding, Mamba2, Operand, Output, PageKind, Pass, Stored,
};
use crate::error::{Error, Result};
use crate::kernels::{self, Isa};
use crate::memory::{self, Refusals};
use crate::threads::Pool;
use crate::weights::{WeightView, Weights};
use heads::Heads;
use model_factory_format::header::TensorInfo;
use model_factory_spec::plan::{CpuBuffers, KV_PAGE, KvDtype, KvSize};
use model_factory_spec::spec::{Activation, LinearWeights, ModelSpec, Multipliers, NormWeights};
use operand::Spare;
use scratch::LeaderScratch;
use std::ops::Range;
use std::sync::Arc;

/// Rows of one task where rows are computed by themselves: enough to reuse a page of keys while it is in the cache.
const TASK_ROWS: usize = 16;

/// Logits of one task that multiplies and caps them.
const TASK_LOGITS: usize = 4096;

/// The processor as one model uses it.
#[derive(Debug)]
pub struct CpuDevice {
    isa: Isa,
    pool: Arc<Pool>,
    spare: Spare,
    leaders: LeaderScratch,
    buffers: CpuBuffers,
    layout: PageLayout,
}

impl CpuDevice {
    /// Computes `spec` with the instruction sets of `isa` on the threads of `pool`.
    pub fn new(spec: &ModelSpec, isa: Isa, pool: Arc<Pool>, kv_dtype: KvDtype) -> CpuDevice {
        CpuDevice {
            isa,
            pool,
            spare: Spare::default(),
            leaders: LeaderScratch::default(),
            buffers: CpuBuffers::new(spec),
            layout: PageLayout::new(spec, kv_dtype),
        }
    }

    /// The instruction sets it computes with.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The dtype of its KV caches.
    pub fn kv_dtype(&self) -> KvDtype {
        self.layout.dtype()
    }

    /// Calls `take` with the ranges of the bytes of a page of a kind that hold its first `slots` positions, in order; a full page
    /// is one.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn each_used<E>(
        &self,
        (kind, slots): (PageKind, usize),
        mut take: impl FnMut(Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        page::each_used(&self.layout, kind, slots, &mut take)
    }

    /// The products of `operands` with `matrices`, side by side: `y` `[tokens, sum of the outputs]`.
    fn multiply(&self, matrices: &[&Matrix], operands: &Operands, tokens: usize, y: &mut [f32]) -> memory::Result<()> {
        let bounds = self.column_bounds(tokens, matrices)?;
        let refusals = Refusals::default();
        self.pool.run_grid(y, *bounds.last().unwrap_or(&0), tokens, &bounds, &|tile, out| {
            let (matrix, rows) = matrix::locate(matrices, &tile.columns);
            if tokens == 1 {
                return refusals.note(matrix.rows(self.isa, rows, operands, out.row(0)));
            }
            refusals.note(scratch::with_scratch(tokens * rows.len(), |scratch| {
                matrix.rows(self.isa, rows.clone(), operands, scratch)?;
                for (token, y) in scratch.chunks_exact(rows.len()).enumerate() {
                    out.row(token).copy_from_slice(y);
                }
                Ok(())
            }));
        });
        refusals.into_result()
    }

    /// `hidden` += `scale` times the product of `operands` with `matrix`.
    fn multiply_add(
        &self,
        matrix: &Matrix,
        operands: &Operands,
        tokens: usize,
        scale: f32,
        hidden: &mut [f32],
    ) -> memory::Result<()> {
        let bounds = self.column_bounds(tokens, &[matrix])?;
        let refusals = Refusals::default();
        self.pool.run_grid(hidden, matrix.outputs(), tokens, &bounds, &|tile, hidden| {
            let rows = tile.columns.clone();
            refusals.note(scratch::with_scratch(tokens * rows.len(), |scratch| {
                matrix.rows(self.isa, rows.clone(), operands, scratch)?;
                for (token, product) in scratch.chunks_exact(rows.len()).enumerate() {
                    self.add(hidden.row(token), product, scale);
                }
                Ok(())
            }));
        });
        refusals.into_result()
    }

    /// `y += scale * x`.
    fn add(&self, y: &mut [f32], x: &[f32], scale: f32) {
        if scale == 1.0 { kernels::add(self.isa, y, x) } else { kernels::add_scaled(self.isa, y, x, scale) }
    }

    /// `hidden` += `scale` times the norm of every row of `product`.
    fn norm_add(&self, norm: &NormVectors, product: &[f32], scale: f32, hidden: &mut [f32]) -> memory::Result<()> {
        let (width, refusals) = (norm.width(), Refusals::default());
        self.pool.run_grid(hidden, width, TASK_ROWS, &[0, width], &|tile, hidden| {
            for row in tile.rows.clone() {
                refusals.note(scratch::with_scratch(width, |normed| {
                    norm.apply(self.isa, &product[row * width..][..width], normed);
                    self.add(hidden.row(row), normed, scale);
                    Ok(())
                }));
            }
        });
        refusals.into_result()
    }

    /// Every row of `x`, normed where there is a norm, in every form that `matrices` read.
    fn normed(&self, norm: Option<&NormVectors>, x: &[f32], matrices: &[&Matrix]) -> memory::Result<Operands> {
        let width = self.buffers.hidden;
        Operands::prepare(&self.spare, matrices.iter().map(|matrix| matrix.form()), width, |input, form| {
            let Some(norm) = norm else { return input.convert(&self.pool, self.isa, form, x, width) };
            input.fill(&self.pool, self.isa, form, x.len() / width, width, |token, row| {
                norm.apply(self.isa, &x[token * width..][..width], row);
            })
        })
    }

    /// The rows of `x` in every form that `matrices` read.
    fn converted(&self, x: &[f32], matrices: &[&Matrix]) -> memory::Result<Operands> {
        let width = matrices.first().map_or(1, |matrix| matrix.inputs());
        Operands::prepare(&self.spare, matrices.iter().map(|matrix| matrix.form()), width, |input, form| {
            input.convert(&self.pool, self.isa, form, x, width)
        })
    }
}

impl Device for CpuDevice {
    type Matrix = Matrix;
    type Norm = NormVectors;
    type Vector = WeightView;
    type Page = KvPage;
    type Buffer = Vec<f32>;
    type Activated = Operands;
    type Routed = Routed;
    type Batch<'b> = Batch<'b, KvPage>;

    const BATCH_INVARIANT: bool = true;
    const HIDDEN_STATES: bool = true;
    const COPY_PAGE: Option<CopyPage<KvPage>> = Some(KvPage::copy);

    fn matrix(&self, weights: &Weights, linear: &LinearWeights) -> Result<Matrix> {
        Matrix::new(weights, linear, self.isa)
    }

    fn load_norm(&self, weights: &Weights, norm: &NormWeights) -> Result<NormVectors> {
        Ok(NormVectors::new(weights, norm))
    }

    fn vector(&self, weights: &Weights, vector: &TensorInfo) -> Result<WeightView> {
        Ok(weights.view(vector))
    }

    fn kv_size(spec: &ModelSpec, dtype: KvDtype) -> KvSize {
        KvSize::of_cpu(spec, dtype)
    }

    fn pages(&self) -> AllocatePage<KvPage> {
        let layout = self.layout.clone();
        Arc::new(move |kind| Ok(KvPage::new(&layout, kind)?))
    }

    fn run<'b>(
        &self,
        batch: Batch<'b, KvPage>,
        compute: &mut dyn FnMut(&mut Pass<'b, Self>) -> Result<()>,
    ) -> Result<Vec<f32>> {
        let _scratch = self.leaders.lend();
        let rows = batch.rows;
        let mut pass = Pass {
            batch,
            hidden: memory::zeros(rows * self.buffers.hidden, "the residual stream")?,
            projected: memory::zeros(rows * self.buffers.projected, "queries, keys and values")?,
            mixed: memory::zeros(rows * self.buffers.mixed, "the output of attention")?,
            product: memory::zeros(rows * self.buffers.output, "the output of a sub-layer")?,
            layer_inputs: memory::zeros(rows * self.buffers.layer_inputs, "what layers read of their embeddings")?,
            activated: Operands::default(),
            routed: Routed::default(),
            logits: Vec::new(),
            recorded: false,
        };
        compute(&mut pass)?;
        Ok(pass.logits)
    }

    fn embed(&self, batch: &Batch<'_, KvPage>, embedding: &Matrix, scale: f32, hidden: &mut Vec<f32>) -> Result<()> {
        let ids = batch.sequences.iter().flat_map(|sequence| sequence.tokens);
        for (id, row) in ids.zip(hidden.chunks_exact_mut(self.buffers.hidden)) {
            embedding.dequantize_row(*id as usize, row);
            row.iter_mut().for_each(|x| *x *= scale);
        }
        Ok(())
    }

    fn add_input(
        &self,
        batch: &Batch<'_, KvPage>,
        input: &EmbeddingInput<Matrix, NormVectors>,
        hidden: &mut Vec<f32>,
    ) -> Result<()> {
        Ok(embedding::add_input(self, &batch.sequences, input, hidden)?)
    }

    fn join(
        &self,
        batch: &Batch<'_, KvPage>,
        joined: &JoinedInput<Matrix, NormVectors>,
        given: &[f32],
        hidden: &mut Vec<f32>,
    ) -> Result<()> {
        if given.len() != batch.rows * self.buffers.hidden {
            return Err(Error::Internal("a prediction head without a hidden state of each row".into()));
        }
        Ok(embedding::join(self, batch.rows, joined, given, hidden)?)
    }

    fn give_normed(
        &self,
        _: &Batch<'_, KvPage>,
        norm: &NormVectors,
        hidden: &Vec<f32>,
        taken: &mut Vec<f32>,
    ) -> Result<()> {
        *taken = memory::copied(hidden, "hidden states")?;
        Ok(norm.apply_to_rows(&self.pool, self.isa, taken)?)
    }

    fn classify(&self, classifier: &Classifier<Matrix, NormVectors>, rows: Vec<f32>) -> Result<Vec<f32>> {
        Ok(self.label_scores(classifier, rows)?)
    }

    fn norm(&self, _: &Batch<'_, KvPage>, norm: &NormVectors, hidden: &mut Vec<f32>) -> Result<()> {
        Ok(norm.apply_to_rows(&self.pool, self.isa, hidden)?)
    }

    fn give_hidden(&self, pass: &mut Pass<'_, Self>) -> Result<()> {
        pass.logits = std::mem::take(&mut pass.hidden);
        Ok(())
    }

    fn norm_project(
        &self,
        batch: &Batch<'_, KvPage>,
        hidden: &Vec<f32>,
        norm: Option<&NormVectors>,
        matrices: &[&Matrix],
        projected: &mut Vec<f32>,
    ) -> Result<()> {
        projected.resize(batch.rows * matrices.iter().map(|matrix| matrix.outputs()).sum::<usize>(), 0.0);
        let operands = self.normed(norm, hidden, matrices)?;
        Ok(self.multiply(matrices, &operands, batch.rows, projected)?)
    }

    fn rotate_and_store(
        &self,
        batch: &mut Batch<'_, KvPage>,
        layer: usize,
        options: HeadOptions<'_, Self>,
        qkv: &mut Vec<f32>,
    ) -> Result<()> {
        let heads = self.layout.heads(layer);
        if options.stored == Stored::Keys {
            heads::widen(qkv, batch.rows, heads.qkv_width());
        }
        let angles = options.rope.map(|rope| &batch.angles[rope]);
        self.rotate(heads, &options, angles, batch.rows, qkv)?;
        if matches!(options.stored, Stored::Nothing | Stored::Pass) {
            return Ok(());
        }
        for sequence in &mut batch.sequences {
            let mut row = sequence.rows.start;
            while row < sequence.rows.end {
                let position = sequence.start + row - sequence.rows.start;
                let slot = position % KV_PAGE;
                let count = (KV_PAGE - slot).min(sequence.rows.end - row);
                let page = sequence.pages[position / KV_PAGE].of_mut(self.layout.kind(layer))?;
                if let Err((index, value)) = page.store(&self.layout, layer, slot, qkv, row..row + count) {
                    let position = position + index - row;
                    return Err(Error::CacheOverflow { layer, position, value, dtype: self.kv_dtype() });
                }
                row += count;
            }
        }
        Ok(())
    }

    fn attend(
        &self,
        batch: &Batch<'_, KvPage>,
        layer: usize,
        options: &AttentionOptions<Self>,
        qkv: &Vec<f32>,
        attended: &mut Vec<f32>,
    ) -> Result<()> {
        let CpuDevice { isa, pool, layout, .. } = self;
        let heads = layout.heads(layer);
        attended.resize(batch.rows * heads.width(), 0.0);
        let attend = attention::AttentionPass {
            isa: *isa,
            pool,
            layout,
            heads,
            layer,
            options,
            sequences: &batch.sequences,
            qkv,
            width: qkv.len() / batch.rows.max(1),
        };
        match self.kv_dtype() {
            _ if !options.causal => attend.fill_whole(attended),
            KvDtype::F32 => attend.fill::<f32>(attended),
            KvDtype::F16 => attend.fill::<half::f16>(attended),
            KvDtype::Q8_0 => attend.fill::<u8>(attended),
        }?;
        if heads.gated {
            let gates = |row: usize| &qkv[row * heads.qkv_width() + heads.width()..][..heads.width()];
            pool.chunks(attended, heads.width(), |row, attended| kernels::gate_sigmoid(*isa, gates(row), attended));
        }
        Ok(())
    }

    fn delta_net(
        &self,
        batch: &mut Batch<'_, KvPage>,
        layer: usize,
        net: &DeltaNet<WeightView, NormVectors>,
        projected: &mut Vec<f32>,
        mixed: &mut Vec<f32>,
    ) -> Result<()> {
        self.advance_delta_net(&mut batch.sequences, layer, net, projected, mixed)
    }

    fn short_conv(
        &self,
        batch: &mut Batch<'_, KvPage>,
        layer: usize,
        conv: &Conv<WeightView>,
        projected: &mut Vec<f32>,
        mixed: &mut Vec<f32>,
    ) -> Result<()> {
        self.advance_short_conv(&mut batch.sequences, layer, conv, projected, mixed)
    }

    fn mamba2(
        &self,
        batch: &mut Batch<'_, KvPage>,
        layer: usize,
        mamba: &Mamba2<WeightView, NormVectors>,
        projected: &mut Vec<f32>,
        mixed: &mut Vec<f32>,
    ) -> Result<()> {
        self.advance_mamba2(&mut batch.sequences, layer, mamba, projected, mixed)
    }

    fn norm_up_activate(
        &self,
        batch: &Batch<'_, KvPage>,
        hidden: &Vec<f32>,
        norm: Option<&NormVectors>,
        up: &Matrix,
        activation: &Activation<Matrix>,
        down: &Matrix,
        activated: &mut Operands,
    ) -> Result<()> {
        *activated = Operands::default(); // the last layer's memory is used again
        let products: Vec<&Matrix> = std::iter::once(up).chain(activation.gate()).collect();
        let inputs = self.normed(norm, hidden, &products)?;
        *activated = self.up_activate(&inputs, batch.rows, up, activation, down)?;
        Ok(())
    }

    fn norm_route_activate(
        &self,
        _: &Batch<'_, KvPage>,
        hidden: &Vec<f32>,
        norm: Option<&NormVectors>,
        experts: &Experts<Matrix, NormVectors>,
        routed: &mut Routed,
    ) -> Result<()> {
        *routed = Routed::default(); // the last layer's memory is free
        *routed = self.route(hidden, norm, experts)?;
        Ok(())
    }

    fn experts_add(
        &self,
        batch: &Batch<'_, KvPage>,
        routed: &Routed,
        experts: &Experts<Matrix, NormVectors>,
        Output { norm, scale }: Output<'_, Self>,
        product: &mut Vec<f32>,
        hidden: &mut Vec<f32>,
    ) -> Result<()> {
        let Some(norm) = norm else { return Ok(self.add_experts(routed, batch.rows, experts, scale, hidden)?) };
        let product = &mut product[..batch.rows * self.buffers.output];
        product.fill(0.0);
        self.add_experts(routed, batch.rows, experts, 1.0, product)?;
        Ok(self.norm_add(norm, product, scale, hidden)?)
    }

    fn linear_add(
        &self,
        batch: &Batch<'_, KvPage>,
        operand: Operand<'_, Self>,
        matrix: &Matrix,
        output: Output<'_, Self>,
        product: &mut Vec<f32>,
        hidden: &mut Vec<f32>,
    ) -> Result<()> {
        let converted;
        let operands = match operand {
            Operand::Activated(operands) => operands,
            Operand::Mixed(x) => {
                converted =
                    Operands::prepare(&self.spare, std::iter::once(matrix.form()), matrix.inputs(), |input, form| {
                        input.convert(&self.pool, self.isa, form, x, matrix.inputs())
                    })?;
                &converted
            }
        };
        let Output { norm, scale } = output;
        let Some(norm) = norm else { return Ok(self.multiply_add(matrix, operands, batch.rows, scale, hidden)?) };
        let product = &mut product[..batch.rows * self.buffers.output];
        self.multiply(&[matrix], operands, batch.rows, product)?;
        Ok(self.norm_add(norm, product, scale, hidden)?)
    }

    fn begin_sum(&self, batch: &Batch<'_, KvPage>, sum: &mut Vec<f32>) -> Result<()> {
        sum.resize(batch.rows * self.buffers.hidden, 0.0);
        sum.fill(0.0);
        Ok(())
    }

    fn add_sum(
        &self,
        _: &Batch<'_, KvPage>,
        sum: &Vec<f32>,
        Output { norm, scale }: Output<'_, Self>,
        hidden: &mut Vec<f32>,
    ) -> Result<()> {
        match norm {
            Some(norm) => self.norm_add(norm, sum, scale, hidden)?,
            None => self.add(hidden, sum, scale),
        }
        Ok(())
    }

    fn layer_inputs(
        &self,
        batch: &Batch<'_, KvPage>,
        hidden: &Vec<f32>,
        embedding: &LayerEmbedding<Self>,
        inputs: &mut Vec<f32>,
    ) -> Result<()> {
        let mut ids = memory::reserved(batch.rows, "the ids of a batch")?;
        ids.extend(batch.sequences.iter().flat_map(|sequence| sequence.tokens));
        Ok(embedding::inputs(self, &ids, hidden, embedding, inputs)?)
    }

    fn gate_layer_input(
        &self,
        batch: &Batch<'_, KvPage>,
        hidden: &Vec<f32>,
        gate: &Matrix,
        inputs: &Vec<f32>,
        layer: usize,
        gated: &mut Vec<f32>,
    ) -> Result<()> {
        Ok(embedding::gate(self, batch.rows, hidden, gate, inputs, layer, gated)?)
    }

    fn scale(&self, _: &Batch<'_, KvPage>, factor: f32, hidden: &mut Vec<f32>) -> Result<()> {
        self.pool.chunks(hidden, TASK_LOGITS, |_, hidden| hidden.iter_mut().for_each(|x| *x *= factor));
        Ok(())
    }

    fn keep_wanted(&self, pass: &mut Pass<'_, Self>) -> Result<()> {
        let rows = pass.batch.rows;
        let Some(kept) = pass.batch.keep_wanted()? else { return Ok(()) };
        for buffer in [&mut pass.hidden, &mut pass.projected, &mut pass.mixed, &mut pass.layer_inputs] {
            let (width, mut end) = (buffer.len() / rows, 0);
            for rows in &kept {
                buffer.copy_within(rows.start * width..rows.end * width, end * width);
                end += rows.len();
            }
            buffer.truncate(end * width);
        }
        Ok(())
    }

    fn logits(
        &self,
        batch: &Batch<'_, KvPage>,
        hidden: &Vec<f32>,
        norm: &NormVectors,
        head: &Matrix,
        multipliers: &Multipliers,
        logits: &mut Vec<f32>,
    ) -> Result<()> {
        *logits = memory::zeros(batch.rows * self.buffers.logits, "logits")?;
        let operands = self.normed(Some(norm), hidden, &[head])?;
        self.multiply(&[head], &operands, batch.rows, logits)?;
        let Multipliers { logits: scale, logit_cap: cap, .. } = *multipliers;
        if scale != 1.0 || cap.is_some() {
            self.pool.chunks(logits, TASK_LOGITS, |_, logits| {
                logits.iter_mut().for_each(|logit| *logit *= scale);
                if let Some(cap) = cap {
                    kernels::soft_cap(self.isa, logits, cap);
                }
            });
        }
        Ok(())
    }
}
