//! Models whose layers keep a state, with one thing wrong.

use crate::build::{ARRAY, BOOL, F32, I32, TEXT, Tree, array, string};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use serde_json::{Value, json};

const NAME: &str = "m.gguf";
const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

pub fn cases(table: &mut Table) {
    delta_nets_in_gguf(table);
    delta_nets_in_folders(table);
    convolutions_in_gguf(table);
    convolutions_in_folders(table);
    rows_by_heads_of_keys(table);
    mamba_in_gguf(table);
    mamba_in_folders(table);
}

fn flags(values: &[u8]) -> Vec<u8> {
    array(BOOL, values.len() as u64, values)
}

fn integers(values: &[i32]) -> Vec<u8> {
    array(I32, values.len() as u64, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

fn delta_nets_in_gguf(table: &mut Table) {
    let sound = Gguf::fixture("qwen3.5/q8_0.gguf");
    table.accepts("delta nets", &Tree::new().with(NAME, sound.build()), NAME);
    let without_keys = sound.without("qwen35.attention.recurrent_layers").without("qwen35.full_attention_interval");
    table.accepts("delta nets that no key names", &Tree::new().with(NAME, without_keys.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        let case = format!("delta nets in GGUF: {case}");
        table.refuses(&case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    let (keys, values) = ("qwen35.ssm.group_count", "qwen35.ssm.time_step_rank");
    let (dim, inner, kernel) = ("qwen35.ssm.state_size", "qwen35.ssm.inner_size", "qwen35.ssm.conv_kernel");
    for key in [keys, values, dim, inner, kernel] {
        case(&format!("no {key}"), &sound.without(key), 10, key);
        case(&format!("{key} is 0"), &sound.u32(key, 0), 10, key);
        case(&format!("{key} is 2^32 - 1"), &sound.u32(key, u32::MAX), 10, key);
        case(&format!("{key} is a text"), &sound.text(key, "4"), 10, key);
    }
    case("3 heads of keys under 4 of values", &sound.u32(keys, 3), 15, keys);
    case("2^31 - 1 heads of keys", &sound.u32(keys, i32::MAX as u32), 15, keys);
    case("heads of values that do not divide the values", &sound.u32(values, 6), 15, values);
    case("8 heads of values", &sound.u32(values, 8), 15, "ssm_beta.weight");
    case("2 heads of values of 32", &sound.u32(values, 2), 15, "ssm_beta.weight");
    case("1 head of keys", &sound.u32(keys, 1), 15, "attn_qkv.weight");
    case("2^31 - 1 elements a key", &sound.u32(dim, i32::MAX as u32), 15, "attn_qkv.weight");
    let huge = sound.u32(dim, i32::MAX as u32).u32(inner, i32::MAX as u32).u32(values, 1).u32(keys, 1);
    case("one head of 2^31 - 1 elements", &huge, 15, "attn_qkv.weight");
    case("a kernel of one position", &sound.u32(kernel, 1), 10, kernel);
    case("a kernel of 1025 positions", &sound.u32(kernel, 1025), 10, kernel);
    case("a kernel of 3 positions", &sound.u32(kernel, 3), 15, "ssm_conv1d.weight");

    let (list, every) = ("qwen35.attention.recurrent_layers", "qwen35.full_attention_interval");
    case("flags of 3 layers", &sound.set(list, ARRAY, flags(&[1, 1, 1])), 15, list);
    case("flags of 5 layers", &sound.set(list, ARRAY, flags(&[1, 1, 1, 0, 0])), 15, list);
    case("flags of no layer", &sound.set(list, ARRAY, flags(&[])), 15, list);
    case("flags that are numbers", &sound.set(list, ARRAY, integers(&[1, 1, 1, 0])), 10, list);
    case("one flag for all", &sound.set(list, BOOL, [1]), 10, list);
    case("flags in a text", &sound.set(list, TEXT, string("1110")), 10, list);
    case("attention where a delta net is", &sound.set(list, ARRAY, flags(&[0, 1, 1, 0])), 15, "blk.0.attn_q.weight");
    case("a delta net where attention is", &sound.set(list, ARRAY, flags(&[1; 4])), 15, "blk.3.attn_qkv.weight");
    case("attention in every 0th layer", &sound.without(list).u32(every, 0), 10, every);
    case("attention in every second layer", &sound.without(list).u32(every, 2), 15, "blk.1.attn_q.weight");
    case("attention in every 0.5th layer", &sound.without(list).f32(every, 0.5), 10, every);

    let predictors = "qwen35.nextn_predict_layers";
    case("nothing but predictors", &sound.u32(predictors, 4), 15, predictors);
    case("more predictors than blocks", &sound.u32(predictors, u32::MAX), 15, predictors);
    case("a number of predictors in words", &sound.text(predictors, "one"), 10, predictors);
    let beyond = sound.with_tensor("blk.4.nextn.eh_proj.weight", &[64, 32], F32);
    case("a predictor that no key counts", &beyond.with_tensor("blk.4.attn_norm.weight", &[32], F32), 15, "blk.4.");

    for name in ["attn_qkv.weight", "attn_gate.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_conv1d.weight"] {
        let name = format!("blk.1.{name}");
        case(&format!("no {name}"), &sound.without_tensor(&name), 15, &name);
    }
    for name in ["ssm_a", "ssm_dt.bias", "ssm_norm.weight", "ssm_out.weight", "post_attention_norm.weight"] {
        let name = format!("blk.2.{name}");
        case(&format!("no {name}"), &sound.without_tensor(&name), 15, &name);
        let longer = sound.tensor(&name, |info| *info.shape.last_mut().unwrap() *= 2);
        case(&format!("twice as many of {name}"), &longer, 15, &name);
    }
    let turned = sound.tensor("blk.0.ssm_conv1d.weight", |info| info.shape.reverse());
    case("channels innermost", &turned, 15, "blk.0.ssm_conv1d.weight");
    let whole = sound.tensor("blk.0.ssm_a", |info| info.kind = 26);
    case("a decay of integers", &whole, 15, "blk.0.ssm_a");
    let ungated = sound.tensor("blk.3.attn_q.weight", |info| info.shape[1] /= 2);
    case("queries without gates", &ungated, 15, "blk.3.attn_q.weight");
}

fn delta_nets_in_folders(table: &mut Table) {
    let sound = Files::fixture("qwen3.5/bf16");
    table.accepts("delta nets in a folder", &sound.tree(), "");
    let edit = |key: &str, value: &Value| {
        sound.json(CONFIG, |config| drop(config.insert(key.to_owned(), value.clone()))).tree()
    };
    let types = |first: &str| json!([first, "linear_attention", "linear_attention", "full_attention"]);
    let cases: &[(&str, Value, u8, &str)] = &[
        ("layer_types", types("sliding_attention"), 10, "layer_types[0]"),
        ("layer_types", types("conv"), 10, "layer_types[0]"),
        ("layer_types", types("full_attention"), 15, "model.layers.0.self_attn.q_proj.weight"),
        ("layer_types", json!(vec!["linear_attention"; 4]), 15, "model.layers.3.linear_attn.in_proj_qkv.weight"),
        ("layer_types", json!(["linear_attention"]), 15, "layer_types"),
        ("layer_types", json!([]), 15, "layer_types"),
        ("layer_types", json!([1, 1, 1, 0]), 10, "layer_types[0]"),
        ("layer_types", json!("linear_attention"), 10, "layer_types"),
        ("linear_num_key_heads", json!(3), 15, "linear_num_key_heads"),
        ("linear_num_key_heads", json!(0), 10, "linear_num_key_heads"),
        ("linear_num_key_heads", json!(4), 15, "in_proj_qkv.weight"),
        ("linear_num_value_heads", json!(3), 15, "linear_num_value_heads"),
        ("linear_num_value_heads", json!(1_u64 << 40), 10, "linear_num_value_heads"),
        ("linear_num_value_heads", json!(-4), 10, "linear_num_value_heads"),
        ("linear_key_head_dim", json!(0), 10, "linear_key_head_dim"),
        ("linear_key_head_dim", json!(i32::MAX), 15, "in_proj_qkv.weight"),
        ("linear_value_head_dim", json!(17), 15, "in_proj_qkv.weight"),
        ("linear_value_head_dim", json!("16"), 10, "linear_value_head_dim"),
        ("linear_conv_kernel_dim", json!(0), 10, "linear_conv_kernel_dim"),
        ("linear_conv_kernel_dim", json!(1), 10, "linear_conv_kernel_dim"),
        ("linear_conv_kernel_dim", json!(5), 15, "conv1d.weight"),
        ("linear_conv_kernel_dim", json!(1 << 30), 10, "linear_conv_kernel_dim"),
        ("attn_output_gate", json!(false), 11, "attn_output_gate"),
        ("attn_output_gate", json!("yes"), 10, "attn_output_gate"),
        ("mtp_num_hidden_layers", json!(-1), 10, "mtp_num_hidden_layers"),
        ("attention_bias", json!(true), 15, "q_proj.bias"),
    ];
    for (key, value, code, says) in cases {
        table.refuses(&format!("delta nets: {key} is {value}"), &edit(key, value), "", *code, &[says]);
    }
    let every = |every: Value| {
        let files = sound.json(CONFIG, |config| {
            config.remove("layer_types");
            config.insert("full_attention_interval".into(), every);
        });
        files.tree()
    };
    table.accepts("delta nets in all layers but every fourth", &every(json!(4)), "");
    let key = "full_attention_interval";
    table.refuses("delta nets in all layers but every 0th", &every(json!(0)), "", 10, &[CONFIG, key]);
    table.refuses("delta nets in all layers but every third", &every(json!(3)), "", 15, &["model.layers.2.self_attn"]);
    // A default of transformers, which these tensors contradict.
    let sizes = sound.json(CONFIG, |config| drop(config.remove("linear_value_head_dim")));
    table.refuses("delta nets of a default size", &sizes.tree(), "", 15, &["in_proj_qkv.weight"]);
    for name in ["A_log", "dt_bias", "conv1d.weight", "norm.weight", "in_proj_z.weight", "out_proj.weight"] {
        let name = format!("model.layers.1.linear_attn.{name}");
        let renamed = sound.header_text(WEIGHTS, |header| header.replace(&name, &format!("{name}.old")).into_bytes());
        table.refuses(&format!("no {name}"), &renamed.tree(), "", 15, &[&name]);
    }
    let flat =
        |files: &Files, name: &str, shape: Value| files.header(WEIGHTS, |header| header[name]["shape"] = shape).tree();
    let conv = "model.layers.0.linear_attn.conv1d.weight";
    table.refuses("a convolution as in GGUF", &flat(&sound, conv, json!([128, 4])), "", 15, &[conv]);
    table.refuses("a convolution across channels", &flat(&sound, conv, json!([64, 2, 4])), "", 15, &[conv]);
    let decay = "model.layers.0.linear_attn.A_log";
    table.refuses("a decay in two dimensions", &flat(&sound, decay, json!([2, 2])), "", 15, &[decay]);
}

fn convolutions_in_gguf(table: &mut Table) {
    let sound = Gguf::fixture("lfm2/q8_0.gguf");
    table.accepts("short convolutions", &Tree::new().with(NAME, sound.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        let case = format!("short convolutions in GGUF: {case}");
        table.refuses(&case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    let (kernel, heads) = ("lfm2.shortconv.l_cache", "lfm2.attention.head_count_kv");
    case("no kernel", &sound.without(kernel), 10, kernel);
    case("a kernel of no position", &sound.u32(kernel, 0), 10, kernel);
    case("a kernel of one position", &sound.u32(kernel, 1), 10, kernel);
    case("a kernel of 4 positions", &sound.u32(kernel, 4), 15, "shortconv.conv.weight");
    case("a kernel of 2^31 - 1 positions", &sound.u32(kernel, i32::MAX as u32), 10, kernel);
    let array = |values: &[i32]| sound.set(heads, ARRAY, integers(values));
    case("heads of 3 layers", &array(&[0, 0, 2]), 15, heads);
    case("heads of 5 layers", &array(&[0, 0, 2, 0, 0]), 15, heads);
    case("heads in no layer", &array(&[0, 0, 0, 0]), 10, heads);
    case("heads below none", &array(&[0, 0, -2, 0]), 10, heads);
    case("heads of two numbers", &array(&[0, 1, 2, 0]), 11, heads);
    case("heads in all layers", &array(&[2, 2, 2, 2]), 15, "blk.0.attn_q.weight");
    case("one number of heads", &sound.u32(heads, 2), 15, "blk.0.attn_q.weight");
    case("heads in another layer", &array(&[0, 2, 0, 0]), 15, "blk.1.attn_q.weight");
    case("flags in place of heads", &sound.set(heads, ARRAY, flags(&[0, 0, 1, 0])), 10, heads);
    case("no heads", &sound.without(heads), 15, "blk.0.attn_q.weight");
    for name in ["token_embd_norm.weight", "blk.0.shortconv.conv.weight", "blk.1.shortconv.in_proj.weight"] {
        case(&format!("no {name}"), &sound.without_tensor(name), 15, name);
    }
    let narrow = sound.tensor("blk.3.shortconv.in_proj.weight", |info| info.shape[1] = 64);
    case("two parts of three", &narrow, 15, "blk.3.shortconv.in_proj.weight");
    let turned = sound.tensor("blk.0.shortconv.conv.weight", |info| info.shape.reverse());
    case("channels innermost", &turned, 15, "blk.0.shortconv.conv.weight");
    case("experts", &sound.u32("lfm2.expert_count", 4), 11, "lfm2.expert_count");
    case("a window", &sound.u32("lfm2.attention.sliding_window", 16), 11, "sliding_window");
}

fn convolutions_in_folders(table: &mut Table) {
    for (form, list) in [("bf16", "full_attn_idxs"), ("f32", "layer_types")] {
        let sound = Files::fixture(&format!("lfm2/{form}"));
        table.accepts(&format!("short convolutions by {list}"), &sound.tree(), "");
        let without = sound.json(CONFIG, |config| drop(config.remove(list)));
        let says = &["model.layers.0.self_attn.q_proj.weight"];
        table.refuses(&format!("short convolutions without {list}"), &without.tree(), "", 15, says);
    }
    let sound = Files::fixture("lfm2/bf16");
    let cases: &[(&str, Value, u8, &str)] = &[
        ("full_attn_idxs", json!([4]), 10, "full_attn_idxs"),
        ("full_attn_idxs", json!([-1]), 10, "full_attn_idxs"),
        ("full_attn_idxs", json!("2"), 10, "full_attn_idxs"),
        ("full_attn_idxs", json!([1]), 15, "model.layers.1.self_attn.q_proj.weight"),
        ("full_attn_idxs", json!([]), 15, "model.layers.2.conv"),
        ("layer_types", json!(["conv", "conv", "linear_attention", "conv"]), 10, "layer_types[2]"),
        ("layer_types", json!(["conv", "conv", "full_attention"]), 15, "layer_types"),
        ("conv_L_cache", json!(0), 10, "conv_L_cache"),
        ("conv_L_cache", json!(1), 10, "conv_L_cache"),
        ("conv_L_cache", json!(4), 15, "conv.conv.weight"),
        ("conv_L_cache", json!(1 << 20), 10, "conv_L_cache"),
        ("conv_bias", json!(true), 15, ".bias"),
        ("conv_bias", json!(3), 10, "conv_bias"),
        ("block_use_swiglu", json!(false), 11, "block_use_swiglu"),
        ("block_auto_adjust_ff_dim", json!(false), 15, "feed_forward.w1.weight"),
        ("block_auto_adjust_ff_dim", json!(1), 10, "block_auto_adjust_ff_dim"),
        ("block_ff_dim", json!(0), 10, "block_ff_dim"),
        ("block_ff_dim", json!(i32::MAX), 15, "feed_forward.w1.weight"),
        ("block_multiple_of", json!(0), 10, "block_multiple_of"),
        ("block_multiple_of", json!(256), 15, "feed_forward.w1.weight"),
        ("block_ffn_dim_multiplier", json!(0.0), 10, "block_ffn_dim_multiplier"),
        ("block_ffn_dim_multiplier", json!(-1.5), 10, "block_ffn_dim_multiplier"),
        ("block_ffn_dim_multiplier", json!(1e300), 10, "block_ffn_dim_multiplier"),
        ("block_ffn_dim_multiplier", json!(3), 15, "feed_forward.w1.weight"),
        ("tie_embedding", json!(false), 15, "lm_head.weight"),
        ("tie_embedding", json!("no"), 10, "tie_embedding"),
    ];
    for (key, value, code, says) in cases {
        let edited = sound.json(CONFIG, |config| drop(config.insert((*key).to_owned(), value.clone())));
        table.refuses(&format!("short convolutions: {key} is {value}"), &edited.tree(), "", *code, &[says]);
    }
}

/// Qwen3-Next, whose projections stand by heads of keys.
fn rows_by_heads_of_keys(table: &mut Table) {
    let file = Gguf::fixture("qwen3-next/q8_0.gguf");
    table.accepts("corrections and decays by heads of keys", &Tree::new().with(NAME, file.build()), NAME);
    // As early converters wrote them.
    let early = file.without_tensor("blk.0.attn_qkv.weight").without_tensor("blk.0.attn_gate.weight");
    let early = early.with_tensor("blk.0.ssm_in.weight", &[32, 192], F32);
    table.accepts("all by heads of keys in GGUF", &Tree::new().with(NAME, early.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    for name in ["blk.0.ssm_ba.weight", "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight"] {
        case(&format!("no {name} of Qwen3-Next"), &file.without_tensor(name), 15, name);
    }
    let short = file.tensor("blk.0.ssm_ba.weight", |info| info.shape = vec![32, 4]);
    case("corrections without decays", &short, 15, "blk.0.ssm_ba.weight");
    let keys = "qwen3next.ssm.group_count";
    case("3 heads of keys of Qwen3-Next", &file.u32(keys, 3), 15, keys);

    let folder = Files::fixture("qwen3-next/bf16");
    table.accepts("all by heads of keys", &folder.tree(), "");
    for name in ["in_proj_qkvz", "in_proj_ba"] {
        let name = format!("model.layers.0.linear_attn.{name}.weight");
        let renamed = folder.header(WEIGHTS, |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("another".to_owned(), tensor);
        });
        table.refuses(&format!("no {name}"), &renamed.tree(), "", 15, &[&name]);
    }
    for (key, value, says) in [
        ("linear_num_key_heads", json!(1), "in_proj_qkvz"),
        ("linear_num_value_heads", json!(2), "in_proj_qkvz"),
        ("linear_value_head_dim", json!(32), "in_proj_qkvz"),
    ] {
        let set = folder.json(CONFIG, |config| drop(config.insert(key.into(), value.clone())));
        table.refuses(&format!("{key} of Qwen3-Next is {value}"), &set.tree(), "", 15, &[says]);
    }
}

fn mamba_in_gguf(table: &mut Table) {
    for name in ["granite-4-h/q8_0.gguf", "granite-4-h-dense/f16.gguf"] {
        table.accepts(&format!("Mamba-2 in {name}"), &Tree::new().with(NAME, Gguf::fixture(name).build()), NAME);
    }
    let sound = Gguf::fixture("granite-4-h/q8_0.gguf");
    let (groups, heads) = ("granitehybrid.ssm.group_count", "granitehybrid.ssm.time_step_rank");
    let (dim, inner) = ("granitehybrid.ssm.state_size", "granitehybrid.ssm.inner_size");
    let (kernel, kv) = ("granitehybrid.ssm.conv_kernel", "granitehybrid.attention.head_count_kv");
    // A norm without a dimension of 1, as the quantizer writes it, and with.
    let norm = "blk.0.ssm_norm.weight";
    let rows = sound.tensor(norm, |info| info.shape = vec![64, 1]);
    table.accepts("a norm of one group as a row", &Tree::new().with(NAME, rows.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        let case = format!("Mamba-2 in GGUF: {case}");
        table.refuses(&case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    for key in [groups, heads, dim, inner, kernel] {
        case(&format!("no {key}"), &sound.without(key), 10, key);
        case(&format!("{key} is 0"), &sound.u32(key, 0), 10, key);
        case(&format!("{key} is 2^32 - 1"), &sound.u32(key, u32::MAX), 10, key);
        case(&format!("{key} is a text"), &sound.text(key, "4"), 10, key);
    }
    case("3 groups of 4 heads", &sound.u32(groups, 3), 15, groups);
    case("heads that do not divide the values", &sound.u32(heads, 5), 15, heads);
    case("8 heads", &sound.u32(heads, 8), 15, "ssm_in.weight");
    case("2 groups", &sound.u32(groups, 2), 15, "ssm_in.weight");
    case("2^31 - 1 elements a key", &sound.u32(dim, i32::MAX as u32), 15, "ssm_in.weight");
    case("a kernel of 3 positions", &sound.u32(kernel, 3), 15, "ssm_conv1d.weight");
    case("no layer of attention's heads", &sound.set(kv, ARRAY, integers(&[0, 0])), 10, kv);
    case("attention where Mamba-2 is", &sound.set(kv, ARRAY, integers(&[2, 2])), 15, "blk.0.attn_q.weight");
    case("Mamba-2 where attention is", &sound.set(kv, ARRAY, integers(&[2, 0])), 15, "blk.0.attn_q.weight");
    case("a rotation in words", &sound.text("granitehybrid.rope.scaling.finetuned", "no"), 10, "finetuned");
    case("no experts but their tensors", &sound.u32("granitehybrid.expert_count", 0), 15, "ffn_gate.weight");
    for name in
        ["ssm_in.weight", "ssm_conv1d.weight", "ssm_dt.bias", "ssm_a", "ssm_d", "ssm_norm.weight", "ssm_out.weight"]
    {
        let name = format!("blk.0.{name}");
        case(&format!("no {name}"), &sound.without_tensor(&name), 15, &name);
        let longer = sound.tensor(&name, |info| *info.shape.last_mut().unwrap() *= 2);
        case(&format!("twice as many of {name}"), &longer, 15, &name);
    }
    for name in ["blk.0.ssm_a", "blk.0.ssm_d"] {
        case(&format!("{name} as a vector"), &sound.tensor(name, |info| info.shape = vec![4]), 15, name);
        case(&format!("{name} of integers"), &sound.tensor(name, |info| info.kind = 26), 15, name);
    }
    case("a norm of two groups", &sound.tensor(norm, |info| info.shape = vec![32, 2]), 15, norm);
}

fn mamba_in_folders(table: &mut Table) {
    let sound = Files::fixture("granite-4-h/bf16");
    let edit = |key: &str, value: &Value| {
        sound.json(CONFIG, |config| drop(config.insert(key.to_owned(), value.clone()))).tree()
    };
    let without = |key: &str| sound.json(CONFIG, |config| drop(config.remove(key))).tree();
    for key in
        ["mamba_d_head", "mamba_expand", "mamba_n_groups", "mamba_d_conv", "position_embedding_type", "mamba_conv_bias"]
    {
        table.accepts(&format!("Mamba-2 without {key}"), &without(key), "");
    }
    for (key, value) in [
        ("mamba_d_head", json!("auto")),
        ("time_step_limit", json!(null)),
        ("time_step_limit", json!([0.0, {"__float__": "Infinity"}])),
        ("time_step_limit", json!([0.001, 0.1])),
        ("layer_types", json!(["linear_attention", "full_attention"])),
        ("position_embedding_type", json!(null)),
        ("position_embedding_type", json!("rope")),
    ] {
        table.accepts(&format!("Mamba-2: {key} is {value}"), &edit(key, &value), "");
    }
    table.refuses(
        "layers of Granite 4 that no key names",
        &without("layer_types"),
        "",
        15,
        &["layers.1.mamba.in_proj"],
    );
    let cases: &[(&str, Value, u8, &str)] = &[
        ("layer_types", json!(["mamba2", "attention"]), 10, "layer_types[0]"),
        ("layer_types", json!(["attention", "attention"]), 15, "layers.0.self_attn.q_proj.weight"),
        ("layer_types", json!(["mamba", "mamba"]), 15, "layers.1.mamba.in_proj.weight"),
        ("layer_types", json!(["mamba"]), 15, "layer_types"),
        ("mamba_n_heads", json!(0), 10, "mamba_n_heads"),
        ("mamba_n_heads", json!(5), 15, "mamba_n_heads"),
        ("mamba_n_heads", json!(8), 15, "mamba_d_head"),
        ("mamba_n_groups", json!(3), 15, "mamba_n_groups"),
        ("mamba_n_groups", json!(2), 15, "in_proj.weight"),
        ("mamba_d_state", json!(8), 15, "in_proj.weight"),
        ("mamba_d_state", json!(i32::MAX), 15, "in_proj.weight"),
        ("mamba_d_head", json!(8), 15, "mamba_d_head"),
        ("mamba_d_head", json!("half"), 10, "mamba_d_head"),
        ("mamba_d_head", json!(-16), 10, "mamba_d_head"),
        ("mamba_expand", json!(i32::MAX), 10, "mamba_expand"),
        ("mamba_expand", json!(1.5), 10, "mamba_expand"),
        ("mamba_d_conv", json!(1), 10, "mamba_d_conv"),
        ("mamba_d_conv", json!(5), 15, "conv1d.weight"),
        ("mamba_proj_bias", json!(true), 15, "in_proj.bias"),
        ("mamba_conv_bias", json!("yes"), 10, "mamba_conv_bias"),
        ("time_step_limit", json!([0.0]), 10, "time_step_limit"),
        ("time_step_limit", json!([0.1, 0.01]), 10, "time_step_limit"),
        ("time_step_limit", json!([-1.0, 1.0]), 10, "time_step_limit"),
        ("time_step_limit", json!([0.0, "Infinity"]), 10, "time_step_limit"),
        ("time_step_limit", json!(0.1), 10, "time_step_limit"),
        ("position_embedding_type", json!("alibi"), 10, "position_embedding_type"),
        ("position_embedding_type", json!(1), 10, "position_embedding_type"),
        ("num_local_experts", json!(4), 15, "block_sparse_moe"),
        ("shared_intermediate_size", json!(0), 10, "shared_intermediate_size"),
        ("hidden_act", json!("gelu"), 11, "hidden_act"),
    ];
    for (key, value, code, says) in cases {
        table.refuses(&format!("Mamba-2: {key} is {value}"), &edit(key, value), "", *code, &[says]);
    }
}
