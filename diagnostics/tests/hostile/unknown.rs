//! Stored tensors that no table names: all are refused but those on the list of what may be left aside.

use crate::build::{F16, F32, Tree};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use serde_json::{Value, json};

const NAME: &str = "m.gguf";
const WEIGHTS: &str = "model.safetensors";

pub fn cases(table: &mut Table) {
    gguf(table);
    folders(table);
}

fn gguf(table: &mut Table) {
    let llama = Gguf::fixture("llama-3.1/q8_0.gguf");
    let tree = |file: &Gguf| Tree::new().with(NAME, file.build());
    // llama.cpp multiplies products by such scales.
    for name in [
        "blk.0.attn_q.scale",
        "blk.1.ffn_up.scale",
        "blk.0.ffn_down_exps.scale",
        "blk.0.attn_q.input_scale",
        "blk.0.attn_norm_2.weight",
        "output.scale",
        "token_embd_norm.weight",
        "v_blk.0.weight",
    ] {
        let file = tree(&llama.with_tensor(name, &[1], F32));
        table.refuses(&format!("{name} beside all that is known"), &file, NAME, 12, &[NAME, name, "llama"]);
    }
    let experts = Gguf::fixture("olmoe/q8_0.gguf").with_tensor("blk.0.ffn_down_exps.scale", &[4], F32);
    table.refuses("scales of experts", &tree(&experts), NAME, 12, &["blk.0.ffn_down_exps.scale"]);
    let nvfp4 = Gguf::fixture("../fp4-gguf/nvfp4/model.gguf");
    for (name, shape, kind, code, says) in [
        ("blk.0.attn_q.scale", &[2], F32, 15, "[1]"),
        ("blk.0.attn_q.scale", &[1], F16, 15, "F32 (scales)"),
        ("blk.0.ffn_up_exps.scale", &[2], F32, 15, "[3]"),
        ("output.scale", &[1], F32, 12, "output.scale"),
        ("output.input_scale", &[1], F32, 12, "output.input_scale"),
    ] {
        let file = nvfp4.without_tensor(name).with_tensor(name, shape, kind);
        table.refuses(&format!("{name} of {shape:?} in NVFP4"), &tree(&file), NAME, code, &[NAME, name, says]);
    }
    let two = llama.with_tensor("blk.0.attn_q.scale", &[1], F32).with_tensor("blk.1.attn_q.scale", &[1], F32);
    table.refuses("two scales", &tree(&two), NAME, 12, &["2 stored", "blk.0.attn_q.scale", "blk.1.attn_q.scale"]);
    let missing = two.without_tensor("blk.1.attn_k.weight");
    table.refuses("two scales, and no keys", &tree(&missing), NAME, 15, &["blk.1.attn_k.weight"]);
    let beyond = two.with_tensor("blk.9.attn_k.weight", &[1], F32);
    table.refuses("two scales, and a layer past the last", &tree(&beyond), NAME, 15, &["blk.9.attn_k.weight"]);
    for name in ["v.blk.0.attn_q.weight", "mm.0.weight", "a.conv1d.1.weight"] {
        table.accepts(&format!("{name} of images or sound"), &tree(&llama.with_tensor(name, &[1], F32)), NAME);
    }
    // Layers that use keys and values of others have their own in files of the converter.
    let small = Gguf::fixture("gemma-4-e2b/q8_0.gguf");
    let unused = small.tensors.iter().map(|tensor| tensor.name.clone()).find(|name| name.contains("blk.3.attn_k."));
    let file = unused.map_or_else(|| small.with_tensor("blk.3.attn_k.weight", &[32, 32], F32), |_| small.clone());
    table.accepts("keys of a layer that uses those of another", &tree(&file), NAME);
    table.refuses(
        "scales of a layer that uses keys of another",
        &tree(&file.with_tensor("blk.3.attn_q.scale", &[1], F32)),
        NAME,
        12,
        &["blk.3.attn_q.scale"],
    );
}

/// `files` with one more tensor of BF16.
fn with(files: &Files, name: &str, shape: &[u64]) -> Files {
    let bytes = 2 * shape.iter().product::<u64>();
    let edited = files.header(WEIGHTS, |header| {
        let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
        let end = tensors.filter_map(|(_, tensor)| tensor["data_offsets"][1].as_u64()).max().unwrap();
        header.insert(name.into(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [end, end + bytes]}));
    });
    let all = [edited.get(WEIGHTS), &vec![0; bytes as usize]].concat();
    edited.with(WEIGHTS, all)
}

fn folders(table: &mut Table) {
    let llama = Files::fixture("llama-3.1/bf16");
    for name in [
        "model.layers.0.self_attn.q_proj.scale",
        "model.layers.0.self_attn.q_proj.weight_scale",
        "model.layers.1.mlp.gate.weight",
        "model.layers.0.self_attn.attn.bias",
        "model.norm.bias",
        "lm_head.bias",
        "output.scale",
        "spare",
    ] {
        let folder = with(&llama, name, &[1]).tree();
        table.refuses(&format!("{name} in a folder"), &folder, "", 12, &[WEIGHTS, name, "llama"]);
    }
    for (name, shape) in [
        ("vision_tower.encoder.layers.0.weight", &[1][..]),
        ("model.visual.blocks.0.attn.qkv.weight", &[1]),
        ("multi_modal_projector.linear_1.scale", &[1]),
        ("audio_tower.layers.0.weight", &[1]),
        ("mtp.layers.0.self_attn.q_proj.weight", &[1]),
        ("v_head.summary.weight", &[1]),
        ("score.weight", &[1]),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", &[8]),
        ("model.rotary_emb.inv_freq", &[8]),
        ("model.embeddings.position_ids", &[8]),
        ("model.layers.0.attn.masked_bias", &[1]),
        ("model.layers.0.attn.bias", &[1, 1, 4, 4]),
    ] {
        table.accepts(&format!("{name} in a folder"), &with(&llama, name, shape).tree(), "");
    }
    // A flag denies the one; the table has no other.
    let set = |value: Value| llama.json("config.json", |config| drop(config.insert("attention_bias".into(), value)));
    let bias = "model.layers.0.self_attn.q_proj.bias";
    table.accepts("a bias that attention_bias denies", &with(&set(json!(false)), bias, &[64]).tree(), "");
    let qwen = with(&Files::fixture("qwen2.5/bf16"), "model.layers.0.self_attn.o_proj.bias", &[64]);
    table.refuses("a bias that no table knows", &qwen.tree(), "", 12, &["model.layers.0.self_attn.o_proj.bias"]);
}
