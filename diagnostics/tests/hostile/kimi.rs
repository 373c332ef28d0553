//! Kimi delta attention beside latent attention, with one thing wrong.

use crate::WrongValue;
use crate::build::{ARRAY, F32, I32, Tree, array};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use serde_json::{Value, json};

const WEIGHTS: &str = "model.safetensors";

/// What `config.json` says of layers with a state, with another value under `key`.
fn states(key: &str, value: Value) -> Value {
    let mut config = json!({"num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1, 2], "full_attn_layers": [3]});
    config[key] = value;
    config
}

fn configs() -> Vec<WrongValue> {
    const OBJECT: &str = "linear_attn_config";
    let (heads, dim, kernel) = ("num_heads", "head_dim", "short_conv_kernel_size");
    let (kda, full) = ("kda_layers", "full_attn_layers");
    let nested = [
        (heads, json!(0), 10, "linear_attn_config.num_heads"),
        (heads, json!(4), 15, "self_attn.q_proj.weight"),
        (heads, json!("2"), 10, "linear_attn_config.num_heads"),
        (dim, json!(8), 15, "self_attn.q_proj.weight"),
        (dim, json!(-16), 10, "linear_attn_config.head_dim"),
        (kernel, json!(1), 10, "linear_attn_config.short_conv_kernel_size"),
        (kernel, json!(5), 15, "q_conv1d.weight"),
        (kda, json!([0, 1]), 10, "linear_attn_config.kda_layers"),
        (kda, json!([1]), 15, "linear_attn_config.kda_layers"),
        (kda, json!([1, 1]), 15, "layer 1 is in"),
        (kda, json!([1, 2, 3]), 15, "linear_attn_config.kda_layers"),
        (kda, json!(2), 10, "linear_attn_config.kda_layers"),
        (kda, Value::Null, 10, "linear_attn_config.kda_layers"),
        (full, json!([4]), 10, "linear_attn_config.full_attn_layers"),
        (full, json!([2]), 15, "layer 2 is in"),
        (full, json!(["3"]), 10, "linear_attn_config.full_attn_layers"),
        (full, Value::Null, 10, "linear_attn_config.full_attn_layers"),
    ];
    let nested =
        nested.into_iter().map(|(key, value, code, says)| ("kimi-linear", OBJECT, states(key, value), code, says));
    let others = [
        (
            OBJECT,
            json!({"kda_layers": [1, 3], "full_attn_layers": [2]}),
            10,
            "linear_attn_config.short_conv_kernel_size",
        ),
        ("mla_use_nope", json!(false), 11, "mla_use_nope"),
        ("moe_router_activation_func", json!("softmax"), 11, "moe_router_activation_func"),
        ("moe_layer_freq", json!(2), 11, "moe_layer_freq"),
        ("hidden_act", json!("gelu"), 11, "gelu"),
        ("qk_rope_head_dim", json!(8), 15, "self_attn.q_proj.weight"),
        ("first_k_dense_replace", json!(1), 15, "layers.1.block_sparse_moe"),
        ("num_experts", json!(5000), 10, "num_experts"),
        ("num_experts_per_token", json!(5), 15, "num_experts_per_token"),
        ("num_expert_group", json!(3), 15, "num_expert_group"),
        ("num_shared_experts", json!(2), 15, "shared_experts.gate_proj.weight"),
        ("routed_scaling_factor", json!("all"), 10, "routed_scaling_factor"),
        ("moe_renormalize", json!(1.5), 10, "moe_renormalize"),
        ("model_max_length", json!(0), 10, "model_max_length"),
        ("attention_bias", json!(true), 15, "kv_a_proj_with_mqa.bias"),
        ("layer_types", json!(["linear_attention", "kda", "full_attention"]), 10, "layer_types[1]"),
    ];
    nested.chain(others.map(|(key, value, code, says)| ("kimi-linear", key, value, code, says))).collect()
}

pub fn cases(table: &mut Table) {
    crate::refuses_values(table, configs());
    let folder = Files::fixture("kimi-linear/bf16");
    for name in [
        "f_a_proj.weight",
        "f_b_proj.weight",
        "g_b_proj.weight",
        "b_proj.weight",
        "k_conv1d.weight",
        "A_log",
        "dt_bias",
    ] {
        let name = format!("model.layers.1.self_attn.{name}");
        let without = folder.header(WEIGHTS, |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("model.layers.1.other".into(), tensor);
        });
        table.refuses(&format!("Kimi Linear without {name}"), &without.tree(), "", 15, &[&name]);
    }
    // As transformers 5.23 saves dense layers, under the name of those with experts.
    let saved = folder.header(WEIGHTS, |header| {
        let names: Vec<String> = header.keys().filter(|name| name.contains(".mlp.")).cloned().collect();
        assert_eq!(names.len(), 6);
        for name in names {
            let tensor = header.remove(&name).unwrap();
            header.insert(name.replace(".mlp.", ".block_sparse_moe."), tensor);
        }
    });
    table.accepts("Kimi Linear as transformers saves it", &saved.tree(), "");
    let gguf = Gguf::fixture("kimi-linear/q8_0.gguf");
    let of = |key: &str| format!("kimi-linear.{key}");
    let heads = |heads: &[i32]| {
        let bytes: Vec<u8> = heads.iter().flat_map(|heads| heads.to_le_bytes()).collect();
        gguf.set(&of("attention.head_count_kv"), ARRAY, array(I32, heads.len() as u64, bytes))
    };
    let keys = ["kda.head_dim", "ssm.conv_kernel", "attention.kv_lora_rank", "expert_gating_func"];
    for key in keys.map(of) {
        table.refuses(
            &format!("no {key}"),
            &Tree::new().with("m.gguf", gguf.without(&key).build()),
            "m.gguf",
            10,
            &[&key],
        );
    }
    let head_dim = of("kda.head_dim");
    // A file of before these keys has the sizes of heads in others.
    let older = gguf.without(&of("attention.key_length_mla"));
    for (case, file, code, says) in [
        ("no length of heads", older, 15, "head_count_kv"),
        ("a delta layer where attention is", heads(&[0, 0, 0]), 10, "head_count_kv"),
        ("attention where a delta layer is", heads(&[0, 1, 1]), 15, "blk.1."),
        ("heads of two layers", heads(&[0, 1]), 15, "head_count_kv"),
        ("two heads of latents", heads(&[0, 0, 2]), 15, "head_count_kv"),
        ("keys of 8 elements", gguf.u32(&head_dim, 8), 15, "blk.0.attn_q.weight"),
        ("keys of no element", gguf.u32(&head_dim, 0), 10, &head_dim),
        ("experts by softmax", gguf.u32(&of("expert_gating_func"), 1), 11, "expert_gating_func"),
        ("no first projection of decays", gguf.without_tensor("blk.0.ssm_f_a.weight"), 15, "blk.0.ssm_f_a.weight"),
        (
            "a tensor of another kind",
            gguf.with_tensor("blk.0.ssm_dt.weight", &[16, 16], F32),
            12,
            "blk.0.ssm_dt.weight",
        ),
    ] {
        let case = format!("Kimi Linear in GGUF: {case}");
        table.refuses(&case, &Tree::new().with("m.gguf", file.build()), "m.gguf", code, &[says]);
    }
}
