//! The JSON of an answer so far -> the tokens that would make one of its numbers larger than a double holds.
//!
//! A grammar of JSON numbers allows exponents of any length, but few parsers read numbers that no double holds.

use llguidance::toktrie::{SimpleVob, TokTrie};

/// The most digits before the point plus the exponent: numbers are below ten to the 308.
const LARGEST: u32 = 308;

/// The position at the end of a JSON text. Between values there may be other signs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Numbers {
    /// The position is between values.
    #[default]
    Between,
    /// The position is in a word, whose digits are not a number.
    Word,
    String,
    /// The position is after a backslash in a string.
    Escape,
    Number(Number),
}

/// A number so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    place: Place,
    /// Digits before the point.
    digits: u32,
    exponent: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Whole,
    Fraction,
    /// The position after the `e`, where a sign may follow.
    Begun,
    Exponent,
    /// In a negative exponent: a number that is too small is zero.
    Negative,
}

impl Numbers {
    /// Forbids the tokens of `mask` that make a number too large. Where no number has begun, a token would have to spell all of it:
    /// no vocabulary has one.
    pub(crate) fn forbid(self, trie: &TokTrie, mask: &mut SimpleVob) {
        if !matches!(self, Numbers::Number(_)) {
            return;
        }
        let mut forbidden = Vec::new();
        mask.iter_set_entries(|token| {
            let token = u32::try_from(token).unwrap_or(u32::MAX);
            forbidden.extend(Some(token).filter(|token| self.after(trie.token(*token)).is_none()));
        });
        for token in forbidden {
            mask.disallow_token(token);
        }
    }

    /// The position after a token of these bytes; `None` if a number is too large.
    pub(crate) fn after(self, token: &[u8]) -> Option<Numbers> {
        match token {
            // A special token is not part of a value.
            [TokTrie::SPECIAL_TOKEN_MARKER, ..] => Some(Numbers::Between),
            bytes => bytes.iter().try_fold(self, |numbers, byte| numbers.step(*byte)),
        }
    }

    fn step(self, byte: u8) -> Option<Numbers> {
        Some(match (self, byte) {
            (Numbers::Number(number), byte) => match number.step(byte) {
                Some(number) if number.digits + number.exponent > LARGEST => return None,
                Some(number) => Numbers::Number(number),
                None => return Numbers::Between.step(byte),
            },
            (Numbers::Escape, _) => Numbers::String,
            (Numbers::String, b'\\') => Numbers::Escape,
            // A JSON string contains no line end.
            (Numbers::String, b'"' | b'\n') => Numbers::Between,
            (Numbers::String, _) | (_, b'"') => Numbers::String,
            (Numbers::Between, b'0'..=b'9') => Numbers::Number(Number { place: Place::Whole, digits: 1, exponent: 0 }),
            (_, b'_' | 0x80..) => Numbers::Word,
            (_, byte) if byte.is_ascii_alphanumeric() => Numbers::Word,
            _ => Numbers::Between,
        })
    }
}

impl Number {
    /// The number with one more byte; `None` if it has ended.
    fn step(self, byte: u8) -> Option<Number> {
        let at = |place| Some(Number { place, ..self });
        match (self.place, byte) {
            (Place::Whole, b'0'..=b'9') => Some(Number { digits: self.digits.saturating_add(1), ..self }),
            (Place::Whole, b'.') => at(Place::Fraction),
            (Place::Whole | Place::Fraction, b'e' | b'E') => at(Place::Begun),
            (Place::Begun, b'+') => at(Place::Exponent),
            (Place::Begun, b'-') => at(Place::Negative),
            (Place::Begun | Place::Exponent, b'0'..=b'9') => {
                let exponent = (self.exponent * 10).saturating_add(u32::from(byte - b'0'));
                Some(Number { place: Place::Exponent, exponent, ..self })
            }
            (Place::Fraction | Place::Negative, b'0'..=b'9') => Some(self),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_a_double_holds() {
        let long = "9".repeat(308);
        for (text, is_read) in [
            ("1e307", true),
            ("1e308", false),
            ("-12.5E+306", true),
            ("-12.5E+307", false),
            ("0e000000307", true),
            ("1e-99999999999", true),
            ("[1, 1e3, 1e4000", false),
            (r#""1e400 \" 1e400" "#, true),
            (r#""\\" 1e400"#, false),
            ("1e4.5", true),
            ("call1e400", true),
            (&long, true),
            (&format!("{long}0"), false),
            (&format!("{long}e1"), false),
            (&format!("0.{long}{long}"), true),
        ] {
            let read = Numbers::default().after(text.as_bytes());
            assert_eq!(read.is_some(), is_read, "{text}");
            assert!(!is_read || text.parse::<f64>().is_ok_and(f64::is_finite) || text.contains(['[', '"', 'c', '.']));
        }
        let within = Numbers::default().after(b"\"1e4").unwrap();
        assert_eq!(within.after(&[0xff, b'<', b'x', b'>']), Some(Numbers::Between));
    }
}
