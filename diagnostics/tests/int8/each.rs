//! Every tensor and every key of a packed, of an FP8, of an MLX and of a bitsandbytes checkpoint: absent, of every other dtype, of other shapes and types. What is
//! refused says the file, and the tensor or the key.

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
        let named = vec![name.rsplit_once('.').unwrap().0.to_owned()];
        let mut add =
            |what: String, model, refused| cases.push((format!("{name} {what}"), model, named.clone(), refused));
        add("absent".into(), model.clone().without(name), true);
        for other in DTYPES.iter().filter(|other| *other != dtype) {
            let alike = is_float(dtype) && is_float(other) || name.ends_with("_inv") && *other == "F8_E8M0";
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
        add("with a dimension more".into(), model.clone().with(name, dtype, &more), true);
        add("with none".into(), model.clone().with(name, dtype, &[]), true);
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

#[test]
fn every_tensor_and_every_key_is_refused_by_name() {
    let (mut refused, mut failures) = (0, Vec::new());
    let of_module = json!({UP: {"group_size": 32, "bits": 4}});
    for (format, model, section) in [
        ("packed", packed(4, true), "quantization_config"),
        ("FP8", fp8::blocks(), "quantization_config"),
        ("MLX", mlx::mlx(4, of_module), "quantization"),
        ("bitsandbytes", bnb::nested(), "quantization_config"),
    ] {
        assert!(table::judge(&model.tree().path("")).verdict.runs());
        for (what, model, named, must) in cases(&model, section) {
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
    }
    assert!(failures.is_empty(), "{} inputs failed:\n{}", failures.len(), failures.join("\n"));
    println!("{refused} inputs were refused");
    assert!(refused >= 1500, "only {refused} inputs were refused");
}
