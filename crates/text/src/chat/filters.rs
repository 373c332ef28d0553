//! The filters and tests of Jinja that templates may use. The cost of each is counted by its input and its output.
//!
//! Filters that the engine has but Jinja has not are left out, and so are those of Jinja that no template needs: they are unknown
//! names. Filters that write or compare differently in the engine are implemented here.

use super::json;
use super::limits::Budget;
use super::marks::{self, bare_char};
use super::python::{self, Text};
use super::values::{Measured, Passing, PassingKind, all, ensure, invalid, items};
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, filters, tests};
use std::borrow::Cow;
use std::sync::Arc;

/// Filters that are implemented here.
const OURS: [(&str, Measured); 19] = [
    ("tojson", json::dumps),
    ("string", string),
    ("safe", string),
    ("escape", escape),
    ("e", escape),
    ("upper", |budget, args| recased(budget, args, str::to_uppercase)),
    ("lower", |budget, args| recased(budget, args, str::to_lowercase)),
    ("capitalize", |budget, args| recased(budget, args, python::capitalized)),
    ("title", |budget, args| recased(budget, args, |text| filters::title(text.into()))),
    ("trim", |budget, args| {
        let (value, chars): (&Value, Option<&str>) = from_args(args)?;
        Ok(Value::from(python::stripped(&python::text(value, budget)?, chars, true, true)))
    }),
    ("replace", |budget, args| {
        let (value, old, new, count): (&Value, &Value, &Value, Option<i64>) = from_args(args)?;
        let (value, old) = (python::text(value, budget)?, python::text(old, budget)?);
        python::replaced(&value, &old, &python::text(new, budget)?, count, budget).map(Value::from)
    }),
    ("join", |budget, args| {
        let (value, joint, named): (&Value, Option<&Value>, Kwargs) = from_args(args)?;
        let joint = match joint {
            Some(joint) => python::text(joint, budget)?,
            None => named.get::<Option<&str>>("d")?.unwrap_or_default().to_owned(),
        };
        let mut all = items(value)?;
        if let Some(attribute) = named.get::<Option<&str>>("attribute")? {
            let attribute = marks::bare(attribute);
            for item in &mut all {
                *item = item.get_attr(&attribute)?;
            }
        }
        named.assert_all_used()?;
        python::joined(&all, &joint, budget).map(Value::from)
    }),
    ("list", |budget, args| {
        let (value,): (&Value,) = from_args(args)?;
        budget.spend(value.as_str().map_or(0, str::len))?;
        items(value).map(Value::from)
    }),
    ("indent", indent),
    ("round", round),
    ("int", int),
    ("float", float),
    ("sum", sum),
    ("format", |budget, args| {
        let (template, given): (&str, Rest<Value>) = from_args(args)?;
        python::formatted(minijinja::formatting::FormatStyle::Printf, template, &given, budget).map(Value::from)
    }),
];

fn string(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value,): (&Value,) = from_args(args)?;
    python::text(value, budget).map(Value::from)
}

/// The text of a value with the letter case that `change` gives it.
fn recased(budget: &Budget, args: &[Value], change: fn(&str) -> String) -> Result<Value, Error> {
    let (value,): (&Value,) = from_args(args)?;
    Ok(Value::from(marks::recased(&python::text(value, budget)?, change)))
}

fn escape(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value,): (&Value,) = from_args(args)?;
    let mut text = Text::new(budget);
    let mut own = [0; 4];
    for character in python::text(value, budget)?.chars() {
        text.push(match bare_char(character) {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '\'' => "&#39;",
            '"' => "&#34;",
            _ => character.encode_utf8(&mut own),
        })?;
    }
    Ok(Value::from(text.into_string()))
}

