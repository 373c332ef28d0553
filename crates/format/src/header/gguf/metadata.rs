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

/// A stored value. The name of its type in the file is kept for error messages.
#[derive(Debug)]
pub(crate) enum Value {
    Unsigned(&'static str, u64),
    Signed(&'static str, i64),
    Float(&'static str, f64),
    Bool(bool),
    Text(Vec<u8>),
    Array(Array),
}

/// A stored array; numbers are kept in the form of the file, which takes the fewest bytes.
#[derive(Debug)]
pub(crate) enum Array {
    Numbers(&'static NumberType, Vec<u8>),
    Texts(Strings),
}

/// A number type of the file: its id, its name, what the bits mean, and its size in bytes.
#[derive(Debug)]
pub(crate) struct NumberType(u32, &'static str, pub(super) Bits, pub(super) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    Unsigned,
    Signed,
    Float,
    Bool,
}

/// All number types (ggml `docs/gguf.md`); 8 is a string and 9 an array.
const NUMBERS: &[NumberType] = &[
    NumberType(0, "u8", Bits::Unsigned, 1),
    NumberType(1, "i8", Bits::Signed, 1),
    NumberType(2, "u16", Bits::Unsigned, 2),
    NumberType(3, "i16", Bits::Signed, 2),
    NumberType(4, "u32", Bits::Unsigned, 4),
    NumberType(5, "i32", Bits::Signed, 4),
    NumberType(6, "f32", Bits::Float, 4),
    NumberType(7, "bools", Bits::Bool, 1),
    NumberType(10, "u64", Bits::Unsigned, 8),
    NumberType(11, "i64", Bits::Signed, 8),
    NumberType(12, "f64", Bits::Float, 8),
];

impl NumberType {
    pub(super) fn find(id: u32) -> Option<&'static NumberType> {
        NUMBERS.iter().find(|kind| kind.0 == id)
    }

    /// The number that these little-endian bytes store.
    pub(super) fn read(&self, stored: &[u8]) -> Value {
        let NumberType(_, name, bits, bytes) = *self;
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(stored);
        let number = u64::from_le_bytes(wide);
        // Shifts the sign into the highest bit, and back with sign extension.
        let shift = 64 - 8 * bytes;
        match bits {
            Bits::Unsigned => Value::Unsigned(name, number),
            Bits::Signed => Value::Signed(name, (number << shift) as i64 >> shift),
            Bits::Float if bytes == 4 => Value::Float(name, f32::from_bits(number as u32).into()),
            Bits::Float => Value::Float(name, f64::from_bits(number)),
            Bits::Bool => Value::Bool(number != 0),
        }
    }

    fn all(&self, stored: &[u8]) -> impl Iterator<Item = Value> {
        stored.chunks_exact(self.3).map(|number| self.read(number))
    }
}

/// Why a value is not what was asked for: the type it should have, or the value itself.
enum Wrong {
    Type(&'static str),
    Value(String),
}

impl GgufMetadata {
    pub(super) fn new(file: &Path) -> Self {
        GgufMetadata { file: file.into(), keys: Vec::new(), values: HashMap::new() }
    }

    /// Adds a key that is not there yet.
    pub(super) fn insert(&mut self, key: String, value: Value) {
        self.keys.push(key.clone());
        self.values.insert(key, value);
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// The result of `read` for the value of `key`; `None` where the key is absent.
    fn read<'a, T>(&'a self, key: &str, read: impl FnOnce(&'a Value) -> Result<T, Wrong>) -> Result<Option<T>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        read(value).map(Some).map_err(|wrong| match wrong {
            Wrong::Type(expected) => self.key_type(key, value, expected),
            Wrong::Value(expected) => self.key_value(key, value, &expected),
        })
    }

    /// An array of strings.
    ///
    /// # Errors
    /// `Format` when the value is anything else.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.read(key, |value| match value {
            Value::Array(Array::Texts(strings)) => Ok(strings),
            _ => Err(Wrong::Type("an array of strings")),
        })
    }

