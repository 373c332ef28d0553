//! The interface between the decoder and what computes: the operations of a forward pass, once for every device.

use super::page::{AllocatePage, PagePair};
use super::{Angles, Checkpoint, Pixels, State};
use crate::adapter::Adapters;
use crate::error::{Error, Result};
use crate::input::Span;
use crate::memory;
use crate::weights::Weights;
use model_factory_format::header::TensorInfo;
use model_factory_spec::plan::{KvDtype, KvSize};
use model_factory_spec::spec::{
    AltUpUse, AltUpWeights, AttentionWeights, BesideWeights, ClassifierWeights, DenseLayer, DenseWeights,
    ExpertsWeights, Grid, InputWeights, JoinedInput, LaurelWeights, LayerEmbeddingUse, LayerEmbeddingWeights,
    LinearWeights, Mixer, ModelSpec, Multipliers, NormWeights, ProjectorStep, VisionWeights, WeightTypes,
};
use std::ops::Range;

/// What a decoder computes on: the operations that every model needs. Everything happens in the order of the calls, and
/// operations trust what a decoder hands them.
///
/// A pass holds the activations of a batch, each F32 `[rows, width]`, which every layer writes over:
///
/// | name | holds |
/// |---|---|
/// | `hidden` | the residual stream |
/// | `projected` | the products of a mixer's input, side by side: of attention queries, keys and values |
/// | `mixed` | what a mixer's output projection reads: of attention `[rows, heads * head_dim]` |
/// | `activated` | what the second product of a feed-forward layer reads |
pub trait Device: WeightTypes<Numbers = Vec<f32>> + Send + Sync + Sized + 'static {
    /// A batch and its activations.
    type Pass<'b>;

    /// Whether a row has the same bits in every batch. Then pages of the KV cache are main memory, and are copied.
    const BATCH_INVARIANT: bool;

    /// Whether the products of matrices have those of the adapters of each row added ([`Sequence::adapters`]).
    const ADAPTERS: bool;

    /// Finds a matrix and its kernels; `place` is its place among the matrices of the model.
    ///
    /// # Errors
    /// `Files` when a scale of an int8 weight is one that no sound model has; `Internal` for a dtype without kernels,
    /// which the diagnosis rules out.
    fn matrix(&self, weights: &Weights, linear: &LinearWeights, place: usize) -> Result<Self::Matrix>;

    /// Finds a norm.
    ///
    /// # Errors
    /// `Internal` for a dtype that vectors do not have, which the diagnosis rules out.
    fn load_norm(&self, weights: &Weights, norm: &NormWeights) -> Result<Self::Norm>;

    /// Finds a vector of floats.
    ///
    /// # Errors
    /// Like [`load_norm`](Self::load_norm).
    fn vector(&self, weights: &Weights, vector: &TensorInfo) -> Result<Self::Vector>;

    /// The memory that the caches of `spec` take.
    fn kv_size(spec: &ModelSpec, dtype: KvDtype) -> KvSize;

    /// The function that allocates pages.
    fn pages(&self) -> AllocatePage;

    /// The operations that only some devices have.
    fn extensions(&self) -> Extensions<'_, Self>;

    /// Gives `compute` a pass over `batch` and returns the logits that it leaves there, on the host, `[wanted rows,
    /// vocab]`. A device may let `compute` record the operations, with `true`, to compute them later and for equal
    /// batches again; nothing of a caller's may run then: no span, no look at a cancellation token.
    ///
    /// # Errors
    /// Errors of `compute` and of the device.
    fn run<'b>(
        &self,
        batch: Batch<'b>,
        compute: &mut dyn FnMut(&mut Self::Pass<'b>, bool) -> Result<()>,
    ) -> Result<Vec<f32>>;

    /// `hidden` = `scale` times the rows of the embedding that the batch's ids name.
    fn embed(&self, pass: &mut Self::Pass<'_>, embedding: &Self::Matrix, scale: f32) -> Result<()>;

    /// `projected` = the products of `norm(hidden)` with the mixer's inputs, side by side.
    fn norm_project(&self, pass: &mut Self::Pass<'_>, norm: Option<&Self::Norm>, mixer: &Mixer<Self>) -> Result<()>;

    /// Norms the queries and keys of `projected` where a norm is given, each head or all of them together, as the norm
    /// is wide; rotates every head by its row's position by the angles of a rotary embedding, where one is given; and
    /// stores keys and values in the pages of the batch's sequences, unless the layer attends to later positions too or
    /// stores none.
    ///
    /// # Errors
    /// `CacheOverflow` when a key or value is infinite, or becomes so in the cache's dtype; on GPUs that of
    /// [`run`](Self::run).
    fn rotate_and_store(&self, pass: &mut Self::Pass<'_>, layer: usize, weights: &AttentionWeights<Self>)
    -> Result<()>;

    /// `mixed` = attention of every row's queries over the cached positions up to its own, as `attention` says.
    fn attend(&self, pass: &mut Self::Pass<'_>, layer: usize, attention: &AttentionWeights<Self>) -> Result<()>;

    /// `activated` = the activation of the products of `norm(hidden)` with `up` and the gate, ready for `down`.
    fn norm_up_activate(
        &self,
        pass: &mut Self::Pass<'_>,
        norm: Option<&Self::Norm>,
        dense: &DenseWeights<Self>,
    ) -> Result<()>;

    /// `hidden` += the product of `operand` with `matrix`, normed and multiplied as `output` says.
    fn linear_add(
        &self,
        pass: &mut Self::Pass<'_>,
        operand: Operand,
        matrix: &Self::Matrix,
        output: Output<'_, Self>,
    ) -> Result<()>;

    /// Drops the rows whose logits are not wanted, or leaves that to [`logits`](Self::logits).
    ///
    /// # Errors
    /// When memory runs out.
    fn keep_wanted(&self, pass: &mut Self::Pass<'_>) -> Result<()>;

    /// The logits of the pass = the product of `norm(hidden)` with `head`, multiplied and capped, for the wanted rows.
    fn logits(
        &self,
        pass: &mut Self::Pass<'_>,
        norm: &Self::Norm,
        head: &Self::Matrix,
        multipliers: &Multipliers,
    ) -> Result<()>;
}

/// The operations that a device has beyond those of [`Device`], by the layers that need them.
pub struct Extensions<'d, D: Device> {
    /// Layers with a state.
    pub recurrent: Option<&'d dyn RecurrentLayers<D>>,
    /// Feed-forward layers of experts.
    pub experts: Option<&'d dyn ExpertLayers<D>>,
    /// Encoders.
    pub encoder: Option<&'d dyn EncoderLayers<D>>,
    /// Layers with embeddings and factors of their own.
    pub layer_embeddings: Option<&'d dyn LayerEmbeddings<D>>,
    /// Several residual streams, and residuals beside attention.
    pub streams: Option<&'d dyn ResidualStreams<D>>,
    /// Operations that read and give hidden states: vectors of texts, classifiers, prediction heads.
    pub hidden_states: Option<&'d dyn HiddenStates<D>>,
    /// Attention to latents.
    pub latents: Option<&'d dyn LatentLayers<D>>,
    /// Vision towers.
    pub vision: Option<&'d dyn VisionLayers<D>>,
    /// Vectors in place of ids. A device that has them lets rows attend to the blocks of their sequence too.
    pub soft_tokens: Option<&'d dyn SoftTokenRows<D>>,
}

impl<D: Device> Extensions<'_, D> {
    /// No operations.
    pub const NONE: Self = Extensions {
        recurrent: None,
        experts: None,
        encoder: None,
        layer_embeddings: None,
        streams: None,
        hidden_states: None,
        latents: None,
        vision: None,
        soft_tokens: None,
    };
}

/// The operations that a layer asks for.
///
/// # Errors
/// `Internal` where the device lacks them: the diagnosis refuses such a model.
pub(super) fn required<T>(operations: Option<T>) -> Result<T> {
    operations.ok_or_else(|| Error::Internal("a layer without kernels, which the diagnosis rules out".into()))
}

/// Layers that carry a state from position to position.
pub trait RecurrentLayers<D: Device> {
    /// `mixed` = what `mixer` makes of `projected`, the products with its inputs, which is overwritten. The states of
    /// the batch's sequences go on by their rows. Attention has no state, and nothing is done.
    fn advance(&self, pass: &mut D::Pass<'_>, layer: usize, mixer: &Mixer<D>) -> Result<()>;

    /// Exchanges `mixed` and what was set aside, which is nothing at first: a layer may have two mixers.
    fn swap_aside(&self, pass: &mut D::Pass<'_>) -> Result<()>;
}

/// Feed-forward layers of experts.
pub trait ExpertLayers<D: Device> {
    /// Finds the experts that each row of `hidden` is given to.
    fn route(&self, pass: &mut D::Pass<'_>, experts: &ExpertsWeights<D>) -> Result<()>;

    /// Finds the experts that each row of `norm(hidden)` is given to, unless their router reads what was before and has
    /// found them, and computes their activations.
    fn norm_route_activate(
        &self,
        pass: &mut D::Pass<'_>,
        norm: Option<&D::Norm>,
        experts: &ExpertsWeights<D>,
    ) -> Result<()>;

    /// `hidden` += the weighted sum of the products of these activations with the down projections, experts in the
    /// order of their indices and the shared one last; normed and multiplied as `output` says. With a dense layer next
    /// to the experts, whose activations are `activated`, the sum of both is added, each by its norm if it has one.
    fn experts_add(
        &self,
        pass: &mut D::Pass<'_>,
        experts: &ExpertsWeights<D>,
        dense: Option<&BesideWeights<D>>,
        output: Output<'_, D>,
    ) -> Result<()>;
}

/// Encoders: tokens attend to later ones too, and norms come after sums.
pub trait EncoderLayers<D: Device> {
    /// `hidden` += the rows of `input` that the batch's positions and kinds of tokens are.
    fn add_input(&self, pass: &mut D::Pass<'_>, input: &InputWeights<D>) -> Result<()>;

    /// `hidden` = its norm.
    fn norm(&self, pass: &mut D::Pass<'_>, norm: &D::Norm) -> Result<()>;

    /// `mixed` = attention of every row's queries over all rows of its sequence; nothing of it is cached.
    fn attend_all(&self, pass: &mut D::Pass<'_>, layer: usize, attention: &AttentionWeights<D>) -> Result<()>;
}

/// Attention to latents, of which keys and values are made.
pub trait LatentLayers<D: Device> {
    /// `projected` = the queries of every row as they attend to latents, of which it had the products of the inputs; stores
    /// normed latents and rotated parts of keys in the pages of the batch's sequences.
    ///
    /// # Errors
    /// As [`Device::rotate_and_store`].
    fn absorb_and_store(&self, pass: &mut D::Pass<'_>, layer: usize, attention: &AttentionWeights<D>) -> Result<()>;

    /// `mixed` = the values, `[rows, heads * value_dim]`, of what every row's queries attend to.
    fn attend_latents(&self, pass: &mut D::Pass<'_>, layer: usize, attention: &AttentionWeights<D>) -> Result<()>;
}

/// Vision towers.
pub trait VisionLayers<D: Device> {
    /// `hidden` = the products of the patches of `image`, with their positions added.
    fn embed_patches(&self, pass: &mut D::Pass<'_>, weights: &VisionWeights<D>, image: Pixels<'_>) -> Result<()>;

    /// Lets the rows of `pass` attend to those between the same two of these ends, which are in ascending order; to all of their sequence
    /// where there are none.
    fn attend_within(&self, pass: &mut D::Pass<'_>, ends: &[usize]) -> Result<()>;

    /// What a step of a projector makes of `rows`, those of the patches of `grid`.
    fn project(&self, step: &ProjectorStep<D>, rows: Vec<f32>, grid: Grid) -> Result<Vec<f32>>;
}

/// Vectors in place of ids.
pub trait SoftTokenRows<D: Device> {
    /// `hidden` = the soft tokens, in the rows that are of some.
    fn place(&self, pass: &mut D::Pass<'_>);

    /// `hidden` += what soft tokens add after layer `layer`.
    fn add_after(&self, pass: &mut D::Pass<'_>, layer: usize);
}

/// Embeddings of a token that layers read, and factors of layers.
pub trait LayerEmbeddings<D: Device> {
    /// Computes what every layer reads of its embedding, of every row: `(norm(projection(hidden) / sqrt(hidden's
    /// width)) + embedding * sqrt(width)) / sqrt(2)`, layers side by side.
    fn layer_inputs(&self, pass: &mut D::Pass<'_>, embedding: &LayerEmbeddingWeights<D>) -> Result<()>;

    /// `mixed` = `gelu(gate(hidden))` times what layer `layer` reads of its embedding.
    fn gate_layer_input(&self, pass: &mut D::Pass<'_>, gate: &D::Matrix, layer: usize) -> Result<()>;

    /// `hidden` *= `factor`.
    fn scale(&self, pass: &mut D::Pass<'_>, factor: f32) -> Result<()>;
}

/// Several residual streams, of which blocks read the first, and residuals beside attention. The formulas are those of
/// [`AltUpWeights`], [`AltUpUse`] and [`LaurelWeights`].
pub trait ResidualStreams<D: Device> {
    /// Begins the streams by `hidden`, which is the first.
    fn begin(&self, pass: &mut D::Pass<'_>, streams: &AltUpWeights<D>) -> Result<()>;

    /// Predicts every stream; `hidden` = the first.
    fn predict(&self, pass: &mut D::Pass<'_>, layer: &AltUpUse<D>) -> Result<()>;

    /// Corrects every stream by `hidden`, what a block has made of the first; `hidden` = the first, scaled as its embedding reads it.
    fn correct(&self, pass: &mut D::Pass<'_>, layer: &AltUpUse<D>) -> Result<()>;

    /// Adds the embedding of a layer to all streams but the first: `mixed`, its gated input, through its output projection and norm.
    fn add_layer_embedding(&self, pass: &mut D::Pass<'_>, embedding: &LayerEmbeddingUse<D>) -> Result<()>;

    /// `hidden` = the mean of all streams as they end.
    fn end(&self, pass: &mut D::Pass<'_>, streams: &AltUpWeights<D>) -> Result<()>;

    /// `hidden` += `x + norm(up(down(x)))` with `x` the norm of `hidden`.
    fn add_laurel(&self, pass: &mut D::Pass<'_>, norm: Option<&D::Norm>, laurel: &LaurelWeights<D>) -> Result<()>;
}

/// Hidden states on the host, `[rows, hidden]`.
pub trait HiddenStates<D: Device> {
    /// `hidden`, embeddings, = what a prediction head makes of them and of the hidden states `given`.
    ///
    /// # Errors
    /// `Internal` where these are not one for each row.
    fn join(&self, pass: &mut D::Pass<'_>, joined: &JoinedInput<D>, given: &[f32]) -> Result<()>;

    /// Puts every row of `hidden`, normed where a norm is given, into `states`. `hidden` is read again where
    /// `is_read_again` says so; else the vector may be made of its memory.
    fn read_hidden(
        &self,
        pass: &mut D::Pass<'_>,
        norm: Option<&D::Norm>,
        is_read_again: bool,
        states: &mut Vec<f32>,
    ) -> Result<()>;

    /// The scores of the labels of each of `rows`: pooled hidden states.
    fn classify(&self, classifier: &ClassifierWeights<D>, rows: Vec<f32>) -> Result<Vec<f32>>;

    /// What a dense layer makes of each of `rows`.
    fn dense(&self, layer: &DenseLayer<D>, rows: &[f32]) -> Result<Vec<f32>>;
}

/// The operand of the second product of a sub-layer.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A mixer's output.
    Mixed,
    /// The feed-forward layer's activations.
    Activated,
}

/// The operations on a sub-layer's output before it is added to the residual stream.
pub struct Output<'a, D: Device> {
    /// The norm of the output, where there is one.
    pub norm: Option<&'a D::Norm>,
    /// The factor of the output, after its norm.
    pub scale: f32,
}

/// The rows of a forward pass: tokens of several sequences, one after the other.
#[non_exhaustive]
pub struct Batch<'b> {
    /// The sequences.
    pub sequences: Vec<Sequence<'b>>,
    /// Rows in all.
    pub rows: usize,
    /// The rotation of each row, by each rotary embedding of the model.
    pub angles: Vec<Angles>,
}

/// One sequence of a batch.
#[non_exhaustive]
pub struct Sequence<'b> {
    /// The ids of its rows, with those that hold the places of soft tokens.
    pub tokens: &'b [u32],
    /// The soft tokens among its rows, by position.
    pub spans: &'b [Span],
    /// The positions of those whose rows attend to each other: a row of a block sees all of it, and what is before.
    pub blocks: Vec<Range<usize>>,
    /// The rows of the sequence.
    pub rows: Range<usize>,
    /// The position of its first row.
    pub start: usize,
    /// The pages of its cache, with room for its rows.
    pub pages: &'b mut [PagePair],
    /// The position from which on tokens are of the second kind.
    pub second_text: Option<usize>,
    /// The state of its layers that are not attention.
    pub state: Option<&'b mut State>,
    /// Checkpoints of the state at some positions within its rows.
    pub checkpoints: &'b mut [Checkpoint],
    /// The rows whose logits are wanted.
    pub wanted: Range<usize>,
    /// What is added to the products of its rows.
    pub adapters: Adapters,
}

impl Batch<'_> {
    /// Rows whose logits are wanted.
    pub fn wanted_rows(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.wanted.len()).sum()
    }

    /// Whether an adapter of some of its rows changes the matrix at `place`.
    pub(crate) fn adapts(&self, place: usize) -> bool {
        let changes = |adapters: &Adapters| adapters.iter().any(|(adapter, _)| adapter.of(place).is_some());
        self.sequences.iter().any(|sequence| changes(&sequence.adapters))
    }

    /// The position of `row` in its sequence.
    pub(crate) fn position(&self, row: usize) -> usize {
        let before = self.sequences.partition_point(|sequence| sequence.rows.end <= row);
        self.sequences.get(before).map_or(0, |sequence| sequence.start + row - sequence.rows.start)
    }

    /// Drops the rows that are not wanted, and returns which stay, unless all do.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn keep_wanted(&mut self) -> memory::Result<Option<Vec<Range<usize>>>> {
        if self.wanted_rows() == self.rows {
            return Ok(None);
        }
        let kept = memory::collected(self.sequences.iter().map(|sequence| sequence.wanted.clone()), "the wanted rows")?;
        self.angles.iter_mut().for_each(|angles| angles.keep(&kept));
        self.rows = 0;
        for sequence in &mut self.sequences {
            let rows = self.rows..self.rows + sequence.wanted.len();
            sequence.start += sequence.wanted.start - sequence.rows.start;
            self.rows = rows.end;
            (sequence.rows, sequence.wanted) = (rows.clone(), rows);
        }
        Ok(Some(kept))
    }
}
