//! GLM-4: glm-4-9b and GLM-Edge. Half of a head is rotated, in adjacent pairs; biases of q, k and v.

use super::*;

const CONFIG: &str = "the default of transformers' GlmConfig and Glm4Config";

pub(super) const FAMILY: Family = Family {
    id: "glm",
    gguf_architectures: &["chatglm"],
    model_types: &[("glm", &["GlmForCausalLM"])],
    fused: &[QKV, FusedName { config: "model.layers.{}.mlp.gate_up_proj", ..GATE_UP }],
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::UnlessFlag("attention_bias"))],
    rope: RopeTable { rotary_part: Some((0.5, CONFIG)), theta: Some((10_000.0, CONFIG)), ..INTERLEAVED },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "GLM-4",
    ..LLAMA_LIKE
};
