//! GPT-2 and DistilGPT2: positions are rows of a matrix; matrices are stored by inputs in safetensors.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "transformer.wte" },
    TensorName { role: Role::Positions,     gguf: "position_embd",       config: "transformer.wpe" },
    TensorName { role: Role::Head,          gguf: "output",              config: "lm_head" },
    TensorName { role: Role::Qkv,           gguf: "",                    config: "transformer.h.{}.attn.c_attn" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "transformer.h.{}.attn.c_proj" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "transformer.h.{}.mlp.c_fc" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "transformer.h.{}.mlp.c_proj" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "transformer.ln_f" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "transformer.h.{}.ln_1" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",     config: "transformer.h.{}.ln_2" },
];

const CONFIG: &str = "the default of transformers' GPT2Config";

/// The keys of `config.json` of the families after GPT-2.
pub(super) const N_KEYS: Keys = Keys {
    hidden: Key { config: "n_embd", ..KEYS.hidden },
    feed_forward: Key { config: "n_inner", ..KEYS.feed_forward },
    layers: Key { config: "n_layer", ..KEYS.layers },
    heads: Key { config: "n_head", ..KEYS.heads },
    context: Key { config: "n_positions", ..KEYS.context },
    norm_eps: Key { config: "layer_norm_epsilon", ..LAYER_NORM_KEYS.norm_eps },
    ..HEADS_ALIKE_KEYS
};

pub(super) const FAMILY: Family = Family {
    id: "gpt2",
    gguf_architectures: &["gpt2"],
    model_types: &[("gpt2", &["GPT2LMHeadModel", "GPT2Model"])],
    files: FileTable {
        keys: N_KEYS,
        aliases: &[("hidden_act", "activation_function")],
        width_factor: Some((4, CONFIG)),
        transposed: true,
        refused: &[
            Refusal::Unset(Key::config("scale_attn_weights"), "scores that are not scaled"),
            Refusal::Set("scale_attn_by_inverse_layer_idx", "scores scaled by the layer"),
            Refusal::Set("add_cross_attention", "cross attention"),
        ],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[QKV],
    biases: &[(&[Role::Qkv, Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always)],
    block: BlockTable {
        norm: NormKind::Layer,
        activation: (Activation::GeluTanh, &["gelu_new", "gelu_pytorch_tanh", "gelu_fast"]),
        other_activations: &[(Activation::Gelu, &["gelu"])],
        ..BLOCK
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "GPT-2",
    ..LLAMA_LIKE
};
