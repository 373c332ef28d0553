//! A JSON schema -> whether it can be kept, or the place in it that cannot.

use super::GRAMMAR_BYTES;
use crate::error::GrammarError;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::collections::HashMap;

/// Levels of a schema that may lie within each other.
const LEVELS: usize = 64;

/// Alternatives that the parts of an `allOf` may have together: each is taken with each.
const ALTERNATIVES: usize = 4096;

/// Keywords that change what a value is, and cannot be kept. `x-guidance` is llguidance's own, and would change its limits.
const UNSUPPORTED: [&str; 19] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "x-guidance",
    "$dynamicAnchor",
    "$recursiveAnchor",
];

/// Formats of strings that are kept.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Keywords that hold schemas by name, in a list, or alone.
const MAPS: [&str; 2] = ["properties", "patternProperties"];
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
const SINGLE: [&str; 3] = ["items", "additionalProperties", "additionalItems"];

/// The schema of `T`, in which integers have the range of their type, and objects no other properties than their own.
pub(crate) fn of<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
    bound(&mut schema);
    closed(schema)
}

/// `schema`, in which objects have no other properties than those it names.
pub(crate) fn closed(mut schema: Value) -> Value {
    let mut joined = Vec::new();
    find_joined(&schema, &mut joined);
    for (name, definition) in schema.get_mut("$defs").and_then(Value::as_object_mut).into_iter().flatten() {
        if !joined.contains(&format!("#/$defs/{name}")) {
            close(definition);
        }
    }
    close(&mut schema);
    schema
}

/// What adds to the properties of an object beside it.
const JOINING: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Finds the definitions whose properties are joined with others.
fn find_joined(schema: &Value, joined: &mut Vec<String>) {
    match schema {
        Value::Array(values) => values.iter().for_each(|value| find_joined(value, joined)),
        Value::Object(object) => {
            if object.contains_key("properties") || object.contains_key("allOf") {
                let members = JOINING[1..].iter().filter_map(|key| object.get(*key)?.as_array()).flatten();
                let references = members.chain([schema]).filter_map(|member| member.get("$ref")?.as_str());
                joined.extend(references.map(str::to_owned));
            }
            object.values().for_each(|value| find_joined(value, joined));
        }
        _ => {}
    }
}

/// Allows an object no other properties than its own, as serde ignores them, and a model that writes them may not come to an
/// end. What is joined with others stays open.
fn close(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    let joins = JOINING.iter().any(|key| object.contains_key(*key));
    if object.contains_key("properties") && !joins {
        object.entry("additionalProperties").or_insert(false.into());
    }
    let is_joined = joins && (object.contains_key("properties") || object.contains_key("allOf"));
    for (key, value) in object.iter_mut() {
        match value {
            Value::Object(map) if key == "properties" => map.values_mut().for_each(close),
            Value::Object(_) if SINGLE.contains(&key.as_str()) => close(value),
            Value::Array(list) if LISTS.contains(&key.as_str()) && !is_joined => list.iter_mut().for_each(close),
            _ => {}
        }
    }
}

/// Gives integers of 32 and 64 bits the ends of their range, which schemars leaves out. Of 64 bits they are doubles within it.
fn bound(schema: &mut Value) {
    match schema {
        Value::Array(values) => values.iter_mut().for_each(bound),
        Value::Object(object) => {
            object.values_mut().for_each(bound);
            let range = match object.get("format").and_then(Value::as_str) {
                Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
                Some("uint32") => (0, i64::from(u32::MAX)),
                Some("int64" | "int" | "int128") => (-9_000_000_000_000_000_000, 9_000_000_000_000_000_000),
                Some("uint64" | "uint" | "uint128") => (0, 9_000_000_000_000_000_000),
                _ => return,
            };
            object.entry("minimum").or_insert(range.0.into());
            object.entry("maximum").or_insert(range.1.into());
        }
        _ => {}
    }
}

/// Whether `schema` is small enough, and says nothing that cannot be kept.
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    let mut bytes = 0;
    measure(schema, 0, &mut bytes)?;
    let mut walk = Walk { root: schema, known: HashMap::new(), open: Vec::new() };
    walk.schema(schema, &mut String::new()).map(drop)
}

/// Adds the bytes that `value` has at least as JSON.
fn measure(value: &Value, level: usize, bytes: &mut usize) -> Result<(), GrammarError> {
    let too_large = |unit, found, limit| Err(GrammarError::TooLarge { what: "JSON schema", unit, found, limit });
    if level > LEVELS {
        return too_large("levels", level, LEVELS);
    }
    *bytes += match value {
        Value::String(text) => text.len() + 2,
        _ => 2,
    };
    if *bytes > GRAMMAR_BYTES {
        return too_large("bytes", *bytes, GRAMMAR_BYTES);
    }
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| measure(value, level + 1, bytes)),
        Value::Object(object) => object.iter().try_for_each(|(key, value)| {
            *bytes += key.len() + 2;
            measure(value, level + 1, bytes)
        }),
        _ => Ok(()),
    }
}

