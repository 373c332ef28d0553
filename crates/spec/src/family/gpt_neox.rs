//! GPT-NeoX: Pythia, GPT-NeoX-20B, Dolly, RedPajama-INCITE.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "gpt_neox.embed_in" },
    TensorName { role: Role::Head,          gguf: "output",              config: "embed_out" },
    TensorName { role: Role::Qkv,           gguf: "",                    config: "gpt_neox.layers.{}.attention.query_key_value" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "gpt_neox.layers.{}.attention.dense" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "gpt_neox.layers.{}.mlp.dense_h_to_4h" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "gpt_neox.layers.{}.mlp.dense_4h_to_h" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "gpt_neox.final_layer_norm" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "gpt_neox.layers.{}.input_layernorm" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",     config: "gpt_neox.layers.{}.post_attention_layernorm" },
];

const CONFIG: &str = "the default of transformers' GPTNeoXConfig";

pub(super) const FAMILY: Family = Family {
    id: "gpt_neox",
    gguf_architectures: &["gptneox"],
    model_types: &[("gpt_neox", &["GPTNeoXForCausalLM"])],
    files: FileTable {
        keys: HEADS_ALIKE_KEYS,
        refused: &[Refusal::AbsentGguf(".use_parallel_residual")],
        aliases: &[("partial_rotary_factor", "rotary_pct"), ("rope_theta", "rotary_emb_base")],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[QKV],
    biases: &[
        (&[Role::Qkv, Role::Q, Role::K, Role::V, Role::O], Bias::UnlessFlag("attention_bias")),
        (&[Role::Up, Role::Down], Bias::Always),
    ],
    block: BlockTable {
        norm: NormKind::Layer,
        // GGUF has no key for it. llama.cpp computes all by the tanh formula, which is GPT-NeoX-20B's alone.
        activation: (Activation::Gelu, &["gelu"]),
        other_activations: &[(Activation::GeluTanh, &["gelu_fast", "gelu_new", "gelu_pytorch_tanh"])],
        parallel: Parallel::UnlessFlag(Key { gguf: ".use_parallel_residual", config: "use_parallel_residual" }),
        qkv_order: QkvOrder::ByHeads,
        ..BLOCK
    },
    rope: RopeTable { rotary_part: Some((0.25, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "GPT-NeoX",
    ..LLAMA_LIKE
};
