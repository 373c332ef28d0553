//! Header -> Embeds: how the files say that a text becomes a vector; and what is added to the embedding's rows.

use super::dense;
use super::reader::Reader;
use super::tensors::Tensors;
use super::weights::{mapped, weights};
use super::{LinearWeights, MapWeights, ModelSpec, Pooling, RelativeWeights, Stored, WeightTypes};
use crate::error::{Error, Result};
use crate::family::{Key, Role};
use crate::header::config::sentence_transformers::{Module, SentenceFiles};
use crate::header::config::{ConfigFiles, JsonFile};
use crate::header::gguf::GgufMetadata;
use crate::header::{Fields, Header, Metadata, TensorInfo};
use serde_json::Value;
use std::collections::BTreeMap;

weights! {
    /// What is added to the rows of the embedding, and the norm of the sum.
    pub struct InputWeights<W> {
        /// The position embeddings, where the model has them.
        pub positions: Option<PositionWeights<W>> = optional part,
        /// A row for each token type, `[kinds, hidden]`: the first for all tokens but those of the second text of a pair.
        pub token_types: Option<W::Matrix> = optional matrix,
        /// The projection of the sum, `[hidden, embedding_width]`, where rows of the embedding are not as wide as the model.
        pub projection: Option<W::Matrix> = optional matrix,
        /// The norm of the sum, `[hidden]`.
        pub norm: Option<W::Norm> = optional norm,
        /// What is added to scores of attention by the distance of two positions, `[buckets, heads]`.
        pub distances: Option<W::Numbers> = optional numbers,
        /// Relative positions, of which scores have terms.
        pub relative: Option<RelativeWeights<W>> = optional part,
    }

    /// Position embeddings: positions that are rows of a matrix.
    pub struct PositionWeights<W> {
        /// The position embeddings, `[first + context, hidden]`.
        pub rows: W::Matrix = matrix,
        /// The row of a text's first token.
        pub first: usize,
    }
}

/// What the files say about embedding texts. Complete.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Embeds {
    /// The files say nothing about it.
    NotSaid,
    /// Something that is not supported, and the file, or the key of a GGUF file, that asks for it.
    Unsupported { what: String, source: String },
    /// How vectors are computed.
    By(Box<EmbeddingSpec>),
}

/// The longest text that may be embedded or classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextLimit {
    /// The most tokens, special ones included.
    pub tokens: usize,
    /// The key that sets the limit.
    pub key: &'static str,
}

/// How a text becomes a vector.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EmbeddingSpec {
    /// How the vectors of tokens become that of the text: the vectors of several stand side by side.
    pub pooling: Vec<Pooling>,
    /// Whether the vector is normalized to length one.
    pub normalize: bool,
    /// Prompts that can be put before a text, by name.
    pub prompts: BTreeMap<String, String>,
    /// The name of the prompt that is used unless another is chosen.
    pub default_prompt: Option<String>,
    /// Whether the tokens of a prompt are pooled with those of the text.
    pub include_prompt: bool,
    /// Where the pooling is set: `1_Pooling/config.json`, `bert.pooling_type`.
    pub source: String,
}

impl Tensors<'_> {
    /// What is added to the rows of the embedding, in families that name it. GGUF files may lack token types.
    pub(super) fn input(&mut self) -> Result<Option<Box<InputWeights>>> {
        if !self.names(Role::EmbeddingNorm) && !self.names(Role::Positions) {
            return Ok(None);
        }
        let stores_types = !self.reader.is_gguf() || self.stores(&self.weight_name(Role::TokenTypes, None));
        let has_types = self.names(Role::TokenTypes) && stores_types && self.sizes.token_types > 0;
        let has_positions = self.names(Role::Positions) && self.reader.has_positions()?;
        let positions = has_positions.then(|| self.matrix(Role::Positions, None)).transpose()?;
        let projects = self.sizes.embedding != self.sizes.hidden;
        let token_types = has_types.then(|| self.row_or_matrix(Role::TokenTypes, None)).transpose()?;
        let rows = |linear: LinearWeights| LinearWeights::new(linear.weight);
        let first = self.sizes.first_position;
        Ok(Some(Box::new(InputWeights {
            positions: positions.map(|positions| PositionWeights { rows: rows(positions), first }),
            token_types: token_types.map(rows),
            projection: projects.then(|| self.matrix(Role::EmbeddingProjection, None)).transpose()?,
            norm: self.norm_if_named(Role::EmbeddingNorm, None)?,
            distances: self.names(Role::Distances).then(|| self.distances()).transpose()?,
            relative: self.relative_positions()?,
        })))
    }
}

impl Tensors<'_> {
    /// The numbers that scores have by distance, as one vector.
    fn distances(&mut self) -> Result<TensorInfo> {
        let (buckets, heads, _) = self.shape(Role::Distances, None);
        let name = self.weight_name(Role::Distances, None);
        let stored = self.floats(Role::Distances, None, &name, &[buckets, heads])?;
        Ok(TensorInfo { shape: vec![buckets * heads], ..stored })
    }
}

