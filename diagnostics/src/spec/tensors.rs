//! Roles -> stored tensors: every weight found by name and checked by shape and dtype.

use super::layers::Layers;
use super::reader::Reader;
use super::{
    AttentionWeights, DenseWeights, FeedForwardLayer, FeedForwardWeights, LayerWeights, LinearWeights, Norm,
    NormWeights, Routing, Sizes,
};
use crate::dtype::DType;
use crate::error::{Error, IncompleteKind, Result};
use crate::family::{Bias, Family, NormKind, Role};
use crate::header::{Header, TensorInfo};
use crate::quantization::Scheme;
use std::collections::HashSet;
use std::path::Path;

/// Looks up the tensors of one model and remembers which were used.
pub(super) struct Tensors<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) family: &'static Family,
    pub(super) header: &'a Header,
    pub(super) sizes: &'a Sizes,
    options: Options,
    place: Place,
    used: HashSet<String>,
    /// What quantised the weights, where something did.
    pub(super) scheme: Option<&'a Scheme>,
    /// Modules that the scheme covers and whose weights are floats.
    pub(super) plain_modules: Vec<String>,
}

/// What the metadata says of the layers.
pub(super) struct Options {
    pub(super) norm_eps: f64,
    pub(super) score_scale: f32,
    pub(super) score_cap: Option<f32>,
    /// What differs from layer to layer.
    pub(super) layers: Layers,
}

/// Where the names of a language model's tensors stand in the names of safetensors files.
#[derive(Clone, Copy)]
enum Place {
    /// As the tables have them.
    Whole,
    /// Behind `language_model.`, as transformers 4 wrote models that also see.
    Before,
    /// Behind `model.language_model.`, but for the head: transformers 5.
    Behind,
}

impl Place {
    fn of(header: &Header) -> Place {
        let any = |prefix: &str| header.tensors.keys().any(|name| name.starts_with(prefix));
        if any("language_model.model.") {
            Place::Before
        } else if any("model.language_model.") {
            Place::Behind
        } else {
            Place::Whole
        }
    }
}

/// The rows of a matrix or a bias, in a tensor of their own or in a fused one.
pub(super) struct Rows {
    /// The rows.
    pub(super) tensor: TensorInfo,
    /// The stored tensor's name without `.weight` or `.bias`.
    pub(super) module: String,
    /// Rows of the stored tensor before these.
    pub(super) before: u64,
    /// Rows of the stored tensor in all.
    pub(super) total: u64,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(
        reader: &'a Reader<'a>,
        family: &'static Family,
        header: &'a Header,
        sizes: &'a Sizes,
        options: Options,
        scheme: Option<&'a Scheme>,
    ) -> Self {
        let place = Place::of(header);
        Tensors {
            reader,
            family,
            header,
            sizes,
            options,
            place,
            used: HashSet::new(),
            scheme,
            plain_modules: Vec::new(),
        }
    }

    /// The block `layer`, with experts where it has a routing of these.
    pub(super) fn layer(&mut self, layer: usize, experts: Option<Routing>) -> Result<LayerWeights> {
        let (at, parallel) = (Some(layer), self.family.parallel);
        let (window, rope) = (self.options.layers.window(layer), self.options.layers.rope(layer));
        let norm = self.norm_if_named(Role::AttentionNorm, at)?;
        let mlp_norm = if parallel { norm.clone() } else { self.norm_if_named(Role::MlpNorm, at)? };
        let attention = AttentionWeights {
            norm,
            q: self.matrix(Role::Q, at)?,
            k: self.matrix(Role::K, at)?,
            v: self.matrix(Role::V, at)?,
            q_norm: self.norm_if_named(Role::QNorm, at)?,
            k_norm: self.norm_if_named(Role::KNorm, at)?,
            rope,
            score_scale: self.options.score_scale,
            score_cap: self.options.score_cap,
            window,
            o: self.matrix(Role::O, at)?,
            output_norm: self.norm_if_named(Role::AttentionOutputNorm, at)?,
        };
        let network = match experts {
            Some(routing) => FeedForwardLayer::Experts(Box::new(self.experts(layer, routing)?)),
            None => FeedForwardLayer::Dense(Box::new(self.dense([Role::Gate, Role::Up, Role::Down], at)?)),
        };
        let output_norm = self.norm_if_named(Role::MlpOutputNorm, at)?;
        let feed_forward = FeedForwardWeights { norm: mlp_norm, layer: network, output_norm };
        Ok(LayerWeights { attention, feed_forward, parallel })
    }

