//! Words by columns, of GPTQ, AWQ and AutoRound: every scheme that runs, and every one that is refused.

use super::*;

/// Linear layers in words by columns of integers of `bits` bits in groups of 32, as this block of the config says.
pub fn columns(block: Value, of_outputs: bool, bits: u64) -> Model {
    let mut model = Model::new(Value::Null, |outputs, inputs| vec![inputs / 32, outputs]);
    model.config["quantization_config"] = block;
    let of_words = |integers: u64| integers * bits / 32;
    for (name, dtype, shape) in std::mem::take(&mut model.tensors) {
        let module = name.trim_end_matches(".weight").trim_end_matches(".weight_scale");
        match dtype {
            "I8" => {
                let (outputs, inputs) = (shape[0], shape[1]);
                let words = if of_outputs { [inputs, of_words(outputs)] } else { [of_words(inputs), outputs] };
                model.add(&format!("{module}.qweight"), "I32", &words);
                model.add(&format!("{module}.qzeros"), "I32", &[inputs / 32, of_words(outputs)]);
                if !of_outputs {
                    model.add(&format!("{module}.g_idx"), "I32", &[inputs]);
                }
            }
            _ if name.ends_with("_scale") => model.add(&format!("{module}.scales"), "F16", &shape),
            _ => model.add(&name, dtype, &shape),
        }
    }
    model
}

pub fn gptq() -> Value {
    json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true, "desc_act": false, "checkpoint_format": "gptq"})
}

pub fn awq() -> Value {
    json!({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true, "version": "gemm",
           "modules_to_not_convert": null})
}

pub fn auto_round(packing: &str) -> Value {
    json!({"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": false, "packing_format": packing,
           "data_type": "int"})
}

/// `block` with these keys in it; null removes one.
fn with(mut block: Value, keys: Value) -> Value {
    let object = block.as_object_mut().unwrap();
    for (key, value) in keys.as_object().unwrap() {
        if value.is_null() {
            object.remove(key)
        } else {
            object.insert(key.clone(), value.clone())
        };
    }
    block
}

#[test]
fn columns_run() {
    let cases = [
        (columns(gptq(), false, 4), "GPTQ: w4a16 by groups of 32"),
        (columns(with(gptq(), json!({"bits": 8})), false, 8), "GPTQ: w8a16 by groups of 32"),
        (columns(with(gptq(), json!({"bits": 2})), false, 2), "GPTQ: w2a16 by groups of 32"),
        (columns(with(gptq(), json!({"bits": 3})), false, 3), "GPTQ: w3a16 by groups of 32"),
        (columns(with(gptq(), json!({"sym": false})), false, 4), "GPTQ: w4a16 by groups of 32 with zero points"),
        (columns(with(gptq(), json!({"checkpoint_format": "gptq_v2"})), false, 4), "GPTQ: w4a16 by groups of 32"),
        (
            columns(with(gptq(), json!({"checkpoint_format": null, "lm_head": true})), false, 4),
            "GPTQ: w4a16 by groups of 32",
        ),
        (
            columns(with(gptq(), json!({"desc_act": true, "dynamic": {"-:.*lm_head": {}}})), false, 4),
            "GPTQ: w4a16 by groups of 32",
        ),
        (columns(gptq(), false, 4).with(&format!("{UP}.bias"), "F16", &[WIDE]), "GPTQ: w4a16 by groups of 32"),
        (columns(gptq(), false, 4).without(&format!("{UP}.g_idx")), "GPTQ: w4a16 by groups of 32"),
        (columns(awq(), true, 4), "AWQ: w4a16 by groups of 32 with zero points"),
        (
            columns(with(awq(), json!({"version": null, "zero_point": false})), true, 4),
            "AWQ: w4a16 by groups of 32 with zero points",
        ),
        (
            columns(
                with(
                    awq(),
                    json!({"bits": null, "group_size": null, "w_bit": 4, "q_group_size": 32, "version": "GEMM"}),
                ),
                true,
                4,
            ),
            "AWQ: w4a16 by groups of 32 with zero points",
        ),
        (columns(auto_round("auto_round:auto_awq"), true, 4), "AutoRound: w4a16 by groups of 32 with zero points"),
        (columns(auto_round("auto_round:auto_gptq"), false, 4), "AutoRound: w4a16 by groups of 32 with zero points"),
        (columns(with(auto_round("auto_round"), json!({"sym": true})), false, 4), "AutoRound: w4a16 by groups of 32"),
        (
            columns(
                with(auto_round("auto_round:gptqmodel"), json!({"extra_config": {"lm_head": {"bits": 16}}})),
                false,
                4,
            ),
            "AutoRound: w4a16 by groups of 32 with zero points",
        ),
    ];
    for (model, words) in cases {
        assert_eq!(model.words(), words);
    }
    let report = table::judge(&columns(gptq(), false, 4).tree().path(""));
    let model = report.model.unwrap();
    assert!(model.assumptions.iter().any(|line| line.contains("the first is lm_head")), "{:?}", model.assumptions);
    assert!(model.dtypes.iter().any(|summary| summary.dtype == DType::U4 && summary.tier == Some(Tier::Native)));
}

