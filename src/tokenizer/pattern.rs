//! Regular expressions of a tokenizer, with the meaning that Oniguruma gives them: the engine of the tokenizers library
//! in Python, and so of transformers.
//!
//! fancy-regex hands what it can to regex-automata, which takes time linear in the text for a match. What needs look-around
//! is matched by backtracking, up to a limit.

use super::error::{EncodeError, Encoded};
use fancy_regex::{Regex, RegexBuilder};
use std::ops::Range;

/// Bytes of a pattern. The longest published one (DeepSeek LLM) has 1200.
const PATTERN_BYTES: usize = 16 << 10;

/// Bytes that a compiled pattern may take, each part that regex-automata matches and its cache; the published ones take under
/// 1 MiB.
const COMPILED_BYTES: usize = 8 << 20;

/// Backtracking steps in search of one match. The published patterns take fewer than the text has characters.
const BACKTRACKS: usize = 1_000_000;

/// The ends of patterns that match white space but for its last character where a word follows. Without their look-ahead
/// the rest of most patterns needs no backtracking.
const BEFORE_A_WORD: [(&str, Lone); 3] =
    [(r"|\s+(?!\S)|\s+", Lone::Matches), (r"|\s+(?!\S)|\s", Lone::Matches), (r"|\s+(?!\S)", Lone::Passes)];

/// What one character of white space before a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lone {
    /// A match.
    Matches,
    /// None: the search goes on behind it.
    Passes,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    regex: Regex,
    before_a_word: Option<BeforeAWord>,
}

/// A pattern that ended with one of [`BEFORE_A_WORD`]: `regex` has `|\s+` in its place.
#[derive(Debug)]
struct BeforeAWord {
    /// The branches before it.
    branches: Regex,
    lone: Lone,
}

impl Pattern {
    /// Compiles `source`.
    ///
    /// # Errors
    /// What is wrong with it, or means something else to Oniguruma than here.
    pub(super) fn new(source: &str) -> Result<Pattern, String> {
        let refuse = |reason: String| format!("its pattern {:?} {reason}", shortened(source));
        if source.len() > PATTERN_BYTES {
            return Err(refuse(format!("has {} bytes, expected at most {PATTERN_BYTES}", source.len())));
        }
        let translated = translate(source).map_err(refuse)?;
        let end = BEFORE_A_WORD.iter().find_map(|(end, lone)| Some((translated.strip_suffix(end)?, *lone)));
        let split = end.and_then(|(rest, lone)| {
            // The rest is whole by itself: where it is not, the end lies within a group or is escaped.
            let branches = compile(rest).ok()?;
            Some((compile(&format!(r"{rest}|\s+")).ok()?, Some(BeforeAWord { branches, lone })))
        });
        let (regex, before_a_word) = match split {
            Some(split) => split,
            None => (compile(&translated).map_err(|error| refuse(format!("cannot be read: {error}")))?, None),
        };
        Ok(Pattern { source: source.into(), regex, before_a_word })
    }

    /// A pattern that matches `text` itself.
    pub(super) fn literal(text: &str) -> Result<Pattern, String> {
        Pattern::new(&fancy_regex::escape(text))
    }

    /// Compiles `source` as the regex crate reads it, for what the tokenizers library has fixed by that crate.
    ///
    /// # Errors
    /// When it is no pattern.
    pub(super) fn of_regex_crate(source: &str) -> Result<Pattern, String> {
        let regex = Regex::new(source).map_err(|error| error.to_string())?;
        Ok(Pattern { source: source.into(), regex, before_a_word: None })
    }

