//! The description of a saved session, and of the model that it needs.

use crate::decoder::Rotation;
use crate::error::SessionFileProblem;
use crate::fingerprint::{FileDigest, WeightsDigest};
use serde::{Deserialize, Serialize};

/// The longest text of a file that an error shows.
const SHOWN: usize = 80;

const OTHER_MODEL: &str = "load the model it was saved with, or compute the session again";
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
    /// How the cached keys are rotated.
    #[serde(with = "Rotated")]
    pub(super) rotation: Rotation,
    /// The number of ids of the sequence.
    pub(super) ids: u64,
    /// The number of ids whose keys and values follow: all, unless computing them again was interrupted.
    pub(super) cached: u64,
}

/// What the bits of a session depend on, besides its ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
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
    pub(super) digest: WeightsDigest,
    pub(super) weights: Vec<FileDigest>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Rotation", rename_all = "snake_case")]
enum Rotated {
    Short,
    Long,
}

impl Identity {
    /// The first thing in which a saved session differs from `model`.
    pub(super) fn difference(&self, model: &Identity) -> Option<SessionFileProblem> {
        let differs = |what: &str, found: String, expected: String, remedy| {
            (found != expected).then(|| SessionFileProblem::Differs { what: what.into(), found, expected, remedy })
        };
        let text =
            |what, of: fn(&Identity) -> &String, remedy| differs(what, shown(of(self)), shown(of(model)), remedy);
        let number =
            |what, of: fn(&Identity) -> u64| differs(what, of(self).to_string(), of(model).to_string(), OTHER_MODEL);
        text("model", |of| &of.model, OTHER_MODEL)
            .or_else(|| text("architecture", |of| &of.architecture, OTHER_MODEL))
            .or_else(|| text("quantization", |of| &of.quantization, OTHER_MODEL))
            .or_else(|| number("number of layers", |of| of.layers))
            .or_else(|| number("hidden size", |of| of.hidden))
            .or_else(|| number("number of KV heads", |of| of.kv_heads))
            .or_else(|| number("head dimension", |of| of.head_dim))
            .or_else(|| number("vocabulary size", |of| of.vocab))
            .or_else(|| text("dtype of the KV cache", |of| &of.kv_cache, OTHER_CACHE))
            .or_else(|| text("version of the library", |of| &of.library, OTHER_LIBRARY))
            .or_else(|| text("instruction set level", |of| &of.instructions, OTHER_SETS))
            .or_else(|| differs("checksum of the model's description", hex(self.spec), hex(model.spec), OTHER_MODEL))
            .or_else(|| self.other_weights(model))
    }

    /// The first difference of the weights, where both have the same kind of digest.
    fn other_weights(&self, model: &Identity) -> Option<SessionFileProblem> {
        let differs = |what, found: String, expected: String| {
            Some(SessionFileProblem::Differs { what, found, expected, remedy: OTHER_MODEL })
        };
        if self.weights.len() != model.weights.len() {
            let [found, expected] = [self, model].map(|of| of.weights.len().to_string());
            return differs("number of weight files".into(), found, expected);
        }
        let mut pairs = self.weights.iter().zip(&model.weights).enumerate();
        let (file, (found, expected)) = pairs.find(|(_, (found, expected))| found != expected)?;
        if found.bytes != expected.bytes {
            let [found, expected] = [found, expected].map(|of| of.bytes.to_string());
            return differs(format!("length in bytes of weight file {}", file + 1), found, expected);
        }
        let mut parts = found.parts.iter().zip(&expected.parts).enumerate();
        let (part, (found, expected)) = parts.find(|(_, (found, expected))| found != expected)?;
        differs(format!("checksum of part {} of weight file {}", part + 1, file + 1), hex(*found), hex(*expected))
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
