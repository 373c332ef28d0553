//! What the vector kernels of all x86 levels share: prefetches, and how a processor reads.

#![allow(unsafe_code)]

use std::arch::x86_64::{__cpuid, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
use std::sync::OnceLock;

/// How far ahead of the product with one token by AVX-512 weights are asked for. The processor's own prefetch starts anew
/// with each page of 4096 bytes.
pub(super) const AHEAD: usize = 1024;

/// As [`AHEAD`], of floats and int8 with a few tokens, which take longer to be computed than the memory takes to answer.
pub(super) const AHEAD_OF_SOME: usize = 2048;

/// As [`AHEAD`], for [`Reading::OneStream`]: into the first-level cache.
pub(super) const AHEAD_IN_ONE: usize = 2048;

/// How the product of a block dtype with one token by AVX-512 reads weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// One row behind the other.
    OneStream,
    /// Four rows in turns, each from a part of its own.
    FourStreams,
}

impl Reading {
    /// What was measured to be the faster: one stream on Zen 5, by a fifth; four on Zen 4, by up to a quarter.
    pub(super) fn of_this_processor() -> Reading {
        static READING: OnceLock<Reading> = OnceLock::new();
        #[cfg(test)]
        if let Some(reading) = FORCED.get() {
            return reading;
        }
        *READING.get_or_init(|| {
            // The family is the sum of both parts: AMD's extended one is 0 unless the first is 15.
            let of_amd = __cpuid(0).ebx == u32::from_le_bytes(*b"Auth");
            let version = __cpuid(1).eax;
            let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
            if of_amd && family >= 26 { Reading::OneStream } else { Reading::FourStreams }
        })
    }
}

#[cfg(test)]
thread_local! {
    static FORCED: std::cell::Cell<Option<Reading>> = const { std::cell::Cell::new(None) };
}

/// Calls `with` as on a processor that reads so.
#[cfg(test)]
pub(super) fn reading_as<T>(reading: Reading, with: impl FnOnce() -> T) -> T {
    FORCED.set(Some(reading));
    let result = with();
    FORCED.set(None);
    result
}

/// The rows below `rows`, `N` at a time, each from a part of its own: the memory serves a few long streams faster than
/// rows in turns, and most processors than one ([`Reading`]). Where the parts differ in length the last row comes again.
#[inline]
pub(super) fn streams<const N: usize>(rows: usize) -> impl Iterator<Item = [usize; N]> {
    let part = rows.div_ceil(N);
    (0..part).map(move |i| std::array::from_fn(|stream| (stream * part + i).min(rows - 1)))
}

/// Words 0 to 3 side by side. Put together so, and not stored one by one, they need not wait to be loaded together.
#[inline(always)]
pub(super) fn four_words(word: impl Fn(usize) -> [u8; 2]) -> i64 {
    let word = |i: usize| i64::from(u16::from_le_bytes(word(i)));
    let mut words = word(0) | word(1) << 16 | word(2) << 32 | word(3) << 48;
    // SAFETY: no instruction. The compiler cannot see through it, and would insert words into vectors one by one.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) words, options(pure, nomem, nostack, preserves_flags)) };
    words
}

/// Asks for `len` bytes to be brought into the second-level cache.
#[inline]
pub(super) fn prefetch(bytes: *const u8, len: usize) {
    for line in 0..len.div_ceil(64) {
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.wrapping_add(64 * line).cast()) };
    }
}

/// How far ahead of the product with one token by AVX2 weights are asked for.
pub(super) const NEAR: usize = 512;

/// The same for blocks of 4 bits: what is measured to be best grows as steps take fewer bytes.
pub(super) const NEAR_4_BITS: usize = 1024;

/// Asks for `len` bytes to be brought into the first-level cache.
#[inline]
pub(super) fn prefetch_near(bytes: *const u8, len: usize) {
    for line in 0..len.div_ceil(64) {
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(64 * line).cast()) };
    }
}