/// A module of another width: `dynamic` of GPTQ, and `extra_config` of AutoRound, by name and by pattern.
#[test]
fn modules_may_differ() {
    let wider = |mut model: Model| {
        for (end, shape) in [("qweight", [HIDDEN / 4, WIDE]), ("qzeros", [HIDDEN / 32, WIDE / 4])] {
            model.add(&format!("{UP}.{end}"), "I32", &shape);
        }
        model
    };
    let dynamic = json!({"dynamic": {"+:.*mlp\\.up_proj": {"bits": 8}, "-:.*other": {}}});
    let cases = [
        (with(gptq(), dynamic), "GPTQ: w8a16 by groups of 32; w4a16 by groups of 32"),
        (
            with(auto_round("auto_round:auto_gptq"), json!({"extra_config": {UP: {"bits": 8}}})),
            "AutoRound: w8a16 by groups of 32 with zero points; w4a16 by groups of 32 with zero points",
        ),
        (
            with(
                auto_round("auto_round:auto_gptq"),
                json!({"extra_config": {".*up_proj.*": {"bits": 8, "sym": true}}}),
            ),
            "AutoRound: w8a16 by groups of 32; w4a16 by groups of 32 with zero points",
        ),
    ];
    for (block, words) in cases {
        assert_eq!(wider(columns(block, false, 4)).words(), words);
    }
}

/// A file next to `config.json` in its place, or next to it where both say the same.
#[test]
fn side_files_count() {
    let side = |name: &str, block: Value, config: bool| {
        let mut model = columns(block.clone(), name == "quant_config.json", 4);
        if !config {
            model.config.as_object_mut().unwrap().remove("quantization_config");
        }
        model.tree().with(name, block.to_string())
    };
    let mut table = Table::default();
    let old = with(gptq(), json!({"quant_method": null, "checkpoint_format": null}));
    let old_awq = json!({"w_bit": 4, "q_group_size": 32, "zero_point": true, "version": "GEMM"});
    table.accepts("GPTQ's", &side("quantize_config.json", old, false), "");
    table.accepts("AWQ's", &side("quant_config.json", old_awq, false), "");
    table.accepts("both", &side("quantize_config.json", gptq(), true), "");
    let other = columns(gptq(), false, 4).tree();
    let other = other.with("quantize_config.json", with(gptq(), json!({"group_size": 128})).to_string());
    table.refuses("another", &other, "", 15, &["quantize_config.json", "by groups of 128", "by groups of 32"]);
    let foreign = columns(gptq(), false, 4).tree().with("quant_config.json", awq().to_string());
    table.refuses("another method", &foreign, "", 12, &["quant_config.json", "AWQ"]);
    assert_eq!(table.finish(), 2);
}

#[test]
fn columns_that_do_not_run_are_refused_by_their_key() {
    let of_gptq = [
        (json!({"bits": 5}), "bits is 5, expected 2, 3, 4 or 8"),
        (json!({"bits": null}), "bits is absent"),
        (json!({"group_size": null}), "group_size is absent"),
        (json!({"group_size": 0}), "group_size is 0"),
        (json!({"group_size": "all"}), "group_size is \"all\""),
        (json!({"sym": null}), "sym is absent"),
        (json!({"checkpoint_format": "marlin"}), "checkpoint_format is \"marlin\", expected gptq or gptq_v2"),
        (json!({"checkpoint_format": "gptq_p"}), "checkpoint_format is \"gptq_p\""),
        (json!({"checkpoint_format": null, "format": "bitblas"}), "format is \"bitblas\""),
        (json!({"pack_dtype": "int16"}), "pack_dtype is \"int16\", expected int32"),
        (json!({"adapter": {"name": "lora"}}), "adapter is given"),
        (json!({"is_marlin_format": true}), "is_marlin_format is given"),
        (json!({"dynamic": {"(?!lm_head).*": {"bits": 8}}}), "is a pattern"),
        (json!({"dynamic": {".*up_proj": {"bits": 6}}}), "up_proj.bits is 6"),
    ];
    let of_awq = [
        (json!({"version": "gemv"}), "version is \"gemv\", expected gemm"),
        (json!({"version": "gemv_fast"}), "version is \"gemv_fast\""),
        (json!({"version": "marlin"}), "version is \"marlin\""),
        (json!({"format": "llm-awq"}), "format is \"llm-awq\""),
        (json!({"bits": 8}), "bits is 8, expected 4"),
        (json!({"group_size": null}), "group_size is absent"),
    ];
    let of_auto_round = [
        (json!({"packing_format": null}), "packing_format is absent"),
        (json!({"packing_format": "auto_round:fp8_static"}), "packing_format is \"auto_round:fp8_static\""),
        (json!({"data_type": "mx_fp"}), "data_type is \"mx_fp\", expected int"),
        (json!({"act_bits": 8}), "act_bits is 8, expected 16"),
        (json!({"extra_config": {"lm_head": {"data_type": "nv_fp"}}}), "lm_head.data_type is \"nv_fp\""),
    ];
    let mut table = Table::default();
    let mut refuses = |method: &str, block: Value, of_outputs: bool, says: &str| {
        table.refuses(
            &format!("{method}: {says}"),
            &columns(block, of_outputs, 4).tree(),
            "",
            12,
            &[method, "config.json", says],
        );
    };
    of_gptq.iter().for_each(|(keys, says)| refuses("GPTQ", with(gptq(), keys.clone()), false, says));
    of_awq.iter().for_each(|(keys, says)| refuses("AWQ", with(awq(), keys.clone()), true, says));
    let round = auto_round("auto_round:auto_gptq");
    of_auto_round.iter().for_each(|(keys, says)| refuses("AutoRound", with(round.clone(), keys.clone()), false, says));
    assert_eq!(table.finish(), of_gptq.len() + of_awq.len() + of_auto_round.len());
}

