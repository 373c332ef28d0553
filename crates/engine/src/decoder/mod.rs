//! ModelSpec + Weights + a device -> Decoder: ids and caches in, logits out. The one place that knows the order of a
//! block; it knows no family and no format.

mod compute;
mod device;
mod kv_cache;
mod layer;
mod load;
mod logits;
mod page;
mod page_pool;
mod prefix_store;
mod prefixes;
mod rope;
mod segment;
mod state;
mod stored;
mod tower;

pub use compute::Compute;
pub use device::{
    Batch, Device, EncoderLayers, ExpertLayers, Extensions, HiddenStates, LatentLayers, LayerEmbeddings, Operand,
    Output, RecurrentLayers, ResidualStreams, Sequence, SoftTokenRows, VisionLayers,
};
pub use kv_cache::{KvCache, Parts};
pub use logits::Logits;
pub use page::{AllocatePage, PageKind, PageMemory, PagePair};
use page_pool::CacheSizes;
pub use page_pool::PagePool;
pub use prefix_store::{Entry, Key, Part, PrefixStore, Unsaved, Work};
pub(crate) use rope::RopeFrequencies;
pub use rope::{Angles, Rotation};
pub use segment::{HiddenOutput, OutputRows, PassOptions, PassOutput, Segment};
pub(crate) use state::border;
pub use state::{Checkpoint, State};
pub(crate) use stored::{check_all, check_rows_in_order, check_values};
pub use stored::{check_factor, check_scales, check_scales_of_blocks, int8_rule, shape};
pub(crate) use stored::{floats, widened};
pub use tower::{ImageVectors, Pixels, Tower, TowerSizes};

use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::input::{Rows, SoftTokens, SoftTokensError, Span};
use crate::memory;
use crate::weights::Weights;
use device::required;
use layer::Layer;
use load::Load;
pub use model_factory_spec::plan::Batching;
use model_factory_spec::plan::{CpuBuffers, Plan, StateSize, StepRoom, step_rows};
use model_factory_spec::spec::{ImageRows, LayerWeights, Mixer, ModelSpec, ModelWeights, Multipliers};
use std::ops::Range;
use std::sync::Arc;
use tracing::trace_span;

/// One model's computation on the device `D`.
pub struct Decoder<D: Device> {
    device: D,
    weights: ModelWeights<D>,
    /// Whether what a layer computes of a row depends on the rows next to it: where one scale is made for all of them.
    mixes_rows: Vec<bool>,
    /// The last layer that stores what later positions need, if none after it mixes rows; else the last layer.
    last_storing: usize,
    ropes: Vec<RopeFrequencies>,
    multipliers: Multipliers,
    vocab: usize,
    /// Width of the residual stream.
    width: usize,
    family: &'static str,
    images: Option<ImageRows>,
    batching: Batching,
    pages: Arc<PagePool>,
    room: StepRoom,
}

