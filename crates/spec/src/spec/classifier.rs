//! Header -> the classification head, in models that classify texts or rank documents.

use super::reader::{CLASSIFIES, Reader};
use super::tensors::Tensors;
use super::weights::{mapped, weights};
use super::{DenseLayer, MapWeights, Pooling, Stored, WeightTypes};
use crate::block::DenseActivation;
use crate::error::Result;
use crate::family::{ClassifierTable, Key, Role};
use crate::header::config::{JsonFile, JsonObject};
use crate::header::{Fields, Header, Metadata};
use serde_json::Value;
use std::sync::Arc;

weights! {
    /// A classification head: the scores of a text's labels, from its hidden states.
    pub struct ClassifierWeights<W> {
        /// Which tokens' hidden states the head reads.
        pub pooling: Pooling,
        /// The dense layer before the output layer.
        pub dense: Option<DenseLayer<W>> = optional part,
        /// The output layer, `[labels, hidden]`.
        pub output: W::Matrix = matrix,
        /// The names of the labels, one for each score.
        pub labels: Arc<[String]>,
        /// The activation of the scores of pairs of texts.
        pub scores: ScoreActivation,
    }
}

/// The activation of the scores of pairs of texts (sentence-transformers' `activation_fn`). Complete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum ScoreActivation {
    /// The scores are unchanged.
    Identity,
    /// The sigmoid of the scores: the default where there is one label.
    Sigmoid,
    /// An activation that is not supported, and the file that names it.
    Unsupported { what: String, source: String },
}

impl Reader<'_> {
    /// Which hidden states a head reads, by its key in `config.json` or llama.cpp's.
    fn classifier_pooling(&self, table: &ClassifierTable) -> Result<Option<Pooling>> {
        let Some(config) = table.pooling_key else { return Ok(table.pooling) };
        let key = self.key(Key { gguf: ".classifier.pooling_type", config });
        let (default, source) = match self.is_gguf() {
            true => match self.fields().unsigned(&key)? {
                Some(1) => return Ok(Some(Pooling::Mean)),
                Some(2) => return Ok(Some(Pooling::Cls)),
                Some(other) => return Err(self.value(&key, other, "1 (mean) or 2 (cls)".into())),
                None => (Pooling::Mean, "llama.cpp's default"),
            },
            false => match (self.fields().text(&key)?, table.pooling) {
                (Some("cls" | "bos"), _) => return Ok(Some(Pooling::Cls)),
                (Some("mean"), _) => return Ok(Some(Pooling::Mean)),
                (Some("late") | None, None) => return Ok(None),
                (Some(other), _) => return Err(self.value(&key, format!("{other:?}"), "cls or mean".into())),
                (None, Some(default)) => (default, "transformers' default"),
            },
        };
        let what = format_args!("scores of labels by pooling {default}");
        Ok(self.or_absent(None, Some(default), what, &key, source))
    }

    /// The labels that the model scores; empty where it has no classification head.
    pub(super) fn labels(&self) -> Result<Vec<String>> {
        match &self.header.metadata {
            _ if self.family.head.classifier.is_none() => Ok(Vec::new()),
            Metadata::Gguf(metadata) if self.header.tensors.contains_key("cls.output.weight") => {
                let key = self.gguf_key(".classifier.output_labels");
                let text = |label: &[u8]| String::from_utf8_lossy(label).into_owned();
                if let Some(labels) = metadata.strings(&key)?.filter(|labels| !labels.is_empty()) {
                    return Ok(labels.iter().map(text).collect());
                }
                Ok(self.or_absent(None, vec!["LABEL_0".into()], "one label", &key, "llama.cpp's default"))
            }
            Metadata::Config(files) if self.architecture.ends_with(CLASSIFIES) => self.config_labels(&files.config),
            _ => Ok(Vec::new()),
        }
    }

    /// The labels by their numbers in `config.json`, or numbered where it only gives their number.
    fn config_labels(&self, config: &JsonFile) -> Result<Vec<String>> {
        const KEY: &str = "id2label";
        match config.object().get(KEY) {
            None | Some(Value::Null) => {
                let stored = config.unsigned("num_labels")?;
                let count = self.or_absent(stored, 2, "2 labels", KEY, "transformers' default");
                match count {
                    1..=MOST_LABELS => Ok((0..count).map(|id| format!("LABEL_{id}")).collect()),
                    _ => Err(self.value("num_labels", count, format!("1 to {MOST_LABELS}"))),
                }
            }
            Some(Value::Object(named)) if !named.is_empty() && named.len() as u64 <= MOST_LABELS => {
                let wrong = |id| self.value(KEY, format!("none for {id}"), "a text for each number from 0".into());
                let label = |id: usize| {
                    let label = named.get(&id.to_string()).and_then(Value::as_str);
                    label.map(str::to_owned).ok_or_else(|| wrong(id))
                };
                (0..named.len()).map(label).collect()
            }
            Some(other) => {
                let found: String = other.to_string().chars().take(80).collect();
                Err(self.value(KEY, found, format!("1 to {MOST_LABELS} labels by their numbers")))
            }
        }
    }
}

