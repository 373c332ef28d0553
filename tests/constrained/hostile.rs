//! Grammars that cannot be kept: a typed error each, with its place, in bounded time and memory.

use crate::common::{self};
use crate::qwen3;
use model_factory::generate::{Constraint, StopTokens};
use model_factory::{CancellationToken, Error, ErrorKind, GenerateOptions, Grammar, GrammarError, Model};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Far more than any takes, and far less than what is not bounded does.
const LONGEST: Duration = Duration::from_secs(20);

/// Compiles `grammar` and draws some tokens where it can be.
fn tried(model: &Model, grammar: &Grammar) -> Result<(), GrammarError> {
    let begun = Instant::now();
    let result = model.compile_grammar(grammar).and_then(|()| {
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
    let properties = |count: usize| -> Value {
        (0..count).map(|n| (format!("a{n}"), Value::Bool(true))).collect::<serde_json::Map<_, _>>().into()
    };
    let one_of = |n: usize, value: bool| json!({"type": "object", "properties": {format!("a{n}"): value}, "required": [format!("a{n}")]});
    let ambiguous = |n: usize| json!({"type": "string", "pattern": format!("^(.{{{n}}}|b)*[a-z]")});
    let texts: Vec<String> = (0..20_000).map(|n| format!("x{n}")).collect();
    let names: serde_json::Map<String, Value> = (0..60).map(|n| (format!("^x{n}$"), Value::Bool(true))).collect();
    let nested = |open: &str, close: &str| format!("{}a{}", open.repeat(20_000), close.repeat(20_000));
    let long = "x".repeat(10 << 20);
    let grammars = [
        Grammar::json_schema(json!({"const": long.clone()})),
        Grammar::json_schema(json!({"enum": vec![Value::from(1); 2_000_000]})),
        Grammar::json_schema(deep),
        Grammar::json_schema(json!({"allOf": vec![two; 40]})),
        // More readings of an answer at once than a parser follows.
        Grammar::json_schema(json!({"anyOf": (0..3000).map(|n| one_of(n, true)).collect::<Vec<_>>()})),
        Grammar::json_schema(
            json!({"type": "array", "items": {"anyOf": (0..3000).map(|n| one_of(n, true)).collect::<Vec<_>>()}}),
        ),
        Grammar::json_schema(json!({"type": "object", "properties": properties(3000)})),
        Grammar::json_schema(
            json!({"anyOf": (0..100).map(|_| json!({"type": "object", "properties": properties(30)})).collect::<Vec<_>>()}),
        ),
        Grammar::json_schema(
            json!({"properties": properties(30), "anyOf": (0..300).map(|n| one_of(n, true)).collect::<Vec<_>>()}),
        ),
        // Each property in the place of each other.
        Grammar::json_schema(json!({"type": "object", "properties": properties(300), "minProperties": 1})),
        Grammar::json_schema(
            json!({"items": (0..9).map(|_| json!({"properties": properties(900)})).collect::<Vec<_>>()}),
        ),
        // Intersections of patterns that can be read in many ways.
        Grammar::json_schema(json!({"allOf": (2..32).map(ambiguous).collect::<Vec<_>>()})),
        Grammar::json_schema(json!({"allOf": [ambiguous(500), {"$ref": "#/$defs/a"}], "$defs": {"a": ambiguous(501)}})),
        Grammar::json_schema(json!({"patternProperties": names, "type": "object"})),
        // Texts that are each looked at by a format.
        Grammar::json_schema(json!({"enum": texts, "format": "uri"})),
        Grammar::json_schema(json!({"enum": texts[..1000], "pattern": "^\\p{Lu}\\p{Ll}{1,5}$"})),
        Grammar::json_schema(
            json!({"allOf": [{"enum": texts}, {"type": "string", "format": "uri"}, {"minLength": 1}]}),
        ),
        // Names that are matched with patterns.
        Grammar::json_schema(json!({
            "type": "object", "properties": {"b".repeat(60_000): {}}, "patternProperties": {"^(.{60000}|b)*[a-z]$": {"type": "integer"}}
        })),
        Grammar::json_schema(
            json!({"allOf": vec![json!({"anyOf": vec![json!({"properties": properties(90)}); 60]}); 2]}),
        ),
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
        let error = Error::from(grammar.check().unwrap_err());
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
    let numbers: serde_json::Map<String, Value> =
        (1..200).map(|n| (format!("n{n}"), json!({"type": "integer", "multipleOf": 100_003 + n}))).collect();
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
        json!({"type": "integer", "multipleOf": 62_710_561}),
        json!({"type": "integer", "multipleOf": 10_000_019}),
        json!({"type": "integer", "allOf": [{"multipleOf": 997}, {"multipleOf": 1009}]}),
        json!({"type": "object", "properties": numbers.clone(), "additionalProperties": false}),
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

/// Answers that are held to a large grammar share the memory that grammars may take.
#[test]
fn answers_beyond_the_memory_for_grammars_are_refused_until_others_end() {
    let model = common::load(common::archives::path("qwen3/q8_0.gguf"));
    let one_of =
        |n: usize| json!({"type": "object", "properties": {format!("a{n}"): true}, "required": [format!("a{n}")]});
    let grammar = Grammar::json_schema(json!({"anyOf": (0..1500).map(one_of).collect::<Vec<_>>()}));
    let begin = || Constraint::new(model.tokenizer(), &grammar, StopTokens::default());
    let mut begun = Vec::new();
    let refused = loop {
        match begin() {
            Ok(constraint) => begun.push(constraint),
            Err(error) => break Error::from(error),
        }
        assert!(begun.len() < 1000, "nothing is counted");
    };
    let Error::Grammar(error) = &refused else { panic!("{refused:?}") };
    assert!(matches!(**error, GrammarError::Memory { .. }), "{error:?}");
    assert_eq!((begun.len() > 2, refused.kind()), (true, ErrorKind::OutOfMemory));
    begun.clear();
    begin().unwrap();
}

/// Remainders are counted in 32 bits: what does not fit would allow other numbers.
#[test]
fn divisors_beyond_the_arithmetic_are_refused() {
    let check = |divisor: &str| {
        let schema: Value = serde_json::from_str(&format!(r#"{{"type": "number", "multipleOf": {divisor}}}"#)).unwrap();
        Grammar::json_schema(schema).check().is_ok()
    };
    let taken = ["7", "0.07", "0.1", "1e-5", "0.25", "1000000", "300000000", "0.00000001", "1.10", "2e3"];
    let refused = ["0.123456789", "1e-9", "300000001", "1000000007", "1e300", "1e-300", "4.294967296"];
    assert_eq!(taken.iter().filter(|divisor| !check(divisor)).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(refused.iter().filter(|divisor| check(divisor)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// What holds together with alternatives, with other properties or items, or with what a reference leads to, is copied:
/// each of these took 0.4 to 5 GB or seconds.
#[test]
fn what_would_be_copied_too_often_is_refused_before_it_is() {
    let all = |count: usize, value: &Value| -> Value {
        (0..count).map(|n| (format!("a{n}"), value.clone())).collect::<serde_json::Map<_, _>>().into()
    };
    let objects = |count: usize| -> Value {
        (0..count).map(|n| json!({"type": "object", "properties": {format!("a{n}"): true}})).collect()
    };
    let wide = |count: usize| json!({"type": "object", "properties": all(count, &json!({"type": "null"}))});
    let texts = |count: usize| -> Value { (0..count).map(|n| json!(format!("x{n}"))).collect() };
    let required = |count: usize| -> Value { (0..count).map(|n| json!(format!("a{n}"))).collect() };
    let lengths = |count: usize| -> Value { (0..count).map(|n| json!({"type": "string", "minLength": n})).collect() };
    let refused = [
        // A value, a property and texts for each alternative.
        json!({"const": {"x": all(3000, &json!(null))}, "anyOf": objects(300)}),
        json!({"const": {"x": [texts(3000)]}, "anyOf": objects(30), "enum": texts(3000)}),
        json!({"properties": {"x": wide(1900)}, "anyOf": objects(30)}),
        json!({"const": "x".repeat(200_000), "anyOf": lengths(1000)}),
        json!({"enum": texts(3000), "anyOf": (0..10).map(|_| json!({"type": "string", "format": "uri"})).collect::<Vec<_>>()}),
        json!({"properties": all(30, &json!({"enum": texts(1000), "type": "string", "format": "uri"}))}),
        // What all properties or items have for each of those that are named.
        json!({"allOf": [{"prefixItems": vec![true; 10_000]}, {"items": wide(1000)}]}),
        json!({"const": vec![Value::Null; 10_000], "items": wide(1000)}),
        json!({"allOf": [{"properties": all(900, &json!(true))}, {"additionalProperties": wide(900)}]}),
        json!({"properties": all(1900, &json!(true)), "patternProperties": {"^a": {"const": "b".repeat(500_000)}}}),
        // What references lead to wherever something else holds.
        json!({
            "allOf": [{"properties": all(900, &json!({"$ref": "#/$defs/a"}))}, {"additionalProperties": {"type": "object"}}],
            "$defs": {"a": {"properties": {"x": wide(900)}}},
        }),
        // Each name with each other.
        json!({"const": all(9000, &json!(null))}),
        json!({"type": "object", "required": required(20_000)}),
    ];
    for schema in refused {
        let shown: String = schema.to_string().chars().take(150).collect();
        let found = Grammar::json_schema(schema).check().map_err(Error::from);
        let Err(Error::Grammar(error)) = found else { panic!("{shown}: {found:?}") };
        assert!(matches!(*error, GrammarError::TooLarge { .. }), "{shown}: {error:?}");
    }
}

/// Where nothing else holds, a reference is one however much it leads to, and alternatives stay apart.
#[test]
fn what_is_not_copied_is_not_counted() {
    let mut models = serde_json::Map::new();
    for level in 0..40 {
        let optional =
            json!({"anyOf": [{"$ref": format!("#/$defs/m{}", level + 1)}, {"type": "null"}], "default": null});
        let properties = json!({"kind": {"const": level}, "left": optional.clone(), "right": optional, "unit": {"enum": ["m", "s", "kg"]}});
        models.insert(format!("m{level}"), json!({"type": "object", "properties": properties, "required": ["kind"]}));
    }
    models.insert("m40".into(), json!({"type": "object", "additionalProperties": {"$ref": "#/$defs/m39"}}));
    let derived = json!({"allOf": [{"$ref": "#/$defs/m0"}, {"properties": {"name": {"type": "string"}, "kind": {"type": "integer"}}}]});
    let countries: Vec<String> = (0..250).map(|n| format!("c{n}")).collect();
    let address = json!({"properties": {"country": {"enum": countries}}, "anyOf": (0..40).map(|n| json!({
        "properties": {"country": {"const": format!("c{n}")}, "zip": {"type": "string", "pattern": format!("^[0-9]{{{}}}$", n % 9 + 1)}}
    })).collect::<Vec<_>>()});
    for mut schema in [json!({"$ref": "#/$defs/m0"}), derived, address] {
        schema["$defs"] = models.clone().into();
        Grammar::json_schema(schema).check().unwrap();
    }
}

/// The opposite of the least integer of 64 bits would be asked for without end: these overflowed the stack.
#[test]
fn the_least_integer_is_refused() {
    let least = i64::MIN;
    let range = |key: &str, bound: Value| json!({"type": "integer", "minimum": -1e300, key: bound});
    let refused = [
        (json!({"const": least}), "/const"),
        (json!({"items": {"enum": [7, [{"a": least}]]}}), "/items/enum"),
        (range("maximum", json!(-1e300)), "/maximum"),
        (range("exclusiveMaximum", json!(least + 1)), "/exclusiveMaximum"),
        (json!({"allOf": [{"type": "integer", "minimum": least}, {"maximum": least}]}), "/allOf/1/maximum"),
    ];
    for (schema, expected) in refused {
        let found = tried(&qwen3(), &Grammar::json_schema(schema));
        assert!(
            matches!(&found, Err(GrammarError::Schema { place, .. }) if place == expected),
            "{expected}: {found:?}"
        );
    }
    let properties = json!({"maximum": {"const": -9007199254740992_i64}, "a": {"type": "integer", "maximum": -9.2e18}});
    Grammar::json_schema(json!({"properties": properties, "default": least})).check().unwrap();
}

/// What nobody waits for is not compiled.
#[test]
fn a_cancelled_request_compiles_no_grammar() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let options = GenerateOptions::default().cancel(&cancel).grammar(&Grammar::regex("never seen before [0-9]{1,9}"));
    assert!(matches!(qwen3().generate("A value: ", &options), Err(Error::Cancelled)));
}
