//! The sampling settings of the model's makers: `generation_config.json`, or the keys of a GGUF file made from it.

use super::reader::Reader;
use crate::error::{Error, FormatErrorKind, Result};
use crate::family::Key;
use crate::header::config::JsonFile;
use crate::header::{Fields, Metadata};
use serde::Serialize;
use serde_json::Value;
use std::ops::RangeInclusive;

/// The sampling settings that a model ships; `None` where it gives none.
///
/// Settings that only apply to random sampling are `None` for a model that does not ask for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sampling {
    /// The temperature; 0 and `None` mean greedy decoding.
    pub temperature: Option<f64>,
    /// The number of most likely tokens to sample from; 0 is all.
    pub top_k: Option<usize>,
    /// From 0 to 1: samples from the fewest most likely tokens that together have this probability.
    pub top_p: Option<f64>,
    /// From 0 to 1: samples from tokens at least this share as probable as the most likely one.
    pub min_p: Option<f64>,
    /// The repetition penalty, above 0; 1 is off.
    pub repetition_penalty: Option<f64>,
}

/// The keys of the settings, in GGUF spelled as in gguf-py's `constants.py`.
const TEMPERATURE: Key = Key { gguf: "general.sampling.temp", config: "temperature" };
const TOP_K: Key = Key { gguf: "general.sampling.top_k", config: "top_k" };
const TOP_P: Key = Key { gguf: "general.sampling.top_p", config: "top_p" };
const MIN_P: Key = Key { gguf: "general.sampling.min_p", config: "min_p" };
const REPETITION_PENALTY: Key = Key { gguf: "general.sampling.penalty_repeat", config: "repetition_penalty" };

/// The defaults of transformers when a model samples and gives no value
/// (`GenerationConfig._get_default_generation_params`, version 5).
const TRANSFORMERS_TEMPERATURE: f64 = 1.0;
const TRANSFORMERS_TOP_K: usize = 50;

/// Below this temperature sampling is greedy: dividing by less gives numbers that F32 cannot hold.
pub const GREEDY_BELOW: f64 = 1e-7;

/// Keys of `generation_config.json` that change the text and are not supported here, by the number that turns them off.
/// Absent, null, false and empty turn off all of them.
const NOT_APPLIED: [(f64, &str); 2] = [
    (1.0, "num_beams encoder_repetition_penalty typical_p guidance_scale"),
    (
        0.0,
        "no_repeat_ngram_size encoder_no_repeat_ngram_size diversity_penalty epsilon_cutoff eta_cutoff top_h penalty_alpha \
         min_new_tokens min_length bad_words_ids suppress_tokens begin_suppress_tokens sequence_bias forced_eos_token_id \
         exponential_decay_length_penalty stop_strings",
    ),
];

/// Keys of GGUF files that change the text and are not supported here, each with the number that turns it off.
const GGUF_NOT_APPLIED: [(&str, f64); 3] = [
    ("general.sampling.mirostat", 0.0),
    ("general.sampling.xtc_probability", 0.0),
    // Our penalty counts the whole sequence, which is -1 in llama.cpp.
    ("general.sampling.penalty_last_n", -1.0),
];

impl Sampling {
    pub(super) fn read(reader: &Reader<'_>) -> Result<Sampling> {
        let mut notes = Vec::new();
        let sampling = match &reader.header.metadata {
            Metadata::Gguf(metadata) => gguf(metadata, &mut notes)?,
            // Without `generation_config.json` transformers reads the settings from config.json.
            Metadata::Config(files) => config(files.generation.as_ref().unwrap_or(&files.config), &mut notes)?,
        };
        notes.into_iter().for_each(|note| reader.assume(note));
        Ok(sampling)
    }

    /// Whether tokens are sampled at random, rather than always the most likely one chosen.
    pub fn draws(&self) -> bool {
        self.temperature.is_some_and(|temperature| temperature >= GREEDY_BELOW)
    }

    /// Fills in the defaults of transformers when a model samples and does not give them.
    fn fill_in(&mut self, assumptions: &mut Vec<String>) {
        let absent = [("temperature 1", self.temperature.is_none()), ("top-k 50", self.top_k.is_none())];
        for (what, _) in absent.into_iter().filter(|(_, absent)| *absent) {
            assumptions.push(format!("{what}: the model draws tokens and names none (transformers default)"));
        }
        self.temperature.get_or_insert(TRANSFORMERS_TEMPERATURE);
        self.top_k.get_or_insert(TRANSFORMERS_TOP_K);
    }
}

