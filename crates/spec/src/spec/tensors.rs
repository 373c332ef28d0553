//! Roles -> stored tensors: every weight found by name and checked by shape and dtype.

use super::layers::Layers;
use super::mixer::StateSizes;
use super::names::{fill, names, nearest};
use super::reader::Reader;
use super::{
    Activation, AttentionWeights, DenseWeights, FeedForwardLayer, FeedForwardWeights, KeyValueWeights, KeysValues,
    LayerWeights, LinearWeights, Mixer, MixerWeights, Norm, NormWeights, Routing, Sizes,
};
use crate::error::{Error, IncompleteKind, Result};
use crate::family::{Bias, Family, NormKind, Role};
use crate::header::{Header, TensorInfo};
use crate::quantization::{Recognised, Scheme};
use model_factory_dtypes::DType;
use std::collections::BTreeSet;
use std::path::Path;

/// Looks up the tensors of one model and remembers which were used.
pub(super) struct Tensors<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) family: &'static Family,
    pub(super) header: &'a Header,
    pub(super) sizes: &'a Sizes,
    pub(super) options: Options,
    place: Place,
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

/// What the metadata says of the layers.
pub(super) struct Options {
    pub(super) norm_eps: f64,
    pub(super) score_scale: f32,
    pub(super) score_cap: Option<f32>,
    pub(super) activation: Activation,
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
    /// Without this part in front, which names the model within one with a head: `AutoModel` of transformers.
    Bare(&'static str),
}

impl Place {
    fn of(header: &Header, family: &'static Family) -> Place {
        let any = |prefix: &str| header.tensors.keys().any(|name| name.starts_with(prefix));
        let embedding = family.tensors.iter().copied().flatten().find(|names| names.role == Role::Embedding);
        let bare = embedding.and_then(|names| names.config.split_once('.'));
        if any("language_model.model.") {
            Place::Before
        } else if any("model.language_model.") {
            Place::Behind
        } else {
            let is_bare = |(prefix, bare): &(&str, &str)| !any(&format!("{prefix}.")) && any(&format!("{bare}."));
            bare.filter(is_bare).map_or(Place::Whole, |(prefix, _)| Place::Bare(prefix))
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
        recognised: &'a Recognised,
    ) -> Self {
        let place = Place::of(header, family);
        Tensors {
            reader,
            family,
            header,
            sizes,
            options,
            place,
            predicts: false,
            used: BTreeSet::new(),
            scheme: recognised.scheme.as_ref(),
            mxfp4: recognised.mxfp4,
            plain_modules: Vec::new(),
        }
    }

    /// The sizes of the model, or of a layer of it.
    pub(super) fn sizes(&self, layer: Option<usize>) -> Sizes {
        layer.map_or(*self.sizes, |layer| self.options.layers.sizes(self.sizes, layer))
    }

    /// The block `layer`, with experts where it has a routing of these.
    pub(super) fn layer(&mut self, layer: usize, experts: Option<Routing>) -> Result<LayerWeights> {
        let (at, parallel) = (Some(layer), self.family.parallel);
        let unnormed = self.family.first_unnormed && layer == 0;
        let norm = if unnormed { None } else { self.norm_if_named(Role::AttentionNorm, at)? };
        let mlp_norm = if parallel { norm.clone() } else { self.norm_if_named(Role::MlpNorm, at)? };
        let has_state = !self.predicts && self.options.layers.has_state(layer);
        let mixer = match self.family.states.filter(|_| has_state) {
            Some(table) => self.state_mixer(table.mixer, at)?,
            None => Mixer::Attention(Box::new(self.attention(layer)?)),
        };
        let mixer = MixerWeights {
            norm,
            layer: mixer,
            output_norm: self.norm_if_named(Role::AttentionOutputNorm, at)?,
            sum_norm: self.norm_if_named(Role::AttentionSumNorm, at)?,
        };
        let beside = experts.is_some() && self.names(Role::ExpertsOutputNorm);
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
        let feed_forward = FeedForwardWeights { norm: mlp_norm, layer: network, beside, output_norm, sum_norm };
        let layer_embedding = self.layer_embedding_use(layer)?;
        Ok(LayerWeights { mixer, feed_forward, layer_embedding, scale: self.scale(layer)?, parallel })
    }

    /// Where the keys and values of `layer` come from.
    fn keys_values(&mut self, layer: usize) -> Result<KeysValues> {
        if let Some(source) = self.options.layers.source(layer) {
            return Ok(KeysValues::OfLayer(source));
        }
        let at = Some(layer);
        let keys_are_values = match self.options.layers.keys_are_values(layer) {
            // A file of GGUF has no tensor for values then.
            (true, _) if self.reader.is_gguf() && self.family.full_attention.is_some() => {
                !self.header.tensors.contains_key(&format!("{}.weight", self.stem(Role::V, at)))
            }
            (_, said) => said,
        };
        Ok(KeysValues::Own(Box::new(KeyValueWeights {
            k: self.matrix(Role::K, at)?,
            v: if keys_are_values { None } else { Some(self.matrix(Role::V, at)?) },
            k_norm: self.norm_if_named(Role::KNorm, at)?,
            v_norm_eps: self.family.value_norm.then_some(self.options.norm_eps),
        })))
    }

    fn attention(&mut self, layer: usize) -> Result<AttentionWeights> {
        let at = Some(layer);
        let Sizes { heads, kv_heads, head_dim, gated_attention: gated, .. } = self.sizes(at);
        Ok(AttentionWeights {
            heads,
            kv_heads,
            head_dim,
            q: self.matrix(Role::Q, at)?,
            gated,
            causal: !self.family.encoder,
            kv: self.keys_values(layer)?,
            q_norm: self.norm_if_named(Role::QNorm, at)?,
            rope: self.options.layers.rope(layer).filter(|_| !self.names(Role::Positions)),
            score_scale: self.options.score_scale,
            score_cap: self.options.score_cap,
            sinks: if self.names(Role::Sinks) { Some(self.sinks(layer)?) } else { None },
            window: self.options.layers.window(layer),
            o: self.matrix(Role::O, at)?,
        })
    }

    /// A feed-forward layer whose gate, up and down projections have these roles.
    pub(super) fn dense(&mut self, [gate, up, down]: [Role; 3], layer: Option<usize>) -> Result<DenseWeights> {
        let activation = self.options.activation.try_map(|()| self.matrix(gate, layer))?;
        Ok(DenseWeights { activation, up: self.matrix(up, layer)?, down: self.matrix(down, layer)? })
    }

    /// A linear layer's weight `[outputs, inputs]` and its bias, fused tensors resolved into their rows.
    pub(super) fn matrix(&mut self, role: Role, layer: Option<usize>) -> Result<LinearWeights> {
        let stem = self.stem(role, layer);
        let name = format!("{stem}.weight");
        let (outputs, inputs, because) = self.sizes(layer).of(role);
        let rows = match self.rows_of_fused(role, layer, "weight", Some(inputs))? {
            Some(rows) => rows,
            None => {
                let tensor = self.checked(&name, &[outputs, inputs], &because);
                let tensor = self.explained(tensor, &[role], layer)?;
                Rows { tensor, module: stem, before: 0, total: outputs }
            }
        };
        let int8 = self.int8(&rows, role)?;
        if int8.is_none() {
            self.check_matrix_dtype(&rows.tensor)?;
        }
        Ok(LinearWeights { bias: self.bias(role, layer)?, int8, ..LinearWeights::of(rows.tensor) })
    }

    /// As [`matrix`](Self::matrix), of one row, which GGUF stores as a vector.
    pub(super) fn row_or_matrix(&mut self, role: Role, layer: Option<usize>) -> Result<LinearWeights> {
        let name = format!("{}.weight", self.stem(role, layer));
        let (outputs, inputs, because) = self.sizes(layer).of(role);
        let vector = self.header.tensors.get(&name).is_some_and(|tensor| tensor.shape.len() == 1);
        if !vector || outputs != 1 {
            return self.matrix(role, layer);
        }
        let row = self.checked(&name, &[inputs], &because)?;
        self.check_matrix_dtype(&row)?;
        let bias = self.bias(role, layer)?;
        Ok(LinearWeights { bias, ..LinearWeights::of(TensorInfo { shape: vec![1, inputs], ..row }) })
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
                let (outputs, _, because) = self.sizes(layer).of(role);
                let bias = self.checked(&name, &[outputs], &because);
                self.explained(bias, &[role], layer)?
            }
        };
        self.check_vector_dtype(&bias)?;
        Ok(Some(bias))
    }

