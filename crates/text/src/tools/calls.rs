//! The options for tools -> a parser of the calls of an answer, and the grammar that the answer is held to.

use super::{CallReader, ToolChoice, grammar, tools};
use crate::chat::ChatOptions;
use crate::error::{Error, Result, ToolError};
use crate::grammar::Grammar;
use crate::tokenizer::Tokenizer;
use model_factory_format::tool_calls::Several;

/// The handling of tools in a generation.
#[derive(Debug, Default)]
pub struct Calls {
    /// Parses the calls of the answer.
    pub reader: Option<CallReader>,
    /// The grammar that the answer is held to.
    pub grammar: Option<Grammar>,
    /// Whether the grammar also holds thoughts: its format has no place where thought ends and an answer begins.
    pub holds_thought: bool,
}

impl Calls {
    /// The handling of tools for the `choice` of tools, the options of a chat and the `other` grammar of an answer; ids of calls
    /// are made of the number `answer`.
    ///
    /// # Errors
    /// `Tool`, `Grammar`.
    pub fn of(
        choice: &ToolChoice,
        chat: &ChatOptions,
        other: Option<&Grammar>,
        tokenizer: &Tokenizer,
        answer: u32,
    ) -> Result<Calls> {
        let tools = tools(chat.tools.as_deref().unwrap_or_default());
        let wanted = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        let format = match tokenizer.tool_calls(chat.template.as_deref()) {
            _ if *choice == ToolChoice::None || (tools.is_empty() && !wanted) => return Ok(Calls::default()),
            _ if tools.is_empty() => return Err(ToolError::NoTools.into()),
            None if *choice == ToolChoice::Auto => return Ok(Calls::default()),
            None => return Err(ToolError::NoFormat.into()),
            Some(format) => format,
        };
        if other.is_some_and(|other| other.in_lark().is_none()) {
            return Err(ToolError::WithGrammar.into());
        }
        let grammar = match grammar(choice, format, &tools, tokenizer, other) {
            Err(Error::Tool(error)) if other.is_some() && !wanted => {
                return Err(ToolError::BesideGrammar { reason: error.to_string() }.into());
            }
            grammar => grammar?,
        };
        let holds_thought = grammar.is_some() && matches!(format.description().several, Several::Messages);
        let mut reader = CallReader::new(format, tools, tokenizer, answer);
        if other.is_some() && !wanted {
            reader = reader.all_or_none();
        } else if *choice == ToolChoice::Strict {
            reader = reader.strict();
        }
        Ok(Calls { reader: Some(reader), grammar, holds_thought })
    }
}
