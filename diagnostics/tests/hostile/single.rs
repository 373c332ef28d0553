//! Layers of one sub-layer each: a Nemotron-H made of the names and shapes of its tensors and another model's vocabulary.

use crate::build::{ARRAY, F32, I32, Tree, array, safetensors};
use crate::edit::{Files, Gguf};
use crate::table::{Table, judge};
use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::{DeviceChoice, Policy, diagnose};
use serde_json::{Map, Value, json};

const CONFIG: &str = "config.json";
const NAME: &str = "m.gguf";
const HIDDEN: u64 = 32;
/// Rows of Mamba-2's input: gates, values, keys and queries of two groups, steps.
const INPUT: u64 = 64 + 64 + 2 * 2 * 16 + 4;

/// Of each layer in the names of `config.json`: Mamba-2, a dense layer, attention, experts.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let of_layers: [&[(&str, &[u64])]; 4] = [
        &[
            ("in_proj.weight", &[INPUT, HIDDEN]),
            ("conv1d.weight", &[128, 1, 4]),
            ("conv1d.bias", &[128]),
            ("dt_bias", &[4]),
            ("A_log", &[4]),
            ("D", &[4]),
            ("norm.weight", &[64]),
            ("out_proj.weight", &[HIDDEN, 64]),
        ],
        &[("up_proj.weight", &[96, HIDDEN]), ("down_proj.weight", &[HIDDEN, 96])],
        &[
            ("q_proj.weight", &[64, HIDDEN]),
            ("k_proj.weight", &[32, HIDDEN]),
            ("v_proj.weight", &[32, HIDDEN]),
            ("o_proj.weight", &[HIDDEN, 64]),
        ],
        &[
            ("gate.weight", &[2, HIDDEN]),
            ("gate.e_score_correction_bias", &[2]),
            ("experts.0.up_proj.weight", &[48, HIDDEN]),
            ("experts.0.down_proj.weight", &[HIDDEN, 48]),
            ("experts.1.up_proj.weight", &[48, HIDDEN]),
            ("experts.1.down_proj.weight", &[HIDDEN, 48]),
            ("shared_experts.up_proj.weight", &[64, HIDDEN]),
            ("shared_experts.down_proj.weight", &[HIDDEN, 64]),
        ],
    ];
    let named = |(layer, tensors): (usize, &[(&str, &[u64])])| {
        let of =
            move |(name, shape): &(&str, &[u64])| (format!("backbone.layers.{layer}.mixer.{name}"), shape.to_vec());
        let norm = (format!("backbone.layers.{layer}.norm.weight"), vec![HIDDEN]);
        tensors.iter().map(of).chain([norm]).collect::<Vec<_>>()
    };
    let outside = [
        ("backbone.embeddings.weight", vec![272, HIDDEN]),
        ("backbone.norm_f.weight", vec![HIDDEN]),
        ("lm_head.weight", vec![272, HIDDEN]),
    ];
    let outside = outside.map(|(name, shape)| (name.to_owned(), shape));
    of_layers.into_iter().enumerate().flat_map(named).chain(outside).collect()
}

/// Tensors of these shapes, whose names begin with `front`.
pub fn named(front: &str, shapes: &[(&str, &[u64])]) -> Vec<(String, Vec<u64>)> {
    shapes.iter().map(|(name, shape)| (format!("{front}{name}"), shape.to_vec())).collect()
}

/// A folder of tensors of these shapes, all zeros, with a vocabulary of 272.
pub fn made(config: &Value, tensors: impl IntoIterator<Item = (String, Vec<u64>)>) -> Files {
    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors {
        let bytes = 2 * shape.iter().product::<u64>();
        header.insert(name, json!({"dtype": "BF16", "shape": shape, "data_offsets": [end, end + bytes]}));
        end += bytes;
    }
    let weights = safetensors(&Value::Object(header).to_string(), end as usize);
    Files::fixture("mistral-nemo/bf16").with(CONFIG, config.to_string()).with("model.safetensors", weights)
}

/// As NVIDIA publishes it.
fn folder() -> Files {
    let config = json!({
        "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hybrid_override_pattern": "M-*E",
        "num_hidden_layers": 4, "vocab_size": 272, "hidden_size": HIDDEN, "intermediate_size": 96, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5,
        "ssm_state_size": 16, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "conv_kernel": 4,
        "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "n_routed_experts": 2, "num_experts_per_tok": 1,
        "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 64, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": true, "routed_scaling_factor": 2.5, "moe_latent_size": null, "tie_word_embeddings": false,
    });
    made(&config, tensors())
}

