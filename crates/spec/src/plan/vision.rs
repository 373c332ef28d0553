//! VisionSpec -> the memory that an image takes while a tower computes it: the plan and the tower's allocations use the same
//! functions.

use super::{CpuBuffers, most, product, sum};
use crate::spec::{Grid, LayerWeights, Mixer, ProjectorStep, VisionSpec};

impl CpuBuffers {
    /// The buffers of the blocks of the tower `spec`, by patch.
    pub fn of_tower(spec: &VisionSpec) -> CpuBuffers {
        let mixers = || spec.weights.layers.iter().flat_map(LayerWeights::mixers);
        let widest = |width: fn(&Mixer) -> usize| mixers().map(width).max().unwrap_or(0);
        let mixed = widest(Mixer::mixed);
        CpuBuffers {
            hidden: spec.hidden,
            projected: widest(Mixer::projected),
            mixed,
            activated: spec.feed_forward,
            operand: spec.hidden.max(mixed).max(spec.feed_forward).max(spec.weights.patches.inputs()),
            up_gate: spec.feed_forward.saturating_mul(2),
            whole_head: [spec.head_dim, 1],
            ..CpuBuffers::NONE
        }
    }
}

/// How many images of the largest size are kept after they were computed, for prompts that have them again; of smaller ones more.
pub const KEPT_IMAGES: usize = 4;

/// Tokens of the largest image where only a number of pixels bounds it, no context is given, and the memory is not known: as many as
/// llama.cpp takes of Qwen's towers.
const TOKENS: usize = 4096;

/// Tokens of the largest image, from the `smallest` that is worth it to the trained context: where only a number of pixels bounds it, and
/// that number is of some GB, as many as take half of the memory that is `left` beside the weights. The rest is for the text.
pub(super) fn image_tokens(
    spec: &VisionSpec,
    [smallest, trained]: [usize; 2],
    threads: usize,
    left: Option<u64>,
) -> usize {
    if !spec.any_shape {
        return trained;
    }
    // Of parts up to so many are computed one after the other.
    let all = spec.tokens(spec.largest).saturating_mul(spec.parts).min(trained);
    let fitting =
        left.map_or(TOKENS.min(all), |left| most(all, |tokens| vision_bytes(spec, tokens, threads) <= left / 2));
    if fitting >= all { trained } else { fitting.max(smallest) }
}

/// Bytes that the tower `spec` takes while `threads` compute the largest image of a context of so many tokens: the values of its
/// parts, the buffers of the blocks, what each thread takes for itself, and the rows of the projector; and the rows of images that are kept.
pub fn vision_bytes(spec: &VisionSpec, context: usize, threads: usize) -> u64 {
    let largest = spec.largest_within(context);
    let (buffers, patches) = (CpuBuffers::of_tower(spec), largest.patches());
    let deepstack = &spec.weights.deepstack;
    let steps = deepstack.iter().flat_map(|from| &from.steps).chain(&spec.weights.projector);
    let inputs =
        steps.filter_map(|step| if let ProjectorStep::Linear(linear) = step { Some(linear.inputs()) } else { None });
    let operand = inputs.fold(buffers.operand, usize::max);
    // The leading thread has both while rows are made of a block's output.
    let threads = threads.saturating_add(usize::from(!deepstack.is_empty()));
    let of_threads = CpuBuffers { operand, ..buffers }.of_threads(threads, patches);
    let values = product(&[spec.parts_within(context), patches, spec.patch_elements(), size_of::<f32>()]);
    let kept = product(&[KEPT_IMAGES, spec.elements_within(context), size_of::<f32>()]);
    // Cosines and sines of half of a head's elements each.
    let angles = if spec.rope.is_some() { product(&[patches, spec.head_dim, size_of::<f32>()]) } else { 0 };
    // Where windows end: of the tower, of the pass, and of the blocks of rows that attend to each other.
    let windows =
        spec.order.windows(largest).map_or(0, |windows| product(&[3, windows.count() + 1, size_of::<usize>()]));
    sum(&[windows, values, buffers.bytes(patches), of_threads, angles, projectors_bytes(spec, largest), kept])
}

/// Bytes of the rows of the projector, or of another that makes rows from the output of a block, while those that are made stay.
fn projectors_bytes(spec: &VisionSpec, largest: Grid) -> u64 {
    let deepstack = &spec.weights.deepstack;
    let all = deepstack.iter().map(|from| &from.steps).chain([&spec.weights.projector]);
    let rows = |lists: usize| product(&[lists, spec.tokens(largest), spec.output, size_of::<f32>()]);
    // Rows in the order of windows and from left to right.
    let ordered = if spec.order.windows(largest).is_some() { rows(2) } else { 0 };
    let of_steps = all.map(|steps| projector_bytes(steps, largest, spec.hidden)).fold(ordered, u64::max);
    of_steps.saturating_add(rows(deepstack.len()))
}

/// Bytes of the rows of a projector: of a step its input, that as a product reads it, and its output.
fn projector_bytes(steps: &[ProjectorStep], largest: Grid, hidden: usize) -> u64 {
    let (mut grid, mut width, mut most) = (largest, hidden, 0);
    for step in steps {
        let (left, columns) = (step.left(grid), width);
        let rows = |grid: Grid, width: usize| product(&[grid.patches(), width, size_of::<f32>()]);
        let taken = match step {
            ProjectorStep::Linear(linear) => {
                width = linear.outputs();
                [rows(grid, columns), rows(grid, columns), rows(left, width)]
            }
            ProjectorStep::Merge { side, .. } => {
                width = width.saturating_mul(side * side);
                [rows(grid, columns), 0, rows(left, width)]
            }
            // The same values.
            ProjectorStep::Squares { side } => {
                width = width.saturating_mul(side * side);
                [rows(grid, columns), 0, 0]
            }
            ProjectorStep::Mean { .. } => [rows(grid, columns), 0, rows(left, width)],
            ProjectorStep::Norm(_) | ProjectorStep::Activation(_) => [rows(grid, columns), 0, 0],
        };
        most = most.max(sum(&taken));
        grid = left;
    }
    most
}
