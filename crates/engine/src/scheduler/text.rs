//! Texts whose vectors are wanted: which of them a step computes, and how hidden states become a vector.

use super::queue::Waiting;
use super::run::{Phase, Run};
use crate::decoder::{Batching, Compute, OutputRows};
use crate::error::Error;
use crate::memory;
use model_factory_spec::spec::Pooling;
use std::collections::VecDeque;
use std::sync::Arc;

/// How the hidden states of a text become a vector, and the vector so far.
#[derive(Debug)]
pub struct Text {
    poolings: Arc<[Pooling]>,
    /// Tokens in front that are left out.
    skipped: usize,
    /// The position from which on tokens are of the second kind.
    pub(super) second_text: Option<usize>,
    /// Whether one step computes all of it: each of its tokens sees the ones after it.
    is_whole: bool,
    /// What the poolings have made of the hidden states so far, side by side; empty before the first.
    pooled: Vec<f64>,
}

impl Text {
    /// A text whose vector `poolings` make of the hidden states of its tokens but the first `skipped`.
    pub fn new(poolings: Arc<[Pooling]>, skipped: usize, second_text: Option<usize>, is_whole: bool) -> Text {
        Text { poolings, skipped, second_text, is_whole, pooled: Vec::new() }
    }

    /// The vector of a text of `tokens`: those of its poolings, side by side.
    pub fn into_vector(mut self, tokens: usize) -> Vec<f64> {
        let counted = tokens.saturating_sub(self.skipped);
        let width = (self.pooled.len() / self.poolings.len().max(1)).max(1);
        for (pooling, pooled) in self.poolings.iter().zip(self.pooled.chunks_exact_mut(width)) {
            let divisor = match pooling {
                Pooling::Last | Pooling::Cls | Pooling::Max => continue,
                Pooling::Mean => counted as f64,
                Pooling::MeanSqrtLen => (counted as f64).sqrt(),
                // The sum of the positions.
                Pooling::WeightedMean => counted as f64 * (self.skipped + 1 + tokens) as f64 / 2.0,
            };
            pooled.iter_mut().for_each(|x| *x /= divisor);
        }
        self.pooled
    }

    /// The wanted hidden states of a part that begins at `start`.
    pub(super) fn rows(&self, start: usize, is_last: bool) -> OutputRows {
        match *self.poolings {
            [Pooling::Cls] if self.skipped == 0 => {
                if start == 0 {
                    OutputRows::First
                } else {
                    OutputRows::None
                }
            }
            [Pooling::Last] => {
                if is_last {
                    OutputRows::Last
                } else {
                    OutputRows::None
                }
            }
            _ => OutputRows::All,
        }
    }

    /// Adds hidden states `[rows, width]` of the part that begins at `start`; `width` is unused without rows. A text that
    /// begins again, as its cache was lost with a failed step, begins anew.
    pub(super) fn add(&mut self, start: usize, rows: &[f32], width: usize) -> memory::Result<()> {
        if start == 0 {
            self.pooled.clear();
        }
        if rows.is_empty() {
            return Ok(());
        }
        memory::lengthen(&mut self.pooled, self.poolings.len() * width, 0.0, "the vector of a text")?;
        for (position, row) in (start..).zip(rows.chunks_exact(width)) {
            let first = position == self.skipped;
            for (pooling, pooled) in self.poolings.iter().zip(self.pooled.chunks_exact_mut(width)) {
                let row = pooled.iter_mut().zip(row.iter().map(|x| f64::from(*x)));
                match pooling {
                    // Where only its row is wanted, its position is not known here.
                    Pooling::Last => row.for_each(|(to, x)| *to = x),
                    _ if position < self.skipped => {}
                    Pooling::Cls if !first => {}
                    Pooling::Cls => row.for_each(|(to, x)| *to = x),
                    Pooling::Max => row.filter(|(to, x)| first || *x > **to || x.is_nan()).for_each(|(to, x)| *to = x),
                    Pooling::Mean | Pooling::MeanSqrtLen => row.for_each(|(sum, x)| *sum += x),
                    Pooling::WeightedMean => row.for_each(|(sum, x)| *sum += (position + 1) as f64 * x),
                }
            }
        }
        Ok(())
    }
}

/// Gives texts of the caller of the one at `first` of `waiting` their tokens of the next step and the pages for them:
/// texts that were begun, then others in order of arrival, as far as they fit. One whose pages do not fit comes in a later
/// step.
pub(super) fn share(waiting: &mut VecDeque<Waiting<Run>>, first: usize, compute: &dyn Compute) {
    let is_isolated = matches!(waiting[first].request.phase, Phase::Isolated);
    let is_alone = is_isolated || compute.batching() != Batching::Any;
    let caller = Arc::clone(&waiting[first].caller);
    let candidate = |(index, waiting): (usize, &Waiting<Run>)| {
        let is_with = if is_isolated { index == first } else { Arc::ptr_eq(&waiting.caller, &caller) };
        (is_with && waiting.request.text().is_some()).then_some((waiting.request.cache.len() == 0, index))
    };
    let mut texts: Vec<(bool, usize)> = waiting.iter().enumerate().filter_map(candidate).collect();
    texts.sort_unstable();
    let room = compute.step_room();
    let (most, mut given) = (room.rows - room.logits, 0);
    for (_, index) in texts {
        let run = &mut waiting[index].request;
        let (is_whole, held) = (run.text().is_some_and(|text| text.is_whole), run.cache.len());
        if run.pending() == 0 {
            run.finish(Err(Error::Internal("a text without tokens is computed".into())));
            continue;
        }
        let tokens = share_of(run.pending(), is_whole, most, given);
        if tokens == 0 {
            continue;
        }
        match run.cache.reserve(held + tokens) {
            Ok(()) => (run.tokens, given) = (tokens, given + tokens),
            Err(error) => {
                run.cache.truncate(held);
                if given == 0 || !matches!(error, Error::CacheBudget { .. }) {
                    run.finish(Err(error));
                }
                return;
            }
        }
        if is_alone {
            return;
        }
    }
}

