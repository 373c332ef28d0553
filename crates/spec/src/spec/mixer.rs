//! Token mixers: the first sub-layer of a block.

use super::weights::{mapped, weights};
use super::{LatentWeights, LaurelWeights, LinearWeights, MapWeights, PositionScores, QueryScale, Stored, WeightTypes};
use crate::block::KeySharing;

weights! {
    /// The first sub-layer of a block, with its norms.
    pub struct MixerWeights<W> {
        /// The norm of its input, `[hidden]`.
        pub norm: Option<W::Norm> = optional norm,
        /// The token mixer itself.
        pub layer: Mixer<W> = part,
        /// A mixer with a state next to attention, which reads the same input and whose output is added too.
        pub beside: Option<Box<Mixer<W>>> = optional boxed part,
        /// A residual that is added with its output.
        pub laurel: Option<Box<LaurelWeights<W>>> = optional boxed part,
        /// The norm of its output, `[hidden]`, before the output is added to the residual stream.
        pub output_norm: Option<W::Norm> = optional norm,
        /// The norm of the residual stream, `[hidden]`, after the output is added.
        pub sum_norm: Option<W::Norm> = optional norm,
    }

    /// The weights and options of an attention layer.
    pub struct AttentionWeights<W> {
        /// The number of query heads.
        pub heads: usize,
        /// Key and value heads; their number divides `heads`.
        pub kv_heads: usize,
        /// Elements of a head. Where attention is latent, those of the one head of keys that is cached: a latent, then the rotated
        /// elements of a key.
        pub head_dim: usize,
        /// The query projection, `[heads * head_dim, hidden]`; where attention is gated
        /// `[2 * heads * head_dim, hidden]`, for every head its query and then its gate. Where it is latent, the first
        /// projection of queries, as [`LatentWeights::queries`] says. It may hold keys and values too.
        pub q: W::Matrix = matrix,
        /// Whether the output of a head is multiplied by the sigmoid of its gate.
        pub gated: bool,
        /// Where keys and values come from.
        pub kv: KeysValues<W> = part,
        /// The norm of the queries: `[head_dim]` for every head, or `[heads * head_dim]` for all together or each by itself.
        pub q_norm: Option<W::Norm> = optional norm,
        /// Whether norms of `[heads * head_dim]` are over each head by itself.
        pub norms_each_head: bool,
        /// Whether queries and keys are rotated before their norms, not after.
        pub norms_rotated: bool,
        /// Whether a token attends only to itself and earlier positions. Otherwise a whole text is computed in one
        /// pass, and none of it is cached.
        pub causal: bool,
        /// Which of [`ModelSpec::ropes`](super::ModelSpec::ropes) rotates queries and keys; `None` where they are not rotated.
        pub rope: Option<usize>,
        /// The factor of queries that depends on their position.
        pub query_scale: Option<QueryScale>,
        /// The factor of products of queries and keys: `1 / sqrt(head_dim)`, unless the model sets another.
        pub score_scale: f32,
        /// The cap of scores: `cap * tanh(score / cap)` replaces a score.
        pub score_cap: Option<f32>,
        /// ALiBi (arXiv 2108.12409): the exponent, of base 1/2, of the smallest slope where the heads are a power of two. A
        /// head's slope times the distance of two positions is taken from their score.
        pub alibi: Option<f32>,
        /// Terms of scores by relative positions (arXiv 2006.03654).
        pub positions: Option<Box<PositionScores<W>>> = optional boxed part,
        /// The limit of the magnitude of the elements of queries, keys and values as they are projected.
        pub qkv_limit: Option<f32>,
        /// Attention sinks, `[heads]`: scores of a position that each query head also attends to and whose value is zero.
        pub sinks: Option<W::Vector> = optional vector,
        /// Positions that a token attends to, the current one included, where the layer limits them; positions to
        /// either side where tokens also attend to later ones.
        pub window: Option<usize>,
        /// Whether positions are in chunks of so many, and a token attends only to its own chunk.
        pub chunked: bool,
        /// Gates by a projection of their own: one for each head, or `heads * head_dim`; 0 without it.
        pub gates: usize,
        /// Whether an output is multiplied by the softplus of such a gate, not by its sigmoid.
        pub softplus_gates: bool,
        /// That projection, `[gates, hidden]`.
        pub gate: Option<W::Matrix> = optional matrix,
        /// The output projection, `[hidden, heads * head_dim]`, or by the values of latents `[hidden, heads * value_dim]`.
        pub o: W::Matrix = matrix,
    }

    /// The weights of an attention layer's own keys and values.
    pub struct KeyValueWeights<W> {
        /// Their projections.
        pub projections: KeyValueProjections<W::Matrix> = matrices,
        /// The norm of the keys, as that of the queries: `[head_dim]` or `[kv_heads * head_dim]`.
        pub k_norm: Option<W::Norm> = optional norm,
        /// The epsilon of the root mean square norm of each head of values; `None` where values are not normalized.
        pub v_norm_eps: Option<f64>,
    }

    /// The weights of a gated delta net (arXiv 2412.06464; transformers `modeling_qwen3_5.py`), or with second projections of Kimi
    /// delta attention (arXiv 2510.26692; transformers `modeling_kimi_linear.py`).
    pub struct DeltaNetWeights<W> {
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
        /// The projection of queries, keys, values and gates.
        pub qkvz: DeltaInput<W::Matrix> = matrices,
        /// `beta`, how much a position corrects, before its sigmoid, and `alpha`, how much the state decays, before its softplus.
        pub ba: DeltaInput<W::Matrix> = matrices,
        /// What makes gates and decays of the products of `qkvz` and `ba`, where each has two projections.
        pub second: Option<Box<SecondProjections<W>>> = optional boxed part,
        /// The convolution of queries, keys and values, before their SiLU.
        pub conv: ConvWeights<W> = part,
        /// The factor of a correction's sigmoid.
        pub strength: f32,
        /// The bias of `alpha`'s product, one for each decay of a position.
        pub dt_bias: W::Vector = vector,
        /// The factor of the softplus, `[value_heads]`.
        pub decay: W::Vector = vector,
        /// Whether `decay` is stored as the logarithm of its negative (safetensors `A_log`).
        pub decay_is_log: bool,
        /// The norm of every head of the output before its gate, `[value_dim]`.
        pub norm: W::Norm = norm,
        /// The output projection, `[hidden, value_heads * value_dim]`.
        pub out: W::Matrix = matrix,
    }

    /// The second projections of gates and decays in Kimi delta attention. Each element of a key has a decay then, and the gate is a
    /// sigmoid in place of SiLU.
    pub struct SecondProjections<W> {
        /// Elements between the projections of gates, and between those of decays.
        pub rank: usize,
        /// The projection of the gate of the output, `[value_heads * value_dim, rank]`.
        pub gate: W::Matrix = matrix,
        /// The projection of `alpha`, `[value_heads * key_dim, rank]`.
        pub alpha: W::Matrix = matrix,
    }

    /// The weights of a gated short convolution (transformers `modeling_lfm2.py`): `out(c * conv(b * x))`.
    pub struct ShortConvWeights<W> {
        /// The projection of `b`, `c` and `x`, one after the other, `[3 * hidden, hidden]`.
        pub bcx: W::Matrix = matrix,
        /// The convolution of `b * x`.
        pub conv: ConvWeights<W> = part,
        /// The output projection, `[hidden, hidden]`.
        pub out: W::Matrix = matrix,
    }

    /// The weights of a layer of Mamba-2 (arXiv 2405.21060; transformers `modeling_granitemoehybrid.py`), or with a selection of
    /// Mamba (arXiv 2312.00752; transformers `modeling_mamba.py`).
    pub struct MambaWeights<W> {
        /// Heads, each with a state; those of Mamba have one element, but in PLaMo 2.
        pub heads: usize,
        /// Groups of adjacent heads that share keys and queries; divides `heads`. The output is normalized by group too.
        pub groups: usize,
        /// Elements of a value.
        pub head_dim: usize,
        /// Elements of a key or a query.
        pub state_dim: usize,
        /// The shortest and the longest step.
        pub step_limit: [f64; 2],
        /// The projection of values, keys and queries (`x`, `B` and `C`), `[heads * head_dim + 2 * groups * state_dim, hidden]`. With a
        /// selection it is of values alone, and without `gate` of gates too: for every head its gate, then its value.
        pub input: W::Matrix = matrix,
        /// The projection of the output's gate, `[heads * head_dim, hidden]`.
        pub gate: Option<W::Matrix> = optional matrix,
        /// The projection of a position's step (`dt`), before its softplus, `[heads, hidden]`; with a selection `[heads, rank]`.
        pub step: W::Matrix = matrix,
        /// What makes keys, queries and steps of the convolved values.
        pub selection: Option<Box<SelectionWeights<W>>> = optional boxed part,
        /// The convolution of values, and without a selection of keys and queries, before their SiLU.
        pub conv: ConvWeights<W> = part,
        /// The bias of `step`'s product, `[heads]`.
        pub step_bias: W::Vector = vector,
        /// The factor of a step (`A`), `[heads]`: the product is the logarithm of the decay. Or of each element of a state,
        /// `[heads * head_dim, state_dim]`.
        pub decay: W::Vector = vector,
        /// Whether each element of a state has a decay of its own.
        pub by_element: bool,
        /// Whether `decay` is stored as the logarithm of its negative (safetensors `A_log`).
        pub decay_is_log: bool,
        /// The factor with which a value is added to the output (`D`), `[heads]`.
        pub skip: W::Vector = vector,
        /// The norm of the gated output, `[heads * head_dim]`, group by group.
        pub norm: Option<W::Norm> = optional norm,
        /// The output projection, `[hidden, heads * head_dim]`.
        pub out: W::Matrix = matrix,
    }

    /// What Mamba's keys, queries and steps are made of: projections of the convolved values.
    pub struct SelectionWeights<W> {
        /// Elements of what a position's steps are made of.
        pub rank: usize,
        /// The projections of these, of keys and of queries, `[rank, values]` and `[state_dim, values]`, in this order.
        pub matrices: Vec<W::Matrix> = list matrix,
        /// The norms of these; none or three.
        pub norms: Vec<W::Norm> = list norm,
        /// The epsilon of root mean square norms without weights in their place.
        pub norm_eps: Option<f64>,
    }

    /// A causal convolution of each channel separately.
    pub struct ConvWeights<W> {
        /// The kernels, `[channels, kernel]`, the current position last, in one tensor or several.
        pub weights: Vec<W::Vector> = list vector,
        /// The channels before each of these, and all of them at last.
        pub ends: Vec<usize>,
        /// The bias, `[channels]`.
        pub bias: Option<W::Vector> = optional vector,
        /// The number of channels.
        pub channels: usize,
        /// Positions that an output depends on, the current one included.
        pub kernel: usize,
    }
}

