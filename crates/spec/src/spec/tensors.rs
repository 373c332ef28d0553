//! Roles -> stored tensors: every weight found by name and checked by shape and dtype.

use super::disentangled::Disentangled;
use super::factors::Factors;
use super::layers::Layers;
use super::names::{fill, nearest};
use super::reader::Reader;
use super::states::StateSizes;
use super::{
    AttentionWeights, DenseWeights, FeedForwardLayer, FeedForwardWeights, KeyValueProjections, KeyValueWeights,
    KeysValues, LayerWeights, LinearWeights, Mixer, MixerWeights, Module, Norm, NormWeights, Routing, Sizes,
};
use crate::block::QkvOrder;
use crate::error::{Error, IncompleteKind, Result};
use crate::family::{ADAPTED, Bias, Family, HeadNorms, NormKind, Parallel, Role, StateLayers};
use crate::header::{Header, TensorInfo, TensorTable};
use crate::quantization::{COLUMNS, Recognised, Scheme};
use model_factory_dtypes::DType;
use std::collections::BTreeSet;
use std::path::Path;

/// What the names of tables begin with, and what those of a safetensors file have in its place.
type Front = (&'static str, &'static str);

/// Looks up the tensors of one model and remembers which were used.
pub(super) struct Tensors<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) family: &'static Family,
    pub(super) header: &'a Header,
    /// The header's tensors, or those with packed weights as matrices.
    pub(super) table: &'a TensorTable,
    pub(super) sizes: Sizes,
    pub(super) options: Options,
    front: Front,
    /// Whether it looks for the tensors of the prediction head.
    pub(super) predicts: bool,
    pub(super) used: BTreeSet<String>,
    /// What quantised the weights, where something did.
    pub(super) scheme: Option<&'a Scheme>,
    /// Whether the model says that weights are in blocks of MXFP4.
    pub(super) mxfp4: bool,
    /// Modules that the scheme covers and whose weights are floats.
    pub(super) plain_modules: Vec<String>,
}

pub(super) struct Options {
    pub(super) norm: NormKind,
    pub(super) norm_eps: f64,
    /// Of norms after sub-layers, where it is another.
    pub(super) output_norm_eps: Option<f64>,
    pub(super) factors: Factors,
    pub(super) layers: Layers,
    pub(super) disentangled: Option<Disentangled>,
}

/// The rows of a matrix or a bias, in a tensor of their own or in a fused one.
pub(super) struct Rows {
    pub(super) tensor: TensorInfo,
    /// The stored tensor's name without `.weight` or `.bias`.
    pub(super) module: String,
    /// Rows of the stored tensor before these.
    pub(super) before: u64,
    /// Rows of the stored tensor in all.
    pub(super) total: u64,
}

/// A stored tensor that holds the rows of several roles.
pub(super) struct Fused {
    roles: &'static [Role],
    /// Its name without suffix.
    pub(super) module: String,
    pub(super) name: String,
    /// Rows before those of the role that was asked for.
    pub(super) before: u64,
    pub(super) total: u64,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(
        reader: &'a Reader<'a>,
        table: &'a TensorTable,
        sizes: Sizes,
        options: Options,
        recognised: &'a Recognised,
    ) -> Self {
        let (header, family) = (reader.header, reader.family);
        Tensors {
            reader,
            family,
            header,
            table,
            sizes,
            options,
            front: front(header, family),
            predicts: false,
            used: BTreeSet::new(),
            scheme: recognised.scheme.as_ref(),
            mxfp4: recognised.mxfp4,
            plain_modules: Vec::new(),
        }
    }

    /// Lets all names of tables begin with `front` in safetensors.
    pub(super) fn set_front(&mut self, front: &'static str) {
        self.front = ("", front);
    }

