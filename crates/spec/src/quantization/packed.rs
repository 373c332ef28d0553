//! Packed weights: a header with tensors of words -> the matrices that they are.

use super::scheme::{Kind, Scheme};
use crate::error::{Error, IncompleteKind, Result};
use crate::header::{Header, TensorInfo, TensorTable};
use model_factory_dtypes::DType;

/// How a kind stores matrices in tensors that are none.
struct Packing {
    /// The end of their names, after that of the module.
    end: &'static str,
    /// The dtype of the words, and what it is called.
    words: DType,
    expected: &'static str,
    /// Elements of a word along the inputs.
    elements: u64,
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
                elements: u64::from(32 / packed.bits),
                dtype: if packed.bits == 4 { DType::U4 } else { DType::U8 },
            }),
            Kind::Int8 { .. } | Kind::Fp8(_) | Kind::Affine(_) => None,
        }
    }
}

impl Scheme {
    /// The tensors of `header`, where those with packed weights are matrices `[outputs, inputs]` of what they hold, under the names
    /// that matrices have; `None` where the scheme packs nothing.
    ///
    /// # Errors
    /// `Incomplete` for one whose dtype or shape is another than the config's, or that the config does not know.
    pub(crate) fn with_matrices(&self, header: &Header) -> Result<Option<TensorTable>> {
        if self.is_affine() {
            return self.with_fields(header).map(Some);
        }
        let packings: Vec<Packing> = self.groups.iter().filter_map(|group| group.kind.packing()).collect();
        if packings.is_empty() {
            return Ok(None);
        }
        let mut tensors = header.tensors.clone();
        for tensor in header.tensors.values() {
            let module = packings.iter().find_map(|packing| tensor.name.strip_suffix(packing.end));
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
            let inputs = match tensor.shape.as_slice() {
                [_, words] => words.checked_mul(packing.elements),
                _ => None,
            };
            let Some(inputs) = inputs else {
                return contradiction(format!("packed weights have two dimensions, not {:?}", tensor.shape));
            };
            let name = format!("{module}.weight");
            if header.tensors.contains_key(&name) {
                return contradiction(format!("tensor {name} is stored"));
            }
            let matrix = TensorInfo { dtype: packing.dtype, shape: vec![tensor.shape[0], inputs], ..tensor.clone() };
            tensors.remove(&tensor.name);
            tensors.insert(name, matrix);
        }
        Ok(Some(tensors))
    }
}
