//! A prompt -> a value of a type: an answer that is held to its schema, read by serde.

use crate::error::{Error, GrammarError, Result};
use crate::generate::{FinishReason, GenerateOptions};
use crate::model::Model;
use crate::prompt::Prompt;
use crate::tools::ToolChoice;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

impl Model {
    /// Answers `prompt` by a value of `T`: the answer is held to the schema of `T`
    /// ([`Grammar::json`](crate::Grammar::json)), whose descriptions are its doc comments, and read by serde. The prompt has to say
    /// what the value is to be: the model does not see the schema. A grammar in the options takes the place of the
    /// schema, and their `max_tokens` has to be enough for the whole value. Tools are not called: the template is given none.
    ///
    /// ```
    /// use model_factory::{GenerateOptions, UnifiedModelFactory};
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Debug, Deserialize, JsonSchema)]
    /// #[serde(rename_all = "lowercase")]
    /// enum Mood {
    ///     Glad,
    ///     Sad,
    /// }
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let question = "The dog found its ball again. The mood of the dog, as JSON: ";
    /// let mood: Mood = model.extract(question, &GenerateOptions::default().max_tokens(1000))?;
    /// println!("{mood:?}");
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`generate`](Self::generate) and of any step; `Grammar`, with what came, where the answer is not complete
    /// (`Incomplete`) or where serde refuses it (`Value`): a schema does not say all that a `Deserialize` may ask for.
    pub fn extract<'p, T: DeserializeOwned + JsonSchema>(
        &self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
    ) -> Result<T> {
        let mut options = options.clone();
        if options.grammar.is_none() {
            options = options.json::<T>();
        }
        if matches!(options.tool_choice, ToolChoice::Auto | ToolChoice::Strict) {
            options.tool_choice = ToolChoice::None;
        }
        let mut generation = self.generate(prompt, &options)?;
        let text = generation.answer()?.text;
        match generation.finish().0 {
            Some(FinishReason::Stop(_) | FinishReason::Grammar) if !text.is_empty() => serde_json::from_str(&text)
                .map_err(|error| GrammarError::Value { reason: error.to_string(), text }.into()),
            Some(FinishReason::Cancelled) => Err(Error::Cancelled),
            finish => {
                let finish = finish.map(|finish| finish.to_string()).unwrap_or_default();
                Err(GrammarError::Incomplete { finish, text }.into())
            }
        }
    }
}
