//! Mamba's selective scan (arXiv 2312.00752): a column of numbers for each channel, each of which every position decays by itself.
//!
//! With the key `k` and the query `q` of a position, and of each channel the step `t`, the value `v` and the factors `a`:
//!
//! ```text
//! h[n] = e^(t a[n]) h[n] + k[n] t v        out = sum over n of h[n] q[n]
//! ```
//!
//! A state is kept as of the start of every [`CHUNK`] positions, with what each position since then adds, so that a sequence can
//! be cut back to any of these; and as of the last position computed, which is computed again where the sequence was cut. Every
//! sum has one order, so the bits of a position depend on no step's length.

use super::delta::CHUNK;
use super::exp::exp;
use crate::isa::{Isa, compiled_for};

/// States nearer to 0 than this become 0: numbers that are hardly above it slow a processor down a hundred times.
const LEAST_STATE: f32 = 1.0 / (1u128 << 96) as f32;

/// The state of some channels.
#[derive(Debug)]
pub struct ScanState<'a> {
    /// `[keys, channels]`, as of the last border.
    border: &'a mut [f32],
    /// The same as of the last position that was computed.
    current: &'a mut [f32],
    /// Keys since the border, `[CHUNK, keys]`.
    keys: &'a mut [f32],
    /// Steps since the border, `[CHUNK, channels]`.
    steps: &'a mut [f32],
    /// Values times steps since the border, `[CHUNK, channels]`.
    values: &'a mut [f32],
    /// The positions since the border that `current` has.
    computed: &'a mut f32,
}

/// Positions of one sequence and some channels, all in one chunk.
#[derive(Clone, Copy, Debug)]
pub struct ScanRows<'a> {
    /// `[rows, keys]`
    pub keys: &'a [f32],
    /// `[rows, keys]`
    pub queries: &'a [f32],
    /// `[rows, channels]`
    pub steps: &'a [f32],
    /// `[rows, channels]`
    pub values: &'a [f32],
    /// The factor of a step in the exponent, `[keys, channels]`.
    pub decays: &'a [f32],
}

