//! Ids of texts -> a vector of the hidden states of each: steps of as many rows as the plan counts, the longest texts first.

use crate::cancel::CancellationToken;
use crate::decoder::{Batching, Cache, OutputRows, Segment};
use crate::error::{EmbedError, EngineError, Error, Result};
use crate::model::Model;
use model_factory_diagnostics::plan::step_rows;
use model_factory_diagnostics::spec::Pooling;
use std::cmp::Reverse;
use std::collections::VecDeque;

/// A text on its way.
pub(crate) struct Text {
    ids: Vec<u32>,
    /// The place from which ids are of the second kind.
    second_text: Option<usize>,
    /// Of a text of which a part is computed.
    cache: Option<Box<dyn Cache>>,
    /// Tokens that are computed.
    done: usize,
    /// The sum of the wanted hidden states so far; empty before the first.
    sum: Vec<f64>,
}

impl Text {
    pub(crate) fn new(ids: Vec<u32>, second_text: Option<usize>) -> Text {
        Text { ids, second_text, cache: None, done: 0, sum: Vec::new() }
    }

    fn left(&self) -> usize {
        self.ids.len() - self.done
    }

    /// Which hidden states of its next `tokens` are wanted.
    fn logits(&self, wanted: Pooling, tokens: usize) -> OutputRows {
        match wanted {
            Pooling::Mean => OutputRows::All,
            Pooling::Cls if self.done == 0 => OutputRows::First,
            Pooling::Last if tokens == self.left() => OutputRows::Last,
            Pooling::Cls | Pooling::Last => OutputRows::None,
        }
    }

    /// Adds `rows` of hidden states `[rows, width]`, in their order.
    fn add(&mut self, rows: &[f32], width: usize) {
        self.sum.resize(width, 0.0);
        for row in rows.chunks_exact(width) {
            self.sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        }
    }
}

impl Model {
    /// Calls `take` with the index of each of `texts` and the hidden states of it that are `wanted`, in F64: one, or their mean.
    ///
    /// # Errors
    /// Those of the steps and of `take`.
    pub(crate) fn compute_texts(
        &self,
        mut texts: Vec<Text>,
        wanted: Pooling,
        cancel: &CancellationToken,
        mut take: impl FnMut(usize, &[f64]) -> Result<()>,
    ) -> Result<()> {
        if !self.compute().gives_hidden_states() {
            return Err(EmbedError::Device.into());
        }
        let spec = self.spec();
        let most = step_rows(spec);
        let alone = self.compute().batching() != Batching::Any;
        let mut waiting: Vec<usize> = (0..texts.len()).collect();
        waiting.sort_by_key(|index| Reverse(texts[*index].ids.len()));
        let mut waiting = VecDeque::from(waiting);
        while !waiting.is_empty() {
            let mut step = choose(&mut waiting, &texts, most, alone, spec.is_encoder());
            // What has no room in the caches now comes later.
            let begun = self.reserve(&mut texts, &step)?;
            step.drain(begun..).rev().for_each(|(index, _)| waiting.push_front(index));
            self.step(&mut texts, &step, wanted, cancel)?;
            for (index, _) in step.into_iter().rev() {
                let text = &mut texts[index];
                if text.left() > 0 {
                    waiting.push_front(index);
                    continue;
                }
                if wanted == Pooling::Mean {
                    let tokens = text.ids.len() as f64;
                    text.sum.iter_mut().for_each(|sum| *sum /= tokens);
                }
                take(index, &std::mem::take(&mut text.sum))?;
                text.cache = None;
            }
            self.scheduler().freed();
        }
        Ok(())
    }

    /// Takes pages for the next tokens of each text of `step`; how many texts have theirs, the first at least.
    fn reserve(&self, texts: &mut [Text], step: &[(usize, usize)]) -> Result<usize> {
        for (place, (index, tokens)) in step.iter().enumerate() {
            let text = &mut texts[*index];
            let mut cache = text.cache.take().unwrap_or_else(|| self.compute().cache());
            // What others share was rotated for their length.
            let reserved = cache.reserve(text.done + tokens);
            text.cache = Some(cache).filter(|_| reserved.is_ok() || text.done > 0);
            match reserved {
                Err(EngineError::CacheBudget { .. }) if place > 0 => return Ok(place),
                reserved => reserved?,
            }
        }
        Ok(step.len())
    }

