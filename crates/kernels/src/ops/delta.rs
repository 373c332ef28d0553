//! The gated delta rule: a matrix `S` `[key_dim, value_dim]` for each head, which every position decays, corrects and reads
//! (arXiv 2412.06464), and the rule of Mamba-2, which corrects nothing: `u = v` (arXiv 2405.21060).
//!
//! With the decay `a`, the key `k`, the value `v`, the strength `b` and the query `q` of position `t`:
//!
//! ```text
//! S(t) = a S(t-1) + k u        u = b (v - a S(t-1)' k)        out = S(t)' q
//! ```
//!
//! `S` is updated only at the end of every [`CHUNK`] positions. Between two of these, with `D(s, t)` the
//! product of the decays after `s` up to `t` and `S` that of the last border, before position 0 of the chunk:
//!
//! ```text
//! u(t)   = b (v - D(-1, t) S' k(t) - sum over s < t of D(s, t) (k(s) k(t)) u(s))
//! out(t) =         D(-1, t) S' q(t) + sum over s <= t of D(s, t) (k(s) q(t)) u(s)
//! S      = D(-1, last) S + sum over s of D(s, last) k(s) u(s)'
//! ```
//!
//! So `S` is read once for all rows of a step in a chunk, by products of matrices, and a single row reads it once and writes
//! little. Every sum has one order, whichever rows are computed together: the bits of a position depend on no step's length.
//!
//! In Kimi delta attention (arXiv 2510.26692) each element of a key has a decay: `a` and `D` are diagonal matrices, and stand between
//! the two vectors of each product above. The keys of a chunk are then kept as they are, and decayed again for each step.

use crate::isa::{Isa, Sets, compiled_for};

/// Positions between two borders.
pub const CHUNK: usize = 16;

/// Rows and columns of a tile of a product: as many sums as registers hold, with AVX2 too.
const ROWS: usize = 6;
const COLUMNS: usize = 16;

/// The columns of a tile of two rows.
const WIDE: usize = 4 * COLUMNS;

/// Products of decays below this are 0: what they would add is below the last place of nearby numbers, and numbers that
/// are hardly above 0 slow a processor down a hundred times.
const LEAST_DECAY: f32 = 1.0 / (1u128 << 96) as f32;

/// The state of one head.
#[derive(Debug)]
pub struct DeltaState<'a> {
    /// The matrix `[key_dim, value_dim]`, as of the last border.
    matrix: &'a mut [f32],
    /// Keys since the border, `[key_dim, CHUNK]`.
    keys: &'a mut [f32],
    /// Corrections since the border, `[CHUNK, value_dim]`.
    corrections: &'a mut [f32],
    /// Decays since the border, `[CHUNK]` or `[CHUNK, key_dim]`.
    decays: &'a mut [f32],
}

/// Positions of one sequence and head, all in one chunk.
#[derive(Clone, Copy, Debug)]
pub struct DeltaRows<'a> {
    /// Keys, then as many queries, `[2 * rows, key_dim]`, as they are multiplied.
    pub keys_queries: &'a [f32],
    /// Values, `[rows, value_dim]`.
    pub values: &'a [f32],
    /// Decays, from 0 to 1, `[rows]`, or one for each element of a key, `[rows, key_dim]`.
    pub decays: &'a [f32],
    /// Strengths of the corrections; `None` where values are added as they are.
    pub strengths: Option<&'a [f32]>,
}

