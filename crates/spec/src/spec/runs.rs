//! Matrices of bitsandbytes: what its config says of a module, crossed with the tensors that are stored for it.

use super::scaling::BLOCK;
use super::tensors::{Rows, Tensors, rows_of};
use crate::error::{Error, Result};
use crate::header::TensorInfo;
use crate::quantization::FourBit;
use model_factory_dtypes::DType;
use serde_json::{Value, json};

/// A product of floats with codes of 4 bits (NF4, FP4), whose floats are scaled in runs of consecutive weights that may end within a row
/// (bitsandbytes 0.50 `functional.py`).
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// F32, a scale for each run; or with [`nested`](Self::nested) ones a byte: `[runs]`.
    pub scale: TensorInfo,
    /// Weights of a run: a power of 2.
    pub size: usize,
    /// Weights of the first runs before those of the matrix.
    pub before: usize,
    /// What scales are made of where they are bytes.
    pub nested: Option<NestedScales>,
    /// What codes stand for, F32 `[16]`, which only the values tell.
    pub table: TensorInfo,
    /// JSON that says all this again, and the offset of nested scales.
    pub state: TensorInfo,
    /// Outputs and inputs of all that is stored with the matrix.
    stored: [u64; 2],
}

/// Scales in bytes: one is `table[byte] * factor + offset`.
#[derive(Clone, Debug, PartialEq)]
pub struct NestedScales {
    /// F32, one for each 256 runs.
    pub factors: TensorInfo,
    /// F32 `[256]`.
    pub table: TensorInfo,
}

/// A product of floats with I8: a weight is `scale * integer / 127` (bitsandbytes 0.50 `nn/modules.py`, `Linear8bitLt`).
#[derive(Clone, Debug, PartialEq)]
pub struct IntegerRows {
    /// F32 `[outputs]`.
    pub scale: TensorInfo,
    /// How the rows are arranged, a number of U8: 0, in order, which only the value tells.
    pub format: Option<TensorInfo>,
}

/// Runs that share a factor.
const NESTED: u64 = 256;

/// The most bytes of a description; real ones have below 200.
const MOST: u64 = 4096;

impl Runs {
    /// The offset of nested scales, 0 where there are none, by the bytes of [`state`](Self::state).
    ///
    /// # Errors
    /// What these say, and what the matrix is instead.
    pub fn offset(&self, dtype: DType, state: &[u8]) -> Result<f32, [String; 2]> {
        let wrong = |found: String, expected: String| [format!("tensor {} has {found}", self.state.name), expected];
        let state: Value = serde_json::from_slice(state)
            .map_err(|error| wrong("no JSON".into(), format!("its matrix needs a description: {error}")))?;
        let [outputs, inputs] = self.stored;
        let mut expected = vec![
            ("quant_type", json!(dtype.name().to_ascii_lowercase())),
            ("shape", json!([outputs, inputs])),
            ("blocksize", json!(self.size)),
        ];
        if self.nested.is_some() {
            expected.extend([("nested_blocksize", json!(NESTED)), ("nested_dtype", json!("float32"))]);
        }
        for (key, expected) in expected {
            let found = state.get(key).unwrap_or(&Value::Null);
            // A single run may be longer than its matrix.
            let single = key == "blocksize" && found.as_u64().is_some_and(|size| size > self.size as u64) && {
                outputs * inputs <= self.size as u64
            };
            if *found != expected && !single {
                return Err(wrong(format!("{key} {found}"), format!("the tensors next to it have {expected}")));
            }
        }
        let offset = state.get("nested_offset");
        match (offset.map(|offset| offset.as_f64().map(|offset| offset as f32)), &self.nested) {
            (None, None) => Ok(0.0),
            (Some(Some(offset)), Some(_)) if offset.is_finite() => Ok(offset),
            (_, Some(_)) => {
                let found = format!("nested_offset {}", offset.unwrap_or(&Value::Null));
                Err(wrong(found, "nested scales have a finite one".into()))
            }
            (Some(_), None) => Err(wrong("a nested_offset".into(), "its scales are not nested".into())),
        }
    }
}

