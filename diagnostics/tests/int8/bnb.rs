//! bitsandbytes: every scheme that runs, and every one that is refused.

use super::*;

const STATE: &str = "weight.quant_state.bitsandbytes__nf4";

/// Linear layers in codes of 4 bits, in blocks of 32, with these tensors next to each and what the config says.
fn four(says: Value, kind: &str, nested: bool) -> Model {
    let mut model = Model::new(Value::Null, |_, _| vec![]);
    let known = json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false,
        "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8", "llm_int8_enable_fp32_cpu_offload": false,
        "llm_int8_has_fp16_weight": false, "llm_int8_skip_modules": null, "llm_int8_threshold": 6.0});
    model.config["quantization_config"] = known;
    for (key, value) in says.as_object().unwrap() {
        model = model.set("", key, value.clone());
    }
    model.tensors.retain(|tensor| !tensor.0.ends_with("_scale"));
    let weights: Vec<_> = model.tensors.iter().filter(|tensor| tensor.1 == "I8").cloned().collect();
    for (name, _, shape) in weights {
        let (count, name) = (shape[0] * shape[1], name.as_str());
        model.add(name, "U8", &[count / 2, 1]);
        model.add(&format!("{name}.absmax"), if nested { "U8" } else { "F32" }, &[count / 32]);
        model.add(&format!("{name}.quant_map"), "F32", &[16]);
        model.add(&format!("{name}.quant_state.bitsandbytes__{kind}"), "U8", &[80]);
        if nested {
            model.add(&format!("{name}.nested_absmax"), "F32", &[(count / 32_u64).div_ceil(256)]);
            model.add(&format!("{name}.nested_quant_map"), "F32", &[256]);
        }
    }
    model
}

