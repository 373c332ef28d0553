//! Latent attention and experts in groups: a DeepSeek V3 made of the names and shapes of its tensors and another model's
//! vocabulary.

use crate::build::{F32, Tree, safetensors};
use crate::edit::{Files, Gguf};
use crate::table::{Table, judge};
use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::{DeviceChoice, Policy, diagnose};
use serde_json::{Map, Value, json};

const CONFIG: &str = "config.json";
const NAME: &str = "m.gguf";

/// Of a layer's attention: the names in GGUF and in `config.json`, and the shape as there.
const ATTENTION: [(&str, &str, &[u64]); 8] = [
    ("attn_norm", "input_layernorm", &[32]),
    ("ffn_norm", "post_attention_layernorm", &[32]),
    ("attn_q_a", "self_attn.q_a_proj", &[24, 32]),
    ("attn_q_a_norm", "self_attn.q_a_layernorm", &[24]),
    ("attn_q_b", "self_attn.q_b_proj", &[2 * (8 + 4), 24]),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", &[16 + 4, 32]),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm", &[16]),
    ("attn_output", "self_attn.o_proj", &[32, 2 * 12]),
];

const DENSE: [(&str, &str, &[u64]); 3] = [
    ("ffn_gate", "mlp.gate_proj", &[48, 32]),
    ("ffn_up", "mlp.up_proj", &[48, 32]),
    ("ffn_down", "mlp.down_proj", &[32, 48]),
];

/// Experts of `config.json`, each of which has a tensor of its own.
const EXPERTS: [(&str, &[u64]); 3] = [("gate_proj", &[16, 32]), ("up_proj", &[16, 32]), ("down_proj", &[32, 16])];

const OUTSIDE: [(&str, &str, &[u64]); 3] = [
    ("token_embd", "model.embed_tokens", &[272, 32]),
    ("output_norm", "model.norm", &[32]),
    ("output", "lm_head", &[272, 32]),
];

/// Two layers, the first of which is dense.
fn folder() -> Files {
    let (mut header, mut end) = (Map::new(), 0);
    let mut put = |name: String, shape: &[u64]| {
        let bytes = 2 * shape.iter().product::<u64>();
        header.insert(name, json!({"dtype": "BF16", "shape": shape, "data_offsets": [end, end + bytes]}));
        end += bytes;
    };
    for layer in 0..2 {
        let mut of_layer = |name: &str, shape: &[u64]| put(format!("model.layers.{layer}.{name}"), shape);
        ATTENTION.iter().for_each(|(_, name, shape)| of_layer(&format!("{name}.weight"), shape));
        of_layer("self_attn.kv_b_proj.weight", &[2 * (8 + 12), 16]);
        if layer == 0 {
            DENSE.iter().for_each(|(_, name, shape)| of_layer(&format!("{name}.weight"), shape));
            continue;
        }
        of_layer("mlp.gate.weight", &[6, 32]);
        of_layer("mlp.gate.e_score_correction_bias", &[6]);
        for (name, shape) in EXPERTS {
            (0..6).for_each(|expert| of_layer(&format!("mlp.experts.{expert}.{name}.weight"), shape));
            of_layer(&format!("mlp.shared_experts.{name}.weight"), shape);
        }
    }
    OUTSIDE.iter().for_each(|(_, name, shape)| put(format!("{name}.weight"), shape));
    let config = json!({
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 2, "vocab_size": 272,
        "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 24,
        "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12, "n_routed_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "n_group": 3, "topk_group": 2,
        "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "rope_theta": 10000.0, "rope_scaling": {"type": "yarn",
        "factor": 4.0, "original_max_position_embeddings": 512, "mscale": 1.0, "mscale_all_dim": 1.0},
        "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1,
    });
    let weights = safetensors(&Value::Object(header).to_string(), end as usize);
    Files::fixture("mistral-nemo/bf16").with(CONFIG, config.to_string()).with("model.safetensors", weights)
}

