//! Matrices of integers in words by columns: their scales, zero points and the tensors next to them that only values judge.

use super::scaling::BLOCK;
use super::tensors::{Rows, Tensors, columns_of};
use crate::error::{Error, Result};
use crate::family::Role;
use crate::header::TensorInfo;
use crate::quantization::{ColumnPacked, WeightScales};
use model_factory_dtypes::{DType, PackedDim};

/// A product of floats with integers whose words lie by columns: a weight is `scale * (stored - zero point)` (GPTQ, AWQ). Parts of a
/// fused matrix begin where all of it does, and their `bytes` are their share: [`whole`](Self::whole) has all.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// What a word holds.
    pub packed: PackedDim,
    /// Scales, floats: `[groups, outputs]`.
    pub scale: TensorInfo,
    /// Consecutive inputs that share a scale, a multiple of 32.
    pub size: usize,
    /// Zero points in words: I32 `[groups, outputs * bits / 32]`, in the order of the outputs in words of weights.
    pub zero_point: TensorInfo,
    /// What is added to a stored zero point; `None` where all are the middle of the integers, or one below.
    pub zero_offset: Option<u32>,
    /// The group of each input, I32 `[inputs]`, where it is stored: often the one that its place says, which only the values tell.
    pub g_idx: Option<TensorInfo>,
    /// A bias of a module without bias: only zeros, which only the values tell.
    pub zero_bias: Option<TensorInfo>,
    /// Stored outputs before these.
    pub before: usize,
    /// Stored outputs in all.
    pub total: usize,
}

impl Columns {
    /// All that is stored of a tensor of which `part` is for `outputs`.
    pub fn whole(&self, part: &TensorInfo, outputs: usize) -> TensorInfo {
        let bytes = part.bytes.saturating_mul(self.total as u64) / outputs.max(1) as u64;
        TensorInfo { bytes, ..part.clone() }
    }
}

impl Tensors<'_> {
    /// What is stored next to the words in `rows`.
    pub(super) fn columns(&mut self, place: &str, kind: ColumnPacked, rows: &Rows, role: Role) -> Result<Columns> {
        let (weight, module) = (&rows.tensor, &rows.module);
        let [outputs, inputs] = [weight.shape[0], weight.shape[1]];
        let size = if let WeightScales::Group(size) = kind.scales { size } else { inputs };
        if !inputs.is_multiple_of(size) {
            let other = format!("tensor {} has {inputs} inputs, no multiple of it", weight.name);
            return Err(self.conflict(format!("{place} has groups of {size}"), other));
        }
        let unsupported =
            |scheme: String, why: String| Err(Error::Quantization { file: self.file_of(weight).into(), scheme, why });
        if !size.is_multiple_of(BLOCK) {
            let scheme = format!("groups of {size} packed weights (tensor {})", weight.name);
            return unsupported(scheme, format!("integers are multiplied in blocks of {BLOCK} that share a scale"));
        }
        // Outputs whose zero points are whole words.
        let each = if kind.bits == 3 { 32 } else { 32 / u64::from(kind.bits) };
        if [rows.before, outputs, rows.total].iter().any(|outputs| !outputs.is_multiple_of(each)) {
            let scheme = format!("{outputs} of {} outputs by columns (tensor {})", rows.total, weight.name);
            return unsupported(scheme, format!("zero points of {each} outputs are whole words"));
        }
        let groups = inputs / size;
        let because = format!("weights {} by {place}", kind.scales);
        let scale = self.next_to(module, "scales", &[groups, rows.total], &because)?;
        self.check_float(&scale, "F32, F16 or BF16 (scales)")?;
        let zero_point = self.next_to(module, "qzeros", &[groups, rows.total * u64::from(kind.bits) / 32], &because)?;
        self.check_words(&zero_point)?;
        let name = format!("{module}.g_idx");
        let g_idx = match self.stores(&name) {
            true if kind.packed == PackedDim::Outputs => {
                let says = format!("{place} describes inputs in order");
                return Err(self.conflict(says, format!("tensor {name} is stored")));
            }
            true => Some(self.next_to(module, "g_idx", &[inputs], &because)?),
            false => None,
        };
        g_idx.iter().try_for_each(|index| self.check_words(index))?;
        let bias = format!("{module}.bias");
        let zero_bias = match self.stores(&bias) && !self.bias_wanted(role, None, &bias)? {
            true => Some(self.next_to(
                module,
                "bias",
                &[rows.total],
                "a bias of zeros, which GPTQ stores for modules without one",
            )?),
            false => None,
        };
        zero_bias.iter().try_for_each(|bias| self.check_float(bias, "F32, F16 or BF16 (biases)"))?;
        self.used.insert(weight.name.clone());
        let part = |whole: TensorInfo| {
            let wide = whole.shape[1] / (rows.total / each).max(1) * (outputs / each);
            columns_of(whole, [rows.total, outputs].map(|outputs| outputs / each), vec![groups, wide])
        };
        Ok(Columns {
            packed: kind.packed,
            scale: part(scale),
            size: size as usize,
            zero_point: part(zero_point),
            zero_offset: kind.zero_offset,
            g_idx,
            zero_bias,
            before: rows.before as usize,
            total: rows.total as usize,
        })
    }

    /// The tensor `end` of a module.
    fn next_to(&mut self, module: &str, end: &str, shape: &[u64], because: &str) -> Result<TensorInfo> {
        self.checked(&format!("{module}.{end}"), shape, because)
    }

    fn check_words(&self, tensor: &TensorInfo) -> Result<()> {
        if tensor.dtype == DType::I32 { Ok(()) } else { Err(self.wrong_dtype(tensor, "I32")) }
    }
}
