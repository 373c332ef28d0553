//! Gemma, the first: Llama's block with norms as offsets from one, a GELU gate and scaled embeddings.

use super::*;

const CONFIG: &str = "the default of transformers' GemmaConfig";

pub(super) const FAMILY: Family = Family {
    id: "gemma",
    gguf_architectures: &["gemma"],
    model_types: &[("gemma", &["GemmaForCausalLM"])],
    files: FileTable {
        defaults: &[&[("head_dim", 256.0)]],
        defaults_source: CONFIG,
        refused: &[Refusal::Set("use_bidirectional_attention", "attention to later positions")],
        ..FILES
    },
    biases: &[ATTENTION_BIAS],
    block: BlockTable {
        norm: NormKind::RmsFromOne,
        // The first releases say gelu and mean its tanh formula.
        activation: (Activation::GeGlu { gate: () }, &["gelu_pytorch_tanh", "gelu"]),
        ..BLOCK
    },
    rope: RopeTable { theta: Some((10_000.0, "the default of transformers' GemmaConfig and of llama.cpp")), ..ROPE },
    head: HeadTable { tied: (true, CONFIG), embedding_by_root_of_width: true, ..HEAD },
    name: "Gemma",
    ..LLAMA_LIKE
};
