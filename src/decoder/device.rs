//! The interface between the decoder and what computes: the operations of a forward pass, once for every device.

use super::page::{AllocatePage, CopyPage, Page};
use super::{Angles, Experts};
use crate::error::Result;
use crate::kernels::Scoring;
use crate::memory;
use crate::weights::Weights;
use model_diagnostics::spec::{Activation, LinearWeights, Multipliers, NormWeights};
use std::ops::Range;
use std::sync::Arc;

/// Devices are this crate's own: their operations trust the batches and buffers that a decoder hands them.
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// What a decoder computes on. Everything happens in the order of the calls.
///
/// The rows of all buffers are those of the batch. Widths are the model's.
pub trait Device: sealed::Sealed + Send + Sync + Sized + 'static {
    /// A weight matrix with its bias, in the stored bytes.
    type Matrix: Send + Sync;
    /// The weight and bias of a norm.
    type Norm: Send + Sync;
    /// Keys and values of `KV_PAGE` positions, all layers.
    type Page: Send + Sync;
    /// F32 activations `[rows, width]`.
    type Buffer;
    /// The activations of a feed-forward layer, ready for the down projection.
    type Activated;
    /// Which experts each row is given to, and their activations, ready for the down projections.
    type Routed;
    /// A batch as the operations read it.
    type Batch<'b>;

    /// Whether a row has the same bits in every batch.
    const BATCH_INVARIANT: bool;
    /// How pages are copied, where they can be.
    const COPY_PAGE: Option<CopyPage<Self::Page>>;

    /// Finds a matrix and its kernels.
    ///
    /// # Errors
    /// `Files` when a scale of an int8 weight is one that no sound model has; `Internal` for a dtype without kernels, which
    /// the diagnosis rules out.
    fn matrix(&self, weights: &Weights, linear: &LinearWeights) -> Result<Self::Matrix>;

    /// Finds a norm.
    ///
    /// # Errors
    /// `Internal` for a dtype that vectors do not have, which the diagnosis rules out.
    fn norm(&self, weights: &Weights, norm: &NormWeights) -> Result<Self::Norm>;

    /// What allocates pages.
    fn pages(&self) -> AllocatePage<Self::Page>;

    /// Gives `compute` the buffers of a pass and returns the logits that it leaves there, on the host. A device that has
    /// recorded the operations of an equal batch may repeat them instead.
    ///
    /// # Errors
    /// Those of `compute`, and of the device.
    fn run<'b>(
        &self,
        batch: Batch<'b, Self::Page>,
        compute: &mut dyn FnMut(&mut Pass<'b, Self>) -> Result<()>,
    ) -> Result<Vec<f32>>;

    /// `hidden` = `scale` times the rows of the embedding that the batch's ids name.
    fn embed(
        &self,
        batch: &Self::Batch<'_>,
        embedding: &Self::Matrix,
        scale: f32,
        hidden: &mut Self::Buffer,
    ) -> Result<()>;

    /// `qkv` = the products of `norm(hidden)` with q, k and v, side by side.
    fn norm_qkv(
        &self,
        batch: &Self::Batch<'_>,
        hidden: &Self::Buffer,
        norm: Option<&Self::Norm>,
        matrices: [&Self::Matrix; 3],
        qkv: &mut Self::Buffer,
    ) -> Result<()>;

    /// Norms q and k where a norm is given, each head or all of them together, as the norm is wide; rotates every head by its
    /// row's position by the angles of rotary embedding `rope`, where one is given, and stores keys and values in the pages
    /// of the batch's sequences.
    ///
    /// # Errors
    /// `CacheOverflow` on the processor when a key or value is infinite, or becomes so in the cache's dtype.
    fn rotate_and_store(
        &self,
        batch: &mut Self::Batch<'_>,
        layer: usize,
        norms: [Option<&Self::Norm>; 2],
        rope: Option<usize>,
        qkv: &mut Self::Buffer,
    ) -> Result<()>;

    /// `attended` = attention of every row's queries over the cached positions up to its own, as `options` say.
    fn attend(
        &self,
        batch: &Self::Batch<'_>,
        layer: usize,
        options: AttentionOptions,
        qkv: &Self::Buffer,
        attended: &mut Self::Buffer,
    ) -> Result<()>;

    /// `activated` = the activation of the products of `norm(hidden)` with `up` and the gate, ready for `down`.
    #[allow(clippy::too_many_arguments)] // as many as the layer has parts
    fn norm_up_activate(
        &self,
        batch: &Self::Batch<'_>,
        hidden: &Self::Buffer,
        norm: Option<&Self::Norm>,
        up: &Self::Matrix,
        activation: &Activation<Self::Matrix>,
        down: &Self::Matrix,
        activated: &mut Self::Activated,
    ) -> Result<()>;

    /// `routed` = the experts that each row of `norm(hidden)` is given to, and the activations of these.
    ///
    /// # Errors
    /// `Internal` on a GPU, whose kernels for it do not exist yet: the diagnosis rules it out.
    fn norm_route_activate(
        &self,
        batch: &Self::Batch<'_>,
        hidden: &Self::Buffer,
        norm: Option<&Self::Norm>,
        experts: &Experts<Self::Matrix>,
        routed: &mut Self::Routed,
    ) -> Result<()>;

    /// `hidden` += the weighted sum of the products of `routed` with the down projections, experts in the order of their
    /// indices and the shared one last; normed and multiplied as `output` says.
    ///
    /// # Errors
    /// As [`norm_route_activate`](Self::norm_route_activate).
    fn experts_add(
        &self,
        batch: &Self::Batch<'_>,
        routed: &Self::Routed,
        experts: &Experts<Self::Matrix>,
        output: Output<'_, Self>,
        product: &mut Self::Buffer,
        hidden: &mut Self::Buffer,
    ) -> Result<()>;

    /// `hidden` += the product of `operand` with `matrix`, normed and multiplied as `output` says. What is normed lies in
    /// `product` before.
    fn linear_add(
        &self,
        batch: &Self::Batch<'_>,
        operand: Operand<'_, Self>,
        matrix: &Self::Matrix,
        output: Output<'_, Self>,
        product: &mut Self::Buffer,
        hidden: &mut Self::Buffer,
    ) -> Result<()>;

    /// Drops the rows whose logits are not wanted, or leaves that to [`logits`](Self::logits).
    ///
    /// # Errors
    /// When memory runs out.
    fn keep_wanted(&self, pass: &mut Pass<'_, Self>) -> Result<()>;

    /// `logits` = the product of `norm(hidden)` with `head`, multiplied and capped, for the wanted rows:
    /// `[wanted rows, vocab]`.
    fn logits(
        &self,
        batch: &Self::Batch<'_>,
        hidden: &Self::Buffer,
        norm: &Self::Norm,
        head: &Self::Matrix,
        multipliers: &Multipliers,
        logits: &mut Vec<f32>,
    ) -> Result<()>;
}

