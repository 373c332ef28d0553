//! `tokenizer.model` -> SentencePiece model: the part of `sentencepiece_model.proto` that encoding and decoding need.

use crate::error::{Error, FormatErrorKind, Result};
use crate::limits;
use crate::source::content;
use std::collections::HashSet;
use std::path::Path;

/// A model of one of the two kinds that are supported here: BPE by scores with byte fallback, without a normalizer; or unigram
/// without bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct SentencePieceModel {
    /// The pieces by id.
    pub pieces: Vec<Piece>,
    /// Whether a space is added before a text (`normalizer_spec.add_dummy_prefix`).
    pub space_prefix: bool,
    /// The normalizer's compiled character map; empty without one, and of BPE.
    pub charsmap: Vec<u8>,
}

/// One entry of the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The text of the piece, with `▁` for a space.
    pub text: String,
    /// The priority of merging into this piece: the highest score merges first.
    pub score: f32,
    /// The kind of the piece.
    pub kind: PieceKind,
}

/// `SentencePiece.type`, except unused pieces, which are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// A piece made by merging.
    Normal,
    /// The unknown token.
    Unknown,
    /// A token that is matched in a text as a whole and left out of decoded text.
    Control,
    /// A token that is matched in a text as a whole and kept in decoded text.
    UserDefined,
    /// A single byte.
    Byte,
}

impl SentencePieceModel {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// `Format` when it is damaged, too long, another kind of file (such as tiktoken's), or asks for something
    /// unsupported; `Io` when it cannot be read.
    pub fn read(path: &Path) -> Result<SentencePieceModel> {
        SentencePieceModel::parse(path, &super::content::read(path, limits::SENTENCE_PIECE_BYTES)?)
    }

    /// Like [`read`](Self::read), of a unigram model.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_unigram(path: &Path) -> Result<SentencePieceModel> {
        Raw::of(path, &super::content::read(path, limits::SENTENCE_PIECE_BYTES)?)?.checked(path, true)
    }

    /// Reads `bytes` as the content of the file `path`.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read) without `Io`.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<SentencePieceModel> {
        Raw::of(path, bytes)?.checked(path, false)
    }
}

/// The error for a vocabulary in tiktoken's form.
fn tiktoken(path: &Path) -> Error {
    let (what, remedy) = (
        "a tiktoken vocabulary (a base64 text and its rank on each line), which does not say how to tokenize a text",
        "put the tokenizer.json of the model's repository next to the weights, or save one with transformers",
    );
    Error::format(path, FormatErrorKind::OtherTokenizer { what, remedy })
}

/// Whether the first line is `base64 rank`.
fn is_tiktoken(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let Some(space) = line.iter().position(|byte| *byte == b' ') else { return false };
    let (text, rank) = (&line[..space], &line[space + 1..]);
    let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.iter().all(base64)
        && !rank.is_empty()
        && rank.iter().all(u8::is_ascii_digit)
}

/// The content of the messages, before it is checked. Absent fields have the defaults of the proto file.
struct Raw<'b> {
    pieces: Vec<RawPiece<'b>>,
    model_type: u64,
    byte_fallback: bool,
    space_suffix: bool,
    space_prefix: bool,
    collapses_spaces: bool,
    escapes_spaces: bool,
    /// The compiled character maps of the normalizer and the denormalizer.
    character_maps: [&'b [u8]; 2],
}

struct RawPiece<'b> {
    text: &'b [u8],
    score: f32,
    kind: u64,
}

/// The first invalid byte, and what is wrong with it.
#[derive(Debug)]
struct Damage {
    at: usize,
    what: &'static str,
}

impl<'b> Raw<'b> {
    /// The content of the file `path`.
    fn of(path: &Path, bytes: &'b [u8]) -> Result<Self> {
        if is_tiktoken(bytes) {
            return Err(tiktoken(path));
        }
        if bytes.is_empty() {
            return Err(Error::format(path, FormatErrorKind::EmptyFile));
        }
        Raw::read(bytes).map_err(|Damage { at, what }| {
            content::unsupported(path, bytes).unwrap_or_else(|| Error::Format {
                file: path.into(),
                offset: Some(at as u64),
                kind: FormatErrorKind::SentencePiece { what },
            })
        })
    }

