//! The size of a sequence's KV cache, and of the states of recurrent layers: the plan and the decoder's allocations use
//! the same functions.

use super::{KV_PAGE, PREFILL_CHUNK, product, sum};
use crate::spec::{AttentionWeights, Decays, KeysValues, LayerWeights, Mixer, ModelSpec};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The element type of the KV cache. Complete, though it may grow in a new major version: each crate that computes
/// matches all of them, so that none is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum KvDtype {
    /// As computed, in F32.
    #[default]
    F32,
    /// Rounded to the nearest F16, ties to even: half the memory, and half of what a token reads of it. A key or value
    /// beyond 65504 is an error.
    F16,
    /// Blocks of 32 elements of a head, the last one possibly shorter, as in GGUF's Q8_0: signed bytes with one F16
    /// scale, the largest magnitude / 127. 34 bytes for 32 elements, 0.27 of F32. A key or value beyond 127 * 65504, or
    /// NaN, is an error. Only on the processor.
    Q8_0,
}

/// Elements of a head that share a scale in [`KvDtype::Q8_0`].
const KV_BLOCK: usize = 32;

impl KvDtype {
    /// Bytes of a key or a value of `head_dim` elements.
    pub fn head_bytes(self, head_dim: usize) -> usize {
        match self {
            KvDtype::F32 => head_dim.saturating_mul(4),
            KvDtype::F16 => head_dim.saturating_mul(2),
            KvDtype::Q8_0 => head_dim.saturating_add(2 * head_dim.div_ceil(KV_BLOCK)),
        }
    }
}

impl fmt::Display for KvDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The error for a text that names no [`KvDtype`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected f32, f16 or q8_0")]
pub struct UnknownKvDtype;

impl FromStr for KvDtype {
    type Err = UnknownKvDtype;

    /// Parses `f32`, `f16` or `q8_0`, in upper or lower case.
    fn from_str(text: &str) -> Result<KvDtype, UnknownKvDtype> {
        let named = |dtype: &KvDtype| dtype.to_string().eq_ignore_ascii_case(text);
        [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0].into_iter().find(named).ok_or(UnknownKvDtype)
    }
}

/// Bytes of the KV cache of one sequence. Layers with a window drop what no later token sees; where other layers keep
/// all positions, the two kinds have separate pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSize {
    /// Bytes of [`KV_PAGE`] positions in the layers that keep all positions.
    pub page: u64,
    /// Bytes of [`KV_PAGE`] positions in the layers that keep only their window; 0 where there are none.
    pub window_page: u64,
    /// The longest window, in positions.
    pub window: usize,
}

impl KvSize {
    /// The sizes on the processor.
    pub fn of_cpu(spec: &ModelSpec, dtype: KvDtype) -> KvSize {
        let windowed = windowed_layers(spec);
        let mut size = KvSize { page: 0, window_page: 0, window: 0 };
        for (layer, windowed) in spec.weights.layers.iter().zip(windowed) {
            let Some(attention) = layer.attention() else { continue };
            let page = stored_bytes(attention, dtype).saturating_mul(KV_PAGE as u64);
            let of_kind = if windowed { &mut size.window_page } else { &mut size.page };
            *of_kind = of_kind.saturating_add(page);
            size.window = size.window.max(attention.window.filter(|_| windowed).unwrap_or(0));
        }
        size
    }

    /// The sizes on a GPU, where all layers keep all positions.
    pub fn of_gpu(spec: &ModelSpec, dtype: KvDtype) -> KvSize {
        let page = kv_bytes_per_token(spec, dtype).saturating_mul(KV_PAGE as u64);
        KvSize { page, window_page: 0, window: 0 }
    }

    /// The most pages of layers with a window that a sequence of `positions` has: those of the window, of a chunk of a
    /// prompt after it, and of [`KV_PAGE`] positions before it, by which a sequence can be cut back and continued.
    pub fn window_pages(&self, positions: usize) -> usize {
        let kept = self.window.saturating_add(PREFILL_CHUNK + KV_PAGE - 1);
        let most = if self.window_page == 0 { 0 } else { (kept - 1).div_ceil(KV_PAGE).saturating_add(1) };
        positions.div_ceil(KV_PAGE).min(most)
    }

