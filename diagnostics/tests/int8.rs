//! Checkpoints of compressed-tensors, int8, packed integers and FP8, of others in FP8, of bitsandbytes, and of MLX: every scheme that runs, and every one that is refused with its exit
//! code, the key or the tensor.

// A sample that cannot be written is a broken test; `pub` is for the sibling modules.
#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "int8/bnb.rs"]
mod bnb;
#[path = "int8/columns.rs"]
mod columns;
#[path = "int8/each.rs"]
mod each;
#[path = "int8/fp4.rs"]
mod fp4;
#[path = "int8/fp8.rs"]
mod fp8;
#[path = "int8/mlx.rs"]
mod mlx;

#[path = "formats/build.rs"]
#[allow(dead_code)] // this file uses its part
mod build;
#[path = "hostile/table.rs"]
#[allow(dead_code)] // this file uses its part
mod table;

use build::{Tree, safetensors};
use model_factory_diagnostics::DType;
use model_factory_diagnostics::capability::Tier;
use model_factory_dtypes::I8_MAX_INPUTS;
use serde_json::{Map, Value, json};
use table::Table;

const HIDDEN: u64 = 64;
const WIDE: u64 = 96;
const UP: &str = "model.layers.0.mlp.up_proj";

/// A model of one layer: its config and its tensors, (dtype, shape) by name.
#[derive(Clone)]
struct Model {
    config: Value,
    tensors: Vec<(String, &'static str, Vec<u64>)>,
}

fn args(more: Value) -> Value {
    let mut args = json!({"num_bits": 8, "type": "int", "symmetric": true});
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    args
}

fn group(weights: Value, activations: Value) -> Value {
    json!({"targets": ["Linear"], "weights": args(weights), "input_activations": args(activations)})
}

fn usual() -> Value {
    group(json!({"strategy": "channel"}), json!({"strategy": "token", "dynamic": true}))
}

fn block(group: Value) -> Value {
    json!({"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
           "config_groups": {"group_0": group}})
}

impl Model {
    /// Linear layers in I8 with scales of this shape, `[0]` standing for the outputs.
    fn new(group: Value, scale: impl Fn(u64, u64) -> Vec<u64>) -> Model {
        let config = json!({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
            "intermediate_size": WIDE, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "vocab_size": 32, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
            "quantization_config": block(group)});
        let mut model = Model { config, tensors: Vec::new() };
        for name in ["model.embed_tokens", "lm_head"] {
            model.add(&format!("{name}.weight"), "BF16", &[32, HIDDEN]);
        }
        for name in ["model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"] {
            model.add(&format!("{name}.weight"), "BF16", &[HIDDEN]);
        }
        for (part, outputs, inputs) in [
            ("self_attn.q_proj", HIDDEN, HIDDEN),
            ("self_attn.k_proj", 32, HIDDEN),
            ("self_attn.v_proj", 32, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HIDDEN),
            ("mlp.gate_proj", WIDE, HIDDEN),
            ("mlp.up_proj", WIDE, HIDDEN),
            ("mlp.down_proj", HIDDEN, WIDE),
        ] {
            let module = format!("model.layers.0.{part}");
            model.add(&format!("{module}.weight"), "I8", &[outputs, inputs]);
            model.add(&format!("{module}.weight_scale"), "BF16", &scale(outputs, inputs));
        }
        model
    }

    fn usual() -> Model {
        Model::new(usual(), |outputs, _| vec![outputs, 1])
    }

    fn add(&mut self, name: &str, dtype: &'static str, shape: &[u64]) {
        self.tensors.retain(|tensor| tensor.0 != name);
        self.tensors.push((name.into(), dtype, shape.to_vec()));
    }

    /// With a tensor of its own for every quantised module.
    fn beside_all(mut self, suffix: &str, dtype: &'static str, shape: &[u64]) -> Model {
        let weights = self.tensors.iter().filter(|tensor| tensor.1 == "I8" && tensor.0.ends_with(".weight"));
        let modules: Vec<String> = weights.map(|tensor| tensor.0.trim_end_matches(".weight").into()).collect();
        modules.iter().for_each(|module| self.add(&format!("{module}.{suffix}"), dtype, shape));
        self
    }

