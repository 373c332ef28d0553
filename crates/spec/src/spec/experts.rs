//! Routed feed-forward layers: their sizes by the family's keys, and each expert's rows in the stored tensors.

use super::reader::{Reader, missing};
use super::routed::{ExpertGates, ExpertGroups, ExpertMatrices, ExpertSizes, ExpertsWeights, Routing, SharedExpert};
use super::single::SubLayer;
use super::tensors::{Fused, Rows, Tensors, rows_of};
use super::{BesideWeights, LinearWeights, Norm, NormWeights, Scaling, Sizes};
use crate::block::RouterScore;
use crate::error::{Error, Result};
use crate::family::{DenseLayers, ExpertTable, Normalized, Role};
use crate::header::TensorInfo;
use crate::quantization::Scheme;
use model_factory_dtypes::DType;
use serde_json::Value;

/// More experts than any model has: what a file claims beyond that is refused before anything is made for each of them.
const MAX_EXPERTS: usize = 4096;

/// The same of all layers together.
const MAX_EXPERTS_IN_ALL: usize = 1 << 16;

/// Elements of a block of MXFP4.
const BLOCK: u64 = 32;

impl ExpertTable {
    /// Whether GGUF files say which layers have experts by what they store.
    pub(super) fn lies_in_some_layers(&self) -> bool {
        matches!(self.dense_layers, Some(DenseLayers::AllButAt(_)))
    }
}

