//! `tokenizer.model` -> SentencePiece model: the part of `sentencepiece_model.proto` that says how text becomes ids.

use crate::error::{Error, FormatErrorKind, Result};
use crate::limits;
use crate::source::content;
use std::collections::HashSet;
use std::path::Path;

/// A BPE model by scores with byte fallback, without a normalizer: all that is run here.
#[derive(Clone, Debug, PartialEq)]
pub struct SentencePieceModel {
    /// By id.
    pub pieces: Vec<Piece>,
    /// Whether a space is put in front of a text (`normalizer_spec.add_dummy_prefix`).
    pub space_prefix: bool,
}

/// One entry of the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its text, with `▁` for a space.
    pub text: String,
    /// Where it stands in the order of merges: the highest merges first.
    pub score: f32,
    /// What it is for.
    pub kind: PieceKind,
}

/// `SentencePiece.type`, less the unused pieces, which are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Made by merging.
    Normal,
    /// What stands for what is no token.
    Unknown,
    /// Matched in a text as a whole and hidden from text.
    Control,
    /// Matched in a text as a whole and shown.
    UserDefined,
    /// One byte.
    Byte,
}

impl SentencePieceModel {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// `Format` when it is damaged, too long, another kind of file (tiktoken's among them), or asks for what is not run
    /// here; `Io` when it cannot be read.
    pub fn read(path: &Path) -> Result<SentencePieceModel> {
        SentencePieceModel::parse(path, &super::content::read(path, limits::SENTENCE_PIECE_BYTES)?)
    }

    /// Reads `bytes` as the content of the file `path`.
    ///
    /// # Errors
    /// As for [`read`](Self::read), less `Io`.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<SentencePieceModel> {
        if is_tiktoken(bytes) {
            return Err(tiktoken(path));
        }
        if bytes.is_empty() {
            return Err(Error::format(path, FormatErrorKind::EmptyFile));
        }
        let mut raw = Raw::new();
        raw.model(bytes).map_err(|Damage { at, what }| {
            content::unsupported(path, bytes).unwrap_or_else(|| Error::Format {
                file: path.into(),
                offset: Some(at as u64),
                kind: FormatErrorKind::SentencePiece { what },
            })
        })?;
        raw.checked(path)
    }
}

/// The refusal of a vocabulary in tiktoken's form.
pub(super) fn tiktoken(path: &Path) -> Error {
    let (what, remedy) = (
        "a tiktoken vocabulary (a base64 text and its rank on each line), which does not say how to tokenize a text",
        "put the tokenizer.json of the model's repository beside the weights, or save one with transformers",
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

/// What the messages say, before it is judged. Absent fields have the defaults of the proto file.
struct Raw<'b> {
    pieces: Vec<RawPiece<'b>>,
    model_type: u64,
    byte_fallback: bool,
    space_suffix: bool,
    space_prefix: bool,
    collapses_spaces: bool,
    escapes_spaces: bool,
    /// Bytes of the compiled character maps before and after.
    character_maps: [usize; 2],
}

struct RawPiece<'b> {
    text: &'b [u8],
    score: f32,
    kind: u64,
}

/// The first byte that is wrong, and how.
#[derive(Debug)]
struct Damage {
    at: usize,
    what: &'static str,
}

impl<'b> Raw<'b> {
    fn new() -> Self {
        Raw {
            pieces: Vec::new(),
            model_type: 1,
            byte_fallback: false,
            space_suffix: false,
            space_prefix: true,
            collapses_spaces: true,
            escapes_spaces: true,
            character_maps: [0; 2],
        }
    }