/// What has a decay of its own. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decays {
    /// A head.
    OfHead,
    /// An element of a head's key.
    OfKey,
    /// An element of a state.
    OfState,
}

/// Token mixers. Complete.
#[derive(Clone, Debug)]
pub enum Mixer<W: WeightTypes = Stored> {
    /// Queries attend to the keys and values of earlier positions.
    Attention(Box<AttentionWeights<W>>),
    /// A gated delta net: each head has a state matrix that every position decays, corrects and reads.
    DeltaNet(Box<DeltaNetWeights<W>>),
    /// A gated convolution over the last few positions.
    ShortConv(Box<ShortConvWeights<W>>),
    /// Mamba or Mamba-2: each head has a state matrix that every position decays, adds to and reads.
    Mamba(Box<MambaWeights<W>>),
}

/// Where an attention layer's keys and values come from. Complete.
#[derive(Clone, Debug)]
pub enum KeysValues<W: WeightTypes = Stored> {
    /// The layer's own keys and values.
    Own(Box<KeyValueWeights<W>>),
    /// Latents, of which keys and values of all heads are made.
    Latent(Box<LatentWeights<W>>),
    /// The keys and values of this earlier layer, whose heads have the same sizes.
    OfLayer(usize),
}

/// The projections of an attention layer's own keys and values, each of `[kv_heads * head_dim, hidden]`. Complete.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum KeyValueProjections<Matrix = LinearWeights> {
    /// Matrices of their own; without that of values the keys before their norm are used.
    Apart { k: Matrix, v: Option<Matrix> },
    /// The rows after those of the queries in one matrix: all keys, then all values.
    AfterQueries,
    /// In one matrix with the queries: for every head of keys its queries, its key and its value.
    ByHeads,
    /// In one matrix with the queries, in so many groups of heads: their queries, their values, their keys.
    Groups(usize),
}