impl Reader<'_> {
    pub(super) fn expert_sizes(&self, dense: usize, layers: usize) -> Result<Option<ExpertSizes>> {
        let Some(table) = &self.family.experts else { return Ok(None) };
        // One expert of some layers is no choice, but their dense layer.
        let fewest = if table.lies_in_some_layers() { 2 } else { 1 };
        let said = match table.flag {
            _ if self.single_layers()?.is_some_and(|layers| !layers.contains(&SubLayer::Experts)) => false,
            None if !table.optional => true,
            _ if self.is_gguf() => self.gguf_experts()? >= fewest,
            Some(flag) => self.fields().boolean(flag)?.unwrap_or(false),
            None => {
                let counts = table.count.iter().map(|key| self.fields().unsigned(key.config));
                counts.collect::<Result<Vec<_>>>()?.iter().all(|count| count.is_none_or(|count| count >= fewest))
            }
        };
        if !said {
            return Ok(None);
        }
        let stored = table.count.iter().map(|key| Ok(self.size(*key)?.map(|count| (self.key(*key), count))));
        let mut stored = stored.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        let Some((key, count)) = stored.next() else {
            let key = table.count.first().map(|key| self.key(*key)).unwrap_or_default();
            return Err(missing(self.fields(), &key, "the number of experts is never guessed from tensor shapes"));
        };
        if let Some((other, found)) = stored.find(|(_, found)| *found != count) {
            return Err(self.contradiction(format!("{key} is {count}"), format!("{other} is {found}")));
        }
        if count > MAX_EXPERTS {
            return Err(self.value(&key, count, format!("a number between 1 and {MAX_EXPERTS}")));
        }
        if count.saturating_mul(layers) > MAX_EXPERTS_IN_ALL {
            let expected = format!("at most {MAX_EXPERTS_IN_ALL} experts in {layers} layers together");
            return Err(self.value(&key, count, expected));
        }
        let chosen = self.size_or_table(table.chosen)?;
        if chosen > count {
            let chosen_key = self.key(table.chosen);
            return Err(self.contradiction(format!("{key} is {count}"), format!("{chosen_key} is {chosen}")));
        }
        let feed_forward = match table.feed_forward {
            Some(key) => self.present(key, self.or_table(key, self.size_a_layer(key, layers)?)?)?,
            None => dense,
        };
        Ok(Some(ExpertSizes {
            count,
            chosen,
            feed_forward,
            shared_feed_forward: match table.shared_feed_forward {
                // 0 in `config.json` is none.
                Some(key) if !self.is_gguf() && self.fields().unsigned(key.config)? == Some(0) => 0,
                Some(key) => self.size_a_layer(key, layers)?.unwrap_or(0),
                None => self.shared_experts(table)?.saturating_mul(feed_forward),
            },
        }))
    }

    /// The number of experts that every token uses, by the key of their number.
    fn shared_experts(&self, table: &ExpertTable) -> Result<usize> {
        let Some(key) = table.shared_count else { return Ok(0) };
        let name = self.key(key);
        match self.fields().unsigned(&name)? {
            Some(0) => Ok(0),
            None if self.is_gguf() || self.is_null(&name) => Ok(0),
            _ => self.size_or_table(key),
        }
    }

    /// How tokens are given to experts, whose weights are multiplied by `scale`.
    pub(super) fn routing(&self, sizes: &Sizes, scale: f32) -> Result<Option<Routing>> {
        let (Some(table), Some(experts)) = (&self.family.experts, &sizes.experts) else { return Ok(None) };
        let family_score = self.gguf_score(table)?;
        let groups = self.groups(table, family_score, experts)?;
        let normalized = match table.normalized {
            Normalized::Fixed(normalized) => normalized,
            Normalized::Flag { gguf, .. } if self.is_gguf() => {
                self.fields().boolean(&self.gguf_key(".expert_weights_norm"))?.unwrap_or(gguf)
            }
            Normalized::Flag { config, absent, .. } => {
                let what = if absent { "weights of experts by their sum" } else { "weights of experts as they are" };
                self.or_absent(self.fields().boolean(config)?, absent, what, config, &self.class_default())
            }
        };
        const JITTER: &str = "router_jitter_noise";
        let score = match (family_score, self.is_gguf()) {
            (RouterScore::SparseMixer { .. }, false) => match self.fields().number(JITTER)? {
                Some(jitter) if (0.0..1.0).contains(&jitter) => RouterScore::SparseMixer { jitter },
                Some(jitter) => return Err(self.value(JITTER, jitter, "a number from 0 to below 1".into())),
                None => family_score,
            },
            (score, _) => score,
        };
        let normalized = normalized.then_some(table.added_to_sum);
        let router_scale = if table.by_root_of_width { 1.0 / (sizes.hidden as f32).sqrt() } else { 1.0 };
        let &ExpertSizes { count: experts, chosen, .. } = experts;
        Ok(Some(Routing { experts, chosen, score, groups, normalized, scale, router_scale }))
    }

    /// The groups of experts, where not all of them may be chosen from.
    fn groups(&self, table: &ExpertTable, score: RouterScore, sizes: &ExpertSizes) -> Result<Option<ExpertGroups>> {
        let Some(groups) = table.groups else {
            return match self.gguf_number(".expert_group_count")? {
                (key, Some(count @ 2..)) => {
                    Err(self.feature(&format!("experts in {count} groups"), &key, "1, or no such key"))
                }
                _ => Ok(None),
            };
        };
        if let (Some((key, [without, with])), false) = (groups.method, self.is_gguf()) {
            match self.fields().text(key)? {
                Some(method) if method == with => {}
                None => return Ok(self.or_absent(None, None, "experts without groups", key, &self.class_default())),
                Some(method) if method == without => return Ok(None),
                Some(other) => {
                    let feature = format!("experts chosen by {other}");
                    return Err(self.feature(&feature, key, &format!("{without} or {with}")));
                }
            }
        }
        let [count_key, chosen_key] = [groups.count, groups.chosen];
        let sized = |key| self.or_table(key, self.size(key)?);
        let Some(count) = sized(count_key)?.filter(|count| *count > 1) else { return Ok(None) };
        let chosen = self.present(chosen_key, sized(chosen_key)?)?;
        if chosen == count {
            return Ok(None);
        }
        let best = if score == RouterScore::Sigmoid { 2 } else { groups.best };
        let size = self.part(count_key, count, table.count[0], sizes.count)?;
        if chosen > count || chosen.saturating_mul(size) < sizes.chosen || size < best {
            let one = format!("{} is {count}, {} is {chosen}", self.key(count_key), self.key(chosen_key));
            return Err(self.contradiction(one, format!("{} of {} experts are chosen", sizes.chosen, sizes.count)));
        }
        Ok(Some(ExpertGroups { count, chosen, best }))
    }

    /// The kind of scores: the family's, or what a GGUF file says where that decides. Refuses a file that says another.
    fn gguf_score(&self, table: &ExpertTable) -> Result<RouterScore> {
        /// llama.cpp's numbers: a softmax, a sigmoid, and a softmax of those that are chosen; 0 is none.
        const SOFTMAX: u64 = 1;
        const SIGMOID: u64 = 2;
        const SOFTMAX_OF_CHOSEN: u64 = 3;
        let (key, function) = self.gguf_number(".expert_gating_func")?;
        let score = if table.gguf_score && function == Some(SIGMOID) { RouterScore::Sigmoid } else { table.score };
        let (known, expected): (&[u64], _) = match score {
            RouterScore::Sigmoid => (&[0, SIGMOID], "2, a sigmoid"),
            _ => (&[0, SOFTMAX, SOFTMAX_OF_CHOSEN], "1, a softmax"),
        };
        match function.filter(|found| !known.contains(found)) {
            Some(found) => Err(self.feature(&format!("experts by function {found}"), &key, expected)),
            None => Ok(score),
        }
    }

    /// Whether a layer has experts, of `layers`.
    pub(super) fn layers_with_experts(&self, layers: usize) -> Result<impl Fn(usize) -> bool + use<>> {
        let (experts, single) = (self.family.experts, self.single_layers()?);
        let (mut step, mut at, mut first, mut dense) = (experts.map(|_| 1), 0, 0, Vec::new());
        match (experts.and_then(|table| table.dense_layers), self.config) {
            (Some(DenseLayers::Listed { step: key, list }), Some(_)) => {
                step = self.interval(key)?.map(|every| every as u64).or(step);
                dense = self.listed_layers(list, layers)?.unwrap_or_default();
            }
            (Some(DenseLayers::First { count, config_default: (default, source), kinds }), config) => {
                let key = self.key(count);
                let is_dense = |kind: &Value| match kind.as_str()? {
                    "dense" => Some(true),
                    "sparse" => Some(false),
                    _ => None,
                };
                first = match (self.listed(kinds, "dense or sparse", is_dense)?, self.fields().unsigned(&key)?) {
                    (Some(listed), _) if listed.len() != layers => {
                        return Err(self.entries(kinds, listed.len(), layers));
                    }
                    (Some(listed), _) => {
                        dense = (0..).zip(listed).filter(|(_, dense)| *dense).map(|(layer, _)| layer).collect();
                        0
                    }
                    (None, Some(count)) if count > layers as u64 => {
                        return Err(self.value(&key, count, format!("at most {layers}, all layers")));
                    }
                    (None, None) if config.is_some() => {
                        let what = format_args!("no experts in the first {default} layers");
                        self.or_absent(None, default as u64, what, &key, source)
                    }
                    (None, count) => count.unwrap_or(0),
                };
            }
            (Some(DenseLayers::ButEvery(key)), _) => {
                let key = self.key(key);
                step = self.fields().unsigned(&key)?.filter(|every| *every > 0);
                at = step.unwrap_or(2).checked_sub(2).ok_or_else(|| self.value(&key, 1, "0, or more than 1".into()))?;
            }
            (Some(DenseLayers::AllButAt(place)), Some(_)) => {
                let [every, found] = self.place(&place)?.map(|number| number as u64);
                (step, at) = (Some(every), every - 1 - found);
            }
            (Some(DenseLayers::Listed { .. } | DenseLayers::AllButAt(_)) | None, _) => {}
        }
        Ok(move |layer: usize| {
            if let Some(single) = &single {
                return single.get(layer) == Some(&SubLayer::Experts);
            }
            let layer = layer as u64;
            let counts = step.is_some_and(|step| (layer + 1 + at).is_multiple_of(step));
            counts && layer >= first && dense.binary_search(&layer).is_err()
        })
    }
}

