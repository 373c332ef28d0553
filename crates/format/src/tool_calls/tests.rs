use super::*;
use serde_json::json;

/// A call of `tool` with these texts as arguments, in the form of its grammar.
fn call(format: &Description, tool: &str, arguments: &[(&str, &str)]) -> String {
    let all = arguments.iter();
    let parts = format.call.iter().map(|part| match *part {
        Part::Text(text) | Part::Mark(text) => text.to_owned(),
        Part::Name(before, after) => format!("{before}{tool}{after}"),
        Part::JsonName(before, after) => format!("{before}{}{after}", json!(tool)),
        Part::Id => "abcdef123".to_owned(),
        Part::OptionalId(_) => String::new(),
        Part::Json => {
            Value::Object(all.clone().map(|(name, value)| ((*name).into(), json!(value))).collect()).to_string()
        }
        Part::Each(open, name_end, close) => {
            all.clone().map(|(name, value)| format!("{open}{name}{name_end}{value}{close}")).collect()
        }
        Part::Pairs(Notation { assign, comma, quote, .. }) => {
            let quote = quote.unwrap_or("\"");
            let pair = |(name, value): &(&str, &str)| format!("{name}{assign}{quote}{value}{quote}");
            all.clone().map(pair).collect::<Vec<_>>().join(comma)
        }
    });
    parts.collect()
}

#[test]
fn every_format_reads_the_calls_that_it_writes() {
    let tools = ["paint", "stop_all"].map(|name| Tool { name: name.into(), parameters: json!({}) });
    let mut read = 0;
    for format in ToolCallFormat::ALL {
        let description = format.description();
        if matches!(description.several, Several::Messages) {
            continue;
        }
        for (tool, arguments) in [("paint", &[("colour", "red"), ("where", "the door")][..]), ("stop_all", &[])] {
            let text = call(description, tool, arguments);
            let calls = (description.read)(&text, &tools);
            let calls = calls.unwrap_or_else(|| panic!("{format} does not read {text:?}"));
            let [Written { name, arguments: found, .. }] = &calls[..] else { panic!("{format}: {calls:?}") };
            let found: Vec<_> = found.values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let expected: Vec<_> = arguments.iter().map(|(name, value)| (*name, Some(*value))).collect();
            assert_eq!((name.as_str(), found), (tool, expected), "{format}: {text:?}");
            read += 1;
        }
    }
    assert!(read >= 22, "{read}");
}

#[test]
fn every_format_is_shown_by_each_of_its_lists_of_marks() {
    for format in ToolCallFormat::ALL {
        for marks in format.description().shown_by {
            assert_eq!(ToolCallFormat::of(&marks.concat()), Some((*format, *marks)));
        }
    }
}

#[test]
fn marks_of_formats_that_are_not_read_hide_those_that_share_them() {
    for (template, format) in [
        ("<tool_call>arguments<arg_key>", None),
        ("<tool_call>arguments<function=", None),
        ("<tool_call>arguments<function=<parameter=", Some(ToolCallFormat::Qwen3Xml)),
        ("<function=<parameter=<invoke name=", None),
        ("[TOOL_CALLS]<tool_calls>", Some(ToolCallFormat::Mistral)),
        ("no marks", None),
    ] {
        assert_eq!(ToolCallFormat::of(template).map(|(format, _)| format), format, "{template}");
    }
}
