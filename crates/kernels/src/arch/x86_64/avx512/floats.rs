//! Products of float dtypes by AVX-512: for each output one vector of sums along the row, several rows and tokens at once.

#![allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays

use super::simd::Avx512;
use super::sum_lanes_of_four;
use crate::arch::generic::codes;
use crate::arch::generic::prefetch::{prefetch, streams};
use crate::arch::generic::simd::Simd;
use crate::arch::x86_64::prefetch::{AHEAD, AHEAD_OF_SOME};
use crate::dtypes::codes::Codes;
use crate::element::Element;
use crate::{Call, Input};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// How a dtype is multiplied, a step of elements at a time. Its functions are inlined into one that is compiled for the
/// instruction sets that they need.
pub(crate) trait Steps {
    /// A stored weight.
    type Weight;
    /// An activation.
    type X;
    /// A step of weights or activations in a register.
    type Register: Copy;
    /// Elements of a step.
    const ELEMENTS: usize;

    /// The activations of `token`.
    fn row(input: &Input, token: usize) -> &[Self::X];

    /// Loads a step of weights, or the weights before the end with zeros after them.
    ///
    /// # Safety
    /// A step can be read if `WHOLE`, else `left` elements.
    unsafe fn load<const WHOLE: bool>(w: *const Self::Weight, left: usize) -> Self::Register;

    /// Like [`Steps::load`], for activations.
    ///
    /// # Safety
    /// The conditions of [`Steps::load`].
    unsafe fn load_x<const WHOLE: bool>(x: *const Self::X, left: usize) -> Self::Register;

    /// Adds the products to `sum`.
    ///
    /// # Safety
    /// The processor has the instruction.
    unsafe fn product(w: Self::Register, x: Self::Register, sum: __m512) -> __m512;
}

/// Weights that are widened in a register.
struct Widened<E>(PhantomData<E>);

impl<E: Element> Steps for Widened<E> {
    type Weight = E;
    type X = f32;
    type Register = __m512;
    const ELEMENTS: usize = 16;

    #[inline(always)]
    fn row(input: &Input, token: usize) -> &[f32] {
        input.floats(token)
    }

    #[inline(always)]
    unsafe fn load<const WHOLE: bool>(w: *const E, left: usize) -> __m512 {
        // SAFETY: the caller guarantees it.
        unsafe { E::load::<_, WHOLE>(<Avx512>::new(), w, left) }
    }

    #[inline(always)]
    unsafe fn load_x<const WHOLE: bool>(x: *const f32, left: usize) -> __m512 {
        // SAFETY: the caller guarantees it.
        unsafe { <Avx512>::new().load::<WHOLE>(x, left) }
    }

    #[inline(always)]
    unsafe fn product(w: __m512, x: __m512, sum: __m512) -> __m512 {
        // SAFETY: the caller guarantees it.
        unsafe { <Avx512>::new() }.mul_add(w, x, sum)
    }
}

/// The product of weights that are widened in a register.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn widened<E: Element>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    unsafe { matmul::<Widened<E>>(call) };
}

/// The product of codes that are widened in a register.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn codes<C: Codes>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    codes::multiply::<_, C>(unsafe { <Avx512>::new() }, call, |call| widened::<f32>(call));
}

/// The matrix product.
///
/// # Safety
/// The processor has what `S` needs.
#[inline(always)]
pub(crate) unsafe fn matmul<S: Steps>(call: &mut Call<'_>) {
    let input = call.input;
    let tokens = input.tokens();
    let mut token = 0;
    while token < tokens {
        // SAFETY: the caller guarantees it.
        token += unsafe {
            match tokens - token {
                1 => rows::<S, 4, 1>(call, token),
                2 => rows::<S, 4, 2>(call, token),
                3 => rows::<S, 4, 3>(call, token),
                4 | 7 => rows::<S, 4, 4>(call, token),
                // Blocks of six tokens would leave one, two or three, which take nearly as long as six.
                5 | 9 | 10 | 13 => rows::<S, 4, 5>(call, token),
                8 | 14 => rows::<S, 3, 8>(call, token),
                _ => rows::<S, 4, 6>(call, token),
            }
        };
    }
}

