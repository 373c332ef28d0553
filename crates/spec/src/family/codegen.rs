//! CodeGen: GPT-J with queries, values and keys in four groups of heads in one matrix. llama.cpp has no such architecture.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Qkv, gguf: "", config: "transformer.h.{}.attn.qkv_proj" },
];

const CONFIG: &str = "the default of transformers' CodeGenConfig";

pub(super) const FAMILY: Family = Family {
    id: "codegen",
    model_types: &[("codegen", &["CodeGenForCausalLM"])],
    tensors: &[TENSORS, gptj::TENSORS],
    block: BlockTable { qkv_order: QkvOrder::Groups(4), ..gptj::FAMILY.block },
    rope: RopeTable {
        rotary_dim: Some(("rotary_dim", 64, CONFIG)),
        theta: Some((10_000.0, "transformers' CodeGenAttention")),
        ..gptj::FAMILY.rope
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "CodeGen",
    ..gptj::FAMILY
};