impl Tensors<'_> {
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
        // In GGUF only sigmoids have one, and llama.cpp asks for it in most families too.
        let has_bias = self.names(Role::ChoiceBias)
            && match self.reader.is_gguf() {
                true => routing.score == RouterScore::Sigmoid,
                false => self.bias_wanted(Role::ChoiceBias, at, &name)?,
            };
        let choice_bias = if has_bias { Some(self.whole_name(Role::ChoiceBias, at)?) } else { None };
        let router_norm = self.whole_name_if_named(Role::RouterNorm, at)?.map(|weight| {
            let kind = Norm::Rms { eps: self.options.norm_eps, offset: false };
            NormWeights { weight, kind }
        });
        let expert_scales = self.whole_name_if_named(Role::ExpertScales, at)?;
        let activation = self.options.factors.activation;
        let activation = activation.try_map(|()| match self.gates_in_turns() {
            true => Ok(ExpertGates::InTurns),
            false => self.expert_matrices(Role::ExpertGate, layer).map(ExpertGates::Apart),
        })?;
        let (up, down) = (self.expert_matrices(Role::ExpertUp, layer)?, self.expert_matrices(Role::ExpertDown, layer)?);
        Ok(ExpertsWeights { router, router_norm, routing, choice_bias, expert_scales, up, activation, down, shared })
    }

    pub(super) fn beside(&mut self, layer: Option<usize>) -> Result<BesideWeights> {
        Ok(BesideWeights {
            norm: self.norm(Role::MlpNorm, layer)?,
            dense: self.dense([Role::Gate, Role::Up, Role::Down], layer)?,
            output_norm: self.norm(Role::DenseOutputNorm, layer)?,
            experts_norm: self.norm(Role::ExpertsOutputNorm, layer)?,
        })
    }

    /// A stored expert for every token whose width no key gives.
    fn refuse_shared_expert(&self, layer: usize) -> Result<()> {
        match self.family.experts.and_then(|table| table.shared_feed_forward) {
            Some(key) if self.stores(&self.weight_name(Role::SharedDown, Some(layer))) => {
                let (fields, key) = (self.reader.fields(), self.reader.key(key));
                Err(missing(fields, &key, "an expert for every token is stored, and a size is never guessed from it"))
            }
            _ => Ok(()),
        }
    }

    /// Whether gate and up projections take turns in one parameter of all experts of a layer: as floats, transposed, or as blocks
    /// of MXFP4 whose scales lie apart (transformers `GptOssExperts`, `integrations/mxfp4.py`).
    fn gates_in_turns(&self) -> bool {
        let apart = self.reader.is_gguf() || self.scheme.is_some_and(Scheme::is_mlx);
        !apart && self.family.experts.is_some_and(|table| table.interleaved)
    }

    /// The projections of `role`, stacked, stacked with others' or in turns with them, or one by one.
    fn expert_matrices(&mut self, role: Role, layer: usize) -> Result<ExpertMatrices> {
        let at = Some(layer);
        let count = self.sizes.experts.map_or(0, |sizes| sizes.count) as u64;
        let (outputs, inputs, because) = self.shape(role, at);
        let times = if self.gates_in_turns() && role == Role::ExpertUp { 2 } else { 1 };
        let outputs = outputs * times;
        let because = match times {
            1 => format!("{count} experts, {because}"),
            _ => format!("{count} experts, {times} rows in turns, {because}"),
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
        let in_turns = self.gates_in_turns();
        if let (Some(scheme), true) = (self.scheme, in_turns || fused.is_none() && !stem.contains("{expert}")) {
            return Err(unsupported(scheme));
        }
        // A parameter of transformers has no suffix, a tensor of GGUF has one.
        let stored = if in_turns {
            let bias = self.stacked_bias(role, layer, &format!("{stem}_bias"), [count, outputs], &because)?;
            let blocks = format!("{stem}_blocks");
            if self.mxfp4 && self.stores(&blocks) {
                vec![LinearWeights { bias, ..self.mxfp4(&stem, [count, outputs, inputs], &because)? }]
            } else {
                let all = self.checked(&stem, &[count, inputs, outputs], &because)?;
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
                let matrix = self.scaled(Rows { tensor, module, before: 0, total: outputs }, role)?;
                match (matrix.scaling, self.scheme) {
                    (Some(Scaling::Int8(_)), Some(scheme)) => Err(unsupported(scheme)),
                    (scaling, _) => Ok(LinearWeights { scaling, ..matrix }),
                }
            };
            (0..count).map(matrix).collect::<Result<_>>()?
        } else {
            let all = self.stacked(&self.weight_name(role, at), [count, outputs, inputs], &because)?;
            let bias = self.stacked_bias(role, layer, &format!("{stem}.bias"), [count, outputs], &because)?;
            let factor = self.gguf_factor(&stem, &all, count)?;
            vec![LinearWeights { bias, factor, ..LinearWeights::new(all) }]
        };
        Ok(ExpertMatrices { stored, outputs: outputs as usize })
    }

    /// The rows of all experts of a layer as one matrix.
    pub(super) fn stacked(&mut self, name: &str, [count, rows, inputs]: [u64; 3], because: &str) -> Result<TensorInfo> {
        let whole = self.checked(name, &[count, rows, inputs], because)?;
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
