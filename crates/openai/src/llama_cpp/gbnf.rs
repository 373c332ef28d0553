//! llama.cpp's grammars (GBNF) -> Lark grammars of the same texts.
//!
//! A text becomes the sequence of its characters: what is between two of them is not a token of a lexer, which would take the longest
//! one where the grammar lets a shorter one go on.

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The deepest groups: a grammar is read by recursion.
const DEEPEST: usize = 64;

/// The longest grammar, as that of one in Lark.
const LONGEST: usize = 1 << 20;

/// The most rules: those of one in Lark, without its `start`.
const RULES: usize = 999;

/// The Lark grammar of `gbnf`.
///
/// # Errors
/// What was found and expected, with its line.
pub(crate) fn lark(gbnf: &str) -> Result<String, String> {
    if gbnf.len() > LONGEST {
        return Err(format!("expected {LONGEST} bytes at most"));
    }
    let mut reader = Reader { rest: gbnf, all: gbnf, names: HashMap::new(), used: HashMap::new() };
    let (mut rules, mut known, mut defined) = (String::new(), HashSet::new(), Vec::new());
    reader.skip(true);
    while !reader.rest.is_empty() {
        let at = reader.at();
        let name = reader.name().ok_or_else(|| reader.expected("the name of a rule"))?;
        reader.skip(false);
        if !reader.take("::=") {
            return Err(reader.expected("::="));
        }
        reader.skip(true);
        let body = reader.alternatives(0)?;
        let rule = reader.rule(name);
        if !known.insert(rule) {
            return Err(format!("line {}: the rule {name} is there twice", reader.line(at)));
        }
        if known.len() > RULES {
            return Err(format!("line {}: expected {RULES} rules at most", reader.line(at)));
        }
        let _ = writeln!(rules, "r{rule}: {}", body.lark); // writing to a text cannot fail
        defined.push((rule, name, at, body.needs));
        reader.skip(true);
    }
    let Some(root) = reader.names.get("root").filter(|root| known.contains(root)) else {
        return Err("there is no rule root".into());
    };
    let missing = reader.used.iter().filter(|(rule, _)| !known.contains(rule)).map(|(_, used)| *used);
    if let Some((name, at)) = missing.min_by_key(|(_, at)| *at) {
        return Err(format!("line {}: there is no rule {name}", reader.line(at)));
    }
    if let Some((name, at)) = endless(&defined, *root, reader.names.len()) {
        return Err(format!("line {}: nothing matches the rule {name}, as it always needs itself", reader.line(at)));
    }
    Ok(format!("start: r{root}\n{rules}"))
}

/// What a part of a rule is in Lark, and the rules without which nothing matches it.
struct Part {
    lark: String,
    needs: Needs,
}

enum Needs {
    All(Vec<Needs>),
    OneOf(Vec<Needs>),
    Rule(usize),
}

impl Needs {
    const NOTHING: Needs = Needs::All(Vec::new());

    fn are_nothing(&self) -> bool {
        matches!(self, Needs::All(all) if all.is_empty())
    }

    /// Whether texts match it, where there are texts for these rules.
    fn are_met(&self, matched: &[bool]) -> bool {
        match self {
            Needs::All(all) => all.iter().all(|needs| needs.are_met(matched)),
            Needs::OneOf(any) => any.iter().any(|needs| needs.are_met(matched)),
            Needs::Rule(rule) => matched[*rule],
        }
    }

    /// A rule of them that no text matches.
    fn unmet(&self, matched: &[bool]) -> Option<usize> {
        match self {
            Needs::All(all) | Needs::OneOf(all) => all.iter().find_map(|needs| needs.unmet(matched)),
            Needs::Rule(rule) => Some(*rule).filter(|rule| !matched[*rule]),
        }
    }
}

