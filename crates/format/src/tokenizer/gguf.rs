//! The `tokenizer.*` keys of a GGUF file.

use super::{PairTemplate, TokenizerKind, TokenizerSpec, WordPieceRules, pre, templates};
use crate::error::{Error, Result};
use crate::header::Fields;
use crate::header::gguf::{GgufMetadata, Strings};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const EXTRA_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
/// The key of the separator, in the spelling of GGUF writers.
const SEP: &str = "tokenizer.ggml.seperator_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";

/// The name of the model, and of the same pre-tokenizer in `gpt2`: merges of characters, and spaces written as `▁`.
const CHARACTERS: &str = "gemma4";

pub(super) fn spec(metadata: &GgufMetadata) -> Result<TokenizerSpec> {
    let kind = kind(metadata)?;
    let mut spec = TokenizerSpec { kind, ..TokenizerSpec::default() };
    (spec.chat_templates, spec.assumptions) = templates::of_gguf(metadata)?;
    if kind == TokenizerKind::Missing {
        // Ids belong to the model, whatever tokenizer the user gives.
        let id = |key: &str| Ok::<_, Error>(metadata.unsigned(key)?.and_then(|id| u32::try_from(id).ok()));
        (spec.bos, spec.eos) = (id(BOS)?, id(EOS)?);
        added_and_stops(metadata, &mut spec, false)?;
        return Ok(spec);
    }
    let tokens = metadata
        .strings(TOKENS)?
        .ok_or_else(|| Error::key_missing(metadata.file(), TOKENS, "text cannot become ids"))?;
    if tokens.is_empty() {
        return Err(Error::key_value(metadata.file(), TOKENS, "an array of 0 strings", "at least one token"));
    }
    spec.model = metadata.text(MODEL)?.map(Into::into);
    spec.tokens = tokens.len();
    check_lengths(metadata, kind, tokens.len())?;
    if metadata.array_len(TYPES).is_none() {
        spec.assume(format!("{TYPES} is absent: tokens are ordinary, but for those that begin or end a text"));
    }
    if kind == TokenizerKind::WordPiece {
        return word_piece(metadata, spec, tokens);
    }
    let (sentence_piece, unigram) = (kind == TokenizerKind::SentencePiece, kind == TokenizerKind::Unigram);
    let add_bos_default = match kind {
        TokenizerKind::ByteLevelBpe => pre_tokenizer(metadata, &mut spec)?.add_bos,
        TokenizerKind::CharacterBpe => {
            spec.pre = Some(CHARACTERS.into());
            true
        }
        _ => !unigram,
    };

    // The llama vocabulary has `<s>` and `</s>` at 1 and 2, the one of T5 has `</s>` at 1; other kinds have no ids that
    // could be assumed.
    spec.bos = special_id(metadata, &mut spec, BOS, sentence_piece.then_some(1))?;
    spec.eos = special_id(metadata, &mut spec, EOS, if unigram { Some(1) } else { sentence_piece.then_some(2) })?;
    spec.bos_text = spec.bos.and_then(|id| text_of(tokens, id));
    spec.eos_text = spec.eos.and_then(|id| text_of(tokens, id));
    spec.named_tokens = templates::tokens_of_gguf(metadata, |id| text_of(tokens, id))?;
    let add_bos_default = add_bos_default && spec.bos.is_some();
    added_and_stops(metadata, &mut spec, add_bos_default)?;
    spec.pair = pair(metadata, &spec)?;
    if unigram && metadata.boolean(EXTRA_SPACES)?.is_none() {
        spec.assume(format!("{EXTRA_SPACES} is absent: spaces stay as they are (llama.cpp's default)"));
    }
    if kind == TokenizerKind::CharacterBpe && !spec.add_bos && spec.bos.is_some() {
        // The first files of Gemma 4 have it false, and the models fail without BOS (llama.cpp pull request 21500).
        spec.add_bos = true;
        spec.assume(format!("{ADD_BOS} is false: BOS is put in front all the same, as Gemma 4 needs it"));
    }
    spec.add_space_prefix = metadata.boolean("tokenizer.ggml.add_space_prefix")?.unwrap_or(sentence_piece || unigram);
    // The value is read when the tokenizer is built.
    metadata.unsigned("tokenizer.ggml.unknown_token_id")?;
    spec.stop_on_known_texts((0..).zip(tokens.iter()));
    spec.settle();
    Ok(spec)
}