/// What transformers writes for NF4 with nested scales.
pub fn nested() -> Model {
    four(json!({"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true}), "nf4", true)
}

fn plain() -> Model {
    four(json!({"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": false}), "nf4", false)
}

/// LLM.int8.
fn eight() -> Model {
    let mut model = Model::new(Value::Null, |outputs, _| vec![outputs]);
    model.config["quantization_config"] = json!({"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": false,
        "llm_int8_threshold": 6.0, "llm_int8_skip_modules": ["lm_head"]});
    for (name, dtype, _) in &mut model.tensors {
        if let Some(module) = name.strip_suffix(".weight_scale") {
            (*name, *dtype) = (format!("{module}.SCB"), "F32");
        }
    }
    model.beside_all("weight_format", "U8", &[])
}

/// With one matrix stored anew, of codes in blocks of 64.
fn blocks_of_64(model: Model) -> Model {
    model.with(&format!("{UP}.weight.absmax"), "F32", &[WIDE * HIDDEN / 64])
}

#[test]
fn every_scheme_of_bitsandbytes_runs() {
    let stored_as = |storage: &str, dtype: &'static str, bytes: u64| {
        let mut model = plain().set("", "bnb_4bit_quant_storage", json!(storage));
        for (name, found, shape) in &mut model.tensors {
            if name.ends_with(".weight") && *found == "U8" {
                (*found, shape[0]) = (dtype, shape[0] / bytes);
            }
        }
        model
    };
    for (model, words) in [
        (nested(), "bitsandbytes: NF4 with nested scales"),
        (plain(), "bitsandbytes: NF4"),
        (blocks_of_64(plain()), "bitsandbytes: NF4"),
        (four(json!({"bnb_4bit_quant_type": "fp4"}), "fp4", false), "bitsandbytes: FP4"),
        (four(json!({}), "fp4", false), "bitsandbytes: FP4"),
        (plain().set("", "quant_method", Value::Null), "bitsandbytes: NF4"),
        (stored_as("int8", "I8", 1), "bitsandbytes: NF4"),
        (stored_as("bfloat16", "BF16", 2), "bitsandbytes: NF4"),
        (stored_as("float16", "F16", 2), "bitsandbytes: NF4"),
        (stored_as("float32", "F32", 4), "bitsandbytes: NF4"),
        (stored_as("float64", "F64", 8), "bitsandbytes: NF4"),
        (experts(plain()), "bitsandbytes: NF4"),
        (eight(), "bitsandbytes: LLM.int8"),
        (experts(eight()), "bitsandbytes: LLM.int8"),
        (eight().without(&format!("{UP}.weight_format")), "bitsandbytes: LLM.int8"),
    ] {
        assert_eq!(model.words(), words);
    }
    let said = |model: Model| table::judge(&model.tree().path("")).model.unwrap();
    let eight = said(eight());
    let key = "quantization_config.llm_int8_threshold (int8 by token below 6)";
    assert!(eight.assumptions.iter().any(|line| line.contains(key)), "{:?}", eight.assumptions);
    let has = |model: &model_factory_diagnostics::report::ModelSummary, dtype, tier, activations| {
        model.dtypes.iter().any(|summary| {
            summary.dtype == dtype && summary.tier == Some(tier) && summary.activations == Some(activations)
        })
    };
    assert!(has(&eight, DType::S8, Tier::Native, "int16") && has(&said(nested()), DType::NF4, Tier::Widened, "f32"));
    let absent = said(four(json!({"bnb_4bit_quant_storage": null}), "fp4", false)).assumptions;
    let keys = [("quant_type", "fp4"), ("use_double_quant", "false"), ("quant_storage", "uint8")];
    let keys = keys.map(|(key, value)| format!("quantization_config.bnb_4bit_{key} = {value}")).join(", ") + ": absent";
    assert!(absent.iter().any(|line| line.contains(&keys)), "{absent:?}");
    for entry in std::fs::read_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bnb")).unwrap()
    {
        let report = table::judge(&entry.unwrap().path());
        assert!(report.verdict.runs(), "{}", report.first_line());
    }
}

#[test]
fn what_contradicts_in_bitsandbytes_is_refused() {
    let weight = format!("{UP}.weight");
    let next = |end: &str| format!("{weight}.{end}");
    let (absmax, map, state) = (next("absmax"), next("quant_map"), format!("{UP}.{STATE}"));
    let (factors, values) = (next("nested_absmax"), next("nested_quant_map"));
    let (scb, format) = (format!("{UP}.SCB"), format!("{UP}.weight_format"));
    let codes = WIDE * HIDDEN / 2;
    let says = |key: &str, value: Value| nested().set("", key, value);
    // Whose hidden size is odd.
    let mut odd = plain();
    odd.config["intermediate_size"] = json!(WIDE + 1);
    for name in ["gate_proj", "up_proj", "down_proj"].map(|part| format!("model.layers.0.mlp.{part}.weight")) {
        odd.add(&name, "U8", &[(WIDE + 1) * HIDDEN / 2, 1]);
        odd.add(&format!("{name}.absmax"), "F32", &[(WIDE + 1) * HIDDEN / 32]);
    }
    let mut narrow = eight();
    narrow.config["intermediate_size"] = json!(WIDE + 8);
    for (part, shape) in
        [("gate_proj", [WIDE + 8, HIDDEN]), ("up_proj", [WIDE + 8, HIDDEN]), ("down_proj", [HIDDEN, WIDE + 8])]
    {
        narrow.add(&format!("model.layers.0.mlp.{part}.weight"), "I8", &shape);
        narrow.add(&format!("model.layers.0.mlp.{part}.SCB"), "F32", &shape[..1]);
    }
    let stacked = "model.layers.0.mlp.experts.gate_up_proj";
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no description", nested().without(&state), 15, &[&absmax, "is stored", "quant_state.bitsandbytes__nf4"]),
        ("no codes", nested().without(&weight), 15, &[&state, &weight, "is missing"]),
        ("no scales", nested().without(&absmax), 15, &[&weight, "is NF4", &absmax, "are missing"]),
        ("no table", nested().without(&map), 15, &[&map, "missing"]),
        ("no factors", nested().without(&factors), 15, &["bnb_4bit_use_double_quant is true", &factors, "is missing"]),
        ("no table of scales", nested().without(&values), 15, &[&values, "missing"]),
        ("both kinds", nested().with(&next("quant_state.bitsandbytes__fp4"), "U8", &[80]), 15, &["bnb_4bit_quant_type is NF4", "bitsandbytes__fp4 is stored"]),
        ("another kind", says("bnb_4bit_quant_type", json!("fp4")), 15, &["bnb_4bit_quant_type is FP4", STATE]),
        ("no kind", says("bnb_4bit_quant_type", Value::Null), 15, &["bnb_4bit_quant_type is FP4", STATE]),
        ("an unknown kind", says("bnb_4bit_quant_type", json!("int4")), 12, &["bnb_4bit_quant_type is \"int4\"", "nf4 or fp4"]),
        ("scales that are not nested", says("bnb_4bit_use_double_quant", json!(false)), 15, &["bnb_4bit_use_double_quant is false", "nested_absmax is stored"]),
        ("nested scales in words", says("bnb_4bit_use_double_quant", json!("yes")), 10, &["bnb_4bit_use_double_quant"]),
        ("nested scales of plain ones", plain().set("", "bnb_4bit_use_double_quant", json!(true)), 15, &["bnb_4bit_use_double_quant is true", "nested_absmax is missing"]),
        ("floats as nested scales", nested().with(&absmax, "F32", &[codes / 16]), 15, &[&absmax, "F32", "U8 (nested scales)"]),
        ("bytes as scales", plain().with(&absmax, "U8", &[codes / 16]), 15, &[&absmax, "U8", "F32 (scales)"]),
        ("scales of F16", plain().with(&absmax, "F16", &[codes / 16]), 15, &[&absmax, "F16", "F32 (scales)"]),
        ("fewer scales", plain().with(&absmax, "F32", &[codes / 16 - 1]), 15, &[&absmax, "[191]", "6144 weights, or another power of 2"]),
        ("scales in rows", plain().with(&absmax, "F32", &[WIDE, HIDDEN / 32]), 15, &[&absmax, "[96, 2]"]),
        ("blocks of 16", plain().with(&absmax, "F32", &[codes / 8]), 15, &[&absmax, "[384]"]),
        ("fewer factors", nested().with(&factors, "F32", &[2]), 15, &[&factors, "[2]", "[1]"]),
        ("a shorter table", nested().with(&map, "F32", &[15]), 15, &[&map, "[15]", "[16]"]),
        ("a table of F16", nested().with(&map, "F16", &[16]), 15, &[&map, "F16", "F32"]),
        ("a shorter table of scales", nested().with(&values, "F32", &[255]), 15, &[&values, "[255]", "[256]"]),
        ("a description of floats", nested().with(&state, "F32", &[80]), 15, &[&state, "F32", "U8 (JSON)"]),
        ("a long description", nested().with(&state, "U8", &[1 << 20]), 15, &[&state, "[1048576]"]),
        ("codes of another matrix", nested().with(&weight, "U8", &[codes + 32, 1]), 15, &[&weight, "[6208]", "[96, 64]"]),
        ("codes in rows", nested().with(&weight, "U8", &[WIDE, HIDDEN / 2]), 15, &[&weight, "[96, 32]", "one column"]),
        ("codes as BF16", nested().with(&weight, "BF16", &[codes / 2, 1]), 15, &[&weight, "BF16", "U8"]),
        ("bytes said to be BF16", says("bnb_4bit_quant_storage", json!("bfloat16")), 15, &[".weight is U8, expected BF16"]),
        ("an unknown storage", says("bnb_4bit_quant_storage", json!("int4")), 12, &["bnb_4bit_quant_storage is \"int4\"", "uint8"]),
        ("skipped", says("llm_int8_skip_modules", json!(["mlp.up_proj"])), 15, &["llm_int8_skip_modules", "mlp.up_proj", &state]),
        ("skipped by its beginning", says("llm_int8_skip_modules", json!(["model.layers.0.mlp"])), 15, &["llm_int8_skip_modules", STATE]),
        ("no list", says("llm_int8_skip_modules", json!("lm_head")), 10, &["llm_int8_skip_modules", "a list of strings"]),
        ("a pattern", says("llm_int8_skip_modules", json!(["(?!x)y"])), 12, &["llm_int8_skip_modules is the pattern"]),
        ("in 8 bits too", says("load_in_8bit", json!(true)), 12, &["load_in_8bit is true, as load_in_4bit is"]),
        ("in 8 bits instead", says("load_in_8bit", json!(true)).set("", "load_in_4bit", json!(false)), 12, &["load_in_8bit is true and no tensor is stored so"]),
        ("in neither", says("load_in_4bit", json!(false)), 12, &["load_in_4bit is no more true than load_in_8bit"]),
        ("in words", says("load_in_4bit", json!("yes")), 10, &["load_in_4bit"]),
        ("weights of floats", says("llm_int8_has_fp16_weight", json!(true)), 12, &["llm_int8_has_fp16_weight is true"]),
        ("another method", says("quant_method", json!("hqq")), 12, &["HQQ"]),
        ("an embedding", nested().with("model.embed_tokens.weight", "U8", &[16 * HIDDEN, 1]).with(&format!("model.embed_tokens.{STATE}"), "U8", &[80]), 12, &["quantized embedding", "NF4"]),
        ("rows of odd length", odd, 12, &["rows of 97 codes of 4 bits", "down_proj", "within a byte"]),
        ("integers without scales", eight().without(&scb), 15, &[&weight, "is I8", &scb, "are missing"]),
        ("scales of a float", eight().with(&weight, "BF16", &[WIDE, HIDDEN]), 15, &[&weight, "BF16", &scb]),
        ("scales of F16 of integers", eight().with(&scb, "F16", &[WIDE]), 15, &[&scb, "F16", "F32"]),
        ("scales of other outputs", eight().with(&scb, "F32", &[HIDDEN]), 15, &[&scb, "[64]", "[96]"]),
        ("an order of floats", eight().with(&format, "F32", &[]), 15, &[&format, "F32", "U8"]),
        ("two orders", eight().with(&format, "U8", &[2]), 15, &[&format, "[2]", "[1]"]),
        ("integers, skipped", eight().set("", "llm_int8_skip_modules", json!(["up_proj"])), 15, &["llm_int8_skip_modules", &weight]),
        ("integers of other rows", narrow, 12, &["int8 in rows of 104", "down_proj", "blocks of 32"]),
        ("stacked experts", experts(nested()).with(stacked, "U8", &[2 * WIDE * HIDDEN, 1]).with(&format!("{stacked}.quant_state.bitsandbytes__nf4"), "U8", &[80]), 12, &["experts.gate_up_proj of NF4 for several matrices"]),
        ("an embedding of integers", eight().with("model.embed_tokens.weight", "I8", &[32, HIDDEN]), 12, &["quantized embedding"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}