    fn read(bytes: &'b [u8]) -> Result<Self, Damage> {
        let mut raw = Raw {
            pieces: Vec::new(),
            model_type: 1,
            byte_fallback: false,
            space_suffix: false,
            space_prefix: true,
            collapses_spaces: true,
            escapes_spaces: true,
            character_maps: [b""; 2],
        };
        for field in (Message { rest: bytes, at: 0 }) {
            let field = field?;
            match field.number {
                1 => raw.pieces.push(piece(field.message()?)?),
                2 | 3 | 5 => raw.section(&field)?,
                _ => {}
            }
        }
        Ok(raw)
    }

    /// Copies the content of `section`: 2 is `trainer_spec`, 3 `normalizer_spec` and 5 `denormalizer_spec`.
    fn section(&mut self, section: &Field<'b>) -> Result<(), Damage> {
        for field in section.message()? {
            let field = field?;
            match (section.number, field.number) {
                (2, 3) => self.model_type = field.varint()?,
                (2, 24) => self.space_suffix = field.varint()? != 0,
                (2, 35) => self.byte_fallback = field.varint()? != 0,
                (3, 2) => self.character_maps[0] = field.bytes()?,
                (3, 3) => self.space_prefix = field.varint()? != 0,
                (3, 4) => self.collapses_spaces = field.varint()? != 0,
                (3, 5) => self.escapes_spaces = field.varint()? != 0,
                (5, 2) => self.character_maps[1] = field.bytes()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses what is not supported here, by name.
    fn checked(self, path: &Path, unigram: bool) -> Result<SentencePieceModel> {
        let refuse = |key: &str, found: String, expected: &str| Err(Error::key_value(path, key, found, expected));
        if self.pieces.is_empty() {
            return refuse("pieces", "empty".into(), "at least one piece");
        }
        match self.model_type {
            1 if unigram => {}
            2 if !unigram => {}
            other => {
                let name = ["unigram", "BPE", "word", "char"].get((other as usize).wrapping_sub(1));
                let found = name.map_or_else(|| other.to_string(), |name| format!("{other} ({name})"));
                let expected = match unigram {
                    true => "1 (unigram); save tokenizer.json with transformers for another",
                    false => "2 (BPE); tokenizer.json can hold a unigram model",
                };
                return refuse("trainer_spec.model_type", found, expected);
            }
        }
        for (key, map) in ["normalizer_spec", "denormalizer_spec"].into_iter().zip(self.character_maps) {
            let read = unigram && key == "normalizer_spec";
            if !map.is_empty() && !read {
                let found = format!("a compiled character map of {} bytes", map.len());
                return refuse(&format!("{key}.precompiled_charsmap"), found, "none: text is taken as it is");
            }
        }
        for (key, found, expected) in [
            ("trainer_spec.byte_fallback", self.byte_fallback, !unigram),
            ("trainer_spec.treat_whitespace_as_suffix", self.space_suffix, false),
            ("normalizer_spec.remove_extra_whitespaces", self.collapses_spaces, unigram),
            ("normalizer_spec.escape_whitespaces", self.escapes_spaces, true),
        ] {
            if found != expected {
                return refuse(key, found.to_string(), &expected.to_string());
            }
        }
        let (space_prefix, charsmap) = (self.space_prefix, self.character_maps[0].to_vec());
        Ok(SentencePieceModel { pieces: checked_pieces(path, self.pieces, unigram)?, space_prefix, charsmap })
    }
}

fn checked_pieces(path: &Path, raw: Vec<RawPiece>, unigram: bool) -> Result<Vec<Piece>> {
    let mut seen = HashSet::with_capacity(raw.len());
    let mut pieces = Vec::with_capacity(raw.len());
    for (id, RawPiece { text, score, kind }) in raw.into_iter().enumerate() {
        let key = || format!("pieces[{id}]");
        let refuse = |found: String, expected: &str| Err(Error::key_value(path, &key(), found, expected));
        let Ok(text) = std::str::from_utf8(text) else {
            return refuse(format!("{:?}", String::from_utf8_lossy(text)), "a text in UTF-8");
        };
        if text.is_empty() {
            return refuse("a piece without a text".into(), "a text");
        }
        if !seen.insert(text) {
            return refuse(format!("{text:?}, as a piece before it"), "each text once");
        }
        if score.is_nan() {
            return refuse(format!("{text:?} with the score NaN"), "a number");
        }
        let kind = match kind {
            1 => PieceKind::Normal,
            2 => PieceKind::Unknown,
            3 => PieceKind::Control,
            4 => PieceKind::UserDefined,
            6 if !unigram => PieceKind::Byte,
            other => {
                let expected = if unigram { "type 1, 2, 3 or 4" } else { "type 1, 2, 3, 4 or 6" };
                return refuse(format!("{text:?} of type {other}"), expected);
            }
        };
        pieces.push(Piece { text: text.into(), score, kind });
    }
    let count = |kind| pieces.iter().filter(|piece: &&Piece| piece.kind == kind).count();
    if !unigram && count(PieceKind::Byte) != 256 {
        let found = format!("{} of type 6 (byte)", count(PieceKind::Byte));
        return Err(Error::key_value(path, "pieces", found, "256, one for each byte"));
    }
    Ok(pieces)
}

fn piece(message: Message) -> Result<RawPiece, Damage> {
    let mut piece = RawPiece { text: b"", score: 0.0, kind: 1 };
    for field in message {
        let field = field?;
        match field.number {
            1 => piece.text = field.bytes()?,
            2 => piece.score = field.float()?,
            3 => piece.kind = field.varint()?,
            _ => {}
        }
    }
    Ok(piece)
}

/// The fields of one protobuf message (Protocol Buffers, "Encoding"), up to the first damaged one.
struct Message<'b> {
    rest: &'b [u8],
    /// Bytes of the file before `rest`.
    at: usize,
}

/// A field, and the offset of its value in the file.
struct Field<'b> {
    number: u64,
    at: usize,
    value: FieldValue<'b>,
}

enum FieldValue<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
    Four([u8; 4]),
    Eight,
}

