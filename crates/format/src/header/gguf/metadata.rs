//! The key-value section of a GGUF file: values as stored, and typed access to them.

use super::Strings;
use crate::error::{Error, FormatErrorKind, Result};
use crate::header::Fields;
use crate::limits;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The key-value section of a GGUF file.
#[derive(Debug)]
pub struct GgufMetadata {
    pub(in crate::header) file: PathBuf,
    keys: Vec<String>,
    values: HashMap<String, Value>,
}

/// A stored value. The name of its type in the file is kept for messages.
#[derive(Debug)]
pub(super) enum Value {
    Unsigned(&'static str, u64),
    Signed(&'static str, i64),
    Float(&'static str, f64),
    Bool(bool),
    Text(Vec<u8>),
    Array(Array),
}

/// A stored array in the type of the file.
#[derive(Debug)]
pub(super) enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<u8>),
    Text(Strings),
}

impl GgufMetadata {
    pub(super) fn new(file: &Path) -> Self {
        GgufMetadata { file: file.into(), keys: Vec::new(), values: HashMap::new() }
    }

    /// Adds a key; `false` when it is there already.
    pub(super) fn insert(&mut self, key: String, value: Value) -> bool {
        if self.values.contains_key(&key) {
            return false;
        }
        self.keys.push(key.clone());
        self.values.insert(key, value);
        true
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// An array of strings.
    ///
    /// # Errors
    /// `Format` when the value is anything else.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::Text(strings))) => Ok(Some(strings)),
            Some(other) => Err(self.key_type(key, other, "an array of strings")),
        }
    }

    /// An array of floats (integers are accepted where they are exact).
    ///
    /// # Errors
    /// `Format` when the value is anything else, or one of its numbers is no f32.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let Value::Array(array) = value else { return Err(self.key_type(key, value, "an array of f32")) };
        // An f64 holds every stored integer up to 32 bits exactly, and tells of a longer one whether it was exact.
        let wide: Vec<f64> = match array {
            Array::F32(values) => return Ok(Some(values.clone())),
            Array::F64(values) => values.clone(),
            _ => {
                let integers = array.integers().ok_or_else(|| self.key_type(key, value, "an array of f32"))?;
                integers.map(|integer| integer.map(|integer| integer as f64).unwrap_or(f64::INFINITY)).collect()
            }
        };
        let narrow = |number: &f64| {
            let float = *number as f32;
            let exact = f64::from(float) == *number && (number.abs() <= F32_WHOLE || matches!(array, Array::F64(_)));
            exact.then_some(float)
        };
        let floats: Option<Vec<f32>> = wide.iter().map(narrow).collect();
        floats.map(Some).ok_or_else(|| self.key_value(key, value, "an array of numbers that an f32 holds exactly"))
    }

    /// An array of integers.
    ///
    /// # Errors
    /// `Format` when the value is anything else, or one of its numbers is beyond an i64.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let Value::Array(array) = value else { return Err(self.key_type(key, value, "an array of integers")) };
        let integers = array.integers().ok_or_else(|| self.key_type(key, value, "an array of integers"))?;
        let integers: Option<Vec<i64>> = integers.collect();
        integers.map(Some).ok_or_else(|| self.key_value(key, value, "an array of integers below 2^63"))
    }

    /// An array of bools.
    ///
    /// # Errors
    /// `Format` when the value is anything else.
    pub fn booleans(&self, key: &str) -> Result<Option<Vec<bool>>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::Bool(values))) => Ok(Some(values.iter().map(|value| *value != 0).collect())),
            Some(other) => Err(self.key_type(key, other, "an array of bools")),
        }
    }

    /// The number of elements of an array; `None` for anything else. [`integers`](Self::integers) and
    /// [`floats`](Self::floats) take up to eight times the bytes that the file has: ask here first.
    pub fn array_len(&self, key: &str) -> Option<usize> {
        match self.values.get(key) {
            Some(Value::Array(array)) => Some(array.kind().1),
            _ => None,
        }
    }

    /// The keys in file order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    pub(super) fn key_type(&self, key: &str, found: &Value, expected: &'static str) -> Error {
        let kind = FormatErrorKind::KeyType { key: key.into(), found: found.describe(), expected };
        Error::format(&self.file, kind)
    }

    pub(super) fn key_value(&self, key: &str, found: &Value, expected: &str) -> Error {
        Error::key_value(&self.file, key, found.describe(), expected)
    }
}

