//! I8: signed bytes, which a layer's scales turn into weights; the product is `scale of x * sum of (x - zero) * w`.
//!
//! Sums are exact in 32 bits, so every instruction set gives the same bits: a weight of -128 times an activation minus
//! its zero point is at most `128 * 255`, and the diagnosis refuses more inputs than fit. The caller
//! multiplies by the weight's scales.

#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64;
use crate::dtypes::scaled::CallScales;
use crate::input::Int8Row;
use crate::input::int8::Int8Rule;
use crate::isa::{Isa, Sets, compiled_for};
use crate::memory;
use crate::ops::vector::Floats;
use crate::{Call, Form, Input, Registered};
use model_factory_dtypes::{DType, I8_MAX_INPUTS, Tier};

const _: () = assert!(I8_MAX_INPUTS * 128 * 255 <= i32::MAX as u64, "sums fit 32 bits");

const PORTABLE: Registered = Registered {
    name: "i8/portable",
    dtype: DType::I8,
    tier: Tier::Native,
    form: Form::Int8(Int8Rule::Token { symmetric: true }),
    sets: Sets::PORTABLE,
    scaled: false,
    matmul: portable,
    dequantize,
};

pub(crate) const KERNELS: &[Registered] = &[
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("i8/amx", Sets::AMX, x86_64::amx::int8),
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("i8/avx512-vnni", Sets::AVX512.and(Sets::VNNI), x86_64::avx512::i8::matmul),
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("i8/avx-vnni", Sets::AVX2.and(Sets::AVX_VNNI), x86_64::avx2::i8::avx_vnni),
    #[cfg(target_arch = "x86_64")]
    PORTABLE.by("i8/avx2", Sets::AVX2, x86_64::avx2::i8::avx2),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("i8/i8mm", Sets::I8MM, aarch64::neon::i8::i8mm),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("i8/dotprod", Sets::DOTPROD, aarch64::neon::i8::dotprod),
    #[cfg(target_arch = "aarch64")]
    PORTABLE.by("i8/neon", Sets::NEON, aarch64::neon::i8::neon),
    PORTABLE,
];

fn dequantize(row: &[u8], out: &mut [f32]) {
    out.iter_mut().zip(row).for_each(|(out, &q)| *out = f32::from(q as i8));
}

/// `sum of (x - zero) * w`, from the sum of `x * w` and the sum of `w`.
#[inline(always)]
pub(crate) fn without_zero(product: i32, zero: i32, sum_of_weights: i32) -> i32 {
    product.wrapping_sub(zero.wrapping_mul(sum_of_weights))
}

#[inline(always)]
fn dot(w: &[u8], x: &[i8]) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| i32::from(w as i8) * i32::from(x)).sum()
}

#[inline(always)]
pub(crate) fn sum_of(w: &[u8]) -> i32 {
    w.iter().map(|&w| i32::from(w as i8)).sum()
}

fn portable(call: &mut Call<'_>) {
    let (weight, input) = (call.weight, call.input);
    for (row, weight) in weight.chunks_exact(input.inputs()).enumerate() {
        let sum = sum_of(weight);
        for token in 0..input.tokens() {
            let Int8Row { bytes, scale, zero, .. } = input.int8(token);
            call.part(token, row, 1)[0] = without_zero(dot(weight, bytes), zero, sum) as f32 * scale;
        }
    }
}

/// Like a kernel's product, with a weight scale for each `group` inputs:
/// `y[token][row] = scale of x * sum over groups of scale of the group * sum of (x - zero) * w`. `scales` has the scales of
/// all rows in order. Panics when lengths do not match.
///
/// # Errors
/// When there is no memory for the scales.
pub fn int8_groups(
    isa: Isa,
    weight: &[u8],
    scales: Floats<'_>,
    group: usize,
    input: &Input,
    y: &mut [f32],
) -> memory::Result<()> {
    let inputs = input.inputs();
    assert!(group > 0 && inputs.is_multiple_of(group), "groups of {group} in {inputs} inputs");
    assert!(weight.len().is_multiple_of(inputs), "{} bytes are no rows of {inputs}", weight.len());
    let rows = weight.len() / inputs;
    assert_eq!(scales.len() * group, weight.len(), "scales of {rows} rows");
    let mut wide = memory::zeros(scales.len(), "the scales of weights")?;
    crate::ops::vector::add_floats(isa, &mut wide, scales);
    let mut call = Call::new(weight, CallScales::InBlocks, input, rows, y);
    groups(isa, &wide, group, &mut call);
    call.into_result()
}

compiled_for! {
    fn groups(isa: Isa, scales: &[f32], group: usize, call: &mut Call<'_>) {
        let (weight, input) = (call.weight, call.input);
        let each = input.inputs() / group;
        for (row, (weight, scales)) in weight.chunks_exact(input.inputs()).zip(scales.chunks_exact(each)).enumerate() {
            for token in 0..input.tokens() {
                let x = input.int8(token);
                let mut sum = 0.0;
                for ((w, x_group), scale) in weight.chunks_exact(group).zip(x.bytes.chunks_exact(group)).zip(scales) {
                    let product = if x.zero == 0 { dot(w, x_group) } else { dot_less(w, x_group, x.zero) };
                    sum += product as f32 * scale;
                }
                call.part(token, row, 1)[0] = sum * x.scale;
            }
        }
    }
}

#[inline(always)]
fn dot_less(w: &[u8], x: &[i8], zero: i32) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| i32::from(w as i8) * (i32::from(x) - zero)).sum()
}

#[cfg(test)]
mod tests;