    /// An array of floats (integers are accepted where they are exact).
    ///
    /// # Errors
    /// `Format` when the value is anything else, or one of its numbers is not an f32.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        let narrow = |number| match number {
            Value::Float(_, number) => Some(number as f32).filter(|float| f64::from(*float) == number),
            number => number.integer().filter(|whole| whole.unsigned_abs() <= F32_WHOLE).map(|whole| whole as f32),
        };
        self.read(key, |value| match value {
            Value::Array(Array::Numbers(NumberType(_, _, Bits::Float, 4), stored)) => {
                Ok(stored.as_chunks().0.iter().map(|float| f32::from_le_bytes(*float)).collect())
            }
            Value::Array(Array::Numbers(kind, stored)) if kind.2 != Bits::Bool => {
                let floats: Option<Vec<f32>> = kind.all(stored).map(narrow).collect();
                floats.ok_or_else(|| Wrong::Value("an array of numbers that an f32 holds exactly".into()))
            }
            _ => Err(Wrong::Type("an array of f32")),
        })
    }

    /// An array of integers.
    ///
    /// # Errors
    /// `Format` when the value is anything else, or one of its numbers is beyond an i64.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>> {
        self.read(key, |value| match value {
            Value::Array(Array::Numbers(kind @ NumberType(_, _, Bits::Unsigned | Bits::Signed, _), stored)) => {
                let integers: Option<Vec<i64>> = kind.all(stored).map(|number| number.integer()).collect();
                integers.ok_or_else(|| Wrong::Value("an array of integers below 2^63".into()))
            }
            _ => Err(Wrong::Type("an array of integers")),
        })
    }

    /// An array of bools.
    ///
    /// # Errors
    /// `Format` when the value is anything else.
    pub fn booleans(&self, key: &str) -> Result<Option<Vec<bool>>> {
        self.read(key, |value| match value {
            Value::Array(Array::Numbers(NumberType(_, _, Bits::Bool, _), stored)) => {
                Ok(stored.iter().map(|value| *value != 0).collect())
            }
            _ => Err(Wrong::Type("an array of bools")),
        })
    }

    /// The number of elements of an array; `None` for anything else. [`integers`](Self::integers) and
    /// [`floats`](Self::floats) take up to eight times the bytes of the file: check the length first.
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

/// Every whole number up to this one is exact in an f32.
const F32_WHOLE: u64 = 1 << 24;

impl Fields for GgufMetadata {
    fn file(&self) -> &Path {
        &self.file
    }

    fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        const EXPECTED: &str = "a non-negative integer";
        self.read(key, |value| match value {
            Value::Unsigned(_, value) => Ok(*value),
            Value::Signed(_, value) => u64::try_from(*value).map_err(|_| Wrong::Value(EXPECTED.into())),
            _ => Err(Wrong::Type(EXPECTED)),
        })
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.read(key, |value| match value {
            Value::Unsigned(_, value) => Ok(*value as f64),
            Value::Signed(_, value) => Ok(*value as f64),
            Value::Float(_, value) if value.is_finite() => Ok(*value),
            Value::Float(..) => Err(Wrong::Value("a finite number".into())),
            _ => Err(Wrong::Type("a number")),
        })
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, |value| match value {
            Value::Bool(value) => Ok(*value),
            _ => Err(Wrong::Type("a bool")),
        })
    }

    fn text(&self, key: &str) -> Result<Option<&str>> {
        self.read(key, |value| match value {
            Value::Text(bytes) if bytes.len() > limits::GGUF_TEXT_BYTES => {
                Err(Wrong::Value(format!("a string of at most {} bytes", limits::GGUF_TEXT_BYTES)))
            }
            Value::Text(bytes) => str::from_utf8(bytes).map_err(|_| Wrong::Value("a string in UTF-8".into())),
            _ => Err(Wrong::Type("a string")),
        })
    }
}

impl Value {
    /// The value as a whole number; `None` for one beyond an i64, and for anything else.
    fn integer(&self) -> Option<i64> {
        match self {
            Value::Unsigned(_, value) => i64::try_from(*value).ok(),
            Value::Signed(_, value) => Some(*value),
            _ => None,
        }
    }

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
    /// The type of the elements, and their number.
    fn kind(&self) -> (&'static str, usize) {
        match self {
            Array::Numbers(NumberType(_, name, _, bytes), stored) => (name, stored.len() / bytes),
            Array::Texts(strings) => ("strings", strings.len()),
        }
    }
}
