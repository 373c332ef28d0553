//! A JSON schema -> whether llguidance's expansion of it stays small.
//!
//! llguidance merges schemas that hold together into alternatives. Each is copied for the alternatives of the others,
//! the rules for all other properties for each property that another schema names, and the target of a reference if
//! something else holds too. It counts its comparisons, but not its copies. So the copies are counted here, along
//! the places where schemas meet, before there are any.

use super::breadth;
use super::schema::{bounded, entries, list, names, path_within, values};
use crate::error::GrammarError;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::ops::Add;

/// The most bytes of the parts of a schema, including their copies.
const WEIGHT: usize = 100_000_000;

/// Bytes of a schema or a value of `const` without its texts, and of a byte of its texts.
const NODE_WEIGHT: usize = 500;
const TEXT_WEIGHT: usize = 2;

/// The weight of two properties of one object: each is compared with each, and this accounts for the time.
const PAIR_WEIGHT: usize = 5;

/// The time to intersect one text with a `format` or a `pattern`, in microseconds of a release build, approximately. A
/// pattern takes one more for each of its bytes, and one for each [`RANGES`] ranges of characters in its classes.
const FORMAT_COST: usize = 200;
const PATTERN_COST: usize = 30;
const RANGES: usize = 4;

/// llguidance intersects every text of an `enum`: the most time that this may take.
const TEXTS_COST: usize = 1_000_000;

/// The most schemas that are compared with each other: llguidance stops at a quarter of that.
const COMPARED: usize = 200_000;

/// The most nested levels at which schemas are compared: llguidance stops at these.
const LEVELS: usize = 128;

/// Keywords that hold for a value, except those that join schemas: those of properties and items, and others.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "additionalProperties", "items", "prefixItems", "additionalItems"];
const OTHERS: [&str; 15] = [
    "type",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "required",
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
];

/// The way to a part of a value.
#[derive(Clone, Copy)]
enum Step<'s> {
    Name(&'s str),
    Item(usize),
}

