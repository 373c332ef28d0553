//! What an image takes while a vision tower computes it is what the plan counts.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; bytes are for reading

use crate::common::{self, archives};
use crate::counting;

use model_factory::diagnostics::spec::Grid;
use model_factory::{CancellationToken, Error};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
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
    let processor = std::fs::read(from.join("preprocessor_config.json")).expect("the processor");
    let mut processor: Value = serde_json::from_slice(&processor).expect("JSON");
    processor["size"] = json!({"height": 896, "width": 896});
    processor["image_seq_length"] = 256.into();
    std::fs::write(folder.join("preprocessor_config.json"), processor.to_string()).expect("a file");
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

/// The `bf16/` of an archive with images of as many pixels as 64 by 64 patches of this side, and a longer context.
fn write_squares(folder: &Path, name: &str, patch: usize) {
    let from = archives::unpacked_from("vision", name).join("bf16");
    let size = json!({"shortest_edge": 4 * patch * patch, "longest_edge": 64 * 64 * patch * patch});
    for name in ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), folder.join(name)).expect("a copy");
    }
    for (name, section, key, value) in [
        ("config.json", "text_config", "max_position_embeddings", Value::from(2048)),
        ("processor_config.json", "image_processor", "size", size),
    ] {
        let read = std::fs::read(from.join(name)).expect("a file");
        let mut object: Value = serde_json::from_slice(&read).expect("JSON");
        object[section][key] = value;
        std::fs::write(folder.join(name), object.to_string()).expect("a file");
    }
}

/// Where only the number of pixels bounds an image, that is also no more than a context holds the rows of.
#[test]
fn an_image_of_any_shape_takes_what_was_planned() {
    let _alone = counting::alone();
    // The side of a patch, the width of the language model, and the lists of rows that are added after its layers.
    for (name, patch, width, lists) in [("qwen3-vl", 8, 48, 2), ("qwen2.5-vl", 14, 32, 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        write_squares(folder.path(), name, patch);
        let a_patch = 3 * 2 * patch * patch;
        for (context, threads, grid) in [(1024, 1, [2, 2048]), (1024, 2, [64, 64]), (256, 2, [32, 32])] {
            let builder = || common::builder().context_length(context).threads(threads).vision(true);
            let never = CancellationToken::new();
            let [rows, columns] = grid;
            let pixels = vec![0.5; rows * columns * a_patch];
            let grid = Grid { rows, columns };
            let model = builder().load(folder.path()).expect("a model");
            let planned = model.report().plan.as_ref().expect("a plan").vision_memory as usize;
            let tower = model.tower().expect("a tower");
            assert_eq!(tower.sizes().largest.patches(), grid.patches(), "{name}");
            for _ in 0..2 {
                let (made, taken) = counting::peak(|| tower.forward(&pixels, grid, &never).expect("an image"));
                assert_eq!((made.rows.len(), made.deepstack.len()), (context * width, lists), "{name}");
                assert!(taken <= planned, "{name}: {taken} of {planned}");
            }
            // Most of it is taken at once, with the values of the image.
            drop(pixels);
            let (_, taken) = counting::peak(|| {
                let pixels = vec![0.5; grid.patches() * a_patch];
                let model = builder().load(folder.path()).expect("a model");
                model.tower().expect("a tower").forward(&pixels, grid, &never).expect("an image").rows.len()
            });
            println!("{name}, {context} tokens, {threads} threads: {taken} of {planned}");
            assert!(taken >= planned / 2 || context < 1024, "{name}: {taken} of {planned}");
            // One square more than the context holds.
            let more = Grid { rows: 2, columns: grid.patches() / 2 + 2 };
            let pixels = vec![0.5; more.patches() * a_patch];
            let error = Error::from(tower.forward(&pixels, more, &never).expect_err("more patches"));
            let says = format!("of {} patches, the sides multiples of 2", grid.patches());
            assert!(error.to_string().contains(&says) && error.code() == 2, "{error}");
        }
    }
}

/// Where images are cut, the values of all parts and the rows of each are planned.
#[test]
fn the_parts_of_an_image_are_planned() {
    let _alone = counting::alone();
    for (name, parts, values, rows) in [("idefics-3", 5, 16 * 3 * 64, 4 * 32), ("lfm2-vl", 5, 36 * 768, 9 * 32)] {
        let folder = archives::unpacked_from("vision", name).join("f32");
        let copy = tempfile::tempdir().expect("a folder");
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("a copy");
        }
        let read = std::fs::read(folder.join("processor_config.json")).expect("the processor");
        let mut processor: Value = serde_json::from_slice(&read).expect("JSON");
        processor["image_processor"]["do_image_splitting"] = false.into();
        std::fs::write(copy.path().join("processor_config.json"), processor.to_string()).expect("a file");
        let load = |path: &Path| common::builder().threads(1).vision(true).load(path).expect("a model");
        let planned = |path: &Path| load(path).report().plan.as_ref().expect("a plan").vision_memory as usize;
        // Four images are kept.
        let more = (parts - 1) * (values + 4 * rows) * size_of::<f32>();
        assert_eq!(planned(&folder), planned(copy.path()) + more, "{name}");
        let model = load(&folder);
        let tower = model.tower().expect("a tower");
        let grid = tower.sizes().largest;
        assert_eq!(grid.patches() * 192 * if name == "lfm2-vl" { 4 } else { 1 }, values, "{name}");
        let pixels = vec![0.5; values];
        for _ in 0..2 {
            let forward = || tower.forward(&pixels, grid, &CancellationToken::new()).expect("an image");
            let (made, taken) = counting::peak(forward);
            assert_eq!(made.rows.len(), rows, "{name}");
            assert!(taken <= planned(&folder), "{name}: {taken}");
        }
    }
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
        // The values of the image are in the plan too.
        let values = || vec![0.5; 3 * 896 * 896];
        for _ in 0..2 {
            let forward =
                || tower.forward(&values(), tower.sizes().largest, &CancellationToken::new()).expect("an image");
            let (rows, taken) = counting::peak(forward);
            assert_eq!(rows.rows.len(), 256 * 64);
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
            tower.forward(&values(), tower.sizes().largest, &CancellationToken::new()).expect("an image").rows.len()
        });
        assert!(taken >= planned / 2, "{taken} of {planned}");
    }
}