impl<'b> Message<'b> {
    fn field(&mut self) -> Result<Field<'b>, Damage> {
        let start = self.at;
        let tag = self.varint()?;
        let (number, mut at) = (tag >> 3, self.at);
        let value = match tag & 7 {
            _ if number == 0 => return Err(Damage { at: start, what: "a field has the number 0" }),
            0 => FieldValue::Varint(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Eight)?,
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                at = self.at;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => {
                let four = self.take(4)?.first_chunk().copied();
                FieldValue::Four(four.ok_or(Damage { at, what: "a field ends early" })?)
            }
            _ => return Err(Damage { at: start, what: "a field is of an unknown wire type" }),
        };
        Ok(Field { number, at, value })
    }

    fn varint(&mut self) -> Result<u64, Damage> {
        let at = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take(1)? else { break };
            let part = u64::from(byte & 0x7f);
            // The tenth byte of a varint has room for only one bit.
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damage { at, what: "a number takes more than 64 bits" })
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], Damage> {
        let damage = Damage { at: self.at, what: "a field reaches past the end" };
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(damage)?;
        (self.rest, self.at) = (rest, self.at + count);
        Ok(taken)
    }
}

impl<'b> Iterator for Message<'b> {
    type Item = Result<Field<'b>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.field())
    }
}

impl<'b> Field<'b> {
    fn varint(&self) -> Result<u64, Damage> {
        if let FieldValue::Varint(value) = self.value { Ok(value) } else { Err(self.of_another_type()) }
    }

    fn float(&self) -> Result<f32, Damage> {
        let FieldValue::Four(bytes) = self.value else { return Err(self.of_another_type()) };
        Ok(f32::from_le_bytes(bytes))
    }

    fn bytes(&self) -> Result<&'b [u8], Damage> {
        if let FieldValue::Bytes(bytes) = self.value { Ok(bytes) } else { Err(self.of_another_type()) }
    }

    fn message(&self) -> Result<Message<'b>, Damage> {
        Ok(Message { rest: self.bytes()?, at: self.at })
    }

    fn of_another_type(&self) -> Damage {
        Damage { at: self.at, what: "a field is of another type than in sentencepiece_model.proto" }
    }
}

#[cfg(test)]
mod tests;
