//! Regular expressions of a tokenizer, with the meaning that they have in Oniguruma: the engine of the tokenizers library
//! in Python, and so of transformers.
//!
//! The engine here is a lazy DFA of regex-automata, started at each place of a text, and every step is counted: no pattern
//! takes unlimited time or memory. It has no look-around; the only form that published tokenizers use, at the end of
//! their patterns, is implemented here. Syntax that Oniguruma reads differently is translated or refused.

use super::numbers::Numbers;
use super::text::Budget;
use crate::error::{EncodeError, Result};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::{pool::Pool, syntax};
use regex_automata::{Anchored, Input};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};
use std::fmt;
use std::ops::Range;

/// The most bytes of a pattern. The longest of those that GGUF vocabularies name has 559.
const PATTERN_BYTES: usize = 4 << 10;

/// The most bytes of a compiled pattern; those that GGUF vocabularies name take up to 145 KiB.
const COMPILED_BYTES: usize = 1 << 20;

/// The most bytes of the states that are kept for each thread that encodes.
const CACHE_BYTES: usize = 2 << 20;

/// How often the states are cleared before a search may be given up because it needs new ones for most bytes.
const CLEARS: usize = 16;

/// If a search needs more than one new state for this many bytes, it needs new ones for most of them.
const BYTES_PER_STATE: usize = 10;

/// The ends of patterns that match white space except for its last character before a word.
/// Each has whether one character of white space before a word is a match; else the search goes on after it.
const BEFORE_A_WORD: [(&str, bool); 3] = [(r"|\s+(?!\S)|\s+", true), (r"|\s+(?!\S)|\s", true), (r"|\s+(?!\S)", false)];

/// The end of a pattern that cuts white space by powers of two, but not into its last character before a word.
const BY_POWERS: &str = r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";

/// The most characters that it cuts.
const MOST_CUT: usize = 512;

/// Ling's expression, whose possessive repetitions are followed by what they do not match: greedy ones match the same.
const POSSESSIVE: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

pub(super) struct Pattern {
    source: String,
    automaton: Automaton,
    before_a_word: Option<BeforeAWord>,
    /// Whether the pattern ended with [`BY_POWERS`], which the automaton does not have.
    by_powers: bool,
    /// How it cuts numbers, if it is known for that, and the automaton of a character of a word; the other one is that of digits.
    numbers: Option<(Numbers, Automaton)>,
    /// Whether the pattern can match between two characters.
    pub(super) may_be_empty: bool,
}

/// A pattern that ended with one of [`BEFORE_A_WORD`]: the automaton has `|\s+` in its place.
struct BeforeAWord {
    /// The branches before that end.
    branches: Automaton,
    lone_matches: bool,
}

impl Pattern {
    /// Compiles `source`.
    ///
    /// # Errors
    /// What is wrong with the pattern, or has another meaning in Oniguruma.
    pub(super) fn new(source: &str) -> Result<Pattern, String> {
        let refuse = |reason: String| format!("its pattern {:?} {reason}", shortened(source));
        if source.len() > PATTERN_BYTES {
            return Err(refuse(format!("has {} bytes, expected at most {PATTERN_BYTES}", source.len())));
        }
        if let Some(numbers) = Numbers::of(source) {
            let of = |pattern: &str| translate(pattern).and_then(|pattern| Automaton::new(&pattern)).map_err(refuse);
            let (automaton, numbers) = (of(r"\d+")?, Some((numbers, of(r"\w")?)));
            let source = source.into();
            return Ok(Pattern {
                source,
                automaton,
                before_a_word: None,
                by_powers: false,
                numbers,
                may_be_empty: false,
            });
        }
        let plain = source.replace("?+", "?").replace("++", "+");
        let source = if source == POSSESSIVE { &plain } else { source };
        let end = BEFORE_A_WORD.iter().find_map(|(end, lone)| Some((source.strip_suffix(end)?, *lone)));
        let compile = |pattern: &str| Automaton::new(pattern).map_err(refuse);
        let powers = source.strip_suffix(BY_POWERS);
        let translated = translate(powers.or(end.map(|(rest, _)| rest)).unwrap_or(source)).map_err(refuse)?;
        let may_be_empty = check_repeats(&translated).map_err(refuse)?;
        let (automaton, before_a_word) = match end {
            None => (compile(&translated)?, None),
            Some((_, lone_matches)) => {
                let branches = compile(&translated)?;
                (compile(&format!(r"{translated}|\s+"))?, Some(BeforeAWord { branches, lone_matches }))
            }
        };
        let (source, by_powers) = (source.into(), powers.is_some());
        Ok(Pattern { source, automaton, before_a_word, by_powers, numbers: None, may_be_empty })
    }

