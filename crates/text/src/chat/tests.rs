use super::*;
use model_factory_format::header::Header;
use model_factory_format::source::probe;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

mod forged;
mod forgery;
mod hostile;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

static PLACE: LazyLock<TemplatePlace> = LazyLock::new(|| TemplatePlace { file: "a.jinja".into(), key: None });

static TOKENS: BTreeMap<String, String> = BTreeMap::new();

fn template(source: &str) -> ChatTemplate<'_> {
    ChatTemplate { source, place: &PLACE, bos: Some("<bos>"), eos: Some("<eos>"), tokens: &TOKENS }
}

fn rendered(source: &str) -> Result<String> {
    template(source).render(&[Message::user("Hi")], &ChatOptions::default(), true)
}

fn message(recorded: &Json) -> Message {
    let mut message = Message { content: None, ..Message::new("", "") };
    for (name, value) in recorded.as_object().unwrap() {
        match (name.as_str(), value) {
            ("role", value) => message.role = value.as_str().unwrap().into(),
            ("content", Json::String(content)) => message.content = Some(content.clone()),
            (name, value) => message = message.field(name, value.clone()),
        }
    }
    message
}

/// How the rendering of a case differs from `expected`: from the text byte for byte, or from the error that the template raises.
fn differs(source: &str, expected: &Json, case: &Json) -> Option<String> {
    let conversation = &expected["conversations"][case["conversation"].as_str().unwrap()];
    let messages: Vec<Message> = conversation.as_array().unwrap().iter().map(message).collect();
    let mut options = ChatOptions::default().now(expected["now"].as_str().unwrap().parse().unwrap());
    let tools = usize::try_from(case["tools"].as_u64().unwrap_or(0)).unwrap();
    for tool in &expected["tools"].as_array().unwrap()[..tools] {
        options = options.tool(tool.clone());
    }
    options = options.continue_final_message(case["continues"] == true);
    for (name, value) in case["variables"].as_object().unwrap() {
        options = options.variable(name, value.clone());
    }
    let found = template(source).render(&messages, &options, case["generation_prompt"].as_bool().unwrap());
    let same = match &found {
        Ok(text) => case["text"].as_str() == Some(text),
        // A message that is written twice has the mark of transformers in it.
        Err(Error::Chat(ChatError::Continue { .. }))
            if case["text"].as_str().is_some_and(|text| text.contains("CONTINUE_FINAL_MESSAGE_TAG")) =>
        {
            true
        }
        Err(Error::Chat(ChatError::Refused { message })) => case["error"].as_str() == Some(message),
        Err(_) => case["error"].is_null() && case.get("text").is_none(),
        // Without content transformers fails here, while this library tries other values: `tests/text/turns.rs`.
    } || (case["error"].is_null()
        && case.get("text").is_none()
        && messages.iter().any(Message::is_without_content));
    (!same).then(|| format!("{case:#}\nfound {found:?}"))
}