/// `value | indent(width=4, first=false, blank=false)`.
fn indent(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value, width, first, blank, named): (&Value, Option<&Value>, Option<bool>, Option<bool>, Kwargs) =
        from_args(args)?;
    let width = width.cloned().or(named.get::<Option<Value>>("width")?).unwrap_or_else(|| Value::from(4));
    let first = first.or(named.get("first")?).unwrap_or(false);
    let blank = blank.or(named.get("blank")?).unwrap_or(false);
    named.assert_all_used()?;
    let margin = python::margin(&width)?;
    let value = python::text(value, budget)? + "\n";
    let mut text = Text::new(budget);
    for (index, line) in python::lines(&value, false).into_iter().enumerate() {
        text.push(if index > 0 { "\n" } else { "" })?;
        text.push(if (index == 0 && first) || (index > 0 && (blank || !line.is_empty())) { &margin } else { "" })?;
        text.push(line)?;
    }
    Ok(Value::from(text.into_string()))
}

/// `value | round(precision=0)`: half to even, as in Python.
fn round(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value, precision, named): (Value, Option<i64>, Kwargs) = from_args(args)?;
    let precision = precision.or(named.get("precision")?).unwrap_or(0);
    let method = named.get::<Option<&str>>("method")?;
    ensure(method.is_none_or(|method| method == "common"), "values are rounded by the common method only")?;
    named.assert_all_used()?;
    if value.is_integer() {
        return Ok(value);
    }
    // No double has more than 1074 digits after its point.
    let precision = usize::try_from(precision).map_err(|_| invalid("values are rounded after the point only"))?;
    let digits = format!("{:.*}", precision.min(1074), f64::try_from(value)?);
    digits.parse::<f64>().map(Value::from).map_err(|_| invalid("only a number can be rounded"))
}

/// `value | int(default=0)`.
fn int(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value, default, named): (&Value, Option<Value>, Kwargs) = from_args(args)?;
    let default = default.or(named.get("default")?).unwrap_or_else(|| Value::from(0));
    named.assert_all_used()?;
    let float = match number(value)?.as_deref() {
        Some(text) => match text.parse::<i128>() {
            Ok(integer) => return Ok(Value::from(integer)),
            Err(_) => text.parse::<f64>().ok(),
        },
        None if value.is_integer() => return Ok(value.clone()),
        None => f64::try_from(value.clone()).ok(),
    };
    match float.map(f64::trunc) {
        // Within this range each is an integer of 128 bits.
        Some(float) if float.abs() < 1e38 => Ok(Value::from(float as i128)),
        Some(float) if float.is_finite() => Err(invalid("an integer of more than 128 bits")),
        _ => Ok(default),
    }
}

/// `value | float(default=0.0)`.
fn float(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value, default, named): (&Value, Option<Value>, Kwargs) = from_args(args)?;
    let default = default.or(named.get("default")?).unwrap_or_else(|| Value::from(0.0));
    named.assert_all_used()?;
    Ok(match number(value)?.as_deref() {
        Some(text) => text.parse::<f64>().map_or(default, Value::from),
        None => f64::try_from(value.clone()).map_or(default, Value::from),
    })
}

/// The text of a number that both languages read alike; `None` for a value that is not text.
fn number(value: &Value) -> Result<Option<Cow<'_, str>>, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "an undefined value is no number"));
    }
    let text = value.as_str().map(|text| marks::bare(python::stripped(text, None, true, true)));
    match text {
        Some(text) if text.contains('_') || (!text.is_ascii() && text.chars().any(char::is_numeric)) => {
            Err(invalid("a number has digits of ASCII only"))
        }
        text => Ok(text),
    }
}

/// `value | sum(attribute=none, start=0)` of integers.
fn sum(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value, attribute, start, named): (&Value, Option<&str>, Option<i128>, Kwargs) = from_args(args)?;
    let attribute = attribute.or(named.get("attribute")?);
    let mut sum = start.or(named.get("start")?).unwrap_or(0);
    named.assert_all_used()?;
    for item in items(value)? {
        let item = attribute.map_or_else(|| Ok(item.clone()), |attribute| item.get_attr(attribute))?;
        let added =
            i128::try_from(item.clone()).ok().filter(|_| item.is_integer()).and_then(|item| sum.checked_add(item));
        sum = added.ok_or_else(|| invalid("only integers of at most 128 bits are summed"))?;
    }
    Ok(Value::from(sum))
}