/// Reads the `bert` kind: a text is between a CLS and a SEP token. Where no key names them, they have llama.cpp's
/// default ids, which are those of Google's vocabularies.
fn word_piece(metadata: &GgufMetadata, mut spec: TokenizerSpec, tokens: &Strings) -> Result<TokenizerSpec> {
    let cls = if metadata.has(BOS) { BOS } else { "tokenizer.ggml.cls_token_id" };
    spec.bos = special_id(metadata, &mut spec, cls, Some(101))?;
    spec.eos = special_id(metadata, &mut spec, SEP, Some(102))?;
    let unknown = special_id(metadata, &mut spec, "tokenizer.ggml.unknown_token_id", Some(100))?;
    let needed = |key: &str| Error::key_missing(metadata.file(), key, "a text is put between special tokens");
    let unknown = unknown.ok_or_else(|| needed("tokenizer.ggml.unknown_token_id"))?;
    let cls = spec.bos.ok_or_else(|| needed(cls))?;
    let sep = spec.eos.ok_or_else(|| needed(SEP))?;
    spec.pair = Some(PairTemplate::bert(cls, sep));
    (spec.bos_text, spec.eos_text) = (text_of(tokens, cls), text_of(tokens, sep));
    (spec.add_bos, spec.add_eos) = (true, true);
    let (lower, strip) = ("tokenizer.ggml.normalizer.lowercase", "tokenizer.ggml.normalizer.strip_accents");
    let lowercase = metadata.boolean(lower)?;
    if lowercase.is_none() {
        spec.assume(format!("{lower} is absent: letters become small ones, as in llama.cpp"));
    }
    let lowercase = lowercase.unwrap_or(true);
    let strip_accents = metadata.boolean(strip)?.unwrap_or(lowercase);
    spec.word_piece = Some(WordPieceRules { lowercase, strip_accents, unknown });
    spec.settle();
    Ok(spec)
}

/// How an encoder joins two texts into one sequence: like XLM-RoBERTa and RoBERTa, or else like ModernBERT, which has
/// no token types.
fn pair(metadata: &GgufMetadata, spec: &TokenizerSpec) -> Result<Option<PairTemplate>> {
    let separator = metadata.unsigned(SEP)?;
    let sep = spec.eos.filter(|eos| spec.add_eos && separator == Some(u64::from(*eos)));
    let (Some(cls), Some(sep)) = (spec.bos.filter(|_| spec.add_bos), sep) else { return Ok(None) };
    let doubled = spec.kind == TokenizerKind::Unigram || spec.pre.as_deref() == Some("roberta-bpe");
    Ok(Some(if doubled { PairTemplate::roberta(cls, sep) } else { PairTemplate::bert(cls, sep) }))
}

/// The tokens added to a text, and the ids that end a generation.
fn added_and_stops(metadata: &GgufMetadata, spec: &mut TokenizerSpec, add_bos: bool) -> Result<()> {
    spec.add_bos = metadata.boolean(ADD_BOS)?.unwrap_or(add_bos);
    let adds_eos = spec.kind == TokenizerKind::Unigram && spec.eos.is_some();
    spec.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token")?.unwrap_or(adds_eos);
    if let Some(eos) = spec.eos {
        spec.stop(eos.into(), EOS);
    }
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        if let Some(id) = metadata.unsigned(key)? {
            spec.stop(id, key);
        }
    }
    Ok(())
}

