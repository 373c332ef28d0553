//! Code that the vector kernels of all processors share: prefetches, and the order in which rows are read.

#[cfg(target_arch = "aarch64")]
pub(crate) use crate::arch::aarch64::prefetch::{prefetch, prefetch_near};
#[cfg(target_arch = "x86_64")]
pub(crate) use crate::arch::x86_64::prefetch::{prefetch, prefetch_near};

/// Does nothing: there are no vector kernels here that prefetch.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn prefetch(_: *const u8, _: usize) {}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use prefetch as prefetch_near;

/// The rows below `rows`, `N` at a time, each from a part of its own: a few long streams are faster from memory than
/// alternating rows and, on most processors, than one stream (`Reading` of x86-64). If parts differ in length the last row repeats.
#[inline]
pub(crate) fn streams<const N: usize>(rows: usize) -> impl Iterator<Item = [usize; N]> {
    let part = rows.div_ceil(N);
    (0..part).map(move |i| std::array::from_fn(|stream| (stream * part + i).min(rows - 1)))
}

/// Words 0 to 3 side by side. Combined so, and not stored one by one, they need not wait to be loaded together.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) fn four_words(word: impl Fn(usize) -> [u8; 2]) -> i64 {
    let word = |i: usize| i64::from(u16::from_le_bytes(word(i)));
    let mut words = word(0) | word(1) << 16 | word(2) << 32 | word(3) << 48;
    // SAFETY: no instruction. The compiler cannot see through it, and would insert words into vectors one by one.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) words, options(pure, nomem, nostack, preserves_flags)) };
    words
}

/// How far ahead weights are prefetched in the product with one token by AVX2, or of I8 and floats by NEON.
pub(crate) const NEAR: usize = 512;