    /// Calls `found` with each match in `text`, from left to right.
    ///
    /// # Errors
    /// `Pattern` when the search for one takes too many steps; those of `found`.
    pub(super) fn find(&self, text: &str, mut found: impl FnMut(Range<usize>) -> Encoded<()>) -> Encoded<()> {
        let (mut from, mut last_end) = (0, None);
        while from <= text.len() {
            let Some(Range { start, mut end }) = self.search(&self.regex, text, from)? else { break };
            from = end;
            if start == end {
                from += text[end..].chars().next().map_or(1, char::len_utf8);
                // As in every engine: none where the match before ends.
                if last_end == Some(end) {
                    continue;
                }
            } else if let Some((space, lone)) = self.space_before_a_word(text, start..end)? {
                if space > start {
                    (from, end) = (space, space);
                } else if lone == Lone::Passes {
                    continue;
                }
            }
            last_end = Some(end);
            found(start..end)?;
        }
        Ok(())
    }

    fn search(&self, regex: &Regex, text: &str, from: usize) -> Encoded<Option<Range<usize>>> {
        match regex.find_from_pos(text, from) {
            Ok(hit) => Ok(hit.map(|hit| hit.range())),
            Err(error) => Err(EncodeError::Pattern { pattern: shortened(&self.source), reason: error.to_string() })?,
        }
    }

    /// Where the last character of the match `hit` begins, if that is white space before a word and no branch before
    /// `\s+` matched it.
    fn space_before_a_word(&self, text: &str, hit: Range<usize>) -> Encoded<Option<(usize, Lone)>> {
        let Some(BeforeAWord { branches, lone }) = &self.before_a_word else { return Ok(None) };
        let matched = &text[hit.clone()];
        let Some(last) = matched.chars().next_back().filter(|last| hit.end < text.len() && last.is_whitespace()) else {
            return Ok(None);
        };
        if !matched.chars().all(char::is_whitespace)
            || self.search(branches, text, hit.start)?.is_some_and(|earlier| earlier.start == hit.start)
        {
            return Ok(None);
        }
        Ok(Some((hit.end - last.len_utf8(), *lone)))
    }
}

fn compile(pattern: &str) -> Result<Regex, fancy_regex::Error> {
    // Oniguruma's `^` and `$` are at line ends too.
    RegexBuilder::new(pattern)
        .oniguruma_mode(true)
        .multi_line(true)
        .backtrack_limit(BACKTRACKS)
        .delegate_size_limit(COMPILED_BYTES)
        .delegate_dfa_size_limit(COMPILED_BYTES)
        .build()
}

/// What may follow `(?`: groups that capture nothing, look-around, and letters of either case.
const GROUPS: [&str; 10] = [":", ">", "=", "!", "<=", "<!", "i:", "i)", "-i:", "-i)"];

/// Letters and digits that may be escaped: classes, properties, characters, and the text's ends.
const ESCAPES: &str = "sSdDwWhHpPnrtfvaexAzZ";

/// `pattern` with Oniguruma's words, where they are others than fancy-regex's: `\w` has six numbers of Latin-1 more, and
/// no zero-width joiners. What tokenizers have no use for (references, conditions, subroutines) is refused: fancy-regex
/// panics on some of it.
fn translate(pattern: &str) -> Result<String, String> {
    let mut translated = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        if let Some(escaped) = rest.strip_prefix('\\').and_then(|rest| rest.chars().next()) {
            taken += escaped.len_utf8();
            match escaped {
                'w' => translated.push_str(r"[[\w²³¹¼½¾]&&[^\x{200C}\x{200D}]]"),
                'W' => translated.push_str(r"[[\W\x{200C}\x{200D}]&&[^²³¹¼½¾]]"),
                _ if escaped.is_ascii_alphanumeric() && !ESCAPES.contains(escaped) => {
                    return Err(format!("has \\{escaped}, expected none but of {ESCAPES}"));
                }
                _ => translated.push_str(&rest[..taken]),
            }
        } else {
            let group = rest.strip_prefix("(?");
            if group.is_some_and(|group| !GROUPS.iter().any(|known| group.starts_with(known))) {
                return Err(format!("has a group (? followed by none of {}", GROUPS.join(" ")));
            }
            if rest.starts_with("[:") {
                return Err("has a POSIX class, expected a Unicode one as \\p{L}".into());
            }
            translated.push(first);
        }
        rest = &rest[taken..];
    }
    Ok(translated)
}

