//! safetensors folders with one thing wrong: the file's header, the config, the tokenizer's files.

use crate::build::Tree;
use crate::edit::Files;
use crate::table::Table;
use serde_json::{Map, Value, json};

const MODEL: &str = "model.safetensors";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const Q: &str = "model.layers.0.self_attn.q_proj.weight";

pub fn cases(table: &mut Table) {
    let llama = Files::fixture("llama-3.1/bf16");
    let tied = Files::fixture("llama-3.2/f32");
    let plain = Files::fixture("smollm2/bf16");
    for (name, files) in [("safetensors", &llama), ("tied safetensors", &tied), ("unscaled safetensors", &plain)] {
        table.accepts(name, &files.tree(), "");
    }
    cut_off(table, &llama);
    header(table, &llama);
    entries(table, &llama);
    config_file(table, &llama);
    wrong_types(table, &llama);
    values(table, &llama);
    rope(table, &llama, &plain);
    sizes(table, &llama, &tied);
    quantized(table, &llama);
    tensors(table, &llama);
    tokenizer(table, &llama);
}

fn cut_off(table: &mut Table, llama: &Files) {
    let all = llama.get(MODEL).len();
    let header = u64::from_le_bytes(*llama.get(MODEL).first_chunk().unwrap()) as usize + 8;
    for len in [1, 7, 8, 9, 100, header - 1] {
        let tree = llama.cut(MODEL, len).tree();
        table.refuses(&format!("cut off at byte {len} of the header"), &tree, "", 15, &[MODEL, "header"]);
    }
    for len in [header, header + 1, all / 2, all - 1] {
        let tree = llama.cut(MODEL, len).tree();
        table.refuses(&format!("cut off at byte {len} of the data"), &tree, "", 15, &[MODEL, "missing from tensor"]);
    }
    table.refuses("no bytes", &llama.with(MODEL, "").tree(), "", 10, &[MODEL, "empty"]);
    let longer = [llama.get(MODEL), b"x"].concat();
    table.refuses("a byte after the data", &llama.with(MODEL, longer).tree(), "", 10, &[MODEL, "1 bytes follow"]);
}

