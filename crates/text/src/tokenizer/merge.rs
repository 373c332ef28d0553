//! Byte-pair merging: the best pair of neighbors first, on a tie the leftmost, until no pair is left.

use super::text::reserve;
use crate::error::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// The offset of the first byte.
    pub(super) start: usize,
    /// The offset after the last byte; equal to `start` once the symbol is merged into the previous one.
    pub(super) end: usize,
    /// The token of the symbol, if it has one.
    pub(super) id: Option<u32>,
}

impl Symbol {
    fn len(&self) -> usize {
        self.end - self.start
    }
}

/// Two neighbors that would make a token, in the order in which they are merged; `len` is the sum of their lengths when it was
/// found.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Neighbours<P> {
    priority: P,
    left: Reverse<usize>,
    right: usize,
    len: usize,
    id: u32,
}

/// Merges `symbols`, which are adjacent, by `find`: the priority and the token of two neighbors, if they
/// make one. Takes time `n log n`.
pub(super) fn merge<P: Ord>(
    symbols: &mut Vec<Symbol>,
    find: impl Fn(&Symbol, &Symbol) -> Option<(P, u32)>,
) -> Result<()> {
    let (mut previous, mut next, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
    reserve(&mut previous, symbols.len())?;
    reserve(&mut next, symbols.len())?;
    // Each merge removes a symbol and a pair, and finds at most two pairs.
    reserve(&mut pairs, symbols.len().saturating_mul(2))?;
    previous.extend((0..symbols.len()).map(|index| index.wrapping_sub(1)));
    next.extend(1..=symbols.len());
    let pair = |symbols: &[Symbol], left: usize, right: usize| -> Option<Neighbours<P>> {
        let (one, other) = (symbols.get(left)?, symbols.get(right)?);
        let (priority, id) = find(one, other)?;
        Some(Neighbours { priority, left: Reverse(left), right, len: one.len() + other.len(), id })
    };
    pairs.extend((1..symbols.len()).filter_map(|right| pair(symbols, right - 1, right)));
    let mut pairs: BinaryHeap<Neighbours<P>> = pairs.into();
    while let Some(Neighbours { left: Reverse(left), right, len, id, .. }) = pairs.pop() {
        // A pair is stale if one of its sides has grown or was merged since.
        let sides = (symbols[left].len(), symbols[right].len());
        if sides.0 == 0 || sides.1 == 0 || sides.0 + sides.1 != len {
            continue;
        }
        let end = symbols[right].end;
        symbols[left] = Symbol { start: symbols[left].start, end, id: Some(id) };
        symbols[right].start = end;
        let after = next[right];
        next[left] = after;
        if let Some(before) = previous.get_mut(after) {
            *before = left;
        }
        pairs.extend(pair(symbols, left, after));
        pairs.extend(pair(symbols, previous[left], left));
    }
    symbols.retain(|symbol| symbol.len() > 0);
    Ok(())
}