    /// Calls `found` with each match in `text`, from left to right, and takes the steps from the `budget`.
    ///
    /// # Errors
    /// `Pattern` if it takes too many steps, and the errors of `found`.
    pub(super) fn find(
        &self,
        text: &str,
        budget: &Budget,
        mut found: impl FnMut(Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let at = |automaton: &Automaton, from| {
            let gave_up = |reason| EncodeError::Pattern { pattern: shortened(&self.source), reason };
            automaton.match_at(text, from, budget).map_err(gave_up)
        };
        if let Some((numbers, word)) = &self.numbers {
            let is_word = |from| Ok(at(word, from)?.is_some());
            return numbers.find(text, |from| Ok(at(&self.automaton, from)?), is_word, found);
        }
        let (mut from, mut last_end) = (0, None);
        while from <= text.len() {
            let start = from;
            from += text[start..].chars().next().map_or(1, char::len_utf8);
            let matched = at(&self.automaton, start)?;
            let matched = matched.or_else(|| if self.by_powers { power_of_two(text, start) } else { None });
            let Some(mut end) = matched else { continue };
            if start == end {
                // As in every engine, there is no empty match at the end of the previous match.
                if last_end == Some(end) {
                    continue;
                }
            } else {
                if let Some(BeforeAWord { branches, lone_matches }) = &self.before_a_word
                    && let Some(space) = last_space(text, start..end)
                    && at(branches, start)?.is_none()
                {
                    match space > start {
                        true => end = space,
                        false if *lone_matches => {}
                        false => continue,
                    }
                }
                from = end;
            }
            last_end = Some(end);
            found(start..end)?;
        }
        Ok(())
    }
}

/// The start of the last character of `blank`, if all of it is white space and a word follows.
fn last_space(text: &str, blank: Range<usize>) -> Option<usize> {
    let (matched, more) = (&text[blank.clone()], blank.end < text.len());
    let last = matched.chars().next_back().filter(|last| more && last.is_whitespace())?;
    matched.chars().all(char::is_whitespace).then(|| blank.end - last.len_utf8())
}

/// The end of the white space from `start` on that [`BY_POWERS`] matches.
fn power_of_two(text: &str, start: usize) -> Option<usize> {
    let blank = || text[start..].char_indices().take_while(|(_, character)| character.is_whitespace());
    let count = blank().take(MOST_CUT + 1).count();
    let after = blank().nth(count.checked_sub(1)?)?;
    let before_a_word = start + after.0 + after.1.len_utf8() < text.len();
    let usable = if before_a_word || count > MOST_CUT { count - 1 } else { count };
    let characters = 1 << usable.max(1).ilog2();
    blank().nth(characters - 1).map(|(index, last)| start + index + last.len_utf8())
}

/// A lazy DFA, and the states that each thread has computed.
struct Automaton {
    dfa: Box<DFA>,
    caches: Pool<Cache, Box<dyn Fn() -> Cache + Send + Sync>>,
}

impl Automaton {
    fn new(pattern: &str) -> Result<Automaton, String> {
        // Oniguruma's `^` and `$` also match at line ends.
        let dfa = DFA::builder()
            .syntax(syntax::Config::new().multi_line(true))
            .thompson(thompson::Config::new().nfa_size_limit(Some(COMPILED_BYTES)).which_captures(WhichCaptures::None))
            .configure(
                DFA::config()
                    .cache_capacity(CACHE_BYTES)
                    .minimum_cache_clear_count(Some(CLEARS))
                    .minimum_bytes_per_state(Some(BYTES_PER_STATE)),
            )
            .build(pattern)
            .map_err(|error| format!("cannot be read: {}", deepest(&error)))?;
        let caches = Pool::new(Box::new({
            let dfa = dfa.clone();
            move || dfa.create_cache()
        }) as Box<_>);
        Ok(Automaton { dfa: Box::new(dfa), caches })
    }

