//! The files of a folder -> TokenizerSpec.

use super::files::{self, TokenizerFiles};
use super::folder::word_piece;
use super::post_processor::{self, Added};
use super::{TokenizerKind, TokenizerSpec, added, templates};
use crate::error::Result;
use crate::header::Fields;
use crate::header::config::{ConfigFiles, JsonFile, wrong_type};
use serde_json::Value;
use std::sync::OnceLock;

/// The spec of the tokenizer in `files`, whose own files are kept in `read`.
pub(super) fn spec(files: &ConfigFiles, read: &OnceLock<TokenizerFiles>) -> Result<TokenizerSpec> {
    let mut spec = TokenizerSpec {
        chat_templates: templates::of_folder(files)?,
        named_tokens: templates::tokens_of_folder(files),
        ..TokenizerSpec::default()
    };
    let mut roles = Roles::read(files)?;
    let Some(tokenizer) = files::read_once(files, read)? else {
        spec.bos_text = roles.bos.map(|(text, _)| text);
        spec.eos_text = roles.eos.map(|(text, _)| text);
        stop_on_config_ids(&mut spec, files)?;
        return Ok(spec);
    };
    if tokenizer.kind == TokenizerKind::SentencePiece {
        let default = |text: &str| Some((text.to_owned(), "LlamaTokenizer's default".to_owned()));
        roles = Roles { bos: roles.bos.or(default("<s>")), eos: roles.eos.or(default("</s>")) };
    }

    spec.describe(tokenizer);
    if matches!(tokenizer.kind, TokenizerKind::WordPiece | TokenizerKind::Unigram) {
        return word_piece::finish(spec, files, tokenizer);
    }
    special_tokens(&mut spec, files, tokenizer, &roles)?;
    stop_on_config_ids(&mut spec, files)?;
    if let Some((text, source)) = &roles.eos {
        match tokenizer.id_of(text) {
            Some(id) => spec.stop(id.into(), source),
            None => spec.assume(format!("{source} {text:?} is no token of the vocabulary: ignored")),
        }
    }
    Ok(finished(spec, tokenizer))
}

/// Completes `spec` with the texts of BOS and EOS, and with stop tokens among the added tokens.
fn finished(mut spec: TokenizerSpec, tokenizer: &TokenizerFiles) -> TokenizerSpec {
    spec.bos_text = spec.bos.and_then(|id| tokenizer.text(id));
    spec.eos_text = spec.eos.and_then(|id| tokenizer.text(id));
    spec.stop_on_known_texts(tokenizer.added.iter().map(|token| (token.id, token.content.as_bytes())));
    spec.settle();
    spec
}

/// BOS and EOS: the post-processor takes precedence over `tokenizer_config.json`, and both over the ids of
/// `config.json`, which are wrong in some repositories.
fn special_tokens(
    spec: &mut TokenizerSpec,
    files: &ConfigFiles,
    tokenizer: &TokenizerFiles,
    roles: &Roles,
) -> Result<()> {
    let named = |role: &Option<(String, String)>| role.as_ref().and_then(|(text, _)| tokenizer.id_of(text));
    // Read first, so that a wrong type of either is always an error. LlamaTokenizer adds BOS unless the key is false.
    let says_bos = added::flag(files, "add_bos_token")?.unwrap_or(spec.kind == TokenizerKind::SentencePiece);
    let says_eos = added::flag(files, "add_eos_token")?.unwrap_or(false);
    (spec.bos, spec.eos) = (named(&roles.bos), named(&roles.eos));
    if !post_processed(spec, tokenizer)? {
        if spec.kind != TokenizerKind::Json {
            (spec.add_bos, spec.add_eos) = (says_bos, says_eos);
        } else if says_bos || says_eos {
            // transformers ignores both keys where there is a tokenizer.json.
            let keys = [("add_bos_token", says_bos), ("add_eos_token", says_eos)].into_iter().filter(|(_, says)| *says);
            let keys = keys.map(|(key, _)| key).collect::<Vec<_>>().join(" and ");
            spec.assume(format!(
                "{keys} of tokenizer_config.json adds nothing: tokenizer.json decides, and has no template"
            ));
        }
    }
    if files.tokenizer_config.is_none() {
        let ids = id_list(&files.config, "bos_token_id")?;
        if let (None, [id]) = (spec.bos, ids.as_slice())
            && (*id as usize) < spec.tokens
        {
            spec.bos = u32::try_from(*id).ok();
            spec.assume(format!("no tokenizer_config.json: BOS is {id} as config.json says"));
        }
    }
    Ok(())
}

