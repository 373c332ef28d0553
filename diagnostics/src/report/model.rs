//! ModelSpec -> the `model` object of the report.

use crate::capability::{self, DeviceEngine, TensorKind, Tier};
use crate::header::TensorInfo;
use crate::plan::ActivationDtype;
use crate::spec::{
    Embeds, LayerWeights, LinearWeights, Mixer, ModelSpec, NormWeights, Rope, RopeLayout, RopeScaling, Sampling,
    Scaling, VisionSpec, Weight,
};
use crate::tokenizer::{TokenizerKind, TokenizerSpec, ToolCallFormat};
use model_factory_dtypes::DType;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// A [`ModelSpec`] in the words of the report.
#[allow(missing_docs)] // as the fields of `ModelSpec`
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ModelSummary {
    pub family: &'static str,
    pub variant: String,
    pub architecture: String,
    pub parameters: u64,
    /// Decoder blocks.
    pub layers: usize,
    /// Those by what mixes their positions, where not all of them attend.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mixers: Vec<MixerSummary>,
    pub hidden: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// The experts of feed-forward layers, where some have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertSummary>,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
    pub context_trained: usize,
    pub tied_embeddings: bool,
    /// Rotary position embedding; none where positions are rows of a matrix.
    pub rope: Option<RopeSummary>,
    /// Positions that a token attends to, its own included, where the model limits them.
    pub sliding_window: Option<usize>,
    /// The windows of layers that have one, the shortest first.
    pub windows: Vec<WindowSummary>,
    /// The stored dtypes, that of most bytes first.
    pub dtypes: Vec<DtypeSummary>,
    pub quantization: String,
    /// The tokenizer.
    pub tokenizer: TokenizerSummary,
    /// Whether there is one.
    pub chat_template: bool,
    /// Their names; a chat without a name takes `default`.
    pub chat_templates: Vec<String>,
    /// The format in which it calls tools, by the marks of its chat template.
    pub tool_calls: Option<ToolCallSummary>,
    pub sampling: Sampling,
    /// How its makers make a vector of a text.
    pub embeds: EmbedsSummary,
    /// The labels that it scores, of a model that classifies texts or ranks documents.
    pub labels: Vec<String>,
    /// What it sees with, where a vision tower is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision: Option<VisionSummary>,
    /// Of the model, then of the tokenizer.
    pub assumptions: Vec<String>,
    /// Tensors that are stored and not needed.
    pub unused_tensors: Vec<String>,
    /// The weights as they are passed; for pictures, and not in the JSON report.
    #[serde(skip)]
    pub weights: Vec<LayerBytes>,
}

/// The weights of a block, or of what is before and after the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBytes {
    /// `embedding`, `layer 0`, and `head` with the norm before it, or `final norm` where the head is tied.
    pub name: String,
    /// Bytes of each stored dtype.
    pub bytes: BTreeMap<DType, u64>,
}

/// How texts become vectors, in the words of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EmbedsSummary {
    /// Whether that is all the model does: it has no output head.
    pub only: bool,
    /// Elements of a vector.
    pub dimensions: usize,
    /// How the tokens' vectors make that of the text: `last`, `mean`, `cls`, `max`, `weightedmean` or `mean_sqrt_len_tokens`, or
    /// several of these, such as `mean+max`; none where nothing says it.
    pub pooling: Option<String>,
    /// Whether vectors are brought to length one.
    pub normalize: bool,
    /// Names of texts that are put in front.
    pub prompts: Vec<String>,
    /// The one that is, unless told otherwise.
    pub default_prompt: Option<String>,
    /// Tokens of a text at most.
    pub max_length: Option<usize>,
    /// Where the pooling is said, or why that is not known.
    pub source: Option<String>,
}

