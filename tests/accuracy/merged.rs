//! Adapters of layers that attend to nothing, and of others: as if what they add were merged into the weights.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why; errors are for reading

use crate::common::{self, adapters, archives, relative_l2, seeded_tokens};

use adapters::{Pair, SCALE};
use model_factory::{Adapter, Model};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeSet;
use std::path::Path;

const RANK: usize = 4;

/// A copy of the model in `base`, in F32, with the products of `pairs` added to its weights. Weights that are stored by inputs are too.
fn merge(base: &Path, pairs: &[Pair], folder: &Path) {
    for entry in std::fs::read_dir(base).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let bytes = std::fs::read(base.join("model.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut left: BTreeSet<&str> = pairs.iter().map(|pair| pair.layer.as_str()).collect();
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = stored
        .iter()
        .map(|(name, tensor)| {
            let pair = name.strip_suffix(".weight").and_then(|layer| pairs.iter().find(|pair| pair.layer == layer));
            let Some(Pair { layer, outputs, inputs, by_inputs, a, b }) = pair else {
                return (name.to_owned(), tensor.shape().to_vec(), tensor.data().to_vec());
            };
            left.remove(layer.as_str());
            let merged = tensor.data().as_chunks().0.iter().enumerate().flat_map(|(index, bytes)| {
                let (row, column) = match by_inputs {
                    true => (index % outputs, index / outputs),
                    false => (index / inputs, index % inputs),
                };
                let each = (0..RANK).map(|k| f64::from(b[row * RANK + k]) * f64::from(a[k * inputs + column]));
                ((f64::from(f32::from_le_bytes(*bytes)) + SCALE * each.sum::<f64>()) as f32).to_le_bytes()
            });
            (name.to_owned(), tensor.shape().to_vec(), merged.collect())
        })
        .collect();
    assert!(left.is_empty(), "{}: {left:?} are stored otherwise", base.display());
    let views =
        tensors.iter().map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
}

/// A copy of the model in `base`, which is in BF16, in F32: the same numbers.
fn widen(base: &Path, folder: &Path) {
    for entry in std::fs::read_dir(base).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let bytes = std::fs::read(base.join("model.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    archives::write_as(&folder.join("model.safetensors"), &stored, Dtype::BF16, Dtype::F32);
}

fn logits(model: &Model, adapters: &[(Adapter, f64)], tokens: &[u32]) -> Vec<f32> {
    let mut session = model.session();
    session.set_adapters(adapters).unwrap();
    session.all_logits(tokens).unwrap().rows().flatten().copied().collect()
}

/// Merged weights are rounded to F32 once, and sums have another order: through a few layers that is up to 1e-6 of logits, as transformers'
/// own F32 is from float64 (`expected.json`), and states carry it from position to position.
const BOUND: f64 = 4e-6;

/// Mamba, Mamba-2, short convolutions and delta nets, by themselves and beside attention, with the names of the roles that must be changed.
#[test]
fn layers_with_a_state_are_changed_as_merged_weights_change_them() {
    for (name, roles) in [
        ("mamba", &["in_proj", "out_proj", "x_proj", "dt_proj"][..]),
        ("falcon-mamba", &["in_proj", "out_proj"]),
        ("mamba-2", &["in_proj", "out_proj"]),
        ("falcon-h1", &["in_proj", "out_proj", "q_proj", "down_proj"]),
        ("granite-4-h", &["in_proj", "out_proj"]),
        ("jamba", &["in_proj", "out_proj", "x_proj", "dt_proj", "q_proj"]),
        ("nemotron-h", &["in_proj", "out_proj", "q_proj", "up_proj"]),
        ("lfm2", &["in_proj", "out_proj", "q_proj", "w1"]),
        ("lfm3", &["in_proj", "out_proj"]),
        ("qwen3-next", &["in_proj_qkvz", "in_proj_ba", "out_proj"]),
        ("kimi-linear", &["q_proj", "o_proj"]),
        ("olmo-hybrid", &["q_proj", "o_proj"]),
    ] {
        compare(name, roles);
    }
}

/// Weights by inputs, latents, a residual beside attention, shared experts, fused layers.
#[test]
fn layers_of_other_families_are_changed_as_merged_weights_change_them() {
    for (name, roles) in [
        ("gpt-2", &["c_attn", "c_proj", "c_fc"][..]),
        ("deepseek-v2-lite", &["q_proj", "o_proj", "gate_proj"]),
        ("deepseek-v3", &["q_a_proj", "kv_a_proj_with_mqa", "o_proj", "gate_proj"]),
        ("gemma-3n", &["q_proj", "o_proj", "gate_proj"]),
        ("gemma-4-e2b", &["q_proj", "o_proj", "gate_proj"]),
        ("glm-4", &["q_proj", "gate_up_proj"]),
        ("falcon", &["query_key_value", "dense_h_to_4h"]),
        ("gpt-neox", &["query_key_value", "dense"]),
        ("bloom", &["query_key_value", "dense"]),
        ("mpt", &["Wqkv", "out_proj", "up_proj"]),
        ("phi-2", &["q_proj", "dense", "fc1"]),
        ("qwen2-moe", &["q_proj", "shared_expert.gate_proj"]),
        ("olmoe", &["q_proj", "experts.0.gate_proj"]),
        ("command-r", &["q_proj", "gate_proj"]),
    ] {
        compare(name, roles);
    }
}

fn compare(name: &str, roles: &[&str]) {
    let [widened, adapter, merged] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut base = archives::path(&format!("{name}/f32"));
    if !base.exists() {
        widen(&archives::path(&format!("{name}/bf16")), widened.path());
        base = widened.path().into();
    }
    let model = common::load(&base);
    // A head that is the embedding has no weights of its own to merge into.
    let pairs = adapters::write(&model, RANK, adapter.path(), |layer| {
        layer.contains(".layers.") || layer.contains(".h.") || layer.contains(".blocks.")
    });
    for role in roles {
        assert!(pairs.iter().any(|pair| pair.layer.ends_with(role)), "{name}: no {role} is changed");
    }
    merge(&base, &pairs, merged.path());
    let tokens = seeded_tokens(11, 70, model.spec().vocab.min(256) as u32);
    let truth = logits(&common::load(merged.path()), &[], &tokens);
    let adapted = [(model.load_adapter(adapter.path()).unwrap(), 1.0)];
    let (found, without) =
        (relative_l2(&logits(&model, &adapted, &tokens), &truth), relative_l2(&logits(&model, &[], &tokens), &truth));
    println!("{name}: {} layers, {found:.1e} of {BOUND:.1e}, without {without:.2}", pairs.len());
    assert!(found <= BOUND && without > 1e-2, "{name}: {found:e}, without {without}");
}