/// Reads the keys that converters write from `generation_config.json`. They leave `do_sample` out: sampling settings imply it.
fn gguf(metadata: &dyn Fields, assumptions: &mut Vec<String>) -> Result<Sampling> {
    for (key, off) in GGUF_NOT_APPLIED {
        if let Some(value) = metadata.number(key)?
            && value != off
        {
            assumptions.push(format!("{key} {value} is not applied"));
        }
    }
    if let Some(order) = metadata.text("general.sampling.sequence")? {
        assumptions.push(format!("general.sampling.sequence {order:?} is not applied"));
    }
    let mut found = settings(metadata, true)?;
    // The shortest text of the F32 number in the file: 0.6, not 0.6000000238418579.
    let shortest = |value: f64| (value as f32).to_string().parse().unwrap_or(value);
    for value in [&mut found.temperature, &mut found.top_p, &mut found.min_p, &mut found.repetition_penalty] {
        *value = value.map(shortest);
    }
    let drawn = [found.temperature, found.top_p, found.min_p].iter().any(Option::is_some) || found.top_k.is_some();
    if drawn {
        found.fill_in(assumptions);
    }
    Ok(found)
}

/// Reads `generation_config.json`, or these keys of `config.json`, like transformers' `generate`.
fn config(file: &JsonFile, assumptions: &mut Vec<String>) -> Result<Sampling> {
    let name = file.file().file_name().unwrap_or_default().to_string_lossy().into_owned();
    for (off, key) in NOT_APPLIED.iter().flat_map(|(off, keys)| keys.split(' ').map(move |key| (*off, key))) {
        let asks = |value: &&Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(values) => !values.is_empty(),
            Value::Object(entries) => !entries.is_empty(),
            Value::Number(number) => number.as_f64() != Some(off),
            Value::Bool(true) | Value::String(_) => true,
        };
        if let Some(value) = file.object().get(key).filter(asks) {
            let value: String = value.to_string().chars().take(60).collect();
            assumptions.push(format!("{key} {value} of {name} is not applied"));
        }
    }
    let mut found = settings(file, false)?;
    if file.boolean("do_sample")? != Some(true) {
        return Ok(Sampling { repetition_penalty: found.repetition_penalty, ..Sampling::default() });
    }
    found.fill_in(assumptions);
    Ok(found)
}

fn settings(fields: &dyn Fields, gguf: bool) -> Result<Sampling> {
    let name = |key: Key| if gguf { key.gguf } else { key.config };
    let number = |key: Key, range: RangeInclusive<f64>, expected| match fields.number(name(key))? {
        Some(value) if !range.contains(&value) => {
            let (key, found) = (name(key).into(), format!("the number {value}"));
            Err(Error::format(fields.file(), FormatErrorKind::KeyType { key, found, expected }))
        }
        value => Ok(value),
    };
    // In llama.cpp numbers below 0 mean the same as 0: greedy decoding, or all tokens.
    let temperature = match gguf {
        true => number(TEMPERATURE, f64::MIN..=f64::MAX, "a number")?.map(|value| value.max(0.0)),
        false => number(TEMPERATURE, 0.0..=f64::MAX, "a number from 0 up")?,
    };
    let all = gguf && fields.number(TOP_K.gguf)?.is_some_and(|value| value < 0.0);
    let top_k = if all { Some(0) } else { fields.unsigned(name(TOP_K))? };
    Ok(Sampling {
        temperature,
        top_k: top_k.map(|k| usize::try_from(k).unwrap_or(usize::MAX)),
        top_p: number(TOP_P, 0.0..=1.0, "a number from 0 to 1")?,
        min_p: number(MIN_P, 0.0..=1.0, "a number from 0 to 1")?,
        repetition_penalty: number(REPETITION_PENALTY, f64::MIN_POSITIVE..=f64::MAX, "a number above 0")?,
    })
}

