//! I8 matrices: what the config says of a module, crossed with the tensors that are stored for it.

use super::tensors::{Rows, Tensors, rows_of};
use super::{Int8, Int8Activations, elements};
use crate::error::{Error, IncompleteKind, Result};
use crate::family::Role;
use crate::header::TensorInfo;
use crate::quantization::{ActivationScales, Answer, Group, Scheme, WeightScales};
use model_factory_dtypes::{DType, I8_MAX_INPUTS};

/// Tensors that only other schemes have with an I8 weight, and what they would mean.
const FOREIGN: &[(&str, &str)] = &[
    ("weight_zero_point", "weights with zero points"),
    ("weight_g_idx", "inputs grouped out of order"),
    ("output_scale", "quantised outputs"),
];

impl Tensors<'_> {
    /// The int8 product of the matrix in `rows`; `None` for a matrix of floats.
    pub(super) fn int8(&mut self, rows: &Rows, role: Role) -> Result<Option<Int8>> {
        let Some(scheme) = self.scheme else { return Ok(None) };
        let embedding = matches!(role, Role::Embedding | Role::LayerEmbedding);
        let class = if embedding { "Embedding" } else { "Linear" };
        let (module, weight) = (rows.module.as_str(), &rows.tensor);
        let answer = scheme.answer(module, class);
        if weight.dtype != DType::I8 {
            return self.plain(scheme, answer, rows).map(|()| None);
        }
        let stored = format!("tensor {} is I8", weight.name);
        let refusal = |scheme, why| Error::Quantization { file: self.file_of(weight).into(), scheme, why };
        let group = match answer {
            _ if embedding => {
                let why =
                    "rows of an embedding are read as they are, and only floats are; quantise only the linear layers";
                return Err(refusal(format!("an embedding of int8 ({stored})"), why.into()));
            }
            Answer::Group(group) => group,
            Answer::Ignored(entry) => {
                return Err(self.conflict(scheme, format!("{}.ignore has {entry:?}", scheme.place), stored));
            }
            Answer::Uncovered => {
                let says = format!("no target of {}.config_groups names {module}", scheme.place);
                return Err(self.conflict(scheme, says, stored));
            }
        };
        let inputs = weight.shape.get(1).copied().unwrap_or(1);
        if inputs > I8_MAX_INPUTS {
            let why = format!("sums of integers are exact in 32 bits up to rows of {I8_MAX_INPUTS}");
            return Err(refusal(format!("int8 in rows of {inputs} ({stored})"), why));
        }
        for (suffix, meaning) in FOREIGN {
            let name = format!("{module}.{suffix}");
            if self.stores(&name) {
                let says = format!("{} describes symmetric int8 weights in order", group.place);
                return Err(self.conflict(scheme, says, format!("tensor {name} is stored for {meaning}")));
            }
        }
        let (scale, size) = self.weight_scale(scheme, group, rows)?;
        let activations = self.activation_parts(scheme, group, module)?;
        Ok(Some(Int8 { scale, group: size, activations }))
    }

    /// Takes note of a matrix of floats that the config would have quantised; no scale may be stored with it.
    fn plain(&mut self, scheme: &Scheme, answer: Answer<'_>, rows: &Rows) -> Result<()> {
        let scale = format!("{}.weight_scale", rows.module);
        if self.stores(&scale) {
            let stored = format!("tensor {} is {}", rows.tensor.name, rows.tensor.dtype);
            return Err(self.conflict(scheme, format!("tensor {scale} is stored"), format!("{stored}, not I8")));
        }
        if let Answer::Group(_) = answer
            && !self.plain_modules.contains(&rows.module)
        {
            self.plain_modules.push(rows.module.clone());
        }
        Ok(())
    }

    /// The scales of the rows, and how many inputs share one.
    fn weight_scale(&mut self, scheme: &Scheme, group: &Group, rows: &Rows) -> Result<(TensorInfo, usize)> {
        let name = format!("{}.weight_scale", rows.module);
        let inputs = rows.tensor.shape.get(1).copied().unwrap_or(1);
        let Some(scale) = self.header.tensors.get(&name).cloned() else {
            let (one, other) = (format!("tensor {} is I8", rows.tensor.name), format!("its scale {name} is missing"));
            return Err(self.conflict(scheme, one, other));
        };
        let (size, columns) = match group.weights {
            WeightScales::Tensor | WeightScales::Channel => (inputs, 1),
            WeightScales::Group(size) if inputs.is_multiple_of(size) => (size, inputs / size),
            WeightScales::Group(size) => {
                let one = format!("{} has groups of {size}", group.place);
                let other = format!("tensor {} has {inputs} inputs, no multiple of it", rows.tensor.name);
                return Err(self.conflict(scheme, one, other));
            }
        };
        let one = scale.shape.is_empty() || scale.shape == [1];
        let right = match group.weights {
            WeightScales::Tensor => one,
            WeightScales::Channel => scale.shape == [rows.total, 1] || scale.shape == [rows.total],
            WeightScales::Group(_) => scale.shape == [rows.total, columns],
        };
        if !right {
            let expected = if group.weights == WeightScales::Tensor { vec![1] } else { vec![rows.total, columns] };
            let because = format!("weights {} by {}", group.weights, group.place);
            return Err(self.wrong_shape(&scale, expected, because));
        }
        self.check_float(&scale, "F32, F16 or BF16 (scales)")?;
        self.used.insert(name);
        if group.weights == WeightScales::Tensor {
            return Ok((TensorInfo { shape: vec![1], ..scale }, size as usize));
        }
        let outputs = rows.tensor.shape.first().copied().unwrap_or(1);
        Ok((rows_of(scale, rows.before, rows.total, vec![outputs, columns]), size as usize))
    }

    /// What is stored for the activations of a module: nothing unless they are static.
    fn activation_parts(&mut self, scheme: &Scheme, group: &Group, module: &str) -> Result<Int8Activations> {
        let [scale, zero_point] = ["input_scale", "input_zero_point"].map(|suffix| format!("{module}.{suffix}"));
        let says = format!("{} says activations {}", group.place, group.activations);
        let symmetric = group.activations.symmetric;
        let is_static = group.activations.scales == ActivationScales::Static;
        let wanted = [is_static, is_static && !symmetric];
        for (name, wanted) in [&scale, &zero_point].into_iter().zip(wanted) {
            let stored = self.stores(name);
            if stored != wanted {
                let found = if stored { "is stored" } else { "is missing" };
                return Err(self.conflict(scheme, says, format!("tensor {name} {found}")));
            }
        }
        Ok(match group.activations.scales {
            ActivationScales::PerToken => Int8Activations::PerToken { symmetric },
            ActivationScales::PerTensor => Int8Activations::PerTensor { symmetric },
            ActivationScales::Static => {
                let scale = self.single(&scale, &says)?;
                self.check_float(&scale, "F32, F16 or BF16 (scales)")?;
                let zero_point = if symmetric { None } else { Some(self.single(&zero_point, &says)?) };
                if let Some(zero_point) = &zero_point
                    && zero_point.dtype != DType::I8
                {
                    return Err(self.wrong_dtype(zero_point, "I8"));
                }
                Int8Activations::Static { scale, zero_point }
            }
        })
    }

    /// The tensor `name` of one element, as `[1]`.
    fn single(&mut self, name: &str, because: &str) -> Result<TensorInfo> {
        let Some(tensor) = self.header.tensors.get(name).cloned() else {
            return Err(self.reader.absent_tensor(name, Vec::new()));
        };
        if elements([&tensor]) != 1 {
            return Err(self.wrong_shape(&tensor, vec![1], because.to_owned()));
        }
        self.used.insert(name.to_owned());
        Ok(TensorInfo { shape: vec![1], ..tensor })
    }

    fn conflict(&self, scheme: &Scheme, one: String, other: String) -> Error {
        Error::incomplete(&scheme.file, IncompleteKind::Contradiction { one, other })
    }
}
