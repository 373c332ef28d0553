//! What is done to a text before it is split into pieces: the `normalizer` of a `tokenizer.json`.
//!
//! Each step writes what the step of that name in the tokenizers library writes, within the budget of the text.

use super::charsmap::Charsmap;
use super::error::Encoded;
use super::pattern::Pattern;
use super::text::{Budget, Growing, push};
use super::vocabulary::byte_character;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::UnicodeNormalization;
use unicode_normalization_alignments::char::is_combining_mark;

/// Steps that a normalizer or a pre-tokenizer may have. Published ones have up to seven.
pub(super) const STEPS: usize = 16;

/// How many times shorter NFC makes a text, in bytes, at most: three parts of a Hangul syllable become one character.
const NFC_SHORTENS: usize = 3;

/// The steps, in order.
#[derive(Debug, Default)]
pub(super) struct Normalizer(Vec<NormalizerStep>);

#[derive(Debug)]
pub(super) enum NormalizerStep {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    StripAccents,
    /// Control characters are taken out, and white space becomes a space.
    CleanText,
    /// A space on both sides of Chinese characters.
    ChineseChars,
    /// Marks that take no room of their own are taken out, of a text in NFD.
    StripMarks,
    ByteLevel,
    /// SentencePiece's table.
    Charsmap(Charsmap),
    Prepend(String),
    Strip {
        left: bool,
        right: bool,
    },
    Replace {
        pattern: Pattern,
        content: String,
        shortens: bool,
        /// Whether a character becomes a character.
        one_by_one: bool,
    },
}

/// As a file says it.
#[derive(Deserialize)]
#[serde(tag = "type")]
#[allow(clippy::upper_case_acronyms)] // the file's names
enum NormalizerJson {
    Sequence { normalizers: Vec<NormalizerJson> },
    NFC,
    NFD,
    NFKC,
    NFKD,
    Lowercase,
    StripAccents,
    ByteLevel,
    Precompiled { precompiled_charsmap: String },
    Prepend { prepend: String },
    Strip { strip_left: bool, strip_right: bool },
    Replace { pattern: PatternJson, content: String },
    BertNormalizer { clean_text: bool, handle_chinese_chars: bool, strip_accents: Option<bool>, lowercase: bool },
}

/// The pattern of a step, as a file says it.
#[derive(Deserialize)]
pub(super) enum PatternJson {
    String(String),
    Regex(String),
}

impl PatternJson {
    /// # Errors
    /// Those of [`Pattern::new`].
    pub(super) fn compile(&self) -> Result<Pattern, String> {
        match self {
            PatternJson::String(text) => Pattern::literal(text),
            PatternJson::Regex(pattern) => Pattern::new(pattern),
        }
    }
}

impl Normalizer {
    /// These steps.
    pub(super) fn new(steps: Vec<NormalizerStep>) -> Normalizer {
        Normalizer(steps)
    }

    /// The steps of BertNormalizer that are wanted.
    pub(super) fn bert(clean_text: bool, chinese_chars: bool, strip_accents: bool, lowercase: bool) -> Normalizer {
        let steps = [
            (clean_text, NormalizerStep::CleanText),
            (chinese_chars, NormalizerStep::ChineseChars),
            (strip_accents, NormalizerStep::Nfd),
            (strip_accents, NormalizerStep::StripMarks),
            (lowercase, NormalizerStep::Lowercase),
        ];
        Normalizer(steps.into_iter().filter(|(wanted, _)| *wanted).map(|(_, step)| step).collect())
    }

    /// Reads the `normalizer` of a file.
    ///
    /// # Errors
    /// What of it is not known or not sound.
    pub(super) fn read(value: &Value) -> Result<Normalizer, String> {
        let mut steps = Vec::new();
        let json = Option::<NormalizerJson>::deserialize(value).map_err(|error| format!("its normalizer: {error}"))?;
        json.map_or(Ok(()), |json| add(json, &mut steps))?;
        Ok(Normalizer(steps))
    }

