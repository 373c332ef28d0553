//! Operators and functions of templates whose cost is counted, or whose result is Python's rather than the engine's.

use super::limits::{Budget, Exceeded};
use super::marks;
use super::python::Text;
use super::rewrite;
use super::values::{Measured, Namespace, PassingKind, ensure, invalid, items, measured, sequence};
use minijinja::value::{Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, tests};
use std::cmp::Ordering;
use std::sync::Arc;

/// The longest `range`, as in Jinja's sandbox.
const RANGE: usize = 100_000;

/// Converts a value and pays the cost.
type Guard = fn(&Budget, Value) -> Result<Value, Error>;

/// Filters that [`rewrite`] puts around operations that may be expensive.
const GUARDS: [(&str, Guard); 9] = [
    (rewrite::WEIGHED, |budget, value| budget.weigh(&value).map(|()| value)),
    (rewrite::UNMARKED, |budget, value| budget.weigh(&value).map(|()| marks::unmarked(&value))),
    (rewrite::OWN, |budget, value| match value.as_str() {
        Some(text) => budget.spend_text(text.len().saturating_mul(4)).map(|()| Value::from(marks::marked(text))),
        None => Ok(value),
    }),
    (rewrite::SCANNED, |budget, value| budget.scan(&value).map(|()| value)),
    (rewrite::KEPT, Budget::keep),
    (rewrite::ITERATED, |budget, value| match value.kind() {
        ValueKind::None => Err(invalid("None has no items")),
        // A loop over a list must know its length.
        _ => budget.keep(value),
    }),
    (rewrite::INDEXED, |budget, value| {
        budget.scan(&value).and_then(|()| listed(value, "only a list has items by their number"))
    }),
    (rewrite::COMPARED, |budget, value| {
        budget.weigh(&value).and_then(|()| listed(marks::unmarked(&value), "only a list is compared"))
    }),
    (rewrite::KEY, |budget, value| match value.kind() {
        // In Python, True, 1 and 1.0 are the same key.
        ValueKind::Bool => Err(invalid("a key is a string or an integer")),
        ValueKind::Number if !value.is_integer() => Err(invalid("a key is a string or an integer")),
        _ => budget.weigh(&value).map(|()| marks::unmarked(&value)),
    }),
];

