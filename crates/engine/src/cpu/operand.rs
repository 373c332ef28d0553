//! Activations in the forms that kernels read, in memory that later products use again.

use super::adapters::Adapted;
use crate::kernels::{Form, Input, Isa};
use crate::memory;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Inputs of the last products, kept for their memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Input>>>);

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Vec<Input>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An input for rows of `width` in `form`: preferably one that had such rows, so that not all of them grow to the
    /// widest, and never one of another form, which has no memory for it.
    fn take(&self, width: usize, form: Form) -> Input {
        let mut spare = self.lock();
        let of_form = |input: &Input| input.form().is_read_as(form);
        let alike = spare.iter().position(|input| of_form(input) && input.inputs() == width);
        let index = alike.or_else(|| spare.iter().rposition(of_form));
        index.map(|index| spare.swap_remove(index)).unwrap_or_default()
    }
}

/// The same activations in every form that the weights of one operation read.
#[derive(Debug, Default)]
pub(super) struct Operands {
    spare: Spare,
    forms: Vec<Input>,
    /// What adapters make of some of them.
    pub(super) adapted: Vec<Adapted>,
}

impl Operands {
    /// `prepare(input, form)` brings them into each of `forms`, which may repeat.
    pub(super) fn prepare(
        spare: &Spare,
        forms: impl Iterator<Item = Form>,
        width: usize,
        prepare: impl Fn(&mut Input, Form) -> memory::Result<()>,
    ) -> memory::Result<Operands> {
        let mut operands = Operands { spare: spare.clone(), forms: Vec::with_capacity(1), adapted: Vec::new() };
        for form in forms {
            if !operands.forms.iter().any(|input| input.form() == form) {
                let mut input = spare.take(width, form);
                prepare(&mut input, form)?;
                operands.forms.push(input);
            }
        }
        Ok(operands)
    }

    /// The rows that `row` gives in each of `forms`, converted on this thread, in memory that is not kept.
    pub(super) fn gather<'x>(
        isa: Isa,
        forms: impl Iterator<Item = Form>,
        tokens: usize,
        width: usize,
        row: impl Fn(usize) -> &'x [f32],
    ) -> memory::Result<Operands> {
        let spare = Spare::default();
        Operands::prepare(&spare, forms, width, |input, form| input.gather(isa, form, tokens, width, &row))
    }

    /// The input that a matrix of this form reads; `prepare` was called with the form.
    pub(super) fn of(&self, form: Form) -> &Input {
        let found = self.forms.iter().find(|input| input.form() == form);
        found.unwrap_or_else(|| unreachable!("every form of the operation's matrices was prepared"))
    }
}

impl Drop for Operands {
    fn drop(&mut self) {
        if !self.forms.is_empty() {
            self.spare.lock().append(&mut self.forms);
        }
    }
}
