//! A row's router outputs -> the experts that it is given to, with their weights.

use crate::kernels::{self, Isa};
use model_factory_spec::spec::{ExpertGroups, Normalization, RouterScore, Routing};

/// An expert that a row is given to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Choice {
    pub(super) expert: usize,
    /// The factor of its output.
    pub(super) weight: f32,
}

/// Fills `chosen`, the best expert first and among equal ones the lower index first. `scores` are the router's outputs
/// for all experts and hold unspecified numbers afterwards; `bias` is added to the transformed scores where experts are
/// chosen, and is empty for none. Where a score is NaN or infinite all weights are NaN: then so are the row's logits,
/// and nothing is chosen by them.
pub(super) fn choose(isa: Isa, routing: &Routing, bias: &[f32], scores: &mut [f32], chosen: &mut [Choice]) {
    let finite = scores.iter().fold(true, |finite, score| finite & score.is_finite());
    if routing.router_scale != 1.0 {
        scores.iter_mut().for_each(|score| *score *= routing.router_scale);
    }
    match routing.score {
        RouterScore::Softmax | RouterScore::Sigmoid => {
            match routing.score {
                RouterScore::Softmax => kernels::softmax(isa, scores),
                _ => kernels::sigmoid(isa, scores),
            }
            if let Some(groups) = routing.groups {
                leave_out(groups, bias, scores);
            }
            largest(scores, bias, chosen);
        }
        RouterScore::SoftmaxOfChosen => {
            largest(scores, bias, chosen);
            let most = chosen.len().min(scores.len());
            let weights = &mut scores[..most];
            weights.iter_mut().zip(&*chosen).for_each(|(weight, choice)| *weight = choice.weight);
            kernels::softmax(isa, weights);
            chosen.iter_mut().zip(weights).for_each(|(choice, weight)| choice.weight = *weight);
        }
        RouterScore::SparseMixer { jitter } => one_by_one(isa, 2.0 * jitter as f32, scores, chosen),
    }
    if let Some(Normalization { added, least }) = routing.normalized {
        let sum = (chosen.iter().map(|choice| choice.weight).sum::<f32>() + added).max(least);
        chosen.iter_mut().for_each(|choice| choice.weight /= sum);
    }
    if routing.scale != 1.0 {
        chosen.iter_mut().for_each(|choice| choice.weight *= routing.scale);
    }
    if !finite {
        chosen.iter_mut().for_each(|choice| choice.weight = f32::NAN);
    }
}

/// Makes the `scores` of all groups but the best NaN, which are chosen last. Of equal groups the first are kept.
fn leave_out(ExpertGroups { count, chosen, best }: ExpertGroups, bias: &[f32], scores: &mut [f32]) {
    let size = scores.len() / count;
    let group_score = |scores: &[f32], group: usize| {
        let mut most = [f32::NEG_INFINITY; 2];
        for (expert, score) in scores.iter().enumerate().skip(group * size).take(size) {
            let score = score + bias.get(expert).copied().unwrap_or(0.0);
            if score > most[0] {
                most = [score, most[0]];
            } else if score > most[1] {
                most[1] = score;
            }
        }
        if best == 1 { most[0] } else { most[0] + most[1] }
    };
    for _ in chosen..count {
        // A group that is left out has no score any more.
        let left = (0..count).map(|group| (group, group_score(scores, group)));
        let worst = left.filter(|(_, score)| *score > f32::NEG_INFINITY);
        let worst = worst.reduce(|worst, next| if next.1 <= worst.1 { next } else { worst });
        let Some((group, _)) = worst else { return };
        scores[group * size..(group + 1) * size].fill(f32::NAN);
    }
}

/// The largest of `scores` with their `bias` in descending order, each with its score as the weight.
fn largest(scores: &[f32], bias: &[f32], chosen: &mut [Choice]) {
    let key = |expert: usize| {
        let score = scores[expert] + bias.get(expert).copied().unwrap_or(0.0);
        if score.is_nan() { f32::NEG_INFINITY } else { score }
    };
    let mut count = 0;
    for (expert, &weight) in scores.iter().enumerate() {
        let place = chosen[..count].partition_point(|choice| key(choice.expert) >= key(expert));
        if place == chosen.len() {
            continue;
        }
        count = (count + 1).min(chosen.len());
        chosen[place..count].rotate_right(1);
        chosen[place] = Choice { expert, weight };
    }
}

