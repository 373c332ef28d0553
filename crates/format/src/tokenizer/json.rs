//! `tokenizer.json` and the JSON files beside it.

use super::added;
use super::entries::Content;
use super::folder::word_piece;
use super::folder::{self, Found};
use super::{PairTemplate, TokenizerKind, TokenizerSpec, templates};
use crate::error::{Error, FormatErrorKind, Result};
use crate::header::Fields;
use crate::header::config::{ConfigFiles, JsonFile};
use crate::limits;
use crate::source::content;
use serde_json::{Map, Value};
use std::path::Path;

pub(super) fn spec(files: &ConfigFiles) -> Result<TokenizerSpec> {
    let mut spec = TokenizerSpec {
        chat_templates: templates::of_folder(files)?,
        named_tokens: templates::tokens_of_folder(files),
        ..TokenizerSpec::default()
    };
    let mut roles = Roles::read(files)?;
    let Some(Found { kind, path, content, pre, space_prefix, assumption }) = find(files, &roles)? else {
        spec.bos_text = roles.bos.map(|(text, _)| text);
        spec.eos_text = roles.eos.map(|(text, _)| text);
        stop_on_config_ids(&mut spec, files)?;
        return Ok(spec);
    };
    if kind == TokenizerKind::SentencePiece {
        let default = |text: &str| Some((text.to_owned(), "LlamaTokenizer's default".to_owned()));
        roles = Roles { bos: roles.bos.or(default("<s>")), eos: roles.eos.or(default("</s>")) };
    }

    spec.kind = kind;
    spec.model = content.model.clone();
    spec.pre = pre.map(Into::into);
    spec.tokens = content.ids_end();
    spec.add_space_prefix = space_prefix;
    spec.assumptions.extend(assumption.map(Into::into));
    if kind == TokenizerKind::WordPiece {
        return word_piece::finish(spec, files, path, content);
    }
    special_tokens(&mut spec, files, path, &content, &roles)?;
    stop_on_config_ids(&mut spec, files)?;
    if let Some((text, source)) = &roles.eos {
        match content.id_of(text) {
            Some(id) => spec.stop(id.into(), source),
            None => spec.assume(format!("{source} {text:?} is no token of the vocabulary: ignored")),
        }
    }
    Ok(finished(spec, &content))
}

/// `spec` with the texts of BOS and EOS, and what the texts of `content` say.
fn finished(mut spec: TokenizerSpec, content: &Content) -> TokenizerSpec {
    spec.bos_text = spec.bos.and_then(|id| content.text(id));
    spec.eos_text = spec.eos.and_then(|id| content.text(id));
    spec.stop_on_known_texts(content.added.iter().map(|token| (token.id, token.content.as_bytes())));
    spec.settle();
    spec
}

/// The folder's vocabulary: `tokenizer.json` before every other form, as in transformers.
fn find<'f>(files: &'f ConfigFiles, roles: &Roles) -> Result<Option<Found<'f>>> {
    let Some(path) = files.tokenizer.as_deref() else {
        return files.vocabulary.as_ref().map(|vocabulary| folder::read(files, vocabulary)).transpose();
    };
    let bytes = content::read(path, limits::TOKENIZER_JSON_BYTES)?;
    let wanted = [&roles.bos, &roles.eos].into_iter().flatten().map(|(text, _)| text.as_str()).collect();
    let content = Content::parse(path, &bytes, &wanted)?;
    Ok(Some(Found { kind: TokenizerKind::Json, path, content, pre: None, space_prefix: false, assumption: None }))
}

