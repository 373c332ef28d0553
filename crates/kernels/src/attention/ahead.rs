//! The prefetches of the cache while a tile is computed.
//!
//! Queries go through a tile in passes, each a loop over keys and then one over values. If one loop prefetches everything, it
//! waits for the memory, and during the other loops the memory is idle. So each loop prefetches as much, evenly over its
//! steps, of what the loops after it will read: the keys and values of the next tile in the order of the loops, one loop
//! late, so that the first loop prefetches what is left of this tile.

use super::KvTile;
use crate::arch::generic::prefetch::prefetch;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The lines that a loop prefetches, as many in each step.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// The address of the first line.
    first: *const u8,
    /// The address for the last step, and for all others that would pass the end.
    last: *const u8,
    /// Lines in each step.
    lines: usize,
}

impl Ahead {
    /// Prefetches nothing.
    pub(crate) const NOTHING: Ahead = Ahead { first: std::ptr::null(), last: std::ptr::null(), lines: 0 };

    /// The prefetches of loop `index` of `2 * passes` in `steps` steps, where tile `then` comes after `tile`.
    pub(crate) fn new<E>(
        tile: KvTile<'_, E>,
        then: Option<KvTile<'_, E>>,
        passes: usize,
        index: usize,
        steps: usize,
    ) -> Ahead {
        let Some(then) = then else { return Ahead::NOTHING };
        let (tile, part) = if index == 0 { (tile, 2 * passes - 1) } else { (then, index - 1) };
        let (elements, part) = if part < passes { (tile.keys, part) } else { (tile.values, part - passes) };
        let start = |part: usize| part * elements.len() / passes;
        let bytes = size_of_val(&elements[start(part)..start(part + 1)]);
        let lines = bytes.div_ceil(LINE * steps);
        let first = elements[start(part)..].as_ptr().cast::<u8>();
        Ahead { first, last: first.wrapping_add(bytes.saturating_sub(LINE * lines)), lines }
    }

    /// The same prefetches after this many steps.
    pub(crate) fn after(self, steps: usize) -> Ahead {
        Ahead { first: self.first.wrapping_add(steps * self.lines * LINE), ..self }
    }

    /// Prefetches the lines of a step.
    #[inline(always)]
    pub(crate) fn ask(self, step: usize) {
        let at = self.first.wrapping_add(step * self.lines * LINE).min(self.last);
        prefetch(at, self.lines * LINE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TILE;

    #[test]
    fn every_line_of_the_next_tile_is_asked_for_before_it_is_read() {
        for head_dim in [8, 20, 64, 80, 128] {
            let len = TILE * head_dim;
            let cache: Vec<[f32; 2]> = vec![[0.0; 2]; 4 * len / 2];
            let cache = cache.as_flattened();
            let tile = |at: usize| KvTile { keys: &cache[at * len..][..len], values: &cache[(2 + at) * len..][..len] };
            let line = |at: *const f32| at.addr() / LINE;
            for passes in 1..6 {
                let mut asked = std::collections::BTreeSet::new();
                // Collects lines like a step does.
                let mut run = |tile, then, loops: std::ops::Range<usize>| {
                    for index in loops {
                        let steps = if index % 2 == 0 { head_dim } else { TILE };
                        let ahead = Ahead::new(tile, Some(then), passes, index, steps);
                        for step in 0..steps {
                            let at = ahead.first.wrapping_add(step * ahead.lines * LINE).min(ahead.last);
                            asked.extend((0..ahead.lines).map(|line| at.addr() / LINE + line));
                        }
                    }
                    asked.clone()
                };
                let first = run(tile(0), tile(1), 0..2 * passes);
                let lines = |elements: &[f32]| line(elements.as_ptr())..=line(&elements[elements.len() - 1]);
                let missing = |asked: &std::collections::BTreeSet<usize>, elements: &[f32]| {
                    lines(elements).filter(|line| !asked.contains(line)).count()
                };
                // The last line of a part may lie across its end.
                assert!(missing(&first, tile(1).keys) <= 1, "{head_dim} {passes}");
                let then = run(tile(1), tile(1), 0..1);
                assert!(missing(&then, tile(1).values) <= 1, "{head_dim} {passes}");
            }
        }
    }
}
