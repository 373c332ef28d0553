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

/// The tower of one model on the device `D`. It computes an image in the memory that a plan counts for one: callers take turns.
pub struct Tower<D: Device> {
    device: D,
    weights: VisionWeights<D>,
    sizes: TowerSizes,
    rope: Option<(AxialRope, usize)>,
    /// The side of the square of position embeddings that are interpolated.
    interpolated: Option<usize>,
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
}

/// The values of an image: `[channels, grid.rows * patch_size, grid.columns * patch_size]`, or those of one patch after the other.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'p> {
    values: &'p [f32],
    grid: Grid,
    order: PatchOrder,
    patch_size: usize,
    interpolated: Option<usize>,
}

impl<D: Device> Tower<D> {
    /// Attaches kernels to the weights of `spec`; casts none of them. Images are no larger than [`VisionSpec::largest_within`] a
    /// `context` of so many tokens.
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
        };
        let rope = spec.rope.map(|rope| (rope, spec.head_dim));
        let interpolated = spec.interpolated;
        let weights = spec.weights.try_map(&mut Load { device: &device, weights, matrices: 0 })?;
        Ok(Tower { weights, device, sizes, rope, interpolated })
    }

    /// What it takes and gives.
    pub fn sizes(&self) -> TowerSizes {
        self.sizes
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

    /// What `steps` make of `rows`, those of the patches of `grid`.
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
        steps.iter().try_fold((rows, grid), project).map(|(rows, _)| rows)
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
        Ok(Pixels { values, grid, order, patch_size, interpolated: self.interpolated })
    }
}

impl Pixels<'_> {
    /// The number of patches.
    pub fn patches(&self) -> usize {
        self.grid.patches()
    }

    /// Copies the patch `index` into `out`, `[channels, patch_size, patch_size]`, or with frames after the channels.
    pub fn patch(&self, index: usize, out: &mut [f32]) {
        if let PatchOrder::Squares { .. } = self.order {
            return out.copy_from_slice(&self.values[index * out.len()..][..out.len()]);
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

    /// What position embeddings are added to the patch `index`: the rows of the table, each with its part. Of a square that is
    /// interpolated they are the four around the patch's place, where its corners are those of the image.
    pub fn positions(&self, index: usize) -> [(usize, f32); 4] {
        let Some(side) = self.interpolated else { return [(index, 1.0), (0, 0.0), (0, 0.0), (0, 0.0)] };
        let along = |place: usize, extent: usize| {
            let at = place as f64 * (side - 1) as f64 / (extent - 1).max(1) as f64;
            let (first, part) = (at.floor() as usize, at.fract());
            [(first, 1.0 - part), ((first + 1).min(side - 1), part)]
        };
        let (row, column) = self.order.place(index, self.grid);
        let [above, below] = along(row, self.grid.rows);
        let [left, right] = along(column, self.grid.columns);
        [(above, left), (above, right), (below, left), (below, right)]
            .map(|((row, down), (column, across))| (row * side + column, (down * across) as f32))
    }
}
