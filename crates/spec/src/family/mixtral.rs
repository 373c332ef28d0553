//! Mixtral: Mixtral 8x7B and 8x22B. In GGUF it is a Llama with experts.

use super::experts::{MIXTRAL_EXPERTS, ROUTED};
use super::{ExpertTable, Family, LLAMA_LIKE, LLAMA_LIKE_TENSORS, Normalized, Window};
use crate::block::RopeLayout;

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "mixtral",
    gguf_architectures: &["llama"],
    model_types: &[("mixtral", &["MixtralForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, MIXTRAL_EXPERTS],
    experts: Some(ExpertTable { normalized: Normalized::Fixed(true), ..ROUTED }),
    window: Window::OfModelTypes(&["mixtral"], (0, "the default of transformers' MixtralConfig")),
    // As in Llama, the converter permutes the rows of q and k.
    gguf_rope: RopeLayout::Interleaved,
    default_theta: Some((1_000_000.0, "the default of transformers' MixtralConfig")),
    default_tied: (false, "the default of transformers' MixtralConfig"),
    name: "Mixtral",
    ..LLAMA_LIKE
};
