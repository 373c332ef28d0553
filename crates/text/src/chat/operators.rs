//! The operators and functions of templates whose results are measured, or are not the engine's but Python's.

use super::limits::{Budget, Exceeded};
use super::marks;
use super::python::Text;
use super::rewrite;
use super::values::{Namespace, PassingKind, all, invalid, items, sequence};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, tests};
use std::cmp::Ordering;
use std::sync::Arc;

/// The longest `range`, as in Jinja's sandbox.
const RANGE: usize = 100_000;

/// Whether an order is the one that is asked for.
type Holds = fn(Ordering) -> bool;

pub(super) fn add(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    let with = |function: fn(&Budget, Value) -> Result<Value, Error>| {
        let budget = Arc::clone(budget);
        move |value: Value| function(&budget, value)
    };
    environment.add_filter(rewrite::WEIGHED, with(|budget, value| budget.weigh(&value).map(|()| value)));
    environment
        .add_filter(rewrite::UNMARKED, with(|budget, value| budget.weigh(&value).map(|()| marks::unmarked(&value))));
    environment.add_filter(
        rewrite::OWN,
        with(|budget, value| match value.as_str() {
            Some(text) => budget.spend_text(text.len().saturating_mul(4)).map(|()| Value::from(marks::marked(text))),
            None => Ok(value),
        }),
    );
    environment.add_filter(rewrite::SCANNED, with(|budget, value| budget.scan(&value).map(|()| value)));
    environment.add_filter(rewrite::KEPT, with(Budget::keep));
    environment.add_filter(
        rewrite::ITERATED,
        with(|budget, value| match value.kind() {
            ValueKind::None => Err(invalid("None has no items")),
            // A loop over a list knows its length.
            _ => budget.keep(value),
        }),
    );
    environment.add_filter(
        rewrite::INDEXED,
        with(|budget, value| budget.scan(&value).and_then(|()| listed(value, "only a list has items by their number"))),
    );
    environment.add_filter(
        rewrite::COMPARED,
        with(|budget, value| {
            budget.weigh(&value)?;
            listed(marks::unmarked(&value), "only a list is compared")
        }),
    );
    environment.add_filter(
        rewrite::KEY,
        with(|budget, value| match value.kind() {
            // To Python true is 1 and 1.0 is 1.
            ValueKind::Bool => Err(invalid("a key is a string or an integer")),
            ValueKind::Number if !value.is_integer() => Err(invalid("a key is a string or an integer")),
            _ => budget.weigh(&value).map(|()| marks::unmarked(&value)),
        }),
    );

    let by = Arc::clone(budget);
    environment.add_function(rewrite::CONCAT, move |left: Value, right: Value| -> Result<Value, Error> {
        let mut text = Text::new(&by);
        text.push_value(&left)?;
        text.push_value(&right)?;
        Ok(Value::from(text.into_string()))
    });
    let by = Arc::clone(budget);
    environment.add_function(rewrite::SLICE, move |value: Value, start: Value, stop: Value, step: Value| {
        by.scan(&value)?;
        sliced(&value, &start, &stop, &step)
    });
    let orders: [(&str, Holds); 4] = [
        (rewrite::LESS, Ordering::is_lt),
        (rewrite::AT_MOST, Ordering::is_le),
        (rewrite::MORE, Ordering::is_gt),
        (rewrite::AT_LEAST, Ordering::is_ge),
    ];
    for (name, holds) in orders {
        let by = Arc::clone(budget);
        environment.add_function(name, move |left: Value, right: Value| -> Result<bool, Error> {
            by.weigh(&left)?;
            by.weigh(&right)?;
            compared(&marks::unmarked(&left), &marks::unmarked(&right)).map(|order| order.is_some_and(holds))
        });
    }
    let by = Arc::clone(budget);
    environment.add_function(rewrite::WITHIN, move |state: &State<'_, '_>, value: Value, all: Value| {
        by.weigh(&value)?;
        by.weigh(&all)?;
        let (value, all) = (marks::unmarked(&value), marks::unmarked(&all));
        match (all.kind(), value.kind()) {
            (ValueKind::String, ValueKind::String) | (ValueKind::Seq | ValueKind::Map | ValueKind::Iterable, _) => {
                tests::is_in(state, &value, &all)
            }
            (ValueKind::Undefined, _) => Ok(false),
            _ => Err(invalid("only a string is within a string, and a value within a list or a map")),
        }
    });
    environment.add_function(rewrite::ASSIGN, |to: Value, name: &str, value: Value| -> Result<Value, Error> {
        let Some(namespace) = to.downcast_object_ref::<Namespace>() else {
            let reason = format!("only attributes of namespaces can be assigned, not of {}", to.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        };
        namespace.set(name, value).map(|()| Value::UNDEFINED)
    });

    let by = Arc::clone(budget);
    environment.add_function("range", move |first: i64, last: Option<i64>, step: Option<i64>| {
        let (start, stop) = last.map_or((0, first), |last| (first, last));
        let numbers = range(start, stop, step.unwrap_or(1))?;
        by.pass(Value::from(numbers), PassingKind::Range)
    });
    let by = Arc::clone(budget);
    environment.add_function("dict", move |given: Rest<Value>, named: Kwargs| {
        let given = all(given, named);
        given.iter().try_for_each(|given| by.weigh(given))?;
        Ok::<_, Error>(Value::from_pairs(pairs(&given)?))
    });
    let by = Arc::clone(budget);
    environment.add_function("namespace", move |given: Rest<Value>, named: Kwargs| {
        let given = all(given, named);
        given.iter().try_for_each(|given| by.weigh(given))?;
        let namespace = Namespace::default();
        for (key, value) in pairs(&given)? {
            let name = key.as_str().ok_or_else(|| invalid("an attribute is named by a string"))?;
            namespace.set(name, value)?;
        }
        Ok::<_, Error>(Value::from_object(namespace))
    });
}

/// `value` that is no passing one.
fn listed(value: Value, else_reason: &'static str) -> Result<Value, Error> {
    if value.kind() == ValueKind::Iterable { Err(invalid(else_reason)) } else { Ok(value) }
}

/// How values that Python orders are ordered; in no way where one is NaN.
fn compared(left: &Value, right: &Value) -> Result<Option<Ordering>, Error> {
    let number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    let nan = |value: &Value| f64::try_from(value.clone()).is_ok_and(f64::is_nan);
    match (left.kind(), right.kind()) {
        _ if number(left) && number(right) => {
            let plain = |value: &Value| i128::try_from(value.clone()).map_or_else(|_| value.clone(), Value::from);
            Ok((!nan(left) && !nan(right)).then(|| plain(left).cmp(&plain(right))))
        }
        (ValueKind::String, ValueKind::String) => Ok(Some(left.cmp(right))),
        (ValueKind::Seq, ValueKind::Seq) if left.is_tuple() == right.is_tuple() => {
            for (left, right) in items(left)?.iter().zip(&items(right)?) {
                if left != right {
                    return compared(left, right);
                }
            }
            Ok(Some(left.len().cmp(&right.len())))
        }
        (left, right) => {
            let reason = format!("a value of type {left} has no order with one of type {right}");
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        }
    }
}

/// Keys and values of maps and of what is named in a call.
fn pairs(given: &[Value]) -> Result<Vec<(Value, Value)>, Error> {
    let mut found = Vec::new();
    for given in given {
        if let Ok(named) = Kwargs::try_from(given.clone()) {
            for name in named.args() {
                found.push((Value::from(name), named.get(name)?));
            }
            continue;
        }
        match given.as_object().and_then(|object| object.try_iter_pairs()) {
            Some(pairs) => found.extend(pairs),
            None => return Err(invalid("only a map has names and values")),
        }
    }
    Ok(found)
}

fn range(start: i64, stop: i64, step: i64) -> Result<Vec<Value>, Error> {
    if step == 0 {
        return Err(invalid("a range needs a step other than 0"));
    }
    let (mut numbers, mut next) = (Vec::new(), start);
    while if step > 0 { next < stop } else { next > stop } {
        if numbers.len() == RANGE {
            return Err(Exceeded::error("numbers in a range", RANGE as u64));
        }
        numbers.push(Value::from(next));
        let Some(after) = next.checked_add(step) else { break };
        next = after;
    }
    Ok(numbers)
}

/// `value[start:stop:step]` of Python.
fn sliced(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let bound = |bound: &Value| -> Result<Option<i64>, Error> {
        if bound.is_none() { Ok(None) } else { i64::try_from(bound.clone()).map(Some) }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(invalid("a slice needs a step other than 0"));
    }
    if let Some(text) = value.as_str() {
        let characters: Vec<char> = text.chars().collect();
        let taken = indices(characters.len(), start, stop, step).map(|index| characters[index]);
        return Ok(Value::from(taken.collect::<String>()));
    }
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "an undefined value has no slices"));
    }
    if matches!(value.kind(), ValueKind::Map | ValueKind::Iterable) {
        return Err(invalid("only a string or a list has slices"));
    }
    let all = items(value)?;
    let taken = indices(all.len(), start, stop, step).map(|index| all[index].clone());
    Ok(sequence(taken.collect(), value))
}

/// The indices of a slice of `len` items, each below `len`.
fn indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    // Where bounds past an end lie: before the first or after the last item that a step can reach.
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |bound: i64| (if bound < 0 { bound.saturating_add(len) } else { bound }).clamp(lowest, highest);
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (start, stop) = (start.map_or(first, place), stop.map_or(last, place));
    let inside = move |index: &i64| if step > 0 { *index < stop } else { *index > stop };
    std::iter::successors(Some(start), move |index| index.checked_add(step))
        .take_while(inside)
        .filter_map(|index| usize::try_from(index).ok())
}
