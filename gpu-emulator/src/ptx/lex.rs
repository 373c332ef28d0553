//! PTX text -> words and signs, without comments.

use super::syntax::Token;

/// Letters and digits, and the other signs of names, numbers and opcodes, form one token; every other sign is a token.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            byte if byte.is_ascii_whitespace() || byte == 0 => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => at = end_of(bytes, at, |rest| rest.starts_with(b"\n")),
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = end_of(bytes, at, |rest| rest.starts_with(b"*/")) + 2;
                line += newlines(bytes, start, at);
            }
            b'"' => {
                at = end_of(bytes, at + 1, |rest| rest.starts_with(b"\"")) + 1;
                found.push(Token { bytes: start..at.min(bytes.len()), line });
                line += newlines(bytes, start, at);
            }
            byte if word(byte) => {
                // `L1::no_allocate` is one modifier.
                while at < bytes.len() && (word(bytes[at]) || bytes[at..].starts_with(b"::")) {
                    at += if word(bytes[at]) { 1 } else { 2 };
                }
                found.push(Token { bytes: start..at, line });
            }
            _ => {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                found.push(Token { bytes: start..at, line });
            }
        }
    }
    found
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// The first place from `at` on where `ends` holds, or the end of the text.
fn end_of(bytes: &[u8], at: usize, ends: impl Fn(&[u8]) -> bool) -> usize {
    (at..bytes.len()).find(|at| ends(&bytes[*at..])).unwrap_or(bytes.len())
}

fn newlines(bytes: &[u8], from: usize, to: usize) -> usize {
    bytes[from..to.min(bytes.len())].iter().filter(|byte| **byte == b'\n').count()
}
