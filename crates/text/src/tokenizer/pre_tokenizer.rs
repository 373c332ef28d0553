//! The splitting of a text into pieces: the `pre_tokenizer` of a `tokenizer.json`, or that of a GGUF vocabulary's name.
//!
//! Each step splits like the tokenizers library's step of that name, within the budget of the text.

use super::added::is_word;
use super::normalizer::{STEPS, compile};
use super::pattern::Pattern;
use super::text::{Budget, Pieces, push};
use super::vocabulary::byte_character;
use crate::error::Result;
use model_factory_format::tokenizer::steps::{self, Behavior, Prepend};
use std::ops::Range;
use unicode_categories::UnicodeCategories;

/// GPT-2's own pattern, which ByteLevel uses (`gpt2/src/encoder.py`).
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The steps, in order.
#[derive(Default)]
pub(super) struct PreTokenizer(Vec<PreTokenizerStep>);

enum PreTokenizerStep {
    Split {
        at: Delimiter,
        behavior: Behavior,
        /// Whether matches are the pieces, and the parts between them the delimiters.
        invert: bool,
    },
    /// Adds a space in front of each piece that has none.
    PrefixSpace,
    /// Writes bytes, each as a character of GPT-2's alphabet.
    Bytes,
    /// Writes a character in place of spaces, and in front of pieces that do not begin with it.
    Metaspace { replacement: char, prepend: Prepend },
}

/// What a split searches for.
enum Delimiter {
    Pattern(Pattern),
    /// Each character of a class is a delimiter.
    Class(fn(char) -> bool),
    /// Each occurrence of this character is a delimiter.
    This(char),
}

impl PreTokenizer {
    pub(super) fn new(pre_tokenizer: Option<&steps::PreTokenizer>) -> Result<PreTokenizer, String> {
        let mut steps = Vec::new();
        pre_tokenizer.map_or(Ok(()), |step| add(step, &mut steps))?;
        Ok(PreTokenizer(steps))
    }

    /// The pieces of `text`, which is the beginning of the whole text if `first`.
    pub(super) fn apply(&self, text: &str, first: bool, budget: &Budget) -> Result<Pieces> {
        self.0.iter().try_fold(Pieces::whole(text)?, |pieces, step| step.apply(pieces, first, budget))
    }

    /// Whether all pieces together have at least the bytes of the text.
    pub(super) fn keeps_all(&self) -> bool {
        !self.0.iter().any(|step| matches!(step, PreTokenizerStep::Split { behavior: Behavior::Removed, .. }))
    }

    /// Whether the first piece of a text is written differently from the others.
    pub(super) fn marks_the_first(&self) -> bool {
        self.0.iter().any(|step| matches!(step, PreTokenizerStep::Metaspace { prepend: Prepend::First, .. }))
    }

    /// Whether pieces are written in GPT-2's byte alphabet.
    pub(super) fn writes_bytes(&self) -> bool {
        matches!(self.0.last(), Some(PreTokenizerStep::Bytes))
    }
}

