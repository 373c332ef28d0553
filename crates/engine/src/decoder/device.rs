//! The interface between the decoder and what computes: the operations of a forward pass, once for every device.

use super::page::{AllocatePage, CopyPage, PagePair};
use super::{Angles, Checkpoint, Classifier, Conv, DeltaNet, EmbeddingInput, Experts, JoinedInput, Mamba2, State};
use crate::error::{Error, Result};
use crate::kernels::Scoring;
use crate::memory;
use crate::weights::Weights;
use model_factory_format::header::TensorInfo;
use model_factory_spec::plan::{KvDtype, KvSize};
use model_factory_spec::spec::{Activation, LinearWeights, ModelSpec, Multipliers, NormWeights};
use std::ops::Range;

/// What a decoder computes on. Everything happens in the order of the calls. Its operations trust the batches and buffers
/// that a decoder hands them.
///
/// The rows of all buffers are those of the batch. Widths are the model's.
pub trait Device: Send + Sync + Sized + 'static {
    /// A weight matrix with its bias, in the stored bytes.
    type Matrix: Send + Sync;
    /// The weight and bias of a norm.
    type Norm: Send + Sync;
    /// A vector of floats.
    type Vector: Send + Sync;
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
    /// Whether it gives hidden states.
    const HIDDEN_STATES: bool;
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
    fn load_norm(&self, weights: &Weights, norm: &NormWeights) -> Result<Self::Norm>;

    /// Finds a vector of floats.
    ///
    /// # Errors
    /// As [`load_norm`](Self::load_norm).
    fn vector(&self, weights: &Weights, vector: &TensorInfo) -> Result<Self::Vector>;

    /// What the caches of `spec` take.
    fn kv_size(spec: &ModelSpec, dtype: KvDtype) -> KvSize;

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

    /// `hidden` += the rows of `input` that the batch's positions and kinds of tokens are.
    ///
    /// # Errors
    /// `Internal` by default, on a device without kernels for it: the diagnosis rules it out.
    fn add_input(
        &self,
        _: &Self::Batch<'_>,
        _: &EmbeddingInput<Self::Matrix, Self::Norm>,
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// `hidden` = its norm.
    ///
    /// # Errors
    /// As [`add_input`](Self::add_input).
    fn norm(&self, _: &Self::Batch<'_>, _: &Self::Norm, _: &mut Self::Buffer) -> Result<()> {
        Err(no_kernel())
    }

    /// `hidden`, embeddings, = what a prediction head makes of them and of the hidden states `given` `[rows, hidden]`.
    ///
    /// # Errors
    /// As [`add_input`](Self::add_input).
    fn join(
        &self,
        _: &Self::Batch<'_>,
        _: &JoinedInput<Self::Matrix, Self::Norm>,
        _: &[f32],
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// Puts the norm of every row of `hidden` into `taken`, on the host.
    ///
    /// # Errors
    /// As [`add_input`](Self::add_input).
    fn give_normed(&self, _: &Self::Batch<'_>, _: &Self::Norm, _: &Self::Buffer, _: &mut Vec<f32>) -> Result<()> {
        Err(no_kernel())
    }

    /// The scores of the labels of each of `rows` `[rows, hidden]`: pooled hidden states, on the host.
    ///
    /// # Errors
    /// As [`add_input`](Self::add_input).
    fn classify(&self, _: &Classifier<Self::Matrix, Self::Norm>, _: Vec<f32>) -> Result<Vec<f32>> {
        Err(no_kernel())
    }

    /// Leaves `hidden` of the wanted rows on the host, where [`run`](Self::run) finds it.
    ///
    /// # Errors
    /// `Internal` by default, on a device without [`HIDDEN_STATES`](Self::HIDDEN_STATES).
    fn give_hidden(&self, _: &mut Pass<'_, Self>) -> Result<()> {
        Err(no_kernel())
    }

    /// `projected` = the products of `norm(hidden)` with the matrices, side by side.
    fn norm_project(
        &self,
        batch: &Self::Batch<'_>,
        hidden: &Self::Buffer,
        norm: Option<&Self::Norm>,
        matrices: &[&Self::Matrix],
        projected: &mut Self::Buffer,
    ) -> Result<()>;

    /// Norms q and k where a norm is given, each head or all of them together, as the norm is wide; rotates every head by its
    /// row's position by the angles of a rotary embedding, where one is given, and stores keys and values in the pages
    /// of the batch's sequences, as `heads` says.
    ///
    /// # Errors
    /// `CacheOverflow` when a key or value is infinite, or becomes so in the cache's dtype; on GPUs that of [`run`](Self::run).
    fn rotate_and_store(
        &self,
        batch: &mut Self::Batch<'_>,
        layer: usize,
        heads: HeadOptions<'_, Self>,
        qkv: &mut Self::Buffer,
    ) -> Result<()>;

    /// `attended` = attention of every row's queries over the cached positions up to its own, as `options` say.
    fn attend(
        &self,
        batch: &Self::Batch<'_>,
        layer: usize,
        options: &AttentionOptions<Self>,
        qkv: &Self::Buffer,
        attended: &mut Self::Buffer,
    ) -> Result<()>;

    /// `mixed` = what a gated delta net makes of `projected`, the products with its `qkv`, `z`, `beta` and `alpha`; `projected` is
    /// overwritten. The states of the batch's sequences go on by their rows.
    ///
    /// # Errors
    /// `Internal` by default, on a device without kernels for it: the diagnosis rules it out.
    fn delta_net(
        &self,
        _: &mut Self::Batch<'_>,
        _: usize,
        _: &DeltaNet<Self::Vector, Self::Norm>,
        _: &mut Self::Buffer,
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// The same of a short convolution, whose `projected` is the product with `bcx`.
    ///
    /// # Errors
    /// As [`delta_net`](Self::delta_net).
    fn short_conv(
        &self,
        _: &mut Self::Batch<'_>,
        _: usize,
        _: &Conv<Self::Vector>,
        _: &mut Self::Buffer,
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// The same of Mamba-2, whose `projected` are the products with its `input`, `gate` and `step`.
    ///
    /// # Errors
    /// As [`delta_net`](Self::delta_net).
    fn mamba2(
        &self,
        _: &mut Self::Batch<'_>,
        _: usize,
        _: &Mamba2<Self::Vector, Self::Norm>,
        _: &mut Self::Buffer,
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

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
    /// `Internal` by default, on a device without kernels for it: the diagnosis rules it out.
    fn norm_route_activate(
        &self,
        _: &Self::Batch<'_>,
        _: &Self::Buffer,
        _: Option<&Self::Norm>,
        _: &Experts<Self::Matrix, Self::Norm>,
        _: &mut Self::Routed,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// `hidden` += the weighted sum of the products of `routed` with the down projections, experts in the order of their
    /// indices and the shared one last; normed and multiplied as `output` says.
    ///
    /// # Errors
    /// As [`norm_route_activate`](Self::norm_route_activate).
    fn experts_add(
        &self,
        _: &Self::Batch<'_>,
        _: &Self::Routed,
        _: &Experts<Self::Matrix, Self::Norm>,
        _: Output<'_, Self>,
        _: &mut Self::Buffer,
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// `sum` = zeros, `[rows, hidden]`: what a dense layer and the experts beside it put out is added to it.
    ///
    /// # Errors
    /// As [`norm_route_activate`](Self::norm_route_activate).
    fn begin_sum(&self, _: &Self::Batch<'_>, _: &mut Self::Buffer) -> Result<()> {
        Err(no_kernel())
    }

    /// `hidden` += `sum`, normed and multiplied as `output` says.
    ///
    /// # Errors
    /// As [`norm_route_activate`](Self::norm_route_activate).
    fn add_sum(&self, _: &Self::Batch<'_>, _: &Self::Buffer, _: Output<'_, Self>, _: &mut Self::Buffer) -> Result<()> {
        Err(no_kernel())
    }

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

    /// `inputs` = what every layer reads of its embedding, of every row: `(norm(projection(hidden) / sqrt(hidden's width)) +
    /// embedding * sqrt(width)) / sqrt(2)`, layers side by side.
    ///
    /// # Errors
    /// `Internal` by default, on a device without kernels for it: the diagnosis rules it out.
    fn layer_inputs(
        &self,
        _: &Self::Batch<'_>,
        _: &Self::Buffer,
        _: &LayerEmbedding<Self>,
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// `gated` = `gelu(gate(hidden)) * ` the inputs of layer `layer`.
    ///
    /// # Errors
    /// As [`layer_inputs`](Self::layer_inputs).
    fn gate_layer_input(
        &self,
        _: &Self::Batch<'_>,
        _: &Self::Buffer,
        _: &Self::Matrix,
        _: &Self::Buffer,
        _: usize,
        _: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_kernel())
    }

    /// `hidden` *= `factor`.
    ///
    /// # Errors
    /// As [`layer_inputs`](Self::layer_inputs).
    fn scale(&self, _: &Self::Batch<'_>, _: f32, _: &mut Self::Buffer) -> Result<()> {
        Err(no_kernel())
    }

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

/// Of an option of the block that a device has no kernel for.
pub fn no_kernel() -> Error {
    Error::Internal("an option without a kernel, which the diagnosis rules out".into())
}

/// How queries attend to keys.
pub struct AttentionOptions<D: Device> {
    /// Whether a query sees its own position and earlier ones alone. Where not, it sees all of its sequence, which is one pass.
    pub causal: bool,
    /// The positions that are seen, the query's own included; all up to its own without a window.
    pub window: Option<usize>,
    /// What scores are made of.
    pub scoring: Scoring,
    /// Scores of a position without a value, one for each query head.
    pub sinks: Option<D::Vector>,
}

/// What becomes of queries, keys and values in front of attention.
pub struct HeadOptions<'a, D: Device> {
    /// Queries are normed.
    pub q_norm: Option<&'a D::Norm>,
    /// Keys are.
    pub k_norm: Option<&'a D::Norm>,
    /// What is added to the mean square of each head of values, by whose root it is divided.
    pub v_norm_eps: Option<f32>,
    /// The rotary embedding of queries and keys.
    pub rope: Option<usize>,
    /// What of them was projected, and is stored.
    pub stored: Stored,
}

/// What a layer projects and stores. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Keys and values.
    KeysValues,
    /// Nothing: keys and values stay beside the queries, and the pass alone reads them.
    Pass,
    /// Keys, which are the values too before their norm.
    Keys,
    /// Nothing: there are queries alone, which read what another layer stores.
    Nothing,
}

/// The embeddings of layers.
pub struct LayerEmbedding<D: Device> {
    /// Elements of a layer.
    pub width: usize,
    /// `[vocab, layers * width]`.
    pub embedding: D::Matrix,
    /// `[layers * width, hidden]`.
    pub projection: D::Matrix,
    /// `[width]`.
    pub norm: D::Norm,
}

/// What the second product of a sub-layer reads.
pub enum Operand<'a, D: Device> {
    /// A mixer's output.
    Mixed(&'a D::Buffer),
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
    /// The products of a mixer's input: of attention queries, keys and values, `[rows, (heads + 2 * kv_heads) * head_dim]`.
    pub projected: D::Buffer,
    /// What a mixer's output projection reads: of attention `[rows, heads * head_dim]`. A layer's gated input too, and the sum of
    /// what experts and a dense layer beside them put out.
    pub mixed: D::Buffer,
    /// What layers read of their embeddings, `[rows, layers * width]`; empty without.
    pub layer_inputs: D::Buffer,
    /// The feed-forward layer's activations, `[rows, feed_forward]`.
    pub activated: D::Activated,
    /// A sub-layer's output before its norm, `[rows, hidden]`; empty where no layer has one there.
    pub product: D::Buffer,
    /// As `activated`, of a layer of experts.
    pub routed: D::Routed,
    /// The wanted logits on the host, `[wanted rows, vocab]`, or hidden states `[wanted rows, hidden]`.
    pub logits: Vec<f32>,
    /// Whether operations are recorded, to be computed later. Nothing of a caller's may run meanwhile: no span, no look at a
    /// cancellation token.
    pub recorded: bool,
}

/// The rows of a forward pass: tokens of several sequences, one behind the other.
pub struct Batch<'b, P> {
    /// The sequences.
    pub sequences: Vec<Sequence<'b, P>>,
    /// Rows in all.
    pub rows: usize,
    /// The rotation of each row, by each rotary embedding of the model.
    pub angles: Vec<Angles>,
}

/// One sequence of a batch.
pub struct Sequence<'b, P> {
    /// The ids of its rows.
    pub tokens: &'b [u32],
    /// Its rows.
    pub rows: Range<usize>,
    /// The position of its first row.
    pub start: usize,
    /// The pages of its cache, with room for its rows.
    pub pages: &'b mut [PagePair<P>],
    /// The position from which on tokens are of the second kind.
    pub second_text: Option<usize>,
    /// What its layers that are no attention carry on.
    pub state: Option<&'b mut State>,
    /// What is to be kept of that at some positions within its rows.
    pub checkpoints: &'b mut [Checkpoint],
    /// The rows whose logits are wanted.
    pub wanted: Range<usize>,
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
