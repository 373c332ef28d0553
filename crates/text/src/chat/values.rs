//! The values that templates have beside those of JSON, and what is asked of any.

use minijinja::value::{Enumerator, Kwargs, Object, ObjectExt as _, ObjectRepr, Rest, Tuple, Value};
use minijinja::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An operation that the values do not have.
pub(super) fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// What is given by position and by name, as the engine passes it.
pub(super) fn all(args: Rest<Value>, named: Kwargs) -> Vec<Value> {
    let any = named.args().next().is_some();
    args.0.into_iter().chain(any.then(|| Value::from(named))).collect()
}

/// What Python iterates over and takes for no list: it has no text that a template could mean.
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

/// Whether `value` is what JSON could be, or a tuple: no namespace, function, macro or `loop`, of which the engine takes
/// some for maps. Its own maps are all of one type.
pub(super) fn is_data(value: &Value) -> bool {
    value.as_object().is_none_or(|object| match object.repr() {
        ObjectRepr::Seq | ObjectRepr::Iterable => true,
        ObjectRepr::Map => object.type_name().contains("IndexMap"),
        _ => false,
    })
}

/// The items of a list, tuple or anything else that has some.
pub(super) fn items(value: &Value) -> Result<Vec<Value>, Error> {
    if value.is_none() {
        return Err(invalid("None has no items"));
    }
    value.try_iter()?.checked().collect()
}

/// A list, or a tuple where `like` is one.
pub(super) fn sequence(items: Vec<Value>, like: &Value) -> Value {
    if like.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) }
}

/// `namespace(..)`: the only value that changes. Its attributes hold data alone, so that no value holds itself.
#[derive(Debug, Default)]
pub(super) struct Namespace(Mutex<BTreeMap<Arc<str>, Value>>);

impl Namespace {
    pub(super) fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        if !is_data(&value) {
            return Err(invalid("a namespace, loop or macro can be no attribute of a namespace"));
        }
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
