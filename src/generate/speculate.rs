//! A sequence so far -> guesses at its next tokens, by what followed its last ones before (prompt lookup). Whether a guess is
//! right says the sampler alone.

use super::Timings;
use super::options::{GenerateOptions, Speculation};
use super::stop::StopTokens;
use crate::error::Result;
use crate::memory;
use crate::scheduler::costs::MOST_GUESSES;
use crate::tokenizer::Tokenizer;

/// The most and the fewest last tokens that are looked for.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// How much an older guess says of the next ones, beside one that is younger by one.
const FADES: f64 = 0.95;

/// Guesses by n-grams, one generation long.
///
/// To look through the sequence takes a comparison for each of its tokens, which is little beside the attention of the step.
#[derive(Debug)]
pub(super) struct Speculator {
    /// The prompt and what was generated.
    sequence: Vec<u32>,
    /// Other texts that it may repeat.
    texts: Vec<Vec<u32>>,
    /// How many guesses a step has, in place of as many as pay.
    tokens: Option<usize>,
    /// The last guesses, the next of them that a drawn token decides on, and how many are computed ahead from there on.
    guesses: Vec<u32>,
    next: usize,
    ahead: usize,
    /// Whether the last token was one of them, so that the logits behind it are there.
    computed: bool,
    /// The length of the n-gram that they followed.
    matched: usize,
    /// How many guesses were right and how many were decided on, by the length of that n-gram.
    hits: [(f64, f64); LONGEST - SHORTEST + 1],
}

impl Speculator {
    /// Of a generation that continues `sequence`; `None` without speculation.
    ///
    /// # Errors
    /// `Option`, `Encode`, `OutOfMemory`.
    pub(super) fn new(
        options: &GenerateOptions,
        tokenizer: &Tokenizer,
        sequence: &[u32],
    ) -> Result<Option<Box<Speculator>>> {
        options.speculation_in_range()?;
        if options.speculate == Speculation::Off {
            return Ok(None);
        }
        let texts = options.speculate_from.iter().map(|text| tokenizer.encode(text, false));
        Ok(Some(Box::new(Speculator {
            sequence: memory::copied(sequence, "the ids of a sequence")?,
            texts: texts.collect::<Result<_>>()?,
            tokens: options.speculative_tokens,
            guesses: Vec::new(),
            next: 0,
            ahead: 0,
            computed: false,
            matched: SHORTEST,
            hits: Default::default(),
        })))
    }

    /// Makes room for a token and for guesses.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn reserve(&mut self) -> Result<()> {
        memory::grow(&mut self.sequence, 1, "the ids of a sequence")?;
        let missing = MOST_GUESSES.saturating_sub(self.guesses.len());
        Ok(memory::grow(&mut self.guesses, missing, "guessed tokens")?)
    }

    /// Guesses at most `most` tokens, none of them one of `stop`, with the probability that each is right, unless they are to
    /// be computed anyway. `None` where nothing is guessed, or what follows the last token is computed already.
    pub(super) fn guess(&mut self, most: usize, stop: &StopTokens) -> Option<(&[u32], Option<f64>)> {
        if self.ahead > 0 || self.computed {
            return None;
        }
        (self.next, self.matched) = (0, 0);
        self.guesses.clear();
        let most = most.min(self.tokens.unwrap_or(MOST_GUESSES));
        let (earlier, end) = (self.sequence.len().checked_sub(1)?, &self.sequence);
        let mut best = find(&end[..earlier], end).map(|(matched, place)| (matched, place, end.as_slice()));
        for text in &self.texts {
            let found = text.split_last().and_then(|(_, text)| find(text, end));
            if let Some((matched, place)) = found.filter(|(matched, _)| best.is_none_or(|(best, ..)| *matched > best)) {
                best = Some((matched, place, text));
            }
        }
        let (matched, place, text) = best?;
        for index in 0..most {
            // Behind the end of the sequence it goes on with the guesses: a loop is shorter than what it gives.
            let behind = (place + index).checked_sub(end.len()).filter(|_| std::ptr::eq(text, end.as_slice()));
            let token = behind.map_or_else(|| text.get(place + index), |behind| self.guesses.get(behind));
            match token.copied().filter(|token| !stop.contains(*token)) {
                Some(token) => self.guesses.push(token),
                None => break,
            }
        }
        self.matched = matched;
        let (right, decided) = self.hits[matched - SHORTEST];
        let likely = (right + 1.0) / (decided + 2.0);
        (!self.guesses.is_empty()).then_some((&self.guesses, self.tokens.is_none().then_some(likely)))
    }

    /// Tells how many guesses are computed ahead. Without any the first still counts as right or wrong: that is how it is
    /// known when they pay again.
    pub(super) fn taken(&mut self, count: usize, timings: &mut Timings) {
        self.ahead = count;
        self.guesses.truncate(count.max(1));
        timings.guessed += count;
    }

    /// Tells the token that was drawn.
    pub(super) fn drawn(&mut self, token: u32, timings: &mut Timings) {
        self.sequence.push(token);
        self.computed = false;
        let Some(guess) = self.guesses.get(self.next) else { return };
        let right = *guess == token;
        if let Some(hits) = self.matched.checked_sub(SHORTEST).and_then(|index| self.hits.get_mut(index)) {
            *hits = (hits.0 * FADES + f64::from(u8::from(right)), hits.1 * FADES + 1.0);
        }
        if right {
            self.computed = self.ahead > 0;
            timings.accepted += usize::from(self.computed);
            self.next += 1;
            self.ahead = self.ahead.saturating_sub(1);
        } else {
            self.ahead = 0;
        }
        if self.ahead == 0 {
            self.guesses.clear();
            self.next = 0;
        }
    }
}