fn add(step: &steps::PreTokenizer, steps: &mut Vec<PreTokenizerStep>) -> Result<(), String> {
    use steps::PreTokenizer as Json;

    let split = |at, behavior| PreTokenizerStep::Split { at, behavior, invert: false };
    let class = |class, behavior| split(Delimiter::Class(class), behavior);
    let white_space = || class(char::is_whitespace, Behavior::Removed);
    match step {
        Json::Sequence { pretokenizers } => return pretokenizers.iter().try_for_each(|step| add(step, steps)),
        Json::Split { pattern, behavior, invert } => {
            let at = Delimiter::Pattern(compile(pattern)?);
            steps.push(PreTokenizerStep::Split { at, behavior: *behavior, invert: *invert });
        }
        Json::ByteLevel { add_prefix_space, use_regex } => {
            steps.extend(add_prefix_space.then_some(PreTokenizerStep::PrefixSpace));
            if *use_regex != Some(false) {
                steps.push(split(Delimiter::Pattern(Pattern::new(GPT2)?), Behavior::Isolated));
            }
            steps.push(PreTokenizerStep::Bytes);
        }
        &Json::Metaspace { replacement, add_prefix_space, prepend_scheme, split: splits } => {
            let prepend = match (add_prefix_space, prepend_scheme) {
                (Some(false), None | Some(Prepend::Never)) => Prepend::Never,
                (Some(false), Some(_)) => {
                    return Err("its Metaspace has add_prefix_space false and a prepend_scheme other than never".into());
                }
                (_, scheme) => scheme.unwrap_or(Prepend::Always),
            };
            if prepend == Prepend::First && !steps.is_empty() {
                return Err(
                    "its Metaspace with prepend_scheme first follows another step, expected it to be the first".into(),
                );
            }
            steps.push(PreTokenizerStep::Metaspace { replacement, prepend });
            if splits != Some(false) {
                steps.push(split(Delimiter::This(replacement), Behavior::MergedWithNext));
            }
        }
        Json::Digits { individual_digits: true } => steps.push(class(char::is_numeric, Behavior::Isolated)),
        Json::Digits { individual_digits: false } => steps.push(class(char::is_numeric, Behavior::Contiguous)),
        Json::Punctuation { behavior } => steps.push(class(is_mark, behavior.unwrap_or(Behavior::Isolated))),
        Json::CharDelimiterSplit { delimiter } => steps.push(split(Delimiter::This(*delimiter), Behavior::Removed)),
        // The library's pattern is `\w+|[^\w\s]+`.
        Json::Whitespace => steps.extend([white_space(), class(is_word, Behavior::Contiguous)]),
        Json::WhitespaceSplit => steps.push(white_space()),
        Json::BertPreTokenizer => steps.extend([white_space(), class(is_mark, Behavior::Isolated)]),
    }
    if steps.len() > STEPS {
        return Err(format!("its pre_tokenizer has more than {STEPS} steps"));
    }
    Ok(())
}

/// Whether it is a punctuation mark, as in the library.
fn is_mark(character: char) -> bool {
    character.is_ascii_punctuation() || character.is_punctuation()
}

impl PreTokenizerStep {
    fn apply(&self, pieces: Pieces, first: bool, budget: &Budget) -> Result<Pieces> {
        match self {
            PreTokenizerStep::Split { at, behavior, invert } => pieces.split(|piece, keep| {
                let mut parts = at.parts(piece, budget)?;
                if *invert {
                    parts.iter_mut().for_each(|(_, delimiter)| *delimiter = !*delimiter);
                }
                join(*behavior, parts)?.into_iter().try_for_each(keep)
            }),
            PreTokenizerStep::PrefixSpace => {
                pieces.rewrite(budget.text("the pre-tokenizer's ByteLevel"), |piece, out| {
                    if !piece.starts_with(' ') {
                        out.push(' ')?;
                    }
                    out.push_str(piece)
                })
            }
            PreTokenizerStep::Bytes => pieces.rewrite(budget.text("the pre-tokenizer's ByteLevel"), |piece, out| {
                out.extend(piece.bytes().map(byte_character))
            }),
            PreTokenizerStep::Metaspace { replacement, prepend } => {
                let mut prefix = first || *prepend == Prepend::Always;
                pieces.rewrite(budget.text("the pre-tokenizer's Metaspace"), |piece, out| {
                    if prefix && *prepend != Prepend::Never && !piece.starts_with([' ', *replacement]) {
                        out.push(*replacement)?;
                    }
                    prefix = *prepend == Prepend::Always;
                    out.extend(piece.chars().map(|character| if character == ' ' { *replacement } else { character }))
                })
            }
        }
    }
}

/// A part of a piece, and whether it is a delimiter.
type Section = (Range<usize>, bool);

impl Delimiter {
    /// The delimiters of `text` and the parts between them, which together are all of it.
    fn parts(&self, text: &str, budget: &Budget) -> Result<Vec<Section>> {
        let mut parts: Vec<Section> = Vec::new();
        let mut end = 0;
        let mut found = |range: Range<usize>| {
            if end < range.start {
                push(&mut parts, (end..range.start, false))?;
            }
            end = range.end;
            push(&mut parts, (range, true))
        };
        match self {
            Delimiter::Pattern(pattern) => pattern.find(text, budget, found)?,
            Delimiter::Class(class) => each(text, *class, &mut found)?,
            Delimiter::This(character) => each(text, |other| other == *character, &mut found)?,
        }
        if end < text.len() {
            push(&mut parts, (end..text.len(), false))?;
        }
        Ok(parts)
    }
}

/// Calls `found` with each character of `text` that is in `class`.
fn each(text: &str, class: impl Fn(char) -> bool, found: &mut impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
    let mut hits = text.char_indices().filter(|(_, character)| class(*character));
    hits.try_for_each(|(start, character)| found(start..start + character.len_utf8()))
}

