//! Stored numbers that the host reads when a model is loaded: read as floats, and refused unless they are sound.

use crate::error::{Error, Result};
use crate::kernels::{Floats, Int8Rule, Isa, Kernel, add_floats};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_dtypes::DType;
use model_factory_format::error::IncompleteKind;
use model_factory_format::header::TensorInfo;
use model_factory_spec::spec::{Int8, Int8Activations};
use std::ops::Range;

/// How the activations of an int8 product become integers, and how many scales a row of `inputs` weights has: 0 where
/// all rows share one.
///
/// # Errors
/// `Files` when a stored scale is none.
pub fn int8_rule(weights: &Weights, int8: &Int8, inputs: usize) -> Result<(Int8Rule, usize)> {
    check_scales(weights, &int8.scale)?;
    let rule = match &int8.activations {
        Int8Activations::PerToken { symmetric } => Int8Rule::Token { symmetric: *symmetric },
        Int8Activations::PerTensor { symmetric } => Int8Rule::Tensor { symmetric: *symmetric },
        Int8Activations::Static { scale, zero_point } => {
            check_all(weights, scale, "a finite number above 0", |scale| scale.is_finite() && scale > 0.0)?;
            let scale = widened(&weights.view(scale), 1)?[0];
            let zero = zero_point.as_ref().and_then(|zero| weights.view(zero).bytes().first().copied());
            Int8Rule::Static { scale_bits: scale.to_bits(), zero: zero.unwrap_or(0) as i8 }
        }
    };
    let is_one = int8.scale.shape.iter().product::<u64>() == 1;
    Ok((rule, if is_one { 0 } else { inputs / int8.group }))
}

/// Refuses (`Files`) scales of which one is no finite number.
pub fn check_scales(weights: &Weights, scales: &TensorInfo) -> Result<()> {
    check_all(weights, scales, "a finite number", f32::is_finite)
}

/// Refuses floats (`Files`) that products are multiplied or divided by unless they are more than 0.
///
/// # Errors
/// `Files`, with the tensor.
pub fn check_factor(weights: &Weights, factor: &TensorInfo) -> Result<()> {
    let sound = |value: f32| value.is_normal() && value > 0.0 && (1.0 / value).is_normal();
    check_all(weights, factor, "a number above 0", sound)
}

/// Refuses scales of blocks (`Files`), which are floats of 8 bits, that are less than 0 or no numbers.
///
/// # Errors
/// `Files`, with the tensor.
pub fn check_scales_of_blocks(weights: &Weights, scales: &TensorInfo) -> Result<()> {
    let view = weights.view(scales);
    let powers = view.dtype() == DType::F8_E8M0;
    let sound = |byte: &u8| if powers { *byte != 0xff } else { *byte < 0x7f };
    let Some(index) = view.bytes().iter().position(|byte| !sound(byte)) else { return Ok(()) };
    let byte = view.bytes()[index];
    let found = if powers || byte & 0x7f == 0x7f { f32::NAN } else { -value_of_e4m3(byte & 0x7f) };
    Err(wrong_value(weights, scales, (index, found), "a number, 0 or more"))
}

/// The value of a byte without a sign.
fn value_of_e4m3(byte: u8) -> f32 {
    let mut value = [0.0];
    if let Some(kernel) = Kernel::select(DType::F8_E4M3, Isa::portable()) {
        kernel.dequantize_row(&[byte], &mut value);
    }
    value[0]
}

/// Refuses integers in rows (`Files`) that are stored in another order, which a number of U8 tells: 0 is rows.
///
/// # Errors
/// `Files`, with the tensor.
pub(crate) fn check_rows_in_order(weights: &Weights, format: &TensorInfo) -> Result<()> {
    match weights.view(format).bytes().first() {
        None | Some(0) => Ok(()),
        Some(found) => Err(wrong_value(weights, format, (0, f32::from(*found)), "0, integers in rows")),
    }
}

/// Refuses a stored vector (`Files`) unless all of it is `sound`.
pub(crate) fn check_all(
    weights: &Weights,
    tensor: &TensorInfo,
    wanted: &'static str,
    sound: impl Fn(f32) -> bool,
) -> Result<()> {
    let view = weights.view(tensor);
    let elements = view.bytes().len() / view.dtype().block_bytes();
    let wrong = floats(&view, 0..elements).find(|value| !sound(value));
    wrong.map_or(Ok(()), |wrong| Err(wrong_value(weights, tensor, wrong, wanted)))
}

/// As [`check_all`], where soundness is of a place and its value.
pub(crate) fn check_values(
    weights: &Weights,
    tensor: &TensorInfo,
    wanted: &'static str,
    sound: impl Fn(usize, f32) -> bool,
) -> Result<()> {
    let values = widened(&weights.view(tensor), tensor.shape[0] as usize)?;
    let wrong = values.into_iter().enumerate().find(|(index, value)| !sound(*index, *value));
    wrong.map_or(Ok(()), |wrong| Err(wrong_value(weights, tensor, wrong, wanted)))
}

fn wrong_value(weights: &Weights, tensor: &TensorInfo, (index, found): (usize, f32), expected: &'static str) -> Error {
    let kind = IncompleteKind::TensorValue { name: tensor.name.clone(), index, found, expected };
    model_factory_format::Error::incomplete(weights.path(tensor.file), kind).into()
}

/// The numbers of a stored vector, all of which are finite.
pub(crate) fn numbers(weights: &Weights, tensor: &TensorInfo) -> Result<Vec<f32>> {
    check_all(weights, tensor, "a finite number", f32::is_finite)?;
    Ok(widened(&weights.view(tensor), tensor.shape[0] as usize)?)
}

/// The first `elements` of a stored vector.
pub(crate) fn widened(view: &WeightView, elements: usize) -> memory::Result<Vec<f32>> {
    let mut wide = memory::zeros(elements, "numbers of a layer")?;
    add_floats(Isa::portable(), &mut wide, floats(view, 0..elements));
    Ok(wide)
}

/// Outputs and inputs.
pub fn shape(tensor: &TensorInfo) -> (usize, usize) {
    (tensor.shape[0] as usize, tensor.shape[1] as usize)
}

/// Elements of a stored vector, whose dtype the spec has checked.
pub(crate) fn floats(view: &WeightView, elements: Range<usize>) -> Floats<'_> {
    let size = view.dtype().block_bytes();
    let bytes = &view.bytes()[elements.start * size..elements.end * size];
    Floats::new(view.dtype(), bytes).unwrap_or_else(|| unreachable!("a {} vector passed the diagnosis", view.dtype()))
}
