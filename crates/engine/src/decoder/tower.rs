//! VisionSpec + Weights + a device -> Tower: pixels of an image in, rows of the language model out. Its blocks are the decoder's.

use super::device::required;
use super::layer::Layer;
use super::load::Load;
use super::{Angles, Batch, Device, Sequence};
use crate::adapter::Adapters;
use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::memory;
use crate::weights::Weights;
use model_factory_spec::spec::{AxialRope, Grid, PatchOrder, ProjectorStep, VisionSpec, VisionWeights};
use model_factory_spec::vision::Interpolation;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tower of one model on the device `D`. It computes an image in the memory that a plan counts for one: callers take turns.
pub struct Tower<D: Device> {
    device: D,
    weights: VisionWeights<D>,
    sizes: TowerSizes,
    rope: Option<(AxialRope, usize)>,
    /// Of each block whether it attends within windows.
    windowed: Vec<bool>,
    /// The side of the square of position embeddings that are interpolated, and how.
    interpolated: Option<(usize, Interpolation)>,
    passes: AtomicU64,
}

/// What a tower makes of an image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ImageVectors {
    /// The rows of the language model, `[tokens, output]`, in place of those of the embedding, whose factor they do not have.
    pub rows: Vec<f32>,
    /// What is added to them after each of the language model's first layers, `[tokens, output]` each.
    pub deepstack: Vec<Vec<f32>>,
}

/// What a tower takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TowerSizes {
    /// Channels of a pixel.
    pub channels: usize,
    /// The side of a patch, in pixels.
    pub patch_size: usize,
    /// The frames of a patch, as which an image is repeated.
    pub frames: usize,
    /// The patches of the largest image.
    pub largest: Grid,
    /// The patches of which the sides of smaller images are whole multiples; none where all images are as large.
    pub multiple: Option<usize>,
    /// Whether only the number of patches bounds an image, not its sides.
    pub any_shape: bool,
    /// The order of the patches.
    pub order: PatchOrder,
    /// Patches that become one row.
    pub patches_a_token: usize,
    /// Elements of a row.
    pub output: usize,
    /// Rows of an image at most, of all parts that it is cut into.
    pub tokens: usize,
}

/// The values of an image: `[channels, grid.rows * patch_size, grid.columns * patch_size]`, or those of one patch after the other.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'p> {
    values: &'p [f32],
    grid: Grid,
    order: PatchOrder,
    patch_size: usize,
    channels: usize,
    interpolated: Option<(usize, Interpolation)>,
}

impl<D: Device> Tower<D> {
    /// Attaches kernels to the weights of `spec`; casts none of them. Images are no larger than [`VisionSpec::largest_within`] a
    /// `context` of so many tokens, for which memory is planned.
    ///
    /// # Errors
    /// Those of [`Device::matrix`] and of `device`.
    pub fn new(spec: &VisionSpec, context: usize, weights: &Weights, device: D) -> Result<Tower<D>> {
        let sizes = TowerSizes {
            channels: spec.channels,
            patch_size: spec.patch_size,
            frames: spec.frames,
            largest: spec.largest_within(context),
            multiple: spec.smaller.then(|| spec.multiple()),
            any_shape: spec.any_shape,
            order: spec.order,
            patches_a_token: spec.multiple().saturating_mul(spec.multiple()),
            output: spec.output,
            tokens: context,
        };
        let rope = spec.rope.map(|rope| (rope, spec.head_dim));
        let (interpolated, windowed) = (spec.interpolated, spec.windowed.clone());
        let weights = spec.weights.try_map(&mut Load { device: &device, weights, matrices: 0 })?;
        Ok(Tower { weights, device, sizes, rope, windowed, interpolated, passes: AtomicU64::new(0) })
    }

    /// What it takes and gives.
    pub fn sizes(&self) -> TowerSizes {
        self.sizes
    }

