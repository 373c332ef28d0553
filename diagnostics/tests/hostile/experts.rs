//! Models with experts, with one thing wrong.

use crate::build::{F32, Tree};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use serde_json::{Value, json};

const NAME: &str = "m.gguf";
const CONFIG: &str = "config.json";

pub fn cases(table: &mut Table) {
    gguf(table);
    folders(table);
}

fn gguf(table: &mut Table) {
    let olmoe = Gguf::fixture("olmoe/q8_0.gguf");
    let mixtral = Gguf::fixture("mixtral/q8_0.gguf");
    let qwen = Gguf::fixture("qwen2-moe/q8_0.gguf");
    for (case, file) in [("experts", &olmoe), ("a Llama with experts", &mixtral), ("a shared expert", &qwen)] {
        table.accepts(case, &Tree::new().with(NAME, file.build()), NAME);
    }
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    let (count, used) = ("olmoe.expert_count", "olmoe.expert_used_count");
    case("no number of experts", &olmoe.without(count), 10, count);
    case("no number of experts for a token", &olmoe.without(used), 10, used);
    case("no experts", &olmoe.u32(count, 0), 10, count);
    case("2^31 - 1 experts", &olmoe.u32(count, i32::MAX as u32), 10, count);
    case("more experts than are stored", &olmoe.u32(count, 5), 15, "ffn_gate_inp.weight");
    case("more for a token than there are", &olmoe.u32(used, 5), 15, used);
    case("no expert for a token", &olmoe.u32(used, 0), 10, used);
    case("experts of another width", &olmoe.u32("olmoe.feed_forward_length", 64), 15, "ffn_gate_exps.weight");
    case("no experts stored", &olmoe.without_tensor("blk.1.ffn_up_exps.weight"), 15, "blk.1.ffn_up_exps.weight");
    case("no router", &olmoe.without_tensor("blk.0.ffn_gate_inp.weight"), 15, "blk.0.ffn_gate_inp.weight");
    let turned = olmoe.tensor("blk.0.ffn_down_exps.weight", |info| info.shape.rotate_left(1));
    case("experts innermost", &turned, 15, "blk.0.ffn_down_exps.weight");
    case("a layer of experts too few", &olmoe.u32("olmoe.block_count", 1), 15, "blk.1.");
    let beyond = olmoe.with_tensor("blk.9.ffn_gate_exps.weight", &[32, 32, 4], F32);
    case("experts of a layer beyond", &beyond, 15, "blk.9.");

    let used = "llama.expert_used_count";
    case("a Llama with experts, of which none is used", &mixtral.without(used), 10, used);
    let dense = mixtral.u32("llama.expert_count", 0);
    case("a Llama whose experts are denied", &dense, 15, "ffn_gate.weight");
    let shared = "qwen2moe.expert_shared_feed_forward_length";
    case("a shared expert of no width", &qwen.without(shared), 10, shared);
    case("a shared expert of another width", &qwen.u32(shared, 32), 15, "ffn_gate_shexp.weight");
}

fn folders(table: &mut Table) {
    let qwen = Files::fixture("qwen3-moe-dense/bf16");
    table.accepts("experts in a folder", &qwen.tree(), "");
    let set = |key: &str, value: Value| qwen.json(CONFIG, |config| drop(config.insert(key.to_owned(), value))).tree();
    // Layer 0 has none, layer 1 has them.
    table.accepts("experts in every second layer", &set("decoder_sparse_step", json!(2)), "");
    let cases: &[(&str, Value, u8, &str)] = &[
        ("num_local_experts", json!(5), 15, "mlp.gate.weight"),
        ("num_local_experts", json!("4"), 10, "num_local_experts"),
        ("num_local_experts", json!(4097), 10, "num_local_experts"),
        ("num_experts", json!(3), 15, "num_experts"),
        ("num_experts_per_tok", json!(9), 15, "num_experts_per_tok"),
        ("moe_intermediate_size", json!(64), 15, "experts.0."),
        ("norm_topk_prob", json!("yes"), 10, "norm_topk_prob"),
        ("decoder_sparse_step", json!(0), 10, "decoder_sparse_step"),
        ("mlp_only_layers", json!([1]), 15, "model.layers.0.mlp.gate.weight"),
        ("mlp_only_layers", json!([2]), 10, "mlp_only_layers"),
        ("mlp_only_layers", json!(["0"]), 10, "mlp_only_layers"),
        ("mlp_only_layers", json!(0), 10, "mlp_only_layers"),
    ];
    for (key, value, code, says) in cases {
        table.refuses(&format!("{key} is {value}"), &set(key, value.clone()), "", *code, &[says]);
    }
    let olmoe = Files::fixture("olmoe/bf16");
    let clipped = olmoe.json(CONFIG, |config| drop(config.insert("clip_qkv".into(), json!(8.0))));
    table.refuses("a limit to queries, keys and values", &clipped.tree(), "", 11, &[CONFIG, "clip_qkv"]);
}
