//! Matrices of MLX: what its config says of a module, crossed with the tensors that are stored for it.

use super::tensors::{Rows, Tensors, rows_of};
use super::{Affine, LinearWeights, Scaling};
use crate::error::Result;
use crate::family::Role;
use crate::header::TensorInfo;
use crate::quantization::{Group, Kind, Scheme};
use model_factory_dtypes::DType;

impl Tensors<'_> {
    /// How the fields of the matrix in `rows` are scaled, by what the config says of its module; `None` for a matrix of plain floats.
    pub(super) fn affine(
        &mut self,
        scheme: &Scheme,
        says: std::result::Result<&Group, String>,
        rows: &Rows,
    ) -> Result<Option<Scaling>> {
        let (module, weight) = (&rows.module, &rows.tensor);
        let of_words = self.header.tensors.get(&weight.name).is_some_and(|stored| stored.dtype == DType::U32);
        let stored = format!("tensor {} is {}", weight.name, if of_words { DType::U32 } else { weight.dtype });
        let (place, size) = match says {
            Ok(group) if !of_words && scheme.names(module) => {
                return Err(self.conflict(format!("{} describes U32 (words)", group.place), stored));
            }
            _ if !of_words => return self.plain(scheme, says.is_ok(), rows).map(|()| None),
            Ok(Group { kind: Kind::Affine(affine), place, .. }) => (place, affine.size),
            Ok(group) => return Err(self.conflict(format!("{} describes no words", group.place), stored)),
            Err(says) => return Err(self.conflict(says, stored)),
        };
        let (outputs, inputs) = (weight.shape[0], weight.shape[1]);
        if !inputs.is_multiple_of(size) {
            let other = format!("tensor {} has {inputs} inputs, no multiple of it", weight.name);
            return Err(self.conflict(format!("{place} has groups of {size}"), other));
        }
        // Those of experts have a dimension more.
        let mut shape = self.table.get(&weight.name).map_or_else(Vec::new, |whole| whole.shape.clone());
        shape.pop();
        shape.push(inputs / size);
        let mut of_groups = |name: &str, expected| {
            let name = format!("{module}.{name}");
            if !self.stores(&name) {
                return Err(self.conflict(stored.clone(), format!("its tensor {name} is missing")));
            }
            let whole = self.checked(&name, &shape, &format!("groups of {size} inputs by {place}"))?;
            self.check_float(&whole, expected)?;
            Ok(rows_of(whole, rows.before, rows.total, vec![outputs, inputs / size]))
        };
        let scale = of_groups("scales", "F32, F16 or BF16 (scales)")?;
        let bias = of_groups("biases", "F32, F16 or BF16 (biases)")?;
        if bias.dtype != scale.dtype {
            let stored = |tensor: &TensorInfo| format!("tensor {} is {}", tensor.name, tensor.dtype);
            return Err(self.conflict(stored(&scale), stored(&bias)));
        }
        self.used.insert(weight.name.clone());
        Ok(Some(Scaling::Affine(Affine { scale, bias, size: size as usize })))
    }

    /// The projections of `role` of all experts, which MLX stacks; `stem` is the name of those of one expert.
    pub(super) fn stacked_affine(
        &mut self,
        role: Role,
        stem: &str,
        [count, outputs, inputs]: [u64; 3],
        because: &str,
    ) -> Result<LinearWeights> {
        let before = stem.split("experts.{expert}").next().unwrap_or_default();
        let projection = match role {
            Role::ExpertGate => "gate_proj",
            Role::ExpertUp => "up_proj",
            _ => "down_proj",
        };
        let module = format!("{before}switch_mlp.{projection}");
        let apart = format!("{}.weight", stem.replace("{expert}", "0"));
        if self.stores(&apart) {
            let [one, other] = [format!("{module}.weight"), apart].map(|name| format!("tensor {name} is stored"));
            return Err(self.conflict(one, other));
        }
        let whole = self.checked(&format!("{module}.weight"), &[count, outputs, inputs], because)?;
        let total = count * outputs;
        self.scaled(Rows { tensor: TensorInfo { shape: vec![total, inputs], ..whole }, module, before: 0, total }, role)
    }
}
