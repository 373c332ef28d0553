//! Routed feed-forward layers: rows are grouped by the experts that they are given to, so that a pass reads each
//! expert's weights once, and those of no other.
//!
//! Two parallel regions read the weights of all experts together: tasks are parts of experts in the first, and columns
//! of all of them in the second, where a task adds up the experts' outputs for a row in the order of their indices.

use super::activation::activate;
use super::adapters::Reader;
use super::device::CpuPass;
use super::operand::Operands;
use super::routing::{Choice, choose};
use super::{CpuDevice, Matrix, NormVectors, scratch};
use crate::decoder::{Batch, ExpertLayers, Output};
use crate::memory::{self, Refusals, Result};
use crate::{error, kernels};
use model_factory_spec::block::ExpertInput;
use model_factory_spec::spec::{BesideWeights, ExpertGates, ExpertsWeights, SharedExpert};
use std::ops::Range;

/// Bytes of the experts' weights that a task reads at a time while one row is computed.
const TASK_BYTES: usize = 512 << 10;

/// Columns of a task that adds up the outputs of the experts of many rows: their sums stay in the second-level cache.
const SUM_COLUMNS: usize = 128;

/// The experts that rows are given to, and what the down projections read.
#[derive(Debug, Default)]
pub(super) struct Routed {
    /// The experts that rows are given to, by index.
    visits: Vec<Visit>,
    /// The rows of all visits, one visit after the other, in ascending order in each.
    rows: Vec<VisitRow>,
    /// The input of the down projection of each visit.
    activated: Vec<Operands>,
    shared: Option<SharedRows>,
}

#[derive(Clone, Debug)]
struct Visit {
    expert: usize,
    /// The range of this visit in [`Routed::rows`].
    rows: Range<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct VisitRow {
    row: usize,
    weight: f32,
}

/// The input of the down projection of the shared expert, and the factor of the output of each row.
#[derive(Debug)]
struct SharedRows {
    activated: Operands,
    weights: Vec<f32>,
}

impl ExpertLayers<CpuDevice> for CpuDevice {
    fn route(&self, pass: &mut CpuPass<'_>, experts: &ExpertsWeights<Self>) -> error::Result<()> {
        pass.routed = Routed::default(); // the last layer's memory is free
        let (visits, rows) = self.visits(&pass.hidden, experts)?;
        pass.routed = Routed { visits, rows, ..Routed::default() };
        Ok(())
    }

    fn norm_route_activate(
        &self,
        pass: &mut CpuPass<'_>,
        norm: Option<&NormVectors>,
        experts: &ExpertsWeights<Self>,
    ) -> error::Result<()> {
        // The last layer's memory is free.
        let Routed { visits, rows, .. } = std::mem::take(&mut pass.routed);
        let hidden = &pass.hidden;
        let width = experts.router.inputs;
        let tokens = hidden.len() / width;
        let normed = |norm: Option<&NormVectors>| {
            let mut normed = memory::zeros(hidden.len(), "the input of experts")?;
            self.pool.chunks(&mut normed, width, |row, out| {
                let x = &hidden[row * width..][..width];
                match norm {
                    Some(norm) => norm.apply(self.isa, x, out),
                    None => out.copy_from_slice(x),
                }
            });
            Result::Ok(normed)
        };
        let of_router = experts.router_norm.as_ref().map(|norm| normed(Some(norm))).transpose()?;
        let normed = normed(norm)?;
        let (visits, mut rows) = match experts.input {
            ExpertInput::RouterBefore => (visits, rows),
            _ => self.visits(of_router.as_ref().unwrap_or(&normed), experts)?,
        };
        let activated = match experts.input {
            ExpertInput::Weighed => {
                let (inputs, each) = self.weighed(&normed, width, &mut rows)?;
                self.activate_visits(&pass.batch, &inputs, experts, &visits, [&each, &rows])?
            }
            _ => self.activate_visits(&pass.batch, &normed, experts, &visits, [&rows, &rows])?,
        };
        let shared = experts.shared.as_ref().map(|shared| self.activate_shared(&pass.batch, &normed, tokens, shared));
        let shared = shared.transpose()?;
        pass.routed = Routed { visits, rows, activated, shared };
        Ok(())
    }