    pub(super) fn norm(&mut self, role: Role, layer: Option<usize>) -> Result<NormWeights> {
        let weight = self.vector(role, layer, "weight")?;
        let eps = self.options.norm_eps;
        let kind = match self.family.norm {
            NormKind::Layer => Norm::Layer { eps, bias: Some(self.vector(role, layer, "bias")?) },
            NormKind::PlainLayer => Norm::Layer { eps, bias: None },
            NormKind::Rms => Norm::Rms { eps, offset: false },
            NormKind::RmsFromOne => Norm::Rms { eps, offset: !self.reader.is_gguf() && role != Role::StateNorm },
        };
        Ok(NormWeights { weight, kind })
    }

    /// A norm that families have whose tables name its tensor.
    pub(super) fn norm_if_named(&mut self, role: Role, layer: Option<usize>) -> Result<Option<NormWeights>> {
        if self.names(role) { self.norm(role, layer).map(Some) } else { Ok(None) }
    }

    /// The scores of the attention's sinks: in safetensors a parameter of its own, without `.weight`.
    fn sinks(&mut self, layer: usize) -> Result<TensorInfo> {
        let (heads, _, because) = self.sizes.of(Role::Sinks);
        let stem = self.stem(Role::Sinks, Some(layer));
        let name = if self.reader.is_gguf() { format!("{stem}.weight") } else { stem };
        let sinks = self.checked(&name, &[heads], &because);
        let sinks = self.explained(sinks, &[Role::Sinks], Some(layer))?;
        self.check_vector_dtype(&sinks)?;
        Ok(sinks)
    }

