//! ModelSpec + Weights + a device -> Decoder: ids and caches in, logits out. The one place that knows the order of a block;
//! it knows no family and no format.

mod compute;
mod device;
mod kv_cache;
mod layer;
mod load;
mod logits;
mod page;
mod page_pool;
mod prefixes;
mod rope;
mod segment;
mod state;
mod stored;

pub use compute::Compute;
pub use device::{Batch, Device, Operand, Output, Pass, Sequence, no_kernel};
pub use kv_cache::{Cache, KvCache, Parts};
pub use logits::Logits;
pub use page::{AllocatePage, CopyPage, PageKind, PagePair};
pub use page_pool::{CacheSizes, PagePool};
pub(crate) use rope::RopeFrequencies;
pub use rope::{Angles, Rotation};
pub use segment::{HiddenOutput, OutputRows, PassOptions, PassOutput, Segment};
pub(crate) use state::border;
pub use state::{Checkpoint, State};
pub(crate) use stored::floats;
pub use stored::{check_all, int8_rule, shape};

use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::memory;
use crate::weights::Weights;
use layer::Layer;
use load::Load;
pub use model_factory_spec::plan::Batching;
use model_factory_spec::plan::{CpuBuffers, Plan, StateSize, StepRoom, step_rows};
use model_factory_spec::spec::{LayerWeights, ModelSpec, ModelWeights, Multipliers};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use tracing::trace_span;

/// One model's computation on the device `D`.
pub struct Decoder<D: Device> {
    device: D,
    weights: ModelWeights<D>,
    /// Whether what a layer computes of a row depends on the rows beside it: where one scale is made for all of them.
    mixes_rows: Vec<bool>,
    /// The last layer that stores what later positions need, if none behind it mixes rows; else the last of all.
    last_storing: usize,
    ropes: Vec<RopeFrequencies>,
    multipliers: Multipliers,
    vocab: usize,
    batching: Batching,
    pages: Arc<PagePool<D::Page>>,
    room: StepRoom,
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
        let layers = &spec.weights.layers;
        let batching = Batching::new(spec, !D::BATCH_INVARIANT);
        let mixes_rows: Vec<bool> = layers.iter().map(LayerWeights::mixes_rows).collect();
        let mixed = matches!(batching, Batching::Never { .. });
        let storing = layers.iter().rposition(|layer| layer.mixer.layer.stores()).filter(|_| !mixed);
        // Pages of one sequence are another's only where its own would have the same bits.
        let keeps_bits = batching == Batching::Any;
        let states: Arc<[StateSize]> = layers.iter().map(|layer| StateSize::new(&layer.mixer.layer)).collect();
        let has_states = states.iter().any(|size| size.elements() > 0);
        let sizes = CacheSizes {
            kv: D::kv_size(spec, plan.kv_dtype),
            states: if has_states { states } else { Arc::default() },
            budget: plan.cache_budget,
            keep: plan.kv_cache,
        };
        let shares = prefix_caching && keeps_bits;
        Ok(Decoder {
            weights: spec.weights.try_map(&mut Load { device: &device, weights })?,
            mixes_rows,
            last_storing: storing.unwrap_or(layers.len().saturating_sub(1)),
            ropes,
            multipliers: spec.multipliers,
            vocab: spec.vocab,
            batching,
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
        self.batching
    }

    /// The logits of the wanted rows, as [`pass`](Self::pass) gives them.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn forward(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Option<Logits>> {
        Ok(self.pass(segments, PassOptions::LOGITS, cancel)?.logits)
    }

