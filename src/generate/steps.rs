//! Candidates -> fewer or other candidates: a small function for each sampling option.

use super::options::SamplingOptions;
use crate::error::Result;
use crate::memory::{self, OutOfMemory};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f32,
}

impl Candidate {
    /// Orders the more likely token first, and on a tie the lower id.
    pub(super) fn rank(&self, other: &Candidate) -> Ordering {
        // Logits are finite, so they compare; -0 and 0 are equal.
        other.logit.partial_cmp(&self.logit).unwrap_or(Ordering::Equal).then(self.id.cmp(&other.id))
    }
}

/// Every token of `logits` except those of `unused`, with `changed` in place of the candidates of their ids. The ids of both
/// ascend, and none is in both.
pub(super) fn tokens(logits: &[f32], unused: &[u32], changed: &[Candidate]) -> impl Iterator<Item = Candidate> {
    let (mut unused, mut changed) = (unused.iter(), changed.iter());
    let (mut skip, mut other) = (unused.next(), changed.next());
    (0..).zip(logits).filter_map(move |(id, &logit)| {
        if skip.is_some_and(|skip| *skip == id) {
            skip = unused.next();
            return None;
        }
        match other {
            Some(candidate) if candidate.id == id => {
                other = changed.next();
                Some(*candidate)
            }
            _ => Some(Candidate { id, logit }),
        }
    })
}

/// The tokens that may come next. Ids ascend, logits are finite, and no step removes the most likely one.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    entries: Vec<Candidate>,
    /// Space for partial sorts, so that the order of `entries` (and what a seed draws) depends on no sorting algorithm.
    scratch: Vec<Candidate>,
}

impl Candidates {
    /// Makes room for `count` candidates, and for sorting them if `sorted`.
    pub(super) fn reserve(&mut self, count: usize, sorted: bool) -> Result<()> {
        for (list, room) in [(&mut self.entries, count), (&mut self.scratch, if sorted { count } else { 0 })] {
            list.clear();
            memory::reserve(list, room, "the candidates for a token")?;
        }
        Ok(())
    }

    /// Starts over with the `most` most likely of `tokens`, whose ids ascend. Never holds more than twice as many.
    pub(super) fn fill(&mut self, tokens: impl Iterator<Item = Candidate>, most: usize) {
        self.entries.clear();
        let mut last = None;
        for token in tokens {
            if last.is_some_and(|last| token.rank(&last).is_gt()) {
                continue;
            }
            self.entries.push(token);
            if self.entries.len() == most.saturating_mul(2) {
                last = self.shorten(most);
            }
        }
        if self.entries.len() > most || last.is_some() {
            self.shorten(most);
            self.entries.sort_unstable_by_key(|candidate| candidate.id);
        }
    }

    /// Keeps the `most` most likely, in any order, and returns the least likely of them.
    fn shorten(&mut self, most: usize) -> Option<Candidate> {
        let last = most.checked_sub(1)?;
        if last < self.entries.len() {
            self.entries.select_nth_unstable_by(last, Candidate::rank);
        }
        self.entries.truncate(most);
        self.entries.get(last).copied()
    }

    pub(super) fn entries(&self) -> &[Candidate] {
        &self.entries
    }

    /// The most likely candidate; `None` if there are none.
    pub(super) fn best(&self) -> Option<Candidate> {
        best(self.entries.iter().copied())
    }

    /// Of the candidates that are at least as probable as `threshold` keeps only the least probable one, where there are several;
    /// all others stay.
    pub(super) fn exclude_top(&mut self, threshold: f64) {
        let Some(best) = self.best() else { return };
        let weight = |candidate: &Candidate| f64::from((candidate.logit - best.logit).exp());
        let total: f64 = self.entries.iter().map(weight).sum();
        let is_top = |candidate: &Candidate| weight(candidate) >= threshold * total;
        let Some(last) = self.entries.iter().filter(|candidate| is_top(candidate)).copied().max_by(Candidate::rank)
        else {
            return;
        };
        self.entries.retain(|candidate| candidate.id == last.id || !is_top(candidate));
    }

