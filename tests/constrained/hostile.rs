//! Grammars that cannot be kept: a typed error each, with its place, in bounded time and memory.

use crate::common::{self};
use crate::qwen3;
use model_factory::{Error, ErrorKind, GenerateOptions, Grammar, GrammarError, Model};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Far more than any takes, and far less than what is not bounded does.
const LONGEST: Duration = Duration::from_secs(20);

/// Compiles `grammar` and draws some tokens where it can be.
fn tried(model: &Model, grammar: &Grammar) -> Result<(), GrammarError> {
    let begun = Instant::now();
    let result = model.compile(grammar).and_then(|()| {
        let options = GenerateOptions::default().temperature(1.0).seed(1).max_tokens(60).grammar(grammar);
        model.generate("A value: ", &options)?.text().map(drop)
    });
    let shown: String = format!("{grammar:?}").chars().take(200).collect();
    assert!(begun.elapsed() < LONGEST, "{:?} for {shown}", begun.elapsed());
    match result {
        Ok(()) => Ok(()),
        Err(Error::Grammar(error)) => Err(*error),
        Err(error) => panic!("{error} for {shown}"),
    }
}

#[test]
fn a_schema_that_cannot_be_kept_is_refused_by_its_place() {
    let model = qwen3();
    let integer = |minimum: i32, maximum: i32| json!({"type": "integer", "minimum": minimum, "maximum": maximum});
    let table: [(Value, &str); 22] = [
        (json!(false), ""),
        (json!(7), ""),
        (json!({"properties": {"a": {"uniqueItems": true}}}), "/properties/a/uniqueItems"),
        (json!({"not": {"type": "null"}}), "/not"),
        (json!({"anyOf": [{"type": "null"}, {"if": true, "then": false}]}), "/anyOf/1/if"),
        (json!({"$defs": {"x/y": {"contains": true}}, "items": {"$ref": "#/$defs/x/y"}}), "/items/$ref"),
        (json!({"$defs": {"x": {"contains": true}}, "items": {"$ref": "#/$defs/x"}}), "/$defs/x/contains"),
        (json!({"$ref": "https://example.com/schema"}), "/$ref"),
        (json!({"$ref": "#/$defs/none"}), "/$ref"),
        (json!({"$ref": 1}), "/$ref"),
        (json!({"items": {"type": "string", "format": "iri"}}), "/items/format"),
        (json!({"x-guidance": {"lenient": true}, "type": "null"}), "/x-guidance"),
        (json!({"properties": 3}), "/properties"),
        (json!({"allOf": {}}), "/allOf"),
        (json!({"type": "object", "properties": {"age": integer(5, 3)}, "required": ["age"]}), "/properties/age"),
        (
            json!({"type": "array", "items": {"type": "string", "minLength": 4, "maxLength": 3}, "minItems": 1}),
            "/items",
        ),
        (json!({"type": "object", "properties": {"no": false}, "required": ["no"]}), ""),
        (json!({"type": "array", "minItems": 3, "maxItems": 1}), ""),
        (json!({"type": "array", "items": {"enum": []}, "minItems": 1}), "/items"),
        (json!({"allOf": [{"type": "null"}, {"type": "boolean"}]}), ""),
        (json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}), "/properties/a"),
        (json!({"prefixItems": [{"type": "colour"}], "minItems": 1, "type": "array"}), "/prefixItems/0"),
    ];
    for (schema, expected) in table {
        match tried(&model, &Grammar::json_schema(schema.clone())) {
            Err(GrammarError::Schema { place, reason }) => {
                assert_eq!(place, expected, "{schema}: {reason}");
                assert!(!reason.is_empty() && !reason.contains("backtrace"), "{reason}");
            }
            other => panic!("{schema}: {other:?}"),
        }
    }
}

#[test]
fn what_is_too_large_is_refused_before_it_is_compiled() {
    let model = qwen3();
    let mut deep = json!({"type": "null"});
    for _ in 0..500 {
        deep = json!({"items": deep});
    }
    let two = json!({"anyOf": [{"type": "object", "properties": {"a": true}}, {"type": "object", "required": ["b"]}]});
    let nested = |open: &str, close: &str| format!("{}a{}", open.repeat(20_000), close.repeat(20_000));
    let long = "x".repeat(10 << 20);
    let grammars = [
        Grammar::json_schema(json!({"const": long.clone()})),
        Grammar::json_schema(json!({"enum": vec![Value::from(1); 2_000_000]})),
        Grammar::json_schema(deep),
        Grammar::json_schema(json!({"allOf": vec![two; 40]})),
        Grammar::regex(long.clone()),
        Grammar::regex(nested("(", ")")),
        Grammar::lark(format!("start: \"{long}\"")),
        Grammar::lark(format!("start: {}", nested("(", ")"))),
        Grammar::lark(
            "start: r0\n".to_owned() + &(0..70_000).map(|n| format!("r{n}: r{}\n", n + 1)).collect::<String>(),
        ),
        Grammar::choice(&vec!["a"; 20_000]),
        Grammar::choice(&[long]),
    ];
    for grammar in grammars {
        let found = tried(&model, &grammar);
        assert!(matches!(found, Err(GrammarError::TooLarge { .. })), "{found:?}");
        let error = grammar.check().unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidRequest, 2));
    }
}

