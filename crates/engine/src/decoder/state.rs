//! The state that layers other than attention carry from position to position of one sequence, in main memory.

use crate::cache_budget::CacheShare;
use crate::memory;
use model_factory_spec::plan::{STATE_CHUNK, StateSize};
use std::sync::Arc;

/// The state of a sequence in every layer: as of the last border, a multiple of [`STATE_CHUNK`] positions, and what
/// every position since then adds to it. So it is the state at each of these positions at once.
#[derive(Debug)]
pub struct State {
    sizes: Arc<[StateSize]>,
    /// The state of each layer: what convolutions read, `[conv_rows, channels]`, then the heads.
    layers: Vec<Vec<f32>>,
    border: usize,
    /// Whether a step that moves the border has begun and not ended: layers have different borders then.
    moves: bool,
    _share: CacheShare,
}

impl State {
    /// The state of an empty sequence, which took `share`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(sizes: &Arc<[StateSize]>, share: CacheShare) -> memory::Result<State> {
        let layers = sizes.iter().map(|size| memory::zeros(size.elements(), "the state of a sequence"));
        let layers = layers.collect::<memory::Result<_>>()?;
        Ok(State { sizes: Arc::clone(sizes), layers, border: 0, moves: false, _share: share })
    }

    /// Makes it the state of an empty sequence.
    pub fn reset(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.fill(0.0));
        (self.border, self.moves) = (0, false);
    }

    /// Makes it equal `other`, of the same model.
    pub fn copy_from(&mut self, other: &State) {
        self.layers.iter_mut().zip(&other.layers).for_each(|(to, from)| to.copy_from_slice(from));
        (self.border, self.moves) = (other.border, other.moves);
    }

    /// Whether it is also the state of a sequence of `len` positions, fewer than were computed.
    pub fn reaches_back_to(&self, len: usize) -> bool {
        len >= self.border && !self.moves
    }

    /// A step begins that ends with `len` positions.
    pub fn begin(&mut self, len: usize) {
        self.moves = border(len) != self.border;
    }

    /// The step has ended, in every layer.
    pub fn end(&mut self, len: usize) {
        (self.border, self.moves) = (border(len), false);
    }

    /// The rows that convolutions of `layer` read, `[conv_rows, channels]`, and heads, each of `StateSize::head` elements.
    pub fn layer(&mut self, layer: usize) -> (&mut [f32], &mut [f32]) {
        let size = self.sizes[layer];
        self.layers[layer].split_at_mut(size.channels * size.conv_rows)
    }

    /// Makes it equal `checkpoint`.
    pub fn restore(&mut self, checkpoint: &Checkpoint) {
        for (index, from) in checkpoint.layers.iter().enumerate() {
            let StateSize { channels, conv_rows, matrix, head, .. } = self.sizes[index];
            let (rows, matrices) = from.split_at(channels * conv_rows.saturating_sub(STATE_CHUNK));
            let (to, heads) = self.layer(index);
            to[..rows.len()].copy_from_slice(rows);
            if matrix > 0 {
                let heads = heads.chunks_exact_mut(head).zip(matrices.chunks_exact(matrix));
                heads.for_each(|(to, from)| to[..matrix].copy_from_slice(from));
            }
        }
        self.end(checkpoint.position);
    }

    /// All of its bytes, layer by layer.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.layers.iter().map(|layer| bytemuck::cast_slice(layer))
    }

    /// All of its bytes, to be read from a file: the state of `len` positions.
    pub fn bytes_mut(&mut self, len: usize) -> impl Iterator<Item = &mut [u8]> {
        self.end(len);
        self.layers.iter_mut().map(|layer| bytemuck::cast_slice_mut(layer))
    }
}

/// The state of a sequence at a border, for others that begin alike and for itself when it is truncated.
#[derive(Debug)]
pub struct Checkpoint {
    /// The positions before it.
    pub(crate) position: usize,
    sizes: Arc<[StateSize]>,
    /// The state of each layer: the rows that convolutions of the next position read, then the matrices.
    layers: Vec<Vec<f32>>,
    _share: CacheShare,
}

impl Checkpoint {
    /// A checkpoint that took `share`, to be filled by the layers when they come to `position`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(sizes: &Arc<[StateSize]>, position: usize, share: CacheShare) -> memory::Result<Checkpoint> {
        let layers = sizes.iter().map(|size| memory::zeros(size.border_elements(), "a state of a prefix"));
        let layers = layers.collect::<memory::Result<_>>()?;
        Ok(Checkpoint { position, sizes: Arc::clone(sizes), layers, _share: share })
    }

    /// All of its bytes, layer by layer.
    pub(super) fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.layers.iter().map(|layer| bytemuck::cast_slice(layer))
    }

    /// All of its bytes, to be read from a store.
    pub(super) fn bytes_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.layers.iter_mut().map(|layer| bytemuck::cast_slice_mut(layer))
    }

    /// The rows of `layer` that convolutions of the next position read, and its matrices, to be filled.
    pub fn layer(&mut self, layer: usize) -> (&mut [f32], &mut [f32]) {
        let StateSize { channels, conv_rows, .. } = self.sizes[layer];
        self.layers[layer].split_at_mut(channels * conv_rows.saturating_sub(STATE_CHUNK))
    }
}

/// The last border up to `len` positions.
pub(crate) fn border(len: usize) -> usize {
    len - len % STATE_CHUNK
}