/// The pieces of `parts`, with delimiters treated by `behavior`.
fn join(behavior: Behavior, mut parts: Vec<Section>) -> Result<Vec<Range<usize>>> {
    let backwards = behavior == Behavior::MergedWithNext;
    if backwards {
        parts.reverse();
    }
    let (mut pieces, mut before): (Vec<Range<usize>>, bool) = (Vec::new(), false);
    for (part, delimiter) in parts {
        let joins = match behavior {
            Behavior::Removed if delimiter => continue,
            Behavior::Removed | Behavior::Isolated => false,
            Behavior::Contiguous => delimiter == before,
            Behavior::MergedWithPrevious | Behavior::MergedWithNext => delimiter && !before,
        };
        before = delimiter;
        match pieces.last_mut().filter(|_| joins) {
            Some(last) if backwards => last.start = part.start,
            Some(last) => last.end = part.end,
            None => push(&mut pieces, part)?,
        }
    }
    if backwards {
        pieces.reverse();
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper};

    fn read(value: &Value) -> Result<PreTokenizer, String> {
        let step: Option<steps::PreTokenizer> =
            serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        PreTokenizer::new(step.as_ref())
    }

    fn steps() -> Vec<Value> {
        let mut steps = vec![
            json!(null),
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}),
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}),
            json!({"type": "Metaspace", "replacement": "_", "add_prefix_space": true, "split": false}),
            json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false, "prepend_scheme": "never"}),
            json!({"type": "Digits", "individual_digits": true}),
            json!({"type": "Digits", "individual_digits": false}),
            json!({"type": "Whitespace"}),
            json!({"type": "WhitespaceSplit"}),
            json!({"type": "BertPreTokenizer"}),
            json!({"type": "CharDelimiterSplit", "delimiter": "a"}),
            json!({"type": "Punctuation"}),
        ];
        for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] {
            steps.push(json!({"type": "Punctuation", "behavior": behavior}));
            for (kind, pattern) in
                [("String", "a"), ("String", "é "), ("Regex", r"\s+|\d"), ("Regex", "a|b?"), ("Regex", "b*")]
            {
                for invert in [false, true] {
                    steps.push(
                        json!({"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}),
                    );
                }
            }
        }
        steps
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6000))]
        #[test]
        fn each_step_and_each_pair_cuts_as_the_librarys_does(
            text in "[ \t\n_▁a-cA-Cé日12.,!\u{3000}'s]{1,14}",
            first in prop::sample::select(steps()),
            second in prop::sample::select(steps()),
        ) {
            let both: Vec<&Value> = [&first, &second].into_iter().filter(|step| !step.is_null()).collect();
            let value = json!({"type": "Sequence", "pretokenizers": both});
            let library: PreTokenizerWrapper = serde_json::from_value(value.clone()).unwrap();
            let mut expected = PreTokenizedString::from(text.as_str());
            library.pre_tokenize(&mut expected).unwrap();
            let expected = expected.get_splits(OffsetReferential::Original, OffsetType::None);
            let expected: Vec<&str> = expected.into_iter().map(|(piece, _, _)| piece).collect();
            let ours = read(&value).unwrap();
            let pieces = ours.apply(&text, true, &Budget::new(text.len())).unwrap();
            prop_assert_eq!(pieces.iter().collect::<Vec<_>>(), expected, "{}", value);
        }
    }

    #[test]
    fn the_first_piece_alone_is_prefixed() {
        let value = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"});
        let split = |text: &str, first| {
            let pieces = read(&value).unwrap().apply(text, first, &Budget::new(text.len())).unwrap();
            pieces.iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(split("a b", true), ["▁a", "▁b"]);
        assert_eq!(split("a b", false), ["a", "▁b"]);
        assert_eq!(split(" a", true), ["▁a"]);
    }

    #[test]
    fn refuses_by_name_what_it_does_not_know() {
        let first = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"});
        for (value, says) in [
            (json!({"type": "FixedLength", "length": 0}), "FixedLength"),
            (json!({"type": "UnicodeScripts"}), "UnicodeScripts"),
            (json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, first]}), "first"),
            (
                json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false, "prepend_scheme": "first"}),
                "never",
            ),
            (json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}), "pattern"),
            (
                json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "WhitespaceSplit"}); STEPS + 1]}),
                "more than 16",
            ),
        ] {
            let error = read(&value).err().unwrap();
            assert!(error.contains(says), "{value}: {error}");
        }
    }
}