    fn experts_add(
        &self,
        pass: &mut CpuPass<'_>,
        experts: &ExpertsWeights<Self>,
        dense: Option<&BesideWeights<Self>>,
        output: Output<'_, Self>,
    ) -> error::Result<()> {
        let CpuPass { batch, hidden, mixed, activated, routed, product, .. } = pass;
        let rows = batch.rows;
        let Some(BesideWeights { dense, output_norm, experts_norm, .. }) = dense else {
            return Ok(self.add_routed(routed, rows, experts, output, product, hidden)?);
        };
        mixed.resize(rows * self.buffers.hidden, 0.0);
        mixed.fill(0.0);
        let [output_norm, experts_norm] =
            [output_norm, experts_norm].map(|norm| Output { norm: norm.as_ref(), scale: 1.0 });
        self.add_product(activated, rows, &dense.down, output_norm, product, mixed)?;
        self.add_routed(routed, rows, experts, experts_norm, product, mixed)?;
        match output {
            Output { norm: Some(norm), scale } => self.norm_add(norm, mixed, scale, hidden)?,
            Output { norm: None, scale } => self.add(hidden, mixed, scale),
        }
        Ok(())
    }
}

impl CpuDevice {
    fn visits(&self, normed: &[f32], experts: &ExpertsWeights<Self>) -> Result<(Vec<Visit>, Vec<VisitRow>)> {
        let (router, routing) = (&experts.router, &experts.routing);
        let choice_bias = experts.choice_bias.as_deref().unwrap_or_default();
        let tokens = normed.len() / router.inputs;
        let operands = self.normed(None, normed, &[router])?;
        let mut scores = memory::zeros(tokens * routing.experts, "the outputs of a router")?;
        self.multiply(&[router], &operands, tokens, &mut scores)?;
        let none = Choice::default();
        let mut chosen = memory::reserved(tokens * routing.chosen, "the experts of rows")?;
        chosen.resize(tokens * routing.chosen, none);
        let each = scores.chunks_exact_mut(routing.experts).zip(chosen.chunks_exact_mut(routing.chosen));
        each.for_each(|(scores, chosen)| {
            choose(self.isa, routing, choice_bias, scores, chosen);
            if let Some(scales) = &experts.expert_scales {
                chosen.iter_mut().for_each(|choice| choice.weight *= scales[choice.expert]);
            }
        });

        // The ends of the rows of each expert; at first their beginnings.
        let mut ends: Vec<usize> = memory::zeros(routing.experts, "the experts of rows")?;
        chosen.iter().for_each(|choice| ends[choice.expert] += 1);
        let used = ends.iter().filter(|count| **count > 0).count();
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        let mut rows = memory::reserved(chosen.len(), "the rows of experts")?;
        rows.resize(chosen.len(), VisitRow::default());
        for (row, chosen) in chosen.chunks_exact(routing.chosen).enumerate() {
            for Choice { expert, weight } in chosen {
                rows[ends[*expert]] = VisitRow { row, weight: *weight };
                ends[*expert] += 1;
            }
        }
        let mut visits = memory::reserved(used, "the rows of experts")?;
        let mut start = 0;
        for (expert, end) in ends.into_iter().enumerate() {
            if end > start {
                visits.push(Visit { expert, rows: start..end });
                start = end;
            }
        }
        Ok((visits, rows))
    }

