#![doc = include_str!("../README.md")]
//!
//! # How it is built
//!
//! There is one file a dtype, in `dtypes/`.
//! A block dtype's file says how its blocks are unpacked. The values of a row and the portable product, which is the oracle
//! of the vector versions, follow from that (`dtypes/blocks.rs`). What is written for an instruction set is in `arch/`. What
//! dtypes share is in files named after what they do; `docs/adding-a-dtype.md` lists them, and the few dtypes that use code of
//! another.
//!
//! A [`Kernel`] is chosen once, when a weight is loaded, for a dtype and the instruction sets of the machine
//! ([`Isa`]). It reads weight bytes exactly as the file stores them and activations in the [`Form`] it asks for.
//! Every output is one sum in one fixed order that depends only on `inputs`: not on the number of tokens or rows in
//! the call, so neither threads nor the way a prompt is chunked change a bit of the result. Kernels that read
//! [`Form::Q8`] give the same bits on every instruction set as well.

#![allow(unsafe_code)]
// What is shared by vector kernels is compiled where there are none too.
#![cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused))]

mod arch;
mod attention;
mod dtypes;
mod element;
mod input;
pub mod isa;
mod ops;
mod order;
mod output;
mod scratch;
#[cfg(test)]
#[allow(dead_code)] // tests/kernels uses more of it
mod testing;
pub mod threads;

#[cfg(target_arch = "x86_64")]
#[doc(hidden)] // for a test
pub use arch::x86_64::prefetch::Reading;
pub use attention::{KvElement, KvTile, Query, STATE, Scoring, Slope, TILE, attend, put_key, put_value};
pub use dtypes::i8::int8_groups;
pub use dtypes::scaled::{BlockScales, RunScales, ZeroPoints, multiply_with_zero_points};
pub use element::Element;
pub use input::int8::Int8Rule;
pub use input::{ColumnsMut, Form, Input};
pub use isa::Isa;
pub use model_factory_dtypes::memory;
pub use ops::columns::{Columns, field, multiply_columns, multiply_shuffled};
pub use ops::conv::convolve;
pub use ops::delta::{CHUNK, DeltaRows, DeltaState, delta_scratch};
pub use ops::routing::{exp_all, sigmoid, softmax, softplus};
pub use ops::rows::{keep_above, match_magnitude};
pub use ops::selective::{ScanRows, ScanState};
pub use ops::transposed::multiply_transposed;
pub use ops::vector::{
    Floats, Gain, add, add_floats, add_scaled, clamped_swiglu, divide_by_rms, gate_sigmoid, geglu, gelu_erf,
    gelu_quick, gelu_tanh, l2_norm, layer_norm, rms_norm, rotate_half, rotate_pairs, scale_floats, soft_cap, swiglu,
    xielu,
};
pub use scratch::{Scratch, swap_scratch};

use dtypes::registry;
use dtypes::scaled::CallScales;
use isa::Sets;
use model_factory_dtypes::{DType, Tier};
use output::Call;
use std::fmt;