    /// What becomes of `text`.
    ///
    /// # Errors
    /// `TooLong`, `Pattern`, `OutOfMemory`.
    pub(super) fn apply<'t>(&self, text: &'t str, budget: &Budget) -> Encoded<Cow<'t, str>> {
        let mut text = Cow::Borrowed(text);
        for step in &self.0 {
            text = Cow::Owned(step.apply(&text, budget)?);
        }
        Ok(text)
    }

    /// What becomes of `text` where the ranges `own` and what lies between them are normalized each for itself, and which of
    /// that is made of `own`.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(super) fn apply_apart(
        &self,
        text: &str,
        own: &[Range<usize>],
        budget: &Budget,
    ) -> Encoded<(String, Vec<Range<usize>>)> {
        let (mut parts, mut end): (Vec<(Cow<'_, str>, bool)>, usize) = (Vec::new(), 0);
        for own in own {
            push(&mut parts, (text[end..own.start].into(), false))?;
            push(&mut parts, (text[own.clone()].into(), true))?;
            end = own.end;
        }
        push(&mut parts, (text[end..].into(), false))?;
        for step in &self.0 {
            parts.retain(|(part, _)| !part.is_empty());
            let (mut last, mut bytes) = (parts.len().wrapping_sub(1), 0);
            if let NormalizerStep::Strip { left, right } = step {
                let blank = |(part, _): &(Cow<'_, str>, bool)| part.trim().is_empty();
                let first = if *left { parts.iter().position(|part| !blank(part)).unwrap_or(parts.len()) } else { 0 };
                parts.drain(..first);
                let kept = if *right {
                    parts.iter().rposition(|part| !blank(part)).map_or(0, |last| last + 1)
                } else {
                    parts.len()
                };
                parts.truncate(kept);
                last = parts.len().wrapping_sub(1);
            }
            for (index, (part, _)) in parts.iter_mut().enumerate() {
                let made = match step {
                    NormalizerStep::Prepend(_) if index > 0 => continue,
                    NormalizerStep::Strip { left, right } => {
                        NormalizerStep::Strip { left: *left && index == 0, right: *right && index == last }
                            .apply(part, budget)?
                    }
                    step => step.apply(part, budget)?,
                };
                bytes += made.len();
                budget.check(step.name(), bytes)?;
                *part = made.into();
            }
        }
        let (mut joined, mut spans) = (budget.text("the normalizer"), Vec::<Range<usize>>::new());
        for (part, own) in parts {
            let start = joined.len();
            joined.push_str(&part)?;
            match spans.last_mut() {
                _ if !own || part.is_empty() => {}
                Some(last) if last.end == start => last.end = joined.len(),
                _ => push(&mut spans, start..joined.len())?,
            }
        }
        Ok((joined.finish(), spans))
    }

    /// Whether what is written first stands for the first character of the text, and nothing behind it does.
    pub(super) fn keeps_the_first(&self) -> bool {
        self.0.iter().all(|step| match step {
            NormalizerStep::Replace { one_by_one, .. } => *one_by_one,
            NormalizerStep::Nfc | NormalizerStep::Prepend(_) => true,
            _ => false,
        })
    }

    /// How many times shorter a text becomes at most, in bytes; `None` where nothing is known.
    pub(super) fn shortens(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |factor, step| match step {
            NormalizerStep::Nfc => factor.checked_mul(NFC_SHORTENS),
            NormalizerStep::Prepend(_)
            | NormalizerStep::ByteLevel
            | NormalizerStep::Replace { shortens: false, .. } => Some(factor),
            _ => None,
        })
    }
}

fn add(json: NormalizerJson, steps: &mut Vec<NormalizerStep>) -> Result<(), String> {
    steps.push(match json {
        NormalizerJson::Sequence { normalizers } => {
            return normalizers.into_iter().try_for_each(|json| add(json, steps));
        }
        NormalizerJson::BertNormalizer { clean_text, handle_chinese_chars, strip_accents, lowercase } => {
            // Where a file does not say it, accents are taken off where letters become small.
            let strip_accents = strip_accents.unwrap_or(lowercase);
            steps.extend(Normalizer::bert(clean_text, handle_chinese_chars, strip_accents, lowercase).0);
            return Ok(());
        }
        NormalizerJson::NFC => NormalizerStep::Nfc,
        NormalizerJson::NFD => NormalizerStep::Nfd,
        NormalizerJson::NFKC => NormalizerStep::Nfkc,
        NormalizerJson::NFKD => NormalizerStep::Nfkd,
        NormalizerJson::Lowercase => NormalizerStep::Lowercase,
        NormalizerJson::StripAccents => NormalizerStep::StripAccents,
        NormalizerJson::ByteLevel => NormalizerStep::ByteLevel,
        NormalizerJson::Precompiled { precompiled_charsmap } => {
            let table = BASE64.decode(&precompiled_charsmap);
            let table = table.map_err(|error| format!("its precompiled_charsmap is no base64: {error}"))?;
            NormalizerStep::Charsmap(Charsmap::read(&table)?)
        }
        NormalizerJson::Prepend { prepend } if prepend.is_empty() => {
            return Err("its normalizer's Prepend is empty".into());
        }
        NormalizerJson::Prepend { prepend } => NormalizerStep::Prepend(prepend),
        NormalizerJson::Strip { strip_left: left, strip_right: right } => NormalizerStep::Strip { left, right },
        NormalizerJson::Replace { pattern: PatternJson::String(text), content } if !text.is_empty() => {
            NormalizerStep::replace(&text, content)?
        }
        NormalizerJson::Replace { pattern, content } => {
            let pattern = pattern.compile()?;
            // The library's offsets are wrong behind one that matches between characters: it panics, or repeats some.
            if pattern.may_be_empty() {
                return Err("its normalizer replaces what can be empty".into());
            }
            NormalizerStep::Replace { pattern, content, shortens: true, one_by_one: false }
        }
    });
    if steps.len() > STEPS {
        return Err(format!("its normalizer has more than {STEPS} steps"));
    }
    Ok(())
}

impl NormalizerStep {
    /// Writes `content` for every `text`.
    ///
    /// # Errors
    /// When `text` is too long for a pattern.
    pub(super) fn replace(text: &str, content: String) -> Result<NormalizerStep, String> {
        let shortens = content.len() < text.len();
        let one_by_one = text.chars().count() == 1 && content.chars().count() == 1;
        Ok(NormalizerStep::Replace { pattern: Pattern::literal(text)?, content, shortens, one_by_one })
    }

    fn name(&self) -> &'static str {
        match self {
            NormalizerStep::Nfc => "the normalizer's NFC",
            NormalizerStep::Nfd => "the normalizer's NFD",
            NormalizerStep::Nfkc => "the normalizer's NFKC",
            NormalizerStep::Nfkd => "the normalizer's NFKD",
            NormalizerStep::Lowercase => "the normalizer's Lowercase",
            NormalizerStep::StripAccents => "the normalizer's StripAccents",
            NormalizerStep::CleanText | NormalizerStep::ChineseChars | NormalizerStep::StripMarks => {
                "the normalizer's BertNormalizer"
            }
            NormalizerStep::ByteLevel => "the normalizer's ByteLevel",
            NormalizerStep::Charsmap(_) => "the normalizer's Precompiled",
            NormalizerStep::Prepend(_) => "the normalizer's Prepend",
            NormalizerStep::Strip { .. } => "the normalizer's Strip",
            NormalizerStep::Replace { .. } => "the normalizer's Replace",
        }
    }

    fn apply(&self, text: &str, budget: &Budget) -> Encoded<String> {
        let mut out = budget.text(self.name());
        match self {
            NormalizerStep::Nfc => out.extend(text.nfc().map(|(character, _)| character))?,
            NormalizerStep::Nfd => out.extend(text.nfd().map(|(character, _)| character))?,
            NormalizerStep::Nfkc => out.extend(text.nfkc().map(|(character, _)| character))?,
            NormalizerStep::Nfkd => out.extend(text.nfkd().map(|(character, _)| character))?,
            NormalizerStep::Lowercase => out.extend(text.chars().flat_map(char::to_lowercase))?,
            NormalizerStep::StripAccents => {
                out.extend(text.chars().filter(|character| !is_combining_mark(*character)))?
            }
            NormalizerStep::CleanText => {
                let kept = text.chars().filter(|character| !is_taken_out(*character));
                out.extend(kept.map(|character| if is_space(character) { ' ' } else { character }))?;
            }
            NormalizerStep::ChineseChars => {
                for character in text.chars() {
                    if is_chinese(character) {
                        [' ', character, ' '].into_iter().try_for_each(|character| out.push(character))?;
                    } else {
                        out.push(character)?;
                    }
                }
            }
            NormalizerStep::StripMarks => {
                out.extend(text.chars().filter(|character| !character.is_mark_nonspacing()))?;
            }
            NormalizerStep::ByteLevel => out.extend(text.bytes().map(byte_character))?,
            NormalizerStep::Charsmap(table) => table.apply(text, &mut out)?,
            NormalizerStep::Prepend(prefix) => {
                if !text.is_empty() {
                    out.push_str(prefix)?;
                }
                out.push_str(text)?;
            }
            NormalizerStep::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                out.push_str(if *right { text.trim_end() } else { text })?;
            }
            NormalizerStep::Replace { pattern, content, .. } => replace(text, pattern, content, budget, &mut out)?,
        }
        Ok(out.finish())
    }
}

