//! Attention on the GPU: kernels for heads of one size and one dtype of the cache, and how they are launched.

use super::arguments::Attend;
use super::gpu::{Function, LaunchShape, Launcher, PLAIN_SHARED};
use super::modules::Module;
use super::product::Multiplier;
use crate::error::CudaError;

/// The queries that a block of attention takes: heads that share keys, of rows that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueryTile {
    pub(super) heads: usize,
    pub(super) rows: usize,
    /// Bytes of shared memory for them, and for 32 keys or values beside them.
    pub(super) shared: u32,
}

impl QueryTile {
    /// For heads of `dim` elements, `group` of which share keys: as many as a block takes, or as its shared memory holds.
    pub(super) fn new(group: usize, dim: usize, capability: (u32, u32)) -> QueryTile {
        const MOST: usize = 16; // `MOST_QUERIES` of `attention.cu`
        let quads = dim.div_ceil(4); // `QUADS` and `ROW_STRIDE` of `attention.cu`, in floats
        let (query, keys) = (4 * quads, 32 * 4 * (quads | 1));
        let held = if capability < (7, 0) { (PLAIN_SHARED as usize / 4 - keys) / query } else { MOST };
        let most = held.min(MOST);
        let (heads, rows) = (group.min(most), (most / group).max(1));
        QueryTile { heads, rows, shared: 4 * (keys + heads * rows * query) as u32 }
    }
}

/// The kernels of attention.
#[derive(Debug)]
pub(super) struct Attention {
    attend: Function,
    combine: Function,
    tile: QueryTile,
}

impl Attention {
    /// Compiles them for heads of `dim` elements, `group` of which share keys, and a cache in F16 if `halves` and in F32
    /// otherwise.
    ///
    /// # Errors
    /// Those of compiling and loading.
    pub(super) fn load(gpu: &dyn Launcher, group: usize, dim: usize, halves: bool) -> Result<Attention, CudaError> {
        let function = |name| gpu.function(Module::Attention { dim, halves }, name);
        let tile = QueryTile::new(group, dim, gpu.capability());
        Ok(Attention { attend: function("attend")?, combine: function("combine")?, tile })
    }

    /// The queries that a block takes.
    pub(super) fn tile(&self) -> QueryTile {
        self.tile
    }

    /// Attends for `rows` rows in `tiles` tiles of queries, and puts the parts of the positions together.
    pub(super) fn launch(
        &self,
        multiplier: &Multiplier,
        rows: usize,
        tiles: usize,
        given: Attend,
    ) -> Result<(), CudaError> {
        let given = Attend { heads_a_block: self.tile.heads as i32, ..given };
        let (heads, kv_heads, parts) = (given.heads as usize, given.kv_heads as usize, given.parts as usize);
        let blocks = kv_heads * (heads / kv_heads).div_ceil(self.tile.heads);
        let shape = LaunchShape {
            shared: self.tile.shared,
            ..LaunchShape::new([tiles, blocks, parts], 128) // `ATTEND_THREADS` of `attention.cu`
        };
        multiplier.launch(self.attend, shape, &given)?;
        if parts > 1 {
            multiplier.launch(self.combine, LaunchShape::new([rows, heads, 1], 128), &given)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::gpu::PLAIN_SHARED;
    use super::QueryTile;

    #[test]
    fn queries_fit_the_shared_memory_of_every_gpu() {
        for dim in [64, 80, 96, 128, 256] {
            for group in [1, 3, 4, 7, 8, 12, 16, 32, 71] {
                for capability in [(5, 0), (6, 1), (7, 0), (9, 0)] {
                    let QueryTile { heads, rows, shared } = QueryTile::new(group, dim, capability);
                    assert!(heads > 0 && rows > 0 && heads * rows <= 16, "{group} heads of {dim}: {heads} by {rows}");
                    // The least that any GPU of 7.0 or later gives a block that asks.
                    let limit = if capability < (7, 0) { PLAIN_SHARED } else { 64 << 10 };
                    assert!(shared <= limit, "{group} heads of {dim} on {capability:?}: {shared} bytes");
                }
            }
        }
        assert_eq!(QueryTile::new(4, 128, (6, 1)), QueryTile::new(4, 128, (9, 0)));
        assert_eq!(QueryTile::new(16, 256, (6, 1)).heads, 15);
    }
}