    /// What all names begin with in safetensors.
    pub(super) fn front(&self) -> &'static str {
        self.front.1
    }

    pub(super) fn sizes(&self, layer: Option<usize>) -> Sizes {
        layer.map_or(self.sizes, |layer| self.options.layers.kinds.sizes(&self.sizes, layer))
    }

    /// Rows and columns of the tensor of `role`, and what they are made of in words.
    pub(super) fn shape(&self, role: Role, layer: Option<usize>) -> (u64, u64, String) {
        self.sizes(layer).shape(role, &self.family.block)
    }

    /// The block `layer`, with experts where it has a routing of these.
    pub(super) fn layer(&mut self, layer: usize, experts: Option<Routing>) -> Result<LayerWeights> {
        let parallel = self.parallel(Some(layer))?;
        let (mixes, feeds_forward) = if self.predicts { (true, true) } else { self.options.layers.sub_layers(layer) };
        let mixer = if mixes { Some(self.mixer(layer)?) } else { None };
        let feed_forward = if feeds_forward { Some(self.feed_forward(layer, experts)?) } else { None };
        let (altup, layer_embedding) = (self.altup_use(layer)?, self.layer_embedding_use(layer)?);
        Ok(LayerWeights { mixer, feed_forward, altup, layer_embedding, scale: self.scale(layer)?, parallel })
    }

    fn mixer(&mut self, layer: usize) -> Result<MixerWeights> {
        let at = Some(layer);
        let unnormed = self.family.block.first_unnormed && layer == 0;
        let norm = if unnormed { None } else { self.norm_if_named(Role::AttentionNorm, at)? };
        let has_state = !self.predicts && self.options.layers.with_state.has(layer);
        let states = self.family.block.states.filter(|_| has_state);
        let state = states.map(|table| self.state_mixer(table.mixer, at)).transpose()?;
        let beside = states.is_some_and(|table| matches!(table.layers, StateLayers::Beside));
        let (mixer, beside) = match state {
            Some(state) if !beside => (state, None),
            beside => (Mixer::Attention(Box::new(self.attention(layer)?)), beside.map(Box::new)),
        };
        Ok(MixerWeights {
            norm,
            layer: mixer,
            beside,
            laurel: self.laurel(layer)?,
            output_norm: self.norm_if_named(Role::AttentionOutputNorm, at)?,
            sum_norm: self.norm_if_named(Role::AttentionSumNorm, at)?,
        })
    }

    fn feed_forward(&mut self, layer: usize, experts: Option<Routing>) -> Result<FeedForwardWeights> {
        let at = Some(layer);
        // A parallel block without a norm of its feed-forward layer has one for both.
        let stems = [Role::MlpNorm, Role::AttentionNorm].map(|role| self.stem(role, at));
        let by_flag = matches!(self.family.block.parallel, Parallel::Flag(_));
        let shared = self.parallel(at)? && (by_flag || stems[0] == stems[1]);
        let mlp_norm = if shared { None } else { self.norm_if_named(Role::MlpNorm, at)? };
        let beside = experts.is_some() && self.names(Role::ExpertsNorm);
        let (mlp_norm, beside) = match beside {
            true => (Some(self.norm(Role::ExpertsNorm, at)?), Some(Box::new(self.beside(at)?))),
            false => (mlp_norm, None),
        };
        let network = match experts {
            Some(routing) => FeedForwardLayer::Experts(Box::new(self.experts(layer, routing)?)),
            None => FeedForwardLayer::Dense(Box::new(self.dense([Role::Gate, Role::Up, Role::Down], at)?)),
        };
        let output_norm = self.norm_if_named(Role::MlpOutputNorm, at)?;
        let sum_norm = self.norm_if_named(Role::MlpSumNorm, at)?;
        Ok(FeedForwardWeights { norm: mlp_norm, layer: network, beside, output_norm, sum_norm })
    }

    fn keys_values(&mut self, layer: usize) -> Result<KeysValues> {
        if let Some(source) = self.options.layers.kinds.source(layer) {
            return Ok(KeysValues::OfLayer(source));
        }
        let at = Some(layer);
        let Sizes { heads, kv_heads, .. } = self.sizes(at);
        let projections = if self.joins_qkv() {
            match self.family.block.qkv_order {
                QkvOrder::AfterQueries => KeyValueProjections::AfterQueries,
                QkvOrder::ByHeads => KeyValueProjections::ByHeads,
                QkvOrder::Groups(count) if heads.is_multiple_of(count) && kv_heads.is_multiple_of(count) => {
                    KeyValueProjections::Groups(count)
                }
                QkvOrder::Groups(count) => {
                    let one = format!("{} is {heads}", self.reader.key(self.family.files.keys.heads));
                    return Err(self.reader.contradiction(one, format!("heads lie in {count} groups")));
                }
            }
        } else {
            let stored = self.reader.is_gguf() && self.stores(&self.weight_name(Role::V, at));
            let keys_are_values = self.options.layers.kinds.keys_are_values(layer) && !stored;
            let k = self.matrix(Role::K, at)?;
            let v = if keys_are_values { None } else { Some(self.matrix(Role::V, at)?) };
            KeyValueProjections::Apart { k, v }
        };
        Ok(KeysValues::Own(Box::new(KeyValueWeights {
            projections,
            k_norm: self.head_norm(Role::KNorm, at)?,
            v_norm_eps: self.family.block.value_norm.then_some(self.options.norm_eps),
        })))
    }

    /// Whether queries, keys and values are in one matrix whose parts are no rows of it one after the other, or are columns.
    fn joins_qkv(&self) -> bool {
        self.family.name_of(Role::Qkv).is_some_and(|names| !self.pattern(names.gguf, names.config).is_empty())
    }

    fn attention(&mut self, layer: usize) -> Result<AttentionWeights> {
        let at = Some(layer);
        let Sizes { heads, kv_heads, head_dim, latent, .. } = self.sizes(at);
        let (q, kv) = match latent {
            Some(latent) => self.latent(layer, latent)?,
            None => (self.matrix(if self.joins_qkv() { Role::Qkv } else { Role::Q }, at)?, self.keys_values(layer)?),
        };
        Ok(AttentionWeights {
            heads,
            kv_heads,
            head_dim,
            q,
            gated: self.family.block.gated_attention,
            causal: !self.reader.encodes()?,
            kv,
            q_norm: self.head_norm(Role::QNorm, at)?,
            norms_each_head: self.family.block.head_norms == HeadNorms::OfEachHead,
            norms_rotated: self.family.block.norms_rotated,
            rope: self.options.layers.rope(layer),
            score_scale: self.options.factors.score_scale,
            score_cap: self.options.factors.score_cap,
            alibi: self.options.factors.alibi,
            qkv_limit: self.options.factors.qkv_limit,
            positions: self.position_scores(layer)?,
            sinks: if self.names(Role::Sinks) { Some(self.sinks(layer)?) } else { None },
            query_scale: self.options.layers.query_scale(layer, &self.family.rope),
            window: self.options.layers.window(layer),
            chunked: self.options.layers.chunked(layer),
            gates: self.family.block.attention_gate.map_or(0, |_| self.shape(Role::AttentionGate, at).0 as usize),
            softplus_gates: self.family.block.softplus_gates,
            gate: self.family.block.attention_gate.map(|_| self.matrix(Role::AttentionGate, at)).transpose()?,
            o: self.matrix(Role::O, at)?,
        })
    }

    /// A feed-forward layer whose gate, up and down projections have these roles.
    pub(super) fn dense(&mut self, [gate, up, down]: [Role; 3], layer: Option<usize>) -> Result<DenseWeights> {
        let activation = self.options.factors.activation;
        let activation = activation.try_map(|()| self.matrix(gate, layer))?;
        let (up, down) = (self.matrix(up, layer)?, self.matrix(down, layer)?);
        let sparsity = layer.and_then(|layer| self.options.layers.sparsity(layer));
        Ok(DenseWeights { activation, sparsity, curve: self.curve(layer)?, up, down })
    }

    /// A linear layer's weight `[outputs, inputs]` and its bias, fused tensors resolved into their rows.
    pub(super) fn matrix(&mut self, role: Role, layer: Option<usize>) -> Result<LinearWeights> {
        let (outputs, inputs, because) = self.shape(role, layer);
        let transposed = self.family.files.transposed && !self.reader.is_gguf() && layer.is_some();
        let rows = match self.rows_of_fused(role, layer, Some(inputs))? {
            Some(rows) => rows,
            None => {
                let shape = if transposed { [inputs, outputs] } else { [outputs, inputs] };
                let tensor = self.checked(&format!("{}.weight", self.own_or_fused(role, layer)), &shape, &because);
                let tensor = self.explained(tensor, &[role], layer)?;
                Rows { tensor, module: self.stem(role, layer), before: 0, total: outputs }
            }
        };
        if transposed {
            self.check_float(&rows.tensor, "a float (matrices that are stored by inputs)")?;
        }
        let multipliers = self.multipliers(role, outputs as usize);
        let whole = || Module { before: rows.before, ..Module::whole(rows.module.clone(), rows.total) };
        let module = ADAPTED.contains(&role).then(whole);
        Ok(LinearWeights { transposed, bias: self.bias(role, layer)?, multipliers, module, ..self.scaled(rows, role)? })
    }

    /// What the products of a matrix of `role` are multiplied by.
    fn multipliers(&self, role: Role, outputs: usize) -> Vec<(usize, f32)> {
        let Factors { products, state_inputs, .. } = &self.options.factors;
        let all: f64 = products.iter().filter(|(roles, _)| roles.contains(&role)).map(|(_, factor)| factor).product();
        let StateSizes { key_heads, key_dim, .. } = self.sizes.states.unwrap_or_default();
        let (values, keys) = (outputs.saturating_sub(2 * key_heads * key_dim), key_heads * key_dim);
        let ends = if role == Role::MambaInput { vec![values, values + keys, outputs] } else { vec![outputs] };
        let of = |(end, part): (usize, &f64)| (end, (all * part) as f32);
        let parts = if role == Role::MambaInput { state_inputs } else { &[1.0; 3] };
        let multipliers: Vec<_> = ends.into_iter().zip(parts).map(of).collect();
        if multipliers.iter().all(|(_, factor)| *factor == 1.0) { Vec::new() } else { multipliers }
    }

    /// The matrix in `rows` with its scales, or of floats.
    pub(super) fn scaled(&mut self, rows: Rows, role: Role) -> Result<LinearWeights> {
        let scaling = self.scaling(&rows, role)?;
        if scaling.is_none() {
            self.check_matrix_dtype(&rows.tensor)?;
        }
        let factor = self.factor(&rows)?;
        Ok(LinearWeights { scaling, factor, ..LinearWeights::new(rows.tensor) })
    }

    pub(super) fn bias(&mut self, role: Role, layer: Option<usize>) -> Result<Option<TensorInfo>> {
        let name = format!("{}.bias", self.stem(role, layer));
        if !self.bias_wanted(role, layer, &name)? {
            return Ok(None);
        }
        match self.rows_of_fused(role, layer, None)? {
            Some(Rows { tensor, .. }) => self.check_vector_dtype(&tensor).map(|()| Some(tensor)),
            None => self.vector(role, layer, &format!("{}.bias", self.own_or_fused(role, layer))).map(Some),
        }
    }

    pub(super) fn norm(&mut self, role: Role, layer: Option<usize>) -> Result<NormWeights> {
        self.norm_with(role, layer, self.norm_eps(role))
    }

    /// The norm of `role` with an epsilon of its own.
    pub(super) fn norm_with(&mut self, role: Role, layer: Option<usize>, eps: f64) -> Result<NormWeights> {
        // The converter of Falcon-H1 leaves the suffix of one out.
        let (name, stem) = (self.weight_name(role, layer), self.stem(role, layer));
        let name = if !self.stores(&name) && self.stores(&stem) { stem.clone() } else { name };
        // A norm whose name is empty has no tensor.
        let weight = if stem.is_empty() { None } else { Some(self.vector(role, layer, &name)?) };
        let (width, gguf) = (self.shape(role, layer).0 as usize, self.reader.is_gguf());
        let kind = match self.options.norm {
            NormKind::Layer | NormKind::LayerFromOne => {
                let offset = !gguf && self.options.norm == NormKind::LayerFromOne;
                Norm::Layer { eps, offset, bias: Some(self.vector(role, layer, &format!("{stem}.bias"))?) }
            }
            NormKind::PlainLayer => Norm::Layer { eps, offset: false, bias: None },
            NormKind::Rms => Norm::Rms { eps, offset: false },
            NormKind::RmsFromOne => {
                let plain = role == Role::StateNorm || role == Role::FinalNorm && self.family.block.plain_final_norm;
                Norm::Rms { eps, offset: !gguf && !plain && weight.is_some() }
            }
        };
        Ok(NormWeights { weight, width, kind })
    }

    fn norm_eps(&self, role: Role) -> f64 {
        let of_outputs = matches!(role, Role::AttentionOutputNorm | Role::MlpOutputNorm);
        self.options.output_norm_eps.filter(|_| of_outputs).unwrap_or(self.options.norm_eps)
    }

    /// A norm that families have whose tables name its tensor.
    pub(super) fn norm_if_named(&mut self, role: Role, layer: Option<usize>) -> Result<Option<NormWeights>> {
        if self.names(role) && self.of_this_kind(role, layer) { self.norm(role, layer).map(Some) } else { Ok(None) }
    }

    /// Whether `layer` is of the kind that has the norm, where layers with a state and others have different ones.
    fn of_this_kind(&self, role: Role, layer: Option<usize>) -> bool {
        let (Some(states), Some(layer)) = (self.family.block.states, layer) else { return true };
        let others = if self.options.layers.with_state.has(layer) { states.other_norms } else { states.own_norms };
        !others.contains(&role)
    }

    fn parallel(&self, layer: Option<usize>) -> Result<bool> {
        Ok(match self.family.block.parallel {
            Parallel::No => false,
            Parallel::Yes => true,
            Parallel::Flag(_) if self.reader.is_gguf() => !self.stores(&self.weight_name(Role::MlpNorm, layer)),
            Parallel::Flag(flag) => self.reader.flag(flag)?.unwrap_or(false),
            Parallel::UnlessFlag(flag) => self.reader.fields().boolean(&self.reader.key(flag))?.unwrap_or(true),
        })
    }

    /// The scores of the attention's sinks: in safetensors a parameter of its own, without `.weight`.
    fn sinks(&mut self, layer: usize) -> Result<TensorInfo> {
        let at = Some(layer);
        let name = if self.reader.is_gguf() { self.weight_name(Role::Sinks, at) } else { self.stem(Role::Sinks, at) };
        self.vector(Role::Sinks, at, &name)
    }

    pub(super) fn names(&self, role: Role) -> bool {
        self.family.name_of(role).is_some()
    }

    pub(super) fn stores(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    pub(super) fn vector(&mut self, role: Role, layer: Option<usize>, name: &str) -> Result<TensorInfo> {
        let (width, ..) = self.shape(role, layer);
        self.floats(role, layer, name, &[width])
    }

    /// The floats of `role`, stored as `name` in this `shape`.
    pub(super) fn floats(&mut self, role: Role, layer: Option<usize>, name: &str, shape: &[u64]) -> Result<TensorInfo> {
        let stored = self.checked(name, shape, &self.shape(role, layer).2);
        let stored = self.explained(stored, &[role], layer)?;
        self.check_vector_dtype(&stored)?;
        Ok(stored)
    }

    /// The name in this format, empty where it has none.
    pub(super) fn pattern(&self, gguf: &str, config: &str) -> String {
        let (table, file) = if self.predicts { ("model.", "mtp.") } else { self.front };
        match config.strip_prefix(table) {
            _ if self.reader.is_gguf() => gguf.to_owned(),
            Some(rest) if !config.is_empty() => format!("{file}{rest}"),
            _ => config.to_owned(),
        }
    }

    /// The name of the tensor of `role`, without `.weight` or `.bias`.
    pub(super) fn stem(&self, role: Role, layer: Option<usize>) -> String {
        let names = self.family.names_of(role).map(|names| fill(&self.pattern(names.gguf, names.config), layer));
        let names: Vec<String> = names.collect();
        let stored = names.iter().find(|name| self.stores(&format!("{name}.weight")) || self.stores(name));
        stored.or(names.first()).cloned().unwrap_or_default()
    }

    /// The same, or that of the fused tensor where the role has no name of its own.
    fn own_or_fused(&self, role: Role, layer: Option<usize>) -> String {
        let stem = self.stem(role, layer);
        let fused = || self.fused(role, layer).next().map(|(_, module)| module);
        if stem.is_empty() { fused().unwrap_or(stem) } else { stem }
    }

    pub(super) fn weight_name(&self, role: Role, layer: Option<usize>) -> String {
        format!("{}.weight", self.stem(role, layer))
    }

    pub(super) fn checked(&mut self, name: &str, expected: &[u64], because: &str) -> Result<TensorInfo> {
        let Some(tensor) = self.table.get(name) else {
            return Err(self.reader.absent_tensor(name, nearest(name, self.table.keys())));
        };
        let count = expected.iter().try_fold(1_u64, |count, side| count.checked_mul(*side));
        let flat = is_flat(tensor) && count == tensor.shape.first().copied();
        if tensor.shape != expected && !flat {
            return Err(self.wrong_shape(tensor, expected.to_vec(), because.to_owned()));
        }
        self.used.insert(name.to_owned());
        Ok(TensorInfo { shape: expected.to_vec(), ..tensor.clone() })
    }

    /// The fused tensors that may hold the rows of `role`: the roles in them, and their names without suffix.
    fn fused(&self, role: Role, layer: Option<usize>) -> impl Iterator<Item = (&'static [Role], String)> {
        let fused = self.family.fused.iter().filter(move |fused| fused.roles.contains(&role));
        fused.filter_map(move |fused| {
            let name = if self.reader.is_gguf() { fused.gguf } else { fused.config };
            // One of its parts may have the same name where the others are apart (older files of Jina BERT).
            let module = fill(&self.pattern(name, name), layer);
            let apart = |role: &Role| {
                let own = self.weight_name(*role, layer);
                own != format!("{module}.weight") && self.stores(&own)
            };
            let apart = self.reader.is_gguf() && fused.roles.iter().any(apart);
            (!name.is_empty() && !apart).then_some((fused.roles, module))
        })
    }

    /// The first of [`fused`](Self::fused) that is stored with one of `suffixes`.
    pub(super) fn stored_fused(&self, role: Role, layer: Option<usize>, suffixes: &[&str]) -> Option<Fused> {
        let named = |(roles, module): (&'static [Role], String)| {
            let name = suffixes.iter().map(|suffix| format!("{module}{suffix}")).find(|name| self.stores(name))?;
            let rows = |role: &Role| self.shape(*role, layer).0;
            let before = roles.iter().take_while(|part| **part != role).map(rows).sum();
            Some(Fused { roles, module, name, before, total: roles.iter().map(rows).sum() })
        };
        self.fused(role, layer).find_map(named)
    }

    /// The rows of `role` in a fused tensor, if the file has one. `inputs` is `None` for a bias.
    fn rows_of_fused(&mut self, role: Role, layer: Option<usize>, inputs: Option<u64>) -> Result<Option<Rows>> {
        let suffix = if inputs.is_some() { ".weight" } else { ".bias" };
        let Some(fused) = self.stored_fused(role, layer, &[suffix]) else { return Ok(None) };
        let Fused { roles, module, name, before, total } = fused;
        let because = format!("the rows of {roles:?} one after the other");
        let shape: Vec<u64> = std::iter::once(total).chain(inputs).collect();
        let whole = self.checked(&name, &shape, &because);
        let whole = self.explained(whole, roles, layer)?;
        let shape: Vec<u64> = std::iter::once(self.shape(role, layer).0).chain(inputs).collect();
        let tensor = match whole.name.ends_with(COLUMNS) {
            true => columns_of(whole, [total, shape[0]], shape),
            false => rows_of(whole, before, total, shape),
        };
        Ok(Some(Rows { tensor, module, before, total }))
    }

    pub(super) fn bias_wanted(&self, role: Role, layer: Option<usize>, name: &str) -> Result<bool> {
        let Some((_, bias)) = self.family.biases.iter().find(|(roles, _)| roles.contains(&role)) else {
            return Ok(false);
        };
        Ok(match bias {
            Bias::Always => true,
            Bias::Flag(_) | Bias::UnlessFlag(_) if self.reader.is_gguf() => {
                self.stores(name) || self.stored_fused(role, layer, &[".bias"]).is_some()
            }
            Bias::Flag(flag) => self.reader.flag(flag)?.unwrap_or(false),
            Bias::UnlessFlag(flag) => self.reader.flag(flag)?.unwrap_or(true),
        })
    }

    pub(super) fn file_of(&self, tensor: &TensorInfo) -> &Path {
        &self.header.source.files[tensor.file].path
    }

    pub(super) fn check_matrix_dtype(&self, tensor: &TensorInfo) -> Result<()> {
        match tensor.dtype {
            DType::I8 | DType::U8 | DType::F4 | DType::F8_E4M3 => Err(Error::Quantization {
                file: self.file_of(tensor).into(),
                scheme: format!("tensor {} of {} without a quantization_config", tensor.name, tensor.dtype),
                why: "its scales are unknown".into(),
            }),
            DType::NF4 | DType::FP4 | DType::S8 => Err(Error::Quantization {
                file: self.file_of(tensor).into(),
                scheme: format!("tensor {} of {} for several matrices", tensor.name, tensor.dtype),
                why: "bitsandbytes' weights are computed as a linear layer of their own each".into(),
            }),
            dtype if holds_no_weights(dtype) => Err(self.wrong_dtype(tensor, "a float or a block type")),
            _ => Ok(()),
        }
    }

    /// Norms and biases are floats; whether the machine reads this kind of float is the capability table's answer.
    pub(super) fn check_vector_dtype(&self, tensor: &TensorInfo) -> Result<()> {
        match matches!(tensor.dtype, DType::I8 | DType::U8) || holds_no_weights(tensor.dtype) {
            true => Err(self.wrong_dtype(tensor, "a float (norms and biases)")),
            false => Ok(()),
        }
    }

    /// Scales are plain floats, and only those are multiplied by columns.
    pub(super) fn check_float(&self, tensor: &TensorInfo, expected: &'static str) -> Result<()> {
        match tensor.dtype {
            DType::F32 | DType::F16 | DType::BF16 => Ok(()),
            _ => Err(self.wrong_dtype(tensor, expected)),
        }
    }

    pub(super) fn wrong_dtype(&self, tensor: &TensorInfo, expected: &'static str) -> Error {
        let kind = IncompleteKind::TensorDType { name: tensor.name.clone(), found: tensor.dtype, expected };
        Error::incomplete(self.file_of(tensor), kind)
    }

    pub(super) fn wrong_shape(&self, tensor: &TensorInfo, expected: Vec<u64>, because: String) -> Error {
        let (name, found) = (tensor.name.clone(), tensor.shape.clone());
        Error::incomplete(self.file_of(tensor), IncompleteKind::TensorShape { name, found, expected, because })
    }
}

