//! Q8_0: blocks of 32 signed bytes with an f16 scale, `w = d * q`; 34 bytes: d, q.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * (d * scale of x)` to lane
//! `b` modulo 16 by a fused multiply-add, in order; the lanes are added by `sum_lanes`.

use super::blocks::{Format, Unpacked, block_kernels};
use crate::element::f16_at;

pub(crate) const BYTES: usize = 34;

block_kernels!(Q8_0, "q8_0", Q80, simd::avx2, crate::arch::x86_64::avx512::q8_0::matmul);

pub(crate) struct Q80;

impl Format for Q80 {
    const BITS: u32 = 8;
}

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::scaled(f16_at(stored, 0), std::array::from_fn(|i| stored[2 + i] as i8))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd {
    use super::{BYTES, Q80};
    use crate::arch::generic::wide::{Bytes, all, for_vectors, load, scales_of};
    use crate::dtypes::blocks::{eight_blocks, wide_products};

    wide_products!(Q80, 8 * BYTES);
    eight_blocks!(scales_of);

    for_vectors! {
        fn block_elements(block: &[u8; BYTES]) -> Bytes {
            block.last_chunk().map_or(all(0), |bytes| load(bytes))
        }
    }
}
