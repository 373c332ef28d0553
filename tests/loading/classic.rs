//! The classic families: values of keys that ask for another block are refused by name, and layouts of one model have the same bits.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common;

use serde_json::{Map, Value, json};
use std::path::Path;

type Keys = Map<String, Value>;

/// A copy of the BF16 folder of a fixture with other keys of `config.json`.
fn edited(name: &str, folder: &Path, edit: impl FnOnce(&mut Keys)) {
    for entry in std::fs::read_dir(common::named(name).folder.join("bf16")).expect("a folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
    }
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).expect("config.json")).expect("JSON");
    edit(config.as_object_mut().expect("an object"));
    std::fs::write(path, config.to_string()).expect("a file");
}

#[test]
fn values_that_ask_for_another_block_are_refused_by_name() {
    let cases = [
        ("gpt-2", "scale_attn_weights", json!(false), 11),
        ("gpt-2", "scale_attn_by_inverse_layer_idx", json!(true), 11),
        ("gpt-2", "add_cross_attention", json!(true), 11),
        ("gpt-2", "activation_function", json!("silu"), 11),
        ("gpt-2", "n_positions", json!(128), 15),
        ("gpt-2", "n_inner", json!(96), 15),
        ("gpt-neox", "hidden_act", json!("relu"), 11),
        ("gpt-neox", "rotary_pct", json!(0.0), 10),
        ("bloom", "apply_residual_connection_post_layernorm", json!(true), 11),
        ("bloom", "num_attention_heads", json!(5), 15),
        ("falcon", "alibi", json!(true), 11),
        ("falcon", "parallel_attn", json!(false), 11),
        ("falcon", "num_kv_heads", json!(4), 15),
        ("falcon-7b", "multi_query", json!(false), 15),
        ("falcon", "bias", json!(true), 15),
        ("mpt", "attn_config.alibi", json!(false), 11),
        ("mpt", "attn_config.prefix_lm", json!(true), 11),
        ("mpt", "attn_config.qk_ln", json!(true), 11),
        ("mpt", "attn_config.attn_uses_sequence_id", json!(true), 11),
        ("mpt", "attn_config.attn_type", json!("multiquery_attention"), 11),
        ("mpt", "attn_config.clip_qkv", json!(-1.0), 10),
        ("mpt", "attn_config.alibi_bias_max", json!(0), 10),
        ("mpt", "logit_scale", json!("inv_sqrt_d_model"), 11),
        ("mpt", "logit_scale", json!(0.5), 11),
        ("opt", "do_layer_norm_before", json!(false), 11),
        ("opt", "layer_norm_elementwise_affine", json!(false), 11),
        ("opt", "_remove_final_layer_norm", json!(true), 11),
        ("opt", "word_embed_proj_dim", json!(16), 11),
        ("opt", "activation_function", json!("gelu_new"), 11),
        ("starcoder", "multi_query", json!(false), 15),
        ("gpt-j", "rotary_dim", json!(32), 10),
        ("gpt-j", "rotary_dim", json!(3), 15),
    ];
    let mut failures = Vec::new();
    for (name, key, value, code) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        edited(name, folder.path(), |keys| match key.split_once('.') {
            Some((outer, inner)) => keys[outer][inner] = value.clone(),
            None => drop(keys.insert(key.into(), value.clone())),
        });
        let report = common::builder().diagnose(folder.path());
        // What does not fit the tensors is told by their names.
        if report.exit_code != code || code != 15 && !report.reason.contains(key) {
            failures.push(format!("{name}: {key} is {value}: {}, {}", report.exit_code, report.reason));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Where there is one head of keys, by heads and one after the other are the same order.
#[test]
fn a_key_whose_other_values_run_too_changes_the_logits() {
    let cases = [
        ("gpt-neox", "use_parallel_residual", json!(false)),
        ("gpt-neox", "hidden_act", json!("gelu_fast")),
        ("gpt-2", "activation_function", json!("gelu")),
        ("opt", "activation_function", json!("gelu")),
        ("gpt-j", "rotary_dim", json!(4)),
        ("mpt", "attn_config", json!({"clip_qkv": 1.0})),
        ("mpt", "attn_config", json!({"clip_qkv": 1.5, "softmax_scale": 0.2})),
        ("mpt", "attn_config", json!({"clip_qkv": 1.5, "alibi_bias_max": 4})),
    ];
    for (name, key, value) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        edited(name, folder.path(), |keys| drop(keys.insert(key.into(), value.clone())));
        let tokens: Vec<u32> = (3..40).collect();
        let [plain, other] = [common::named(name).folder.join("bf16"), folder.path().to_owned()]
            .map(|path| common::builder().load(path).expect("it loads").all_logits(&tokens).expect("it computes"));
        let distance = common::relative_l2(&other, &plain);
        assert!(distance > 1e-4, "{name}: {key} is {value}: {distance:.1e}");
    }
}
