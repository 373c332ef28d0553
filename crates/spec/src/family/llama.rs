//! Llama: Meta Llama 2 to 3.3, Mistral, TinyLlama, SmolLM2, DeepSeek-R1-Distill-Llama.

use super::{
    Bias, Evidence, Family, FusedName, LLAMA_LIKE, LLAMA_LIKE_TENSORS, Role, SCORE, SCORE_TENSORS, Variant, Window,
};
use crate::block::RopeLayout;

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "llama",
    gguf_architectures: &["llama"],
    model_types: &[("llama", &["LlamaForCausalLM", "LLaMAForCausalLM"]), ("mistral", &["MistralForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, SCORE_TENSORS],
    classifier: Some(SCORE),
    wrappers: &[("Mistral3ForConditionalGeneration", "mistral3")],
    fused: &[FusedName { roles: &[Role::Q, Role::K, Role::V], gguf: Some("blk.{}.attn_qkv"), config: None }],
    // transformers `LlamaAttention` and `LlamaMLP`: one flag covers q, k, v and o, the other gate, up and down.
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias")),
        (&[Role::Gate, Role::Up, Role::Down], Bias::Flag("mlp_bias")),
    ],
    // llama.cpp has no window in this architecture, and its converter drops that of the first Mistral 7B.
    window: Window::OfModelTypes(&["mistral"], (4096, "the default of transformers' MistralConfig")),
    // The GGUF converter permutes the rows of q and k so that neighbours turn together.
    gguf_rope: RopeLayout::Interleaved,
    gguf_rope_freqs_expected: Some((500_000.0, 8192)),
    default_theta: Some((10_000.0, "the default of transformers' LlamaConfig and of llama.cpp")),
    default_tied: (false, "the default of transformers' LlamaConfig"),
    variants: &[
        Variant {
            name: "DeepSeek-R1-Distill-Llama",
            any: &[
                &[Evidence::Template("<｜User｜>")],
                // Other DeepSeek models share these texts, but not Llama 3's base and scaling.
                &[Evidence::BosText("<｜begin▁of▁sentence｜>"), Evidence::RopeScaled, Evidence::Theta(500_000.0)],
            ],
        },
        Variant {
            name: "SmolLM2",
            any: &[
                // The first SmolLM has the same tokenizer and a base of 10000.
                &[Evidence::Pre("smollm"), Evidence::Theta(100_000.0)],
                &[Evidence::Pre("smollm"), Evidence::Theta(130_000.0)],
                &[Evidence::Vocab(49152), Evidence::Theta(100_000.0)],
                &[Evidence::Vocab(49152), Evidence::Theta(130_000.0)],
                &[Evidence::BosText("<|im_start|>"), Evidence::Theta(100_000.0)],
                &[Evidence::BosText("<|endoftext|>"), Evidence::Theta(100_000.0)],
            ],
        },
        Variant {
            name: "TinyLlama",
            any: &[
                &[Evidence::Hidden(2048), Evidence::Layers(22), Evidence::KvHeads(4)],
                // Llama 1 and 2 of this template have no grouped queries or a longer context.
                &[
                    Evidence::EosText("</s>"),
                    Evidence::Template("<|assistant|>"),
                    Evidence::Context(2048),
                    Evidence::GroupedQueries,
                ],
            ],
        },
        Variant {
            name: "Llama 3.3",
            any: &[
                &[Evidence::BosText("<|begin_of_text|>"), Evidence::RopeScaled, Evidence::Name("llama-3.3")],
                &[Evidence::BosText("<|begin_of_text|>"), Evidence::RopeScaled, Evidence::Name("llama 3.3")],
            ],
        },
        Variant {
            name: "Llama 3.2",
            any: &[
                &[Evidence::BosText("<|begin_of_text|>"), Evidence::RopeFactor(32.0)],
                &[Evidence::BosText("<|begin_of_text|>"), Evidence::RopeScaled, Evidence::Tied],
            ],
        },
        Variant { name: "Llama 3.1", any: &[&[Evidence::BosText("<|begin_of_text|>"), Evidence::RopeScaled]] },
        Variant { name: "Llama 3", any: &[&[Evidence::BosText("<|begin_of_text|>")]] },
        // Llama 2's template has Mistral's marks too.
        Variant { name: "Llama 2", any: &[&[Evidence::Template("<<SYS>>")]] },
        Variant {
            name: "Mistral",
            any: &[
                &[Evidence::ModelType("mistral")],
                &[Evidence::Template("[INST]")],
                &[Evidence::Pre("tekken")],
                &[Evidence::Name("mistral")],
            ],
        },
    ],
    name: "Llama",
    ..LLAMA_LIKE
};
