//! FP8: every scheme that runs, and every one that is refused.

use super::*;

/// Linear layers in FP8 whose scales have this name, dtype and shape, as this block of the config says.
fn fp8(block: Value, name: &str, dtype: &'static str, scale: impl Fn(u64, u64) -> Vec<u64>) -> Model {
    let mut model = Model::new(Value::Null, scale);
    model.config["quantization_config"] = block;
    for tensor in &mut model.tensors {
        match tensor.0.strip_suffix(".weight_scale") {
            Some(module) => (tensor.0, tensor.1) = (format!("{module}.{name}"), dtype),
            None if tensor.1 == "I8" => tensor.1 = "F8_E4M3",
            None => {}
        }
    }
    model
}

/// transformers' own, in blocks of 64 x 32.
pub fn blocks() -> Model {
    let block = json!({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 32], "fmt": "e4m3",
                       "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]});
    fp8(block, "weight_scale_inv", "BF16", |outputs, inputs| vec![outputs.div_ceil(64), inputs / 32])
}

#[test]
fn fp8_runs() {
    let one = |_, _| vec![];
    let channel = |outputs, _| vec![outputs, 1];
    let floats = |weights: Value, activations: Value| {
        let typed = |mut args: Value| {
            args.as_object_mut().unwrap().insert("type".into(), json!("float"));
            args
        };
        let group = json!({"targets": ["Linear"], "weights": typed(args(weights)), "input_activations": typed(args(activations))});
        json!({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
               "config_groups": {"group_0": group}})
    };
    let token = || json!({"strategy": "token", "dynamic": true});
    let model_opt = |algo: &str| {
        json!({"quant_method": "modelopt", "quant_algo": algo, "ignore": ["lm_head*"],
                                        "kv_cache_scheme": {"num_bits": 8}})
    };
    let cases = [
        (blocks(), "FP8: E4M3 by blocks of 64 x 32"),
        (
            fp8(json!({"quant_method": "fp8"}), "weight_scale_inv", "F32", |_, _| vec![1, 1]),
            "FP8: E4M3 by blocks of 128 x 128",
        ),
        (
            fp8(
                json!({"quant_method": "fp8", "weight_block_size": null, "activation_scheme": "static"}),
                "weight_scale_inv",
                "F32",
                one,
            )
            .beside("activation_scale"),
            "FP8: E4M3 by tensor",
        ),
        (
            fp8(
                json!({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}),
                "weight_scale",
                "F32",
                one,
            )
            .beside("input_scale"),
            "FP8: E4M3 by tensor",
        ),
        (
            fp8(
                json!({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}),
                "weight_scale",
                "F32",
                channel,
            ),
            "FBGEMM FP8: E4M3 by channel",
        ),
        (fp8(model_opt("FP8"), "weight_scale", "F32", one).beside("k_scale"), "ModelOpt FP8: E4M3 by tensor"),
        (
            fp8(model_opt("FP8_PER_CHANNEL_PER_TOKEN"), "weight_scale", "F32", |o, _| vec![o]),
            "ModelOpt FP8: E4M3 by channel",
        ),
        (
            fp8(floats(json!({"strategy": "channel"}), token()), "weight_scale", "BF16", channel),
            "compressed-tensors: E4M3 by channel",
        ),
        (
            fp8(
                floats(json!({"strategy": "tensor"}), json!({"strategy": "tensor"})),
                "weight_scale",
                "BF16",
                |_, _| vec![1],
            )
            .beside("input_scale"),
            "compressed-tensors: E4M3 by tensor",
        ),
        (
            fp8(
                floats(json!({"strategy": "block", "block_structure": [32, 64]}), token()),
                "weight_scale",
                "F16",
                |o, i| vec![o / 32, i.div_ceil(64)],
            ),
            "compressed-tensors: E4M3 by blocks of 32 x 64",
        ),
    ];
    for (model, words) in cases {
        assert_eq!(model.words(), words);
    }
    let by_blocks = fp8(model_opt("FP8_PB_WO"), "weight_scale", "F32", |_, _| vec![1, 1, 1, 1]);
    assert_eq!(by_blocks.words(), "ModelOpt FP8: E4M3 by blocks of 128 x 128");
    let cached = blocks().with("model.layers.0.self_attn.k_scale", "F32", &[1]);
    let assumed = table::judge(&cached.tree().path("")).model.unwrap().assumptions;
    assert!(
        assumed.iter().any(|line| line.contains("1 scales of an FP8 cache are not used") && line.contains("k_scale"))
    );
    let exponents = fp8(blocks().config["quantization_config"].clone(), "weight_scale_inv", "F8_E8M0", |o, i| {
        vec![o.div_ceil(64), i / 32]
    });
    assert_eq!(exponents.words(), "FP8: E4M3 by blocks of 64 x 32");
    let report = table::judge(&blocks().tree().path(""));
    let model = report.model.unwrap();
    assert!(model.assumptions.iter().any(|line| line.contains("quantization_config.activation_scheme (dynamic FP8)")));
    assert!(model.dtypes.iter().any(|summary| summary.dtype == DType::F8_E4M3 && summary.tier == Some(Tier::Widened)));
}

#[test]
fn fp8_that_contradicts_is_refused() {
    let (weight, scale) = (format!("{UP}.weight"), format!("{UP}.weight_scale_inv"));
    let half = |name| blocks().with(&weight, name, &[WIDE, HIDDEN]);
    let says = |key: &str, value: Value| blocks().set("", key, value);
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no scale", blocks().without(&scale), 15, &[&weight, "is F8_E4M3", "weight_scale is missing"]),
        ("no weight", blocks().without(&weight), 15, &[&weight]),
        ("a float with a scale", half("BF16"), 15, &[&weight, "BF16, not F8_E4M3", &scale]),
        ("another float of 8 bits", half("F8_E5M2"), 15, &[&weight, "F8_E5M2, not F8_E4M3"]),
        ("integers", half("I8"), 15, &["describes F8_E4M3 weights", &weight, "is I8"]),
        ("scales of another shape", blocks().with(&scale, "BF16", &[2, 1]), 15, &[&scale, "[2, 1]", "[2, 2]", "by blocks of 64 x 32"]),
        ("one scale", blocks().with(&scale, "BF16", &[1]), 15, &[&scale, "[1]", "[2, 2]"]),
        ("scales of integers", blocks().with(&scale, "I32", &[2, 2]), 15, &[&scale, "I32", "F8_E8M0"]),
        ("two scales", blocks().with(&format!("{UP}.weight_scale"), "BF16", &[2, 2]), 12, &[&format!("{UP}.weight_scale is not known")]),
        ("an embedding", blocks().with("model.embed_tokens.weight", "F8_E4M3", &[32, HIDDEN]), 12, &["quantized embedding", "F8_E4M3"]),
        ("a matrix of another shape", blocks().with(&weight, "F8_E4M3", &[WIDE, 32]), 15, &[&weight, "[96, 32]"]),
        ("not converted", says("modules_to_not_convert", json!(["mlp.up_proj"])), 15, &["ignore has \"mlp.up_proj\"", &weight]),
        ("not converted by its beginning", says("modules_to_not_convert", json!(["model.layers.0.mlp"])), 15, &["ignore", "is F8_E4M3"]),
        ("no list", says("modules_to_not_convert", json!("lm_head")), 10, &["modules_to_not_convert", "a list of strings"]),
        ("a pattern", says("modules_to_not_convert", json!(["(?!x)y"])), 12, &["modules_to_not_convert is the pattern"]),
        ("other activations", says("activation_scheme", json!("int8")), 12, &["activation_scheme is \"int8\""]),
        ("another format", says("fmt", json!("e5m2")), 12, &["fmt is \"e5m2\", expected e4m3"]),
        ("experts of 4 bits", says("expert_dtype", json!("fp4")), 12, &["expert_dtype is \"fp4\""]),
        ("embeddings converted", says("modules_to_convert", json!(["embed_tokens"])), 12, &["modules_to_convert is given"]),
        ("a side of 0", says("weight_block_size", json!([0, 32])), 12, &["weight_block_size is [0, 32]"]),
        ("one side", says("weight_block_size", json!([32])), 12, &["weight_block_size is [32]"]),
        ("sides in words", says("weight_block_size", json!("128x128")), 10, &["weight_block_size", "a list of whole numbers"]),
        ("sides below 0", says("weight_block_size", json!([-1, 32])), 10, &["weight_block_size"]),
        ("huge sides", says("weight_block_size", json!([u64::MAX, u64::MAX])), 15, &["weight_scale_inv", "[1, 1]"]),
        ("blocks that cut a step", says("weight_block_size", json!([64, 16])), 15, &["weight_scale_inv", "[1, 4]"]),
        ("one scale by the config", says("weight_block_size", Value::Null), 15, &["weight_scale_inv", "by tensor"]),
        ("another method", says("quant_method", json!("mxfp8")), 12, &["MXFP8"]),
        ("no method", says("quant_method", Value::Null), 12, &["FP8", "weight_block_size"]),
        ("another algorithm", says("quant_method", json!("modelopt")).set("", "quant_algo", json!("W4A8_AWQ")), 12, &["ModelOpt", "W4A8_AWQ"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}