/// Projections whose outputs are next to each other in a row. Complete.
#[derive(Clone, Debug)]
pub enum DeltaInput<Matrix = LinearWeights> {
    /// Matrices: queries, keys and values `[2 * key_heads * key_dim + value_heads * value_dim, hidden]` and the gate of
    /// the output `[value_heads * value_dim, hidden]`, or the first in three, or corrections and decays of `[value_heads, hidden]` each.
    /// Gates and decays that have a second projection are of `[rank, hidden]`.
    Apart(Vec<Matrix>),
    /// One matrix with the rows of both: for every key head its query, its key, the values that share it and their
    /// gates, or the corrections and the decays of these values.
    ByKeyHead(Box<Matrix>),
}

impl<W: WeightTypes> Mixer<W> {
    /// The attention weights, if this is attention.
    pub fn attention(&self) -> Option<&AttentionWeights<W>> {
        if let Mixer::Attention(attention) = self { Some(attention) } else { None }
    }

    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Mixer::Attention(_) => "attention",
            Mixer::DeltaNet(net) if net.second.is_some() => "Kimi delta attention",
            Mixer::DeltaNet(_) => "gated delta net",
            Mixer::ShortConv(_) => "short convolution",
            Mixer::Mamba(mamba) if mamba.selection.is_some() => "Mamba",
            Mixer::Mamba(_) => "Mamba-2",
        }
    }

    /// The convolution of a layer with a state, the heads, key and value sizes of the state, and what has a decay.
    pub fn state(&self) -> Option<(&ConvWeights<W>, [usize; 3], Decays)> {
        match self {
            Mixer::Attention(_) => None,
            Mixer::DeltaNet(net) => {
                let decays = if net.second.is_some() { Decays::OfKey } else { Decays::OfHead };
                Some((&net.conv, [net.value_heads, net.key_dim, net.value_dim], decays))
            }
            Mixer::ShortConv(net) => Some((&net.conv, [0, 0, 0], Decays::OfHead)),
            Mixer::Mamba(mamba) => {
                let decays = if mamba.by_element { Decays::OfState } else { Decays::OfHead };
                Some((&mamba.conv, mamba.states(), decays))
            }
        }
    }

    /// Whether later positions need what the layer stores: keys and values of its own, or a state.
    pub fn stores(&self) -> bool {
        self.attention().is_none_or(|attention| attention.kv.stores())
    }

    /// The matrices of the layer's input projections; their outputs are next to each other in a row.
    pub fn inputs(&self) -> Vec<&W::Matrix> {
        match self {
            Mixer::Attention(attention) => {
                let [k, v] = attention.kv.own().map_or([None; 2], |own| own.projections.linears());
                let down = attention.kv.latent().map(|latent| &latent.down);
                [Some(&attention.q), k.or(down), v, attention.gate.as_ref()].into_iter().flatten().collect()
            }
            Mixer::DeltaNet(net) => net.qkvz.linears().iter().chain(net.ba.linears()).collect(),
            Mixer::ShortConv(conv) => vec![&conv.bcx],
            Mixer::Mamba(mamba) => {
                let step = mamba.selection.is_none().then_some(&mamba.step);
                [Some(&mamba.input), mamba.gate.as_ref(), step].into_iter().flatten().collect()
            }
        }
    }

    fn try_map<'w, M: MapWeights<'w, W>>(&'w self, map: &mut M) -> Result<Mixer<M::To>, M::Error> {
        Ok(match self {
            Mixer::Attention(attention) => Mixer::Attention(Box::new(attention.try_map(map)?)),
            Mixer::DeltaNet(net) => Mixer::DeltaNet(Box::new(net.try_map(map)?)),
            Mixer::ShortConv(conv) => Mixer::ShortConv(Box::new(conv.try_map(map)?)),
            Mixer::Mamba(mamba) => Mixer::Mamba(Box::new(mamba.try_map(map)?)),
        })
    }

    /// The output projection.
    pub fn output(&self) -> &W::Matrix {
        match self {
            Mixer::Attention(attention) => &attention.o,
            Mixer::DeltaNet(net) => &net.out,
            Mixer::ShortConv(conv) => &conv.out,
            Mixer::Mamba(mamba) => &mamba.out,
        }
    }

    /// Elements a row of the outputs of the input projections together; of latent attention also of the second projection of
    /// queries, and of the queries that attend; of a selection, or of gates and decays, also of their second projections.
    pub fn projected(&self) -> usize {
        match self {
            Mixer::Attention(attention) => {
                if let Some(latent) = attention.kv.latent() {
                    let [first, last] = latent.queries(attention.heads);
                    let up = if latent.q_up.is_some() { last } else { 0 };
                    let absorbed = attention.width(attention.heads);
                    return first.saturating_add(attention.head_dim).saturating_add(up).saturating_add(absorbed);
                }
                let queries = if attention.gated { 2 } else { 1 };
                let heads = attention.kv_heads.saturating_mul(2).saturating_add(attention.heads * queries);
                attention.width(heads).saturating_add(attention.gates)
            }
            Mixer::DeltaNet(net) => {
                let gates_decays = net.values().saturating_add(net.value_heads.saturating_mul(net.decays()));
                let between = net.second.as_ref().map_or(0, |second| second.rank.saturating_mul(2));
                let all = net.channels().saturating_add(gates_decays).saturating_add(net.value_heads);
                all.saturating_add(between)
            }
            Mixer::ShortConv(conv) => conv.conv.channels.saturating_mul(3),
            Mixer::Mamba(mamba) => {
                let selected = mamba.selection.as_ref().map_or(0, |of| of.rank.saturating_add(2 * mamba.state_dim));
                let steps = selected.saturating_add(mamba.heads);
                mamba.conv.channels.saturating_add(mamba.values()).saturating_add(steps)
            }
        }
    }

    /// Elements a row of the latents that values are made of.
    pub fn latents(&self) -> usize {
        let latent = self.attention().and_then(|attention| Some((attention.heads, attention.kv.latent()?.rank)));
        latent.map_or(0, |(heads, rank)| heads.saturating_mul(rank))
    }

    /// Elements a row of the output projection's input.
    pub fn mixed(&self) -> usize {
        match self {
            Mixer::Attention(attention) => match attention.kv.latent() {
                Some(latent) => attention.heads.saturating_mul(latent.value_dim),
                None => attention.width(attention.heads),
            },
            Mixer::DeltaNet(net) => net.values(),
            Mixer::ShortConv(conv) => conv.conv.channels,
            Mixer::Mamba(mamba) => mamba.values(),
        }
    }

    /// Elements of the longest row that the products after the input projections read.
    pub fn longest_input(&self) -> usize {
        let rank = match self {
            Mixer::Mamba(mamba) => mamba.selection.as_ref().map(|selection| selection.rank),
            Mixer::DeltaNet(net) => net.second.as_ref().map(|second| second.rank),
            Mixer::Attention(_) | Mixer::ShortConv(_) => None,
        };
        rank.unwrap_or(0).max(self.mixed())
    }
}

