//! Memory that may be refused: what grows with tokens or with the vocabulary is reserved here, so that running out of it is
//! an error, and the process lives on.

use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;
use std::fmt;
use std::sync::OnceLock;

/// An allocation that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The name of what was being reserved.
    pub what: &'static str,
    /// The bytes that were asked for.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfMemory { what, bytes } = self;
        write!(f, "out of memory: the system refuses {bytes} bytes for {what}; ")?;
        f.write_str("free some, or load with a smaller context or a lower memory limit")
    }
}

impl std::error::Error for OutOfMemory {}

/// A result whose error is a refused allocation.
pub type Result<T> = std::result::Result<T, OutOfMemory>;

/// Makes room for exactly `more` elements after those of `vec`.
pub fn reserve<T>(vec: &mut Vec<T>, more: usize, what: &'static str) -> Result<()> {
    vec.try_reserve_exact(more).map_err(|_| refused::<T>(vec.len(), more, what))
}

/// Makes room for at least `more` elements after those of `vec`, which will go on growing.
pub fn grow<T>(vec: &mut Vec<T>, more: usize, what: &'static str) -> Result<()> {
    vec.try_reserve(more).map_err(|_| refused::<T>(vec.len(), more, what))
}

/// Makes `vec` at least `len` elements long; what they hold is unspecified.
pub fn lengthen<T: Copy>(vec: &mut Vec<T>, len: usize, fill: T, what: &'static str) -> Result<()> {
    if vec.len() < len {
        vec.clear(); // so that old elements are not moved
        reserve(vec, len, what)?;
        vec.resize(len, fill);
    }
    Ok(())
}

/// An empty vector with room for exactly `len` elements.
pub fn reserved<T>(len: usize, what: &'static str) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    reserve(&mut vec, len, what)?;
    Ok(vec)
}

/// `len` zeros.
pub fn zeros<T: Zeroable>(len: usize, what: &'static str) -> Result<Vec<T>> {
    try_zeroed_vec(len).map_err(|()| refused::<T>(0, len, what))
}

/// A vector of what `items` yields.
pub fn collected<T>(items: impl ExactSizeIterator<Item = T>, what: &'static str) -> Result<Vec<T>> {
    let mut vec = reserved(items.len(), what)?;
    vec.extend(items);
    Ok(vec)
}

/// A copy of `items`.
pub fn copied<T: Copy>(items: &[T], what: &'static str) -> Result<Vec<T>> {
    collected(items.iter().copied(), what)
}

/// Appends `more` to `text`.
pub fn append(text: &mut String, more: &str, what: &'static str) -> Result<()> {
    text.try_reserve(more.len()).map_err(|_| refused::<u8>(text.len(), more.len(), what))?;
    text.push_str(more);
    Ok(())
}

fn refused<T>(len: usize, more: usize, what: &'static str) -> OutOfMemory {
    OutOfMemory { what, bytes: len.saturating_add(more).saturating_mul(size_of::<T>()) }
}

/// The errors of the tasks of a parallel region, as a task cannot return one.
#[derive(Debug, Default)]
pub struct Refusals(OnceLock<OutOfMemory>);

impl Refusals {
    /// Keeps the error of a task, if it is the first.
    pub fn note(&self, done: Result<()>) {
        if let Err(refused) = done {
            let _ = self.0.set(refused);
        }
    }

    /// The first error of the tasks.
    pub fn into_result(self) -> Result<()> {
        self.0.into_inner().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_zero_and_absurd_lengths_are_refused() {
        assert_eq!(zeros::<f32>(0, "a test"), Ok(Vec::new()));
        assert_eq!(zeros::<u16>(3, "a test"), Ok(vec![0; 3]));
        for len in [usize::MAX / 4, usize::MAX] {
            let refused = zeros::<f32>(len, "a test").unwrap_err();
            assert_eq!(refused, OutOfMemory { what: "a test", bytes: len.saturating_mul(4) });
        }
    }
}
