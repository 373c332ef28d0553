//! A JSON schema -> whether it can be enforced, or the place in it that cannot.

use super::copies::{Copies, cost};
use super::{GRAMMAR_BYTES, READINGS as READINGS_AT_ONCE, REGEX_BYTES, at_most, breadth, rewrite, within};
use crate::error::GrammarError;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Number, Value};
use std::collections::{HashMap, HashSet};

/// The most nested levels of a schema.
const LEVELS: usize = 64;

/// The most alternative parses of an answer that are followed at once, as counted here; the parser has room for more.
const READINGS: usize = READINGS_AT_ONCE * 9 / 10;

/// Alternative parses that an optional property adds, and an alternative that is not an object.
const PROPERTY_READINGS: usize = 4;
const VALUE_READINGS: usize = 2;

/// The most steps for the properties of all objects: for each property as many as its object has properties, and if these
/// are counted (`minProperties`, `maxProperties`) that many times as many.
const PROPERTY_STEPS: usize = 4_000_000;

/// The largest `multipleOf`, by its digits.
const DIVISOR: f64 = 300_000_000.0;

/// The most bytes of all patterns of a schema.
const PATTERN_BYTES: usize = 256 << 10;

/// The most ways in which a text can match a `format` at once.
const FORMAT_WAYS: usize = 4;

/// The most steps to find the names of properties that patterns match: for each pattern and byte of a name as
/// many as the pattern has letters, and no more than the name has bytes.
const MATCH_STEPS: usize = 20_000_000;

/// llguidance intersects every text of an `enum`: the most time that this may take within one schema.
const TEXTS_COST: usize = 250_000;

/// The most pairs of patterns of property names in a schema: each is compared with each of its object.
const NAME_PAIRS: usize = 1000;

/// Keywords that restrict a value but are not supported. `x-guidance` is llguidance's own, and would change its
/// limits.
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

/// Supported formats of strings.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Keywords that hold schemas by name, in a list, or one.
const MAPS: [&str; 2] = ["properties", "patternProperties"];
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
const SINGLE: [&str; 3] = ["items", "additionalProperties", "additionalItems"];

/// The schema of `T`, in which integers have the range of their type, and objects have only their own properties.
pub(crate) fn derived<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(bound));
    closed(settings.into_generator().into_root_schema_for::<T>().to_value())
}

/// `schema`, in which objects have only the properties that it names.
pub(crate) fn closed(mut schema: Value) -> Value {
    let joined: Vec<String> = values(&schema).flat_map(joined).map(str::to_owned).collect();
    for (name, definition) in schema.get_mut("$defs").and_then(Value::as_object_mut).into_iter().flatten() {
        if !joined.contains(&format!("#/$defs/{name}")) {
            close(definition);
        }
    }
    close(&mut schema);
    schema
}

/// Keywords that add properties to an object from other schemas.
const JOINING: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// The definitions whose properties are joined with those of `schema`.
fn joined(schema: &Value) -> impl Iterator<Item = &str> {
    let joins = schema.get("properties").or(schema.get("allOf")).is_some();
    let members = JOINING[1..].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten();
    members.chain([schema]).filter(move |_| joins).filter_map(|member| member.get("$ref")?.as_str())
}

/// `value` and all values within it.
pub(crate) fn values(value: &Value) -> impl Iterator<Item = &Value> {
    let mut open = vec![value];
    std::iter::from_fn(move || {
        let next = open.pop()?;
        match next {
            Value::Array(list) => open.extend(list),
            Value::Object(object) => open.extend(object.values()),
            _ => {}
        }
        Some(next)
    })
}

/// Allows an object only its own properties: serde ignores others, and a model that writes them may not
/// come to an end. An object that is joined with others stays open.
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

/// Gives integers of 32 and 64 bits the limits of their range, which schemars leaves out. Those of 64 bits are doubles
/// within the range.
fn bound(schema: &mut Schema) {
    let (least, most) = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        Some("uint32") => (0, i64::from(u32::MAX)),
        Some("int64" | "int" | "int128") => (-9_000_000_000_000_000_000, 9_000_000_000_000_000_000),
        Some("uint64" | "uint" | "uint128") => (0, 9_000_000_000_000_000_000),
        _ => return,
    };
    let object = schema.ensure_object();
    object.entry("minimum").or_insert(least.into());
    object.entry("maximum").or_insert(most.into());
}