    /// Whether the family's tables name a tensor of `role`.
    pub(super) fn names(&self, role: Role) -> bool {
        names(self.family, role)
    }

    fn vector(&mut self, role: Role, layer: Option<usize>, suffix: &str) -> Result<TensorInfo> {
        let (width, _, because) = self.sizes(layer).of(role);
        let vector = self.checked(&format!("{}.{suffix}", self.stem(role, layer)), &[width], &because);
        let vector = self.explained(vector, &[role], layer)?;
        self.check_vector_dtype(&vector)?;
        Ok(vector)
    }

    pub(super) fn mark_used(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }

    /// The name in this format. A language model within another has `language_model` in front, or behind `model`.
    pub(super) fn pattern(&self, gguf: &str, config: &str) -> String {
        if self.reader.is_gguf() {
            return gguf.to_owned();
        }
        match self.place {
            _ if self.predicts => config.strip_prefix("model.").map_or(config.into(), |rest| format!("mtp.{rest}")),
            Place::Whole => config.to_owned(),
            Place::Bare(prefix) => {
                let bare = config.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
                bare.unwrap_or(config).to_owned()
            }
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
            let sizes = self.sizes(layer);
            let rows = |role: Role| sizes.of(role).0;
            let total: u64 = fused.roles.iter().map(|role| rows(*role)).sum();
            let before: u64 = fused.roles.iter().take_while(|part| **part != role).map(|role| rows(*role)).sum();
            let because = format!("the rows of {:?} one after the other", fused.roles);
            let shape: Vec<u64> = std::iter::once(total).chain(inputs).collect();
            let whole = self.checked(&name, &shape, &because);
            let whole = self.explained(whole, fused.roles, layer)?;
            let shape = std::iter::once(rows(role)).chain(inputs).collect();
            return Ok(Some(Rows { tensor: rows_of(whole, before, total, shape), module, before, total }));
        }
        Ok(None)
    }

    pub(super) fn bias_wanted(&self, role: Role, layer: Option<usize>, name: &str) -> Result<bool> {
        let Some((_, bias)) = self.family.biases.iter().find(|(roles, _)| roles.contains(&role)) else {
            return Ok(false);
        };
        Ok(match bias {
            Bias::Always => true,
            Bias::Flag(_) | Bias::UnlessFlag(_) if self.reader.is_gguf() => {
                let fused = self.family.fused.iter().filter(|fused| fused.roles.contains(&role));
                let fused =
                    fused.filter_map(|fused| fused.gguf).map(|pattern| format!("{}.bias", fill(pattern, layer)));
                fused.chain([name.to_owned()]).any(|name| self.header.tensors.contains_key(&name))
            }
            Bias::Flag(flag) => self.reader.fields().boolean(flag)?.unwrap_or(false),
            Bias::UnlessFlag(flag) => self.reader.fields().boolean(flag)?.unwrap_or(true),
        })
    }

    pub(super) fn file_of(&self, tensor: &TensorInfo) -> &Path {
        &self.header.source.files[tensor.file].path
    }

