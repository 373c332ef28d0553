//! The scales of Q4_K by NEON.

use crate::arch::generic::wide::{Factors, all_16, bytes_by_f16s, for_vectors};

for_vectors! {
    /// `d * sc` and `dmin * m` of the eight blocks of a super-block of Q4_K or Q5_K.
    pub(crate) fn k_factors<const BYTES: usize>(block: &[u8; BYTES]) -> Factors {
        let (sixes, fours, twos) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x3030_3030);
        let word = |at: usize| block[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        // The low four sc and m by their low 6 bits; the high four have their high 2 bits above these, and their low 4
        // bits in the low and high nibbles of `both`.
        let (sc, m, both) = (word(4), word(8), word(12));
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let scales = join(sc & sixes, both & fours | sc >> 2 & twos);
        let mins = join(m & sixes, both >> 4 & fours | m >> 2 & twos);
        let [scales, mins] = bytes_by_f16s([scales, mins], word(0));
        Factors { scales, mins, halves: all_16(0) }
    }
}
