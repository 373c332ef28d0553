//! GPT-J: a parallel block whose heads rotate adjacent pairs. llama.cpp has no such architecture.

use super::*;

#[rustfmt::skip]
pub(super) const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "", config: "transformer.wte" },
    TensorName { role: Role::Head,          gguf: "", config: "lm_head" },
    TensorName { role: Role::Q,             gguf: "", config: "transformer.h.{}.attn.q_proj" },
    TensorName { role: Role::K,             gguf: "", config: "transformer.h.{}.attn.k_proj" },
    TensorName { role: Role::V,             gguf: "", config: "transformer.h.{}.attn.v_proj" },
    TensorName { role: Role::O,             gguf: "", config: "transformer.h.{}.attn.out_proj" },
    TensorName { role: Role::Up,            gguf: "", config: "transformer.h.{}.mlp.fc_in" },
    TensorName { role: Role::Down,          gguf: "", config: "transformer.h.{}.mlp.fc_out" },
    TensorName { role: Role::FinalNorm,     gguf: "", config: "transformer.ln_f" },
    TensorName { role: Role::AttentionNorm, gguf: "", config: "transformer.h.{}.ln_1" },
];

const CONFIG: &str = "the default of transformers' GPTJConfig";

pub(super) const FAMILY: Family = Family {
    id: "gptj",
    gguf_architectures: &[],
    model_types: &[("gptj", &["GPTJForCausalLM"])],
    files: FileTable { transposed: false, refused: &[], ..gpt2::FAMILY.files },
    tensors: &[TENSORS],
    fused: &[],
    biases: &[(&[Role::Up, Role::Down, Role::Head], Bias::Always)],
    block: BlockTable { parallel: Parallel::Yes, ..gpt2::FAMILY.block },
    rope: RopeTable {
        config_layout: RopeLayout::Interleaved,
        rotary_dim: Some(("rotary_dim", 64, CONFIG)),
        theta: Some((10_000.0, "transformers' GPTJAttention")),
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "GPT-J",
    ..LLAMA_LIKE
};
