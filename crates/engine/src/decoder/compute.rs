//! A decoder whatever its device.

use super::{Batching, Cache, Decoder, Device, Hidden, Logits, Rotation, Segment};
use crate::cache_budget::CacheBudget;
use crate::cancel::CancellationToken;
use crate::error::Result;
use model_factory_spec::plan::StepRoom;
use std::any::Any;

/// What computes a loaded model, whatever its device.
pub trait Compute: Any + Send + Sync {
    /// An empty cache for one sequence.
    fn cache(&self) -> Box<dyn Cache>;

    /// Ids an embedding row exists for.
    fn vocab(&self) -> usize;

    /// How a sequence of `length` tokens is rotated. Keys that were cached with one rotation are useless with another.
    fn rotation(&self, length: usize) -> Rotation;

    /// Which sequences it may compute together.
    fn batching(&self) -> Batching;

    /// Bytes that the pages of all sequences take, each once, and those of them that no sequence holds.
    fn cache_bytes(&self) -> (u64, u64);

    /// What a step of several sequences may take, so that it stays within the plan.
    fn step_room(&self) -> StepRoom;

    /// What the pages of all sequences are counted in.
    fn cache_budget(&self) -> &CacheBudget;

    /// As [`Decoder::forward_with`].
    ///
    /// # Errors
    /// Those of [`Decoder::forward_with`].
    fn forward(
        &self,
        segments: &mut [Segment<'_>],
        hidden: Hidden<'_>,
        cancel: &CancellationToken,
    ) -> Result<Option<Logits>>;

    /// As [`Decoder::hidden_states`].
    ///
    /// # Errors
    /// Those of [`Decoder::hidden_states`].
    fn hidden_states(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Vec<f32>>;

    /// As [`Decoder::classify`].
    ///
    /// # Errors
    /// Those of [`Decoder::classify`].
    fn classify(&self, pooled: Vec<f32>) -> Result<Option<Vec<f32>>>;

    /// Whether it has hidden states to give.
    fn gives_hidden_states(&self) -> bool;
}

impl<D: Device> Compute for Decoder<D> {
    fn cache(&self) -> Box<dyn Cache> {
        Box::new(Decoder::cache(self))
    }

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn rotation(&self, length: usize) -> Rotation {
        Decoder::rotation(self, length)
    }

    fn batching(&self) -> Batching {
        Decoder::batching(self)
    }

    fn cache_bytes(&self) -> (u64, u64) {
        self.pages.bytes()
    }

    fn step_room(&self) -> StepRoom {
        self.room
    }

    fn cache_budget(&self) -> &CacheBudget {
        self.pages.budget()
    }

    fn forward(
        &self,
        segments: &mut [Segment<'_>],
        hidden: Hidden<'_>,
        cancel: &CancellationToken,
    ) -> Result<Option<Logits>> {
        self.forward_with(segments, hidden, cancel)
    }

    fn hidden_states(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Vec<f32>> {
        Decoder::hidden_states(self, segments, cancel)
    }

    fn classify(&self, pooled: Vec<f32>) -> Result<Option<Vec<f32>>> {
        Decoder::classify(self, pooled)
    }

    fn gives_hidden_states(&self) -> bool {
        D::HIDDEN_STATES
    }
}
