//! MLX: every scheme that runs, and every one that is refused.

use super::*;

/// All matrices in words of fields with `bits` bits, in groups of 32 inputs, as this section says of some of them.
pub(super) fn mlx(bits: u64, section: Value) -> Model {
    let mut model = Model::new(Value::Null, |outputs, inputs| vec![outputs, inputs / 32]);
    let config = model.config.as_object_mut().unwrap();
    config.remove("quantization_config");
    let mut whole = json!({"group_size": 32, "bits": bits});
    whole.as_object_mut().unwrap().extend(section.as_object().unwrap().clone());
    config.insert("quantization".into(), whole);
    let matrices: Vec<_> = model.tensors.iter().filter(|tensor| tensor.2.len() == 2).cloned().collect();
    for (name, _, shape) in matrices.iter().filter(|(name, ..)| name.ends_with(".weight")) {
        model.words_of(name.trim_end_matches(".weight"), bits, shape);
    }
    model.tensors.retain(|(name, ..)| !name.ends_with("_scale"));
    model
}

impl Model {
    /// Gives a module words of fields, with scales and biases for groups of 32 inputs.
    fn words_of(&mut self, module: &str, bits: u64, shape: &[u64]) {
        let of_last = |inputs: u64| [&shape[..shape.len() - 1], &[inputs]].concat();
        let inputs = shape[shape.len() - 1];
        self.add(&format!("{module}.weight"), "U32", &of_last(inputs * bits / 32));
        self.add(&format!("{module}.scales"), "BF16", &of_last(inputs / 32));
        self.add(&format!("{module}.biases"), "BF16", &of_last(inputs / 32));
    }

    /// In another mode, with scales of bytes for groups of `size` inputs.
    pub(super) fn in_mode(mut self, mode: &str, size: u64) -> Model {
        self.tensors.retain(|(name, ..)| !name.ends_with(".biases"));
        for (_, dtype, shape) in self.tensors.iter_mut().filter(|(name, ..)| name.ends_with(".scales")) {
            (*dtype, shape[1]) = ("U8", shape[1] * 32 / size);
        }
        self.says("mode", json!(mode)).says("group_size", json!(size))
    }

    /// With another value in the section.
    fn says(mut self, key: &str, value: Value) -> Model {
        self.config["quantization"][key] = value;
        self
    }
}

/// The same model with two experts, stacked.
fn experts(mut model: Model) -> Model {
    let config = json!({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 2,
        "num_experts_per_tok": 1, "moe_intermediate_size": WIDE, "norm_topk_prob": true});
    model.config.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    model.tensors.retain(|tensor| !tensor.0.contains(".mlp."));
    for (part, outputs, inputs) in [("gate", WIDE, HIDDEN), ("up", WIDE, HIDDEN), ("down", HIDDEN, WIDE)] {
        model.words_of(&format!("model.layers.0.mlp.switch_mlp.{part}_proj"), 4, &[2, outputs, inputs]);
    }
    model.words_of("model.layers.0.mlp.gate", 8, &[2, HIDDEN]);
    ["q", "k"]
        .iter()
        .fold(model, |model, part| model.with(&format!("model.layers.0.self_attn.{part}_norm.weight"), "BF16", &[16]))
        .says("model.layers.0.mlp.gate", json!({"group_size": 32, "bits": 8}))
}