/// Published templates, which are not in the repository: a folder of them, and the `chats.json` that
/// `fixtures/make/chats.py --out FOLDER` records of it.
#[test]
fn published_templates_render_as_in_transformers() {
    let Some(folder) = std::env::var_os("CHAT_TEMPLATES").map(PathBuf::from) else {
        println!("skipped: CHAT_TEMPLATES names no folder");
        return;
    };
    let expected: Json = serde_json::from_slice(&std::fs::read(folder.join("chats.json")).unwrap()).unwrap();
    let (mut differences, mut cases) = (Vec::new(), 0);
    for (name, recorded) in expected["templates"].as_object().unwrap() {
        let source = std::fs::read_to_string(folder.join(name)).unwrap();
        let before = differences.len();
        for case in recorded.as_array().unwrap() {
            cases += 1;
            differences.extend(differs(&source, &expected, case).map(|difference| format!("{name}: {difference}")));
        }
        println!("{name}: {} cases, {} differ", recorded.as_array().unwrap().len(), differences.len() - before);
    }
    assert!(cases > 0 && differences.is_empty(), "{} of {cases} differ\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn templates_render_as_in_transformers() {
    let ours = fixtures().join("templates");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/templates");
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
    assert!(own == 9 && cases >= 440, "{own} templates of our own and {cases} cases were found");
    assert!(differences.is_empty(), "{} of {cases} differ\n{}", differences.len(), differences.join("\n"));
}

/// Each expression of `values.json` renders like in Python, or is refused.
#[test]
fn expressions_render_as_in_python_or_are_refused() {
    let recorded = std::fs::read(fixtures().join("templates/values.json")).unwrap();
    let recorded: Json = serde_json::from_slice(&recorded).unwrap();
    let (mut wrong, mut refused, mut equal) = (Vec::new(), Vec::new(), 0);
    for case in recorded["expressions"].as_array().unwrap() {
        let (expression, expected) = (case[0].as_str().unwrap(), case[1].as_str());
        match (rendered(&format!("{{{{ {expression} }}}}")), expected) {
            (Ok(found), Some(expected)) if found == expected => equal += 1,
            (Ok(found), _) => wrong.push(format!("{expression}\n  found {found:?}, expected {expected:?}")),
            (Err(_), None) => equal += 1,
            (Err(error), Some(_)) => refused.push(format!("{expression}: {error}")),
        }
    }
    println!("{equal} equal, {} refused\n{}", refused.len(), refused.join("\n"));
    // The refused ones are of a few kinds: `swapcase`, `encode`, `is callable`, printed generators and the like.
    assert!(equal >= 1300 && refused.len() <= 88, "{equal} equal, {} refused", refused.len());
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_a_template_raises_is_told() {
    let raised = rendered("{{ raise_exception('no ' ~ messages[0].role) }}");
    assert!(matches!(&raised, Err(Error::Chat(ChatError::Refused { message })) if message == "no user"), "{raised:?}");
    let inside = rendered("{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}");
    assert!(matches!(&inside, Err(Error::Chat(ChatError::Refused { message })) if message == "deep"), "{inside:?}");
    let acting = rendered("{{ raise_exception('a\\u001b[2Jé') }}").unwrap_err();
    assert!(acting.to_string().ends_with(": a\\u{1b}[2Jé"), "control characters are shown: {acting}");
}

#[test]
fn a_broken_template_is_an_error() {
    for broken in [
        "{% if %}",
        "{%}",
        "{% generation %}{%}",
        "{{ messages",
        "{% for x in %}{% endfor %}",
        "{{ none.x.y }}",
        "{{ nothing() }}",
        "{{ 1 | no }}",
    ] {
        let error = rendered(broken);
        assert!(matches!(error, Err(Error::Chat(ChatError::Template { .. }))), "{broken}: {error:?}");
    }
}

#[test]
fn an_error_names_the_place_and_the_line() {
    let cases = [
        ("\n\n{% if %}", 3),
        ("{% macro m() %}\n{{ none.x.y }}\n{% endmacro %}\n\n{{ m() }}", 2),
        ("{% generation %}\n{{ nothing() }}{% endgeneration %}", 2),
    ];
    for (source, expected) in cases {
        let error = rendered(source).unwrap_err();
        let Error::Chat(ChatError::Template { place, line, .. }) = &error else { panic!("{source}: {error:?}") };
        assert_eq!((place, *line), (&*PLACE, Some(expected)), "{source}");
        assert!(error.to_string().starts_with(&format!("a.jinja, line {expected}: ")), "{error}");
    }
    let place = TemplatePlace { file: "m.gguf".into(), key: Some("tokenizer.chat_template".into()) };
    let template = ChatTemplate {
        place: &place,
        ..template("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}")
    };
    let endless = template.render(&[], &ChatOptions::default(), true).unwrap_err();
    assert!(matches!(endless, Error::Chat(ChatError::Limit { .. })));
    assert!(endless.to_string().starts_with("m.gguf, tokenizer.chat_template: "), "{endless}");
}

/// The tokenizer of a model folder with `files` next to the weights and `config.json`.
fn tokenizer_of(files: &serde_json::Map<String, Json>) -> TokenizerSpec {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixtures().join("models/llama-3.1/bf16");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
    }
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content.as_str().map_or_else(|| content.to_string(), str::to_owned)).unwrap();
    }
    let header = Header::read(probe(folder.path()).unwrap()).unwrap();
    TokenizerSpec::from_header(&header).unwrap()
}

fn asked(tokenizer: &TokenizerSpec, name: Option<&str>, tools: bool) -> Result<String> {
    let (template, tools) = (name.map(str::to_owned), tools.then(Vec::new));
    let options = ChatOptions { template, tools, ..ChatOptions::default() };
    ChatTemplate::of(tokenizer, &options).map(|template| template.source.to_owned())
}

#[test]
fn templates_are_chosen_as_in_transformers() {
    let recorded = std::fs::read(fixtures().join("templates/chats.json")).unwrap();
    let expected: Json = serde_json::from_slice(&recorded).unwrap();
    let mut choices = 0;
    for folder in expected["folders"].as_array().unwrap() {
        let tokenizer = tokenizer_of(folder["files"].as_object().unwrap());
        for choice in folder["choices"].as_array().unwrap() {
            let found = asked(&tokenizer, choice["name"].as_str(), choice["tools"].as_bool().unwrap());
            assert_eq!(found.ok().as_deref(), choice["template"].as_str(), "{choice} of {}", folder["files"]);
            choices += 1;
        }
    }
    assert_eq!(choices, 45);
}