impl<'a> DeltaState<'a> {
    /// The parts of a head's state, with so many `decays` of a position: 1 or `key_dim`. Panics when `state` has fewer elements than
    /// these.
    pub fn new(state: &'a mut [f32], key_dim: usize, value_dim: usize, decays: usize) -> DeltaState<'a> {
        let (matrix, rest) = state.split_at_mut(key_dim * value_dim);
        let (keys, rest) = rest.split_at_mut(key_dim * CHUNK);
        let (corrections, rest) = rest.split_at_mut(CHUNK * value_dim);
        DeltaState { matrix, keys, corrections, decays: &mut rest[..CHUNK * decays] }
    }

    /// Computes `rows`, the first of which is number `first` of its chunk, into `out` `[rows, value_dim]`. `scratch` is
    /// overwritten; it has [`delta_scratch`] elements. Panics unless the lengths fit and the rows are of one chunk.
    pub fn advance(&mut self, isa: Isa, first: usize, rows: DeltaRows<'_>, scratch: &mut [f32], out: &mut [f32]) {
        let count = rows.decays.len() / (self.decays.len() / CHUNK);
        let (key_dim, value_dim) = (self.keys.len() / CHUNK, self.corrections.len() / CHUNK);
        assert!(count > 0 && first + count <= CHUNK, "rows of a chunk");
        assert!(rows.decays.len() == count || rows.decays.len() == count * key_dim, "decays");
        assert!(rows.strengths.is_none_or(|strengths| strengths.len() == count), "strengths");
        assert!(rows.keys_queries.len() == 2 * count * key_dim, "keys and queries");
        assert!(rows.values.len() == count * value_dim && out.len() == count * value_dim, "values");
        assert!(scratch.len() >= delta_scratch(key_dim, value_dim), "scratch");
        let Self { matrix, keys, corrections, decays } = self;
        let state = DeltaState { matrix, keys, corrections, decays };
        if isa.has(Sets::AVX2) {
            advance_fused(isa, state, first, rows, scratch, out);
        } else {
            advance::<false>(state, first, rows, scratch, out);
        }
    }
}

/// The scratch elements that [`DeltaState::advance`] needs.
pub fn delta_scratch(key_dim: usize, value_dim: usize) -> usize {
    2 * CHUNK * value_dim + 2 * CHUNK * CHUNK + key_dim * (3 * CHUNK + 1)
}

compiled_for! {
    fn advance_fused(
        isa: Isa, state: DeltaState<'_>, first: usize, rows: DeltaRows<'_>, scratch: &mut [f32], out: &mut [f32],
    ) {
        advance::<true>(state, first, rows, scratch, out);
    }
}

#[inline(always)]
fn advance<const FUSED: bool>(
    state: DeltaState<'_>,
    first: usize,
    rows: DeltaRows<'_>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let DeltaState { matrix, keys, corrections, decays } = state;
    let (key_dim, value_dim, each) = (keys.len() / CHUNK, corrections.len() / CHUNK, decays.len() / CHUNK);
    let count = rows.decays.len() / each;
    decays[first * each..][..rows.decays.len()].copy_from_slice(rows.decays);
    for (row, key) in rows.keys_queries.chunks_exact(key_dim).take(count).enumerate() {
        keys.chunks_exact_mut(CHUNK).zip(key).for_each(|(keys, key)| keys[first + row] = *key);
    }
    // Without corrections no keys are multiplied.
    let by_keys = if rows.strengths.is_some() { count } else { 0 };
    let readers = &rows.keys_queries[(count - by_keys) * key_dim..];
    let all = by_keys + count;
    let (read, scratch) = scratch.split_at_mut(all * value_dim);
    let (scores, scratch) = scratch.split_at_mut(all * CHUNK);
    let (weighted, scratch) = scratch.split_at_mut(key_dim * CHUNK);
    let (before, decayed) = scratch.split_at_mut(key_dim);
    let before = &mut before[..each];
    read.fill(0.0);
    scores.fill(0.0);
    before.fill(1.0);
    let at = [first, count, by_keys];
    if each == 1 {
        multiply_add::<FUSED>(readers, key_dim, matrix, value_dim, read);
        multiply_add::<FUSED>(readers, key_dim, keys, CHUNK, scores);
        by_head(keys, decays, at, (read, scores), weighted, &mut before[0]);
    } else {
        let decayed = &mut decayed[..readers.len()];
        by_channel::<FUSED>(keys, decays, at, (readers, decayed, scores), weighted, before);
        multiply_add::<FUSED>(decayed, key_dim, matrix, value_dim, read);
    }
    let ((of_key, of_query), (key_scores, query_scores)) =
        (read.split_at_mut(by_keys * value_dim), scores.split_at(by_keys * CHUNK));
    for row in 0..count {
        let position = first + row;
        let (earlier, own) = corrections.split_at_mut(position * value_dim);
        let own = &mut own[..value_dim];
        let value = &rows.values[row * value_dim..][..value_dim];
        match rows.strengths {
            Some(strengths) => {
                // This is D(-1, t) S' k, and what the chunk adds to it.
                let predicted = &mut of_key[row * value_dim..][..value_dim];
                for (earlier, score) in earlier.chunks_exact(value_dim).zip(&key_scores[row * CHUNK..]) {
                    axpy::<FUSED>(*score, earlier, predicted);
                }
                for ((own, value), predicted) in own.iter_mut().zip(value).zip(&*predicted) {
                    *own = strengths[row] * (value - predicted);
                }
            }
            None => own.copy_from_slice(value),
        }
        let out = &mut out[row * value_dim..][..value_dim];
        out.copy_from_slice(&of_query[row * value_dim..][..value_dim]);
        let corrections = corrections[..(position + 1) * value_dim].chunks_exact(value_dim);
        for (correction, score) in corrections.zip(&query_scores[row * CHUNK..]) {
            axpy::<FUSED>(*score, correction, out);
        }
    }
    if first + count == CHUNK {
        if each == 1 {
            matrix.iter_mut().for_each(|x| *x *= before[0]);
        } else {
            let of_keys = matrix.chunks_exact_mut(value_dim).zip(before);
            of_keys.for_each(|(row, before)| row.iter_mut().for_each(|x| *x *= *before));
        }
        multiply_add::<FUSED>(weighted, CHUNK, corrections, value_dim, matrix);
    }
}

/// Applies the decays of a head to what its readers read: to what they read of the state, and to their products with keys. `at` are
/// the first position, the number of rows, and how many of the readers are keys. Afterwards `weighted` `[key_dim, CHUNK]` has the keys
/// with what remains of each after the last row, and `before` is what remains of the state.
#[inline(always)]
fn by_head(
    keys: &[f32],
    decays: &[f32],
    [first, count, by_keys]: [usize; 3],
    (read, scores): (&mut [f32], &mut [f32]),
    weighted: &mut [f32],
    before: &mut f32,
) {
    let value_dim = read.len() / (by_keys + count);
    // The remaining factor of each position of the chunk at the next one.
    let mut left = [0f32; CHUNK];
    for (position, decay) in decays[..first + count].iter().enumerate() {
        undergo(&mut left, before, position, *decay);
        let Some(row) = position.checked_sub(first) else { continue };
        let readers = [(by_keys > 0).then_some(row), Some(by_keys + row)];
        for reader in readers.into_iter().flatten() {
            read[reader * value_dim..][..value_dim].iter_mut().for_each(|x| *x *= *before);
            scores[reader * CHUNK..][..CHUNK].iter_mut().zip(&left).for_each(|(score, left)| *score *= left);
        }
    }
    if first + count == CHUNK {
        for (weighted, keys) in weighted.chunks_exact_mut(CHUNK).zip(keys.chunks_exact(CHUNK)) {
            weighted.iter_mut().zip(keys).zip(&left).for_each(|((weighted, key), left)| *weighted = key * left);
        }
    }
}

/// Like [`by_head`] where each element of a key has a decay, `[CHUNK, key_dim]`: `decayed` become the readers by what remains of the
/// state, and `scores` their products with what remains of each key.
#[inline(always)]
fn by_channel<const FUSED: bool>(
    keys: &[f32],
    decays: &[f32],
    [first, count, by_keys]: [usize; 3],
    (readers, decayed, scores): (&[f32], &mut [f32], &mut [f32]),
    weighted: &mut [f32],
    before: &mut [f32],
) {
    let key_dim = before.len();
    weighted.fill(0.0);
    for (position, decays) in decays.chunks_exact(key_dim).take(first + count).enumerate() {
        for ((weighted, keys), decay) in weighted.chunks_exact_mut(CHUNK).zip(keys.chunks_exact(CHUNK)).zip(decays) {
            weighted.iter_mut().for_each(|x| *x = kept(*x * decay));
            weighted[position] = keys[position];
        }
        before.iter_mut().zip(decays).for_each(|(before, decay)| *before = kept(*before * decay));
        let Some(row) = position.checked_sub(first) else { continue };
        let of_row = [(by_keys > 0).then_some(row), Some(by_keys + row)];
        for reader in of_row.into_iter().flatten() {
            let (x, decayed) = (&readers[reader * key_dim..][..key_dim], &mut decayed[reader * key_dim..][..key_dim]);
            decayed.iter_mut().zip(x).zip(&*before).for_each(|((to, x), before)| *to = x * before);
            multiply_add::<FUSED>(x, key_dim, weighted, CHUNK, &mut scores[reader * CHUNK..][..CHUNK]);
        }
    }
}

/// Adds position `position` with its decay, which also applies to all positions before it.
#[inline(always)]
fn undergo(left: &mut [f32; CHUNK], before: &mut f32, position: usize, decay: f32) {
    for left in left.iter_mut() {
        *left = kept(*left * decay);
    }
    left[position] = 1.0;
    *before = kept(*before * decay);
}

/// What is kept of a number after a decay.
#[inline(always)]
fn kept(decayed: f32) -> f32 {
    if decayed.abs() < LEAST_DECAY { 0.0 } else { decayed }
}

/// `y += scale * x`.
#[inline(always)]
fn axpy<const FUSED: bool>(scale: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = fused::<FUSED>(scale, *x, *y);
    }
}