const FUNCTIONS: [(&str, Measured); 10] = [
    (rewrite::CONCAT, |budget, args| {
        let mut text = Text::new(budget);
        args.iter().try_for_each(|arg| text.push_value(arg))?;
        Ok(Value::from(text.into_string()))
    }),
    (rewrite::SLICE, |budget, args| {
        let (value, start, stop, step): (&Value, &Value, &Value, &Value) = from_args(args)?;
        budget.scan(value)?;
        sliced(value, start, stop, step)
    }),
    (rewrite::LESS, |budget, args| in_order(budget, args, Ordering::is_lt)),
    (rewrite::AT_MOST, |budget, args| in_order(budget, args, Ordering::is_le)),
    (rewrite::MORE, |budget, args| in_order(budget, args, Ordering::is_gt)),
    (rewrite::AT_LEAST, |budget, args| in_order(budget, args, Ordering::is_ge)),
    (rewrite::ASSIGN, |_, args| {
        let (to, name, value): (&Value, &str, Value) = from_args(args)?;
        let Some(namespace) = to.downcast_object_ref::<Namespace>() else {
            let reason = format!("only attributes of namespaces can be assigned, not of {}", to.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        };
        namespace.set(name, value).map(|()| Value::UNDEFINED)
    }),
    ("range", |budget, args| {
        let (first, last, step): (i64, Option<i64>, Option<i64>) = from_args(args)?;
        let (start, stop) = last.map_or((0, first), |last| (first, last));
        let step = step.unwrap_or(1);
        ensure(step != 0, "a range needs a step other than 0")?;
        let numbers: Vec<Value> = steps(start, stop, step).take(RANGE + 1).map(Value::from).collect();
        Exceeded::check("numbers in a range", numbers.len(), RANGE)?;
        budget.pass(Value::from(numbers), PassingKind::Range)
    }),
    ("dict", |budget, args| pairs(budget, args).map(Value::from_pairs)),
    ("namespace", |budget, args| {
        let namespace = Namespace::default();
        for (key, value) in pairs(budget, args)? {
            let name = key.as_str().ok_or_else(|| invalid("an attribute is named by a string"))?;
            namespace.set(name, value)?;
        }
        Ok(Value::from_object(namespace))
    }),
];

pub(super) fn add(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    for (name, guard) in GUARDS {
        let budget = Arc::clone(budget);
        environment.add_filter(name, move |value: Value| guard(&budget, value));
    }
    for (name, function) in FUNCTIONS {
        environment.add_function(name, measured(budget, function));
    }
    let budget = Arc::clone(budget);
    environment.add_function(rewrite::WITHIN, move |state: &State<'_, '_>, value: Value, all: Value| {
        budget.weigh(&value)?;
        budget.weigh(&all)?;
        let (value, all) = (marks::unmarked(&value), marks::unmarked(&all));
        match (all.kind(), value.kind()) {
            (ValueKind::String, ValueKind::String) | (ValueKind::Seq | ValueKind::Map | ValueKind::Iterable, _) => {
                tests::is_in(state, &value, &all)
            }
            (ValueKind::Undefined, _) => Ok(false),
            _ => Err(invalid("only a string is within a string, and a value within a list or a map")),
        }
    });
}

/// `value` unless it is only iterable, not a list.
fn listed(value: Value, else_reason: &'static str) -> Result<Value, Error> {
    ensure(value.kind() != ValueKind::Iterable, else_reason).map(|()| value)
}

/// Whether two values have the order that `holds` asks for.
fn in_order(budget: &Budget, args: &[Value], holds: fn(Ordering) -> bool) -> Result<Value, Error> {
    let (left, right): (&Value, &Value) = from_args(args)?;
    budget.weigh(left)?;
    budget.weigh(right)?;
    let order = compared(&marks::unmarked(left), &marks::unmarked(right))?;
    Ok(Value::from(order.is_some_and(holds)))
}

/// The order of two values that Python can compare; `None` if one is NaN.
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

/// Keys and values of maps and of the named arguments of a call.
fn pairs(budget: &Budget, given: &[Value]) -> Result<Vec<(Value, Value)>, Error> {
    given.iter().try_for_each(|given| budget.weigh(given))?;
    let mut found = Vec::new();
    for given in given.iter().filter(|given| !given.is_undefined()) {
        let pairs = given.as_object().and_then(|object| object.try_iter_pairs());
        found.extend(pairs.ok_or_else(|| invalid("only a map has names and values"))?);
    }
    Ok(found)
}

/// The numbers from `start` on before `stop`. The step must not be 0.
fn steps(start: i64, stop: i64, step: i64) -> impl Iterator<Item = i64> {
    let inside = move |number: &i64| if step > 0 { *number < stop } else { *number > stop };
    std::iter::successors(Some(start), move |number| number.checked_add(step)).take_while(inside)
}

/// Python's `value[start:stop:step]`.
fn sliced(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let bound = |bound: &Value| -> Result<Option<i64>, Error> {
        if bound.is_none() { Ok(None) } else { i64::try_from(bound.clone()).map(Some) }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    ensure(step != 0, "a slice needs a step other than 0")?;
    if let Some(text) = value.as_str() {
        let characters: Vec<char> = text.chars().collect();
        let taken = indices(characters.len(), start, stop, step).map(|index| characters[index]);
        return Ok(Value::from(taken.collect::<String>()));
    }
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "an undefined value has no slices"));
    }
    ensure(!matches!(value.kind(), ValueKind::Map | ValueKind::Iterable), "only a string or a list has slices")?;
    let all = items(value)?;
    let taken = indices(all.len(), start, stop, step).map(|index| all[index].clone());
    Ok(sequence(taken.collect(), value))
}

/// The indices of a slice of `len` items, each below `len`.
fn indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    // The limits of the bounds: before the first or after the last item that a step can reach.
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |bound: i64| (if bound < 0 { bound.saturating_add(len) } else { bound }).clamp(lowest, highest);
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (start, stop) = (start.map_or(first, place), stop.map_or(last, place));
    steps(start, stop, step).filter_map(|index| usize::try_from(index).ok())
}
