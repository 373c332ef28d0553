//! The JSON of a request of `/api/embed` or `/api/embeddings` -> vectors, and their JSON.

use crate::embedding::EmbeddingRequest;
use crate::error::RequestError;
use crate::fields::Fields;
use model_factory::Model;
use serde_json::{Value, json};
use std::time::Instant;

/// A request of vectors.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbedRequest {
    /// The same request of the OpenAI API; the server has to put the adapters into its options.
    pub request: EmbeddingRequest,
    /// Whether the answer has one vector only, as that of `/api/embeddings`.
    is_one: bool,
}

impl EmbedRequest {
    /// Reads the body of a request of `/api/embed`.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn embed(body: &[u8]) -> Result<EmbedRequest, RequestError> {
        EmbedRequest::read(body, "input")
    }

    /// Reads the body of a request of `/api/embeddings`.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn embeddings(body: &[u8]) -> Result<EmbedRequest, RequestError> {
        EmbedRequest::read(body, "prompt")
    }

    fn read(body: &[u8], input: &str) -> Result<EmbedRequest, RequestError> {
        let mut fields = Fields::parse(body)?;
        let given: Value = fields.require(input)?;
        let is_one = input == "prompt";
        let is_text =
            given.is_string() || !is_one && given.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        fields
            .at(input)
            .ensure(is_text, if is_one { "expected a text" } else { "expected a text or a list of texts" })?;
        let model: String = fields.require("model")?;
        let cut = fields.take("truncate")?.unwrap_or(true);
        let dimensions: Option<usize> = if is_one { None } else { fields.count("dimensions", None)? };
        for name in ["options", "keep_alive"] {
            fields.take::<Value>(name)?; // a text is computed in one way
        }
        fields.end()?;
        let body = json!({ "input": given, "model": model, "dimensions": dimensions });
        let mut request = EmbeddingRequest::parse(body.to_string().as_bytes())?;
        request.options = request.options.truncate(cut);
        Ok(EmbedRequest { request, is_one })
    }

    /// The answer of the model of this name. Takes as long as computing the vectors.
    ///
    /// # Errors
    /// The errors of [`Model::embeddings`].
    pub fn answer(&self, model: &Model, name: &str) -> model_factory::Result<Value> {
        let begun = Instant::now();
        let mut answer = self.request.embed(model, name)?;
        let vectors = answer["data"].as_array_mut().into_iter().flatten().map(|one| one["embedding"].take());
        if self.is_one {
            return Ok(json!({ "embedding": vectors.collect::<Vec<_>>().pop() }));
        }
        let vectors: Value = vectors.collect();
        let duration = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let tokens = &answer["usage"]["prompt_tokens"];
        Ok(json!({
            "model": name, "embeddings": vectors, "total_duration": duration, "load_duration": 0, "prompt_eval_count": tokens,
        }))
    }
}