#[test]
fn templates_know_special_tokens_by_the_names_of_transformers() {
    let recorded = std::fs::read(fixtures().join("templates/values.json")).unwrap();
    let recorded: Json = serde_json::from_slice(&recorded).unwrap();
    let folders = recorded["folders"].as_array().unwrap();
    for folder in folders {
        let mut files = folder["files"].as_object().unwrap().clone();
        files.insert("chat_template.jinja".into(), recorded["names"].clone());
        let tokenizer = tokenizer_of(&files);
        let template = ChatTemplate::of(&tokenizer, &ChatOptions::default()).unwrap();
        let found = template.render(&[], &ChatOptions::default(), true).unwrap();
        assert_eq!(found, folder["text"].as_str().unwrap(), "{}", folder["files"]);
    }
    assert_eq!(folders.len(), 4);
    let own = ChatOptions::default().variable("pad_token", "own");
    let template = template("{{ pad_token }}").render(&[], &own, true);
    assert_eq!(template.unwrap(), "own", "variables go before the tokens");
}

#[test]
fn a_gguf_names_its_special_tokens_by_their_ids() {
    let header = Header::read(probe(&fixtures().join("models/tinyllama/q8_0.gguf")).unwrap()).unwrap();
    let tokenizer = TokenizerSpec::from_header(&header).unwrap();
    let named = [("pad_token", "</s>"), ("unk_token", "<unk>")];
    assert_eq!(tokenizer.named_tokens, named.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
}

#[test]
fn a_name_that_is_none_is_told_with_those_there_are() {
    let named = serde_json::json!({"tokenizer_config.json": {"chat_template": [
        {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]}});
    let tokenizer = tokenizer_of(named.as_object().unwrap());
    for name in [None, Some("default"), Some("pirate")] {
        let error = asked(&tokenizer, name, false).unwrap_err();
        let Error::Chat(ChatError::TemplateName { asked, known }) = &error else { panic!("{error:?}") };
        assert_eq!((asked.as_deref(), known.as_slice()), (name, ["rag".to_owned(), "tool_use".to_owned()].as_slice()));
        assert!(error.to_string().contains("rag, tool_use"), "{error}");
    }
    let one = serde_json::json!({"chat_template.jinja": "J"});
    let one = tokenizer_of(one.as_object().unwrap());
    assert_eq!(asked(&one, Some("default"), true).unwrap(), "J", "the only one is the default");
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
        assert!(
            matches!(error, Err(Error::Chat(ChatError::Limit { what, .. })) if what == expected),
            "{source}: {error:?}"
        );
    }
    let recursion = rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    assert!(
        matches!(recursion, Err(Error::Chat(ChatError::Template { .. }) | Error::Chat(ChatError::Limit { .. }))),
        "{recursion:?}"
    );
}

#[test]
fn parts_that_are_no_text_are_refused_by_their_message() {
    let source = "{% for m in messages %}{% for p in m.content %}{{ p.text }}<{{ p.type }}>{% endfor %}{% endfor %}";
    let read = |parts: Json| -> Vec<Message> {
        let hello = serde_json::json!({"role": "system", "content": "Be brief"});
        let user = serde_json::json!({"role": "user", "content": parts, "name": "Ann"});
        let messages = serde_json::json!([hello, user]);
        let read: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), messages);
        read
    };
    let text = serde_json::json!({"type": "text", "text": "What is this?"});
    let render = |messages: &[Message]| template(source).render(messages, &ChatOptions::default(), true);
    assert!(render(&read(serde_json::json!([text]))[1..]).unwrap().contains("What is this?<text>"));
    for (part, expected) in [
        (serde_json::json!({"type": "image"}), "image"),
        (serde_json::json!({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}), "image_url"),
        (serde_json::json!({"image": "c.png"}), "image"),
        (serde_json::json!({"type": "input_audio", "input_audio": {}}), "input_audio"),
    ] {
        let error = render(&read(serde_json::json!([text, part]))).unwrap_err();
        let named = matches!(error, Error::Chat(ChatError::NotText { message: 2, kind }) if kind == expected);
        assert!(named, "{error:?}");
    }
    // A content that is neither a text nor a list is an error when it is read.
    let wrong = serde_json::from_value::<Message>(serde_json::json!({"role": "user", "content": 7})).unwrap_err();
    assert!(wrong.to_string().contains("a text or a list of parts"), "{wrong}");
}
