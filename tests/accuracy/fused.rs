//! Quantized weights that are stored together: the bits of the same weights stored one by one.

#![allow(clippy::expect_used)]

use super::int8::copy_with;
use crate::common::{self, fixtures};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// Tensors by name: dtype, shape, bytes.
type Stored = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A copy of the checkpoint with the tensors and the config that `change` makes of its own.
fn changed(folder: &Path, change: impl FnOnce(&mut Stored, &mut Value)) -> TempDir {
    let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
    let tensors = SafeTensors::deserialize(&file).expect("valid");
    let of = |(name, view): (&str, TensorView<'_>)| {
        (name.to_owned(), (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    let mut stored: Stored = tensors.iter().map(of).collect();
    let config = std::fs::read(folder.join("config.json")).expect("the config");
    let mut config: Value = serde_json::from_slice(&config).expect("valid");
    change(&mut stored, &mut config);
    let views = stored.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("as many bytes as the shape has"))
    });
    let copy = copy_with(folder, &safetensors::serialize(views, None).expect("written"));
    std::fs::write(copy.path().join("config.json"), config.to_string()).expect("written");
    copy
}

/// Takes tensors out and puts them one below the other, as `name`.
fn join(stored: &mut Stored, parts: &[String], name: String) {
    let mut parts = parts.iter().map(|part| stored.remove(part).expect("a part"));
    let (dtype, mut shape, mut data) = parts.next().expect("a part");
    for (_, more, bytes) in parts {
        shape[0] += more[0];
        data.extend(bytes);
    }
    stored.insert(name, (dtype, shape, data));
}

fn bits(folder: &Path) -> Vec<u32> {
    let model = common::builder().load(folder).expect("it loads");
    let ids: Vec<u32> = (0..24).map(|id| id * 13 % 320).collect();
    model.all_logits(&ids).expect("logits").rows().flatten().map(|x| x.to_bits()).collect()
}

/// transformers' `FP8Experts`: `gate_up_proj` and `down_proj` of all experts, each with its scales, of blocks or of whole matrices.
#[test]
fn experts_in_fp8_may_be_stacked() {
    for by_tensor in [false, true] {
        let apart = changed(&fixtures().join("fp8/qwen3moe-block"), |stored, config| {
            config["quantization_config"]["weight_block_size"] = if by_tensor { Value::Null } else { json!([8, 128]) };
            let scales = stored.iter_mut().filter(|(name, _)| name.ends_with("weight_scale_inv"));
            for (name, (_, shape, data)) in scales {
                let [_, across] = shape[..] else { panic!("{name}") };
                if by_tensor {
                    (*shape, *data) = (vec![1], data[..4].to_vec());
                    continue;
                }
                // Blocks of fewer rows with the same scales, so that none has rows of both projections.
                let rows = match name.split('.').rev().nth(1) {
                    Some("q_proj") => 128,
                    Some("k_proj" | "v_proj") => 64,
                    _ => 136,
                };
                let row = |row: usize| data[row * 8 / 128 * 4 * across..][..4 * across].to_vec();
                (*data, shape[0]) = ((0..rows / 8).flat_map(row).collect(), rows / 8);
            }
        });
        let stacked = changed(apart.path(), |stored, _| {
            for (made, parts) in [("gate_up_proj", &["gate_proj", "up_proj"][..]), ("down_proj", &["down_proj"])] {
                for (end, of_all) in [("weight", ""), ("weight_scale_inv", "_scale_inv")] {
                    let part = |(expert, part)| format!("model.layers.0.mlp.experts.{expert}.{part}.{end}");
                    let parts = (0..4).flat_map(|expert| parts.iter().map(move |part| (expert, part))).map(part);
                    let name = format!("model.layers.0.mlp.experts.{made}{of_all}");
                    join(stored, &parts.collect::<Vec<_>>(), name.clone());
                    let shape = &mut stored.get_mut(&name).expect("it was made").1;
                    *shape = vec![4, shape[0] / 4, shape.get(1).copied().unwrap_or(1)];
                }
            }
        });
        assert!(bits(stacked.path()) == bits(apart.path()), "by tensor: {by_tensor}");
    }
}

/// Phi-3 stores queries, keys and values, and gate and up projections, together: rows of words, and words of zero points.
#[test]
fn packed_projections_may_be_fused() {
    let apart = fixtures().join("packed/llama-w4-32-asymmetric");
    let fused = changed(&apart, |stored, config| {
        (config["model_type"], config["architectures"]) = ("phi3".into(), json!(["Phi3ForCausalLM"]));
        for layer in 0..2 {
            for (module, made, parts) in [
                ("self_attn", "qkv_proj", &["q_proj", "k_proj", "v_proj"][..]),
                ("mlp", "gate_up_proj", &["gate_proj", "up_proj"]),
            ] {
                let name = |part: &str, end: &str| format!("model.layers.{layer}.{module}.{part}.{end}");
                for end in ["weight_packed", "weight_scale", "weight_zero_point"] {
                    let parts: Vec<String> = parts.iter().map(|part| name(part, end)).collect();
                    join(stored, &parts, name(made, end));
                }
                parts.iter().for_each(|part| drop(stored.remove(&name(part, "weight_shape"))));
            }
        }
    });
    assert!(bits(fused.path()) == bits(&apart));
}
