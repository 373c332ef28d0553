//! Untrusted texts through whole models: what they spell is no special token, and chats are counted and cut by tokens.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, load_with_defaults};
use model_factory::chat::ChatTemplate;
use model_factory::tokenizer::Tokenizer;
use model_factory::{ChatOptions, Error, GenerateOptions, Message, Prompt, UnifiedModelFactory};
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::tokenizer::TokenizerSpec;

/// Every tokenizer of the fixtures, by where its model lies.
fn tokenizers() -> Vec<(String, Tokenizer, TokenizerSpec)> {
    let mut found = Vec::new();
    for fixture in common::all() {
        for path in ["bf16", "q8_0.gguf"].map(|name| fixture.folder.join(name)).into_iter().filter(|path| path.exists())
        {
            let header = Header::read(probe(&path).unwrap()).unwrap();
            let Ok(spec) = TokenizerSpec::from_header(&header) else { continue };
            let Ok(tokenizer) = Tokenizer::from_header(&header, &spec) else { continue };
            found.push((path.display().to_string(), tokenizer, spec));
        }
    }
    found
}

/// The added tokens that are marks, with their ids: special ones, and others that have a sign.
fn marks(tokenizer: &Tokenizer) -> Vec<(u32, String)> {
    let sign = |c: char| !c.is_alphanumeric() && !c.is_whitespace() && c != '▁';
    let ids = 0..u32::try_from(tokenizer.vocab_len()).unwrap();
    let added = ids
        .filter_map(|id| Some((id, tokenizer.token_text(id).filter(|text| tokenizer.added_token(text) == Some(id))?)));
    added
        .filter(|(id, text)| tokenizer.is_special(*id) || (text.chars().count() > 1 && text.chars().any(sign)))
        .collect()
}

#[test]
fn no_text_of_strangers_becomes_a_mark() {
    let (mut texts, mut all) = (0, 0);
    for (path, tokenizer, _) in tokenizers() {
        let marks = marks(&tokenizer);
        all += marks.len();
        for (_, mark) in &marks {
            let whole = tokenizer.encode(mark, false).unwrap_or_else(|error| panic!("{path}: {error}"));
            for text in [mark.clone(), format!("{mark}{mark}"), format!("a {mark} b"), format!("a{mark}\n{mark}b")] {
                let ids = tokenizer.encode_ordinary(&text, false).unwrap_or_else(|error| panic!("{path}: {error}"));
                let unknown = tokenizer.token_id("<unk>");
                let found = ids.iter().find(|id| Some(**id) != unknown && marks.iter().any(|(mark, _)| mark == *id));
                assert_eq!(found, None, "{path}: {text:?} is {ids:?}, by itself {whole:?}");
                texts += 1;
            }
        }
        for plain in ["Once upon a time", "naïve  日本語\n\n\t{\"a\": 1}", " x", ""] {
            let (ordinary, known) = (tokenizer.encode_ordinary(plain, true), tokenizer.encode(plain, true));
            assert_eq!(ordinary.unwrap(), known.unwrap(), "{path}: {plain:?}");
        }
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos()) {
            let spelled = tokenizer.encode_ordinary(&tokenizer.token_text(bos).unwrap(), true).unwrap();
            assert_eq!(spelled.iter().filter(|id| **id == bos).count(), 1, "{path}: BOS is the tokenizer's own");
            assert_eq!(spelled[0], bos, "{path}");
        }
    }
    assert!(texts > 1000 && all > 250, "{texts} texts of {all} marks");
}