/// Every whole number up to this one is an f32.
const F32_WHOLE: f64 = (1_u32 << 24) as f64;

impl Fields for GgufMetadata {
    fn file(&self) -> &Path {
        &self.file
    }

    fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(_, value)) => Ok(Some(*value)),
            Some(found @ Value::Signed(_, value)) => match u64::try_from(*value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(self.key_value(key, found, "a non-negative integer")),
            },
            Some(other) => Err(self.key_type(key, other, "a non-negative integer")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(_, value)) => Ok(Some(*value as f64)),
            Some(Value::Signed(_, value)) => Ok(Some(*value as f64)),
            Some(Value::Float(_, value)) if value.is_finite() => Ok(Some(*value)),
            Some(found @ Value::Float(..)) => Err(self.key_value(key, found, "a finite number")),
            Some(other) => Err(self.key_type(key, other, "a number")),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.key_type(key, other, "a bool")),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(found @ Value::Text(bytes)) if bytes.len() > limits::GGUF_TEXT_BYTES => {
                Err(self.key_value(key, found, &format!("a string of at most {} bytes", limits::GGUF_TEXT_BYTES)))
            }
            Some(found @ Value::Text(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(self.key_value(key, found, "a string in UTF-8")),
            },
            Some(other) => Err(self.key_type(key, other, "a string")),
        }
    }
}

impl Value {
    fn describe(&self) -> String {
        match self {
            Value::Unsigned(kind, value) => format!("the {kind} {value}"),
            Value::Signed(kind, value) => format!("the {kind} {value}"),
            Value::Float(kind, value) => format!("the {kind} {value}"),
            Value::Bool(value) => format!("the bool {value}"),
            Value::Text(bytes) => {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
                format!("the string {text:?}{}", if bytes.len() > 40 { " (shortened)" } else { "" })
            }
            Value::Array(array) => {
                let (kind, len) = array.kind();
                format!("an array of {len} {kind}")
            }
        }
    }
}

impl Array {
    /// The integers, `None` in place of one beyond an i64; `None` when it holds no integers.
    fn integers(&self) -> Option<Box<dyn Iterator<Item = Option<i64>> + '_>> {
        fn widen<T: Copy + TryInto<i64>>(values: &[T]) -> Option<Box<dyn Iterator<Item = Option<i64>> + '_>> {
            Some(Box::new(values.iter().map(|value| (*value).try_into().ok())))
        }
        match self {
            Array::U8(values) => widen(values),
            Array::I8(values) => widen(values),
            Array::U16(values) => widen(values),
            Array::I16(values) => widen(values),
            Array::U32(values) => widen(values),
            Array::I32(values) => widen(values),
            Array::U64(values) => widen(values),
            Array::I64(values) => widen(values),
            Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::Text(_) => None,
        }
    }

    fn kind(&self) -> (&'static str, usize) {
        match self {
            Array::U8(values) => ("u8", values.len()),
            Array::I8(values) => ("i8", values.len()),
            Array::U16(values) => ("u16", values.len()),
            Array::I16(values) => ("i16", values.len()),
            Array::U32(values) => ("u32", values.len()),
            Array::I32(values) => ("i32", values.len()),
            Array::U64(values) => ("u64", values.len()),
            Array::I64(values) => ("i64", values.len()),
            Array::F32(values) => ("f32", values.len()),
            Array::F64(values) => ("f64", values.len()),
            Array::Bool(values) => ("bools", values.len()),
            Array::Text(strings) => ("strings", strings.len()),
        }
    }
}
