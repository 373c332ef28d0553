//! How two texts become one sequence of ids, such as a query and a document.

use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// The parts of a pair of texts, in order: each text once, the first before the second, and tokens around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTemplate(Vec<PairPart>);

/// A part of a pair, and the kind of its tokens: 0, or 1 from some part on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPart {
    /// What stands there.
    pub what: PairText,
    /// Its tokens' type.
    pub token_type: u8,
}

/// What stands in a part of a pair. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairText {
    /// A token.
    Token(u32),
    /// The first text.
    First,
    /// The second text.
    Second,
}

/// Parts of a pair. Published templates have up to six.
const MOST_PARTS: usize = 16;

impl PairTemplate {
    /// BERT's: `[CLS] first [SEP] second [SEP]`, the second text and its end of type 1.
    pub(super) fn bert(cls: u32, sep: u32) -> PairTemplate {
        use PairText::{First, Second, Token};
        let zero = [Token(cls), First, Token(sep)].map(|what| PairPart { what, token_type: 0 });
        let one = [Second, Token(sep)].map(|what| PairPart { what, token_type: 1 });
        PairTemplate([zero.as_slice(), &one].concat())
    }

    /// RoBERTa's: `<s> first </s></s> second </s>`, all of type 0.
    pub(super) fn roberta(cls: u32, sep: u32) -> PairTemplate {
        use PairText::{First, Second, Token};
        let parts = [Token(cls), First, Token(sep), Token(sep), Second, Token(sep)];
        PairTemplate(parts.map(|what| PairPart { what, token_type: 0 }).to_vec())
    }

    /// The `pair` of a TemplateProcessing of the `tokenizer.json` at `path`, whose tokens have ids below `tokens`; none where it
    /// has none, or one that does not have each text once and in order.
    ///
    /// # Errors
    /// `Format` for what is no part.
    pub(super) fn read(path: &Path, processing: &Map<String, Value>, tokens: usize) -> Result<Option<PairTemplate>> {
        let Some(listed) = processing.get("pair").and_then(Value::as_array) else { return Ok(None) };
        if listed.len() > MOST_PARTS {
            return Err(Error::key_value(
                path,
                "post_processor.pair",
                format!("{} parts", listed.len()),
                format!("at most {MOST_PARTS}"),
            ));
        }
        let mut parts = Vec::new();
        for item in listed {
            let wrong = || {
                let expected = "a Sequence A or B, or a SpecialToken with one id of the vocabulary";
                Error::key_value(path, "post_processor.pair", item.to_string(), expected)
            };
            let kind = |part: &Value| part.get("type_id").and_then(Value::as_u64).and_then(|id| u8::try_from(id).ok());
            let name = |part: &Value| part.get("id").and_then(Value::as_str).map(str::to_owned);
            if let Some(text) = item.get("Sequence") {
                let what = match name(text).as_deref() {
                    Some("A") => PairText::First,
                    Some("B") => PairText::Second,
                    _ => return Err(wrong()),
                };
                parts.push(PairPart { what, token_type: kind(text).ok_or_else(wrong)? });
                continue;
            }
            let token = item.get("SpecialToken").ok_or_else(wrong)?;
            let (name, token_type) = (name(token).ok_or_else(wrong)?, kind(token).ok_or_else(wrong)?);
            let named = processing.get("special_tokens").and_then(|named| named.get(&name));
            let Some([id]) = named.and_then(|named| named.get("ids")).and_then(Value::as_array).map(Vec::as_slice)
            else {
                return Err(wrong());
            };
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < tokens);
            parts.push(PairPart { what: PairText::Token(id.ok_or_else(wrong)?), token_type });
        }
        let texts: Vec<PairText> =
            parts.iter().map(|part| part.what).filter(|what| !matches!(what, PairText::Token(_))).collect();
        let in_order = parts.is_sorted_by_key(|part| part.token_type) && parts.iter().all(|part| part.token_type < 2);
        Ok((texts == [PairText::First, PairText::Second] && in_order).then_some(PairTemplate(parts)))
    }

    /// The parts.
    pub fn parts(&self) -> &[PairPart] {
        &self.0
    }

    /// Tokens around the texts.
    pub fn tokens(&self) -> usize {
        self.0.iter().filter(|part| matches!(part.what, PairText::Token(_))).count()
    }
}
