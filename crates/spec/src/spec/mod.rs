//! Header -> ModelSpec: finds the family and resolves every tensor by role, shape and dtype.

mod altup;
mod classifier;
mod columns;
mod curve;
mod dense;
mod disentangled;
mod embedding;
mod expert_matrices;
mod experts;
mod factors;
mod images;
mod inspect;
mod kinds;
mod latent;
mod layer_embedding;
mod layers;
mod linear;
mod mixer;
mod mmproj;
mod names;
mod norms;
mod passes;
mod patches;
mod predictor;
mod projector;
mod reader;
mod refusals;
mod rope;
mod rotary;
mod routed;
mod runs;
mod sampling;
mod scaling;
mod single;
mod sizes;
mod sparsity;
mod states;
mod tensors;
mod unsupported;
mod unused;
mod vision;
mod weights;
mod words;

pub use crate::block::{Activation, DenseActivation, ImageRows, KeySharing, Pooling, RopeLayout, RouterScore};
pub use altup::{AltUpUse, AltUpWeights, LaurelWeights};
pub use classifier::{ClassifierWeights, ScoreActivation};
pub use columns::Columns;
pub use curve::Curve;
pub use dense::DenseLayer;
pub use disentangled::{PositionScores, RelativeWeights};
pub use embedding::{EmbeddingSpec, Embeds, InputWeights, PositionWeights, TextLimit};
pub use images::ImagePrompt;
pub use inspect::{Wanted, inspect, inspect_as};
pub use latent::{LatentWeights, QueryWeights};
pub use layer_embedding::{LayerEmbeddingUse, LayerEmbeddingWeights};
pub use linear::{Affine, Factor, FloatScales, Groups, Int8, Int8Activations, LinearWeights, Module, Scaling};
pub use mixer::*;
pub(crate) use names::nearest as nearest_names;
pub use norms::{Norm, NormWeights};
pub use patches::{Grid, PatchOrder, Windows};
pub use predictor::JoinedInput;
pub use projector::ProjectorStep;
pub use rotary::{FrequencyFactors, QueryScale, Rope, RopeScaling, RopeSections};
pub use routed::{ExpertGates, ExpertGroups, ExpertMatrices, ExpertsWeights, Normalization, Routing, SharedExpert};
pub use runs::{IntegerRows, NestedScales, Runs};
pub use sampling::{GREEDY_BELOW, Sampling};
pub use states::{DeltaNetKeys, MambaKeys, PlainNorms, StateMixer};
pub use vision::{AxialRope, DeepstackWeights, VisionSpec, VisionWeights};
pub use weights::{MapWeights, Stored, Weight, WeightTypes};

use crate::header::TensorInfo;
use crate::tokenizer::TokenizerSpec;
use model_factory_dtypes::DType;
use sizes::Sizes;
use std::collections::{BTreeMap, BTreeSet};
use weights::{mapped, weights};

/// Everything the loader and the decoder need to know of a model. Every tensor in it exists and has the right shape.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// The family's id: `llama`.
    pub family: &'static str,
    /// The variant as people call it: `Llama 3.1`, `TinyLlama`, `SmolLM2`, `DeepSeek-R1-Distill-Llama`.
    pub variant: String,
    /// The architecture as the file names it: `llama`, `LlamaForCausalLM`.
    pub architecture: String,
    /// Elements of all weights, a tied head counted once.
    pub parameters: u64,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of a feed-forward layer without experts; of the widest where they differ.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Where layers differ, of those without a window.
    pub kv_heads: usize,
    /// Elements of a head. Where layers differ, of those without a window.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Longest context the model was trained or extended for, in tokens.
    pub context_trained: usize,
    /// Rotary position embeddings: the first is that of layers without a window. None where positions are rows of a matrix.
    pub ropes: Vec<Rope>,
    /// Factors and caps outside of the layers.
    pub multipliers: Multipliers,
    /// Whether the output head is the embedding.
    pub tied_embeddings: bool,
    /// The weights by role.
    pub weights: ModelWeights,
    /// How often the same layers are passed: the weights have those of every pass, one after the other.
    pub passes: usize,
    /// The head that predicts a further token, where it was asked for: a model of one block, whose embedding and output head are this
    /// one's unless it has its own.
    pub predictor: Option<Box<ModelSpec>>,
    /// What makes rows of the model of images, where it was asked for.
    pub vision: Option<Box<VisionSpec>>,
    /// What the files say of the tokenizer, BOS and stop tokens.
    pub tokenizer: TokenizerSpec,
    /// How the model's makers choose the next token.
    pub sampling: Sampling,
    /// How its makers make a vector of a text.
    pub embeds: Embeds,
    /// How the rows of an image attend, where vectors may take the place of ids.
    pub images: Option<ImageRows>,
    /// How long a text may be that is embedded or classified, where less than the context.
    pub text_limit: Option<TextLimit>,
    /// The quantization in words: `none`, `GGUF Q4_K_M`.
    pub quantization: String,
    /// Defaults and derivations that were taken, each with its reason.
    pub assumptions: Vec<String>,
    /// Tensors that are stored and left aside: of images, sound and other heads, buffers of old checkpoints, and what the keys leave
    /// out.
    pub unused_tensors: Vec<String>,
}

