//! Vectors in place of ids.

use super::CpuDevice;
use super::device::CpuPass;
use crate::decoder::{Sequence, SoftTokenRows};
use crate::kernels;
use std::ops::Range;

impl SoftTokenRows<CpuDevice> for CpuDevice {
    fn place(&self, pass: &mut CpuPass<'_>) {
        let CpuPass { batch, hidden, .. } = pass;
        let width = hidden.len() / batch.rows.max(1);
        for sequence in &batch.sequences {
            each_part(sequence, |rows, index, part| {
                let values = sequence.spans[index].tokens.values();
                let values = &values[part.start * width..part.end * width];
                hidden[rows.start * width..rows.end * width].copy_from_slice(values);
            });
        }
    }

    fn add_after(&self, pass: &mut CpuPass<'_>, layer: usize) {
        let CpuPass { batch, hidden, .. } = pass;
        let width = hidden.len() / batch.rows.max(1);
        for sequence in &batch.sequences {
            each_part(sequence, |rows, index, part| {
                if let Some(values) = sequence.spans[index].tokens.deepstack().get(layer) {
                    let values = &values[part.start * width..part.end * width];
                    kernels::add(self.isa, &mut hidden[rows.start * width..rows.end * width], values);
                }
            });
        }
    }
}

/// Calls `take` with the rows of `sequence` that are of soft tokens, the index of the span, and which of its rows they
/// are.
fn each_part(sequence: &Sequence<'_>, mut take: impl FnMut(Range<usize>, usize, Range<usize>)) {
    let positions = sequence.start..sequence.start + sequence.rows.len();
    for (index, span) in sequence.spans.iter().enumerate() {
        let of_span = span.range();
        let shared = of_span.start.max(positions.start)..of_span.end.min(positions.end);
        if !shared.is_empty() {
            let row = |position: usize| sequence.rows.start + position - positions.start;
            let part = shared.start - of_span.start..shared.end - of_span.start;
            take(row(shared.start)..row(shared.end), index, part);
        }
    }
}
