//! What a program needs of a model, so that it can be replaced by another one.

use crate::chat::Message;
use crate::error::Result;
use crate::generate::{FinishReason, GenerateOptions, Generation, Piece, Step, Timings};
use crate::model::Model;
use model_factory_diagnostics::Report;

/// A model that continues texts and answers messages, as [`Model`] does.
///
/// ```
/// use model_factory::{GenerateOptions, TextModel, UnifiedModelFactory};
///
/// fn title(model: &dyn TextModel, story: &str) -> Result<String, model_factory::Error> {
///     let options = GenerateOptions::default().max_tokens(8).stop("\n");
///     model.generate(&format!("{story}\nThe title is"), &options)?.map(|piece| Ok(piece?.text)).collect()
/// }
///
/// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
/// println!("{}", title(&model, "Once upon a time there was a fox.")?);
/// # Ok::<(), model_factory::Error>(())
/// ```
pub trait TextModel {
    /// Continues `prompt`.
    ///
    /// # Errors
    /// The errors of [`Model::generate`].
    fn generate(&self, prompt: &str, options: &GenerateOptions) -> Result<Box<dyn TextGeneration>>;

    /// Answers `messages`.
    ///
    /// # Errors
    /// The errors of [`Model::chat`].
    fn chat(&self, messages: &[Message], options: &GenerateOptions) -> Result<Box<dyn TextGeneration>>;

    /// The model's report: what it is and where it runs.
    fn report(&self) -> &Report;
}

/// A text that comes a piece at a time, as [`Generation`] gives it. Dropping it stops the generation.
pub trait TextGeneration: Iterator<Item = Result<Piece>> + Send {
    /// Why the generation ended (`None` while it runs, or after an error) and how long it took.
    fn finish(&self) -> (Option<FinishReason>, Timings);
}

impl<S: Step + Send> TextGeneration for Generation<S> {
    fn finish(&self) -> (Option<FinishReason>, Timings) {
        Generation::finish(self)
    }
}

impl TextModel for Model {
    fn generate(&self, prompt: &str, options: &GenerateOptions) -> Result<Box<dyn TextGeneration>> {
        Ok(Box::new(Model::generate(self, prompt, options)?))
    }

    fn chat(&self, messages: &[Message], options: &GenerateOptions) -> Result<Box<dyn TextGeneration>> {
        Ok(Box::new(Model::chat(self, messages, options)?))
    }

    fn report(&self) -> &Report {
        Model::report(self)
    }
}