/// Its first three layers, as llama.cpp converts them.
fn gguf() -> Gguf {
    let list = |numbers: [i32; 3]| array(I32, 3, numbers.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<_>>());
    let mut file = Gguf::fixture("mistral-nemo/q8_0.gguf").text("general.architecture", "nemotron_h");
    file.pairs.retain(|pair| !pair.key.starts_with("llama."));
    file.tensors.clear();
    for (key, value) in [
        ("block_count", 3),
        ("context_length", 2048),
        ("embedding_length", HIDDEN as u32),
        ("vocab_size", 272),
        ("attention.head_count", 4),
        ("attention.key_length", 16),
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", 64),
        ("ssm.state_size", 16),
        ("ssm.time_step_rank", 4),
        ("ssm.group_count", 2),
    ] {
        file = file.u32(&format!("nemotron_h.{key}"), value);
    }
    let file = file
        .f32("nemotron_h.attention.layer_norm_epsilon", 1e-5)
        .set("nemotron_h.attention.head_count_kv", ARRAY, list([0, 0, 2]))
        .set("nemotron_h.feed_forward_length", ARRAY, list([0, 96, 0]));
    let named = [
        ("token_embd.weight", &[HIDDEN, 272][..]),
        ("output_norm.weight", &[HIDDEN]),
        ("output.weight", &[HIDDEN, 272]),
        ("blk.0.attn_norm.weight", &[HIDDEN]),
        ("blk.0.ssm_in.weight", &[HIDDEN, INPUT]),
        ("blk.0.ssm_conv1d.weight", &[4, 128]),
        ("blk.0.ssm_conv1d.bias", &[128]),
        ("blk.0.ssm_dt.bias", &[4]),
        ("blk.0.ssm_a", &[1, 4]),
        ("blk.0.ssm_d", &[1, 4]),
        ("blk.0.ssm_norm.weight", &[32, 2]),
        ("blk.0.ssm_out.weight", &[64, HIDDEN]),
        ("blk.1.attn_norm.weight", &[HIDDEN]),
        ("blk.1.ffn_up.weight", &[HIDDEN, 96]),
        ("blk.1.ffn_down.weight", &[96, HIDDEN]),
        ("blk.2.attn_norm.weight", &[HIDDEN]),
        ("blk.2.attn_q.weight", &[HIDDEN, 64]),
        ("blk.2.attn_k.weight", &[HIDDEN, 32]),
        ("blk.2.attn_v.weight", &[HIDDEN, 32]),
        ("blk.2.attn_output.weight", &[64, HIDDEN]),
    ];
    named.iter().fold(file, |file, (name, shape)| file.with_tensor(name, shape, F32))
}

pub fn cases(table: &mut Table) {
    config(table);
    in_gguf(table);
}

