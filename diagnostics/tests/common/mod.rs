//! Models made by hand: a geometry and a dtype become the spec and the input that real files would give.
#![allow(dead_code, clippy::expect_used)] // each test file uses its part; all of it is test code

use model_factory_diagnostics::DType;
use model_factory_diagnostics::header::TensorInfo;
use model_factory_diagnostics::report::{FileStatus, InputFile, InputSummary};
use model_factory_diagnostics::spec::{
    Activation, AttentionWeights, DenseWeights, Embeds, FeedForwardLayer, FeedForwardWeights, KeyValueProjections,
    KeyValueWeights, KeysValues, LayerWeights, LinearWeights, Mixer, MixerWeights, ModelSpec, ModelWeights,
    Multipliers, Norm, NormWeights, Rope, RopeLayout, RopeScaling, Sampling,
};
use model_factory_diagnostics::tokenizer::{
    ChatTemplateSource, DEFAULT_TEMPLATE, TemplatePlace, TokenizerKind, TokenizerSpec,
};

pub(crate) struct Geometry {
    pub(crate) variant: &'static str,
    pub(crate) hidden: u64,
    pub(crate) feed_forward: u64,
    pub(crate) layers: usize,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) vocab: u64,
    pub(crate) context: usize,
    pub(crate) tied: bool,
}

pub(crate) const TINY_LLAMA: Geometry = Geometry {
    variant: "TinyLlama",
    hidden: 2048,
    feed_forward: 5632,
    layers: 22,
    heads: 32,
    kv_heads: 4,
    head_dim: 64,
    vocab: 32000,
    context: 2048,
    tied: false,
};

pub(crate) const LLAMA_31_8B: Geometry = Geometry {
    variant: "Llama 3.1",
    hidden: 4096,
    feed_forward: 14336,
    layers: 32,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    vocab: 128256,
    context: 131072,
    tied: false,
};

pub(crate) const PHI_3_MINI_128K: Geometry = Geometry {
    variant: "Phi-3",
    hidden: 3072,
    feed_forward: 8192,
    layers: 32,
    heads: 32,
    kv_heads: 32,
    head_dim: 96,
    vocab: 32064,
    context: 131072,
    tied: false,
};

pub(crate) const LLAMA_32_1B: Geometry = Geometry {
    variant: "Llama 3.2",
    hidden: 2048,
    feed_forward: 8192,
    layers: 16,
    heads: 32,
    kv_heads: 8,
    head_dim: 64,
    vocab: 128256,
    context: 131072,
    tied: true,
};

/// A safetensors model whose tensors all have `dtype`.
pub(crate) fn safetensors(geometry: &Geometry, dtype: DType) -> (ModelSpec, InputSummary) {
    let spec = spec(geometry, &Dtypes { matrix: dtype, vector: dtype, values: dtype, head: dtype });
    let input = input(&spec, "safetensors", "model.safetensors");
    (ModelSpec { architecture: "LlamaForCausalLM".into(), ..spec }, input)
}

/// A GGUF model of one file type: norms in F32, and for Q4_K_M the mixture that llama.cpp makes.
pub(crate) fn gguf(geometry: &Geometry, file_type: &str) -> (ModelSpec, InputSummary) {
    let (matrix, other) = match file_type {
        "Q4_K_M" => (DType::Q4_K, DType::Q6_K),
        name => {
            let dtype = DType::all().find(|dtype| dtype.name() == name).expect("a dtype's name");
            (dtype, dtype)
        }
    };
    let mut spec = spec(geometry, &Dtypes { matrix, vector: DType::F32, values: other, head: other });
    let input = input(&spec, "gguf", &format!("model-{file_type}.gguf"));
    spec.architecture = "llama".into();
    spec.quantization = format!("GGUF {file_type}");
    spec.ropes[0].layout = RopeLayout::Interleaved;
    spec.tokenizer.kind = TokenizerKind::ByteLevelBpe;
    spec.tokenizer.pre = Some("llama-bpe".into());
    (spec, input)
}

struct Dtypes {
    matrix: DType,
    vector: DType,
    /// Of `v` and `down`, which mixtures keep finer.
    values: DType,
    head: DType,
}

fn tensor(name: String, dtype: DType, shape: &[u64]) -> TensorInfo {
    let bytes = dtype.bytes_of(shape.iter().product()).expect("whole blocks");
    TensorInfo { name, dtype, shape: shape.to_vec(), file: 0, offset: 0, bytes }
}

fn linear(name: String, dtype: DType, outputs: u64, inputs: u64) -> LinearWeights {
    LinearWeights::new(tensor(name, dtype, &[outputs, inputs]))
}

