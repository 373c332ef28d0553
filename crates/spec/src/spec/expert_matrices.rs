//! The matrices of routed feed-forward layers: each expert's rows in the stored tensors.

use super::reader::missing;
use super::routed::{ExpertGates, ExpertMatrices, ExpertsWeights, Routing, SharedExpert};
use super::tensors::{Fused, Rows, Tensors, is_flat, rows_of};
use super::{BesideWeights, LinearWeights, Module, Norm, NormWeights, Scaling};
use crate::block::{ExpertInput, RouterScore};
use crate::error::{Error, Result};
use crate::family::{ByInputs, Role};
use crate::header::TensorInfo;
use crate::quantization::Scheme;
use model_factory_dtypes::DType;

/// Elements of a block of MXFP4.
const BLOCK: u64 = 32;

impl Tensors<'_> {
    /// As [`matrix`](Self::matrix), of one row, which GGUF stores as a vector.
    pub(super) fn row_or_matrix(&mut self, role: Role, layer: Option<usize>) -> Result<LinearWeights> {
        let name = self.weight_name(role, layer);
        let (outputs, inputs, because) = self.shape(role, layer);
        let vector = self.table.get(&name).is_some_and(|tensor| tensor.shape.len() == 1 && !is_flat(tensor));
        if !vector || outputs != 1 {
            return self.matrix(role, layer);
        }
        let row = self.checked(&name, &[inputs], &because)?;
        self.check_matrix_dtype(&row)?;
        let bias = self.bias(role, layer)?;
        Ok(LinearWeights { bias, ..LinearWeights::new(TensorInfo { shape: vec![1, inputs], ..row }) })
    }

    pub(super) fn experts(&mut self, layer: usize, routing: Routing) -> Result<ExpertsWeights> {
        let at = Some(layer);
        let mut shared = None;
        if self.sizes.experts.is_some_and(|sizes| sizes.shared_feed_forward > 0) {
            let has_router = self.names(Role::SharedRouter);
            let router = has_router.then(|| self.row_or_matrix(Role::SharedRouter, at)).transpose()?;
            let dense = self.dense([Role::SharedGate, Role::SharedUp, Role::SharedDown], at)?;
            shared = Some(SharedExpert { router, dense });
        } else {
            self.refuse_shared_expert(layer)?;
        }
        let router = self.matrix(Role::Router, at)?;
        let name = self.stem(Role::ChoiceBias, at);
        // In GGUF sigmoids have one, and llama.cpp asks for it in most families too.
        let has_bias = self.names(Role::ChoiceBias)
            && match self.reader.is_gguf() {
                true => routing.score == RouterScore::Sigmoid || self.stores(&name),
                false => self.bias_wanted(Role::ChoiceBias, at, &name)?,
            };
        let choice_bias = if has_bias { Some(self.whole_name(Role::ChoiceBias, at)?) } else { None };
        let router_norm = self.whole_name_if_named(Role::RouterNorm, at)?.map(|weight| {
            let kind = Norm::Rms { eps: self.options.norm_eps, offset: false };
            NormWeights { width: self.sizes.hidden, weight: Some(weight), kind }
        });
        let expert_scales = self.whole_name_if_named(Role::ExpertScales, at)?;
        let activation = self.options.factors.activation;
        let activation = activation.try_map(|()| match self.gates_within_up(layer) {
            Some(gates) => Ok(gates),
            None => self.expert_matrices(Role::ExpertGate, layer).map(ExpertGates::Apart),
        })?;
        let (up, down) = (self.expert_matrices(Role::ExpertUp, layer)?, self.expert_matrices(Role::ExpertDown, layer)?);
        let (input, with_shared) =
            self.family.experts.map_or((ExpertInput::AfterMixer, 1.0), |table| (table.input, table.with_shared));
        let scale = if shared.is_some() { with_shared } else { 1.0 };
        Ok(ExpertsWeights {
            router,
            router_norm,
            input,
            routing,
            choice_bias,
            expert_scales,
            up,
            activation,
            down,
            shared,
            scale,
        })
    }

    pub(super) fn beside(&mut self, layer: Option<usize>) -> Result<BesideWeights> {
        Ok(BesideWeights {
            norm: self.norm(Role::MlpNorm, layer)?,
            dense: self.dense([Role::Gate, Role::Up, Role::Down], layer)?,
            output_norm: self.norm_if_named(Role::DenseOutputNorm, layer)?,
            experts_norm: self.norm_if_named(Role::ExpertsOutputNorm, layer)?,
        })
    }

    /// A stored expert for every token whose width no key gives.
    fn refuse_shared_expert(&self, layer: usize) -> Result<()> {
        match self.family.experts.and_then(|table| table.shared_feed_forward) {
            Some(key)
                if !self.reader.key(key).is_empty()
                    && self.stores(&self.weight_name(Role::SharedDown, Some(layer))) =>
            {
                let (fields, key) = (self.reader.fields(), self.reader.key(key));
                Err(missing(fields, &key, "an expert for every token is stored, and a size is never guessed from it"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the up projections hold those of gates too: they take turns in one parameter of all experts of a layer, as
    /// floats by inputs or as blocks of MXFP4 whose scales lie apart (transformers `GptOssExperts`,
    /// `integrations/mxfp4.py`), or are columns of it in front of theirs.
    fn gates_within_up(&self, layer: usize) -> Option<ExpertGates> {
        if self.reader.is_gguf() || self.scheme.is_some_and(Scheme::is_mlx) {
            return None;
        }
        if self.family.experts.is_some_and(|table| table.interleaved) {
            return Some(ExpertGates::InTurns);
        }
        self.stored_by_inputs(Role::ExpertUp, layer).map(|_| ExpertGates::InFront)
    }

    /// The name of the parameter of all experts of a layer, if its inputs come before its outputs. Where shapes say it, transformers
    /// takes one for `[experts, outputs, inputs]` that has that shape.
    fn stored_by_inputs(&self, role: Role, layer: usize) -> Option<String> {
        let by_inputs = self.family.experts.map(|table| table.by_inputs).filter(|_| !self.reader.is_gguf())?;
        if by_inputs == ByInputs::No {
            return None;
        }
        let Fused { name, total, .. } = self.stored_fused(role, Some(layer), &[""])?;
        let (count, inputs) = (self.sizes.experts?.count as u64, self.shape(role, Some(layer)).1);
        let rows = by_inputs == ByInputs::Some && self.table.get(&name)?.shape == [count, total, inputs];
        (!rows).then_some(name)
    }

    /// The projections of `role`, stacked, stacked with others' or in turns with them, or one by one.
    fn expert_matrices(&mut self, role: Role, layer: usize) -> Result<ExpertMatrices> {
        let at = Some(layer);
        let count = self.sizes.experts.map_or(0, |sizes| sizes.count) as u64;
        let (outputs, inputs, because) = self.shape(role, at);
        let (within, by_inputs) = (self.gates_within_up(layer), self.stored_by_inputs(role, layer));
        let in_turns = matches!(within, Some(ExpertGates::InTurns));
        let times = if within.is_some() && role == Role::ExpertUp { 2 } else { 1 };
        let outputs = outputs * times;
        let because = match times {
            1 => format!("{count} experts, {because}"),
            _ => format!("{count} experts, {times} rows for each, {because}"),
        };
        let stem = self.stem(role, at);
        let unsupported = |scheme: &Scheme| {
            Error::Quantization {
            file: scheme.file.clone(),
            scheme: format!("a mixture of experts with {}", scheme.in_words()),
            why: "experts are computed as floats, GGUF blocks, FP8, or packed integers of one module for each; use the GGUF file of \
                  the same model, or its BF16 checkpoint"
                .into(),
        }
        };
        if self.scheme.is_some_and(Scheme::is_mlx) {
            let all = self.stacked_words((role, layer), &stem, [count, outputs, inputs], &because)?;
            return Ok(ExpertMatrices { stored: vec![all], outputs: outputs as usize });
        }
        let fused = self.stored_fused(role, at, &["", ".weight"]);
        let as_floats = in_turns || by_inputs.is_some() || fused.is_none() && !stem.contains("{expert}");
        if let (Some(scheme), true) = (self.scheme, as_floats) {
            return Err(unsupported(scheme));
        }
        // A parameter of transformers has no suffix, a tensor of GGUF has one.
        let stored = if let Some(name) = by_inputs.or(in_turns.then(|| stem.clone())) {
            let bias = self.stacked_bias(role, layer, &format!("{stem}_bias"), [count, outputs], &because)?;
            let blocks = format!("{stem}_blocks");
            if self.mxfp4 && self.stores(&blocks) {
                vec![LinearWeights { bias, ..self.mxfp4(&stem, [count, outputs, inputs], &because)? }]
            } else {
                let all = self.checked(&name, &[count, inputs, outputs], &because)?;
                self.check_matrix_dtype(&all)?;
                self.check_float(&all, "F32, F16 or BF16 (a transposed matrix)")?;
                let part = |expert| LinearWeights {
                    weight: rows_of(all.clone(), expert * inputs, count * inputs, vec![inputs, outputs]),
                    bias: bias.clone().map(|bias| rows_of(bias, expert * outputs, count * outputs, vec![outputs])),
                    transposed: true,
                    ..LinearWeights::new(all.clone())
                };
                (0..count).map(part).collect()
            }
        } else if let Some(Fused { module, name, before, total, .. }) = fused {
            let all = self.stacked(&name, [count, total, inputs], &because)?;
            let factor = self.gguf_factor(name.trim_end_matches(".weight"), &all, count)?;
            let of_expert =
                |expert| rows_of(all.clone(), expert * total + before, count * total, vec![outputs, inputs]);
            match self.scheme {
                None if total == outputs => vec![LinearWeights { factor, ..LinearWeights::new(all) }],
                None => {
                    let factor = |expert| factor.clone().map(|factor| factor.of(expert, count));
                    let matrix =
                        |expert| LinearWeights { factor: factor(expert), ..LinearWeights::new(of_expert(expert)) };
                    (0..count).map(matrix).collect()
                }
                Some(_) => {
                    let matrix = |expert| {
                        let (tensor, module) = (of_expert(expert), module.clone());
                        let rows = Rows { tensor, module, before, total };
                        let scaling = self.stacked_scales(&rows, [expert, count])?;
                        Ok(LinearWeights { scaling, ..LinearWeights::new(rows.tensor) })
                    };
                    (0..count).map(matrix).collect::<Result<_>>()?
                }
            }
        } else if stem.contains("{expert}") {
            let matrix = |expert: u64| {
                let module = stem.replace("{expert}", &expert.to_string());
                let tensor = self.checked(&format!("{module}.weight"), &[outputs, inputs], &because)?;
                let of_adapters = Some(Module::whole(module.clone(), outputs));
                let matrix = self.scaled(Rows { tensor, module, before: 0, total: outputs }, role)?;
                match (matrix.scaling, self.scheme) {
                    (Some(Scaling::Int8(_)), Some(scheme)) => Err(unsupported(scheme)),
                    (scaling, _) => Ok(LinearWeights { scaling, module: of_adapters, ..matrix }),
                }
            };
            (0..count).map(matrix).collect::<Result<_>>()?
        } else {
            let all = self.stacked(&self.weight_name(role, at), [count, outputs, inputs], &because)?;
            let bias = self.stacked_bias(role, layer, &format!("{stem}.bias"), [count, outputs], &because)?;
            let factor = self.gguf_factor(&stem, &all, count)?;
            let module = Some(Module { experts: count, ..Module::whole(stem, count * outputs) });
            vec![LinearWeights { bias, factor, module, ..LinearWeights::new(all) }]
        };
        Ok(ExpertMatrices { stored, outputs: outputs as usize })
    }

    /// The rows of all experts of a layer as one matrix.
    pub(super) fn stacked(&mut self, name: &str, [count, rows, inputs]: [u64; 3], because: &str) -> Result<TensorInfo> {
        // An outer dimension of 1 is none in GGUF.
        let shape = [count, rows, inputs];
        let shape = if count == 1 && self.reader.is_gguf() { &shape[1..] } else { &shape };
        let whole = self.checked(name, shape, because)?;
        if self.scheme.is_none() || whole.dtype != DType::F8_E4M3 {
            self.check_matrix_dtype(&whole)?;
        }
        Ok(TensorInfo { shape: vec![count * rows, inputs], ..whole })
    }

    /// The biases of all experts of a layer as one, where the family has them.
    pub(super) fn stacked_bias(
        &mut self,
        role: Role,
        layer: usize,
        name: &str,
        [count, outputs]: [u64; 2],
        because: &str,
    ) -> Result<Option<TensorInfo>> {
        if !self.bias_wanted(role, Some(layer), name)? {
            return Ok(None);
        }
        let bias = self.checked(name, &[count, outputs], because)?;
        self.check_vector_dtype(&bias)?;
        Ok(Some(TensorInfo { shape: vec![count * outputs], ..bias }))
    }

    /// The matrix of all experts in blocks, and their scales.
    fn mxfp4(&mut self, stem: &str, [count, outputs, inputs]: [u64; 3], because: &str) -> Result<LinearWeights> {
        let because = format!("{because}, blocks of {BLOCK} elements in {} bytes", BLOCK / 2);
        // Rows of no whole blocks have another number of elements than these shapes.
        let blocks = inputs.div_ceil(BLOCK);
        let elements = self.checked(&format!("{stem}_blocks"), &[count, outputs, blocks, BLOCK / 2], &because)?;
        let scales = self.checked(&format!("{stem}_scales"), &[count, outputs, blocks], &because)?;
        if let Some(other) = [&elements, &scales].into_iter().find(|tensor| tensor.dtype != DType::U8) {
            return Err(self.wrong_dtype(other, "U8 (blocks and scales of MXFP4)"));
        }
        if !inputs.is_multiple_of(BLOCK) {
            return Err(self.wrong_shape(&elements, vec![count, outputs, inputs / BLOCK, BLOCK / 2], because));
        }
        let rows = count * outputs;
        // The bytes are what safetensors calls F4 and F8_E8M0.
        Ok(LinearWeights {
            scaling: Some(Scaling::Blocks(TensorInfo { dtype: DType::F8_E8M0, shape: vec![rows, blocks], ..scales })),
            ..LinearWeights::new(TensorInfo { dtype: DType::F4, shape: vec![rows, inputs], ..elements })
        })
    }
}
