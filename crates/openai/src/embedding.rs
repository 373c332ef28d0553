//! The JSON of an `embeddings` request -> vectors, and their JSON.

use super::fields::Fields;
use super::llama_cpp::prompt;
use super::request::{CompletionInput, PromptPart};
use crate::error::RequestError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model_factory::{EmbedOptions, Embeddings, Error, Model};
use serde_json::{Value, json};
use std::borrow::Cow;

/// The most texts of a request, as in the OpenAI API.
const MOST_TEXTS: usize = 2048;

/// Texts, and the ids of others.
type Parts<'r> = (Vec<&'r str>, Vec<Cow<'r, [u32]>>);

/// A request of `embeddings`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbeddingRequest {
    /// The name of the model, if given. The server has to check whether it has such a model.
    pub model: Option<String>,
    /// The texts, or the ids of each; at least one.
    pub input: CompletionInput,
    /// Whether vectors are given as bytes of their F32, little-endian, in base64.
    pub base64: bool,
    /// How the vectors are made.
    pub options: EmbedOptions,
}

impl EmbeddingRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn parse(body: &[u8]) -> Result<EmbeddingRequest, RequestError> {
        EmbeddingRequest::of(Fields::parse(body)?)
    }

    pub(super) fn of(mut fields: Fields) -> Result<EmbeddingRequest, RequestError> {
        let input = match fields.get("input") {
            Some(Value::Object(_)) => prompt::take(&mut fields, "input")?,
            Some(Value::Array(list)) if is_mixed(list) => prompt::take(&mut fields, "input")?,
            _ => CompletionInput::take(&mut fields, "input")?,
        };
        fields.at("input").ensure(input.count() <= MOST_TEXTS, format_args!("expected {MOST_TEXTS} texts at most"))?;
        let options = fields.take("dimensions")?.into_iter().fold(EmbedOptions::default(), EmbedOptions::dimensions);
        let base64 = match fields.take::<String>("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(fields.at("encoding_format").wrong("expected float or base64")),
        };
        let model = fields.take("model")?;
        fields.end()?;
        Ok(EmbeddingRequest { model, input, base64, options })
    }

    /// The answer of the model of this name: `{"object": "list", "model": "..", "data": [{"object": "embedding", "index": 0,
    /// "embedding": [..]}, ..], "usage": {"prompt_tokens": .., "total_tokens": ..}}`. Takes as long as computing the vectors.
    ///
    /// # Errors
    /// The errors of [`Model::embeddings`].
    pub fn embed(&self, model: &Model, name: &str) -> model_factory::Result<Value> {
        let (texts, ids) = self.parts(model)?;
        let of_texts = if texts.is_empty() { None } else { Some(model.embeddings(&texts, &self.options)?) };
        let of_ids = if ids.is_empty() { None } else { Some(model.embeddings_of_ids(&ids, &self.options)?) };
        let mut of_texts_in_turn = of_texts.iter().flat_map(Embeddings::vectors);
        let mut of_ids_in_turn = of_ids.iter().flat_map(Embeddings::vectors);
        let vectors = (0..self.input.count())
            .filter_map(|index| if self.is_text(index) { of_texts_in_turn.next() } else { of_ids_in_turn.next() });
        let data = vectors.enumerate().map(|(index, vector)| {
            let embedding = if self.base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Value::from(BASE64_STANDARD.encode(bytes))
            } else {
                Value::from(vector)
            };
            json!({ "object": "embedding", "index": index, "embedding": embedding })
        });
        let data: Vec<Value> = data.collect();
        let tokens: usize = of_texts.iter().chain(&of_ids).map(Embeddings::tokens).sum();
        let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
        Ok(json!({ "object": "list", "model": name, "data": data, "usage": usage }))
    }

    /// Whether the text of this index is one, and not ids.
    fn is_text(&self, index: usize) -> bool {
        match &self.input {
            CompletionInput::Mixed(prompts) => {
                matches!(prompts.get(index).map(Vec::as_slice), Some([PromptPart::Text(_)]))
            }
            input => matches!(input, CompletionInput::Texts(_)),
        }
    }

    /// The texts, and the ids of all others, each in their order. Texts among ids have no special tokens around them.
    fn parts(&self, model: &Model) -> model_factory::Result<Parts<'_>> {
        let (mut texts, mut ids) = (Vec::new(), Vec::new());
        match &self.input {
            CompletionInput::Texts(given) => texts.extend(given.iter().map(String::as_str)),
            CompletionInput::Ids(given) => ids.extend(given.iter().map(Cow::from)),
            CompletionInput::Mixed(prompts) => {
                for parts in prompts {
                    if let [PromptPart::Text(text)] = parts.as_slice() {
                        texts.push(text);
                        continue;
                    }
                    let mut all = Vec::new();
                    for part in parts {
                        match part {
                            PromptPart::Ids(of) => all.extend_from_slice(of),
                            PromptPart::Text(text) => all.extend(model.tokenizer().encode_ordinary(text, false)?),
                        }
                    }
                    ids.push(all.into());
                }
            }
            CompletionInput::Messages(_) | CompletionInput::Infill { .. } => {
                return Err(Error::Internal("only texts and ids have vectors".into()));
            }
        }
        Ok((texts, ids))
    }
}

/// Whether texts, ids and objects stand beside each other.
fn is_mixed(list: &[Value]) -> bool {
    let kind = |value: &Value| (value.is_string(), value.is_number(), value.is_array(), value.is_object());
    let is_list = |value: &Value| value.as_array().is_some_and(|list| is_mixed(list));
    list.iter().any(|value| value.is_object() || is_list(value))
        || list.windows(2).any(|two| kind(&two[0]) != kind(&two[1]))
}