    /// The end of the match at `from`; takes a step from the `budget` for each byte that is read.
    fn match_at(&self, text: &str, from: usize, budget: &Budget) -> Result<Option<usize>, String> {
        let mut cache = self.caches.get();
        let cache = &mut *cache;
        let gave_up = |error: &dyn fmt::Display| error.to_string();
        let input = Input::new(text).range(from..).anchored(Anchored::Yes);
        let mut state = self.dfa.start_state_forward(cache, &input).map_err(|error| gave_up(&error))?;
        let (mut end, mut seen) = (None, from);
        cache.search_start(from);
        for byte in &text.as_bytes()[from..] {
            cache.search_update(seen);
            state = self.dfa.next_state(cache, state, *byte).map_err(|error| gave_up(&error))?;
            // The DFA reports a match one byte late.
            if state.is_match() {
                end = Some(seen);
            } else if state.is_dead() {
                break;
            }
            seen += 1;
        }
        cache.search_finish(seen);
        if !budget.take_steps(seen - from + 1) {
            return Err("it takes too many steps".into());
        }
        if state.is_dead() {
            return Ok(end);
        }
        let last = self.dfa.next_eoi_state(cache, state).map_err(|error| gave_up(&error))?;
        Ok(if last.is_match() { Some(text.len()) } else { end })
    }
}

/// Refuses a repetition of what can be empty: Oniguruma ends it at the first empty match, and others go on. Returns whether the
/// pattern can match an empty text.
fn check_repeats(pattern: &str) -> Result<bool, String> {
    fn check(part: &Hir) -> Result<(), String> {
        match part.kind() {
            HirKind::Repetition(repeated) => {
                if repeated.max != Some(1) && repeated.sub.properties().minimum_len() == Some(0) {
                    return Err("repeats what can be empty".into());
                }
                check(&repeated.sub)
            }
            HirKind::Capture(group) => check(&group.sub),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().try_for_each(check),
            _ => Ok(()),
        }
    }
    let parsed = ParserBuilder::new().multi_line(true).build().parse(pattern);
    let parsed = parsed.map_err(|error| format!("cannot be read: {}", deepest(&error)))?;
    check(&parsed)?;
    Ok(parsed.properties().minimum_len() == Some(0))
}

/// The innermost cause of a library's error.
fn deepest(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), deepest)
}

/// Letters that may be escaped: classes, properties, characters, and the text's ends.
const ESCAPES: &str = "sSdDwWnrtfvaAz";

/// Properties that have other characters in Oniguruma; general categories and scripts are the same.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Letters that Oniguruma also finds in one character when it ignores case (ß, ﬁ, ﬆ).
const LIGATURES: [&str; 5] = ["ss", "ff", "fi", "fl", "st"];

