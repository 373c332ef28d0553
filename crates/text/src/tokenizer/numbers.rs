//! Published expressions that cut numbers into groups of digits. They look around, so each is known as a whole.

use crate::error::Result;
use model_factory_format::tokenizer::pre;
use std::ops::Range;

/// How an expression cuts numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    /// Each number into groups of so many digits, counted from its end.
    FromEnd(usize),
    /// The same of three digits, but not a number with a letter or the like after it.
    OfWords,
    /// The one or two digits in front of groups of three, where these are the whole text.
    Front,
    /// Groups of three digits from the beginning of the text on.
    Threes,
}

/// A group has three digits.
const GROUP: usize = 3;

/// The expressions of Trinity's tokenizer.json, and of Cohere's Tiny Aya and North.
const EXPRESSIONS: [(&str, Numbers); 4] = [
    (pre::LONG_NUMBERS, Numbers::FromEnd(510)),
    (pre::FRONT_OF_NUMBERS, Numbers::Front),
    (pre::THREES_OF_NUMBERS, Numbers::Threes),
    (pre::NUMBERS_OF_WORDS, Numbers::OfWords),
];

impl Numbers {
    /// The expression `source`, if it is one of these.
    pub(super) fn of(source: &str) -> Option<Numbers> {
        EXPRESSIONS.iter().find(|(expression, _)| *expression == source).map(|(_, numbers)| *numbers)
    }

    /// Calls `found` with each match in `text`. `digits` is the end of the digits that begin at a place, and `is_word` whether the
    /// character there belongs to a word.
    pub(super) fn find(
        self,
        text: &str,
        digits: impl Fn(usize) -> Result<Option<usize>>,
        is_word: impl Fn(usize) -> Result<bool>,
        mut found: impl FnMut(Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut from = 0;
        while let Some(next) = text[from..].chars().next() {
            let Some(end) = digits(from)? else {
                if matches!(self, Numbers::Front | Numbers::Threes) {
                    return Ok(());
                }
                from += next.len_utf8();
                continue;
            };
            let starts: Vec<usize> = text[from..end].char_indices().map(|(at, _)| from + at).chain([end]).collect();
            let count = starts.len() - 1;
            let (first, size) = match self {
                Numbers::FromEnd(size) => (count % size, size),
                Numbers::OfWords if is_word(end)? => (0, usize::MAX),
                Numbers::OfWords => (count % GROUP, GROUP),
                Numbers::Front if end < text.len() || count < GROUP => return Ok(()),
                Numbers::Front => (count % GROUP, usize::MAX),
                Numbers::Threes => (0, GROUP),
            };
            if first > 0 {
                found(from..starts[first])?;
            }
            let groups = (first..).step_by(size).take_while(|at| size.saturating_add(*at) <= count);
            groups.map(|at| starts[at]..starts[at + size]).try_for_each(&mut found)?;
            if matches!(self, Numbers::Front | Numbers::Threes) {
                return Ok(());
            }
            from = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Pattern;
    use super::super::text::Budget;
    use super::*;

    /// The pieces of `text` between slashes.
    fn cut(expression: &str, text: &str) -> String {
        let pattern = Pattern::new(expression).unwrap();
        let (mut pieces, mut last) = (Vec::new(), 0);
        let mut piece = |range: Range<usize>| {
            pieces.extend([last..range.start, range.clone()].into_iter().filter(|range| !range.is_empty()));
            last = range.end;
            Ok(())
        };
        pattern.find(text, &Budget::new(text.len()), &mut piece).unwrap();
        piece(text.len()..text.len()).unwrap();
        pieces.into_iter().map(|range| &text[range]).collect::<Vec<_>>().join("/")
    }

    /// The expected cuts are those of Oniguruma, in the tokenizers package 0.23.3 for Python.
    #[test]
    fn numbers_are_cut_where_oniguruma_cuts_them() {
        let [ends, front, threes, words] = EXPRESSIONS.map(|(expression, _)| expression);
        for (text, expected) in [
            ("1", ["1", "1", "1", "1"]),
            ("12", ["12", "12", "12", "12"]),
            ("123", ["123", "123", "123", "123"]),
            ("1234", ["1234", "1/234", "123/4", "1/234"]),
            ("12345", ["12345", "12/345", "123/45", "12/345"]),
            ("123456", ["123456", "123456", "123/456", "123/456"]),
            ("1234567 89", ["1234567/ /89", "1234567 89", "123/456/7 89", "1/234/567/ /89"]),
            ("a1234b", ["a/1234/b", "a1234b", "a1234b", "a1234b"]),
            ("a1234", ["a/1234", "a1234", "a1234", "a/1/234"]),
            ("1234²", ["1234/²", "1234²", "123/4²", "1234²"]),
            ("1234_", ["1234/_", "1234_", "123/4_", "1234_"]),
            ("12345\n1234", ["12345/\n/1234", "12345\n1234", "123/45\n1234", "12/345/\n/1/234"]),
            ("١٢٣٤", ["١٢٣٤", "١/٢٣٤", "١٢٣/٤", "١/٢٣٤"]),
            (
                "1234\u{200d}5678",
                ["1234/\u{200d}/5678", "1234\u{200d}5678", "123/4\u{200d}5678", "1/234/\u{200d}/5/678"],
            ),
            ("12 3456", ["12/ /3456", "12 3456", "12 3456", "12/ /3/456"]),
            ("²123456", ["²/123456", "²123456", "²123456", "²/123/456"]),
        ] {
            assert_eq!([ends, front, threes, words].map(|expression| cut(expression, text)), expected, "{text:?}");
        }
        let (long, five) = ("5".repeat(1022) + "x", "5".repeat(510));
        assert_eq!(cut(ends, &long), format!("55/{five}/{five}/x"));
        assert_eq!(cut(words, &long), long);
    }

    #[test]
    fn a_long_number_takes_steps_by_its_length() {
        let digits = "7".repeat(1 << 20);
        for (expression, _) in EXPRESSIONS {
            let pieces = cut(expression, &digits).split('/').count();
            assert!(pieces <= digits.len() / 3 + 1, "{expression}: {pieces}");
        }
    }
}
