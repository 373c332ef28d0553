//! Folders of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

use super::pattern::Patterns;
use super::{Pair, Stored, finite, open, pairs, shortened, source};
use crate::error::{ArchitectureErrorKind, Error, IncompleteKind, Result};
use crate::header::Fields;
use crate::header::config::{JsonFile, JsonObject};
use crate::header::safetensors::SafetensorsFile;
use crate::source::{Format, SourceFile};
use crate::spec::ModelSpec;
use serde_json::Value;
use std::path::Path;

/// The file of the keys.
pub(super) const CONFIG: &str = "adapter_config.json";
/// The file of the tensors.
pub(super) const TENSORS: &str = "adapter_model.safetensors";

/// The beginning of the names of tensors, and the ends of the two of a layer.
const FRONT: &str = "base_model.model.";
const ENDS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// Keys that change nothing of what a trained adapter computes, of training, of where it comes from, of how it was made, and what PEFT
/// writes there.
#[rustfmt::skip]
const OF_TRAINING: &[(&str, Kind)] = &[
    ("auto_mapping", Kind::Object), ("base_model_name_or_path", Kind::Text), ("fan_in_fan_out", Kind::Flag),
    ("inference_mode", Kind::Flag), ("lora_dropout", Kind::Number), ("megatron_core", Kind::Text),
    ("peft_version", Kind::Text), ("qalora_group_size", Kind::Count), ("revision", Kind::Text),
    ("runtime_config", Kind::Object), ("task_type", Kind::Text),
];

/// The type of a key's value.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    Number,
    Count,
    Object,
}

impl Kind {
    fn check(self, config: &JsonFile, key: &str) -> Result<()> {
        match self {
            Kind::Text => config.text(key).map(|_| ()),
            Kind::Flag => config.boolean(key).map(|_| ()),
            Kind::Number => config.number(key).map(|_| ()),
            Kind::Count => config.unsigned(key).map(|_| ()),
            Kind::Object => config.section(key).map(|_| ()),
        }
    }
}

/// Keys that are read.
const READ: &[&str] = &[
    "alpha_pattern",
    "bias",
    "exclude_modules",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "use_rslora",
];

/// What a key that asks for more should be, by its name.
fn expected_of(key: &str) -> &'static str {
    match key {
        "modules_to_save" => {
            "none: whole layers in the place of the base's are not read; merge the adapter into its base (merge_and_unload of PEFT)"
        }
        "target_parameters" => {
            "none: what is added to a parameter, such as that of all experts of a layer, is not computed; merge the adapter into \
             its base (merge_and_unload of PEFT)"
        }
        _ => "no such key, null or false: it is not computed",
    }
}

/// Reads the adapter in `folder`, whose tokens must be those of `model`.
pub(super) fn read(folder: &Path, model: &ModelSpec) -> Result<Stored> {
    let (config_path, path) = (folder.join(CONFIG), folder.join(TENSORS));
    let config = match JsonFile::optional(folder, CONFIG)? {
        Some(config) => config,
        None => return Err(Error::file_missing(folder, CONFIG, "it says how an adapter of PEFT is scaled")),
    };
    let keys = Keys::read(&config)?;
    check_vocabulary(folder, model)?;
    if !path.exists() {
        let why = "it has the adapter's tensors; save them by PEFT's save_pretrained, which writes safetensors";
        return Err(Error::file_missing(folder, TENSORS, why));
    }
    let (file, bytes) = open(&path)?;
    let tensors = SafetensorsFile::parse(&path, 0, bytes, file)?.tensors;
    let pairs = pairs(
        &path,
        tensors,
        |name| side(&path, name),
        ENDS,
        |module, [a, b]| {
            keys.check_target(&config_path, &a.name, module)?;
            let rank = keys.ranks.of(module).unwrap_or(keys.rank);
            let alpha = keys.alphas.of(module).unwrap_or(keys.alpha);
            let divisor = if keys.by_root { (rank as f64).sqrt() } else { rank as f64 };
            let key = if keys.alphas.of(module).is_some() { "alpha_pattern" } else { "lora_alpha" };
            let scale = finite(&config_path, key, alpha, alpha / divisor)?;
            Ok(Pair { a, b, rank: Some(rank), scale })
        },
    )?;
    if pairs.is_empty() {
        let name = format!("{FRONT}..{}", ENDS[0]);
        return Err(Error::incomplete(&path, IncompleteKind::TensorMissing { name, nearest: Vec::new() }));
    }
    let files = SourceFile { bytes: open(&config_path)?.1, path: config_path };
    let base = config.text("base_model_name_or_path")?.filter(|base| !base.is_empty()).map(shortened);
    Ok(Stored { source: source(folder, Format::Safetensors, &path, bytes, Some(files)), base, pairs })
}