impl Tensors<'_> {
    /// How the codes in `rows` are scaled.
    pub(super) fn runs(&mut self, place: &str, four: FourBit, rows: &Rows) -> Result<Runs> {
        const KEY: &str = "bnb_4bit_use_double_quant";
        let (weight, module) = (&rows.tensor, &rows.module);
        let [outputs, inputs] = [weight.shape[0], weight.shape[1]];
        if !inputs.is_multiple_of(2) {
            return Err(Error::Quantization {
                file: self.file_of(weight).into(),
                scheme: format!("rows of {inputs} codes of 4 bits (tensor {})", weight.name),
                why: "every second row begins within a byte".into(),
            });
        }
        let name = |end: &str| format!("{module}.weight.{end}");
        let whole = name("absmax");
        let Some(scale) = self.table.get(&whole).cloned() else {
            let stored = format!("tensor {} is {}", weight.name, weight.dtype);
            return Err(self.conflict(stored, format!("its scales {whole} are missing")));
        };
        let nested = name("nested_absmax");
        if self.stores(&nested) != four.nested {
            let stored = if four.nested { "missing" } else { "stored" };
            let says = format!("{place}.{KEY} is {}", four.nested);
            return Err(self.conflict(says, format!("tensor {nested} is {stored}")));
        }
        let (dtype, expected) =
            if four.nested { (DType::U8, "U8 (nested scales)") } else { (DType::F32, "F32 (scales)") };
        if scale.dtype != dtype {
            return Err(self.wrong_dtype(&scale, expected));
        }
        let all = rows.total.saturating_mul(inputs);
        let runs = scale.shape.iter().product::<u64>();
        let size = (5..=12).map(|bits| 1 << bits).find(|size| all.div_ceil(*size) == runs);
        let (Some(size), [_]) = (size, scale.shape.as_slice()) else {
            let because = format!("one for each 64 of {all} weights, or another power of 2 from 32 to 4096");
            return Err(self.wrong_shape(&scale, vec![all.div_ceil(64)], because));
        };
        let state = name(&format!("quant_state.bitsandbytes__{}", four.dtype.name().to_ascii_lowercase()));
        let len = self.table.get(&state).map_or(0, |state| state.shape.iter().product::<u64>().min(MOST));
        let state = self.checked(&state, &[len], "a few words")?;
        if state.dtype != DType::U8 {
            return Err(self.wrong_dtype(&state, "U8 (JSON)"));
        }
        let mut floats = |end: &str, count: u64| {
            let floats = self.checked(&name(end), &[count], &format!("{runs} scales by {place}"))?;
            if floats.dtype == DType::F32 { Ok(floats) } else { Err(self.wrong_dtype(&floats, "F32 (scales)")) }
        };
        let table = floats("quant_map", 16)?;
        let nested = match four.nested {
            true => Some([floats("nested_absmax", runs.div_ceil(NESTED))?, floats("nested_quant_map", NESTED)?]),
            false => None,
        };
        self.used.extend([whole, weight.name.clone()]);
        // Those of the matrix, from the beginning of what shares a factor on.
        let each = if four.nested { NESTED } else { 1 };
        let (first, end) =
            (rows.before * inputs / size / each * each, ((rows.before + outputs) * inputs).div_ceil(size));
        let part = |whole: TensorInfo, count: u64, each: u64| {
            let (first, end) = (first / each, end.div_ceil(each));
            rows_of(whole, first, count, vec![end - first])
        };
        Ok(Runs {
            scale: part(scale, runs, 1),
            size: size as usize,
            before: (rows.before * inputs - first * size) as usize,
            nested: nested
                .map(|[factors, table]| NestedScales { factors: part(factors, runs.div_ceil(NESTED), NESTED), table }),
            table,
            state,
            stored: [rows.total, inputs],
        })
    }

    /// How the integers in `rows` are scaled.
    pub(super) fn integer_rows(&mut self, rows: &Rows) -> Result<IntegerRows> {
        let (weight, module) = (&rows.tensor, &rows.module);
        let [outputs, inputs] = [weight.shape[0], weight.shape[1]];
        if !inputs.is_multiple_of(BLOCK) {
            return Err(Error::Quantization {
                file: self.file_of(weight).into(),
                scheme: format!("int8 in rows of {inputs} (tensor {})", weight.name),
                why: format!("integers are multiplied in blocks of {BLOCK}"),
            });
        }
        let name = format!("{module}.SCB");
        if !self.stores(&name) {
            let stored = format!("tensor {} is {}", weight.name, DType::I8);
            return Err(self.conflict(stored, format!("its scales {name} are missing")));
        }
        let scale = self.checked(&name, &[rows.total], "scales of outputs")?;
        if scale.dtype != DType::F32 {
            return Err(self.wrong_dtype(&scale, "F32 (scales)"));
        }
        let format = format!("{module}.weight_format");
        let format = match self.stores(&format) {
            true => Some(self.single(&format, "one number for a matrix")?),
            false => None,
        };
        if let Some(format) = format.as_ref().filter(|format| format.dtype != DType::U8) {
            return Err(self.wrong_dtype(format, "U8 (a number)"));
        }
        Ok(IntegerRows { scale: rows_of(scale, rows.before, rows.total, vec![outputs]), format })
    }
}
