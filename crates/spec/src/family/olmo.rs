//! OLMo 1: Llama's block with LayerNorm without weights, and a limit of queries, keys and values.

use super::*;

const CONFIG: &str = "the default of transformers' OlmoConfig";

pub(super) const FAMILY: Family = Family {
    id: "olmo",
    gguf_architectures: &["olmo"],
    model_types: &[("olmo", &["OlmoForCausalLM"])],
    files: FileTable {
        keys: LAYER_NORM_KEYS,
        defaults: &[&[("layer_norm_eps", 1e-5), ("max_position_embeddings", 2048.0)]],
        defaults_source: "transformers' OlmoLayerNorm and OlmoConfig",
        ..FILES
    },
    tensors: &[WITHOUT_NORMS, NORMS_WITHOUT_WEIGHTS],
    biases: &[ATTENTION_BIAS],
    block: BlockTable {
        norm: NormKind::PlainLayer,
        factors: &[Factor::new(FactorOf::QkvLimit, Key { gguf: ".attention.clamp_kqv", config: "clip_qkv" })],
        ..BLOCK
    },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), ..PERMUTED },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "OLMo",
    ..LLAMA_LIKE
};
