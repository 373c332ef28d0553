//! A conversation -> as much of its end as fits a number of tokens.

use crate::chat::{ChatOptions, Message};
use crate::error::{Error, Result};
use crate::model::Model;

impl Model {
    /// Tokens of the prompt that [`chat`](Self::chat) computes for `messages`.
    ///
    /// # Errors
    /// `Chat` for messages of which the model's template makes no prompt, `Encode`.
    pub fn count_tokens(&self, messages: &[Message], options: &ChatOptions) -> Result<usize> {
        self.prompt_ids(messages, options).map(|ids| ids.len())
    }

    /// `messages` without the oldest turns: as few are left out as needed for a prompt of at most `tokens`. The answer's tokens
    /// are not counted: give `model.context_length() - options.max_tokens`.
    ///
    /// A turn is a message of the user and all that follows it, up to the next one: answers, calls and their results go with
    /// the question. System and developer messages in front stay, and so does the last turn. The result is the longest that
    /// fits; nothing is cut within a message.
    ///
    /// ```
    /// use model_factory::{ChatOptions, Message, UnifiedModelFactory};
    ///
    /// let model = UnifiedModelFactory::load("fixtures/models/llama-3.1/bf16")?;
    /// let options = ChatOptions::default();
    /// let messages = [Message::system("Be brief"), Message::user("Hi"), Message::assistant("Hello"), Message::user("Bye")];
    /// let tokens = model.count_tokens(&messages, &options)?;
    /// assert_eq!(model.fit(&messages, tokens, &options)?, messages);
    /// let rest = model.fit(&messages, tokens - 1, &options)?;
    /// assert_eq!(rest, [messages[0].clone(), messages[3].clone()]);
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ContextOverflow` where the last turn by itself has more tokens, and the errors of [`count_tokens`](Self::count_tokens).
    pub fn fit(&self, messages: &[Message], tokens: usize, options: &ChatOptions) -> Result<Vec<Message>> {
        let leading = |message: &&Message| matches!(message.role.as_str(), "system" | "developer");
        let front = messages.iter().take_while(leading).count();
        let (front, turns) = messages.split_at(front);
        let asks = turns.iter().enumerate().skip(1).filter(|(_, message)| message.role == "user").map(|(at, _)| at);
        let starts: Vec<usize> = std::iter::once(0).chain(asks).collect();
        let from = |start: usize| [front, &turns[start..]].concat();
        let asked = |start: usize| self.count_tokens(&from(start), options);
        // Starting at `dropped` is too long, and starting at `kept` fits.
        let (mut dropped, mut kept) = (0, starts.len() - 1);
        let whole = asked(0)?;
        if whole <= tokens {
            return Ok(messages.to_vec());
        }
        let least = if kept == 0 { whole } else { asked(starts[kept])? };
        if least > tokens {
            return Err(Error::ContextOverflow { limit: tokens, asked: least });
        }
        while kept - dropped > 1 {
            let middle = dropped + (kept - dropped) / 2;
            if asked(starts[middle])? <= tokens { kept = middle } else { dropped = middle }
        }
        Ok(from(starts[kept]))
    }
}
