//! The description of a saved session, and of the model that it needs.

use crate::decoder::Rotation;
use crate::error::SessionFileProblem;
use crate::fingerprint::{FileDigest, WeightsDigest};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The longest text of a file that an error shows.
const SHOWN: usize = 80;

const OTHER_MODEL: &str = "load the model it was saved with, or compute the session again";
const OTHER_ACTIVATIONS: &str = "load the model with activations of that dtype, or compute the session again";
const OTHER_CACHE: &str = "load the model with a KV cache of that dtype, or compute the session again";
const OTHER_SETS: &str =
    "hold the model to those instruction sets where this machine has them, or compute the session again";
const OTHER_LIBRARY: &str = "restore it with that version of the library, or compute the session again";

/// The header of a file, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    /// What must be equal to get the same bits.
    pub(super) identity: Identity,
    #[serde(with = "Rotated")]
    pub(super) rotation: Rotation,
    /// The number of ids of the sequence.
    pub(super) ids: u64,
    /// The images among them, in order; their vectors follow the ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) images: Vec<SavedImage>,
    /// The adapters that they were computed with, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) adapters: Vec<SavedAdapter>,
    /// The number of ids whose keys and values follow: all, unless computing them again was interrupted.
    pub(super) cached: u64,
}

/// An image of a saved session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedImage {
    /// The position of its first soft token, and how many there are.
    pub(super) start: u64,
    pub(super) rows: u64,
    /// What stands for its content.
    pub(super) digest: [u8; 32],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grid: Option<[usize; 3]>,
    /// The number of layers after which vectors are added.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) deepstack: u64,
}

/// An adapter of a saved session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedAdapter {
    /// What its files are known by.
    pub(super) digest: [u8; 32],
    /// The bits of its factor, an f64.
    pub(super) scale: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for this form
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What the bits of a session depend on, besides its ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// The package and version of the library: kernels may change with it.
    pub(super) library: String,
    /// The variant of the model, for people to read.
    pub(super) model: String,
    pub(super) architecture: String,
    pub(super) quantization: String,
    pub(super) layers: u64,
    pub(super) hidden: u64,
    pub(super) kv_heads: u64,
    pub(super) head_dim: u64,
    pub(super) vocab: u64,
    /// The CRC-32 of everything that the decoder reads of the spec.
    pub(super) spec: u32,
    /// The architecture, the system, and the level of instruction sets.
    pub(super) instructions: String,
    pub(super) kv_cache: String,
    pub(super) activations: String,
    pub(super) digest: WeightsDigest,
    pub(crate) weights: Vec<FileDigest>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Rotation", rename_all = "snake_case")]
enum Rotated {
    Short,
    Long,
}

/// A part of an [`Identity`]: its name, its value, and what to do if it differs.
type Fact = (Cow<'static, str>, String, &'static str);

impl Identity {
    /// The first fact in which a saved session differs from `model`; both have the same kind of digest.
    pub(super) fn difference(&self, model: &Identity) -> Option<SessionFileProblem> {
        let mut both = self.facts().zip(model.facts());
        let ((what, found, remedy), (_, expected, _)) = both.find(|(found, expected)| found.1 != expected.1)?;
        Some(SessionFileProblem::Differs { what: what.into_owned(), found, expected, remedy })
    }

    /// All facts, in the order in which they are compared.
    fn facts(&self) -> impl Iterator<Item = Fact> {
        let text = |what: &'static str, value: &str, remedy| (what.into(), shown(value), remedy);
        let number = |what: &'static str, value: u64| (what.into(), value.to_string(), OTHER_MODEL);
        let files = (1..).zip(&self.weights).flat_map(|(file, FileDigest { bytes, parts })| {
            let length = format!("length in bytes of weight file {file}");
            let part = move |(part, sum): (i32, &u32)| {
                (format!("checksum of part {part} of weight file {file}").into(), hex(*sum), OTHER_MODEL)
            };
            std::iter::once((length.into(), bytes.to_string(), OTHER_MODEL)).chain((1..).zip(parts).map(part))
        });
        let facts = [
            text("model", &self.model, OTHER_MODEL),
            text("architecture", &self.architecture, OTHER_MODEL),
            text("quantization", &self.quantization, OTHER_MODEL),
            number("number of layers", self.layers),
            number("hidden size", self.hidden),
            number("number of KV heads", self.kv_heads),
            number("head dimension", self.head_dim),
            number("vocabulary size", self.vocab),
            text("dtype of the KV cache", &self.kv_cache, OTHER_CACHE),
            text("dtype of activations", &self.activations, OTHER_ACTIVATIONS),
            text("version of the library", &self.library, OTHER_LIBRARY),
            text("instruction set level", &self.instructions, OTHER_SETS),
            ("checksum of the model's description".into(), hex(self.spec), OTHER_MODEL),
            number("number of weight files", self.weights.len() as u64),
        ];
        facts.into_iter().chain(files)
    }
}

fn hex(sum: u32) -> String {
    format!("{sum:08x}")
}

/// A text of a file, quoted on one line.
pub(super) fn shown(text: &str) -> String {
    let mut start: String = text.chars().take(SHOWN).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("{start:?}")
}