/// What activations are multiplied by, apart from weights: the embedding's rows, what a sub-layer adds, logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    /// Rows of the embedding.
    pub embedding: f32,
    /// What a sub-layer adds to the residual stream.
    pub residual: f32,
    /// Logits, before their cap.
    pub logits: f32,
    /// `cap * tanh(logit / cap)` in place of a logit.
    pub logit_cap: Option<f32>,
}

impl Multipliers {
    /// Nothing is multiplied or capped.
    pub const NONE: Multipliers = Multipliers { embedding: 1.0, residual: 1.0, logits: 1.0, logit_cap: None };
}

weights! {
    /// The weights by role. A fused tensor is resolved into row ranges of its bytes, so nothing later knows of fusion.
    pub struct ModelWeights<W> {
        /// `[vocab, hidden]`.
        pub embedding: W::Matrix = matrix,
        /// What is added to its rows, and the norm of the sum, of encoders.
        pub input: Option<Box<InputWeights<W>>> = optional boxed part,
        /// What a prediction head makes its input of.
        pub joined: Option<Box<JoinedInput<W>>> = optional boxed part,
        /// `[hidden]`; none where the last layer norms the residual stream.
        pub final_norm: Option<W::Norm> = optional norm,
        /// Where layers have embeddings of their own.
        pub layer_embedding: Option<Box<LayerEmbeddingWeights<W>>> = optional boxed part,
        /// Where there are several residual streams.
        pub altup: Option<Box<AltUpWeights<W>>> = optional boxed part,
        /// The decoder blocks in order.
        pub layers: Vec<LayerWeights<W>> = list part,
        /// `[vocab, hidden]`; the embedding itself when tied. None of a model that makes vectors of texts, and no text.
        pub head: Option<W::Matrix> = optional matrix,
        /// Where the model scores labels of texts.
        pub classifier: Option<Box<ClassifierWeights<W>>> = optional boxed part,
        /// The layers after the pooling, by which the vector of a text is made.
        pub dense: Vec<DenseLayer<W>> = list part,
    }

    /// The weights and options of one decoder block. Layers of a model may differ.
    pub struct LayerWeights<W> {
        /// What mixes the positions of a sequence, added to the residual stream. None where a layer is a feed-forward layer alone.
        pub mixer: Option<MixerWeights<W>> = optional part,
        /// The feed-forward layer, added to the residual stream. None where a layer is a mixer alone.
        pub feed_forward: Option<FeedForwardWeights<W>> = optional part,
        /// How it predicts and corrects the residual streams, where there are several.
        pub altup: Option<Box<AltUpUse<W>>> = optional boxed part,
        /// How it adds its embedding to the residual stream, after the feed-forward layer; of several streams to all but the first.
        pub layer_embedding: Option<Box<LayerEmbeddingUse<W>>> = optional boxed part,
        /// What the residual stream is multiplied by after all of it, `[1]`.
        pub scale: Option<W::Numbers> = optional numbers,
        /// Whether the feed-forward layer reads what the mixer reads, instead of what the mixer has changed.
        pub parallel: bool,
    }

    /// The weights of a feed-forward layer.
    pub struct FeedForwardWeights<W> {
        /// Of its input, `[hidden]`. None in a parallel block where the norm of the mixer is its norm too.
        pub norm: Option<W::Norm> = optional norm,
        /// What it computes of that.
        pub layer: FeedForwardLayer<W> = part,
        /// A dense layer next to the experts.
        pub beside: Option<Box<BesideWeights<W>>> = optional boxed part,
        /// Of its output, `[hidden]`, before it is added.
        pub output_norm: Option<W::Norm> = optional norm,
        /// Of the residual stream, `[hidden]`, when it is added.
        pub sum_norm: Option<W::Norm> = optional norm,
    }

    /// A dense layer next to experts, whose outputs are added, and the norms that make them alike.
    pub struct BesideWeights<W> {
        /// Of its input, `[hidden]`.
        pub norm: W::Norm = norm,
        /// The layer.
        pub dense: DenseWeights<W> = part,
        /// Of its output, `[hidden]`.
        pub output_norm: Option<W::Norm> = optional norm,
        /// Of the experts' output, `[hidden]`.
        pub experts_norm: Option<W::Norm> = optional norm,
    }

    /// The weights of a feed-forward layer without experts, or of one expert.
    pub struct DenseWeights<W> {
        /// The activation; a gate projection has the shape of `up`.
        pub activation: Activation<W::Matrix> = matrices,
        /// How many deviations above their mean gates count from, and by how much they are above that, where not all count.
        pub sparsity: Option<f32>,
        /// The numbers of the activation, where a layer has its own.
        pub curve: Option<Curve<W>> = optional part,
        /// The up projection, `[feed_forward, hidden]`.
        pub up: W::Matrix = matrix,
        /// The down projection, `[hidden, feed_forward]`.
        pub down: W::Matrix = matrix,
    }
}

