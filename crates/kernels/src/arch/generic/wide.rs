//! Vectors of 32 bytes and of 8 floats, one register of AVX2 or two of NEON: what block dtypes are unpacked with, written
//! once for both.
//!
//! Functions here and those that use them are compiled for AVX2 with F16C, or for NEON, which every aarch64 has.

#[cfg(target_arch = "aarch64")]
pub(crate) use crate::arch::aarch64::neon::{q4_k::k_factors, wide::*};
#[cfg(target_arch = "x86_64")]
pub(crate) use crate::arch::x86_64::avx2::{q4_k::k_factors, wide::*};
use crate::dtypes::blocks::Format;

/// Functions for vectors, compiled for what they need. Every aarch64 has NEON, so that there they can always be inlined into their
/// callers, which their own feature forbids elsewhere.
macro_rules! for_vectors {
    ($($(#[$attribute:meta])* $visibility:vis fn $name:ident $(<$(const $number:ident: $type:ty),*>)? (
        $($arg:ident: $of:ty),* $(,)?
    ) -> $result:ty $body:block)*) => {
        $(
            $(#[$attribute])*
            #[cfg(target_arch = "x86_64")]
            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            $visibility fn $name $(<$(const $number: $type),*>)? ($($arg: $of),*) -> $result $body

            $(#[$attribute])*
            #[cfg(target_arch = "aarch64")]
            #[inline(always)]
            #[allow(unused_unsafe, clippy::redundant_closure)] // a closure is needed where the function has features
            $visibility fn $name $(<$(const $number: $type),*>)? ($($arg: $of),*) -> $result {
                // SAFETY: every aarch64 has NEON.
                unsafe { $body }
            }
        )*
    };
}
pub(crate) use for_vectors;

/// Functions of one or a few instructions for each register.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $operation:expr;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,f16c"))]
            #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
            pub(crate) fn $name($($arg: $type),*) -> $result {
                $operation
            }
        )*
    };
}
pub(crate) use operations;

/// How eight blocks of a dtype, whose bytes are `EIGHT`, are unpacked. Each caller has a copy of the functions, by its
/// `PLACE`: compilers inline a function that several places call into none of them.
pub(crate) trait EightBlocks<const EIGHT: usize>: Format {
    /// The elements of eight blocks.
    ///
    /// # Safety
    /// The processor has what functions for vectors are compiled for.
    unsafe fn elements<const PLACE: u8>(&self, eight: &[u8; EIGHT]) -> [Bytes; 8];

    /// The factors of eight blocks, which are number `place[1]` of row `place[0]`.
    ///
    /// # Safety
    /// The conditions of [`EightBlocks::elements`].
    unsafe fn factors<const PLACE: u8>(&self, eight: &[u8; EIGHT], place: [usize; 2]) -> Factors;
}

/// The place where [`EightBlocks`] are unpacked: for one token, or for panels, whose numbers are even.
pub(crate) const ONE_TOKEN: u8 = 1;
pub(crate) const PANEL: u8 = 2;
#[cfg(target_arch = "x86_64")]
pub(crate) const STEP: u8 = 3;
#[cfg(target_arch = "x86_64")]
pub(crate) const PANEL_OF_16: u8 = 4;

/// The factors of the sums of eight blocks.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    /// The scale of each block.
    pub(crate) scales: Floats,
    /// The minimum of each block, where the dtype has them.
    pub(crate) mins: Floats,
    /// The scale of each half block, where the dtype has them; a nibble, with the half's minimum in the high one, where it has both.
    pub(crate) halves: Bytes16,
}

impl Factors {
    /// The factors of a dtype that has only scales.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,f16c"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
    pub(crate) fn scaled(scales: Floats) -> Factors {
        Factors { scales, mins: all_floats(0.0), halves: all_16(0) }
    }
}

for_vectors! {
    /// The factors of eight blocks that begin with their scale.
    pub(crate) fn scales_of<const BYTES: usize>(blocks: &[[u8; BYTES]]) -> Factors {
        Factors::scaled(halves_at(blocks, 0))
    }

    /// The factors of eight blocks that begin with their scale and the opposite of their minimum.
    pub(crate) fn scales_and_bases_of<const BYTES: usize>(blocks: &[[u8; BYTES]]) -> Factors {
        Factors { mins: negated(halves_at(blocks, 2)), ..scales_of(blocks) }
    }

    /// The nibbles of 16 bytes at the end of a block: element `i` in the low and element `i + 16` in the high half of
    /// byte `i`.
    pub(crate) fn nibbles<const BYTES: usize>(block: &[u8; BYTES]) -> Bytes {
        let bytes = block.last_chunk().map_or(all_16(0), |bytes| load_16(bytes));
        both_nibbles(bytes)
    }

    /// The nibbles of a block of bytes that have two elements, the first in the low half: in order for panels, those at even places
    /// first for one token.
    pub(crate) fn pairs_of_nibbles<const PLACE: u8>(block: &[u8; 16]) -> Bytes {
        if PLACE.is_multiple_of(2) { nibbles_in_turns(load_16(block)) } else { both_nibbles(load_16(block)) }
    }

    /// The nibbles of a block, with `bits` above them.
    pub(crate) fn five_bits<const BYTES: usize>(block: &[u8; BYTES], bits: u32) -> Bytes {
        or(nibbles(block), and(mask_of_bits(bits), all(16)))
    }

    /// The pairs of bits of eight blocks.
    pub(crate) fn two_bits(bytes: &[u8; 64]) -> [Bytes; 8] {
        let mut elements = [all(0); 8];
        for (four, bytes) in elements.as_chunks_mut::<4>().0.iter_mut().zip(bytes.as_chunks::<32>().0) {
            let bytes = load(bytes);
            let shifted = [bytes, right::<2>(bytes), right::<4>(bytes), right::<6>(bytes)];
            *four = shifted.map(|bits| and(bits, all(3)));
        }
        elements
    }

    /// The nibbles of eight blocks: 32 bytes have one block in their low and the next in their high halves.
    pub(crate) fn nibbles_of_pairs(bytes: &[u8; 128]) -> [Bytes; 8] {
        let mut elements = [all(0); 8];
        let pairs = bytes.as_chunks::<32>().0;
        for i in 0..4 {
            let bytes = load(&pairs[i]);
            (elements[2 * i], elements[2 * i + 1]) = (and(bytes, all(15)), and(right::<4>(bytes), all(15)));
        }
        elements
    }

    /// The scales and the minima of half blocks, where there are any.
    pub(crate) fn scales_and_mins_of_halves(mins: bool, halves: Bytes16) -> [Bytes16; 2] {
        if mins { nibbles_of_16(halves) } else { [halves, all_16(0)] }
    }
}