/// `R` rows at a time, times `T` tokens from `token` on; returns `T`.
///
/// # Safety
/// The processor has what `S` needs.
#[inline(always)]
unsafe fn rows<S: Steps, const R: usize, const T: usize>(call: &mut Call<'_>, token: usize) -> usize {
    let (weight, input) = (call.weight, call.input);
    let row_bytes = weight.len() / call.rows();
    let inputs = input.inputs();
    assert!(row_bytes == inputs * size_of::<S::Weight>());
    let (mut w, mut x) = ([std::ptr::null(); R], [std::ptr::null(); T]);
    for (t, x) in x.iter_mut().enumerate() {
        *x = S::row(input, token + t)[..inputs].as_ptr();
    }
    for rows in streams::<R>(call.rows()) {
        for (w, row) in w.iter_mut().zip(rows) {
            *w = weight[row * row_bytes..][..row_bytes].as_ptr().cast();
        }
        // SAFETY: the slices are the rows'; the caller guarantees it.
        let totals = unsafe { tile::<S, R, T>(w, x, inputs) };
        for (t, totals) in totals.iter().enumerate() {
            for (&row, &total) in rows.iter().zip(totals) {
                call.part(token + t, row, 1)[0] = total;
            }
        }
    }
    T
}

/// `R` rows, at most 4, times `T` tokens of `inputs` elements; for each token the sums of all rows.
///
/// # Safety
/// All rows and all tokens have that many elements, and the processor has what `S` needs.
#[inline(always)]
unsafe fn tile<S: Steps, const R: usize, const T: usize>(
    w: [*const S::Weight; R],
    x: [*const S::X; T],
    inputs: usize,
) -> [[f32; 4]; T] {
    let (steps, rest) = (inputs / S::ELEMENTS, inputs % S::ELEMENTS);
    let bytes = S::ELEMENTS * size_of::<S::Weight>();
    let ahead = if T == 1 { AHEAD } else { AHEAD_OF_SOME };
    // SAFETY: the caller guarantees it: every row and token has `steps` steps and `rest` elements.
    unsafe {
        let zero = _mm512_setzero_ps();
        let mut sums = [[zero; T]; R];
        for step in 0..steps {
            // All registers get the first row for now.
            let mut registers = [S::load::<true>(w[0].add(step * S::ELEMENTS), S::ELEMENTS); R];
            for r in 0..R {
                let at = w[r].add(step * S::ELEMENTS);
                if T != 6 && (step * bytes).is_multiple_of(64) {
                    prefetch(at.cast::<u8>().wrapping_add(ahead), 64);
                }
                registers[r] = S::load::<true>(at, S::ELEMENTS);
            }
            for t in 0..T {
                let x = S::load_x::<true>(x[t].add(step * S::ELEMENTS), S::ELEMENTS);
                for r in 0..R {
                    sums[r][t] = S::product(registers[r], x, sums[r][t]);
                }
            }
        }
        if rest > 0 {
            for r in 0..R {
                let w = S::load::<false>(w[r].add(steps * S::ELEMENTS), rest);
                for t in 0..T {
                    let x = S::load_x::<false>(x[t].add(steps * S::ELEMENTS), rest);
                    sums[r][t] = S::product(w, x, sums[r][t]);
                }
            }
        }
        // The sums are added up here, because returned sums are kept in memory from the start.
        let mut totals = [[0.0; 4]; T];
        for t in 0..T {
            let mut of_rows = [zero; 4];
            for r in 0..R {
                of_rows[r] = sums[r][t];
            }
            totals[t] = sum_lanes_of_four(of_rows);
        }
        totals
    }
}