/// `pattern` in the syntax of regex-automata. Words are Oniguruma's: no zero-width joiners, and outside of a class six more
/// numbers of Latin-1.
fn translate(pattern: &str) -> Result<String, String> {
    let mut translated = String::with_capacity(pattern.len());
    let (mut rest, mut classes) = (pattern, 0usize);
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        if let Some(escaped) = rest.strip_prefix('\\').and_then(|rest| rest.chars().next()) {
            taken += escaped.len_utf8();
            let name = rest[taken..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(name, _)| name);
            match (escaped, name) {
                ('w', _) if classes == 0 => translated.push_str(r"[[\w²³¹¼½¾]&&[^\x{200C}\x{200D}]]"),
                ('W', _) if classes == 0 => translated.push_str(r"[[\W\x{200C}\x{200D}]&&[^²³¹¼½¾]]"),
                ('w', _) => translated.push_str(r"[\w&&[^\x{200C}\x{200D}]]"),
                ('W', _) => translated.push_str(r"[\W\x{200C}\x{200D}]"),
                ('p' | 'P' | 'x' | 'u', Some(name)) if "xu".contains(escaped) || is_property(name) => {
                    taken += name.len() + 2;
                    translated.push_str(&rest[..taken]);
                }
                ('u', None) if rest.as_bytes().get(2..6).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit)) => {
                    taken += 4;
                    translated.push_str(&rest[..taken]);
                }
                ('p' | 'P', _) => {
                    return Err(format!(
                        "has \\{escaped} without a general category or a script, as in \\{escaped}{{L}}"
                    ));
                }
                _ if escaped.is_ascii_alphanumeric() && !ESCAPES.contains(escaped) => {
                    return Err(format!(
                        "has \\{escaped}, expected one of {ESCAPES} or braces where a letter is escaped"
                    ));
                }
                _ => translated.push_str(&rest[..taken]),
            }
        } else if classes == 0 && rest.starts_with("(?i:") {
            taken =
                either_case(rest).ok_or("has (?i: with more than letters of ASCII, ', | and [], or with a ligature")?;
            translated.push_str(&rest[..taken]);
        } else {
            let refused: &[&'static str] = match classes {
                0 if rest.starts_with("(?:") => &[],
                0 => &["(?=", "(?!", "(?<", "(?>", "(?", "++", "*+", "?+", "}?", "{,", "^", "[]", "[^]"],
                _ => &["[:", "--", "~~", "[]", "[^]"],
            };
            let refused = refused.iter().find(|refused| rest.starts_with(**refused)).copied();
            let blank = || (classes == 0 && first == '{').then(|| rest.split('}').next()).flatten();
            if let Some(refused) = refused.or_else(|| blank().filter(|count| count.contains(' '))) {
                return Err(format!(
                    "has {refused}, which no known tokenizer has; a pattern may look ahead at its end, as |\\s+(?!\\S)|\\s+"
                ));
            }
            match first {
                '[' => classes += 1,
                ']' => classes = classes.saturating_sub(1),
                _ => {}
            }
            translated.push(first);
        }
        rest = &rest[taken..];
    }
    Ok(translated)
}

/// Whether `name` is that of a general category or a script.
fn is_property(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let letters = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    letters && !name.starts_with("is") && !POSIX.contains(&name.as_str())
}

/// The length in bytes of the group `(?i:...)` that `rest` begins with, if Oniguruma matches the same with it.
fn either_case(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix("(?i:")?.split(')').next()?;
    let plain = inside.bytes().all(|byte| byte.is_ascii_lowercase() || b"'|[]".contains(&byte));
    let whole = inside.matches('[').count() == inside.matches(']').count();
    let ligature = LIGATURES.iter().any(|letters| inside.contains(letters));
    (plain && whole && !ligature && rest.len() > "(?i:".len() + inside.len()).then(|| "(?i:)".len() + inside.len())
}