    /// Keeps the fewest most likely whose probabilities add up to `p`, at least one (transformers `TopPLogitsWarper`;
    /// Holtzman et al. 2019, section 3.1).
    pub(super) fn keep_top_p(&mut self, p: f64) {
        let Some(best) = self.best() else { return };
        let weight = |candidate: &Candidate| f64::from((candidate.logit - best.logit).exp());
        let total: f64 = self.entries.iter().map(weight).sum();
        let wanted = p * total;
        // All tokens below this share together weigh less than what may be left out. Most of a vocabulary is below it.
        let negligible = (1.0 - p) * total / self.entries.len() as f64;
        let least = f64::from(best.logit) + negligible.ln();
        self.scratch.clear();
        let likely = self.entries.iter().filter(|candidate| f64::from(candidate.logit) >= least);
        self.scratch.extend(likely);
        // Halves the part with the last token to keep until only that is left: this takes linear time, unlike a sort.
        let (mut rest, mut mass) = (self.scratch.as_mut_slice(), 0.0);
        while rest.len() > 1 {
            let middle = rest.len() / 2;
            rest.select_nth_unstable_by(middle, Candidate::rank);
            let (likelier, others) = rest.split_at_mut(middle);
            let with_likelier = mass + likelier.iter().map(weight).sum::<f64>();
            if with_likelier >= wanted {
                rest = likelier;
            } else {
                (rest, mass) = (others, with_likelier);
            }
        }
        if let [last] = *rest {
            self.entries.retain(|candidate| candidate.rank(&last).is_le());
        }
    }

    /// Keeps the tokens that are at least `p` times as probable as the most likely one (transformers `MinPLogitsWarper`;
    /// Nguyen et al. 2024, section 3). Comparing logits suffices: the softmax's denominator is on both sides.
    pub(super) fn keep_min_p(&mut self, p: f64) {
        let Some(best) = self.best() else { return };
        let least = f64::from(best.logit) + p.ln();
        self.entries.retain(|candidate| f64::from(candidate.logit) >= least);
    }

    /// Applies `change` to the logit of `id`, if it is a candidate.
    pub(super) fn change(&mut self, id: u32, change: impl Fn(f64) -> f64) {
        let index = self.entries.binary_search_by_key(&id, |candidate| candidate.id);
        if let Some(candidate) = index.ok().and_then(|index| self.entries.get_mut(index)) {
            candidate.logit = finite(change(candidate.logit.into()));
        }
    }
}

/// The most likely of `tokens`, whose ids ascend; on a tie the first.
pub(super) fn best(tokens: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    tokens.reduce(|best, next| if next.logit > best.logit { next } else { best })
}

/// The nearest finite F32, so that logits at the edge of the range stay finite.
fn finite(logit: f64) -> f32 {
    logit.clamp(f32::MIN.into(), f32::MAX.into()) as f32
}

/// The tokens of the sequence so far, each with how often it was generated; 0 is a token of only the prompt.
#[derive(Debug, Default)]
pub(super) struct Seen(HashMap<u32, u32>);

impl Seen {
    pub(super) fn prompt(&mut self, ids: &[u32]) -> Result<()> {
        for id in ids {
            self.reserve(1)?;
            self.0.entry(*id).or_default();
        }
        Ok(())
    }

    pub(super) fn reserve(&mut self, more: usize) -> Result<()> {
        let bytes = 2 * (self.0.len() + more) * size_of::<(u32, u32)>();
        let refused = |_| OutOfMemory { what: "the tokens that penalties count", bytes };
        Ok(self.0.try_reserve(more).map_err(refused)?)
    }

    pub(super) fn copy(&mut self, other: &Seen) -> Result<()> {
        self.0.clear();
        self.reserve(other.len())?;
        self.0.extend(&other.0);
        Ok(())
    }

    /// Puts its tokens and those of `others` `into` the room that is reserved for them, with their `logits`, except for those of
    /// `unused`, which ascend.
    pub(super) fn candidates<'a>(
        &'a self,
        others: impl Iterator<Item = &'a u32>,
        logits: &[f32],
        unused: &[u32],
        into: &mut Candidates,
    ) {
        let known = self.0.keys().chain(others).filter(|id| unused.binary_search(id).is_err());
        into.entries.clear();
        into.entries.extend(known.filter_map(|&id| Some(Candidate { id, logit: *logits.get(id as usize)? })));
        into.entries.sort_unstable_by_key(|candidate| candidate.id);
        into.entries.dedup_by_key(|candidate| candidate.id);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn generated(&mut self, id: u32) {
        *self.0.entry(id).or_default() += 1;
    }
}

