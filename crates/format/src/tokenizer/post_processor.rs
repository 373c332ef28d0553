//! What the `post_processor` of a `tokenizer.json` adds to a text, or to a pair of texts.

use super::pair::{PairPart, PairTemplate, PairText};
use crate::error::{Error, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

const KEY: &str = "post_processor";

/// The most parts of a pair. Published templates have up to six.
const MOST_PARTS: usize = 16;

/// The special tokens that are added to a text.
pub(super) struct Added {
    pub(super) before: Option<u32>,
    pub(super) after: Option<u32>,
    pub(super) pair: Option<PairTemplate>,
}

/// A post-processor in the form of the file.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum PostProcessor {
    ByteLevel,
    Sequence { processors: Vec<PostProcessor> },
    TemplateProcessing(Template),
    BertProcessing { cls: (String, u32), sep: (String, u32) },
    RobertaProcessing { cls: (String, u32), sep: (String, u32) },
}

#[derive(Deserialize)]
struct Template {
    single: Vec<Part>,
    #[serde(default)]
    pair: Vec<Part>,
    #[serde(default)]
    special_tokens: HashMap<String, SpecialToken>,
}

#[derive(Debug, Deserialize)]
enum Part {
    Sequence { id: Sequence, type_id: u8 },
    SpecialToken { id: String, type_id: u8 },
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Sequence {
    A,
    B,
}

#[derive(Deserialize)]
struct SpecialToken {
    ids: Vec<u32>,
}

/// What `processor`, from the `tokenizer.json` at `path`, adds to a text; `None` when it is not a template and adds
/// nothing. Its ids are below `tokens`.
///
/// # Errors
/// `Format` for a processor of another kind, and for a template that puts more than one token on a side.
pub(super) fn added(path: &Path, processor: &Value, tokens: usize) -> Result<Option<Added>> {
    if !processor.is_object() {
        return Ok(None);
    }
    let processor = PostProcessor::deserialize(processor).map_err(|error| {
        let expected = "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing or a Sequence of them";
        Error::key_value(path, KEY, error.to_string(), expected)
    })?;
    let mut found = Vec::new();
    processor.add_to(path, tokens, &mut found)?;
    if found.len() > 1 {
        return Err(Error::key_value(path, KEY, format!("{} TemplateProcessing", found.len()), "one"));
    }
    let found = found.pop();
    let ids = found.iter().flat_map(|added| added.before.iter().chain(&added.after));
    match ids.copied().find(|id| *id as usize >= tokens) {
        Some(id) => {
            let expected = format!("an id of the vocabulary, below {tokens}");
            Err(Error::key_value(path, "post_processor.special_tokens", format!("the id {id}"), expected))
        }
        None => Ok(found),
    }
}

impl PostProcessor {
    fn add_to(self, path: &Path, tokens: usize, found: &mut Vec<Added>) -> Result<()> {
        found.push(match self {
            PostProcessor::ByteLevel => return Ok(()),
            PostProcessor::Sequence { processors } => {
                return processors.into_iter().try_for_each(|processor| processor.add_to(path, tokens, found));
            }
            PostProcessor::TemplateProcessing(template) => {
                let [before, after] = template.single(path)?;
                Added { before, after, pair: template.pair(path, tokens)? }
            }
            PostProcessor::BertProcessing { cls: (_, cls), sep: (_, sep) } => {
                Added { before: Some(cls), after: Some(sep), pair: Some(PairTemplate::bert(cls, sep)) }
            }
            PostProcessor::RobertaProcessing { cls: (_, cls), sep: (_, sep) } => {
                Added { before: Some(cls), after: Some(sep), pair: Some(PairTemplate::roberta(cls, sep)) }
            }
        });
        Ok(())
    }
}

impl Template {
    fn ids(&self, name: &str) -> &[u32] {
        self.special_tokens.get(name).map_or(&[], |token| &token.ids)
    }

    /// The tokens before and after one text.
    fn single(&self, path: &Path) -> Result<[Option<u32>; 2]> {
        let sides: Vec<&[Part]> = self.single.split(|part| matches!(part, Part::Sequence { .. })).collect();
        let side = |parts: &[Part]| match parts {
            [] => Some(None),
            [Part::SpecialToken { id, .. }] if self.ids(id).len() == 1 => Some(Some(self.ids(id)[0])),
            _ => None,
        };
        let ids = match sides[..] {
            [before, after] => side(before).zip(side(after)),
            _ => None,
        };
        let wrong = || {
            let expected = "a text with at most one token before and after it";
            Error::key_value(path, "post_processor.single", format!("{:?}", self.single), expected)
        };
        ids.map(|(before, after)| [before, after]).ok_or_else(wrong)
    }

    /// The template of pairs, whose ids are below `tokens`; `None` where the file has none, or one that does not have
    /// each text once and in order.
    fn pair(&self, path: &Path, tokens: usize) -> Result<Option<PairTemplate>> {
        let wrong = |found: String, expected: String| Error::key_value(path, "post_processor.pair", found, expected);
        if self.pair.len() > MOST_PARTS {
            return Err(wrong(format!("{} parts", self.pair.len()), format!("at most {MOST_PARTS}")));
        }
        let part = |part: &Part| match part {
            Part::Sequence { id: Sequence::A, type_id } => Ok(PairPart { what: PairText::First, token_type: *type_id }),
            Part::Sequence { id: Sequence::B, type_id } => {
                Ok(PairPart { what: PairText::Second, token_type: *type_id })
            }
            Part::SpecialToken { id, type_id } => match *self.ids(id) {
                [id] if (id as usize) < tokens => Ok(PairPart { what: PairText::Token(id), token_type: *type_id }),
                _ => Err(wrong(format!("{id:?}"), "a SpecialToken with one id of the vocabulary".into())),
            },
        };
        Ok(PairTemplate::new(self.pair.iter().map(part).collect::<Result<_>>()?))
    }
}