    /// Runs the tokens of several sequences through the model in one pass over its weights and appends them to their
    /// caches. Returns what `options` ask of the rows that the segments want.
    ///
    /// # Errors
    /// `TokenOutOfVocabulary`, and `NoHead` for logits of a model without an output head, before anything is computed; `Cancelled`
    /// after at most one more operation of a layer once `cancel` is; `OutOfMemory`; `Internal` for a cache of another device. After
    /// an error the caches hold what they held before, or less where layers have states that a part of the step has changed.
    pub fn pass(
        &self,
        segments: &mut [Segment<'_>],
        options: PassOptions<'_>,
        cancel: &CancellationToken,
    ) -> Result<PassOutput> {
        if options.logits && self.weights.head.is_none() {
            return Err(Error::NoHead);
        }
        let mut ids = segments.iter().flat_map(|segment| segment.tokens);
        if let Some(id) = ids.find(|id| **id as usize >= self.vocab) {
            return Err(Error::TokenOutOfVocabulary { id: *id, vocab: self.vocab });
        }
        for segment in segments.iter_mut() {
            segment.cache.reserve(segment.cache.len() + segment.tokens.len())?;
        }
        // Where it panics, some layers' states have gone on too.
        let computed = catch_unwind(AssertUnwindSafe(|| self.step(segments, options, cancel)));
        let is_done = matches!(computed, Ok(Ok(_)));
        for Segment { cache, tokens, .. } in segments.iter_mut() {
            if is_done { cache.advance(tokens.len()) } else { cache.abandon() }
        }
        computed.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The scores of the labels of each of `pooled` `[rows, hidden]`; none without a classification head.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn classify(&self, pooled: Vec<f32>) -> Result<Option<Vec<f32>>> {
        self.weights.classifier.as_ref().map(|classifier| self.device.classify(classifier, pooled)).transpose()
    }

    /// The outputs of a step whose positions have room in the caches.
    fn step(
        &self,
        segments: &mut [Segment<'_>],
        options: PassOptions<'_>,
        cancel: &CancellationToken,
    ) -> Result<PassOutput> {
        cancel.check()?;
        let batch = self.batch(segments)?;
        let wanted = batch.wanted_rows() > 0;
        let mut hidden_states = Vec::new();
        let compute = &mut |pass: &mut Pass<'_, D>| self.compute(pass, (wanted, options), &mut hidden_states, cancel);
        let logits = self.device.run(batch, compute)?;
        let logits = (wanted && options.logits).then(|| Logits::new(logits, self.vocab));
        Ok(PassOutput { logits, hidden_states })
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
        for Segment { tokens, cache, rows: output_rows, second_text, .. } in segments {
            let (start, rows) = (cache.len(), end..end + tokens.len());
            end = rows.end;
            cache.begin(tokens.len())?;
            let cache: &mut dyn Any = *cache;
            let cache = cache.downcast_mut::<KvCache<D::Page>>();
            let cache = cache.ok_or_else(|| Error::Internal("a cache of another device".into()))?;
            let Parts { pages, state, checkpoints } = cache.parts();
            let wanted = output_rows.wanted(&rows);
            let second_text = *second_text;
            sequences.push(Sequence { tokens, wanted, rows, start, pages, second_text, state, checkpoints });
        }
        Ok(Batch { sequences, rows: end, angles })
    }

    /// Embedding, blocks, head. Whether any row is wanted comes with `options`.
    fn compute(
        &self,
        pass: &mut Pass<'_, D>,
        (wanted, options): (bool, PassOptions<'_>),
        hidden_states: &mut Vec<f32>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let ModelWeights { embedding, input, joined, layer_embedding, layers, final_norm, head, .. } = &self.weights;
        let (device, never) = (&self.device, CancellationToken::new());
        let cancel = if pass.recorded { &never } else { cancel };
        device.embed(&pass.batch, embedding, self.multipliers.embedding, &mut pass.hidden)?;
        if let Some(joined) = joined {
            device.join(&pass.batch, joined, options.hidden_input, &mut pass.hidden)?;
        }
        if let Some(input) = input {
            device.add_input(&pass.batch, input, &mut pass.hidden)?;
            device.norm(&pass.batch, &input.norm, &mut pass.hidden)?;
        }
        if let Some(embedding) = layer_embedding {
            device.layer_inputs(&pass.batch, &pass.hidden, embedding, &mut pass.layer_inputs)?;
        }
        for (index, weights) in layers.iter().enumerate() {
            let layer = Layer { device, weights, index, residual: self.multipliers.residual };
            cancel.check()?;
            let _span = (!pass.recorded).then(|| trace_span!("layer", layer = index).entered());
            layer.store(pass)?;
            // Behind what later positions need only what is wanted is computed.
            let is_last = index == self.last_storing && options.hidden_states != HiddenOutput::All;
            if is_last && !wanted {
                return Ok(cancel.check()?);
            }
            let keeps = is_last && !self.mixes_rows[index];
            if keeps && !layer.reads_pass() {
                device.keep_wanted(pass)?;
            }
            cancel.check()?;
            layer.mix(pass)?;
            if keeps && layer.reads_pass() {
                device.keep_wanted(pass)?;
            }
            layer.forward(pass, cancel)?;
        }
        cancel.check()?;
        let norm = final_norm.as_ref();
        if options.hidden_states == HiddenOutput::All {
            device.read_hidden(&mut pass.hidden, norm, true, hidden_states)?;
        }
        device.keep_wanted(pass)?;
        if options.hidden_states == HiddenOutput::Wanted && wanted {
            device.read_hidden(&mut pass.hidden, norm, options.logits, hidden_states)?;
        }
        match (norm, head) {
            (Some(norm), Some(head)) if options.logits && wanted => {
                let Pass { batch, hidden, logits, .. } = pass;
                device.logits(batch, hidden, norm, head, &self.multipliers, logits)
            }
            // A model without a head was refused before.
            _ => Ok(()),
        }
    }

    /// Every weight matrix, for inspection, in the order of [`ModelSpec::matrices`].
    pub fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        self.weights.matrices()
    }
}