/// Checks that `schema` is small enough, and that all of it can be enforced.
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    measure(schema, 0, &mut 0)?;
    let (known, open) = (HashMap::new(), Vec::new());
    let mut walk = Walk { root: schema, known, open, counts: Counts::default(), copies: Copies::new(schema) };
    let size = walk.schema(schema, &mut String::new())?;
    walk.copies.count(schema)?;
    bounded("alternatives and properties that may be left out, at one place", size.readings, READINGS)?;
    walk.counts.matches()?;
    walk.counts.intersections()
}

/// Checks that there are at most `limit`.
pub(super) fn bounded(unit: &'static str, found: usize, limit: usize) -> Result<(), GrammarError> {
    at_most("JSON schema", unit, found, limit)
}

/// The error that the part of a schema at `place` cannot be enforced.
pub(super) fn wrong<T>(place: String, reason: impl Into<String>) -> Result<T, GrammarError> {
    Err(GrammarError::Schema { place, reason: reason.into() })
}

/// The entries of the object that `object` has under `key`, by name.
pub(super) fn entries<'v>(object: &'v Map<String, Value>, key: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    object.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// The list that `object` has under `key`.
pub(super) fn list<'v>(object: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Adds the least bytes of `value` as JSON.
fn measure(value: &Value, level: usize, bytes: &mut usize) -> Result<(), GrammarError> {
    bounded("levels", level, LEVELS)?;
    *bytes += value.as_str().map_or(0, str::len) + 2;
    bounded("bytes", *bytes, GRAMMAR_BYTES)?;
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| measure(value, level + 1, bytes)),
        Value::Object(object) => object.iter().try_for_each(|(key, value)| {
            *bytes += key.len() + 2;
            measure(value, level + 1, bytes)
        }),
        _ => Ok(()),
    }
}

/// The schemas directly within `schema` except its definitions, each with what its place adds to a JSON
/// pointer.
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

/// Keywords of a whole schema that its parts refer to, or that change how they are read.
pub(crate) const DEFINITIONS: [&str; 3] = ["$defs", "definitions", "$schema"];

/// A part of the schema `whole` as a schema of its own, with the definitions that it may refer to.
pub(crate) fn with_definitions(part: &Value, whole: &Value) -> Value {
    let mut part = part.clone();
    for key in DEFINITIONS {
        if let (Some(part), Some(value)) = (part.as_object_mut(), whole.get(key)) {
            part.entry(key).or_insert_with(|| value.clone());
        }
    }
    part
}

/// A traversal of all schemas that a schema uses.
struct Walk<'s> {
    root: &'s Value,
    /// References that were followed, and the sizes of their targets.
    known: HashMap<&'s str, Size>,
    /// References that are being followed.
    open: Vec<&'s str>,
    counts: Counts<'s>,
    copies: Copies<'s>,
}

/// The counts of the patterns and properties of a schema.
#[derive(Default)]
struct Counts<'s> {
    /// Patterns of strings and of property names, and formats as `None`.
    patterns: HashSet<Option<&'s str>>,
    pattern_bytes: usize,
    name_pairs: usize,
    /// The letters of the patterns of names, and how many names there are of each length.
    named: Vec<usize>,
    names: HashMap<usize, usize>,
    property_steps: usize,
    /// Schemas that hold together with another.
    joined: usize,
}

/// The size of a schema for the parser.
#[derive(Clone, Copy)]
struct Size {
    /// Alternatives of the value itself; the texts and numbers of an `enum` count as one.
    branches: usize,
    /// Alternative parses of a value that may be followed at once.
    readings: usize,
}

impl Size {
    /// The size of a schema without others.
    const ONE: Size = Size { branches: 1, readings: VALUE_READINGS };

    /// Alternative parses of one of its branches.
    fn readings_of_one(self) -> usize {
        self.readings.div_ceil(self.branches)
    }
}

