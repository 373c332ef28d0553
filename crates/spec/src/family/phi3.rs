//! Phi-3: Phi-3 mini and medium, Phi-3.5-mini, Phi-4, Phi-4-mini.

use super::{Evidence, Family, FusedName, LLAMA_LIKE, Role, Variant, Window};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "phi3",
    gguf_architectures: &["phi3"],
    model_types: &[("phi3", &["Phi3ForCausalLM"])],
    fused: &[
        FusedName {
            roles: &[Role::Q, Role::K, Role::V],
            gguf: Some("blk.{}.attn_qkv"),
            config: Some("model.layers.{}.self_attn.qkv_proj"),
        },
        FusedName {
            roles: &[Role::Gate, Role::Up],
            gguf: Some("blk.{}.ffn_up"),
            config: Some("model.layers.{}.mlp.gate_up_proj"),
        },
    ],
    window: Window::Honoured,
    rotary_part: Some((1.0, "the default of transformers' Phi3Config")),
    // The first releases call it `su`; transformers' Phi3Config reads `yarn` as longrope as well.
    rope_aliases: &[("su", "longrope"), ("yarn", "longrope")],
    default_original_context: Some((4096, "the default of transformers' Phi3Config")),
    default_tied: (false, "the default of transformers' Phi3Config"),
    variants: &[
        Variant {
            name: "Phi-4-mini",
            any: &[&[Evidence::Vocab(200_064)], &[Evidence::Tied], &[Evidence::Name("phi-4-mini")]],
        },
        Variant { name: "Phi-4", any: &[&[Evidence::Vocab(100_352)], &[Evidence::Template("<|im_sep|>")]] },
        Variant {
            name: "Phi-3.5",
            any: &[&[Evidence::LongFactor(1.08)], &[Evidence::Name("phi-3.5")], &[Evidence::Name("phi 3.5")]],
        },
    ],
    name: "Phi-3",
    ..LLAMA_LIKE
};
