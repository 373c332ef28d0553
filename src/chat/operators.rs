//! The operators and functions of templates whose results are measured, or are not the engine's but Python's.

use super::filters::all;
use super::limits::{Budget, Exceeded, Namespace, items, sequence};
use super::python::Text;
use super::rewrite;
use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, Error, ErrorKind};
use std::sync::Arc;

/// The longest `range`, as in Jinja's sandbox.
const RANGE: usize = 100_000;

pub(super) fn add(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    let with = |function: fn(&Budget, Value) -> Result<Value, Error>| {
        let budget = Arc::clone(budget);
        move |value: Value| function(&budget, value)
    };
    environment.add_filter(rewrite::WEIGHED, with(|budget, value| budget.weigh(&value).map(|()| value)));
    environment.add_filter(rewrite::SCANNED, with(|budget, value| budget.scan(&value).map(|()| value)));
    environment.add_filter(rewrite::KEPT, with(Budget::keep));

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
        by.spend(numbers.len())?;
        Ok::<_, Error>(Value::from(numbers))
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

pub(super) fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
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
    if value.kind() == minijinja::value::ValueKind::Map {
        return Err(invalid("a map has no slices"));
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
