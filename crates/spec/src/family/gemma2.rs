//! Gemma 2: norms around the sub-layers, capped scores and logits, a window in every other layer.

use super::*;

/// Listed before Llama's names: Llama's norm before the feed-forward layer has the name of this norm after attention.
#[rustfmt::skip]
pub(super) const NORMS: &[TensorName] = &[
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::MlpNorm,             gguf: "blk.{}.ffn_norm",            config: "model.layers.{}.pre_feedforward_layernorm" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",       config: "model.layers.{}.post_feedforward_layernorm" },
];

/// The score scale of models whose files give none: the default of transformers' Gemma2Config and Gemma3TextConfig.
pub(super) const SCORE_SCALE: Factor = Factor {
    config_default: Some((256.0, "the default of transformers' config of this family")),
    ..Factor::new(FactorOf::ScoresByRoot, Key::config("query_pre_attn_scalar"))
};

/// The cap on logits. Only Gemma 2 has one where no key gives it.
pub(super) const LOGIT_CAP: Factor =
    Factor::new(FactorOf::LogitCap, Key { gguf: ".final_logit_softcapping", config: "final_logit_softcapping" });

const LLAMA_CPP: &str = "the default of llama.cpp";
const CONFIG: &str = "the default of transformers' Gemma2Config";

pub(super) const FAMILY: Family = Family {
    id: "gemma2",
    gguf_architectures: &["gemma2"],
    model_types: &[("gemma2", &["Gemma2ForCausalLM"])],
    files: FileTable {
        refused: &[Refusal::Set("use_bidirectional_attention", "attention to later positions")],
        ..FILES
    },
    tensors: &[NORMS, LLAMA_LIKE_TENSORS],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        gguf_default: 4096,
        source: "the default of transformers' Gemma2Config and of llama.cpp",
        model_types: &["gemma2"],
        ..PATTERN
    }),
    block: BlockTable {
        norm: NormKind::RmsFromOne,
        activation: (Activation::GeGlu { gate: () }, &["gelu_pytorch_tanh"]),
        factors: &[
            SCORE_SCALE,
            Factor {
                of: FactorOf::ScoreCap,
                key: Key { gguf: ".attn_logit_softcapping", config: "attn_logit_softcapping" },
                gguf_default: Some((50.0, LLAMA_CPP)),
                config_default: Some((50.0, CONFIG)),
            },
            Factor { gguf_default: Some((30.0, LLAMA_CPP)), config_default: Some((30.0, CONFIG)), ..LOGIT_CAP },
        ],
        gguf_score_scale: &[(46, "Gemma 2 27B, as in llama.cpp")],
        ..BLOCK
    },
    rope: RopeTable { theta: Some((10_000.0, "the default of transformers' Gemma2Config and of llama.cpp")), ..ROPE },
    head: HeadTable { tied: (true, CONFIG), embedding_by_root_of_width: true, ..HEAD },
    name: "Gemma 2",
    ..LLAMA_LIKE
};
