//! The order of things that a GPU runs at once.

use super::Schedule;
use super::registers::{LANES, lanes};

#[derive(Debug)]
pub(super) struct Order {
    schedule: Schedule,
    state: u64,
}

impl Order {
    pub(super) fn new(schedule: Schedule) -> Order {
        let seed = if let Schedule::Random(seed) = schedule { seed } else { 0 };
        Order { schedule, state: seed }
    }

    /// The numbers below `count`.
    pub(super) fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        match self.schedule {
            Schedule::Forward => {}
            Schedule::Reverse => all.reverse(),
            Schedule::Random(_) => {
                for index in (1..count).rev() {
                    all.swap(index, self.below(index + 1));
                }
            }
        }
        all
    }

    /// A lane of the group that runs next: the one with the earliest next instruction, the latest, or any.
    pub(super) fn group(&mut self, ready: u32, next: &[usize; LANES]) -> usize {
        let found = match self.schedule {
            Schedule::Forward => lanes(ready).min_by_key(|lane| next[*lane]),
            Schedule::Reverse => lanes(ready).max_by_key(|lane| next[*lane]),
            Schedule::Random(_) => {
                let chosen = self.below(ready.count_ones() as usize);
                lanes(ready).nth(chosen)
            }
        };
        found.unwrap_or(0)
    }

    /// A random number below `count`, by SplitMix64.
    fn below(&mut self, count: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % count.max(1) as u64) as usize
    }
}
