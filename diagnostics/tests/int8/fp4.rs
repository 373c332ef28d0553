//! Floats of 4 bits: every scheme that runs, and every one that is refused.

use super::*;

const GROUP: &str = "/config_groups/group_0";
const LAYERS: &str = "/quantized_layers";
const WEIGHTS: &str = "/config_groups/group_0/weights";

/// ModelOpt's NVFP4 beside FP8 and MXFP8.
pub fn mixed() -> Model {
    let (mut model, mut layers) = (multiplied(), Map::new());
    let scales = model.tensors.iter().filter_map(|tensor| tensor.0.strip_suffix(".weight_scale"));
    for module in scales.map(str::to_owned).collect::<Vec<_>>() {
        let says = match module.rsplit_once('.').unwrap().1 {
            "o_proj" => {
                model.add(&format!("{module}.weight"), "F8_E4M3", &[HIDDEN, HIDDEN]);
                model.add(&format!("{module}.weight_scale"), "U8", &[HIDDEN, 2]);
                json!({"quant_algo": "MXFP8", "group_size": 32})
            }
            part @ ("q_proj" | "k_proj" | "v_proj") => {
                let outputs = if part == "q_proj" { HIDDEN } else { 32 };
                model.add(&format!("{module}.weight"), "F8_E4M3", &[outputs, HIDDEN]);
                model.add(&format!("{module}.weight_scale"), "F32", &[]);
                json!({"quant_algo": "FP8"})
            }
            _ => json!({"quant_algo": "NVFP4", "group_size": 16}),
        };
        if says["quant_algo"] != "NVFP4" {
            model = model.without(&format!("{module}.weight_scale_2"));
        }
        layers.insert(module, says);
    }
    model.config["quantization_config"] =
        json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers});
    model
}

/// Linear layers in NVFP4, as this block of the config says, under the names `packed` with one float `whole` for each.
fn nvfp4(block: Value, packed: &str, whole: &str) -> Model {
    let mut model = Model::new(Value::Null, |outputs, inputs| vec![outputs, inputs / 16]);
    model.config["quantization_config"] = block;
    let mut wholes = Vec::new();
    for (name, dtype, shape) in &mut model.tensors {
        if *dtype == "I8" {
            let module = name.trim_end_matches(".weight").to_owned();
            wholes.push(format!("{module}.{whole}"));
            *name = format!("{module}.{packed}");
            (*dtype, shape[1]) = ("U8", shape[1] / 2);
        } else if name.ends_with(".weight_scale") {
            *dtype = "F8_E4M3";
        }
    }
    wholes.iter().fold(model, |model, name| model.with(name, "F32", &[1]))
}

fn group(format: &str, weights: Value, activations: Value) -> Value {
    json!({"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"], "config_groups": {"group_0":
        {"targets": ["Linear"], "weights": weights, "input_activations": activations, "format": format}}})
}

fn args(more: Value) -> Value {
    let mut args = json!({"num_bits": 4, "type": "float", "symmetric": true, "dynamic": false});
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    args
}

/// compressed-tensors' NVFP4A16.
pub fn divided() -> Model {
    let weights = args(json!({"strategy": "tensor_group", "group_size": 16, "scale_dtype": "torch.float8_e4m3fn"}));
    nvfp4(group("nvfp4-pack-quantized", weights, Value::Null), "weight_packed", "weight_global_scale")
}

/// ModelOpt's NVFP4.
pub fn multiplied() -> Model {
    let block = json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head*"]});
    nvfp4(block, "weight", "weight_scale_2")
}