    /// The first position that the token at `position` sees in layers with a window.
    pub fn first_seen(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// Bytes of the cache of a sequence of `positions`.
    pub fn bytes(&self, positions: usize) -> u64 {
        let of = |bytes: u64, pages: usize| bytes.saturating_mul(pages as u64);
        of(self.page, positions.div_ceil(KV_PAGE)).saturating_add(of(self.window_page, self.window_pages(positions)))
    }
}

/// Which layers keep only the positions of their window: layers whose window is much shorter than the context and whose
/// keys and values no other layer reads.
pub fn windowed_layers(spec: &ModelSpec) -> Vec<bool> {
    let attentions = || spec.weights.layers.iter().map(LayerWeights::attention);
    let forgets = |attention: &AttentionWeights| {
        let kept = attention.window.map_or(usize::MAX, |window| window.saturating_add(PREFILL_CHUNK + KV_PAGE));
        attention.causal && kept < spec.context_trained
    };
    let mut windowed: Vec<bool> = attentions().map(|attention| attention.is_some_and(forgets)).collect();
    for attention in attentions().flatten().filter(|attention| !forgets(attention)) {
        if let KeysValues::OfLayer(source) = attention.kv {
            windowed[source] = false;
        }
    }
    windowed
}

/// Bytes of the KV cache of `context` tokens where all layers keep all positions, as on a GPU: a page of keys and
/// values in each layer for every [`KV_PAGE`] positions begun.
pub fn kv_bytes(spec: &ModelSpec, context: usize, dtype: KvDtype) -> u64 {
    KvSize::of_gpu(spec, dtype).bytes(context)
}

/// Bytes that one token adds to the KV cache.
pub fn kv_bytes_per_token(spec: &ModelSpec, dtype: KvDtype) -> u64 {
    spec.attentions().map(|attention| stored_bytes(attention, dtype)).fold(0, u64::saturating_add)
}

/// Heads of keys and of values; latents are both.
fn cached_heads(attention: &AttentionWeights) -> usize {
    if attention.kv.latent().is_some() { attention.kv_heads } else { attention.kv_heads.saturating_mul(2) }
}

/// Bytes that a layer stores for one token.
fn stored_bytes(attention: &AttentionWeights, dtype: KvDtype) -> u64 {
    let stores = attention.causal && attention.kv.stores();
    product(&[usize::from(stores), cached_heads(attention), dtype.head_bytes(attention.head_dim)])
}

/// Bytes of the KV cache that a token at the end of `context` reads: in layers with a window only those within it.
pub fn kv_bytes_read(spec: &ModelSpec, context: usize, dtype: KvDtype) -> u64 {
    let layers = spec.attentions().map(|attention| {
        let seen = attention.window.map_or(context, |window| window.min(context));
        product(&[cached_heads(attention), dtype.head_bytes(attention.head_dim), seen])
    });
    layers.fold(0, u64::saturating_add)
}

/// Positions between two saved states: positions since the last one are kept with it, so that a sequence is cut back to
/// each of them at once, and its bits do not depend on the lengths of steps.
pub const STATE_CHUNK: usize = 16;

/// F32 elements of the state of one layer and one sequence. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSize {
    /// Elements of a convolution's input for one position.
    pub channels: usize,
    /// Positions of that input: those before the chunk that its first position reads, and those of the chunk.
    pub conv_rows: usize,
    /// Heads with a state matrix; 0 where there are none.
    pub heads: usize,
    /// Elements of the state matrix of a head, `[key_dim, value_dim]`.
    pub matrix: usize,
    /// Elements of a head: its matrix, and for each position of the chunk its key, what it adds `[value_dim]` and its decay, or those
    /// of its elements `[key_dim]`. Where each element of a state has a decay: the matrix twice, at the chunk's begin and after the last position, and the number of positions
    /// between; for each its key, what it adds and its steps, `[value_dim]` each.
    pub head: usize,
}

impl StateSize {
    /// The state of a layer; empty where it has none, as attention, whose keys and values are cached.
    pub fn new(layer: &LayerWeights) -> StateSize {
        let state = layer.mixers().find_map(Mixer::state);
        let Some((conv, [heads, key_dim, value_dim], decays)) = state else { return StateSize::default() };
        let (channels, conv_rows) = (conv.channels, conv.kernel.saturating_sub(1).saturating_add(STATE_CHUNK));
        let matrix = key_dim.saturating_mul(value_dim);
        let (each, more) = match decays {
            Decays::OfHead => (value_dim.saturating_add(1), 0),
            Decays::OfKey => (value_dim.saturating_add(key_dim), 0),
            Decays::OfState => (2 * value_dim, matrix.saturating_add(1)),
        };
        let positions = STATE_CHUNK.saturating_mul(key_dim.saturating_add(each));
        let head = if heads == 0 { 0 } else { matrix.saturating_add(positions).saturating_add(more) };
        StateSize { channels, conv_rows, heads, matrix, head }
    }

    /// Elements of a saved state: what later positions read of those before it.
    pub fn border_elements(&self) -> usize {
        let rows = self.conv_rows.saturating_sub(STATE_CHUNK);
        self.channels.saturating_mul(rows).saturating_add(self.heads.saturating_mul(self.matrix))
    }

    /// Elements of the whole state.
    pub fn elements(&self) -> usize {
        self.channels.saturating_mul(self.conv_rows).saturating_add(self.heads.saturating_mul(self.head))
    }
}

/// Bytes that a sequence takes in addition to its KV cache, however long it is.
pub fn state_bytes(spec: &ModelSpec) -> u64 {
    let layers = spec.weights.layers.iter().map(|layer| StateSize::new(layer).elements());
    layers.fold(0, |bytes, elements| sum(&[bytes, (elements as u64).saturating_mul(size_of::<f32>() as u64)]))
}
