//! A model whose context is Phi-3-128k's, and the size of its KV cache.

use super::named;
use std::path::Path;

/// Phi-3-128k's context.
pub(crate) const TRAINED: usize = 131_072;

/// `phi-3.5/bf16` with the context of Phi-3-128k, the longrope factors and the original context kept.
pub(crate) fn write_128k(folder: &Path) {
    let phi = named("phi-3.5").folder.join("bf16");
    for name in ["model.safetensors", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(phi.join(name), folder.join(name)).expect("a copy");
    }
    let config = std::fs::read(phi.join("config.json")).expect("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    config["max_position_embeddings"] = TRAINED.into();
    assert_eq!(config["rope_parameters"]["rope_type"], "longrope");
    std::fs::write(folder.join("config.json"), config.to_string()).expect("config.json is written");
}

/// The bytes of keys and values of `count` tokens: two layers of four heads of 16, F32.
pub(crate) fn cache(count: usize) -> u64 {
    (count * 2 * 2 * 4 * 16 * 4) as u64
}
