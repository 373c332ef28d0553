//! Attention by NEON. The same bits as by AVX2 and AVX-512.

use super::simd::Neon;
use crate::arch::generic::simd::operations;
use crate::attention::passes::{self, Attend};
use crate::attention::{Attention, KvElement, Query};
use std::arch::aarch64::*;

#[target_feature(enable = "neon")]
pub(crate) fn attend<E: KvElement>(queries: &mut [Query<'_>], attention: &Attention<'_, E>) {
    // SAFETY: the function is compiled for the instruction sets.
    passes::attend(unsafe { Neon::new() }, queries, attention);
}

/// The bits of both registers, from numbers of both.
macro_rules! both {
    ($cast:ident, $low:expr, $high:expr) => {
        uint8x16x2_t($cast($low), $cast($high))
    };
}

/// `sums` + the products of the low and of the high words of each lane.
#[inline]
#[target_feature(enable = "neon")]
fn add_pairs(sums: uint8x16_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    let (a, b) = (vreinterpretq_s16_u8(a), vreinterpretq_s16_u8(b));
    let products = vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
    vaddq_s32(vreinterpretq_s32_u8(sums), products)
}

impl Attend for Neon {
    const QUERIES: usize = 2;

    operations! {
        no_ints() -> uint8x16x2_t = uint8x16x2_t(vdupq_n_u8(0), vdupq_n_u8(0));
        all_ints(x: i32) -> uint8x16x2_t = both!(vreinterpretq_u8_s32, vdupq_n_s32(x), vdupq_n_s32(x));
        add_pairs(sums: uint8x16x2_t, a: uint8x16x2_t, b: uint8x16x2_t) -> uint8x16x2_t =
            both!(vreinterpretq_u8_s32, add_pairs(sums.0, a.0, b.0), add_pairs(sums.1, a.1, b.1));
        to_floats(ints: uint8x16x2_t) -> float32x4x2_t = float32x4x2_t(
            vcvtq_f32_s32(vreinterpretq_s32_u8(ints.0)),
            vcvtq_f32_s32(vreinterpretq_s32_u8(ints.1)),
        );
    }

    #[inline(always)]
    unsafe fn load_pairs(self, at: *const u8) -> uint8x16x2_t {
        // SAFETY: the caller guarantees it.
        unsafe {
            let bytes = vreinterpretq_s8_u8(vld1q_u8(at));
            both!(vreinterpretq_u8_s16, vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes))
        }
    }

    #[inline(always)]
    unsafe fn load_bytes_apart(self, at: *const u8) -> uint8x16x2_t {
        // SAFETY: the caller guarantees it.
        unsafe {
            let words = vmovl_s8(vreinterpret_s8_u8(vld1_u8(at)));
            both!(vreinterpretq_u8_s32, vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words))
        }
    }
}