    /// Computes a step: of each text its next tokens.
    fn step(
        &self,
        texts: &mut [Text],
        step: &[(usize, usize)],
        wanted: Pooling,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let (compute, width) = (self.compute(), self.spec().hidden);
        let mut parts: Vec<Option<Box<dyn Cache>>> = Vec::new();
        for (index, _) in step {
            parts.push(texts[*index].cache.take());
        }
        let segments = step.iter().zip(parts.iter_mut().flatten()).map(|((index, tokens), cache)| {
            let text = &texts[*index];
            let logits = text.logits(wanted, *tokens);
            let (tokens, reach, second_text) = (&text.ids[text.done..][..*tokens], text.ids.len(), text.second_text);
            Segment { tokens, cache: &mut **cache, reach, second_text, logits }
        });
        let mut segments: Vec<Segment<'_>> = segments.collect();
        let rows: Vec<usize> = segments.iter().map(Segment::wanted_rows).collect();
        let states = self.scheduler().between_steps(|| compute.hidden_states(&mut segments, cancel))??;
        drop(segments);
        let mut start = 0;
        for (((index, tokens), cache), rows) in step.iter().zip(parts).zip(rows) {
            let text = &mut texts[*index];
            let end = start + rows * width;
            let states = states.get(start..end).ok_or_else(|| Error::Internal("hidden states are missing".into()))?;
            (text.cache, text.done, start) = (cache, text.done + tokens, end);
            text.add(states, width);
        }
        Ok(())
    }
}

/// Takes the texts of the next step out of `waiting`, the longest first, each with the tokens that it has of it: `most` in all.
/// The rest behind long ones is filled with short ones.
fn choose(waiting: &mut VecDeque<usize>, texts: &[Text], most: usize, alone: bool, whole: bool) -> Vec<(usize, usize)> {
    let (mut step, mut left, mut from_behind) = (Vec::new(), most, false);
    while left > 0 {
        let next = if from_behind { waiting.back() } else { waiting.front() };
        let Some(&index) = next else { break };
        let tokens = texts[index].left();
        if whole && tokens > left && !step.is_empty() {
            if from_behind {
                break;
            }
            from_behind = true;
            continue;
        }
        let tokens = if whole { tokens } else { tokens.min(left) };
        if from_behind {
            waiting.pop_back()
        } else {
            waiting.pop_front()
        };
        step.push((index, tokens));
        left = left.saturating_sub(tokens);
        if alone {
            break;
        }
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lengths: &[usize]) -> (Vec<Text>, VecDeque<usize>) {
        (lengths.iter().map(|length| Text::new(vec![0; *length], None)).collect(), (0..lengths.len()).collect())
    }

    #[test]
    fn a_step_is_filled_and_no_text_is_cut_that_must_be_whole() {
        let (long, mut waiting) = texts(&[400, 200, 150, 100, 12, 10]);
        assert_eq!(choose(&mut waiting, &long, 512, false, true), [(0, 400), (5, 10), (4, 12)]);
        assert_eq!(choose(&mut waiting, &long, 512, false, true), [(1, 200), (2, 150), (3, 100)]);
        assert!(waiting.is_empty());
        let (long, mut waiting) = texts(&[400, 200, 10]);
        assert_eq!(choose(&mut waiting, &long, 512, false, false), [(0, 400), (1, 112)]);
        let (long, mut waiting) = texts(&[700, 20]);
        assert_eq!(choose(&mut waiting, &long, 512, false, true), [(0, 700)], "the plan counts the longest");
        let (long, mut waiting) = texts(&[30, 20]);
        assert_eq!(choose(&mut waiting, &long, 512, true, false), [(0, 30)]);
    }
}
