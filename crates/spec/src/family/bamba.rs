//! Bamba: Granite 4's layers of Mamba-2 and attention without its factors, half of a head rotated. In GGUF it would be a
//! `granitehybrid`, where llama.cpp rotates other pairs.

use super::granite_hybrid::{CONV_BIAS, FUSED_INPUT, INPUT_BIAS, MAMBA, OUTPUT_BIAS, STATES};
use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::FinalNorm, gguf: "", config: "model.final_layernorm" },
    TensorName { role: Role::MlpNorm,   gguf: "", config: "model.layers.{}.pre_ff_layernorm" },
    TensorName { role: Role::Gate,      gguf: "", config: "model.layers.{}.feed_forward.gate_proj" },
    TensorName { role: Role::Up,        gguf: "", config: "model.layers.{}.feed_forward.up_proj" },
    TensorName { role: Role::Down,      gguf: "", config: "model.layers.{}.feed_forward.down_proj" },
];

const CONFIG: &str = "the default of transformers' BambaConfig";

pub(super) const FAMILY: Family = Family {
    id: "bamba",
    gguf_architectures: &[],
    model_types: &[("bamba", &["BambaForCausalLM"])],
    files: FileTable { keys: KEYS, aliases: &[], defaults_source: CONFIG, ..granite_hybrid::FAMILY.files },
    tensors: &[TENSORS, MAMBA, LLAMA_LIKE_TENSORS],
    fused: &[FUSED_INPUT],
    biases: &[ATTENTION_BIAS, MLP_BIAS, INPUT_BIAS, OUTPUT_BIAS, CONV_BIAS],
    block: BlockTable {
        states: Some(StateTable { layers: StateLayers::AllButListed("attn_layer_indices"), ..STATES }),
        ..BLOCK
    },
    rope: RopeTable {
        theta: Some((10_000.0, CONFIG)),
        rotary_part: Some((0.5, "what transformers' BambaConfig sets")),
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Bamba",
    ..LLAMA_LIKE
};