/// The first layer, as llama.cpp converts it.
fn gguf() -> Gguf {
    let mut file = Gguf::fixture("mistral-nemo/q8_0.gguf").text("general.architecture", "deepseek2");
    file.pairs.retain(|pair| !pair.key.starts_with("llama."));
    file.tensors.clear();
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 2048),
        ("embedding_length", 32),
        ("feed_forward_length", 48),
        ("vocab_size", 272),
        ("leading_dense_block_count", 1),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.q_lora_rank", 24),
        ("attention.kv_lora_rank", 16),
        ("attention.key_length", 20),
        ("attention.value_length", 16),
        ("attention.key_length_mla", 12),
        ("attention.value_length_mla", 12),
        ("rope.dimension_count", 4),
    ] {
        file = file.u32(&format!("deepseek2.{key}"), value);
    }
    let file = file.f32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6);
    let stored = |file: Gguf, name: &str, shape: &[u64]| {
        file.with_tensor(&format!("{name}.weight"), &shape.iter().rev().copied().collect::<Vec<_>>(), F32)
    };
    let of_layer = ATTENTION.iter().chain(&DENSE).map(|(name, _, shape)| (format!("blk.0.{name}"), *shape));
    let outside = OUTSIDE.iter().map(|(name, _, shape)| ((*name).to_owned(), *shape));
    let file = of_layer.chain(outside).fold(file, |file, (name, shape)| stored(file, &name, shape));
    stored(stored(file, "blk.0.attn_k_b", &[2, 16, 8]), "blk.0.attn_v_b", &[2, 12, 16])
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
    let without = |key: &str| sound.json(CONFIG, |config| drop(config.remove(key))).tree();
    table.accepts("latent attention", &sound.tree(), "");
    for key in
        ["topk_method", "scoring_func", "moe_layer_freq", "norm_topk_prob", "routed_scaling_factor", "rope_scaling"]
    {
        table.accepts(&format!("latent attention without {key}"), &without(key), "");
    }
    table.refuses(
        "latents without n_routed_experts",
        &without("n_routed_experts"),
        "",
        10,
        &[CONFIG, "n_routed_experts"],
    );
    // What is absent is transformers' default.
    let defaults =
        [("kv_lora_rank", 512), ("q_lora_rank", 1536), ("qk_nope_head_dim", 128), ("moe_intermediate_size", 2048)];
    for (key, _) in defaults {
        table.refuses(&format!("latents without {key}"), &without(key), "", 15, &["_proj"]);
    }
    table.refuses("latents without groups", &without("n_group"), "", 15, &["n_routed_experts"]);
    let cases: &[(&str, Value, u8, &str)] = &[
        ("q_lora_rank", json!(null), 15, "self_attn.q_proj.weight"),
        ("q_lora_rank", json!(0), 10, "q_lora_rank"),
        ("kv_lora_rank", json!(-1), 10, "kv_lora_rank"),
        ("kv_lora_rank", json!(i32::MAX), 15, "kv_a_proj_with_mqa"),
        ("qk_rope_head_dim", json!(3), 15, "3 elements of a head are rotated"),
        ("v_head_dim", json!(8), 15, "kv_b_proj"),
        ("n_group", json!(4), 15, "n_group"),
        ("topk_group", json!(4), 15, "topk_group"),
        ("topk_group", json!(0), 10, "topk_group"),
        ("num_experts_per_tok", json!(5), 15, "topk_group"),
        ("n_shared_experts", json!(2), 15, "shared_experts"),
        ("n_shared_experts", json!(0), 12, "shared_experts"),
        ("first_k_dense_replace", json!(3), 10, "first_k_dense_replace"),
        ("first_k_dense_replace", json!(2), 15, "layers.1.mlp"),
        ("scoring_func", json!("softmax"), 11, "scoring_func"),
        ("topk_method", json!("greedy"), 11, "topk_method"),
        ("moe_layer_freq", json!(2), 11, "moe_layer_freq"),
        ("rope_interleave", json!(false), 11, "rope_interleave"),
        ("rope_interleave", json!(null), 11, "rope_interleave"),
        ("attention_bias", json!(true), 15, "q_a_proj.bias"),
        ("partial_rotary_factor", json!(0.5), 11, "partial_rotary_factor"),
    ];
    for (key, value, code, says) in cases {
        table.refuses(&format!("latents: {key} is {value}"), &edit(key, value), "", *code, &[says]);
    }
    // V2: the model's own code and transformers differ in what they make of it.
    let second = sound.json(CONFIG, |config| {
        config.extend(
            json!({"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "norm_topk_prob": true,
            "scoring_func": "softmax", "topk_method": "group_limited_greedy"})
            .as_object()
            .unwrap()
            .clone(),
        );
    });
    table.refuses("DeepSeek V2, normalized", &second.tree(), "", 11, &["norm_topk_prob"]);
    let listed = sound.json(CONFIG, |config| {
        config.extend(
            json!({"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite",
            "mlp_layer_types": ["dense", "dense", "sparse"]})
            .as_object()
            .unwrap()
            .clone(),
        );
    });
    table.refuses("more kinds than layers", &listed.tree(), "", 15, &["mlp_layer_types"]);
    let gpu = Profile::find("h100").unwrap().hardware();
    let policy = Policy { device: DeviceChoice::Cuda(0), ..Policy::default() };
    let report = diagnose(&sound.tree().path(""), &gpu, &policy).to_string();
    assert!(report.contains("latent attention"), "{report}");
    assert!(judge(&sound.tree().path("")).to_string().contains("2 heads of 20 over 1"), "a head is what is cached");
}

