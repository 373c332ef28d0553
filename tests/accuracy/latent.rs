//! The projection of keys and values of latents where it is no matrix of floats: that of keys is multiplied by columns.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common::{self, relative_l2};
use half::bf16;
use model_factory::Model;
use model_factory::diagnostics::DType;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

/// Rows and columns of a block. A head has 48 rows, so that blocks lie across heads and across keys and values.
const BLOCK: usize = 32;

/// The byte of `value`, which E4M3 has.
fn e4m3(value: f32) -> u8 {
    let of = |byte: u8| {
        let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
        let size = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7) };
        if byte > 127 { -size } else { size }
    };
    (0..=255).filter(|byte| byte & 127 != 127).find(|byte| of(*byte) == value).expect("a number of one digit")
}

/// Weights of an archive have few levels, which are the same numbers in FP8: only the order of sums and the precision of
/// activations differ. Scales differ from block to block.
#[test]
fn latents_in_fp8_blocks_are_those_of_the_same_floats() {
    let (source, folder) = (common::archives::path("deepseek-v3/bf16"), tempfile::tempdir().expect("a folder"));
    for file in std::fs::read_dir(&source).expect("a folder") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("a copy");
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).expect("config.json")).expect("JSON");
    config["quantization_config"] =
        json!({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]});
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");

    let bytes = std::fs::read(source.join("model.safetensors")).expect("weights");
    let stored = SafeTensors::deserialize(&bytes).expect("sound weights");
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, tensor) in stored.iter() {
        let (shape, data) = (tensor.shape().to_vec(), tensor.data());
        let Some(module) = name.strip_suffix("kv_b_proj.weight") else {
            tensors.push((name.to_owned(), tensor.dtype(), shape, data.to_vec()));
            continue;
        };
        let values: Vec<f32> =
            data.as_chunks::<2>().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect();
        let step = values.iter().filter(|value| **value != 0.0).fold(f32::MAX, |least, value| least.min(value.abs()));
        let scale = |row: usize| step * 2f32.powi((row / BLOCK) as i32);
        let of_rows = values.chunks_exact(shape[1]).enumerate();
        let codes =
            of_rows.flat_map(|(row, values)| values.iter().map(move |value| e4m3(value / scale(row)))).collect();
        let scales: Vec<f32> = (0..shape[0].div_ceil(BLOCK)).map(|block| scale(block * BLOCK)).collect();
        assert_eq!((scales.len(), shape[1]), (3, BLOCK));
        let scales = scales.into_iter().flat_map(f32::to_le_bytes).collect();
        tensors.push((format!("{module}kv_b_proj.weight_scale_inv"), Dtype::F32, vec![3, 1], scales));
        tensors.push((name.to_owned(), Dtype::F8_E4M3, shape, codes));
    }
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("the shape of the bytes"))
    });
    safetensors::serialize_to_file(views, None, &folder.path().join("model.safetensors")).expect("weights are written");

    let [floats, blocks] = [source.as_path(), folder.path()].map(common::load);
    assert!(blocks.spec().matrices().any(|tensor| tensor.dtype == DType::F8_E4M3));
    let logits = |model: &Model| model.all_logits(&common::tokens(40, 256)).expect("logits")[..].to_vec();
    let error = relative_l2(&logits(&blocks), &logits(&floats));
    // BF16 rounds the activations of values: as far from the truth as the BF16 file itself may be.
    assert!(error < 1.2e-2, "{error:.2e}");
}
