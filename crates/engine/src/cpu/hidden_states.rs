//! Hidden states: those that a prediction head reads, those that are returned, and the scores of labels, which are
//! made of pooled ones.

use super::device::CpuPass;
use super::{CpuDevice, Matrix, NormVectors};
use crate::decoder::HiddenStates;
use crate::error::{Error, Result};
use crate::kernels;
use crate::memory;
use model_factory_spec::spec::{ClassifierWeights, DenseActivation, DenseLayer, JoinedInput};

impl HiddenStates<CpuDevice> for CpuDevice {
    /// `hidden` = the projection of its norm and, after it, the norm of `given`.
    fn join(&self, pass: &mut CpuPass<'_>, joined: &JoinedInput<Self>, given: &[f32]) -> Result<()> {
        let CpuPass { batch, hidden, .. } = pass;
        if given.len() != hidden.len() {
            return Err(Error::Internal("a prediction head without a hidden state of each row".into()));
        }
        let JoinedInput { embedding_norm, hidden_norm, projection } = joined;
        let width = self.buffers.hidden;
        let mut pairs = memory::zeros(batch.rows * 2 * width, "what a prediction head reads")?;
        let inputs = hidden.chunks_exact(width).zip(given.chunks_exact(width));
        for ((embedding, state), pair) in inputs.zip(pairs.chunks_exact_mut(2 * width)) {
            let (first, second) = pair.split_at_mut(width);
            embedding_norm.apply(self.isa, embedding, first);
            hidden_norm.apply(self.isa, state, second);
        }
        let operands = self.normed(None, &pairs, &[projection])?;
        Ok(self.multiply(&[projection], &operands, batch.rows, hidden)?)
    }

    fn read_hidden(
        &self,
        CpuPass { hidden, .. }: &mut CpuPass<'_>,
        norm: Option<&NormVectors>,
        is_read_again: bool,
        states: &mut Vec<f32>,
    ) -> Result<()> {
        *states = if is_read_again { memory::copied(hidden, "hidden states")? } else { std::mem::take(hidden) };
        Ok(norm.map_or(Ok(()), |norm| self.norm_rows(norm, states))?)
    }

    fn classify(&self, head: &ClassifierWeights<Self>, mut rows: Vec<f32>) -> Result<Vec<f32>> {
        if let Some(layer) = &head.dense {
            rows = self.dense(layer, &rows)?;
        }
        self.products(&head.output, &rows)
    }

    fn dense(&self, DenseLayer { linear, activation, norm }: &DenseLayer<Self>, rows: &[f32]) -> Result<Vec<f32>> {
        let mut rows = self.products(linear, rows)?;
        if let Some(activation) = activation {
            self.activate_rows(*activation, &mut rows);
        }
        if let Some(norm) = norm {
            self.norm_rows(norm, &mut rows)?;
        }
        Ok(rows)
    }
}

impl CpuDevice {
    /// `rows` = their activation.
    pub(super) fn activate_rows(&self, activation: DenseActivation, rows: &mut [f32]) {
        match activation {
            DenseActivation::Tanh => rows.iter_mut().for_each(|x| *x = x.tanh()),
            DenseActivation::Gelu => kernels::gelu_erf(self.isa, rows),
            // A NaN stays one.
            DenseActivation::Relu => rows.iter_mut().filter(|x| **x < 0.0).for_each(|x| *x = 0.0),
        }
    }

    /// The products of `rows` of hidden states with `matrix`, and its bias.
    pub(super) fn products(&self, matrix: &Matrix, rows: &[f32]) -> Result<Vec<f32>> {
        let count = rows.len() / matrix.inputs;
        let mut products = memory::zeros(count * matrix.outputs, "products of hidden states")?;
        self.multiply(&[matrix], &self.normed(None, rows, &[matrix])?, count, &mut products)?;
        Ok(products)
    }
}
