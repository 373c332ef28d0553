//! Families whose experts differ by their routing, their dense layers and what is shared, with one thing wrong.

use crate::build::{F32, Tree};
use crate::edit::Gguf;
use crate::table::Table;
use serde_json::{Value, json};

/// A checkpoint, a key of its `config.json`, a value that is refused, the code, and what the report says.
fn configs() -> Vec<crate::WrongValue> {
    vec![
        ("ernie-4.5-moe", "moe_num_experts", Value::Null, 10, "moe_num_experts"),
        ("ernie-4.5-moe", "moe_k", json!(5), 15, "moe_k"),
        ("ernie-4.5-moe", "moe_layer_start_index", json!(3), 10, "moe_layer_start_index"),
        ("ernie-4.5-moe", "moe_layer_start_index", json!(0), 15, "layers.0.mlp"),
        ("ernie-4.5-moe", "moe_layer_end_index", json!(2), 10, "moe_layer_end_index"),
        ("ernie-4.5-moe", "moe_layer_end_index", json!(0), 15, "layers.1.mlp.gate_proj"),
        ("ernie-4.5-moe", "moe_layer_interval", json!(0), 10, "moe_layer_interval"),
        ("ernie-4.5-moe", "moe_layer_interval", json!(3), 15, "layers.1.mlp.gate_proj"),
        ("ernie-4.5-moe", "moe_num_shared_experts", json!(1), 15, "shared_experts"),
        ("ernie-4.5-moe", "moe_num_shared_experts", json!(0), 12, "shared_experts"),
        ("ernie-4.5-moe", "moe_norm_min", json!(1e-6), 11, "moe_norm_min"),
        ("ernie-4.5-moe", "moe_gate", json!("sinkhorn"), 11, "moe_gate"),
        ("ernie-4.5-moe", "use_bias", json!(true), 15, "q_proj.bias"),
        ("hunyuan-a13b", "moe_topk", json!([2, 1]), 11, "moe_topk"),
        ("hunyuan-a13b", "moe_topk", json!([2]), 15, "moe_topk"),
        ("hunyuan-a13b", "moe_topk", json!([2, "2"]), 10, "moe_topk[1]"),
        ("hunyuan-a13b", "moe_topk", json!([-1, -1]), 10, "moe_topk[0]"),
        ("hunyuan-a13b", "moe_topk", json!([0, 0]), 10, "moe_topk"),
        ("hunyuan-a13b", "moe_topk", json!(5), 15, "moe_topk"),
        ("hunyuan-a13b", "use_cla", json!(true), 11, "keys and values of other layers"),
        ("hunyuan-a13b", "use_mixed_mlp_moe", json!(false), 11, "no shared expert"),
        ("hunyuan-a13b", "moe_layer_num_skipped", json!(1), 11, "layers without experts"),
        ("dots.llm1", "scoring_func", json!("softmax"), 11, "scoring_func"),
        ("dots.llm1", "n_routed_experts", json!(3), 15, "mlp.gate.weight"),
        ("k-exaone", "mlp_layer_types", json!(["dense"]), 15, "mlp_layer_types"),
        ("k-exaone", "mlp_layer_types", json!(["dense", "none"]), 10, "mlp_layer_types[1]"),
        ("k-exaone", "num_shared_experts", json!(2), 15, "shared_experts"),
        ("k-exaone", "n_group", json!(3), 15, "n_group"),
        ("north-mini-code", "expert_selection_fn", json!("tanh"), 11, "expert_selection_fn"),
        ("north-mini-code", "shared_expert_combination_strategy", json!("sum"), 11, "with the shared expert"),
        ("north-mini-code", "prefix_dense_sliding_window_pattern", json!(4), 11, "windows of dense layers"),
        ("north-mini-code", "first_k_dense_replace", json!(4), 10, "first_k_dense_replace"),
        ("north-mini-code", "prefix_dense_intermediate_size", json!(32), 15, "layers.0.mlp"),
        ("north-mini-code", "prefix_dense_intermediate_size", Value::Null, 15, "layers.0.mlp"),
        ("north-mini-code", "num_shared_experts", json!(0), 12, "shared_experts"),
        ("command-a-plus", "rms_norm_eps", json!(-1), 10, "rms_norm_eps"),
        ("command-a-plus", "num_shared_experts", json!(1), 15, "shared_experts"),
        ("minimax-m2", "scoring_func", json!("softmax"), 11, "scoring_func"),
        ("minimax-m2", "use_routing_bias", json!(false), 11, "without a bias"),
        ("minimax-m2", "qk_norm_type", json!("per_head"), 11, "qk_norm_type"),
        ("minimax-m2", "shared_intermediate_size", json!(64), 11, "a shared expert"),
        ("minimax-m2", "rotary_dim", json!(17), 10, "rotary_dim"),
        ("hy3", "route_norm", json!(false), 11, "route_norm"),
        ("hy3", "first_k_dense_replace", json!(2), 11, "first_k_dense_replace"),
        ("hy3", "router_scaling_factor", json!(0), 10, "router_scaling_factor"),
        ("hy3", "mlp_bias", json!(true), 15, "gate_proj.bias"),
    ]
}

pub fn cases(table: &mut Table) {
    crate::refuses_values(table, configs());
    let tree = |file: &Gguf| Tree::new().with("m.gguf", file.build());
    let [cohere, minimax, hy3, ernie] = ["north-mini-code", "minimax-m2", "hy3", "ernie-4.5-moe"]
        .map(|name| Gguf::fixture(&format!("{name}/q8_0.gguf")));
    // 1 is a softmax, 2 a sigmoid, 0 none; 4 is another function.
    let function = |file: &Gguf, of: &str, number: u32| file.u32(&format!("{of}.expert_gating_func"), number);
    for number in 0..3 {
        table.accepts(&format!("function {number}"), &tree(&function(&minimax, "minimax-m2", number)), "m.gguf");
    }
    let more = ernie.with_tensor("blk.0.ffn_gate_inp.weight", &[32, 4], F32);
    let router = "blk.1.ffn_gate_inp.weight";
    for (name, gguf, code, says) in [
        ("experts by a function of no number", function(&minimax, "minimax-m2", 4), 11, "function 4"),
        ("averages without a window", cohere.without("cohere2moe.attention.sliding_window"), 10, "sliding_window"),
        ("experts without a router are none", hy3.without_tensor(router), 15, "blk.1.ffn_gate"),
        ("a router of a dense layer", more, 12, "blk.0.ffn_gate_inp"),
        ("experts at every third layer", ernie.u32("ernie4_5-moe.interleave_moe_layer_step", 3), 15, "blk.1.ffn_gate"),
    ] {
        table.refuses(name, &tree(&gguf), "m.gguf", code, &[says]);
    }
}
