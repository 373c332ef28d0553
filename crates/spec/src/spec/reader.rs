//! The metadata of one model, read by the keys of its family.

use super::names::fill;
use super::{Sizes, unsupported};
use crate::error::{ArchitectureErrorKind, Error, IncompleteKind, Result};
use crate::family::{Bias, Family, GateWidth, Key, LLAMA_LIKE, Role, StateLayers, StateTable, TensorName};
use crate::header::config::{JsonFile, JsonObject, Section};
use crate::header::gguf::GgufMetadata;
use crate::header::{Fields, Header, Metadata};
use crate::source;
use serde_json::Value;
use std::cell::RefCell;
use std::fmt::Display;

/// Supported architectures that a refusal names.
const NAMED_IN_REFUSALS: usize = 8;

/// The metadata of one model, and the family whose table says how to read it.
pub(super) struct Reader<'a> {
    pub(super) header: &'a Header,
    pub(super) family: &'static Family,
    pub(super) architecture: String,
    /// The `model_type` of `config.json`, or of the language model in it.
    pub(super) model_type: Option<String>,
    /// The keys of `config.json`, if the model has one, or the section of the language model in it.
    pub(super) config: Option<Section<'a>>,
    /// The keys of the file that a GGUF model's vision tower is in, where these are read.
    pub(super) projector: Option<&'a GgufMetadata>,
    /// Defaults and derived values that were used, each with its reason.
    pub(super) assumptions: RefCell<Vec<String>>,
}

impl Key {
    /// The key of a quantity that there is none of.
    pub const NONE: Key = Key::gguf("");

    /// The key of a quantity that only GGUF has.
    pub const fn gguf(gguf: &'static str) -> Key {
        Key { gguf, config: "" }
    }

    /// The key of a quantity that only `config.json` has.
    pub const fn config(config: &'static str) -> Key {
        Key { gguf: "", config }
    }
}

/// The section of a multimodal model's `config.json` for its language model.
const TEXT_CONFIG: &str = "text_config";

/// The suffix of the class of a model with a classification head.
pub(super) const CLASSIFIES: &str = "ForSequenceClassification";