/// The penalties: they only change logits of tokens that have a bias or were seen. They apply in the order of the fields.
#[derive(Debug, Default)]
pub(super) struct Penalties {
    /// The numbers that are added to the logits of these tokens.
    pub(super) bias: BTreeMap<u32, f64>,
    /// Divides positive logits of seen tokens and multiplies the others (transformers `RepetitionPenaltyLogitsProcessor`;
    /// Keskar et al. 2019, section 4.1). It applies once to a token, however often it was seen.
    pub(super) repetition: Option<f64>,
    /// `logit - presence * (count > 0) - frequency * count`, where `count` is how often a token was generated (the OpenAI
    /// API's parameter details).
    pub(super) presence: f64,
    pub(super) frequency: f64,
}

impl Penalties {
    pub(super) fn new(options: &SamplingOptions) -> Penalties {
        let repetition = options.repetition_penalty.filter(|penalty| *penalty != 1.0);
        let (presence, frequency) = (options.presence_penalty, options.frequency_penalty);
        Penalties { bias: options.logit_bias.clone(), repetition, presence, frequency }
    }

    /// Whether no logit is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.bias.is_empty() && self.repetition.is_none() && !self.counts()
    }

    fn counts(&self) -> bool {
        self.presence != 0.0 || self.frequency != 0.0
    }

    /// Changes the logits of `candidates` by the tokens that were `seen`.
    pub(super) fn apply(&self, candidates: &mut Candidates, seen: &Seen) {
        for (id, bias) in &self.bias {
            candidates.change(*id, |logit| logit + bias);
        }
        if let Some(penalty) = self.repetition {
            for id in seen.0.keys() {
                candidates.change(*id, |logit| if logit > 0.0 { logit / penalty } else { logit * penalty });
            }
        }
        if self.counts() {
            for (id, count) in seen.0.iter().filter(|(_, count)| **count > 0) {
                candidates.change(*id, |logit| logit - self.presence - self.frequency * f64::from(*count));
            }
        }
    }
}

