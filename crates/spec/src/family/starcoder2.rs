//! StarCoder2: LayerNorm, biases everywhere, GELU without a gate.

use super::*;

#[rustfmt::skip]
const FEED_FORWARD: &[TensorName] = &[
    TensorName { role: Role::Up,   gguf: "blk.{}.ffn_up",   config: "model.layers.{}.mlp.c_fc" },
    TensorName { role: Role::Down, gguf: "blk.{}.ffn_down", config: "model.layers.{}.mlp.c_proj" },
];

const CONFIG: &str = "the default of transformers' Starcoder2Config";

pub(super) const FAMILY: Family = Family {
    id: "starcoder2",
    gguf_architectures: &["starcoder2"],
    model_types: &[("starcoder2", &["Starcoder2ForCausalLM"])],
    files: FileTable {
        keys: Keys { norm_eps: Key { gguf: ".attention.layer_norm_epsilon", config: "norm_epsilon" }, ..KEYS },
        ..FILES
    },
    tensors: &[FEED_FORWARD, LLAMA_LIKE_TENSORS],
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::UnlessFlag("use_bias"))],
    // llama.cpp has no window in this architecture, and its converter drops it.
    window: Window::OfModelTypes(&["starcoder2"], (0, CONFIG)),
    block: BlockTable {
        norm: NormKind::Layer,
        activation: (Activation::GeluTanh, &["gelu_pytorch_tanh", "gelu_new"]),
        ..BLOCK
    },
    rope: RopeTable {
        theta: Some((10_000.0, "the default of transformers' Starcoder2Config and of llama.cpp")),
        ..ROPE
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "StarCoder2",
    ..LLAMA_LIKE
};
