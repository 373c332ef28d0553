//! The activation of a feed-forward layer.

use super::{CpuDevice, Matrix, Operands, scratch};
use crate::decoder::Batch;
use crate::kernels::{self, Isa};
use crate::memory::{self, Refusals};
use model_factory_spec::spec::{Activation, Curve, DenseWeights};
use std::ops::Range;

/// Writes the activations of some columns of a token, counted from the first of a task.
type Activations<'a> = dyn Fn(usize, Range<usize>, &mut [f32]) + 'a;

/// `out` = the activation of a row's products, with the numbers of `curve` where the layer has its own.
pub(super) fn activate<Gate>(
    isa: Isa,
    (activation, curve): (&Activation<Gate>, Option<[f32; 4]>),
    [gate, up]: [&[f32]; 2],
    out: &mut [f32],
) {
    match activation {
        Activation::SwiGlu { .. } => kernels::swiglu(isa, gate, up, out),
        Activation::GeGlu { .. } => kernels::geglu(isa, gate, up, out),
        Activation::GeGluErf { .. } => {
            out.copy_from_slice(gate);
            kernels::gelu_erf(isa, out);
            out.iter_mut().zip(up).for_each(|(out, up)| *out *= up);
        }
        Activation::ReGlu { .. } => {
            let relu = |gate: f32| if gate < 0.0 { 0.0 } else { gate };
            out.iter_mut().zip(gate.iter().zip(up)).for_each(|(out, (gate, up))| *out = relu(*gate) * up);
        }
        &Activation::ClampedSwiGlu { limit, alpha, .. } => kernels::clamped_swiglu(isa, [gate, up], limit, alpha, out),
        Activation::GeluTanh => {
            out.copy_from_slice(up);
            kernels::gelu_tanh(isa, out);
        }
        Activation::Gelu => {
            out.copy_from_slice(up);
            kernels::gelu_erf(isa, out);
        }
        Activation::QuickGelu => {
            out.copy_from_slice(up);
            kernels::gelu_quick(isa, out);
        }
        // A NaN stays one.
        Activation::ReluSquared => {
            out.iter_mut().zip(up).for_each(|(out, &up)| *out = if up < 0.0 { 0.0 } else { up * up });
        }
        Activation::XIelu => {
            out.copy_from_slice(up);
            kernels::xielu(isa, out, curve.unwrap_or_default());
        }
        Activation::Relu => out.iter_mut().zip(up).for_each(|(out, up)| *out = if *up < 0.0 { 0.0 } else { *up }),
    }
}

impl CpuDevice {
    /// The input of the down projection: the activation of the products of `inputs`, rows of `batch`, with the up projection and
    /// gate.
    pub(super) fn up_activate(
        &self,
        batch: &Batch<'_>,
        inputs: &Operands,
        tokens: usize,
        DenseWeights { up, activation, sparsity, curve, down }: &DenseWeights<Self>,
    ) -> memory::Result<Operands> {
        let (gate, curve) = (activation.gate(), curve.as_ref().map(Curve::numbers));
        // Which gates count is known when all of a row are.
        let sparse = gate.zip(*sparsity).map(|(gate, deviations)| self.sparse_gates(inputs, tokens, gate, deviations));
        let (sparse, gate) = (sparse.transpose()?, gate.filter(|_| sparsity.is_none()));
        let products = 1 + usize::from(gate.is_some());
        let bounds = self.column_bounds(tokens, &[up])?;
        // Computes `rows` of both matrices, and gives `put` what writes the activations of some of these columns of a token.
        let compute = |rows: Range<usize>, put: &mut dyn FnMut(&Activations<'_>)| {
            scratch::with_scratch(products * tokens * rows.len(), |scratch| {
                let (up_rows, gate_rows) = scratch.split_at_mut(tokens * rows.len());
                up.rows(self.isa, rows.clone(), inputs, up_rows)?;
                if let Some(gate) = gate {
                    gate.rows(self.isa, rows.clone(), inputs, gate_rows)?;
                }
                put(&|token, columns, out| {
                    let at = token * rows.len() + columns.start..token * rows.len() + columns.end;
                    let gate_rows = match (&sparse, gate) {
                        (Some(gates), _) => {
                            let first = token * up.outputs + rows.start;
                            &gates[first + columns.start..first + columns.end]
                        }
                        (None, Some(_)) => &gate_rows[at.clone()],
                        (None, None) => &[],
                    };
                    activate(self.isa, (activation, curve), [gate_rows, &up_rows[at]], out);
                });
                Ok(())
            })
        };
        if batch.adapts(down.place) {
            // Adapters read them as floats.
            let mut activated = memory::zeros(tokens * up.outputs, "the activations of a feed-forward layer")?;
            let refusals = Refusals::default();
            self.pool.run_grid(&mut activated, up.outputs, tokens, &bounds, &|tile, out| {
                let (rows, count) = (tile.columns.clone(), tile.columns.len());
                refusals.note(compute(rows, &mut |put| {
                    (0..tokens).for_each(|token| put(token, 0..count, out.row(token)));
                }));
            });
            refusals.into_result()?;
            return self.adapted(batch, None, &activated, &[down]);
        }
        Operands::prepare(&self.spare, std::iter::once(down.form), up.outputs, |input, form| {
            input.fill_columns(&self.pool, self.isa, form, tokens, up.outputs, &bounds, |rows, part| {
                compute(rows, &mut |put| part.put(put))
            })
        })
    }

    /// The gates of all rows by which each is above the mean of its row and so many deviations from it, or 0.
    fn sparse_gates(
        &self,
        inputs: &Operands,
        tokens: usize,
        gate: &Matrix,
        deviations: f32,
    ) -> memory::Result<Vec<f32>> {
        let mut gates = memory::zeros(tokens * gate.outputs, "the gates of a feed-forward layer")?;
        self.multiply(&[gate], inputs, tokens, &mut gates)?;
        self.each_row(&mut gates, gate.outputs, |_, gates| {
            kernels::keep_above(self.isa, gates, deviations);
            Ok(())
        })?;
        Ok(gates)
    }
}
