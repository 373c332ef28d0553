//! ModelSpec + Weights + a device -> Decoder: ids and caches in, logits out. The one place that knows the order of a block;
//! it knows no family and no format.

mod compute;
mod device;
mod encoder;
mod feed_forward;
mod joined;
mod kv_cache;
mod logits;
mod mixer;
mod page;
mod page_pool;
mod prefixes;
mod recurrent;
mod rope;
mod segment;
mod state;
mod stored;

pub use compute::Compute;
pub use device::no_kernel;
pub use device::{
    AttentionOptions, Batch, Device, HeadOptions, LayerEmbedding, Operand, Output, Pass, Sequence, Stored,
};
pub use encoder::{Classifier, EmbeddingInput};
pub use feed_forward::{Dense, Experts, SharedExpert};
pub use joined::{Hidden, JoinedInput, Taken};
pub use kv_cache::{Cache, KvCache, Parts};
pub use logits::Logits;
pub use page::{AllocatePage, CopyPage, PageKind, PagePair};
pub use page_pool::{CacheSizes, PagePool};
pub use recurrent::{Conv, DeltaNet, Mamba2};
pub(crate) use rope::RopeFrequencies;
pub use rope::{Angles, Rotation};
pub use segment::{Batching, OutputRows, Segment};
pub(crate) use state::border;
pub use state::{Checkpoint, State};
pub(crate) use stored::floats;
pub use stored::{check_all, int8_rule, shape};

use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::memory;
use crate::weights::Weights;
use feed_forward::FeedForwardMatrices;
use mixer::Mixer;
use model_factory_spec::plan::{CpuBuffers, Plan, StateSize, StepRoom, step_rows};
use model_factory_spec::spec::{LayerWeights, LinearWeights, ModelSpec, Multipliers, NormWeights};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use tracing::trace_span;

/// What a pass gives of the wanted rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outputs {
    Logits,
    HiddenStates,
}

/// One model's computation on the device `D`.
pub struct Decoder<D: Device> {
    device: D,
    embedding: D::Matrix,
    input: Option<EmbeddingInput<D::Matrix, D::Norm>>,
    joined: Option<JoinedInput<D::Matrix, D::Norm>>,
    layer_embedding: Option<LayerEmbedding<D>>,
    layers: Vec<Layer<D>>,
    /// The last layer that stores what later positions need, if none behind it mixes rows; else the last of all.
    last_storing: usize,
    final_norm: Option<D::Norm>,
    head: Option<D::Matrix>,
    classifier: Option<Classifier<D::Matrix, D::Norm>>,
    ropes: Vec<RopeFrequencies>,
    multipliers: Multipliers,
    vocab: usize,
    pages: Arc<PagePool<D::Page>>,
    room: StepRoom,
}

/// The weights and options of one block. A pass calls [`Mixer::store`] and then [`Layer::forward`]; between them the last
/// layer drops the rows whose logits are not wanted.
struct Layer<D: Device> {
    mixer: Mixer<D>,
    feed_forward: FeedForward<D>,
    layer_embedding: Option<LayerEmbeddingUse<D>>,
    /// What the residual stream is multiplied by behind all of it.
    scale: f32,
    parallel: bool,
    /// What its outputs are multiplied by.
    residual: f32,
    /// Whether what it computes of a row depends on the rows beside it: where one scale is made for all of them.
    mixes_rows: bool,
}

/// How a block adds its embedding to the residual stream.
struct LayerEmbeddingUse<D: Device> {
    gate: D::Matrix,
    output: D::Matrix,
    output_norm: D::Norm,
}

struct FeedForward<D: Device> {
    norm: Option<D::Norm>,
    layer: FeedForwardMatrices<D::Matrix, D::Norm>,
    beside: Option<Beside<D>>,
    output_norm: Option<D::Norm>,
    sum_norm: Option<D::Norm>,
}

/// A dense layer beside experts.
struct Beside<D: Device> {
    norm: D::Norm,
    dense: Dense<D::Matrix>,
    output_norm: D::Norm,
    experts_norm: D::Norm,
}

