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
    /// Guesses by the model's prediction head were asked for, and the model was loaded without it (exit code 2).
    #[error(
        "the model was loaded without its multi-token prediction head; ask for it by ModelBuilder::mtp, where the files bring one, or guess by n-grams"
    )]
    NoPredictor,
    /// Both a draft model and the prediction head were asked for (exit code 2).
    #[error("a draft model and the model's own prediction head were asked for; load the model with one of them")]
    Both,
    /// The model computes each sequence in steps of its own, where nothing can be guessed (exit code 2).
    #[error("the prediction head of {} would guess nothing: {reason}; load the model without it", model.display())]
    Predictor { model: PathBuf, reason: &'static str },
    /// The models differ in the token of an id; the first such id is named (exit code 2).
    #[error(
        "{draft} cannot guess for {model}: token {id} is {in_draft} in {draft} and {in_model} in {model}; take a draft model of the same vocabulary",
        draft = draft.display(), model = model.display()
    )]
    Vocabulary { model: PathBuf, draft: PathBuf, id: u32, in_model: String, in_draft: String },
    /// The model computes each sequence in steps of its own, where nothing can be guessed, or sequences of the draft model
    /// cannot be cut back after a wrong guess (exit code 2).
    #[error("{} would guess nothing: {reason}; load the model without it", draft.display())]
    Alone { draft: PathBuf, reason: &'static str },
}
