//! Models with experts, with one thing wrong.

use crate::build::{ARRAY, F32, Tree, U32, array};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use serde_json::{Value, json};

const NAME: &str = "m.gguf";
const CONFIG: &str = "config.json";

pub fn cases(table: &mut Table) {
    gguf(table);
    folders(table);
    gpt_oss(table);
    lfm2(table);
}

fn gguf(table: &mut Table) {
    let olmoe = Gguf::fixture("olmoe/q8_0.gguf");
    let mixtral = Gguf::fixture("mixtral/q8_0.gguf");
    let qwen = Gguf::fixture("qwen2-moe/q8_0.gguf");
    for (case, file) in [("experts", &olmoe), ("a Llama with experts", &mixtral), ("a shared expert", &qwen)] {
        table.accepts(case, &Tree::new().with(NAME, file.build()), NAME);
    }
    // A number for each of the two layers, as newer converters write widths and heads.
    let of_layers = |file: &Gguf, key: &str, widths: [u32; 2]| {
        file.set(key, ARRAY, array(U32, 2, widths.map(u32::to_le_bytes).concat()))
    };
    let (width, shared) = ("qwen2moe.expert_feed_forward_length", "qwen2moe.expert_shared_feed_forward_length");
    let mut alike = of_layers(&of_layers(&qwen, width, [32; 2]), shared, [64; 2]);
    for (key, value) in [("feed_forward_length", 160), ("attention.head_count", 4), ("attention.head_count_kv", 4)] {
        alike = of_layers(&alike, &format!("qwen2moe.{key}"), [value; 2]);
    }
    table.accepts("sizes by layer that are alike", &Tree::new().with(NAME, alike.build()), NAME);
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

    for key in [width, shared, "qwen2moe.feed_forward_length", "qwen2moe.attention.head_count"] {
        case(&format!("{key} by layer"), &of_layers(&qwen, key, [64, 32]), 11, key);
    }

    let used = "llama.expert_used_count";
    case("a Llama with experts, of which none is used", &mixtral.without(used), 10, used);
    let dense = mixtral.u32("llama.expert_count", 0);
    case("a Llama whose experts are denied", &dense, 15, "ffn_gate.weight");
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
    // Biases that a flag denies are unused, and asked for where it says nothing.
    let qwen2 = Files::fixture("qwen2-moe/bf16");
    let bias = "model.layers.0.self_attn.q_proj.bias";
    let unbiased = qwen2.header("model.safetensors", |header| {
        let Some(tensor) = header.remove(bias) else { panic!("a fixture with biases") };
        header.insert("mtp.spare".into(), tensor);
    });
    table.accepts("biases of q, k and v", &qwen2.tree(), "");
    table.refuses("no bias of q", &unbiased.tree(), "", 15, &[bias]);
    let flag = |files: &Files, value| files.json(CONFIG, |config| drop(config.insert("qkv_bias".into(), value)));
    table.accepts("no bias of q, which qkv_bias says", &flag(&unbiased, json!(false)).tree(), "");
    table.refuses("qkv_bias is 1", &flag(&qwen2, json!(1)).tree(), "", 10, &[CONFIG, "qkv_bias"]);
    let olmoe = Files::fixture("olmoe/bf16");
    let clipped = olmoe.json(CONFIG, |config| drop(config.insert("clip_qkv".into(), json!(8.0))));
    table.refuses("a limit to queries, keys and values", &clipped.tree(), "", 11, &[CONFIG, "clip_qkv"]);
}