/// Lets the post-processor override which BOS and EOS of `spec` are added; returns whether there is one.
fn post_processed(spec: &mut TokenizerSpec, tokenizer: &TokenizerFiles) -> Result<bool> {
    let found = post_processor::added(&tokenizer.path, &tokenizer.post_processor, tokenizer.tokens())?;
    let Some(Added { before, after, pair }) = found else { return Ok(false) };
    spec.pair = pair;
    if before.is_some() && spec.bos.is_some() && before != spec.bos {
        spec.assume(format!(
            "tokenizer.json puts {} in front, the named BOS is {}: tokenizer.json decides",
            tokenizer.text_of(before),
            tokenizer.text_of(spec.bos)
        ));
    }
    (spec.add_bos, spec.add_eos) = (before.is_some(), after.is_some());
    (spec.bos, spec.eos) = (before.or(spec.bos), after.or(spec.eos));
    Ok(true)
}

/// The spec of a given `tokenizer.json` for a model whose own vocabulary is `own`. Ids are the model's: its stop tokens
/// stay, and BOS and EOS are found by their text, or by their id where no text is known.
pub(super) fn given(tokenizer: &TokenizerFiles, own: &TokenizerSpec) -> Result<TokenizerSpec> {
    let mut spec = TokenizerSpec::default();
    spec.chat_templates.clone_from(&own.chat_templates);
    spec.named_tokens.clone_from(&own.named_tokens);
    spec.describe(tokenizer);
    let find = |id: Option<u32>, text: &Option<String>| match text {
        Some(text) => tokenizer.id_of(text),
        None => id.filter(|id| (*id as usize) < tokenizer.tokens()),
    };
    (spec.bos, spec.eos) = (find(own.bos, &own.bos_text), find(own.eos, &own.eos_text));
    let (bos, eos) = (spec.bos, spec.eos);
    for (role, text, own, given) in [("BOS", &own.bos_text, own.bos, bos), ("EOS", &own.eos_text, own.eos, eos)] {
        if own != given {
            let text = text.as_deref().unwrap_or("without a text");
            spec.assume(format!(
                "the model's {role}, {text}, is id {own:?}; in the given tokenizer.json it is {given:?}"
            ));
        }
    }
    if !post_processed(&mut spec, tokenizer)? {
        (spec.add_bos, spec.add_eos) = (own.add_bos, own.add_eos);
    }
    for (id, source) in own.stop_ids.iter().flat_map(|(id, sources)| sources.iter().map(|source| (*id, source))) {
        spec.stop(id.into(), source);
    }
    Ok(finished(spec, tokenizer))
}

fn stop_on_config_ids(spec: &mut TokenizerSpec, files: &ConfigFiles) -> Result<()> {
    for (file, source) in [
        (Some(&files.config), "config.json eos_token_id"),
        (files.generation.as_ref(), "generation_config.json eos_token_id"),
    ] {
        for id in file.map(|file| id_list(file, "eos_token_id")).transpose()?.unwrap_or_default() {
            spec.stop(id, source);
        }
    }
    Ok(())
}

/// One id or a list of ids.
fn id_list(file: &JsonFile, key: &str) -> Result<Vec<u64>> {
    let wrong = |found: &Value| wrong_type(file.file(), key, found, "a token id or a list of them");
    let one = |value: &Value| value.as_u64().ok_or_else(|| wrong(value));
    match file.object().get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

/// The texts of BOS and EOS, each with its file and key.
struct Roles {
    bos: Option<(String, String)>,
    eos: Option<(String, String)>,
}

impl Roles {
    fn read(files: &ConfigFiles) -> Result<Roles> {
        let role = |key: &str| -> Result<Option<(String, String)>> {
            for (file, name) in [
                (&files.tokenizer_config, "tokenizer_config.json"),
                (&files.special_tokens_map, "special_tokens_map.json"),
            ] {
                if let Some(text) = file.as_ref().map(|file| added::token_text(file, key)).transpose()?.flatten() {
                    return Ok(Some((text, format!("{name} {key}"))));
                }
            }
            Ok(None)
        };
        Ok(Roles { bos: role("bos_token")?, eos: role("eos_token")? })
    }
}

#[cfg(test)]
mod tests;