#[test]
fn regular_expressions_and_grammars_that_match_nothing_or_are_none_are_refused() {
    let model = qwen3();
    for regex in ["a(", "a{3,1}", "(?=a)b", "(?<!a)b", "\\1", "[z-a]", "\\p{Nope}", "[^\\s\\S]"] {
        let found = tried(&model, &Grammar::regex(regex));
        assert!(
            matches!(&found, Err(GrammarError::Malformed { reason, .. }) if !reason.is_empty()),
            "{regex}: {found:?}"
        );
    }
    for lark in [
        "",
        "start",
        "start: nothing",
        "start: \"a",
        "begin: \"a\"",
        "start: /(/",
        "start: start",
        "start: <nope>",
        "start: %json {}",
        "start: a \"b\"\na[stop=\"x\"]: /[a-z]*/",
        "start: a\na[temperature=0.5]: /[a-z]*/",
    ] {
        let found = tried(&model, &Grammar::lark(lark));
        assert!(
            matches!(&found, Err(GrammarError::Malformed { reason, .. }) if !reason.is_empty()),
            "{lark}: {found:?}"
        );
    }
    let none: [&str; 0] = [];
    assert_eq!(tried(&model, &Grammar::choice(&none)), Err(GrammarError::EmptyChoice { index: None }));
    assert_eq!(tried(&model, &Grammar::choice(&["a", ""])), Err(GrammarError::EmptyChoice { index: Some(1) }));
}

#[test]
fn what_is_hard_ends_in_bounded_time_and_memory() {
    let model = qwen3();
    let mut dag = serde_json::Map::new();
    for level in 0..60 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        dag.insert(format!("d{level}"), json!({"type": "object", "properties": {"a": next.clone(), "b": next}}));
    }
    dag.insert("d60".into(), json!({"type": "null"}));
    let itself = json!({"$ref": "#/$defs/a"});
    let schemas = [
        json!({"$defs": dag, "$ref": "#/$defs/d0"}),
        json!({"$defs": {"a": {"allOf": [itself.clone(), itself.clone()]}}, "$ref": "#/$defs/a"}),
        json!({"$defs": {"a": {"anyOf": [itself.clone(), itself.clone()]}}, "$ref": "#/$defs/a"}),
        json!({"$defs": {"a": itself.clone()}, "allOf": [itself.clone(), {"type": "null"}]}),
        json!({"$defs": {"a": {"type": "object", "properties": {"a": itself.clone()}, "required": ["a"]}}, "$ref": "#/$defs/a"}),
        json!({"$defs": {"a": {"type": "object", "properties": {"a": itself.clone(), "b": itself.clone()}}},
            "allOf": [itself.clone(), itself.clone(), itself]}),
        json!({"type": "string", "maxLength": 1_000_000_000}),
        json!({"type": "string", "minLength": 1_000_000_000}),
        json!({"type": "array", "items": {"type": "null"}, "minItems": 1_000_000_000}),
        json!({"type": "array", "items": {"type": "null"}, "maxItems": 1_000_000_000}),
        json!({"type": "object", "minProperties": 1_000_000}),
        json!({"type": "number", "multipleOf": 1e-300}),
        json!({"type": "number", "minimum": -1e308, "maximum": 1e308}),
        json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX}),
        json!({"type": "integer", "minimum": 1e30}),
        json!({"type": "integer", "multipleOf": 1_000_003, "minimum": 7}),
        json!({"type": "string", "pattern": "^(a{1,1000}){1,1000}$"}),
        json!({"type": "string", "pattern": "^((a|b|ab)*c){3,9}(x+x+)+y$", "minLength": 500}),
        json!({"type": "string", "enum": (0..20_000).map(|n| format!("{:x}", n * 7919)).collect::<Vec<String>>()}),
        json!({"type": "object", "patternProperties": {"^(a|b)*a(a|b){20}$": true, "^(a|b)*b(a|b){20}$": true}}),
        json!({}),
        json!(true),
    ];
    let regexes = [
        "a{1000000000}".into(),
        "(x+x+)+y".into(),
        "(a|a)*b".into(),
        "(((a{1,100}){1,100}){1,100}){1,100}".into(),
        "(a|b)*a(a|b){400}".into(),
        "(.*)(.*)(.*)(.*)(.*)x".into(),
        "\\w{1,5000}\\d{1,5000}".into(),
        ".*".into(),
        (0..3000).map(|n| format!("(a{n}.*b)?")).collect::<String>(),
    ];
    let larks = [
        "start: start \"a\" | \"a\"".into(),
        "start: s\ns: s s | \"a\" | \"\"".into(),
        "start: s s s s s s s s\ns: s s | \"a\" s | s \"b\" | \"a\"".into(),
        "start: (\"\"*)*".into(),
        format!("start: {}", (0..900).map(|n| format!("r{n}")).collect::<Vec<_>>().join(" | "))
            + &(0..900).map(|n| format!("\nr{n}: \"{n}\" r{}", (n + 1) % 900)).collect::<String>(),
        "start: a\na: b | \"x\" a\nb: a | \"y\"".into(),
        "start: /(?s:.*)/ /(?s:.*)/ /(?s:.*)/".into(),
        "start: r0".to_owned() + &(0..900).map(|n| format!("\nr{n}: r{}", n + 1)).collect::<String>() + "\nr900: \"a\"",
    ];
    let regexes: [String; 9] = regexes;
    let larks: [String; 8] = larks;
    let grammars = schemas.into_iter().map(Grammar::json_schema);
    let grammars = grammars.chain(regexes.map(Grammar::regex)).chain(larks.map(Grammar::lark));
    let mut refused = 0;
    for grammar in grammars {
        let begun = Instant::now();
        let found = tried(&model, &grammar);
        let shown: String = format!("{grammar:?}").chars().take(90).collect();
        println!("{:6} ms {shown} {found:?}", begun.elapsed().as_millis());
        assert!(!matches!(found, Err(GrammarError::NotAllowed { .. })), "{shown}");
        refused += usize::from(found.is_err());
    }
    assert!(refused > 3, "{refused}");
    if let Some(peak) = common::status("VmHWM") {
        assert!(peak < 1 << 30, "{peak} bytes");
    }
}