    /// The images that it has computed, or begun to, since it was loaded.
    pub fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// What an image becomes. `pixels` are as the model's image processor makes them: `[channels, grid.rows * patch_size, grid.columns *
    /// patch_size]`, or `[patches, channels, frames, patch_size, patch_size]` where patches come in squares. The bits of the result
    /// depend on nothing else: not on threads, nor on what is computed beside it.
    ///
    /// # Errors
    /// `Image` for other numbers of patches or pixels than the tower takes, before anything is computed; `Cancelled` after at most one
    /// more operation of a layer once `cancel` is; `OutOfMemory`.
    pub fn forward(&self, pixels: &[f32], grid: Grid, cancel: &CancellationToken) -> Result<ImageVectors> {
        let image = self.image(pixels, grid)?;
        self.passes.fetch_add(1, Ordering::Relaxed);
        let (extensions, patches) = (self.device.extensions(), grid.patches());
        let vision = required(extensions.vision)?;
        let all = Sequence {
            tokens: &[],
            spans: &[],
            blocks: Vec::new(),
            rows: 0..patches,
            start: 0,
            pages: &mut [],
            second_text: None,
            state: None,
            checkpoints: &mut [],
            adapters: Adapters::default(),
            wanted: 0..patches,
        };
        let mut sequences = memory::reserved(1, "the sequences of a batch")?;
        sequences.push(all);
        let mut angles = memory::reserved(1, "angles of patches")?;
        if let Some((rope, head_dim)) = self.rope {
            angles.push(Angles::of_patches(rope, head_dim, grid, self.sizes.order)?);
        }
        let windows = self.sizes.order.windows(grid);
        let mut ends = memory::reserved(windows.map_or(0, |windows| windows.count()), "the windows of an image")?;
        ends.extend(windows.into_iter().flat_map(|windows| windows.ends()));
        let (mut rows, mut deepstack) =
            (Vec::new(), memory::reserved(self.weights.deepstack.len(), "rows of an image")?);
        self.device.run(Batch { sequences, rows: patches, angles }, &mut |pass, _| {
            cancel.check()?;
            vision.embed_patches(pass, &self.weights, image)?;
            if let Some(norm) = &self.weights.input_norm {
                required(extensions.encoder)?.norm(pass, norm)?;
            }
            for (index, weights) in self.weights.layers.iter().enumerate() {
                let layer = Layer { device: &self.device, extensions: &extensions, weights, index, residual: 1.0 };
                cancel.check()?;
                let windowed = self.windowed.get(index).is_some_and(|windowed| *windowed);
                vision.attend_within(pass, if windowed { &ends } else { &[] })?;
                layer.store(pass)?;
                cancel.check()?;
                layer.mix(pass)?;
                layer.forward(pass, cancel)?;
                for from in self.weights.deepstack.iter().filter(|from| from.block == index) {
                    cancel.check()?;
                    required(extensions.hidden_states)?.read_hidden(pass, None, true, &mut rows)?;
                    deepstack.push(self.project(&from.steps, std::mem::take(&mut rows), grid, cancel)?);
                }
            }
            required(extensions.hidden_states)?.read_hidden(pass, self.weights.final_norm.as_ref(), false, &mut rows)
        })?;
        Ok(ImageVectors { rows: self.project(&self.weights.projector, rows, grid, cancel)?, deepstack })
    }

    /// What `steps` make of `rows`, those of the patches of `grid`, from left to right and then down.
    fn project(
        &self,
        steps: &[ProjectorStep<D>],
        rows: Vec<f32>,
        grid: Grid,
        cancel: &CancellationToken,
    ) -> Result<Vec<f32>> {
        let vision = required(self.device.extensions().vision)?;
        let project = |(rows, grid): (Vec<f32>, Grid), step: &ProjectorStep<D>| {
            cancel.check()?;
            Ok((vision.project(step, rows, grid)?, step.left(grid)))
        };
        let made: Result<(Vec<f32>, Grid)> = steps.iter().try_fold((rows, grid), project);
        let (rows, _) = made?;
        let Some(windows) = self.sizes.order.windows(grid) else { return Ok(rows) };
        let mut lines = memory::zeros(rows.len(), "rows of an image")?;
        for (square, row) in rows.chunks_exact(self.sizes.output.max(1)).enumerate() {
            lines[windows.line(square) * row.len()..][..row.len()].copy_from_slice(row);
        }
        Ok(lines)
    }

    fn image<'p>(&self, values: &'p [f32], grid: Grid) -> Result<Pixels<'p>> {
        let TowerSizes { channels, patch_size, frames, largest, multiple, any_shape, order, .. } = self.sizes;
        let of_patch = [channels, frames, patch_size, patch_size].into_iter().fold(1, usize::saturating_mul);
        let pixels = |grid: Grid| grid.patches().saturating_mul(of_patch);
        let fits = |side: usize, most: usize| match multiple {
            Some(multiple) => side > 0 && (any_shape || side <= most) && side.is_multiple_of(multiple),
            None => side == most,
        };
        let fits = fits(grid.rows, largest.rows) && fits(grid.columns, largest.columns);
        if !fits || grid.patches() > largest.patches() || values.len() != pixels(grid) {
            let words =
                |grid: Grid, values: usize| format!("{values} values of {} by {} patches", grid.rows, grid.columns);
            let most = words(largest, pixels(largest));
            let expected = match multiple {
                Some(multiple) if any_shape => {
                    let (values, patches) = (pixels(largest), largest.patches());
                    format!("up to {values} values of {patches} patches, the sides multiples of {multiple}")
                }
                Some(multiple) => format!("up to {most}, the sides multiples of {multiple}"),
                None => most,
            };
            return Err(Error::Image { found: words(grid, values.len()), expected });
        }
        Ok(Pixels { values, grid, order, patch_size, channels, interpolated: self.interpolated })
    }
}

