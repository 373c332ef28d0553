//! Llama as an encoder, by its own code: llama-embed-nemotron, llama-nemotron-embed.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "llama-embed",
    gguf_architectures: &["llama-embed"],
    model_types: &[("llama_bidirec", &["LlamaBidirectionalModel"])],
    wrappers: &[],
    tensors: &[LLAMA_LIKE_TENSORS],
    window: Window::Unused,
    head: HeadTable {
        tied: (false, "an encoder has no output head"),
        encoder: Encoder::Yes { by_name: true },
        classifier: None,
        ..llama::FAMILY.head
    },
    variants: &[],
    name: "Llama Embed",
    ..llama::FAMILY
};
