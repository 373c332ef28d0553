//! The computation of a generation.

use crate::cancel::CancellationToken;
use crate::error::{Error, Result, SoftTokensError};
use crate::input::Rows;
use crate::logits::Logits;
use crate::scheduler::TakeLogits;
use std::sync::Arc;

/// What a generation needs of a model: the logits after some more tokens.
pub trait Step {
    /// Continues the sequence with `tokens` and returns the logits `[vocab]` after the last of them.
    ///
    /// # Errors
    /// `Cancelled` soon after `cancel` was; the sequence then holds those of `tokens` that were complete. Any other error
    /// that stops the computation; the sequence is then as it was before.
    fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits>;

    /// Like [`forward`](Self::forward), with images among the tokens. The default computes ids only.
    ///
    /// # Errors
    /// The errors of [`forward`](Self::forward), and `SoftTokens` for images that are not computed.
    fn forward_rows(&mut self, rows: Rows<'_>, cancel: &CancellationToken) -> Result<Logits> {
        if rows.own_spans().is_empty() {
            self.forward(rows.ids(), cancel)
        } else {
            Err(SoftTokensError::IdsOnly.into())
        }
    }

    /// Like [`forward_rows`](Self::forward_rows), where `to` takes the logits after each token. The default computes ids only, one
    /// after the other.
    ///
    /// # Errors
    /// The errors of [`forward_rows`](Self::forward_rows).
    #[doc(hidden)] // its type is hidden too
    fn forward_each(&mut self, rows: Rows<'_>, to: &Arc<dyn TakeLogits>, cancel: &CancellationToken) -> Result<Logits> {
        if !rows.own_spans().is_empty() {
            return Err(SoftTokensError::IdsOnly.into());
        }
        let mut last = Err(Error::EmptyPrompt);
        for (place, id) in rows.ids().iter().enumerate() {
            let logits = self.forward(&[*id], cancel)?;
            to.take(place, &logits);
            last = Ok(logits);
        }
        last
    }

    /// The number of tokens that still fit in the context.
    fn room(&self) -> usize;

    /// The number of tokens of the last [`forward`](Self::forward) that were not computed, as another sequence had computed them.
    fn reused(&self) -> usize {
        0
    }

    /// Whether several tokens in one [`forward`](Self::forward) give the same bits as one after another: tokens that a
    /// grammar forces are then computed together.
    fn joins(&self) -> bool {
        false
    }

    /// Called before a [`forward`](Self::forward) of one token with guesses at the tokens after it, each right with the probability
    /// `likely` if those before it are. If several tokens take little more time than one, the step may compute the guesses
    /// too, and answer the next calls from that as long as they ask for just these tokens. Returns how many of them it will
    /// compute: as many as it can where `likely` is `None`. No logits change. The default computes none.
    fn guess(&mut self, tokens: &[u32], likely: Option<f64>) -> usize {
        let _ = (tokens, likely);
        0
    }

    /// How many tokens a draft model should guess after the next one, at most `most`: as many as pay if each is right with
    /// the probability `likely`, or as many as possible where it is `None`. 0 where there is no draft model.
    fn draft_tokens(&self, most: usize, likely: Option<f64>) -> usize {
        let _ = (most, likely);
        0
    }

    /// The logits `[vocab]` that a draft model computes after `sequence`: all tokens so far, and those that it guesses
    /// after them. `None` where there are none yet, so that nothing is guessed now.
    ///
    /// # Errors
    /// Any error of the draft model; the generation goes on without its guesses.
    fn draft(&mut self, sequence: &[u32], cancel: &CancellationToken) -> Result<Option<Logits>> {
        let _ = (sequence, cancel);
        Ok(None)
    }
}

impl<S: Step + ?Sized> Step for &mut S {
    fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits> {
        (**self).forward(tokens, cancel)
    }

    fn forward_rows(&mut self, rows: Rows<'_>, cancel: &CancellationToken) -> Result<Logits> {
        (**self).forward_rows(rows, cancel)
    }

    fn forward_each(&mut self, rows: Rows<'_>, to: &Arc<dyn TakeLogits>, cancel: &CancellationToken) -> Result<Logits> {
        (**self).forward_each(rows, to, cancel)
    }

    fn room(&self) -> usize {
        (**self).room()
    }

    fn reused(&self) -> usize {
        (**self).reused()
    }

    fn joins(&self) -> bool {
        (**self).joins()
    }

    fn guess(&mut self, tokens: &[u32], likely: Option<f64>) -> usize {
        (**self).guess(tokens, likely)
    }

    fn draft_tokens(&self, most: usize, likely: Option<f64>) -> usize {
        (**self).draft_tokens(most, likely)
    }

    fn draft(&mut self, sequence: &[u32], cancel: &CancellationToken) -> Result<Option<Logits>> {
        (**self).draft(sequence, cancel)
    }
}