impl EmbedsSummary {
    fn new(spec: &ModelSpec) -> EmbedsSummary {
        let (by, source) = match &spec.embeds {
            Embeds::NotSaid => (None, None),
            Embeds::Unsupported { what, source } => (None, Some(format!("{source}: {what}, which is not supported"))),
            Embeds::By(by) => (Some(by), Some(by.source.clone())),
        };
        EmbedsSummary {
            only: spec.weights.head.is_none(),
            dimensions: spec.vector_width(),
            pooling: by.map(|by| by.pooling.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")),
            normalize: by.is_some_and(|by| by.normalize),
            prompts: by.map(|by| by.prompts.keys().cloned().collect()).unwrap_or_default(),
            default_prompt: by.and_then(|by| by.default_prompt.clone()),
            max_length: spec.text_limit.map(|limit| limit.tokens),
            source,
        }
    }
}

/// The layers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MixerSummary {
    /// What mixes the positions of a sequence: `gated delta net`, `short convolution`, `Mamba-2`, `attention`. It is
    /// `feed-forward` where nothing does.
    pub kind: &'static str,
    /// How many layers.
    pub layers: usize,
}

impl MixerSummary {
    /// Of every kind that the model has, those with a state first; none where all layers attend.
    fn all(spec: &ModelSpec) -> Vec<MixerSummary> {
        let mut mixers: Vec<MixerSummary> = Vec::new();
        let alone = |layer: &&LayerWeights| layer.mixer.is_none();
        let layers = || spec.weights.layers.iter();
        let kinds = layers().flat_map(LayerWeights::mixers).map(Mixer::name);
        for kind in kinds.chain(layers().filter(alone).map(|_| "feed-forward")) {
            match mixers.iter_mut().find(|mixer| mixer.kind == kind) {
                Some(mixer) => mixer.layers += 1,
                None => mixers.push(MixerSummary { kind, layers: 1 }),
            }
        }
        mixers.sort_by_key(|mixer| mixer.kind == "attention");
        if mixers.iter().all(|mixer| mixer.kind == "attention") { Vec::new() } else { mixers }
    }
}

/// The experts of a model in the words of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExpertSummary {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a token is given to.
    pub per_token: usize,
    /// Width of an expert.
    pub feed_forward: usize,
    /// Width of the expert that every token is given to, where there is one.
    pub shared_feed_forward: Option<usize>,
    /// Layers that have them.
    pub layers: usize,
    /// Elements of the model's weights but those of the experts that one token is not given to.
    pub active_parameters: u64,
    /// Bytes of the same.
    pub active_bytes: u64,
}

impl ExpertSummary {
    fn new(spec: &ModelSpec) -> Option<ExpertSummary> {
        let mut layers = spec.weights.layers.iter().filter_map(LayerWeights::experts);
        let first = layers.next()?;
        let shared = first.shared.as_ref().and_then(|shared| shared.dense.up.weight.shape.first());
        Some(ExpertSummary {
            count: first.routing.experts,
            per_token: first.routing.chosen,
            feed_forward: first.feed_forward(),
            shared_feed_forward: shared.map(|rows| *rows as usize),
            layers: 1 + layers.count(),
            active_parameters: spec.active_parameters(),
            active_bytes: spec.active_bytes(),
        })
    }
}

/// Rotary position embedding in the words of the report.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RopeSummary {
    /// `half_split`, `interleaved`.
    pub layout: RopeLayout,
    /// The base of the frequencies.
    pub theta: f64,
    /// `default`, `linear`, `llama3`, `frequency_factors`.
    pub scaling: &'static str,
    /// The scaling's own numbers.
    pub scaling_parameters: Value,
    /// Rotated elements of a head.
    pub dimensions: usize,
    /// Where this comes from.
    pub source: String,
}

/// The tensors of one dtype.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DtypeSummary {
    /// The stored dtype.
    pub dtype: DType,
    /// How many tensors.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How the device computes with them; `None` when it does not.
    pub tier: Option<Tier>,
    /// What activations enter products with its matrices as: `f32`, `bf16`, `int16`, `int8`; `None` for vectors and on a GPU.
    pub activations: Option<&'static str>,
    /// How many of them it does not compute with: a GPU may lack the arithmetic of matrices and widen vectors.
    pub refused: usize,
}