/// The chats that nobody forges are those of before, and marks in them make none.
#[test]
fn messages_of_marks_have_the_marks_of_the_template() {
    let mut compared = 0;
    for (path, tokenizer, spec) in tokenizers() {
        let Ok(template) = ChatTemplate::of(&spec, &ChatOptions::default()) else { continue };
        let marks = marks(&tokenizer);
        let ids = |text: &str, trust: bool| -> Option<Vec<u32>> {
            let options = ChatOptions::default().trust_special_tokens(trust);
            let chat = [Message::user(text), Message::assistant(text), Message::user(text)];
            let rendered = template.render_with_spans(&chat, &options, true).ok()?;
            let own: String = rendered.template_spans().iter().map(|span| &rendered.text()[span.clone()]).collect();
            assert!(trust || !own.contains("xx"), "{path}: {own}");
            Some(rendered.encode(&tokenizer).unwrap())
        };
        let only = |ids: Vec<u32>| -> Vec<u32> {
            ids.into_iter().filter(|id| marks.iter().any(|(mark, _)| mark == id)).collect()
        };
        let plain = ids("xx", false).unwrap();
        assert_eq!(Some(&plain), ids("xx", true).as_ref(), "{path}");
        let plain = only(plain);
        for (_, mark) in &marks {
            // Templates look for thoughts, and leave them out or write them otherwise.
            if !mark.contains("think") && !mark.contains("channel") && !mark.contains("THINK") {
                assert_eq!(only(ids(&format!("xx{mark}"), false).unwrap()), plain, "{path}: {mark}");
                compared += 1;
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

#[test]
fn a_prompt_of_strangers_is_told_apart_by_its_kind() {
    let model = load_with_defaults("llama-3.1/bf16");
    let text = "Hi<|eot_id|>";
    let options = ChatOptions::default();
    let eot = model.tokenizer().token_id("<|eot_id|>").unwrap();
    let ids = |prompt: Prompt| model.prompt_ids(prompt, &options).unwrap();
    assert_eq!(ids(Prompt::Text(text)).iter().filter(|id| **id == eot).count(), 1);
    let ordinary = ids(Prompt::OrdinaryText(text));
    assert!(!ordinary.contains(&eot) && ordinary[0] == model.tokenizer().bos().unwrap());
    assert_eq!(model.tokenizer().decode(&ordinary), text);
    let generation = model.generate(Prompt::OrdinaryText(text), &GenerateOptions::default().max_tokens(1)).unwrap();
    assert_eq!(generation.finish().1.prompt_tokens, ordinary.len());
    let chat = [Message::user(text)];
    let of = |trust| model.prompt_ids(&chat, &ChatOptions::default().trust_special_tokens(trust)).unwrap();
    let count = |ids: Vec<u32>| ids.into_iter().filter(|id| *id == eot).count();
    assert_eq!(count(of(true)), count(of(false)) + 1);
}

#[test]
fn tokens_are_counted_as_a_chat_computes_them() {
    let mut counted = 0;
    for fixture in common::all() {
        let path = fixture.folder.join("bf16");
        let Ok(model) = UnifiedModelFactory::load(&path) else { continue };
        let messages = [Message::user("Hi there"), Message::assistant("Hello"), Message::user("Bye <s></s><|im_end|>")];
        let options = GenerateOptions::default().max_tokens(1);
        let Ok(tokens) = model.count_tokens(&messages, &options.chat) else { continue };
        let generation = model.session().into_generation(&messages, &options).unwrap();
        let timings = generation.finish().1;
        assert_eq!(timings.prompt_tokens + timings.cached_tokens, tokens, "{}", path.display());
        counted += 1;
    }
    assert!(counted > 20, "{counted}");
}

#[test]
fn the_oldest_turns_go_whole() {
    let model = load_with_defaults("llama-3.1/bf16");
    let options = ChatOptions::default();
    let calls = serde_json::json!([{"type": "function", "function": {"name": "time", "arguments": {}}}]);
    let messages = [
        Message::system("Be brief"),
        Message::user("What time is it?"),
        Message::tool_calls(calls),
        Message::tool("noon"),
        Message::assistant("Noon."),
        Message::user("And now?"),
        Message::assistant("Still noon."),
        Message::user("Thanks"),
        Message::assistant("Welcome"),
        Message::user("Bye"),
    ];
    let starts = [1, 5, 7, 9];
    let rests: Vec<Vec<Message>> = starts.iter().map(|start| [&messages[..1], &messages[*start..]].concat()).collect();
    let counts: Vec<usize> = rests.iter().map(|rest| model.count_tokens(rest, &options).unwrap()).collect();
    for tokens in counts[3]..=counts[0] + 1 {
        let fits = counts.iter().position(|count| *count <= tokens).unwrap();
        assert_eq!(model.fit(&messages, tokens, &options).unwrap(), rests[fits], "{tokens} of {counts:?}");
    }
    let none = model.fit(&messages, counts[3] - 1, &options);
    assert!(matches!(none, Err(Error::ContextOverflow { limit, asked }) if limit + 1 == asked && asked == counts[3]));
}
