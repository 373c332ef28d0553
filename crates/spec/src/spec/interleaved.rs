//! Experts whose gate and up projections take turns in one parameter of all experts of a layer: as floats, transposed, or as
//! blocks of MXFP4 whose scales lie apart (transformers `GptOssExperts`, `integrations/mxfp4.py`).

use super::LinearWeights;
use super::routed::ExpertMatrices;
use super::tensors::{Tensors, rows_of};
use crate::error::Result;
use crate::family::Role;
use crate::header::TensorInfo;
use model_factory_dtypes::DType;

/// Elements of a block.
const BLOCK: u64 = 32;

impl Tensors<'_> {
    /// The projections of `role`, of `times` times as many rows as the role has: all of a layer in one parameter.
    pub(super) fn expert_parameter(&mut self, role: Role, layer: usize, times: u64) -> Result<ExpertMatrices> {
        let count = self.sizes.experts.map_or(0, |sizes| sizes.count) as u64;
        let (outputs, inputs, because) = self.shape(role, Some(layer));
        let outputs = outputs * times;
        let because = match times {
            1 => format!("{count} experts, {because}"),
            _ => format!("{count} experts, {times} rows in turns, {because}"),
        };
        let stem = self.stem(role, Some(layer));
        let bias = self.stacked_bias(role, layer, &format!("{stem}_bias"), [count, outputs], &because)?;
        let blocks = format!("{stem}_blocks");
        let stored = if self.mxfp4 && self.stores(&blocks) {
            vec![LinearWeights { bias, ..self.mxfp4(&stem, [count, outputs, inputs], &because)? }]
        } else {
            let all = self.checked(&stem, &[count, inputs, outputs], &because)?;
            self.check_matrix_dtype(&all)?;
            self.check_float(&all, "F32, F16 or BF16 (a transposed matrix)")?;
            let part = |expert| LinearWeights {
                weight: rows_of(all.clone(), expert * inputs, count * inputs, vec![inputs, outputs]),
                bias: bias.clone().map(|bias| rows_of(bias, expert * outputs, count * outputs, vec![outputs])),
                transposed: true,
                ..LinearWeights::new(all.clone())
            };
            (0..count).map(part).collect()
        };
        Ok(ExpertMatrices { stored, outputs: outputs as usize })
    }

    /// The matrix of all experts in blocks, and their scales.
    fn mxfp4(&mut self, stem: &str, [count, outputs, inputs]: [u64; 3], because: &str) -> Result<LinearWeights> {
        let because = format!("{because}, blocks of {BLOCK} elements in {} bytes", BLOCK / 2);
        // Rows of no whole blocks have another number of elements than these shapes.
        let blocks = inputs.div_ceil(BLOCK);
        let elements = self.checked(&format!("{stem}_blocks"), &[count, outputs, blocks, BLOCK / 2], &because)?;
        let scales = self.checked(&format!("{stem}_scales"), &[count, outputs, blocks], &because)?;
        if let Some(other) = [&elements, &scales].into_iter().find(|tensor| tensor.dtype != DType::U8) {
            return Err(self.wrong_dtype(other, "U8 (blocks and scales of MXFP4)"));
        }
        if !inputs.is_multiple_of(BLOCK) {
            return Err(self.wrong_shape(&elements, vec![count, outputs, inputs / BLOCK, BLOCK / 2], because));
        }
        let rows = count * outputs;
        // The bytes are what safetensors calls F4 and F8_E8M0.
        Ok(LinearWeights {
            block_scales: Some(TensorInfo { dtype: DType::F8_E8M0, shape: vec![rows, blocks], ..scales }),
            ..LinearWeights::new(TensorInfo { dtype: DType::F4, shape: vec![rows, inputs], ..elements })
        })
    }
}
