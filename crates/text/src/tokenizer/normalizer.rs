//! The changes to a text before it is split into pieces: the `normalizer` of a `tokenizer.json`.
//!
//! Each step gives the result of the tokenizers library's step of that name, within the budget of the text.

use super::charsmap::Charsmap;
use super::pattern::Pattern;
use super::text::{Budget, Growing, push};
use super::vocabulary::byte_character;
use crate::error::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use model_factory_format::tokenizer::steps;
use std::borrow::Cow;
use std::ops::Range;
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::UnicodeNormalization;
use unicode_normalization_alignments::char::is_combining_mark;

/// The most steps of a normalizer or a pre-tokenizer. Published ones have up to seven.
pub(super) const STEPS: usize = 16;

/// The most times that NFC shortens a text, in bytes: three parts of a Hangul syllable become one character.
const NFC_SHORTENS: usize = 3;

/// The steps, in order.
#[derive(Default)]
pub(super) struct Normalizer(Vec<Step>);

struct Step {
    /// The name of the step in errors.
    name: &'static str,
    /// The most times that a text becomes shorter, in bytes; `None` if unknown.
    shortens: Option<usize>,
    /// Whether the first character that is written, and no later one, stands for the first character of the text.
    keeps_the_first: bool,
    action: Action,
}

enum Action {
    Rewrite(Rewrite),
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
    },
}

