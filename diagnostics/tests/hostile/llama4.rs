//! Llama 4's chunks, layers without rotation, growing queries and layers of experts, with one thing wrong.

use crate::build::{F32, Tree};
use crate::edit::{Files, Gguf};
use crate::table::{Table, judge};
use serde_json::{Value, json};

const KINDS: [&str; 3] = ["chunked_attention", "full_attention", "full_attention"];

/// A checkpoint, a key of its `config.json`, a value that is refused, the code, and what the report says.
fn configs() -> Vec<crate::WrongValue> {
    vec![
        ("llama-4", "no_rope_layers", json!([1, 1, 1]), 15, "no_rope_layers"),
        ("llama-4", "no_rope_layers", json!([1, 1, 1, 2]), 10, "no_rope_layers[3]"),
        ("llama-4", "no_rope_layer_interval", json!(0), 10, "no_rope_layer_interval"),
        ("llama-4", "interleave_moe_layer_step", json!(0), 10, "interleave_moe_layer_step"),
        ("llama-4", "interleave_moe_layer_step", json!(1), 15, "layers.0.feed_forward"),
        ("llama-4", "use_qk_norm", json!("no"), 10, "use_qk_norm"),
        ("llama-4", "intermediate_size", json!(64), 15, "feed_forward.shared_expert"),
        ("llama-4", "intermediate_size", Value::Null, 10, "intermediate_size"),
        ("llama-4", "intermediate_size_mlp", json!(32), 15, "feed_forward.gate_proj"),
        ("llama-4", "num_local_experts", json!(3), 15, "feed_forward.router"),
        ("llama-4", "num_local_experts", json!(0), 15, "layers.1.feed_forward"),
        ("llama-4", "num_experts_per_tok", json!(5), 15, "num_experts_per_tok"),
        ("llama-4", "attention_bias", json!(true), 15, "q_proj.bias"),
        ("llama-4-chunks", "attention_chunk_size", json!(0), 10, "attention_chunk_size"),
        ("llama-4-chunks", "attention_chunk_size", Value::Null, 10, "attention_chunk_size"),
        ("llama-4-chunks", "attention_chunk_size", json!("8192"), 10, "attention_chunk_size"),
        ("llama-4-chunks", "layer_types", json!(["sliding_attention", KINDS[1], KINDS[2]]), 10, "layer_types[0]"),
        ("llama-4-chunks", "layer_types", json!([KINDS[0]]), 15, "layer_types"),
        ("llama-4-chunks", "moe_layers", json!([3]), 10, "moe_layers"),
        ("llama-4-chunks", "moe_layers", json!([0]), 15, "layers.2.feed_forward"),
        ("llama-4-chunks", "moe_layers", json!([0, 1, 2]), 15, "layers.1.feed_forward"),
        ("llama-4-chunks", "moe_layers", json!("all"), 10, "moe_layers"),
        ("llama-4-chunks", "floor_scale", json!(0), 10, "floor_scale"),
        ("llama-4-chunks", "floor_scale", json!(-1), 10, "floor_scale"),
        ("llama-4-chunks", "attn_scale", json!(-0.1), 10, "attn_scale"),
        ("llama-4-chunks", "attn_temperature_tuning", json!("yes"), 10, "attn_temperature_tuning"),
    ]
}

pub fn cases(table: &mut Table) {
    crate::refuses_values(table, configs());
    let files = Files::fixture("llama-4-chunks/bf16");
    let report = judge(&files.tree().path("")).to_string();
    assert!(report.contains("chunks of 24 in 1 of 3 layers"), "{report}");
    // The list of layers with experts counts, whatever the step says, and a number is a flag.
    for (key, value) in [("interleave_moe_layer_step", json!(0)), ("attn_temperature_tuning", json!(0))] {
        let edited = files.json("config.json", |config| drop(config.insert(key.into(), value)));
        table.accepts(&format!("llama-4-chunks: another {key}"), &edited.tree(), "");
    }
    let file = Gguf::fixture("llama-4/q8_0.gguf");
    let tree = |file: &Gguf| Tree::new().with("m.gguf", file.build());
    for chunks in [0, 8192] {
        let edited = file.u32("llama4.attention.sliding_window", chunks);
        table.accepts(&format!("chunks of {chunks}"), &tree(&edited), "m.gguf");
    }
    for (name, gguf, code, says) in [
        ("chunks of 4096", file.u32("llama4.attention.sliding_window", 4096), 11, "chunks of 4096"),
        ("chunks in half of the layers", file.u32("llama4.attention.sliding_window_pattern", 2), 11, "pattern"),
        (
            "Llama 4 with experts at every third layer",
            file.u32("llama4.interleave_moe_layer_step", 3),
            15,
            "blk.1.ffn_gate",
        ),
        ("experts at no layer", file.u32("llama4.interleave_moe_layer_step", 0), 10, "interleave_moe_layer_step"),
        ("experts by a softmax", file.u32("llama4.expert_gating_func", 1), 11, "function 1"),
        ("no width of experts", file.without("llama4.expert_feed_forward_length"), 10, "expert_feed_forward_length"),
        ("a bias that chooses", file.with_tensor("blk.1.exp_probs_b.bias", &[4], F32), 12, "exp_probs_b"),
    ] {
        table.refuses(name, &tree(&gguf), "m.gguf", code, &[says]);
    }
}