/// Whether the tensor is one row of all codes of a matrix.
pub(super) fn is_flat(tensor: &TensorInfo) -> bool {
    matches!(tensor.dtype, DType::NF4 | DType::FP4)
}

/// Whether tensors of `dtype` are no weights: numbers that count, truth values, complex numbers.
fn holds_no_weights(dtype: DType) -> bool {
    use DType::{Bool, C64, I16, I32, I64, U16, U32, U64};
    matches!(dtype, Bool | C64 | I16 | I32 | I64 | U16 | U32 | U64)
}

/// How the names of a language model's tensors begin, as far as the file has them in another place than the tables.
fn front(header: &Header, family: &'static Family) -> Front {
    let any = |prefix: &str| header.tensors.keys().any(|name| name.starts_with(prefix));
    let embedding = family.name_of(Role::Embedding).map_or("", |names| names.config);
    let (model, embedding) = embedding.split_at(embedding.find('.').map_or(0, |dot| dot + 1));
    if any("language_model.model.") {
        // transformers 4 wrote models that also see like this.
        ("", "language_model.")
    } else if any("model.language_model.") {
        // transformers 5; the head stands outside.
        ("model.", "model.language_model.")
    } else if any("model.text_model.") {
        // Idefics 3 and SmolVLM.
        ("model.", "model.text_model.")
    } else {
        // `AutoModel` of transformers leaves out the name of the model within one with a head. transformers 5 may write its own
        // name of it, and GTE's own code has another.
        let fronts = ["", "model.", "new."].iter();
        let mut stored = fronts.filter(|front| !any(model) && any(&format!("{front}{embedding}.")));
        stored.next().filter(|_| !model.is_empty()).map_or(("", ""), |front| (model, *front))
    }
}

/// The part of `whole` with this `shape`, `some` of `total` columns: its share of the bytes, from the beginning of all.
pub(super) fn columns_of(whole: TensorInfo, [total, some]: [u64; 2], shape: Vec<u64>) -> TensorInfo {
    TensorInfo { shape, bytes: whole.bytes / total.max(1) * some, ..whole }
}

/// The part of `whole` with this `shape`, from row `before` on of `total` rows.
pub(super) fn rows_of(whole: TensorInfo, before: u64, total: u64, shape: Vec<u64>) -> TensorInfo {
    // A row holds whole blocks: the header's reader has checked that, so the division is exact.
    let row_bytes = whole.bytes / total;
    let bytes = shape.first().copied().unwrap_or(1) * row_bytes;
    TensorInfo { shape, offset: whole.offset + before * row_bytes, bytes, ..whole }
}
