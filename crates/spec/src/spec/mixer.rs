//! What mixes the positions of a sequence: the first sub-layer of a block.

use super::{LinearWeights, NormWeights};
use crate::block::KeySharing;
use crate::header::TensorInfo;

/// The first sub-layer of a block, with its norms.
#[derive(Clone, Debug)]
pub struct MixerWeights {
    /// Of its input, `[hidden]`.
    pub norm: Option<NormWeights>,
    /// What it computes of that.
    pub layer: Mixer,
    /// Of its output, `[hidden]`, before it is added.
    pub output_norm: Option<NormWeights>,
    /// Of the residual stream, `[hidden]`, when it is added.
    pub sum_norm: Option<NormWeights>,
}

/// What mixes the positions of a sequence. Complete.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Queries attend to the keys and values of earlier positions.
    Attention(Box<AttentionWeights>),
    /// A gated delta net: each head has a matrix that every position decays, corrects and reads.
    DeltaNet(Box<DeltaNetWeights>),
    /// A gated convolution over the last few positions.
    ShortConv(Box<ShortConvWeights>),
    /// Mamba-2: each head has a matrix that every position decays, adds to and reads.
    Mamba2(Box<Mamba2Weights>),
}

/// The weights and options of an attention layer.
#[derive(Clone, Debug)]
pub struct AttentionWeights {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// `[heads * head_dim, hidden]`; where attention is gated `[2 * heads * head_dim, hidden]`, of every head its query and
    /// then its gate.
    pub q: LinearWeights,
    /// Whether what a head puts out is multiplied by the sigmoid of its gate.
    pub gated: bool,
    /// Where keys and values come from.
    pub kv: KeysValues,
    /// Of the queries before their rotation: of every head `[head_dim]`, or of all of them together `[heads * head_dim]`.
    pub q_norm: Option<NormWeights>,
    /// Whether a token attends to itself and earlier positions alone. Where not, a whole text is one pass, and nothing of it
    /// is cached.
    pub causal: bool,
    /// Which of [`ModelSpec::ropes`](super::ModelSpec::ropes) rotates queries and keys; `None` where they are not rotated.
    pub rope: Option<usize>,
    /// What products of queries and keys are multiplied by: `1 / sqrt(head_dim)` but for models that say otherwise.
    pub score_scale: f32,
    /// `cap * tanh(score / cap)` in place of a score.
    pub score_cap: Option<f32>,
    /// Scores of a position that each query head also attends to and whose value is zero, `[heads]`.
    pub sinks: Option<TensorInfo>,
    /// Positions that a token attends to, its own included, where the layer limits them; to either side where tokens attend to
    /// later ones too.
    pub window: Option<usize>,
    /// The output projection, `[hidden, heads * head_dim]`.
    pub o: LinearWeights,
}

/// Where an attention layer's keys and values come from. Complete.
#[derive(Clone, Debug)]
pub enum KeysValues {
    /// The layer's own.
    Own(Box<KeyValueWeights>),
    /// Those that this earlier layer, whose heads are of the same sizes, stores.
    OfLayer(usize),
}

/// The weights of an attention layer's own keys and values.
#[derive(Clone, Debug)]
pub struct KeyValueWeights {
    /// `[kv_heads * head_dim, hidden]`.
    pub k: LinearWeights,
    /// `[kv_heads * head_dim, hidden]`; `None` where the products with `k`, before their norm, are the values too.
    pub v: Option<LinearWeights>,
    /// Of the keys before their rotation: of every head `[head_dim]`, or of all of them together `[kv_heads * head_dim]`.
    pub k_norm: Option<NormWeights>,
    /// What is added to the mean square of each head of values, by whose root it is divided; `None` where it is not.
    pub v_norm_eps: Option<f64>,
}

/// The weights of a gated delta net (arXiv 2412.06464; transformers `modeling_qwen3_5.py`).
#[derive(Clone, Debug)]
pub struct DeltaNetWeights {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, each with a state; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Elements of a query or a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Which value heads share a head of keys.
    pub sharing: KeySharing,
    /// Queries, keys, values and gates.
    pub qkvz: DeltaInput,
    /// How much a position corrects, before its sigmoid, and how much the state decays, before its softplus.
    pub ba: DeltaInput,
    /// Over queries, keys and values, before their SiLU.
    pub conv: ConvWeights,
    /// Added to `alpha`'s product, `[value_heads]`.
    pub dt_bias: TensorInfo,
    /// What the softplus is multiplied by, `[value_heads]`.
    pub decay: TensorInfo,
    /// Whether `decay` is stored as the logarithm of its negative (safetensors `A_log`).
    pub decay_is_log: bool,
    /// Of every head of the output before its gate, `[value_dim]`.
    pub norm: NormWeights,
    /// The output projection, `[hidden, value_heads * value_dim]`.
    pub out: LinearWeights,
}

