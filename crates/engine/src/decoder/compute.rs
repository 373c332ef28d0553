//! The interface of a decoder on any device.

use super::{Batching, KvCache, PagePool, PassOptions, PassOutput, Rotation, Segment};
use crate::cancel::CancellationToken;
use crate::error::Result;
use crate::input::SoftTokens;
use model_factory_spec::plan::StepRoom;
use model_factory_spec::spec::ImageRows;
use std::sync::Arc;

/// Computes a loaded model on any device.
pub trait Compute: Send + Sync {
    /// The pool from which the caches of all sequences take their pages.
    fn pages(&self) -> &Arc<PagePool>;

    /// An empty cache for one sequence.
    fn cache(&self) -> KvCache {
        KvCache::new(Arc::clone(self.pages()))
    }

    /// Ids an embedding row exists for.
    fn vocab(&self) -> usize;

    /// How the keys of a sequence of `length` tokens are rotated. Keys cached with one rotation are useless with another.
    fn rotation(&self, length: usize) -> Rotation;

    /// The kinds of sequences that it may compute together.
    fn batching(&self) -> Batching;

    /// The most that a step of several sequences may take, so that it stays within the plan.
    fn step_room(&self) -> StepRoom;

    /// Whether the products of adapters are added to those of the weights.
    fn takes_adapters(&self) -> bool;

    /// How the rows of images attend.
    ///
    /// # Errors
    /// `SoftTokens` where the model or the device takes no images.
    fn images(&self) -> Result<ImageRows>;

    /// Refuses soft tokens that are not as the model takes them.
    ///
    /// # Errors
    /// `SoftTokens`.
    fn check_soft_tokens(&self, tokens: &SoftTokens) -> Result<()>;

    /// Whether it has hidden states to give.
    fn gives_hidden_states(&self) -> bool;

    /// Runs the tokens of several sequences through the model in one pass over its weights and appends them to their
    /// caches. Returns what `options` ask of the rows that the segments want.
    ///
    /// # Errors
    /// `TokenOutOfVocabulary`, and `NoHead` for logits of a model without an output head, before anything is computed;
    /// `Cancelled` after at most one more operation of a layer once `cancel` is; `OutOfMemory`; `Internal` for a cache
    /// of another model. After an error the caches hold what they held before, or less where layers have states that a
    /// part of the step has changed.
    fn pass(
        &self,
        segments: &mut [Segment<'_>],
        options: PassOptions<'_>,
        cancel: &CancellationToken,
    ) -> Result<PassOutput>;

    /// The scores of the labels of each of `pooled` `[rows, hidden]`; none without a classification head.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn classify(&self, pooled: Vec<f32>) -> Result<Option<Vec<f32>>>;

    /// What the dense layers after the pooling make of each of `pooled` `[rows, hidden]`; the same where there are none.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn dense(&self, pooled: Vec<f32>) -> Result<Vec<f32>>;
}
