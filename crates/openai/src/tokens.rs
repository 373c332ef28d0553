//! The JSON of requests about tokens and prompts, as llama.cpp's server and vLLM have them -> their answers: `tokenize`,
//! `detokenize` and `apply-template`.

use super::fields::Fields;
use super::request::{CompletionInput, CompletionRequest};
use crate::error::RequestError;
use model_factory::chat::ChatTemplate;
use model_factory::tokenizer::Tokenizer;
use model_factory::{Message, Model};
use serde_json::{Value, json};
use std::borrow::Cow;

/// A conversation that is written by the chat template, and not answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TemplateRequest {
    /// The conversation with the options of its template.
    pub request: CompletionRequest,
    /// Whether the prompt ends where the answer begins.
    pub generation_prompt: bool,
}

impl TemplateRequest {
    /// Reads the body of a request of `apply-template`: that of `chat/completions`, where `add_generation_prompt` may be false too.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn parse(body: &[u8]) -> Result<TemplateRequest, RequestError> {
        TemplateRequest::of(Fields::parse(body)?)
    }

    fn of(mut fields: Fields) -> Result<TemplateRequest, RequestError> {
        let continues: bool = fields.get("continue_final_message").and_then(Value::as_bool).unwrap_or(false);
        let prompt = if continues { None } else { fields.take("add_generation_prompt")? };
        let request = CompletionRequest::chat(&fields.body())?;
        Ok(TemplateRequest { request, generation_prompt: prompt.unwrap_or(true) })
    }

    fn messages(&self) -> &[Message] {
        match &self.request.input {
            CompletionInput::Messages(messages) => messages,
            _ => &[],
        }
    }

    /// The prompt: `{"prompt": ".."}`.
    ///
    /// # Errors
    /// `Chat` for messages of which the model's template makes no prompt.
    pub fn render(&self, model: &Model) -> model_factory::Result<Value> {
        let options = self.request.options.template_options();
        let template = ChatTemplate::of(&model.spec().tokenizer, &options)?;
        Ok(json!({ "prompt": template.render(self.messages(), &options, self.generation_prompt)? }))
    }

    fn ids(&self, model: &Model) -> model_factory::Result<Vec<u32>> {
        let options = self.request.options.template_options();
        if self.generation_prompt {
            return model.prompt_ids(self.messages(), &options);
        }
        let template = ChatTemplate::of(&model.spec().tokenizer, &options)?;
        Ok(template.render_with_spans(self.messages(), &options, false)?.encode(model.tokenizer())?)
    }
}

/// A request of `tokenize`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenizeRequest {
    /// The name of the model, if given. The server has to check whether it has such a model.
    pub model: Option<String>,
    /// Whether tokens have their texts too.
    pub with_pieces: bool,
    input: Input,
}

#[derive(Clone, Debug)]
enum Input {
    /// llama.cpp's `content`, or vLLM's `prompt`.
    Text {
        text: String,
        is_content: bool,
        add_special: bool,
        parse_special: bool,
    },
    Chat(Box<TemplateRequest>),
}