fn in_gguf(table: &mut Table) {
    let sound = gguf();
    let tree = |file: &Gguf| Tree::new().with(NAME, file.build());
    table.accepts("latent attention in GGUF", &tree(&sound), NAME);
    let [keys, values] = ["key_length_mla", "value_length_mla"].map(|key| format!("deepseek2.attention.{key}"));
    let mut older = sound.without(&keys).without(&values).u32("deepseek2.attention.head_count_kv", 2);
    older.tensors.retain(|tensor| !tensor.name.contains("_b.weight") || tensor.name.contains("attn_q_b"));
    let older = older.with_tensor("blk.0.attn_kv_b.weight", &[16, 2 * (8 + 12)], F32);
    let older = older.u32("deepseek2.attention.key_length", 12).u32("deepseek2.attention.value_length", 12);
    table.accepts("latents in GGUF of early 2025", &tree(&older), NAME);
    let one = older.u32("deepseek2.attention.head_count_kv", 1);
    table.refuses("latents in GGUF of neither kind", &tree(&one), NAME, 15, &["head_count_kv is 1"]);
    for (key, value, code, says) in [
        ("attention.key_length", 24, 15, "attention.key_length is 24"),
        ("attention.value_length", 12, 15, "attention.value_length is 12"),
        ("attention.head_count_kv", 2, 15, "attention.head_count_kv is 2"),
        ("attention.key_length_mla", 4, 15, "attention.key_length_mla is 4"),
        ("attention.value_length_mla", 8, 15, "attn_v_b"),
        ("attention.kv_lora_rank", 8, 15, "attention.key_length"),
    ] {
        let edited = sound.u32(&format!("deepseek2.{key}"), value);
        table.refuses(&format!("latents in GGUF: {key} is {value}"), &tree(&edited), NAME, code, &[says]);
    }
    for key in ["attention.kv_lora_rank", "rope.dimension_count", "leading_dense_block_count"] {
        let edited = sound.without(&format!("deepseek2.{key}"));
        match key {
            "leading_dense_block_count" => table.accepts("dense layers of no number", &tree(&edited), NAME),
            _ => table.refuses(&format!("latents in GGUF without {key}"), &tree(&edited), NAME, 10, &[key]),
        }
    }
}
