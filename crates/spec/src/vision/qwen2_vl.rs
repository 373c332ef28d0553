//! Qwen2-VL: patches of two frames, square after square, and queries and keys that are rotated by rows and columns; feed-forward layers
//! four times as wide as the blocks.

use super::{AxialTable, IdKey, MmprojTable, Outputs, PatchTable, Step, Tower, qwen2_5_vl, qwen3_vl, siglip};
use crate::block::{Activation, DenseActivation};
use crate::family::{Bias, BlockTable, Family, FileTable, Key, Keys, Refusal, Role, TensorName};

#[rustfmt::skip]
const MLP: &[TensorName] = &[
    TensorName { role: Role::Up,            gguf: "v.blk.{}.ffn_up",   config: "blocks.{}.mlp.fc1" },
    TensorName { role: Role::Down,          gguf: "v.blk.{}.ffn_down", config: "blocks.{}.mlp.fc2" },
];

const CONFIG: &str = "the default of transformers' Qwen2VLVisionConfig";

const ENCODER: Family = Family {
    id: "qwen2vl_vision",
    files: FileTable {
        keys: Keys {
            hidden: Key { config: "embed_dim", ..siglip::KEYS.hidden },
            // llama.cpp's converter writes the width of the language model as it.
            feed_forward: Key::NONE,
            ..qwen3_vl::ENCODER.files.keys
        },
        width_factor: Some((4, CONFIG)),
        refused: &[Refusal::Unless(Key::config("mlp_ratio"), &["4"], "another width of feed-forward layers")],
        defaults_source: CONFIG,
        ..qwen3_vl::ENCODER.files
    },
    tensors: &[qwen2_5_vl::ATTENTION, MLP],
    fused: qwen2_5_vl::FUSED,
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always)],
    block: BlockTable { activation: (Activation::QuickGelu, &["quick_gelu"]), ..qwen3_vl::ENCODER.block },
    name: "Qwen2-VL",
    ..qwen3_vl::ENCODER
};

const IMAGE: IdKey = ("image_token_id", 151_655, "the default of transformers' Qwen2VLConfig");

pub(super) const TOWER: Tower = Tower {
    name: "Qwen2-VL",
    classes: &["Qwen2VLForConditionalGeneration"],
    // As transformers 5 writes it, and as published.
    model_types: &["qwen2_vl_vision", "qwen2_vl"],
    mmproj: Some(MmprojTable {
        projector_type: "qwen2vl_merger",
        activations: &[("", Activation::QuickGelu)],
        pixels: Some((3136, 12_845_056, "as in the published preprocessor_config.json of Qwen2-VL")),
        ..qwen2_5_vl::MMPROJ
    }),
    config_class: "Qwen2VLVisionConfig",
    encoder: &ENCODER,
    prompt: super::PromptTable { mark: IMAGE, placeholder: IMAGE, ..qwen3_vl::TOWER.prompt },
    patches: PatchTable { bias: false, positions: None, interpolated: Key::NONE, ..qwen3_vl::TOWER.patches },
    rope: Some(AxialTable { theta: (10_000.0, CONFIG), alternating: false }),
    projector: &[
        Step::layer_norm("v.post_ln", "visual.merger.ln_q"),
        Step::Squares,
        Step::linear("mm.0", "visual.merger.mlp.0", Outputs::Same),
        Step::Activation(DenseActivation::Gelu),
        Step::linear("mm.2", "visual.merger.mlp.2", Outputs::TextBy("hidden_size")),
    ],
    deepstack: None,
    ..qwen3_vl::TOWER
};
