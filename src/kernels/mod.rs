//! Stored weights times activations: one file a dtype, a portable oracle and vector versions in each.
//!
//! A [`Kernel`] is chosen once, when a weight is loaded, for a dtype and the instruction sets of the machine
//! ([`Isa`]). It reads weight bytes exactly as the file stores them and activations in the [`Form`] it asks for.
//! Every output is one sum in one fixed order that depends on `inputs` alone: not on the number of tokens or rows in
//! the call, so neither threads nor the way a prompt is chunked change a bit of the result.

pub mod isa;

pub use isa::Isa;

use model_diagnostics::{DType, capability::Tier};

/// How a kernel reads activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// 32-bit floats as they are.
    F32,
    /// Rounded to the nearest BF16, ties to even.
    Bf16,
    /// Blocks of 32: signed bytes `round(x / scale)` with `scale = absmax / 127` in f32, and the sum of the bytes.
    Q8,
}

/// The activations of some tokens `[tokens, inputs]` in the form that kernels read.
pub struct Input {
    form: Form,
    tokens: usize,
    inputs: usize,
}

impl Input {
    /// Brings `x` `[tokens, inputs]` into `form`.
    /// Panics if `x` is no whole number of rows, or `inputs` is no multiple of 32 for [`Form::Q8`].
    pub fn prepare(_isa: Isa, form: Form, x: &[f32], inputs: usize) -> Input {
        Input { form, tokens: x.len() / inputs, inputs }
    }

    /// Rows.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

/// A matrix product for one stored dtype on one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// `dtype/isa`: `q8_0/avx512-vnni`.
    pub name: &'static str,
    /// The stored dtype.
    pub dtype: DType,
    /// Whether the hardware multiplies the stored dtype or a register-wide widening of it.
    pub tier: Tier,
    /// What [`Input`] it reads.
    pub form: Form,
}

impl Kernel {
    /// The fastest kernel for `dtype` that `isa` can run; `None` when there is none for the dtype.
    pub fn select(_dtype: DType, _isa: Isa) -> Option<Kernel> {
        None
    }

    /// `y[token][row] = sum over i of weight[row][i] * x[token][i]` for the rows whose bytes are `weight`.
    ///
    /// `weight` holds whole rows of `inputs` stored elements, at any alignment; `y` is `[tokens, rows]`, overwritten.
    /// Panics when lengths or forms do not match.
    pub fn matmul(&self, weight: &[u8], input: &Input, y: &mut [f32]) {
        assert_eq!((self.form, input.inputs), (input.form, input.inputs));
        let _ = (weight, y);
    }

    /// Widens one stored row into `out` without loss of what the dtype defines (embedding lookup).
    pub fn widen(&self, row: &[u8], out: &mut [f32]) {
        let _ = (row, out);
    }
}
