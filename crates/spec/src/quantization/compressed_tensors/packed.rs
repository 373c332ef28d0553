//! Packed weights: a header with tensors `weight_packed` -> the matrices that they are.

use super::{Group, Kind, Scheme};
use crate::error::{Error, IncompleteKind, Result};
use crate::header::{Header, TensorInfo, TensorTable};
use model_factory_dtypes::DType;

/// The end of the name of a packed matrix, after that of its module.
const WEIGHT_PACKED: &str = ".weight_packed";

impl Scheme {
    /// Whether any group is packed.
    pub(crate) fn is_packed(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.kind, Kind::Packed(_)))
    }

    /// The tensors of `header`, where those with packed weights are matrices `[outputs, inputs]` of what they hold, under the names
    /// that matrices have.
    ///
    /// # Errors
    /// `Incomplete` for one whose dtype or shape is another than the config's, or that the config does not know.
    pub(crate) fn with_matrices(&self, header: &Header) -> Result<TensorTable> {
        let mut tensors = header.tensors.clone();
        for tensor in header.tensors.values() {
            let Some(module) = tensor.name.strip_suffix(WEIGHT_PACKED) else { continue };
            let contradiction =
                |one: String| Err(Error::contradiction(&self.file, one, format!("tensor {} is stored", tensor.name)));
            let bits = match self.group(module, "Linear") {
                Ok(Group { kind: Kind::Packed(packed), .. }) => packed.bits,
                Ok(group) => return contradiction(format!("{} describes no packed weights", group.place)),
                Err(says) => return contradiction(says),
            };
            if tensor.dtype != DType::I32 {
                let file = &header.source.files[tensor.file].path;
                let (name, found, expected) = (tensor.name.clone(), tensor.dtype, "I32 (packed integers)");
                return Err(Error::incomplete(file, IncompleteKind::TensorDType { name, found, expected }));
            }
            let inputs = match tensor.shape.as_slice() {
                [_, words] => words.checked_mul(u64::from(32 / bits)),
                _ => None,
            };
            let Some(inputs) = inputs else {
                return contradiction(format!("packed weights have two dimensions, not {:?}", tensor.shape));
            };
            let name = format!("{module}.weight");
            if header.tensors.contains_key(&name) {
                return contradiction(format!("tensor {name} is stored"));
            }
            let dtype = if bits == 4 { DType::U4 } else { DType::U8 };
            let matrix = TensorInfo { dtype, shape: vec![tensor.shape[0], inputs], ..tensor.clone() };
            tensors.remove(&tensor.name);
            tensors.insert(name, matrix);
        }
        Ok(tensors)
    }
}
