//! Text <-> ids: tokenizers, templates of chats, tools, and requests of the OpenAI API.
#![allow(clippy::duplicate_mod)] // `edit` has the archives too

mod anthropic;
// Files of samples that tests of the diagnosis write too, with `pub` for those.
#[path = "../../diagnostics/tests/formats/build.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used)]
mod build;
mod chat;
#[path = "../common/mod.rs"]
mod common;
mod completions;
mod direct;
#[path = "../../diagnostics/tests/hostile/edit.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used)]
mod edit;
mod forgery;
mod gemma_tokenizers;
mod hostile;
mod llama_cpp;
mod ollama;
mod openai;
mod other_clients;
mod pre_tokenizers;
mod responses;
mod tiktoken;
mod tokenizers;
mod tool_requests;
mod turns;