    /// The input of each of `rows`, a row of `normed` times its weight, and the numbers of these inputs. Outputs have no weight
    /// then; one that is no number stays, for an input of it need not give one in every dtype.
    fn weighed(&self, normed: &[f32], width: usize, rows: &mut [VisitRow]) -> Result<(Vec<f32>, Vec<VisitRow>)> {
        let mut inputs = memory::zeros(rows.len() * width, "the weighed inputs of experts")?;
        self.pool.chunks(&mut inputs, width, |index, out| {
            let VisitRow { row, weight } = rows[index];
            out.iter_mut().zip(&normed[row * width..]).for_each(|(out, x)| *out = weight * x);
        });
        rows.iter_mut().filter(|row| !row.weight.is_nan()).for_each(|row| row.weight = 1.0);
        let each = rows.iter().enumerate().map(|(row, of)| VisitRow { row, weight: of.weight });
        Ok((inputs, memory::collected(each, "the rows of experts")?))
    }

    /// Computes the input of the down projection of each visit: `rows` are those of `normed`, and those of `batch`.
    fn activate_visits(
        &self,
        batch: &Batch<'_>,
        normed: &[f32],
        experts: &ExpertsWeights<Self>,
        visits: &[Visit],
        [rows, of_batch]: [&[VisitRow]; 2],
    ) -> Result<Vec<Operands>> {
        let ExpertsWeights { up, activation, down, .. } = experts;
        let width = experts.router.inputs;
        let (gate, feed_forward) = (activation.gate().and_then(ExpertGates::apart), experts.feed_forward());
        // Rows of the up projection for each column of the down projection, and rows of gates in front of them.
        let (turns, in_front) = match activation.gate() {
            Some(ExpertGates::InTurns) => (2, 0),
            Some(ExpertGates::InFront) => (1, feed_forward),
            _ => (1, 0),
        };
        let readers = |visit: &Visit| {
            let gate = gate.map(|gate| Reader::of(gate, visit.expert));
            std::iter::once(Reader::of(up, visit.expert)).chain(gate)
        };
        let inputs = if normed.len() == width {
            // All experts read the one row.
            let all = || visits.iter().flat_map(readers);
            let mut one = Operands::gather(self.isa, all().map(|reader| reader.matrix.form), 1, width, |_| normed)?;
            self.adapt_here(&mut one, batch, all(), std::iter::once(0), |_, out| out.copy_from_slice(normed))?;
            vec![one]
        } else {
            let row = |index: usize| &normed[rows[index].row * width..][..width];
            self.gathered((batch, of_batch), visits, readers, width, row)?
        };
        let mut activated = memory::zeros(rows.len() * feed_forward, "the activations of experts")?;
        let mut bands = memory::reserved(visits.len() + 1, "the tasks of experts")?;
        bands.push(0);
        bands.extend(visits.iter().map(|visit| visit.rows.end));
        let columns = self.expert_bounds(up.of(0).0, feed_forward, visits.len(), rows.len())?;
        let refusals = Refusals::default();
        self.pool.run_bands(&mut activated, feed_forward, &bands, &columns, &|band, tile, out| {
            let expert = visits[band].expert;
            let input = inputs.get(band).unwrap_or(&inputs[0]);
            let (count, columns) = (tile.rows.len(), tile.columns.clone());
            let product = |(matrix, first): (&Matrix, usize), y: &mut [f32]| {
                matrix.rows(self.isa, first + turns * columns.start..first + turns * columns.end, input, y)
            };
            refusals.note(scratch::with_scratch(2 * (count + 1) * columns.len(), |scratch| {
                if turns == 2 {
                    let (both, row) = scratch.split_at_mut(2 * count * columns.len());
                    product(up.of(expert), both)?;
                    let (gate, up) = row.split_at_mut(columns.len());
                    for (both, out) in both.chunks_exact(2 * columns.len()).zip(out.rows()) {
                        for (([of_gate, of_up], gate), up) in both.as_chunks().0.iter().zip(&mut *gate).zip(&mut *up) {
                            (*gate, *up) = (*of_gate, *of_up);
                        }
                        activate(self.isa, (activation, None), [gate, up], out);
                    }
                    return Ok(());
                }
                let scratch = &mut scratch[..2 * count * columns.len()];
                let (up_rows, gate_rows) = scratch.split_at_mut(count * columns.len());
                let (of_up, first) = up.of(expert);
                product((of_up, first + in_front), up_rows)?;
                match gate {
                    Some(gate) => product(gate.of(expert), gate_rows)?,
                    None if in_front > 0 => product((of_up, first), gate_rows)?,
                    None => gate_rows.fill(0.0),
                }
                for (index, out) in out.rows().enumerate() {
                    let at = index * columns.len()..(index + 1) * columns.len();
                    activate(self.isa, (activation, None), [&gate_rows[at.clone()], &up_rows[at]], out);
                }
                Ok(())
            }));
        });
        refusals.into_result()?;
        let readers = |visit: &Visit| std::iter::once(Reader::of(down, visit.expert));
        let row = |index: usize| &activated[index * feed_forward..][..feed_forward];
        self.gathered((batch, of_batch), visits, readers, feed_forward, row)
    }

