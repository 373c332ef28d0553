//! What adapters add to products.
//!
//! The rows of a step are grouped by adapter, so that both of its matrices are read once for all rows that have it. An operand
//! of the model's matrix is multiplied with `A` when it is made; the product with `B` is added where the product of the model's own
//! weights was computed, tile by tile. Rows without adapters take no part in any of that.

use super::operand::Operands;
use super::{CpuDevice, Matrix, NormVectors};
use crate::adapter::{Adapter, LowRank};
use crate::decoder::Batch;
use crate::kernels::{self, Input, Isa, Kernel};
use crate::memory::{self, Refusals};
use model_factory_spec::plan::ADAPTER_ROWS;
use model_factory_spec::spec::ExpertMatrices;
use std::ops::Range;
use std::sync::Arc;

/// A matrix, or the rows of it that are an expert's, that reads an operand.
#[derive(Clone)]
pub(super) struct Reader<'m> {
    pub(super) matrix: &'m Matrix,
    outputs: Range<usize>,
    /// Which of the experts of the matrix it is.
    expert: usize,
}

impl<'m> Reader<'m> {
    /// All of `matrix`.
    fn whole(matrix: &'m Matrix) -> Reader<'m> {
        Reader { matrix, outputs: 0..matrix.outputs, expert: 0 }
    }

    /// The rows of `expert`.
    pub(super) fn of(matrices: &'m ExpertMatrices<Matrix>, expert: usize) -> Reader<'m> {
        let (matrix, first) = matrices.of(expert);
        Reader { matrix, outputs: first..first + matrices.outputs, expert: first / matrices.outputs.max(1) }
    }
}

/// Rows of an operand, multiplied with the `A` of an adapter for one of the matrices that read the operand.
#[derive(Debug)]
pub(super) struct Adapted {
    /// The place of the matrix, and its rows to which this adds.
    place: usize,
    outputs: Range<usize>,
    expert: usize,
    adapter: Arc<Adapter>,
    /// Which rows of the operand, and the factor of each.
    rows: Vec<(usize, f32)>,
    /// Their products with `A`, as the kernel of `B` reads them.
    input: Input,
}

impl Adapted {
    /// Whether it adds to these rows of the matrix at `place`: to all of them or to none.
    pub(super) fn adds_to(&self, place: usize, outputs: &Range<usize>) -> bool {
        self.place == place && self.outputs.contains(&outputs.start)
    }

    /// `y` `[tokens, outputs]` += the products with `B`; before they are added, `change` has them `[rows, outputs]`.
    pub(super) fn add(
        &self,
        isa: Isa,
        outputs: Range<usize>,
        y: &mut [f32],
        change: impl FnOnce(&mut [f32]),
    ) -> memory::Result<()> {
        let Some(LowRank { b, .. }) = self.adapter.of(self.place) else { return Ok(()) };
        let Some(kernel) = Kernel::select(b.dtype(), isa) else { return Ok(()) };
        let width = outputs.len();
        let mut products = memory::zeros(self.rows.len() * width, "the products of an adapter")?;
        kernel.matmul(b.rows(outputs), &self.input, &mut products)?;
        change(&mut products);
        for ((row, scale), product) in self.rows.iter().zip(products.chunks_exact(width)) {
            kernels::add_scaled(isa, &mut y[row * width..][..width], product, *scale);
        }
        Ok(())
    }

    /// Multiplies the rows that `fill` writes, of `width` elements, with `A`.
    fn multiply(&mut self, isa: Isa, width: usize, fill: impl Fn(usize, &mut [f32])) -> memory::Result<()> {
        let Some(LowRank { a, b, rank, .. }) = self.adapter.of(self.place) else { return Ok(()) };
        let kernels = Kernel::select(a.dtype(), isa).zip(Kernel::select(b.dtype(), isa));
        let (Some((of_a, of_b)), count) = (kernels, self.rows.len()) else { return Ok(()) };
        let mut x = memory::zeros(count * width, "the input of an adapter")?;
        self.rows.iter().zip(x.chunks_exact_mut(width)).for_each(|((row, _), x)| fill(*row, x));
        let mut input = Input::new();
        input.gather(isa, of_a.form, count, width, |row| &x[row * width..][..width])?;
        let mut low = memory::zeros(count * rank, "the products of an adapter")?;
        of_a.matmul(a.rows(self.expert * rank..(self.expert + 1) * rank), &input, &mut low)?;
        self.input.gather(isa, of_b.form, count, *rank, |row| &low[row * rank..][..*rank])
    }
}

impl CpuDevice {
    /// Like [`normed`](Self::normed), for `matrices` whose products have those of the adapters of `batch` added.
    pub(super) fn adapted(
        &self,
        batch: &Batch<'_>,
        norm: Option<&NormVectors>,
        x: &[f32],
        matrices: &[&Matrix],
    ) -> memory::Result<Operands> {
        let mut operands = self.normed(norm, x, matrices)?;
        let width = matrices.first().map_or(1, |matrix| matrix.inputs);
        self.adapt(&mut operands, batch, matrices, |row, out| {
            let x = &x[row * width..][..width];
            match norm {
                Some(norm) => norm.apply(self.isa, x, out),
                None => out.copy_from_slice(x),
            }
        })?;
        Ok(operands)
    }

    /// Adds to `operands` of `matrices`, whose rows are those of `batch` and which `fill` writes as floats, what adapters make of
    /// them.
    pub(super) fn adapt(
        &self,
        operands: &mut Operands,
        batch: &Batch<'_>,
        matrices: &[&Matrix],
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> memory::Result<()> {
        for matrix in matrices {
            group(batch, &Reader::whole(matrix), 0..batch.rows, &mut operands.adapted)?;
        }
        if operands.adapted.is_empty() {
            return Ok(());
        }
        let (refusals, width) = (Refusals::default(), matrices.first().map_or(1, |matrix| matrix.inputs));
        self.pool.chunks(&mut operands.adapted, 1, |_, each| {
            each.iter_mut().for_each(|adapted| refusals.note(adapted.multiply(self.isa, width, &fill)));
        });
        refusals.into_result()
    }

    /// The same on this thread, of operands whose rows are `rows` of `batch`.
    pub(super) fn adapt_here<'m>(
        &self,
        operands: &mut Operands,
        batch: &Batch<'_>,
        readers: impl Iterator<Item = Reader<'m>>,
        rows: impl Iterator<Item = usize> + Clone,
        fill: impl Fn(usize, &mut [f32]),
    ) -> memory::Result<()> {
        for reader in readers {
            let first = operands.adapted.len();
            group(batch, &reader, rows.clone(), &mut operands.adapted)?;
            let mut each = operands.adapted[first..].iter_mut();
            each.try_for_each(|adapted| adapted.multiply(self.isa, reader.matrix.inputs, &fill))?;
        }
        Ok(())
    }
}

/// Appends the rows of an operand, which are `rows` of `batch`, whose adapters change what reads it, by adapter, a task's in each:
/// first those of the first adapter of every row, then those of the second.
fn group(
    batch: &Batch<'_>,
    reader: &Reader<'_>,
    rows: impl Iterator<Item = usize> + Clone,
    groups: &mut Vec<Adapted>,
) -> memory::Result<()> {
    const WHAT: &str = "the rows of adapters";
    let (place, sequences) = (reader.matrix.place, &batch.sequences);
    let most = sequences.iter().map(|sequence| sequence.adapters.iter().len()).max().unwrap_or(0);
    for index in 0..most {
        let first = groups.len();
        for (token, row) in rows.clone().enumerate() {
            let sequence = sequences.get(sequences.partition_point(|sequence| sequence.rows.end <= row));
            let change = sequence.and_then(|sequence| sequence.adapters.change(index, place));
            let Some((adapter, scale)) = change else { continue };
            let has_room =
                |group: &&mut Adapted| Arc::ptr_eq(&group.adapter, adapter) && group.rows.len() < ADAPTER_ROWS;
            if let Some(group) = groups[first..].iter_mut().rfind(has_room) {
                group.rows.push((token, scale)); // there is room
                continue;
            }
            memory::grow(groups, 1, WHAT)?;
            let mut rows = memory::reserved(ADAPTER_ROWS, WHAT)?;
            rows.push((token, scale));
            let (outputs, expert, adapter) = (reader.outputs.clone(), reader.expert, Arc::clone(adapter));
            groups.push(Adapted { place, outputs, expert, adapter, rows, input: Input::new() });
        }
    }
    Ok(())
}
