use super::*;
use crate::generate::Step;
use crate::{GenerateOptions, UnifiedModelFactory};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn template(source: &str) -> ChatTemplate<'_> {
    ChatTemplate { source, bos: Some("<bos>"), eos: Some("<eos>") }
}

fn rendered(source: &str) -> Result<String> {
    template(source).render(&[Message::user("Hi")], &ChatOptions::default(), true)
}

/// What `expected` has of one case against what is rendered: the text byte for byte, or what the template raises.
fn differs(source: &str, expected: &Json, case: &Json) -> Option<String> {
    let conversation = &expected["conversations"][case["conversation"].as_str().unwrap()];
    let field = |message: &Json, name: &str| message[name].as_str().unwrap().to_owned();
    let messages: Vec<Message> = conversation
        .as_array()
        .unwrap()
        .iter()
        .map(|message| Message::new(field(message, "role"), field(message, "content")))
        .collect();
    let mut options = ChatOptions::default().now(expected["now"].as_str().unwrap().parse().unwrap());
    for (name, value) in case["variables"].as_object().unwrap() {
        options = options.variable(name, value.clone());
    }
    let found = template(source).render(&messages, &options, case["generation_prompt"].as_bool().unwrap());
    let same = match &found {
        Ok(text) => case["text"].as_str() == Some(text),
        Err(Error::ChatRefused { message }) => case["error"].as_str() == Some(message),
        Err(_) => false,
    };
    (!same).then(|| format!("{case:#}\nfound {found:?}"))
}

#[test]
fn templates_render_as_in_transformers() {
    let ours = fixtures().join("templates");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/templates");
    let expected: Json = serde_json::from_slice(&std::fs::read(ours.join("chats.json")).unwrap()).unwrap();
    let (mut differences, mut cases, mut own) = (Vec::new(), 0, 0);
    for (name, recorded) in expected["templates"].as_object().unwrap() {
        let (at_ours, at_shared) = (ours.join(name), shared.join(name));
        own += usize::from(at_ours.exists());
        let Some(path) = [at_ours, at_shared].into_iter().find(|path| path.exists()) else {
            println!("skipped {name}: ../shared/templates is absent");
            continue;
        };
        let source = std::fs::read_to_string(path).unwrap();
        for case in recorded.as_array().unwrap() {
            cases += 1;
            differences.extend(differs(&source, &expected, case).map(|difference| format!("{name}: {difference}")));
        }
    }
    assert!(own == 5 && cases >= 160, "{own} templates of our own and {cases} cases were found");
    assert!(differences.is_empty(), "{} of {cases} differ\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn what_a_template_raises_is_told() {
    let raised = rendered("{{ raise_exception('no ' ~ messages[0].role) }}");
    assert!(matches!(&raised, Err(Error::ChatRefused { message }) if message == "no user"), "{raised:?}");
    let inside = rendered("{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}");
    assert!(matches!(&inside, Err(Error::ChatRefused { message }) if message == "deep"), "{inside:?}");
}

#[test]
fn a_broken_template_is_an_error() {
    for broken in
        ["{% if %}", "{{ messages", "{% for x in %}{% endfor %}", "{{ none.x.y }}", "{{ nothing() }}", "{{ 1 | no }}"]
    {
        let error = rendered(broken);
        assert!(matches!(error, Err(Error::ChatTemplate { .. })), "{broken}: {error:?}");
    }
}

#[test]
fn a_template_without_end_is_stopped() {
    let limits = [
        ("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", "instructions"),
        (
            "{% macro m() %}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}{% endmacro %}{{ m() }}",
            "instructions",
        ),
        ("{% for a in range(90000) %}{{ 'twenty bytes of text' }}{% endfor %}", "bytes of text"),
    ];
    for (source, expected) in limits {
        let error = rendered(source);
        assert!(matches!(error, Err(Error::ChatTemplateLimit { what, .. }) if what == expected), "{source}: {error:?}");
    }
    let recursion = rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    assert!(matches!(recursion, Err(Error::ChatTemplate { .. } | Error::ChatTemplateLimit { .. })), "{recursion:?}");
}

#[test]
fn a_model_without_a_template_says_so() {
    let model = UnifiedModelFactory::load(fixtures().join("demo")).unwrap();
    assert_eq!(model.spec().tokenizer.chat_template, None);
    let chat = model.chat(&[Message::user("Hi")], &GenerateOptions::default());
    assert!(matches!(chat, Err(Error::NoChatTemplate)));
}

#[test]
fn a_session_computes_only_what_a_chat_adds_and_bos_stands_once() {
    let model = UnifiedModelFactory::load(fixtures().join("models/llama-3.1/bf16")).unwrap();
    let bos = model.spec().tokenizer.bos.unwrap();
    let mut session = model.session();
    let mut messages = vec![Message::user("Hi")];
    let options = GenerateOptions::default().max_tokens(4);
    let prompt = model.tokenizer().encode_prompt(&model.chat_prompt(&messages, &options.chat).unwrap()).unwrap();
    assert_eq!(prompt.iter().filter(|id| **id == bos).count(), 1);
    assert_eq!(prompt[0], bos);
    let mut answer = session.chat(&messages, &options).unwrap();
    let text = answer.text().unwrap();
    assert_eq!(answer.finish().1.prompt_tokens, prompt.len());
    messages.extend([Message::assistant(text), Message::user("More")]);
    let whole = model.tokenizer().encode_prompt(&model.chat_prompt(&messages, &options.chat).unwrap()).unwrap();
    let next = session.chat(&messages, &options).unwrap();
    let computed = whole.len() - prompt.len();
    assert!(next.finish().1.prompt_tokens <= computed, "{} of {computed}", next.finish().1.prompt_tokens);
    drop(next);
    assert!(session.room() < model.context_length(), "the session holds what it has in common");
}
