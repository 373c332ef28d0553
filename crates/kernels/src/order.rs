//! The order of blocks, and the groups of tokens, in products with many tokens.

use super::LANES;

/// Elements in a block of quantized activations.
pub(super) const BLOCK: usize = 32;

/// Tokens whose activations are contiguous, a whole number of tiles; the last group may have fewer.
pub(super) const GROUP: usize = if cfg!(target_arch = "aarch64") { 12 } else { 8 };

/// At most so many tokens of block dtypes are multiplied one after the other: unpacking a panel would take longer.
pub(super) const TOKENS_WITHOUT_PANELS: usize = 2;

/// The order of blocks in panels: lane by lane (a block's number modulo 16), with the lanes ordered so that each pair that
/// `sum_lanes` adds is at hand when it is needed: 0, 8, 4, 12, 2, 10, ...
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) blocks: usize,
    /// The place of the first block of each lane.
    start: [usize; LANES],
}

impl Order {
    pub(super) fn new(blocks: usize) -> Order {
        let (mut start, mut place) = ([0; LANES], 0);
        for i in 0..LANES {
            start[Order::lane(i)] = place;
            place += Order { blocks, start }.count(i);
        }
        Order { blocks, start }
    }

    /// The lane that is number `i` in this order.
    fn lane(i: usize) -> usize {
        (i as u8).reverse_bits() as usize >> 4
    }

    /// The number of blocks of lane `i`.
    pub(super) fn count(&self, i: usize) -> usize {
        (self.blocks + LANES - 1 - Order::lane(i)) / LANES
    }

    /// The place of block `b`; `None` past the end.
    pub(super) fn place(&self, b: usize) -> Option<usize> {
        (b < self.blocks).then(|| self.start[b % LANES] + b / LANES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_blocks_lane_by_lane() {
        for blocks in [1, 2, 8, 15, 16, 17, 64, 100] {
            let order = Order::new(blocks);
            let mut expected = 0;
            for i in 0..LANES {
                let lane = (Order::lane(i)..blocks).step_by(LANES);
                assert_eq!(lane.len(), order.count(i));
                for b in lane {
                    assert_eq!(order.place(b), Some(expected));
                    expected += 1;
                }
            }
            assert_eq!((expected, order.place(blocks)), (blocks, None));
        }
    }
}
