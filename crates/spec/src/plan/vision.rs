//! VisionSpec -> the memory that an image takes while a tower computes it: the plan and the tower's allocations use the same
//! functions.

use super::{CpuBuffers, product, sum};
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
            operand: spec.hidden.max(mixed).max(spec.feed_forward).max(spec.patch_elements()),
            up_gate: spec.feed_forward.saturating_mul(2),
            whole_head: [spec.head_dim, 1],
            ..CpuBuffers::NONE
        }
    }
}

/// Bytes that the tower `spec` takes while `threads` compute its largest image: the buffers of its blocks, what each thread takes for
/// itself, and the rows of its projector.
pub fn vision_bytes(spec: &VisionSpec, threads: usize) -> u64 {
    let (buffers, patches) = (CpuBuffers::of_tower(spec), spec.largest.patches());
    // The projector's products are over fewer rows, of which none is wider than both.
    let of_threads = CpuBuffers { operand: buffers.operand.max(spec.output), ..buffers }.of_threads(threads, patches);
    sum(&[buffers.bytes(patches), of_threads, projector_bytes(spec)])
}

/// Bytes of the rows of a projector: of a step its input, that as a product reads it, and its output.
fn projector_bytes(spec: &VisionSpec) -> u64 {
    let (mut grid, mut width, mut most) = (spec.largest, spec.hidden, 0);
    for step in &spec.weights.projector {
        let (left, columns) = (step.left(grid), width);
        let rows = |grid: Grid, width: usize| product(&[grid.patches(), width, size_of::<f32>()]);
        let taken = match step {
            ProjectorStep::Linear(linear) => {
                width = linear.outputs();
                [rows(grid, columns), rows(grid, columns), rows(left, width)]
            }
            ProjectorStep::Mean { .. } => [rows(grid, columns), 0, rows(left, width)],
            ProjectorStep::Norm(_) | ProjectorStep::Activation(_) => [rows(grid, columns), 0, 0],
        };
        most = most.max(sum(&taken));
        grid = left;
    }
    most
}
