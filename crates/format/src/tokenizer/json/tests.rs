use super::*;
use crate::error::Error;
use crate::tokenizer::{ChatTemplateSource, DEFAULT_TEMPLATE, TemplatePlace};
use serde_json::json;

const BOS: &str = "<｜begin▁of▁sentence｜>";
const EOS: &str = "<｜end▁of▁sentence｜>";

/// A model folder of these files, by name.
fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn spec_of(files: &[(&str, Value)]) -> Result<TokenizerSpec> {
    spec(&ConfigFiles::read(folder(files).path())?, &OnceLock::new())
}

fn template(bos: &str, id: u32) -> Value {
    json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        {"type": "TemplateProcessing",
         "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [], "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}}}]})
}

/// A tokenizer with the tokens `a` to `d`, then `added`.
fn tokenizer(added: &[&str], post_processor: Value) -> Value {
    let added: Vec<Value> =
        (4..).zip(added).map(|(id, text)| json!({"id": id, "content": text, "special": true})).collect();
    json!({"version": "1.0", "added_tokens": added, "post_processor": post_processor,
           "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3}, "merges": [["a", "b"]]}})
}

#[test]
fn the_wrong_bos_of_a_distill_does_not_win() {
    let files = [
        ("config.json", json!({"bos_token_id": 5, "eos_token_id": 5})),
        ("tokenizer_config.json", json!({"bos_token": {"content": BOS, "__type": "AddedToken"}, "eos_token": EOS})),
        ("tokenizer.json", tokenizer(&[BOS, EOS], template(BOS, 4))),
    ];
    let spec = spec_of(&files).unwrap();
    assert_eq!((spec.bos, spec.add_bos, spec.bos_text.as_deref()), (Some(4), true, Some(BOS)));
    assert_eq!((spec.eos, spec.add_eos, spec.eos_text.as_deref()), (Some(5), false, Some(EOS)));
    assert_eq!(spec.stop_ids.keys().copied().collect::<Vec<_>>(), [5]);
    assert_eq!((spec.kind, spec.tokens, spec.model.as_deref()), (TokenizerKind::Json, 6, Some("BPE")));
}

#[test]
fn the_stop_set_unites_all_sources_and_names_them() {
    let files = [
        ("config.json", json!({"eos_token_id": [5, 6]})),
        ("generation_config.json", json!({"eos_token_id": 7})),
        (
            "tokenizer_config.json",
            json!({"eos_token": "<end>", "chat_template": [{"name": "tool_use", "template": "t"},
                {"name": "default", "template": "x<|eot_id|>"}]}),
        ),
        ("tokenizer.json", tokenizer(&["<bos>", "<x>", "<y>", "<z>", "<end>", "<|eot_id|>", "<|other|>"], Value::Null)),
    ];
    let spec = spec_of(&files).unwrap();
    assert_eq!(spec.chat_template(), Some("x<|eot_id|>"));
    let found: Vec<(u32, Vec<String>)> = spec.stop_ids.into_iter().collect();
    let expected: [(u32, &[&str]); 5] = [
        (5, &["config.json eos_token_id"]),
        (6, &["config.json eos_token_id"]),
        (7, &["generation_config.json eos_token_id"]),
        (8, &["tokenizer_config.json eos_token"]),
        (9, &["token text <|eot_id|>", "chat template"]),
    ];
    assert_eq!(found, expected.map(|(id, sources)| (id, sources.iter().map(|&source| source.to_owned()).collect())));
    assert_eq!((spec.bos, spec.add_bos), (None, false));
}

#[test]
fn the_template_file_comes_before_the_config() {
    let files = [
        ("config.json", json!({})),
        ("tokenizer_config.json", json!({"chat_template": "old"})),
        ("chat_template.jinja", json!("new")),
    ];
    let spec = spec_of(&files).unwrap();
    assert_eq!((spec.chat_template(), spec.kind), (Some("new"), TokenizerKind::Missing));
}

#[test]
fn add_bos_token_adds_nothing_beside_a_tokenizer_json() {
    let of = |add: Value, post_processor: Value| {
        let files = [
            ("config.json", json!({"bos_token_id": 1})),
            ("tokenizer_config.json", json!({"bos_token": "<s>", "add_bos_token": add})),
            ("tokenizer.json", tokenizer(&["<s>"], post_processor)),
        ];
        let spec = spec_of(&files).unwrap();
        (spec.bos, spec.add_bos, spec.assumptions.iter().any(|assumed| assumed.contains("add_bos_token")))
    };
    // transformers 5.23 does the same, whatever the class of the tokenizer.
    let silent = json!({"type": "ByteLevel"});
    assert_eq!(of(json!(true), silent.clone()), (Some(4), false, true));
    assert_eq!(of(json!(false), silent), (Some(4), false, false));
    assert_eq!(of(json!(null), Value::Null), (Some(4), false, false));
    assert_eq!(of(json!(false), template("<s>", 4)), (Some(4), true, false));
}

#[test]
fn a_bos_that_is_an_ordinary_entry_is_found_in_the_vocabulary() {
    let files = [
        ("config.json", json!({})),
        ("special_tokens_map.json", json!({"bos_token": "b", "eos_token": {"content": "c"}})),
        ("tokenizer.json", tokenizer(&[], Value::Null)),
    ];
    let spec = spec_of(&files).unwrap();
    assert_eq!((spec.bos, spec.eos, spec.tokens), (Some(1), Some(2), 4));
    assert!(spec.stop_ids.contains_key(&2));
}

#[test]
fn an_id_outside_the_vocabulary_is_noted_and_ignored() {
    let files = [("config.json", json!({"eos_token_id": 99})), ("tokenizer.json", tokenizer(&[], Value::Null))];
    let spec = spec_of(&files).unwrap();
    assert!(spec.stop_ids.is_empty());
    assert!(spec.assumptions.iter().any(|what| what.contains("99")), "{:?}", spec.assumptions);
}

#[test]
fn refuses_known_keys_of_a_wrong_type_or_value() {
    let good = tokenizer(&["<s>"], Value::Null);
    let with = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed
    };
    let cases: [(&str, &str, Value); 13] = [
        ("eos id is a text", "config.json", json!({"eos_token_id": "</s>"})),
        ("eos id is negative", "config.json", json!({"eos_token_id": [1, -1]})),
        ("eos id is a fraction", "generation_config.json", json!({"eos_token_id": 1.5})),
        ("eos token is a number", "tokenizer_config.json", json!({"eos_token": 2})),
        ("template is a number", "tokenizer_config.json", json!({"chat_template": 2})),
        ("unnamed template", "tokenizer_config.json", json!({"chat_template": [{"template": "x"}]})),
        ("add_bos_token is a text", "tokenizer_config.json", json!({"add_bos_token": "yes"})),
        ("unknown model", "tokenizer.json", with("model", json!({"type": "WordLevel", "vocab": {"a": 0}}))),
        ("no model", "tokenizer.json", json!({"version": "1.0"})),
        ("unknown post-processor", "tokenizer.json", with("post_processor", json!({"type": "Post"}))),
        ("a template's id past the vocabulary", "tokenizer.json", with("post_processor", template("<s>", 5))),
        ("ids that are texts", "tokenizer.json", with("model", json!({"type": "BPE", "vocab": {"a": "0"}}))),
        ("no JSON", "tokenizer.json", json!("{\"model\":")),
    ];
    for (what, name, content) in cases {
        let mut files = vec![("config.json", json!({})), ("tokenizer.json", good.clone())];
        files.retain(|(known, _)| *known != name);
        files.push((name, content));
        assert!(matches!(spec_of(&files), Err(Error::Format { .. })), "{what}: {:?}", spec_of(&files));
    }
}

fn given_to(own: &TokenizerSpec, content: Value) -> TokenizerSpec {
    let folder = folder(&[("tokenizer.json", content)]);
    given(&TokenizerFiles::read_json(&folder.path().join("tokenizer.json")).unwrap(), own).unwrap()
}

#[test]
fn a_given_file_has_the_texts_and_the_model_the_roles() {
    let mut own = TokenizerSpec { kind: TokenizerKind::SentencePiece, ..TokenizerSpec::default() };
    (own.tokens, own.add_bos, own.add_space_prefix) = (100, true, true);
    (own.bos, own.bos_text) = (Some(4), Some("<s>".into()));
    (own.eos, own.eos_text) = (Some(5), Some("</s>".into()));
    let place = TemplatePlace { file: "model.gguf".into(), key: Some("tokenizer.chat_template".into()) };
    own.chat_templates = [(DEFAULT_TEMPLATE.into(), ChatTemplateSource { text: "x<|im_end|>".into(), place })].into();
    own.stop(5, "tokenizer.ggml.eos_token_id");
    own.stop(70, "tokenizer.ggml.eot_token_id");

    let spec = given_to(&own, tokenizer(&["<s>", "</s>", "<|im_end|>"], Value::Null));
    assert_eq!((spec.kind, spec.tokens, spec.add_space_prefix), (TokenizerKind::Json, 7, false));
    assert_eq!((spec.bos, spec.add_bos, spec.eos, spec.add_eos), (Some(4), true, Some(5), false));
    assert_eq!(spec.chat_templates, own.chat_templates);
    assert_eq!(spec.stop_ids.keys().copied().collect::<Vec<_>>(), [5, 6]);
    assert!(spec.assumptions.iter().any(|what| what.contains("70")), "{:?}", spec.assumptions);

    // The post-processor of the given file decides which tokens are added.
    own.add_bos = false;
    let spec = given_to(&own, tokenizer(&["<s>", "</s>"], template("<s>", 4)));
    assert_eq!((spec.bos, spec.add_bos), (Some(4), true));

    // A vocabulary of another model is reported.
    own.add_bos = true;
    let spec = given_to(&own, tokenizer(&["</s>", "<x>"], Value::Null));
    assert_eq!((spec.bos, spec.add_bos, spec.eos), (None, false, Some(4)));
    let told = |role: &str| spec.assumptions.iter().any(|what| what.contains(role));
    assert!(told("the model's BOS, <s>") && told("the model's EOS, </s>"), "{:?}", spec.assumptions);
}

#[test]
fn a_given_file_serves_a_model_without_a_vocabulary_by_ids() {
    let mut own = TokenizerSpec::default();
    (own.bos, own.eos, own.add_bos) = (Some(4), Some(700), true);
    own.stop(5, "tokenizer.ggml.eot_token_id");
    let spec = given_to(&own, tokenizer(&["<s>", "end"], Value::Null));
    assert_eq!((spec.bos, spec.bos_text.as_deref(), spec.add_bos, spec.eos), (Some(4), Some("<s>"), true, None));
    assert_eq!(spec.stop_ids.keys().copied().collect::<Vec<_>>(), [5]);
}