fn kind(metadata: &GgufMetadata) -> Result<TokenizerKind> {
    match metadata.text(MODEL)? {
        Some("llama") => Ok(TokenizerKind::SentencePiece),
        Some("gpt2") if metadata.text(PRE)? == Some(CHARACTERS) => Ok(TokenizerKind::CharacterBpe),
        Some("gpt2") => Ok(TokenizerKind::ByteLevelBpe),
        Some(CHARACTERS) => Ok(TokenizerKind::CharacterBpe),
        Some("bert") => Ok(TokenizerKind::WordPiece),
        Some("t5") => Ok(TokenizerKind::Unigram),
        Some("none" | "no_vocab") => Ok(TokenizerKind::Missing),
        None if !metadata.has(TOKENS) => Ok(TokenizerKind::Missing),
        None => Err(Error::key_missing(metadata.file(), MODEL, "the kind of the vocabulary is unknown")),
        Some(other) => Err(Error::key_value(
            metadata.file(),
            MODEL,
            format!("{other:?}"),
            "llama (SentencePiece), gpt2 (byte-level BPE), gemma4 (BPE of characters), t5 (Unigram) or bert (WordPiece)",
        )),
    }
}

fn pre_tokenizer(metadata: &GgufMetadata, spec: &mut TokenizerSpec) -> Result<&'static pre::PreTokenizer> {
    let name = match metadata.text(PRE)? {
        Some(name) => name,
        None => {
            spec.assume(format!("{PRE} is absent: the pre-tokenizer is taken as default, as llama.cpp does"));
            "default"
        }
    };
    spec.pre = Some(name.into());
    pre::find(name)
        .ok_or_else(|| Error::key_value(metadata.file(), PRE, format!("{name:?}"), format!("one of {}", pre::names())))
}

fn special_id(
    metadata: &GgufMetadata,
    spec: &mut TokenizerSpec,
    key: &str,
    default: Option<u32>,
) -> Result<Option<u32>> {
    let Some(id) = metadata.unsigned(key)? else {
        let default = default.filter(|id| (*id as usize) < spec.tokens);
        match default {
            Some(id) => spec.assume(format!("{key} is absent: {id}, as in llama.cpp")),
            None => spec.assume(format!("{key} is absent: none is used")),
        }
        return Ok(default);
    };
    match u32::try_from(id) {
        Ok(id) if (id as usize) < spec.tokens => Ok(Some(id)),
        _ => {
            spec.assume(format!("{key} names id {id}, outside the {} tokens: ignored", spec.tokens));
            Ok(None)
        }
    }
}

/// Checks that the arrays on the same tokens have the same length and known values.
fn check_lengths(metadata: &GgufMetadata, kind: TokenizerKind, tokens: usize) -> Result<()> {
    let same = |key: &str, len: usize| {
        if len == tokens {
            return Ok(());
        }
        let one = format!("{TOKENS} has {tokens} entries");
        Err(Error::contradiction(metadata.file(), one, format!("{key} has {len}")))
    };
    // Lengths are checked first: reading widens every element.
    for key in [SCORES, TYPES] {
        metadata.array_len(key).map_or(Ok(()), |len| same(key, len))?;
    }
    match metadata.floats(SCORES)? {
        Some(scores) => {
            if let Some(id) = scores.iter().position(|score| score.is_nan()) {
                return Err(Error::key_value(metadata.file(), SCORES, format!("NaN for token {id}"), "numbers"));
            }
        }
        None if kind == TokenizerKind::SentencePiece => {
            return Err(Error::key_missing(metadata.file(), SCORES, "the order of merges is unknown"));
        }
        None if kind == TokenizerKind::Unigram => {
            return Err(Error::key_missing(metadata.file(), SCORES, "which pieces are likely is unknown"));
        }
        None => {}
    }
    let types = metadata.integers(TYPES)?.unwrap_or_default();
    if let Some((id, value)) = types.iter().enumerate().find(|(_, value)| !(0..=6).contains(*value)) {
        return Err(Error::key_value(metadata.file(), TYPES, format!("{value} for token {id}"), "0 to 6"));
    }
    let merges = matches!(kind, TokenizerKind::ByteLevelBpe | TokenizerKind::CharacterBpe);
    if merges && metadata.strings(MERGES)?.is_none() {
        return Err(Error::key_missing(metadata.file(), MERGES, "bytes cannot be merged into tokens"));
    }
    Ok(())
}

fn text_of(tokens: &Strings, id: u32) -> Option<String> {
    tokens.get(id as usize).map(|text| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests;