/// What a feed-forward layer is made of. Complete.
#[derive(Clone, Debug)]
pub enum FeedForwardLayer<W: WeightTypes = Stored> {
    /// The same matrices for every token.
    Dense(Box<DenseWeights<W>>),
    /// Experts, of which each token is given to a few.
    Experts(Box<ExpertsWeights<W>>),
}

fn elements<'t>(tensors: impl IntoIterator<Item = &'t TensorInfo>) -> u64 {
    tensors.into_iter().map(|tensor| tensor.shape.iter().product()).fold(0, u64::saturating_add)
}

fn bytes<'t>(tensors: impl IntoIterator<Item = &'t TensorInfo>) -> u64 {
    tensors.into_iter().map(|tensor| tensor.bytes).fold(0, u64::saturating_add)
}

impl ModelSpec {
    /// The rotary position embedding of layers without a window; none where positions are rows of a matrix.
    pub fn rope(&self) -> Option<&Rope> {
        self.ropes.first()
    }

    /// Whether tokens attend to later ones too: a text is one pass, and nothing is cached.
    pub fn is_encoder(&self) -> bool {
        self.attentions().any(|attention| !attention.causal)
    }

    /// The output head, unless it is the embedding.
    pub fn own_head(&self) -> Option<&LinearWeights> {
        self.weights.head.as_ref().filter(|_| !self.tied_embeddings)
    }

    /// The number of decoder blocks.
    pub fn layers(&self) -> usize {
        self.weights.layers.len()
    }

    /// The layers of attention.
    pub fn attentions(&self) -> impl Iterator<Item = &AttentionWeights> {
        self.weights.layers.iter().filter_map(LayerWeights::attention)
    }

    /// The longest window of a layer; `None` where a layer has none.
    pub fn sliding_window(&self) -> Option<usize> {
        let windows = self.attentions().map(|attention| attention.window);
        windows.reduce(|longest, window| longest.zip(window).map(|(a, b)| a.max(b))).flatten()
    }

    /// Every needed tensor once: a tied head is not listed again.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        let (mut seen, repeats) = (BTreeSet::new(), self.passes > 1 || self.is_encoder());
        self.read_tensors().filter(move |tensor| !repeats || seen.insert((tensor.name.clone(), tensor.offset)))
    }

    /// The tensors that a token reads, as often as it does.
    fn read_tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        let of = |weight| match weight {
            Weight::Matrix(head) if self.is_tied_head(head) => head.bias.iter().collect(),
            weight => weight.tensors(),
        };
        self.weights.list().into_iter().flat_map(of).chain(self.rope_tensors())
    }

    /// Whether the matrix is the embedding, here as the output head.
    fn is_tied_head(&self, matrix: &LinearWeights) -> bool {
        self.tied_embeddings && self.weights.head.as_ref().is_some_and(|head| std::ptr::eq(head, matrix))
    }

    /// The stored tensors of frequency factors, each once.
    pub fn rope_tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.ropes.iter().flat_map(Rope::tensors)
    }

    /// Every weight matrix: the embedding, those of the layers, the head. A tied head is the embedding again.
    pub fn matrices(&self) -> impl Iterator<Item = &TensorInfo> {
        self.weights.matrices().map(|linear| &linear.weight)
    }

    /// The tensors that say how products are scaled; they are among [`tensors`](Self::tensors), and no weights.
    pub fn scales(&self) -> impl Iterator<Item = &TensorInfo> {
        self.weights.matrices().filter(|matrix| !self.is_tied_head(matrix)).flat_map(LinearWeights::scales)
    }

    /// Elements of the weights that one token is multiplied with, or reads a row of: all but those of the experts that it is
    /// not given to.
    pub fn active_parameters(&self) -> u64 {
        let left_out = self.left_out(|linear| elements(linear.tensors()).saturating_sub(elements(linear.scales())));
        self.parameters.saturating_sub(left_out)
    }

    /// Bytes of all needed tensors but those of the experts that one token is not given to, and of the layers' embeddings, of
    /// which it reads a row.
    pub fn active_bytes(&self) -> u64 {
        let left_out = self.left_out(|linear| bytes(linear.tensors()));
        let rows = self.weights.layer_embedding.as_ref().map_or(0, |embedding| embedding.embedding.weight.bytes);
        bytes(self.read_tensors()).saturating_sub(left_out).saturating_sub(rows)
    }

    /// The sum of `size` over the experts that one token is not given to.
    fn left_out(&self, size: impl Fn(&LinearWeights) -> u64) -> u64 {
        let experts = self.weights.layers.iter().filter_map(LayerWeights::experts);
        let left_out = experts.map(|layer| {
            let all = layer.routed().map(&size).fold(0, u64::saturating_add);
            let Routing { experts, chosen, .. } = layer.routing;
            all / experts.max(1) as u64 * experts.saturating_sub(chosen) as u64
        });
        left_out.fold(0, u64::saturating_add)
    }

    /// Number of tensors and bytes per stored dtype.
    pub fn dtypes(&self) -> BTreeMap<DType, (usize, u64)> {
        let mut dtypes = BTreeMap::new();
        for tensor in self.tensors() {
            let entry: &mut (usize, u64) = dtypes.entry(tensor.dtype).or_default();
            entry.0 += 1;
            entry.1 += tensor.bytes;
        }
        dtypes
    }
}