/// The layer of a tensor, and whether it is `B`.
fn side(file: &Path, name: &str) -> Result<(String, bool)> {
    let of_layer = name.strip_prefix(FRONT);
    let found = of_layer.and_then(|name| (0..2).find_map(|side| Some((name.strip_suffix(ENDS[side])?, side == 1))));
    found.map(|(module, is_b)| (module.to_owned(), is_b)).ok_or_else(|| {
        let feature = format!("tensor {name}");
        let expected = format!("only tensors {FRONT}..{} and ..{}", ENDS[0], ENDS[1]);
        let kind = ArchitectureErrorKind::Feature { feature, key: "the adapter's tensors".into(), expected };
        Error::Architecture { file: file.into(), kind }
    })
}

/// What the keys say.
struct Keys {
    rank: u64,
    alpha: f64,
    ranks: Patterns<u64>,
    alphas: Patterns<f64>,
    /// Whether alpha is divided by the root of the rank.
    by_root: bool,
    /// Names of layers; none where it is a regular expression, or all of them.
    targets: Option<Vec<String>>,
    /// Names of layers that are left out; none where that is a regular expression.
    excluded: Vec<String>,
    /// The layers that are changed, where not all.
    layers: Option<Vec<u64>>,
    /// What stands in front of the number of a layer.
    layers_patterns: Vec<String>,
}

impl Keys {
    fn read(config: &JsonFile) -> Result<Keys> {
        let file = config.file();
        let refuse = |key: &str, expected: &str| {
            let found: String = config.object()[key].to_string().chars().take(60).collect();
            let kind = ArchitectureErrorKind::Feature {
                feature: format!("{} {found}", shortened(key)),
                key: shortened(key),
                expected: expected.into(),
            };
            Err(Error::Architecture { file: file.into(), kind })
        };
        match config.text("peft_type")? {
            Some("LORA") => {}
            None => return Err(Error::key_missing(file, "peft_type", "it says that the adapter is a LoRA")),
            Some(_) => return refuse("peft_type", "LORA"),
        }
        for (key, value) in config.object() {
            match OF_TRAINING.iter().find(|(of_training, _)| of_training == key) {
                Some((_, kind)) => kind.check(config, key)?,
                None if READ.contains(&key.as_str()) || is_off(value) => {}
                None => return refuse(key, expected_of(key)),
            }
        }
        if !matches!(config.text("bias")?, None | Some("none")) {
            return refuse("bias", "none");
        }
        // Other ways to begin change the base model too.
        match config.object().get("init_lora_weights") {
            None | Some(Value::Null | Value::Bool(_)) => {}
            Some(Value::String(kind)) if ["gaussian", "orthogonal"].contains(&kind.as_str()) => {}
            Some(_) => return refuse("init_lora_weights", "true, false, gaussian or orthogonal"),
        }
        const SCALES: &str = "it scales what the adapter adds";
        let rank = config.unsigned("r")?.ok_or_else(|| Error::key_missing(file, "r", SCALES))?;
        let alpha = config.number("lora_alpha")?.ok_or_else(|| Error::key_missing(file, "lora_alpha", SCALES))?;
        let ranks = config.section("rank_pattern")?;
        let from_one = |value: &Value| value.as_u64().filter(|rank| *rank > 0);
        let ranks = Patterns::read(file, "rank_pattern", ranks, from_one, "a whole number from 1 up")?;
        let finite = |value: &Value| value.as_f64().filter(|alpha| alpha.is_finite());
        let alphas = config.section("alpha_pattern")?;
        let alphas = Patterns::read(file, "alpha_pattern", alphas, finite, "a finite number")?;
        if rank == 0 {
            return Err(Error::key_value(file, "r", "0", "a whole number from 1 up"));
        }
        let whole = config.whole();
        let of_texts = |key: &str| -> Result<Option<Vec<String>>> {
            match config.object().get(key) {
                Some(Value::String(one)) => Ok(Some(vec![one.clone()])),
                _ => {
                    let list = whole.strings(key)?;
                    list.map(|list| list.map(|name| name.map(str::to_owned)).collect::<Result<_>>()).transpose()
                }
            }
        };
        let names = |key: &str| match config.object().get(key) {
            Some(Value::String(_)) => Ok(None),
            _ => of_texts(key),
        };
        let layers = match config.object().get("layers_to_transform") {
            Some(Value::Number(_)) => config.unsigned("layers_to_transform")?.map(|layer| vec![layer]),
            _ => whole.integers("layers_to_transform")?,
        };
        Ok(Keys {
            rank,
            alpha,
            ranks,
            alphas,
            by_root: config.boolean("use_rslora")?.unwrap_or(false),
            targets: names("target_modules")?,
            excluded: names("exclude_modules")?.unwrap_or_default(),
            layers: layers.filter(|layers| !layers.is_empty()),
            layers_patterns: of_texts("layers_pattern")?.unwrap_or_default(),
        })
    }