/// `a * b + c`, rounded once where `FUSED`.
#[inline(always)]
fn fused<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// `out` `[rows, width]` += `x` `[rows, inputs]` times `matrix` `[inputs, width]`: every sum in the order of the inputs.
#[inline(always)]
fn multiply_add<const FUSED: bool>(x: &[f32], inputs: usize, matrix: &[f32], width: usize, out: &mut [f32]) {
    for (x, out) in x.chunks(ROWS * inputs).zip(out.chunks_mut(ROWS * width)) {
        let mut at = 0;
        while at < width {
            at += match (x.len() / inputs, width - at) {
                (ROWS, COLUMNS..) => tile::<FUSED, ROWS, COLUMNS>(x, inputs, matrix, width, at, out),
                // These are the remaining queries of a whole chunk.
                (4, COLUMNS..) => tile::<FUSED, 4, COLUMNS>(x, inputs, matrix, width, at, out),
                // These are one position's key and query, or query: a wider tile, so that as many sums are in flight.
                (2, WIDE..) => tile::<FUSED, 2, WIDE>(x, inputs, matrix, width, at, out),
                (1, WIDE..) => tile::<FUSED, 1, WIDE>(x, inputs, matrix, width, at, out),
                (_, COLUMNS..) => rows::<FUSED, COLUMNS>(x, inputs, matrix, width, at, out),
                _ => rows::<FUSED, 1>(x, inputs, matrix, width, at, out),
            };
        }
    }
}