impl<D: Device> Decoder<D> {
    /// Attaches kernels to the weights of `spec`; casts none of them. With `prefix_caching` sequences that begin alike
    /// share their common pages. `device` brings the weights to where it computes, after all that can be refused before
    /// that.
    ///
    /// # Errors
    /// Errors of `device` and of [`Device::matrix`]; `Files` when the rotary frequencies in the files are not
    /// valid numbers.
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
        let storing = layers.iter().rposition(|layer| layer.mixers().any(Mixer::stores)).filter(|_| !mixed);
        // One sequence takes the pages of another only where its own would have the same bits.
        let keeps_bits = batching == Batching::Any;
        let states: Arc<[StateSize]> = layers.iter().map(StateSize::new).collect();
        let has_states = states.iter().any(|size| size.elements() > 0);
        let sizes = CacheSizes {
            kv: D::kv_size(spec, plan.kv_dtype),
            states: if has_states { states } else { Arc::default() },
            budget: plan.cache_budget,
            keep: plan.kv_cache,
        };
        Ok(Decoder {
            weights: spec.weights.try_map(&mut Load { device: &device, weights, matrices: 0 })?,
            mixes_rows,
            last_storing: storing.unwrap_or(layers.len().saturating_sub(1)),
            ropes,
            multipliers: spec.multipliers,
            vocab: spec.vocab,
            width: spec.hidden,
            family: spec.family,
            images: spec.images,
            batching,
            room: CpuBuffers::new(spec).room(step_rows(spec, plan.context)),
            pages: PagePool::new(device.pages(), sizes, keeps_bits, prefix_caching),
            device,
        })
    }

    /// The device it computes on.
    pub fn device(&self) -> &D {
        &self.device
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
        let (mut hidden_states, never) = (Vec::new(), CancellationToken::new());
        let logits = self.device.run(batch, &mut |pass, recorded| {
            let cancel = if recorded { &never } else { cancel };
            self.compute(pass, (wanted, recorded), options, &mut hidden_states, cancel)
        })?;
        let logits = (wanted && options.logits).then(|| Logits::new(logits, self.vocab));
        Ok(PassOutput { logits, hidden_states })
    }

    fn batch<'b>(&self, segments: &'b mut [Segment<'_>]) -> Result<Batch<'b>> {
        let mut angles: Vec<Angles> = self.ropes.iter().map(RopeFrequencies::no_angles).collect();
        let mut sequences = memory::reserved(segments.len(), "the sequences of a batch")?;
        let mut end = 0;
        for Segment { tokens, cache, reach, rows: output_rows, second_text } in segments {
            let (spans, blocks) = (tokens.own_spans(), self.blocks(*tokens)?);
            // Images before these rows count too: they take fewer positions than rows.
            let images = Some(*tokens).filter(|tokens| !tokens.spans().is_empty());
            let tokens = tokens.ids();
            let (start, rows) = (cache.len(), end..end + tokens.len());
            let adapters = cache.adapters().clone();
            end = rows.end;
            for (rope, angles) in self.ropes.iter().zip(&mut angles) {
                rope.extend(angles, rope.rotation(*reach), start..start + tokens.len(), images)?;
            }
            cache.begin(tokens.len())?;
            let Parts { pages, state, checkpoints } = cache.parts();
            let (wanted, second_text) = (output_rows.wanted(&rows), *second_text);
            sequences.push(Sequence {
                tokens,
                spans,
                blocks,
                wanted,
                rows,
                start,
                pages,
                second_text,
                state,
                checkpoints,
                adapters,
            });
        }
        Ok(Batch { sequences, rows: end, angles })
    }

    /// The positions of images that some of `tokens` are of, where rows of an image attend to each other.
    fn blocks(&self, tokens: Rows<'_>) -> Result<Vec<Range<usize>>> {
        match self.images {
            Some(ImageRows::BothSides { .. }) => {
                Ok(memory::collected(tokens.own_spans().iter().map(Span::range), "the images of a batch")?)
            }
            Some(ImageRows::Causal) | None => Ok(Vec::new()),
        }
    }

    /// Embedding, blocks, head; `wanted` says whether any row is wanted, `recorded` whether operations are recorded.
    fn compute(
        &self,
        pass: &mut D::Pass<'_>,
        (wanted, recorded): (bool, bool),
        options: PassOptions<'_>,
        hidden_states: &mut Vec<f32>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let ModelWeights { embedding, input, joined, layer_embedding, altup, layers, final_norm, head, .. } =
            &self.weights;
        let (device, extensions) = (&self.device, &self.device.extensions());
        device.embed(pass, embedding, self.multipliers.embedding)?;
        if let Some(soft_tokens) = extensions.soft_tokens {
            soft_tokens.place(pass);
        }
        if let Some(joined) = joined {
            required(extensions.hidden_states)?.join(pass, joined, options.hidden_input)?;
        }
        if let Some(input) = input {
            let encoder = required(extensions.encoder)?;
            encoder.add_input(pass, input)?;
            if let Some(norm) = &input.norm {
                encoder.norm(pass, norm)?;
            }
        }
        if let Some(embedding) = layer_embedding {
            required(extensions.layer_embeddings)?.layer_inputs(pass, embedding)?;
        }
        if let Some(altup) = altup {
            required(extensions.streams)?.begin(pass, altup)?;
        }
        for (index, weights) in layers.iter().enumerate() {
            let layer = Layer { device, extensions, weights, index, residual: self.multipliers.residual };
            cancel.check()?;
            let _span = (!recorded).then(|| trace_span!("layer", layer = index).entered());
            layer.store(pass)?;
            // After the last layer that later positions need, only wanted rows are computed.
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
            if let Some(soft_tokens) = extensions.soft_tokens {
                soft_tokens.add_after(pass, index);
            }
        }
        cancel.check()?;
        if let Some(altup) = altup {
            required(extensions.streams)?.end(pass, altup)?;
        }
        let norm = final_norm.as_ref();
        if options.hidden_states == HiddenOutput::All {
            required(extensions.hidden_states)?.read_hidden(pass, norm, true, hidden_states)?;
        }
        device.keep_wanted(pass)?;
        if options.hidden_states == HiddenOutput::Wanted && wanted {
            required(extensions.hidden_states)?.read_hidden(pass, norm, options.logits, hidden_states)?;
        }
        match (norm, head) {
            (Some(norm), Some(head)) if options.logits && wanted => device.logits(pass, norm, head, &self.multipliers),
            // A model without a head was refused before.
            _ => Ok(()),
        }
    }

    /// Every weight matrix, for inspection, in the order of [`ModelSpec::matrices`].
    pub fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        self.weights.matrices()
    }
}