/// transformers' `sparsemixer` without training: the largest output is chosen, with its softmax among those that are
/// left and not further below it than `margin` of the larger magnitude.
fn one_by_one(isa: Isa, margin: f32, scores: &[f32], chosen: &mut [Choice]) {
    for index in 0..chosen.len() {
        let (before, rest) = chosen.split_at_mut(index);
        let taken = |expert| before.iter().any(|choice| choice.expert == expert);
        let left = || scores.iter().copied().enumerate().filter(|(expert, _)| !taken(*expert));
        let best = left().reduce(|best, next| if next.1 > best.1 || best.1.is_nan() { next } else { best });
        let Some((expert, most)) = best else { return };
        let mut terms = [0.0];
        let mut sum = 0.0;
        // If all outputs are 0 the quotient is NaN, and none is further below.
        let is_below = |score: f32| (most - score) / score.abs().max(most) > margin;
        for (_, score) in left().filter(|(_, score)| !is_below(*score)) {
            terms[0] = score - most;
            kernels::exp_all(isa, &mut terms);
            sum += terms[0];
        }
        rest[0] = Choice { expert, weight: 1.0 / sum };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(score: RouterScore, normalized: bool, scores: &[f32], count: usize) -> Vec<(usize, f32)> {
        let normalized = normalized.then_some(Normalization { added: 0.0, least: 0.0 });
        let routing = Routing {
            experts: scores.len(),
            chosen: count,
            score,
            groups: None,
            normalized,
            scale: 1.0,
            router_scale: 1.0,
        };
        chosen_by(&routing, &[], scores)
    }

    fn chosen_by(routing: &Routing, bias: &[f32], scores: &[f32]) -> Vec<(usize, f32)> {
        let mut chosen = vec![Choice::default(); routing.chosen];
        choose(Isa::portable(), routing, bias, &mut scores.to_vec(), &mut chosen);
        chosen.iter().map(|choice| (choice.expert, choice.weight)).collect()
    }

    /// Equal within a few roundings.
    fn same(found: &[(usize, f32)], expected: &[(usize, f64)]) {
        assert_eq!(found.len(), expected.len());
        for ((expert, weight), (wanted, truth)) in found.iter().zip(expected) {
            assert!(expert == wanted && (f64::from(*weight) - truth).abs() < 1e-6, "{found:?} for {expected:?}");
        }
    }

    #[test]
    fn every_rule_weighs_as_its_formula() {
        let scores = [0.5f32, 2.0, -1.0, 2.0, 1.5];
        let e = |x: f32| f64::from(x).exp();
        let all: f64 = scores.iter().map(|x| e(*x)).sum();
        let soft = [(1, e(2.0) / all), (3, e(2.0) / all), (4, e(1.5) / all)];
        same(&chosen(RouterScore::Softmax, false, &scores, 3), &soft);
        let of_chosen = 2.0 * e(2.0) + e(1.5);
        let normalized = [(1, e(2.0) / of_chosen), (3, e(2.0) / of_chosen), (4, e(1.5) / of_chosen)];
        same(&chosen(RouterScore::Softmax, true, &scores, 3), &normalized);
        same(&chosen(RouterScore::SoftmaxOfChosen, false, &scores, 3), &normalized);
        let (score, halved) = (RouterScore::SoftmaxOfChosen, scores.map(|score| 2.0 * score));
        let routing =
            Routing { experts: 5, chosen: 3, score, groups: None, normalized: None, scale: 1.0, router_scale: 0.5 };
        same(&chosen_by(&routing, &[], &halved), &normalized);
    }

    /// The bias changes the choice and not the weights; what is added to their sum changes them.
    #[test]
    fn a_bias_chooses_and_does_not_weigh() {
        let scores = [0.5f32, 2.0, -1.0, 2.0, 1.5];
        let gate = |x: f64| 1.0 / (1.0 + (-x).exp());
        let score = RouterScore::Sigmoid;
        let routing = |normalized, scale| Routing {
            experts: 5,
            chosen: 2,
            score,
            groups: None,
            normalized,
            scale,
            router_scale: 1.0,
        };
        same(&chosen_by(&routing(None, 1.0), &[], &scores), &[(1, gate(2.0)), (3, gate(2.0))]);
        let bias = [0.0, 0.0, 0.7, -0.3, 0.0];
        let sum = gate(-1.0) + gate(2.0) + 0.1;
        // The sum counts, or what it is at least.
        for (least, divisor) in [(0.5, sum), (3.0, 3.0)] {
            let normalized = Some(Normalization { added: 0.1, least });
            same(
                &chosen_by(&routing(normalized, 2.5), &bias, &scores),
                &[(2, 2.5 * gate(-1.0) / divisor), (1, 2.5 * gate(2.0) / divisor)],
            );
        }
        let none = chosen_by(&routing(None, 1.0), &[f32::NAN, 0.0, 0.0, f32::NAN, 0.0], &scores);
        same(&none, &[(1, gate(2.0)), (4, gate(1.5))]);
    }

    /// The best experts of all are left out where their groups are: by their two best, or by the best one.
    #[test]
    fn experts_are_of_the_best_groups() {
        let gate = |x: f64| 1.0 / (1.0 + (-x).exp());
        let scores = [3.0f32, -3.0, 1.0, 1.5, 2.0, 1.25];
        let routing = |score, chosen, best| Routing {
            experts: 6,
            chosen: 2,
            score,
            groups: Some(ExpertGroups { count: 3, chosen, best }),
            normalized: None,
            scale: 1.0,
            router_scale: 1.0,
        };
        let sigmoid = |chosen, bias: &[f32]| chosen_by(&routing(RouterScore::Sigmoid, chosen, 2), bias, &scores);
        same(&sigmoid(2, &[]), &[(4, gate(2.0)), (3, gate(1.5))]);
        same(&sigmoid(1, &[]), &[(4, gate(2.0)), (5, gate(1.25))]);
        // The bias chooses groups too.
        same(&sigmoid(1, &[0.0, 0.9, 0.0, 0.0, 0.0, 0.0]), &[(0, gate(3.0)), (1, gate(-3.0))]);
        let all: f64 = scores.iter().map(|x| f64::from(*x).exp()).sum();
        let of_one = chosen_by(&routing(RouterScore::Softmax, 1, 1), &[], &scores);
        same(&of_one, &[(0, 3f64.exp() / all), (1, (-3f64).exp() / all)]);
        // Of equal groups the first are kept; what is no number makes no group better.
        let equal = chosen_by(&routing(RouterScore::Sigmoid, 2, 2), &[], &[0.5; 6]);
        same(&equal, &[(0, gate(0.5)), (1, gate(0.5))]);
        let broken = chosen_by(&routing(RouterScore::Softmax, 1, 1), &[], &[f32::NAN; 6]);
        assert!(broken.iter().all(|(expert, weight)| *expert < 6 && weight.is_nan()), "{broken:?}");
    }

    /// By hand from the formula: 2.0 and 1.99 are within 2 %, 1.5 is not; then 1.99 is the only one left.
    #[test]
    fn the_sparse_mixer_leaves_out_what_is_far_behind() {
        // None is below another where all are 0.
        let zeros = chosen(RouterScore::SparseMixer { jitter: 0.01 }, false, &[0.0; 3], 2);
        assert_eq!(zeros, [(0, 1.0 / 3.0), (1, 0.5)]);
        let scores = [2.0f32, 1.99, 1.5, -3.0];
        let first = 1.0 / (1.0 + (-0.01f64).exp());
        same(&chosen(RouterScore::SparseMixer { jitter: 0.01 }, false, &scores, 2), &[(0, first), (1, 1.0)]);
    }

    #[test]
    fn one_score_that_is_not_finite_makes_all_weights_nan() {
        let rules = [
            RouterScore::Softmax,
            RouterScore::Sigmoid,
            RouterScore::SoftmaxOfChosen,
            RouterScore::SparseMixer { jitter: 0.01 },
        ];
        for (score, normalized) in rules.into_iter().flat_map(|score| [(score, false), (score, true)]) {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let found = chosen(score, normalized, &[0.5, 2.0, bad, 1.0], 2);
                assert!(
                    found.iter().all(|(expert, weight)| *expert < 4 && weight.is_nan()),
                    "{score:?} {bad}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_number_is_chosen_last_and_equal_ones_by_index() {
        let scores = [f32::NAN, 1.0, f32::NAN, 1.0, 0.5];
        let experts =
            |count| chosen(RouterScore::SoftmaxOfChosen, false, &scores, count).iter().map(|c| c.0).collect::<Vec<_>>();
        assert_eq!(experts(3), [1, 3, 4]);
        assert_eq!(experts(5), [1, 3, 4, 0, 2]);
        let all_the_same = chosen(RouterScore::Softmax, true, &[0.0; 6], 4);
        same(&all_the_same, &[(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25)]);
    }
}