/// Sinks, biases of experts, and experts as gpt-oss' checkpoints have them.
fn gpt_oss(table: &mut Table) {
    let file = Gguf::fixture("gpt-oss/mxfp4.gguf");
    table.accepts("sinks and biases of experts", &Tree::new().with(NAME, file.build()), NAME);
    let mut case = |case: &str, file: &Gguf, says: &str| {
        table.refuses(case, &Tree::new().with(NAME, file.build()), NAME, 15, &[NAME, says]);
    };
    for name in ["blk.1.attn_sinks.weight", "blk.0.ffn_gate_inp.bias", "blk.1.ffn_gate_exps.bias"] {
        case(&format!("no {name}"), &file.without_tensor(name), name);
    }
    let sinks = file.tensor("blk.0.attn_sinks.weight", |info| info.shape = vec![2]);
    case("sinks of other heads", &sinks, "blk.0.attn_sinks.weight");
    let turned = file.tensor("blk.0.ffn_down_exps.bias", |info| info.shape.rotate_left(1));
    case("biases of experts innermost", &turned, "blk.0.ffn_down_exps.bias");

    let blocks = Files::fixture("gpt-oss/mxfp4");
    let floats = Files::fixture("gpt-oss/bf16");
    table.accepts("blocks of experts and their scales", &blocks.tree(), "");
    table.accepts("transposed experts", &floats.tree(), "");
    let config =
        |key: &str, value: Value| blocks.json(CONFIG, |config| drop(config.insert(key.to_owned(), value))).tree();
    let method = |more: Value| {
        let mut section = json!({"quant_method": "mxfp4"});
        section["modules_to_not_convert"] = more;
        config("quantization_config", section)
    };
    table.accepts("modules that are not converted, null", &method(Value::Null), "");
    for key in ["swiglu_limit", "swiglu_alpha"] {
        table.refuses(&format!("{key} is null"), &config(key, Value::Null), "", 10, &[CONFIG, key]);
    }
    // transformers' default is that q, k, v and o have them.
    let unsaid = blocks.json(CONFIG, |config| drop(config.remove("attention_bias")));
    table.accepts("gpt-oss without a word of biases", &unsaid.tree(), "");
    let bias = "model.layers.1.self_attn.q_proj.bias";
    let renamed = unsaid.header("model.safetensors", |header| {
        let Some(tensor) = header.remove(bias) else { panic!("a fixture with biases") };
        header.insert("elsewhere".into(), tensor);
    });
    table.refuses("the same with one missing", &renamed.tree(), "", 15, &[bias]);
    table.refuses("a number of modules", &method(json!(3)), "", 10, &[CONFIG, "modules_to_not_convert"]);
    table.refuses("no word of MXFP4", &config("quantization_config", Value::Null), "", 12, &["MXFP4"]);
    for (key, value, code) in [
        ("swiglu_limit", json!(0), 10),
        ("swiglu_alpha", json!("1.702"), 10),
        ("intermediate_size", json!(80), 15),
        ("intermediate_size", json!(64), 15),
        ("num_local_experts", json!(3), 15),
        ("num_attention_heads", json!(8), 15),
    ] {
        table.refuses(&format!("{key} of gpt-oss is {value}"), &config(key, value.clone()), "", code, &[]);
    }
    let cases: &[(&Files, &str, &str, Value)] = &[
        (&blocks, "gate_up_proj_blocks", "shape", json!([4, 96, 2, 16])),
        (&blocks, "gate_up_proj_blocks", "dtype", json!("I8")),
        (&blocks, "down_proj_scales", "shape", json!([4, 3, 32])),
        (&blocks, "down_proj_scales", "dtype", json!("I8")),
        (&blocks, "down_proj_bias", "shape", json!([32, 4])),
        (&floats, "gate_up_proj", "shape", json!([4, 64, 32])),
        (&floats, "gate_up_proj", "dtype", json!("I16")),
        (&floats, "gate_up_proj_bias", "shape", json!([64, 4])),
    ];
    for (files, name, field, value) in cases {
        let name = format!("model.layers.1.mlp.experts.{name}");
        let changed = files.header("model.safetensors", |header| header[&name][field] = value.clone());
        table.refuses(&format!("{field} of {name} is {value}"), &changed.tree(), "", 15, &[&name]);
    }
    for name in ["gate_up_proj_scales", "gate_up_proj_blocks", "down_proj_bias"] {
        let name = format!("model.layers.0.mlp.experts.{name}");
        let renamed = blocks.header("model.safetensors", |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("another".to_owned(), tensor);
        });
        table.refuses(&format!("no {name}"), &renamed.tree(), "", 15, &["model.layers.0.mlp.experts."]);
    }
}

/// Sigmoids with a bias, and layers in front without experts.
fn lfm2(table: &mut Table) {
    let file = Gguf::fixture("lfm2-moe/q8_0.gguf");
    table.accepts("experts behind a dense layer", &Tree::new().with(NAME, file.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    let (gating, dense) = ("lfm2moe.expert_gating_func", "lfm2moe.leading_dense_block_count");
    case("LFM2's experts by a softmax", &file.u32(gating, 1), 11, gating);
    case("experts in every layer", &file.u32(dense, 0), 15, "blk.0.ffn_gate_inp.weight");
    case("no word of dense layers", &file.without(dense), 15, "blk.0.ffn_gate_inp.weight");
    case("experts in no layer", &file.u32(dense, 3), 15, "blk.1.ffn_gate.weight");
    case("more dense layers than layers", &file.u32(dense, 4), 10, dense);
    case("experts of no scale", &file.f32("lfm2moe.expert_weights_scale", f32::NAN), 10, "scale");
    let bias = "blk.1.exp_probs_b.bias";
    case("a bias of other experts", &file.tensor(bias, |info| info.shape = vec![3]), 15, bias);
    case("no bias of experts in GGUF", &file.without_tensor(bias), 15, bias);
    let groups = "lfm2moe.expert_group_count";
    case("experts in groups", &file.u32(groups, 4), 11, groups);
    let olmoe = Gguf::fixture("olmoe/q8_0.gguf");
    let gating = "olmoe.expert_gating_func";
    case("OLMoE's experts by sigmoids", &olmoe.u32(gating, 2), 11, gating);
    case("OLMoE's experts by another function", &olmoe.u32(gating, 4), 11, gating);

    let folder = Files::fixture("lfm2-moe/bf16");
    table.accepts("the same in a folder", &folder.tree(), "");
    let set = |key: &str, value: Value| folder.json(CONFIG, |config| drop(config.insert(key.to_owned(), value))).tree();
    table.accepts("no bias, which use_expert_bias says", &set("use_expert_bias", json!(false)), "");
    let cases: &[(&str, Value, u8, &str)] = &[
        ("use_expert_bias", json!(1), 10, "use_expert_bias"),
        ("num_dense_layers", json!(0), 15, "model.layers.0.feed_forward.gate.weight"),
        ("num_dense_layers", json!(4), 10, "num_dense_layers"),
        ("num_dense_layers", json!(-1), 10, "num_dense_layers"),
        ("routed_scaling_factor", json!(0), 10, "routed_scaling_factor"),
        ("routed_scaling_factor", json!("1"), 10, "routed_scaling_factor"),
        ("moe_intermediate_size", json!(64), 15, "experts.0."),
        ("norm_topk_prob", json!(3), 10, "norm_topk_prob"),
    ];
    for (key, value, code, says) in cases {
        table.refuses(&format!("{key} of LFM2 is {value}"), &set(key, value.clone()), "", *code, &[says]);
    }
    let name = "model.layers.2.feed_forward.expert_bias";
    let renamed = folder.header("model.safetensors", |header| {
        let tensor = header.remove(name).unwrap();
        header.insert("another".to_owned(), tensor);
    });
    table.refuses("no bias of experts", &renamed.tree(), "", 15, &[name]);
}
