//! What an image takes while a vision tower computes it is what the plan counts.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common::{self, archives};
use crate::counting;

use model_factory::CancellationToken;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;
use std::path::Path;

/// The tower of `gemma-3/bf16` with images of 64 by 64 patches, whose buffers are more than what a thread keeps.
fn write(folder: &Path) {
    let from = archives::unpacked_from("vision", "gemma-3").join("bf16");
    for name in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), folder.join(name)).expect("a copy");
    }
    let config = std::fs::read(from.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    config["vision_config"]["image_size"] = 896.into();
    config["mm_tokens_per_image"] = 256.into();
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file");
    let bytes = std::fs::read(from.join("model.safetensors")).expect("weights");
    let stored = SafeTensors::deserialize(&bytes).expect("sound weights");
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = stored
        .iter()
        .map(|(name, tensor)| {
            let (mut shape, mut data) = (tensor.shape().to_vec(), tensor.data().to_vec());
            if name.ends_with("position_embedding.weight") {
                shape[0] = 4096;
                data = data.repeat(256);
            }
            (name.to_owned(), shape, data)
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, data)| (name, TensorView::new(Dtype::BF16, shape.clone(), data).expect("a tensor")));
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("weights are written");
}

#[test]
fn an_image_takes_what_was_planned() {
    let _alone = counting::alone();
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path());
    for threads in [1, 2] {
        let model =
            common::builder().context_length(256).threads(threads).vision(true).load(folder.path()).expect("a model");
        let planned = model.report().plan.as_ref().expect("a plan").vision_memory as usize;
        let tower = model.tower().expect("a tower");
        let pixels = vec![0.5; 3 * 896 * 896];
        for _ in 0..2 {
            let forward =
                || tower.forward(&pixels, tower.sizes().largest, &CancellationToken::new()).expect("an image");
            let (rows, taken) = counting::peak(forward);
            assert_eq!(rows.len(), 256 * 64);
            assert!(taken <= planned, "{taken} of {planned}");
        }
        // Most of it is taken at once: what threads may keep is for wider models.
        let (_, taken) = counting::peak(|| {
            let model = common::builder()
                .context_length(256)
                .threads(threads)
                .vision(true)
                .load(folder.path())
                .expect("a model");
            let tower = model.tower().expect("a tower");
            tower.forward(&pixels, tower.sizes().largest, &CancellationToken::new()).expect("an image").len()
        });
        assert!(taken >= planned / 2, "{taken} of {planned}");
    }
}
