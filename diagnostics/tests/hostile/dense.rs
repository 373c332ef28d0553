//! Options of families whose checkpoints are archives: dense ones, and those with a state in most layers.

use crate::build::{ARRAY, BOOL, F32_VALUE, Tree, array};
use crate::edit::Gguf;
use crate::table::Table;
use serde_json::{Value, json};

/// A checkpoint, a key of its `config.json`, a value that is refused, the code, and what the report says.
fn configs() -> Vec<crate::WrongValue> {
    vec![
        ("command-r", "logit_scale", json!(0), 10, "logit_scale"),
        ("command-r", "use_qk_norm", json!(true), 15, "k_norm"),
        ("command-r", "attention_bias", json!(true), 15, "q_proj.bias"),
        ("command-r-plus", "use_qk_norm", json!("yes"), 10, "use_qk_norm"),
        ("command-r7b", "use_parallel_block", json!(false), 11, "after attention"),
        ("command-r7b", "use_gated_activation", json!(false), 11, "without a gate"),
        ("command-r7b", "use_qk_norm", json!(true), 11, "norms of queries and keys"),
        ("command-r7b", "sliding_window_pattern", json!(0), 10, "sliding_window_pattern"),
        ("command-r7b", "layer_types", json!(["full_attention"]), 15, "layer_types"),
        ("command-r7b", "hidden_act", json!("gelu"), 11, "gelu"),
        ("glm-4", "partial_rotary_factor", json!(0), 10, "partial_rotary_factor"),
        ("glm-4", "attention_bias", json!(1), 10, "attention_bias"),
        ("exaone-4-32b", "layer_types", json!(["chunked_attention", "", "", ""]), 10, "layer_types[0]"),
        ("exaone-4-32b", "sliding_window", json!(0), 10, "sliding_window"),
        ("seed-oss", "attention_out_bias", json!(true), 15, "o_proj.bias"),
        ("ernie-4.5", "use_bias", json!(true), 15, "q_proj.bias"),
        ("hunyuan", "use_cla", json!(true), 11, "keys and values of other layers"),
        ("hunyuan", "use_qk_norm", json!(false), 11, "no norms"),
        ("hunyuan", "attention_bias", json!(true), 15, "q_proj.bias"),
        ("hunyuan", "rope_scaling", json!({"type": "dynamic", "alpha": -1.0}), 10, "rope_scaling.alpha"),
        ("hunyuan", "rope_scaling", json!({"type": "dynamic"}), 10, "rope_scaling.factor"),
        ("gemma-1", "hidden_act", json!("silu"), 11, "silu"),
        ("gemma-1", "use_bidirectional_attention", json!(true), 11, "attention to later positions"),
        ("arcee", "hidden_act", json!("silu"), 11, "silu"),
        ("arcee", "mlp_bias", json!(true), 15, "up_proj.bias"),
        ("apertus", "post_norm", json!(true), 11, "norms after the sub-layers"),
        ("apertus", "qk_norm", json!(false), 11, "no norms"),
        ("apertus", "hidden_act", json!("relu2"), 11, "relu2"),
        ("apertus", "rope_scaling", Value::Null, 10, "rope_parameters"),
        ("starcoder-2", "hidden_act", json!("gelu"), 11, "gelu"),
        ("starcoder-2", "norm_epsilon", Value::Null, 10, "norm_epsilon"),
        ("stablelm-2", "qk_layernorm", json!(true), 11, "a tensor for each head"),
        ("stablelm-2", "use_parallel_residual", json!("no"), 10, "use_parallel_residual"),
        ("internlm3", "qkv_bias", json!(true), 15, "q_proj.bias"),
        ("internlm3", "rope_scaling", json!({"rope_type": "dynamic", "factor": 0}), 10, "rope_scaling.factor"),
        ("hyperclova-x", "use_post_norm", json!(false), 11, "in front of the sub-layers only"),
        ("hyperclova-x", "logits_scaling", json!(-1), 10, "logits_scaling"),
        ("lfm3", "use_sandwich_norm", json!(false), 11, "in front of the sub-layers only"),
        ("lfm3", "use_attention_gate", json!(false), 11, "attention without gates"),
        ("lfm3", "layer_types", json!(["conv", "conv", "linear", "conv"]), 10, "layer_types[2]"),
        ("lfm3", "rope_parameters", Value::Null, 10, "rope_theta"),
        ("mamba", "hidden_act", json!("relu"), 11, "relu"),
        ("mamba", "time_step_rank", json!("auto"), 15, "2 elements that steps are made of"),
        ("mamba", "time_step_rank", json!("most"), 10, "time_step_rank"),
        ("mamba", "state_size", json!(16), 15, "A_log"),
        ("mamba", "conv_kernel", json!(1), 10, "conv_kernel"),
        ("mamba", "use_bias", json!(true), 15, "in_proj.bias"),
        ("falcon-mamba", "mixer_rms_eps", json!(0), 10, "mixer_rms_eps"),
        ("falcon-mamba", "expand", json!(3), 15, "in_proj.weight"),
        ("mamba-2", "n_groups", json!(3), 15, "n_groups"),
        ("mamba-2", "head_dim", json!(8), 15, "head_dim"),
        ("mamba-2", "time_step_limit", json!([0.5]), 10, "time_step_limit"),
        ("jamba", "attn_layer_offset", json!(2), 10, "attn_layer_offset"),
        ("jamba", "attn_layer_offset", json!(0), 15, "layers.0.self_attn.q_proj"),
        ("jamba", "expert_layer_period", json!(0), 10, "expert_layer_period"),
        ("jamba", "expert_layer_offset", json!(1), 15, "layers.0.feed_forward.gate_proj"),
        ("jamba", "num_experts", json!(1), 15, "layers.0.feed_forward.gate_proj"),
        ("jamba", "mamba_proj_bias", json!(true), 15, "in_proj.bias"),
        (
            "olmo-hybrid",
            "layer_types",
            json!(["linear_attention", "sliding_attention", "full_attention"]),
            10,
            "layer_types[1]",
        ),
        ("olmo-hybrid", "linear_allow_neg_eigval", json!(2), 10, "linear_allow_neg_eigval"),
        ("olmo-hybrid", "linear_num_key_heads", json!(4), 15, "linear_num_key_heads"),
        ("olmo-hybrid", "linear_key_head_dim", Value::Null, 10, "linear_key_head_dim"),
        ("ministral-8b", "layer_types", json!("full_attention"), 10, "layer_types"),
        ("ministral-8b", "layer_types", json!(["full_attention"]), 15, "layer_types"),
    ]
}