/// A rule that needs itself, so that no text matches `root`, and the byte where it begins; `None` where texts do.
fn endless<'g>(defined: &[(usize, &'g str, usize, Needs)], root: usize, rules: usize) -> Option<(&'g str, usize)> {
    let (mut matched, mut goes_on) = (vec![false; rules], true);
    while goes_on && !matched[root] {
        goes_on = false;
        for (rule, _, _, needs) in defined {
            if !matched[*rule] && needs.are_met(&matched) {
                (matched[*rule], goes_on) = (true, true);
            }
        }
    }
    let (mut rule, mut passed) = (Some(root).filter(|root| !matched[*root]), vec![false; rules]);
    while let Some(at) = rule {
        let (_, name, byte, needs) = defined.iter().find(|(rule, ..)| *rule == at)?;
        if std::mem::replace(&mut passed[at], true) {
            return Some((name, *byte));
        }
        rule = needs.unmet(&matched);
    }
    None
}

struct Reader<'g> {
    rest: &'g str,
    all: &'g str,
    /// The numbers of the rules by their names.
    names: HashMap<&'g str, usize>,
    /// The rules that others are made of: their names, and where each is met first.
    used: HashMap<usize, (&'g str, usize)>,
}

impl<'g> Reader<'g> {
    /// The byte that is read next.
    fn at(&self) -> usize {
        self.all.len() - self.rest.len()
    }

    /// The line of a byte.
    fn line(&self, at: usize) -> usize {
        1 + self.all[..at].matches('\n').count()
    }

