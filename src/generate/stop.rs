//! When a generation ends.

use model_diagnostics::tokenizer::TokenizerSpec;
use std::collections::BTreeSet;

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model chose this stop token.
    Stop(u32),
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    Context,
}

/// The ids that end a generation: a model has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopTokens(BTreeSet<u32>);

impl StopTokens {
    /// Whether `id` ends a generation.
    pub fn contains(&self, id: u32) -> bool {
        self.0.contains(&id)
    }

    /// The ids in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl From<&TokenizerSpec> for StopTokens {
    fn from(spec: &TokenizerSpec) -> Self {
        spec.stop_ids.keys().copied().collect()
    }
}

impl FromIterator<u32> for StopTokens {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        StopTokens(ids.into_iter().collect())
    }
}
