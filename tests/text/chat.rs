//! Chats through whole models: what they think is told from what they say, and templates go by their names.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, load_with_defaults};

use model_factory::error::ChatError;
use model_factory::generate::Step;
use model_factory::{ChatOptions, Error, GenerateOptions, Message, Model, Piece, UnifiedModelFactory};
use serde_json::json;

/// Nearly every token is as likely as any other, so that a model of random weights closes a block before long.
fn noise(seed: u64) -> GenerateOptions {
    GenerateOptions::default().max_tokens(600).temperature(1000.0).seed(seed).ignore_stop(true)
}

fn pieces(model: &Model, options: &GenerateOptions) -> (Vec<Piece>, Vec<u32>) {
    let mut generation = model.chat(&[Message::user("Hi")], options).unwrap();
    let pieces: Vec<Piece> = generation.by_ref().map(Result::unwrap).collect();
    (pieces, generation.ids().to_vec())
}

/// What `pieces` must be marked as, by only the ids of the marks.
fn expected(ids: &[u32], open: u32, close: u32, mut inside: bool) -> Vec<bool> {
    let mark = |id: &u32| {
        let thought = inside || *id == open;
        inside = thought && *id != close;
        thought
    };
    ids.iter().map(mark).collect()
}

#[test]
fn a_reasoning_model_thinks_until_it_closes_the_block() {
    let mut closed = 0;
    for path in [
        "r1-distill-llama/bf16",
        "r1-distill-llama/q8_0.gguf",
        "r1-distill-qwen/bf16",
        "r1-distill-qwen/q8_0.gguf",
        "r1-0528-qwen3/bf16",
        "r1-0528-qwen3/q8_0.gguf",
    ] {
        let model = load_with_defaults(path);
        let mark = |text: &str| model.tokenizer().added_token(text).expect("a mark");
        let (open, close) = (mark("<think>"), mark("</think>"));
        for seed in 0..3 {
            let (pieces, ids) = pieces(&model, &noise(seed));
            let found: Vec<bool> =
                pieces.iter().filter(|piece| piece.token.is_some()).map(|piece| piece.thinking).collect();
            // The template ends the prompt with `<think>`.
            assert_eq!(found, expected(&ids, open, close, true), "{path}, seed {seed}");
            let thought: String =
                pieces.iter().filter(|piece| piece.thinking).map(|piece| piece.text.as_str()).collect();
            closed += usize::from(thought.contains("</think>"));
            let said: String = pieces.iter().filter(|piece| !piece.thinking).map(|piece| piece.text.as_str()).collect();
            assert!(!said.contains("<think>"), "{path}, seed {seed}: {said}");
        }
    }
    // A block stays open for all 600 of 320 equally likely tokens in 15 of 100 cases: 18 times in a row never.
    assert!(closed > 0);
}

#[test]
fn a_prompt_that_closed_its_block_is_answered_without_thought() {
    let model = load_with_defaults("r1-distill-llama/bf16");
    let options = GenerateOptions::default().max_tokens(8);
    let thinks = |prompt: &str| {
        let mut generation = model.generate(prompt, &options).unwrap();
        let first = generation.next().unwrap().unwrap();
        first.thinking
    };
    assert_eq!(["Hi<think>\n", "Hi<think>\n\n</think>\n\n", "Hi"].map(thinks), [true, false, false]);
}

#[test]
fn a_model_without_the_marks_never_thinks() {
    let model = load_with_defaults("qwen3/bf16");
    assert_eq!(model.tokenizer().added_token("<think>"), None);
    let (pieces, ids) = pieces(&model, &noise(1));
    assert!(ids.len() == 600 && pieces.iter().all(|piece| !piece.thinking));
    let spelled = model.generate("<think>\n", &GenerateOptions::default().max_tokens(4)).unwrap();
    assert!(spelled.map(Result::unwrap).all(|piece| !piece.thinking));
}

