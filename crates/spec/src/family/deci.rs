//! DeciLM and Nemotron-NAS (Llama-3.3-Nemotron-Super-49B): Llama with heads and widths by layer, and layers without attention.
//! A table of GGUF alone: their safetensors have code of their own.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "deci",
    gguf_architectures: &["deci"],
    block: BlockTable { sizes_by_layer: Some(""), ..BLOCK },
    rope: PERMUTED,
    variants: &[
        Variant { name: "Llama-3.3-Nemotron-Super", any: &[&[Layers(80), Hidden(8192)]] },
        Variant { name: "Llama-3.1-Nemotron-Ultra", any: &[&[Layers(162), Hidden(16384)]] },
    ],
    name: "DeciLM",
    ..LLAMA_LIKE
};
