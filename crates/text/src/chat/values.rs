//! The values of templates besides those of JSON, and checks of any values.

use super::limits::Budget;
use minijinja::value::{Enumerator, Object, ObjectExt as _, ObjectRepr, Rest, Tuple, Value, ValueOrKwargs};
use minijinja::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The error of an operation that the values do not support.
pub(super) fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// An error with `reason` unless the condition `holds`.
pub(super) fn ensure(holds: bool, reason: &'static str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(invalid(reason)) }
}

/// All arguments as the engine passes them, with the named ones last.
pub(super) fn all(args: Rest<ValueOrKwargs>) -> Vec<Value> {
    let mut args = args.into_values();
    args.pop_if(|last| last.is_kwargs() && last.len() == Some(0));
    args
}

/// A filter or a function of all its arguments, which pays its cost.
pub(super) type Measured = fn(&Budget, &[Value]) -> Result<Value, Error>;

/// `function` in the form that the engine calls.
pub(super) fn measured(
    budget: &Arc<Budget>,
    function: Measured,
) -> impl Fn(Rest<ValueOrKwargs>) -> Result<Value, Error> + use<> {
    let budget = Arc::clone(budget);
    move |args: Rest<ValueOrKwargs>| function(&budget, &all(args))
}

/// A Python value that can be iterated over but is not a list: its text would make no sense in a prompt.
#[derive(Debug)]
pub(super) struct Passing {
    pub(super) items: Vec<Value>,
    pub(super) kind: PassingKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassingKind {
    /// `range(3)`.
    Range,
    /// `map.items()`.
    View,
    /// `list | map('upper')`, which does not know its length.
    Generator,
}

impl Object for Passing {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|this| Box::new(this.items.iter().cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        (self.kind != PassingKind::Generator).then_some(self.items.len())
    }
}

/// Whether `value` is a JSON value or a tuple: no namespace, function, macro or `loop`, some of which the engine regards
/// as maps. The engine's own maps are all of one type.
pub(super) fn is_data(value: &Value) -> bool {
    value.as_object().is_none_or(|object| match object.repr() {
        ObjectRepr::Seq | ObjectRepr::Iterable => true,
        ObjectRepr::Map => object.type_name().contains("IndexMap"),
        _ => false,
    })
}

/// The items of a list, tuple or any other value that has some.
pub(super) fn items(value: &Value) -> Result<Vec<Value>, Error> {
    ensure(!value.is_none(), "None has no items")?;
    value.try_iter()?.checked().collect()
}

/// A list, or a tuple if `like` is one.
pub(super) fn sequence(items: Vec<Value>, like: &Value) -> Value {
    if like.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) }
}

/// `namespace(..)`: the only value that can change. Its attributes hold only data, so that no value holds itself.
#[derive(Debug, Default)]
pub(super) struct Namespace(Mutex<BTreeMap<Arc<str>, Value>>);

impl Namespace {
    pub(super) fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        ensure(is_data(&value), "a namespace, loop or macro can be no attribute of a namespace")?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), value);
        Ok(())
    }
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key.as_str()?).cloned()
    }
}