/// A part of a schema: each holds together with the others.
#[derive(Clone, Copy)]
enum Part<'s> {
    Schema(&'s Value),
    /// The target of a reference, which is merged if anything else holds.
    Referred(&'s Value),
    /// The alternatives of `anyOf` or `oneOf`.
    Choice(&'s [Value]),
    /// A value of `const`, or one of an `enum`.
    Given(&'s Value),
    Enum(&'s [Value]),
    Keywords(&'s Map<String, Value>),
}

impl<'s> Part<'s> {
    /// The identity of the part.
    fn id(self) -> (u8, usize) {
        match self {
            Part::Schema(schema) | Part::Referred(schema) => (0, std::ptr::from_ref(schema).addr()),
            Part::Choice(list) => (1, list.as_ptr().addr()),
            Part::Given(value) => (2, std::ptr::from_ref(value).addr()),
            Part::Enum(list) => (3, list.as_ptr().addr()),
            Part::Keywords(map) => (4, std::ptr::from_ref(map).addr()),
        }
    }

    /// Whether the part has no keywords.
    fn is_open(self) -> bool {
        matches!(self, Part::Schema(schema) if schema.as_object().is_none_or(Map::is_empty))
    }

    /// Whether the part may restrict properties or items.
    fn has_names(self) -> bool {
        match self {
            Part::Schema(_) => !self.is_open(),
            Part::Referred(_) | Part::Choice(_) => true,
            Part::Enum(list) => list.iter().any(|value| Part::Given(value).has_names()),
            Part::Given(value) => value.is_object() || value.is_array(),
            Part::Keywords(object) => NAMED.iter().any(|key| object.contains_key(*key)),
        }
    }

    /// The schemas of single properties and items, if the part is keywords or a value.
    fn children(self) -> Vec<(Step<'s>, Part<'s>)> {
        let (Part::Keywords(_) | Part::Given(_)) = self else { return Vec::new() };
        let names = self.properties().into_iter().flatten().map(|(name, value)| (Step::Name(name), value));
        let items = self.items().into_iter().flatten().enumerate().map(|(index, value)| (Step::Item(index), value));
        names.chain(items).map(|(step, value)| (step, self.within(value))).collect()
    }

    /// The schema of the property or item at `step`.
    fn child(self, step: Step<'_>) -> Option<Part<'s>> {
        let child = match step {
            Step::Name(name) => self.properties()?.get(name),
            Step::Item(index) => self.items()?.get(index),
        };
        child.map(|value| self.within(value))
    }

    /// The schemas of all other properties or items.
    fn others(self, step: Step<'_>) -> Vec<Part<'s>> {
        let Part::Keywords(object) = self else { return Vec::new() };
        match step {
            Step::Name(_) => {
                let patterns = entries(object, "patternProperties").map(|(_, value)| value);
                patterns.chain(object.get("additionalProperties")).map(Part::Schema).collect()
            }
            Step::Item(_) => {
                let rest = ["items", "additionalItems"].into_iter().filter_map(|key| object.get(key));
                rest.filter(|value| !value.is_array()).map(Part::Schema).collect()
            }
        }
    }

    fn within(self, value: &'s Value) -> Part<'s> {
        if matches!(self, Part::Given(_)) { Part::Given(value) } else { Part::Schema(value) }
    }

    fn properties(self) -> Option<&'s Map<String, Value>> {
        match self {
            Part::Keywords(object) => object.get("properties")?.as_object(),
            Part::Given(value) => value.as_object(),
            _ => None,
        }
    }

    fn items(self) -> Option<&'s Vec<Value>> {
        match self {
            Part::Keywords(object) => ["prefixItems", "items"].into_iter().find_map(|key| object.get(key)?.as_array()),
            Part::Given(value) => value.as_array(),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Cost {
    weight: usize,
    /// The time of intersecting texts with formats and patterns.
    texts: usize,
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost { weight: self.weight.saturating_add(other.weight), texts: self.texts.saturating_add(other.texts) }
    }
}

impl Cost {
    fn times(self, copies: usize) -> Cost {
        Cost { weight: self.weight.saturating_mul(copies), texts: self.texts.saturating_mul(copies) }
    }
}

/// The size of a schema.
#[derive(Clone, Copy)]
struct Size {
    /// Bytes if nothing else holds: a reference stays one.
    alone: usize,
    /// The cost if it is joined with other schemas.
    cost: Cost,
    alternatives: usize,
}

impl Size {
    const ONE: Size = Size::new(Cost { weight: NODE_WEIGHT, texts: 0 });

    const fn new(cost: Cost) -> Size {
        Size { alone: cost.weight, cost, alternatives: 1 }
    }
}

/// The copies of all parts of a schema.
pub(super) struct Copies<'s> {
    root: &'s Value,
    sizes: HashMap<(u8, usize), Size>,
    met: HashMap<[(u8, usize); 2], Cost>,
    compared: usize,
    level: usize,
    all: Cost,
}

impl<'s> Copies<'s> {
    pub(super) fn new(root: &'s Value) -> Copies<'s> {
        Copies { root, sizes: HashMap::new(), met: HashMap::new(), compared: 0, level: 0, all: Cost::default() }
    }

    /// Counts `schema`, which is the whole schema or the target of a reference.
    pub(super) fn count(&mut self, schema: &'s Value) -> Result<(), GrammarError> {
        self.all.weight = self.all.weight.saturating_add(self.size(Part::Schema(schema))?.alone);
        self.bounded(self.all)
    }

    fn bounded(&self, cost: Cost) -> Result<(), GrammarError> {
        let unit = "bytes with the copies of what holds together with alternatives or other properties";
        bounded(unit, cost.weight, WEIGHT)?;
        bounded("steps for texts of which several schemas hold", cost.texts, TEXTS_COST)?;
        bounded("comparisons of schemas that hold together", self.compared, COMPARED)
    }

    /// The parts of `object`.
    fn parts(&self, object: &'s Map<String, Value>) -> Vec<Part<'s>> {
        let some = |key: &str| object.get(key).and_then(Value::as_array).map(Vec::as_slice);
        let mut parts = Vec::new();
        parts.extend(object.get("const").map(Part::Given));
        parts.extend(some("enum").map(Part::Enum));
        parts.extend(list(object, "allOf").iter().map(Part::Schema));
        parts.extend(["anyOf", "oneOf"].into_iter().filter_map(some).map(Part::Choice));
        let target = object.get("$ref").and_then(Value::as_str).and_then(path_within);
        parts.extend(target.and_then(|path| self.root.pointer(path)).map(Part::Referred));
        if object.keys().any(|key| NAMED.contains(&key.as_str()) || OTHERS.contains(&key.as_str())) {
            parts.push(Part::Keywords(object));
        }
        parts
    }

    /// The size of `part`.
    fn size(&mut self, part: Part<'s>) -> Result<Size, GrammarError> {
        if let Some(size) = self.sizes.get(&part.id()) {
            return Ok(*size);
        }
        let members = self.members(part);
        let size = match part {
            // The targets of references are counted before, except for those that refer to themselves.
            Part::Referred(_) => return Ok(Size::ONE),
            Part::Schema(_) => self.together(&members)?,
            Part::Choice(_) | Part::Enum(_) => self.choice(&members)?,
            Part::Given(value) => Size::new(Cost { weight: given(value), texts: 0 }),
            Part::Keywords(object) => Size::new(self.keywords(object)?),
        };
        self.sizes.insert(part.id(), size);
        Ok(size)
    }

    /// The size of a choice between `members`.
    fn choice(&mut self, members: &[Part<'s>]) -> Result<Size, GrammarError> {
        let mut all = Size { alternatives: 0, ..Size::ONE };
        for member in members {
            let size = self.size(*member)?;
            all.cost = all.cost + size.cost;
            all.alone = all.alone.saturating_add(size.alone);
            all.alternatives = all.alternatives.saturating_add(size.alternatives);
        }
        all.alternatives = all.alternatives.max(1);
        Ok(all)
    }

    /// The size of `parts` that hold together.
    fn together(&mut self, parts: &[Part<'s>]) -> Result<Size, GrammarError> {
        let sizes = parts.iter().map(|part| self.size(*part)).collect::<Result<Vec<_>, _>>()?;
        match (parts, &sizes[..]) {
            ([Part::Referred(_)], [size]) => return Ok(Size { alone: NODE_WEIGHT, ..*size }),
            (_, [size]) => return Ok(*size),
            _ => {}
        }
        let mut all = Size::ONE;
        let once = sizes.iter().map(|size| size.cost.texts).fold(0, usize::saturating_add);
        all.alternatives = sizes.iter().map(|size| size.alternatives).fold(1, usize::saturating_mul);
        for size in &sizes {
            all.cost = all.cost + size.cost.times(all.alternatives / size.alternatives);
        }
        self.bounded(all.cost)?;
        let sized: Vec<_> = parts.iter().zip(&sizes).filter(|(part, _)| part.has_names()).collect();
        for (index, (part, size)) in sized.iter().enumerate() {
            for (other, others) in &sized[index + 1..] {
                self.compared += 1;
                let met = self.met(**part, **other)?;
                all.cost = all.cost + met.times(all.alternatives / size.alternatives / others.alternatives);
                self.bounded(all.cost)?;
            }
        }
        self.all.texts = self.all.texts.saturating_add(all.cost.texts.saturating_sub(once));
        self.bounded(self.all)?;
        all.alone = all.cost.weight;
        Ok(all)
    }

    /// The members of `part`.
    fn members(&self, part: Part<'s>) -> Vec<Part<'s>> {
        match part {
            Part::Schema(schema) | Part::Referred(schema) => {
                schema.as_object().map(|object| self.parts(object)).unwrap_or_default()
            }
            Part::Choice(list) => list.iter().map(Part::Schema).collect(),
            Part::Enum(list) => list.iter().map(Part::Given).collect(),
            Part::Given(_) | Part::Keywords(_) => Vec::new(),
        }
    }

    /// The cost of `object` without the schemas that are joined with it.
    fn keywords(&mut self, object: &'s Map<String, Value>) -> Result<Cost, GrammarError> {
        let pattern = object.get("pattern").and_then(Value::as_str).map_or(0, str::len);
        let weight = NODE_WEIGHT + TEXT_WEIGHT * pattern + of_names(names(object).collect());
        let mut all = Cost { weight, texts: cost(object) };
        let own = Part::Keywords(object);
        let patterns = own.others(Step::Name(""));
        let within = own.children().into_iter().map(|(_, part)| part).chain(own.others(Step::Item(0)));
        for part in within.chain(patterns.iter().copied()) {
            all.weight = all.weight.saturating_add(self.size(part)?.alone);
        }
        // The rules of patterns for listed names: at most one of each.
        for (_, property) in entries(object, "properties").filter(|_| object.contains_key("patternProperties")) {
            let met = patterns.iter().map(|pattern| self.pair(Part::Schema(property), *pattern, false));
            let met = met.collect::<Result<Vec<_>, _>>()?;
            all.weight = all.weight.saturating_add(met.iter().map(|met| met.weight).max().unwrap_or(0));
            self.all.texts = self.all.texts.saturating_add(met.iter().map(|met| met.texts).max().unwrap_or(0));
        }
        self.bounded(all)?;
        Ok(all)
    }

    /// The cost of the copies within `a` and `b`, which hold together: they arise if both restrict the same property or
    /// item.
    fn met(&mut self, a: Part<'s>, b: Part<'s>) -> Result<Cost, GrammarError> {
        let key = [a.id(), b.id()];
        if let Some(cost) = self.met.get(&key) {
            return Ok(*cost);
        }
        self.compared += 1;
        self.bounded(Cost::default())?;
        if self.level > LEVELS {
            return Ok(Cost::default());
        }
        self.met.insert(key, Cost::default()); // in case a schema refers to itself
        self.level += 1;
        let mut all = Cost::default();
        match (a, b) {
            (Part::Given(_), Part::Given(_)) => {}
            (Part::Keywords(_) | Part::Given(_), Part::Keywords(_) | Part::Given(_)) => all = self.inside(a, b)?,
            (Part::Given(_) | Part::Keywords(_), _) => all = self.met(b, a)?,
            _ => {
                let members = self.members(a);
                self.compared += members.len();
                for member in members.into_iter().filter(|member| member.has_names()) {
                    all = all + self.met(member, b)?;
                }
            }
        }
        self.level -= 1;
        self.met.insert(key, all);
        Ok(all)
    }

    /// Like [`met`](Self::met), for keywords and values of `const`.
    fn inside(&mut self, a: Part<'s>, b: Part<'s>) -> Result<Cost, GrammarError> {
        let mut all = Cost::default();
        for (one, other, is_first) in [(a, b, true), (b, a, false)] {
            let children = one.children();
            self.compared += children.len();
            for (step, part) in children {
                match other.child(step) {
                    Some(_) if !is_first => {}
                    Some(with) => all = all + self.pair(part, with, true)?,
                    None => {
                        for with in other.others(step) {
                            all = all + self.pair(part, with, false)?;
                        }
                    }
                }
            }
        }
        for step in [Step::Name(""), Step::Item(0)] {
            for part in a.others(step) {
                for with in b.others(step) {
                    all = all + self.pair(part, with, false)?;
                }
            }
        }
        Ok(all)
    }

    /// The cost of joining `a` with `b` beyond their own costs. `b` is counted only if it is of this place.
    fn pair(&mut self, a: Part<'s>, b: Part<'s>, is_of_place: bool) -> Result<Cost, GrammarError> {
        self.bounded(Cost::default())?;
        let [of_a, of_b] = [self.size(a)?, self.size(b)?];
        let mut all = match (a.is_open(), b.is_open()) {
            (true, _) => Cost { weight: of_a.alone.saturating_add(of_b.alone), texts: 0 },
            (_, true) => Cost { weight: of_a.alone, texts: 0 },
            _ => of_a.cost.times(of_b.alternatives) + of_b.cost.times(of_a.alternatives) + self.met(a, b)?,
        };
        let counted = of_a.alone.saturating_add(if is_of_place { of_b.alone } else { 0 });
        all.weight = all.weight.saturating_sub(counted);
        self.bounded(all)?;
        Ok(all)
    }
}

/// Bytes of the properties `names` of an object.
fn of_names(names: HashSet<&str>) -> usize {
    let bytes = names.iter().map(|name| name.len()).sum::<usize>();
    TEXT_WEIGHT * bytes + PAIR_WEIGHT * names.len() * names.len()
}

/// Bytes of a value of `const` or `enum`.
fn given(value: &Value) -> usize {
    let own = |value: &Value| match value {
        Value::String(text) => TEXT_WEIGHT * text.len(),
        Value::Object(object) => of_names(object.keys().map(String::as_str).collect()),
        _ => 0,
    };
    values(value).map(|value| NODE_WEIGHT + own(value)).fold(0, usize::saturating_add)
}

/// The cost of intersecting one text with the format, the pattern and the length of `object`.
pub(super) fn cost(object: &Map<String, Value>) -> usize {
    let pattern = object.get("pattern").and_then(Value::as_str);
    let pattern = pattern.map_or(0, |pattern| PATTERN_COST + pattern.len() + breadth::ranges(pattern) / RANGES);
    let length = ["minLength", "maxLength"].iter().any(|key| object.contains_key(*key));
    let format = usize::from(object.contains_key("format")) * FORMAT_COST;
    pattern + usize::from(length) * PATTERN_COST + format
}
