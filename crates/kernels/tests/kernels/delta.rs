//! The delta rule and its relatives, beside the recurrence in double precision.

use super::Isa;
use super::testing::Random;
use model_factory_kernels::{CHUNK, DeltaRows, DeltaState, delta_scratch};

struct Sequence {
    keys: Vec<f32>,
    queries: Vec<f32>,
    values: Vec<f32>,
    /// Those of a position are one, or one for each element of a key.
    decays: Vec<f32>,
    /// `None` where values are added as they are.
    strengths: Option<Vec<f32>>,
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    Delta,
    Kimi,
    Mamba,
}

impl Rule {
    const ALL: [Rule; 3] = [Rule::Delta, Rule::Kimi, Rule::Mamba];

    fn corrects(self) -> bool {
        !matches!(self, Rule::Mamba)
    }

    fn decays(self, key_dim: usize) -> usize {
        if matches!(self, Rule::Kimi) { key_dim } else { 1 }
    }
}

impl Sequence {
    fn len(&self, value_dim: usize) -> usize {
        self.values.len() / value_dim
    }

    fn new(random: &mut Random, len: usize, [key_dim, value_dim]: [usize; 2], rule: Rule) -> Sequence {
        let share = |x: f32| 1.0 / (1.0 + (-2.0 * x).exp());
        let unit = |keys: Vec<f32>| -> Vec<f32> {
            let of = |key: &[f32]| key.iter().map(|x| x * x).sum::<f32>().sqrt();
            keys.chunks_exact(key_dim).flat_map(|key| key.iter().map(move |x| x / of(key))).collect()
        };
        Sequence {
            keys: unit(random.floats(len * key_dim)),
            queries: unit(random.floats(len * key_dim)),
            values: random.floats(len * value_dim),
            decays: random.floats(len * rule.decays(key_dim)).into_iter().map(share).collect(),
            strengths: rule.corrects().then(|| random.floats(len).into_iter().map(share).collect()),
        }
    }

    /// The result position by position, in double precision, as the formula says.
    fn truth(&self, key_dim: usize, value_dim: usize) -> Vec<f64> {
        let mut state = vec![0f64; key_dim * value_dim];
        let mut out = Vec::new();
        let each = self.decays.len() / self.len(value_dim);
        for (t, decays) in self.decays.chunks_exact(each).enumerate() {
            let key: Vec<f64> = self.keys[t * key_dim..][..key_dim].iter().map(|x| f64::from(*x)).collect();
            for (state, decay) in state.chunks_exact_mut(value_dim).zip(decays.iter().cycle()) {
                state.iter_mut().for_each(|x| *x *= f64::from(*decay));
            }
            for column in 0..value_dim {
                let value = f64::from(self.values[t * value_dim + column]);
                let correction = self.strengths.as_ref().map_or(value, |strengths| {
                    let read = (0..key_dim).map(|row| state[row * value_dim + column] * key[row]);
                    f64::from(strengths[t]) * (value - read.sum::<f64>())
                });
                (0..key_dim).for_each(|row| state[row * value_dim + column] += key[row] * correction);
            }
            let query = &self.queries[t * key_dim..][..key_dim];
            out.extend((0..value_dim).map(|column| {
                (0..key_dim).map(|row| state[row * value_dim + column] * f64::from(query[row])).sum::<f64>()
            }));
        }
        out
    }

    /// The result in steps of these lengths, over and over.
    fn computed(&self, isa: Isa, key_dim: usize, value_dim: usize, steps: &[usize]) -> Vec<f32> {
        let len = self.len(value_dim);
        let each = self.decays.len() / len;
        let mut state = vec![f32::NAN; key_dim * value_dim + CHUNK * (key_dim + value_dim + each)];
        state[..key_dim * value_dim].fill(0.0);
        let mut scratch = vec![f32::NAN; delta_scratch(key_dim, value_dim)];
        let mut out = vec![f32::NAN; self.values.len()];
        let (mut start, mut steps) = (0, steps.iter().cycle());
        while start < len {
            let mut left = (*steps.next().unwrap()).min(len - start);
            while left > 0 {
                let count = left.min(CHUNK - start % CHUNK);
                let of = |all: &[f32], dim: usize| all[start * dim..(start + count) * dim].to_vec();
                let keys_queries = [of(&self.keys, key_dim), of(&self.queries, key_dim)].concat();
                let rows = DeltaRows {
                    keys_queries: &keys_queries,
                    values: &self.values[start * value_dim..][..count * value_dim],
                    decays: &self.decays[start * each..(start + count) * each],
                    strengths: self.strengths.as_ref().map(|strengths| &strengths[start..start + count]),
                };
                let out = &mut out[start * value_dim..][..count * value_dim];
                let mut state = DeltaState::new(&mut state, key_dim, value_dim, each);
                state.advance(isa, start % CHUNK, rows, &mut scratch, out);
                (start, left) = (start + count, left - count);
            }
        }
        out
    }
}

#[test]
fn is_the_recurrence_and_the_same_bits_in_every_step() {
    let mut random = Random::new(7);
    let sizes = [(16, 16), (128, 128), (128, 64), (5, 70), (64, 33), (1, 1)];
    for ((key_dim, value_dim), rule) in sizes.into_iter().flat_map(|size| Rule::ALL.map(|rule| (size, rule))) {
        let sequence = Sequence::new(&mut random, 75, [key_dim, value_dim], rule);
        let truth = sequence.truth(key_dim, value_dim);
        for isa in Isa::available() {
            let one_by_one = sequence.computed(isa, key_dim, value_dim, &[1]);
            for (out, truth) in one_by_one.iter().zip(&truth) {
                // The bound is for sums of at most 128 + 2 * 16 products of numbers below 4, rounded each.
                assert!(
                    (f64::from(*out) - truth).abs() < 1e-5,
                    "{isa} {rule:?} {key_dim} {value_dim}: {out} for {truth}"
                );
            }
            for steps in [&[75][..], &[3, 1, 7], &[16], &[40, 2]] {
                let together = sequence.computed(isa, key_dim, value_dim, steps);
                assert_eq!(one_by_one, together, "{isa} {rule:?} {key_dim} {value_dim} {steps:?}");
            }
        }
    }
}

#[test]
fn is_the_same_bits_with_every_vector_instruction_set() {
    let fused: Vec<Isa> = Isa::available().into_iter().filter(|isa| isa.name() != "portable").collect();
    for (rule, steps) in Rule::ALL.into_iter().flat_map(|rule| [(rule, &[50][..]), (rule, &[1])]) {
        let sequence = Sequence::new(&mut Random::new(8), 50, [128, 128], rule);
        let of = |isa: &Isa| sequence.computed(*isa, 128, 128, steps);
        assert!(fused.windows(2).all(|pair| of(&pair[0]) == of(&pair[1])), "{rule:?} {steps:?}");
    }
}
