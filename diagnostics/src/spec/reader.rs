//! The metadata of one model, by the keys of its architecture.

use super::{Sizes, unsupported};
use crate::error::{ArchitectureErrorKind, Error, IncompleteKind, Result};
use crate::family::{Family, Key, Role};
use crate::header::config::{JsonFile, JsonObject, Section};
use crate::header::gguf::GgufMetadata;
use crate::header::{Fields, Header, Metadata};
use crate::source::sidecar;

/// The metadata of one model with the prefix of its architecture.
pub(super) struct Reader<'a> {
    pub(super) fields: &'a dyn Fields,
    pub(super) architecture: String,
    /// `config.json`, where the model has one.
    pub(super) config: Option<Section<'a>>,
    gguf: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(header: &'a Header) -> Result<Self> {
        match &header.metadata {
            Metadata::Gguf(metadata) => {
                refuse_other_types(metadata)?;
                let architecture = metadata.text("general.architecture")?.ok_or_else(|| {
                    missing(metadata, "general.architecture", "without it the kind of model is unknown")
                })?;
                Ok(Reader { fields: metadata, architecture: architecture.to_owned(), config: None, gguf: true })
            }
            Metadata::Config(files) => {
                let config = &files.config;
                let architecture = match (class(config)?, config.text("model_type")?) {
                    (Some(class), _) => class,
                    (None, Some(model_type)) => model_type,
                    (None, None) => {
                        return Err(missing(config, "model_type", "without it the kind of model is unknown"));
                    }
                };
                let architecture = architecture.to_owned();
                Ok(Reader { fields: config, architecture, config: Some(config.whole()), gguf: false })
            }
        }
    }

    /// The family whose table names this architecture. In `config.json` the class and the model type must agree.
    pub(super) fn family(&self, families: &[&'static Family]) -> Result<&'static Family> {
        let model_type = if self.gguf { None } else { self.fields.text("model_type")? };
        let named = |family: &&&'static Family| {
            if self.gguf {
                return family.gguf_architectures.contains(&self.architecture.as_str());
            }
            let class = family.classes.contains(&self.architecture.as_str());
            let kind = model_type.map(|kind| family.model_types.contains(&kind));
            match kind {
                Some(kind) => kind && (class || self.architecture == model_type.unwrap_or_default()),
                None => class,
            }
        };
        if let Some(family) = families.iter().find(named) {
            return Ok(family);
        }
        let supported = families
            .iter()
            .flat_map(|family| if self.gguf { family.gguf_architectures.iter() } else { family.classes.iter() });
        let found = match model_type {
            Some(kind) if kind != self.architecture => format!("{} (model_type {kind})", self.architecture),
            _ => self.architecture.clone(),
        };
        Err(Error::Architecture {
            file: self.fields.file().into(),
            kind: ArchitectureErrorKind::Unknown {
                found,
                supported: supported.copied().collect::<Vec<_>>().join(", "),
                hint: unsupported::hint(self.fields, self.gguf, &self.architecture, model_type),
            },
        })
    }

    /// The key in this format, prefix applied.
    pub(super) fn key(&self, key: Key) -> String {
        match (self.gguf, key.gguf.strip_prefix('.')) {
            (true, Some(suffix)) => format!("{}.{suffix}", self.architecture),
            (true, None) => key.gguf.to_owned(),
            (false, _) => key.config.to_owned(),
        }
    }

    /// Whether `config.json` says that there is none.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.config.and_then(|config| config.object().get(key)).is_some_and(serde_json::Value::is_null)
    }

    pub(super) fn is_gguf(&self) -> bool {
        self.gguf
    }

    pub(super) fn sizes(&self, family: &Family, header: &Header, assumptions: &mut Vec<String>) -> Result<Sizes> {
        let keys = &family.keys;
        let present = |key: Key, size: Option<usize>| {
            size.ok_or_else(|| missing(self.fields, &self.key(key), "a size is never guessed from tensor shapes"))
        };
        let require = |key: Key| present(key, self.size(key)?);
        let hidden = require(keys.hidden)?;
        let layers = require(keys.layers)?;
        let heads = present(keys.heads, self.size_a_layer(keys.heads, header, layers)?)?;
        let kv_heads = match self.size_a_layer(keys.kv_heads, header, layers)? {
            Some(kv_heads) => kv_heads,
            None => {
                assumptions.push(format!(
                    "kv_heads = heads = {heads}: {} is absent (transformers and llama.cpp default)",
                    self.key(keys.kv_heads)
                ));
                heads
            }
        };
        if !heads.is_multiple_of(kv_heads) {
            let (one, other) = (self.key(keys.heads), self.key(keys.kv_heads));
            return Err(
                self.contradiction(format!("{one} is {heads}"), format!("{other} is {kv_heads}, no divisor of it"))
            );
        }
        let head_dim = match self.size(keys.head_dim)? {
            Some(head_dim) => head_dim,
            None if hidden.is_multiple_of(heads) => {
                let key = self.key(keys.head_dim);
                assumptions.push(format!(
                    "head_dim = width / heads = {}: {key} is absent (transformers and llama.cpp default)",
                    hidden / heads
                ));
                hidden / heads
            }
            None => {
                let (one, other, absent) = (self.key(keys.hidden), self.key(keys.heads), self.key(keys.head_dim));
                return Err(self.contradiction(
                    format!("{one} is {hidden} and {absent} is absent"),
                    format!("{other} is {heads}, no divisor of it"),
                ));
            }
        };
        self.refuse_other_values(head_dim)?;
        let vocab = match (self.size(keys.vocab)?, &header.metadata) {
            (Some(vocab), _) => vocab,
            (None, Metadata::Gguf(metadata)) => {
                let tokens = metadata.strings("tokenizer.ggml.tokens")?.map(|tokens| tokens.len()).unwrap_or(0);
                let key = self.key(keys.vocab);
                if tokens == 0 {
                    return Err(missing(self.fields, &key, "and tokenizer.ggml.tokens is empty too"));
                }
                assumptions.push(format!(
                    "vocabulary = entries of tokenizer.ggml.tokens = {tokens}: {key} is absent (llama.cpp default)"
                ));
                tokens
            }
            (None, Metadata::Config(_)) => require(keys.vocab)?,
        };
        Ok(Sizes {
            hidden,
            heads,
            kv_heads,
            head_dim,
            vocab,
            layers,
            feed_forward: present(keys.feed_forward, self.size_a_layer(keys.feed_forward, header, layers)?)?,
            context: require(keys.context)?,
            whole_head_norms: family.whole_head_norms,
        })
    }

    /// A size between 1 and 2^31 - 1.
    fn size(&self, key: Key) -> Result<Option<usize>> {
        let name = self.key(key);
        let Some(value) = self.fields.unsigned(&name)? else { return Ok(None) };
        self.bounded(&name, value).map(Some)
    }

    /// As [`size`](Self::size), or in GGUF an array with that one number for each of the `layers`.
    fn size_a_layer(&self, key: Key, header: &Header, layers: usize) -> Result<Option<usize>> {
        let name = self.key(key);
        let Metadata::Gguf(metadata) = &header.metadata else { return self.size(key) };
        let Some(count) = metadata.array_len(&name) else { return self.size(key) };
        if count != layers {
            return Err(
                self.contradiction(format!("the model has {layers} layers"), format!("{name} has {count} entries"))
            );
        }
        let values = metadata.integers(&name)?.unwrap_or_default();
        match values.first() {
            Some(first) if values.iter().all(|value| value == first) => self.bounded(&name, *first).map(Some),
            _ => Err(self.feature("a number that differs between layers", &name, "one number for all layers")),
        }
    }

    fn bounded<T: TryInto<i32> + ToString + Copy>(&self, name: &str, value: T) -> Result<usize> {
        match value.try_into() {
            Ok(value) if value > 0 => Ok(value as usize),
            _ => Err(self.value(name, value, "a number between 1 and 2147483647".into())),
        }
    }

    /// In GGUF the values of a head could be longer or shorter than its keys.
    fn refuse_other_values(&self, head_dim: usize) -> Result<()> {
        if !self.gguf {
            return Ok(());
        }
        let key = self.key(Key { gguf: ".attention.value_length", config: "" });
        match self.fields.unsigned(&key)? {
            Some(length) if length != head_dim as u64 => {
                let feature = format!("values of {length} elements a head beside keys of {head_dim}");
                Err(self.feature(&feature, &key, "keys and values of one length"))
            }
            _ => Ok(()),
        }
    }

    /// What every norm adds to the mean square or the variance.
    pub(super) fn norm_eps(&self, family: &Family) -> Result<f64> {
        let key = self.key(family.keys.norm_eps);
        let eps = self.fields.number(&key)?;
        let eps = eps.ok_or_else(|| missing(self.fields, &key, "the norm's epsilon is never guessed"))?;
        if !(eps > 0.0 && eps < 1.0) {
            return Err(self.value(&key, eps, "a number between 0 and 1".into()));
        }
        Ok(eps)
    }

    pub(super) fn check_activation(&self, family: &Family, assumptions: &mut Vec<String>) -> Result<()> {
        let (_, names) = family.activation;
        if !self.gguf {
            // Gemma's own key comes before the common one.
            let key = if self.fields.has("hidden_activation") { "hidden_activation" } else { "hidden_act" };
            match self.fields.text(key)? {
                Some(name) if names.contains(&name) => {}
                Some(name) => {
                    return Err(self.feature(&format!("activation {name}"), key, names[0]));
                }
                None => assumptions.push(format!(
                    "activation {}: hidden_act is absent (the default of transformers' {})",
                    names[0], self.architecture
                )),
            }
        }
        Ok(())
    }

    /// A model with experts is not the dense block, whatever its architecture is called.
    pub(super) fn refuse_experts(&self) -> Result<()> {
        let key = self.key(Key { gguf: ".expert_count", config: "num_local_experts" });
        match self.fields.unsigned(&key)? {
            Some(experts) if experts > 0 => {
                Err(self.feature(&format!("a mixture of {experts} experts"), &key, "dense models"))
            }
            _ => Ok(()),
        }
    }

    /// Flags that would change the block.
    pub(super) fn refuse_flags(&self, family: &Family) -> Result<()> {
        if self.gguf {
            let causal = self.key(Key { gguf: ".attention.causal", config: "" });
            return match self.fields.boolean(&causal)? {
                Some(false) => Err(self.feature("attention to later positions", &causal, "true")),
                _ => Ok(()),
            };
        }
        for (flag, feature) in family.refused_flags {
            if self.fields.boolean(flag)? == Some(true) {
                return Err(self.feature(feature, flag, "false"));
            }
        }
        Ok(())
    }

    /// Flags of `config.json` that decide on biases and are absent.
    pub(super) fn note_absent_flags(&self, family: &Family, assumptions: &mut Vec<String>) -> Result<()> {
        let mut flags: Vec<&str> = Vec::new();
        for (_, bias) in family.biases {
            if let crate::family::Bias::Flag(flag) = bias
                && !self.gguf
                && !flags.contains(flag)
                && self.fields.boolean(flag)?.is_none()
            {
                flags.push(flag);
            }
        }
        if !flags.is_empty() {
            let (flags, class) = (flags.join(" and "), &self.architecture);
            assumptions.push(format!("no biases: {flags} absent (the default of transformers' {class})"));
        }
        Ok(())
    }

    /// In GGUF an absent head is tied; in `config.json` the flag decides.
    pub(super) fn tied(&self, family: &Family, header: &Header, assumptions: &mut Vec<String>) -> Result<bool> {
        let head = family.tensors.iter().copied().flatten().find(|name| name.role == Role::Head);
        if self.gguf {
            let stored = head.is_some_and(|name| header.tensors.contains_key(&format!("{}.weight", name.gguf)));
            return Ok(!stored);
        }
        Ok(match self.fields.boolean("tie_word_embeddings")? {
            Some(tied) => tied,
            None => {
                let (tied, why) = family.default_tied;
                assumptions.push(format!("tied embeddings {tied}: tie_word_embeddings is absent ({why})"));
                tied
            }
        })
    }

    pub(super) fn feature(&self, feature: &str, key: &str, expected: &str) -> Error {
        Error::Architecture {
            file: self.fields.file().into(),
            kind: ArchitectureErrorKind::Feature {
                feature: feature.to_owned(),
                key: key.to_owned(),
                expected: expected.to_owned(),
            },
        }
    }

    pub(super) fn value(&self, key: &str, found: impl ToString, expected: String) -> Error {
        Error::key_value(self.fields.file(), key, found.to_string(), expected)
    }

    pub(super) fn contradiction(&self, one: String, other: String) -> Error {
        Error::incomplete(self.fields.file(), IncompleteKind::Contradiction { one, other })
    }
}

/// What a GGUF file says that it is, wherever the key stands; the probe has looked at the first keys alone.
fn refuse_other_types(metadata: &GgufMetadata) -> Result<()> {
    const KEY: &str = "general.type";
    match metadata.text(KEY)? {
        None | Some("model") => Ok(()),
        Some(kind) => match sidecar::refusal(metadata.file(), Some(kind), None) {
            Some(error) => Err(error),
            None => Err(Error::key_value(metadata.file(), KEY, format!("{kind:?}"), "model")),
        },
    }
}

/// The first of the `architectures` in `config.json`.
fn class(config: &JsonFile) -> Result<Option<&str>> {
    let Some(classes) = config.whole().strings("architectures")? else { return Ok(None) };
    Ok(classes.collect::<Result<Vec<_>>>()?.first().copied())
}

pub(super) fn missing(fields: &dyn Fields, key: &str, needed_for: &'static str) -> Error {
    Error::key_missing(fields.file(), key, needed_for)
}