fn config(table: &mut Table) {
    let sound = folder();
    let edit = |key: &str, value: &Value| {
        sound.json(CONFIG, |config| drop(config.insert(key.to_owned(), value.clone()))).tree()
    };
    let without = |keys: &[&str]| sound.json(CONFIG, |config| config.retain(|key, _| !keys.contains(&key.as_str())));
    table.accepts("single layers by letters", &sound.tree(), "");
    let text = judge(&sound.tree().path("")).to_string();
    assert!(text.contains("1 layer of Mamba-2, 2 of feed-forward, 1 of attention"), "{text}");
    let unlisted = without(&["hybrid_override_pattern", "num_hidden_layers"]);
    for kinds in [["linear_attention", "mlp", "full_attention", "moe"], ["mamba", "mlp", "attention", "moe"]] {
        let listed = unlisted.json(CONFIG, |config| drop(config.insert("layers_block_type".into(), json!(kinds))));
        table.accepts(&format!("single layers by {}", kinds[0]), &listed.tree(), "");
    }
    table.refuses("single layers by nothing", &unlisted.tree(), "", 10, &[CONFIG, "layer_types"]);
    for key in ["mamba_head_dim", "n_groups", "conv_kernel", "n_routed_experts", "moe_intermediate_size"] {
        table.refuses(&format!("single layers without {key}"), &without(&[key]).tree(), "", 10, &[CONFIG, key]);
    }
    // As transformers 5 may write it: names of its own, and the experts of a layer in one parameter.
    let stacked = ["up_proj", "down_proj"].map(|name| {
        let shape = if name == "up_proj" { vec![2, 48, HIDDEN] } else { vec![2, HIDDEN, 48] };
        (format!("model.layers.3.mixer.experts.{name}"), shape)
    });
    let others = tensors().into_iter().filter(|(name, _)| !name.contains(".experts."));
    let renamed = others.map(|(name, shape)| (name.replace("backbone.", "model."), shape)).chain(stacked);
    let config: Value = serde_json::from_slice(sound.get(CONFIG)).unwrap();
    table.accepts("single layers by names of transformers", &made(&config, renamed).tree(), "");
    let head = ("mtp.layers.0.eh_proj.weight".to_owned(), vec![HIDDEN, 2 * HIDDEN]);
    let config = sound.json(CONFIG, |config| drop(config.insert("num_nextn_predict_layers".into(), json!(1))));
    let config: Value = serde_json::from_slice(config.get(CONFIG)).unwrap();
    table.accepts(
        "single layers and a prediction head",
        &made(&config, tensors().into_iter().chain([head])).tree(),
        "",
    );
    for key in ["num_hidden_layers", "norm_topk_prob", "routed_scaling_factor", "n_group", "mlp_hidden_act"] {
        table.accepts(&format!("single layers without {key}"), &without(&[key]).tree(), "");
    }
    let cases: &[(&str, Value, u8, &str)] = &[
        ("hybrid_override_pattern", json!("M-*X"), 10, "hybrid_override_pattern"),
        ("hybrid_override_pattern", json!("M-*"), 15, "hybrid_override_pattern"),
        ("hybrid_override_pattern", json!(""), 15, "hybrid_override_pattern"),
        ("hybrid_override_pattern", json!(4), 10, "hybrid_override_pattern"),
        ("hybrid_override_pattern", json!("-M*E"), 15, "layers.0.mixer.up_proj.weight"),
        ("hybrid_override_pattern", json!("M-*-"), 15, "layers.3.mixer.up_proj.weight"),
        ("layers_block_type", json!(["mamba", "mlp", "attention", "experts"]), 10, "layers_block_type[3]"),
        ("layers_block_type", json!(["mamba", "mlp", "attention"]), 15, "layers_block_type"),
        ("num_hidden_layers", json!(5), 15, "hybrid_override_pattern"),
        ("mamba_hidden_act", json!("gelu"), 11, "mamba_hidden_act"),
        ("mlp_hidden_act", json!("silu"), 11, "mlp_hidden_act"),
        ("n_group", json!(2), 11, "n_group"),
        ("topk_group", json!(2), 11, "topk_group"),
        ("moe_latent_size", json!(16), 11, "moe_latent_size"),
        ("n_groups", json!(3), 15, "n_groups"),
        ("mamba_head_dim", json!(32), 15, "in_proj.weight"),
        ("mamba_head_dim", json!(i32::MAX), 10, "mamba_head_dim"),
        ("use_bias", json!(true), 15, "in_proj.bias"),
        ("mlp_bias", json!(true), 15, "up_proj.bias"),
        ("use_conv_bias", json!(1), 10, "use_conv_bias"),
        ("moe_shared_expert_intermediate_size", json!(96), 15, "shared_experts.up_proj.weight"),
        ("routed_scaling_factor", json!(0), 10, "routed_scaling_factor"),
    ];
    for (key, value, code, says) in cases {
        table.refuses(&format!("single layers: {key} is {value}"), &edit(key, value), "", *code, &[says]);
    }
    let gpu = Profile::find("h100").unwrap().hardware();
    let policy = Policy { device: DeviceChoice::Cuda(0), ..Policy::default() };
    let report = diagnose(&sound.tree().path(""), &gpu, &policy).to_string();
    assert!(report.contains("layers with a state"), "{report}");
}

fn in_gguf(table: &mut Table) {
    let sound = gguf();
    let tree = |file: &Gguf| Tree::new().with(NAME, file.build());
    let (kv, wide) = ("nemotron_h.attention.head_count_kv", "nemotron_h.feed_forward_length");
    let list = |numbers: &[i32]| {
        array(I32, numbers.len() as u64, numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())
    };
    table.accepts("single layers in GGUF", &tree(&sound), NAME);
    // As llama.cpp converts a model that predicts further tokens: a block of attention and experts behind the others.
    let predicts = sound
        .u32("nemotron_h.block_count", 4)
        .u32("nemotron_h.nextn_predict_layers", 1)
        .set(kv, ARRAY, list(&[0, 0, 2, 2]))
        .set(wide, ARRAY, list(&[0, 96, 0, 96]))
        .with_tensor("blk.3.attn_norm.weight", &[HIDDEN], F32)
        .with_tensor("blk.3.nextn.eh_proj.weight", &[2 * HIDDEN, HIDDEN], F32);
    table.accepts("single layers in GGUF and a prediction head", &tree(&predicts), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(&format!("single layers in GGUF: {case}"), &tree(file), NAME, code, &[NAME, says]);
    };
    case("one number of heads", &sound.u32(kv, 2), 10, kv);
    case("one width", &sound.u32(wide, 96), 10, wide);
    case("no widths", &sound.without(wide), 10, wide);
    case("widths of two layers", &sound.set(wide, ARRAY, list(&[0, 96])), 15, wide);
    case("other widths", &sound.set(wide, ARRAY, list(&[0, 96, 48])), 11, wide);
    case("no width", &sound.set(wide, ARRAY, list(&[0, 0, 0])), 10, wide);
    case("attention first", &sound.set(kv, ARRAY, list(&[2, 0, 2])), 15, "blk.0.attn_q.weight");
    case("a projection before experts", &sound.u32("nemotron_h.moe_latent_size", 16), 11, "moe_latent_size");
    case("experts and their tensors none", &sound.u32("nemotron_h.expert_count", 2), 10, "expert_used_count");
    case("no norm", &sound.without("nemotron_h.attention.layer_norm_epsilon"), 10, "layer_norm_rms_epsilon");
}