/// Matrices whose products stand side by side. Complete.
#[derive(Clone, Debug)]
pub enum DeltaInput {
    /// One behind the other: queries, keys and values `[2 * key_heads * key_dim + value_heads * value_dim, hidden]` and the gate of
    /// the output `[value_heads * value_dim, hidden]`, or corrections and decays of `[value_heads, hidden]` each.
    Apart(Box<[LinearWeights; 2]>),
    /// One matrix with the rows of both, of every head of keys its query, its key, the values that share it and their gates, or the
    /// corrections and the decays of these.
    ByKeyHead(Box<LinearWeights>),
}

/// The weights of a gated short convolution (transformers `modeling_lfm2.py`): `out(c * conv(b * x))`.
#[derive(Clone, Debug)]
pub struct ShortConvWeights {
    /// `b`, `c` and `x` one behind the other, `[3 * hidden, hidden]`.
    pub bcx: LinearWeights,
    /// Over `b * x`.
    pub conv: ConvWeights,
    /// The output projection, `[hidden, hidden]`.
    pub out: LinearWeights,
}

/// The weights of a Mamba-2 layer (arXiv 2405.21060; transformers `modeling_granitemoehybrid.py`).
#[derive(Clone, Debug)]
pub struct Mamba2Weights {
    /// Heads, each with a state.
    pub heads: usize,
    /// Groups of neighbouring heads that share keys and queries; divides `heads`. The output is normed by group too.
    pub groups: usize,
    /// Elements of a value.
    pub head_dim: usize,
    /// Elements of a key or a query.
    pub state_dim: usize,
    /// The least and the longest step.
    pub step_limit: [f64; 2],
    /// Values, keys and queries (`x`, `B` and `C`), `[heads * head_dim + 2 * groups * state_dim, hidden]`.
    pub input: LinearWeights,
    /// The gate of the output, `[heads * head_dim, hidden]`.
    pub gate: LinearWeights,
    /// How long a position's step is, before its softplus, `[heads, hidden]`.
    pub step: LinearWeights,
    /// Over values, keys and queries, before their SiLU.
    pub conv: ConvWeights,
    /// Added to `step`'s product, `[heads]`.
    pub step_bias: TensorInfo,
    /// What a step is multiplied by, `[heads]`: the logarithm of the decay.
    pub decay: TensorInfo,
    /// Whether `decay` is stored as the logarithm of its negative (safetensors `A_log`).
    pub decay_is_log: bool,
    /// What a value is multiplied by to be added to what is read, `[heads]`.
    pub skip: TensorInfo,
    /// Of the gated output, `[heads * head_dim]`, group by group.
    pub norm: NormWeights,
    /// The output projection, `[hidden, heads * head_dim]`.
    pub out: LinearWeights,
}

/// A causal convolution of every channel by itself.
#[derive(Clone, Debug)]
pub struct ConvWeights {
    /// `[channels, kernel]`, the current position last.
    pub weight: TensorInfo,
    /// `[channels]`.
    pub bias: Option<TensorInfo>,
}

/// The sizes of layers with a state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateSizes {
    /// Heads of queries and keys of a delta net, groups of Mamba-2.
    pub(super) key_heads: usize,
    /// Heads of values.
    pub(super) value_heads: usize,
    /// Elements of a query or a key.
    pub(super) key_dim: usize,
    /// Elements of a value.
    pub(super) value_dim: usize,
    /// Elements of the norm of what is read.
    pub(super) normed: usize,
    /// Channels of the convolution.
    pub(super) channels: usize,
    /// Positions that it depends on.
    pub(super) kernel: usize,
}

impl StateSizes {
    /// The same with the channels of a convolution over keys, queries and values.
    pub(super) fn with_channels(self) -> StateSizes {
        StateSizes { channels: 2 * self.key_heads * self.key_dim + self.values(), ..self }
    }

    /// Elements of all values together.
    pub(super) fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }
}

impl MixerWeights {
    /// All its norms.
    pub(super) fn norms(&self) -> impl Iterator<Item = &NormWeights> {
        let MixerWeights { norm, layer, output_norm, sum_norm } = self;
        let of_heads = match layer {
            Mixer::Attention(attention) => [attention.q_norm.as_ref(), attention.k_norm()],
            Mixer::DeltaNet(net) => [Some(&net.norm), None],
            Mixer::Mamba2(mamba) => [Some(&mamba.norm), None],
            Mixer::ShortConv(_) => [None, None],
        };
        norm.iter().chain(of_heads.into_iter().flatten()).chain(output_norm).chain(sum_norm)
    }
}

impl Mixer {
    /// Attention, where it is that.
    pub fn attention(&self) -> Option<&AttentionWeights> {
        match self {
            Mixer::Attention(attention) => Some(attention),
            Mixer::DeltaNet(_) | Mixer::ShortConv(_) | Mixer::Mamba2(_) => None,
        }
    }

