//! A sequence -> the penalty of each next token that would repeat an earlier part of it (DRY).

use super::options::Dry;
use crate::error::Result;
use crate::memory;
use crate::tokenizer::Tokenizer;
use std::collections::{BTreeMap, BTreeSet};

/// Longer repetitions count as if they were this much longer than what is allowed.
const LONGEST: usize = 64;

/// The penalty of one generation.
#[derive(Debug)]
pub(super) struct DryPenalty {
    options: Dry,
    breakers: BTreeSet<u32>,
    sequence: Vec<u32>,
    penalties: BTreeMap<u32, f64>,
    /// For each place, counted from the end, how many tokens before it equal the last tokens of the sequence.
    matches: Vec<u32>,
}

impl DryPenalty {
    pub(super) fn new(options: &Dry, tokenizer: &Tokenizer) -> DryPenalty {
        let breaks = |id: &u32| {
            let bytes = tokenizer.token_bytes(*id).unwrap_or_default();
            options
                .breakers
                .iter()
                .filter(|text| !text.is_empty())
                .any(|text| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
        };
        let tokens = 0..u32::try_from(tokenizer.vocab_len()).unwrap_or(u32::MAX);
        DryPenalty {
            breakers: tokens.filter(breaks).collect(),
            options: options.clone(),
            sequence: Vec::new(),
            penalties: BTreeMap::new(),
            matches: Vec::new(),
        }
    }

    pub(super) fn extend(&mut self, ids: &[u32]) -> Result<()> {
        memory::grow(&mut self.sequence, ids.len(), "the tokens of a sequence")?;
        self.sequence.extend_from_slice(ids);
        Ok(())
    }

    pub(super) fn reserve(&mut self) -> Result<()> {
        memory::grow(&mut self.sequence, 1, "the tokens of a sequence")?;
        let tokens = self.tokens() + 1;
        self.matches.clear();
        Ok(memory::grow(&mut self.matches, tokens, "the repetitions of a sequence")?)
    }

    pub(super) fn push(&mut self, token: u32) {
        self.sequence.push(token);
    }

    pub(super) fn follow(&mut self, other: &DryPenalty) -> Result<()> {
        let known = self.sequence.len().min(other.sequence.len());
        self.sequence.truncate(known);
        if self.sequence[..] == other.sequence[..known] {
            return self.extend(&other.sequence[known..]);
        }
        self.sequence.clear();
        self.extend(&other.sequence)
    }

    /// The most tokens that can have a penalty.
    pub(super) fn tokens(&self) -> usize {
        self.sequence.len().min(self.options.last_tokens.unwrap_or(usize::MAX))
    }

    /// What is subtracted from the logit of each token. Tokens without a penalty, such as breakers, are not in the map.
    pub(super) fn penalties(&mut self) -> &BTreeMap<u32, f64> {
        let tokens = self.tokens();
        let DryPenalty { options, breakers, sequence, penalties, matches } = self;
        penalties.clear();
        let window = &sequence[sequence.len() - tokens..];
        // No repetition reaches beyond the last breaker.
        let longest = window.iter().rev().take_while(|id| !breakers.contains(*id)).count();
        let at = |place: usize| window[window.len() - 1 - place]; // counted from the end
        // The Z-function of the reversed sequence: linear time, even for very repetitive sequences.
        matches.clear();
        let (mut left, mut right) = (0, 0);
        for place in 0..window.len() {
            let mut length = 0;
            if place > 0 {
                if place < right {
                    length = (right - place).min(matches[place - left] as usize);
                }
                while place + length < window.len() && at(length) == at(place + length) {
                    length += 1;
                }
                if place + length > right {
                    (left, right) = (place, place + length);
                }
            }
            matches.push(u32::try_from(length).unwrap_or(u32::MAX));
        }
        for (place, length) in matches.iter().enumerate().skip(1) {
            let length = (*length as usize).min(longest);
            if length >= options.allowed_length && !breakers.contains(&at(place - 1)) {
                let over = (length - options.allowed_length).min(LONGEST);
                let penalty = options.multiplier * options.base.powi(over as i32);
                let next = penalties.entry(at(place - 1)).or_insert(0.0);
                *next = penalty.max(*next);
            }
        }
        penalties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn penalty(options: Dry, breakers: &[u32], sequence: &[u32]) -> BTreeMap<u32, f64> {
        let mut dry = DryPenalty {
            options,
            breakers: breakers.iter().copied().collect(),
            sequence: sequence.to_vec(),
            penalties: BTreeMap::new(),
            matches: Vec::new(),
        };
        dry.penalties().clone()
    }

    /// The penalties by comparing, at every place, the tokens before it with those at the end, one by one.
    fn plain(options: &Dry, breakers: &[u32], sequence: &[u32]) -> BTreeMap<u32, f64> {
        let from = sequence.len() - options.last_tokens.unwrap_or(sequence.len()).min(sequence.len());
        let (window, mut all) = (&sequence[from..], BTreeMap::new());
        for place in 0..window.len() {
            let before = window[..place].iter().rev().zip(window.iter().rev());
            let same = before.take_while(|(a, b)| a == b && !breakers.contains(a)).count();
            if same >= options.allowed_length && !breakers.contains(&window[place]) {
                let penalty = options.multiplier * options.base.powi((same - options.allowed_length).min(64) as i32);
                let most: &mut f64 = all.entry(window[place]).or_insert(0.0);
                *most = penalty.max(*most);
            }
        }
        all
    }

    #[test]
    fn what_followed_the_same_tokens_before_loses_by_their_number() {
        let dry = Dry { multiplier: 1.0, base: 2.0, ..Dry::default() };
        // 1 2 3 was followed by 4, and 2 3 by 5.
        let sequence = [1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3];
        assert_eq!(penalty(dry.clone(), &[], &sequence), BTreeMap::from([(4, 2.0), (5, 1.0)]));
        // A breaker at 2 leaves one token, which is free; at 1 it leaves two.
        assert_eq!(penalty(dry.clone(), &[2], &sequence), BTreeMap::new());
        assert_eq!(penalty(dry.clone(), &[1], &sequence), BTreeMap::from([(4, 1.0), (5, 1.0)]));
        let near = Dry { last_tokens: Some(6), ..dry };
        assert_eq!(penalty(near, &[], &sequence), BTreeMap::from([(5, 1.0)]));
    }

    proptest! {
        #[test]
        fn it_is_what_a_plain_search_finds(
            sequence in prop::collection::vec(0u32..4, 0..60), breakers in prop::collection::vec(0u32..6, 0..2),
            allowed_length in 1usize..4, last_tokens in prop::option::of(0usize..70),
        ) {
            let dry = Dry { allowed_length, last_tokens, ..Dry::default() };
            prop_assert_eq!(penalty(dry.clone(), &breakers, &sequence), plain(&dry, &breakers, &sequence));
        }
    }
}
