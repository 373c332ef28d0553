//! ModelSpec -> what layers that are no attention carry from position to position: the plan counts what the decoder
//! allocates, by the same functions.

use super::sum;
use crate::spec::{Mixer, ModelSpec};

/// Positions between two whole states: those since the last one are kept with it, so that a sequence is cut back to each of
/// them at once, and its bits depend on no step's length.
pub const STATE_CHUNK: usize = 16;

/// F32 elements of the state of one layer and one sequence. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSize {
    /// Elements a position of what a convolution reads.
    pub channels: usize,
    /// Positions of it: those before the chunk that its first position reads, and those of the chunk.
    pub conv_rows: usize,
    /// Heads with a matrix; 0 without.
    pub heads: usize,
    /// Elements of the matrix of each, `[key_dim, value_dim]`.
    pub matrix: usize,
    /// Elements of each: its matrix, and of each position of the chunk its key, what it adds `[value_dim]` and its decay.
    pub head: usize,
}

impl StateSize {
    /// That of a layer; nothing for attention, whose keys and values are cached.
    pub fn new(mixer: &Mixer) -> StateSize {
        let Some((conv, [heads, key_dim, value_dim])) = mixer.state() else { return StateSize::default() };
        let (channels, conv_rows) = (conv.channels, conv.kernel.saturating_sub(1).saturating_add(STATE_CHUNK));
        let matrix = key_dim.saturating_mul(value_dim);
        let positions = STATE_CHUNK.saturating_mul(key_dim.saturating_add(value_dim).saturating_add(1));
        let head = if heads == 0 { 0 } else { matrix.saturating_add(positions) };
        StateSize { channels, conv_rows, heads, matrix, head }
    }

    /// Elements of what a border leaves: what later positions read of those before it.
    pub fn border_elements(&self) -> usize {
        let rows = self.conv_rows.saturating_sub(STATE_CHUNK);
        self.channels.saturating_mul(rows).saturating_add(self.heads.saturating_mul(self.matrix))
    }

    /// Elements of all of it.
    pub fn elements(&self) -> usize {
        self.channels.saturating_mul(self.conv_rows).saturating_add(self.heads.saturating_mul(self.head))
    }
}

/// Bytes that a sequence has in addition to its KV cache, however long it is.
pub fn state_bytes(spec: &ModelSpec) -> u64 {
    let layers = spec.weights.layers.iter().map(|layer| StateSize::new(&layer.mixer.layer).elements());
    layers.fold(0, |bytes, elements| sum(&[bytes, (elements as u64).saturating_mul(size_of::<f32>() as u64)]))
}