impl<'a> ScanState<'a> {
    /// The parts of a state. Panics when `state` has fewer elements than these.
    pub fn new(state: &'a mut [f32], keys: usize, channels: usize) -> ScanState<'a> {
        let (border, rest) = state.split_at_mut(keys * channels);
        let (current, rest) = rest.split_at_mut(keys * channels);
        let (keys, rest) = rest.split_at_mut(CHUNK * keys);
        let (steps, rest) = rest.split_at_mut(CHUNK * channels);
        let (values, rest) = rest.split_at_mut(CHUNK * channels);
        ScanState { border, current, keys, steps, values, computed: &mut rest[0] }
    }

    /// Computes `rows`, the first of which is number `first` of its chunk, into `out` `[rows, channels]`. Panics unless the
    /// lengths fit and the rows are of one chunk.
    pub fn advance(&mut self, isa: Isa, first: usize, rows: ScanRows<'_>, out: &mut [f32]) {
        let (keys, channels) = (self.keys.len() / CHUNK, self.steps.len() / CHUNK);
        let count = rows.steps.len() / channels;
        assert!(count > 0 && first + count <= CHUNK, "rows of a chunk");
        assert!(rows.keys.len() == count * keys && rows.queries.len() == count * keys, "keys and queries");
        assert!([rows.steps.len(), rows.values.len(), out.len()] == [count * channels; 3], "values");
        assert!(rows.decays.len() == keys * channels, "decays");
        self.keys[first * keys..][..count * keys].copy_from_slice(rows.keys);
        self.steps[first * channels..][..count * channels].copy_from_slice(rows.steps);
        let stepped = rows.values.iter().zip(rows.steps).map(|(value, step)| value * step);
        self.values[first * channels..].iter_mut().zip(stepped).for_each(|(to, value)| *to = value);
        // A whole number up to `CHUNK`.
        let computed = *self.computed as usize;
        let from = if first > 0 && computed == first { first } else { 0 };
        if from == 0 {
            self.current.copy_from_slice(self.border);
        }
        for position in from..first + count {
            let key = &self.keys[position * keys..][..keys];
            let [step, value] = [&*self.steps, &*self.values].map(|of| &of[position * channels..][..channels]);
            let read = position
                .checked_sub(first)
                .map(|row| (&rows.queries[row * keys..][..keys], &mut out[row * channels..][..channels]));
            match read {
                Some((query, out)) => {
                    out.fill(0.0);
                    undergo(isa, self.current, rows.decays, (key, step, value), query, out);
                }
                None => undergo(isa, self.current, rows.decays, (key, step, value), &[], &mut []),
            }
        }
        *self.computed = (first + count) as f32;
        if first + count == CHUNK {
            self.border.copy_from_slice(self.current);
        }
    }
}

compiled_for! {
    /// Adds a position to `state` `[keys, channels]`, and what `query` reads of it to `out`; neither has elements where it is not
    /// read.
    fn undergo(
        isa: Isa,
        state: &mut [f32],
        decays: &[f32],
        position: (&[f32], &[f32], &[f32]),
        query: &[f32],
        out: &mut [f32],
    ) {
        let (key, step, value) = position;
        let channels = step.len();
        for (index, (state, decays)) in state.chunks_exact_mut(channels).zip(decays.chunks_exact(channels)).enumerate() {
            let key = key[index];
            for ((state, decay), (step, value)) in state.iter_mut().zip(decays).zip(step.iter().zip(value)) {
                let next = exp::<false>(step * decay) * *state + key * value;
                *state = if next.abs() < LEAST_STATE { 0.0 } else { next };
            }
            if let Some(query) = query.get(index) {
                out.iter_mut().zip(&*state).for_each(|(out, state)| *out += query * state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, each_isa};

    struct Sequence {
        keys: Vec<f32>,
        queries: Vec<f32>,
        steps: Vec<f32>,
        values: Vec<f32>,
        decays: Vec<f32>,
    }

    impl Sequence {
        fn new(random: &mut Random, len: usize, [keys, channels]: [usize; 2]) -> Sequence {
            let from = |x: f32, most: f32| most * (0.5 + 0.5 * x.clamp(-1.0, 1.0));
            Sequence {
                keys: random.floats(len * keys),
                queries: random.floats(len * keys),
                steps: random.floats(len * channels).into_iter().map(|x| from(x, 0.5)).collect(),
                values: random.floats(len * channels),
                decays: random.floats(keys * channels).into_iter().map(|x| -from(x, 8.0)).collect(),
            }
        }

        /// The result in double precision, as the formula says.
        fn truth(&self, [keys, channels]: [usize; 2]) -> Vec<f64> {
            let mut state = vec![0f64; keys * channels];
            let mut out = vec![0f64; self.values.len()];
            for (at, out) in out.iter_mut().enumerate() {
                let (t, channel) = (at / channels, at % channels);
                let step = f64::from(self.steps[at]);
                for n in 0..keys {
                    let state = &mut state[n * channels + channel];
                    let added = f64::from(self.keys[t * keys + n]) * step * f64::from(self.values[at]);
                    *state = (step * f64::from(self.decays[n * channels + channel])).exp() * *state + added;
                    *out += *state * f64::from(self.queries[t * keys + n]);
                }
            }
            out
        }

        /// The result in steps of these lengths, over and over; each is computed twice, as by a sequence that was cut back.
        fn computed(&self, isa: Isa, [keys, channels]: [usize; 2], steps: &[usize], twice: bool) -> Vec<f32> {
            let mut state = vec![0f32; 2 * keys * channels + CHUNK * (keys + 2 * channels) + 1];
            let mut out = vec![f32::NAN; self.values.len()];
            let (all, mut start, mut steps) = (self.values.len() / channels, 0, steps.iter().cycle());
            while start < all {
                let mut left = (*steps.next().unwrap()).min(all - start);
                while left > 0 {
                    let count = left.min(CHUNK - start % CHUNK);
                    let part = |of: &'_ [f32], width: usize| of[start * width..(start + count) * width].to_vec();
                    let rows =
                        [(&self.keys, keys), (&self.queries, keys), (&self.steps, channels), (&self.values, channels)];
                    let [k, q, t, v] = rows.map(|(of, width)| part(of, width));
                    let rows = ScanRows { keys: &k, queries: &q, steps: &t, values: &v, decays: &self.decays };
                    let out = &mut out[start * channels..][..count * channels];
                    let other = ScanRows { values: &t, keys: &q, ..rows };
                    // Past the border there is no way back.
                    if twice && start % CHUNK + count < CHUNK {
                        ScanState::new(&mut state, keys, channels).advance(isa, start % CHUNK, other, out);
                        if count > 1 {
                            let first = |of: &'_ [f32]| of[..of.len() / count].to_vec();
                            let [k, q, t, v] = [&q, &q, &t, &t].map(|of| first(of));
                            let rows = ScanRows { keys: &k, queries: &q, steps: &t, values: &v, decays: &self.decays };
                            let out = &mut out[..channels];
                            ScanState::new(&mut state, keys, channels).advance(isa, start % CHUNK, rows, out);
                        }
                    }
                    ScanState::new(&mut state, keys, channels).advance(isa, start % CHUNK, rows, out);
                    (start, left) = (start + count, left - count);
                }
            }
            out
        }
    }

    #[test]
    fn is_the_recurrence_and_the_same_bits_in_every_step_and_on_every_processor() {
        let mut random = Random::new(7);
        for size in [[16, 64], [4, 10], [1, 1], [8, 33]] {
            let sequence = Sequence::new(&mut random, 75, size);
            let truth = sequence.truth(size);
            let one_by_one = sequence.computed(Isa::portable(), size, &[1], false);
            for (out, truth) in one_by_one.iter().zip(&truth) {
                // The bound is for sums of at most 16 products of numbers below 4, of states that are rounded thrice a position.
                assert!((f64::from(*out) - truth).abs() < 1e-5, "{size:?}: {out} for {truth}");
            }
            for isa in each_isa() {
                for (steps, twice) in [(&[75][..], false), (&[3, 1, 7], true), (&[16], false), (&[1], true)] {
                    let bits = |of: Vec<f32>| of.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                    let together = sequence.computed(isa, size, steps, twice);
                    assert_eq!(bits(one_by_one.clone()), bits(together), "{isa} {size:?} {steps:?}");
                }
            }
        }
    }
}
