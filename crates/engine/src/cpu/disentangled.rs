//! Terms of scores by relative positions: of every query with keys of these, and of every key with queries of these.

use super::CpuDevice;
use super::attention::AttentionPass;
use super::operand::Operands;
use crate::kernels::{Isa, Kernel};
use crate::memory;
use model_factory_dtypes::DType;
use model_factory_spec::spec::{PositionScores, RelativeWeights};
use std::ops::Range;

/// The relative positions that the texts of a pass have, and what the layer at hand makes of them.
pub(super) struct Relative {
    /// The place of each distance of a query from a key, from `1 - longest` on, among the rows.
    places: Vec<usize>,
    longest: usize,
    /// Their embeddings, `[rows, hidden]`.
    rows: Vec<f32>,
    count: usize,
    /// Their keys and their queries, `[rows, heads * head_dim]`; empty where a layer has none.
    keys: Vec<f32>,
    queries: Vec<f32>,
}

impl Relative {
    /// Those of texts of up to `longest` tokens.
    pub(super) fn new(
        device: &CpuDevice,
        weights: &RelativeWeights<CpuDevice>,
        longest: usize,
    ) -> memory::Result<Relative> {
        const WHAT: &str = "relative positions";
        let longest = longest.max(1);
        let end = longest as isize;
        let first = weights.positions.row(1 - end);
        let places = memory::collected((1 - end..end).map(|distance| weights.positions.row(distance) - first), WHAT)?;
        let (count, width) = (places[places.len() - 1] + 1, weights.rows.inputs);
        let mut rows = memory::zeros(count * width, WHAT)?;
        for (index, row) in rows.chunks_exact_mut(width).enumerate() {
            weights.rows.dequantize_row(first + index, row);
        }
        if let Some(norm) = &weights.norm {
            device.norm_rows(norm, &mut rows)?;
        }
        Ok(Relative { places, longest, rows, count, keys: Vec::new(), queries: Vec::new() })
    }

    /// Computes the keys and queries of a layer.
    pub(super) fn project(&mut self, device: &CpuDevice, positions: &PositionScores<CpuDevice>) -> memory::Result<()> {
        for (matrix, to) in [(&positions.keys, &mut self.keys), (&positions.queries, &mut self.queries)] {
            to.clear();
            if let Some(matrix) = matrix {
                memory::lengthen(to, self.count * matrix.outputs, 0.0, "keys and queries of relative positions")?;
                let operands = device.normed(None, &self.rows, &[matrix])?;
                device.multiply(&[matrix], &operands, self.count, to)?;
            }
        }
        Ok(())
    }

    /// The places of the rows that a text of `length` tokens has, and those of its distances.
    fn of(&self, length: usize) -> (Range<usize>, &[usize]) {
        let places = &self.places[self.longest - length..self.longest + length - 1];
        (places[0]..places[places.len() - 1] + 1, places)
    }

    /// Elements of [`AttentionPass::position_terms`] for a text of `length` tokens and heads of `dim`.
    pub(super) fn elements(&self, length: usize, dim: usize) -> usize {
        let rows = self.of(length).0.len();
        length * length + 2 * rows * length + (rows + length) * dim
    }
}

impl AttentionPass<'_> {
    /// What is added to the scores of a head for each query and each key of `rows`, `[rows, rows]`, in `scratch`; nothing where
    /// attention is not disentangled. There are as many heads of keys as of queries.
    pub(super) fn position_terms<'s>(
        &self,
        head: usize,
        rows: &Range<usize>,
        scratch: &'s mut [f32],
    ) -> memory::Result<&'s [f32]> {
        let Some(relative) = self.relative.filter(|_| self.weights.positions.is_some()) else { return Ok(&[]) };
        let (isa, dim, width, length) = (self.device.isa, self.heads.dim, self.heads.width(), rows.len());
        let (of_text, places) = relative.of(length);
        let count = of_text.len();
        let (terms, rest) = scratch.split_at_mut(length * length);
        let (by_query, rest) = rest.split_at_mut(count * length);
        let (by_key, rest) = rest.split_at_mut(count * length);
        let (stored, keys) = rest.split_at_mut(count * dim);
        let place = |row: usize| (of_text.start + row) * width + head * dim;
        let projected = |row: usize, first: usize| {
            let row = &self.qkv[(rows.start + row) * self.width..];
            &row[first + head * dim..][..dim]
        };
        by_query.fill(0.0);
        by_key.fill(0.0);
        if !relative.keys.is_empty() {
            for (row, key) in stored.chunks_exact_mut(dim).enumerate() {
                key.copy_from_slice(&relative.keys[place(row)..][..dim]);
            }
            products(isa, stored, length, dim, |row| projected(row, 0), by_query)?;
        }
        if !relative.queries.is_empty() {
            let keys = &mut keys[..length * dim];
            for (row, key) in keys.chunks_exact_mut(dim).enumerate() {
                key.copy_from_slice(projected(row, self.heads.keys()));
            }
            products(isa, keys, count, dim, |row| &relative.queries[place(row)..][..dim], by_key)?;
        }
        for (query, (terms, by_query)) in terms.chunks_exact_mut(length).zip(by_query.chunks_exact(count)).enumerate() {
            for (key, term) in terms.iter_mut().enumerate() {
                let row = places[length - 1 + query - key] - of_text.start;
                *term = self.weights.score_scale * (by_query[row] + by_key[row * length + key]);
            }
        }
        Ok(terms)
    }
}

/// `y` `[tokens, rows of weight]` = the products of the rows that `row` gives with those of `weight`, all of `width` elements.
fn products<'x>(
    isa: Isa,
    weight: &[f32],
    tokens: usize,
    width: usize,
    row: impl Fn(usize) -> &'x [f32],
    y: &mut [f32],
) -> memory::Result<()> {
    let kernel = Kernel::select(DType::F32, isa).unwrap_or_else(|| unreachable!("F32 has portable kernels"));
    let operands = Operands::gather(isa, std::iter::once(kernel.form), tokens, width, row)?;
    kernel.matmul(bytemuck::cast_slice(weight), operands.of(kernel.form), y)
}