#[test]
fn mlx_runs() {
    for bits in [2, 3, 4, 5, 6, 8] {
        assert_eq!(mlx(bits, json!({"mode": "affine"})).words(), format!("MLX: {bits} bits by groups of 32"));
    }
    let mut mixed =
        mlx(4, json!({UP: {"group_size": 32, "bits": 3, "mode": "affine"}, "lm_head": false, "model.norm": true}));
    mixed.words_of(UP, 3, &[WIDE, HIDDEN]);
    for part in ["scales", "biases"] {
        mixed = mixed.without(&format!("lm_head.{part}"));
    }
    mixed = mixed.with("lm_head.weight", "BF16", &[32, HIDDEN]);
    assert_eq!(mixed.words(), "MLX: 4 bits by groups of 32; 3 bits by groups of 32");
    assert_eq!(experts(mlx(4, json!({}))).words(), "MLX: 4 bits by groups of 32; 8 bits by groups of 32");
    let modes = [("mxfp4", 4, 32, DType::F4), ("nvfp4", 4, 16, DType::F4), ("mxfp8", 8, 32, DType::F8_E4M3)];
    for (mode, bits, size, dtype) in modes {
        let model = mlx(bits, json!({})).in_mode(mode, size);
        assert_eq!(model.words(), format!("MLX: {}", mode.to_uppercase()));
        let report = table::judge(&model.tree().path("")).model.unwrap();
        assert!(report.dtypes.iter().any(|summary| summary.dtype == dtype), "{mode}");
    }
    let mut mixed = mlx(4, json!({UP: {"group_size": 32, "bits": 5}})).in_mode("mxfp4", 32);
    mixed.words_of(UP, 5, &[WIDE, HIDDEN]);
    assert_eq!(mixed.words(), "MLX: MXFP4; 5 bits by groups of 32");
    // In a model that sees, names begin as they do in its tensors.
    let mut sees = mlx(4, json!({format!("language_model.{UP}"): {"group_size": 32, "bits": 8}}));
    sees.words_of(UP, 8, &[WIDE, HIDDEN]);
    sees.tensors.iter_mut().for_each(|tensor| tensor.0 = format!("language_model.{}", tensor.0));
    let mut text = sees.config.clone();
    text.as_object_mut()
        .unwrap()
        .extend([("model_type".into(), json!("mistral")), ("sliding_window".into(), Value::Null)]);
    let quantization = text.as_object_mut().unwrap().remove("quantization");
    sees.config = json!({"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "text_config": text,
        "quantization": quantization});
    assert_eq!(sees.words(), "MLX: 4 bits by groups of 32; 8 bits by groups of 32");
    let mut copied = mlx(4, json!({}));
    copied.config["quantization_config"] = copied.config["quantization"].clone();
    assert_eq!(copied.words(), "MLX: 4 bits by groups of 32");
    // Without a tensor of its own the head is the embedding.
    let mut tied = mlx(6, json!({}));
    tied.tensors.retain(|tensor| !tensor.0.starts_with("lm_head"));
    tied.config["tie_word_embeddings"] = json!(true);
    let (with_head, tied) = (mlx(6, json!({})).tree(), tied.tree());
    let [with_head, tied] = [with_head, tied].map(|tree| table::judge(&tree.path("")).model.unwrap());
    assert_eq!(with_head.parameters - tied.parameters, 32 * HIDDEN);
    assert!(tied.dtypes.iter().any(|summary| summary.dtype == DType::U6 && summary.tier == Some(Tier::Native)));
    for entry in std::fs::read_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/mlx")).unwrap()
    {
        let report = table::judge(&entry.unwrap().path());
        assert!(report.verdict.runs(), "{}", report.first_line());
        assert!(report.model.unwrap().quantization.starts_with("MLX: "));
    }
}

