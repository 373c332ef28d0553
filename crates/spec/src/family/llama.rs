//! Llama: Meta Llama 2 to 3.3, Mistral, TinyLlama, SmolLM2, DeepSeek-R1-Distill-Llama.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "llama",
    gguf_architectures: &["llama"],
    model_types: &[("llama", &["LlamaForCausalLM", "LLaMAForCausalLM"]), ("mistral", &["MistralForCausalLM"])],
    wrappers: &[
        ("Mistral3ForConditionalGeneration", "mistral3"),
        ("Idefics3ForConditionalGeneration", "idefics3"),
        ("SmolVLMForConditionalGeneration", "smolvlm"),
    ],
    tensors: &[LLAMA_LIKE_TENSORS, SCORE_TENSORS],
    fused: &[QKV],
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    // llama.cpp has no window in this architecture, and its converter drops the window of the first Mistral 7B.
    window: Window::OfModelTypes(&["mistral"], (4096, "the default of transformers' MistralConfig")),
    rope: RopeTable {
        theta: Some((10_000.0, "the default of transformers' LlamaConfig and of llama.cpp")),
        gguf_freqs_expected: Some((500_000.0, 8192)),
        ..PERMUTED
    },
    head: HeadTable {
        encoder: Encoder::UnlessCausal,
        tied: (false, "the default of transformers' LlamaConfig"),
        classifier: Some(SCORE),
        images: Some(ImageRows::Causal),
        ..HEAD
    },
    variants: &[
        Variant {
            name: "DeepSeek-R1-Distill-Llama",
            any: &[
                &[Template("<｜User｜>")],
                // Other DeepSeek models have the same BOS text, but not Llama 3's base and scaling.
                &[BosText("<｜begin▁of▁sentence｜>"), RopeScaled, Theta(500_000.0)],
            ],
        },
        Variant {
            name: "SmolLM2",
            any: &[
                // The first SmolLM has the same tokenizer and a base of 10000.
                &[Pre("smollm"), Theta(100_000.0)],
                &[Pre("smollm"), Theta(130_000.0)],
                &[Vocab(49152), Theta(100_000.0)],
                &[Vocab(49152), Theta(130_000.0)],
                &[BosText("<|im_start|>"), Theta(100_000.0)],
                &[BosText("<|endoftext|>"), Theta(100_000.0)],
            ],
        },
        Variant {
            name: "TinyLlama",
            any: &[
                &[Hidden(2048), Layers(22), KvHeads(4)],
                // Llama 1 and 2 with this template have no grouped queries and no longer context.
                &[EosText("</s>"), Template("<|assistant|>"), Context(2048), GroupedQueries],
            ],
        },
        Variant {
            name: "Llama 3.3",
            any: &[
                &[BosText("<|begin_of_text|>"), RopeScaled, Name("llama-3.3")],
                &[BosText("<|begin_of_text|>"), RopeScaled, Name("llama 3.3")],
            ],
        },
        Variant {
            name: "Llama 3.2",
            any: &[
                &[BosText("<|begin_of_text|>"), RopeFactor(32.0)],
                &[BosText("<|begin_of_text|>"), RopeScaled, Tied],
            ],
        },
        Variant { name: "Llama 3.1", any: &[&[BosText("<|begin_of_text|>"), RopeScaled]] },
        Variant { name: "Llama 3", any: &[&[BosText("<|begin_of_text|>")]] },
        // Llama 2's template also has Mistral's markers.
        Variant { name: "Llama 2", any: &[&[Template("<<SYS>>")]] },
        Variant {
            name: "Mistral",
            any: &[&[ModelType("mistral")], &[Template("[INST]")], &[Pre("tekken")], &[Name("mistral")]],
        },
    ],
    name: "Llama",
    ..LLAMA_LIKE
};
