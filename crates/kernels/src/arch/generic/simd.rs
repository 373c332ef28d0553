//! Vectors of floats, for code that is written once for several widths.
//!
//! Such code is `#[inline(always)]`: it becomes part of a function that is compiled for the instruction sets, and so do the
//! operations here.

use half::{bf16, f16};

/// The bits of an F16 that a float of 8 bits (E4M3) has, sign, exponent and fraction, once it is shifted by 7 with its sign extended:
/// it is then 256 times too small, as the exponents' biases are 15 and 7. Subnormal numbers are right too.
pub(crate) const E4M3_IN_F16: i16 = 0xbf80_u16 as i16;

/// Operations on vectors of f32. A value is the proof that the processor has the instruction sets.
pub trait Simd: Copy {
    /// A vector.
    type Floats: Copy;
    /// A vector of integers with as many bits.
    type Bits: Copy;
    /// Sixteen floats, one for each code of 4 bits, and what they are multiplied by.
    type Table: Copy;
    /// Floats of a vector.
    const LANES: usize;

    /// `x` in all lanes.
    fn all(self, x: f32) -> Self::Floats;

    /// `x` in all lanes.
    fn all_int(self, x: i32) -> Self::Floats;

    /// `a + b`.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `a * b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// `c - a * b`, rounded once.
    fn negated_mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// The sum of the lanes, in pairs that are half of them apart, then a quarter, and so on to 1.
    fn sum(self, v: Self::Floats) -> f32;

    /// A vector of floats at any alignment, or the floats before the end with zeros after them.
    ///
    /// # Safety
    /// A whole vector can be read if `WHOLE`, else `left` elements, but no more than a vector has.
    unsafe fn load<const WHOLE: bool>(self, at: *const f32, left: usize) -> Self::Floats;

    /// A vector, by an instruction for each register where that is faster.
    ///
    /// # Safety
    /// The vector is there, aligned as its registers are.
    #[inline(always)]
    unsafe fn load_unpaired(self, at: *const f32) -> Self::Floats {
        // SAFETY: the caller guarantees it.
        unsafe { self.load::<true>(at, Self::LANES) }
    }

    /// Like [`Simd::load`], widened.
    ///
    /// # Safety
    /// The conditions of [`Simd::load`].
    unsafe fn load_f16<const WHOLE: bool>(self, at: *const f16, left: usize) -> Self::Floats;

    /// Like [`Simd::load`], widened.
    ///
    /// # Safety
    /// The conditions of [`Simd::load`].
    unsafe fn load_bf16<const WHOLE: bool>(self, at: *const bf16, left: usize) -> Self::Floats;

    /// Like [`Simd::load`], of floats of 8 bits (E4M3), widened and divided by 256; the two bytes that are no numbers give 1.875.
    ///
    /// # Safety
    /// The conditions of [`Simd::load`].
    unsafe fn load_e4m3<const WHOLE: bool>(self, at: *const u8, left: usize) -> Self::Floats;

    /// These floats as they are.
    fn table(self, values: &[f32; 16]) -> Self::Table;

    /// The table times `scale`.
    fn scaled(self, table: Self::Table, scale: f32) -> Self::Table;

    /// The floats of a vector of codes, of which a byte has two, the first in its high half; or those before the end with other
    /// floats of the table after them. Their lanes are in the order of [`Simd::as_looked_up`].
    ///
    /// # Safety
    /// The conditions of [`Simd::load`], where `left` codes are bytes rounded up.
    unsafe fn look_up<const WHOLE: bool>(self, table: Self::Table, at: *const u8, left: usize) -> Self::Floats;

    /// The lanes of a vector in an order in which looking up is fast.
    #[inline(always)]
    fn as_looked_up(self, v: Self::Floats) -> Self::Floats {
        v
    }

    /// What [`Simd::as_looked_up`] has put in its order.
    #[inline(always)]
    fn in_order(self, v: Self::Floats) -> Self::Floats {
        v
    }

    /// Stores the first `left` floats, or all.
    ///
    /// # Safety
    /// That many floats can be written.
    unsafe fn store(self, at: *mut f32, left: usize, v: Self::Floats);

    /// Stores all floats.
    ///
    /// # Safety
    /// That many floats can be written.
    unsafe fn store_all(self, at: *mut f32, v: Self::Floats);

    /// Stores a vector at any alignment.
    ///
    /// # Safety
    /// That many bytes can be written.
    unsafe fn store_bits(self, at: *mut u8, v: Self::Bits);
}

/// The bytes of `2 * N` codes of 4 bits, or of those before the end with zeros after them.
///
/// # Safety
/// All bytes can be read if `WHOLE`, else those of `left` codes.
#[inline(always)]
pub(crate) unsafe fn bytes_of_codes<const N: usize, const WHOLE: bool>(at: *const u8, left: usize) -> [u8; N] {
    if WHOLE {
        // SAFETY: the caller guarantees it.
        return unsafe { at.cast::<[u8; N]>().read() };
    }
    let mut bytes = [0; N];
    // SAFETY: the caller guarantees it: so many can be read, and they are no part of a local array.
    unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), left.div_ceil(2).min(N)) };
    bytes
}

/// Operations by instructions of the sets that the value proves.
macro_rules! operations {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $operation:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $type),*) -> $result {
                // SAFETY: the value proves the instruction sets.
                unsafe { $operation }
            }
        )*
    };
}
pub(crate) use operations;
