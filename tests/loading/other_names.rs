//! Models that are another by name: the bits are those of the same weights under the name that a fixture has.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common;

use model_factory::Model;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use std::path::Path;

/// The BF16 folder of `fixture` with other keys, of which null removes one, and one tensor more.
fn renamed(fixture: &str, folder: &Path, keys: &Value, further: &str) {
    let source = common::named(fixture).folder.join("bf16");
    for file in std::fs::read_dir(&source).expect("a folder") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), folder.join(file.file_name())).expect("a copy");
    }
    let config = std::fs::read(source.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    for (key, value) in keys.as_object().expect("an object") {
        match value {
            Value::Null => drop(config.as_object_mut().expect("an object").remove(key)),
            value => config[key] = value.clone(),
        }
    }
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file");
    let bytes = std::fs::read(source.join("model.safetensors")).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid weights");
    let eye = TensorView::new(safetensors::Dtype::BF16, vec![2, 4], &[0; 16]).expect("a tensor");
    let all = tensors.tensors().into_iter().chain([(further.to_owned(), eye)]);
    safetensors::serialize_to_file(all, None, &folder.join("model.safetensors")).expect("a file");
}

#[test]
fn glm_4_7_flash_is_deepseek_v3_whose_dense_layers_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = json!({
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "model_type": "glm4_moe_lite",
        "mlp_layer_types": ["dense", "sparse"],
        "first_k_dense_replace": null,
        "num_nextn_predict_layers": 1,
    });
    // A layer that predicts further tokens comes after the others.
    let predictor = "model.layers.2.self_attn.q_a_proj.weight";
    renamed("deepseek-v3", folder.path(), &keys, predictor);
    let models = [common::named("deepseek-v3").folder.join("bf16"), folder.path().into()].map(common::load);
    let logits = |model: &Model| common::bits(&mut model.session(), &common::tokens(20, 256));
    assert_eq!(logits(&models[0]), logits(&models[1]));
    let spec = models[1].spec();
    assert_eq!((&*spec.variant, &*spec.unused_tensors), ("GLM 4.7 Flash", &[predictor.to_owned()][..]));
}
