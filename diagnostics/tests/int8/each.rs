//! Every tensor and every key of a checkpoint of each format: absent, of every other dtype, of other shapes and types. What is refused
//! says the file, and the tensor or the key.

use super::*;

const DTYPES: &[&str] =
    &["BOOL", "U8", "I8", "I16", "I32", "I64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F16", "BF16", "F32", "F64"];

fn is_float(dtype: &str) -> bool {
    matches!(dtype, "F16" | "BF16" | "F32")
}

/// The paths of all keys of `value`.
fn keys(value: &Value, at: &str) -> Vec<(String, String)> {
    let Some(object) = value.as_object() else { return Vec::new() };
    let of_key = |(key, value): (&String, &Value)| {
        let within = keys(value, &format!("{at}/{key}"));
        std::iter::once((at.to_owned(), key.clone())).chain(within)
    };
    object.iter().flat_map(of_key).collect()
}

/// All that is done to a checkpoint, what the error then names one of, and whether it must be refused.
fn cases(model: &Model, section: &str) -> Vec<(String, Model, Vec<String>, bool)> {
    let mut cases = Vec::new();
    for (name, dtype, shape) in &model.tensors {
        let module = name.rsplit_once('.').unwrap().0;
        let named = vec![module.to_owned()];
        let mut add =
            |what: String, model, refused| cases.push((format!("{name} {what}"), model, named.clone(), refused));
        add("absent".into(), model.clone().without(name), !name.ends_with("g_idx"));
        if ["k_proj", "v_proj", "gate_proj", "up_proj"].iter().any(|alike| module.ends_with(alike)) {
            continue;
        }
        let is_fp8 = |tensor: &(String, &str, _)| tensor.1 == "F8_E4M3" && tensor.0 == format!("{module}.weight");
        let of_fp8 = name.contains("weight_scale") && model.tensors.iter().any(is_fp8);
        for other in DTYPES.iter().filter(|other| *other != dtype) {
            // Powers of 2 have two names; scales of FP8 may be these or floats.
            let powers = *other == "F8_E8M0" && (of_fp8 || *dtype == "U8" && name.ends_with("weight_scale"));
            let alike = is_float(other) && (is_float(dtype) || of_fp8) || powers;
            add(format!("of {other}"), model.clone().with(name, other, shape), !alike);
        }
        // A description has any length.
        let sides = if name.contains(".quant_state.") { 0 } else { shape.len() };
        for place in 0..sides {
            for side in [shape[place] + 1, shape[place] * 2, shape[place] - 1, 0] {
                let mut shape = shape.clone();
                shape[place] = side;
                add(format!("of {shape:?}"), model.clone().with(name, dtype, &shape), true);
            }
        }
        let more: Vec<u64> = shape.iter().copied().chain([1]).collect();
        let one = shape.iter().product::<u64>() == 1;
        add("with a dimension more".into(), model.clone().with(name, dtype, &more), !one);
        add("with none".into(), model.clone().with(name, dtype, &[]), !one);
    }
    let values = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(48),
        json!(1e300),
        json!(""),
        json!("x"),
        json!([]),
        json!([{}]),
        json!({}),
        json!({"x": 1}),
    ];
    for (at, key) in keys(&model.config[section], "") {
        let named = [
            &key,
            at.rsplit('/').next().unwrap_or_default(),
            "model.layers.0.",
            "quantization_config.weight_block_size",
        ];
        let named: Vec<String> = named.into_iter().filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let with = |value: Option<&Value>| {
            let mut model = model.clone();
            let place = model.config.pointer_mut(&format!("/{section}{at}")).unwrap().as_object_mut().unwrap();
            match value {
                Some(value) => place.insert(key.clone(), value.clone()),
                None => place.remove(&key),
            };
            model
        };
        for value in std::iter::once(None).chain(values.iter().map(Some)) {
            let what = value.map_or("absent".to_owned(), |value| format!("= {value}"));
            cases.push((format!("{at}/{key} {what}"), with(value), named.clone(), false));
        }
    }
    cases
}

/// How many of these inputs are refused, how many there are, and those that are not judged as they should be.
fn judged(format: &str, model: &Model, section: &str) -> (usize, usize, Vec<String>) {
    assert!(table::judge(&model.tree().path("")).verdict.runs());
    let (mut refused, mut failures) = (0, Vec::new());
    let cases = cases(model, section);
    let count = cases.len();
    for (what, model, named, must) in cases {
        let report = table::judge(&model.tree().path(""));
        let line = report.first_line();
        // Which tensors have no kernel, the check says.
        let evidence = report.checks.iter().find(|check| check.id == "dtype").map(|check| &check.evidence);
        let said = format!("{line} {evidence:?} {:?}", report.input);
        let says = |parts: &[String]| parts.iter().any(|part| said.contains(part));
        let files = ["config.json", "model.safetensors"].map(str::to_owned);
        let runs = report.verdict.runs();
        refused += usize::from(!runs);
        if if runs { must } else { !(says(&named) && says(&files)) } {
            failures.push(format!("{format}: {what}: {line}"));
        }
    }
    (refused, count, failures)
}

#[test]
fn every_tensor_and_every_key_is_refused_by_name() {
    let of_module = json!({UP: {"group_size": 32, "bits": 4}});
    let (block, round) = ("quantization_config", columns::auto_round("auto_round:gptqmodel"));
    let formats = [
        ("packed", packed(4, true), block),
        ("int8", Model::usual(), block),
        ("FP8", fp8::blocks(), block),
        ("NVFP4", fp4::divided(), block),
        ("MXFP4", fp4::mxfp4(), block),
        ("ModelOpt's NVFP4", fp4::multiplied(), block),
        ("ModelOpt's mixture", fp4::mixed(), block),
        ("GPTQ", columns::columns(columns::gptq(), false, 4), block),
        ("AWQ", columns::columns(columns::awq(), true, 4), block),
        ("AutoRound", columns::columns(round, false, 4), block),
        ("MLX", mlx::mlx(4, of_module), "quantization"),
        ("MLX's MXFP8", mlx::mlx(8, json!({})).in_mode("mxfp8", 32), "quantization"),
        ("bitsandbytes", bnb::nested(), block),
        ("MLX's NVFP4", mlx::mlx(4, json!({})).in_mode("nvfp4", 16), "quantization"),
    ];
    let judged: Vec<_> = std::thread::scope(|scope| {
        let tasks = formats.iter().map(|(format, model, section)| scope.spawn(|| judged(format, model, section)));
        let tasks: Vec<_> = tasks.collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    let failures: Vec<&str> = judged.iter().flat_map(|judged| &judged.2).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} inputs failed:\n{}", failures.len(), failures.join("\n"));
    let (refused, count) = judged.iter().fold((0, 0), |sum, judged| (sum.0 + judged.0, sum.1 + judged.1));
    println!("{refused} of {count} inputs were refused");
    assert!(refused >= 5000, "only {refused} inputs were refused");
}
