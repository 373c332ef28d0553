//! ModelSpec + Weights -> Decoder on a card: the same table-driven block as the processor's, as launches of kernels.

use super::arguments::{Attend, Embed, Rotate};
use super::batch::Batch;
use super::cache::Cache;
use super::card::Card;
use super::gpu::{Buffer, Function, Gpu, QueryTile, Recording, Shape};
use super::modules::Module;
use super::peak::ProductSeconds;
use super::product::{FEW, Loaded, Matrix, Multiplier, NormVectors, Rows, Source, Target};
use super::weights::{DeviceWeights, Uploaded};
use crate::cache_budget::CacheBudget;
use crate::decoder::{Heads, RopeFrequencies, Rotation, Segment};
use crate::error::CudaError;
use crate::error::{Error, Result};
use crate::weights::Weights;
use candle_core::{Device, Tensor};
use model_diagnostics::DType;
use model_diagnostics::capability::CARD_MOST_HEAD_DIM;
use model_diagnostics::hardware::Gpu as Described;
use model_diagnostics::plan::{
    CARD_ATTENTION_PARTS, CARD_LOGIT_ROWS, CardBuffers, KvDtype, PREFILL_CHUNK, Plan, kv_page_bytes,
};
use model_diagnostics::spec::{Activation, LayerWeights, LinearWeights, ModelSpec, RopeLayout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Positions below which attention is not divided further.
const PART_POSITIONS: usize = 128;

/// Batches whose launches are kept: one sequence at each number of parts, and some batches.
const MOST_RECORDINGS: usize = 16;

/// One model's computation on a card.
#[derive(Debug)]
pub struct Decoder {
    gpu: Arc<dyn Gpu>,
    weights: DeviceWeights,
    embedding: Embedding,
    blocks: Vec<Block>,
    final_norm: NormVectors,
    head: Matrix,
    rope: RopeFrequencies,
    interleaved: bool,
    pairs: usize,
    heads: Heads,
    tile: QueryTile,
    hidden: usize,
    feed_forward: usize,
    vocab: usize,
    window: usize,
    gated: bool,
    parallel: bool,
    kv_dtype: KvDtype,
    page_bytes: usize,
    budget: Arc<CacheBudget>,
    kernels: Kernels,
    /// One forward pass, or measurement, works at a time: [`alone`](Self::alone).
    scratch: Mutex<Buffers>,
}

#[derive(Debug)]
struct Embedding {
    function: Function,
    address: u64,
    row_bytes: usize,
}

/// The weights of one block.
#[derive(Debug)]
struct Block {
    attention_norm: NormVectors,
    qkv: Vec<Matrix>,
    q_norm: Option<NormVectors>,
    k_norm: Option<NormVectors>,
    out: [Matrix; 1],
    mlp_norm: NormVectors,
    /// Up, and behind it gate where there is one.
    up_gate: Vec<Matrix>,
    down: [Matrix; 1],
}

#[derive(Debug)]
struct Kernels {
    prepare: Function,
    rotate: Function,
    attend: Function,
    combine: Function,
}

/// What forward passes work in.
#[derive(Debug)]
struct Buffers {
    rows: usize,
    batch: Buffer,
    hidden: Buffer,
    qkv: Buffer,
    attended: Buffer,
    up_gate: Buffer,
    partial: Buffer,
    logits: Buffer,
    multiplier: Multiplier,
    /// What the multiplier works in.
    prepared: [Buffer; 3],
    /// The launches of batches that were seen twice, the oldest first.
    recordings: Vec<(Batch, Recording)>,
    /// The last batch whose launches were not recorded. By then all kernels in it are loaded.
    last: Option<Batch>,
}

impl Buffers {
    fn new(gpu: &Arc<dyn Gpu>, sizes: CardBuffers, prepare: Function) -> Result<Buffers, CudaError> {
        let buffer = |bytes: u64| Buffer::new(gpu, "the buffers of a forward pass", bytes as usize);
        let prepared = [buffer(sizes.prepared)?, buffer(sizes.steps)?, buffer(sizes.extents)?];
        let [rows, steps, extents] = prepared.each_ref().map(Buffer::address);
        Ok(Buffers {
            rows: sizes.rows,
            batch: buffer(sizes.batch)?,
            hidden: buffer(sizes.hidden)?,
            qkv: buffer(sizes.qkv)?,
            attended: buffer(sizes.attended)?,
            up_gate: buffer(sizes.up_gate)?,
            partial: buffer(sizes.partial)?,
            logits: buffer(sizes.logits)?,
            multiplier: Multiplier { gpu: Arc::clone(gpu), prepare, prepared: rows, steps, extents },
            prepared,
            recordings: Vec::new(),
            last: None,
        })
    }

    fn bytes(&self) -> usize {
        let own = [&self.batch, &self.hidden, &self.qkv, &self.attended, &self.up_gate, &self.partial, &self.logits];
        own.into_iter().chain(&self.prepared).map(Buffer::bytes).sum()
    }
}

impl Decoder {
    /// Uploads the weights to the card that `described` names, or else the one of this index, and compiles what they need.
    /// `uploaded` is told the bytes that are copied and those in all; its error ends the upload, and frees what it took.
    ///
    /// # Errors
    /// Those of [`CudaError`] and of `uploaded`; `Files` when the files give numbers that no sound model has.
    pub(crate) fn on_card(
        spec: &ModelSpec,
        weights: &Weights,
        plan: &Plan,
        described: Option<&Described>,
        index: usize,
        uploaded: &Uploaded<'_>,
    ) -> Result<Decoder> {
        let card = Card::open(described.and_then(|card| card.uuid.as_deref()), index)?;
        Decoder::new(Arc::new(card), spec, weights, plan.kv_dtype, plan.context, plan.cache_budget, uploaded)
    }

    /// As [`on_card`](Self::on_card), on whatever runs kernels. The caches of all sequences take at most `cache_bytes`.
    pub(super) fn new(
        gpu: Arc<dyn Gpu>,
        spec: &ModelSpec,
        weights: &Weights,
        kv_dtype: KvDtype,
        context: usize,
        cache_bytes: u64,
        uploaded: &Uploaded<'_>,
    ) -> Result<Decoder> {
        // `MOST_DIM` of `steps.cu`.
        if spec.head_dim > CARD_MOST_HEAD_DIM {
            return Err(Error::Internal(format!("the diagnosis accepted heads of {} elements", spec.head_dim)));
        }
        let gated = match (spec.activation, spec.weights.layers.iter().all(|layer| layer.gate.is_some())) {
            (Activation::SwiGlu, true) => true,
            (Activation::GeluTanh, false) => false,
            _ => return Err(Error::Internal("the diagnosis accepted an activation without a kernel".into())),
        };
        let kernels = Kernels {
            prepare: gpu.function(Module::Steps, "prepare")?,
            rotate: gpu.function(Module::Steps, "rotate")?,
            attend: gpu.function(Module::Steps, "attend")?,
            combine: gpu.function(Module::Steps, "combine")?,
        };
        // All that may be refused comes before the weights are copied, but for what is read of them.
        let rope = RopeFrequencies::new(&spec.rope, weights)?;
        let scratch = Buffers::new(&gpu, CardBuffers::new(spec, context), kernels.prepare)?;
        let device = DeviceWeights::upload(&gpu, spec, weights, uploaded)?;
        let mut loaded = Loaded::new();
        let mut matrix = |linear: &LinearWeights| Matrix::new(&*gpu, &mut loaded, &device, weights, linear);
        let blocks = spec
            .weights
            .layers
            .iter()
            .map(|layer| Block::new(spec, &device, layer, &mut matrix))
            .collect::<Result<Vec<Block>>>()?;
        let head = matrix(&spec.weights.head)?;
        let stored = &spec.weights.embedding;
        let of_embedding = super::product::MatrixKernels::load(&*gpu, stored.dtype)?;
        Ok(Decoder {
            embedding: Embedding {
                function: of_embedding.embed()?,
                address: device.address(stored)?,
                row_bytes: spec.hidden / stored.dtype.block_len() * stored.dtype.block_bytes(),
            },
            blocks,
            final_norm: NormVectors::new(&device, &spec.weights.final_norm, spec.norm)?,
            head,
            rope,
            interleaved: spec.rope.layout == RopeLayout::Interleaved,
            pairs: spec.rope.dimensions / 2,
            heads: Heads { queries: spec.heads, kv: spec.kv_heads, dim: spec.head_dim },
            tile: QueryTile::new(spec.heads / spec.kv_heads, spec.head_dim, gpu.capability()),
            hidden: spec.hidden,
            feed_forward: spec.feed_forward,
            vocab: spec.vocab,
            window: spec.sliding_window.unwrap_or(0),
            gated,
            parallel: spec.parallel_block,
            kv_dtype,
            page_bytes: kv_page_bytes(spec, kv_dtype) as usize,
            budget: CacheBudget::new(cache_bytes),
            kernels,
            scratch: Mutex::new(scratch),
            weights: device,
            gpu,
        })
    }

    /// An empty cache for one sequence.
    pub(crate) fn cache(&self) -> Cache {
        Cache::new(Arc::clone(&self.gpu), self.page_bytes, self.budget.share())
    }

    /// Ids an embedding row exists for.
    pub(crate) fn vocab(&self) -> usize {
        self.vocab
    }

    /// How a sequence of `length` tokens is rotated.
    pub(crate) fn rotation(&self, length: usize) -> Rotation {
        self.rope.rotation(length)
    }

    /// Bytes on the card that belong to the model: its weights, and what forward passes work in. Caches come on top.
    pub fn bytes(&self) -> usize {
        self.weights.bytes() + self.alone().bytes()
    }

    /// Reads the weights back and names the first whose bytes are not those of the file. For checks.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn first_difference(&self, spec: &ModelSpec, weights: &Weights) -> Result<Option<String>> {
        let _alone = self.alone();
        Ok(self.weights.first_difference(spec, weights)?)
    }

    /// Bytes of the card that are free, and that it has in all.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn memory(&self) -> Result<(usize, usize)> {
        Ok(self.gpu.memory()?)
    }

    /// Bytes a second, read and written together, of copies on the card.
    ///
    /// # Errors
    /// `Memory` when there is no room for what is copied; those of the driver.
    pub fn copy_rate(&self) -> Result<f64> {
        let _alone = self.alone();
        Ok(super::peak::copy_rate(&self.gpu)?)
    }

    /// Multiplications and additions a second of the card's tensor cores with what matrices of `dtype` are multiplied by,
    /// as the instructions that the kernels use reach them; `None` where the kernels use none.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn matrix_rate(&self, dtype: DType) -> Result<Option<f64>> {
        let _alone = self.alone();
        Ok(super::peak::matrix_rate(&self.gpu, dtype)?)
    }

    /// Times products of `tokens` rows with a matrix `[outputs, inputs]` of `dtype` that no cache holds.
    ///
    /// # Errors
    /// `Memory` when there is no room for a gigabyte of matrices; those of compiling and of the driver.
    pub fn product_seconds(&self, dtype: DType, shape: [usize; 2], tokens: usize) -> Result<ProductSeconds> {
        let _alone = self.alone();
        super::peak::product_seconds(&self.gpu, dtype, shape, tokens, 1 << 30)
    }

    /// The right to work in the scratch and on the card's stream: what others started there while launches are recorded
    /// would become part of the recording.
    fn alone(&self) -> MutexGuard<'_, Buffers> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the processor's `Decoder::forward`: the wanted logits, F32 `[rows, vocab]` in main memory.
    pub(crate) fn forward(&self, segments: &mut [Segment<'_, Cache>]) -> Result<Option<Tensor>> {
        let total: usize = segments.iter().map(|segment| segment.tokens.len()).sum();
        let mut ids = segments.iter().flat_map(|segment| segment.tokens);
        if let Some(id) = ids.find(|id| **id as usize >= self.vocab) {
            return Err(Error::TokenOutOfVocabulary { id: *id, vocab: self.vocab });
        }
        for segment in segments.iter_mut() {
            segment.cache.reserve(segment.cache.len() + segment.tokens.len())?;
        }
        let mut scratch = self.alone();
        if total > scratch.rows {
            return Err(Error::Internal(format!("{total} rows at a time, expected at most {}", scratch.rows)));
        }
        let parts = |rows, tiles, longest| self.parts(rows, tiles, longest);
        let batch = Batch::upload(segments, &self.rope, self.tile, parts, &self.gpu, &mut scratch.batch)?;
        // Steps of generation follow each other by the thousand, with the same launches but for the table.
        let again = batch.rows == segments.len() && batch.wanted_rows == batch.rows && batch.rows <= FEW;
        let logits = if again { self.replay(&mut scratch, batch)? } else { self.run(&scratch, &batch)? };
        for segment in segments.iter_mut() {
            segment.cache.advance(segment.tokens.len());
        }
        if batch.wanted_rows == 0 {
            return Ok(None);
        }
        Ok(Some(Tensor::from_vec(logits, (batch.wanted_rows, self.vocab), &Device::Cpu)?))
    }

    /// Starts the recorded launches of a batch like this one. They are recorded when it comes the second time in a row.
    fn replay(&self, scratch: &mut Buffers, batch: Batch) -> Result<Vec<f32>> {
        let known = scratch.recordings.iter().position(|(other, _)| *other == batch);
        let index = match known {
            Some(index) => index,
            None if scratch.last != Some(batch) => {
                scratch.last = Some(batch);
                return self.run(scratch, &batch);
            }
            None => {
                let made = Recording::new(&self.gpu, &mut || {
                    self.blocks(scratch, &batch)?;
                    self.head(scratch, &batch, |_| Ok(()))
                })?;
                if scratch.recordings.len() == MOST_RECORDINGS {
                    scratch.recordings.remove(0);
                }
                scratch.recordings.push((batch, made));
                scratch.recordings.len() - 1
            }
        };
        // SAFETY: the launches work in the weights and the scratch of this decoder, and in the table of the batch, whose
        // addresses are compared; the addresses of pages are in the table.
        unsafe { scratch.recordings[index].1.replay()? };
        Ok(scratch.logits.floats(batch.wanted_rows * self.vocab)?)
    }

    /// Runs the rows of `batch` through the model and reads the wanted logits.
    fn run(&self, scratch: &Buffers, batch: &Batch) -> Result<Vec<f32>> {
        self.blocks(scratch, batch)?;
        let mut logits = Vec::new();
        self.head(scratch, batch, |rows| {
            let some = scratch.logits.floats(rows * self.vocab)?;
            if logits.is_empty() {
                logits = some
            } else {
                logits.extend(some)
            }
            Ok(())
        })?;
        Ok(logits)
    }

    /// The embedding and all blocks.
    fn blocks(&self, scratch: &Buffers, batch: &Batch) -> Result<(), CudaError> {
        let embed = Embed {
            weight: self.embedding.address,
            ids: batch.ids,
            out: scratch.hidden.address(),
            width: self.hidden as i32,
            row_bytes: self.embedding.row_bytes as i32,
        };
        scratch.multiplier.launch(self.embedding.function, Shape::new([batch.rows, 1, 1], 256), &embed)?;
        self.blocks.iter().enumerate().try_for_each(|(layer, block)| self.block(layer, block, scratch, batch))
    }

    /// The logits of the wanted rows, some at a time; `take` is told after each how many.
    fn head(
        &self,
        scratch: &Buffers,
        batch: &Batch,
        take: impl FnMut(usize) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if batch.wanted_rows == 0 {
            return Ok(());
        }
        let rows = Rows {
            source: Source::Norm(&self.final_norm),
            address: scratch.hidden.address(),
            stride: self.hidden,
            gather: batch.wanted,
            count: batch.wanted_rows,
        };
        let target = Target { address: scratch.logits.address(), width: self.vocab, add: false };
        scratch.multiplier.multiply_slices(rows, &self.head, CARD_LOGIT_ROWS.min(scratch.rows), target, take)
    }

    fn block(&self, layer: usize, block: &Block, scratch: &Buffers, batch: &Batch) -> Result<(), CudaError> {
        let launcher = &scratch.multiplier;
        let (queries, ff) = (self.heads.queries * self.heads.dim, self.feed_forward);
        let rows = |source, buffer: &Buffer, stride| Rows {
            source,
            address: buffer.address(),
            stride,
            gather: 0,
            count: batch.rows,
        };
        let into = |buffer: &Buffer, width, add| Target { address: buffer.address(), width, add };
        let up_gate = self.up_gate_width();
        let lift = || {
            let source = Source::Norm(&block.mlp_norm);
            let read = rows(source, &scratch.hidden, self.hidden);
            launcher.multiply(read, &block.up_gate, into(&scratch.up_gate, up_gate, false))
        };
        let normed = rows(Source::Norm(&block.attention_norm), &scratch.hidden, self.hidden);
        launcher.multiply(normed, &block.qkv, into(&scratch.qkv, self.heads.qkv_width(), false))?;
        self.rotate(layer, block, scratch, batch)?;
        self.attend(layer, scratch, batch)?;
        if self.parallel {
            // It reads what attention reads, so it goes before attention is added.
            lift()?;
        }
        let attended = rows(Source::Plain, &scratch.attended, queries);
        launcher.multiply(attended, &block.out, into(&scratch.hidden, self.hidden, true))?;
        if !self.parallel {
            lift()?;
        }
        let source = if self.gated { Source::SwiGlu { offset: ff } } else { Source::Gelu };
        let activated = rows(source, &scratch.up_gate, up_gate);
        launcher.multiply(activated, &block.down, into(&scratch.hidden, self.hidden, true))
    }

    fn up_gate_width(&self) -> usize {
        if self.gated { 2 * self.feed_forward } else { self.feed_forward }
    }

    fn rotate(&self, layer: usize, block: &Block, scratch: &Buffers, batch: &Batch) -> Result<(), CudaError> {
        let Heads { queries, kv, dim } = self.heads;
        let [q, k] = [&block.q_norm, &block.k_norm];
        let weight = |norm: &Option<NormVectors>| norm.map_or((0, 0), |norm| (norm.weight.address, norm.weight.code));
        let bias = |norm: &Option<NormVectors>| norm.map_or((0, 0), |norm| (norm.bias.address, norm.bias.code));
        let any = q.or(*k);
        let given = Rotate {
            qkv: scratch.qkv.address(),
            cos: batch.cos,
            sin: batch.sin,
            q_norm: weight(q).0,
            q_bias: bias(q).0,
            k_norm: weight(k).0,
            k_bias: bias(k).0,
            places: batch.places,
            pages: batch.pages,
            heads: queries as i32,
            kv_heads: kv as i32,
            dim: dim as i32,
            pairs: self.pairs as i32,
            interleaved: i32::from(self.interleaved),
            halves: i32::from(self.kv_dtype == KvDtype::F16),
            layer: layer as i32,
            layer_norm: i32::from(any.is_some_and(|norm| norm.layer)),
            q_norm_code: weight(q).1,
            q_bias_code: bias(q).1,
            k_norm_code: weight(k).1,
            k_bias_code: bias(k).1,
            eps: any.map_or(0.0, |norm| norm.eps),
            unused: 0,
        };
        const WARPS: usize = 4; // `ROTATE_WARPS` of `steps.cu`
        let shape = Shape::new([batch.rows, (queries + 2 * kv).div_ceil(WARPS), 1], 32 * WARPS);
        scratch.multiplier.launch(self.kernels.rotate, shape, &given)
    }

    fn attend(&self, layer: usize, scratch: &Buffers, batch: &Batch) -> Result<(), CudaError> {
        let Heads { queries, kv, dim } = self.heads;
        let blocks = kv * (queries / kv).div_ceil(self.tile.heads);
        let given = Attend {
            qkv: scratch.qkv.address(),
            out: scratch.attended.address(),
            queries: batch.queries,
            pages: batch.pages,
            partial: scratch.partial.address(),
            heads: queries as i32,
            kv_heads: kv as i32,
            dim: dim as i32,
            halves: i32::from(self.kv_dtype == KvDtype::F16),
            layer: layer as i32,
            window: self.window as i32,
            parts: batch.parts as i32,
            heads_a_block: self.tile.heads as i32,
            scale: 1.0 / (dim as f32).sqrt(),
            unused: 0,
        };
        const WARPS: usize = 4; // `ATTEND_WARPS` of `steps.cu`
        let shape = Shape { shared: self.tile.shared, ..Shape::new([batch.tiles, blocks, batch.parts], 32 * WARPS) };
        scratch.multiplier.launch(self.kernels.attend, shape, &given)?;
        if batch.parts > 1 {
            let shape = Shape::new([batch.rows, queries, 1], 128);
            scratch.multiplier.launch(self.kernels.combine, shape, &given)?;
        }
        Ok(())
    }

    /// In how many parts positions up to `longest` are attended to, a power of two, so that there are blocks for the whole
    /// card.
    fn parts(&self, rows: usize, tiles: usize, longest: usize) -> usize {
        let seen = if self.window > 0 { longest.min(self.window) } else { longest };
        let wanted = (2 * self.gpu.processors()).div_ceil(self.heads.kv * tiles);
        let parts = wanted.min(seen.div_ceil(PART_POSITIONS)).min(CARD_ATTENTION_PARTS / rows.max(1)).max(1);
        1 << parts.ilog2()
    }
}

impl Block {
    fn new(
        spec: &ModelSpec,
        device: &DeviceWeights,
        layer: &LayerWeights,
        matrix: &mut impl FnMut(&LinearWeights) -> Result<Matrix>,
    ) -> Result<Block> {
        let norm = |norm| NormVectors::new(device, norm, spec.norm);
        let gate = layer.gate.as_ref().map(&mut *matrix).transpose()?;
        Ok(Block {
            attention_norm: norm(&layer.attention_norm)?,
            qkv: vec![matrix(&layer.q)?, matrix(&layer.k)?, matrix(&layer.v)?],
            q_norm: layer.q_norm.as_ref().map(norm).transpose()?,
            k_norm: layer.k_norm.as_ref().map(norm).transpose()?,
            out: [matrix(&layer.o)?],
            mlp_norm: norm(&layer.mlp_norm)?,
            up_gate: std::iter::once(matrix(&layer.up)?).chain(gate).collect(),
            down: [matrix(&layer.down)?],
        })
    }
}

const _: () = assert!(CARD_ATTENTION_PARTS <= PREFILL_CHUNK, "parts are for few rows");
