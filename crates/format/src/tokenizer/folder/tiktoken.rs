//! Vocabularies in tiktoken's form: on each line the bytes of a token in base64, and its rank, which is its id.
//!
//! Two adjacent tokens make any token of their bytes, that of the lowest rank first. How a text is split before that, and which
//! special tokens follow on the ranks, only the code next to the file says: known are the classes of these modules.

use super::{WHOLE_FILE, class};
use crate::error::{Error, FormatErrorKind, Result};
use crate::header::Fields;
use crate::header::config::ConfigFiles;
use crate::limits;
use crate::source::content;
use crate::tokenizer::added::{AddedToken, DECODER, added_tokens};
use crate::tokenizer::files::{Entries, Model};
use crate::tokenizer::steps::{Decoder, Normalizer, PreTokenizer, byte_character};
use crate::tokenizer::{TokenizerFiles, TokenizerKind, pre};
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

/// A class of tokenizers whose code is known.
struct Class {
    /// The module and the class in `auto_map`.
    code: &'static str,
    /// Whether `tokenizer_class` alone names it: no other code has a class of this name.
    by_name: bool,
    /// The pre-tokenizer that splits like it.
    pre: &'static str,
    /// The special tokens after the ranks that `added_tokens_decoder` does not name.
    special: fn(u32, usize) -> Option<String>,
}

const CLASSES: [Class; 3] = [
    Class { code: "tokenization_kimi.TikTokenTokenizer", by_name: false, pre: "kimi-k2", special: reserved },
    Class { code: "tokenization_moonshot.TikTokenTokenizer", by_name: false, pre: "kimi-k2", special: reserved },
    Class { code: "tokenization_qwen.QWenTokenizer", by_name: true, pre: "qwen2", special: of_qwen },
];

/// Kimi's tokens: as many as its models have embeddings. Its code names two more.
fn reserved(id: u32, index: usize) -> Option<String> {
    (index < 256).then(|| format!("<|reserved_token_{id}|>"))
}

/// Qwen's tokens.
fn of_qwen(_: u32, index: usize) -> Option<String> {
    match index {
        0..=2 => Some(["<|endoftext|>", "<|im_start|>", "<|im_end|>"][index].to_owned()),
        3..=207 => Some(format!("<|extra_{}|>", index - 3)),
        _ => None,
    }
}

pub(super) fn read(files: &ConfigFiles, path: &Path) -> Result<TokenizerFiles> {
    let bytes = content::read(path, limits::SENTENCE_PIECE_BYTES)?;
    if let Some(error) = content::unsupported(path, &bytes) {
        return Err(error);
    }
    if bytes.is_empty() {
        return Err(Error::format(path, FormatErrorKind::EmptyFile));
    }
    let entries = entries(path, &bytes)?;
    let class = find(files, path)?;
    // A pre-tokenizer that is not there would be a fault of the list above.
    let steps = pre::find(class.pre).ok_or_else(|| Error::key_missing(path, class.pre, "text cannot be split"))?;
    let added = added_tokens(files, entries.end(), special(files, &entries, class)?, |text| entries.id_of(text))?;
    let model = Model {
        kind: Some("BPE".into()),
        vocab: entries,
        by_rank: true,
        ignore_merges: Some(true),
        ..Model::default()
    };
    Ok(TokenizerFiles {
        normalizer: steps.nfc.then_some(Normalizer::NFC),
        pre_tokenizer: Some(PreTokenizer::byte_level(steps.patterns)),
        decoder: Some(Decoder::ByteLevel),
        pre: Some(class.pre),
        assumption: Some("no tokenizer.json: text is tokenized as the class in tokenizer_config.json does it"),
        ..TokenizerFiles::new(path, TokenizerKind::ByteLevelBpe, model, added)
    })
}

/// The class that `tokenizer_config.json` names: its code in `auto_map`, else its name.
fn find(files: &ConfigFiles, path: &Path) -> Result<&'static Class> {
    const KEY: &str = "auto_map.AutoTokenizer";
    let expected = || {
        let known = CLASSES.map(|class| class.code).join(", ");
        format!("one of {known}; save tokenizer.json with transformers for another")
    };
    let config = files.tokenizer_config.as_ref();
    let map = config.and_then(|config| config.object().get("auto_map")?.as_object()?.get("AutoTokenizer"));
    let code = match map {
        Some(Value::Array(list)) => list.iter().find_map(Value::as_str),
        other => other.and_then(Value::as_str),
    };
    let file = config.map_or(path, |config| config.file());
    if let Some(code) = code {
        // The code may be that of another repository.
        let plain = code.rsplit("--").next().unwrap_or(code);
        let found = CLASSES.iter().find(|class| class.code == plain);
        return found.ok_or_else(|| Error::key_value(file, KEY, format!("{code:?}"), expected()));
    }
    let name = class(files)?;
    let by_name = |class: &&Class| class.by_name && class.code.rsplit('.').next() == name;
    match (CLASSES.iter().find(by_name), name) {
        (Some(class), _) => Ok(class),
        (None, Some(name)) => {
            let found = format!("absent, and tokenizer_class {name:?}");
            Err(Error::key_value(file, KEY, found, expected()))
        }
        (None, None) => {
            let needed_for = "a tiktoken vocabulary does not say how to tokenize a text; tokenizer_config.json names the code, or \
                              save tokenizer.json with transformers";
            Err(Error::key_missing(path, KEY, needed_for))
        }
    }
}