impl<D: Device> Compute for Decoder<D> {
    fn pages(&self) -> &Arc<PagePool> {
        &self.pages
    }

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn rotation(&self, length: usize) -> Rotation {
        // A rotary embedding with two lists of factors decides for all.
        let rotations = self.ropes.iter().map(|rope| rope.rotation(length));
        rotations.reduce(|all, of| if of == Rotation::Long { of } else { all }).unwrap_or(Rotation::Short)
    }

    fn batching(&self) -> Batching {
        self.batching
    }

    fn step_room(&self) -> StepRoom {
        self.room
    }

    fn takes_adapters(&self) -> bool {
        D::ADAPTERS
    }

    fn images(&self) -> Result<ImageRows> {
        let images = self.images.ok_or(SoftTokensError::NotTaken { family: self.family })?;
        self.device.extensions().soft_tokens.map(|_| images).ok_or_else(|| SoftTokensError::Device.into())
    }

    fn check_soft_tokens(&self, tokens: &SoftTokens) -> Result<()> {
        let (images, found, expected) = (self.images()?, tokens.width(), self.width);
        if found != expected {
            return Err(SoftTokensError::Width { found, expected }.into());
        }
        if self.ropes.iter().any(RopeFrequencies::has_sections) && tokens.grid().is_none() {
            return Err(SoftTokensError::NoGrid.into());
        }
        let (found, layers) = (tokens.deepstack().len(), self.weights.layers.len());
        if found > layers {
            return Err(SoftTokensError::Layers { found, layers }.into());
        }
        match images {
            ImageRows::BothSides { most } if tokens.rows() > most => {
                Err(SoftTokensError::TooMany { found: tokens.rows(), most }.into())
            }
            _ => Ok(()),
        }
    }

    fn gives_hidden_states(&self) -> bool {
        self.device.extensions().hidden_states.is_some()
    }

    fn pass(
        &self,
        segments: &mut [Segment<'_>],
        options: PassOptions<'_>,
        cancel: &CancellationToken,
    ) -> Result<PassOutput> {
        if options.logits && self.weights.head.is_none() {
            return Err(Error::NoHead);
        }
        let mut ids = segments.iter().flat_map(|segment| segment.tokens.ids());
        if let Some(id) = ids.find(|id| **id as usize >= self.vocab) {
            return Err(Error::TokenOutOfVocabulary { id: *id, vocab: self.vocab });
        }
        for Segment { cache, tokens, .. } in segments.iter_mut() {
            if !cache.is_of(&self.pages) {
                return Err(Error::Internal("a cache of another model".into()));
            }
            self.check_spans(*tokens, cache.len())?;
            cache.reserve(cache.len() + tokens.len())?;
        }
        let mut step = Step { segments, is_done: false };
        let output = self.step(step.segments, options, cancel)?;
        step.is_done = true;
        Ok(output)
    }

    fn classify(&self, pooled: Vec<f32>) -> Result<Option<Vec<f32>>> {
        let Some(classifier) = &self.weights.classifier else { return Ok(None) };
        Ok(Some(required(self.device.extensions().hidden_states)?.classify(classifier, pooled)?))
    }

    fn dense(&self, pooled: Vec<f32>) -> Result<Vec<f32>> {
        let layer = |rows: Vec<f32>, layer| required(self.device.extensions().hidden_states)?.dense(layer, &rows);
        self.weights.dense.iter().try_fold(pooled, layer)
    }
}

impl<D: Device> Decoder<D> {
    /// Checks the soft tokens of rows that follow `cached` positions.
    fn check_spans(&self, tokens: Rows<'_>, cached: usize) -> Result<()> {
        let end = tokens.first() + tokens.len();
        for span in tokens.own_spans() {
            self.check_soft_tokens(&span.tokens)?;
            let is_cut = span.range().end > end && matches!(self.images, Some(ImageRows::BothSides { .. }));
            if tokens.first() != cached || is_cut {
                return Err(Error::Internal("an image is not where its sequence has it, or is cut".into()));
            }
        }
        Ok(())
    }
}

/// A step of sequences. Their caches advance when it ends, and go back if it fails or panics.
struct Step<'s, 'a> {
    segments: &'s mut [Segment<'a>],
    is_done: bool,
}

impl Drop for Step<'_, '_> {
    fn drop(&mut self) {
        for Segment { cache, tokens, .. } in &mut *self.segments {
            if self.is_done { cache.advance(tokens.len()) } else { cache.abandon() }
        }
    }
}