impl Reader<'_> {
    /// The row of a text's first token, where positions are rows of a matrix (transformers'
    /// `create_position_ids_from_input_ids`).
    pub(super) fn first_position(&self) -> Result<usize> {
        let Some((key, default, why)) = self.family.head.padding.filter(|_| !self.is_gguf()) else { return Ok(0) };
        let padding = match key {
            "" => default as u64,
            key => self.or_default(self.fields().unsigned(key)?, key, (default as u64, why)),
        };
        let wrong = || self.value(key, "a larger number", "the id of a token".into());
        Ok(1 + usize::try_from(padding).ok().filter(|id| *id < i32::MAX as usize).ok_or_else(wrong)?)
    }

    /// Elements of a row of the embedding of a model as wide as `hidden`.
    pub(super) fn embedding_width(&self, hidden: usize) -> Result<usize> {
        let Some(key) = self.family.head.embedding_width.filter(|_| !self.is_gguf()) else { return Ok(hidden) };
        Ok(self.size(Key::config(key))?.unwrap_or(hidden))
    }

    /// Whether positions are rows of a matrix.
    fn has_positions(&self) -> Result<bool> {
        let Some(flag) = self.family.head.positions_flag.filter(|_| !self.is_gguf()) else { return Ok(true) };
        Ok(self.or_absent(self.flag(flag)?, true, "positions added to embeddings", flag, &self.class_default()))
    }

    /// The number of token types that have a row of their own; 0 where the family has none.
    pub(super) fn token_types(&self) -> Result<usize> {
        let Some((key, default, why)) = self.family.head.token_types else { return Ok(0) };
        match self.fields().unsigned(&self.key(key))? {
            Some(0) if !self.is_gguf() => Ok(0),
            None if self.is_gguf() => self.present(key, None),
            None => Ok(self.or_default(None, key.config, (default, why))),
            Some(types) => self.bounded(&self.key(key), types),
        }
    }
}

impl ModelSpec {
    /// Elements of the vector of a text.
    pub fn vector_width(&self) -> usize {
        let pooled = || self.hidden * self.embeds.by().map_or(1, |by| by.pooling.len());
        self.weights.dense.last().map_or_else(pooled, |layer| layer.linear.weight.shape[0] as usize)
    }
}

impl Embeds {
    /// Reads what the files say about embedding texts.
    ///
    /// # Errors
    /// `Format` for a known key of another type, or of an unknown value.
    pub(super) fn read(reader: &Reader<'_>) -> Result<Embeds> {
        match &reader.header.metadata {
            Metadata::Gguf(metadata) => of_gguf(metadata, reader),
            Metadata::Config(files) => of_folder(files),
        }
    }

    /// How vectors are computed, where the files say it.
    pub fn by(&self) -> Option<&EmbeddingSpec> {
        if let Embeds::By(by) = self { Some(by) } else { None }
    }
}

