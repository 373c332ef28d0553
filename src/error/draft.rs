//! Why there is no draft model for a model.

use std::path::PathBuf;

/// A draft model that is not there, or cannot guess for its model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum DraftError {
    /// Guesses by a draft model were asked for, and the model was loaded without one (exit code 2).
    #[error("the model was loaded without a draft model; name one by ModelBuilder::draft, or guess by n-grams")]
    Missing,
    /// Guesses by the model's prediction head were asked for, and it was loaded without that (exit code 2).
    #[error(
        "the model was loaded without its multi-token prediction head; ask for it by ModelBuilder::mtp, where the files bring one, or guess by n-grams"
    )]
    NoPredictor,
    /// A draft model and the prediction head were asked for (exit code 2).
    #[error("a draft model and the model's own prediction head were asked for; load the model with one of them")]
    Both,
    /// Sequences of the model are computed in steps of their own, without guesses (exit code 2).
    #[error("the prediction head of {} would guess nothing: {reason}; load the model without it", model.display())]
    Predictor { model: PathBuf, reason: &'static str },
    /// An id, the first of them, is one token for the model and another for the draft model (exit code 2).
    #[error(
        "{draft} cannot guess for {model}: token {id} is {in_draft} in {draft} and {in_model} in {model}; take a draft model of the same vocabulary",
        draft = draft.display(), model = model.display()
    )]
    Vocabulary { model: PathBuf, draft: PathBuf, id: u32, in_model: String, in_draft: String },
    /// Sequences of the model are computed in steps of their own, without guesses, or those of the draft model cannot be cut
    /// back when it guessed wrong (exit code 2).
    #[error("{} would guess nothing: {reason}; load the model without it", draft.display())]
    Alone { draft: PathBuf, reason: &'static str },
}
