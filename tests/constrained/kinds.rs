//! Values that a grammar of llguidance alone would let through, and that cannot be read or break the specification.

use super::common::{fixtures, load};
use model_factory::{Error, FinishReason, GenerateOptions, Grammar, GrammarError};
use serde_json::{Value, json};

/// Schemas, each with what was wrong with its values.
fn kinds() -> Vec<(&'static str, Value)> {
    let string = |keyword: &str, value: &str| json!({"type": "string", "maxLength": 30, keyword: value});
    vec![
        ("exponents beyond a double", json!({"type": "number"})),
        ("exponents beyond a double, in a list", json!({"type": "array", "items": {"type": "number"}, "maxItems": 3})),
        ("exponents beyond a double, of any value", json!({})),
        ("numbers", json!({"type": "number", "multipleOf": 7})),
        ("integers beyond 64 bits", json!({"type": "integer", "multipleOf": 7})),
        (
            "bounds that no double holds",
            json!({"type": "integer", "minimum": 9_007_199_254_740_993_u64, "maximum": 9_007_199_254_740_995_u64}),
        ),
        ("quotes with control characters", string("pattern", "^[\\x00-\\x1f]{2,4}$")),
        (
            "quotes with control characters, in names",
            json!({"type": "object", "patternProperties": {"^[\\x00-\\x1f]{1,3}$": true}, "additionalProperties": false, "minProperties": 1, "maxProperties": 1}),
        ),
        ("quotes with all else", string("pattern", "^[^\"]{2,4}$")),
        ("backslashes with all else", string("pattern", "^[^\\\\]{2,4}$")),
        ("white space", string("pattern", "^\\s\\S{2,4}$")),
        ("words and digits", string("pattern", "^\\w\\W\\d\\D$")),
        ("leap seconds in date-times", string("format", "date-time")),
        ("leap seconds in times", json!({"type": ["string", "null"], "format": "time", "maxLength": 20})),
        ("the 29th of February", json!({"type": "string", "format": "date", "pattern": "-02-2"})),
    ]
}

#[test]
fn values_of_every_kind_are_read_and_valid() {
    let (model, mut wrong, mut ended) = (load(fixtures().join("demo")), Vec::new(), 0);
    for (kind, schema) in kinds() {
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        let grammar = Grammar::json_schema(schema.clone());
        let mut whole = 0;
        for seed in 0..60 {
            let options = GenerateOptions::default().temperature(5.0).seed(seed).max_tokens(120).grammar(&grammar);
            let mut generation = model.generate("A value: ", &options).unwrap();
            let text = generation.text().unwrap();
            if generation.finish().0 == Some(FinishReason::Length) {
                continue;
            }
            whole += 1;
            match serde_json::from_str::<Value>(&text) {
                Ok(value) if is_exact(&schema, &text).unwrap_or_else(|| validator.is_valid(&value)) => {}
                found => wrong.push(format!("{kind}: {text}: {found:?}")),
            }
        }
        assert!(whole >= 20, "{kind}: {whole} ended");
        ended += whole;
    }
    assert!(wrong.is_empty(), "{} of {ended} are wrong\n{}", wrong.len(), wrong.join("\n"));
}

/// Whether `text` is a whole number within the bounds of `schema` and a multiple of 7, where it asks for that, digit by digit; `None`
/// where that is not asked for. The validator computes with doubles.
fn is_exact(schema: &Value, text: &str) -> Option<bool> {
    let bound = |key: &str| schema[key].as_i64().map(i128::from);
    let digits = text.trim().trim_start_matches('-');
    if schema["multipleOf"] == 7 {
        // After a point there are only zeros.
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let rest = whole.bytes().fold(0, |rest, digit| (rest * 10 + u32::from(digit - b'0')) % 7);
        return Some(rest == 0 && fraction.bytes().all(|digit| digit == b'0'));
    }
    let (least, most) = bound("minimum").zip(bound("maximum"))?;
    Some(text.trim().parse().is_ok_and(|number: i128| (least..=most).contains(&number)))
}

#[test]
fn integers_that_no_double_holds_are_refused_by_their_place() {
    let model = load(fixtures().join("demo"));
    for (place, schema) in [
        ("/const", json!({"const": 9_007_199_254_740_993_u64})),
        (
            "/properties/a/enum",
            json!({"type": "object", "properties": {"a": {"enum": [1, [18_446_744_073_709_551_615_u64]]}}}),
        ),
        (
            "/$defs/enum/const",
            json!({"$ref": "#/$defs/enum", "$defs": {"enum": {"const": {"a": -9_007_199_254_740_993_i64}}}}),
        ),
    ] {
        let refused = model.compile_grammar(&Grammar::json_schema(schema)).unwrap_err();
        let Error::Grammar(error) = refused else { panic!("{refused}") };
        assert!(matches!(&*error, GrammarError::Schema { place: found, .. } if found == place), "{error}");
    }
    model.compile_grammar(&Grammar::json_schema(json!({"enum": [9_007_199_254_740_992_u64, -5, 1.5, 1e300]}))).unwrap();
}
