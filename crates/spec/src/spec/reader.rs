//! The metadata of one model, by the keys of its architecture.

use super::{Sizes, unsupported};
use crate::error::{ArchitectureErrorKind, Error, IncompleteKind, Result};
use crate::family::{Bias, Family, Key, Role, StateLayers, StateTable};
use crate::header::config::{JsonFile, JsonObject, Section};
use crate::header::gguf::GgufMetadata;
use crate::header::{Fields, Header, Metadata};
use crate::source;

/// The metadata of one model with the prefix of its architecture.
pub(super) struct Reader<'a> {
    pub(super) architecture: String,
    model_type: Option<String>,
    metadata: Source<'a>,
    /// Other names of keys in `config.json`.
    aliases: &'static [(&'static str, &'static str)],
}

/// Where the keys are.
enum Source<'a> {
    Gguf(&'a GgufMetadata),
    /// All of `config.json`, or what it says of the language model in it.
    Config(Section<'a>),
}

/// What `config.json` of a model that also sees or hears says of its language model.
const TEXT_CONFIG: &str = "text_config";

/// What the class of a model with a classification head ends in.
pub(super) const CLASSIFIES: &str = "ForSequenceClassification";

impl<'a> Reader<'a> {
    pub(super) fn new(header: &'a Header) -> Result<Self> {
        match &header.metadata {
            Metadata::Gguf(metadata) => {
                refuse_other_types(metadata)?;
                let architecture = metadata.text("general.architecture")?.ok_or_else(|| {
                    missing(metadata, "general.architecture", "without it the kind of model is unknown")
                })?;
                let architecture = architecture.to_owned();
                Ok(Reader { architecture, model_type: None, metadata: Source::Gguf(metadata), aliases: &[] })
            }
            Metadata::Config(files) => {
                let config = &files.config;
                let model_type = config.text("model_type")?.map(str::to_owned);
                let architecture = match (class(config)?, &model_type) {
                    (Some(class), _) => class.to_owned(),
                    (None, Some(model_type)) => model_type.clone(),
                    (None, None) => {
                        return Err(missing(config, "model_type", "without it the kind of model is unknown"));
                    }
                };
                Ok(Reader { architecture, model_type, metadata: Source::Config(config.whole()), aliases: &[] })
            }
        }
    }

    /// The keys.
    pub(super) fn fields(&self) -> &dyn Fields {
        match &self.metadata {
            Source::Gguf(metadata) => *metadata,
            Source::Config(config) => config,
        }
    }

    /// The keys of `config.json`, where the model has one.
    pub(super) fn config(&self) -> Option<&Section<'a>> {
        match &self.metadata {
            Source::Gguf(_) => None,
            Source::Config(config) => Some(config),
        }
    }

    /// The `model_type` of `config.json`, or of the language model in it.
    pub(super) fn model_type(&self) -> Option<&str> {
        self.model_type.as_deref()
    }

    /// The family whose table names this architecture. In `config.json` the class and the model type must agree. Of a model
    /// that also sees or hears the keys are those of its language model from here on.
    pub(super) fn family(&mut self, families: &[&'static Family]) -> Result<&'static Family> {
        let architecture = self.architecture.as_str();
        // Mixtral is a Llama with experts in GGUF.
        let routed = self.gguf_experts()? > 0;
        let named = |family: &&&'static Family| {
            if self.is_gguf() {
                return family.gguf_architectures.contains(&architecture) && family.experts.is_some() == routed;
            }
            family.model_types.iter().any(|(kind, classes)| {
                let known = || classes.iter().any(|class| is_class(architecture, class, family));
                match self.model_type() {
                    Some(model_type) => model_type == *kind && (architecture == *kind || known()),
                    None => known(),
                }
            })
        };
        let of_architecture =
            |family: &&&'static Family| self.is_gguf() && family.gguf_architectures.contains(&architecture);
        if let Some((family, text)) = self.language_model(families)? {
            self.model_type = text.text("model_type")?.map(str::to_owned);
            self.metadata = Source::Config(text);
            self.aliases = family.config_aliases;
            return Ok(family);
        }
        if let Some(family) = families.iter().find(named).or_else(|| families.iter().find(of_architecture)) {
            self.aliases = family.config_aliases;
            return Ok(family);
        }
        let supported: Vec<&str> = if self.is_gguf() {
            families.iter().flat_map(|family| family.gguf_architectures).copied().collect()
        } else {
            families
                .iter()
                .flat_map(|family| family.model_types)
                .filter_map(|(_, classes)| classes.first())
                .copied()
                .collect()
        };
        let found = match self.model_type() {
            Some(kind) if kind != self.architecture => format!("{} (model_type {kind})", self.architecture),
            _ => self.architecture.clone(),
        };
        Err(Error::Architecture {
            file: self.fields().file().into(),
            kind: ArchitectureErrorKind::Unknown {
                found,
                supported: supported.join(", "),
                hint: unsupported::hint(self.fields(), self.is_gguf(), &self.architecture, self.model_type()),
            },
        })
    }

    /// The family of the language model in a model that also sees or hears, and its keys.
    fn language_model(&self, families: &[&'static Family]) -> Result<Option<(&'static Family, Section<'a>)>> {
        let Source::Config(config) = self.metadata else { return Ok(None) };
        let Some(text) = config.of(TEXT_CONFIG)? else { return Ok(None) };
        let Some(kind) = text.text("model_type")?.map(str::to_owned) else { return Ok(None) };
        let wraps = |family: &&&'static Family| {
            family.model_types.iter().any(|(known, _)| *known == kind)
                && family.wrappers.iter().any(|(class, model_type)| {
                    *class == self.architecture && self.model_type().is_none_or(|kind| kind == *model_type)
                })
        };
        Ok(families.iter().find(wraps).map(|family| (*family, text)))
    }

    /// The key in this format, prefix applied.
    pub(super) fn key(&self, key: Key) -> String {
        match (self.is_gguf(), key.gguf.strip_prefix('.')) {
            (true, Some(suffix)) => format!("{}.{suffix}", self.architecture),
            (true, None) => key.gguf.to_owned(),
            (false, _) => {
                let other = |(known, other): &(&str, &str)| {
                    *known == key.config && !self.fields().has(known) && self.fields().has(other)
                };
                self.aliases.iter().find(|alias| other(alias)).map_or(key.config, |alias| alias.1).to_owned()
            }
        }
    }

    /// The key of `config.json`, under the name that it has there.
    pub(super) fn config_key(&self, config: &'static str) -> String {
        self.key(Key { gguf: "", config })
    }

    /// Whether `config.json` says that there is none.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.config().and_then(|config| config.object().get(key)).is_some_and(serde_json::Value::is_null)
    }

    pub(super) fn is_gguf(&self) -> bool {
        matches!(self.metadata, Source::Gguf(_))
    }

    pub(super) fn sizes(&self, family: &Family, header: &Header, assumptions: &mut Vec<String>) -> Result<Sizes> {
        let keys = &family.keys;
        let first_position = self.first_position(family, assumptions)?;
        let mut stored = |key: Key, size: Option<usize>| match size {
            Some(size) => Ok(Some(size)),
            None => {
                self.default(family, key, assumptions).map(|size| self.bounded(key.config, size as u64)).transpose()
            }
        };
        let present = |key: Key, size: Option<usize>| {
            size.ok_or_else(|| missing(self.fields(), &self.key(key), "a size is never guessed from tensor shapes"))
        };
        let hidden = present(keys.hidden, self.size(keys.hidden)?)?;
        let blocks = present(keys.layers, self.size(keys.layers)?)?;
        // What may differ between kinds of layers is read by `kinds`, and is the most of them here.
        let widths = if family.shared_layers.is_some() { Differing::Most } else { Differing::Refused };
        let kv_kinds = match (&family.full_attention, &family.states) {
            (Some(_), _) => Differing::Most,
            (None, Some(StateTable { layers: StateLayers::AllButListed(_) | StateLayers::All(_), .. })) => {
                Differing::RefusedButZeros
            }
            (None, _) => Differing::Refused,
        };
        let feed_forward = self.size_of_layers(keys.feed_forward, header, blocks, widths)?;
        let heads = stored(keys.heads, self.size_a_layer(keys.heads, header, blocks)?)?;
        let heads = present(keys.heads, heads)?;
        let context = present(keys.context, stored(keys.context, self.size(keys.context)?)?)?;
        let context = match context.checked_sub(first_position).filter(|context| *context > 0) {
            Some(context) => context,
            None => return Err(self.value(&self.key(keys.context), context, format!("more than {first_position}"))),
        };
        let kv_heads = stored(keys.kv_heads, self.size_of_layers(keys.kv_heads, header, blocks, kv_kinds)?)?;
        let head_dim = stored(keys.head_dim, self.size(keys.head_dim)?)?;
        let vocab = stored(keys.vocab, self.size(keys.vocab)?)?;
        let feed_forward = match &family.adjusted_width {
            Some(rule) => self.adjusted_width(rule, feed_forward, assumptions)?,
            None => feed_forward,
        };
        let feed_forward = present(keys.feed_forward, feed_forward)?;
        let layers = self.without_predictors(family, blocks)?;
        let kv_heads = match kv_heads {
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
        let head_dim = match head_dim {
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
        self.refuse_other_values(".attention.value_length", head_dim)?;
        let vocab = match (vocab, &header.metadata) {
            (Some(vocab), _) => vocab,
            (None, Metadata::Gguf(metadata)) => {
                let tokens = metadata.strings("tokenizer.ggml.tokens")?.map(|tokens| tokens.len()).unwrap_or(0);
                let key = self.key(keys.vocab);
                if tokens == 0 {
                    return Err(missing(self.fields(), &key, "and tokenizer.ggml.tokens is empty too"));
                }
                assumptions.push(format!(
                    "vocabulary = entries of tokenizer.ggml.tokens = {tokens}: {key} is absent (llama.cpp default)"
                ));
                tokens
            }
            (None, Metadata::Config(_)) => present(keys.vocab, None)?,
        };
        Ok(Sizes {
            hidden,
            heads,
            kv_heads,
            head_dim,
            vocab,
            layers,
            blocks,
            feed_forward,
            states: None,
            experts: self.expert_sizes(family, header, feed_forward, blocks)?,
            context,
            whole_head_norms: family.whole_head_norms,
            gated_attention: family.gated_attention,
            layer_embedding: self.layer_embedding_width(family, layers, assumptions)?,
            token_types: self.token_types(family, assumptions)?,
            first_position,
            labels: 0,
        })
    }

    /// What the absence of a key in `config.json` means, where the family's table has it.
    pub(super) fn default(&self, family: &Family, key: Key, assumptions: &mut Vec<String>) -> Option<f64> {
        let default = family.config_defaults.iter().find(|(name, _)| !self.is_gguf() && *name == key.config);
        let (name, value) = *default?;
        assumptions.push(format!("{name} {value}: it is absent ({})", family.config_defaults_source));
        Some(value)
    }

    /// A size between 1 and 2^31 - 1.
    pub(super) fn size(&self, key: Key) -> Result<Option<usize>> {
        let name = self.key(key);
        let Some(value) = self.fields().unsigned(&name)? else { return Ok(None) };
        self.bounded(&name, value).map(Some)
    }

    /// As [`size`](Self::size), or in GGUF an array with that one number for each of the `layers`.
    pub(super) fn size_a_layer(&self, key: Key, header: &Header, layers: usize) -> Result<Option<usize>> {
        self.size_of_layers(key, header, layers, Differing::Refused)
    }

    fn size_of_layers(&self, key: Key, header: &Header, layers: usize, differing: Differing) -> Result<Option<usize>> {
        let Some(mut values) = self.listed_numbers(key, header, layers)? else { return self.size(key) };
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

    /// The sizes of an array that a GGUF file has in place of one number.
    pub(super) fn listed_sizes(&self, key: Key, header: &Header, layers: usize) -> Result<Option<Vec<usize>>> {
        let Some(values) = self.listed_numbers(key, header, layers)? else { return Ok(None) };
        let name = self.key(key);
        values.into_iter().map(|value| self.bounded(&name, value)).collect::<Result<_>>().map(Some)
    }

    fn listed_numbers(&self, key: Key, header: &Header, layers: usize) -> Result<Option<Vec<i64>>> {
        let name = self.key(key);
        let Metadata::Gguf(metadata) = &header.metadata else { return Ok(None) };
        let Some(count) = metadata.array_len(&name) else { return Ok(None) };
        if count != layers {
            return Err(
                self.contradiction(format!("the model has {layers} layers"), format!("{name} has {count} entries"))
            );
        }
        Ok(Some(metadata.integers(&name)?.unwrap_or_default()))
    }

    pub(super) fn bounded<T: TryInto<i32> + ToString + Copy>(&self, name: &str, value: T) -> Result<usize> {
        match value.try_into() {
            Ok(value) if value > 0 => Ok(value as usize),
            _ => Err(self.value(name, value, "a number between 1 and 2147483647".into())),
        }
    }

    /// In GGUF the values of a head could be longer or shorter than its keys.
    pub(super) fn refuse_other_values(&self, key: &'static str, head_dim: usize) -> Result<()> {
        if !self.is_gguf() {
            return Ok(());
        }
        let key = self.key(Key { gguf: key, config: "" });
        match self.fields().unsigned(&key)? {
            Some(length) if length != head_dim as u64 => {
                let feature = format!("values of {length} elements a head beside keys of {head_dim}");
                Err(self.feature(&feature, &key, "keys and values of one length"))
            }
            _ => Ok(()),
        }
    }

    /// What every norm adds to the mean square or the variance.
    pub(super) fn norm_eps(&self, family: &Family, assumptions: &mut Vec<String>) -> Result<f64> {
        let key = self.key(family.keys.norm_eps);
        let eps = match self.fields().number(&key)? {
            None => self.default(family, family.keys.norm_eps, assumptions),
            stored => stored,
        };
        let eps = eps.ok_or_else(|| missing(self.fields(), &key, "the norm's epsilon is never guessed"))?;
        if !(eps > 0.0 && eps < 1.0) {
            return Err(self.value(&key, eps, "a number between 0 and 1".into()));
        }
        Ok(eps)
    }

    pub(super) fn check_activation(&self, family: &Family, assumptions: &mut Vec<String>) -> Result<()> {
        let (_, names) = family.activation;
        if !self.is_gguf() {
            // Gemma's own key comes before the common one.
            let key = self.fields().has("hidden_activation").then_some("hidden_activation".to_owned());
            let key = &key.unwrap_or_else(|| self.config_key("hidden_act"));
            match self.fields().text(key)? {
                Some(name) if names.contains(&name) => {}
                Some(name) => {
                    return Err(self.feature(&format!("activation {name}"), key, names[0]));
                }
                None => assumptions.push(format!(
                    "activation {}: hidden_act is absent (the default of transformers' {})",
                    names[0], self.architecture
                )),
            }
            return Ok(());
        }
        let key = self.key(Key { gguf: ".hidden_activation", config: "" });
        if let Some(name) = self.fields().text(&key)?.filter(|name| !names.contains(name)) {
            return Err(self.feature(&format!("activation {name}"), &key, names[0]));
        }
        Ok(())
    }

    /// Experts of a layer by the key that every architecture of GGUF has for them.
    pub(super) fn gguf_experts(&self) -> Result<u64> {
        let key = self.key(Key { gguf: ".expert_count", config: "" });
        Ok(if self.is_gguf() { self.fields().unsigned(&key)?.unwrap_or(0) } else { 0 })
    }

    /// A model with experts is not the dense block of a family without, whatever its architecture is called.
    pub(super) fn refuse_experts(&self, family: &Family) -> Result<()> {
        if family.experts.is_some() {
            return Ok(());
        }
        let key = self.key(Key { gguf: ".expert_count", config: "num_local_experts" });
        match self.fields().unsigned(&key)? {
            Some(experts) if experts > 0 => {
                Err(self.feature(&format!("a mixture of {experts} experts"), &key, "dense models"))
            }
            _ => Ok(()),
        }
    }

    /// Whether `config.json` names a class without an output head (`Qwen3Model`), or a GGUF file says how vectors of texts are
    /// pooled and has no head: llama.cpp's converter leaves that of a reranker out, and nothing tells such a file from one
    /// whose head is its embedding.
    pub(super) fn is_base_model(&self, header: &Header) -> Result<bool> {
        if !self.is_gguf() {
            return Ok(["Model", CLASSIFIES].iter().any(|end| self.architecture.ends_with(end)));
        }
        let key = format!("{}.pooling_type", self.architecture);
        let pools = self.fields().unsigned(&key)?.is_some_and(|pooling| pooling > 0);
        Ok(pools && !header.tensors.contains_key("output.weight"))
    }

    /// Flags that would change the block.
    pub(super) fn refuse_flags(&self, family: &Family) -> Result<()> {
        let causal = self.key(Key { gguf: ".attention.causal", config: "is_causal" });
        match (self.fields().boolean(&causal)?, family.encoder) {
            // llama.cpp takes an encoder of GGUF for a decoder unless this says otherwise.
            (None, true) if self.is_gguf() => {
                return Err(missing(self.fields(), &causal, "whether tokens attend to later ones is not known"));
            }
            (Some(true), true) => return Err(self.feature("attention to earlier positions alone", &causal, "false")),
            (Some(false), false) if !self.is_gguf() => {
                return Err(self.feature("attention to later positions", &causal, "true"));
            }
            _ => {}
        }
        if self.is_gguf() {
            for (flag, feature) in family.gguf_needed_flags {
                let key = self.key(Key { gguf: flag, config: "" });
                if self.fields().boolean(&key)? == Some(false) {
                    return Err(self.feature(feature, &key, "true"));
                }
            }
            for key in family.gguf_needed_keys {
                let key = self.key(Key { gguf: key, config: "" });
                if !self.fields().has(&key) {
                    return Err(missing(self.fields(), &key, "models of this family differ in it"));
                }
            }
            return Ok(());
        }
        for (flag, feature) in family.needed_flags {
            if self.fields().boolean(flag)? == Some(false) {
                return Err(self.feature(feature, flag, "true"));
            }
        }
        for (key, text, feature) in family.refused_texts {
            if self.fields().text(key)? == Some(text) {
                return Err(self.feature(feature, key, "null, or another"));
            }
        }
        for (flag, feature) in family.refused_flags {
            let fields = self.fields();
            // Some are numbers, of which 0 asks for nothing.
            let number = fields.number(flag).ok().flatten();
            if number.is_some_and(|number| number != 0.0) || number.is_none() && fields.boolean(flag)? == Some(true) {
                return Err(self.feature(feature, flag, "false"));
            }
        }
        Ok(())
    }

    /// Flags of `config.json` that decide on biases and are absent.
    pub(super) fn note_absent_flags(&self, family: &Family, assumptions: &mut Vec<String>) -> Result<()> {
        let (mut none, mut some): (Vec<&str>, Vec<&str>) = Default::default();
        for (_, bias) in family.biases {
            let (flag, flags) = match bias {
                Bias::Flag(flag) => (flag, &mut none),
                Bias::UnlessFlag(flag) => (flag, &mut some),
                Bias::Always => continue,
            };
            if !self.is_gguf() && !flags.contains(flag) && self.fields().boolean(flag)?.is_none() {
                flags.push(flag);
            }
        }
        for (what, flags) in [("no biases", none), ("biases", some)] {
            if !flags.is_empty() {
                let (flags, class) = (flags.join(" and "), &self.architecture);
                assumptions.push(format!("{what}: {flags} absent (the default of transformers' {class})"));
            }
        }
        Ok(())
    }

    /// In GGUF an absent head is tied; in `config.json` the flag decides.
    pub(super) fn tied(&self, family: &Family, header: &Header, assumptions: &mut Vec<String>) -> Result<bool> {
        let head = family.tensors.iter().copied().flatten().find(|name| name.role == Role::Head);
        if self.is_gguf() {
            let stored = head.is_some_and(|name| header.tensors.contains_key(&format!("{}.weight", name.gguf)));
            return Ok(!stored);
        }
        for key in family.tied_keys {
            let whole = match &header.metadata {
                Metadata::Config(files) => files.config.boolean(key)?,
                Metadata::Gguf(_) => None,
            };
            if let Some(tied) = whole.or(self.fields().boolean(key)?) {
                return Ok(tied);
            }
        }
        let ((tied, why), keys) = (family.default_tied, family.tied_keys.join(" and "));
        assumptions.push(format!("tied embeddings {tied}: {keys} is absent ({why})"));
        Ok(tied)
    }

    pub(super) fn feature(&self, feature: &str, key: &str, expected: &str) -> Error {
        Error::Architecture {
            file: self.fields().file().into(),
            kind: ArchitectureErrorKind::Feature {
                feature: feature.to_owned(),
                key: key.to_owned(),
                expected: expected.to_owned(),
            },
        }
    }

    pub(super) fn value(&self, key: &str, found: impl ToString, expected: String) -> Error {
        Error::key_value(self.fields().file(), key, found.to_string(), expected)
    }

    pub(super) fn contradiction(&self, one: String, other: String) -> Error {
        Error::incomplete(self.fields().file(), IncompleteKind::Contradiction { one, other })
    }
}

/// Whether `found` is the class `known` of a family's table, or the same model without its head or with one for labels.
fn is_class(found: &str, known: &str, family: &Family) -> bool {
    let other = |stem| match found.strip_prefix(stem) {
        Some("Model") => true,
        Some(CLASSIFIES) => family.classifier.is_some(),
        _ => false,
    };
    found == known || known.strip_suffix("ForCausalLM").is_some_and(other)
}

/// What becomes of numbers of layers that differ.
#[derive(Clone, Copy)]
enum Differing {
    Refused,
    /// Those that are 0 do not count.
    RefusedButZeros,
    Most,
}

/// What a GGUF file says that it is, wherever the key stands; the probe has looked at the first keys alone.
fn refuse_other_types(metadata: &GgufMetadata) -> Result<()> {
    const KEY: &str = "general.type";
    match metadata.text(KEY)? {
        None | Some("model") => Ok(()),
        Some(kind) => match source::refusal(metadata.file(), Some(kind), None) {
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
