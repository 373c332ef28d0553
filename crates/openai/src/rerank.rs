//! The JSON of a request of `rerank` -> documents by their scores, as Jina, Cohere, vLLM, llama.cpp's server and text-embeddings-inference have it.

use super::fields::{Fields, Place};
use crate::error::RequestError;
use model_factory::{ClassifyOptions, Model, Reranker};
use serde_json::{Value, json};

/// The most documents of a request, as of texts in the OpenAI API.
const MOST_DOCUMENTS: usize = 2048;

/// A request of `rerank`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RerankRequest {
    /// The name of the model, if given. The server has to check whether it has such a model.
    pub model: Option<String>,
    /// The query.
    pub query: String,
    /// The documents; at least one.
    pub documents: Vec<String>,
    /// The number of results.
    pub top: usize,
    /// Whether results have their documents.
    pub gives_documents: bool,
    /// Whether a pair that is too long is cut.
    pub truncate: bool,
    /// Whether documents came as `texts`: the answer is only a list, as in text-embeddings-inference.
    pub has_texts: bool,
    /// How the scores are made; the server has to put the adapters into it.
    pub options: ClassifyOptions,
}

impl RerankRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// An error that names the field, if the body is invalid.
    pub fn parse(body: &[u8]) -> Result<RerankRequest, RequestError> {
        let mut fields = Fields::parse(body)?;
        let has_texts = fields.get("texts").is_some();
        let name = if has_texts { "texts" } else { "documents" };
        let given: Vec<Value> = fields.require(name)?;
        let at = fields.at(name);
        let expected = format_args!("expected 1 to {MOST_DOCUMENTS} documents");
        at.ensure((1..=MOST_DOCUMENTS).contains(&given.len()), expected)?;
        let documents = given.into_iter().enumerate().map(|(index, value)| document(&at, index, value));
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        let query = fields.require("query")?;
        let (top, gives_documents, truncate) = if has_texts {
            let raw: Option<bool> = fields.take("raw_scores")?;
            fields.at("raw_scores").ensure(raw != Some(true), "scores are the model's own, expected false")?;
            (None, fields.take("return_text")?, fields.take("truncate")?)
        } else {
            (fields.count("top_n", None)?, fields.take("return_documents")?, None)
        };
        let at = fields.at("top_n");
        // llama.cpp's server has it in both forms.
        let top = top.or(fields.count("top_n", None)?).unwrap_or(documents.len());
        at.ensure(top > 0, "expected a number from 1 up")?;
        let model = fields.take("model")?;
        fields.end()?;
        Ok(RerankRequest {
            model,
            query,
            documents,
            top,
            gives_documents: gives_documents.unwrap_or(false),
            truncate: truncate.unwrap_or(false),
            has_texts,
            options: ClassifyOptions::default(),
        })
    }

    /// The answer of the model of this name, the best document first, and of equal ones the first: `{"model": "..", "results":
    /// [{"index": 2, "relevance_score": 0.9}, ..], ..}`, or for `texts` the list `[{"index": 2, "score": 0.9}, ..]`. It has the usage
    /// where `reranker` reads pairs. Takes as long as computing the scores.
    ///
    /// # Errors
    /// The errors of [`Model::rank_with`].
    pub fn rank(&self, model: &Model, name: &str, reranker: &Reranker) -> model_factory::Result<Value> {
        let reranker = reranker.clone().truncate(self.truncate);
        let scores = model.rank_with(&self.query, &self.documents, &reranker, &self.options)?;
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        order.truncate(self.top);
        let result = |index: usize| match (self.has_texts, self.gives_documents) {
            (true, false) => json!({ "index": index, "score": scores[index] }),
            (true, true) => json!({ "index": index, "score": scores[index], "text": self.documents[index] }),
            (false, false) => json!({ "index": index, "relevance_score": scores[index] }),
            (false, true) => {
                let document = json!({ "text": self.documents[index] });
                json!({ "index": index, "relevance_score": scores[index], "document": document })
            }
        };
        let results: Value = order.into_iter().map(result).collect();
        if self.has_texts {
            return Ok(results);
        }
        let mut answer = json!({ "object": "list", "model": name, "results": results });
        if reranker == Reranker::classifier() {
            let tokens =
                |document| Ok(model.tokenizer().encode_pair(&self.query, document)?.map_or(0, |(ids, _)| ids.len()));
            let tokens = self.documents.iter().map(|text| tokens(text)).sum::<model_factory::Result<usize>>()?;
            answer["usage"] = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
        }
        Ok(answer)
    }
}

/// A document: a text, or an object with one.
fn document(at: &Place, index: usize, value: Value) -> Result<String, RequestError> {
    let at = at.within(format_args!("[{index}]"));
    match value {
        Value::String(text) => Ok(text),
        Value::Object(fields) => {
            at.known(&fields, &["text"])?;
            at.text(&fields, "text").map(str::to_owned)
        }
        _ => Err(at.wrong("expected a text, or an object with one")),
    }
}