    /// The rows of each visit, of `width` elements, which `row` gives for [`Routed::rows`], in the forms that its `readers` read, and
    /// what adapters make of them.
    fn gathered<'x, 'm, F: Iterator<Item = Reader<'m>>>(
        &self,
        (batch, of_batch): (&Batch<'_>, &[VisitRow]),
        visits: &[Visit],
        readers: impl Fn(&Visit) -> F + Sync,
        width: usize,
        row: impl Fn(usize) -> &'x [f32] + Sync,
    ) -> Result<Vec<Operands>> {
        let mut gathered = memory::reserved(visits.len(), "the operands of experts")?;
        gathered.resize_with(visits.len(), Operands::default);
        let refusals = Refusals::default();
        self.pool.chunks(&mut gathered, 1, |index, out| {
            let visit = &visits[index];
            let rows = |index| row(visit.rows.start + index);
            let forms = readers(visit).map(|reader| reader.matrix.form);
            let made = Operands::gather(self.isa, forms, visit.rows.len(), width, rows).and_then(|made| {
                out[0] = made;
                let places = visit.rows.clone().map(|index| of_batch[index].row);
                self.adapt_here(&mut out[0], batch, readers(visit), places, |token, to| to.copy_from_slice(rows(token)))
            });
            refusals.note(made);
        });
        refusals.into_result()?;
        Ok(gathered)
    }

    fn activate_shared(
        &self,
        batch: &Batch<'_>,
        normed: &[f32],
        tokens: usize,
        shared: &SharedExpert<Self>,
    ) -> Result<SharedRows> {
        let inputs = self.adapted(batch, None, normed, &shared.dense.inputs())?;
        let activated = self.up_activate(batch, &inputs, tokens, &shared.dense)?;
        let mut weights = memory::zeros(tokens, "the weights of the shared expert")?;
        match &shared.router {
            Some(router) => {
                self.multiply(&[router], &self.normed(None, normed, &[router])?, tokens, &mut weights)?;
                kernels::sigmoid(self.isa, &mut weights);
            }
            None => weights.fill(1.0),
        }
        Ok(SharedRows { activated, weights })
    }

    /// `to` += the weighted sum of the outputs, normed and multiplied as `output` says; `product` is scratch.
    fn add_routed(
        &self,
        routed: &Routed,
        rows: usize,
        experts: &ExpertsWeights<Self>,
        Output { norm, scale }: Output<'_, Self>,
        product: &mut [f32],
        to: &mut [f32],
    ) -> Result<()> {
        let Some(norm) = norm else { return self.add_experts(routed, rows, experts, scale, to) };
        let product = &mut product[..rows * self.buffers.output];
        product.fill(0.0);
        self.add_experts(routed, rows, experts, 1.0, product)?;
        self.norm_add(norm, product, scale, to)
    }