impl<W: WeightTypes> KeysValues<W> {
    /// The weights of the layer's own keys and values.
    pub fn own(&self) -> Option<&KeyValueWeights<W>> {
        if let KeysValues::Own(own) = self { Some(own) } else { None }
    }

    /// The weights of latents.
    pub fn latent(&self) -> Option<&LatentWeights<W>> {
        if let KeysValues::Latent(latent) = self { Some(latent) } else { None }
    }

    /// Whether the layer caches something of its own.
    pub fn stores(&self) -> bool {
        !matches!(self, KeysValues::OfLayer(_))
    }

    fn try_map<'w, M: MapWeights<'w, W>>(&'w self, map: &mut M) -> Result<KeysValues<M::To>, M::Error> {
        Ok(match self {
            KeysValues::Own(own) => KeysValues::Own(Box::new(own.try_map(map)?)),
            KeysValues::Latent(latent) => KeysValues::Latent(Box::new(latent.try_map(map)?)),
            KeysValues::OfLayer(layer) => KeysValues::OfLayer(*layer),
        })
    }
}

impl<W: WeightTypes> AttentionWeights<W> {
    /// The norm of the layer's own keys.
    pub fn k_norm(&self) -> Option<&W::Norm> {
        self.kv.own()?.k_norm.as_ref()
    }