/// compressed-tensors' MXFP4A16.
pub fn mxfp4() -> Model {
    let weights = args(json!({"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}));
    let mut model = divided();
    model.config["quantization_config"] = group("mxfp4-pack-quantized", weights, Value::Null);
    model.tensors.retain(|tensor| !tensor.0.ends_with("global_scale"));
    for (_, dtype, shape) in &mut model.tensors {
        if *dtype == "F8_E4M3" {
            (*dtype, shape[1]) = ("U8", shape[1] / 2);
        }
    }
    model
}

#[test]
fn floats_of_four_bits_run() {
    let activations = args(json!({"strategy": "tensor_group", "group_size": 16, "dynamic": "local"}));
    let input_scales = |mut model: Model, name: &str| {
        let names = model.tensors.iter().filter_map(|tensor| tensor.0.strip_suffix(".weight_scale"));
        let names: Vec<String> = names.map(|module| format!("{module}.{name}")).collect();
        names.iter().for_each(|name| model.add(name, "F32", &[1]));
        model
    };
    let quantized = input_scales(divided().set(GROUP, "input_activations", activations), "input_global_scale");
    let report = table::judge(&quantized.tree().path(""));
    let assumptions = report.model.unwrap().assumptions;
    let key = "quantization_config.config_groups.group_0.input_activations";
    assert!(assumptions.iter().any(|line| line.contains(key)), "{assumptions:?}");
    let e8m0 = |mut model: Model| {
        model.tensors.iter_mut().filter(|tensor| tensor.0.ends_with("_scale")).for_each(|tensor| tensor.1 = "F8_E8M0");
        model
    };
    let mxfp8 = || {
        let weights = args(json!({"num_bits": 8, "strategy": "group", "group_size": 32}));
        let mut model = Model::new(Value::Null, |outputs, inputs| vec![outputs, inputs / 32]);
        model.config["quantization_config"] = group("mxfp8-quantized", weights, Value::Null);
        for (name, dtype, _) in &mut model.tensors {
            match name.ends_with("_scale") {
                true => *dtype = "U8",
                false if *dtype == "I8" => *dtype = "F8_E4M3",
                false => {}
            }
        }
        model
    };
    for (model, words) in [
        (divided(), "compressed-tensors: NVFP4"),
        (quantized, "compressed-tensors: NVFP4"),
        (experts(divided()), "compressed-tensors: NVFP4"),
        (mxfp4(), "compressed-tensors: MXFP4"),
        (e8m0(mxfp4()), "compressed-tensors: MXFP4"),
        (mxfp8(), "compressed-tensors: E4M3 by groups of 32"),
        (input_scales(multiplied(), "input_scale"), "ModelOpt: NVFP4"),
        (experts(multiplied()).set("", "ignore", json!(["lm_head*", "*.mlp.gate"])), "ModelOpt: NVFP4"),
        (multiplied().set("", "quant_algo", json!("W4A16_NVFP4")), "ModelOpt: NVFP4"),
        (multiplied().set("", "quant_method", json!("modelopt_fp4")), "ModelOpt: NVFP4"),
        (mixed(), "ModelOpt: E4M3 by tensor; E4M3 by groups of 32; NVFP4"),
    ] {
        assert_eq!(model.words(), words);
    }
    for entry in std::fs::read_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/fp4")).unwrap()
    {
        let report = table::judge(&entry.unwrap().path());
        assert!(report.verdict.runs(), "{}", report.first_line());
        let dtypes = report.model.unwrap().dtypes;
        assert!(dtypes.iter().any(|summary| summary.dtype == DType::F4 && summary.tier == Some(Tier::Native)));
    }
}

#[test]
fn floats_of_four_bits_that_contradict_are_refused() {
    let names = ["weight_packed", "weight_scale", "weight_global_scale", "weight_scale_2", "weight"];
    let [words, scale, whole, two, weight] = names.map(|end| format!("{UP}.{end}"));
    let modelopt = || multiplied();
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no scale", divided().without(&scale), 15, &[&words, "is F4", &scale, "is missing"]),
        ("no words", divided().without(&words), 15, &[&weight]),
        ("no scale of the matrix", divided().without(&whole), 15, &[&whole]),
        ("two scales of the matrix", divided().with(&whole, "F32", &[2]), 15, &[&whole, "[2]", "[1]"]),
        ("a scale of the matrix of integers", divided().with(&whole, "I32", &[1]), 15, &[&whole, "I32", "F32"]),
        ("the other's scale of the matrix", divided().with(&two, "F32", &[1]), 15, &[&two, &words]),
        ("words of I8", divided().with(&words, "I8", &[WIDE, 32]), 15, &[&words, "I8", "U8"]),
        ("words of one dimension", divided().with(&words, "U8", &[WIDE * 32]), 15, &[&words, "two dimensions"]),
        ("fewer words", divided().with(&words, "U8", &[WIDE, 16]), 15, &[&words, "[96, 32]", "[96, 64]"]),
        ("the weight as well", divided().with(&weight, "BF16", &[WIDE, HIDDEN]), 15, &[&words, &format!("{weight} is stored")]),
        ("scales of another shape", divided().with(&scale, "F8_E4M3", &[WIDE, 2]), 15, &[&scale, "[96, 2]", "[96, 4]"]),
        ("scales of BF16", divided().with(&scale, "BF16", &[WIDE, 4]), 15, &[&scale, "BF16", "F8_E4M3"]),
        ("ignored", divided().set("", "ignore", json!([UP])), 15, &["quantization_config.ignore", &words]),
        ("uncovered", divided().set(GROUP, "targets", json!(["re:.*attn"])), 15, &["no target", "mlp.", "weight_packed"]),
        ("packed integers by the config", divided().set(GROUP, "format", json!("pack-quantized")), 12, &["type is \"float\""]),
        ("8 bits", divided().set(WEIGHTS, "num_bits", json!(8)), 12, &["num_bits is 8", "4"]),
        ("integers", divided().set(WEIGHTS, "type", json!("int")), 12, &["type is \"int\""]),
        ("other groups", divided().set(WEIGHTS, "group_size", json!(32)), 12, &["tensor_group with group_size 32", "group_size 16"]),
        ("no groups", divided().set(WEIGHTS, "group_size", Value::Null), 12, &["no group_size"]),
        ("another strategy", divided().set(WEIGHTS, "strategy", json!("group")), 12, &["group with group_size 16", "tensor_group"]),
        ("zero points", divided().set(WEIGHTS, "symmetric", json!(false)), 12, &["symmetric is false"]),
        ("dynamic weights", divided().set(WEIGHTS, "dynamic", json!(true)), 12, &["dynamic is true"]),
        ("integers as activations", divided().set(GROUP, "input_activations", super::args(json!({"strategy": "token", "dynamic": true}))), 12, &["input_activations.type is \"int\""]),
        ("outputs", divided().set(GROUP, "output_activations", json!({"num_bits": 8})), 12, &["output_activations is given"]),
        ("an unknown format", divided().set(GROUP, "format", json!("nvfp4")), 12, &["format is \"nvfp4\"", "nvfp4-pack-quantized"]),
        ("exponents of floats", mxfp4().with(&scale, "F8_E4M3", &[WIDE, 2]), 15, &[&scale, "F8_E4M3", "U8 or F8_E8M0"]),
        ("exponents of another shape", mxfp4().with(&scale, "U8", &[WIDE, 4]), 15, &[&scale, "[96, 4]", "[96, 2]"]),
        ("a scale of a matrix in MXFP4", mxfp4().with(&whole, "F32", &[1]), 15, &[&whole, &words]),
        ("ModelOpt without a scale", modelopt().without(&scale), 15, &[&weight, "is F4", &scale, "is missing"]),
        ("ModelOpt without a scale of the matrix", modelopt().without(&two), 15, &[&two]),
        ("ModelOpt with the other's scale of the matrix", modelopt().with(&whole, "F32", &[1]), 15, &[&whole, &weight]),
        ("ModelOpt's words of I8", modelopt().with(&weight, "I8", &[WIDE, 32]), 12, &["int8 with scales", &weight]),
        ("ModelOpt's weight of floats with a scale", modelopt().with(&weight, "BF16", &[WIDE, HIDDEN]), 15, &[&scale, &weight, "not U8"]),
        ("ModelOpt's floats with a scale of the matrix", modelopt().without(&scale).with(&weight, "BF16", &[WIDE, HIDDEN]), 15, &[&two, &weight]),
        ("ModelOpt's other groups", modelopt().set("", "group_size", json!(32)), 12, &["group_size is 32", "16"]),
        ("ModelOpt's words, ignored", modelopt().set("", "ignore", json!(["*.mlp.*"])), 15, &["quantization_config.ignore", ".mlp."]),
        ("ModelOpt's AWQ", modelopt().set("", "quant_algo", json!("NVFP4_AWQ")), 12, &["ModelOpt", "NVFP4_AWQ"]),
        ("ModelOpt's mixture with AWQ", mixed().set(LAYERS, UP, json!({"quant_algo": "W4A8_AWQ"})), 12, &["ModelOpt", UP, "quant_algo is \"W4A8_AWQ\", expected an algorithm of FP8, MXFP8 or NVFP4"]),
        ("ModelOpt's mixture without an algorithm", mixed().set(LAYERS, UP, json!({})), 12, &[UP, "quant_algo is absent"]),
        ("ModelOpt's mixture without layers", mixed().set("", "quantized_layers", Value::Null), 12, &["quantized_layers is absent"]),
        ("ModelOpt's mixture in other groups", mixed().set(LAYERS, UP, json!({"quant_algo": "NVFP4", "group_size": 32})), 12, &[UP, "group_size is 32, expected 16"]),
        ("ModelOpt's mixture with another algorithm", mixed().set(LAYERS, UP, json!({"quant_algo": "FP8"})), 15, &["quantized_layers describes no packed weights", &weight]),
        ("ModelOpt's mixture without a layer", mixed().set(LAYERS, UP, Value::Null), 15, &["no target of quantization_config names", &weight]),
        ("ModelOpt's embedding", modelopt().with("model.embed_tokens.weight", "U8", &[32, HIDDEN / 2]), 12, &["a quantized embedding"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}