impl<'s> Walk<'s> {
    /// Checks `schema`, which lies at `place`, and returns its size.
    fn schema(&mut self, schema: &'s Value, place: &mut String) -> Result<Size, GrammarError> {
        let object = match schema {
            Value::Bool(_) => return Ok(Size::ONE),
            Value::Object(object) => object,
            _ => return wrong(place.clone(), "expected an object or a boolean"),
        };
        if let Some(key) = object.keys().find(|key| UNSUPPORTED.contains(&key.as_str())) {
            return wrong(format!("{place}/{key}"), format!("{key} is not supported"));
        }
        let is_text = |types: &Value| {
            types == "string" || types.as_array().is_some_and(|all| all.iter().any(|one| one == "string"))
        };
        if let Some(format) = object.get("format").filter(|_| object.get("type").is_none_or(is_text)) {
            match format.as_str() {
                Some(format) if FORMATS.contains(&format) => {}
                Some(format) => return wrong(format!("{place}/format"), format!("{format:?} is not supported")),
                None => return wrong(format!("{place}/format"), "expected a string"),
            }
        }
        if let Some(key) = MAPS.into_iter().find(|key| object.get(*key).is_some_and(|value| !value.is_object())) {
            return wrong(format!("{place}/{key}"), "expected an object");
        }
        if let Some(key) = LISTS[..4].iter().find(|key| object.get(**key).is_some_and(|value| !value.is_array())) {
            return wrong(format!("{place}/{key}"), "expected an array");
        }
        let divisor = object.get("multipleOf").and_then(Value::as_number);
        if let Some(divisor) = divisor.filter(|divisor| !is_divisor(divisor)) {
            let reason = format!(
                "{divisor} is not supported, expected at most {DIVISOR} in units of its last of up to 8 decimals"
            );
            return wrong(format!("{place}/multipleOf"), reason);
        }
        if let Some((key, reason)) = rewrite::unkept(object) {
            return wrong(format!("{place}/{key}"), reason);
        }
        self.counts.add(object)?;
        let values = list(object, "enum");
        bounded("steps for the texts of an enum", values.len().saturating_mul(cost(object)), TEXTS_COST)?;
        let mut size = Size::ONE;
        // Alternative parses of one branch: its own, and those of all schemas that hold together with it.
        let mut readings_of_one = optional(object) * PROPERTY_READINGS;
        let (mut branches, mut choice_readings) = (0_usize, 0_usize);
        for (step, part) in parts(schema) {
            let len = place.len();
            place.push_str(&step);
            let found = self.schema(part, place)?;
            place.truncate(len);
            if step.starts_with("/allOf/") {
                size.branches = size.branches.saturating_mul(found.branches);
                readings_of_one = readings_of_one.saturating_add(found.readings_of_one());
            } else if step.starts_with("/anyOf/") || step.starts_with("/oneOf/") {
                branches = branches.saturating_add(found.branches);
                choice_readings = choice_readings.saturating_add(found.readings);
            } else {
                size.readings = size.readings.max(found.readings.saturating_add(VALUE_READINGS));
            }
        }
        if let Some(reference) = object.get("$ref") {
            let at = format!("{place}/$ref");
            let Some(reference) = reference.as_str() else { return wrong(at, "expected a string") };
            let target = self.follow(reference, at)?;
            size.branches = size.branches.saturating_mul(target.branches);
            readings_of_one = readings_of_one.saturating_add(target.readings_of_one());
        }
        let branches =
            branches.saturating_add(values.iter().filter(|value| value.is_object() || value.is_array()).count()).max(1);
        size.branches = size.branches.saturating_mul(branches);
        let of_one = readings_of_one.saturating_add(choice_readings.div_ceil(branches)).max(VALUE_READINGS);
        size.readings = size.readings.max(size.branches.saturating_mul(of_one));
        Ok(size)
    }

    /// Checks the target of `reference`, which stands at `at`.
    fn follow(&mut self, reference: &'s str, at: String) -> Result<Size, GrammarError> {
        if let Some(size) = self.known.get(reference) {
            return Ok(*size);
        }
        let Some(path) = path_within(reference) else {
            return wrong(at, "expected a reference within the schema, such as #/$defs/name");
        };
        if self.open.contains(&reference) {
            return Ok(Size::ONE);
        }
        if self.open.len() >= LEVELS {
            return wrong(at, "too many references lead on from each other, expected at most 64");
        }
        let Some(target) = self.root.pointer(path) else { return wrong(at, "it leads to nothing") };
        self.open.push(reference);
        let size = self.schema(target, &mut path.to_owned())?;
        self.open.pop();
        self.known.insert(reference, size);
        self.copies.count(target)?;
        Ok(size)
    }
}

