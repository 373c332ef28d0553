//! Mixtral: Mixtral 8x7B and 8x22B. In GGUF it is a Llama with experts.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "mixtral",
    gguf_architectures: &["llama"],
    model_types: &[("mixtral", &["MixtralForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, MIXTRAL_EXPERTS],
    fused: FUSED_EXPERTS,
    window: Window::OfModelTypes(&["mixtral"], (0, "the default of transformers' MixtralConfig")),
    experts: Some(ExpertTable { normalized: Normalized::Fixed(true), ..ROUTED }),
    rope: RopeTable { theta: Some((1_000_000.0, "the default of transformers' MixtralConfig")), ..PERMUTED },
    head: HeadTable { tied: (false, "the default of transformers' MixtralConfig"), ..HEAD },
    name: "Mixtral",
    ..LLAMA_LIKE
};