/// The schemas directly within `schema`, each with what its place adds to a JSON pointer, those of definitions left out.
pub(super) fn parts(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let of = |key: &'static str| schema.get(key).map(|value| (key, value));
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let maps = MAPS.into_iter().filter_map(of).filter_map(|(key, value)| Some((key, value.as_object()?)));
    let lists = LISTS.into_iter().filter_map(of).filter_map(|(key, value)| Some((key, value.as_array()?)));
    let single = SINGLE.into_iter().filter_map(of).filter(|(_, value)| !value.is_array());
    let named = maps
        .flat_map(move |(key, map)| map.iter().map(move |(name, value)| (format!("/{key}/{}", escaped(name)), value)));
    let listed = lists
        .flat_map(|(key, list)| list.iter().enumerate().map(move |(index, value)| (format!("/{key}/{index}"), value)));
    named.chain(listed).chain(single.map(|(key, value)| (format!("/{key}"), value)))
}

/// A way through all schemas that a schema uses.
struct Walk<'s> {
    root: &'s Value,
    /// References that were followed, and how many alternatives there are.
    known: HashMap<&'s str, usize>,
    /// Those that are being followed.
    open: Vec<&'s str>,
}

impl<'s> Walk<'s> {
    /// Checks `schema`, which lies at `place`; how many alternatives any part of it has.
    fn schema(&mut self, schema: &'s Value, place: &mut String) -> Result<usize, GrammarError> {
        let wrong = |place: &str, reason: String| Err(GrammarError::Schema { place: place.into(), reason });
        let object = match schema {
            Value::Bool(_) => return Ok(1),
            Value::Object(object) => object,
            _ => return wrong(place, "expected an object or a boolean".into()),
        };
        if let Some(key) = object.keys().find(|key| UNSUPPORTED.contains(&key.as_str())) {
            return wrong(&format!("{place}/{key}"), format!("{key} is not supported"));
        }
        if let Some(format) = object.get("format").filter(|_| may_be(object.get("type"), "string")) {
            match format.as_str() {
                Some(format) if FORMATS.contains(&format) => {}
                Some(format) => return wrong(&format!("{place}/format"), format!("{format:?} is not supported")),
                None => return wrong(&format!("{place}/format"), "expected a string".into()),
            }
        }
        if let Some(key) = MAPS.into_iter().find(|key| object.get(*key).is_some_and(|value| !value.is_object())) {
            return wrong(&format!("{place}/{key}"), "expected an object".into());
        }
        if let Some(key) = LISTS[..4].iter().find(|key| object.get(**key).is_some_and(|value| !value.is_array())) {
            return wrong(&format!("{place}/{key}"), "expected an array".into());
        }
        // Each alternative of one member of an `allOf` is taken with each of the others; the parts of all else stay apart.
        let (mut together, mut apart, mut choices) = (1_usize, 1, 0_usize);
        for (step, part) in parts(schema) {
            let len = place.len();
            place.push_str(&step);
            let count = self.schema(part, place)?;
            place.truncate(len);
            if step.starts_with("/allOf/") {
                together = together.saturating_mul(count);
            } else if step.starts_with("/anyOf/") || step.starts_with("/oneOf/") {
                choices = choices.saturating_add(count);
            } else {
                apart = apart.max(count);
            }
        }
        if let Some(reference) = object.get("$ref") {
            let at = format!("{place}/$ref");
            let Some(reference) = reference.as_str() else { return wrong(&at, "expected a string".into()) };
            together = together.saturating_mul(self.follow(reference, &at)?);
        }
        let count = together.saturating_mul(choices.max(1)).saturating_mul(apart);
        if count > ALTERNATIVES && (object.contains_key("allOf") || object.contains_key("$ref")) {
            let unit = "alternatives of schemas that hold together";
            return Err(GrammarError::TooLarge { what: "JSON schema", unit, found: count, limit: ALTERNATIVES });
        }
        Ok(count)
    }

    /// Checks what `reference`, which stands at `at`, leads to.
    fn follow(&mut self, reference: &'s str, at: &str) -> Result<usize, GrammarError> {
        let wrong = |reason: &str| GrammarError::Schema { place: at.into(), reason: reason.into() };
        let path = reference.strip_prefix('#').filter(|path| path.is_empty() || path.starts_with('/'));
        let path = path.filter(|path| !path.contains(['~', '%']));
        let path = path.ok_or_else(|| wrong("expected a reference within the schema, such as #/$defs/name"))?;
        if let Some(count) = self.known.get(reference) {
            return Ok(*count);
        }
        if self.open.contains(&reference) {
            return Ok(1);
        }
        if self.open.len() >= LEVELS {
            return Err(wrong("too many references lead on from each other, expected at most 64"));
        }
        let target = self.root.pointer(path.trim_end_matches('/'));
        let target = target.ok_or_else(|| wrong("it leads to nothing"))?;
        self.open.push(reference);
        let count = self.schema(target, &mut path.trim_end_matches('/').to_owned())?;
        self.open.pop();
        self.known.insert(reference, count);
        Ok(count)
    }
}

/// Whether a schema with this `type` has values of `kind`.
fn may_be(types: Option<&Value>, kind: &str) -> bool {
    match types {
        None => true,
        Some(Value::Array(types)) => types.iter().any(|name| name == kind),
        Some(name) => name == kind,
    }
}
