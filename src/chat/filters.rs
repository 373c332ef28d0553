//! The filters and tests of Jinja that templates may use, each measured by what it is given and what it makes.
//!
//! What the engine has and Jinja has not is left out, as is what Jinja has and templates do without: both are unknown
//! names. Those that write or compare differently in the engine are ours.

use super::json;
use super::limits::{Budget, items};
use super::operators::invalid;
use super::python::{self, Text};
use minijinja::value::{Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Environment, Error, State, filters, tests};
use std::sync::Arc;

type Filter = fn(&Budget, &[Value]) -> Result<Value, Error>;

/// Filters of our own.
const OURS: [(&str, Filter); 15] = [
    ("tojson", json::dumps),
    ("string", |budget, args| {
        let (value,): (&Value,) = from_args(args)?;
        python::text(value, budget).map(Value::from)
    }),
    ("safe", |budget, args| {
        let (value,): (&Value,) = from_args(args)?;
        python::text(value, budget).map(Value::from)
    }),
    ("escape", escape),
    ("e", escape),
    ("upper", |budget, args| {
        let (value,): (&Value,) = from_args(args)?;
        Ok(Value::from(python::text(value, budget)?.to_uppercase()))
    }),
    ("lower", |budget, args| {
        let (value,): (&Value,) = from_args(args)?;
        Ok(Value::from(python::text(value, budget)?.to_lowercase()))
    }),
    ("capitalize", |budget, args| {
        let (value,): (&Value,) = from_args(args)?;
        Ok(Value::from(python::capitalized(&python::text(value, budget)?)))
    }),
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
            for item in &mut all {
                *item = item.get_attr(attribute)?;
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
    ("format", |budget, args| {
        let (template, given): (&str, Rest<Value>) = from_args(args)?;
        python::formatted(minijinja::formatting::FormatStyle::Printf, template, &given, budget).map(Value::from)
    }),
];

fn escape(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value,): (&Value,) = from_args(args)?;
    let mut text = Text::new(budget);
    let mut own = [0; 4];
    for character in python::text(value, budget)?.chars() {
        text.push(match character {
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
    let margin = match width.as_str() {
        Some(text) => text.to_owned(),
        None => python::margin(&width)?,
    };
    let value = python::text(value, budget)? + "\n";
    let mut text = Text::new(budget);
    for (index, line) in python::lines(&value, false).into_iter().enumerate() {
        text.push(if index > 0 { "\n" } else { "" })?;
        text.push(if (index == 0 && first) || (index > 0 && (blank || !line.is_empty())) { &margin } else { "" })?;
        text.push(line)?;
    }
    Ok(Value::from(text.into_string()))
}

/// `value | round(precision=0)`: to even, as Python does.
fn round(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (value, precision, named): (Value, Option<i64>, Kwargs) = from_args(args)?;
    let precision = precision.or(named.get("precision")?).unwrap_or(0);
    if named.get::<Option<&str>>("method")?.is_some_and(|method| method != "common") {
        return Err(invalid("values are rounded by the common method alone"));
    }
    named.assert_all_used()?;
    if value.is_integer() {
        return Ok(value);
    }
    // No double has more digits after its point than 1074.
    let precision = usize::try_from(precision).map_err(|_| invalid("values are rounded after the point alone"))?;
    let digits = format!("{:.*}", precision.min(1074), f64::try_from(value)?);
    digits.parse::<f64>().map(Value::from).map_err(|_| invalid("only a number can be rounded"))
}

/// What is given by place and by name, as the engine passes it.
pub(super) fn all(args: Rest<Value>, named: Kwargs) -> Vec<Value> {
    let any = named.args().next().is_some();
    args.0.into_iter().chain(any.then(|| Value::from(named))).collect()
}

/// Filters whose time does not depend on what they are given.
const CHEAP: [&str; 6] = ["length", "count", "first", "last", "default", "d"];

pub(super) fn add(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    for (name, filter) in OURS {
        let budget = Arc::clone(budget);
        environment.add_filter(name, move |args: Rest<Value>, named: Kwargs| {
            let args = all(args, named);
            args.iter().try_for_each(|arg| budget.weigh(arg))?;
            let value = filter(&budget, &args)?;
            budget.weigh(&value).map(|()| value)
        });
    }
    for (name, filter) in engine_filters() {
        let budget = Arc::clone(budget);
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<Value>, named: Kwargs| {
            let args = all(args, named);
            if CHEAP.contains(&name) {
                args.iter().take(1).try_for_each(|arg| budget.scan(arg))?;
                return filter.call(state, &args);
            }
            args.iter().try_for_each(|arg| budget.weigh(arg))?;
            // Sorting compares each item with a few others, of at most 2^24.
            if matches!(name, "sort" | "unique" | "groupby" | "dictsort" | "min" | "max") {
                for _ in 0..24 {
                    args.iter().take(1).try_for_each(|arg| budget.weigh(arg))?;
                }
            }
            if matches!(name, "batch" | "slice") {
                let count = args.get(1).and_then(Value::as_usize).unwrap_or(0);
                budget.spend(count)?;
            }
            let value = budget.keep(filter.call(state, &args)?)?;
            budget.weigh(&value).map(|()| value)
        });
    }
    for (name, test) in engine_tests() {
        let budget = Arc::clone(budget);
        environment.add_test(name, move |state: &mut State<'_, '_>, args: Rest<Value>, named: Kwargs| {
            let args = all(args, named);
            // These look at values, others only at their kind.
            if !KINDS.contains(&name) {
                args.iter().try_for_each(|arg| budget.weigh(arg))?;
            }
            test.call(state, &args).map(|found| found.is_true())
        });
    }
    environment.add_test("sequence", |value: Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
    });
    environment.add_test("number", |value: Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    environment.add_test("iterable", |value: Value| {
        let kinds = [ValueKind::String, ValueKind::Seq, ValueKind::Iterable, ValueKind::Map, ValueKind::Undefined];
        kinds.contains(&value.kind())
    });
}

fn engine_filters() -> [(&'static str, Value); 27] {
    [
        ("length", Value::from_function(filters::length)),
        ("count", Value::from_function(filters::length)),
        ("first", Value::from_function(filters::first)),
        ("last", Value::from_function(filters::last)),
        ("default", Value::from_function(filters::default)),
        ("d", Value::from_function(filters::default)),
        ("title", Value::from_function(filters::title)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("items", Value::from_function(filters::items)),
        ("reverse", Value::from_function(filters::reverse)),
        ("abs", Value::from_function(filters::abs)),
        ("int", Value::from_function(filters::int)),
        ("float", Value::from_function(filters::float)),
        ("attr", Value::from_function(filters::attr)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("sum", Value::from_function(filters::sum)),
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

const KINDS: [&str; 13] = [
    "defined",
    "undefined",
    "none",
    "boolean",
    "odd",
    "even",
    "integer",
    "float",
    "string",
    "mapping",
    "true",
    "false",
    "divisibleby",
];

fn engine_tests() -> Vec<(&'static str, Value)> {
    let mut found = vec![
        ("defined", Value::from_function(tests::is_defined)),
        ("undefined", Value::from_function(tests::is_undefined)),
        ("none", Value::from_function(tests::is_none)),
        ("boolean", Value::from_function(tests::is_boolean)),
        ("odd", Value::from_function(tests::is_odd)),
        ("even", Value::from_function(tests::is_even)),
        ("divisibleby", Value::from_function(tests::is_divisibleby)),
        ("integer", Value::from_function(tests::is_integer)),
        ("float", Value::from_function(tests::is_float)),
        ("string", Value::from_function(tests::is_string)),
        ("mapping", Value::from_function(tests::is_mapping)),
        ("true", Value::from_function(tests::is_true)),
        ("false", Value::from_function(tests::is_false)),
        ("lower", Value::from_function(tests::is_lower)),
        ("upper", Value::from_function(tests::is_upper)),
        ("sameas", Value::from_function(tests::is_sameas)),
        ("in", Value::from_function(tests::is_in)),
        ("filter", Value::from_function(tests::is_filter)),
        ("test", Value::from_function(tests::is_test)),
    ];
    for (names, test) in [
        (["eq", "equalto", "=="], Value::from_function(tests::is_eq)),
        (["ne", "!=", "!="], Value::from_function(tests::is_ne)),
        (["lt", "lessthan", "<"], Value::from_function(tests::is_lt)),
        (["le", "<=", "<="], Value::from_function(tests::is_le)),
        (["gt", "greaterthan", ">"], Value::from_function(tests::is_gt)),
        (["ge", ">=", ">="], Value::from_function(tests::is_ge)),
    ] {
        found.extend(names.map(|name| (name, test.clone())));
    }
    found
}