impl<'a> Reader<'a> {
    /// Reads which kind of model it is, and finds its family among `families`.
    pub(super) fn new(header: &'a Header, families: &[&'static Family]) -> Result<Self> {
        const UNKNOWN: &str = "without it the kind of model is unknown";
        let (architecture, model_type, config) = match &header.metadata {
            Metadata::Gguf(metadata) => {
                const KEY: &str = "general.architecture";
                refuse_other_types(metadata)?;
                let architecture = metadata.text(KEY)?.ok_or_else(|| missing(metadata, KEY, UNKNOWN))?;
                (architecture, None, None)
            }
            Metadata::Config(files) => {
                let config = &files.config;
                let model_type = config.text("model_type")?;
                let named = class(config)?.or(model_type).ok_or_else(|| missing(config, "model_type", UNKNOWN))?;
                (named, model_type, Some(config.whole()))
            }
        };
        let (architecture, model_type) = (architecture.to_owned(), model_type.map(str::to_owned));
        let (family, assumptions) = (&LLAMA_LIKE, RefCell::default());
        let mut reader = Reader { header, family, architecture, model_type, config, projector: None, assumptions };
        reader.find_family(families)?;
        Ok(reader)
    }

    pub(super) fn fields(&self) -> &dyn Fields {
        match (&self.config, &self.header.metadata) {
            (Some(config), _) => config,
            (None, Metadata::Gguf(metadata)) => self.projector.unwrap_or(metadata),
            (None, Metadata::Config(files)) => &files.config,
        }
    }

    pub(super) fn gguf(&self) -> Option<&'a GgufMetadata> {
        let own = if let Metadata::Gguf(metadata) = &self.header.metadata { Some(metadata) } else { None };
        self.projector.or(own)
    }

    pub(super) fn is_gguf(&self) -> bool {
        self.gguf().is_some()
    }

    /// Notes a default or a derived value that was used, with its reason.
    pub(super) fn assume(&self, what: impl Into<String>) {
        self.assumptions.borrow_mut().push(what.into());
    }

    /// The value stored under `key`, or the default, which is noted with its source.
    pub(super) fn or_default<T: Display>(&self, stored: Option<T>, key: &str, default: (T, &str)) -> T {
        stored.unwrap_or_else(|| {
            let (value, why) = default;
            self.assume(format!("{key} {value}: it is absent ({why})"));
            value
        })
    }

    /// The value stored under `key`, or the default, whose meaning is noted with its source.
    pub(super) fn or_absent<T>(&self, stored: Option<T>, default: T, what: impl Display, key: &str, why: &str) -> T {
        stored.unwrap_or_else(|| {
            self.assume(match key {
                "" => format!("{what} ({why})"),
                key => format!("{what}: {key} is absent ({why})"),
            });
            default
        })
    }

    /// The source of a default of transformers.
    pub(super) fn class_default(&self) -> String {
        format!("the default of transformers' {}", self.architecture)
    }

    /// Sets the family whose table names this architecture. In `config.json` the class and the model type must agree.
    /// For a multimodal model the keys are those of its language model from here on.
    fn find_family(&mut self, families: &[&'static Family]) -> Result<()> {
        if let Some((family, text)) = self.language_model(families)? {
            self.model_type = text.text("model_type")?.map(str::to_owned);
            self.config = Some(text);
            self.family = family;
            return Ok(());
        }
        let architecture = self.architecture.as_str();
        // Mixtral is a Llama with experts in GGUF.
        let routed = self.gguf_experts()? > 0;
        let of_architecture =
            |family: &&&'static Family| self.is_gguf() && family.gguf_architectures.contains(&architecture);
        let named = |family: &&&'static Family| {
            let of_type = |(kind, classes): &(&str, &[&str])| {
                let known = || classes.iter().any(|class| is_class(architecture, class, family));
                match self.model_type.as_deref() {
                    Some(model_type) => model_type == *kind && (architecture == *kind || known()),
                    None => known(),
                }
            };
            match self.is_gguf() {
                true => of_architecture(family) && family.experts.is_some() == routed,
                false => family.model_types.iter().any(of_type),
            }
        };
        if let Some(family) = families.iter().find(named).or_else(|| families.iter().find(of_architecture)) {
            self.family = family;
            return Ok(());
        }
        let supported: Vec<&str> = match self.is_gguf() {
            true => families.iter().flat_map(|family| family.gguf_architectures).copied().collect(),
            false => {
                let types = families.iter().flat_map(|family| family.model_types);
                types.filter_map(|(_, classes)| classes.first()).copied().collect()
            }
        };
        let found = match self.model_type.as_deref() {
            Some(kind) if kind != self.architecture => format!("{} (model_type {kind})", self.architecture),
            _ => self.architecture.clone(),
        };
        let hint = unsupported::hint(self);
        let mut named = supported[..supported.len().min(NAMED_IN_REFUSALS)].join(", ");
        if supported.len() > NAMED_IN_REFUSALS {
            named.push_str(" and others (docs/families.md)");
        }
        let kind = ArchitectureErrorKind::Unknown { found, supported: named, hint };
        Err(Error::Architecture { file: self.fields().file().into(), kind })
    }

    /// The family of the language model in a multimodal model, and its keys.
    fn language_model(&self, families: &[&'static Family]) -> Result<Option<(&'static Family, Section<'a>)>> {
        let Some(config) = self.config else { return Ok(None) };
        let Some(text) = config.of(TEXT_CONFIG)? else { return Ok(None) };
        let Some(kind) = text.text("model_type")?.map(str::to_owned) else { return Ok(None) };
        let is_wrapper = |(class, model_type): &(&str, &str)| {
            *class == self.architecture && self.model_type.as_deref().is_none_or(|kind| kind == *model_type)
        };
        let wraps = |family: &&&'static Family| {
            family.model_types.iter().any(|(known, _)| *known == kind) && family.wrappers.iter().any(is_wrapper)
        };
        Ok(families.iter().find(wraps).map(|family| (*family, text)))
    }

    /// The key in this format, with its prefix.
    pub(super) fn key(&self, key: Key) -> String {
        let name = |key: &str| match key.strip_prefix('.').filter(|_| self.is_gguf()) {
            Some(suffix) => format!("{}.{suffix}", self.architecture),
            None => key.to_owned(),
        };
        let (key, has) =
            (if self.is_gguf() { key.gguf } else { key.config }, |key: &str| self.fields().has(&name(key)));
        let other = |(known, other): &&(&str, &str)| *known == key && !has(known) && has(other);
        name(self.family.files.aliases.iter().find(other).map_or(key, |alias| alias.1))
    }

    /// The key of a GGUF file, with its prefix.
    pub(super) fn gguf_key(&self, gguf: &'static str) -> String {
        self.key(Key::gguf(gguf))
    }

    /// The key of a GGUF file, with its prefix, and its whole number; `None` in `config.json`.
    pub(super) fn gguf_number(&self, gguf: &'static str) -> Result<(String, Option<u64>)> {
        let key = self.gguf_key(gguf);
        let number = self.gguf().map_or(Ok(None), |metadata| metadata.unsigned(&key))?;
        Ok((key, number))
    }

    /// The key of `config.json`, by the alias that the file uses.
    pub(super) fn config_key(&self, config: &'static str) -> String {
        self.key(Key::config(config))
    }

    /// A flag of `config.json`, by the alias that the file uses.
    pub(super) fn flag(&self, config: &'static str) -> Result<Option<bool>> {
        self.fields().boolean(&self.config_key(config))
    }

    /// Whether `config.json` has null for this key.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.config.and_then(|config| config.object().get(key)).is_some_and(serde_json::Value::is_null)
    }

    pub(super) fn sizes(&self) -> Result<Sizes> {
        const BOTH: &str = "transformers and llama.cpp default";
        let (family, keys) = (self.family, &self.family.files.keys);
        let first_position = self.first_position()?;
        // Values that may differ between kinds of layers are read by `kinds`; here the largest is used.
        let single = self.single_layers()?;
        let widths = match (&single, family.block.shared_layers) {
            (Some(_), _) => Differing::RefusedButZeros,
            (None, Some(_)) => Differing::Most,
            (None, None) if family.block.sizes_by_layer.is_some() => Differing::Most,
            (None, None) => Differing::Refused,
        };
        let kv_kinds = match (&family.block.full_attention, &family.block.states) {
            _ if family.block.sizes_by_layer.is_some() => Differing::Most,
            (Some(_), _) => Differing::Most,
            (None, Some(StateTable { layers: StateLayers::AllButEvery { .. } | StateLayers::Beside, .. }) | None) => {
                Differing::Refused
            }
            (None, Some(_)) => Differing::RefusedButZeros,
        };
        let hidden = self.size_or_table(keys.hidden)?;
        let blocks = match single {
            Some(single) => single.len(),
            None => self.size_or_table(keys.layers)?,
        };
        let (only_states, by_layer) = (self.only_states(), family.block.sizes_by_layer.is_some());
        let feed_forward = if only_states { Some(0) } else { self.size_of_layers(keys.feed_forward, blocks, widths)? };
        let heads = match only_states {
            true => 0,
            false => {
                let kinds = if by_layer { Differing::Most } else { kv_kinds.as_queries() };
                let stored = self.size_of_layers(keys.heads, blocks, kinds)?;
                self.present(keys.heads, self.or_table(keys.heads, stored)?)?
            }
        };
        let context = self.stored_context(first_position)?;
        let kv_heads = match self.multi_query()? {
            Some(single) => Some(if single { 1 } else { heads }),
            None if only_states => Some(0),
            None => self.or_table(keys.kv_heads, self.size_of_layers(keys.kv_heads, blocks, kv_kinds)?)?,
        };
        let head_dim = match only_states {
            true => Some(0),
            false => self.or_table(keys.head_dim, self.size(keys.head_dim)?)?,
        };
        let vocab = self.or_table(keys.vocab, self.size(keys.vocab)?)?;
        let feed_forward = match &family.files.adjusted_width {
            Some(rule) => self.adjusted_width(rule, feed_forward)?,
            None => feed_forward,
        };
        let stores_width = self.is_gguf() && keys.feed_forward != Key::NONE;
        let feed_forward = match family.files.width_factor.filter(|_| !stores_width) {
            Some((factor, source)) => {
                let width = hidden.saturating_mul(factor);
                let what = format_args!("feed-forward width = {factor} * width = {width}");
                self.or_absent(feed_forward, width, what, keys.feed_forward.config, source)
            }
            None => self.present(keys.feed_forward, self.or_table(keys.feed_forward, feed_forward)?)?,
        };
        let feed_forward = if family.files.width_is_double { feed_forward / 2 } else { feed_forward };
        let layers = self.without_predictors(blocks)?;
        let blocks = blocks + self.predictors_after()?;
        let latent = self.latent_sizes(hidden, heads, kv_heads)?;
        let (kv_heads, head_dim) = match latent {
            Some(latent) => (Some(1), latent.rank.checked_add(latent.rotated)),
            None => (kv_heads, head_dim),
        };
        let kv_heads = match self.key(keys.kv_heads) {
            key if key.is_empty() => kv_heads.unwrap_or(heads),
            key => self.or_absent(kv_heads, heads, format_args!("kv_heads = heads = {heads}"), &key, BOTH),
        };
        if !by_layer && !only_states {
            self.part(keys.kv_heads, kv_heads, keys.heads, heads)?;
        }
        let head_dim = match (head_dim, self.key(keys.head_dim)) {
            (Some(head_dim), _) => head_dim,
            (None, key) if key.is_empty() && hidden.is_multiple_of(heads) => hidden / heads,
            (None, key) if hidden.is_multiple_of(heads) => {
                let head_dim = hidden / heads;
                self.or_absent(None, head_dim, format_args!("head_dim = width / heads = {head_dim}"), &key, BOTH)
            }
            (None, absent) => {
                let one = format!("{} is {hidden} and {absent} is absent", self.key(keys.hidden));
                let other = format!("{} is {heads}, no divisor of it", self.key(keys.heads));
                return Err(self.contradiction(one, other));
            }
        };
        if latent.is_none() && !only_states {
            self.refuse_other_values(".attention.value_length", head_dim)?;
        }
        let vocab = self.stored_vocab(vocab)?;
        Ok(Sizes {
            hidden,
            embedding: self.embedding_width(hidden)?,
            heads,
            kv_heads,
            head_dim,
            vocab,
            layers,
            blocks,
            feed_forward,
            states: None,
            latent,
            experts: self.expert_sizes(feed_forward, blocks)?,
            gate: self.gate_width(heads)?,
            context,
            layer_embedding: self.layer_embedding_width(layers)?,
            layer_vocab: self.layer_vocab(vocab)?,
            streams: self.streams()?,
            laurel_rank: self.laurel_rank()?,
            token_types: self.token_types()?,
            first_position: first_position + family.head.first_position,
            relative_rows: 0,
            labels: 0,
        })
    }

    /// What a gate of attention's output is for, where it has a projection of its own.
    fn gate_width(&self, heads: usize) -> Result<Option<GateWidth>> {
        let Some(GateWidth::Keyed(key)) = self.family.block.attention_gate else {
            return Ok(self.family.block.attention_gate);
        };
        if self.is_gguf() {
            let name = self.family.name_of(Role::AttentionGate).map(|names| fill(names.gguf, Some(0)));
            let gate = name.and_then(|name| self.header.tensors.get(&format!("{name}.weight")));
            let wide = gate.and_then(|gate| gate.shape.first()).is_some_and(|rows| *rows > heads as u64);
            return Ok(Some(if wide { GateWidth::Element } else { GateWidth::Head }));
        }
        match self.config.and_then(|config| config.object().get(key)) {
            None => Ok(Some(self.or_absent(None, GateWidth::Head, "a gate for each head", key, &self.class_default()))),
            Some(Value::Bool(true)) => Ok(Some(GateWidth::Head)),
            Some(Value::String(kind)) if kind == "per-head" => Ok(Some(GateWidth::Head)),
            Some(Value::String(kind)) if kind == "per-element" => Ok(Some(GateWidth::Element)),
            Some(other) => Err(self.value(key, other, "true, per-head or per-element".into())),
        }
    }

    /// Whether there is one head of keys and values, where a flag of `config.json` says it.
    fn multi_query(&self) -> Result<Option<bool>> {
        let Some((flag, unless)) = self.family.files.multi_query.filter(|_| !self.is_gguf()) else { return Ok(None) };
        let fields = self.fields();
        if !unless.is_empty() && fields.boolean(unless)? == Some(true) {
            return Ok(None);
        }
        let what = "one head of keys and values";
        Ok(Some(self.or_absent(fields.boolean(flag)?, true, what, flag, &self.class_default())))
    }

    pub(super) fn present(&self, key: Key, size: Option<usize>) -> Result<usize> {
        let why = "a size is never guessed from tensor shapes";
        size.ok_or_else(|| missing(self.fields(), &self.path(&self.key(key)), why))
    }

    /// The default of a key in `config.json`, if the family's table has one.
    pub(super) fn default(&self, key: Key) -> Option<f64> {
        let files = &self.family.files;
        let mut defaults = files.defaults.iter().copied().flatten().filter(|_| !self.is_gguf());
        let (name, value) = *defaults.find(|(name, _)| *name == key.config)?;
        Some(self.or_default(None, name, (value, files.defaults_source)))
    }

    /// The stored size, or the default of the family's table.
    pub(super) fn or_table(&self, key: Key, size: Option<usize>) -> Result<Option<usize>> {
        match size {
            Some(size) => Ok(Some(size)),
            None => self.default(key).map(|size| self.bounded(key.config, size as u64)).transpose(),
        }
    }

    /// A size that the file or the family's table must give.
    pub(super) fn size_or_table(&self, key: Key) -> Result<usize> {
        self.present(key, self.or_table(key, self.size(key)?)?)
    }

    /// A size between 1 and 2^31 - 1.
    pub(super) fn size(&self, key: Key) -> Result<Option<usize>> {
        let name = self.key(key);
        self.fields().unsigned(&name)?.map(|value| self.bounded(&name, value)).transpose()
    }

    /// Like [`size`](Self::size), but in GGUF also an array that repeats one number for each of the `layers`.
    pub(super) fn size_a_layer(&self, key: Key, layers: usize) -> Result<Option<usize>> {
        self.size_of_layers(key, layers, Differing::Refused)
    }

    fn size_of_layers(&self, key: Key, layers: usize, differing: Differing) -> Result<Option<usize>> {
        let Some(mut values) = self.listed_numbers(key, layers)? else { return self.size(key) };
        let name = self.key(key);
        if matches!(differing, Differing::RefusedButZeros) {
            values.retain(|value| *value != 0);
        }
        match (values.iter().max(), values.iter().min()) {
            (None, _) | (_, None) => {
                Err(self.value(&name, 0, "a number between 1 and 2147483647 for one layer at least".into()))
            }
            (Some(most), Some(least)) if most == least || matches!(differing, Differing::Most) => {
                self.bounded(&name, *most).map(Some)
            }
            _ => Err(self.feature("a number that differs between layers", &name, "one number for all layers")),
        }
    }

    /// The sizes in an array that a GGUF file has in place of one number.
    pub(super) fn listed_sizes(&self, key: Key, layers: usize) -> Result<Option<Vec<usize>>> {
        let Some(values) = self.listed_numbers(key, layers)? else { return Ok(None) };
        let name = self.key(key);
        values.into_iter().map(|value| self.bounded(&name, value)).collect::<Result<_>>().map(Some)
    }

    pub(super) fn listed_numbers(&self, key: Key, layers: usize) -> Result<Option<Vec<i64>>> {
        let name = self.key(key);
        let Some(metadata) = self.gguf() else {
            let is_list = self.config.and_then(|config| config.object().get(&name)).is_some_and(Value::is_array);
            let listed = is_list && self.family.block.shared_layers.is_some();
            let sizes = if listed { self.listed(&name, "a whole number", Value::as_i64)? } else { None };
            return match sizes {
                Some(sizes) if sizes.len() != layers => Err(self.entries(&name, sizes.len(), layers)),
                sizes => Ok(sizes),
            };
        };
        match metadata.array_len(&name) {
            None => Ok(None),
            Some(count) if count != layers => Err(self.entries(&name, count, layers)),
            Some(_) => Ok(Some(metadata.integers(&name)?.unwrap_or_default())),
        }
    }

    pub(super) fn bounded<T: TryInto<i32> + ToString + Copy>(&self, name: &str, value: T) -> Result<usize> {
        match value.try_into() {
            Ok(value) if value > 0 => Ok(value as usize),
            _ => Err(self.value(name, value, "a number between 1 and 2147483647".into())),
        }
    }

    /// The number of experts by the key that is common to all architectures of GGUF.
    pub(super) fn gguf_experts(&self) -> Result<u64> {
        Ok(self.gguf_number(".expert_count")?.1.unwrap_or(0))
    }

    /// Whether `config.json` names a class without an output head (`Qwen3Model`), or a GGUF file gives the pooling of
    /// text embeddings and has no head: llama.cpp's converter leaves out the head of a reranker, and such a file looks
    /// the same as one whose head is its embedding.
    pub(super) fn is_base_model(&self) -> Result<bool> {
        if !self.is_gguf() {
            let has_head = self.architecture.ends_with("LMHeadModel");
            return Ok(!has_head && ["Model", CLASSIFIES].iter().any(|end| self.architecture.ends_with(end)));
        }
        let pools = self.gguf_number(".pooling_type")?.1.is_some_and(|pooling| pooling > 0);
        Ok(pools && !self.header.tensors.contains_key("output.weight"))
    }

    pub(super) fn note_absent_flags(&self) -> Result<()> {
        if self.is_gguf() {
            return Ok(());
        }
        let (mut none, mut some): (Vec<&str>, Vec<&str>) = Default::default();
        for (_, bias) in self.family.biases {
            let (flag, flags) = match bias {
                Bias::Flag(flag) => (flag, &mut none),
                Bias::UnlessFlag(flag) => (flag, &mut some),
                Bias::Always => continue,
            };
            if !flags.contains(flag) && self.flag(flag)?.is_none() {
                flags.push(flag);
            }
        }
        for (what, flags) in [("no biases", none), ("biases", some)] {
            if !flags.is_empty() {
                self.assume(format!("{what}: {} absent ({})", flags.join(" and "), self.class_default()));
            }
        }
        Ok(())
    }

    /// In GGUF an absent head is tied; in `config.json` the flag decides.
    pub(super) fn tied(&self) -> Result<bool> {
        let head = &self.family.head;
        let files = match &self.header.metadata {
            Metadata::Gguf(_) => {
                let stored = |name: &TensorName| self.header.tensors.contains_key(&format!("{}.weight", name.gguf));
                return Ok(!self.family.name_of(Role::Head).is_some_and(stored));
            }
            Metadata::Config(files) => files,
        };
        for key in head.tied_keys {
            if let Some(tied) = files.config.boolean(key)?.or(self.fields().boolean(key)?) {
                return Ok(tied);
            }
        }
        let (tied, why) = head.tied;
        let keys = head.tied_keys.join(" and ");
        Ok(self.or_absent(None, tied, format_args!("tied embeddings {tied}"), &keys, why))
    }

    /// The key with the section that it is in.
    pub(super) fn path(&self, key: &str) -> String {
        self.config.filter(|_| !key.contains('.')).map_or_else(|| key.to_owned(), |section| section.dotted(key))
    }

    pub(super) fn feature(&self, feature: &str, key: &str, expected: &str) -> Error {
        let (feature, key, expected) = (feature.to_owned(), self.path(key), expected.to_owned());
        let kind = ArchitectureErrorKind::Feature { feature, key, expected };
        Error::Architecture { file: self.fields().file().into(), kind }
    }

    pub(super) fn value(&self, key: &str, found: impl ToString, expected: String) -> Error {
        Error::key_value(self.fields().file(), &self.path(key), found.to_string(), expected)
    }

    pub(super) fn contradiction(&self, one: String, other: String) -> Error {
        Error::contradiction(self.fields().file(), one, other)
    }

    pub(super) fn absent_tensor(&self, name: &str, nearest: Vec<String>) -> Error {
        Error::incomplete(self.fields().file(), IncompleteKind::TensorMissing { name: name.into(), nearest })
    }

    /// The error for a list that should have an entry for each layer.
    pub(super) fn entries(&self, key: &str, count: usize, layers: usize) -> Error {
        self.contradiction(format!("the model has {layers} layers"), format!("{key} has {count} entries"))
    }
}

