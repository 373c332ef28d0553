//! How a text is split into pieces: the `pre_tokenizer` of a `tokenizer.json`, or of a GGUF vocabulary's name.
//!
//! Each step splits as the step of that name in the tokenizers library, within the budget of the text.

use super::error::Encoded;
use super::normalizer::{PatternJson, STEPS};
use super::pattern::Pattern;
use super::text::{Budget, Pieces, push};
use super::vocabulary::byte_character;
use serde::Deserialize;
use serde_json::Value;
use std::ops::Range;
use unicode_categories::UnicodeCategories;

/// GPT-2's own pattern, which ByteLevel has (`gpt2/src/encoder.py`).
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The steps, in order.
#[derive(Debug, Default)]
pub(super) struct PreTokenizer(Vec<PreTokenizerStep>);

#[derive(Debug)]
enum PreTokenizerStep {
    Split {
        at: Delimiter,
        behavior: Behavior,
        /// Whether what is found are the pieces, and delimiters what lies between.
        invert: bool,
    },
    /// A space in front of each piece that has none.
    PrefixSpace,
    /// Bytes, each a character of GPT-2's alphabet.
    Bytes,
    /// A character in the place of spaces, and in front of pieces that do not begin with it.
    Metaspace { replacement: char, prepend: Prepend },
}

/// What a split looks for.
#[derive(Debug)]
enum Delimiter {
    Pattern(Pattern),
    /// Each character of a class.
    Class(fn(char) -> bool),
    /// Each of these characters.
    This(char),
}

/// What becomes of the delimiters of a split.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// Which pieces Metaspace writes its character in front of.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Prepend {
    First,
    Never,
    Always,
}

/// As a file says it.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum PreTokenizerJson {
    Sequence {
        pretokenizers: Vec<PreTokenizerJson>,
    },
    Split {
        pattern: PatternJson,
        behavior: Behavior,
        invert: bool,
    },
    ByteLevel {
        add_prefix_space: bool,
        /// tokenizers 0.11: on unless said.
        use_regex: Option<bool>,
    },
    Metaspace {
        replacement: char,
        add_prefix_space: Option<bool>,
        prepend_scheme: Option<Prepend>,
        split: Option<bool>,
    },
    Digits {
        individual_digits: bool,
    },
    Punctuation {
        behavior: Option<Behavior>,
    },
    CharDelimiterSplit {
        delimiter: char,
    },
    Whitespace,
    WhitespaceSplit,
    BertPreTokenizer,
}

impl PreTokenizer {
    /// Splits by GPT-2-like `patterns`, one after another, then writes bytes in GPT-2's alphabet.
    ///
    /// # Errors
    /// Those of [`Pattern::new`].
    pub(super) fn byte_level(patterns: &[&str]) -> Result<PreTokenizer, String> {
        let split = |pattern: &&str| Ok(PreTokenizerStep::isolate(Delimiter::Pattern(Pattern::new(pattern)?)));
        let mut steps = patterns.iter().map(split).collect::<Result<Vec<PreTokenizerStep>, String>>()?;
        steps.push(PreTokenizerStep::Bytes);
        Ok(PreTokenizer(steps))
    }

    /// Writes `▁` for a space, and in front as `prepend` says.
    pub(super) fn metaspace(prepend: Prepend) -> PreTokenizer {
        PreTokenizer(vec![PreTokenizerStep::Metaspace { replacement: '▁', prepend }])
    }

    /// Words and punctuation marks.
    pub(super) fn bert() -> PreTokenizer {
        PreTokenizer(PreTokenizerStep::bert().into())
    }

    /// Reads the `pre_tokenizer` of a file.
    ///
    /// # Errors
    /// What of it is not known or not sound.
    pub(super) fn read(value: &Value) -> Result<PreTokenizer, String> {
        let mut steps = Vec::new();
        let json =
            Option::<PreTokenizerJson>::deserialize(value).map_err(|error| format!("its pre_tokenizer: {error}"))?;
        json.map_or(Ok(()), |json| add(json, &mut steps))?;
        Ok(PreTokenizer(steps))
    }

    /// The pieces of `text`, which begins the whole text if `first`.
    ///
    /// # Errors
    /// `TooLong`, `Pattern`, `OutOfMemory`.
    pub(super) fn apply(&self, text: &str, first: bool, budget: &Budget) -> Encoded<Pieces> {
        self.0.iter().try_fold(Pieces::whole(text)?, |pieces, step| step.apply(pieces, first, budget))
    }

    /// Whether the pieces together have at least the bytes of the text.
    pub(super) fn keeps_all(&self) -> bool {
        !self.0.iter().any(PreTokenizerStep::removes)
    }

    /// Whether the first piece of a text is written in another way than the others.
    pub(super) fn marks_the_first(&self) -> bool {
        self.0.iter().any(|step| matches!(step, PreTokenizerStep::Metaspace { prepend: Prepend::First, .. }))
    }

    /// Whether pieces are written in GPT-2's byte alphabet.
    pub(super) fn writes_bytes(&self) -> bool {
        matches!(self.0.last(), Some(PreTokenizerStep::Bytes))
    }
}