/// The special tokens of the class that no entry of `added_tokens_decoder` has the id of.
fn special(files: &ConfigFiles, entries: &Entries, class: &Class) -> Result<Vec<AddedToken>> {
    let config = files.tokenizer_config.as_ref();
    let decoder = config.map(|file| file.section(DECODER)).transpose()?.flatten();
    let named: HashSet<u32> =
        decoder.iter().flat_map(|section| section.object().keys()).filter_map(|id| id.parse().ok()).collect();
    let after = (entries.end() as u32..).zip(0..).map_while(|(id, index)| Some((id, (class.special)(id, index)?)));
    Ok(after.filter(|(id, _)| !named.contains(id)).map(|(id, text)| AddedToken::special(id, text)).collect())
}

/// The tokens in `bytes`, the content of the file at `path`: all different, with different ranks, and one for each byte.
fn entries(path: &Path, bytes: &[u8]) -> Result<Entries> {
    let (mut entries, mut known, mut text) = (Entries::default(), HashSet::new(), String::new());
    for (index, line) in bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate() {
        if line.is_empty() {
            continue;
        }
        let at = format!("line {}", index + 1);
        let shown = || format!("{:?}", String::from_utf8_lossy(&line[..line.len().min(60)]));
        let wrong = || Error::key_value(path, &at, shown(), "the bytes of a token in base64, a space and its rank");
        let space = line.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let rank = str::from_utf8(&line[space + 1..]).ok().filter(|rank| rank.bytes().all(|b| b.is_ascii_digit()));
        let rank = rank.and_then(|rank| rank.parse().ok()).ok_or_else(wrong)?;
        text.clear();
        decode(&line[..space], |byte| text.push(byte_character(byte)))
            .filter(|()| !text.is_empty())
            .ok_or_else(wrong)?;
        if !known.insert(text.clone()) {
            return Err(Error::key_value(path, &at, format!("{} again", shown()), "each token once"));
        }
        entries.push(&text, rank);
    }
    if let Some(byte) =
        (0..=u8::MAX).find(|byte| !known.contains(byte_character(*byte).encode_utf8(&mut [0; 4]) as &str))
    {
        let found = format!("no token for the byte 0x{byte:02X}");
        return Err(Error::key_value(path, WHOLE_FILE, found, "a token for each byte, or some text has no tokens"));
    }
    entries.check(path, WHOLE_FILE, bytes.len())?;
    Ok(entries)
}