    /// `hidden` += `scale` times the weighted sum of the experts' outputs, the shared one last, and that sum's own factor.
    fn add_experts(
        &self,
        routed: &Routed,
        tokens: usize,
        experts: &ExpertsWeights<Self>,
        scale: f32,
        hidden: &mut [f32],
    ) -> Result<()> {
        let Routed { visits, rows, activated, shared } = routed;
        let (shared, scale) = (shared.as_ref().zip(experts.shared.as_ref()), scale * experts.scale);
        let width = experts.down.outputs;
        let routed_bytes: usize = visits.iter().map(|visit| experts.down.of(visit.expert).0.row_bytes()).sum();
        let a_column = routed_bytes + shared.map_or(0, |(_, shared)| shared.dense.down.row_bytes());
        let bounds = self.sum_bounds(width, a_column, tokens, experts.down.of(0).0.tile())?;
        let most = visits.iter().map(|visit| visit.rows.len()).chain(shared.map(|_| tokens)).max().unwrap_or(0);
        let refusals = Refusals::default();
        self.pool.run_grid(hidden, width, tokens, &bounds, &|tile, hidden| {
            let columns = tile.columns.clone();
            let len = columns.len();
            refusals.note(scratch::with_scratch((tokens + most) * len, |scratch| {
                let (sums, products) = scratch.split_at_mut(tokens * len);
                sums.fill(0.0);
                for (visit, input) in visits.iter().zip(activated) {
                    let (down, first) = experts.down.of(visit.expert);
                    let y = &mut products[..visit.rows.len() * len];
                    down.rows(self.isa, first + columns.start..first + columns.end, input, y)?;
                    for (VisitRow { row, weight }, y) in rows[visit.rows.clone()].iter().zip(y.chunks_exact(len)) {
                        kernels::add_scaled(self.isa, &mut sums[row * len..][..len], y, *weight);
                    }
                }
                if let Some((of, shared)) = shared {
                    let y = &mut products[..tokens * len];
                    shared.dense.down.rows(self.isa, columns.clone(), &of.activated, y)?;
                    for ((sum, weight), y) in sums.chunks_exact_mut(len).zip(&of.weights).zip(y.chunks_exact(len)) {
                        kernels::add_scaled(self.isa, sum, y, *weight);
                    }
                }
                for (hidden, sum) in hidden.rows().zip(sums.chunks_exact(len)) {
                    self.add(hidden, sum, scale);
                }
                Ok(())
            }));
        });
        refusals.into_result()
    }

    /// The columns of an expert that tasks compute, where `visits` experts have `rows` rows together.
    fn expert_bounds(&self, matrix: &Matrix, outputs: usize, visits: usize, rows: usize) -> Result<Vec<usize>> {
        let left = visits * outputs * matrix.row_bytes();
        let each = matrix.rows_per_task(left, rows.div_ceil(visits.max(1)), self.pool.threads());
        let mut bounds = memory::reserved(outputs.div_ceil(each) + 1, "the tasks of experts")?;
        bounds.extend((0..outputs).step_by(each));
        bounds.push(outputs);
        Ok(bounds)
    }

    /// The columns that tasks add up, each of which takes `a_column` bytes of weights.
    fn sum_bounds(&self, width: usize, a_column: usize, tokens: usize, tile: usize) -> Result<Vec<usize>> {
        let (tile, most) = if tokens == 1 { (tile, width) } else { (32, SUM_COLUMNS) };
        let mut bounds = memory::reserved(width.div_ceil(tile) + 1, "the tasks of experts")?;
        let mut start = 0;
        bounds.push(0);
        while start < width {
            let bytes = ((width - start) * a_column / (2 * self.pool.threads())).min(TASK_BYTES);
            let columns = (bytes / a_column.max(1) / tile * tile).clamp(tile, most.max(tile));
            start = (start + columns).min(width);
            bounds.push(start);
        }
        Ok(bounds)
    }
}
