//! Muse Glimmer, text only: gates of attention's output, norms around the sub-layers, of the embedding and of heads, windows in
//! three of four layers, which alone rotate, and factors of scores and logits.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionGate, gguf: "blk.{}.attn_gate",   config: "model.layers.{}.self_attn.gate_proj" },
    // These have no weights; in GGUF that of queries is the factor of scores.
    TensorName { role: Role::EmbeddingNorm, gguf: "",                   config: "" },
    TensorName { role: Role::QNorm,         gguf: "blk.{}.attn_q_norm", config: "" },
    TensorName { role: Role::KNorm,         gguf: "blk.{}.attn_k_norm", config: "" },
];

const CONFIG: &str = "the default of transformers' MuseGlimmerTextConfig";

pub(super) const FAMILY: Family = Family {
    id: "muse_glimmer",
    gguf_architectures: &["muse-glimmer"],
    model_types: &[("muse_glimmer_text", &[])],
    wrappers: &[("MuseGlimmerForConditionalGeneration", "muse_glimmer")],
    files: FileTable {
        defaults: &[&[("head_dim", 128.0), ("num_key_value_heads", 2.0), ("rms_norm_eps", 1e-5)]],
        defaults_source: CONFIG,
        refused: &[Refusal::AbsentGguf(".attention.sliding_window"), Refusal::AbsentGguf(".logit_scale")],
        ..FILES
    },
    tensors: &[TENSORS, gemma2::NORMS, LLAMA_LIKE_TENSORS],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        config_default: 2048,
        source: "the default of transformers' MuseGlimmerTextConfig and of llama.cpp",
        model_types: &["muse_glimmer_text"],
        ..PATTERN
    }),
    block: BlockTable {
        norm: NormKind::RmsFromOne,
        plain_final_norm: true,
        output_norm_eps: Some((
            Key::config("post_norm_eps"),
            1e-8,
            "the default of transformers' config and of llama.cpp",
        )),
        attention_gate: Some(GateWidth::Element),
        factors: &[
            Factor {
                config_default: Some((3.87, CONFIG)),
                ..Factor::of_config(FactorOf::ScoresTimes, "qk_scale_factor")
            },
            Factor {
                config_default: Some((0.196_116_135_138_184_04, CONFIG)),
                ..Factor::new(FactorOf::Logits, Key { gguf: ".logit_scale", config: "output_multiplier" })
            },
            Factor { config_default: Some((20.0, CONFIG)), ..gemma2::LOGIT_CAP },
        ],
        ..BLOCK
    },
    rope: RopeTable {
        theta: Some((10_000.0, CONFIG)),
        unrotated: Some(Unrotated::Bases { list: "layer_rope_theta", gguf: "", windowed: true }),
        ..PERMUTED
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Muse Glimmer",
    ..LLAMA_LIKE
};