    /// With a float next to each of the quantised modules.
    fn beside(self, suffix: &str) -> Model {
        let weights = self.tensors.iter().filter(|tensor| tensor.1 == "F8_E4M3");
        let names: Vec<String> = weights.map(|tensor| tensor.0.replace(".weight", &format!(".{suffix}"))).collect();
        names.iter().fold(self, |model, name| model.with(name, "F32", &[]))
    }

    fn with(mut self, name: &str, dtype: &'static str, shape: &[u64]) -> Model {
        self.add(name, dtype, shape);
        self
    }

    fn without(mut self, name: &str) -> Model {
        self.tensors.retain(|tensor| tensor.0 != name);
        self
    }

    /// With another value in the quantization block.
    fn set(mut self, pointer: &str, key: &str, value: Value) -> Model {
        let place = self.config.pointer_mut(&format!("/quantization_config{pointer}")).unwrap();
        place.as_object_mut().unwrap().insert(key.into(), value);
        self
    }

    fn tree(&self) -> Tree {
        let (mut header, mut end) = (Map::new(), 0);
        for (name, dtype, shape) in &self.tensors {
            let size = match *dtype {
                "BOOL" | "I8" | "U8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 1,
                "I64" | "F64" => 8,
                "I32" | "U32" | "F32" => 4,
                _ => 2,
            };
            let begin = end;
            end += shape.iter().product::<u64>() * size;
            header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}));
        }
        let weights = safetensors(&Value::Object(header).to_string(), end as usize);
        let tokenizer = json!({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []});
        Tree::new()
            .with("config.json", self.config.to_string())
            .with("model.safetensors", weights)
            .with("tokenizer.json", tokenizer.to_string())
    }

    /// What the report says of the quantization, once it runs.
    fn words(&self) -> String {
        let tree = self.tree();
        let report = table::judge(&tree.path(""));
        assert!(report.verdict.runs(), "{}", report.first_line());
        report.model.unwrap().quantization
    }
}

const PREFIX: &str = "compressed-tensors int8 w8a8: ";

#[test]
fn every_scheme_that_runs_is_said_in_words() {
    let token = || json!({"strategy": "token", "dynamic": true});
    let tensor = |dynamic: bool| json!({"strategy": "tensor", "dynamic": dynamic});
    let channel = || json!({"strategy": "channel"});
    let asymmetric = |mut args: Value| {
        args.as_object_mut().unwrap().insert("symmetric".into(), json!(false));
        args
    };
    let by_channel = |activations| Model::new(group(channel(), activations), |outputs, _| vec![outputs, 1]);
    let cases = [
        (Model::usual(), "weights by channel, activations dynamic by token"),
        (Model::new(usual(), |outputs, _| vec![outputs]), "weights by channel, activations dynamic by token"),
        (
            Model::new(group(json!({"strategy": "tensor"}), token()), |_, _| vec![1]),
            "weights by tensor, activations dynamic by token",
        ),
        (
            Model::new(group(json!({"strategy": "tensor"}), token()), |_, _| vec![]),
            "weights by tensor, activations dynamic by token",
        ),
        (
            Model::new(group(json!({"strategy": "group", "group_size": 32}), token()), |o, i| vec![o, i / 32]),
            "weights by groups of 32, activations dynamic by token",
        ),
        (
            Model::new(group(json!({"group_size": -1}), token()), |o, _| vec![o, 1]),
            "weights by channel, activations dynamic by token",
        ),
        (by_channel(asymmetric(token())), "weights by channel, activations dynamic by token with zero points"),
        (by_channel(tensor(true)), "weights by channel, activations dynamic by tensor"),
        (
            by_channel(tensor(false)).beside_all("input_scale", "BF16", &[1]),
            "weights by channel, activations static by tensor",
        ),
        (
            by_channel(asymmetric(tensor(false))).beside_all("input_scale", "F32", &[]).beside_all(
                "input_zero_point",
                "I8",
                &[1],
            ),
            "weights by channel, activations static by tensor with zero points",
        ),
        (
            Model::usual().set("", "format", json!("naive-quantized")),
            "weights by channel, activations dynamic by token",
        ),
        (
            Model::usual().set("", "config_groups", json!({"W8A8": ["Linear"]})),
            "weights by channel, activations dynamic by token",
        ),
        (Model::usual().set("", "ignore", json!(["re:.*lm_head"])), "weights by channel, activations dynamic by token"),
        (
            Model::usual().set("/config_groups/group_0", "targets", json!([r"re:model\.layers\.\d+\."])),
            "weights by channel, activations dynamic by token",
        ),
        (
            Model::usual().set("", "ignore", json!([])).with("lm_head.weight", "I8", &[32, HIDDEN]).with(
                "lm_head.weight_scale",
                "BF16",
                &[32, 1],
            ),
            "weights by channel, activations dynamic by token",
        ),
    ];
    for (model, words) in cases {
        assert_eq!(model.words(), format!("{PREFIX}{words}"));
    }
}