/// The tokenizer in the words of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TokenizerSummary {
    /// `tokenizer_json`, `sentence_piece`, `byte_level_bpe`, `missing`.
    pub kind: &'static str,
    /// The name of the GGUF pre-tokenizer.
    pub pre: Option<String>,
    /// Entries of the vocabulary.
    pub tokens: usize,
    /// The beginning-of-sequence id.
    pub bos: Option<u32>,
    /// Whether a prompt begins with it.
    pub add_bos: bool,
    /// Ids that end a generation.
    pub stop_ids: Vec<u32>,
    /// Where each of them is named.
    pub stop_sources: BTreeMap<u32, Vec<String>>,
}

impl ModelSummary {
    /// Describes `spec` as `engine` would run it.
    pub fn new(spec: &ModelSpec, engine: &DeviceEngine<'_>, activations: ActivationDtype) -> ModelSummary {
        ModelSummary {
            family: spec.family,
            variant: spec.variant.clone(),
            architecture: spec.architecture.clone(),
            parameters: spec.parameters,
            layers: spec.layers(),
            mixers: MixerSummary::all(spec),
            hidden: spec.hidden,
            feed_forward: spec.feed_forward,
            experts: ExpertSummary::new(spec),
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            vocab: spec.vocab,
            context_trained: spec.context_trained,
            tied_embeddings: spec.tied_embeddings,
            rope: spec.rope().map(RopeSummary::new),
            embeds: EmbedsSummary::new(spec),
            vision: spec.vision.as_deref().map(VisionSummary::new),
            labels: spec.weights.classifier.as_ref().map(|classifier| classifier.labels.to_vec()).unwrap_or_default(),
            sliding_window: spec.sliding_window(),
            windows: windows(spec),
            dtypes: dtypes(spec, engine, activations),
            quantization: spec.quantization.clone(),
            tokenizer: TokenizerSummary::new(&spec.tokenizer),
            chat_template: !spec.tokenizer.chat_templates.is_empty(),
            chat_templates: spec.tokenizer.chat_templates.keys().cloned().collect(),
            tool_calls: spec.tokenizer.tool_calls().map(|(format, marks)| ToolCallSummary { format, marks }),
            sampling: spec.sampling.clone(),
            assumptions: spec.assumptions.iter().chain(&spec.tokenizer.assumptions).cloned().collect(),
            unused_tensors: spec.unused_tensors.clone(),
            weights: layer_bytes(spec),
        }
    }
}

/// A vision tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VisionSummary {
    /// Its kind.
    pub tower: &'static str,
    /// Elements of its weights.
    pub parameters: u64,
    /// Height and width of the largest image, in pixels.
    pub largest_image: [usize; 2],
    /// Whether images may be smaller.
    pub smaller: bool,
    /// Whether only the number of pixels bounds images, not the sides.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub any_shape: bool,
    /// Tokens that such an image becomes.
    pub tokens: usize,
    /// The most parts that a larger one is cut into, each of up to so many tokens.
    #[serde(skip_serializing_if = "is_one")]
    pub parts: usize,
}

fn is_one(count: &usize) -> bool {
    *count == 1
}

impl VisionSummary {
    fn new(spec: &VisionSpec) -> VisionSummary {
        VisionSummary {
            tower: spec.name,
            parameters: spec.parameters(),
            largest_image: [spec.largest.rows, spec.largest.columns].map(|side| side.saturating_mul(spec.patch_size)),
            smaller: spec.smaller,
            any_shape: spec.any_shape,
            tokens: spec.tokens(spec.largest),
            parts: spec.parts,
        }
    }
}

/// How the model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ToolCallSummary {
    /// The format of a call.
    pub format: ToolCallFormat,
    /// What in the chat template tells it.
    pub marks: &'static [&'static str],
}

/// Layers in which a token attends to so many positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WindowSummary {
    /// Positions, its own included.
    pub tokens: usize,
    /// How many layers.
    pub layers: usize,
    /// Whether they are those of its own chunk.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub chunked: bool,
}

