//! The OpenAI API without HTTP: JSON of requests -> generations, and their pieces -> JSON of answers.
//!
//! A server reads a body with [`CompletionRequest`] or [`EmbeddingRequest`], gives pieces to a [`ChunkBuilder`] as they come, and writes
//! what it makes of them: `serde_json`'s values. What goes wrong is an [`ApiError`], which has the status. Nothing waits or needs a runtime: generations are iterated on a thread, or are streams
//! ([`Generation::into_stream`](crate::Generation)). `serve/` in the repository is such a server.
//!
//! ```
//! use model_factory::openai::{ApiError, ChunkBuilder, CompletionRequest};
//! use model_factory::{Error, Model};
//!
//! /// Writes the events of an answer to `body`, a request of `chat/completions`.
//! fn answer(model: &Model, body: &[u8], mut write: impl FnMut(String)) -> Result<(), ApiError> {
//!     let request = CompletionRequest::chat(body).map_err(|error| ApiError::of(&error, "messages"))?;
//!     let mut chunks = ChunkBuilder::new(&request, model, "demo");
//!     let mut run = || {
//!         for (index, mut generation) in request.generations(model)?.into_iter().enumerate() {
//!             for piece in &mut generation {
//!                 if let Some(chunk) = chunks.push(index, piece?) {
//!                     write(format!("data: {chunk}\n\n"));
//!                 }
//!             }
//!             write(format!("data: {}\n\n", chunks.finish(index, generation.finish())?));
//!         }
//!         Ok(())
//!     };
//!     run().map_err(|error: Error| ApiError::of(&error, "messages"))?;
//!     if request.include_usage {
//!         write(format!("data: {}\n\n", chunks.usage()));
//!     }
//!     Ok(write("data: [DONE]\n\n".into()))
//! }
//!
//! let model = Model::load("fixtures/demo")?;
//! let body = br#"{"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 8, "stream": true}"#;
//! let mut events = Vec::new();
//! answer(&model, body, |event| events.push(event)).expect("it is answered");
//! print!("{}", events.concat()); // data: {"id":"chatcmpl-..","object":"chat.completion.chunk",..,"choices":[{"index":0,"delta":{..
//! assert!(events.len() > 2);
//!
//! let wrong = answer(&model, br#"{"messages": [{"role": "user", "content": "Hi"}], "tempreature": 1}"#, drop).expect_err("there is no such field");
//! assert_eq!((wrong.status, wrong.param.as_deref()), (400, Some("tempreature")));
//! # Ok::<(), model_factory::Error>(())
//! ```
//!
//! # What is read
//!
//! OpenAI's fields where something is done with them, `top_k`, `min_p`, `repetition_penalty`, `ignore_eos`, `cache_salt` and
//! `chat_template_kwargs` by the names that vLLM and llama.cpp's server have for them, and nothing else: a field that is not known is
//! [`RequestError::Unknown`](crate::RequestError), also inside of objects and messages, but for what goes to the chat template as it is
//! (tools). `null` is as good as absent. `user`, `metadata`, `safety_identifier` and `prompt_cache_key` say nothing about the answer and are
//! taken. Where a request says nothing, the model's own options hold.
//!
//! The values of a request take no more than 32 MiB, which [`Outline`] tells without reading them: many small values take a hundred times
//! the bytes of their text. Whoever reads several requests at once bounds what they take together by it.

mod chunks;
mod embedding;
mod error;
mod fields;
mod messages;
mod outline;
mod request;

pub use chunks::{ChunkBuilder, append};
pub use embedding::EmbeddingRequest;
pub use error::ApiError;
pub use outline::Outline;
pub use request::{CompletionInput, CompletionRequest};
