//! Q4_0: blocks of 32 nibbles with an f16 scale, `w = d * (q - 8)`; 18 bytes: d, then 16 bytes with element `i` in the
//! low and element `i + 16` in the high half of byte `i`.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * (d * scale of x)` to lane
//! `b` modulo 16 by a fused multiply-add, in order; the lanes are added by `sum_lanes`.

use super::blocks::{Format, Unpacked, block_kernels, nibbles};
use crate::element::f16_at;

pub(crate) const BYTES: usize = 18;

block_kernels!(Q4_0, "q4_0", Q40, crate::arch::x86_64::avx2::q4_0::matmul, crate::arch::x86_64::avx512::q4_0::matmul);

pub(crate) struct Q40;

impl Format for Q40 {
    const BITS: u32 = 4;
    const OFFSET: i32 = 8;
}

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::scaled(f16_at(stored, 0), nibbles(&stored[2..]).map(|q| q as i8 - 8))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod simd {
    use super::{BYTES, Q40};
    use crate::arch::generic::wide::{Bytes, for_vectors, nibbles, scales_of};
    use crate::dtypes::blocks::{eight_blocks, wide_products};

    wide_products!(Q40, 8 * BYTES);
    eight_blocks!(scales_of);

    for_vectors! {
        fn block_elements(block: &[u8; BYTES]) -> Bytes {
            nibbles(block)
        }
    }
}
