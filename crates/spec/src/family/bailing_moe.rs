//! Ling with experts: Ling-lite, Ling-plus, Ring-lite. A table of GGUF alone.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "bailingmoe",
    gguf_architectures: &["bailingmoe"],
    experts: Some(ExpertTable {
        feed_forward: Some(EXPERT_WIDTH),
        shared_count: Some(SHARED_COUNT),
        normalized: Normalized::Flag { config: "", absent: false, gguf: false },
        // llama.cpp does not read the number of dense layers.
        dense_layers: Some(DenseLayers { gguf_without_router: true, ..DENSE }),
        ..ROUTED
    }),
    name: "Ling",
    ..deepseek::FAMILY
};