impl TokenizeRequest {
    /// Reads the body of a request: `content` as llama.cpp's server has it, `prompt` or `messages` as vLLM has them.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn parse(body: &[u8]) -> Result<TokenizeRequest, RequestError> {
        let mut fields = Fields::parse(body)?;
        if fields.get("messages").is_some() {
            let with_pieces = fields.take("return_token_strs")?.unwrap_or(false);
            let special: Option<bool> = fields.take("add_special_tokens")?;
            fields
                .at("add_special_tokens")
                .ensure(special != Some(true), "the template writes them, expected false")?;
            let chat = TemplateRequest::of(fields)?;
            return Ok(TokenizeRequest {
                model: chat.request.model.clone(),
                with_pieces,
                input: Input::Chat(chat.into()),
            });
        }
        let is_content = fields.get("prompt").is_none();
        let names = if is_content {
            ["content", "with_pieces", "add_special"]
        } else {
            ["prompt", "return_token_strs", "add_special_tokens"]
        };
        let [text, with_pieces, add_special] = names;
        let text = fields.require(text)?;
        let with_pieces = fields.take(with_pieces)?.unwrap_or(false);
        let add_special = fields.take(add_special)?.unwrap_or(!is_content);
        let parse_special = if is_content { fields.take("parse_special")? } else { None }.unwrap_or(true);
        let model = fields.take("model")?;
        fields.end()?;
        Ok(TokenizeRequest { model, with_pieces, input: Input::Text { text, is_content, add_special, parse_special } })
    }

    /// The field with the text or the messages, for errors.
    pub fn input(&self) -> &'static str {
        match self.input {
            Input::Text { is_content: true, .. } => "content",
            Input::Text { .. } => "prompt",
            Input::Chat(_) => "messages",
        }
    }

    /// The JSON of the tokens: `{"count": .., "max_model_len": .., "tokens": [..]}`. Of `content` those with pieces are objects with
    /// `id` and `piece`, the bytes where it is no text; otherwise their texts are `token_strs`. A text has many tokens, so that they
    /// are written as they come.
    ///
    /// # Errors
    /// `Encode`, and `Chat` for messages of which the model's template makes no prompt.
    pub fn tokenize(&self, model: &Model) -> model_factory::Result<String> {
        let tokenizer = model.tokenizer();
        let ids = match &self.input {
            Input::Text { text, add_special, parse_special: true, .. } => tokenizer.encode(text, *add_special)?,
            Input::Text { text, add_special, .. } => tokenizer.encode_ordinary(text, *add_special)?,
            Input::Chat(chat) => chat.ids(model)?,
        };
        let piece = |id: u32| match tokenizer.token_bytes(id).unwrap_or_default() {
            [] => tokenizer.token_text(id).unwrap_or_default().into(),
            bytes => std::str::from_utf8(bytes).map_or_else(|_| Value::from(bytes), Value::from),
        };
        let head = format!(r#"{{"count":{},"max_model_len":{},"tokens":"#, ids.len(), model.context_length());
        let is_content = matches!(self.input, Input::Text { is_content: true, .. });
        let mut answer = head;
        if self.with_pieces && is_content {
            list(&mut answer, &ids, |id| json!({ "id": id, "piece": piece(id) }));
        } else {
            list(&mut answer, &ids, Value::from);
            if self.with_pieces {
                answer.push_str(r#","token_strs":"#);
                list(&mut answer, &ids, |id| tokenizer.token_text(id).into());
            }
        }
        answer.push('}');
        Ok(answer)
    }
}

/// Writes a list with a value for each id.
fn list(json: &mut String, ids: &[u32], value: impl Fn(u32) -> Value) {
    json.push('[');
    for (index, id) in ids.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(&value(*id).to_string());
    }
    json.push(']');
}

/// A request of `detokenize`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DetokenizeRequest {
    /// The name of the model, if given. The server has to check whether it has such a model.
    pub model: Option<String>,
    /// The ids.
    pub tokens: Vec<u32>,
}

impl DetokenizeRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn parse(body: &[u8]) -> Result<DetokenizeRequest, RequestError> {
        let mut fields = Fields::parse(body)?;
        let (tokens, model) = (fields.require("tokens")?, fields.take("model")?);
        fields.end()?;
        Ok(DetokenizeRequest { model, tokens })
    }

    /// The text, by the names of both servers: `{"content": "..", "prompt": ".."}`. The names of special tokens are part of it.
    ///
    /// # Errors
    /// `TokenOutOfVocabulary`.
    pub fn detokenize(&self, model: &Model) -> model_factory::Result<Value> {
        let (tokenizer, vocab) = (model.tokenizer(), model.tokenizer().vocab_len());
        if let Some(&id) = self.tokens.iter().find(|id| piece(tokenizer, **id).is_none()) {
            return Err(model_factory::Error::TokenOutOfVocabulary { id, vocab });
        }
        let text = text_of(tokenizer, &self.tokens);
        Ok(json!({ "content": text, "prompt": text }))
    }
}

/// The text of a token, or its name if it has none; `None` beyond the vocabulary.
fn piece(tokenizer: &Tokenizer, id: u32) -> Option<Cow<'_, [u8]>> {
    let known = tokenizer.token_bytes(id).filter(|bytes| !bytes.is_empty()).map(Cow::Borrowed);
    known.or_else(|| tokenizer.token_text(id).map(|text| Cow::Owned(text.into_bytes())))
}

/// The text of `ids` with the names of special tokens.
pub(super) fn text_of(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().filter_map(|id| piece(tokenizer, *id)).flat_map(Cow::into_owned).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