#[test]
fn mlx_that_contradicts_is_refused() {
    const EXPERT: &str = "model.layers.0.mlp.switch_mlp.up_proj";
    let model = || mlx(4, json!({}));
    let [words, scales, biases] = ["weight", "scales", "biases"].map(|part| format!("{UP}.{part}"));
    let of_experts = |part: &str| format!("{EXPERT}.{part}");
    let mode = |bits, mode: &str, size| mlx(bits, json!({})).in_mode(mode, size);
    let copy = |mut model: Model| {
        model.config["quantization_config"] = json!({"group_size": 32, "bits": 8});
        model
    };
    let model_type = |kind: &str, class: &str| {
        let mut model = model();
        (model.config["model_type"], model.config["architectures"]) = (json!(kind), json!([class]));
        model
    };
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no scales", model().without(&scales), 15, &[&words, "is U32", &scales, "is missing"]),
        ("no biases", model().without(&biases), 15, &[&words, "is U32", &biases, "is missing"]),
        ("no words", model().without(&words), 15, &[&words]),
        ("words of I32", model().with(&words, "I32", &[WIDE, 8]), 15, &[&words, "[96, 8]", "[96, 64]"]),
        ("words of one dimension", model().with(&words, "U32", &[WIDE * 8]), 15, &[&words, "[768]"]),
        ("fewer words", model().with(&words, "U32", &[WIDE, 4]), 15, &[&words, "[96, 32]", "[96, 64]"]),
        ("words of no whole fields", mlx(3, json!({})).with(&words, "U32", &[WIDE, 7]), 15, &[&words, "quantization has fields of 3 bits", "[96, 7]"]),
        ("words elsewhere", model().with("model.layers.0.input_layernorm.bias", "U32", &[64]), 15, &["input_layernorm.bias of U32"]),
        ("floats with scales", model().with(&words, "BF16", &[WIDE, HIDDEN]), 12, &[&scales.to_string(), "not known"]),
        ("scales of another shape", model().with(&scales, "BF16", &[WIDE, 1]), 15, &[&scales, "[96, 1]", "[96, 2]", "groups of 32 inputs by quantization"]),
        ("biases of another shape", model().with(&biases, "BF16", &[HIDDEN, 2]), 15, &[&biases, "[64, 2]", "[96, 2]"]),
        ("scales of integers", model().with(&scales, "I32", &[WIDE, 2]), 15, &[&scales, "I32", "F32, F16 or BF16"]),
        ("scales of another mode", model().with(&scales, "U8", &[WIDE, 2]), 15, &[&scales, "U8", "F32, F16 or BF16"]),
        ("biases of integers", model().with(&biases, "I8", &[WIDE, 2]), 15, &[&biases, "I8", "F32, F16 or BF16"]),
        ("biases of another dtype", model().with(&biases, "F32", &[WIDE, 2]), 15, &[&scales, "BF16", &biases, "F32"]),
        ("other bits", model().says("bits", json!(8)), 15, &["weight", "[32, 32]", "[32, 64]"]),
        ("other bits of a module", model().says(UP, json!({"group_size": 32, "bits": 2})), 15, &[&words, "[96, 128]", "[96, 64]"]),
        ("other groups", model().says("group_size", json!(64)), 15, &["scales", "[32, 2]", "[32, 1]"]),
        ("groups that do not divide", model().says("model.layers.0.mlp.down_proj", json!({"group_size": 64, "bits": 4})), 15, &["down_proj has groups of 64", "96 inputs"]),
        ("left out", model().says(UP, json!(false)), 15, &[&format!("quantization.{UP} is false"), &words, "U32"]),
        ("named and plain", model().says(UP, json!({"group_size": 32, "bits": 4})).with(&words, "BF16", &[WIDE, HIDDEN]).without(&scales).without(&biases), 15, &[UP, "describes U32", "BF16"]),
        ("no bits", model().says("bits", Value::Null), 12, &["quantization.bits is absent"]),
        ("no groups", model().says("group_size", Value::Null), 12, &["quantization.group_size is absent"]),
        ("a module without bits", model().says(UP, json!({"group_size": 32})), 12, &[UP, "bits is absent"]),
        ("1 bit", model().says("bits", json!(1)), 12, &["quantization.bits is 1", "2, 3, 4, 5, 6 or 8"]),
        ("7 bits", model().says("bits", json!(7)), 12, &["quantization.bits is 7"]),
        ("bits in words", model().says("bits", json!("four")), 12, &["quantization.bits is \"four\""]),
        ("groups of 16", model().says("group_size", json!(16)), 12, &["quantization.group_size is 16", "32, 64 or 128"]),
        ("groups below 0", model().says("group_size", json!(-1)), 12, &["quantization.group_size is -1"]),
        ("an unknown mode", model().says("mode", json!("mxfp6")), 12, &["MLX", "quantization.mode is \"mxfp6\", expected affine, mxfp4, nvfp4 or mxfp8"]),
        ("mxfp4 of 8 bits", model().says("mode", json!("mxfp4")).says("bits", json!(8)), 12, &["quantization.bits is 8, expected 4 with mode mxfp4"]),
        ("nvfp4 in groups of 32", model().says(UP, json!({"group_size": 32, "bits": 4, "mode": "nvfp4"})), 12, &[UP, "group_size is 32, expected 16 with mode nvfp4"]),
        ("mxfp8 of floats", model().says("mode", json!("mxfp8")).says("bits", json!(8)), 15, &["embed_tokens.weight", "[32, 32]", "[32, 64]"]),
        ("scales of floats in mxfp4", model().says("mode", json!("mxfp4")), 15, &["scales", "BF16", "U8 (exponents)"]),
        ("scales of exponents by name", mode(4, "nvfp4", 16).with(&scales, "F8_E4M3", &[WIDE, 4]), 15, &[&scales, "F8_E4M3", "U8 (floats of 8 bits)"]),
        ("no scales in nvfp4", mode(4, "nvfp4", 16).without(&scales), 15, &[&words, "is U32", &scales, "is missing"]),
        ("scales of groups of 32 in nvfp4", mode(4, "nvfp4", 16).with(&scales, "U8", &[WIDE, 2]), 15, &[&scales, "[96, 2]", "[96, 4]", "groups of 16"]),
        ("biases in mxfp4", mode(4, "mxfp4", 32).with(&biases, "BF16", &[WIDE, 2]), 15, &["quantization describes floats with scales", &biases]),
        ("scales of matrices", mode(4, "nvfp4", 16).with(&format!("{UP}.global_scale"), "F32", &[1]), 15, &["global_scale"]),
        ("scales of experts", model().says(EXPERT, json!({"group_size": 16, "bits": 4, "mode": "nvfp4", "global_scale": true})), 12, &[EXPERT, "global_scale is true, expected false"]),
        ("a mode that is a number", model().says("mode", json!(1)), 10, &["quantization.mode"]),
        ("a module that is a number", model().says(UP, json!(4)), 10, &[UP, "an object, true or false"]),
        ("another copy", copy(model()), 15, &["quantization says one thing", "quantization_config another"]),
        ("norms from 1", model_type("qwen3_next", "Qwen3NextForCausalLM"), 12, &["MLX", "model_type \"qwen3_next\""]),
        ("one expert less", experts(model()).with(&of_experts("weight"), "U32", &[1, WIDE, 8]), 15, &[&of_experts("weight"), "[1, 96, 64]", "[2, 96, 64]"]),
        ("scales of one expert less", experts(model()).with(&of_experts("scales"), "BF16", &[1, WIDE, 2]), 15, &[&of_experts("scales"), "[1, 96, 2]", "[2, 96, 2]"]),
        ("no biases of experts", experts(model()).without(&of_experts("biases")), 15, &[&of_experts("weight"), &of_experts("biases"), "is missing"]),
        ("no experts", experts(model()).without(&of_experts("weight")), 15, &[&of_experts("weight")]),
        ("experts by their own", experts(model()).with("model.layers.0.mlp.experts.0.up_proj.weight", "BF16", &[WIDE, HIDDEN]), 15, &[&of_experts("weight"), "experts.0.up_proj.weight"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}
