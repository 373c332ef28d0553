//! What one mutation draws from: the same seed, the same mutation.

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u32) -> Random {
        Random(seed.into())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0 .. end`; `end` is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Yes, once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn yes(&mut self) -> bool {
        self.once_in(2)
    }

    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    /// Changes `bytes` in one to four places, to at most `longest` of them.
    pub fn change(&mut self, bytes: &mut Vec<u8>, longest: usize) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let count = 1 + self.below(if self.yes() { 4 } else { 64 });
            let end = bytes.len().min(at + count);
            let byte = self.next() as u8;
            match self.below(6) {
                0 => bytes[at..end].iter_mut().take(1).for_each(|changed| *changed ^= 1 << (byte % 8)),
                1 => bytes[at..end].iter_mut().take(1).for_each(|changed| *changed = byte),
                // Lengths and counts of binary files.
                2 => {
                    let number = *self.pick(&[0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX]);
                    let width = *self.pick(&[1, 2, 4, 8]);
                    bytes[at..].iter_mut().zip(&number.to_le_bytes()[..width]).for_each(|(changed, byte)| *changed = *byte);
                }
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let part = bytes[at..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    drop(bytes.splice(to..to, part));
                }
                _ if self.once_in(8) => bytes.truncate(at),
                _ => drop(bytes.splice(at..at, std::iter::repeat_n(byte, count))),
            }
        }
        bytes.truncate(longest);
    }
}
