use super::*;
use crate::error::FormatErrorKind;
use serde_json::json;

/// A model folder of `files`; a name may begin with a folder.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("config.json", "{}")].iter().chain(files) {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

fn read(folder: &Path) -> Result<Templates> {
    of_folder(&ConfigFiles::read(folder)?)
}

/// Each name with its text and its place, relative to the folder.
fn found(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    let prefix = format!("{}/", folder.path().display());
    let describe = |(name, ChatTemplateSource { text, place }): (String, ChatTemplateSource)| {
        format!("{name}={text} from {}", place.to_string().strip_prefix(&prefix).unwrap())
    };
    read(folder.path()).unwrap().into_iter().map(describe).collect::<Vec<_>>().join("; ")
}

#[test]
fn files_come_before_the_config_and_the_config_before_the_processors_file() {
    let one = json!({"chat_template": "c"}).to_string();
    let named = json!({"chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"},
        {"name": "rag", "template": "r2"}]})
    .to_string();
    fn config(content: &str) -> (&str, &str) {
        ("tokenizer_config.json", content)
    }
    let (jinja, json) = (("chat_template.jinja", "j"), ("chat_template.json", one.as_str()));
    let (tool, other) = (("additional_chat_templates/tool_use.jinja", "t"), ("additional_chat_templates/x.txt", "x"));
    assert_eq!(found(&[]), "");
    assert_eq!(found(&[config(&one)]), "default=c from tokenizer_config.json, chat_template");
    let listed = "default=d from tokenizer_config.json, chat_template[0]; \
                  rag=r2 from tokenizer_config.json, chat_template[2]";
    assert_eq!(found(&[config(&named), json]), listed);
    assert_eq!(found(&[json]), "default=c from chat_template.json, chat_template");
    assert_eq!(found(&[json, config("{}")]), "default=c from chat_template.json, chat_template");
    assert_eq!(found(&[jinja, config(&named), json]), "default=j from chat_template.jinja");
    let of_tool = "tool_use=t from additional_chat_templates/tool_use.jinja";
    assert_eq!(found(&[tool, other, config(&named)]), of_tool);
    assert_eq!(found(&[tool, jinja]), format!("default=j from chat_template.jinja; {of_tool}"));
    let default = ("additional_chat_templates/default.jinja", "a");
    assert_eq!(found(&[default, jinja]), "default=a from additional_chat_templates/default.jinja");
}

#[test]
fn refuses_what_is_no_template() {
    let many: Vec<String> =
        (0..=limits::CHAT_TEMPLATES).map(|index| format!("additional_chat_templates/{index}.jinja")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "x")).collect();
    assert!(matches!(
        read(folder(&many).path()),
        Err(Error::Format { kind: FormatErrorKind::TooMany { found: 65, limit: 64, .. }, .. })
    ));
    let number = folder(&[("chat_template.json", r#"{"chat_template": 5}"#)]);
    assert!(matches!(read(number.path()), Err(Error::Format { kind: FormatErrorKind::KeyType { .. }, .. })));
    let nested = folder(&[("additional_chat_templates/x.jinja/y", "x")]);
    assert!(matches!(read(nested.path()), Err(Error::Format { kind: FormatErrorKind::NotAFile, .. })));
}
