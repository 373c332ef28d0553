//! ModelSpec + Weights + a device -> Decoder: ids and caches in, logits out. The one place that knows the order of a block;
//! it knows no family and no format.

mod device;
mod feed_forward;
mod kv_cache;
mod page;
mod page_pool;
mod prefixes;
mod rope;
mod stored;

pub(crate) use device::sealed;
pub use device::{AttentionOptions, Batch, Device, Operand, Output, Pass, Sequence};
pub use feed_forward::{Dense, Experts, SharedExpert};
pub use kv_cache::{Cache, KvCache};
pub(crate) use page::is_shared;
pub use page::{AllocatePage, CopyPage, Page};
pub use page_pool::PagePool;
pub(crate) use rope::RopeFrequencies;
pub use rope::{Angles, Rotation};
pub(crate) use stored::{check_all, floats, int8_rule, shape};

use crate::cache_budget::CacheBudget;
use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::kernels::Scoring;
use crate::memory;
use crate::weights::Weights;
use candle_core::{CpuStorage, Storage, Tensor};
use feed_forward::FeedForwardMatrices;
use model_diagnostics::plan::{CpuBuffers, PREFILL_CHUNK, Plan, StepRoom, kv_page_bytes};
use model_diagnostics::spec::{LayerWeights, LinearWeights, ModelSpec, Multipliers, NormWeights};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use tracing::trace_span;

/// What computes a loaded model, whatever its device.
pub(crate) trait Compute: Any + Send + Sync {
    /// An empty cache for one sequence.
    fn cache(&self) -> Box<dyn Cache>;

    /// Ids an embedding row exists for.
    fn vocab(&self) -> usize;

    /// How a sequence of `length` tokens is rotated. Keys that were cached with one rotation are useless with another.
    fn rotation(&self, length: usize) -> Rotation;

    /// Which sequences it may compute together.
    fn batching(&self) -> Batching;

    /// Bytes that the pages of all sequences take, each once, and those of them that no sequence holds.
    fn cache_bytes(&self) -> (u64, u64);

    /// What a step of several sequences may take, so that it stays within the plan.
    fn step_room(&self) -> StepRoom;

    /// What the pages of all sequences are counted in.
    fn cache_budget(&self) -> &CacheBudget;

    /// As [`Decoder::forward`].
    ///
    /// # Errors
    /// Those of [`Decoder::forward`].
    fn forward(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Option<Tensor>>;
}

/// Which sequences are computed in one pass over the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// All: each row has the bits that it has alone.
    Any,
    /// Those of a batch that a caller made: a row's sums depend on how many are computed.
    Explicit,
    /// None: a row's values depend on those beside it.
    Never,
}

/// The next tokens of one sequence.
pub struct Segment<'a> {
    /// Ids, at least one.
    pub tokens: &'a [u32],
    /// What the sequence has cached; its length is the position of the first token.
    pub cache: &'a mut dyn Cache,
    /// The length of the sequence when all that is known of it is in: this segment, and those of the same prompt that
    /// follow. It decides on the rotation, where a model has two, and what is cached must have been computed with the
    /// same: see [`Decoder::rotation`].
    pub reach: usize,
    /// Which positions' logits are wanted.
    pub logits: Logits,
}

impl Segment<'_> {
    /// Rows whose logits are wanted.
    pub(crate) fn wanted_rows(&self) -> usize {
        self.logits.wanted(&(0..self.tokens.len())).len()
    }
}

/// Which positions' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: the tokens only fill the cache.
    None,
    /// The last token's.
    Last,
    /// Every token's.
    All,
}

impl Logits {
    /// Those of `rows` whose logits are wanted.
    fn wanted(self, rows: &Range<usize>) -> Range<usize> {
        match self {
            Logits::None => rows.end..rows.end,
            Logits::Last => rows.end - 1..rows.end,
            Logits::All => rows.clone(),
        }
    }
}

/// One model's computation on the device `D`.
pub struct Decoder<D: Device> {
    device: D,
    embedding: D::Matrix,
    layers: Vec<Layer<D>>,
    final_norm: D::Norm,
    head: D::Matrix,
    ropes: Vec<RopeFrequencies>,
    multipliers: Multipliers,
    vocab: usize,
    pages: Arc<PagePool<D::Page>>,
    room: StepRoom,
}

/// The weights and options of one block. A pass calls [`Attention::store`] for its keys and values and then
/// [`Layer::forward`]; between them the last layer drops the rows whose logits are not wanted.
struct Layer<D: Device> {
    attention: Attention<D>,
    feed_forward: FeedForward<D>,
    parallel: bool,
    /// What its outputs are multiplied by.
    residual: f32,
    /// Whether what it computes of a row depends on the rows beside it: where one scale is made for all of them.
    mixes_rows: bool,
}

