//! Matrices of MLX: what its config says of a module, crossed with the tensors that are stored for it.

use super::scaling::BLOCK;
use super::tensors::{Rows, Tensors, rows_of};
use super::{Affine, FloatScales, LinearWeights, Scaling};
use crate::error::Result;
use crate::family::Role;
use crate::header::TensorInfo;
use crate::quantization::{Group, Kind, Scheme, Words};
use model_factory_dtypes::DType;

impl Tensors<'_> {
    /// How what the words of the matrix in `rows` hold is scaled, by what the config says of its module; `None` for a matrix of plain
    /// floats.
    pub(super) fn words(
        &mut self,
        scheme: &Scheme,
        says: std::result::Result<&Group, String>,
        rows: &Rows,
    ) -> Result<Option<Scaling>> {
        let (module, weight) = (&rows.module, &rows.tensor);
        let of_words = self.header.tensors.get(&weight.name).is_some_and(|stored| stored.dtype == DType::U32);
        let stored = format!("tensor {} is {}", weight.name, if of_words { DType::U32 } else { weight.dtype });
        let (place, words) = match says {
            Ok(group) if !of_words && scheme.names(module) => {
                return Err(self.conflict(format!("{} describes U32 (words)", group.place), stored));
            }
            _ if !of_words => return self.plain(scheme, says.is_ok(), rows).map(|()| None),
            Ok(Group { kind: Kind::Words(words), place, .. }) => (place, *words),
            Ok(group) => return Err(self.conflict(format!("{} describes no words", group.place), stored)),
            Err(says) => return Err(self.conflict(says, stored)),
        };
        let (size, expected, dtype) = match words {
            Words::Affine { size, .. } => (size, "F32, F16 or BF16 (scales)", None),
            Words::Mxfp4 | Words::Mxfp8 => (BLOCK, "U8 (exponents)", Some(DType::F8_E8M0)),
            Words::Nvfp4 => (BLOCK / 2, "U8 (floats of 8 bits)", Some(DType::F8_E4M3)),
        };
        let (outputs, inputs) = (weight.shape[0], weight.shape[1]);
        // Of floats of 4 bits as many as of others are multiplied together.
        let multiple = size.max(BLOCK);
        if !inputs.is_multiple_of(multiple) {
            let other = format!("tensor {} has {inputs} inputs, no multiple of {multiple}", weight.name);
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
            match dtype {
                None => self.check_float(&whole, expected)?,
                Some(_) if whole.dtype != DType::U8 => return Err(self.wrong_dtype(&whole, expected)),
                Some(_) => {}
            }
            let whole = TensorInfo { dtype: dtype.unwrap_or(whole.dtype), ..whole };
            Ok(rows_of(whole, rows.before, rows.total, vec![outputs, inputs / size]))
        };
        let scale = of_groups("scales", expected)?;
        let scaling = match words {
            Words::Affine { .. } => {
                let bias = of_groups("biases", "F32, F16 or BF16 (biases)")?;
                if bias.dtype != scale.dtype {
                    let stored = |tensor: &TensorInfo| format!("tensor {} is {}", tensor.name, tensor.dtype);
                    return Err(self.conflict(stored(&scale), stored(&bias)));
                }
                Scaling::Affine(Affine { scale, bias, size: size as usize })
            }
            Words::Mxfp4 | Words::Nvfp4 => Scaling::Blocks(scale),
            Words::Mxfp8 => Scaling::Floats(FloatScales { scale, block: [1, size as usize], before: 0 }),
        };
        self.used.insert(weight.name.clone());
        let other = ["biases", "global_scale"].map(|end| format!("{module}.{end}"));
        match other.iter().find(|name| dtype.is_some() && self.stores(name)) {
            Some(name) => {
                Err(self.conflict(format!("{place} describes floats with scales"), format!("tensor {name} is stored")))
            }
            None => Ok(Some(scaling)),
        }
    }

    /// The projections of `role` of all experts, which MLX stacks; `stem` is the name of those of one expert, or of a parameter of all.
    pub(super) fn stacked_words(
        &mut self,
        (role, layer): (Role, usize),
        stem: &str,
        [count, outputs, inputs]: [u64; 3],
        because: &str,
    ) -> Result<LinearWeights> {
        let projection = match role {
            Role::ExpertGate => "gate_proj",
            Role::ExpertUp => "up_proj",
            _ => "down_proj",
        };
        let (module, apart) = match (stem.split_once("experts.{expert}"), stem.rsplit_once('.')) {
            (Some((before, _)), _) => {
                let apart = format!("{}.weight", stem.replace("{expert}", "0"));
                (format!("{before}switch_mlp.{projection}"), apart)
            }
            (None, of_all) => (format!("{}.{projection}", of_all.unwrap_or_default().0), format!("{stem}_blocks")),
        };
        if self.stores(&apart) {
            let [one, other] = [format!("{module}.weight"), apart].map(|name| format!("tensor {name} is stored"));
            return Err(self.conflict(one, other));
        }
        let whole = self.checked(&format!("{module}.weight"), &[count, outputs, inputs], because)?;
        let bias = self.stacked_bias(role, layer, &format!("{module}.bias"), [count, outputs], because)?;
        let total = count * outputs;
        let rows = Rows { tensor: TensorInfo { shape: vec![total, inputs], ..whole }, module, before: 0, total };
        Ok(LinearWeights { bias, ..self.scaled(rows, role)? })
    }
}
