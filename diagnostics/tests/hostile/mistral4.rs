//! Mistral 4's latents, experts and queries that grow, with one thing wrong.

use crate::build::{F32, Tree};
use crate::edit::Gguf;
use crate::table::Table;
use serde_json::{Value, json};

const FOLDER: &str = "mistral-4";

/// A checkpoint, a key of its `config.json`, a value that is refused, the code, and what the report says.
fn configs() -> Vec<crate::WrongValue> {
    let rope = |key: &str, value: Value| {
        let mut rope = json!({"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.1});
        rope[key] = value;
        rope
    };
    vec![
        (FOLDER, "rope_interleave", json!(false), 11, "rope_interleave"),
        (FOLDER, "rope_interleave", Value::Null, 11, "rope_interleave"),
        (FOLDER, "qk_rope_head_dim", json!(8), 15, "q_b_proj"),
        (FOLDER, "qk_rope_head_dim", json!(15), 15, "15 elements of a head are rotated"),
        (FOLDER, "qk_nope_head_dim", json!(16), 15, "q_b_proj"),
        (FOLDER, "q_lora_rank", Value::Null, 15, "q_proj"),
        (FOLDER, "kv_lora_rank", json!(0), 10, "kv_lora_rank"),
        (FOLDER, "v_head_dim", json!(32), 15, "kv_b_proj"),
        (FOLDER, "attention_bias", json!(true), 15, "q_a_proj.bias"),
        (FOLDER, "n_routed_experts", json!(4), 15, "mlp"),
        (FOLDER, "n_group", json!(4), 15, "n_group"),
        (FOLDER, "num_experts_per_tok", json!(7), 15, "num_experts_per_tok"),
        (FOLDER, "n_shared_experts", json!(2), 15, "shared_experts"),
        (FOLDER, "n_shared_experts", json!(0), 12, "shared_experts"),
        (FOLDER, "first_k_dense_replace", json!(0), 15, "layers.0.mlp"),
        (FOLDER, "first_k_dense_replace", json!(3), 10, "first_k_dense_replace"),
        (FOLDER, "norm_topk_prob", json!("yes"), 10, "norm_topk_prob"),
        (FOLDER, "routed_scaling_factor", json!("1.5"), 10, "routed_scaling_factor"),
        (FOLDER, "rope_parameters", rope("llama_4_scaling_beta", json!("0.1")), 10, "llama_4_scaling_beta"),
        (FOLDER, "rope_parameters", rope("original_max_position_embeddings", json!(0)), 10, "original_max_position"),
        (FOLDER, "rope_parameters", rope("factor", json!(-1)), 10, "factor"),
        (FOLDER, "rope_parameters", rope("rope_type", json!("ring")), 10, "ring"),
        (FOLDER, "hidden_act", json!("relu"), 11, "hidden_act"),
    ]
}

pub fn cases(table: &mut Table) {
    crate::refuses_values(table, configs());
    let file = Gguf::fixture("mistral-4/q8_0.gguf");
    let tree = |file: &Gguf| Tree::new().with("m.gguf", file.build());
    table.accepts("Mistral 4 in GGUF", &tree(&file), "m.gguf");
    for (name, gguf, code, says) in [
        ("latents of no rank", file.without("mistral4.attention.kv_lora_rank"), 10, "kv_lora_rank"),
        ("latents of another rank", file.u32("mistral4.attention.kv_lora_rank", 16), 15, "latents of 16"),
        ("keys of another width", file.u32("mistral4.attention.key_length_mla", 40), 15, "attn_q_b"),
        ("values of another width", file.u32("mistral4.attention.value_length_mla", 8), 15, "attn_v_b"),
        ("more experts than are stored", file.u32("mistral4.expert_count", 7), 15, "ffn_gate_inp"),
        ("no number of experts for a token", file.without("mistral4.expert_used_count"), 10, "expert_used_count"),
        ("experts by another function", file.u32("mistral4.expert_gating_func", 4), 11, "function 4"),
        ("a second dense layer", file.u32("mistral4.leading_dense_block_count", 2), 15, "blk.1.ffn"),
        ("a shared expert too many", file.u32("mistral4.expert_shared_count", 2), 15, "shexp"),
        (
            "queries that grow from nowhere",
            file.u32("mistral4.rope.scaling.original_context_length", 0),
            10,
            "original",
        ),
        ("no projection of values", file.without_tensor("blk.1.attn_v_b.weight"), 15, "blk.1.attn_v_b.weight"),
        ("a bias of the router", file.with_tensor("blk.1.ffn_gate_inp.bias", &[6], F32), 15, "ffn_gate_inp.bias"),
    ] {
        table.refuses(&format!("Mistral 4 with {name}"), &tree(&gguf), "m.gguf", code, &[says]);
    }
}