fn windows(spec: &ModelSpec) -> Vec<WindowSummary> {
    let mut windows: BTreeMap<(usize, bool), usize> = BTreeMap::new();
    for attention in spec.attentions() {
        if let Some(tokens) = attention.window {
            *windows.entry((tokens, attention.chunked)).or_default() += 1;
        }
    }
    windows.into_iter().map(|((tokens, chunked), layers)| WindowSummary { tokens, layers, chunked }).collect()
}

/// The weights of `spec` in the order of the computation; a tied head is the embedding and not listed again.
fn layer_bytes(spec: &ModelSpec) -> Vec<LayerBytes> {
    let weights = &spec.weights;
    let part = |name: String, tensors: &mut dyn Iterator<Item = &TensorInfo>| {
        let mut bytes = BTreeMap::new();
        for tensor in tensors {
            let sum: &mut u64 = bytes.entry(tensor.dtype).or_default();
            *sum = sum.saturating_add(tensor.bytes);
        }
        LayerBytes { name, bytes }
    };
    let input = weights.input.iter().flat_map(|input| input.list()).flat_map(Weight::tensors);
    let embedding = std::iter::once(&weights.embedding.weight).chain(input);
    let embedding = part("embedding".into(), &mut embedding.chain(spec.rope_tensors()));
    let layers = weights.layers.iter().enumerate().take(spec.layers() / spec.passes);
    let layers = layers.map(|(index, layer)| part(format!("layer {index}"), &mut layer.tensors()));
    let matrix = spec.own_head().map(|head| &head.weight);
    let of_head = weights.head.iter().flat_map(|head| head.bias.iter().chain(head.scales()));
    let name = if matrix.is_none() { "final norm" } else { "head" };
    let norm = weights.final_norm.iter().flat_map(NormWeights::tensors);
    let head = part(name.into(), &mut norm.chain(matrix).chain(of_head));
    let head = Some(head).filter(|head| !head.bytes.is_empty());
    std::iter::once(embedding).chain(layers).chain(head).collect()
}

/// What every tensor of a resolved model is used for: vectors have one dimension, everything else is a matrix. Scales
/// and convolutions are read as vectors whatever their shape; zero points are integers that no arithmetic reads as numbers of
/// a model, and scales of blocks are part of these.
pub(crate) fn roles(spec: &ModelSpec) -> impl Iterator<Item = (TensorKind, &TensorInfo)> {
    let scales: HashSet<&str> = spec.scales().map(|scale| scale.name.as_str()).collect();
    let vectors = spec.weights.layers.iter().flat_map(LayerWeights::vectors);
    let vectors: HashSet<&str> = vectors.map(|vector| vector.name.as_str()).collect();
    spec.tensors().filter_map(move |tensor| {
        let vector = tensor.shape.len() == 1 || vectors.contains(tensor.name.as_str());
        let scale = scales.contains(tensor.name.as_str());
        match (scale, tensor.dtype) {
            (true, DType::I8 | DType::U8 | DType::I32 | DType::F8_E8M0 | DType::F8_E4M3) => None,
            (true, _) => Some((TensorKind::Vector, tensor)),
            (false, _) => Some((if vector { TensorKind::Vector } else { TensorKind::Matrix }, tensor)),
        }
    })
}

/// The tensors of a vision tower but scales, each as a matrix or a vector.
pub(crate) fn tower_roles(spec: &VisionSpec) -> impl Iterator<Item = (TensorKind, &TensorInfo)> {
    spec.weights.list().into_iter().flat_map(|weight| match weight {
        Weight::Matrix(matrix) => {
            let bias = matrix.bias.iter().map(|bias| (TensorKind::Vector, bias));
            std::iter::once((TensorKind::Matrix, &matrix.weight)).chain(bias).collect()
        }
        weight => weight.tensors().into_iter().map(|tensor| (TensorKind::Vector, tensor)).collect::<Vec<_>>(),
    })
}

