//! Operations of vision towers: patches of pixels as rows, and the steps of a projector.

use super::device::CpuPass;
use super::operand::Operands;
use super::{CpuDevice, scratch};
use crate::decoder::{Pixels, VisionLayers};
use crate::error::Result;
use crate::kernels;
use crate::memory;
use model_factory_spec::spec::{Grid, ProjectorStep, VisionWeights};

impl VisionLayers<CpuDevice> for CpuDevice {
    fn embed_patches(
        &self,
        CpuPass { hidden, .. }: &mut CpuPass<'_>,
        VisionWeights { patches: matrix, later_frames, positions, .. }: &VisionWeights<Self>,
        image: Pixels<'_>,
    ) -> Result<()> {
        let (rows, width) = (image.patches(), matrix.inputs);
        for (frame, matrix) in std::iter::once(matrix).chain(later_frames).enumerate() {
            let operands = Operands::prepare(&self.spare, std::iter::once(matrix.form), width, |input, form| {
                input.fill(&self.pool, self.isa, form, rows, width, |patch, row| image.patch(patch, frame, row))
            })?;
            let scale = (frame > 0).then_some(1.0);
            self.multiply_add(&[matrix], &operands, rows, scale, hidden)?;
        }
        if let Some(positions) = positions {
            self.each_row(hidden, matrix.outputs, |patch, row| {
                scratch::with_scratch(row.len(), |stored| {
                    image.positions(patch, |position, part| {
                        positions.dequantize_row(position, stored);
                        match part == 1.0 {
                            true => kernels::add(self.isa, row, stored),
                            false => kernels::add_scaled(self.isa, row, stored, part),
                        }
                    });
                    Ok(())
                })
            })?;
        }
        Ok(())
    }

    fn attend_within(&self, pass: &mut CpuPass<'_>, ends: &[usize]) -> Result<()> {
        pass.windows.clear();
        memory::reserve(&mut pass.windows, ends.len(), "the windows of an image")?;
        pass.windows.extend_from_slice(ends);
        Ok(())
    }

    fn project(&self, step: &ProjectorStep<Self>, mut rows: Vec<f32>, grid: Grid) -> Result<Vec<f32>> {
        let _scratch = self.leaders.lend();
        match step {
            ProjectorStep::Mean { side } => rows = self.means(&rows, grid, *side)?,
            &ProjectorStep::Merge { side, by_element } => rows = self.joined(&rows, grid, side, by_element)?,
            ProjectorStep::Squares { .. } => {}
            ProjectorStep::Norm(norm) => self.norm_rows(norm, &mut rows)?,
            ProjectorStep::Linear(matrix) => rows = self.products(matrix, &rows)?,
            ProjectorStep::Activation(activation) => self.activate_rows(*activation, &mut rows),
        }
        Ok(rows)
    }
}

impl CpuDevice {
    /// The rows of each square of `side` by `side` side by side, from left to right and then down, or one element of all of them after
    /// the other.
    fn joined(&self, rows: &[f32], grid: Grid, side: usize, by_element: bool) -> memory::Result<Vec<f32>> {
        let (width, columns) = (rows.len() / grid.patches().max(1), grid.columns / side);
        let all = side * side * width;
        let mut joined = memory::zeros(grid.rows / side * columns * all, "patches that are joined")?;
        self.each_row(&mut joined, all, |square, out| {
            let (top, left) = (square / columns * side, square % columns * side);
            for place in 0..side * side {
                let patch = (top + place / side) * grid.columns + left + place % side;
                let row = &rows[patch * width..][..width];
                match by_element {
                    true => out[place..].iter_mut().step_by(side * side).zip(row).for_each(|(out, x)| *out = *x),
                    false => out[place * width..][..width].copy_from_slice(row),
                }
            }
            Ok(())
        })?;
        Ok(joined)
    }

    /// The mean of each square of `side` by `side` rows, added up from left to right and then down.
    fn means(&self, rows: &[f32], grid: Grid, side: usize) -> memory::Result<Vec<f32>> {
        let (width, columns) = (rows.len() / grid.patches().max(1), grid.columns / side);
        let mut means = memory::zeros(grid.rows / side * columns * width, "the means of patches")?;
        self.each_row(&mut means, width, |square, mean| {
            let (top, left) = (square / columns * side, square % columns * side);
            for patch in (top..top + side).flat_map(|row| (left..left + side).map(move |column| (row, column))) {
                let (row, column) = patch;
                kernels::add(self.isa, mean, &rows[(row * grid.columns + column) * width..][..width]);
            }
            let count = (side * side) as f32;
            mean.iter_mut().for_each(|x| *x /= count);
            Ok(())
        })?;
        Ok(means)
    }
}
