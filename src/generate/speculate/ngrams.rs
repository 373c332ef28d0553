//! A sequence so far -> guesses at its next tokens: those that followed its last tokens before (prompt lookup).

/// The most and the fewest last tokens that are searched for.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// The number of kinds of guesses: one for each length of the n-gram that they followed.
pub(super) const KINDS: usize = LONGEST - SHORTEST + 1;

/// Texts that a sequence may repeat, besides its own tokens.
///
/// A search takes one comparison for each token of the sequence, which is little compared with the attention of the step.
#[derive(Debug)]
pub(super) struct Ngrams {
    pub(super) texts: Vec<Vec<u32>>,
}

impl Ngrams {
    /// Appends to `guesses`, which is empty, at most `most` tokens that may follow `sequence`, and returns their kind.
    pub(super) fn guess(&self, sequence: &[u32], most: usize, guesses: &mut Vec<u32>) -> usize {
        let Some((_, earlier)) = sequence.split_last() else { return 0 };
        let mut best = find(earlier, sequence).map(|(matched, place)| (matched, place, sequence));
        for text in &self.texts {
            let found = text.split_last().and_then(|(_, text)| find(text, sequence));
            if let Some((matched, place)) = found.filter(|(matched, _)| best.is_none_or(|(best, ..)| *matched > best)) {
                best = Some((matched, place, text));
            }
        }
        let Some((matched, place, text)) = best else { return 0 };
        for index in 0..most {
            // After the end of the sequence it goes on with the guesses, so a short loop gives more guesses than its length.
            let after = (place + index).checked_sub(sequence.len()).filter(|_| std::ptr::eq(text, sequence));
            match after.map_or_else(|| text.get(place + index), |after| guesses.get(after)).copied() {
                Some(token) => guesses.push(token),
                None => break,
            }
        }
        matched - SHORTEST
    }
}

/// The longest of the n-grams at the end of `sequence` that occurs in `text`, and the place after its last occurrence.
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

    #[test]
    fn guesses_are_what_followed_the_longest_and_then_the_latest_match() {
        type Case<'a> = (&'a [u32], &'a [&'a [u32]], usize, &'a [u32]);
        let table: [Case<'_>; 11] = [
            (&[], &[], 5, &[]),
            (&[1], &[], 5, &[]),
            (&[1, 2, 3], &[], 5, &[]),
            (&[2, 3, 1, 3], &[], 5, &[]), // one token is not an n-gram
            (&[1, 2, 7, 8, 9, 1, 2], &[], 3, &[7, 8, 9]),
            (&[1, 2, 7, 1, 2, 8, 5, 1, 2], &[], 2, &[8, 5]),
            (&[0, 1, 2, 7, 5, 1, 2, 8, 0, 1, 2], &[], 2, &[7, 5]), // a match of three beats a later one of two
            (&[4, 5, 4, 5, 4], &[], 7, &[5, 4, 5, 4, 5, 4, 5]),    // a loop goes on
            (&[6, 6, 6], &[], 3, &[6, 6, 6]),
            (&[3, 1, 2], &[&[1, 2, 5], &[3, 1, 2, 6, 7], &[1, 2]], 4, &[6, 7]), // up to the end of the text
            (&[1, 2, 9, 1, 2], &[&[1, 2, 5]], 1, &[9]),                         // its own come first
        ];
        for (sequence, texts, most, expected) in table {
            let ngrams = Ngrams { texts: texts.iter().map(|text| text.to_vec()).collect() };
            let mut guesses = Vec::new();
            ngrams.guess(sequence, most, &mut guesses);
            assert_eq!(guesses, expected, "{sequence:?} {texts:?}");
        }
    }
}