/// BOS and EOS: what the post-processor adds decides over what `tokenizer_config.json` says, and both decide over the
/// ids of `config.json`, which are wrong in some repositories.
fn special_tokens(
    spec: &mut TokenizerSpec,
    files: &ConfigFiles,
    path: &Path,
    content: &Content,
    roles: &Roles,
) -> Result<()> {
    let named = |role: &Option<(String, String)>| role.as_ref().and_then(|(text, _)| content.id_of(text));
    let says = |key: &str| -> Result<Option<bool>> {
        Ok(files.tokenizer_config.as_ref().map(|config| config.boolean(key)).transpose()?.flatten())
    };
    // Read before anything decides, so that neither can be of another type. LlamaTokenizer adds BOS unless told not to.
    let says_bos = says("add_bos_token")?.unwrap_or(spec.kind == TokenizerKind::SentencePiece);
    let says_eos = says("add_eos_token")?.unwrap_or(false);
    (spec.bos, spec.eos) = (named(&roles.bos), named(&roles.eos));
    if !post_processed(spec, path, content)? {
        if spec.kind != TokenizerKind::Json {
            (spec.add_bos, spec.add_eos) = (says_bos, says_eos);
        } else if says_bos || says_eos {
            // transformers drops both keys where there is a tokenizer.json.
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

/// Lets the post-processor decide what is added, over the BOS and EOS that `spec` names; whether there is one.
fn post_processed(spec: &mut TokenizerSpec, path: &Path, content: &Content) -> Result<bool> {
    let tokens = content.ids_end();
    let Some(Added { before, after, pair }) = added_by_post_processor(path, &content.post_processor, tokens)? else {
        return Ok(false);
    };
    spec.pair = pair;
    let known = |id: &u32| (*id as usize) < content.ids_end();
    if let Some(id) = [before, after].into_iter().flatten().find(|id| !known(id)) {
        let expected = format!("an id of the vocabulary, below {}", content.ids_end());
        return Err(Error::key_value(path, "post_processor.special_tokens", format!("the id {id}"), expected));
    }
    if before.is_some() && spec.bos.is_some() && before != spec.bos {
        spec.assume(format!(
            "tokenizer.json puts {} in front, the named BOS is {}: tokenizer.json decides",
            content.text_of(before),
            content.text_of(spec.bos)
        ));
    }
    (spec.add_bos, spec.add_eos) = (before.is_some(), after.is_some());
    (spec.bos, spec.eos) = (before.or(spec.bos), after.or(spec.eos));
    Ok(true)
}

/// What the `tokenizer.json` at `path` is for a model whose own vocabulary is `own`. Ids are the model's: its stop
/// tokens stay, and BOS and EOS are found by their text, or by their id where no text is known.
pub(super) fn given(path: &Path, own: &TokenizerSpec) -> Result<TokenizerSpec> {
    let bytes = content::read(path, limits::TOKENIZER_JSON_BYTES)?;
    let wanted = [&own.bos_text, &own.eos_text].into_iter().flatten().map(String::as_str).collect();
    let content = Content::parse(path, &bytes, &wanted)?;
    let mut spec = TokenizerSpec { kind: TokenizerKind::Json, ..TokenizerSpec::default() };
    spec.chat_templates.clone_from(&own.chat_templates);
    spec.named_tokens.clone_from(&own.named_tokens);
    spec.model.clone_from(&content.model);
    spec.tokens = content.ids_end();
    let find = |id: Option<u32>, text: &Option<String>| match text {
        Some(text) => content.id_of(text),
        None => id.filter(|id| (*id as usize) < content.ids_end()),
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
    if !post_processed(&mut spec, path, &content)? {
        (spec.add_bos, spec.add_eos) = (own.add_bos, own.add_eos);
    }
    for (id, source) in own.stop_ids.iter().flat_map(|(id, sources)| sources.iter().map(|source| (*id, source))) {
        spec.stop(id.into(), source);
    }
    Ok(finished(spec, &content))
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
    let wrong = |found: &Value| {
        Error::format(
            file.file(),
            FormatErrorKind::KeyType {
                key: key.into(),
                found: found.to_string(),
                expected: "a token id or a list of them",
            },
        )
    };
    let one = |value: &Value| value.as_u64().ok_or_else(|| wrong(value));
    match file.object().get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

/// The texts of BOS and EOS, each with the file and key that names it.
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

/// What the post-processor adds.
struct Added {
    before: Option<u32>,
    after: Option<u32>,
    pair: Option<PairTemplate>,
}

/// What the post-processor of a vocabulary of `tokens` adds to a text; `None` when it is no template and adds nothing.
fn added_by_post_processor(path: &Path, processor: &Value, tokens: usize) -> Result<Option<Added>> {
    const KEY: &str = "post_processor";
    let Value::Object(object) = processor else { return Ok(None) };
    match object.get("type").and_then(Value::as_str) {
        Some("ByteLevel") => Ok(None),
        Some("Sequence") => {
            let mut found = None;
            for part in object.get("processors").and_then(Value::as_array).into_iter().flatten() {
                if let Some(added) = added_by_post_processor(path, part, tokens)?
                    && found.replace(added).is_some()
                {
                    return Err(Error::key_value(path, KEY, "two TemplateProcessing", "one"));
                }
            }
            Ok(found)
        }
        Some("TemplateProcessing") => {
            let (before, after) = template_processing(path, object)?;
            Ok(Some(Added { before, after, pair: PairTemplate::read(path, object, tokens)? }))
        }
        Some(kind @ ("BertProcessing" | "RobertaProcessing")) => {
            let id = |key: &str| object.get(key).and_then(|token| token.get(1)).and_then(Value::as_u64);
            let id = |key: &str| {
                let found = || object.get(key).map_or("absent".into(), Value::to_string);
                let id = id(key).and_then(|id| u32::try_from(id).ok());
                let key = format!("post_processor.{key}");
                id.ok_or_else(|| Error::key_value(path, &key, found(), "a token and its id"))
            };
            let (cls, sep) = (id("cls")?, id("sep")?);
            let pair = if kind == "BertProcessing" { PairTemplate::bert } else { PairTemplate::roberta };
            Ok(Some(Added { before: Some(cls), after: Some(sep), pair: Some(pair(cls, sep)) }))
        }
        other => Err(Error::key_value(
            path,
            "post_processor.type",
            format!("{:?}", other.unwrap_or_default()),
            "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing or a Sequence of them",
        )),
    }
}

fn template_processing(path: &Path, object: &Map<String, Value>) -> Result<(Option<u32>, Option<u32>)> {
    let wrong = |found: String| {
        Error::key_value(path, "post_processor.single", found, "at most one token before and after the text")
    };
    let single = object.get("single").and_then(Value::as_array).ok_or_else(|| wrong("no list".into()))?;
    let (mut before, mut after, mut text_seen) = (Vec::new(), Vec::new(), false);
    for item in single {
        if item.get("Sequence").is_some() {
            text_seen = true;
            continue;
        }
        let name = item.get("SpecialToken").and_then(|token| token.get("id")).and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong(item.to_string()))?;
        let ids = object.get("special_tokens").and_then(|tokens| tokens.get(name)).and_then(|token| token.get("ids"));
        let ids = ids.and_then(Value::as_array).ok_or_else(|| wrong(format!("{name:?} without ids")))?;
        let side = if text_seen { &mut after } else { &mut before };
        for id in ids {
            side.push(id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| wrong(id.to_string()))?);
        }
    }
    if !text_seen || before.len() > 1 || after.len() > 1 {
        return Err(wrong(Value::from(single.clone()).to_string()));
    }
    Ok((before.first().copied(), after.first().copied()))
}

#[cfg(test)]
mod tests;
