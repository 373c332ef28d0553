//! How a processor reads weights, and how far ahead they are prefetched.

use model_factory_dtypes::generation;
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
use std::sync::atomic::{AtomicU8, Ordering};

/// How far ahead weights are prefetched in the product with one token by AVX-512. The processor's own prefetch starts again
/// with each page of 4096 bytes.
pub(crate) const AHEAD: usize = 1024;

/// Like [`AHEAD`], for floats and int8 with a few tokens, which take longer to compute than the memory takes to answer.
pub(crate) const AHEAD_OF_SOME: usize = 2048;

/// Like [`AHEAD`], for [`Reading::OneStream`]: into the first-level cache; a share of it for each of rows that are multiplied together.
pub(crate) const AHEAD_IN_ONE: usize = 8192;

/// How far ahead weights of 4 bits are prefetched by AVX2: the measured best distance grows as steps take fewer bytes.
pub(crate) const NEAR_4_BITS: usize = 1024;

/// Prefetches `len` bytes into the second-level cache.
#[inline]
pub(crate) fn prefetch(bytes: *const u8, len: usize) {
    for line in 0..len.div_ceil(64) {
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.wrapping_add(64 * line).cast()) };
    }
}

/// Prefetches `len` bytes into the first-level cache.
#[inline]
pub(crate) fn prefetch_near(bytes: *const u8, len: usize) {
    for line in 0..len.div_ceil(64) {
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(64 * line).cast()) };
    }
}

/// How the product of a block dtype with one token by AVX-512 reads weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// One row after the other.
    OneStream = 1,
    /// Four rows in turns, each in a part of its own.
    FourStreams,
}

/// The way of this process: 1 or 2, or 0 until it is looked for.
static READING: AtomicU8 = AtomicU8::new(0);

impl Reading {
    /// The way that was measured to be faster: one stream on Zen 5, by a fifth; four on Zen 4, by up to a quarter.
    pub(crate) fn of_this_processor() -> Reading {
        match READING.load(Ordering::Relaxed) {
            1 => Reading::OneStream,
            2 => Reading::FourStreams,
            _ => {
                let faster = if generation().one_stream { Reading::OneStream } else { Reading::FourStreams };
                let _ = READING.compare_exchange(0, faster as u8, Ordering::Relaxed, Ordering::Relaxed);
                faster
            }
        }
    }

    /// Reads in this way from now on, which changes no bit; how it was before.
    pub fn set(self) -> Reading {
        let before = Reading::of_this_processor();
        READING.store(self as u8, Ordering::Relaxed);
        before
    }
}
