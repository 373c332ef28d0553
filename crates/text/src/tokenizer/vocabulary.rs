//! Ids -> the bytes that each token adds to a text.

pub(super) use model_factory_format::tokenizer::steps::byte_character;
use std::borrow::Cow;

/// The bytes of every token in one allocation.
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    special: Vec<bool>,
    /// The tokens that only pad the vocabulary, in ascending order: they have no bytes, and no text becomes one.
    pub(super) unused: Vec<u32>,
    /// Whether the first space of a text is dropped.
    pub(super) drops_leading_space: bool,
}

impl Vocabulary {
    /// An empty vocabulary with room for about `tokens` entries.
    pub(super) fn new(tokens: usize, drops_leading_space: bool) -> Self {
        Vocabulary {
            bytes: Vec::with_capacity(tokens * 8),
            ends: Vec::with_capacity(tokens),
            special: Vec::with_capacity(tokens),
            unused: Vec::new(),
            drops_leading_space,
        }
    }

    /// Appends the next token: its bytes, or `None` for a special one.
    pub(super) fn push(&mut self, bytes: Option<&[u8]>) {
        self.bytes.extend_from_slice(bytes.unwrap_or_default());
        // A vocabulary comes from a file below 4 GiB (see the caps of the readers).
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        self.special.push(bytes.is_none());
    }

    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let index = id as usize;
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? };
        self.bytes.get(start as usize..*self.ends.get(index)? as usize)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize) == Some(&true)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// The bytes of a text in GPT-2's byte alphabet; a text with any other character stays as it is.
pub(super) fn byte_level(text: &str) -> Cow<'_, [u8]> {
    if text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
        return Cow::Borrowed(text.as_bytes());
    }
    match text.chars().map(byte_of).collect::<Option<Vec<u8>>>() {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(text.as_bytes()),
    }
}

/// The byte of a character in GPT-2's alphabet.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The byte of a byte token `<0x0A>`.
pub(super) fn byte_token(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn the_byte_alphabet_is_the_librarys() {
        let mut bytes: Vec<u8> = ByteLevel::alphabet().into_iter().filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert!((0..=255).all(|byte| byte_of(byte_character(byte)) == Some(byte)));
        assert_eq!(byte_level("Ġthe").as_ref(), b" the");
        assert_eq!(byte_level("Ċ").as_ref(), b"\n");
        assert_eq!(byte_level("ł¡¢£ŃĠ").as_ref(), [0xa0, 0xa1, 0xa2, 0xa3, 0xad, 0x20]);
        assert_eq!(byte_level("<｜User｜>").as_ref(), "<｜User｜>".as_bytes());
    }

    #[test]
    fn byte_tokens_are_two_hexadecimal_digits() {
        assert_eq!(byte_token(b"<0x0A>"), Some(10));
        assert_eq!(byte_token(b"<0xff>"), Some(255));
        assert_eq!([byte_token(b"<0x0>"), byte_token(b"0x0A"), byte_token(b"<0xGG>")], [None; 3]);
    }
}
