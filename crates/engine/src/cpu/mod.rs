//! The processor: the decoder's operations as parallel regions over kernels.
//!
//! Each operation is one or two parallel regions over the rows of its weights and fuses what would otherwise be a pass
//! over memory of its own: the norm before, the residual sum or the gated activation after.

mod activation;
mod adapters;
mod attention;
mod columns;
#[allow(missing_debug_implementations)] // what a pass works in
mod device;
mod disentangled;
mod embedding;
mod encoder;
mod experts;
mod heads;
mod hidden_states;
mod latent;
mod matrix;
mod norm;
mod operand;
mod page;
mod recurrent;
mod routing;
mod runs;
mod scratch;
mod soft_tokens;
mod streams;
mod vision;

pub use matrix::Matrix;
pub use norm::NormVectors;

use crate::decoder::PageKind;
use crate::kernels::{self, Isa};
use crate::memory::{self, Refusals};
use crate::threads::Pool;
use model_factory_spec::plan::{ActivationDtype, CpuBuffers, KvDtype, Plan};
use model_factory_spec::spec::{ModelSpec, VisionSpec};
use operand::{Operands, Spare};
use page::PageLayout;
use scratch::LeaderScratch;
use std::ops::Range;
use std::sync::Arc;

/// Rows of one task where rows are computed separately: enough to reuse a page of keys while it is in the cache.
const TASK_ROWS: usize = 16;

/// The processor as one model uses it.
#[derive(Debug)]
pub struct CpuDevice {
    isa: Isa,
    pool: Arc<Pool>,
    spare: Spare,
    leaders: LeaderScratch,
    buffers: CpuBuffers,
    layout: PageLayout,
    activations: ActivationDtype,
}

impl CpuDevice {
    /// Computes `spec` with the instruction sets of `isa` on the threads of `pool`, with a cache and activations of the dtypes of
    /// `plan`.
    pub fn new(spec: &ModelSpec, isa: Isa, pool: Arc<Pool>, plan: &Plan) -> CpuDevice {
        CpuDevice {
            isa,
            pool,
            spare: Spare::default(),
            leaders: LeaderScratch::default(),
            buffers: CpuBuffers::new(spec),
            layout: PageLayout::new(spec, plan.kv_dtype),
            activations: plan.activation_dtype,
        }
    }

    /// Computes the tower `spec`, as [`new`](Self::new) a model; nothing is cached.
    pub fn of_tower(spec: &VisionSpec, isa: Isa, pool: Arc<Pool>, activations: ActivationDtype) -> CpuDevice {
        CpuDevice {
            isa,
            pool,
            spare: Spare::default(),
            leaders: LeaderScratch::default(),
            buffers: CpuBuffers::of_tower(spec),
            layout: PageLayout::uncached(&spec.weights.layers),
            activations,
        }
    }

    /// The instruction sets it computes with.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The dtype of its KV caches.
    pub fn kv_dtype(&self) -> KvDtype {
        self.layout.dtype
    }

    /// What activations are rounded to where their format prescribes 16 bits.
    pub fn activations(&self) -> ActivationDtype {
        self.activations
    }

    /// Calls `take` with the ranges of the bytes of a page of a kind that hold its first `slots` positions, in order; a
    /// full page is one.
    ///
    /// # Errors
    /// Errors of `take`.
    pub fn each_used<E>(
        &self,
        (kind, slots): (PageKind, usize),
        take: impl FnMut(Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.layout.each_used((kind, slots), take)
    }

    /// The products of `operands` with `matrices`, side by side: `y` `[tokens, sum of the outputs]`.
    fn multiply(&self, matrices: &[&Matrix], operands: &Operands, tokens: usize, y: &mut [f32]) -> memory::Result<()> {
        self.multiply_add(matrices, operands, tokens, None, y)
    }

    /// Like [`multiply`](Self::multiply); with a `scale`, `y` += `scale` times the products.
    fn multiply_add(
        &self,
        matrices: &[&Matrix],
        operands: &Operands,
        tokens: usize,
        scale: Option<f32>,
        y: &mut [f32],
    ) -> memory::Result<()> {
        let bounds = self.column_bounds(tokens, matrices)?;
        let refusals = Refusals::default();
        self.pool.run_grid(y, *bounds.last().unwrap_or(&0), tokens, &bounds, &|tile, y| {
            let (matrix, rows) = matrix::locate(matrices, &tile.columns);
            if tokens == 1 && scale.is_none() {
                return refusals.note(matrix.rows(self.isa, rows, operands, y.row(0)));
            }
            refusals.note(scratch::with_scratch(tokens * rows.len(), |scratch| {
                matrix.rows(self.isa, rows.clone(), operands, scratch)?;
                for (token, product) in scratch.chunks_exact(rows.len()).enumerate() {
                    match scale {
                        Some(scale) => self.add(y.row(token), product, scale),
                        None => y.row(token).copy_from_slice(product),
                    }
                }
                Ok(())
            }));
        });
        refusals.into_result()
    }

    /// `y += scale * x`.
    fn add(&self, y: &mut [f32], x: &[f32], scale: f32) {
        if scale == 1.0 { kernels::add(self.isa, y, x) } else { kernels::add_scaled(self.isa, y, x, scale) }
    }

    /// `hidden` += `scale` times the norm of every row of `product`.
    fn norm_add(&self, norm: &NormVectors, product: &[f32], scale: f32, hidden: &mut [f32]) -> memory::Result<()> {
        let width = norm.width;
        self.each_row(hidden, width, |row, hidden| {
            scratch::with_scratch(width, |normed| {
                norm.apply(self.isa, &product[row * width..][..width], normed);
                self.add(hidden, normed, scale);
                Ok(())
            })
        })
    }

    /// `x` `[rows, width]` = the norm of each row.
    fn norm_rows(&self, norm: &NormVectors, x: &mut [f32]) -> memory::Result<()> {
        self.each_row(x, norm.width, |_, x| norm.apply_in_place(self.isa, 0, x))
    }

    /// Calls `change(row, x)` with every row of `x` `[rows, width]`.
    fn each_row(
        &self,
        x: &mut [f32],
        width: usize,
        change: impl Fn(usize, &mut [f32]) -> memory::Result<()> + Sync,
    ) -> memory::Result<()> {
        let refusals = Refusals::default();
        self.pool.run_grid(x, width, TASK_ROWS, &[0, width], &|tile, x| {
            tile.rows.clone().for_each(|row| refusals.note(change(row, x.row(row))));
        });
        refusals.into_result()
    }

    /// Every row of `x`, normed where there is a norm, in every form that `matrices` read.
    fn normed(&self, norm: Option<&NormVectors>, x: &[f32], matrices: &[&Matrix]) -> memory::Result<Operands> {
        let width = matrices.first().map_or(1, |matrix| matrix.inputs);
        Operands::prepare(&self.spare, matrices.iter().map(|matrix| matrix.form), width, |input, form| {
            let Some(norm) = norm else { return input.convert(&self.pool, self.isa, form, x, width) };
            input.fill(&self.pool, self.isa, form, x.len() / width, width, |token, row| {
                norm.apply(self.isa, &x[token * width..][..width], row);
            })
        })
    }
}