impl<D: Device> Decoder<D> {
    /// Attaches kernels to the weights of `spec`; casts none of them. With `prefix_caching` sequences that begin alike share
    /// what they have in common. `device` brings them to where it computes, after all
    /// that can be refused before that.
    ///
    /// # Errors
    /// Those of `device` and of [`Device::matrix`]; `Files` when the rotary frequencies that the files give are no sound
    /// numbers.
    pub fn new(
        spec: &ModelSpec,
        weights: &Weights,
        plan: &Plan,
        prefix_caching: bool,
        device: impl FnOnce() -> Result<D>,
    ) -> Result<Decoder<D>> {
        let ropes = spec.ropes.iter().map(|rope| RopeFrequencies::new(rope, weights)).collect::<Result<_>>()?;
        let device = device()?;
        let stored = &spec.weights;
        let embedding = LinearWeights::of(stored.embedding.clone());
        let matrix = |linear: &LinearWeights| device.matrix(weights, linear);
        let norm = |norm: &NormWeights| device.load_norm(weights, norm);
        let input = stored.input.as_ref().map(|input| EmbeddingInput::new(input, matrix, norm));
        let joined = stored.joined.as_ref().map(|joined| JoinedInput::new(joined, matrix, norm));
        let classifier = stored.classifier.as_ref().map(|head| Classifier::new(head, matrix, norm));
        let layers = stored.layers.iter().map(|layer| Layer::new(&device, weights, layer, &spec.multipliers));
        let layers: Vec<Layer<D>> = layers.collect::<Result<_>>()?;
        let layer_embedding = stored.layer_embedding.as_ref().map(|of_layers| {
            let embedding = LinearWeights::of(of_layers.embedding.clone());
            Ok::<_, Error>(LayerEmbedding {
                width: of_layers.width,
                embedding: device.matrix(weights, &embedding)?,
                projection: device.matrix(weights, &of_layers.projection)?,
                norm: device.load_norm(weights, &of_layers.norm)?,
            })
        });
        let last = layers.len().saturating_sub(1);
        let mixed = layers.iter().any(|layer| layer.mixes_rows);
        let storing = layers.iter().rposition(|layer| layer.mixer.stores()).filter(|_| !mixed);
        // Pages of one sequence are another's only where its own would have the same bits.
        let keeps_bits = D::BATCH_INVARIANT && !layers.iter().any(|layer| layer.mixes_rows);
        let states: Arc<[StateSize]> = stored.layers.iter().map(|layer| StateSize::new(&layer.mixer.layer)).collect();
        let has_states = states.iter().any(|size| size.elements() > 0);
        let sizes = CacheSizes {
            kv: D::kv_size(spec, plan.kv_dtype),
            states: if has_states { states } else { Arc::default() },
            budget: plan.cache_budget,
            keep: plan.kv_cache,
        };
        let shares = prefix_caching && keeps_bits;
        Ok(Decoder {
            embedding: device.matrix(weights, &embedding)?,
            input: input.transpose()?,
            joined: joined.transpose()?,
            classifier: classifier.transpose()?,
            layer_embedding: layer_embedding.transpose()?,
            last_storing: storing.unwrap_or(last),
            layers,
            final_norm: stored.final_norm.as_ref().map(|norm| device.load_norm(weights, norm)).transpose()?,
            head: stored.head.as_ref().map(|head| device.matrix(weights, head)).transpose()?,
            ropes,
            multipliers: spec.multipliers,
            vocab: spec.vocab,
            room: CpuBuffers::new(spec).room(step_rows(spec)),
            pages: PagePool::new(device.pages(), sizes, D::COPY_PAGE.filter(|_| keeps_bits), shares),
            device,
        })
    }

    /// What it computes on.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// An empty cache for one sequence.
    pub fn cache(&self) -> KvCache<D::Page> {
        KvCache::new(Arc::clone(&self.pages))
    }

    /// How a sequence of `length` tokens is rotated.
    pub fn rotation(&self, length: usize) -> Rotation {
        // One that has two lists of factors decides for all.
        let rotations = self.ropes.iter().map(|rope| rope.rotation(length));
        rotations.reduce(|all, of| if of == Rotation::Long { of } else { all }).unwrap_or(Rotation::Short)
    }

    /// Which sequences it may compute together.
    pub fn batching(&self) -> Batching {
        if self.layers.iter().any(|layer| layer.mixes_rows) {
            Batching::Never
        } else if D::BATCH_INVARIANT {
            Batching::Any
        } else {
            Batching::Explicit
        }
    }