/// Like [`tile`], row by row.
#[inline(always)]
fn rows<const FUSED: bool, const N: usize>(
    x: &[f32],
    inputs: usize,
    matrix: &[f32],
    width: usize,
    at: usize,
    out: &mut [f32],
) -> usize {
    for (x, out) in x.chunks_exact(inputs).zip(out.chunks_exact_mut(width)) {
        tile::<FUSED, 1, N>(x, inputs, matrix, width, at, out);
    }
    N
}

/// Columns `at..at + N` of `R` rows of the product; returns `N`.
#[inline(always)]
fn tile<const FUSED: bool, const R: usize, const N: usize>(
    x: &[f32],
    inputs: usize,
    matrix: &[f32],
    width: usize,
    at: usize,
    out: &mut [f32],
) -> usize {
    let mut sums = [[0f32; N]; R];
    for (row, sums) in sums.iter_mut().enumerate() {
        sums.copy_from_slice(&out[row * width + at..][..N]);
    }
    for (input, weights) in matrix.chunks_exact(width).enumerate() {
        let Some(weights) = weights[at..].first_chunk::<N>() else { return N };
        for (row, sums) in sums.iter_mut().enumerate() {
            let x = x[row * inputs + input];
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = fused::<FUSED>(x, *weight, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        out[row * width + at..][..N].copy_from_slice(sums);
    }
    N
}