#[test]
fn the_block_is_found_in_every_place() {
    let usual = Model::usual();
    let scheme = usual.config["quantization_config"].clone();
    let wrapped = json!({"quantization_config": scheme, "sparsity_config": {"format": "dense"}});
    for (key, value) in [
        ("compression_config", scheme.clone()),
        ("text_config", json!({"quantization_config": scheme})),
        ("compression_config", wrapped),
    ] {
        let mut model = usual.clone();
        model.config.as_object_mut().unwrap().remove("quantization_config");
        model.config.as_object_mut().unwrap().insert(key.into(), value);
        assert!(model.words().starts_with(PREFIX), "{key}");
    }
}

#[test]
fn a_covered_float_is_plain_and_said() {
    let model =
        Model::usual().with(&format!("{UP}.weight"), "BF16", &[WIDE, HIDDEN]).without(&format!("{UP}.weight_scale"));
    let tree = model.tree();
    let report = table::judge(&tree.path(""));
    assert!(report.verdict.runs(), "{}", report.first_line());
    let text = serde_json::to_string(&report).unwrap();
    assert!(
        text.contains(&format!(
            "1 modules that quantization_config covers are stored as floats and computed as such; the first is {UP}"
        )),
        "{text}"
    );
}

#[test]
fn defaults_of_absent_keys_are_said() {
    let mut model = Model::usual();
    let place = "/quantization_config/config_groups/group_0/input_activations";
    let args = model.config.pointer_mut(place).unwrap().as_object_mut().unwrap();
    for key in ["num_bits", "type", "symmetric"] {
        args.remove(key).unwrap();
    }
    let tree = model.tree();
    let report = table::judge(&tree.path(""));
    let path = "quantization_config.config_groups.group_0.input_activations";
    let said = format!(
        "{path}.num_bits = 8, {path}.type = int, {path}.symmetric = true: absent (the format's \
         default)"
    );
    let assumptions = report.model.unwrap().assumptions;
    assert!(assumptions.iter().any(|line| line.contains(&said)), "{assumptions:?}");
}

