//! The int8 schemes of compressed-tensors that run: config block -> [`Scheme`] -> what it says of one module.
//!
//! Keys, values and the order of matches: compressed-tensors 0.20 `quantization/quant_args.py`, `quant_scheme.py`,
//! `quant_config.py`. What does not run is refused with the key that asks for it.

mod args;
mod names;

use super::foreign;
use crate::error::Result;
use crate::header::Fields;
use crate::header::config::{JsonFile, Section};
use names::Names;
use serde_json::{Map, Value};
use std::path::PathBuf;

pub(crate) use args::{ActivationScales, Activations, WeightScales};

/// The section of the config block, and of one within it.
const QUANTIZATION: &str = "quantization_config";

/// Formats that store I8 weights as they are.
const FORMATS: &[&str] = &["int-quantized", "naive-quantized"];

/// Presets that stand for int8 weights by channel and activations dynamic by token.
const PRESETS: &[&str] = &["W8A8", "INT8"];

/// What a config block says of every module.
#[derive(Debug)]
pub(crate) struct Scheme {
    pub(crate) file: PathBuf,
    /// The dotted key, as of a group.
    pub(crate) place: String,
    groups: Vec<Group>,
    ignore: Names,
    /// What was read past or taken for granted.
    pub(crate) notes: Notes,
}

/// What a config block does not say, or says to nobody here.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Keys that no known version writes.
    pub(crate) unknown: Vec<String>,
    /// Absent keys, each with the default of compressed-tensors' `QuantizationArgs`.
    pub(crate) defaults: Vec<String>,
}

impl Notes {
    /// Notes the keys of `section` that are not `known`.
    fn unknown(&mut self, section: &Section<'_>, known: &str) {
        let unknown = section.object().keys().filter(|key| known.split(' ').all(|known| known != *key));
        self.unknown.extend(unknown.map(|key| section.dotted(key)));
    }

    fn absent(&mut self, section: &Section<'_>, key: &str, value: &str) {
        self.defaults.push(format!("{} = {value}", section.dotted(key)));
    }
}

/// One entry of `config_groups`.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) place: String,
    targets: Names,
    pub(crate) weights: WeightScales,
    pub(crate) activations: Activations,
}