    /// The tensors that are neither matrices nor norms.
    pub fn vectors(&self) -> impl Iterator<Item = &TensorInfo> {
        let (conv, others) = match self {
            Mixer::Attention(attention) => (None, [attention.sinks.as_ref(), None, None]),
            Mixer::DeltaNet(net) => (Some(&net.conv), [Some(&net.dt_bias), Some(&net.decay), None]),
            Mixer::ShortConv(conv) => (Some(&conv.conv), [None, None, None]),
            Mixer::Mamba2(mamba) => {
                (Some(&mamba.conv), [Some(&mamba.step_bias), Some(&mamba.decay), Some(&mamba.skip)])
            }
        };
        let conv = conv.into_iter().flat_map(|ConvWeights { weight, bias }| [weight].into_iter().chain(bias));
        conv.chain(others.into_iter().flatten())
    }

    /// The matrices in the order of their products.
    pub fn linears(&self) -> impl Iterator<Item = &LinearWeights> {
        let linears = match self {
            Mixer::Attention(attention) => {
                let AttentionWeights { q, kv, o, .. } = &**attention;
                let (k, v) = kv.own().map_or((None, None), |own| (Some(&own.k), own.v.as_ref()));
                [Some(q), k, v, Some(o), None]
            }
            Mixer::DeltaNet(net) => {
                let ([qkvz, z], [ba, alpha]) = (net.qkvz.linears(), net.ba.linears());
                [qkvz, z, ba, alpha, Some(&net.out)]
            }
            Mixer::ShortConv(conv) => [Some(&conv.bcx), Some(&conv.out), None, None, None],
            Mixer::Mamba2(mamba) => [Some(&mamba.input), Some(&mamba.gate), Some(&mamba.step), Some(&mamba.out), None],
        };
        linears.into_iter().flatten()
    }

    /// Elements a row of the products of its input, side by side.
    pub fn projected(&self) -> usize {
        match self {
            Mixer::Attention(attention) => {
                let queries = if attention.gated { 2 } else { 1 };
                attention.width(attention.kv_heads.saturating_mul(2).saturating_add(attention.heads * queries))
            }
            Mixer::DeltaNet(net) => net.channels().saturating_add(net.values()).saturating_add(2 * net.value_heads),
            Mixer::ShortConv(conv) => conv.channels().saturating_mul(3),
            Mixer::Mamba2(mamba) => mamba.conv.channels().saturating_add(mamba.values()).saturating_add(mamba.heads),
        }
    }

    /// Elements a row of what its output projection reads.
    pub fn mixed(&self) -> usize {
        match self {
            Mixer::Attention(attention) => attention.width(attention.heads),
            Mixer::DeltaNet(net) => net.values(),
            Mixer::ShortConv(conv) => conv.channels(),
            Mixer::Mamba2(mamba) => mamba.values(),
        }
    }
}

impl KeysValues {
    /// The weights of the layer's own.
    pub fn own(&self) -> Option<&KeyValueWeights> {
        match self {
            KeysValues::Own(own) => Some(own),
            KeysValues::OfLayer(_) => None,
        }
    }
}

impl AttentionWeights {
    /// The norm of its own keys.
    pub fn k_norm(&self) -> Option<&NormWeights> {
        self.kv.own()?.k_norm.as_ref()
    }

    fn width(&self, heads: usize) -> usize {
        heads.saturating_mul(self.head_dim)
    }
}

impl DeltaInput {
    /// The matrices in the order of their products.
    pub fn linears(&self) -> [Option<&LinearWeights>; 2] {
        match self {
            DeltaInput::Apart(both) => both.each_ref().map(Some),
            DeltaInput::ByKeyHead(both) => [Some(both), None],
        }
    }

    /// Whether products stand by heads of keys.
    pub fn by_key_head(&self) -> bool {
        matches!(self, DeltaInput::ByKeyHead(_))
    }
}

impl DeltaNetWeights {
    /// Elements a row of queries, keys and values: what is convolved.
    pub fn channels(&self) -> usize {
        self.key_heads.saturating_mul(self.key_dim).saturating_mul(2).saturating_add(self.values())
    }

    /// Elements a row of values.
    pub fn values(&self) -> usize {
        self.value_heads.saturating_mul(self.value_dim)
    }
}

impl Mamba2Weights {
    /// Elements a row of values.
    pub fn values(&self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }
}

impl ShortConvWeights {
    /// Elements a row of what is convolved.
    pub fn channels(&self) -> usize {
        self.conv.channels()
    }
}

impl ConvWeights {
    /// Channels.
    pub fn channels(&self) -> usize {
        self.weight.shape[0] as usize
    }

    /// Positions that an output depends on, its own included.
    pub fn kernel(&self) -> usize {
        self.weight.shape[1] as usize
    }
}