    /// A feed-forward layer whose gate, up and down projections have these roles.
    pub(super) fn dense(&mut self, [gate, up, down]: [Role; 3], layer: Option<usize>) -> Result<DenseWeights> {
        let activation = self.family.activation.0.try_map(|()| self.matrix(gate, layer))?;
        Ok(DenseWeights { activation, up: self.matrix(up, layer)?, down: self.matrix(down, layer)? })
    }

    /// A linear layer's weight `[outputs, inputs]` and its bias, fused tensors resolved into their rows.
    pub(super) fn matrix(&mut self, role: Role, layer: Option<usize>) -> Result<LinearWeights> {
        let stem = self.stem(role, layer);
        let name = format!("{stem}.weight");
        let (outputs, inputs, because) = self.sizes.of(role);
        let rows = match self.rows_of_fused(role, layer, "weight", Some(inputs))? {
            Some(rows) => rows,
            None => {
                let tensor = self.checked(&name, &[outputs, inputs], &because)?;
                Rows { tensor, module: stem, before: 0, total: outputs }
            }
        };
        let int8 = self.int8(&rows, role)?;
        if int8.is_none() {
            self.check_matrix_dtype(&rows.tensor)?;
        }
        Ok(LinearWeights { weight: rows.tensor, bias: self.bias(role, layer)?, int8 })
    }

    /// The bias of a linear layer, where it has one.
    pub(super) fn bias(&mut self, role: Role, layer: Option<usize>) -> Result<Option<TensorInfo>> {
        let name = format!("{}.bias", self.stem(role, layer));
        if !self.bias_wanted(role, layer, &name)? {
            return Ok(None);
        }
        let bias = match self.rows_of_fused(role, layer, "bias", None)? {
            Some(bias) => bias.tensor,
            None => {
                let (outputs, _, because) = self.sizes.of(role);
                self.checked(&name, &[outputs], &because)?
            }
        };
        self.check_vector_dtype(&bias)?;
        Ok(Some(bias))
    }

    pub(super) fn norm(&mut self, role: Role, layer: Option<usize>) -> Result<NormWeights> {
        let weight = self.vector(role, layer, "weight")?;
        let eps = self.options.norm_eps;
        let kind = match self.family.norm {
            NormKind::Layer => Norm::Layer { eps, bias: self.vector(role, layer, "bias")? },
            NormKind::Rms => Norm::Rms { eps, offset: false },
            NormKind::RmsFromOne => Norm::Rms { eps, offset: !self.reader.is_gguf() },
        };
        Ok(NormWeights { weight, kind })
    }

    /// A norm that families have whose tables name its tensor.
    fn norm_if_named(&mut self, role: Role, layer: Option<usize>) -> Result<Option<NormWeights>> {
        if self.names(role) { self.norm(role, layer).map(Some) } else { Ok(None) }
    }

    /// Whether the family's tables name a tensor of `role`.
    pub(super) fn names(&self, role: Role) -> bool {
        self.family.tensors.iter().copied().flatten().any(|names| names.role == role)
    }

    fn vector(&mut self, role: Role, layer: Option<usize>, suffix: &str) -> Result<TensorInfo> {
        let (width, _, because) = self.sizes.of(role);
        let vector = self.checked(&format!("{}.{suffix}", self.stem(role, layer)), &[width], &because)?;
        self.check_vector_dtype(&vector)?;
        Ok(vector)
    }

    pub(super) fn mark_used(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }

    /// The stored tensors no role asked for. One that belongs to a layer past the last is a contradiction.
    pub(super) fn unused(&self) -> Result<Vec<String>> {
        let unused: Vec<String> =
            self.header.tensors.keys().filter(|name| !self.used.contains(*name)).cloned().collect();
        let layers = self.sizes.layers;
        for name in &unused {
            let layer = self.family.tensors.iter().copied().flatten().find_map(|names| {
                let pattern = self.pattern(names.gguf, names.config);
                let (prefix, _) = pattern.split_once("{}")?;
                name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok()
            });
            if let Some(layer) = layer
                && layer >= layers
            {
                let key = self.reader.key(self.family.keys.layers);
                return Err(self.reader.contradiction(
                    format!("{key} is {layers}"),
                    format!("tensor {name} belongs to layer {layer}, counted from 0"),
                ));
            }
        }
        Ok(unused)
    }

