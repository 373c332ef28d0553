//! The limits of a template: its work, its nesting, and a stack that is large enough for both.

use super::values::{Passing, PassingKind, ensure, is_data};
use minijinja::value::{ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, thread};

/// Instructions that a template may execute: usual templates execute fewer than a hundred a message.
pub(super) const FUEL: u64 = 10_000_000;

/// Units of work (see [`Budget`]) beyond those for the text that a template is given. Usual templates take a few
/// hundred a message; all units take about a second, or some hundred MB if they are memory.
const WORK: u64 = 8_000_000;

/// Units of work for each byte that a template is given: it may read all of it 64 times.
const WORK_A_BYTE: u64 = 4;

/// How deep lists and maps may nest: twice as deep as JSON that is read from a text.
pub(super) const DEPTH: usize = 256;

/// Bytes of stack for rendering; only the used ones take memory. The allowed nesting of tags, operators,
/// macros and values fits into a sixteenth of it in optimized builds.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// The result of `work` on a thread with a stack of [`STACK_BYTES`], or an error if there is no such thread.
pub(super) fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<thread::Result<T>> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("chat-template".into()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).map(thread::ScopedJoinHandle::join)
    })
}

#[derive(Debug, thiserror::Error)]
#[error("{what}: at most {limit}")]
pub(super) struct Exceeded {
    pub(super) what: &'static str,
    pub(super) limit: u64,
}

impl Exceeded {
    fn error(what: &'static str, limit: u64) -> Error {
        Error::new(ErrorKind::InvalidOperation, "limit").with_source(Exceeded { what, limit })
    }

    /// Checks that there are at most `limit` of `what`.
    pub(super) fn check(what: &'static str, found: usize, limit: usize) -> Result<(), Error> {
        if found > limit { Err(Exceeded::error(what, limit as u64)) } else { Ok(()) }
    }
}

/// The work that is left. A unit is one visited item of a list or a map, or 16 bytes of text that are read or
/// written. All memory of a template beyond its instructions is written once, so this limits memory too.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicU64,
    limit: u64,
}

impl Budget {
    pub(super) fn for_bytes(bytes: usize) -> Budget {
        let limit = WORK + WORK_A_BYTE * bytes as u64;
        Budget { left: AtomicU64::new(limit), limit }
    }

    /// Takes `units`, or fails if there are not enough.
    pub(super) fn spend(&self, units: usize) -> Result<(), Error> {
        let taken = |left: u64| left.checked_sub(units as u64);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.left.store(0, Ordering::Relaxed);
                Err(Exceeded::error("units of work", self.limit))
            }
        }
    }

    /// Takes the cost of `bytes` of text.
    pub(super) fn spend_text(&self, bytes: usize) -> Result<(), Error> {
        self.spend(1 + bytes / 16)
    }

    /// Takes the cost of all of `value`, which must nest no deeper than [`DEPTH`] and hold only data: a namespace can change
    /// and could come to hold itself, and a loop holds its items.
    pub(super) fn weigh(&self, value: &Value) -> Result<(), Error> {
        self.weigh_at(value, 0)
    }

    fn weigh_at(&self, value: &Value, depth: usize) -> Result<(), Error> {
        Exceeded::check("levels of nested values", depth, DEPTH)?;
        let bytes = value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len));
        self.spend_text(bytes.unwrap_or(0))?;
        let Some(object) = value.as_object() else { return Ok(()) };
        match object.repr() {
            ObjectRepr::Map if is_data(value) || value.is_kwargs() => {
                for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                    // A map holds its keys twice, by order and by hash.
                    self.spend(4)?;
                    self.weigh_at(&key, depth + 1)?;
                    self.weigh_at(&item, depth + 1)?;
                }
            }
            ObjectRepr::Seq | ObjectRepr::Iterable => {
                for item in object.try_iter().into_iter().flatten() {
                    self.weigh_at(&item, depth + 1)?;
                }
            }
            _ => ensure(depth == 0, "a namespace, loop or macro can be no item of a value")?,
        }
        Ok(())
    }

    /// Takes the cost of the bytes or the items of `value`, without that of nested values.
    pub(super) fn scan(&self, value: &Value) -> Result<(), Error> {
        match (value.as_str(), value.downcast_object_ref::<Passing>()) {
            (Some(text), _) => self.spend_text(text.len()),
            (None, Some(passing)) => self.spend(passing.items.len()),
            (None, None) => self.spend(value.as_object().and_then(|object| object.enumerator_len()).unwrap_or(0)),
        }
    }

    /// `value` with all its items computed and counted, rather than computed on demand.
    pub(super) fn keep(&self, value: Value) -> Result<Value, Error> {
        if value.kind() == ValueKind::Iterable {
            return self.collect(&value).map(Value::from);
        }
        self.scan(&value).map(|()| value)
    }

    fn collect(&self, value: &Value) -> Result<Vec<Value>, Error> {
        let mut items = Vec::new();
        for item in value.try_iter()?.checked() {
            self.spend(1)?;
            items.push(item?);
        }
        Ok(items)
    }

    /// `value` as a Python object that has items but is not a list.
    pub(super) fn pass(&self, value: Value, kind: PassingKind) -> Result<Value, Error> {
        Ok(Value::from_object(Passing { items: self.collect(&value)?, kind }))
    }
}
