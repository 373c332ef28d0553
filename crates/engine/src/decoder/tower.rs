//! VisionSpec + Weights + a device -> Tower: pixels of an image in, rows of the language model out. Its blocks are the decoder's.

use super::device::required;
use super::layer::Layer;
use super::load::Load;
use super::{Batch, Device, Sequence};
use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::memory;
use crate::weights::Weights;
use model_factory_spec::spec::{Grid, ProjectorStep, VisionSpec, VisionWeights};

/// The tower of one model on the device `D`. It computes an image in the memory that a plan counts for one: callers take turns.
pub struct Tower<D: Device> {
    device: D,
    weights: VisionWeights<D>,
    sizes: TowerSizes,
}

/// What a tower takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TowerSizes {
    /// Channels of a pixel.
    pub channels: usize,
    /// The side of a patch, in pixels.
    pub patch_size: usize,
    /// The patches of an image.
    pub grid: Grid,
    /// Rows that an image becomes.
    pub tokens: usize,
    /// Elements of a row.
    pub output: usize,
}

/// The pixels of an image, `[channels, grid.rows * patch_size, grid.columns * patch_size]`.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'p> {
    values: &'p [f32],
    grid: Grid,
    patch_size: usize,
}

impl<D: Device> Tower<D> {
    /// Attaches kernels to the weights of `spec`; casts none of them.
    ///
    /// # Errors
    /// Those of [`Device::matrix`] and of `device`.
    pub fn new(spec: &VisionSpec, weights: &Weights, device: D) -> Result<Tower<D>> {
        let sizes = TowerSizes {
            channels: spec.channels,
            patch_size: spec.patch_size,
            grid: spec.largest,
            tokens: spec.tokens(spec.largest),
            output: spec.output,
        };
        Ok(Tower { weights: spec.weights.try_map(&mut Load { device: &device, weights })?, device, sizes })
    }

    /// What it takes and gives.
    pub fn sizes(&self) -> TowerSizes {
        self.sizes
    }

    /// The rows of the language model that an image becomes, `[tokens, output]`, in place of those of the embedding, whose factor they
    /// do not have. `pixels` `[channels, grid.rows * patch_size, grid.columns * patch_size]` are as the model's image processor makes
    /// them. Its bits depend on nothing else: not on threads, nor on what is computed beside it.
    ///
    /// # Errors
    /// `Image` for other numbers of patches or pixels than the tower takes, before anything is computed; `Cancelled` after at most one
    /// more operation of a layer once `cancel` is; `OutOfMemory`.
    pub fn forward(&self, pixels: &[f32], grid: Grid, cancel: &CancellationToken) -> Result<Vec<f32>> {
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
            wanted: 0..patches,
        };
        let mut sequences = memory::reserved(1, "the sequences of a batch")?;
        sequences.push(all);
        let mut rows = Vec::new();
        self.device.run(Batch { sequences, rows: patches, angles: Vec::new() }, &mut |pass, _| {
            cancel.check()?;
            vision.embed_patches(pass, &self.weights, image)?;
            for (index, weights) in self.weights.layers.iter().enumerate() {
                let layer = Layer { device: &self.device, extensions: &extensions, weights, index, residual: 1.0 };
                cancel.check()?;
                layer.store(pass)?;
                cancel.check()?;
                layer.mix(pass)?;
                layer.forward(pass, cancel)?;
            }
            required(extensions.hidden_states)?.read_hidden(pass, self.weights.final_norm.as_ref(), false, &mut rows)
        })?;
        let project = |(rows, grid): (Vec<f32>, Grid), step: &ProjectorStep<D>| {
            cancel.check()?;
            Ok((vision.project(step, rows, grid)?, step.left(grid)))
        };
        self.weights.projector.iter().try_fold((rows, grid), project).map(|(rows, _)| rows)
    }

    fn image<'p>(&self, values: &'p [f32], grid: Grid) -> Result<Pixels<'p>> {
        let TowerSizes { channels, patch_size, grid: expected, .. } = self.sizes;
        let pixels =
            |grid: Grid| grid.patches().saturating_mul(channels).saturating_mul(patch_size.saturating_mul(patch_size));
        if grid != expected || values.len() != pixels(grid) {
            let words =
                |grid: Grid, values: usize| format!("{values} values of {} by {} patches", grid.rows, grid.columns);
            return Err(Error::Image { found: words(grid, values.len()), expected: words(expected, pixels(expected)) });
        }
        Ok(Pixels { values, grid, patch_size })
    }
}

impl Pixels<'_> {
    /// The number of patches.
    pub fn patches(&self) -> usize {
        self.grid.patches()
    }

    /// Copies the patch `index`, counted from left to right and then down, into `out` `[channels, patch_size, patch_size]`.
    pub fn patch(&self, index: usize, out: &mut [f32]) {
        let (side, columns) = (self.patch_size, self.grid.columns);
        let (row, column) = (index / columns, index % columns);
        let width = columns * side;
        let plane = self.grid.rows * side * width;
        for (line, out) in out.chunks_exact_mut(side).enumerate() {
            let (channel, y) = (line / side, row * side + line % side);
            out.copy_from_slice(&self.values[channel * plane + y * width + column * side..][..side]);
        }
    }
}
