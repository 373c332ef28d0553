//! Bytes of tokens to text, a piece at a time, never a part of a character.

/// Turns the bytes of tokens into text, token by token. Bytes of an unfinished character wait for the next token;
/// bytes that cannot become a character become U+FFFD, as in [`String::from_utf8_lossy`] of the whole text.
#[derive(Clone, Debug)]
pub struct PieceDecoder {
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
    drop_space: bool,
}

impl PieceDecoder {
    /// A decoder that drops one space at the very start of the text if `drop_space`.
    pub(super) fn new(drop_space: bool) -> Self {
        PieceDecoder { pending: Vec::new(), drop_space }
    }

    /// A decoder that keeps all bytes, even a space at the very start.
    pub fn whole() -> Self {
        PieceDecoder::new(false)
    }

    /// Appends to `text` the characters that the `bytes` of the next token complete.
    pub fn push(&mut self, mut bytes: &[u8], text: &mut String) {
        if self.drop_space && !bytes.is_empty() {
            self.drop_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            let invalid = chunk.invalid();
            done += chunk.valid().len() + invalid.len();
            text.push_str(chunk.valid());
            if done == self.pending.len() && may_continue(invalid) {
                done -= invalid.len();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending.drain(..done);
    }

    /// Whether no byte waits for the rest of its character.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// Appends U+FFFD for bytes that were waiting for the rest of their character.
    pub fn finish(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Whether `bytes` is the beginning of a character that more bytes can complete.
fn may_continue(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(tokens: &[Vec<u8>], drop_space: bool) -> Vec<String> {
        let mut decoder = PieceDecoder::new(drop_space);
        let mut pieces: Vec<String> = tokens
            .iter()
            .map(|bytes| {
                let mut text = String::new();
                decoder.push(bytes, &mut text);
                text
            })
            .collect();
        let mut rest = String::new();
        decoder.finish(&mut rest);
        pieces.push(rest);
        pieces
    }

    #[test]
    fn holds_a_character_until_its_last_byte() {
        let tokens: Vec<Vec<u8>> = "é😀".bytes().map(|byte| vec![byte]).collect();
        assert_eq!(pieces(&tokens, false), ["", "é", "", "", "", "😀", ""]);
    }

    #[test]
    fn replaces_bytes_that_form_no_character() {
        let tokens = [vec![0xe2, 0x82], b"a".to_vec(), vec![0xff], vec![0xf0, 0x9f]];
        assert_eq!(pieces(&tokens, false), ["", "\u{fffd}a", "\u{fffd}", "", "\u{fffd}"]);
    }

    #[test]
    fn drops_one_space_at_the_start_only() {
        assert_eq!(pieces(&[b"  a".to_vec(), b" b".to_vec()], true).concat(), " a b");
        assert_eq!(pieces(&[vec![], b" ".to_vec(), b" b".to_vec()], true).concat(), " b");
    }

    proptest! {
        #[test]
        fn pieces_together_are_the_lossy_whole(tokens in prop::collection::vec(prop::collection::vec(
            prop_oneof![any::<u8>(), 0x80u8..0xc0, Just(0xf0), Just(0x9f), Just(b' ')], 0..6), 0..12)) {
            let whole = tokens.concat();
            prop_assert_eq!(pieces(&tokens, false).concat(), String::from_utf8_lossy(&whole));
        }
    }
}
