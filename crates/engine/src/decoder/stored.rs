//! Stored numbers that the host reads when a model is loaded: read as floats, and refused unless they are sound.

use crate::error::Result;
use crate::kernels::{Floats, Int8Rule, Isa, add_floats};
use crate::memory;
use crate::weights::{WeightView, Weights};
use model_factory_format::error::IncompleteKind;
use model_factory_format::header::TensorInfo;
use model_factory_spec::spec::{Int8, Int8Activations};
use std::ops::Range;

/// How the activations of an int8 product become integers.
///
/// # Errors
/// `Files` when a stored scale is none.
pub fn int8_rule(weights: &Weights, int8: &Int8) -> Result<Int8Rule> {
    Ok(match &int8.activations {
        Int8Activations::PerToken { symmetric } => Int8Rule::Token { symmetric: *symmetric },
        Int8Activations::PerTensor { symmetric } => Int8Rule::Tensor { symmetric: *symmetric },
        Int8Activations::Static { scale, zero_point } => {
            check_all(weights, scale, "a finite number above 0", |scale| scale.is_finite() && scale > 0.0)?;
            let mut wide = [0.0];
            add_floats(Isa::portable(), &mut wide, floats(&weights.view(scale), 0..1));
            let zero = zero_point.as_ref().and_then(|zero| weights.view(zero).bytes().first().copied());
            Int8Rule::Static { scale_bits: wide[0].to_bits(), zero: zero.unwrap_or(0) as i8 }
        }
    })
}

/// Reads a stored vector and refuses it unless all of it is `sound`.
///
/// # Errors
/// `Files`, with the first element that is not.
pub fn check_all(
    weights: &Weights,
    tensor: &TensorInfo,
    expected: &'static str,
    sound: impl Fn(f32) -> bool,
) -> Result<()> {
    let view = weights.view(tensor);
    let elements = view.bytes().len() / view.dtype().block_bytes();
    let Some((index, found)) = floats(&view, 0..elements).find(|value| !sound(value)) else { return Ok(()) };
    let kind = IncompleteKind::TensorValue { name: tensor.name.clone(), index, found, expected };
    Err(model_factory_format::Error::incomplete(weights.path(tensor.file), kind).into())
}

/// A stored number.
///
/// # Errors
/// `Files` when it is none.
pub(crate) fn number(weights: &Weights, tensor: &TensorInfo) -> Result<f32> {
    check_all(weights, tensor, "a finite number", f32::is_finite)?;
    let mut wide = [0.0];
    add_floats(Isa::portable(), &mut wide, floats(&weights.view(tensor), 0..1));
    Ok(wide[0])
}

/// Stored numbers; none where there is no tensor.
///
/// # Errors
/// `Files` when one is none.
pub(crate) fn numbers(weights: &Weights, tensor: Option<&TensorInfo>) -> Result<Vec<f32>> {
    let Some(tensor) = tensor else { return Ok(Vec::new()) };
    check_all(weights, tensor, "a finite number", f32::is_finite)?;
    let view = weights.view(tensor);
    let mut wide = memory::zeros(tensor.shape[0] as usize, "numbers of a layer")?;
    let elements = wide.len();
    add_floats(Isa::portable(), &mut wide, floats(&view, 0..elements));
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