/// Gives the bytes that `base64` stands for to `found`; `None` where it is none, or has bits that stand for nothing.
fn decode(base64: &[u8], mut found: impl FnMut(u8)) -> Option<()> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let padding = base64.iter().rev().take_while(|byte| **byte == b'=').count();
    if !base64.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    for part in base64[..base64.len() - padding].chunks(4) {
        let bits = part.iter().try_fold(0u32, |bits, byte| Some(bits << 6 | u32::from(digit(*byte)?)))?;
        let whole = bits << (6 * (4 - part.len()));
        let [_, first @ ..] = whole.to_be_bytes();
        let (bytes, rest) = first.split_at(part.len() * 6 / 8);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.iter().for_each(|byte| found(*byte));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::TokenizerSpec;
    use serde_json::json;
    use std::sync::OnceLock;

    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fn base64(bytes: &[u8]) -> String {
        let mut text = String::new();
        for part in bytes.chunks(3) {
            let bits = part.iter().chain([&0, &0]).take(3).fold(0usize, |bits, byte| bits << 8 | usize::from(*byte));
            let digits = (0..=part.len()).map(|at| char::from(ALPHABET[bits >> (18 - 6 * at) & 63]));
            text.extend(digits.chain(std::iter::repeat_n('=', 3 - part.len())));
        }
        text
    }

    /// The lines of all bytes, and of these tokens after them.
    fn lines(more: &[&[u8]]) -> String {
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]).chain(more.iter().map(|token| token.to_vec()));
        bytes.enumerate().map(|(rank, token)| format!("{} {rank}\n", base64(&token))).collect()
    }

    fn spec_of(name: &str, vocabulary: &str, config: Value) -> Result<TokenizerSpec> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("config.json", "{}");
        write(name, vocabulary);
        write("tokenizer_config.json", &config.to_string());
        crate::tokenizer::json::spec(&ConfigFiles::read(folder.path())?, &OnceLock::new())
    }

    fn kimi(vocabulary: &str) -> Result<TokenizerSpec> {
        let map = json!({"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]});
        let decoder =
            json!({"258": {"content": "[BOS]", "special": true}, "260": {"content": "<|im_end|>", "special": true}});
        let config = json!({"auto_map": map, "added_tokens_decoder": decoder, "bos_token": "[BOS]", "eos_token": "<|im_end|>",
            "tokenizer_class": "TikTokenTokenizer"});
        spec_of("tiktoken.model", vocabulary, config)
    }

    #[test]
    fn special_tokens_follow_on_the_ranks() {
        let spec = kimi(&lines(&[b"ab", b"abc"])).unwrap();
        assert_eq!((spec.kind, spec.pre.as_deref()), (TokenizerKind::ByteLevelBpe, Some("kimi-k2")));
        assert_eq!((spec.tokens, spec.bos, spec.add_bos, spec.eos), (258 + 256, Some(258), false, Some(260)));
        assert!(spec.stop_ids.contains_key(&260), "{:?}", spec.stop_ids);
        for config in [
            json!({"tokenizer_class": "QWenTokenizer"}),
            json!({"auto_map": {"AutoTokenizer": ["Qwen/Qwen-7B--tokenization_qwen.QWenTokenizer", null]}}),
        ] {
            let spec = spec_of("qwen.tiktoken", &lines(&[]), config).unwrap();
            assert_eq!((spec.tokens, spec.pre.as_deref()), (256 + 208, Some("qwen2")));
            assert_eq!(spec.stop_ids.keys().collect::<Vec<_>>(), [&256, &258], "{:?}", spec.stop_ids);
        }
    }

    #[test]
    fn refuses_what_it_cannot_build_and_says_where() {
        let whole = lines(&[b"ab"]);
        let with = |more: &str| kimi(&[&whole, more].concat());
        let cases: Vec<(&str, Result<TokenizerSpec>, &[&str])> = vec![
            ("no rank", with("YWJj\n"), &["tiktoken.model", "line 258", "YWJj"]),
            ("a rank below 0", with("YWJj -1\n"), &["line 258"]),
            ("a far rank", with("YWJj 4294967295\n"), &["tiktoken.model", "4294967295"]),
            ("a rank that is no number", with("YWJj 99999999999999999999\n"), &["line 258"]),
            ("three parts", with("YWJj 257 1\n"), &["line 258"]),
            ("no base64", with("YW-j 257\n"), &["line 258"]),
            ("base64 without its end", with("YWI 257\n"), &["line 258"]),
            ("bits that stand for nothing", with("YWJ= 257\n"), &["line 258"]),
            ("padding alone", with("==== 257\n"), &["line 258"]),
            ("no bytes", with(" 257\n"), &["line 258"]),
            ("a rank twice", with("YWJj 256\n"), &["tiktoken.model", "the id 256 twice"]),
            ("a token twice", with("YWI= 257\n"), &["line 258", "each token once"]),
            ("a byte missing", kimi(&whole.replacen("Cg== 10\n", "", 1)), &["tiktoken.model", "0x0A"]),
            ("nothing", kimi(""), &["tiktoken.model", "empty"]),
            (
                "a pointer",
                kimi("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
                &["tiktoken.model", "git lfs pull"],
            ),
            (
                "other code",
                spec_of(
                    "tiktoken.model",
                    &whole,
                    json!({"auto_map": {"AutoTokenizer": ["a.TikTokenTokenizer", null]}}),
                ),
                &["tokenizer_config.json", "auto_map.AutoTokenizer", "a.TikTokenTokenizer", "tokenization_kimi"],
            ),
            (
                "a class that many have",
                spec_of("tiktoken.model", &whole, json!({"tokenizer_class": "TikTokenTokenizer"})),
                &["tokenizer_config.json", "auto_map.AutoTokenizer", "TikTokenTokenizer"],
            ),
            ("no class", spec_of("tiktoken.model", &whole, json!({})), &["tiktoken.model", "auto_map.AutoTokenizer"]),
        ];
        for (case, found, says) in cases {
            let text = found.expect_err(case).to_string();
            assert!(says.iter().all(|part| text.contains(part)), "{case}: {text}");
        }
    }
}
