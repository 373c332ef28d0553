use crate::build::*;
use crate::table;
use model_factory_diagnostics::Result;
use model_factory_diagnostics::error::{Error, FormatErrorKind as Kind, IncompleteKind};
use model_factory_diagnostics::header::Fields;
use model_factory_diagnostics::header::config::{ConfigFiles, JsonFile};
use serde_json::json;
use std::path::Path;

fn parse(text: &str) -> Result<JsonFile> {
    JsonFile::parse(Path::new("config.json"), text.as_bytes())
}

#[test]
fn reads_values_by_type() {
    let text = r#"{"n": 4096, "f": 4096.0, "theta": 1e6, "yes": true, "name": "llama", "none": null,
        "rope_scaling": {"factor": 8, "inner": {"deep": 1.5}}}"#;
    let file = parse(text).unwrap();
    assert_eq!(file.unsigned("n").unwrap(), Some(4096));
    assert_eq!(file.unsigned("f").unwrap(), Some(4096));
    assert_eq!(file.unsigned("theta").unwrap(), Some(1_000_000));
    assert_eq!(file.number("n").unwrap(), Some(4096.0));
    assert_eq!(file.boolean("yes").unwrap(), Some(true));
    assert_eq!(file.text("name").unwrap(), Some("llama"));
    assert!(file.has("n") && !file.has("none") && !file.has("absent"));
    assert_eq!((file.text("none").unwrap(), file.unsigned("absent").unwrap()), (None, None));
    assert!(file.section("none").unwrap().is_none() && file.section("absent").unwrap().is_none());
    let section = file.section("rope_scaling").unwrap().unwrap();
    assert_eq!(section.number("factor").unwrap(), Some(8.0));
    let inner = section.section("inner").unwrap().unwrap();
    let refused = inner.unsigned("deep");
    assert!(
        matches!(refused, Err(Error::Format { kind: Kind::KeyType { key, .. }, .. }) if key == "rope_scaling.inner.deep")
    );
}

#[test]
fn refuses_values_of_other_types_and_malformed_files() {
    let file =
        parse(r#"{"half":1.5,"minus":-1,"huge":1e300,"text":"a","flag":true,"list":[1],"object":{"x":"y"}}"#).unwrap();
    let section = file.section("object").unwrap().unwrap();
    table! {
        "half a count": file.unsigned("half") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a negative count": file.unsigned("minus") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a count beyond what a float holds": file.unsigned("huge") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "text as a count": file.unsigned("text") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a bool as a number": file.number("flag") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a list as a number": file.number("list") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a number as a bool": file.boolean("half") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "an object as text": file.text("object") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "text as an object": file.section("text") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a dotted key": section.number("x") => Err(Error::Format { kind: Kind::KeyType { key, .. }, .. }) if key == "object.x",
        "no bytes": parse("") => Err(Error::Format { .. }),
        "a list": parse("[]") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a comma too many": parse(r#"{"a":1,}"#) => Err(Error::Format { kind: Kind::Json { .. }, offset: Some(7), .. }),
        "a second object": parse("{}{}") => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a key twice": parse(r#"{"a":1,"a":2}"#) => Err(Error::Format { kind: Kind::DuplicateKey { key }, .. }) if key == "a",
        "a nested key twice": parse(r#"{"r":{"b":[{"a":1,"a":2}]}}"#) => Err(Error::Format { kind: Kind::DuplicateKey { key }, .. }) if key == "r.b.a",
        "NaN": parse("{\"a\":\n NaN}") => Err(Error::Format { kind: Kind::KeyValue { key, found, .. }, offset: Some(_), .. }) if (&*key, &*found) == ("a", "NaN"),
        "Infinity": parse(r#"{"a\"":"Infinity","b":[Infinity]}"#) => Ok(file) if file.object()["b"] == json!([{"__float__": "Infinity"}]) && file.object()["a\""] == "Infinity",
        "-Infinity": parse(r#"{"a": -Infinity}"#).and_then(|file| file.number("a")) => Err(Error::Format { kind: Kind::KeyType { key, .. }, .. }) if key == "a",
        "Infinity and no JSON": parse(r#"{"a": Infinity,}"#) => Err(Error::Format { kind: Kind::KeyValue { key, found, .. }, .. }) if (&*key, &*found) == ("a", "Infinity"),
        "NaN alone": parse("NaN") => Err(Error::Format { kind: Kind::NotANumber { token: "NaN" }, .. }),
        "a number beyond f64": parse(r#"{"a":1e999}"#) => Err(Error::Format { kind: Kind::KeyValue { key, found, .. }, offset: Some(_), .. }) if (&*key, &*found) == ("a", "1e999"),
        "a nested one": parse("{\"a\": 1, \"b\": {\"c\": [1, -2.5E+400 ,3]},\n \"d\": 1}") => Err(Error::Format { kind: Kind::KeyValue { key, found, .. }, .. }) if (&*key, &*found) == ("b.c", "-2.5E+400"),
        "one of many digits": parse(&format!(r#"{{"a":{}}}"#, "9".repeat(1000))) => Err(Error::Format { kind: Kind::KeyValue { key, found, .. }, .. }) if key == "a" && found.len() == 64,
        "no number": parse(r#"{"a":{"b":1e}}"#) => Err(Error::Format { kind: Kind::Json { message }, .. }) if message.contains("a.b"),
        "nested without end": parse(&"[".repeat(100_000)) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a web page": parse("<html><body>login</body></html>") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "a pointer of Git LFS": parse("version https://git-lfs.github.com/spec/v1\n") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "no config.json": ConfigFiles::read(&Tree::new().path("nowhere")) => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { .. }, .. }),
        "a damaged companion": damaged() => Err(Error::Format { file, .. }) if file.ends_with("generation_config.json"),
    }
    let long = Tree::new().with("config.json", vec![b' '; (8 << 20) + 1]);
    let refused = JsonFile::read(&long.path("config.json"));
    assert!(matches!(refused, Err(Error::Format { kind: Kind::TooMany { .. }, .. })));
}

#[test]
fn finds_the_companions() {
    let tree = Tree::new()
        .with("config.json", "{}")
        .with("tokenizer.json", "{}")
        .with("special_tokens_map.json", "{}")
        .with("chat_template.jinja", "{{x}}");
    let files = ConfigFiles::read(&tree.path("")).map(|files| {
        let found = (files.tokenizer.is_some(), files.chat_template.is_some(), files.special_tokens_map.is_some());
        (found, files.generation.is_none(), files.bytes())
    });
    assert_eq!(files.unwrap(), ((true, true, true), true, 4));
}

fn damaged() -> Result<ConfigFiles> {
    let tree = Tree::new().with("config.json", "{}").with("generation_config.json", "{");
    ConfigFiles::read(&tree.path(""))
}