impl<W: WeightTypes> ModelWeights<W> {
    /// The matrices among them.
    pub fn matrices(&self) -> impl Iterator<Item = &W::Matrix> {
        self.list().into_iter().filter_map(Weight::matrix)
    }
}

impl<W: WeightTypes> LayerWeights<W> {
    /// The matrices in the order of their products.
    pub fn linears(&self) -> impl Iterator<Item = &W::Matrix> {
        self.list().into_iter().filter_map(Weight::matrix)
    }

    /// Its token mixers: one, none, or attention and one with a state.
    pub fn mixers(&self) -> impl Iterator<Item = &Mixer<W>> {
        self.mixer.iter().flat_map(|mixer| std::iter::once(&mixer.layer).chain(mixer.beside.as_deref()))
    }

    /// Its attention, where it has one.
    pub fn attention(&self) -> Option<&AttentionWeights<W>> {
        self.mixers().find_map(Mixer::attention)
    }

    /// The norm in front of its feed-forward layer.
    pub fn feed_forward_norm(&self) -> Option<&W::Norm> {
        let of_mixer = self.mixer.as_ref().and_then(|mixer| mixer.norm.as_ref()).filter(|_| self.parallel);
        self.feed_forward.as_ref().and_then(|layer| layer.norm.as_ref()).or(of_mixer)
    }

    /// The experts of its feed-forward layer, where it has any.
    pub fn experts(&self) -> Option<&ExpertsWeights<W>> {
        if let FeedForwardLayer::Experts(experts) = &self.feed_forward.as_ref()?.layer { Some(experts) } else { None }
    }

    /// Whether what a sub-layer puts out is normed before it is added to the residual stream.
    pub fn norms_outputs(&self) -> bool {
        let Self { mixer, feed_forward, layer_embedding, .. } = self;
        mixer.as_ref().is_some_and(|mixer| mixer.output_norm.is_some())
            || feed_forward.as_ref().is_some_and(|layer| layer.output_norm.is_some())
            || layer_embedding.is_some()
    }

    /// Whether the residual stream is normed after a sub-layer.
    pub fn norms_sums(&self) -> bool {
        self.mixer.as_ref().is_some_and(|mixer| mixer.sum_norm.is_some())
            || self.feed_forward.as_ref().is_some_and(|layer| layer.sum_norm.is_some())
    }
}

impl LayerWeights {
    /// Every tensor of the block once.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.list().into_iter().flat_map(Weight::tensors)
    }

    /// The tensors of the block that are neither matrices nor norms.
    pub fn vectors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.list().into_iter().filter_map(Weight::vector)
    }

    /// Whether all rows of a step share a scale of int8 activations: then a row has other bits than by itself.
    pub fn mixes_rows(&self) -> bool {
        let shares = |int8: &Int8| matches!(int8.activations, Int8Activations::PerTensor { .. });
        self.linears().any(|linear| matches!(&linear.scaling, Some(Scaling::Int8(int8)) if shares(int8)))
    }
}

impl<W: WeightTypes> FeedForwardLayer<W> {
    fn try_map<'w, M: MapWeights<'w, W>>(&'w self, map: &mut M) -> Result<FeedForwardLayer<M::To>, M::Error> {
        Ok(match self {
            FeedForwardLayer::Dense(dense) => FeedForwardLayer::Dense(Box::new(dense.try_map(map)?)),
            FeedForwardLayer::Experts(experts) => FeedForwardLayer::Experts(Box::new(experts.try_map(map)?)),
        })
    }
}

impl<W: WeightTypes> DenseWeights<W> {
    /// The matrices that its input is multiplied with.
    pub fn inputs(&self) -> Vec<&W::Matrix> {
        std::iter::once(&self.up).chain(self.activation.gate()).collect()
    }
}