    /// The name in this format. A language model within another has `language_model` in front, or behind `model`.
    pub(super) fn pattern(&self, gguf: &str, config: &str) -> String {
        if self.reader.is_gguf() {
            return gguf.to_owned();
        }
        match self.place {
            Place::Whole => config.to_owned(),
            Place::Before => format!("language_model.{config}"),
            Place::Behind => {
                config.strip_prefix("model.").map_or(config.to_owned(), |rest| format!("model.language_model.{rest}"))
            }
        }
    }

    pub(super) fn stem(&self, role: Role, layer: Option<usize>) -> String {
        let names = self.family.tensors.iter().copied().flatten().find(|names| names.role == role);
        let pattern = names.map(|names| self.pattern(names.gguf, names.config)).unwrap_or_default();
        fill(&pattern, layer)
    }

    /// The tensor `name` if it has `expected` shape.
    pub(super) fn checked(&mut self, name: &str, expected: &[u64], because: &str) -> Result<TensorInfo> {
        let file = self.reader.fields().file();
        let Some(tensor) = self.header.tensors.get(name) else {
            let nearest = nearest(name, self.header.tensors.keys());
            return Err(Error::incomplete(file, IncompleteKind::TensorMissing { name: name.to_owned(), nearest }));
        };
        if tensor.shape != expected {
            return Err(self.wrong_shape(tensor, expected.to_vec(), because.to_owned()));
        }
        self.used.insert(name.to_owned());
        Ok(tensor.clone())
    }

    /// The rows of `role` in a fused tensor, if the file has one. `inputs` is `None` for a bias.
    fn rows_of_fused(
        &mut self,
        role: Role,
        layer: Option<usize>,
        suffix: &str,
        inputs: Option<u64>,
    ) -> Result<Option<Rows>> {
        for fused in self.family.fused.iter().filter(|fused| fused.roles.contains(&role)) {
            let Some(name) = (if self.reader.is_gguf() { fused.gguf } else { fused.config }) else { continue };
            let module = fill(&self.pattern(name, name), layer);
            let name = format!("{module}.{suffix}");
            if !self.header.tensors.contains_key(&name) {
                continue;
            }
            let rows = |role: Role| self.sizes.of(role).0;
            let total: u64 = fused.roles.iter().map(|role| rows(*role)).sum();
            let before: u64 = fused.roles.iter().take_while(|part| **part != role).map(|role| rows(*role)).sum();
            let because = format!("the rows of {:?} one after the other", fused.roles);
            let shape: Vec<u64> = std::iter::once(total).chain(inputs).collect();
            let whole = self.checked(&name, &shape, &because)?;
            let shape = std::iter::once(rows(role)).chain(inputs).collect();
            return Ok(Some(Rows { tensor: rows_of(whole, before, total, shape), module, before, total }));
        }
        Ok(None)
    }

    fn bias_wanted(&self, role: Role, layer: Option<usize>, name: &str) -> Result<bool> {
        let Some((_, bias)) = self.family.biases.iter().find(|(roles, _)| roles.contains(&role)) else {
            return Ok(false);
        };
        Ok(match bias {
            Bias::Always => true,
            Bias::Flag(_) if self.reader.is_gguf() => {
                let fused = self.family.fused.iter().filter(|fused| fused.roles.contains(&role));
                let fused =
                    fused.filter_map(|fused| fused.gguf).map(|pattern| format!("{}.bias", fill(pattern, layer)));
                fused.chain([name.to_owned()]).any(|name| self.header.tensors.contains_key(&name))
            }
            Bias::Flag(flag) => self.reader.fields().boolean(flag)?.unwrap_or(false),
        })
    }

    pub(super) fn file_of(&self, tensor: &TensorInfo) -> &Path {
        &self.header.source.files[tensor.file].path
    }

    pub(super) fn check_matrix_dtype(&self, tensor: &TensorInfo) -> Result<()> {
        match tensor.dtype {
            DType::I8 | DType::U8 => Err(Error::Quantization {
                file: self.file_of(tensor).into(),
                scheme: format!("tensor {} of {} without a quantization_config", tensor.name, tensor.dtype),
                why: "its scales are unknown".into(),
            }),
            DType::Bool | DType::C64 | DType::I16 | DType::I32 | DType::I64 | DType::U16 | DType::U32 | DType::U64 => {
                Err(self.wrong_dtype(tensor, "a float or a block type"))
            }
            _ => Ok(()),
        }
    }

