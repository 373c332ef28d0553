//! What the AVX-512 kernels share: how far ahead and in what way a processor reads.

#![allow(unsafe_code)]

use std::arch::x86_64::__cpuid;
use std::sync::OnceLock;

/// How far ahead of the product with one token by AVX-512 weights are asked for. The processor's own prefetch starts anew
/// with each page of 4096 bytes.
pub(crate) const AHEAD: usize = 1024;

/// As [`AHEAD`], of floats and int8 with a few tokens, which take longer to be computed than the memory takes to answer.
pub(crate) const AHEAD_OF_SOME: usize = 2048;

/// As [`AHEAD`], for [`Reading::OneStream`]: into the first-level cache.
pub(crate) const AHEAD_IN_ONE: usize = 2048;

/// How the product of a block dtype with one token by AVX-512 reads weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// One row behind the other.
    OneStream,
    /// Four rows in turns, each from a part of its own.
    FourStreams,
}

impl Reading {
    /// What was measured to be the faster: one stream on Zen 5, by a fifth; four on Zen 4, by up to a quarter.
    pub(crate) fn of_this_processor() -> Reading {
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
pub(crate) fn reading_as<T>(reading: Reading, with: impl FnOnce() -> T) -> T {
    FORCED.set(Some(reading));
    let result = with();
    FORCED.set(None);
    result
}
