//! What the vector kernels of all processors share: prefetches, and the order in which rows are read.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// The rows below `rows`, `N` at a time, each from a part of its own: the memory serves a few long streams faster than
/// rows in turns, and most processors than one (`crate::arch::x86_64::prefetch::Reading`). Where the parts differ in length the last row comes again.
#[inline]
pub(crate) fn streams<const N: usize>(rows: usize) -> impl Iterator<Item = [usize; N]> {
    let part = rows.div_ceil(N);
    (0..part).map(move |i| std::array::from_fn(|stream| (stream * part + i).min(rows - 1)))
}

/// Words 0 to 3 side by side. Put together so, and not stored one by one, they need not wait to be loaded together.
#[inline(always)]
pub(crate) fn four_words(word: impl Fn(usize) -> [u8; 2]) -> i64 {
    let word = |i: usize| i64::from(u16::from_le_bytes(word(i)));
    let mut words = word(0) | word(1) << 16 | word(2) << 32 | word(3) << 48;
    // SAFETY: no instruction. The compiler cannot see through it, and would insert words into vectors one by one.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) words, options(pure, nomem, nostack, preserves_flags)) };
    words
}

/// How far ahead of the product with one token by AVX2, or of I8 and floats by NEON, weights are asked for.
pub(crate) const NEAR: usize = 512;

/// The same for blocks of 4 bits: what is measured to be best grows as steps take fewer bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) const NEAR_4_BITS: usize = 1024;

/// Asks for `len` bytes to be brought into the second-level cache.
#[inline]
pub(crate) fn prefetch(bytes: *const u8, len: usize) {
    for line in 0..len.div_ceil(64) {
        let at = bytes.wrapping_add(64 * line);
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(at.cast())
        };
        // SAFETY: every aarch64 processor has the instruction, and it accepts any address.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(readonly, nostack, preserves_flags))
        };
    }
}

/// Asks for `len` bytes to be brought into the first-level cache.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch_near(bytes: *const u8, len: usize) {
    for line in 0..len.div_ceil(64) {
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(64 * line).cast()) };
    }
}

/// Asks for `len` bytes, at most 512, to be brought into the first-level cache.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn prefetch_near(bytes: *const u8, len: usize) {
    // The instruction adds a number that it holds itself: one address serves all lines.
    macro_rules! lines {
        ($($at:literal)*) => {
            $(if len > $at {
                // SAFETY: every aarch64 processor has the instruction, and it accepts any address.
                unsafe {
                    std::arch::asm!(
                        concat!("prfm pldl1keep, [{at}, #", $at, "]"),
                        at = in(reg) bytes, options(readonly, nostack, preserves_flags)
                    )
                };
            })*
        };
    }
    lines!(0 64 128 192 256 320 384 448);
}