impl Pixels<'_> {
    /// The number of patches.
    pub fn patches(&self) -> usize {
        self.grid.patches()
    }

    /// Copies the patch `index` into `out`, `[channels, patch_size, patch_size]`, or with frames after the channels. Where `out` has no
    /// room for them it becomes the frame `frame`.
    pub fn patch(&self, index: usize, frame: usize, out: &mut [f32]) {
        if let PatchOrder::Squares { .. } | PatchOrder::Windows { .. } = self.order {
            let (all, index) = (self.values.len() / self.patches().max(1), self.order.stored(index, self.grid));
            let (patch, area) = (&self.values[index * all..][..all], out.len() / self.channels.max(1));
            let of_channel = |out: &mut [f32], frames: &[f32]| out.copy_from_slice(&frames[frame * area..][..area]);
            let channels = patch.chunks_exact(all / self.channels.max(1));
            return out.chunks_exact_mut(area).zip(channels).for_each(|(out, frames)| of_channel(out, frames));
        }
        if let PatchOrder::Pixels { by_channel } = self.order {
            let patch = &self.values[index * out.len()..][..out.len()];
            if !by_channel {
                return out.copy_from_slice(patch);
            }
            let channels = out.chunks_exact_mut(out.len() / self.channels.max(1)).enumerate();
            return channels.for_each(|(channel, out)| {
                let values = patch.iter().skip(channel).step_by(self.channels);
                out.iter_mut().zip(values).for_each(|(out, value)| *out = *value);
            });
        }
        let (side, columns) = (self.patch_size, self.grid.columns);
        let (row, column) = (index / columns, index % columns);
        let width = columns * side;
        let plane = self.grid.rows * side * width;
        for (line, out) in out.chunks_exact_mut(side).enumerate() {
            let (channel, y) = (line / side, row * side + line % side);
            out.copy_from_slice(&self.values[channel * plane + y * width + column * side..][..side]);
        }
    }

    /// Calls `add` with each row of the table of position embeddings that is added to the patch `index`, and with its part.
    pub fn positions(&self, index: usize, mut add: impl FnMut(usize, f32)) {
        let Some((side, kind)) = self.interpolated else { return add(index, 1.0) };
        let (row, column) = self.order.place(index, self.grid);
        let along = |place: usize, extent: usize| Along::new(kind, side, place, extent);
        let (down, across) = (along(row, self.grid.rows), along(column, self.grid.columns));
        for row in down.range() {
            for column in across.range() {
                let part = (down.part(row) * across.part(column)) as f32;
                if part != 0.0 {
                    add(row * side + column, part);
                }
            }
        }
    }
}

/// The entries of one side of a square of position embeddings that a place of an image is made of.
struct Along {
    kind: Interpolation,
    first: usize,
    end: usize,
    /// Where the place lies among the entries, the first of which is at 0.
    at: f64,
    /// Half of the filter's width.
    support: f64,
    /// The parts before they are divided by it.
    sum: f64,
}

impl Along {
    /// Those of the place `place` of `extent`, of `side` entries.
    fn new(kind: Interpolation, side: usize, place: usize, extent: usize) -> Along {
        let mut along = Along { kind, first: 0, end: side, at: 0.0, support: 1.0, sum: 1.0 };
        match kind {
            Interpolation::Corners => {
                along.at = place as f64 * (side - 1) as f64 / (extent - 1).max(1) as f64;
                along.first = along.at.floor() as usize;
                along.end = (along.first + 2).min(side);
            }
            Interpolation::Antialiased => {
                let scale = side as f64 / extent.max(1) as f64;
                (along.support, along.at) = (scale.max(1.0), scale * (place as f64 + 0.5) - 0.5);
                along.first = (along.at - along.support + 1.0).max(0.0) as usize;
                along.end = ((along.at + along.support + 1.0) as usize).min(side);
                along.sum = along.range().map(|entry| along.triangle(entry)).sum();
            }
        }
        along
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.first..self.end
    }

    /// The filter at an entry.
    fn triangle(&self, entry: usize) -> f64 {
        (1.0 - ((entry as f64 - self.at) / self.support).abs()).max(0.0)
    }

    /// The part of an entry.
    fn part(&self, entry: usize) -> f64 {
        match self.kind {
            Interpolation::Corners if entry == self.first => 1.0 - self.at.fract(),
            Interpolation::Corners => self.at.fract(),
            Interpolation::Antialiased => self.triangle(entry) / self.sum,
        }
    }
}
