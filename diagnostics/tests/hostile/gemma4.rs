//! Layers of two kinds, keys and values of other layers, and embeddings of layers, with one thing wrong.

use crate::build::{ARRAY, F32, I32, Tree, array};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use serde_json::{Value, json};

const NAME: &str = "m.gguf";
const CONFIG: &str = "config.json";

pub fn cases(table: &mut Table) {
    gguf(table);
    folders(table);
    by_layer(table);
    experts(table);
}

fn integers(values: &[i32]) -> Vec<u8> {
    array(I32, values.len() as u64, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

fn gguf(table: &mut Table) {
    let (large, small) = (Gguf::fixture("gemma-4-31b/q8_0.gguf"), Gguf::fixture("gemma-4-e2b/q8_0.gguf"));
    for (case, file) in [("heads of two sizes", &large), ("keys of other layers", &small)] {
        table.accepts(case, &Tree::new().with(NAME, file.build()), NAME);
    }
    let unscaled = large.without_tensor("blk.0.layer_output_scale.weight");
    table.accepts("a layer without a factor", &Tree::new().with(NAME, unscaled.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    let (heads, key, value) =
        ("gemma4.attention.head_count_kv", "gemma4.attention.key_length_swa", "gemma4.attention.value_length_swa");
    let listed = |file: &Gguf, key: &str, values: &[i32]| file.set(key, ARRAY, integers(values));
    case("heads of three layers of four", &listed(&large, heads, &[2, 1, 2]), 15, heads);
    case("a layer with no head", &listed(&large, heads, &[2, 0, 2, 0]), 10, heads);
    case("other heads in a layer with a window", &listed(&large, heads, &[2, 1, 4, 1]), 11, heads);
    case("heads that queries cannot share", &listed(&large, heads, &[3, 1, 3, 1]), 15, heads);
    case("heads that are not stored", &listed(&large, heads, &[4, 1, 4, 1]), 15, "blk.0.attn_k.weight");
    case("no size of heads in a window", &large.without(key), 10, key);
    case("heads in a window of another size", &large.u32(key, 24), 11, value);
    case("values of another size", &large.u32(value, 8), 11, value);
    let rotated = "gemma4.rope.dimension_count_swa";
    case("a part of heads in a window turns", &large.u32(rotated, 8), 15, rotated);
    case("no frequency factors", &large.without_tensor("rope_freqs.weight"), 15, "rope_freqs.weight");
    case("no values in a window", &large.without_tensor("blk.0.attn_v.weight"), 15, "blk.0.attn_v.weight");
    let wide = large.without_tensor("blk.1.layer_output_scale.weight");
    let wide = wide.with_tensor("blk.1.layer_output_scale.weight", &[2], F32);
    case("two factors of a layer", &wide, 15, "blk.1.layer_output_scale.weight");
    case("experts of which none is used", &large.u32("gemma4.expert_count", 4), 10, "gemma4.expert_used_count");

    let (shared, widths) = ("gemma4.attention.shared_kv_layers", "gemma4.feed_forward_length");
    for (count, code) in [(4, 15), (5, 15), (u32::MAX, 15)] {
        case(&format!("{count} layers of others' keys"), &small.u32(shared, count), code, shared);
    }
    case("no layer with a window to take keys of", &small.u32(shared, 3), 15, shared);
    case("a layer less with keys of its own", &small.u32(shared, 1), 15, "blk.2.attn_k.weight");
    case("a width for three layers", &listed(&small, widths, &[32, 32, 64]), 15, widths);
    case("a layer of no width", &listed(&small, widths, &[32, 32, 64, 0]), 10, widths);
    case("another width of a layer", &listed(&small, widths, &[32, 64, 64, 64]), 15, "blk.1.ffn");
    let width = "gemma4.embedding_length_per_layer_input";
    case("embeddings of another width", &small.u32(width, 16), 15, "blk.0.inp_gate.weight");
    case("embeddings of 2^32 - 1", &small.u32(width, u32::MAX), 10, width);
    for tensor in
        ["per_layer_token_embd", "per_layer_model_proj", "per_layer_proj_norm", "blk.3.inp_gate", "blk.3.post_norm"]
    {
        let name = format!("{tensor}.weight");
        case(&format!("no {tensor}"), &small.without_tensor(&name), 15, &name);
    }
}

fn folders(table: &mut Table) {
    let (large, small) = (Files::fixture("gemma-4-31b/bf16"), Files::fixture("gemma-4-e2b/bf16"));
    table.accepts("sizes by keys of their own", &large.tree(), "");
    table.accepts("embeddings of layers", &small.tree(), "");
    let with = |files: &Files, key: &str, value: Value| {
        files.json(CONFIG, |config| drop(config.insert(key.into(), value.clone())))
    };
    table.accepts(
        "images that see each other",
        &with(&large, "use_bidirectional_attention", json!("vision")).tree(),
        "",
    );
    // transformers has no window in the last layer, whatever the list says.
    let last = with(
        &large,
        "layer_types",
        json!(["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]),
    );
    table.accepts("a last layer with a window", &last.tree(), "");
    let mut case = |files: &Files, key: &str, value: Value, code: u8, says: &str| {
        let name = format!("Gemma 4: {key} is {value}");
        table.refuses(&name, &with(files, key, value).tree(), "", code, &[CONFIG, says]);
    };
    case(&large, "use_bidirectional_attention", json!("all"), 11, "use_bidirectional_attention");
    case(&large, "global_head_dim", json!(0), 10, "global_head_dim");
    case(&large, "num_global_key_value_heads", json!(3), 15, "num_key_value_heads");
    case(&large, "attention_k_eq_v", json!("yes"), 10, "attention_k_eq_v");
    case(&small, "num_kv_shared_layers", json!(4), 15, "num_kv_shared_layers");
    case(&small, "num_kv_shared_layers", json!(3), 15, "num_kv_shared_layers");
    case(&small, "num_kv_shared_layers", json!(-1), 10, "num_kv_shared_layers");
    case(&small, "hidden_size_per_layer_input", json!(1u64 << 40), 10, "hidden_size_per_layer_input");
    case(&large, "num_hidden_layers", json!(i32::MAX), 15, "layer_types");
    case(&large, "rope_parameters", json!(null), 10, "rope_theta");
    let rope = |part: Value| {
        json!({"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": part},
               "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    };
    for part in [json!(0), json!(1.5), json!(-0.25), json!(0.01)] {
        case(&large, "rope_parameters", rope(part), 10, "partial_rotary_factor");
    }
    let absent = large.json(CONFIG, |config| drop(config.remove("global_head_dim")));
    table.refuses("heads of 512 elements where no key says it", &absent.tree(), "", 15, &["q_proj", "512 elements"]);
}

/// As transformers 5 writes sizes that differ.
fn by_layer(table: &mut Table) {
    let full = json!({"head_dim": 32, "num_key_value_heads": 1});
    let files = Files::fixture("gemma-4-31b/bf16").json(CONFIG, |config| {
        config.remove("global_head_dim");
        config.remove("num_global_key_value_heads");
        config.insert("per_layer_config".into(), json!({"1": full, "3": full}));
    });
    table.accepts("sizes by layer", &files.tree(), "");
    let valued = files.json(CONFIG, |config| drop(config.insert("attention_k_eq_v".into(), json!(false))));
    table.refuses("keys that are no values", &valued.tree(), "", 15, &["layers.1.self_attn.v_proj.weight"]);
    let mut case = |name: &str, by_layer: Value, code: u8, says: &str| {
        let edited = files.json(CONFIG, |config| drop(config.insert("per_layer_config".into(), by_layer.clone())));
        table.refuses(name, &edited.tree(), "", code, &[CONFIG, says]);
    };
    case("sizes of a list", json!([]), 10, "per_layer_config");
    case("sizes of a layer beyond", json!({"1": full, "3": full, "4": full}), 10, "per_layer_config");
    case("sizes of a layer without a number", json!({"full_attention": full}), 10, "per_layer_config");
    case("sizes of one of two layers", json!({"1": full}), 11, "per_layer_config");
    case("other sizes in two layers", json!({"1": full, "3": {"head_dim": 64}}), 11, "per_layer_config.3");
    case("other sizes in a window", json!({"0": full, "1": full, "3": full}), 11, "per_layer_config.0");
    case("a size of nothing", json!({"1": {"head_dim": 0}, "3": full}), 10, "per_layer_config.1.head_dim");
    case("another option by layer", json!({"1": {"sliding_window": 8}}), 11, "per_layer_config.1.sliding_window");
}

/// Experts beside a dense layer.
fn experts(table: &mut Table) {
    let file = Gguf::fixture("gemma-4-26b-a4b/q8_0.gguf");
    table.accepts("experts beside a dense layer", &Tree::new().with(NAME, file.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    for name in [
        "ffn_gate_inp.weight",
        "ffn_gate_inp.scale",
        "pre_ffw_norm_2.weight",
        "post_ffw_norm_1.weight",
        "post_ffw_norm_2.weight",
        "ffn_up.weight",
        "ffn_down_exps.weight",
        "ffn_down_exps.scale",
    ] {
        let name = format!("blk.1.{name}");
        case(&format!("no {name} of Gemma 4"), &file.without_tensor(&name), 15, &name);
    }
    let scales = "blk.1.ffn_down_exps.scale";
    case("scales of other experts", &file.tensor(scales, |info| info.shape = vec![3]), 15, scales);
    let count = "gemma4.expert_count";
    case("another number of experts", &file.u32(count, 3), 15, "ffn_gate_inp.weight");
    case("2^31 - 1 experts of Gemma 4", &file.u32(count, i32::MAX as u32), 10, count);

    let folder = Files::fixture("gemma-4-26b-a4b/f32");
    table.accepts("the same experts in a folder", &folder.tree(), "");
    // They are unused then, as transformers leaves them.
    let set = |key: &str, value: Value| folder.json(CONFIG, |config| drop(config.insert(key.to_owned(), value))).tree();
    table.accepts("no experts, which enable_moe_block says", &set("enable_moe_block", json!(false)), "");
    let cases: &[(&str, Value, u8, &str)] = &[
        ("enable_moe_block", json!("yes"), 10, "enable_moe_block"),
        ("num_experts", json!(null), 10, "num_experts"),
        ("num_experts", json!(5), 15, "router.proj.weight"),
        ("top_k_experts", json!(5), 15, "top_k_experts"),
        ("top_k_experts", json!(null), 10, "top_k_experts"),
        ("moe_intermediate_size", json!(64), 15, "experts."),
    ];
    for (key, value, code, says) in cases {
        table.refuses(&format!("{key} of Gemma 4 is {value}"), &set(key, value.clone()), "", *code, &[says]);
    }
    for name in ["router.scale", "router.per_expert_scale", "experts.down_proj"] {
        let name = format!("model.layers.1.{name}");
        let renamed = folder.header("model.safetensors", |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("another".to_owned(), tensor);
        });
        table.refuses(&format!("no {name}"), &renamed.tree(), "", 15, &["model.layers.1."]);
    }
    let dense = Files::fixture("gemma-4-31b/bf16");
    let said = dense.json(CONFIG, |config| drop(config.insert("enable_moe_block".into(), json!(true))));
    table.refuses("experts of no number", &said.tree(), "", 10, &[CONFIG, "num_experts"]);
}
