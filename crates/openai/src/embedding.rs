//! The JSON of an `embeddings` request -> vectors, and their JSON.

use super::fields::Fields;
use super::request::CompletionInput;
use crate::error::RequestError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model_factory::{EmbedOptions, Error, Model};
use serde_json::{Value, json};

/// The most texts of a request, as in the OpenAI API.
const MOST_TEXTS: usize = 2048;

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
        let mut fields = Fields::parse(body)?;
        let input = CompletionInput::take(&mut fields, "input")?;
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
        let embeddings = match &self.input {
            CompletionInput::Ids(ids) => model.embeddings_of_ids(ids, &self.options)?,
            CompletionInput::Texts(texts) => model.embeddings(texts, &self.options)?,
            CompletionInput::Messages(_) | CompletionInput::Infill { .. } => {
                return Err(Error::Internal("messages have no vector".into()));
            }
        };
        let data = embeddings.vectors().enumerate().map(|(index, vector)| {
            let embedding = if self.base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Value::from(BASE64_STANDARD.encode(bytes))
            } else {
                Value::from(vector)
            };
            json!({ "object": "embedding", "index": index, "embedding": embedding })
        });
        let tokens = embeddings.tokens();
        let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
        Ok(json!({ "object": "list", "model": name, "data": data.collect::<Vec<_>>(), "usage": usage }))
    }
}