    pub(super) fn check_matrix_dtype(&self, tensor: &TensorInfo) -> Result<()> {
        match tensor.dtype {
            DType::I8 | DType::U8 | DType::F4 => Err(Error::Quantization {
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
    pub(super) fn check_vector_dtype(&self, tensor: &TensorInfo) -> Result<()> {
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
        let &Sizes { hidden, feed_forward, heads, kv_heads, head_dim, vocab, layers, layer_embedding, .. } = self;
        let &Sizes { context, token_types, first_position, labels, .. } = self;
        let size = |outputs: usize, inputs: usize, because: String| (outputs as u64, inputs as u64, because);
        let sizes = self.experts;
        let (experts, expert, shared) =
            sizes.map_or((0, 0, 0), |sizes| (sizes.count, sizes.feed_forward, sizes.shared_feed_forward));
        let states = self.states.unwrap_or_default();
        let StateSizes { key_heads, value_heads, key_dim, value_dim, normed, channels, kernel } = states;
        match role {
            Role::Embedding | Role::Head | Role::NextEmbedding | Role::NextHead => {
                size(vocab, hidden, format!("vocabulary {vocab}, width {hidden}"))
            }
            Role::Positions => {
                let (rows, because) = (first_position + context, format!("{context} positions, width {hidden}"));
                size(rows, hidden, if first_position > 0 { format!("{first_position} and {because}") } else { because })
            }
            Role::TokenTypes => size(token_types, hidden, format!("{token_types} kinds of tokens, width {hidden}")),
            Role::Classifier => size(labels, hidden, format!("{labels} labels, width {hidden}")),
            Role::ClassifierDense => size(hidden, hidden, format!("width {hidden}")),
            Role::Q if self.gated_attention => {
                let because =
                    format!("{heads} heads of {head_dim} elements and as many of their gates, width {hidden}");
                size(2 * heads * head_dim, hidden, because)
            }
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
            Role::LayerEmbedding | Role::LayerEmbeddingProjection => {
                let width = layers * layer_embedding;
                let because = format!("{layers} layers of {layer_embedding} elements");
                if role == Role::LayerEmbedding { size(vocab, width, because) } else { size(width, hidden, because) }
            }
            Role::LayerEmbeddingGate => size(layer_embedding, hidden, format!("{layer_embedding} elements a layer")),
            Role::LayerEmbeddingOutput => size(hidden, layer_embedding, format!("{layer_embedding} elements a layer")),
            Role::LayerEmbeddingNorm => size(layer_embedding, 1, format!("{layer_embedding} elements a layer")),
            Role::LayerScale => size(1, 1, "one number".into()),
            Role::Router => size(experts, hidden, format!("{experts} experts, width {hidden}")),
            Role::ChoiceBias | Role::ExpertScales => size(experts, 1, format!("{experts} experts")),
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
            Role::Sinks => size(heads, 1, format!("{heads} heads")),
            Role::FinalNorm
            | Role::NextEmbeddingNorm
            | Role::NextHiddenNorm
            | Role::NextNorm
            | Role::EmbeddingNorm
            | Role::ClassifierNorm
            | Role::AttentionSumNorm
            | Role::MlpSumNorm
            | Role::RouterNorm
            | Role::ExpertsNorm
            | Role::ExpertsOutputNorm
            | Role::DenseOutputNorm
            | Role::AttentionNorm
            | Role::AttentionOutputNorm
            | Role::MlpNorm
            | Role::MlpOutputNorm
            | Role::LayerEmbeddingOutputNorm => size(hidden, 1, format!("width {hidden}")),
            Role::DeltaQkv => {
                let because = format!(
                    "{key_heads} heads of queries and keys of {key_dim} elements, {value_heads} of values of {value_dim}, width \
                     {hidden}"
                );
                size(channels, hidden, because)
            }
            Role::DeltaQkvz => {
                let because =
                    format!("the same and gates of {value_heads} heads of {value_dim} elements, width {hidden}");
                size(channels + states.values(), hidden, because)
            }
            Role::DeltaBetaAlpha => size(2 * value_heads, hidden, format!("twice {value_heads} heads, width {hidden}")),
            Role::MambaInput => {
                let because = format!(
                    "{value_heads} heads of values of {value_dim} elements, {key_heads} groups of keys and queries of {key_dim}, width \
                     {hidden}"
                );
                size(channels, hidden, because)
            }
            Role::StateGate | Role::StateOut => {
                let because = format!("{value_heads} heads of values of {value_dim} elements, width {hidden}");
                let values = states.values();
                if role == Role::StateOut { size(hidden, values, because) } else { size(values, hidden, because) }
            }
            Role::DeltaBeta | Role::DeltaAlpha | Role::MambaStep => {
                size(value_heads, hidden, format!("{value_heads} heads of values, width {hidden}"))
            }
            Role::StateStepBias | Role::StateDecay | Role::MambaSkip => {
                size(value_heads, 1, format!("{value_heads} heads of values"))
            }
            Role::StateNorm => size(normed, 1, format!("{value_heads} heads of values of {value_dim} elements")),
            Role::Conv => size(channels, kernel, format!("{channels} channels, {kernel} positions")),
            Role::ConvIn => size(3 * hidden, hidden, format!("three times the width {hidden}, width {hidden}")),
            Role::NextProjection => size(hidden, 2 * hidden, format!("width {hidden}, twice that")),
            Role::ConvOut => size(hidden, hidden, format!("width {hidden}")),
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