#[test]
fn a_chat_goes_by_the_template_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = common::fixtures().join("models/llama-3.1/bf16");
    for name in
        ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    {
        std::fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("chat_template.jinja"), "default {{ messages[0].content }}").unwrap();
    std::fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
    let named = |name: &str| folder.path().join("additional_chat_templates").join(name);
    std::fs::write(named("tool_use.jinja"), "{{ tools | tojson }} {{ messages[0].content }}").unwrap();
    std::fs::write(named("broken.jinja"), "\n{{ messages[0].content.x.y }}").unwrap();

    let model = UnifiedModelFactory::load(folder.path()).unwrap();
    let messages = [Message::user("Hi")];
    let prompt = |options: &ChatOptions| model.chat_prompt(&messages, options);
    let (plain, tool) = (ChatOptions::default(), json!({"name": "time"}));
    assert_eq!(prompt(&plain).unwrap(), "default Hi");
    assert_eq!(prompt(&plain.clone().tool(tool.clone())).unwrap(), r#"[{"name": "time"}] Hi"#);
    assert_eq!(prompt(&plain.clone().template("tool_use")).unwrap(), "null Hi");
    assert_eq!(prompt(&plain.clone().tool(tool).template("default")).unwrap(), "default Hi");
    let unknown = prompt(&plain.clone().template("rag")).unwrap_err();
    assert!(matches!(&unknown, Error::Chat(ChatError::TemplateName { known, .. }) if known.len() == 3), "{unknown:?}");
    let options = GenerateOptions::default().chat(plain.template("broken"));
    let broken = model.chat(&messages, &options).map(drop).unwrap_err();
    let Error::Chat(ChatError::Template { place, line, .. }) = &broken else { panic!("{broken:?}") };
    assert_eq!((&place.file, &place.key, *line), (&named("broken.jinja"), &None, Some(2)));
}

#[test]
fn a_gguf_template_is_named_by_its_key() {
    let model = load_with_defaults("llama-3.1/q8_0.gguf");
    let place = &model.spec().tokenizer.chat_templates["default"].place;
    assert!(place.file.ends_with("q8_0.gguf"), "{place}");
    assert_eq!(place.key.as_deref(), Some("tokenizer.chat_template"));
}

#[test]
fn a_model_without_a_template_says_so() {
    let model = load_with_defaults("phi-2/bf16");
    assert!(model.spec().tokenizer.chat_templates.is_empty());
    let chat = model.chat(&[Message::user("Hi")], &GenerateOptions::default());
    assert!(matches!(chat, Err(Error::Chat(ChatError::NoTemplate))));
}

#[test]
fn a_session_computes_only_what_a_chat_adds_and_bos_stands_once() {
    let model = load_with_defaults("llama-3.1/bf16");
    let bos = model.spec().tokenizer.bos.unwrap();
    let mut session = model.session();
    let mut messages = vec![Message::user("Hi")];
    let options = GenerateOptions::default().max_tokens(4);
    let prompt = model.tokenizer().encode_prompt(&model.chat_prompt(&messages, &options.chat).unwrap()).unwrap();
    assert_eq!(prompt.iter().filter(|id| **id == bos).count(), 1);
    assert_eq!(prompt[0], bos);
    let mut answer = session.generate(&messages, &options).unwrap();
    let text = answer.text().unwrap();
    assert_eq!(answer.finish().1.prompt_tokens, prompt.len());
    messages.extend([Message::assistant(text), Message::user("More")]);
    let whole = model.tokenizer().encode_prompt(&model.chat_prompt(&messages, &options.chat).unwrap()).unwrap();
    let next = session.generate(&messages, &options).unwrap();
    let computed = whole.len() - prompt.len();
    assert!(next.finish().1.prompt_tokens <= computed, "{} of {computed}", next.finish().1.prompt_tokens);
    drop(next);
    assert!(session.room() < model.context_length(), "the session holds what it has in common");
}