fn dtypes(spec: &ModelSpec, engine: &DeviceEngine<'_>, request: ActivationDtype) -> Vec<DtypeSummary> {
    let mut dtypes: Vec<DtypeSummary> = Vec::new();
    for (dtype, (tensors, bytes)) in spec.dtypes() {
        let of_dtype = || roles(spec).filter(|(_, tensor)| tensor.dtype == dtype).map(|(role, _)| role);
        // A dtype of matrices and vectors is judged by its matrices: they are the arithmetic.
        let role =
            if of_dtype().any(|role| role == TensorKind::Matrix) { TensorKind::Matrix } else { TensorKind::Vector };
        // The scales of F4's blocks and NF4's runs and the zero points of packed weights are read with them.
        let tier = match dtype {
            DType::F8_E8M0 => capability::tier(DType::F4, engine).ok(),
            DType::I32 => capability::tier(DType::U4, engine).ok(),
            DType::U8 if role == TensorKind::Vector => capability::tier(DType::NF4, engine).ok(),
            _ => capability::tier_for(role, dtype, engine).ok(),
        };
        let refused = of_dtype().filter(|&role| capability::tier_for(role, dtype, engine).is_err()).count();
        // Weights by columns are multiplied with activations of 16 bits alone.
        let in_rows = |linear: &LinearWeights| !matches!(linear.scaling, Some(Scaling::Columns(_)));
        let of_layers = || spec.weights.layers.iter().flat_map(LayerWeights::linears);
        let request = match of_layers().any(|linear| linear.weight.dtype == dtype && in_rows(linear)) {
            true => request,
            false => ActivationDtype::Prescribed,
        };
        let activations = capability::activations(dtype, engine, request).filter(|_| role == TensorKind::Matrix);
        dtypes.push(DtypeSummary { dtype, tensors, bytes, tier, activations, refused });
    }
    dtypes.sort_by_key(|summary| std::cmp::Reverse(summary.bytes));
    dtypes
}

impl RopeSummary {
    fn new(rope: &Rope) -> RopeSummary {
        let (scaling, scaling_parameters) = match &rope.scaling {
            RopeScaling::Default => ("default", json!({})),
            RopeScaling::Linear { factor } => ("linear", json!({ "factor": factor })),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => (
                "llama3",
                json!({
                    "factor": factor,
                    "low_freq_factor": low_freq_factor,
                    "high_freq_factor": high_freq_factor,
                    "original_context": original_context,
                }),
            ),
            RopeScaling::Factors { tensor } => ("frequency_factors", json!({ "tensor": tensor.name })),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate: _ } => (
                "yarn",
                json!({
                    "factor": factor,
                    "original_context": original_context,
                    "beta_fast": beta_fast,
                    "beta_slow": beta_slow,
                    "magnitude": rope.magnitude,
                }),
            ),
            RopeScaling::Proportional { factor, pairs } => {
                ("proportional", json!({ "factor": factor, "pairs": pairs }))
            }
            RopeScaling::LongRope { original_context, .. } => {
                ("longrope", json!({ "original_context": original_context, "magnitude": rope.magnitude }))
            }
        };
        RopeSummary {
            layout: rope.layout,
            theta: rope.theta,
            scaling,
            scaling_parameters,
            dimensions: rope.dimensions,
            source: rope.source.clone(),
        }
    }
}

impl TokenizerSummary {
    fn new(tokenizer: &TokenizerSpec) -> TokenizerSummary {
        TokenizerSummary {
            kind: match tokenizer.kind {
                TokenizerKind::Json => "tokenizer_json",
                TokenizerKind::SentencePiece => "sentence_piece",
                TokenizerKind::WordPiece => "word_piece",
                TokenizerKind::Unigram => "unigram",
                TokenizerKind::ByteLevelBpe => "byte_level_bpe",
                TokenizerKind::CharacterBpe => "character_bpe",
                TokenizerKind::Missing => "missing",
            },
            pre: tokenizer.pre.clone(),
            tokens: tokenizer.tokens,
            bos: tokenizer.bos,
            add_bos: tokenizer.add_bos,
            stop_ids: tokenizer.stop_ids.keys().copied().collect(),
            stop_sources: tokenizer.stop_ids.clone(),
        }
    }
}