impl TextLimit {
    /// The limit in `header`, of a model that embeds or, as `classifies` says, scores labels: sentence-transformers'
    /// key, else the tokenizer's.
    pub(super) fn read(header: &Header, classifies: bool) -> Result<Option<TextLimit>> {
        let Metadata::Config(files) = &header.metadata else { return Ok(None) };
        let sentences = files.sentence_transformers.as_ref();
        let of_model = sentences.and_then(|sentences| sentences.transformer.as_ref());
        let of_tokenizer = files.tokenizer_config.as_ref().filter(|_| classifies || sentences.is_some());
        for (file, key) in [(of_model, "max_seq_length"), (of_tokenizer, "model_max_length")] {
            // transformers writes 1e30 where there is no limit.
            let Some((file, tokens)) = file.and_then(|file| Some((file, file.number(key).transpose()?))) else {
                continue;
            };
            match tokens? {
                tokens if tokens >= 1.0 => return Ok(Some(TextLimit { tokens: tokens as usize, key })),
                tokens if key == "max_seq_length" => {
                    return Err(Error::key_value(file.file(), key, tokens.to_string(), "a positive number"));
                }
                // A tokenizer's 0 or -1 means no limit.
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Reads llama.cpp's `llama_pooling_type`.
fn of_gguf(metadata: &GgufMetadata, reader: &Reader<'_>) -> Result<Embeds> {
    let source = reader.gguf_key(".pooling_type");
    let pooling = match metadata.unsigned(&source)? {
        None | Some(0) => return Ok(Embeds::NotSaid),
        Some(1) => Pooling::Mean,
        Some(2) => Pooling::Cls,
        Some(3) => Pooling::Last,
        Some(4) => return Ok(Embeds::Unsupported { what: "scores of documents in place of vectors".into(), source }),
        Some(other) => return Err(Error::key_value(metadata.file(), &source, other.to_string(), "0 to 4")),
    };
    reader.assume("vectors of texts are brought to length one: GGUF has no key for it (llama.cpp's default)");
    Ok(Embeds::By(Box::new(EmbeddingSpec {
        pooling: vec![pooling],
        normalize: true,
        prompts: BTreeMap::new(),
        default_prompt: None,
        include_prompt: true,
        source,
    })))
}

/// Reads the files of sentence-transformers.
fn of_folder(files: &ConfigFiles) -> Result<Embeds> {
    let Some(SentenceFiles { modules, pooling, dense, config, transformer, .. }) = &files.sentence_transformers else {
        return Ok(Embeds::NotSaid);
    };
    let unsupported = |what: String, source: &str| Ok(Embeds::Unsupported { what, source: source.into() });
    let kinds: Vec<&str> = modules.iter().map(Module::kind).collect();
    let (kinds, normalize) = match kinds.as_slice() {
        [kinds @ .., "Normalize"] => (kinds, true),
        kinds => (kinds, false),
    };
    match kinds {
        ["Transformer"] if !normalize => return Ok(Embeds::NotSaid),
        ["Transformer", "Pooling", dense @ ..] if dense.iter().all(|kind| *kind == "Dense") => {}
        _ => {
            let kinds: Vec<&str> = modules.iter().map(Module::kind).collect();
            return unsupported(format!("the modules {}", kinds.join(", ")), "modules.json");
        }
    }
    for (folder, config) in dense {
        if let Some(what) = dense::unsupported(config)? {
            return unsupported(what, &format!("{folder}/config.json"));
        }
    }
    if dense.len() + 2 + usize::from(normalize) != modules.len() {
        return unsupported("a dense layer without config.json".into(), "modules.json");
    }
    let Some((source, pooling)) = pooling else { return Ok(Embeds::NotSaid) };
    let mut modes = Vec::new();
    for mode in pooling_mode(pooling)? {
        match Pooling::named(mode) {
            Some(mode) => modes.push(mode),
            None => return unsupported(format!("the pooling {mode}"), source),
        }
    }
    let mut prompts = BTreeMap::new();
    let named = config.as_ref().map_or(Ok(None), |config| config.section("prompts"))?;
    for name in named.iter().flat_map(|named| named.object().keys()) {
        let prompt = named.as_ref().map_or(Ok(None), |named| named.text(name))?;
        prompts.insert(name.clone(), prompt.unwrap_or_default().to_owned());
    }
    let default_prompt = config.as_ref().map_or(Ok(None), |config| config.text("default_prompt_name"))?;
    if let (Some(config), Some(name)) = (config, default_prompt.filter(|name| !prompts.contains_key(*name))) {
        let expected = "the name of one of its prompts";
        return Err(Error::key_value(config.file(), "default_prompt_name", format!("{name:?}"), expected));
    }
    if let Some(transformer) = transformer {
        // This changes nothing before a tokenizer that lowercases anyway, like that of BERT's uncased models.
        let lowers = files.tokenizer_config.as_ref().map_or(Ok(None), |config| config.boolean("do_lower_case"))?;
        if transformer.boolean("do_lower_case")? == Some(true) && lowers != Some(true) {
            return unsupported("texts in small letters before they are tokenized".into(), "sentence_bert_config.json");
        }
    }
    Ok(Embeds::By(Box::new(EmbeddingSpec {
        pooling: modes,
        normalize,
        prompts,
        default_prompt: default_prompt.map(str::to_owned),
        include_prompt: pooling.boolean("include_prompt")?.unwrap_or(true),
        source: source.clone(),
    })))
}

/// The most poolings of a model: sentence-transformers has so many.
const MOST_POOLINGS: usize = 6;

/// The pooling modes by their names in sentence-transformers 6; earlier versions have a flag for each.
fn pooling_mode(pooling: &JsonFile) -> Result<Vec<&str>> {
    const FLAGS: [(&str, &str); MOST_POOLINGS] = [
        ("pooling_mode_cls_token", "cls"),
        ("pooling_mode_max_tokens", "max"),
        ("pooling_mode_mean_tokens", "mean"),
        ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
        ("pooling_mode_weightedmean_tokens", "weightedmean"),
        ("pooling_mode_lasttoken", "lasttoken"),
    ];
    let wrong =
        |found: &str| Error::key_value(pooling.file(), "pooling_mode", found, "a name or a list of up to 6 names");
    match pooling.object().get("pooling_mode").filter(|mode| !mode.is_null()) {
        Some(Value::String(mode)) => Ok(vec![mode]),
        Some(Value::Array(modes)) if modes.is_empty() || modes.len() > MOST_POOLINGS => {
            Err(wrong(&format!("{} names", modes.len())))
        }
        Some(Value::Array(modes)) => modes.iter().map(|mode| mode.as_str().ok_or_else(|| wrong("no names"))).collect(),
        Some(other) => Err(wrong(&other.to_string())),
        None => {
            let set = |(flag, mode): (&str, &'static str)| Ok((pooling.boolean(flag)? == Some(true)).then_some(mode));
            let modes = FLAGS.map(set).into_iter().collect::<Result<Vec<_>>>()?;
            let modes: Vec<_> = modes.into_iter().flatten().collect();
            let needed_for = "without it nothing says which of the tokens' vectors make that of the text";
            if modes.is_empty() {
                Err(Error::key_missing(pooling.file(), "pooling_mode", needed_for))
            } else {
                Ok(modes)
            }
        }
    }
}