/// `value | default(other='', boolean=false)`. It is cheap, so its cost is not counted.
fn default(value: Value, other: Option<Value>, boolean: Option<bool>, named: Kwargs) -> Result<Value, Error> {
    let other = other.or(named.get("default_value")?).unwrap_or_else(|| Value::from(""));
    let boolean = boolean.or(named.get("boolean")?).unwrap_or(false);
    named.assert_all_used()?;
    Ok(if value.is_undefined() || (boolean && !value.is_true()) { other } else { value })
}

/// Filters whose time does not depend on their input.
const CHEAP: [&str; 4] = ["length", "count", "first", "last"];

/// Filters that return an iterator in Jinja, which can be used once and is not a list.
const GENERATORS: [&str; 10] =
    ["map", "select", "reject", "selectattr", "rejectattr", "unique", "batch", "slice", "items", "reverse"];

/// Filters that write their arguments into the result; other filters take names or numbers.
const WRITERS: [&str; 5] = ["replace", "join", "tojson", "indent", "format"];

/// Filters that compare the items of their value, which are given without marks.
const COMPARING: [&str; 6] = ["sort", "unique", "groupby", "dictsort", "min", "max"];

/// The arguments of a filter, without marks if it only inspects them.
fn looked_at(name: &str, args: Vec<Value>) -> Vec<Value> {
    let (value, given) = (COMPARING.contains(&name), !WRITERS.contains(&name));
    let looks = |index: usize| if index == 0 { value } else { given };
    args.into_iter().enumerate().map(|(index, arg)| if looks(index) { marks::unmarked(&arg) } else { arg }).collect()
}

pub(super) fn add(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    for (name, filter) in OURS {
        let budget = Arc::clone(budget);
        environment.add_filter(name, move |args: Rest<ValueOrKwargs>| {
            let args = all(args);
            args.iter().try_for_each(|arg| budget.weigh(arg))?;
            let value = filter(&budget, &looked_at(name, args))?;
            budget.weigh(&value).map(|()| value)
        });
    }
    for (name, filter) in engine_filters() {
        let budget = Arc::clone(budget);
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = all(args);
            if CHEAP.contains(&name) {
                args.iter().take(1).try_for_each(|arg| budget.scan(arg))?;
                return match (&*args, name) {
                    ([value], "length" | "count") if value.is_undefined() => Ok(Value::from(0)),
                    ([value], _) if value.is_undefined() => Ok(Value::UNDEFINED),
                    ([value], _) if value.is_none() => Err(invalid("None has no items")),
                    _ => filter.call(state, &args),
                };
            }
            if args.first().is_some_and(Value::is_none) {
                return match name {
                    "map" | "select" | "reject" | "selectattr" | "rejectattr" => {
                        budget.pass(Value::from(Vec::<Value>::new()), PassingKind::Generator)
                    }
                    _ => Err(invalid("None has no items and no value")),
                };
            }
            args.iter().try_for_each(|arg| budget.weigh(arg))?;
            // Sorting compares each item with up to 24 others: there are at most 2^24 items.
            if COMPARING.contains(&name) {
                for _ in 0..24 {
                    args.iter().take(1).try_for_each(|arg| budget.weigh(arg))?;
                }
            }
            if matches!(name, "batch" | "slice") {
                let count = args.get(1).and_then(Value::as_usize).unwrap_or(0);
                budget.spend(count)?;
            }
            let args = looked_at(name, args);
            let value = budget.keep(filter.call(state, &args)?)?;
            budget.weigh(&value)?;
            let passing = GENERATORS.contains(&name) && value.kind() == ValueKind::Seq;
            if passing { budget.pass(value, PassingKind::Generator) } else { Ok(value) }
        });
    }
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    for (name, test, measured) in engine_tests() {
        let budget = Arc::clone(budget);
        environment.add_test(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = all(args);
            let value = args.first().cloned().unwrap_or_default();
            let fits = match name {
                "odd" | "even" | "divisibleby" => matches!(value.kind(), ValueKind::Number | ValueKind::Bool),
                "lower" | "upper" => value.as_str().is_some(),
                _ => true,
            };
            ensure(fits, "the test is not for values of this type")?;
            if measured {
                args.iter().try_for_each(|arg| budget.weigh(arg))?;
            }
            // `sameas` must get the same objects, so only its texts are converted.
            let looks = |arg: &Value| measured && (name != "sameas" || arg.as_str().is_some());
            let args: Vec<Value> =
                args.into_iter().map(|arg| if looks(&arg) { marks::unmarked(&arg) } else { arg }).collect();
            test.call(state, &args).map(|found| found.is_true())
        });
    }
    environment.add_test("sequence", |value: Value| {
        let range = value.downcast_object_ref::<Passing>().is_some_and(|passing| passing.kind == PassingKind::Range);
        range || matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined)
    });
    environment.add_test("number", |value: Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    environment.add_test("iterable", |value: Value| {
        let kinds = [ValueKind::String, ValueKind::Seq, ValueKind::Iterable, ValueKind::Map, ValueKind::Undefined];
        kinds.contains(&value.kind())
    });
}