    fn model(&mut self, bytes: &'b [u8]) -> Result<(), Damage> {
        let mut message = Message { bytes, base: 0, at: 0 };
        while let Some((field, value)) = message.field()? {
            match field {
                1 => self.pieces.push(piece(value.message()?)?),
                2 => self.trainer(value.message()?)?,
                3 => self.normalizer(value.message()?)?,
                5 => {
                    let mut inner = value.message()?;
                    while let Some((field, value)) = inner.field()? {
                        if field == 2 {
                            self.character_maps[1] = value.bytes()?.len();
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn trainer(&mut self, mut message: Message<'b>) -> Result<(), Damage> {
        while let Some((field, value)) = message.field()? {
            match field {
                3 => self.model_type = value.number()?,
                24 => self.space_suffix = value.number()? != 0,
                35 => self.byte_fallback = value.number()? != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, mut message: Message<'b>) -> Result<(), Damage> {
        while let Some((field, value)) = message.field()? {
            match field {
                2 => self.character_maps[0] = value.bytes()?.len(),
                3 => self.space_prefix = value.number()? != 0,
                4 => self.collapses_spaces = value.number()? != 0,
                5 => self.escapes_spaces = value.number()? != 0,
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses what is not run here, by name.
    fn checked(self, path: &Path) -> Result<SentencePieceModel> {
        let refuse = |key: &str, found: String, expected: &str| Err(Error::key_value(path, key, found, expected));
        if self.pieces.is_empty() {
            return refuse("pieces", "empty".into(), "at least one piece");
        }
        match self.model_type {
            2 => {}
            other => {
                let name = ["unigram", "BPE", "word", "char"].get((other as usize).wrapping_sub(1));
                let found = name.map_or_else(|| other.to_string(), |name| format!("{other} ({name})"));
                return refuse("trainer_spec.model_type", found, "2 (BPE); tokenizer.json can hold a unigram model");
            }
        }
        for (key, map) in ["normalizer_spec", "denormalizer_spec"].into_iter().zip(self.character_maps) {
            if map > 0 {
                let found = format!("a compiled character map of {map} bytes");
                return refuse(&format!("{key}.precompiled_charsmap"), found, "none: text is taken as it is");
            }
        }
        for (key, found, expected) in [
            ("trainer_spec.byte_fallback", self.byte_fallback, true),
            ("trainer_spec.treat_whitespace_as_suffix", self.space_suffix, false),
            ("normalizer_spec.remove_extra_whitespaces", self.collapses_spaces, false),
            ("normalizer_spec.escape_whitespaces", self.escapes_spaces, true),
        ] {
            if found != expected {
                return refuse(key, found.to_string(), &expected.to_string());
            }
        }
        let space_prefix = self.space_prefix;
        Ok(SentencePieceModel { pieces: checked_pieces(path, self.pieces)?, space_prefix })
    }
}

fn checked_pieces(path: &Path, raw: Vec<RawPiece>) -> Result<Vec<Piece>> {
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
            6 => PieceKind::Byte,
            other => return refuse(format!("{text:?} of type {other}"), "type 1, 2, 3, 4 or 6"),
        };
        pieces.push(Piece { text: text.into(), score, kind });
    }
    let count = |kind| pieces.iter().filter(|piece: &&Piece| piece.kind == kind).count();
    if count(PieceKind::Byte) != 256 {
        let found = format!("{} of type 6 (byte)", count(PieceKind::Byte));
        return Err(Error::key_value(path, "pieces", found, "256, one for each byte"));
    }
    Ok(pieces)
}

fn piece(mut message: Message) -> Result<RawPiece, Damage> {
    let mut piece = RawPiece { text: b"", score: 0.0, kind: 1 };
    while let Some((field, value)) = message.field()? {
        match field {
            1 => piece.text = value.bytes()?,
            2 => piece.score = value.float()?,
            3 => piece.kind = value.number()?,
            _ => {}
        }
    }
    Ok(piece)
}

/// The rest of one protobuf message (Protocol Buffers, "Encoding").
struct Message<'b> {
    bytes: &'b [u8],
    /// Bytes of the file before `bytes`.
    base: usize,
    at: usize,
}

/// The value of a field, and its place in the file.
struct Field<'b> {
    at: usize,
    value: FieldValue<'b>,
}

enum FieldValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    Four([u8; 4]),
    Eight,
}

impl<'b> Message<'b> {
    /// The number of the next field and its value; `None` at the end.
    fn field(&mut self) -> Result<Option<(u64, Field<'b>)>, Damage> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let at = self.base + self.at;
        let tag = self.varint()?;
        let (number, wire) = (tag >> 3, tag & 7);
        if number == 0 {
            return Err(Damage { at, what: "a field has the number 0" });
        }
        let value_at = self.base + self.at;
        let value = match wire {
            0 => FieldValue::Number(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Eight)?,
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let start = self.base + self.at;
                return Ok(Some((number, Field { at: start, value: FieldValue::Bytes(self.take(length)?) })));
            }
            5 => {
                let four = self.take(4)?.first_chunk().copied();
                FieldValue::Four(four.ok_or(Damage { at: value_at, what: "a field ends early" })?)
            }
            _ => return Err(Damage { at, what: "a field is of an unknown wire type" }),
        };
        Ok(Some((number, Field { at: value_at, value })))
    }

    fn varint(&mut self) -> Result<u64, Damage> {
        let at = self.base + self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take(1)? else { break };
            let part = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
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
        let damage = Damage { at: self.base + self.at, what: "a field reaches past the end" };
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count)).ok_or(damage)?;
        self.at += count;
        Ok(taken)
    }
}

impl<'b> Field<'b> {
    fn number(self) -> Result<u64, Damage> {
        match self.value {
            FieldValue::Number(value) => Ok(value),
            _ => Err(self.of_another_type()),
        }
    }

    fn float(self) -> Result<f32, Damage> {
        match self.value {
            FieldValue::Four(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.of_another_type()),
        }
    }

    fn bytes(self) -> Result<&'b [u8], Damage> {
        match self.value {
            FieldValue::Bytes(bytes) => Ok(bytes),
            _ => Err(self.of_another_type()),
        }
    }

    fn message(self) -> Result<Message<'b>, Damage> {
        let base = self.at;
        Ok(Message { bytes: self.bytes()?, base, at: 0 })
    }

    fn of_another_type(&self) -> Damage {
        Damage { at: self.at, what: "a field is of another type than in sentencepiece_model.proto" }
    }
}

#[cfg(test)]
mod tests;