fn header(table: &mut Table, llama: &Files) {
    let length = |length: u64| {
        let mut bytes = llama.get(MODEL).to_vec();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        llama.with(MODEL, bytes).tree()
    };
    let header = u64::from_le_bytes(*llama.get(MODEL).first_chunk().unwrap());
    for (case, claim, code) in [
        ("a header of 2^64 - 1 bytes", u64::MAX, 10),
        ("a header of 2^63 bytes", 1 << 63, 10),
        ("a header longer than any", 100_000_001, 10),
        ("a header longer than the file", 90_000_000, 15),
        ("a header of no bytes", 0, 10),
        ("a header of one byte", 1, 10),
        ("a header a byte too short", header - 1, 10),
        ("a header two bytes too long", header + 2, 10),
    ] {
        table.refuses(case, &length(claim), "", code, &[MODEL]);
    }
    let mut text = |case: &str, says: &str, change: &dyn Fn(&str) -> Vec<u8>| {
        table.refuses(case, &llama.header_text(MODEL, change).tree(), "", 10, &[MODEL, says]);
    };
    text("a header that is a list", MODEL, &|_| b"[]".to_vec());
    text("a header of braces alone", "follow the last tensor", &|_| b"{}".to_vec());
    text("a header with a comma too many", "unexpected JSON", &|text| text.replacen(':', ",", 1).into());
    text("a header without end", "unexpected JSON", &|text| text.trim_end().trim_end_matches('}').into());
    text("a header with more behind it", "unexpected JSON", &|text| format!("{text}{{}}").into());
    text("a header that is no UTF-8", "unexpected JSON", &|text| {
        let mut bytes = text.as_bytes().to_vec();
        let at = text.find("model.").unwrap();
        bytes[at] = 0xff;
        bytes
    });
    text("a header of a hundred thousand brackets", "unexpected JSON", &|_| {
        format!("{{\"a\":{}", "[".repeat(100_000)).into()
    });
    let entry = r#"{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}"#;
    text("an entry twice", "appears twice", &|text| {
        format!(r#"{{"x":{entry},"x":{entry},{}"#, text.trim_start_matches('{')).into()
    });
    text("metadata twice", "__metadata__", &|text| {
        format!(r#"{{"__metadata__":{{}},"__metadata__":{{}},{}"#, text.trim_start_matches('{')).into()
    });
    text("metadata of numbers", "__metadata__", &|_| br#"{"__metadata__":{"format":1}}"#.to_vec());
    text("metadata that is null, and no tensors", "follow the last tensor", &|_| br#"{"__metadata__":null}"#.to_vec());
    text("metadata that is a list", "__metadata__", &|_| br#"{"__metadata__":[]}"#.to_vec());
    text("a tensor name of 5000 bytes", "5000 bytes", &|_| format!(r#"{{"{}":{entry}}}"#, "n".repeat(5000)).into());
}

/// One tensor's entry in the header.
fn entries(table: &mut Table, llama: &Files) {
    let mut case = |case: &str, code: u8, change: &dyn Fn(&mut Map<String, Value>)| {
        let edit = |header: &mut Map<String, Value>| change(header[Q].as_object_mut().unwrap());
        table.refuses(case, &llama.header(MODEL, edit).tree(), "", code, &[MODEL, Q]);
    };
    let set = |key: &'static str, value: Value| {
        move |entry: &mut Map<String, Value>| drop(entry.insert(key.into(), value.clone()))
    };
    for key in ["dtype", "shape", "data_offsets"] {
        case(&format!("an entry without {key}"), 10, &move |entry| drop(entry.remove(key)));
        case(&format!("an entry with null as {key}"), 10, &set(key, Value::Null));
    }
    case("an entry that is no object", 10, &|entry| drop(entry.insert("shape".into(), json!("64,64"))));
    case("a dtype that is none", 12, &set("dtype", json!("F12")));
    case("a dtype that is a number", 10, &set("dtype", json!(16)));
    case("a dtype of another width", 10, &set("dtype", json!("F32")));
    case("a negative dimension", 10, &set("shape", json!([-64, 64])));
    case("half a dimension", 10, &set("shape", json!([64.5, 64])));
    case("dimensions that overflow", 10, &set("shape", json!([1_u64 << 32, 1_u64 << 33])));
    case("a dimension of 2^64 - 1", 10, &set("shape", json!([u64::MAX])));
    case("a dimension beyond 2^64", 10, &set("shape", json!([1e30])));
    case("65 dimensions", 10, &set("shape", json!(vec![1; 65])));
    case("a million dimensions", 10, &set("shape", json!(vec![1; 1 << 20])));
    let offsets = |change: &'static dyn Fn(u64, u64) -> Value| {
        move |entry: &mut Map<String, Value>| {
            let at = |index: usize| entry["data_offsets"][index].as_u64().unwrap();
            let value = change(at(0), at(1));
            entry.insert("data_offsets".into(), value);
        }
    };
    case("offsets the wrong way round", 10, &offsets(&|begin, end| json!([end, begin])));
    case("one offset", 10, &offsets(&|begin, _| json!([begin])));
    case("three offsets", 10, &offsets(&|begin, end| json!([begin, end, end])));
    case("a negative offset", 10, &offsets(&|_, end| json!([-1, end])));
    case("an offset of 2^64 - 1", 10, &offsets(&|begin, _| json!([begin, u64::MAX])));
    case("a range a byte too long", 10, &offsets(&|begin, end| json!([begin, end + 1])));
    case("a range of nothing", 10, &offsets(&|begin, _| json!([begin, begin])));
    // Which of two tensors is in the wrong place is told by the one that comes second.
    let overlap = llama.header(MODEL, |header| {
        let first = header["lm_head.weight"]["data_offsets"].clone();
        let other = header["model.embed_tokens.weight"].as_object_mut().unwrap();
        other.insert("data_offsets".into(), first);
    });
    table.refuses("two tensors in one place", &overlap.tree(), "", 10, &[MODEL, "begins at"]);
    let far = llama.header(MODEL, |header| header[Q]["data_offsets"] = json!([1_u64 << 40, (1_u64 << 40) + 8192]));
    table.refuses("a range far behind the data", &far.tree(), "", 10, &[MODEL, "begins at"]);
    let gap = llama.header(MODEL, |header| drop(header.remove("lm_head.weight")));
    table.refuses("data of no tensor", &gap.tree(), "", 10, &[MODEL]);
}

fn config_file(table: &mut Table, llama: &Files) {
    let mut case = |case: &str, bytes: &[u8], code: u8, says: &str| {
        table.refuses(case, &llama.with(CONFIG, bytes).tree(), "", code, &[CONFIG, says]);
    };
    let sound = llama.get(CONFIG).trim_ascii_end();
    case("an empty config", b"", 10, "unexpected JSON");
    case("a config cut off", &sound[..sound.len() - 1], 10, "unexpected JSON");
    case("a config cut off in a number", &sound[..sound.len() / 2], 10, "unexpected JSON");
    case("a config that is a list", b"[]", 10, "an object");
    case("a config that is a number", b"7", 10, "an object");
    case("a config of nothing", b"{}", 10, "model_type");
    case("two configs in one", &[sound, sound].concat(), 10, "unexpected JSON");
    case("a config with NaN", br#"{"rms_norm_eps": NaN}"#, 10, "key rms_norm_eps is NaN");
    case("a config with a number beyond f64", br#"{"rope_theta": 1e400}"#, 10, "key rope_theta is 1e400");
    case("a config with a key twice", br#"{"hidden_size": 64, "hidden_size": 128}"#, 10, "hidden_size");
    case(
        "a config with a nested key twice",
        br#"{"rope_scaling": {"factor": 8, "factor": 4}}"#,
        10,
        "rope_scaling.factor",
    );
    case("a config nested without end", "{\"a\":".repeat(100_000).as_bytes(), 10, "unexpected JSON");
    case("a config in UTF-16", b"\xff\xfe{\0}\0", 10, "unexpected JSON");
    case(
        "a config that is a pointer of Git LFS",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        10,
        "Git LFS",
    );
    case("a config that is a web page", b"<!DOCTYPE html><html></html>", 10, "web page");
    case("a config that is not there", b"Entry not found", 10, "no such file");
    case("a config of 9 MB", &[sound, &vec![b' '; 9 << 20]].concat(), 10, "length");
    case("a config of a million values", format!("{{\"a\":[{}0]}}", "0,".repeat(1 << 20)).as_bytes(), 10, "values");
    table.refuses("no config", &llama.without(CONFIG).tree(), "", 15, &[CONFIG, "missing"]);
    let required = [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "vocab_size",
        "rms_norm_eps",
    ];
    for key in required {
        let edited = llama.json(CONFIG, |config| drop(config.remove(key)));
        table.refuses(&format!("no {key}"), &edited.tree(), "", 10, &[CONFIG, key]);
        let edited = llama.json(CONFIG, |config| drop(config.insert(key.into(), Value::Null)));
        table.refuses(&format!("null as {key}"), &edited.tree(), "", 10, &[CONFIG, key]);
    }
}

/// The folder with one value of `config.json` set; `key` may be dotted.
fn set(files: &Files, key: &str, value: Value) -> Tree {
    let edit = |config: &mut Map<String, Value>| match key.split_once('.') {
        Some((outer, inner)) => drop(config[outer].as_object_mut().unwrap().insert(inner.into(), value)),
        None => drop(config.insert(key.into(), value)),
    };
    files.json(CONFIG, edit).tree()
}

/// Every key that is read, with a value of another type.
fn wrong_types(table: &mut Table, llama: &Files) {
    let keys: [(&[&str], Value); 6] = [
        (
            &[
                "hidden_size",
                "intermediate_size",
                "num_hidden_layers",
                "num_attention_heads",
                "num_key_value_heads",
                "head_dim",
                "vocab_size",
                "max_position_embeddings",
                "num_local_experts",
                "original_max_position_embeddings",
            ],
            json!("64"),
        ),
        (&["rms_norm_eps", "rope_theta", "partial_rotary_factor"], json!([1e-5])),
        (&["model_type", "hidden_act"], json!(5)),
        (&["tie_word_embeddings", "attention_bias", "mlp_bias", "rope_interleaved"], json!("false")),
        (&["rope_scaling", "rope_parameters", "quantization_config", "compression_config"], json!("none")),
        (&["architectures", "bos_token_id", "eos_token_id"], json!({"a": 1})),
    ];
    for (keys, value) in &keys {
        for key in *keys {
            let tree = set(llama, key, value.clone());
            // BOS comes from the tokenizer's own files here.
            if *key == "bos_token_id" {
                continue;
            }
            table.refuses(&format!("{value} as {key}"), &tree, "", 10, &[CONFIG, key]);
        }
    }
    for (key, value) in [
        ("rope_scaling.rope_type", json!(3)),
        ("rope_scaling.type", json!(3)),
        ("rope_scaling.factor", json!("8")),
        ("rope_scaling.low_freq_factor", json!(true)),
        ("rope_scaling.high_freq_factor", json!([4])),
        ("rope_scaling.original_max_position_embeddings", json!(8.5)),
        ("rope_scaling.rope_theta", json!("1e4")),
    ] {
        table.refuses(&format!("{value} as {key}"), &set(llama, key, value), "", 10, &[CONFIG, key]);
    }
    table.refuses(
        "architectures of numbers",
        &set(llama, "architectures", json!([1])),
        "",
        10,
        &[CONFIG, "architectures"],
    );
    for value in [json!(0), json!(-64), json!(64.5), json!(1_u64 << 31), json!(u64::MAX), json!(1e300), json!(true)] {
        let tree = set(llama, "hidden_size", value.clone());
        table.refuses(&format!("a hidden_size of {value}"), &tree, "", 10, &[CONFIG, "hidden_size"]);
    }
}

fn values(table: &mut Table, llama: &Files) {
    let mut case = |key: &str, value: Value, code: u8, says: &str| {
        table.refuses(&format!("{key} is {value}"), &set(llama, key, value), "", code, &[CONFIG, says]);
    };
    for act in ["gelu", "relu", "", "silu "] {
        case("hidden_act", json!(act), 11, "hidden_act");
    }
    for (kind, says) in
        [("jetmoe", "mixture of experts"), ("zamba2", "state-space"), ("electra", "encoder"), ("gpt9", "gpt9")]
    {
        case("model_type", json!(kind), 11, says);
    }
    case("architectures", json!(["LlamaForTokenClassification"]), 11, "LlamaForTokenClassification");
    case("architectures", json!(["MistralForCausalLM"]), 11, "MistralForCausalLM");
    case("num_local_experts", json!(8), 11, "num_local_experts");
    case("partial_rotary_factor", json!(0.5), 11, "partial_rotary_factor");
    case("rope_interleaved", json!(true), 11, "rope_interleaved");
    for eps in [json!(0), json!(-1e-5), json!(1.0)] {
        case("rms_norm_eps", eps, 10, "rms_norm_eps");
    }
    for theta in [json!(0), json!(-10000.0)] {
        case("rope_theta", theta, 10, "rope_theta");
    }
    case("eos_token_id", json!([318, "x"]), 10, "eos_token_id");
    case("eos_token_id", json!(-1), 10, "eos_token_id");
    for (key, says) in [("attention_bias", "self_attn.q_proj.bias"), ("mlp_bias", "mlp.gate_proj.bias")] {
        let tree = set(llama, key, json!(true));
        table.refuses(&format!("{key} without biases"), &tree, "", 15, &[says, "missing"]);
    }
}

fn rope(table: &mut Table, llama: &Files, plain: &Files) {
    for key in ["factor", "low_freq_factor", "high_freq_factor", "rope_type"] {
        let edited = llama.json(CONFIG, |config| drop(config["rope_scaling"].as_object_mut().unwrap().remove(key)));
        table.refuses(&format!("no rope_scaling.{key}"), &edited.tree(), "", 10, &[CONFIG, "rope_scaling", key]);
    }
    let mut case = |key: &str, value: Value, code: u8, says: &str| {
        table.refuses(&format!("{key} is {value}"), &set(llama, key, value), "", code, &[CONFIG, says]);
    };
    for kind in ["mrope", "su"] {
        case("rope_scaling.rope_type", json!(kind), 11, kind);
    }
    case("rope_scaling.rope_type", json!("longrope"), 10, "rope_scaling.short_factor");
    let yarn = |key: &str, value: Value| {
        let mut yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
        yarn[key] = value;
        yarn
    };
    for (key, value) in [("factor", json!(0)), ("beta_fast", json!(-1)), ("mscale", json!("1")), ("truncate", json!(1))]
    {
        case("rope_scaling", yarn(key, value), 10, &format!("rope_scaling.{key}"));
    }
    let longrope = |short: Value, long: Value| {
        let lists = json!({"rope_type": "longrope", "short_factor": short, "long_factor": long});
        let mut scaling = lists.as_object().unwrap().clone();
        scaling.insert("original_max_position_embeddings".into(), json!(64));
        Value::Object(scaling)
    };
    let eight = json!([1, 1, 1, 1, 1, 1, 1, 1]);
    case("rope_scaling", longrope(eight.clone(), json!([1, 2])), 15, "rope_scaling.long_factor");
    case("rope_scaling", longrope(json!("1"), eight.clone()), 10, "rope_scaling.short_factor");
    case("rope_scaling", longrope(json!([1, 1, 1, 0, 1, 1, 1, 1]), eight.clone()), 10, "short_factor[3]");
    case("rope_scaling", longrope(eight, json!([1, 1, 1, "1", 1, 1, 1, 1])), 10, "long_factor[3]");
    case("rope_scaling.rope_type", json!("llama4"), 10, "rope_scaling.rope_type");
    case("rope_scaling.factor", json!(0), 10, "rope_scaling.factor");
    case("rope_scaling.factor", json!(-8), 10, "rope_scaling.factor");
    case("rope_scaling.high_freq_factor", json!(0.5), 10, "rope_scaling.high_freq_factor");
    case("rope_scaling.low_freq_factor", json!(9.0), 10, "rope_scaling.high_freq_factor");
    case("rope_scaling.original_max_position_embeddings", json!(0), 10, "original_max_position_embeddings");
    case("rope_scaling.rope_theta", json!(1234.0), 15, "rope_theta");
    let linear = set(plain, "rope_parameters", json!({"rope_type": "linear", "rope_theta": 100000.0}));
    table.refuses("a linear scaling without factor", &linear, "", 10, &[CONFIG, "rope_parameters.factor"]);
}

fn sizes(table: &mut Table, llama: &Files, tied: &Files) {
    let mut case = |key: &str, value: Value, says: &[&str]| {
        table.refuses(&format!("{key} is {value}"), &set(llama, key, value), "", 15, says);
    };
    case("num_key_value_heads", json!(3), &[CONFIG, "num_attention_heads", "num_key_value_heads"]);
    case("num_key_value_heads", json!(8), &[CONFIG, "num_attention_heads", "num_key_value_heads"]);
    case("num_key_value_heads", json!(4), &[MODEL, "k_proj.weight"]);
    case("num_attention_heads", json!(6), &[CONFIG, "num_attention_heads", "hidden_size"]);
    case("num_attention_heads", json!(8), &[MODEL, "k_proj.weight"]);
    case("head_dim", json!(32), &[MODEL, "q_proj.weight"]);
    case("head_dim", json!(15), &[CONFIG, "15"]);
    case("hidden_size", json!(128), &[MODEL, "embed_tokens.weight"]);
    case("vocab_size", json!(321), &[MODEL, "embed_tokens.weight"]);
    case("vocab_size", json!(319), &[MODEL, "embed_tokens.weight"]);
    case("intermediate_size", json!(64), &[MODEL, "gate_proj.weight"]);
    case("num_hidden_layers", json!(3), &[MODEL_LAYER_2, "missing"]);
    case("num_hidden_layers", json!(i32::MAX), &[MODEL_LAYER_2, "missing"]);
    case("num_hidden_layers", json!(1), &[CONFIG, "num_hidden_layers", "model.layers.1."]);
    let untied = set(tied, "tie_word_embeddings", json!(false));
    table.refuses("untied without a head", &untied, "", 15, &["lm_head.weight", "missing"]);
}

const MODEL_LAYER_2: &str = "model.layers.2.input_layernorm.weight";

/// Every quantization method by name, and what says so in other ways.
fn quantized(table: &mut Table, llama: &Files) {
    let methods = [
        ("bitsandbytes", "bitsandbytes"),
        ("gptq", "GPTQ"),
        ("awq", "AWQ"),
        ("auto-round", "AutoRound"),
        ("compressed-tensors", "compressed-tensors"),
        ("torchao", "torchao"),
        ("modelopt", "ModelOpt"),
        ("mxfp4", "MXFP4"),
        ("quark", "Quark"),
        ("eetq", "EETQ"),
        ("quanto", "quanto"),
        ("hqq", "HQQ"),
        ("aqlm", "AQLM"),
        ("vptq", "VPTQ"),
        ("spqr", "SpQR"),
        ("higgs", "HIGGS"),
        ("bitnet", "BitNet"),
        ("fp_quant", "FP-Quant"),
        ("exl2", "EXL2"),
        ("tomorrow", "tomorrow"),
    ];
    for (method, says) in methods {
        let tree = set(llama, "quantization_config", json!({"quant_method": method}));
        table.refuses(&format!("quantised with {method}"), &tree, "", 12, &[CONFIG, says]);
    }
    for (key, value, says) in [
        ("quantization_config", json!({"load_in_8bit": true}), "bitsandbytes"),
        ("quantization_config", json!({"bits": 4}), "quant_method"),
        ("compression_config", json!({"quant_method": "compressed-tensors"}), "compressed-tensors"),
        ("bigdl_transformers_low_bit", json!("sym_int4"), "ipex-llm"),
    ] {
        table.refuses(&format!("{key} is {value}"), &set(llama, key, value), "", 12, &[CONFIG, says]);
    }
    for (key, value) in [
        ("quantization_config", json!({"quant_method": "fp8"})),
        ("quantization_config", json!({"quant_method": "fbgemm_fp8"})),
        ("quantization", json!({"group_size": 64, "bits": 4})),
    ] {
        table.refuses(
            &format!("no tensor is {value}"),
            &set(llama, key, value),
            "",
            15,
            &[CONFIG, key, "no tensor is"],
        );
    }
    let tree = set(llama, "quantization_config", json!({"quant_method": 4}));
    table.refuses("a method that is a number", &tree, "", 10, &[CONFIG, "quantization_config.quant_method"]);
}

/// Each tensor of the first layer and those outside of layers: renamed; and dtypes that no weight has.
fn tensors(table: &mut Table, llama: &Files) {
    let names = [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
    ];
    for name in names {
        let renamed = llama.header(MODEL, |header| {
            let entry = header.remove(name).unwrap();
            header.insert(format!("{name}_"), entry);
        });
        table.refuses(&format!("no {name}"), &renamed.tree(), "", 15, &[name, "missing"]);
        let other = llama.header(MODEL, |header| {
            let shape = header[name]["shape"].as_array_mut().unwrap();
            match shape.len() {
                1 => shape.push(json!(1)),
                _ => drop(
                    shape.splice(.., [json!(1), json!(shape.iter().map(|n| n.as_u64().unwrap()).product::<u64>())]),
                ),
            }
        });
        table.refuses(&format!("{name} of another shape"), &other.tree(), "", 15, &[MODEL, name, "shape"]);
    }
    for (dtype, code) in [("I16", 15), ("U16", 15)] {
        let edited = llama.header(MODEL, |header| header[Q]["dtype"] = json!(dtype));
        table.refuses(&format!("a matrix of {dtype}"), &edited.tree(), "", code, &[MODEL, Q]);
        let norm = "model.norm.weight";
        let edited = llama.header(MODEL, |header| header[norm]["dtype"] = json!(dtype));
        table.refuses(&format!("a norm of {dtype}"), &edited.tree(), "", code, &[MODEL, norm]);
    }
    for dtype in ["I8", "U8", "F8_E4M3", "F8_E5M2"] {
        // A byte takes half of the place; something else fills the rest.
        let edited = llama.header(MODEL, |header| {
            let begin = header[Q]["data_offsets"][0].as_u64().unwrap();
            let (middle, end) = (begin + 4096, begin + 8192);
            header[Q] = json!({"dtype": dtype, "shape": [64, 64], "data_offsets": [begin, middle]});
            header.insert("mtp.filler".into(), json!({"dtype": "U8", "shape": [4096], "data_offsets": [middle, end]}));
        });
        table.refuses(&format!("a matrix of {dtype}"), &edited.tree(), "", 12, &[dtype]);
    }
}

fn tokenizer(table: &mut Table, llama: &Files) {
    let mut case = |case: &str, file: &str, bytes: &[u8], code: u8, says: &str| {
        table.refuses(case, &llama.with(file, bytes).tree(), "", code, &[file, says]);
    };
    let sound = llama.get(TOKENIZER).trim_ascii_end();
    case("an empty tokenizer", TOKENIZER, b"", 10, "unexpected JSON");
    case("a tokenizer cut off", TOKENIZER, &sound[..sound.len() - 1], 10, "unexpected JSON");
    case("half a tokenizer", TOKENIZER, &sound[..sound.len() / 2], 10, "unexpected JSON");
    case(
        "a tokenizer that is a pointer of Git LFS",
        TOKENIZER,
        b"version https://git-lfs.github.com/spec/v1\n",
        10,
        "Git LFS",
    );
    case("a tokenizer that is a web page", TOKENIZER, b"<html>login</html>", 10, "web page");
    case("a tokenizer that is a list", TOKENIZER, b"[]", 10, "unexpected JSON");
    case("a tokenizer of nothing", TOKENIZER, b"{}", 10, "model.type");
    case("a template that is no UTF-8", "chat_template.jinja", b"{{ \xff }}", 10, "UTF-8");
    case("a template of 2 MB", "chat_template.jinja", &vec![b'x'; 2 << 20], 10, "length");
    for name in ["tokenizer_config.json", "generation_config.json", "special_tokens_map.json"] {
        case(&format!("an empty {name}"), name, b"", 10, "unexpected JSON");
        case(&format!("{name} as a list"), name, b"[]", 10, "an object");
        case(&format!("{name} cut off"), name, b"{\"bos_token\":", 10, "unexpected JSON");
    }
    table.refuses("no tokenizer", &llama.without(TOKENIZER).tree(), "", 15, &["no tokenizer"]);

    let mut edit = |case: &str, code: u8, says: &str, change: &dyn Fn(&mut Map<String, Value>)| {
        table.refuses(case, &llama.json(TOKENIZER, change).tree(), "", code, &[TOKENIZER, says]);
    };
    edit("a tokenizer without a model", 10, "model.type", &|root| drop(root.remove("model")));
    edit("an unknown kind of tokenizer", 10, "WordLevel", &|root| root["model"]["type"] = json!("WordLevel"));
    edit("a kind of tokenizer that is a number", 10, "unexpected JSON", &|root| root["model"]["type"] = json!(1));
    edit("a vocabulary that is a number", 10, "unexpected JSON", &|root| root["model"]["vocab"] = json!(1));
    edit("a vocabulary of texts", 10, "unexpected JSON", &|root| root["model"]["vocab"]["!"] = json!("0"));
    edit("a vocabulary with a negative id", 10, "unexpected JSON", &|root| root["model"]["vocab"]["!"] = json!(-1));
    edit("a vocabulary with an id of 2^32 - 1", 10, "4294967295", &|root| {
        root["model"]["vocab"]["!"] = json!(u32::MAX)
    });
    edit("a vocabulary with an id twice", 10, "twice", &|root| root["model"]["vocab"]["!"] = json!(1));
    edit("an empty vocabulary of JSON", 10, "vocab", &|root| {
        root["model"]["vocab"] = json!({});
        root["added_tokens"] = json!([]);
    });
    edit("added tokens that are texts", 10, "unexpected JSON", &|root| root["added_tokens"] = json!(["<s>"]));
    edit("an added token without an id", 10, "unexpected JSON", &|root| {
        root["added_tokens"] = json!([{"content": "x"}])
    });
    edit("an unknown post-processor", 10, "post_processor", &|root| {
        root["post_processor"] = json!({"type": "BertProcessing"})
    });
    let twice = format!("{{\"model\":{{}},{}", std::str::from_utf8(sound).unwrap().trim_start_matches('{'));
    table.refuses(
        "a tokenizer with two models",
        &llama.with(TOKENIZER, twice).tree(),
        "",
        10,
        &[TOKENIZER, "duplicate"],
    );

    for (file, key, value) in [
        ("tokenizer_config.json", "bos_token", json!(5)),
        ("tokenizer_config.json", "eos_token", json!(["</s>"])),
        ("tokenizer_config.json", "add_bos_token", json!("yes")),
        ("tokenizer_config.json", "add_eos_token", json!(1)),
        ("tokenizer_config.json", "chat_template", json!(5)),
        ("tokenizer_config.json", "chat_template", json!({"default": "x"})),
        ("tokenizer_config.json", "chat_template", json!([{"template": "x"}])),
        ("tokenizer_config.json", "chat_template", json!([{"name": "default", "template": 5}])),
        ("generation_config.json", "eos_token_id", json!("</s>")),
        ("generation_config.json", "eos_token_id", json!([1.5])),
    ] {
        let edited = llama.json(file, |root| drop(root.insert(key.into(), value.clone())));
        table.refuses(&format!("{file} with {value} as {key}"), &edited.tree(), "", 10, &[file, key]);
    }
}