    fn expected(&self, what: &str) -> String {
        let found: String = self.rest.chars().take(20).collect();
        format!("line {}: expected {what}, found {found:?}", self.line(self.at()))
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Skips blanks and comments, and line ends where the rule may go on.
    fn skip(&mut self, lines: bool) {
        loop {
            self.rest = self.rest.trim_start_matches(|c| matches!(c, ' ' | '\t') || lines && matches!(c, '\n' | '\r'));
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
        }
    }

    fn name(&mut self) -> Option<&'g str> {
        let is_end = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let (name, rest) = self.rest.split_at(self.rest.find(is_end).unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(name).filter(|name| !name.is_empty())
    }

    /// The number of a rule.
    fn rule(&mut self, name: &'g str) -> usize {
        let next = self.names.len();
        *self.names.entry(name).or_insert(next)
    }

    /// Sequences with `|` between them, to the end of a group or a rule.
    fn alternatives(&mut self, depth: usize) -> Result<Part, String> {
        if depth > DEEPEST {
            return Err(self.expected(&format!("groups that are at most {DEEPEST} deep")));
        }
        let Part { mut lark, needs } = self.sequence(depth)?;
        let mut any = vec![needs];
        loop {
            let before = self.rest;
            self.skip(true);
            if !self.take("|") {
                // A line end ends the rule, unless another alternative follows.
                self.rest = if depth == 0 { before } else { self.rest };
                let needs = if any.iter().any(Needs::are_nothing) { Needs::NOTHING } else { Needs::OneOf(any) };
                return Ok(Part { lark, needs });
            }
            self.skip(true);
            let Part { lark: next, needs } = self.sequence(depth)?;
            lark += " | ";
            lark += &next;
            any.push(needs);
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Part, String> {
        let (mut all, mut all_needs) = (String::new(), Vec::new());
        let made = |lark: String, needs| Part {
            lark: if lark.is_empty() { "\"\"".into() } else { lark },
            needs: Needs::All(needs),
        };
        loop {
            self.skip(depth > 0);
            let mut needs = Needs::NOTHING;
            let mut item = match self.rest.chars().next() {
                Some('"') => self.text()?,
                Some('[') => self.class()?,
                Some('(') => {
                    self.take("(");
                    self.skip(true);
                    let group = self.alternatives(depth + 1)?;
                    if !self.take(")") {
                        return Err(self.expected("| or )"));
                    }
                    needs = group.needs;
                    format!("({})", group.lark)
                }
                Some('.') => {
                    self.take(".");
                    r"/[\x{0}-\x{10ffff}]/".into()
                }
                Some(c) if c.is_ascii_alphanumeric() => {
                    let (before, at) = (self.rest, self.at());
                    let name = self.name().unwrap_or_default();
                    let after = self.rest;
                    self.skip(false);
                    if self.rest.starts_with("::=") {
                        self.rest = before; // the next rule, in a sequence that ended with its line
                        return Ok(made(all, all_needs));
                    }
                    self.rest = after;
                    let rule = self.rule(name);
                    needs = Needs::Rule(rule);
                    self.used.entry(rule).or_insert((name, at));
                    format!("r{rule}")
                }
                _ => return Ok(made(all, all_needs)),
            };
            self.skip(false);
            if let Some(times) = self.times()? {
                item = format!("({item}){times}");
                if times == "*" || times == "?" || times.starts_with("{0,") {
                    needs = Needs::NOTHING;
                }
                self.skip(false);
                if self.rest.starts_with(['*', '+', '?', '{']) {
                    return Err(self.expected("a group around what is repeated twice"));
                }
            }
            if !all.is_empty() {
                all.push(' ');
            }
            all += &item;
            if !needs.are_nothing() {
                all_needs.push(needs);
            }
        }
    }

    /// How often what was read may come.
    fn times(&mut self) -> Result<Option<String>, String> {
        for times in ["*", "+", "?"] {
            if self.take(times) {
                return Ok(Some(times.into()));
            }
        }
        let before = self.rest;
        if !self.take("{") {
            return Ok(None);
        }
        let (times, rest) = self.rest.split_once('}').ok_or_else(|| self.expected("}"))?;
        let count = |text: &str| text.trim().parse::<u32>().ok();
        let times = match times.split_once(',') {
            None => count(times).map(|times| format!("{{{times},{times}}}")),
            Some((least, most)) if most.trim().is_empty() => count(least).map(|least| format!("{{{least},}}")),
            Some((least, most)) => {
                let bounds = count(least).zip(count(most)).filter(|(least, most)| least <= most);
                bounds.map(|(least, most)| format!("{{{least},{most}}}"))
            }
        };
        if times.is_none() {
            self.rest = before;
            return Err(self.expected("{5}, {5,} or {5,7}"));
        }
        self.rest = rest;
        Ok(times)
    }

    /// A text in quotes: its characters one by one.
    fn text(&mut self) -> Result<String, String> {
        self.take("\"");
        let (mut all, mut count) = (String::new(), 0);
        while !self.take("\"") {
            let c = self.character()?;
            all += if count == 0 { "" } else { " " };
            // Colons count as rules.
            all += &if c == ':' { r"/[\x{3a}-\x{3a}]/".into() } else { Value::from(String::from(c)).to_string() };
            count += 1;
        }
        Ok(match count {
            0 => "\"\"".into(),
            1 => all,
            _ => format!("({all})"),
        })
    }

    /// A class of characters: a regular expression of one.
    fn class(&mut self) -> Result<String, String> {
        self.take("[");
        let mut all = String::from(if self.take("^") { "/[^" } else { "/[" });
        let begun = all.len();
        while !self.take("]") {
            let first = self.character()?;
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let last = if is_range && self.take("-") { self.character()? } else { first };
            if last < first {
                return Err(self.expected("a range of characters in their order"));
            }
            let _ = write!(all, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(first), u32::from(last));
        }
        if all.len() == begun {
            return Err(self.expected("a class with a character before it"));
        }
        Ok(all + "]/")
    }

    fn character(&mut self) -> Result<char, String> {
        let mut rest = self.rest.chars();
        let c = rest.next().filter(|c| !matches!(c, '\n' | '\r')).ok_or_else(|| self.expected("a character"))?;
        if c != '\\' {
            self.rest = rest.as_str();
            return Ok(c);
        }
        let escaped = rest.next();
        let digits = match escaped {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => 0,
        };
        let made = match escaped {
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some('n') => Some('\n'),
            Some('\\' | '"' | '[' | ']' | '-' | '^' | '/') => escaped,
            _ if digits > 0 => {
                let code = rest.as_str().get(..digits).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
                code.and_then(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?))
            }
            _ => None,
        };
        let made = made.ok_or_else(|| self.expected("a character after \\"))?;
        self.rest = &rest.as_str()[digits..];
        Ok(made)
    }
}