/// The matrix product of a [`Registered`] kernel.
///
/// # Safety
/// The processor has the entry's instruction sets. Nothing else: lengths and forms are checked by the types.
type Matmul = unsafe fn(&mut Call<'_>);

/// A kernel as its dtype's file registers it.
#[derive(Clone, Copy)]
struct Registered {
    name: &'static str,
    dtype: DType,
    tier: Tier,
    form: Form,
    sets: Sets,
    /// Whether the scales of blocks lie apart from them.
    scaled: bool,
    matmul: Matmul,
    dequantize: fn(&[u8], &mut [f32]),
}

impl Registered {
    /// The kernel of the same dtype and form by other instruction sets.
    const fn by(self, name: &'static str, sets: Sets, matmul: Matmul) -> Registered {
        Registered { name, sets, matmul, ..self }
    }
}

/// A matrix product for one stored dtype on one instruction set.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// `dtype/isa`: `q8_0/avx512-vnni`.
    pub name: &'static str,
    /// The stored dtype.
    pub dtype: DType,
    /// Whether the hardware multiplies the stored dtype, or what it is widened to in a register.
    pub tier: Tier,
    /// What [`Input`] it reads; for I8 by any rule.
    pub form: Form,
    /// Only [`Kernel::of`] fills this in, against a token that has the entry's sets.
    entry: &'static Registered,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}

impl Kernel {
    /// The fastest kernel for `dtype` that `isa` can run; `None` when there is none for the dtype.
    pub fn select(dtype: DType, isa: Isa) -> Option<Kernel> {
        let entries = registry().iter().find(|entries| entries.first().is_some_and(|entry| entry.dtype == dtype))?;
        Kernel::of(entries, isa)
    }

    /// The first of `entries` that `isa` can run.
    fn of(entries: &'static [Registered], isa: Isa) -> Option<Kernel> {
        let entry = entries.iter().find(|entry| isa.has(entry.sets))?;
        Some(Kernel { name: entry.name, dtype: entry.dtype, tier: entry.tier, form: entry.form, entry })
    }

    /// The dtypes that have kernels.
    pub fn dtypes() -> impl Iterator<Item = DType> {
        registry().iter().filter_map(|entries| entries.first()).map(|entry| entry.dtype)
    }

    /// The names of all kernels that `isa` can run, of each dtype the fastest first.
    pub fn names(isa: Isa) -> impl Iterator<Item = &'static str> {
        registry().iter().copied().flatten().filter(move |entry| isa.has(entry.sets)).map(|entry| entry.name)
    }

    /// Bytes of one stored row of `inputs` elements. Panics when they are no whole number of blocks.
    pub fn row_bytes(&self, inputs: usize) -> usize {
        let (len, bytes) = (self.entry.dtype.block_len(), self.entry.dtype.block_bytes());
        assert!(inputs.is_multiple_of(len), "{inputs} elements are no whole number of blocks of {len}");
        inputs / len * bytes
    }

    /// `y[token][row] = sum over i of weight[row][i] * x[token][i]` for the rows whose bytes are `weight`.
    ///
    /// `weight` holds whole rows of `inputs` stored elements, at any alignment; `y` is `[tokens, rows]`, overwritten.
    /// Panics when lengths or forms do not match, and for a dtype whose blocks have their scales elsewhere.
    ///
    /// # Errors
    /// When there is no memory for what it unpacks; `y` is unspecified then.
    pub fn matmul(&self, weight: &[u8], input: &Input, y: &mut [f32]) -> memory::Result<()> {
        assert!(!self.entry.scaled, "{} multiplies scaled blocks", self.entry.name);
        self.multiply(weight, CallScales::InBlocks, None, input, y)
    }

    /// The same of blocks of 32 elements whose scales, those of all rows, lie apart. Panics for any other dtype.
    ///
    /// # Errors
    /// As [`matmul`](Self::matmul).
    pub fn matmul_scaled(
        &self,
        weight: &[u8],
        scales: BlockScales<'_>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        assert!(self.entry.scaled, "{} has its scales in it", self.entry.name);
        let (inputs, mut spread) = (input.inputs(), Default::default());
        let rows = weight.len() / self.row_bytes(inputs);
        let scales = scales.of_blocks([rows, inputs], self.bits(), &mut spread)?;
        self.multiply(weight, scales, None, input, y)
    }

    /// Like [`matmul`](Self::matmul), with products multiplied by a scale for each row of the weight, or by one for all. Panics when
    /// there are not as many.
    ///
    /// # Errors
    /// As [`matmul`](Self::matmul).
    pub fn matmul_row_scaled(
        &self,
        isa: Isa,
        weight: &[u8],
        scales: Floats<'_>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        assert!(!self.entry.scaled, "{} multiplies scaled blocks", self.entry.name);
        self.multiply(weight, CallScales::InBlocks, Some((isa, scales)), input, y)
    }

    fn multiply(
        &self,
        weight: &[u8],
        scales: CallScales<'_>,
        of_rows: Option<(Isa, Floats<'_>)>,
        input: &Input,
        y: &mut [f32],
    ) -> memory::Result<()> {
        assert!(self.entry.form.is_read_as(input.form()), "the form of the activations that {} reads", self.name);
        let row_bytes = self.row_bytes(input.inputs());
        assert!(weight.len().is_multiple_of(row_bytes), "{} bytes are no rows of {row_bytes}", weight.len());
        let rows = weight.len() / row_bytes;
        let mut call = Call::new(weight, scales, input, rows, y);
        call.row_scales = of_rows.map(|(_, scales)| scales);
        if rows > 0 && input.tokens() > 0 {
            // SAFETY: `of` compared the entry's instruction sets with those of a token.
            unsafe { (self.entry.matmul)(&mut call) };
            if let Some((isa, _)) = of_rows {
                call.scale_rows(isa);
            }
        }
        call.into_result()
    }

    /// Whether many tokens are multiplied by tiles.
    fn is_by_tiles(&self) -> bool {
        self.entry.sets.has(Sets::AMX)
    }

    /// Bits of an element where each has as many.
    fn bits(&self) -> usize {
        8 * self.entry.dtype.block_bytes() / self.entry.dtype.block_len()
    }

    /// Writes the values of one stored row into `out`, as the dtype defines them (embedding lookup).
    /// Panics when `row` does not hold `out.len()` elements.
    pub fn dequantize_row(&self, row: &[u8], out: &mut [f32]) {
        assert_eq!(row.len(), self.row_bytes(out.len()), "bytes of {} elements", out.len());
        (self.entry.dequantize)(row, out);
    }

    /// The same of blocks whose scales, those of the row, lie apart. Panics when there are not as many as that takes.
    pub fn dequantize_scaled_row(&self, row: &[u8], scales: BlockScales<'_>, out: &mut [f32]) {
        self.dequantize_row(row, out);
        scales.apply(self.bits(), out);
    }
}

/// The lanes that an output's sum is made of: lane `i` adds up the elements (or, in block formats, the blocks) whose
/// number is `i` modulo this, in order.
const LANES: usize = 16;

/// The end of every sum: lanes added in pairs 8 apart, then 4, 2, 1.
#[inline(always)]
fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}