/// Orders the requests that wait after a step of `last`: steps of sequences and of texts take turns, and so do callers
/// with texts. A request's `kind` is whether it is a text, and its caller.
pub(super) fn take_turns<T, C: PartialEq + Copy>(waiting: &mut [T], last: (bool, C), kind: impl Fn(&T) -> (bool, C)) {
    waiting.sort_by_key(|request| {
        let (is_text, caller) = kind(request);
        let is_same = is_text == last.0;
        (is_same, is_same && is_text && caller == last.1)
    });
}

/// The tokens that a step of at most `most` takes of a text with `pending` ones, after `given` tokens of others. A text that
/// must be whole may be longer than a step: the plan counts the longest.
fn share_of(pending: usize, is_whole: bool, most: usize, given: usize) -> usize {
    let left = most.saturating_sub(given);
    match is_whole {
        true if given > 0 && pending > left => 0,
        true => pending,
        false => pending.min(left),
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputRows, Pooling, Text, share_of, take_turns};

    fn shares(pending: &[usize], is_whole: bool) -> Vec<usize> {
        let mut given = 0;
        let share = |pending: &usize| {
            let tokens = share_of(*pending, is_whole, 512, given);
            given += tokens;
            tokens
        };
        pending.iter().map(share).collect()
    }

    #[test]
    fn a_step_is_filled_and_no_text_is_cut_that_must_be_whole() {
        assert_eq!(shares(&[400, 200, 150, 100, 12, 10], true), [400, 0, 0, 100, 12, 0]);
        assert_eq!(shares(&[400, 200, 10], false), [400, 112, 0]);
        assert_eq!(shares(&[700, 20], true), [700, 0]);
        assert_eq!(shares(&[700, 20], false), [512, 0]);
    }

    #[test]
    fn parts_of_a_text_make_one_vector() {
        let vector = |pooling: &[Pooling], skipped| {
            let mut text = Text::new(pooling.into(), skipped, None, false);
            // The first part comes twice: a step failed after it, and the cache was lost.
            let first = (0, [[1.0, 2.0], [3.0, 4.0]]);
            for (start, rows) in [first, first, (2, [[5.0, 6.0], [10.0, 20.0]])] {
                let (wanted, width) = match text.rows(start, start == 2) {
                    OutputRows::None => (&rows[..0], 0),
                    OutputRows::First => (&rows[..1], 2),
                    OutputRows::Last => (&rows[1..], 2),
                    OutputRows::All => (&rows[..], 2),
                };
                text.add(start, wanted.as_flattened(), width).unwrap();
            }
            text.into_vector(4)
        };
        assert_eq!(vector(&[Pooling::Cls], 0), [1.0, 2.0]);
        assert_eq!(vector(&[Pooling::Cls], 1), [3.0, 4.0]);
        assert_eq!(vector(&[Pooling::Last], 3), [10.0, 20.0]);
        assert_eq!(vector(&[Pooling::Mean], 0), [4.75, 8.0]);
        assert_eq!(vector(&[Pooling::Mean, Pooling::Cls], 2), [7.5, 13.0, 5.0, 6.0]);
        assert_eq!(vector(&[Pooling::WeightedMean], 0), [6.2, 10.8]);
        assert_eq!(vector(&[Pooling::WeightedMean, Pooling::MeanSqrtLen], 3), [10.0, 20.0, 10.0, 20.0]);
        assert_eq!(vector(&[Pooling::MeanSqrtLen, Pooling::Max], 0), [9.5, 16.0, 10.0, 20.0]);
    }

    #[test]
    fn several_callers_with_texts_take_turns_with_sequences() {
        // Two callers with texts, one of each in a step, and two sequences that take two steps each, and so on: who is
        // in front of the queue is computed. A sequence that comes while a text is computed is next.
        let kind = |request: &char| (matches!(request, 'a' | 'b'), *request);
        let mut waiting = vec!['a', 'a', 'a', 's', 'b', 'b', 'b', 's'];
        let (mut steps, mut last) = (String::new(), None);
        while !waiting.is_empty() && steps.len() < 12 {
            if let Some(last) = last {
                take_turns(&mut waiting, last, kind);
            }
            let first = waiting.remove(0);
            last = Some(kind(&first));
            waiting.extend((first == 's').then_some('s'));
            steps.push(first);
        }
        assert_eq!(steps, "asbsasbsasbs");
        let mut waiting = ['a', 'a', 's'];
        take_turns(&mut waiting, kind(&'a'), kind);
        assert_eq!(waiting, ['s', 'a', 'a']);
    }
}
