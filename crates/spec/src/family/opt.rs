//! OPT and Galactica: positions are rows of a matrix, the first two of which no token has. llama.cpp has no such architecture.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "", config: "model.decoder.embed_tokens" },
    TensorName { role: Role::Positions,     gguf: "", config: "model.decoder.embed_positions" },
    TensorName { role: Role::Head,          gguf: "", config: "lm_head" },
    TensorName { role: Role::Q,             gguf: "", config: "model.decoder.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,             gguf: "", config: "model.decoder.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,             gguf: "", config: "model.decoder.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::O,             gguf: "", config: "model.decoder.layers.{}.self_attn.out_proj" },
    TensorName { role: Role::Up,            gguf: "", config: "model.decoder.layers.{}.fc1" },
    TensorName { role: Role::Down,          gguf: "", config: "model.decoder.layers.{}.fc2" },
    TensorName { role: Role::FinalNorm,     gguf: "", config: "model.decoder.final_layer_norm" },
    TensorName { role: Role::AttentionNorm, gguf: "", config: "model.decoder.layers.{}.self_attn_layer_norm" },
    TensorName { role: Role::MlpNorm,       gguf: "", config: "model.decoder.layers.{}.final_layer_norm" },
];

const CONFIG: &str = "the default of transformers' OPTConfig";

pub(super) const FAMILY: Family = Family {
    id: "opt",
    gguf_architectures: &[],
    model_types: &[("opt", &["OPTForCausalLM"])],
    files: FileTable {
        keys: Keys { feed_forward: Key { config: "ffn_dim", ..KEYS.feed_forward }, ..HEADS_ALIKE_KEYS },
        aliases: &[("hidden_act", "activation_function")],
        defaults: &[&[("layer_norm_eps", 1e-5)]],
        defaults_source: "transformers' OPTDecoderLayer",
        refused: &[
            Refusal::Unset(Key::config("do_layer_norm_before"), "norms after the sums"),
            Refusal::Unset(Key::config("layer_norm_elementwise_affine"), "norms without weights"),
            Refusal::Set("_remove_final_layer_norm", "no norm after the last layer"),
            Refusal::Unlike("word_embed_proj_dim", KEYS.hidden, "embeddings of another width"),
        ],
        ..FILES
    },
    tensors: &[TENSORS],
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::UnlessFlag("enable_bias"))],
    block: BlockTable {
        norm: NormKind::Layer,
        activation: (Activation::Relu, &["relu"]),
        other_activations: &[(Activation::Gelu, &["gelu"])],
        ..BLOCK
    },
    head: HeadTable { tied: (true, CONFIG), first_position: 2, ..HEAD },
    name: "OPT",
    ..LLAMA_LIKE
};