    /// The factor of the distance of two positions that is taken from a query head's score of them.
    pub fn slope(&self, head: usize) -> Option<f32> {
        self.alibi.map(|exponent| slope(f64::from(exponent), self.heads, head))
    }

    /// The first position that a token at `position` attends to.
    pub fn first_seen(&self, position: usize) -> usize {
        match self.window {
            None => 0,
            Some(chunk) if self.chunked => position / chunk * chunk,
            Some(window) => (position + 1).saturating_sub(window),
        }
    }

    fn width(&self, heads: usize) -> usize {
        heads.saturating_mul(self.head_dim)
    }
}

/// The slope of head `head` of `heads`, where the last of a power of two of heads has `2^-exponent`.
fn slope(exponent: f64, heads: usize, head: usize) -> f32 {
    let whole = 1_usize << heads.ilog2();
    // Heads past a power of two have the slopes between those of the others.
    let place = if head < whole { (head + 1) as f64 } else { (head - whole) as f64 + 0.5 };
    (-exponent * place / whole as f64).exp2() as f32
}

impl<Matrix> KeyValueProjections<Matrix> {
    /// The matrices in the order of their outputs.
    pub fn linears(&self) -> [Option<&Matrix>; 2] {
        if let KeyValueProjections::Apart { k, v } = self { [Some(k), v.as_ref()] } else { [None; 2] }
    }