    /// Norms and biases are floats; whether the machine reads this kind of float is the capability table's answer.
    fn check_vector_dtype(&self, tensor: &TensorInfo) -> Result<()> {
        match tensor.dtype {
            DType::Bool | DType::C64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {}
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => {}
            _ => return Ok(()),
        }
        Err(self.wrong_dtype(tensor, "a float (norms and biases)"))
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

impl Sizes {
    /// Rows, columns and, in words, why.
    pub(super) fn of(&self, role: Role) -> (u64, u64, String) {
        let &Sizes { hidden, feed_forward, heads, kv_heads, head_dim, vocab, .. } = self;
        let size = |outputs: usize, inputs: usize, because: String| (outputs as u64, inputs as u64, because);
        let sizes = self.experts;
        let (experts, expert, shared) =
            sizes.map_or((0, 0, 0), |sizes| (sizes.count, sizes.feed_forward, sizes.shared_feed_forward));
        match role {
            Role::Embedding | Role::Head => size(vocab, hidden, format!("vocabulary {vocab}, width {hidden}")),
            Role::Q => size(heads * head_dim, hidden, format!("{heads} heads of {head_dim} elements, width {hidden}")),
            Role::K | Role::V => {
                let because = format!("{kv_heads} key and value heads of {head_dim} elements, width {hidden}");
                size(kv_heads * head_dim, hidden, because)
            }
            Role::O => size(hidden, heads * head_dim, format!("width {hidden}, {heads} heads of {head_dim} elements")),
            Role::Gate | Role::Up => {
                size(feed_forward, hidden, format!("feed-forward width {feed_forward}, width {hidden}"))
            }
            Role::Down => size(hidden, feed_forward, format!("width {hidden}, feed-forward width {feed_forward}")),
            Role::Router => size(experts, hidden, format!("{experts} experts, width {hidden}")),
            Role::SharedRouter => size(1, hidden, format!("one row, width {hidden}")),
            Role::ExpertGate | Role::ExpertUp => size(expert, hidden, format!("expert width {expert}, width {hidden}")),
            Role::ExpertDown => size(hidden, expert, format!("width {hidden}, expert width {expert}")),
            Role::SharedGate | Role::SharedUp => {
                size(shared, hidden, format!("width {shared} of the shared expert, width {hidden}"))
            }
            Role::SharedDown => size(hidden, shared, format!("width {hidden}, width {shared} of the shared expert")),
            Role::QNorm if self.whole_head_norms => {
                size(heads * head_dim, 1, format!("{heads} heads of {head_dim} elements"))
            }
            Role::KNorm if self.whole_head_norms => {
                size(kv_heads * head_dim, 1, format!("{kv_heads} key and value heads of {head_dim} elements"))
            }
            Role::QNorm | Role::KNorm => size(head_dim, 1, format!("{head_dim} elements a head")),
            Role::FinalNorm | Role::AttentionNorm | Role::AttentionOutputNorm | Role::MlpNorm | Role::MlpOutputNorm => {
                size(hidden, 1, format!("width {hidden}"))
            }
        }
    }
}

/// The part of `whole` with this `shape`, from row `before` on of `total` rows.
pub(super) fn rows_of(whole: TensorInfo, before: u64, total: u64, shape: Vec<u64>) -> TensorInfo {
    // A row holds whole blocks: the header's reader has checked that, so the division is exact.
    let row_bytes = whole.bytes / total;
    let bytes = shape.first().copied().unwrap_or(1) * row_bytes;
    TensorInfo { shape, offset: whole.offset + before * row_bytes, bytes, ..whole }
}

pub(super) fn fill(pattern: &str, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => pattern.replace("{}", &layer.to_string()),
        None => pattern.to_owned(),
    }
}

/// The three names that share the most with `name`: the longest common prefix and suffix together.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n String>) -> Vec<String> {
    let common = |other: &str| {
        let prefix = name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        let suffix = name.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
        prefix + suffix
    };
    let mut scored: Vec<(usize, &String)> = names.map(|other| (common(other), other)).collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, other)| other.clone()).collect()
}