/// The longest of the n-grams at the end of `sequence` that `text` has, the last of equals, and the place behind it.
fn find(text: &[u32], sequence: &[u32]) -> Option<(usize, usize)> {
    let end: [u32; SHORTEST] = *sequence.last_chunk()?;
    let mut best = None;
    for (start, _) in text.windows(SHORTEST).enumerate().rev().filter(|(_, window)| **window == end) {
        let place = start + SHORTEST;
        let same = text[..place].iter().rev().zip(sequence.iter().rev()).take(LONGEST);
        let matched = same.take_while(|(a, b)| a == b).count();
        if best.is_none_or(|(longest, _)| matched > longest) {
            best = Some((matched, place));
        }
        if matched == LONGEST {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speculator(sequence: &[u32], texts: &[&[u32]]) -> Speculator {
        Speculator {
            sequence: sequence.to_vec(),
            texts: texts.iter().map(|text| text.to_vec()).collect(),
            tokens: None,
            guesses: Vec::new(),
            next: 0,
            ahead: 0,
            computed: false,
            matched: SHORTEST,
            hits: Default::default(),
        }
    }

    #[test]
    fn guesses_are_what_followed_the_longest_and_then_the_latest_match() {
        type Case<'a> = (&'a [u32], &'a [&'a [u32]], usize, &'a [u32]);
        let table: [Case<'_>; 11] = [
            (&[], &[], 5, &[]),
            (&[1], &[], 5, &[]),
            (&[1, 2, 3], &[], 5, &[]),
            (&[2, 3, 1, 3], &[], 5, &[]), // one token alone is no n-gram
            (&[1, 2, 7, 8, 9, 1, 2], &[], 3, &[7, 8, 9]),
            (&[1, 2, 7, 1, 2, 8, 5, 1, 2], &[], 2, &[8, 5]),
            (&[0, 1, 2, 7, 5, 1, 2, 8, 0, 1, 2], &[], 2, &[7, 5]), // three match where two do later
            (&[4, 5, 4, 5, 4], &[], 7, &[5, 4, 5, 4, 5, 4, 5]),    // a loop goes on
            (&[6, 6, 6], &[], 3, &[6, 6, 6]),
            (&[3, 1, 2], &[&[1, 2, 5], &[3, 1, 2, 6, 7], &[1, 2]], 4, &[6, 7]), // to the end of the text
            (&[1, 2, 9, 1, 2], &[&[1, 2, 5]], 1, &[9]),                         // its own come first
        ];
        for (sequence, texts, most, expected) in table {
            let mut speculator = speculator(sequence, texts);
            let found = speculator.guess(most, &StopTokens::default()).map(|(guesses, _)| guesses.to_vec());
            assert_eq!(found.unwrap_or_default(), expected, "{sequence:?} {texts:?}");
        }
        let mut stopped = speculator(&[1, 2, 7, 8, 9, 1, 2], &[]);
        assert_eq!(stopped.guess(5, &StopTokens::from_iter([9])).unwrap().0, [7, 8]);
        assert!(stopped.guess(5, &StopTokens::from_iter([7])).is_none());
    }

    #[test]
    fn what_is_drawn_decides_on_guesses_and_how_likely_the_next_are() {
        let (mut timings, stop) = (Timings::default(), StopTokens::default());
        let mut speculator = speculator(&[1, 2, 7, 8, 9, 1, 2], &[]);
        assert_eq!(speculator.guess(5, &stop).unwrap(), (&[7, 8, 9, 1, 2][..], Some(0.5)));
        speculator.taken(3, &mut timings);
        speculator.drawn(7, &mut timings);
        assert!(speculator.guess(5, &stop).is_none(), "two are computed ahead");
        speculator.drawn(8, &mut timings);
        speculator.drawn(3, &mut timings);
        assert_eq!((timings.guessed, timings.accepted), (3, 2));
        assert!(speculator.guess(5, &stop).is_none(), "nothing followed 8 and 3");
        speculator.taken(0, &mut timings);
        for token in [4, 1, 2] {
            speculator.reserve().unwrap();
            speculator.drawn(token, &mut timings);
        }
        // Two of three were right.
        let likely = speculator.guess(5, &stop).unwrap().1.unwrap();
        assert!((likely - (0.95f64.powi(2) + 0.95 + 1.0) / (0.95f64.powi(2) + 0.95 + 3.0)).abs() < 1e-12, "{likely}");
        // Counted though it is not computed.
        speculator.taken(0, &mut timings);
        speculator.drawn(7, &mut timings);
        assert!(speculator.hits[0].0 > 2.0);
        assert_eq!(speculator.guess(5, &stop).unwrap().0, [8, 3, 4, 1, 2]);
        speculator.taken(1, &mut timings);
        speculator.drawn(8, &mut timings);
        assert!(speculator.guess(5, &stop).is_none(), "what follows the guess that was computed is there");
        speculator.drawn(9, &mut timings);
        assert!(speculator.guess(5, &stop).is_some());
        assert_eq!((timings.guessed, timings.accepted), (4, 3));
    }
}