fn shortened(pattern: &str) -> String {
    const SHOWN: usize = 60;
    let more = if pattern.chars().count() > SHOWN { "…" } else { "" };
    pattern.chars().take(SHOWN).chain(more.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::error::Failure;
    use proptest::prelude::*;

    fn matches(pattern: &Pattern, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        pattern
            .find(text, |range| {
                found.push(range);
                Ok(())
            })
            .unwrap();
        found
    }

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
    const LLAMA3: &str = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

    const CASES: u32 = 3000;

    /// What patterns are made of, sound or not.
    const PARTS: [&str; 64] = [
        "a",
        "b",
        "1",
        " ",
        "\n",
        "日",
        "\\",
        "\\s",
        "\\S",
        "\\d",
        "\\w",
        "\\W",
        "\\p{L}",
        "\\P{N}",
        "\\p{",
        "\\h",
        "\\R",
        "\\X",
        "\\K",
        "\\G",
        "\\A",
        "\\z",
        "\\Z",
        "\\1",
        "\\2",
        "\\k<n>",
        "\\g<0>",
        "\\g<1>",
        "\\x{10FFFF}",
        "\\u",
        "(",
        ")",
        "(?:",
        "(?=",
        "(?!",
        "(?<=",
        "(?<!",
        "(?>",
        "(?<n>",
        "(?i)",
        "(?i:",
        "(?-i:",
        "(?#",
        "(?(1)",
        "(?~",
        "(?",
        "[",
        "]",
        "[^",
        "&&",
        "-",
        "|",
        "*",
        "+",
        "?",
        "*+",
        "{2}",
        "{0,}",
        "{,3}",
        "{3,1}",
        "{",
        "}",
        "^",
        "$",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]
        #[test]
        fn the_end_of_white_space_is_that_of_the_look_ahead(
            text in r"[ \t\r\n\u{a0}\u{3000}\u{85}aAé日'st12.,]{0,20}",
            first in prop::sample::select(vec![GPT2, LLAMA3]),
            end in prop::sample::select(vec![r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s", r"|\s+(?!\S)"]),
        ) {
            let pattern = Pattern::new(&format!("{first}{end}")).unwrap();
            prop_assert!(pattern.before_a_word.is_some());
            let whole = compile(&pattern.source).unwrap();
            let expected: Vec<_> = whole.find_iter(text.as_str()).map(|hit| hit.unwrap().range()).collect();
            prop_assert_eq!(matches(&pattern, &text), expected);
        }

        #[test]
        fn no_pattern_panics(
            parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..12),
            text in "[ab1 \\n\\rÀ-ÿ日😀]{0,24}",
        ) {
            if let Ok(pattern) = Pattern::new(&parts.concat()) {
                let mut end = 0;
                let found = pattern.find(&text, |range| {
                    assert!(end <= range.start && text.get(range.clone()).is_some());
                    end = range.end;
                    Ok(())
                });
                assert!(matches!(found, Ok(()) | Err(Failure::Text(EncodeError::Pattern { .. }))), "{found:?}");
            }
        }

        #[test]
        fn empty_matches_are_the_engines(
            text in "[abé]{0,12}",
            pattern in prop::sample::select(vec!["", "a*", "a*b?", "a|b*", "(?=a)", "a{0,2}", "(?=a)|b*", "$"]),
        ) {
            let pattern = Pattern::new(pattern).unwrap();
            let expected: Vec<_> = pattern.regex.find_iter(text.as_str()).map(|hit| hit.unwrap().range()).collect();
            prop_assert_eq!(matches(&pattern, &text), expected);
        }
    }

    #[test]
    fn an_end_within_a_group_is_left_to_the_engine() {
        for pattern in [r"(a|\s+(?!\S)|\s+)", r"(?:a|\s+(?!\S))"] {
            assert!(Pattern::new(pattern).unwrap().before_a_word.is_none(), "{pattern}");
        }
        // What remains would be whole, but the end is escaped or in a class.
        for pattern in [r"a\|\s+(?!\S)|\s+", r"[a|\s+(?!\S)|\s+]"] {
            let pattern = Pattern::new(pattern).unwrap();
            let expected: Vec<_> =
                compile(&pattern.source).unwrap().find_iter("a|  b !S( ").map(|hit| hit.unwrap().range()).collect();
            assert_eq!(matches(&pattern, "a|  b !S( "), expected);
        }
    }

    /// As found in Oniguruma 6.9.10.
    #[test]
    fn words_and_line_ends_are_oniguramas() {
        let find = |pattern: &str, text: &str| matches(&Pattern::new(pattern).unwrap(), text);
        assert_eq!(find(r"\w+", "a²b"), vec![0..4]);
        assert_eq!(find(r"\w+", "a\u{200d}b"), [0..1, 4..5]);
        assert_eq!(find(r"[\w.]+", "²."), vec![0..3]);
        assert_eq!(find(r"\W+", "a\u{200d}½ "), [1..4, 6..7]);
        assert_eq!(find(r"\s+$", "a  \nb "), [1..3, 5..6]);
        assert_eq!(find(r"^a", "a\na"), [0..1, 2..3]);
        assert_eq!(find(r"a{2}+", "aaaaa"), vec![0..4]);
        assert_eq!(find(r".+", "a\nb"), [0..1, 2..3]);
        assert_eq!(find(r"[\r\n]+|a++b", "aab\r\n"), [0..3, 3..5]);
    }

    #[test]
    fn refuses_what_means_something_else_to_oniguruma() {
        for (pattern, says) in [
            (r"\ba", r"\b"),
            (r"[[:alpha:]]", "POSIX"),
            (r"(?m:a.b)", "group"),
            (r"(?s)a", "group"),
            (r"(?(1))", "group"),
            (r"(a)\1", r"\1"),
            (r"(", "cannot be read"),
            (r"a{99999999}{99999999}", "cannot be read"),
            (r"\p{NoSuch}", "cannot be read"),
        ] {
            let error = Pattern::new(pattern).unwrap_err();
            assert!(error.contains(says) && error.contains("its pattern"), "{pattern}: {error}");
        }
        let error = Pattern::new(&"a|".repeat(PATTERN_BYTES)).unwrap_err();
        assert!(error.contains("expected at most") && error.len() < 300, "{error}");
        Pattern::new(&"(".repeat(10_000)).unwrap_err();
        Pattern::new(&format!("{}a{}", "(?:".repeat(4000), ")".repeat(4000))).unwrap_err();
    }

    #[test]
    fn a_search_without_end_is_an_error() {
        let pattern = Pattern::new(r"(?:(?=x)x+)+y").unwrap();
        let error = pattern.find(&"x".repeat(40), |_| Ok(())).unwrap_err();
        assert!(
            matches!(&error, Failure::Text(EncodeError::Pattern { pattern, .. }) if pattern == r"(?:(?=x)x+)+y"),
            "{error:?}"
        );
        // Without look-around no pattern takes longer than the text is long.
        let plain = Pattern::new("(x+x+)+y").unwrap();
        assert!(matches(&plain, &"x".repeat(40)).is_empty());
    }

    #[test]
    fn white_space_has_no_limit() {
        let pattern = Pattern::new(&format!(r"{LLAMA3}|\s+(?!\S)|\s+")).unwrap();
        let text = format!("{}x", " ".repeat(3_000_000));
        assert_eq!(matches(&pattern, &text), [0..2_999_999, 2_999_999..3_000_001]);
    }
}