/// What the block says of one module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// Quantised by this group.
    Group(&'a Group),
    /// Left as it is, by this entry of `ignore`.
    Ignored(&'a str),
    /// Named nowhere.
    Uncovered,
}

/// The scheme of a `config.json`; `None` when it has no block of compressed-tensors.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Format` for keys of the wrong type.
pub(super) fn read(config: &JsonFile) -> Result<Option<Scheme>> {
    let text = config.section("text_config")?;
    // The first block that is there counts.
    for (around, key) in [(None, QUANTIZATION), (text.as_ref(), QUANTIZATION), (None, "compression_config")] {
        let block = match around {
            Some(section) => section.section(key)?,
            None => config.section(key)?,
        };
        if let Some(block) = block {
            return scheme(&block);
        }
    }
    Ok(None)
}

fn scheme(outer: &Section<'_>) -> Result<Option<Scheme>> {
    let wrapped = outer.section(QUANTIZATION)?;
    let block = wrapped.as_ref().unwrap_or(outer);
    match block.text("quant_method")?.or(outer.text("quant_method")?) {
        Some("compressed-tensors") => {}
        None if block.has("config_groups") => {}
        _ => return Ok(None),
    }
    for part in [outer, block] {
        refuse_parts(part)?;
    }
    let Some(groups) = block.section("config_groups")? else {
        return Err(refusal(block, "config_groups", "absent", "groups of int8 weights and activations"));
    };
    let mut scheme = Scheme {
        file: block.file().into(),
        place: block.path(),
        groups: Vec::new(),
        ignore: Names::read(block, "ignore")?,
        notes: Notes::default(),
    };
    for (name, value) in groups.object() {
        let group = match value {
            Value::Array(_) if PRESETS.contains(&name.to_ascii_uppercase().as_str()) => {
                check_format(block, block)?;
                Group {
                    place: groups.dotted(name),
                    targets: Names::read(&groups, name)?,
                    weights: WeightScales::Channel,
                    activations: Activations { scales: ActivationScales::PerToken, symmetric: true },
                }
            }
            Value::Array(_) => return Err(refusal(&groups, name, "a preset", "W8A8 or INT8")),
            _ => match groups.section(name)? {
                Some(section) => group(block, &section, &mut scheme.notes)?,
                None => continue,
            },
        };
        scheme.groups.push(group);
    }
    if scheme.groups.is_empty() {
        return Err(refusal(block, "config_groups", "empty", "groups of int8 weights and activations"));
    }
    Ok(Some(scheme))
}

/// The parts of a block that change the arithmetic beyond its groups.
fn refuse_parts(block: &Section<'_>) -> Result<()> {
    if block.has("kv_cache_scheme") {
        return Err(refusal(block, "kv_cache_scheme", "given", "null: the KV cache is not quantised"));
    }
    for key in ["sparsity_config", "moe_sparsity_config"] {
        let Some(sparsity) = block.section(key)? else { continue };
        match sparsity.text("format")? {
            Some("dense") => {}
            None if sparsity.object().is_empty() => {}
            found => return Err(refusal(&sparsity, "format", &quoted(found), "dense weights")),
        }
    }
    let transforms = block.section("transform_config")?;
    let groups = transforms.as_ref().map(|transforms| transforms.object());
    let says_nothing = |transforms: &Map<String, Value>| {
        transforms.values().all(|value| value.is_null() || value.as_object().is_some_and(Map::is_empty))
    };
    if !groups.is_none_or(says_nothing) {
        return Err(refusal(block, "transform_config", "given", "none: transforms are not computed"));
    }
    Ok(())
}

fn group(block: &Section<'_>, group: &Section<'_>, notes: &mut Notes) -> Result<Group> {
    notes.unknown(group, "targets weights input_activations output_activations format");
    check_format(block, group)?;
    if group.has("output_activations") {
        return Err(refusal(group, "output_activations", "given", "null: outputs are not quantised"));
    }
    let Some(weights) = group.section("weights")? else {
        return Err(refusal(group, "weights", "null", "int8 weights"));
    };
    let weights = args::weights(&weights, notes)?;
    let Some(activations) = group.section("input_activations")? else {
        return Err(refusal(group, "input_activations", "null (w8a16)", "int8 activations"));
    };
    let activations = args::activations(&activations, notes)?;
    Ok(Group { place: group.path(), targets: Names::read(group, "targets")?, weights, activations })
}

/// The format of a group: its own, where it has one, else the block's.
fn check_format(block: &Section<'_>, group: &Section<'_>) -> Result<()> {
    let place = if group.has("format") { group } else { block };
    match place.text("format")? {
        Some(format) if FORMATS.contains(&format) => Ok(()),
        found => Err(refusal(place, "format", &quoted(found), &FORMATS.join(" or "))),
    }
}

fn quoted(found: Option<&str>) -> String {
    found.map_or("absent".to_owned(), |found| format!("{found:?}"))
}

/// The refusal of what `section` says under `key`.
fn refusal(section: &Section<'_>, key: &str, found: &str, expected: &str) -> crate::Error {
    let place = format!("{} is {found}, expected {expected}", section.dotted(key));
    foreign::unsupported(section, &place)
}

impl Scheme {
    /// What the block says of `module`, whose class transformers calls `class`. `ignore` comes first; then a target
    /// that is the module's name, then one that is a pattern, then one that is its class.
    pub(crate) fn answer(&self, module: &str, class: &str) -> Answer<'_> {
        if let Some(entry) = self.ignore.matching(module, class) {
            return Answer::Ignored(entry);
        }
        let rank = |group: &Group| group.targets.rank(module, class);
        let best = self.groups.iter().filter_map(|group| rank(group).map(|rank| (rank, group)));
        // `min_by_key` takes the first of equals, as compressed-tensors does.
        best.min_by_key(|(rank, _)| *rank).map_or(Answer::Uncovered, |(_, group)| Answer::Group(group))
    }

    /// `compressed-tensors int8 w8a8: weights by channel, activations dynamic by token`.
    pub(crate) fn in_words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for Group { weights, activations, .. } in &self.groups {
            let group = format!("weights {weights}, activations {activations}");
            words.extend((!words.contains(&group)).then_some(group));
        }
        format!("compressed-tensors int8 w8a8: {}", words.join("; "))
    }
}
