//! PTX text -> [`Program`]s (PTX ISA, chapters 4 and 5).

use super::decode::Decoder;
use super::error::Error;
use super::lex::tokens;
use super::program::Program;
use super::syntax::{Instruction, Operand, Register, Token, Variable, Width};
use std::collections::HashMap;

/// Parses a module: its target, `10 * major + minor`, and its kernels.
pub(super) fn parse(text: &str) -> Result<(u32, Vec<Program>), Error> {
    let mut parser = Parser { text, tokens: tokens(text), at: 0, depth: 0, scopes: Vec::new() };
    let (mut target, mut kernels, mut dynamic_shared) = (0, Vec::new(), Vec::new());
    while let Some(word) = parser.next_if_any() {
        match word {
            ".version" | ".address_size" => parser.at += 1,
            ".target" => target = parser.target()?,
            ".visible" | ".extern" | ".weak" => {}
            // These are constants of the source that no instruction reads; one that did would name an undeclared variable.
            ".global" => while parser.word()? != ";" {},
            ".shared" => {
                let variable = parser.variable()?;
                parser.expect(";")?;
                if variable.bytes > 0 {
                    return Err(parser.unsupported());
                }
                dynamic_shared.push(variable.name);
            }
            ".entry" => kernels.push(parser.kernel(target, &dynamic_shared)?),
            ".file" => parser.skip_line(),
            _ => return Err(parser.unsupported()),
        }
    }
    Ok((target, kernels))
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    /// How many operands contain the next one.
    depth: usize,
    /// The registers that each open `{ }` declares, the outermost first.
    scopes: Vec<HashMap<String, Register>>,
}

/// Bytes of a variable: more than a block or a launch has.
const MOST_BYTES: u64 = 1 << 20;

const MOST_REGISTERS: u64 = 1 << 20;