/// The most labels; published classifiers have up to some thousands.
const MOST_LABELS: u64 = 1 << 20;

impl Tensors<'_> {
    /// Why the classification head is not supported; `None` where it is.
    fn without_scores(&self) -> Result<Option<String>> {
        // llama.cpp's converter leaves BERT's pooler out, and left the norm of ModernBERT's head out: without these the
        // scores differ.
        let needed = [("cls.weight", true), ("cls.norm.weight", self.names(Role::ClassifierNorm))];
        let missing = |(name, wanted): &(&str, bool)| *wanted && !self.stores(name);
        let missing = needed.into_iter().find(missing).filter(|_| self.reader.is_gguf());
        Ok(missing.map(|(name, _)| format!("the file has cls.output.weight without the layer before it, {name}")))
    }

    pub(super) fn classifier(&mut self, labels: Vec<String>) -> Result<Option<ClassifierWeights>> {
        let Some(table) = self.family.head.classifier.filter(|_| !labels.is_empty()) else { return Ok(None) };
        let Some(pooling) = self.reader.classifier_pooling(&table)? else {
            self.reader.assume("no scores of labels: they are the mean of those of all tokens");
            return Ok(None);
        };
        let dense = match table.dense {
            None => None,
            Some(default) => {
                let key = table.activation_key.filter(|_| !self.reader.is_gguf());
                let named = key.map_or(Ok(None), |key| self.reader.fields().text(key))?;
                let activation = named.map_or(Some(default), DenseActivation::named);
                let unknown = format!("activation {} ({})", named.unwrap_or_default(), key.unwrap_or_default());
                let why = if activation.is_none() { Some(unknown) } else { self.without_scores()? };
                if let Some(why) = why {
                    self.reader.assume(format!("no scores of labels: {why}"));
                    self.used.extend(["cls.output.weight", "cls.output.bias"].map(str::to_owned));
                    return Ok(None);
                }
                Some(DenseLayer {
                    linear: self.matrix(Role::ClassifierDense, None)?,
                    activation,
                    norm: self.norm_if_named(Role::ClassifierNorm, None)?,
                })
            }
        };
        let output = self.row_or_matrix(Role::Classifier, None)?;
        let scores = score_activation(self.header, labels.len())?;
        Ok(Some(ClassifierWeights { pooling, dense, output, labels: labels.into(), scores }))
    }
}

/// The activation that sentence-transformers' CrossEncoder applies to scores: the one that its file or `config.json`
/// names, else a sigmoid where there is one label.
fn score_activation(header: &Header, labels: usize) -> Result<ScoreActivation> {
    let default = if labels == 1 { ScoreActivation::Sigmoid } else { ScoreActivation::Identity };
    let Metadata::Config(files) = &header.metadata else { return Ok(default) };
    let config = files.config.whole();
    let section = config.section("sentence_transformers")?;
    let own = files.sentence_transformers.as_ref().and_then(|files| files.config.as_ref()).map(JsonObject::whole);
    let places =
        [(own, "activation_fn"), (section, "activation_fn"), (Some(config), "sbert_ce_default_activation_function")];
    for (section, key) in places {
        let Some(section) = section else { continue };
        let named = section.text(key)?;
        return Ok(match named.map(|named| named.rsplit('.').next().unwrap_or_default()) {
            None => continue,
            Some("Sigmoid") => ScoreActivation::Sigmoid,
            Some("Identity") => ScoreActivation::Identity,
            Some(other) => {
                let source = section.file().file_name().unwrap_or_default().to_string_lossy().into_owned();
                ScoreActivation::Unsupported { what: format!("scores by {other}"), source }
            }
        });
    }
    Ok(default)
}
