//! SentencePiece's table of character replacements: the `precompiled_charsmap` of a normalizer.
//!
//! The table is a trie (a double array, as darts-clone writes it) of units of four bytes, after its length in bytes, and
//! then the texts that it leads to, each terminated by zero (sentencepiece `normalizer.cc`). It is read as in the
//! tokenizers library: a grapheme of up to five bytes is looked up at once, else each character, and the shortest entry
//! that is a prefix of the text counts.

use super::text::Growing;
use crate::error::Result;
use unicode_segmentation::UnicodeSegmentation;

/// The most bytes of a grapheme that is looked up as a whole.
const GRAPHEME_BYTES: usize = 5;

/// The parsed table.
#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    texts: String,
}

impl Charsmap {
    /// Reads a table.
    pub(super) fn read(table: &[u8]) -> Result<Charsmap, String> {
        let wrong = |what: &str| format!("its precompiled_charsmap {what}");
        let (size, rest) = table.split_first_chunk().ok_or_else(|| wrong("has less than 4 bytes"))?;
        let size = u32::from_le_bytes(*size) as usize;
        let Some((units, texts)) = rest.split_at_checked(size).filter(|_| size >= 4 && size.is_multiple_of(4)) else {
            return Err(wrong(&format!("says that its trie has {size} bytes, of {} after its size", rest.len())));
        };
        let texts = std::str::from_utf8(texts).map_err(|_| wrong("has texts that are no UTF-8"))?;
        if !texts.is_empty() && !texts.ends_with('\0') {
            return Err(wrong("has a text without an end"));
        }
        let units = units.as_chunks().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Charsmap { units, texts: texts.to_owned() })
    }

    /// Writes the replacement of `text`.
    pub(super) fn apply(&self, text: &str, out: &mut Growing<'_>) -> Result<()> {
        for grapheme in text.graphemes(true) {
            let whole = Some(grapheme).filter(|grapheme| grapheme.len() <= GRAPHEME_BYTES);
            if let Some(made) = whole.and_then(|grapheme| self.entry(grapheme)) {
                out.push_str(made)?;
                continue;
            }
            for (at, character) in grapheme.char_indices() {
                match self.entry(&grapheme[at..at + character.len_utf8()]) {
                    Some(made) => out.push_str(made)?,
                    None => out.push(character)?,
                }
            }
        }
        Ok(())
    }

    /// The replacement of the shortest entry that is a prefix of `text`.
    fn entry(&self, text: &str) -> Option<&str> {
        let unit = |at: usize| self.units.get(at).copied();
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = offset(unit(0)?);
        for byte in text.bytes().take_while(|byte| *byte != 0) {
            at ^= usize::from(byte);
            let found = unit(at)?;
            if found & (1 << 31 | 0xff) != u32::from(byte) {
                return None;
            }
            at ^= offset(found);
            if found >> 8 & 1 == 1 {
                let made = self.texts.get((unit(at)? & !(1 << 31)) as usize..)?;
                return made.split('\0').next();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::text::Budget;

    /// `a` becomes `bc`: node 0 leads to 1 ^ `a`, whose value is after it.
    fn table() -> Vec<u8> {
        let at = 1 ^ usize::from(b'a');
        let mut units = vec![0u32; 256];
        (units[0], units[at], units[at ^ 2]) = (1 << 10, 2 << 10 | 1 << 8 | u32::from(b'a'), 1 << 31 | 2);
        let units: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        [&1024u32.to_le_bytes()[..], &units, b"x\0bc\0"].concat()
    }

    fn applied(table: &[u8], text: &str) -> String {
        let budget = Budget::new(text.len());
        let mut out = budget.text("a test");
        Charsmap::read(table).unwrap().apply(text, &mut out).unwrap();
        out.finish()
    }

    #[test]
    fn an_entry_is_written_and_the_rest_stays() {
        assert_eq!(applied(&table(), "aba\u{301}x\0a"), "bcbbcx\0bc");
    }

    #[test]
    fn no_table_leads_out_of_itself() {
        assert!(Charsmap::read(b"abc").is_err());
        assert!(Charsmap::read(&[8, 0, 0, 0, 1, 2, 3, 4]).is_err());
        assert!(Charsmap::read(&[4, 0, 0, 0, 1, 2, 3, 4, 0xff]).is_err());
        assert!(Charsmap::read(&[4, 0, 0, 0, 1, 2, 3, 4, b'a']).is_err());
        let table = table();
        for at in 4..table.len() {
            for bit in 0..8 {
                let mut damaged = table.clone();
                damaged[at] ^= 1 << bit;
                if Charsmap::read(&damaged).is_ok() {
                    applied(&damaged, "abca");
                }
            }
        }
    }
}