    /// Whether keys before their norm are the values.
    pub fn are_keys(&self) -> bool {
        matches!(self, KeyValueProjections::Apart { v: None, .. })
    }

    fn try_map<'w, M, E>(
        &'w self,
        mut make: impl FnMut(&'w Matrix) -> Result<M, E>,
    ) -> Result<KeyValueProjections<M>, E> {
        Ok(match self {
            KeyValueProjections::Apart { k, v } => {
                KeyValueProjections::Apart { k: make(k)?, v: v.as_ref().map(make).transpose()? }
            }
            KeyValueProjections::AfterQueries => KeyValueProjections::AfterQueries,
            KeyValueProjections::ByHeads => KeyValueProjections::ByHeads,
            KeyValueProjections::Groups(count) => KeyValueProjections::Groups(*count),
        })
    }
}

impl<Matrix> DeltaInput<Matrix> {
    /// The matrices in the order of their outputs.
    pub fn linears(&self) -> &[Matrix] {
        match self {
            DeltaInput::Apart(each) => each,
            DeltaInput::ByKeyHead(both) => std::slice::from_ref(both),
        }
    }

    /// Whether outputs are ordered by key heads.
    pub fn by_key_head(&self) -> bool {
        matches!(self, DeltaInput::ByKeyHead(_))
    }

    fn try_map<'w, M, E>(&'w self, mut make: impl FnMut(&'w Matrix) -> Result<M, E>) -> Result<DeltaInput<M>, E> {
        Ok(match self {
            DeltaInput::Apart(each) => DeltaInput::Apart(each.iter().map(make).collect::<Result<_, E>>()?),
            DeltaInput::ByKeyHead(both) => DeltaInput::ByKeyHead(Box::new(make(both)?)),
        })
    }
}

impl<W: WeightTypes> DeltaNetWeights<W> {
    /// Elements a row of queries, keys and values: the input of the convolution.
    pub fn channels(&self) -> usize {
        self.key_heads.saturating_mul(self.key_dim).saturating_mul(2).saturating_add(self.values())
    }

    /// Elements a row of values.
    pub fn values(&self) -> usize {
        self.value_heads.saturating_mul(self.value_dim)
    }

    /// Decays of a head at a position.
    pub fn decays(&self) -> usize {
        if self.second.is_some() { self.key_dim } else { 1 }
    }

    /// The key head of value head `head`.
    pub fn key_head(&self, head: usize) -> usize {
        match self.sharing {
            KeySharing::Neighbours => head / (self.value_heads / self.key_heads),
            KeySharing::Strided => head % self.key_heads,
        }
    }
}

impl<W: WeightTypes> MambaWeights<W> {
    /// Elements a row of values.
    pub fn values(&self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }

    /// The number of states, and the sizes of a key and of a value of each. Where each element has a decay, a state is of up to so
    /// many values that are computed together.
    pub fn states(&self) -> [usize; 3] {
        const TOGETHER: usize = 64;
        if !self.by_element {
            return [self.heads, self.state_dim, self.head_dim];
        }
        let values = self.values();
        let width = (1..=TOGETHER).rev().find(|width| values.is_multiple_of(*width)).unwrap_or(1);
        [values / width, self.state_dim, width]
    }
}

#[cfg(test)]
mod tests {
    use super::slope;

    /// Those of transformers' `_get_alibi_slopes` (BLOOM) and `build_mpt_alibi_tensor`, which agree.
    #[test]
    fn slopes_of_heads_that_are_no_power_of_two_lie_between_those_that_are() {
        let slopes = |heads| (0..heads).map(|head| slope(8.0, heads, head)).collect::<Vec<_>>();
        assert_eq!(slopes(4), [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert_eq!(slopes(6), [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125]);
        assert_eq!(slopes(1), [0.003_906_25]);
    }
}