/// A logit divided by the temperature (transformers `TemperatureLogitsWarper`).
pub(super) fn divided(logit: f32, temperature: f64) -> f32 {
    finite(f64::from(logit) / temperature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidates(logits: &[f32]) -> Candidates {
        let mut candidates = Candidates::default();
        candidates.fill(tokens(logits, &[], &[]), usize::MAX);
        candidates
    }

    /// Keeps the `k` most likely, as filling does with `top_k`.
    fn keep_top_k(candidates: &mut Candidates, k: usize) {
        let all = candidates.entries.clone();
        candidates.fill(all.into_iter(), if k == 0 { usize::MAX } else { k });
    }

    /// Divides the logits, as filling does with the temperature.
    fn divide(candidates: &mut Candidates, temperature: f64) {
        candidates.entries.iter_mut().for_each(|candidate| candidate.logit = divided(candidate.logit, temperature));
    }

    fn repetition(penalty: f64) -> Penalties {
        Penalties { repetition: Some(penalty), ..Penalties::default() }
    }

    fn counted(presence: f64, frequency: f64) -> Penalties {
        Penalties { presence, frequency, ..Penalties::default() }
    }

    #[test]
    fn tokens_are_all_but_the_unused_with_the_changed_in_place_of_their_own() {
        let changed = [Candidate { id: 2, logit: 9.0 }];
        let found: Vec<(u32, f32)> =
            tokens(&[1.0, 2.0, 3.0, 4.0], &[1, 7], &changed).map(|token| (token.id, token.logit)).collect();
        assert_eq!(found, [(0, 1.0), (2, 9.0), (3, 4.0)]);
    }

    fn ids(candidates: &Candidates) -> Vec<u32> {
        candidates.entries().iter().map(|candidate| candidate.id).collect()
    }

    fn logits(candidates: &Candidates) -> Vec<f32> {
        candidates.entries().iter().map(|candidate| candidate.logit).collect()
    }

    /// Ids 0 to 4 with the probabilities 0.1, 0.4, 0.05, 0.15, 0.3: in order of rank 1, 4, 3, 0, 2.
    fn known() -> Candidates {
        candidates(&[0.1f32, 0.4, 0.05, 0.15, 0.3].map(f32::ln))
    }

    fn kept(step: impl Fn(&mut Candidates, f64), p: f64) -> Vec<u32> {
        let mut candidates = known();
        step(&mut candidates, p);
        ids(&candidates)
    }

    #[test]
    fn repetition_divides_positive_logits_of_seen_tokens_and_multiplies_the_others() {
        let mut seen = Seen::default();
        // Token 0 is in the prompt, 1 was generated twice, 2 is both, 3 has logit 0, 4 is unseen, 9 is no candidate.
        seen.prompt(&[0, 2, 3, 9]).unwrap();
        [1, 1, 2].into_iter().for_each(|id| seen.generated(id));
        let mut candidates = candidates(&[3.0, -1.0, 2.0, 0.0, 5.0]);
        repetition(2.0).apply(&mut candidates, &seen);
        // 3 / 2; -1 * 2, once although seen twice; 2 / 2; 0 * 2; unchanged.
        assert_eq!(logits(&candidates), [1.5, -2.0, 1.0, 0.0, 5.0]);
        repetition(0.5).apply(&mut candidates, &seen);
        assert_eq!(logits(&candidates), [3.0, -1.0, 2.0, 0.0, 5.0], "below 1 it favours what was seen");
    }

    #[test]
    fn presence_counts_once_and_frequency_every_time() {
        let mut seen = Seen::default();
        seen.prompt(&[0]).unwrap();
        [1, 2, 2, 2].into_iter().for_each(|id| seen.generated(id));
        let mut first = candidates(&[1.0; 4]);
        counted(0.5, 0.0).apply(&mut first, &seen);
        // The prompt does not count; 1 - 0.5 however often generated; 3 is unseen.
        assert_eq!(logits(&first), [1.0, 0.5, 0.5, 1.0]);
        let mut second = candidates(&[1.0; 4]);
        counted(0.0, 0.25).apply(&mut second, &seen);
        // 1 - 0.25 * 1; 1 - 0.25 * 3.
        assert_eq!(logits(&second), [1.0, 0.75, 0.25, 1.0]);
        let mut both = candidates(&[1.0; 4]);
        counted(-0.5, 0.25).apply(&mut both, &seen);
        // 1 + 0.5 - 0.25; 1 + 0.5 - 0.75.
        assert_eq!(logits(&both), [1.0, 1.25, 0.75, 1.0]);
    }

    #[test]
    fn a_penalty_finds_its_token_among_fewer_candidates() {
        let mut candidates = known();
        keep_top_k(&mut candidates, 3);
        let mut seen = Seen::default();
        [0, 4].into_iter().for_each(|id| seen.generated(id));
        let before = logits(&candidates);
        counted(1.0, 0.0).apply(&mut candidates, &seen);
        assert_eq!(ids(&candidates), [1, 3, 4]);
        assert_eq!(logits(&candidates), [before[0], before[1], before[2] - 1.0]);
    }

    #[test]
    fn temperature_divides_and_stays_finite() {
        let mut warm = candidates(&[1.0, -3.0, 0.0]);
        divide(&mut warm, 2.0);
        assert_eq!(logits(&warm), [0.5, -1.5, 0.0]);
        let mut extreme = candidates(&[f32::MAX, f32::MIN, 0.0]);
        divide(&mut extreme, 1e-7);
        assert_eq!(logits(&extreme), [f32::MAX, f32::MIN, 0.0]);
        let mut seen = Seen::default();
        seen.prompt(&[0, 1, 2]).unwrap();
        for penalty in [f64::MIN_POSITIVE, f64::MAX] {
            repetition(penalty).apply(&mut extreme, &seen);
            assert!(logits(&extreme).iter().all(|logit| logit.is_finite()), "{penalty}");
        }
    }

    #[test]
    fn top_k_keeps_exactly_the_k_most_likely() {
        let table: [(usize, &[u32]); 7] = [
            (0, &[0, 1, 2, 3, 4]),
            (1, &[1]),
            (2, &[1, 4]),
            (3, &[1, 3, 4]),
            (4, &[0, 1, 3, 4]),
            (5, &[0, 1, 2, 3, 4]),
            (usize::MAX, &[0, 1, 2, 3, 4]),
        ];
        for (k, expected) in table {
            let mut candidates = known();
            keep_top_k(&mut candidates, k);
            assert_eq!(ids(&candidates), expected, "top_k {k}");
        }
        let mut equal = candidates(&[1.0, 2.0, 2.0, -0.0, 2.0, 0.0]);
        keep_top_k(&mut equal, 2);
        assert_eq!(ids(&equal), [1, 2], "the lowest ids among equals");
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_it() {
        // Sums in order of rank: 0.4, 0.7, 0.85, 0.95, 1.
        let table: [(f64, &[u32]); 8] = [
            (0.0, &[1]),
            (0.3, &[1]),
            (0.41, &[1, 4]),
            (0.69, &[1, 4]),
            (0.71, &[1, 3, 4]),
            (0.86, &[0, 1, 3, 4]),
            (0.96, &[0, 1, 2, 3, 4]),
            (1.0, &[0, 1, 2, 3, 4]),
        ];
        for (p, expected) in table {
            assert_eq!(kept(Candidates::keep_top_p, p), expected, "top_p {p}");
        }
    }

    #[test]
    fn min_p_keeps_a_share_of_the_most_likely() {
        // The shares of 0.4 are 0.25, 1, 0.125, 0.375 and 0.75.
        let table: [(f64, &[u32]); 7] = [
            (0.0, &[0, 1, 2, 3, 4]),
            (0.12, &[0, 1, 2, 3, 4]),
            (0.13, &[0, 1, 3, 4]),
            (0.26, &[1, 3, 4]),
            (0.38, &[1, 4]),
            (0.76, &[1]),
            (1.0, &[1]),
        ];
        for (p, expected) in table {
            assert_eq!(kept(Candidates::keep_min_p, p), expected, "min_p {p}");
        }
    }

    #[test]
    fn top_p_is_of_what_top_k_left() {
        let mut candidates = known();
        keep_top_k(&mut candidates, 2);
        // 0.4 is 0.571 of the 0.7 that is left: it reaches 0.5 by itself, while among all five tokens it would not.
        candidates.keep_top_p(0.5);
        assert_eq!(ids(&candidates), [1]);
        assert_eq!(kept(Candidates::keep_top_p, 0.5), [1, 4]);
    }

    #[test]
    fn no_step_fails_without_candidates() {
        let steps: [fn(&mut Candidates, f64); 4] =
            [|none, _| keep_top_k(none, 1), Candidates::keep_top_p, Candidates::keep_min_p, divide];
        for step in steps {
            let mut none = candidates(&[]);
            step(&mut none, 0.5);
            assert!(none.best().is_none());
        }
    }

    /// Logits with few distinct values, so that ties occur.
    fn some_logits() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec((-40i8..40).prop_map(|value| f32::from(value) / 4.0), 1..700)
    }

    /// All candidates in order of rank.
    fn sorted(logits: &[f32]) -> Vec<Candidate> {
        let mut all = candidates(logits).entries;
        all.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
        all
    }

    fn sorted_ids(ranked: &[Candidate]) -> Vec<u32> {
        let mut ids: Vec<u32> = ranked.iter().map(|candidate| candidate.id).collect();
        ids.sort_unstable();
        ids
    }

    proptest! {
        #[test]
        fn top_k_is_the_head_of_the_full_sort(logits in some_logits(), k in 1usize..800) {
            let mut filtered = candidates(&logits);
            keep_top_k(&mut filtered, k);
            let all = sorted(&logits);
            prop_assert_eq!(ids(&filtered), sorted_ids(&all[..k.min(all.len())]));
        }

        #[test]
        fn top_p_is_a_head_of_the_full_sort_and_no_longer_than_needed(logits in some_logits(), p in 0.0f64..1.0) {
            let mut filtered = candidates(&logits);
            filtered.keep_top_p(p);
            let all = sorted(&logits);
            let weights: Vec<f64> = all.iter().map(|candidate| f64::from(candidate.logit).exp()).collect();
            let total: f64 = weights.iter().sum();
            let kept = filtered.entries().len();
            prop_assert_eq!(ids(&filtered), sorted_ids(&all[..kept]));
            // The tolerance is 1e-6: exponentials in F32 are off by 6e-8 each, and only sums near the limit need it.
            let reached = weights[..kept].iter().sum::<f64>() / total;
            let without_last = weights[..kept - 1].iter().sum::<f64>() / total;
            prop_assert!(reached >= p - 1e-6 && (kept == 1 || without_last < p + 1e-6), "{} {}", reached, without_last);
        }
    }
}
