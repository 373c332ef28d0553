//! Attention and Mamba-2 side by side: a Falcon-H1 of one layer, made of the names and shapes of its tensors.

use crate::single::made;
use crate::table::{Table, judge};
use serde_json::{Value, json};

const CONFIG: &str = "config.json";

pub fn cases(table: &mut Table) {
    let of_layer: [(&str, &[u64]); 17] = [
        ("input_layernorm.weight", &[32]),
        ("self_attn.q_proj.weight", &[64, 32]),
        ("self_attn.k_proj.weight", &[32, 32]),
        ("self_attn.v_proj.weight", &[32, 32]),
        ("self_attn.o_proj.weight", &[32, 64]),
        ("mamba.in_proj.weight", &[196, 32]),
        ("mamba.conv1d.weight", &[128, 1, 4]),
        ("mamba.conv1d.bias", &[128]),
        ("mamba.dt_bias", &[4]),
        ("mamba.A_log", &[4]),
        ("mamba.D", &[4]),
        ("mamba.out_proj.weight", &[32, 64]),
        ("mamba.norm.weight", &[64]),
        ("pre_ff_layernorm.weight", &[32]),
        ("feed_forward.gate_proj.weight", &[48, 32]),
        ("feed_forward.up_proj.weight", &[48, 32]),
        ("feed_forward.down_proj.weight", &[32, 48]),
    ];
    let outside: [(&str, &[u64]); 3] = [
        ("model.embed_tokens.weight", &[272, 32]),
        ("model.final_layernorm.weight", &[32]),
        ("lm_head.weight", &[272, 32]),
    ];
    let of_layer = of_layer.map(|(name, shape)| (format!("model.layers.0.{name}"), shape.to_vec()));
    let outside = outside.map(|(name, shape)| (name.to_owned(), shape.to_vec()));
    let config = json!({
        "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "vocab_size": 272, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 1e11, "mamba_d_ssm": 64, "mamba_n_heads": 4,
        "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_rms_norm": true,
        "mamba_norm_before_gate": false, "key_multiplier": 0.5, "mlp_multipliers": [0.5, 2.0],
        "ssm_multipliers": [0.5, 0.25, 0.5, 2.0, 1.0], "tie_word_embeddings": false,
    });
    let sound = made(&config, of_layer.into_iter().chain(outside));
    table.accepts("two mixers", &sound.tree(), "");
    let text = judge(&sound.tree().path("")).to_string();
    assert!(text.contains("1 layer of Mamba-2, 1 of attention"), "{text}");
    for key in ["key_multiplier", "mlp_multipliers", "ssm_multipliers", "time_step_limit", "attention_bias"] {
        let without = sound.json(CONFIG, |config| drop(config.remove(key)));
        table.accepts(&format!("two mixers without {key}"), &without.tree(), "");
    }
    let cases: &[(&str, Value, u8, &str)] = &[
        ("key_multiplier", json!(0), 10, "key_multiplier"),
        ("lm_head_multiplier", json!("1"), 10, "lm_head_multiplier"),
        ("mlp_multipliers", json!([0.5]), 10, "mlp_multipliers"),
        ("mlp_multipliers", json!(0.5), 10, "mlp_multipliers"),
        ("ssm_multipliers", json!([0.5, 0.25, 0.5, 2.0]), 10, "ssm_multipliers"),
        ("ssm_multipliers", json!([0.5, 0.25, -0.5, 2.0, 1.0]), 10, "ssm_multipliers"),
        ("mamba_norm_before_gate", json!(true), 11, "mamba_norm_before_gate"),
        ("mamba_rms_norm", json!(1), 10, "mamba_rms_norm"),
        ("mamba_d_head", json!("auto"), 10, "mamba_d_head"),
        ("mamba_d_head", json!(32), 15, "mamba.in_proj.weight"),
        ("attention_bias", json!(true), 11, "attention_bias"),
        ("mlp_bias", json!(true), 11, "mlp_bias"),
        ("mamba_proj_bias", json!(true), 11, "mamba_proj_bias"),
        ("projectors_bias", json!(true), 11, "projectors_bias"),
        ("mamba_conv_bias", json!("no"), 10, "mamba_conv_bias"),
        ("hidden_act", json!("relu"), 11, "hidden_act"),
    ];
    for (key, value, code, says) in cases {
        let edited = sound.json(CONFIG, |config| drop(config.insert((*key).to_owned(), value.clone())));
        table.refuses(&format!("two mixers: {key} is {value}"), &edited.tree(), "", *code, &[says]);
    }
}
