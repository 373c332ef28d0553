//! Attention on the GPU: kernels for heads of one size and one dtype of the cache, and how they are launched.

use super::arguments::Attend;
use super::buffer::{Function, LaunchShape, PLAIN_SHARED};
use super::driver::Gpu;
use super::modules::Module;
use super::product::{FEW_TOKENS, Multiplier};
use crate::error::Result;

/// The queries that a block of attention takes: heads that share keys, of rows that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueryTile {
    pub(super) heads: usize,
    pub(super) rows: usize,
}

impl QueryTile {
    /// The queries of `group` heads that share keys: as many as `most` allows.
    fn new(group: usize, most: usize) -> QueryTile {
        QueryTile { heads: group.min(most), rows: (most / group).max(1) }
    }
}

/// `ATTEND_THREADS` of `attention.cu`.
const THREADS: usize = 128;

/// Queries of a block of the kernel for many rows: `MANY_QUERIES` of `attention_many.cu`.
const MANY_QUERIES: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct AttendKernel {
    function: Function,
    pub(super) tile: QueryTile,
    /// Bytes of shared memory that the kernel does not declare itself.
    shared: u32,
}

/// Tiles of queries, all of the same kernel, on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueryTiles {
    /// The address of the `Queries` of each.
    pub(super) address: u64,
    pub(super) count: usize,
    /// The number of parts that the positions are divided into.
    pub(super) parts: usize,
}

#[derive(Debug)]
pub(super) struct Attention {
    few: AttendKernel,
    /// The kernel that uses tensor cores, where the GPU has them and heads fill their fragments.
    many: Option<AttendKernel>,
}

impl Attention {
    /// Compiles the kernels for heads of `dim` elements, `group` of which share keys, and a cache in F16 if `halves`,
    /// else F32.
    pub(super) fn load(gpu: &Gpu, group: usize, dim: usize, halves: bool) -> Result<Attention> {
        let function = |name| gpu.function(Module::Attention { dim, halves }, name);
        let (tile, shared) = few_queries(group, dim, gpu.capability);
        let few = AttendKernel { function: function("attend")?, tile, shared };
        let many = (gpu.capability >= (7, 5) && dim.is_multiple_of(16) && dim <= 128).then(|| {
            let tile = QueryTile::new(group, MANY_QUERIES);
            Ok(AttendKernel { function: function("attend_many")?, tile, shared: 0 })
        });
        Ok(Attention { few, many: many.transpose()? })
    }

    /// Whether sequences of so many rows use the kernel for many, and the queries that a block of theirs takes.
    pub(super) fn tile(&self, rows: usize) -> (bool, QueryTile) {
        match self.many {
            Some(many) if rows > FEW_TOKENS => (true, many.tile),
            _ => (false, self.few.tile),
        }
    }

    pub(super) fn launch(&self, multiplier: &Multiplier, [few, many]: [QueryTiles; 2], given: Attend) -> Result<()> {
        for (kernel, tiles) in [(Some(self.few), few), (self.many, many)] {
            let Some(AttendKernel { function, tile, shared }) = kernel.filter(|_| tiles.count > 0) else { continue };
            let QueryTiles { address, count, parts } = tiles;
            let given = Attend { queries: address, parts: parts as i32, heads_a_block: tile.heads as i32, ..given };
            let (heads, kv_heads) = (given.heads as usize, given.kv_heads as usize);
            let blocks = kv_heads * (heads / kv_heads).div_ceil(tile.heads);
            let shape = LaunchShape { shared, ..LaunchShape::new([count, blocks, parts], THREADS) };
            multiplier.gpu.start(function, shape, &given)?;
        }
        Ok(())
    }
}

/// The queries of a block of the kernel for few rows: as many as it takes, or as its shared memory holds; and the bytes
/// of shared memory for them and for 32 keys or values.
fn few_queries(group: usize, dim: usize, capability: (u32, u32)) -> (QueryTile, u32) {
    const MOST: usize = 16; // `MOST_QUERIES` of `attention.cu`
    let quads = dim.div_ceil(4); // `QUADS` and `ROW_STRIDE` of `attention.cu`, in floats
    let (query, keys) = (4 * quads, 32 * 4 * (quads | 1));
    // The kernel declares 4 bytes itself.
    let held = if capability < (7, 0) { (PLAIN_SHARED as usize / 4 - 1 - keys) / query } else { MOST };
    let tile = QueryTile::new(group, held.min(MOST));
    (tile, 4 * (keys + tile.heads * tile.rows * query) as u32)
}

#[cfg(test)]
mod tests {
    use super::super::buffer::PLAIN_SHARED;
    use super::{QueryTile, few_queries};

    #[test]
    fn queries_fit_the_shared_memory_of_every_gpu() {
        for dim in [64, 80, 96, 128, 256] {
            for group in [1, 3, 4, 7, 8, 12, 16, 32, 71] {
                for capability in [(5, 0), (6, 1), (7, 0), (9, 0)] {
                    let (QueryTile { heads, rows }, shared) = few_queries(group, dim, capability);
                    assert!(heads > 0 && rows > 0 && heads * rows <= 16, "{group} heads of {dim}: {heads} by {rows}");
                    // The least that any GPU of 7.0 or later gives to a block that asks for it.
                    let limit = if capability < (7, 0) { PLAIN_SHARED } else { 64 << 10 } - 4;
                    assert!(shared <= limit, "{group} heads of {dim} on {capability:?}: {shared} bytes");
                }
            }
        }
        assert_eq!(few_queries(4, 128, (6, 1)), few_queries(4, 128, (9, 0)));
        assert_eq!(few_queries(16, 256, (6, 1)).0.heads, 15);
    }
}
