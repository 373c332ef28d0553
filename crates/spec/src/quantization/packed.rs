//! Packed weights: a header with tensors of words -> the matrices that they are.

use super::scheme::{Fp4, Kind, Scheme};
use crate::error::{Error, IncompleteKind, Result};
use crate::header::{Header, TensorInfo, TensorTable};
use model_factory_dtypes::{DType, PackedDim};

/// The end of the names of words by columns.
pub(crate) const COLUMNS: &str = ".qweight";

/// The end of the names of matrices.
const PLAIN: &str = ".weight";

/// How a kind stores matrices in tensors that are none.
struct Packing {
    /// The end of their names, after that of the module.
    end: &'static str,
    /// The dtype of the words, and what it is called.
    words: DType,
    expected: &'static str,
    /// Bits of an element.
    bits: u32,
    /// What words hold that lie by columns.
    by_columns: Option<PackedDim>,
    /// The dtype of the elements.
    dtype: DType,
}

impl Kind {
    /// How its matrices are packed; `None` where they are stored as such.
    fn packing(&self) -> Option<Packing> {
        match self {
            Kind::Packed(packed) => Some(Packing {
                end: ".weight_packed",
                words: DType::I32,
                expected: "I32 (packed integers)",
                bits: packed.bits,
                by_columns: None,
                dtype: fields(packed.bits.into()),
            }),
            Kind::Columns(column_packed) => Some(Packing {
                end: COLUMNS,
                words: DType::I32,
                expected: "I32 (packed integers)",
                bits: column_packed.bits,
                by_columns: Some(column_packed.packed),
                dtype: fields(column_packed.bits.into()),
            }),
            Kind::Fp4(fp4) => Some(Packing {
                end: if *fp4 == Fp4::Multiplied { PLAIN } else { ".weight_packed" },
                words: DType::U8,
                expected: "U8 (floats of 4 bits)",
                bits: 4,
                by_columns: None,
                dtype: DType::F4,
            }),
            Kind::Int8 { .. } | Kind::Fp8(_) | Kind::Words(_) | Kind::FourBit(_) | Kind::Int8Rows => None,
        }
    }
}

/// The dtype of fields of `bits`.
pub(super) fn fields(bits: u64) -> DType {
    match bits {
        2 => DType::U2,
        3 => DType::U3,
        4 => DType::U4,
        5 => DType::U5,
        6 => DType::U6,
        _ => DType::U8,
    }
}

impl Scheme {
    /// The tensors of `header`, where those with packed weights are matrices `[outputs, inputs]` of what they hold, under the names
    /// that matrices have; `None` where the scheme packs nothing.
    ///
    /// # Errors
    /// `Incomplete` for one whose dtype or shape is another than the config's, or that the config does not know.
    pub(crate) fn with_matrices(&self, header: &Header) -> Result<Option<TensorTable>> {
        if self.is_mlx() {
            return self.with_words(header).map(Some);
        }
        if self.is_of_bitsandbytes() {
            return self.with_codes(header).map(Some);
        }
        let packings: Vec<Packing> = self.groups.iter().filter_map(|group| group.kind.packing()).collect();
        if packings.is_empty() {
            return Ok(None);
        }
        let mut tensors = header.tensors.clone();
        for tensor in header.tensors.values() {
            // Under the name of a matrix is one unless its dtype is another.
            let packs = |packing: &&Packing| packing.end != PLAIN || tensor.dtype == packing.words;
            let module = packings.iter().filter(packs).find_map(|packing| tensor.name.strip_suffix(packing.end));
            let Some(module) = module else { continue };
            let contradiction =
                |one: String| Err(Error::contradiction(&self.file, one, format!("tensor {} is stored", tensor.name)));
            let (group, packing) = match self.group(module, "Linear") {
                Ok(group) => (group, group.kind.packing()),
                Err(says) => return contradiction(says),
            };
            let Some(packing) = packing.filter(|packing| tensor.name.ends_with(packing.end)) else {
                return contradiction(format!("{} describes no packed weights", group.place));
            };
            if tensor.dtype != packing.words {
                let file = &header.source.files[tensor.file].path;
                let (name, found, expected) = (tensor.name.clone(), tensor.dtype, packing.expected);
                return Err(Error::incomplete(file, IncompleteKind::TensorDType { name, found, expected }));
            }
            let times = |words: u64| {
                let bits = words.checked_mul(8 * packing.words.block_bytes() as u64)?;
                bits.is_multiple_of(packing.bits.into()).then(|| bits / u64::from(packing.bits))
            };
            let shape = match (tensor.shape.as_slice(), packing.by_columns) {
                ([outputs, words], None) => times(*words).map(|inputs| vec![*outputs, inputs]),
                ([words, outputs], Some(PackedDim::Inputs)) => times(*words).map(|inputs| vec![*outputs, inputs]),
                ([inputs, words], Some(PackedDim::Outputs)) => times(*words).map(|outputs| vec![outputs, *inputs]),
                _ => None,
            };
            let Some(shape) = shape else {
                let (bits, shape) = (packing.bits, &tensor.shape);
                return contradiction(format!(
                    "packed weights have two dimensions of whole {bits} bits, not {shape:?}"
                ));
            };
            let name = format!("{module}{PLAIN}");
            if name != tensor.name && header.tensors.contains_key(&name) {
                return contradiction(format!("tensor {name} is stored"));
            }
            let matrix = TensorInfo { dtype: packing.dtype, shape, ..tensor.clone() };
            tensors.remove(&tensor.name);
            tensors.insert(name, matrix);
        }
        Ok(Some(tensors))
    }
}
