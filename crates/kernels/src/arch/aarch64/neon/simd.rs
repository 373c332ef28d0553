//! Vectors of 256 bits in two registers of NEON.

use crate::arch::generic::simd::{E4M3_IN_F16, Simd, bytes_of_codes, operations};
use half::{bf16, f16};
use std::arch::aarch64::*;
use std::arch::asm;

/// The instructions that multiply bytes: none but NEON's, or those of a level, which include those of the levels before it.
const PLAIN: u8 = 0;
pub(crate) const DOTPROD: u8 = 1;
pub(crate) const I8MM: u8 = 2;

/// 256 bits in two registers.
#[derive(Clone, Copy)]
pub(crate) struct Neon<const LEVEL: u8 = PLAIN>(());

impl<const LEVEL: u8> Neon<LEVEL> {
    /// # Safety
    /// The processor has the instructions of the level.
    pub(crate) unsafe fn new() -> Neon<LEVEL> {
        Neon(())
    }

    /// Adds to each lane the products of its four bytes.
    #[inline(always)]
    pub(crate) fn dot(self, sums: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
        // SAFETY: the value proves the instruction sets.
        unsafe { if LEVEL >= DOTPROD { sdot(sums, a, b) } else { plain_dot(sums, a, b) } }
    }

    /// Like [`dot`](Self::dot) with loaded sums, number `4 * FOUR + SUMS`, at most 15: an instruction less for the
    /// vector ports than making zeros.
    ///
    /// # Safety
    /// The sums are there.
    #[inline(always)]
    pub(crate) unsafe fn dot_from<const FOUR: usize, const SUMS: usize>(
        self,
        sums: *const [i32; 4],
        a: uint8x16_t,
        b: uint8x16_t,
    ) -> int32x4_t {
        // SAFETY: the caller guarantees it; the value proves the instruction sets.
        unsafe {
            if LEVEL >= DOTPROD {
                return sdot_from::<FOUR, SUMS>(sums, a, b);
            }
            plain_dot(vld1q_s32(sums.add(4 * FOUR + SUMS).cast()), a, b)
        }
    }

    /// Like [`dot_lane`](Self::dot_lane) of the first lane, with loaded sums like [`dot_from`](Self::dot_from).
    #[inline(always)]
    pub(crate) fn dot_lane_from(self, from: &[i32; 4], a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
        // SAFETY: the value proves the instruction sets.
        unsafe {
            if LEVEL >= DOTPROD {
                return sdot_lane_from(from, a, b);
            }
            self.dot_lane::<0>(vld1q_s32(from.as_ptr()), a, b)
        }
    }

    /// Like [`dot`](Self::dot) with the four bytes of lane `LANE` of `b` in all lanes.
    #[inline(always)]
    pub(crate) fn dot_lane<const LANE: i32>(self, sums: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
        // SAFETY: the value proves the instruction sets.
        unsafe {
            if LEVEL >= DOTPROD {
                return sdot_lane::<LANE>(sums, a, b);
            }
            plain_dot(sums, a, vreinterpretq_u8_u32(vdupq_laneq_u32::<LANE>(vreinterpretq_u32_u8(b))))
        }
    }
}