    /// Refuses a tensor of a layer that PEFT would not give an adapter by these keys, and so would not read.
    fn check_target(&self, file: &Path, tensor: &str, module: &str) -> Result<()> {
        let is_of = |target: &String| {
            module.strip_suffix(target.as_str()).is_some_and(|front| front.is_empty() || front.ends_with('.'))
        };
        let stored = || format!("tensor {tensor} is stored");
        if self.excluded.iter().any(is_of) {
            return Err(Error::contradiction(file, "exclude_modules names its layer", stored()));
        }
        let Some(targets) = &self.targets else { return Ok(()) };
        if !targets.iter().any(is_of) {
            return Err(Error::contradiction(file, "target_modules does not name its layer", stored()));
        }
        match (&self.layers, self.layer(module)) {
            (Some(layers), Some(layer)) if !layers.contains(&layer) => {
                let one = format!("layers_to_transform is without layer {layer}");
                Err(Error::contradiction(file, one, stored()))
            }
            (Some(_), None) => {
                Err(Error::contradiction(file, "layers_to_transform and layers_pattern name no layer of it", stored()))
            }
            _ => Ok(()),
        }
    }

    /// The number of the layer that a module is in, as PEFT finds it.
    fn layer(&self, module: &str) -> Option<u64> {
        let parts: Vec<&str> = module.split('.').collect();
        parts.windows(2).enumerate().find_map(|(index, pair)| {
            let is_named = match self.layers_patterns.as_slice() {
                [] => index > 0,
                patterns => patterns.iter().any(|pattern| pattern == pair[0]),
            };
            pair[1].parse().ok().filter(|_| is_named && index + 2 < parts.len())
        })
    }
}

/// Refuses the tokens that the adapter was trained with and the model has no rows for: PEFT saves the tokenizer with the adapter.
fn check_vocabulary(folder: &Path, model: &ModelSpec) -> Result<()> {
    let rows = model.vocab.max(model.tokenizer.tokens);
    let added = JsonFile::optional(folder, "added_tokens.json")?;
    let by_text = added.iter().flat_map(|file| file.object().values().filter_map(move |id| Some((file, id.as_u64()?))));
    let config = JsonFile::optional(folder, "tokenizer_config.json")?;
    let decoder = config.as_ref().map(|file| file.section("added_tokens_decoder")).transpose()?.flatten();
    let by_id = config.iter().flat_map(|file| {
        decoder.iter().flat_map(|ids| ids.object().keys()).filter_map(move |id| Some((file, id.parse().ok()?)))
    });
    match by_text.chain(by_id).find(|(_, id)| *id >= rows as u64) {
        None => Ok(()),
        Some((file, id)) => {
            let other = format!("the model has rows for {rows} tokens: the adapter was trained with further ones");
            Err(Error::contradiction(file.file(), format!("it adds token {id}"), other))
        }
    }
}

/// Whether a key says that something is not used.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }
}