fn shortened(pattern: &str) -> String {
    const SHOWN: usize = 60;
    let more = if pattern.chars().count() > SHOWN { "…" } else { "" };
    pattern.chars().take(SHOWN).chain(more.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use model_factory_format::tokenizer::pre;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    fn matches(pattern: &Pattern, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        pattern
            .find(text, &Budget::new(text.len()), |range| {
                found.push(range);
                Ok(())
            })
            .unwrap();
        found
    }

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
    const LLAMA3: &str = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

    const CASES: u32 = 3000;

    fn oracle(pattern: &str) -> Option<fancy_regex::Regex> {
        fancy_regex::RegexBuilder::new(pattern).oniguruma_mode(true).multi_line(true).build().ok()
    }

    fn found_by(oracle: &fancy_regex::Regex, text: &str) -> Option<Vec<Range<usize>>> {
        oracle.find_iter(text).map(|hit| hit.ok().map(|hit| hit.range())).collect()
    }

    /// Patterns of tokenizers with each end that leaves white space to the next word, and their oracles.
    static ENDS: LazyLock<Vec<(Pattern, fancy_regex::Regex)>> = LazyLock::new(|| {
        let ends = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s", r"|\s+(?!\S)"];
        let patterns = [GPT2, LLAMA3].into_iter().flat_map(|first| ends.map(|end| format!("{first}{end}")));
        patterns.map(|source| (Pattern::new(&source).unwrap(), oracle(&source).unwrap())).collect()
    });

    /// Parts for patterns, valid or not.
    const PARTS: [&str; 60] = [
        "a",
        "b",
        "1",
        " ",
        "\n",
        "日",
        "\\",
        r"\s",
        r"\S",
        r"\d",
        r"\w",
        r"\W",
        r"\p{L}",
        r"\P{N}",
        r"\p{",
        r"\pL",
        r"\h",
        r"\A",
        r"\z",
        r"\Z",
        r"\1",
        r"\x{41}",
        "(",
        ")",
        "(?:",
        "(?=",
        "(?!",
        "(?<=",
        "(?>",
        "(?i)",
        "(?i:",
        "(?i:'s|[ab])",
        "(?",
        "[",
        "]",
        "[^",
        "[ab]",
        "[^a]",
        "[a-c]",
        r"[\s\d]",
        "&&",
        "-",
        "|",
        "|",
        "*",
        "+",
        "?",
        "*?",
        "+?",
        "*+",
        "{2}",
        "{1,3}",
        "{0,}",
        "{,3}",
        "{",
        "}",
        "^",
        "$",
        ".",
        r"\s+(?!\S)",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]
        #[test]
        fn the_end_of_white_space_is_that_of_the_look_ahead(
            text in r"[ \t\r\n\u{a0}\u{3000}\u{85}aAé日'st12.,]{0,20}",
            end in 0..6_usize,
        ) {
            let (pattern, oracle) = &ENDS[end];
            prop_assert!(pattern.before_a_word.is_some());
            prop_assert_eq!(matches(pattern, &text), found_by(oracle, &text).unwrap());
        }

        /// The oracle is a backtracking engine that follows Oniguruma.
        #[test]
        fn patterns_match_what_the_oracle_does(
            parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..8),
            text in "[abA1² \n\rÀ-ÿ日😀\u{200d}]{0,24}",
        ) {
            let source = parts.concat();
            if let Ok(pattern) = Pattern::new(&source) {
                let found = matches(&pattern, &text);
                // Words differ: see the test below.
                let expected = oracle(&source).and_then(|oracle| found_by(&oracle, &text));
                if let Some(expected) = expected.filter(|_| !source.contains(['w', 'W'])) {
                    prop_assert_eq!(found, expected, "{}", source);
                }
            }
        }
    }

    #[test]
    fn an_end_within_something_is_refused() {
        for pattern in [r"(a|\s+(?!\S)|\s+)", r"a\|\s+(?!\S)|\s+", r"[a|\s+(?!\S)|\s+", r"(a|\s+(?!\S)|\s+"] {
            Pattern::new(pattern).err().unwrap();
        }
    }

    /// The expected matches are from Oniguruma 6.9.10, in the tokenizers package 0.23.3 for Python.
    #[test]
    fn words_and_line_ends_are_those_of_oniguruma() {
        let find = |pattern: &str, text: &str| matches(&Pattern::new(pattern).unwrap(), text);
        assert_eq!(find(r"\w+", "a²b"), vec![0..4]);
        assert_eq!(find(r"[\u0E00-\u0e7F]+", "aไทยb"), vec![1..10]);
        assert_eq!(find(r"\w+", "a\u{200d}b"), [0..1, 4..5]);
        assert_eq!(find(r"[\w]+", "a²"), vec![0..1]);
        assert_eq!(find(r"[\w.]+", "²."), vec![2..3]);
        assert_eq!(find(r"[^\w]+", "a²\u{200d}"), vec![1..6]);
        assert_eq!(find(r"[\W]+", "a²\u{200d}"), vec![1..6]);
        assert_eq!(find(r"[^\W]+", "a²\u{200d}"), vec![0..1]);
        assert_eq!(find(r"\W+", "a\u{200d}½ "), [1..4, 6..7]);
        assert_eq!(find(r"\s+$", "a  \nb "), [1..3, 5..6]);
        assert_eq!(find(r"a{2}+", "aaaaa"), vec![0..4]);
        assert_eq!(find(r".+", "a\nb"), [0..1, 2..3]);
        assert_eq!(find(r"(?i:'ll|s)", "'LLſ"), [0..3, 3..5]);
        assert_eq!(find(r"\p{Lu}?\p{Ll}+", "aBcD"), [0..1, 1..3]);
    }

    #[test]
    fn refuses_what_means_something_else_to_oniguruma() {
        for (pattern, says) in [
            (r"\ba", r"\b"),
            (r"a\Z", r"\Z"),
            (r"\pL", r"\p"),
            (r"\p{Word}", r"\p"),
            (r"\p{sc=Han}", r"\p"),
            (r"[[:alpha:]]", "[:"),
            (r"[+--]", "--"),
            (r"a++", "++"),
            (r"a{2}?", "}?"),
            (r"a{,}", "{,"),
            (r"a(?i)b", "(?"),
            (r"\n^", "^"),
            (r"[]\w]", "[]"),
            (r"a{ 2}", "{ 2"),
            (r"\xff", r"\x"),
            (r"(?:a?|b)+", "can be empty"),
            (r"(?i:[a)]b)", "(?i:"),
            (r"(?i:ss)", "ligature"),
            (r"(?i:\p{Lu})", "(?i:"),
            (r"(?m:a.b)", "(?"),
            (r"(?<=a)b", "(?<"),
            (r"(?=a)a|\s+(?!\S)", "(?="),
            (r"(a)\1", r"\1"),
            (r"(", "cannot be read"),
            (r"a{99999999}{99999999}", "cannot be read"),
            (r"\p{NoSuch}", "cannot be read"),
            (r"(?:(?:(?:[\p{L}\p{N}]{9}){9}){9}){9}", "cannot be read"),
        ] {
            let error = Pattern::new(pattern).err().unwrap();
            assert!(error.contains(says) && error.contains("its pattern"), "{pattern}: {error}");
        }
        let error = Pattern::new(&"a|".repeat(PATTERN_BYTES)).err().unwrap();
        assert!(error.contains("expected at most") && error.len() < 300, "{error}");
        Pattern::new(&"(".repeat(4000)).err().unwrap();
        Pattern::new(&format!("{}a{}", "(?:".repeat(1000), ")".repeat(1000))).err().unwrap();
    }

    #[test]
    fn a_search_that_grows_with_the_square_of_the_text_is_an_error() {
        let pattern = Pattern::new("a[^b]*b|a").unwrap();
        let error = pattern.find(&"a".repeat(100_000), &Budget::new(100_000), |_| Ok(())).unwrap_err();
        assert!(matches!(&error, Error::Encode(EncodeError::Pattern { .. })), "{error}");
        assert_eq!(matches(&pattern, &"a".repeat(1000)).len(), 1000);
    }

    #[test]
    fn published_patterns_stay_below_the_bounds() {
        let patterns = || pre::PRE_TOKENIZERS.iter().flat_map(|pre| pre.patterns);
        let bytes = |source: &&str| Pattern::new(source).unwrap().automaton.dfa.get_nfa().memory_usage();
        let (longest, largest) = (patterns().map(|source| source.len()).max(), patterns().map(bytes).max());
        println!("{longest:?} bytes, {largest:?} compiled");
        assert!(longest < Some(PATTERN_BYTES / 2) && largest < Some(COMPILED_BYTES / 2), "{longest:?} {largest:?}");
    }

    #[test]
    fn white_space_has_no_limit() {
        let pattern = Pattern::new(&format!(r"{LLAMA3}|\s+(?!\S)|\s+")).unwrap();
        let text = format!("{}x", " ".repeat(3_000_000));
        assert_eq!(matches(&pattern, &text), [0..2_999_999, 2_999_999..3_000_001]);
    }
}