/// How queries attend to keys.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions {
    /// The positions that are seen, the query's own included; all up to its own without a window.
    pub window: Option<usize>,
    /// What scores are made of.
    pub scoring: Scoring,
}

/// What the second product of a sub-layer reads.
pub enum Operand<'a, D: Device> {
    /// The attention's output.
    Attended(&'a D::Buffer),
    /// The feed-forward layer's activations.
    Activated(&'a D::Activated),
}

/// What becomes of a sub-layer's output before it is added to the residual stream.
pub struct Output<'a, D: Device> {
    /// It is normed.
    pub norm: Option<&'a D::Norm>,
    /// Then it is multiplied.
    pub scale: f32,
}

/// The buffers of a forward pass. Every layer writes over them.
pub struct Pass<'b, D: Device> {
    /// The batch.
    pub batch: D::Batch<'b>,
    /// The residual stream, `[rows, hidden]`.
    pub hidden: D::Buffer,
    /// Queries, keys and values, `[rows, (heads + 2 * kv_heads) * head_dim]`.
    pub qkv: D::Buffer,
    /// The attention's output, `[rows, heads * head_dim]`.
    pub attended: D::Buffer,
    /// The feed-forward layer's activations, `[rows, feed_forward]`.
    pub activated: D::Activated,
    /// A sub-layer's output before its norm, `[rows, hidden]`; empty where no layer has one there.
    pub product: D::Buffer,
    /// As `activated`, of a layer of experts.
    pub routed: D::Routed,
    /// The wanted logits on the host, `[wanted rows, vocab]`.
    pub logits: Vec<f32>,
    /// Whether operations are recorded, to be computed later. Nothing of a caller's may run meanwhile: no span, no look at a
    /// cancellation token.
    pub recorded: bool,
}

/// The rows of a forward pass: tokens of several sequences, one behind the other.
pub struct Batch<'b, P> {
    /// The sequences.
    pub(crate) sequences: Vec<Sequence<'b, P>>,
    /// Rows in all.
    pub(crate) rows: usize,
    /// The rotation of each row, by each rotary embedding of the model.
    pub(crate) angles: Vec<Angles>,
}

/// One sequence of a batch.
pub struct Sequence<'b, P> {
    /// The ids of its rows.
    pub(crate) tokens: &'b [u32],
    /// Its rows.
    pub(crate) rows: Range<usize>,
    /// The position of its first row.
    pub(crate) start: usize,
    /// The pages of its cache, with room for its rows.
    pub(crate) pages: &'b mut [Arc<Page<P>>],
    /// The rows whose logits are wanted.
    pub(crate) wanted: Range<usize>,
}

impl<P> Batch<'_, P> {
    /// Rows whose logits are wanted.
    pub fn wanted_rows(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.wanted.len()).sum()
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