/// Whether `found` is the class `known` of a family's table, or its variant without a head or with one for labels.
fn is_class(found: &str, known: &str, family: &Family) -> bool {
    let other = |stem| match found.strip_prefix(stem) {
        Some("Model") => true,
        Some(CLASSIFIES) => family.head.classifier.is_some(),
        _ => false,
    };
    found == known || known.strip_suffix("ForCausalLM").is_some_and(other)
}

/// What to do with numbers that differ between layers.
#[derive(Clone, Copy)]
enum Differing {
    Refused,
    /// Refused, but zeros do not count.
    RefusedButZeros,
    Most,
}

impl Differing {
    /// The same of query heads: one number for all layers that have heads.
    fn as_queries(self) -> Differing {
        if matches!(self, Differing::RefusedButZeros) { self } else { Differing::Refused }
    }
}

/// Refuses a GGUF file by its type, wherever the key is; the probe has looked only at the first keys.
fn refuse_other_types(metadata: &GgufMetadata) -> Result<()> {
    const KEY: &str = "general.type";
    match metadata.text(KEY)? {
        None | Some("model") => Ok(()),
        Some(kind) => Err(source::refusal(metadata.file(), Some(kind), None)
            .unwrap_or_else(|| Error::key_value(metadata.file(), KEY, format!("{kind:?}"), "model"))),
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