#[test]
fn what_does_not_run_is_refused_by_its_key() {
    const GROUP: &str = "/config_groups/group_0";
    const WEIGHTS: &str = "/config_groups/group_0/weights";
    const INPUTS: &str = "/config_groups/group_0/input_activations";
    let cases = [
        ("", "format", json!("pack-quantized"), "group_0.input_activations is given, expected null"),
        ("", "format", json!("float-quantized"), "group_0.input_activations.type is \"int\", expected float"),
        ("", "format", json!("nvfp4-pack-quantized"), "group_0.weights.num_bits is 8, expected 4"),
        ("", "format", json!("mxfp4-pack-quantized"), "group_0.weights.num_bits is 8, expected 4"),
        ("", "format", json!("mxfp6-pack-quantized"), "\"mxfp6-pack-quantized\""),
        ("", "format", json!("marlin-24"), "\"marlin-24\""),
        ("", "format", json!("mixed-precision"), "\"mixed-precision\""),
        ("", "format", json!("tomorrow"), "\"tomorrow\""),
        ("", "format", Value::Null, "quantization_config.format is absent"),
        ("", "config_groups", Value::Null, "quantization_config.config_groups is absent"),
        ("", "config_groups", json!({"W4A16": ["Linear"]}), "config_groups.W4A16 is a preset"),
        ("", "config_groups", json!({"FP8_DYNAMIC": ["Linear"]}), "config_groups.FP8_DYNAMIC is a preset"),
        ("", "kv_cache_scheme", json!({"num_bits": 8}), "quantization_config.kv_cache_scheme is given"),
        (
            "",
            "sparsity_config",
            json!({"format": "sparse-24-bitmask"}),
            "sparsity_config.format is \"sparse-24-bitmask\"",
        ),
        ("", "transform_config", json!({"config_groups": {"u": {"type": "hadamard"}}}), "transform_config is given"),
        ("", "ignore", json!(["re:(?!model).*"]), "ignore is the pattern \"re:(?!model).*\""),
        ("", "ignore", json!(["re:a)|(b"]), "ignore is the pattern"),
        (GROUP, "input_activations", Value::Null, "group_0.input_activations is null (w8a16)"),
        (GROUP, "weights", Value::Null, "group_0.weights is null"),
        (GROUP, "output_activations", json!({"num_bits": 8}), "group_0.output_activations is given"),
        (GROUP, "format", json!("pack-quantized"), "group_0.input_activations is given, expected null"),
        (WEIGHTS, "num_bits", json!(4), "group_0.weights.num_bits is 4"),
        (WEIGHTS, "num_bits", json!({"mlp": 8}), "group_0.weights.num_bits is a map"),
        (WEIGHTS, "type", json!("float"), "group_0.weights.type is \"float\""),
        (WEIGHTS, "symmetric", json!(false), "group_0.weights.symmetric is false"),
        (WEIGHTS, "strategy", json!("block"), "group_0.weights.strategy is block"),
        (WEIGHTS, "actorder", json!("group"), "group_0.weights.actorder is \"group\""),
        (INPUTS, "num_bits", json!(4), "group_0.input_activations.num_bits is 4"),
        (INPUTS, "dynamic", json!("local"), "group_0.input_activations.dynamic is \"local\""),
        (INPUTS, "dynamic", json!(false), "group_0.input_activations.strategy is token with dynamic false"),
        (INPUTS, "group_size", json!(128), "group_0.input_activations.group_size is 128"),
    ];
    let mut table = Table::default();
    for (place, key, value, says) in &cases {
        let tree = Model::usual().set(place, key, value.clone()).tree();
        table.refuses(&format!("{place} {key} {value}"), &tree, "", 12, &["compressed-tensors", "config.json", says]);
    }
    assert_eq!(table.finish(), cases.len());
}

