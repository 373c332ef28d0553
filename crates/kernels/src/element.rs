//! Floats as they are stored, widened without loss.

use crate::arch::generic::simd::Simd;
use half::{bf16, f16};

/// A float of a cache or of a weight.
pub trait Element: Copy + Sync + 'static {
    /// The float, widened without loss.
    #[doc(hidden)]
    fn wide(self) -> f32;

    /// A vector of elements, widened, or the elements before the end with zeros after them.
    ///
    /// # Safety
    /// A whole vector can be read if `WHOLE`, else `left` elements, but no more than a vector has. `at` needs no alignment.
    #[doc(hidden)]
    unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, at: *const Self, left: usize) -> S::Floats;
}

macro_rules! element {
    ($type:ty, $wide:expr, $load:ident) => {
        impl Element for $type {
            fn wide(self) -> f32 {
                $wide(self)
            }

            #[inline(always)]
            unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, at: *const $type, left: usize) -> S::Floats {
                // SAFETY: the caller guarantees it.
                unsafe { simd.$load::<WHOLE>(at, left) }
            }
        }
    };
}

element!(f32, |x| x, load);
element!(f16, |x: f16| f16_to_f32(x.to_le_bytes()), load_f16);
element!(bf16, bf16::to_f32, load_bf16);

/// The value of the half-precision number stored in two bytes.
#[inline(always)]
pub(super) fn f16_to_f32(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let magnitude = bits & 0x7fff;
    // Exponent and fraction are shifted into place, then the bias is corrected by a multiplication, which is exact and
    // normalizes subnormal numbers too; infinities and NaNs get the whole exponent instead.
    let finite = f32::from_bits(magnitude << 13) * f32::from_bits((254 - 15) << 23);
    let special = f32::from_bits(magnitude << 13 | 0xff << 23);
    let value = if magnitude >= 0x7c00 { special } else { finite };
    f32::from_bits(value.to_bits() | (bits & 0x8000) << 16)
}

/// The value of the BF16 stored in two bytes.
#[inline(always)]
pub(super) fn bf16_to_f32(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// The power of 2 that a byte stands for (E8M0); 0xff is no number.
#[inline(always)]
pub(super) fn e8m0_to_f32(exponent: u8) -> f32 {
    match exponent {
        0 => f32::from_bits(1 << 22), // 2^-127, subnormal
        0xff => f32::NAN,
        _ => f32::from_bits(u32::from(exponent) << 23),
    }
}

/// The half-precision number at byte `at`.
#[inline(always)]
pub(super) fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32([bytes[at], bytes[at + 1]])
}