#[test]
fn columns_that_contradict_are_refused_by_both_sides() {
    let [words, scales, zeros, index, bias] =
        ["qweight", "scales", "qzeros", "g_idx", "bias"].map(|end| format!("{UP}.{end}"));
    let usual = || columns(gptq(), false, 4);
    let three = || columns(with(gptq(), json!({"bits": 3})), false, 3);
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no words", usual().without(&words), 15, &["up_proj.weight"]),
        ("words and a matrix", usual().with(&format!("{UP}.weight"), "BF16", &[WIDE, HIDDEN]), 15, &[&words, "up_proj.weight is stored"]),
        ("words of 8 bits", usual().with(&words, "I32", &[HIDDEN / 4, WIDE]), 15, &[&words, "[96, 128]", "[96, 64]"]),
        ("words of 3 bits", three().with(&words, "I32", &[HIDDEN * 3 / 32 + 1, WIDE]), 15, &[&words, "whole"]),
        ("zero points of another width", three().with(&zeros, "I32", &[2, WIDE / 8]), 15, &[&zeros, "[2, 12]", "[2, 9]"]),
        ("words of floats", usual().with(&words, "F32", &[HIDDEN / 8, WIDE]), 15, &[&words, "F32", "I32"]),
        ("words in three dimensions", usual().with(&words, "I32", &[1, HIDDEN / 8, WIDE]), 15, &[&words, "two dimensions"]),
        ("words by outputs", usual().with(&words, "I32", &[HIDDEN, WIDE / 8]), 15, &[&words, "[12, 512]", "[96, 64]"]),
        ("no scales", usual().without(&scales), 15, &[&scales]),
        ("scales in rows", usual().with(&scales, "F16", &[WIDE, 2]), 15, &[&scales, "[96, 2]", "[2, 96]", "groups of 32"]),
        ("scales of integers", usual().with(&scales, "I32", &[2, WIDE]), 15, &[&scales, "I32"]),
        ("scales of other groups", columns(with(gptq(), json!({"group_size": 64})), false, 4), 15, &["scales", "[2, 64]", "[1, 64]"]),
        ("groups that do not divide", columns(with(gptq(), json!({"group_size": 48})), false, 4), 15, &["groups of 48", "64 inputs"]),
        ("groups of 16", columns(with(gptq(), json!({"group_size": 16})), false, 4), 12, &["groups of 16", "blocks of 32"]),
        ("no zero points", usual().without(&zeros), 15, &[&zeros]),
        ("zero points of another shape", usual().with(&zeros, "I32", &[2, WIDE]), 15, &[&zeros, "[2, 96]", "[2, 12]"]),
        ("zero points of floats", usual().with(&zeros, "F16", &[2, WIDE / 8]), 15, &[&zeros, "F16", "I32"]),
        ("groups of too few inputs", usual().with(&index, "I32", &[HIDDEN - 1]), 15, &[&index, "[63]", "[64]"]),
        ("groups of inputs as floats", usual().with(&index, "F32", &[HIDDEN]), 15, &[&index, "F32", "I32"]),
        ("groups of inputs in AWQ", columns(awq(), true, 4).with(&index, "I32", &[HIDDEN]), 15, &[&index, "inputs in order"]),
        ("a bias of another shape", usual().with(&bias, "F16", &[WIDE + 1]), 15, &[&bias, "[97]", "[96]"]),
        ("a quantized embedding", usual().without("model.embed_tokens.weight").with("model.embed_tokens.qweight", "I32", &[HIDDEN / 8, 32]), 12, &["quantized embedding", "model.embed_tokens.qweight"]),
        ("a scale of a plain matrix", usual().with("lm_head.scales", "F16", &[2, 32]), 12, &["lm_head.scales"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}