/// The instruction `sdot`, which the standard library does not have on stable Rust.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sums: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    // SAFETY: the instruction reads and writes only these registers.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// The instruction `sdot`, added to loaded numbers.
///
/// # Safety
/// The numbers `4 * FOUR + SUMS` are there.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn sdot_from<const FOUR: usize, const SUMS: usize>(
    from: *const [i32; 4],
    a: uint8x16_t,
    b: uint8x16_t,
) -> int32x4_t {
    let sums;
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!(
            "ldur {sums:q}, [{from}, #{at}]", "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = out(vreg) sums, from = in(reg) from, a = in(vreg) a, b = in(vreg) b, at = const 64 * FOUR + 16 * SUMS,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    sums
}

/// Loads 16 bytes, number `8 * EIGHT + BYTES` of 32 of which the 17th are at `middle`, by an instruction that is one micro-op on
/// Neoverse N1.
///
/// # Safety
/// The bytes are there.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) unsafe fn load_about<const EIGHT: usize, const BYTES: usize>(middle: *const u8) -> uint8x16_t {
    let bytes;
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!(
            "ldur {bytes:q}, [{middle}, #{at}]",
            bytes = out(vreg) bytes, middle = in(reg) middle, at = const 128 * EIGHT as i32 + 16 * BYTES as i32 - 256,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    bytes
}

/// The instruction `sdot` with a lane of `b`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot_lane<const LANE: i32>(mut sums: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    // SAFETY: the instruction reads and writes only these registers.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b, lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// The instruction `sdot` with the first lane of `b`, added to loaded numbers.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot_lane_from(from: &[i32; 4], a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    let sums;
    // SAFETY: the numbers are there.
    unsafe {
        asm!(
            "ldur {sums:q}, [{from}]", "sdot {sums:v}.4s, {a:v}.16b, {b:v}.4b[0]",
            sums = out(vreg) sums, from = in(reg) from, a = in(vreg) a, b = in(vreg) b,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    sums
}

/// The result of `sdot`, by plain NEON. A product fits 16 bits; two of -128 by -128 do not.
#[inline]
#[target_feature(enable = "neon")]
fn plain_dot(sums: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    let (a, b) = (vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b));
    let (low, high) = (vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
    vaddq_s32(sums, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
}

/// The instruction `smmla`: adds the products of two rows of eight bytes and two columns of eight; each has 8 bytes of a register.
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(crate) fn smmla(mut sums: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    // SAFETY: the instruction reads and writes only these registers.
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Like [`smmla`] four times, with the columns at `b + OFFSET`; the sums begin with the numbers at `from` if `FIRST`. It keeps its
/// order among such calls: in another order more would be loaded at once than there are registers.
///
/// # Safety
/// Two columns of eight bytes and four numbers are there.
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(crate) unsafe fn four_smmla<const FIRST: bool, const OFFSET: usize>(
    sums: &mut [int32x4_t; 4],
    from: *const i32,
    a: &[uint8x16_t; 4],
    b: *const u8,
) {
    let [s0, s1, s2, s3] = sums;
    if FIRST {
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!(
                "ldr {b:q}, [{at}, #{offset}]",
                "ldr {s0:q}, [{from}]", "smmla {s0:v}.4s, {a0:v}.16b, {b:v}.16b",
                "ldr {s1:q}, [{from}]", "smmla {s1:v}.4s, {a1:v}.16b, {b:v}.16b",
                "ldr {s2:q}, [{from}]", "smmla {s2:v}.4s, {a2:v}.16b, {b:v}.16b",
                "ldr {s3:q}, [{from}]", "smmla {s3:v}.4s, {a3:v}.16b, {b:v}.16b",
                s0 = out(vreg) *s0, s1 = out(vreg) *s1, s2 = out(vreg) *s2, s3 = out(vreg) *s3,
                a0 = in(vreg) a[0], a1 = in(vreg) a[1], a2 = in(vreg) a[2], a3 = in(vreg) a[3],
                at = in(reg) b, from = in(reg) from, b = out(vreg) _, offset = const OFFSET,
                options(readonly, nostack, preserves_flags),
            );
        }
        return;
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!(
            "ldr {b:q}, [{at}, #{offset}]",
            "smmla {s0:v}.4s, {a0:v}.16b, {b:v}.16b",
            "smmla {s1:v}.4s, {a1:v}.16b, {b:v}.16b",
            "smmla {s2:v}.4s, {a2:v}.16b, {b:v}.16b",
            "smmla {s3:v}.4s, {a3:v}.16b, {b:v}.16b",
            s0 = inout(vreg) *s0, s1 = inout(vreg) *s1, s2 = inout(vreg) *s2, s3 = inout(vreg) *s3,
            a0 = in(vreg) a[0], a1 = in(vreg) a[1], a2 = in(vreg) a[2], a3 = in(vreg) a[3],
            at = in(reg) b, b = out(vreg) _, offset = const OFFSET,
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// Loads four floats by their own instruction: with `ldp`, which the compiler does not use for volatile loads, Neoverse V2 takes
/// three micro-ops for two registers.
///
/// # Safety
/// The floats are there, aligned to 16 bytes.
#[inline(always)]
pub(crate) unsafe fn load_unpaired(at: *const f32) -> float32x4_t {
    // SAFETY: the caller guarantees it.
    unsafe { at.cast::<float32x4_t>().read_volatile() }
}

/// Loads 64 bytes like [`load_unpaired`]. The loads keep their order, like [`four_smmla`].
///
/// # Safety
/// The bytes are there, aligned to 16 bytes.
#[inline(always)]
pub(crate) unsafe fn load_four(at: *const u8) -> [uint8x16_t; 4] {
    let at = at.cast::<uint8x16_t>();
    // SAFETY: the caller guarantees it.
    unsafe { [at.read_volatile(), at.add(1).read_volatile(), at.add(2).read_volatile(), at.add(3).read_volatile()] }
}

/// Added to an integer below 2^22 and above -2^22, this makes the bits of the float that is 3 * 2^22 more: subtracting that takes
/// less than a conversion.
pub(crate) const FLOAT_BITS: i32 = 0x4b40_0000;

/// The integers to which [`FLOAT_BITS`] were added, as floats.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn to_floats(bits: int32x4_t) -> float32x4_t {
    vsubq_f32(vreinterpretq_f32_s32(bits), vreinterpretq_f32_s32(vdupq_n_s32(FLOAT_BITS)))
}

/// The last four of eight words as floats: a widening addition makes them the bits of floats below 0, which are converted as in
/// [`to_floats`]. Neoverse V1 takes one micro-op less than for a conversion.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn last_words_to_floats(words: uint16x8_t) -> float32x4_t {
    let zero = vdupq_n_f32(-f32::from_bits(FLOAT_BITS as u32));
    let bits: float32x4_t;
    // The compiler would replace it by a widening and an `or`.
    // SAFETY: an instruction of every aarch64 that computes in registers.
    unsafe {
        asm!(
            "uaddw2 {bits:v}.4s, {zero:v}.4s, {words:v}.8h",
            bits = lateout(vreg) bits, zero = in(vreg) zero, words = in(vreg) words,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    vsubq_f32(zero, bits)
}

/// 8 elements, or those before the end with zeros after them.
///
/// # Safety
/// That many elements can be read.
#[inline(always)]
unsafe fn some<T: Copy + Default>(at: *const T, left: usize) -> [T; 8] {
    let mut all = [T::default(); 8];
    // SAFETY: the caller guarantees it: so many can be read, and they are no part of a local array.
    unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), all.as_mut_ptr().cast(), size_of::<T>() * left.min(8)) };
    all
}

/// The sum of 8 lanes, in pairs that are 4 apart, then 2, then 1.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn sum_eight_lanes(eight: float32x4x2_t) -> f32 {
    let four = vaddq_f32(eight.0, eight.1);
    let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
}

/// An operation on both registers.
macro_rules! both {
    ($operation:ident($($arg:expr),*)) => {
        float32x4x2_t($operation($($arg.0),*), $operation($($arg.1),*))
    };
}

impl<const LEVEL: u8> Simd for Neon<LEVEL> {
    type Floats = float32x4x2_t;
    type Bits = uint8x16x2_t;
    /// The bytes of floats, those of equal places together, and the factor.
    type Table = (uint8x16x4_t, float32x4_t);
    const LANES: usize = 8;

    operations! {
        all(x: f32) -> float32x4x2_t = float32x4x2_t(vdupq_n_f32(x), vdupq_n_f32(x));
        all_int(x: i32) -> float32x4x2_t = float32x4x2_t(vdupq_n_f32(x as f32), vdupq_n_f32(x as f32));
        add(a: float32x4x2_t, b: float32x4x2_t) -> float32x4x2_t = both!(vaddq_f32(a, b));
        mul(a: float32x4x2_t, b: float32x4x2_t) -> float32x4x2_t = both!(vmulq_f32(a, b));
        mul_add(a: float32x4x2_t, b: float32x4x2_t, c: float32x4x2_t) -> float32x4x2_t = both!(vfmaq_f32(c, a, b));
        negated_mul_add(a: float32x4x2_t, b: float32x4x2_t, c: float32x4x2_t) -> float32x4x2_t = both!(vfmsq_f32(c, a, b));
        sum(v: float32x4x2_t) -> f32 = sum_eight_lanes(v);
    }

    #[inline(always)]
    unsafe fn load<const WHOLE: bool>(self, at: *const f32, left: usize) -> float32x4x2_t {
        if !WHOLE {
            // SAFETY: the caller guarantees it; the array has 8.
            return unsafe { self.load::<true>(some(at, left).as_ptr(), 8) };
        }
        // Loads are of bytes, as weights may have any alignment.
        // SAFETY: the caller guarantees it.
        unsafe {
            let (low, high) = (vld1q_u8(at.cast()), vld1q_u8(at.cast::<u8>().wrapping_add(16)));
            float32x4x2_t(vreinterpretq_f32_u8(low), vreinterpretq_f32_u8(high))
        }
    }

    #[inline(always)]
    unsafe fn load_unpaired(self, at: *const f32) -> float32x4x2_t {
        if LEVEL < I8MM {
            // Processors without `smmla` load pairs as fast, and the compiler may choose the order.
            // SAFETY: the caller guarantees it.
            return unsafe { self.load::<true>(at, 8) };
        }
        // SAFETY: the caller guarantees it.
        unsafe { float32x4x2_t(load_unpaired(at), load_unpaired(at.add(4))) }
    }

    #[inline(always)]
    unsafe fn load_f16<const WHOLE: bool>(self, at: *const f16, left: usize) -> float32x4x2_t {
        if !WHOLE {
            // SAFETY: the caller guarantees it; the array has 8.
            return unsafe { self.load_f16::<true>(some(at, left).as_ptr(), 8) };
        }
        // SAFETY: the caller guarantees it.
        unsafe {
            let halves = vreinterpretq_f16_u8(vld1q_u8(at.cast()));
            float32x4x2_t(vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves))
        }
    }

    #[inline(always)]
    unsafe fn load_bf16<const WHOLE: bool>(self, at: *const bf16, left: usize) -> float32x4x2_t {
        if !WHOLE {
            // SAFETY: the caller guarantees it; the array has 8.
            return unsafe { self.load_bf16::<true>(some(at, left).as_ptr(), 8) };
        }
        // SAFETY: the caller guarantees it.
        unsafe {
            let halves = vreinterpretq_u16_u8(vld1q_u8(at.cast()));
            let (low, high) = (vshll_n_u16::<16>(vget_low_u16(halves)), vshll_high_n_u16::<16>(halves));
            float32x4x2_t(vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high))
        }
    }

    #[inline(always)]
    unsafe fn load_e4m3<const WHOLE: bool>(self, at: *const u8, left: usize) -> float32x4x2_t {
        if !WHOLE {
            // SAFETY: the caller guarantees it; the array has 8.
            return unsafe { self.load_e4m3::<true>(some(at, left).as_ptr(), 8) };
        }
        // SAFETY: the caller guarantees it.
        unsafe {
            let words = vandq_s16(vshll_n_s8::<7>(vld1_s8(at.cast())), vdupq_n_s16(E4M3_IN_F16));
            let halves = vreinterpretq_f16_s16(words);
            float32x4x2_t(vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves))
        }
    }

    #[inline(always)]
    fn table(self, values: &[f32; 16]) -> (uint8x16x4_t, float32x4_t) {
        // SAFETY: they have 64 bytes; the value proves the instruction sets.
        unsafe { (vld4q_u8(values.as_ptr().cast()), vdupq_n_f32(1.0)) }
    }

    #[inline(always)]
    fn scaled(self, table: (uint8x16x4_t, float32x4_t), scale: f32) -> (uint8x16x4_t, float32x4_t) {
        // SAFETY: the value proves the instruction sets.
        (table.0, unsafe { vdupq_n_f32(scale) })
    }

    #[inline(always)]
    unsafe fn look_up<const WHOLE: bool>(
        self,
        (values, scale): (uint8x16x4_t, float32x4_t),
        at: *const u8,
        left: usize,
    ) -> float32x4x2_t {
        // SAFETY: the caller guarantees it; the value proves the instruction sets.
        unsafe {
            let bytes = vcreate_u8(u64::from(u32::from_le_bytes(bytes_of_codes::<4, WHOLE>(at, left))));
            let codes = vzip1_u8(vshr_n_u8::<4>(bytes), vand_u8(bytes, vdup_n_u8(15)));
            let codes = vcombine_u8(codes, codes);
            let (first, second) = (vqtbl1q_u8(values.0, codes), vqtbl1q_u8(values.1, codes));
            let (third, fourth) = (vqtbl1q_u8(values.2, codes), vqtbl1q_u8(values.3, codes));
            let low = vreinterpretq_u16_u8(vzip1q_u8(first, second));
            let high = vreinterpretq_u16_u8(vzip1q_u8(third, fourth));
            let (four, next) = (vzip1q_u16(low, high), vzip2q_u16(low, high));
            float32x4x2_t(vmulq_f32(vreinterpretq_f32_u16(four), scale), vmulq_f32(vreinterpretq_f32_u16(next), scale))
        }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, left: usize, v: float32x4x2_t) {
        if left >= 8 {
            // SAFETY: the caller guarantees it.
            return unsafe { self.store_all(at, v) };
        }
        let mut all = [0.0; 8];
        // SAFETY: the array has 8, of which `left` can be written.
        unsafe {
            self.store_all(all.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(all.as_ptr(), at, left);
        }
    }

    #[inline(always)]
    unsafe fn store_all(self, at: *mut f32, v: float32x4x2_t) {
        // SAFETY: the caller guarantees it.
        unsafe {
            vst1q_f32(at, v.0);
            vst1q_f32(at.add(4), v.1);
        }
    }

    #[inline(always)]
    unsafe fn store_bits(self, at: *mut u8, v: uint8x16x2_t) {
        // SAFETY: the caller guarantees it.
        unsafe {
            vst1q_u8(at, v.0);
            vst1q_u8(at.add(16), v.1);
        }
    }
}
