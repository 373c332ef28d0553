//! Cohere: Command R and R+, Aya. Attention and feed-forward layer side by side, LayerNorm without biases, scaled logits.

use super::*;

/// The factor of logits.
pub(super) const LOGIT_SCALE: Factor = Factor {
    config_default: Some((0.0625, "the default of transformers' CohereConfig and Cohere2Config")),
    ..Factor::new(FactorOf::Logits, Key { gguf: ".logit_scale", config: "logit_scale" })
};

pub(super) const FAMILY: Family = Family {
    id: "cohere",
    gguf_architectures: &["command-r"],
    model_types: &[("cohere", &["CohereForCausalLM"])],
    files: FileTable { keys: LAYER_NORM_KEYS, ..FILES },
    tensors: &[WITHOUT_MLP_NORM, HEAD_NORMS],
    biases: &[ATTENTION_BIAS],
    block: BlockTable {
        norm: NormKind::PlainLayer,
        parallel: Parallel::Yes,
        head_norms: HeadNorms::OfEachHead,
        head_norm_flag: Some("use_qk_norm"),
        factors: &[LOGIT_SCALE],
        ..BLOCK
    },
    rope: RopeTable { theta: Some((500_000.0, "the default of transformers' CohereConfig")), ..INTERLEAVED },
    head: HeadTable { tied: (true, "the default of transformers' CohereConfig"), ..HEAD },
    name: "Command R",
    ..LLAMA_LIKE
};
