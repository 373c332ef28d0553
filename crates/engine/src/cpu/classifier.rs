//! Pooled hidden states -> scores of labels.

use super::{CpuDevice, Matrix, NormVectors};
use crate::decoder::Classifier;
use crate::kernels;
use crate::memory;
use model_factory_spec::spec::DenseActivation;

impl CpuDevice {
    /// The scores of the labels of each of `rows` `[rows, hidden]`.
    pub(super) fn label_scores(
        &self,
        head: &Classifier<Matrix, NormVectors>,
        mut rows: Vec<f32>,
    ) -> memory::Result<Vec<f32>> {
        if let Some((dense, activation, norm)) = &head.dense {
            rows = self.products(dense, &rows)?;
            match activation {
                DenseActivation::Tanh => rows.iter_mut().for_each(|x| *x = x.tanh()),
                DenseActivation::Gelu => kernels::gelu_erf(self.isa, &mut rows),
            }
            if let Some(norm) = norm {
                norm.apply_to_rows(&self.pool, self.isa, &mut rows)?;
            }
        }
        self.products(&head.output, &rows)
    }

    /// The products of `rows` with `matrix`.
    fn products(&self, matrix: &Matrix, rows: &[f32]) -> memory::Result<Vec<f32>> {
        let count = rows.len() / matrix.inputs();
        let mut products = memory::zeros(count * matrix.outputs(), "the scores of labels")?;
        let operands = self.normed(None, rows, &[matrix])?;
        self.multiply(&[matrix], &operands, count, &mut products)?;
        Ok(products)
    }
}