/// The deepest nesting of operands: an address in a pair has three levels.
const MOST_DEPTH: usize = 8;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        Some(&self.text[self.tokens.get(self.at)?.bytes.clone()])
    }

    fn next_if_any(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// The line of the last token that was taken.
    fn line(&self) -> usize {
        self.tokens.get(self.at.saturating_sub(1)).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    fn word(&mut self) -> Result<&'a str, Error> {
        self.next_if_any().ok_or_else(|| Error::Syntax { line: self.line(), expected: "more", found: "the end".into() })
    }

    fn skip_line(&mut self) {
        let line = self.line();
        while self.tokens.get(self.at).is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    fn taken(&mut self, word: &str) -> bool {
        let taken = self.peek() == Some(word);
        self.at += usize::from(taken);
        taken
    }

    fn expect(&mut self, word: &'static str) -> Result<(), Error> {
        if self.word()? == word { Ok(()) } else { Err(self.wrong(word)) }
    }

    /// The error that the last token is not what was expected.
    fn wrong(&self, expected: &'static str) -> Error {
        let found =
            self.tokens.get(self.at.saturating_sub(1)).map_or("the end", |token| &self.text[token.bytes.clone()]);
        Error::Syntax { line: self.line(), expected, found: found.into() }
    }

    fn unsupported(&self) -> Error {
        let line = self.line();
        let text = self.text.lines().nth(line - 1).unwrap_or_default().trim().into();
        Error::Unsupported { line, text }
    }

    fn number(&mut self) -> Result<u64, Error> {
        let word = self.word()?;
        integer(word).ok_or_else(|| self.wrong("a number"))
    }

    /// The number of `sm_NN` and `sm_NNa`.
    fn target(&mut self) -> Result<u32, Error> {
        let digits = self.word()?.trim_start_matches("sm_").trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
        digits.parse().map_err(|_| self.wrong("sm_ and a number"))
    }

    /// `.align 8 .b8 name[200]`, after the state space.
    fn variable(&mut self) -> Result<Variable<'a>, Error> {
        let align = if self.taken(".align") { Some(self.number()?) } else { None };
        let kind = self.word()?.trim_start_matches('.');
        let element = match (kind, Width::of_type(kind)) {
            ("b8" | "u8" | "s8", _) => 1,
            (_, Some(Width::B16)) => 2,
            (_, Some(Width::B32)) => 4,
            (_, Some(Width::B64)) => 8,
            _ => return Err(self.wrong("a type")),
        };
        let name = self.word()?;
        let mut count = 1;
        if self.taken("[") {
            count = if self.peek() == Some("]") { 0 } else { self.number()? };
            self.expect("]")?;
        }
        let bytes =
            count.checked_mul(element).filter(|bytes| *bytes <= MOST_BYTES).ok_or_else(|| self.unsupported())?;
        let align = align.unwrap_or(element);
        if !align.is_power_of_two() || align > MOST_BYTES {
            return Err(self.wrong("a power of two"));
        }
        Ok(Variable { name, align, bytes })
    }

    fn kernel(&mut self, target: u32, dynamic_shared: &[&'a str]) -> Result<Program, Error> {
        let mut decoder = Decoder::new(self.word()?, target, dynamic_shared);
        if self.taken("(") {
            while !self.taken(")") {
                self.taken(",");
                self.expect(".param")?;
                decoder.parameter(&self.variable()?);
            }
        }
        loop {
            match self.word()? {
                "{" => break,
                ".maxntid" => {
                    let mut threads = [1; 3];
                    for place in &mut threads {
                        *place = u32::try_from(self.number()?).map_err(|_| self.wrong("threads"))?;
                        if !self.taken(",") {
                            break;
                        }
                    }
                    decoder.program.max_threads = Some(threads);
                }
                // These limit how many registers and blocks a processor has room for, and change no result.
                ".minnctapersm" | ".maxnreg" => self.at += 1,
                _ => return Err(self.unsupported()),
            }
        }
        self.scopes.push(HashMap::new());
        while !self.scopes.is_empty() {
            self.statement(&mut decoder)?;
        }
        decoder.finish()
    }

    fn statement(&mut self, decoder: &mut Decoder<'a>) -> Result<(), Error> {
        let first = self.at;
        let word = self.word()?;
        match word {
            "{" => self.scopes.push(HashMap::new()),
            "}" => drop(self.scopes.pop()),
            ".reg" => self.registers(decoder)?,
            // The shared memory that a launch adds starts at its end.
            ".shared" if !decoder.uses_dynamic_shared => {
                decoder.shared(&self.variable()?);
                self.expect(";")?;
            }
            ".pragma" => while self.word()? != ";" {},
            ".loc" => self.skip_line(),
            _ if word.starts_with('.') => return Err(self.unsupported()),
            _ if self.taken(":") => decoder.label(word),
            _ => {
                let line = self.line();
                let guard = if word == "@" { Some(self.guard()?) } else { None };
                let name = if guard.is_some() { self.word()? } else { word };
                let mut operands = Vec::new();
                while !self.taken(";") {
                    if !operands.is_empty() {
                        self.expect(",")?;
                    }
                    operands.push(self.operand()?);
                }
                let text = &self.text[self.tokens[first].bytes.start..self.tokens[self.at - 1].bytes.start];
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                decoder.instruction(Instruction { line, text, guard, name, operands })?;
            }
        }
        Ok(())
    }

    /// `.b32 %a, %r<40>;`, after `.reg`: one register, and 40 whose names end with their numbers.
    fn registers(&mut self, decoder: &mut Decoder<'a>) -> Result<(), Error> {
        let kind = self.word()?;
        let width = Width::of_type(kind.trim_start_matches('.')).ok_or_else(|| self.unsupported())?;
        loop {
            let mut names = vec![self.word()?.to_owned()];
            if self.taken("<") {
                let count = self.number()?;
                if count >= MOST_REGISTERS {
                    return Err(self.unsupported());
                }
                names = (0..count).map(|number| format!("{}{number}", names[0])).collect();
                self.expect(">")?;
            }
            let registers = names.into_iter().map(|name| (name, decoder.register(width)));
            if let Some(scope) = self.scopes.last_mut() {
                scope.extend(registers);
            }
            if self.taken(";") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    fn guard(&mut self) -> Result<(Register, bool), Error> {
        let negated = self.taken("!");
        let word = self.word()?;
        let register = self.register(word).filter(|register| register.width == Width::Predicate);
        let register = register.ok_or_else(|| self.wrong("a predicate"))?;
        Ok((register, negated))
    }

    /// The register of this name in the innermost scope that has one.
    fn register(&self, name: &str) -> Option<Register> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    fn operand(&mut self) -> Result<Operand<'a>, Error> {
        self.depth += 1;
        let operand = if self.depth > MOST_DEPTH { Err(self.wrong("an operand")) } else { self.operand_within() };
        self.depth -= 1;
        operand
    }

    fn operand_within(&mut self) -> Result<Operand<'a>, Error> {
        let word = self.word()?;
        let operand = match word {
            "{" => {
                let mut parts = vec![self.operand()?];
                while self.taken(",") {
                    parts.push(self.operand()?);
                }
                self.expect("}")?;
                Operand::Vector(parts)
            }
            "[" => {
                let base = self.operand()?;
                let mut offset = 0;
                if self.taken("+") {
                    let negative = self.taken("-");
                    offset = self.number()? as i64;
                    offset = if negative { offset.wrapping_neg() } else { offset };
                }
                self.expect("]")?;
                Operand::Address(Box::new(base), offset)
            }
            "-" => Operand::Integer((self.number()? as i64).wrapping_neg()),
            "_" => Operand::Nothing,
            _ if let Some(register) = self.register(word) => Operand::Register(register),
            _ if word.starts_with('%') => Operand::Special(word),
            _ if word.starts_with(|sign: char| sign.is_ascii_digit()) => {
                let bits = |start: &str| u64::from_str_radix(word.get(start.len()..)?, 16).ok();
                match word.get(..2) {
                    Some("0f" | "0F") => bits("0f").and_then(|bits| u32::try_from(bits).ok()).map(Operand::Single),
                    Some("0d" | "0D") => bits("0d").map(Operand::Double),
                    _ => integer(word).map(|value| Operand::Integer(value as i64)),
                }
                .ok_or_else(|| self.wrong("a number"))?
            }
            _ if word.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_' || sign == '$') => {
                Operand::Symbol(word)
            }
            _ => return Err(self.wrong("an operand")),
        };
        if self.taken("|") {
            let other = self.operand()?;
            return Ok(Operand::Pair(Box::new(operand), Box::new(other)));
        }
        Ok(operand)
    }
}

/// A decimal, hexadecimal, octal or binary number; unsigned ones end with `U`.
fn integer(word: &str) -> Option<u64> {
    let word = word.trim_end_matches('U');
    match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => u64::from_str_radix(&word[2..], 16).ok(),
        [b'0', b'b' | b'B', ..] => u64::from_str_radix(&word[2..], 2).ok(),
        [b'0', _, ..] => u64::from_str_radix(&word[1..], 8).ok(),
        _ => word.parse().ok(),
    }
}
