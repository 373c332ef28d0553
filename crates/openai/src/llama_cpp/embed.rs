//! The JSON of a request of `/embedding` -> vectors, and their JSON.

use crate::embedding::EmbeddingRequest;
use crate::error::RequestError;
use crate::fields::Fields;
use model_factory::Model;
use serde_json::{Value, json};

/// A request of vectors.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VectorsRequest {
    /// The same request of the OpenAI API; the server has to put the adapters into its options.
    pub request: EmbeddingRequest,
}

impl VectorsRequest {
    /// Reads the body of a request, whose texts are `content`, or `input` as in the OpenAI API.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn parse(body: &[u8]) -> Result<VectorsRequest, RequestError> {
        let mut fields = Fields::parse(body)?;
        fields.rename("content", "input")?;
        let norm = fields.count("embd_normalize", Some(usize::MAX))?;
        let normalize = match norm {
            None | Some(2) => true,
            Some(usize::MAX) => false,
            Some(_) => return Err(fields.at("embd_normalize").wrong("expected 2, the Euclidean norm, or -1 for none")),
        };
        let mut request = EmbeddingRequest::of(fields)?;
        request.options = request.options.normalize(normalize);
        Ok(VectorsRequest { request })
    }

    /// The answer of the model of this name: `[{"index": 0, "embedding": [[..]]}, ..]`. Takes as long as computing the vectors.
    ///
    /// # Errors
    /// The errors of [`Model::embeddings`].
    pub fn answer(&self, model: &Model, name: &str) -> model_factory::Result<Value> {
        let mut answer = self.request.embed(model, name)?;
        let each = answer["data"].as_array_mut().into_iter().flatten();
        // A list of one vector: there, the vectors of all tokens may be asked for.
        Ok(each.map(|one| json!({ "index": one["index"], "embedding": [one["embedding"].take()] })).collect())
    }
}
