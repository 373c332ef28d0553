//! ModelSpec -> the memory that adapters take: the plan and loading them use the same functions.

use super::{CpuBuffers, product, step_rows, sum};
use crate::spec::{LayerWeights, LinearWeights, ModelSpec};
use serde::Serialize;
use std::collections::BTreeMap;

/// Adapters that memory is reserved for. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReservedAdapters {
    /// How many are loaded at once.
    pub count: usize,
    /// The largest rank of any of their matrices.
    pub rank: usize,
}

/// Rows of a step whose products with an adapter are a task.
pub const ADAPTER_ROWS: usize = 16;

/// Matrices of dense layers and mixers that read the same input, at most.
const READERS: usize = 8;

/// Places among the adapters of its row at which an adapter stands in a step, at most.
const PLACES: usize = 32;

/// Bytes of a group of rows with an adapter, while the list of groups grows, and what its input takes beside its elements.
const GROUP: usize = 3 * 256 + ADAPTER_ROWS * 16 + 3 * 64;

impl ReservedAdapters {
    /// What they take for a model with this `context`, which `threads` compute.
    pub fn bytes(self, spec: &ModelSpec, context: usize, threads: usize) -> u64 {
        let each = adapter_bytes(spec, self.rank).saturating_add(adapter_rows_bytes(spec, context, threads, self.rank));
        each.saturating_mul(self.count as u64).saturating_add(adapter_step_bytes(spec, context, threads))
    }
}

/// Bytes of an adapter of `rank` in F32, the widest dtype of adapters, for every linear layer that adapters may change.
pub fn adapter_bytes(spec: &ModelSpec, rank: usize) -> u64 {
    let module = |matrix: &LinearWeights| {
        let module = matrix.module.as_ref()?;
        let experts = module.experts.saturating_mul(matrix.inputs() as u64);
        Some((module.name.clone(), experts.saturating_add(module.total)))
    };
    // Of a fused layer several matrices are rows.
    let modules: BTreeMap<String, u64> = spec.weights.matrices().filter_map(module).collect();
    let elements = modules.into_values().fold(0, u64::saturating_add).saturating_mul(rank as u64);
    elements.saturating_mul(size_of::<f32>() as u64)
}

/// Bytes that a step takes for the rows of an adapter of `rank`, each of which has it once: their products with `A`, as the kernels
/// of `B` read them, for all matrices that read one input.
pub fn adapter_rows_bytes(spec: &ModelSpec, context: usize, threads: usize, rank: usize) -> u64 {
    let rows = step_rows(spec, context);
    let dense =
        sum(&[product(&[READERS, rows.div_ceil(ADAPTER_ROWS) + PLACES, GROUP]), product(&[READERS, rows, line(rank)])]);
    // An expert that is given any rows reads them by two matrices.
    let of_layer = |experts: usize, chosen: usize| {
        let visits = rows.saturating_mul(chosen);
        let groups = visits.min(visits.div_ceil(ADAPTER_ROWS).saturating_add(experts));
        sum(&[product(&[2, groups, GROUP]), product(&[2, visits, line(rank)])])
    };
    let routed = spec.weights.layers.iter().filter_map(LayerWeights::experts);
    let routed = routed.map(|experts| of_layer(experts.routing.experts, experts.routing.chosen)).max().unwrap_or(0);
    dense.max(routed).saturating_add(product(&[threads, ADAPTER_ROWS, line(rank)]))
}

/// Bytes that a step takes for all adapters together: the activations of a feed-forward layer as floats, and for each thread the input
/// of a task and its products with `B`.
pub fn adapter_step_bytes(spec: &ModelSpec, context: usize, threads: usize) -> u64 {
    let (buffers, rows) = (CpuBuffers::new(spec), step_rows(spec, context));
    let columns = spec.weights.matrices().filter(|matrix| matrix.module.is_some()).map(task_columns).max().unwrap_or(0);
    let input = buffers.operand.saturating_mul(2 * size_of::<f32>()).saturating_add(4 * 64);
    let of_task = input.saturating_add(columns.saturating_mul(size_of::<f32>()));
    product(&[rows, buffers.activated, size_of::<f32>()]).saturating_add(product(&[threads, ADAPTER_ROWS, of_task]))
}

/// The most outputs of `matrix` that a task of a product computes.
fn task_columns(matrix: &LinearWeights) -> usize {
    const MOST: u64 = 1 << 20;
    let row = (matrix.weight.bytes / (matrix.outputs() as u64).max(1)).max(1);
    matrix.outputs().min(usize::try_from(MOST / row).unwrap_or(usize::MAX).saturating_add(64))
}

/// Bytes of a row of `rank` elements as any kernel reads it.
fn line(rank: usize) -> usize {
    rank.saturating_mul(2 * size_of::<f32>()).saturating_add(4 * 64)
}