impl std::fmt::Display for Sampling {
    /// Writes `greedy` or `temperature 0.6, top-p 0.9, top-k 50`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        if let Some(temperature) = self.temperature.filter(|_| self.draws()) {
            words.push(format!("temperature {temperature}"));
            words.extend(self.top_p.map(|p| format!("top-p {p}")));
            words.extend(self.min_p.map(|p| format!("min-p {p}")));
            words.extend(self.top_k.filter(|k| *k > 0).map(|k| format!("top-k {k}")));
        } else {
            words.push("greedy".into());
        }
        let penalty = self.repetition_penalty.filter(|penalty| *penalty != 1.0);
        words.extend(penalty.map(|penalty| format!("repetition penalty {penalty}")));
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn read(config: serde_json::Value) -> (Result<Sampling>, Vec<String>) {
        let bytes = config.to_string().into_bytes();
        let file = JsonFile::parse(Path::new("generation_config.json"), &bytes).unwrap();
        let mut assumptions = Vec::new();
        (super::config(&file, &mut assumptions), assumptions)
    }

    #[test]
    fn draws_only_where_the_model_asks_for_them() {
        let (found, assumed) = read(json!({"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}));
        let expected = Sampling { repetition_penalty: Some(1.1), ..Sampling::default() };
        assert_eq!((found.unwrap(), assumed), (expected, vec![]));
        let (found, assumed) = read(json!({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20}));
        let found = found.unwrap();
        assert_eq!(found.to_string(), "temperature 0.6, top-p 0.95, top-k 20");
        assert!(assumed.is_empty());
        let (found, assumed) = read(json!({"do_sample": true, "min_p": 0.05}));
        assert_eq!(found.unwrap().to_string(), "temperature 1, min-p 0.05, top-k 50");
        assert_eq!(assumed.len(), 2, "{assumed:?}");
        let (found, _) = read(json!({"do_sample": true, "temperature": 1e-30}));
        assert_eq!(found.unwrap().to_string(), "greedy");
    }

    #[test]
    fn what_is_not_applied_is_said() {
        let off =
            json!({"num_beams": 1, "typical_p": 1.0, "suppress_tokens": null, "stop_strings": [], "min_length": 0});
        assert_eq!(read(off).1, Vec::<String>::new());
        let (found, assumed) = read(json!({"num_beams": 4, "suppress_tokens": [7], "typical_p": "x"}));
        assert_eq!(found.unwrap().to_string(), "greedy");
        let expected = ["num_beams 4", "typical_p \"x\"", "suppress_tokens [7]"];
        assert_eq!(assumed, expected.map(|what| format!("{what} of generation_config.json is not applied")));
    }

    #[test]
    fn keys_of_gguf_are_those_of_the_config_they_were_made_of() {
        let keys = json!({"general.sampling.temp": f64::from(0.6_f32), "general.sampling.top_p": f64::from(0.9_f32),
            "general.sampling.mirostat": 2, "general.sampling.penalty_last_n": 64});
        let file = JsonFile::parse(Path::new("model.gguf"), &keys.to_string().into_bytes()).unwrap();
        let mut assumptions = Vec::new();
        let found = gguf(&file, &mut assumptions).unwrap();
        let (same, _) = read(json!({"do_sample": true, "temperature": 0.6, "top_p": 0.9}));
        assert_eq!(found, same.unwrap());
        let said = ["mirostat 2 is not applied", "penalty_last_n 64 is not applied", "top-k 50"];
        assert!(said.iter().all(|what| assumptions.iter().any(|line| line.contains(what))), "{assumptions:?}");
        let below = json!({"general.sampling.temp": -1.0, "general.sampling.top_k": -1});
        let below = JsonFile::parse(Path::new("model.gguf"), &below.to_string().into_bytes()).unwrap();
        let found = gguf(&below, &mut Vec::new()).unwrap();
        assert_eq!((found.temperature, found.top_k, found.draws()), (Some(0.0), Some(0), false));
        let none = JsonFile::parse(Path::new("model.gguf"), b"{}").unwrap();
        assert_eq!(gguf(&none, &mut Vec::new()).unwrap(), Sampling::default());
    }

    #[test]
    fn what_is_no_setting_is_refused_by_its_key() {
        let wrong = [
            json!({"temperature": -0.5}),
            json!({"temperature": "hot"}),
            json!({"top_p": 1.5}),
            json!({"top_k": -1}),
            json!({"min_p": 2}),
            json!({"repetition_penalty": 0}),
            json!({"do_sample": "yes"}),
        ];
        for config in wrong {
            let key = config.as_object().unwrap().keys().next().unwrap().clone();
            let error = read(config).0.unwrap_err().to_string();
            assert!(error.contains("generation_config.json") && error.contains(&key), "{error}");
        }
    }
}