    /// Runs the tokens of several sequences through the model in one pass over its weights and appends them to their
    /// caches. Returns the wanted logits F32 `[rows, vocab]` in segment order, or `None` when none are wanted.
    ///
    /// # Errors
    /// `TokenOutOfVocabulary`, and `NoHead` for a model without an output head, before anything is computed; `Cancelled` after at most one more operation of a layer once
    /// `cancel` is; `OutOfMemory`; `Internal` for a cache of another device. After an error the caches hold what they held
    /// before, or less where layers have states that a part of the step has changed.
    pub fn forward(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Option<Logits>> {
        self.forward_with(segments, Hidden::default(), cancel)
    }

    /// As [`forward`](Self::forward), with `hidden` states beside the ids and the logits.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_with(
        &self,
        segments: &mut [Segment<'_>],
        hidden: Hidden<'_>,
        cancel: &CancellationToken,
    ) -> Result<Option<Logits>> {
        if self.head.is_none() {
            return Err(Error::NoHead);
        }
        let wanted: usize = segments.iter().map(Segment::wanted_rows).sum();
        let logits = self.outputs(segments, Outputs::Logits, hidden, cancel)?;
        if wanted == 0 {
            return Ok(None);
        }
        Ok(Some(Logits::new(logits, self.vocab)))
    }

    /// As [`forward`](Self::forward), but returns the wanted rows of what the output head reads, `[rows, hidden]`: the residual
    /// stream behind the last block and its norm.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), but that no head is needed.
    pub fn hidden_states(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Vec<f32>> {
        self.outputs(segments, Outputs::HiddenStates, Hidden::default(), cancel)
    }

    /// The scores of the labels of each of `pooled` `[rows, hidden]`; none without a classification head.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn classify(&self, pooled: Vec<f32>) -> Result<Option<Vec<f32>>> {
        self.classifier.as_ref().map(|classifier| self.device.classify(classifier, pooled)).transpose()
    }

    fn outputs(
        &self,
        segments: &mut [Segment<'_>],
        outputs: Outputs,
        hidden: Hidden<'_>,
        cancel: &CancellationToken,
    ) -> Result<Vec<f32>> {
        let mut ids = segments.iter().flat_map(|segment| segment.tokens);
        if let Some(id) = ids.find(|id| **id as usize >= self.vocab) {
            return Err(Error::TokenOutOfVocabulary { id: *id, vocab: self.vocab });
        }
        for segment in segments.iter_mut() {
            segment.cache.reserve(segment.cache.len() + segment.tokens.len())?;
        }
        // Where it panics, some layers' states have gone on too.
        let computed = catch_unwind(AssertUnwindSafe(|| self.step(segments, outputs, hidden, cancel)));
        let is_done = matches!(computed, Ok(Ok(_)));
        for Segment { cache, tokens, .. } in segments.iter_mut() {
            if is_done { cache.advance(tokens.len()) } else { cache.abandon() }
        }
        computed.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The outputs of a step whose positions have room in the caches.
    fn step(
        &self,
        segments: &mut [Segment<'_>],
        outputs: Outputs,
        mut hidden: Hidden<'_>,
        cancel: &CancellationToken,
    ) -> Result<Vec<f32>> {
        cancel.check()?;
        let batch = self.batch(segments)?;
        let outputs = (batch.wanted_rows() > 0).then_some(outputs);
        self.device.run(batch, &mut |pass| self.compute(pass, outputs, &mut hidden, cancel))
    }

    /// The rows of `segments`, one behind the other.
    fn batch<'b>(&self, segments: &'b mut [Segment<'_>]) -> Result<Batch<'b, D::Page>> {
        let mut angles: Vec<Angles> = self.ropes.iter().map(RopeFrequencies::no_angles).collect();
        let mut sequences = memory::reserved(segments.len(), "the sequences of a batch")?;
        for Segment { tokens, cache, reach, .. } in segments.iter() {
            let start = cache.len();
            for (rope, angles) in self.ropes.iter().zip(&mut angles) {
                rope.extend(angles, rope.rotation(*reach), start..start + tokens.len())?;
            }
        }
        let mut end = 0;
        for Segment { tokens, cache, logits, second_text, .. } in segments {
            let (start, rows) = (cache.len(), end..end + tokens.len());
            end = rows.end;
            cache.begin(tokens.len())?;
            let cache: &mut dyn Any = *cache;
            let cache = cache.downcast_mut::<KvCache<D::Page>>();
            let cache = cache.ok_or_else(|| Error::Internal("a cache of another device".into()))?;
            let Parts { pages, state, checkpoints } = cache.parts();
            let wanted = logits.wanted(&rows);
            let second_text = *second_text;
            sequences.push(Sequence { tokens, wanted, rows, start, pages, second_text, state, checkpoints });
        }
        Ok(Batch { sequences, rows: end, angles })
    }

    /// Embedding, blocks, head.
    fn compute(
        &self,
        pass: &mut Pass<'_, D>,
        outputs: Option<Outputs>,
        states: &mut Hidden<'_>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let (device, never) = (&self.device, CancellationToken::new());
        let cancel = if pass.recorded { &never } else { cancel };
        device.embed(&pass.batch, &self.embedding, self.multipliers.embedding, &mut pass.hidden)?;
        if let Some(joined) = &self.joined {
            device.join(&pass.batch, joined, states.given, &mut pass.hidden)?;
        }
        if let Some(input) = &self.input {
            device.add_input(&pass.batch, input, &mut pass.hidden)?;
            device.norm(&pass.batch, &input.norm, &mut pass.hidden)?;
        }
        if let Some(embedding) = &self.layer_embedding {
            device.layer_inputs(&pass.batch, &pass.hidden, embedding, &mut pass.layer_inputs)?;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            cancel.check()?;
            let _span = (!pass.recorded).then(|| trace_span!("layer", layer = index).entered());
            layer.mixer.store(device, index, pass)?;
            // Behind what later positions need only what is wanted is computed.
            let is_last = index == self.last_storing && !states.taken.is_all();
            if is_last && outputs.is_none() {
                return Ok(cancel.check()?);
            }
            let keeps = is_last && !layer.mixes_rows;
            if keeps && !layer.mixer.reads_pass() {
                device.keep_wanted(pass)?;
            }
            cancel.check()?;
            layer.mixer.mix(device, index, pass)?;
            if keeps && layer.mixer.reads_pass() {
                device.keep_wanted(pass)?;
            }
            layer.forward(device, index, pass, cancel)?;
        }
        cancel.check()?;
        if let (Taken::All(taken), Some(norm)) = (&mut states.taken, &self.final_norm) {
            device.give_normed(&pass.batch, norm, &pass.hidden, taken)?;
        }
        device.keep_wanted(pass)?;
        if let (Taken::Wanted(taken), Some(norm)) = (&mut states.taken, &self.final_norm) {
            device.give_normed(&pass.batch, norm, &pass.hidden, taken)?;
        }
        match (outputs, &self.final_norm, &self.head) {
            (Some(Outputs::Logits), Some(norm), Some(head)) => {
                let Pass { batch, hidden, logits, .. } = pass;
                device.logits(batch, hidden, norm, head, &self.multipliers, logits)
            }
            (Some(Outputs::HiddenStates), norm, _) => {
                if let Some(norm) = norm {
                    device.norm(&pass.batch, norm, &mut pass.hidden)?;
                }
                device.give_hidden(pass)
            }
            // A model without a head was refused before.
            (None, ..) | (Some(Outputs::Logits), ..) => Ok(()),
        }
    }

    /// Every weight matrix, for inspection, in the order of [`ModelSpec::matrices`].
    pub fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        let of_layers = self.layer_embedding.iter().flat_map(|of_layers| [&of_layers.embedding, &of_layers.projection]);
        std::iter::once(&self.embedding)
            .chain(self.input.iter().flat_map(EmbeddingInput::matrices))
            .chain(self.joined.iter().map(|joined| &joined.projection))
            .chain(of_layers)
            .chain(self.layers.iter().flat_map(Layer::matrices))
            .chain(&self.head)
            .chain(self.classifier.iter().flat_map(Classifier::matrices))
    }
}

impl<D: Device> Layer<D> {
    fn new(device: &D, weights: &Weights, layer: &LayerWeights, multipliers: &Multipliers) -> Result<Layer<D>> {
        let matrix = |linear: &LinearWeights| device.matrix(weights, linear);
        let norm = |norm: &Option<NormWeights>| norm.as_ref().map(|norm| device.load_norm(weights, norm)).transpose();
        let LayerWeights { mixer, feed_forward, layer_embedding, scale, parallel } = layer;
        let layer_embedding = layer_embedding.as_ref().map(|embedding| {
            Ok::<_, Error>(LayerEmbeddingUse {
                gate: matrix(&embedding.gate)?,
                output: matrix(&embedding.output)?,
                output_norm: device.load_norm(weights, &embedding.output_norm)?,
            })
        });
        let beside = feed_forward.beside.as_ref().map(|beside| {
            Ok::<_, Error>(Beside {
                norm: device.load_norm(weights, &beside.norm)?,
                dense: Dense::new(&beside.dense, matrix)?,
                output_norm: device.load_norm(weights, &beside.output_norm)?,
                experts_norm: device.load_norm(weights, &beside.experts_norm)?,
            })
        });
        let scale = scale.as_ref().map(|scale| stored::number(weights, scale)).transpose()?;
        Ok(Layer {
            mixer: Mixer::new(device, weights, mixer)?,
            feed_forward: FeedForward {
                norm: norm(&feed_forward.norm)?,
                layer: FeedForwardMatrices::new(weights, &feed_forward.layer, matrix, norm)?,
                beside: beside.transpose()?,
                output_norm: norm(&feed_forward.output_norm)?,
                sum_norm: norm(&feed_forward.sum_norm)?,
            },
            layer_embedding: layer_embedding.transpose()?,
            scale: scale.unwrap_or(1.0),
            parallel: *parallel,
            residual: multipliers.residual,
            mixes_rows: layer.mixes_rows(),
        })
    }

    /// Brings the residual stream through this block, whose mixer has mixed its rows.
    ///
    /// # Errors
    /// `Cancelled` before the next operation once `cancel` is; those of the operations.
    fn forward<'l>(
        &'l self,
        device: &D,
        index: usize,
        pass: &mut Pass<'_, D>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let Layer { mixer, feed_forward, layer_embedding, parallel, .. } = self;
        let output = |norm: &'l Option<D::Norm>| Output { norm: norm.as_ref(), scale: self.residual };
        cancel.check()?;
        let Pass { batch, hidden, mixed, layer_inputs, activated, routed, product, .. } = pass;
        if *parallel {
            feed_forward.activate(device, batch, hidden, activated, routed)?;
            cancel.check()?;
        }
        let of_mixer = output(&mixer.output_norm);
        device.linear_add(batch, Operand::Mixed(mixed), mixer.output(), of_mixer, product, hidden)?;
        if let Some(norm) = &mixer.sum_norm {
            device.norm(batch, norm, hidden)?;
        }
        cancel.check()?;
        if !*parallel {
            feed_forward.activate(device, batch, hidden, activated, routed)?;
            cancel.check()?;
        }
        let output = output(&feed_forward.output_norm);
        match (&feed_forward.layer, &feed_forward.beside) {
            (FeedForwardMatrices::Dense(dense), _) => {
                device.linear_add(batch, Operand::Activated(activated), &dense.down, output, product, hidden)?;
            }
            (FeedForwardMatrices::Experts(experts), None) => {
                device.experts_add(batch, routed, experts, output, product, hidden)?;
            }
            (FeedForwardMatrices::Experts(experts), Some(Beside { dense, output_norm, experts_norm, .. })) => {
                let normed = |norm| Output { norm: Some(norm), scale: 1.0 };
                device.begin_sum(batch, mixed)?;
                let operand = Operand::Activated(activated);
                device.linear_add(batch, operand, &dense.down, normed(output_norm), product, mixed)?;
                cancel.check()?;
                device.experts_add(batch, routed, experts, normed(experts_norm), product, mixed)?;
                device.add_sum(batch, mixed, output, hidden)?;
            }
        }
        if let Some(norm) = &feed_forward.sum_norm {
            device.norm(batch, norm, hidden)?;
        }
        if let Some(LayerEmbeddingUse { gate, output, output_norm }) = layer_embedding {
            cancel.check()?;
            device.gate_layer_input(batch, hidden, gate, layer_inputs, index, mixed)?;
            let normed = Output { norm: Some(output_norm), scale: self.residual };
            device.linear_add(batch, Operand::Mixed(mixed), output, normed, product, hidden)?;
        }
        if self.scale != 1.0 {
            device.scale(batch, self.scale, hidden)?;
        }
        Ok(())
    }

    fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        let embedding = self.layer_embedding.iter().flat_map(|embedding| [&embedding.gate, &embedding.output]);
        let beside = self.feed_forward.beside.iter().flat_map(|beside| beside.dense.matrices());
        self.mixer.matrices().chain(self.feed_forward.layer.matrices()).chain(beside).chain(embedding)
    }
}

impl<D: Device> FeedForward<D> {
    fn activate(
        &self,
        device: &D,
        batch: &D::Batch<'_>,
        hidden: &D::Buffer,
        activated: &mut D::Activated,
        routed: &mut D::Routed,
    ) -> Result<()> {
        if let Some(Beside { norm, dense: Dense { up, activation, down }, .. }) = &self.beside {
            device.norm_up_activate(batch, hidden, Some(norm), up, activation, down, activated)?;
        }
        match &self.layer {
            FeedForwardMatrices::Dense(Dense { up, activation, down }) => {
                device.norm_up_activate(batch, hidden, self.norm.as_ref(), up, activation, down, activated)
            }
            FeedForwardMatrices::Experts(experts) => {
                device.norm_route_activate(batch, hidden, self.norm.as_ref(), experts, routed)
            }
        }
    }
}