impl<'s> Counts<'s> {
    /// Counts the patterns and properties of `object`.
    fn add(&mut self, object: &'s Map<String, Value>) -> Result<(), GrammarError> {
        let named: Vec<&str> = entries(object, "patternProperties").map(|(name, _)| name.as_str()).collect();
        self.named.extend(named.iter().map(|pattern| breadth::letters(pattern)));
        for name in names(object) {
            *self.names.entry(name.len()).or_default() += 1;
        }
        let patterns: Vec<&str> = named.into_iter().chain(object.get("pattern").and_then(Value::as_str)).collect();
        let others = patterns.len().saturating_sub(1);
        self.name_pairs += patterns.len() * others / 2;
        let is_referring = object.contains_key("$ref") && object.len() > 1;
        self.joined += others + list(object, "allOf").len() + usize::from(is_referring);
        if object.contains_key("format") {
            self.patterns.insert(None);
            self.joined += 1;
        }
        for pattern in patterns {
            within("pattern of a JSON schema", pattern, REGEX_BYTES)?;
            self.pattern_bytes += pattern.len();
            self.patterns.insert(Some(pattern));
        }
        bounded("bytes of patterns", self.pattern_bytes, PATTERN_BYTES)?;
        bounded("pairs of patterns of the names of an object", self.name_pairs, NAME_PAIRS)?;
        let is_counted = ["minProperties", "maxProperties"].iter().any(|key| object.contains_key(*key));
        let properties = names(object).collect::<HashSet<_>>().len();
        let each = if is_counted && optional(object) > 0 { properties.saturating_mul(properties) } else { properties };
        self.property_steps = self.property_steps.saturating_add(properties.saturating_mul(each));
        bounded("steps for the properties of its objects", self.property_steps, PROPERTY_STEPS)
    }

    /// Checks that the property names can be matched with the patterns of names: llguidance does so while it parses a
    /// schema, also for schemas that hold together.
    fn matches(&self) -> Result<(), GrammarError> {
        let mut steps = 0_usize;
        self.named.iter().try_for_each(|letters| {
            for (bytes, count) in &self.names {
                steps = steps.saturating_add(bytes.saturating_mul(*letters.min(bytes)).saturating_mul(*count));
            }
            bounded("steps to match names of properties with patterns", steps, MATCH_STEPS)
        })
    }

    /// Checks that the patterns that may hold together can be intersected: llguidance does so while it parses a schema,
    /// before there is anything to measure.
    fn intersections(&self) -> Result<(), GrammarError> {
        if self.joined == 0 || self.patterns.len() < 2 {
            return Ok(());
        }
        let product = |of: &mut dyn FnMut(&str) -> usize| {
            let ways = self.patterns.iter().map(|pattern| pattern.map_or(FORMAT_WAYS, &mut *of));
            let mut ways: Vec<usize> = ways.collect();
            ways.sort_unstable_by(|a, b| b.cmp(a));
            ways.iter().take(self.joined + 1).fold(1_usize, |product, ways| product.saturating_mul(*ways))
        };
        if product(&mut breadth::letters) <= breadth::PRODUCT {
            return Ok(());
        }
        let mut left = breadth::DERIVATIVES;
        let ways = product(&mut |pattern| breadth::ways(pattern, &mut left));
        bounded("ways in which the patterns that hold together can be read at once", ways, breadth::PRODUCT)
    }
}

/// The JSON pointer of `reference`, if it leads to a part of the same schema.
pub(super) fn path_within(reference: &str) -> Option<&str> {
    let path = reference.strip_prefix('#').filter(|path| path.is_empty() || path.starts_with('/'))?;
    (!path.contains(['~', '%'])).then(|| path.trim_end_matches('/'))
}

/// Whether remainders by `divisor` fit into the 32 bits in which they are counted, with one more digit.
fn is_divisor(divisor: &Number) -> bool {
    let text = divisor.to_string();
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let fraction = digits.split_once('.').map_or("", |(_, fraction)| fraction.trim_end_matches('0'));
    let decimals = fraction.len() as i64 - exponent.parse::<i64>().unwrap_or(0);
    let units = 10_f64.powi(i32::try_from(decimals.max(0)).unwrap_or(i32::MAX));
    decimals <= 8 && divisor.as_f64().is_some_and(|divisor| divisor * units <= DIVISOR)
}

/// Names of the properties that `object` lists or requires.
pub(super) fn names(object: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let listed = entries(object, "properties").map(|(name, _)| name.as_str());
    listed.chain(list(object, "required").iter().filter_map(Value::as_str))
}

/// The number of optional properties of `object`.
fn optional(object: &Map<String, Value>) -> usize {
    let required: HashSet<&str> = list(object, "required").iter().filter_map(Value::as_str).collect();
    entries(object, "properties").filter(|(name, _)| !required.contains(name.as_str())).count()
}