struct Attention<D: Device> {
    norm: Option<D::Norm>,
    q: D::Matrix,
    k: D::Matrix,
    v: D::Matrix,
    q_norm: Option<D::Norm>,
    k_norm: Option<D::Norm>,
    rope: Option<usize>,
    options: AttentionOptions,
    o: D::Matrix,
    output_norm: Option<D::Norm>,
}

struct FeedForward<D: Device> {
    norm: Option<D::Norm>,
    layer: FeedForwardMatrices<D::Matrix>,
    output_norm: Option<D::Norm>,
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
        let embedding = LinearWeights { weight: stored.embedding.clone(), bias: None, int8: None };
        let layers = stored.layers.iter().map(|layer| Layer::new(&device, weights, layer, &spec.multipliers));
        let layers: Vec<Layer<D>> = layers.collect::<Result<_>>()?;
        // Pages of one sequence are another's only where its own would have the same bits.
        let may_share = prefix_caching && D::BATCH_INVARIANT && !layers.iter().any(|layer| layer.mixes_rows);
        let copy = D::COPY_PAGE.filter(|_| may_share);
        let page_bytes = kv_page_bytes(spec, plan.kv_dtype);
        Ok(Decoder {
            embedding: device.matrix(weights, &embedding)?,
            layers,
            final_norm: device.norm(weights, &stored.final_norm)?,
            head: device.matrix(weights, &stored.head)?,
            ropes,
            multipliers: spec.multipliers,
            vocab: spec.vocab,
            room: CpuBuffers::new(spec).room(PREFILL_CHUNK.min(spec.context_trained)),
            pages: PagePool::new(device.pages(), page_bytes, plan.cache_budget, plan.kv_cache, copy),
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
    /// `TokenOutOfVocabulary` before anything is computed; `Cancelled` after at most one more operation of a layer once
    /// `cancel` is; `OutOfMemory`; `Internal` for a cache of another device. After an error the caches hold what they held
    /// before.
    pub fn forward(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Option<Tensor>> {
        let mut ids = segments.iter().flat_map(|segment| segment.tokens);
        if let Some(id) = ids.find(|id| **id as usize >= self.vocab) {
            return Err(Error::TokenOutOfVocabulary { id: *id, vocab: self.vocab });
        }
        for segment in segments.iter_mut() {
            segment.cache.reserve(segment.cache.len() + segment.tokens.len())?;
        }
        let batch = self.batch(segments)?;
        let wanted = batch.wanted_rows();
        cancel.check()?;
        let logits = self.device.run(batch, &mut |pass| self.compute(pass, wanted > 0, cancel))?;
        for segment in segments.iter_mut() {
            segment.cache.advance(segment.tokens.len());
        }
        if wanted == 0 {
            return Ok(None);
        }
        Ok(Some(Tensor::from_vec(logits, (wanted, self.vocab), &candle_core::Device::Cpu)?))
    }

    /// The rows of `segments`, one behind the other.
    fn batch<'b>(&self, segments: &'b mut [Segment<'_>]) -> Result<Batch<'b, D::Page>> {
        let mut angles: Vec<Angles> = self.ropes.iter().map(RopeFrequencies::no_angles).collect();
        let mut sequences = memory::reserved(segments.len(), "the sequences of a batch")?;
        let mut end = 0;
        for Segment { tokens, cache, reach, logits } in segments {
            let (start, rows) = (cache.len(), end..end + tokens.len());
            end = rows.end;
            for (rope, angles) in self.ropes.iter().zip(&mut angles) {
                rope.extend(angles, rope.rotation(*reach), start..start + tokens.len())?;
            }
            let cache: &mut dyn Any = *cache;
            let cache = cache.downcast_mut::<KvCache<D::Page>>();
            let pages = cache.ok_or_else(|| Error::Internal("a cache of another device".into()))?.pages();
            sequences.push(Sequence { tokens, wanted: logits.wanted(&rows), rows, start, pages });
        }
        Ok(Batch { sequences, rows: end, angles })
    }

    /// Embedding, blocks, head.
    fn compute(&self, pass: &mut Pass<'_, D>, any_wanted: bool, cancel: &CancellationToken) -> Result<()> {
        let (device, never) = (&self.device, CancellationToken::new());
        let cancel = if pass.recorded { &never } else { cancel };
        device.embed(&pass.batch, &self.embedding, self.multipliers.embedding, &mut pass.hidden)?;
        for (index, layer) in self.layers.iter().enumerate() {
            cancel.check()?;
            let _span = (!pass.recorded).then(|| trace_span!("layer", layer = index).entered());
            layer.attention.store(device, index, pass)?;
            if index + 1 == self.layers.len() {
                // Behind the last keys and values only what is wanted is computed.
                if !any_wanted {
                    return cancel.check();
                }
                if !layer.mixes_rows {
                    device.keep_wanted(pass)?;
                }
            }
            layer.forward(device, index, pass, cancel)?;
        }
        cancel.check()?;
        device.keep_wanted(pass)?;
        let Pass { batch, hidden, logits, .. } = pass;
        device.logits(batch, hidden, &self.final_norm, &self.head, &self.multipliers, logits)
    }

    /// Every weight matrix, for inspection, in the order of [`ModelSpec::matrices`].
    pub fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        std::iter::once(&self.embedding).chain(self.layers.iter().flat_map(Layer::matrices)).chain([&self.head])
    }
}

impl<D: Device> Compute for Decoder<D> {
    fn cache(&self) -> Box<dyn Cache> {
        Box::new(Decoder::cache(self))
    }

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn rotation(&self, length: usize) -> Rotation {
        Decoder::rotation(self, length)
    }

    fn batching(&self) -> Batching {
        Decoder::batching(self)
    }

    fn cache_bytes(&self) -> (u64, u64) {
        self.pages.bytes()
    }

    fn step_room(&self) -> StepRoom {
        self.room
    }

    fn cache_budget(&self) -> &CacheBudget {
        self.pages.budget()
    }

    fn forward(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Option<Tensor>> {
        Decoder::forward(self, segments, cancel)
    }
}

impl<D: Device> Layer<D> {
    fn new(device: &D, weights: &Weights, layer: &LayerWeights, multipliers: &Multipliers) -> Result<Layer<D>> {
        let matrix = |linear: &LinearWeights| device.matrix(weights, linear);
        let norm = |norm: &Option<NormWeights>| norm.as_ref().map(|norm| device.norm(weights, norm)).transpose();
        let LayerWeights { attention, feed_forward, parallel } = layer;
        Ok(Layer {
            attention: Attention {
                norm: norm(&attention.norm)?,
                q: matrix(&attention.q)?,
                k: matrix(&attention.k)?,
                v: matrix(&attention.v)?,
                q_norm: norm(&attention.q_norm)?,
                k_norm: norm(&attention.k_norm)?,
                rope: attention.rope,
                options: AttentionOptions {
                    window: attention.window,
                    scoring: Scoring { scale: attention.score_scale, cap: attention.score_cap },
                },
                o: matrix(&attention.o)?,
                output_norm: norm(&attention.output_norm)?,
            },
            feed_forward: FeedForward {
                norm: norm(&feed_forward.norm)?,
                layer: FeedForwardMatrices::new(&feed_forward.layer, matrix)?,
                output_norm: norm(&feed_forward.output_norm)?,
            },
            parallel: *parallel,
            residual: multipliers.residual,
            mixes_rows: layer.mixes_rows(),
        })
    }

    /// Brings the residual stream through this block, whose keys and values are stored.
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
        let Layer { attention: Attention { options, o, output_norm, .. }, feed_forward, parallel, .. } = self;
        let Pass { batch, hidden, qkv, attended, activated, routed, product, .. } = pass;
        let output = |norm: &'l Option<D::Norm>| Output { norm: norm.as_ref(), scale: self.residual };
        cancel.check()?;
        device.attend(batch, index, *options, qkv, attended)?;
        cancel.check()?;
        if *parallel {
            feed_forward.activate(device, batch, hidden, activated, routed)?;
            cancel.check()?;
        }
        device.linear_add(batch, Operand::Attended(attended), o, output(output_norm), product, hidden)?;
        cancel.check()?;
        if !*parallel {
            feed_forward.activate(device, batch, hidden, activated, routed)?;
            cancel.check()?;
        }
        let output = output(&feed_forward.output_norm);
        match &feed_forward.layer {
            FeedForwardMatrices::Dense(dense) => {
                device.linear_add(batch, Operand::Activated(activated), &dense.down, output, product, hidden)
            }
            FeedForwardMatrices::Experts(experts) => {
                device.experts_add(batch, routed, experts, output, product, hidden)
            }
        }
    }

    fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        let Attention { q, k, v, o, .. } = &self.attention;
        [q, k, v, o].into_iter().chain(self.feed_forward.layer.matrices())
    }
}

impl<D: Device> Attention<D> {
    /// Stores the keys and values of all rows, and leaves their queries in `pass.qkv`.
    fn store(&self, device: &D, index: usize, pass: &mut Pass<'_, D>) -> Result<()> {
        let Pass { batch, hidden, qkv, .. } = pass;
        device.norm_qkv(batch, hidden, self.norm.as_ref(), [&self.q, &self.k, &self.v], qkv)?;
        device.rotate_and_store(batch, index, [self.q_norm.as_ref(), self.k_norm.as_ref()], self.rope, qkv)
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

/// Runs `take` on the elements of a tensor: its own, or a copy of those that do not lie in main memory, or not one behind the
/// other.
pub(crate) fn with_floats<R>(tensor: &Tensor, take: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(data)), Some((start, end))) => Ok(take(&data[start..end])),
        _ => Ok(take(&tensor.flatten_all()?.to_vec1::<f32>()?)),
    }
}