pub fn cases(table: &mut Table) {
    crate::refuses_values(table, configs());
    let [cohere, apertus, stablelm] =
        ["command-r7b", "apertus", "stablelm-2"].map(|name| Gguf::fixture(&format!("{name}/q8_0.gguf")));
    let curve = |name: &str| apertus.set(name, ARRAY, array(F32_VALUE, 1, 1.0_f32.to_le_bytes()));
    for (name, gguf, code, says) in [
        ("Cohere 2 without a window", cohere.without("cohere2.attention.sliding_window"), 10, "sliding_window"),
        ("Cohere 2 without a factor", cohere.without("cohere2.logit_scale"), 10, "logit_scale"),
        ("a pattern of one layer", cohere.set(PATTERN, ARRAY, array(BOOL, 1, [1])), 15, PATTERN),
        ("a curve without a number", apertus.without("xielu.beta"), 10, "xielu.beta"),
        ("a curve of one layer", curve("xielu.alpha_p"), 15, "xielu.alpha_p"),
        ("a curve of no number", apertus.f32("xielu.eps", f32::NAN), 10, "xielu.eps"),
        ("a parallel block with half a norm", stablelm.without_tensor("blk.0.ffn_norm.weight"), 12, "ffn_norm.bias"),
        ("StableLM without its rotated part", stablelm.without("stablelm.rope.dimension_count"), 10, "dimension_count"),
    ] {
        table.refuses(name, &Tree::new().with("m.gguf", gguf.build()), "m.gguf", code, &[says]);
    }
}

const PATTERN: &str = "cohere2.attention.sliding_window_pattern";