fn add(json: PreTokenizerJson, steps: &mut Vec<PreTokenizerStep>) -> Result<(), String> {
    let split = |at, behavior, invert| PreTokenizerStep::Split { at, behavior, invert };
    match json {
        PreTokenizerJson::Sequence { pretokenizers } => {
            pretokenizers.into_iter().try_for_each(|json| add(json, steps))?;
        }
        PreTokenizerJson::Split { pattern, behavior, invert } => {
            steps.push(split(Delimiter::Pattern(pattern.compile()?), behavior, invert));
        }
        PreTokenizerJson::ByteLevel { add_prefix_space, use_regex } => {
            steps.extend(add_prefix_space.then_some(PreTokenizerStep::PrefixSpace));
            if use_regex != Some(false) {
                steps.push(PreTokenizerStep::isolate(Delimiter::Pattern(Pattern::new(GPT2)?)));
            }
            steps.push(PreTokenizerStep::Bytes);
        }
        PreTokenizerJson::Metaspace { replacement, add_prefix_space, prepend_scheme, split: splits } => {
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
                steps.push(split(Delimiter::This(replacement), Behavior::MergedWithNext, false));
            }
        }
        PreTokenizerJson::Digits { individual_digits } => {
            let behavior = if individual_digits { Behavior::Isolated } else { Behavior::Contiguous };
            steps.push(split(Delimiter::Class(char::is_numeric), behavior, false));
        }
        PreTokenizerJson::Punctuation { behavior } => {
            steps.push(split(Delimiter::Class(is_mark), behavior.unwrap_or(Behavior::Isolated), false));
        }
        PreTokenizerJson::CharDelimiterSplit { delimiter } => {
            steps.push(split(Delimiter::This(delimiter), Behavior::Removed, false));
        }
        PreTokenizerJson::Whitespace => {
            steps.push(split(Delimiter::Pattern(Pattern::words()?), Behavior::Removed, true));
        }
        PreTokenizerJson::WhitespaceSplit => {
            steps.push(split(Delimiter::Class(char::is_whitespace), Behavior::Removed, false))
        }
        PreTokenizerJson::BertPreTokenizer => steps.extend(PreTokenizerStep::bert()),
    }
    if steps.len() > STEPS {
        return Err(format!("its pre_tokenizer has more than {STEPS} steps"));
    }
    Ok(())
}

/// A punctuation mark, as the library has it.
fn is_mark(character: char) -> bool {
    character.is_ascii_punctuation() || character.is_punctuation()
}

impl PreTokenizerStep {
    /// The two of BertPreTokenizer.
    fn bert() -> [PreTokenizerStep; 2] {
        let words = Delimiter::Class(char::is_whitespace);
        [
            PreTokenizerStep::Split { at: words, behavior: Behavior::Removed, invert: false },
            PreTokenizerStep::isolate(Delimiter::Class(is_mark)),
        ]
    }

    fn isolate(at: Delimiter) -> PreTokenizerStep {
        PreTokenizerStep::Split { at, behavior: Behavior::Isolated, invert: false }
    }

    /// Whether a part of the text may be in no piece.
    fn removes(&self) -> bool {
        matches!(self, PreTokenizerStep::Split { behavior: Behavior::Removed, .. })
    }

    fn apply(&self, pieces: Pieces, first: bool, budget: &Budget) -> Encoded<Pieces> {
        match self {
            PreTokenizerStep::Split { at, behavior, invert } => pieces.split(|piece, keep| {
                let mut parts = at.parts(piece, budget)?;
                if *invert {
                    parts.iter_mut().for_each(|(_, delimiter)| *delimiter = !*delimiter);
                }
                behavior.join(parts)?.into_iter().try_for_each(keep)
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
    /// The delimiters of `text` and what lies between them: together all of it.
    fn parts(&self, text: &str, budget: &Budget) -> Encoded<Vec<Section>> {
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

/// Calls `found` with each character of `text` that is one of `class`.
fn each(text: &str, class: impl Fn(char) -> bool, found: &mut impl FnMut(Range<usize>) -> Encoded<()>) -> Encoded<()> {
    let mut hits = text.char_indices().filter(|(_, character)| class(*character));
    hits.try_for_each(|(start, character)| found(start..start + character.len_utf8()))
}

impl Behavior {
    /// The pieces that `parts` become.
    fn join(self, mut parts: Vec<Section>) -> Encoded<Vec<Range<usize>>> {
        let backwards = self == Behavior::MergedWithNext;
        if backwards {
            parts.reverse();
        }
        let (mut pieces, mut before): (Vec<Range<usize>>, bool) = (Vec::new(), false);
        for (part, delimiter) in parts {
            let joins = match self {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper};

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
            let ours = PreTokenizer::read(&value).unwrap();
            let pieces = ours.apply(&text, true, &Budget::of(text.len())).unwrap();
            prop_assert_eq!(pieces.iter().collect::<Vec<_>>(), expected, "{}", value);
        }
    }

    #[test]
    fn the_first_piece_alone_is_prefixed() {
        let value = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"});
        let split = |text: &str, first| {
            let pieces = PreTokenizer::read(&value).unwrap().apply(text, first, &Budget::of(text.len())).unwrap();
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
            let error = PreTokenizer::read(&value).unwrap_err();
            assert!(error.contains(says), "{value}: {error}");
        }
    }
}