/// White space as BertNormalizer has it.
fn is_space(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r') || character.is_whitespace()
}

/// What BertNormalizer takes out: control characters, and those that stand for what is none.
fn is_taken_out(character: char) -> bool {
    let control = character.is_other() && !matches!(character, '\t' | '\n' | '\r');
    matches!(character, '\0' | char::REPLACEMENT_CHARACTER) || control
}

/// The blocks of BertNormalizer; the end of the fifth is the library's.
fn is_chinese(character: char) -> bool {
    matches!(
        u32::from(character),
        0x4e00..=0x9fff
            | 0x3400..=0x4dbf
            | 0x20000..=0x2a6df
            | 0x2a700..=0x2b73f
            | 0x2b740..=0x2b81f
            | 0x2b920..=0x2ceaf
            | 0xf900..=0xfaff
            | 0x2f800..=0x2fa1f
    )
}

fn replace(text: &str, pattern: &Pattern, content: &str, budget: &Budget, out: &mut Growing<'_>) -> Encoded<()> {
    let mut rest = 0;
    // In the library nothing is found in an empty text, not even what matches it.
    if !text.is_empty() {
        pattern.find(text, budget, |found| {
            out.push_str(&text[rest..found.start])?;
            rest = found.end;
            out.push_str(content)
        })?;
    }
    out.push_str(&text[rest..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use tokenizers::{NormalizedString, Normalizer as _, NormalizerWrapper};

    fn steps() -> Vec<Value> {
        vec![
            json!(null),
            json!({"type": "NFC"}),
            json!({"type": "NFD"}),
            json!({"type": "NFKC"}),
            json!({"type": "NFKD"}),
            json!({"type": "Lowercase"}),
            json!({"type": "StripAccents"}),
            json!({"type": "ByteLevel"}),
            json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                "lowercase": true}),
            json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": false, "strip_accents": true,
                "lowercase": false}),
            json!({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": true, "strip_accents": false,
                "lowercase": true}),
            json!({"type": "Prepend", "prepend": "▁"}),
            json!({"type": "Strip", "strip_left": true, "strip_right": false}),
            json!({"type": "Strip", "strip_left": false, "strip_right": true}),
            json!({"type": "Strip", "strip_left": true, "strip_right": true}),
            json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
            json!({"type": "Replace", "pattern": {"String": "."}, "content": "ab"}),
            json!({"type": "Replace", "pattern": {"Regex": "a|b+"}, "content": ""}),
            json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "<>"}),
            json!({"type": "Replace", "pattern": {"Regex": "ba?"}, "content": "é"}),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn each_step_and_each_pair_writes_what_the_librarys_does(
            text in "[ \t\na-cA-CéÅe\u{301}\u{323}ﷺﬁ각\u{1100}\u{1161}\u{11a8}日.²İ😀\u{3000}]{0,12}",
            first in prop::sample::select(steps()),
            second in prop::sample::select(steps()),
        ) {
            let both: Vec<&Value> = [&first, &second].into_iter().filter(|step| !step.is_null()).collect();
            let value = json!({"type": "Sequence", "normalizers": both});
            let ours = Normalizer::read(&value).unwrap();
            let library: NormalizerWrapper = serde_json::from_value(value.clone()).unwrap();
            let mut expected = NormalizedString::from(text.as_str());
            // Its offsets lead it beyond the end of some texts.
            prop_assume!(catch_unwind(AssertUnwindSafe(|| library.normalize(&mut expected).unwrap())).is_ok());
            let found = ours.apply(&text, &Budget::of(text.len())).unwrap();
            prop_assert_eq!(found.as_ref(), expected.get(), "{}", value);
            if let Some(factor) = ours.shortens() {
                prop_assert!(found.len() * factor >= text.len());
            }
        }
    }

    /// Every composed character, against all that is composed into it.
    #[test]
    fn nfc_shortens_by_no_more_than_is_said() {
        let mut most = 0.0f64;
        for character in (0..=0x10ffff).filter_map(char::from_u32) {
            let parts: usize = character.to_string().nfd().map(|(part, _)| part.len_utf8()).sum();
            let composed: usize = character
                .to_string()
                .nfd()
                .map(|(part, _)| part)
                .collect::<String>()
                .nfc()
                .map(|(part, _)| part.len_utf8())
                .sum();
            most = most.max(parts as f64 / composed as f64);
        }
        assert_eq!(most, NFC_SHORTENS as f64);
    }

    #[test]
    fn refuses_by_name_what_it_does_not_know() {
        for (value, says) in [
            (json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "charsmap"),
            (json!({"type": "Precompiled", "precompiled_charsmap": "="}), "base64"),
            (json!({"type": "BertNormalizer", "clean_text": true}), "handle_chinese_chars"),
            (json!({"type": "Sequence", "normalizers": [{"type": "Nmt"}]}), "Nmt"),
            (json!("NFC"), "normalizer"),
            (json!({"type": "Prepend", "prepend": ""}), "Prepend"),
            (json!({"type": "Replace", "pattern": {"String": ""}, "content": "-"}), "empty"),
            (json!({"type": "Replace", "pattern": {"Regex": "a*"}, "content": "-"}), "empty"),
            (json!({"type": "Strip", "strip_left": true}), "strip_right"),
            (json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); STEPS + 1]}), "more than 16"),
        ] {
            let error = Normalizer::read(&value).unwrap_err();
            assert!(error.contains(says), "{value}: {error}");
        }
    }
}