#[test]
fn contradictions_name_both_sides() {
    let weight = format!("{UP}.weight");
    let scale = format!("{UP}.weight_scale");
    let static_ =
        || Model::new(group(json!({"strategy": "channel"}), json!({"strategy": "tensor"})), |o, _| vec![o, 1]);
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no scale", Model::usual().without(&scale), 15, &[&weight, "is I8", &scale, "is missing"]),
        ("a float with a scale", Model::usual().with(&weight, "BF16", &[WIDE, HIDDEN]), 15, &[&weight, "not I8", &scale]),
        ("a scale of another shape", Model::usual().with(&scale, "BF16", &[WIDE, 2]), 15, &[&scale, "[96, 2]", "[96, 1]", "by channel"]),
        ("a scale for all", Model::usual().with(&scale, "BF16", &[1]), 15, &[&scale, "[1]", "[96, 1]"]),
        ("a scale of I32", Model::usual().with(&scale, "I32", &[WIDE, 1]), 15, &[&scale, "I32"]),
        ("ignored", Model::usual().set("", "ignore", json!(["lm_head", UP])), 15, &["quantization_config.ignore", UP, "is I8"]),
        ("uncovered", Model::usual().set("/config_groups/group_0", "targets", json!(["re:.*attn"])), 15, &["no target", "model.layers.0.mlp.gate_proj", "is I8"]),
        ("weights with zero points", Model::usual().with(&format!("{UP}.weight_zero_point"), "I8", &[WIDE, 1]), 15, &["symmetric", "weight_zero_point"]),
        ("static without a scale", static_(), 15, &["static by tensor", "input_scale is missing"]),
        ("dynamic with a scale", Model::usual().with(&format!("{UP}.input_scale"), "BF16", &[1]), 15, &["dynamic by token", UP, "input_scale is stored"]),
        ("symmetric with a zero point", static_().beside_all("input_scale", "BF16", &[1]).beside_all("input_zero_point", "I8", &[1]), 15, &["input_zero_point is stored"]),
        ("two static scales", static_().beside_all("input_scale", "BF16", &[2]), 15, &["input_scale", "[2]", "[1]"]),
        ("an embedding of int8", Model::usual().with("model.embed_tokens.weight", "I8", &[32, HIDDEN]), 12, &["quantized embedding", "model.embed_tokens.weight"]),
        ("float8 weights", Model::usual().with(&weight, "F8_E4M3", &[WIDE, HIDDEN]), 12, &["FP8", &weight]),
        ("packed weights", Model::usual().with(&format!("{UP}.weight_packed"), "I32", &[WIDE, 16]), 12, &["weight_packed"]),
        ("groups that do not divide", Model::new(group(json!({"strategy": "group", "group_size": 48}), json!({"strategy": "token", "dynamic": true})), |o, _| vec![o, 2]), 15, &["groups of 48", "64 inputs"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}

/// A row of -128 times activations that are 255 from their zero point fits 32 bits up to this length, and no further.
#[test]
fn rows_whose_sums_need_more_than_32_bits_are_refused() {
    let most = I8_MAX_INPUTS;
    assert!(128 * 255 * most <= 1 << 31 && 128 * 255 * (most + 1) > 1 << 31);
    let mut table = Table::default();
    let wide = |inputs: u64| {
        let mut model = Model::usual();
        model.config["intermediate_size"] = inputs.into();
        for (part, outputs, inputs) in [("gate", inputs, HIDDEN), ("up", inputs, HIDDEN), ("down", HIDDEN, inputs)] {
            let module = format!("model.layers.0.mlp.{part}_proj");
            model.add(&format!("{module}.weight"), "I8", &[outputs, inputs]);
            model.add(&format!("{module}.weight_scale"), "BF16", &[outputs, 1]);
        }
        model.tree()
    };
    table.accepts("the widest row", &wide(most), "");
    let says = ["rows of 65794", "tensor model.layers.0.mlp.down_proj.weight is I8", "32 bits", "65793"];
    table.refuses("a wider row", &wide(most + 1), "", 12, &says);
    assert_eq!(table.finish(), 1);
}

#[test]
fn the_fixtures_of_compressed_tensors_run() {
    let cases = [
        ("llama-channel-token", "weights by channel, activations dynamic by token"),
        ("llama-tied", "weights by channel, activations dynamic by token"),
        ("qwen2", "weights by channel, activations dynamic by token"),
        ("qwen3", "weights by channel, activations dynamic by token"),
        ("phi3", "weights by channel, activations dynamic by token"),
        ("llama-tensor-token", "weights by tensor, activations dynamic by token"),
        ("llama-group-token", "weights by groups of 32, activations dynamic by token"),
        ("llama-static", "weights by channel, activations static by tensor"),
        ("llama-static-asymmetric", "weights by channel, activations static by tensor with zero points"),
        ("llama-token-asymmetric", "weights by channel, activations dynamic by token with zero points"),
        ("llama-dynamic-tensor", "weights by channel, activations dynamic by tensor"),
        ("llama-naive", "weights by channel, activations dynamic by token"),
    ];
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/int8");
    for (name, words) in cases {
        let report = table::judge(&root.join(name));
        assert!(report.verdict.runs(), "{name}: {}", report.first_line());
        let model = report.model.unwrap();
        assert_eq!(model.quantization, format!("{PREFIX}{words}"), "{name}");
        assert!(model.dtypes.iter().any(|summary| summary.dtype == DType::I8 && summary.tier == Some(Tier::Native)));
    }
}

/// Linear layers in packed integers of `bits` bits, in groups of 32 inputs.
fn packed(bits: u64, symmetric: bool) -> Model {
    let weights = json!({"num_bits": bits, "strategy": "group", "group_size": 32, "symmetric": symmetric});
    let mut model = Model::new(group(weights, json!({})), |outputs, inputs| vec![outputs, inputs / 32])
        .set("", "format", json!("pack-quantized"))
        .set("/config_groups/group_0", "input_activations", Value::Null);
    for (name, dtype, shape) in &mut model.tensors {
        if *dtype == "I8" {
            name.push_str("_packed");
            (*dtype, shape[1]) = ("I32", shape[1] * bits / 32);
        }
    }
    model
}

/// The same model with two experts of each projection of the feed-forward layer, stored as modules.
fn experts(mut model: Model) -> Model {
    let config = json!({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 2,
        "num_experts_per_tok": 1, "moe_intermediate_size": WIDE, "norm_topk_prob": true});
    model.config.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let (dense, others): (Vec<_>, Vec<_>) = model.tensors.into_iter().partition(|tensor| tensor.0.contains(".mlp."));
    let named = |expert: u32| {
        let named = move |name: &str| name.replace(".mlp.", &format!(".mlp.experts.{expert}."));
        dense.iter().map(move |(name, dtype, shape)| (named(name), *dtype, shape.clone()))
    };
    model.tensors = others.into_iter().chain(named(0)).chain(named(1)).collect();
    let norm = |part: &str| format!("model.layers.0.self_attn.{part}_norm.weight");
    model.with("model.layers.0.mlp.gate.weight", "BF16", &[2, HIDDEN]).with(&norm("q"), "BF16", &[16]).with(
        &norm("k"),
        "BF16",
        &[16],
    )
}

#[test]
fn packed_experts_run_or_are_refused_by_name() {
    const EXPERT: &str = "model.layers.0.mlp.experts.1.up_proj";
    let model = || experts(packed(4, true));
    assert_eq!(model().words(), "compressed-tensors: w4a16 by groups of 32");
    let (words, scale, zero) =
        (format!("{EXPERT}.weight_packed"), format!("{EXPERT}.weight_scale"), format!("{EXPERT}.weight_zero_point"));
    let stacked = "model.layers.0.mlp.experts.gate_up_proj";
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no scale", model().without(&scale), 15, &[&words, "is U4", &scale, "is missing"]),
        ("no words", model().without(&words), 15, &[&format!("{EXPERT}.weight")]),
        ("fewer words", model().with(&words, "I32", &[WIDE, 4]), 15, &[&words, "[96, 32]", "[96, 64]"]),
        ("scales of another shape", model().with(&scale, "BF16", &[WIDE, 1]), 15, &[&scale, "[96, 1]", "[96, 2]"]),
        ("zero points of symmetric weights", model().with(&zero, "I32", &[12, 2]), 15, &["symmetric", &zero]),
        ("inputs out of order", model().with(&format!("{EXPERT}.weight_g_idx"), "I32", &[HIDDEN]), 15, &["weight_g_idx", "out of order"]),
        ("ignored", model().set("", "ignore", json!(["lm_head", EXPERT])), 15, &["quantization_config.ignore", &words]),
        ("stacked floats as well", model().with(stacked, "BF16", &[2, 2 * WIDE, HIDDEN]), 12, &["4 stored tensors are not known", "experts.0.gate_proj.weight_packed"]),
        ("int8", experts(Model::usual()), 12, &["a mixture of experts with compressed-tensors int8 w8a8", "packed integers of one module for each"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}

#[test]
fn packed_integers_run() {
    let zero_points = |model: Model, dtype, each: u64| {
        let scales: Vec<_> = model.tensors.iter().filter(|tensor| tensor.0.ends_with("_scale")).cloned().collect();
        scales.into_iter().fold(model, |model, (name, _, shape)| {
            model.with(&name.replace("_scale", "_zero_point"), dtype, &[shape[0].div_ceil(each), shape[1]])
        })
    };
    let words = "by groups of 32";
    for (what, model, words) in [
        ("4 bits", packed(4, true), format!("w4a16 {words}")),
        ("8 bits", packed(8, true), format!("w8a16 {words}")),
        ("packed zero points", zero_points(packed(4, false), "I32", 8), format!("w4a16 {words} with zero points")),
        (
            "packed zero points of 8 bits",
            zero_points(packed(8, false), "I32", 4),
            format!("w8a16 {words} with zero points"),
        ),
        ("zero points in bytes", zero_points(packed(4, false), "I8", 1), format!("w4a16 {words} with zero points")),
        ("zero points that are all 0", packed(4, false), format!("w4a16 {words} with zero points")),
        ("their shapes", packed(4, true).with(&format!("{UP}.weight_shape"), "I64", &[2]), format!("w4a16 {words}")),
    ] {
        assert_eq!(model.words(), format!("compressed-tensors: {words}"), "{what}");
    }
    for entry in
        std::fs::read_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/packed")).unwrap()
    {
        let report = table::judge(&entry.unwrap().path());
        assert!(report.verdict.runs(), "{}", report.first_line());
        let dtypes = report.model.unwrap().dtypes;
        let native = |dtype| dtypes.iter().any(|summary| summary.dtype == dtype && summary.tier == Some(Tier::Native));
        assert!(native(DType::U4) || native(DType::U8), "{dtypes:?}");
    }
}

#[test]
fn packed_integers_that_contradict_are_refused() {
    const GROUP: &str = "/config_groups/group_0";
    const WEIGHTS: &str = "/config_groups/group_0/weights";
    let model = || packed(4, true);
    let (words, scale, zero) =
        (format!("{UP}.weight_packed"), format!("{UP}.weight_scale"), format!("{UP}.weight_zero_point"));
    #[rustfmt::skip]
    let cases: &[(&str, Model, u8, &[&str])] = &[
        ("no scale", model().without(&scale), 15, &[&words, "is U4", &scale, "is missing"]),
        ("no words", model().without(&words), 15, &[&format!("{UP}.weight")]),
        ("words of I8", model().with(&words, "I8", &[WIDE, 32]), 15, &[&words, "I8", "I32"]),
        ("words of one dimension", model().with(&words, "I32", &[WIDE * 8]), 15, &[&words, "two dimensions"]),
        ("fewer words", model().with(&words, "I32", &[WIDE, 4]), 15, &[&words, "[96, 32]", "[96, 64]"]),
        ("the weight as well", model().with(&format!("{UP}.weight"), "BF16", &[WIDE, HIDDEN]), 15, &[&words, &format!("{UP}.weight is stored")]),
        ("scales of another shape", model().with(&scale, "BF16", &[WIDE, 1]), 15, &[&scale, "[96, 1]", "[96, 2]"]),
        ("scales of integers", model().with(&scale, "I32", &[WIDE, 2]), 15, &[&scale, "I32", "F32, F16 or BF16"]),
        ("zero points of symmetric weights", model().with(&zero, "I32", &[12, 2]), 15, &["symmetric", &zero]),
        ("zero points of another shape", packed(4, false).with(&zero, "I32", &[96, 2]), 15, &[&zero, "[96, 2]", "[12, 2]"]),
        ("zero points of floats", packed(4, false).with(&zero, "BF16", &[96, 2]), 15, &[&zero, "BF16", "I8, or I32"]),
        ("inputs out of order", model().with(&format!("{UP}.weight_g_idx"), "I32", &[HIDDEN]), 15, &["weight_g_idx", "out of order"]),
        ("scales of activations", model().with(&format!("{UP}.input_scale"), "BF16", &[1]), 15, &["input_scale is stored", "floats"]),
        ("other groups", model().set(WEIGHTS, "group_size", json!(64)), 15, &["weight_scale", "[64, 2]", "[64, 1]"]),
        ("groups that cut a block", model().set(WEIGHTS, "group_size", json!(16)), 15, &["weight_scale", "[64, 4]"]),
        ("ignored", model().set("", "ignore", json!([UP])), 15, &["quantization_config.ignore", &words]),
        ("uncovered", model().set(GROUP, "targets", json!(["re:.*attn"])), 15, &["no target", "mlp.", "weight_packed"]),
        ("int8 by the config", model().set(GROUP, "format", json!("int-quantized")), 12, &["input_activations is null (w8a16)"]),
        ("3 bits", model().set(WEIGHTS, "num_bits", json!(3)), 12, &["num_bits is 3", "4 or 8"]),
        ("one scale for a matrix", model().set(WEIGHTS, "strategy", json!("tensor")).set(WEIGHTS, "group_size", Value::Null), 12, &["strategy is tensor", "channel"]),
        ("no strategy", model().set(WEIGHTS, "strategy", Value::Null).set(WEIGHTS, "group_size", Value::Null), 12, &["strategy is tensor", "channel"]),
        ("floats", model().set(WEIGHTS, "type", json!("float")), 12, &["type is \"float\""]),
        ("an order by activations", model().set(WEIGHTS, "actorder", json!("group")), 12, &["actorder is \"group\""]),
        ("integers as activations", model().set(GROUP, "input_activations", args(json!({"strategy": "token", "dynamic": true}))), 12, &["input_activations is given"]),
        ("a preset", model().set("", "config_groups", json!({"W4A16": ["Linear"]})), 12, &["config_groups.W4A16 is a preset"]),
    ];
    let mut table = Table::default();
    for (name, model, code, says) in cases {
        table.refuses(name, &model.tree(), "", *code, says);
    }
    assert_eq!(table.finish(), cases.len());
}