fn spec(geometry: &Geometry, dtypes: &Dtypes) -> ModelSpec {
    let &Geometry { hidden, feed_forward, heads, kv_heads, head_dim, vocab, .. } = geometry;
    let norm = |name: String| NormWeights {
        weight: Some(tensor(name, dtypes.vector, &[hidden])),
        width: hidden as usize,
        kind: Norm::Rms { eps: 1e-5, offset: false },
    };
    let (query, kv) = (heads * head_dim, kv_heads * head_dim);
    let layers = (0..geometry.layers).map(|layer| {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let matrix = |part: &str, outputs, inputs| linear(name(part), dtypes.matrix, outputs, inputs);
        let attention = AttentionWeights {
            heads: heads as usize,
            kv_heads: kv_heads as usize,
            head_dim: head_dim as usize,
            q: matrix("self_attn.q_proj", query, hidden),
            gated: false,
            causal: true,
            kv: KeysValues::Own(Box::new(KeyValueWeights {
                projections: KeyValueProjections::Apart {
                    k: matrix("self_attn.k_proj", kv, hidden),
                    v: Some(linear(name("self_attn.v_proj"), dtypes.values, kv, hidden)),
                },
                k_norm: None,
                v_norm_eps: None,
            })),
            q_norm: None,
            norms_each_head: false,
            norms_rotated: false,
            rope: Some(0),
            query_scale: None,
            score_scale: 1.0 / (head_dim as f32).sqrt(),
            score_cap: None,
            alibi: None,
            positions: None,
            qkv_limit: None,
            sinks: None,
            window: None,
            chunked: false,
            gates: 0,
            softplus_gates: false,
            gate: None,
            o: matrix("self_attn.o_proj", hidden, query),
        };
        let mixer = MixerWeights {
            norm: Some(norm(name("input_layernorm"))),
            layer: Mixer::Attention(Box::new(attention)),
            beside: None,
            laurel: None,
            output_norm: None,
            sum_norm: None,
        };
        let dense = DenseWeights {
            up: matrix("mlp.up_proj", feed_forward, hidden),
            activation: Activation::SwiGlu { gate: matrix("mlp.gate_proj", feed_forward, hidden) },
            sparsity: None,
            curve: None,
            down: linear(name("mlp.down_proj"), dtypes.values, hidden, feed_forward),
        };
        let norm = Some(norm(name("post_attention_layernorm")));
        let feed_forward = FeedForwardWeights {
            norm,
            layer: FeedForwardLayer::Dense(Box::new(dense)),
            beside: None,
            output_norm: None,
            sum_norm: None,
        };
        let (mixer, feed_forward) = (Some(mixer), Some(feed_forward));
        LayerWeights { mixer, feed_forward, altup: None, layer_embedding: None, scale: None, parallel: false }
    });
    let weights = ModelWeights {
        joined: None,
        embedding: linear("model.embed_tokens.weight".into(), dtypes.matrix, vocab, hidden),
        input: None,
        layer_embedding: None,
        altup: None,
        layers: layers.collect(),
        final_norm: Some(norm("model.norm.weight".into())),
        head: Some(linear("lm_head.weight".into(), dtypes.head, vocab, hidden)),
        classifier: None,
        dense: Vec::new(),
    };
    let place = TemplatePlace { file: "chat_template.jinja".into(), key: None };
    let template = ChatTemplateSource { text: "{{ messages }}".into(), place };
    let mut spec = ModelSpec {
        passes: 1,
        predictor: None,
        vision: None,
        family: "llama",
        variant: geometry.variant.into(),
        architecture: String::new(),
        parameters: 0,
        hidden: hidden as usize,
        feed_forward: feed_forward as usize,
        heads: heads as usize,
        kv_heads: kv_heads as usize,
        head_dim: head_dim as usize,
        vocab: vocab as usize,
        context_trained: geometry.context,
        ropes: vec![Rope {
            layout: RopeLayout::HalfSplit,
            theta: 10000.0,
            scaling: RopeScaling::Default,
            magnitude: 1.0,
            score_factor: 1.0,
            sections: None,
            dimensions: head_dim as usize,
            source: "rope_theta".into(),
        }],
        multipliers: Multipliers::NONE,
        tied_embeddings: geometry.tied,
        weights,
        tokenizer: TokenizerSpec {
            kind: TokenizerKind::Json,
            model: Some("BPE".into()),
            pre: None,
            tokens: vocab as usize,
            bos: Some(1),
            bos_text: Some("<s>".into()),
            eos_text: Some("</s>".into()),
            named_tokens: [].into(),
            add_bos: true,
            eos: Some(2),
            add_eos: false,
            add_space_prefix: false,
            pair: None,
            word_piece: None,
            assumptions: Vec::new(),
            stop_ids: [(2, vec!["config.json".into(), "generation_config.json".into()])].into(),
            chat_templates: [(DEFAULT_TEMPLATE.into(), template)].into(),
        },
        sampling: Sampling::default(),
        embeds: Embeds::NotSaid,
        images: None,
        text_limit: None,
        quantization: "none".into(),
        assumptions: Vec::new(),
        unused_tensors: Vec::new(),
    };
    spec.parameters = spec.tensors().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
    spec
}

fn input(spec: &ModelSpec, kind: &'static str, name: &str) -> InputSummary {
    let bytes = spec.tensors().map(|tensor| tensor.bytes).sum::<u64>() + 20_000;
    let file = InputFile { name: name.into(), bytes, part: 1, status: FileStatus::Present };
    InputSummary {
        path: format!("models/{name}"),
        kind: Some(kind),
        files: vec![file],
        warnings: Vec::new(),
        header_bytes_read: Some(20_000),
        ..InputSummary::default()
    }
}
