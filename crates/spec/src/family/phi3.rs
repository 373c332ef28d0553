//! Phi-3: Phi-3 mini and medium, Phi-3.5-mini, Phi-4, Phi-4-mini.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "phi3",
    gguf_architectures: &["phi3"],
    model_types: &[("phi3", &["Phi3ForCausalLM"])],
    fused: &[
        FusedName { config: "model.layers.{}.self_attn.qkv_proj", ..QKV },
        FusedName { config: "model.layers.{}.mlp.gate_up_proj", ..GATE_UP },
    ],
    window: Window::Honoured,
    rope: RopeTable {
        rotary_part: Some((1.0, "the default of transformers' Phi3Config")),
        // The first releases call longrope `su`; transformers' Phi3Config reads `yarn` as longrope as well.
        aliases: &[("su", "longrope"), ("yarn", "longrope")],
        original_context: Some((4096, "the default of transformers' Phi3Config")),
        ..ROPE
    },
    head: HeadTable { tied: (false, "the default of transformers' Phi3Config"), ..HEAD },
    variants: &[
        Variant { name: "Phi-4-mini", any: &[&[Vocab(200_064)], &[Tied], &[Name("phi-4-mini")]] },
        Variant { name: "Phi-4", any: &[&[Vocab(100_352)], &[Template("<|im_sep|>")]] },
        Variant { name: "Phi-3.5", any: &[&[LongFactor(1.08)], &[Name("phi-3.5")], &[Name("phi 3.5")]] },
    ],
    name: "Phi-3",
    ..LLAMA_LIKE
};
