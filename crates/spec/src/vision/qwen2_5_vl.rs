//! Qwen2.5-VL: patches of two frames, window after window, in which most blocks attend, and queries and keys that are rotated by rows and
//! columns.

use super::{
    AxialTable, Epsilon, IdKey, MmprojTable, Names, Outputs, PatchTable, Step, Tower, WindowTable, qwen3_vl, siglip,
};
use crate::block::{Activation, DenseActivation};
use crate::family::{
    Bias, BlockTable, Encoder, Family, FileTable, FusedName, HeadTable, Key, Keys, LLAMA_LIKE, NormKind, Role,
    TensorName,
};

/// Norms and attention of the blocks, as in Qwen2-VL.
#[rustfmt::skip]
pub(super) const ATTENTION: &[TensorName] = &[
    TensorName { role: Role::AttentionNorm, gguf: "v.blk.{}.ln1",      config: "blocks.{}.norm1" },
    TensorName { role: Role::Q,             gguf: "v.blk.{}.attn_q",   config: "" },
    TensorName { role: Role::K,             gguf: "v.blk.{}.attn_k",   config: "" },
    TensorName { role: Role::V,             gguf: "v.blk.{}.attn_v",   config: "" },
    TensorName { role: Role::O,             gguf: "v.blk.{}.attn_out", config: "blocks.{}.attn.proj" },
    TensorName { role: Role::MlpNorm,       gguf: "v.blk.{}.ln2",      config: "blocks.{}.norm2" },
];

/// The three products of queries, keys and values as one, in safetensors.
pub(super) const FUSED: &[FusedName] = &[FusedName::new(&[Role::Q, Role::K, Role::V], "", "blocks.{}.attn.qkv")];

#[rustfmt::skip]
const MLP: &[TensorName] = &[
    TensorName { role: Role::Gate,          gguf: "v.blk.{}.ffn_gate", config: "blocks.{}.mlp.gate_proj" },
    TensorName { role: Role::Up,            gguf: "v.blk.{}.ffn_up",   config: "blocks.{}.mlp.up_proj" },
    TensorName { role: Role::Down,          gguf: "v.blk.{}.ffn_down", config: "blocks.{}.mlp.down_proj" },
];

const CONFIG: &str = "the default of transformers' Qwen2_5_VLVisionConfig";

const ENCODER: Family = Family {
    id: "qwen25vl_vision",
    files: FileTable {
        keys: Keys {
            norm_eps: Key { config: "rms_norm_eps", ..siglip::KEYS.norm_eps },
            ..qwen3_vl::ENCODER.files.keys
        },
        defaults: &[&[
            ("rms_norm_eps", 1e-6),
            ("in_channels", 3.0),
            ("temporal_patch_size", 2.0),
            ("spatial_merge_size", 2.0),
            ("window_size", 112.0),
        ]],
        defaults_source: CONFIG,
        ..siglip::ENCODER.files
    },
    tensors: &[ATTENTION, MLP],
    fused: FUSED,
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Gate, Role::Up, Role::Down], Bias::Always)],
    block: BlockTable { activation: (Activation::SwiGlu { gate: () }, &["silu"]), ..LLAMA_LIKE.block },
    head: HeadTable { encoder: Encoder::Yes { by_name: true }, ..LLAMA_LIKE.head },
    name: "Qwen2.5-VL",
    ..LLAMA_LIKE
};

pub(super) const MMPROJ: MmprojTable = MmprojTable {
    projector_type: "qwen2.5vl_merger",
    architectures: &["qwen2vl"],
    activations: &[(".use_silu", Activation::SwiGlu { gate: () })],
    exchanged: true,
    pixels: Some((3136, 12_845_056, "as in the published preprocessor_config.json of Qwen2.5-VL")),
    squares: Some((2, "llama.cpp default")),
    deepstack: "",
    ..qwen3_vl::MMPROJ
};

const IMAGE: IdKey = ("image_token_id", 151_655, "the default of transformers' Qwen2_5_VLConfig");

pub(super) const TOWER: Tower = Tower {
    name: "Qwen2.5-VL",
    classes: &["Qwen2_5_VLForConditionalGeneration"],
    // As transformers 5 writes it, and as published.
    model_types: &["qwen2_5_vl_vision", "qwen2_5_vl"],
    mmproj: Some(MMPROJ),
    config_class: "Qwen2_5_VLVisionConfig",
    encoder: &ENCODER,
    prompt: super::PromptTable { mark: IMAGE, placeholder: IMAGE, ..qwen3_vl::TOWER.prompt },
    patches: PatchTable { bias: false, positions: None, interpolated: Key::NONE, ..qwen3_vl::TOWER.patches },
    windows: Some(WindowTable {
        side: Key { gguf: "", config: "window_size" },
        gguf: (112, "llama.cpp default"),
        whole: ("fullatt_block_indexes", &[7, 15, 23, 31], CONFIG),
        every: ".vision.n_wa_pattern",
    }),
    rope: Some(AxialTable { theta: (10_000.0, CONFIG), alternating: false }),
    projector: &[
        Step::Norm {
            names: Names { gguf: "v.post_ln", config: "visual.merger.ln_q" },
            kind: NormKind::Rms,
            eps: Epsilon::Encoder,
            flag: None,
        },
        Step::Squares,
        Step::linear("mm.0", "visual.merger.mlp.0", Outputs::Same),
        Step::Activation(DenseActivation::Gelu),
        Step::linear("mm.2", "visual.merger.mlp.2", Outputs::TextBy("out_hidden_size")),
    ],
    deepstack: None,
    ..qwen3_vl::TOWER
};
