//! What is asked about tools -> what reads the calls of an answer, and what it is held to.

use super::GenerateOptions;
use crate::error::{Result, ToolError};
use crate::grammar::Grammar;
use crate::tokenizer::Tokenizer;
use crate::tools::{CallReader, ToolChoice, grammar, tools};
use model_diagnostics::tokenizer::ToolCallFormat;

/// What a generation does about tools.
pub(super) struct Calls {
    /// Reads the calls of the answer.
    pub(super) reader: Option<CallReader>,
    /// What the answer is held to.
    pub(super) grammar: Option<Grammar>,
    /// Whether that holds what the model thinks too: its format has no place where thought ends and an answer begins.
    pub(super) holds_thought: bool,
}

impl Calls {
    /// What `options` ask for behind a prompt of so many tokens.
    ///
    /// # Errors
    /// `Tool`, `Grammar`.
    pub(super) fn of(options: &GenerateOptions, tokenizer: &Tokenizer, prompt_tokens: usize) -> Result<Calls> {
        let GenerateOptions { tool_choice: choice, chat, .. } = options;
        let wanted = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        let tools = tools(chat.tools.as_deref().unwrap_or_default());
        let format = tokenizer.tool_calls(chat.template.as_deref());
        let refused = match (format, &options.grammar) {
            _ if tools.is_empty() => ToolError::NoTools,
            (_, Some(_)) => ToolError::WithGrammar,
            (None, _) => ToolError::NoFormat,
            (Some(format), None) if *choice != ToolChoice::None => {
                let grammar = grammar(choice, format, &tools, tokenizer)?;
                let holds_thought = grammar.is_some() && format == ToolCallFormat::Harmony;
                let reader = CallReader::new(format, tools, tokenizer, prompt_tokens);
                let reader = Some(if *choice == ToolChoice::Strict { reader.strict() } else { reader });
                return Ok(Calls { reader, grammar, holds_thought });
            }
            _ => return Ok(Calls { reader: None, grammar: None, holds_thought: false }),
        };
        if wanted || (*choice == ToolChoice::Strict && refused == ToolError::NoFormat) {
            return Err(refused.into());
        }
        Ok(Calls { reader: None, grammar: None, holds_thought: false })
    }
}