fn engine_filters() -> [(&'static str, Value); 21] {
    [
        ("length", Value::from_function(filters::length)),
        ("count", Value::from_function(filters::length)),
        ("first", Value::from_function(filters::first)),
        ("last", Value::from_function(filters::last)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("items", Value::from_function(filters::items)),
        ("reverse", Value::from_function(filters::reverse)),
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("groupby", Value::from_function(filters::groupby)),
        ("batch", Value::from_function(filters::batch)),
        ("slice", Value::from_function(filters::slice)),
        ("map", Value::from_function(filters::map)),
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
    ]
}

/// Tests, and whether they inspect more than the kind of a value; the cost of those is counted.
fn engine_tests() -> Vec<(&'static str, Value, bool)> {
    let mut found = vec![
        ("defined", Value::from_function(tests::is_defined), false),
        ("undefined", Value::from_function(tests::is_undefined), false),
        ("none", Value::from_function(tests::is_none), false),
        ("boolean", Value::from_function(tests::is_boolean), false),
        ("odd", Value::from_function(tests::is_odd), false),
        ("even", Value::from_function(tests::is_even), false),
        ("divisibleby", Value::from_function(tests::is_divisibleby), false),
        ("integer", Value::from_function(tests::is_integer), false),
        ("float", Value::from_function(tests::is_float), false),
        ("string", Value::from_function(tests::is_string), false),
        ("mapping", Value::from_function(tests::is_mapping), false),
        ("true", Value::from_function(tests::is_true), false),
        ("false", Value::from_function(tests::is_false), false),
        ("lower", Value::from_function(tests::is_lower), true),
        ("upper", Value::from_function(tests::is_upper), true),
        ("sameas", Value::from_function(tests::is_sameas), true),
        ("in", Value::from_function(tests::is_in), true),
        ("filter", Value::from_function(tests::is_filter), true),
        ("test", Value::from_function(tests::is_test), true),
    ];
    for (names, test) in [
        (["eq", "equalto", "=="], Value::from_function(tests::is_eq)),
        (["ne", "!=", "!="], Value::from_function(tests::is_ne)),
        (["lt", "lessthan", "<"], Value::from_function(tests::is_lt)),
        (["le", "<=", "<="], Value::from_function(tests::is_le)),
        (["gt", "greaterthan", ">"], Value::from_function(tests::is_gt)),
        (["ge", ">=", ">="], Value::from_function(tests::is_ge)),
    ] {
        found.extend(names.map(|name| (name, test.clone(), true)));
    }
    found
}
