//! Youtu-LLM: DeepSeek V3's attention with dense layers.

use super::*;

const CONFIG: &str = "the default of transformers' YoutuConfig";

pub(super) const FAMILY: Family = Family {
    id: "youtu",
    gguf_architectures: &["deepseek2"],
    model_types: &[("youtu", &["YoutuForCausalLM"])],
    wrappers: &[],
    files: FileTable {
        defaults: &[&[("max_position_embeddings", 131_072.0)], deepseek3::LATENT_SIZES],
        defaults_source: CONFIG,
        refused: &[deepseek3::HALVES],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, deepseek2::LATENTS],
    fused: &[],
    biases: &[deepseek2::BIAS],
    block: BlockTable { factors: &[], ..deepseek2::FAMILY.block },
    experts: None,
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    variants: &[],
    name: "Youtu",
    ..deepseek2::FAMILY
};