/// Writes the normalized form of a text.
type Rewrite = fn(&str, &mut Growing<'_>) -> Result<()>;

pub(super) fn compile(pattern: &steps::Pattern) -> Result<Pattern, String> {
    match pattern {
        steps::Pattern::String(text) => Pattern::new(&regex_syntax::escape(text)),
        steps::Pattern::Regex(pattern) => Pattern::new(pattern),
    }
}

impl Normalizer {
    pub(super) fn new(normalizer: Option<&steps::Normalizer>) -> Result<Normalizer, String> {
        let mut steps = Vec::new();
        normalizer.map_or(Ok(()), |step| add(step, &mut steps))?;
        Ok(Normalizer(steps))
    }

    /// The normalized form of `text`.
    pub(super) fn apply<'t>(&self, text: &'t str, budget: &Budget) -> Result<Cow<'t, str>> {
        let mut text = Cow::Borrowed(text);
        for step in &self.0 {
            text = Cow::Owned(step.action.apply(step.name, &text, budget)?);
        }
        Ok(text)
    }

    /// The normalized form of `text`, where the ranges `own` and the parts between them are normalized separately, and the
    /// ranges of the result that come from `own`.
    pub(super) fn apply_apart(
        &self,
        text: &str,
        own: &[Range<usize>],
        budget: &Budget,
    ) -> Result<(String, Vec<Range<usize>>)> {
        let (mut parts, mut end): (Vec<(Cow<'_, str>, bool)>, usize) = (Vec::new(), 0);
        for own in own {
            push(&mut parts, (text[end..own.start].into(), false))?;
            push(&mut parts, (text[own.clone()].into(), true))?;
            end = own.end;
        }
        push(&mut parts, (text[end..].into(), false))?;
        for step in &self.0 {
            parts.retain(|(part, _)| !part.is_empty());
            if let Action::Strip { left, right } = &step.action {
                let blank = |(part, _): &(Cow<'_, str>, bool)| part.trim().is_empty();
                let first = parts.iter().take_while(|part| *left && blank(part)).count();
                parts.drain(..first);
                while parts.pop_if(|part| *right && blank(part)).is_some() {}
            }
            let (last, mut bytes) = (parts.len().wrapping_sub(1), 0);
            for (index, (part, _)) in parts.iter_mut().enumerate() {
                let made = match &step.action {
                    Action::Prepend(_) if index > 0 => continue,
                    Action::Strip { left, right } => {
                        Action::Strip { left: *left && index == 0, right: *right && index == last }
                            .apply(step.name, part, budget)?
                    }
                    action => action.apply(step.name, part, budget)?,
                };
                bytes += made.len();
                budget.check(step.name, bytes)?;
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

    /// Whether the first character that is written, and no later one, stands for the first character of the text.
    pub(super) fn keeps_the_first(&self) -> bool {
        self.0.iter().all(|step| step.keeps_the_first)
    }

    /// The most times that a text becomes shorter, in bytes; `None` if unknown.
    pub(super) fn shortens(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |factor, step| factor.checked_mul(step.shortens?))
    }
}

fn add(step: &steps::Normalizer, steps: &mut Vec<Step>) -> Result<(), String> {
    use steps::Normalizer as Json;

    let one = |name, action| Step { name, shortens: None, keeps_the_first: false, action };
    let rewrite = |name, rewrite: Rewrite| one(name, Action::Rewrite(rewrite));
    steps.push(match step {
        Json::Sequence { normalizers } => return normalizers.iter().try_for_each(|step| add(step, steps)),
        &Json::BertNormalizer { clean_text, handle_chinese_chars, strip_accents, lowercase } => {
            // If a file does not say it, accents are removed if letters are lowercased.
            let strip_accents = strip_accents.unwrap_or(lowercase);
            let wanted: [(bool, Rewrite); 5] = [
                (clean_text, clean),
                (handle_chinese_chars, separate_chinese),
                (strip_accents, nfd),
                (strip_accents, |text, out| out.extend(text.chars().filter(|mark| !mark.is_mark_nonspacing()))),
                (lowercase, lower),
            ];
            let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
            steps.extend(wanted.map(|(_, step)| rewrite("the normalizer's BertNormalizer", step)));
            return Ok(());
        }
        Json::NFC => Step {
            shortens: Some(NFC_SHORTENS),
            keeps_the_first: true,
            ..rewrite("the normalizer's NFC", |text, out| out.extend(text.nfc().map(|(character, _)| character)))
        },
        Json::NFD => rewrite("the normalizer's NFD", nfd),
        Json::NFKC => {
            rewrite("the normalizer's NFKC", |text, out| out.extend(text.nfkc().map(|(character, _)| character)))
        }
        Json::NFKD => {
            rewrite("the normalizer's NFKD", |text, out| out.extend(text.nfkd().map(|(character, _)| character)))
        }
        Json::Lowercase => rewrite("the normalizer's Lowercase", lower),
        Json::StripAccents => rewrite("the normalizer's StripAccents", |text, out| {
            out.extend(text.chars().filter(|character| !is_combining_mark(*character)))
        }),
        Json::ByteLevel => Step {
            shortens: Some(1),
            ..rewrite("the normalizer's ByteLevel", |text, out| out.extend(text.bytes().map(byte_character)))
        },
        Json::Precompiled { precompiled_charsmap } => {
            let table = BASE64.decode(precompiled_charsmap);
            let table = table.map_err(|error| format!("its precompiled_charsmap is no base64: {error}"))?;
            one("the normalizer's Precompiled", Action::Charsmap(Charsmap::read(&table)?))
        }
        Json::Charsmap { table } => one("the normalizer's character map", Action::Charsmap(Charsmap::read(table)?)),
        Json::Prepend { prepend } if prepend.is_empty() => return Err("its normalizer's Prepend is empty".into()),
        Json::Prepend { prepend } => {
            let step = one("the normalizer's Prepend", Action::Prepend(prepend.clone()));
            Step { shortens: Some(1), keeps_the_first: true, ..step }
        }
        &Json::Strip { strip_left: left, strip_right: right } => {
            one("the normalizer's Strip", Action::Strip { left, right })
        }
        Json::Replace { pattern, content } => {
            let compiled = compile(pattern)?;
            // The library's offsets are wrong after an empty match: it panics, or repeats some text.
            if compiled.may_be_empty {
                return Err("its normalizer replaces what can be empty".into());
            }
            let (shortens, keeps_the_first) = match pattern {
                steps::Pattern::String(text) => {
                    let one_by_one = text.chars().count() == 1 && content.chars().count() == 1;
                    ((content.len() >= text.len()).then_some(1), one_by_one)
                }
                steps::Pattern::Regex(_) => (None, false),
            };
            let action = Action::Replace { pattern: compiled, content: content.clone() };
            Step { shortens, keeps_the_first, ..one("the normalizer's Replace", action) }
        }
    });
    if steps.len() > STEPS {
        return Err(format!("its normalizer has more than {STEPS} steps"));
    }
    Ok(())
}

impl Action {
    /// The result of the step called `name` on `text`.
    fn apply(&self, name: &'static str, text: &str, budget: &Budget) -> Result<String> {
        let mut out = budget.text(name);
        match self {
            Action::Rewrite(rewrite) => rewrite(text, &mut out)?,
            Action::Charsmap(table) => table.apply(text, &mut out)?,
            Action::Prepend(prefix) => {
                if !text.is_empty() {
                    out.push_str(prefix)?;
                }
                out.push_str(text)?;
            }
            Action::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                out.push_str(if *right { text.trim_end() } else { text })?;
            }
            Action::Replace { pattern, content } => {
                let mut rest = 0;
                // The library matches nothing in an empty text, not even a pattern that matches it.
                if !text.is_empty() {
                    pattern.find(text, budget, |found| {
                        out.push_str(&text[rest..found.start])?;
                        rest = found.end;
                        out.push_str(content)
                    })?;
                }
                out.push_str(&text[rest..])?;
            }
        }
        Ok(out.finish())
    }
}

fn nfd(text: &str, out: &mut Growing<'_>) -> Result<()> {
    out.extend(text.nfd().map(|(character, _)| character))
}

fn lower(text: &str, out: &mut Growing<'_>) -> Result<()> {
    out.extend(text.chars().flat_map(char::to_lowercase))
}

/// Removes control characters, and replaces white space by spaces.
fn clean(text: &str, out: &mut Growing<'_>) -> Result<()> {
    let kept = text.chars().filter(|character| !is_taken_out(*character));
    out.extend(kept.map(|character| if character.is_whitespace() { ' ' } else { character }))
}

/// Writes a space on both sides of Chinese characters.
fn separate_chinese(text: &str, out: &mut Growing<'_>) -> Result<()> {
    let space = |character| is_chinese(character).then_some(' ');
    out.extend(
        text.chars().flat_map(|character| space(character).into_iter().chain([character]).chain(space(character))),
    )
}

/// The characters that BertNormalizer removes: control characters, and those that stand for invalid ones.
fn is_taken_out(character: char) -> bool {
    let control = character.is_other() && !matches!(character, '\t' | '\n' | '\r');
    matches!(character, '\0' | char::REPLACEMENT_CHARACTER) || control
}

/// The blocks of BertNormalizer; the end of the fifth block is the library's.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use tokenizers::{NormalizedString, Normalizer as _, NormalizerWrapper};

    fn read(value: &Value) -> Result<Normalizer, String> {
        let step: Option<steps::Normalizer> =
            serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        Normalizer::new(step.as_ref())
    }

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
            let ours = read(&value).unwrap();
            let library: NormalizerWrapper = serde_json::from_value(value.clone()).unwrap();
            let mut expected = NormalizedString::from(text.as_str());
            // The library's offsets lead it beyond the end of some texts.
            prop_assume!(catch_unwind(AssertUnwindSafe(|| library.normalize(&mut expected).unwrap())).is_ok());
            let found = ours.apply(&text, &Budget::new(text.len())).unwrap();
            prop_assert_eq!(found.as_ref(), expected.get(), "{}", value);
            if let Some(factor) = ours.shortens() {
                prop_assert!(found.len() * factor >= text.len());
            }
        }
    }

    /// Checks every composed character against all characters that are composed into it.
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
            (json!("NFC"), "Normalizer"),
            (json!({"type": "Prepend", "prepend": ""}), "Prepend"),
            (json!({"type": "Replace", "pattern": {"String": ""}, "content": "-"}), "empty"),
            (json!({"type": "Replace", "pattern": {"Regex": "a*"}, "content": "-"}), "empty"),
            (json!({"type": "Strip", "strip_left": true}), "strip_right"),
            (json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); STEPS + 1]}), "more than 16"),
        ] {
            let error = read(&value).err().unwrap();
            assert!(error.contains(says), "{value}: {error}");
        }
    }
}
