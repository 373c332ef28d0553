//! Qwen3-VL with experts, text only: Qwen3 with experts. In safetensors its experts are stored transposed, which no table says.

use super::{Family, Window, qwen3_moe};

pub(super) const FAMILY: Family = Family {
    id: "qwen3vlmoe",
    gguf_architectures: &["qwen3vlmoe"],
    model_types: &[],
    window: Window::Unused,
    name: "Qwen3-VL MoE",
    ..qwen3_moe::FAMILY
};
