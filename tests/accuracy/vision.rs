//! Vision towers: the rows that they make of images against transformers in float64, the same bits however they are computed, and a
//! language model that does not change by them.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; distances are for reading

use crate::common::{self, archives, bits_of, tokens};

use model_factory::diagnostics::spec::Grid;
use model_factory::error::EngineError;
use model_factory::{CancellationToken, Error, Model};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
pub(crate) struct Expected {
    tower: String,
    pub(crate) files: BTreeMap<String, File>,
}

#[derive(Deserialize)]
pub(crate) struct File {
    dtype: String,
    pub(crate) transformers_error: f64,
}

/// An image as its processor gives it, and the rows that it becomes.
pub(crate) struct Image {
    pixels: Vec<f32>,
    grid: Grid,
    pub(crate) rows: Vec<f64>,
}

impl Image {
    /// An image of as many patches with these values, without its rows.
    #[cfg(feature = "images")]
    pub(crate) fn of_values(&self, value: impl Fn(usize) -> f32) -> Image {
        Image { pixels: (0..self.pixels.len()).map(value).collect(), grid: self.grid, rows: Vec::new() }
    }
}

pub(crate) fn expected(folder: &Path) -> Expected {
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("expectations");
    serde_json::from_str(&text).expect("expectations")
}

pub(crate) fn images(folder: &Path) -> Vec<Image> {
    let bytes = std::fs::read(folder.join("images.safetensors")).expect("images");
    let stored = SafeTensors::deserialize(&bytes).expect("sound images");
    let wide = |name: String| stored.tensor(&name).map(|tensor| tensor.data().to_vec());
    let image = |index: usize| {
        let (pixels, rows) = (wide(format!("pixels.{index}")).ok()?, wide(format!("rows.{index}")).expect("rows"));
        let pixels = pixels.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let grid = wide(format!("grid.{index}")).expect("the patches");
        let grid: Vec<usize> = grid.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as usize).collect();
        let grid = Grid { rows: grid[0], columns: grid[1] };
        Some(Image { pixels, grid, rows: rows.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect() })
    };
    (0..).map_while(image).collect()
}

fn folder(name: &str) -> PathBuf {
    archives::unpacked_from("vision", name)
}

/// The rows of an image, and after them those that are added to later layers.
pub(crate) fn rows(model: &Model, image: &Image) -> Vec<f32> {
    let tower = model.tower().expect("a tower");
    let made = tower.forward(&image.pixels, image.grid, &CancellationToken::new()).expect("an image computes");
    let sizes = tower.sizes();
    let all: Vec<Vec<f32>> = std::iter::once(made.rows).chain(made.deepstack).collect();
    for rows in &all {
        assert_eq!(rows.len(), image.grid.patches() / sizes.patches_a_token * sizes.output);
    }
    all.concat()
}

pub(crate) fn distance(found: &[f32], truth: &[f64]) -> f64 {
    assert_eq!(found.len(), truth.len());
    let (square, pairs) = (|x: f64| x * x, found.iter().zip(truth));
    let far: f64 = pairs.map(|(x, truth)| square(f64::from(*x) - truth)).sum();
    (far / truth.iter().map(|truth| square(*truth)).sum::<f64>()).sqrt()
}

#[test]
fn rows_of_images_are_as_near_to_the_truth_as_those_of_transformers() {
    let mut compared = 0;
    for name in archives::names_in("vision") {
        let folder = folder(&name);
        let Expected { tower, files } = expected(&folder);
        for (file, File { dtype, transformers_error }) in files {
            let model = common::builder().vision(true).load(folder.join(&file)).expect("the model loads");
            let said = model.report().model.as_ref().and_then(|model| model.vision).expect("a tower");
            assert_eq!(said.tower, tower);
            // Another order of the same F32 sums is as far from the truth as transformers' order, give or take; of narrower dtypes
            // transformers rounds activations more often.
            let bound = if dtype == "F32" { 2.0 * transformers_error } else { transformers_error };
            let images = images(&folder);
            let error = images.iter().map(|image| distance(&rows(&model, image), &image.rows)).fold(0.0, f64::max);
            println!("{name}/{file}: {error:.2e} of {bound:.2e}: {:.2}", error / bound);
            assert!(error <= bound, "{name}/{file}: {error:e} is more than {bound:e}");
            compared += images.len();
        }
    }
    assert!(compared >= 33, "only {compared} images");
}

#[test]
fn rows_of_images_have_the_same_bits_however_they_are_computed() {
    for name in archives::names_in("vision") {
        for dtype in ["f32", "bf16"] {
            let (folder, images) = (folder(&name), images(&folder(&name)));
            let load = |threads| {
                let builder = common::builder().vision(true).threads(threads);
                builder.load(folder.join(dtype)).expect("the model loads")
            };
            let (alone, several) = (load(1), load(3));
            let first = bits_of(&rows(&alone, &images[0]));
            assert_eq!(bits_of(&rows(&several, &images[0])), first, "{name} {dtype}: three threads");
            assert_ne!(bits_of(&rows(&several, &images[1])), first, "{name}: another image");
            // Beside a text, and beside another image.
            let text = bits_of(&several.session().next_logits(&tokens(40, 200)).expect("tokens compute"));
            std::thread::scope(|scope| {
                let beside = scope.spawn(|| bits_of(&several.session().next_logits(&tokens(40, 200)).expect("tokens")));
                let other = scope.spawn(|| rows(&several, &images[1]));
                assert_eq!(bits_of(&rows(&several, &images[0])), first, "{name} {dtype}: in company");
                assert_eq!(beside.join().expect("a text"), text, "{name} {dtype}: the text in company");
                assert_eq!(other.join().expect("an image"), rows(&alone, &images[1]));
            });
        }
    }
}

#[test]
fn a_language_model_is_the_same_with_its_tower_and_without() {
    for name in archives::names_in("vision") {
        let path = folder(&name).join("bf16");
        let load = |on| common::builder().vision(on).threads(2).load(&path).expect("the model loads");
        let (without, with) = (load(false), load(true));
        let logits = |model: &Model| bits_of(&model.all_logits(&tokens(40, 200)).expect("tokens compute"));
        assert_eq!(logits(&without), logits(&with), "{name}");
        assert!(without.tower().is_none());

        let plan = |model: &Model| model.report().plan.clone().expect("a plan");
        let (plain, planned) = (plan(&without), plan(&with));
        assert_eq!((plain.vision_weights, plain.vision_memory), (0, 0), "{name}");
        let tower = with.spec().vision.as_deref().expect("a tower");
        assert_eq!(planned.vision_weights, tower.tensors().map(|tensor| tensor.bytes).sum::<u64>(), "{name}");
        assert!(planned.vision_memory > 0);
        assert_eq!(planned.total - planned.kv_cache, plain.total - plain.kv_cache + planned.vision_memory, "{name}");

        let unused = |model: &Model| model.spec().unused_tensors.clone();
        let names: Vec<String> = tower.tensors().map(|tensor| tensor.name.clone()).collect();
        assert!(names.iter().all(|name| unused(&without).contains(name)), "{name}: not used without it");
        assert_eq!(unused(&with), Vec::<String>::new(), "{name}: all are used with it");
        let said = |model: &Model| model.report().to_string();
        assert!(said(&without).contains("stored tensors are not used"), "{}", said(&without));
        let [rows, columns] = [tower.largest.rows, tower.largest.columns].map(|side| side * tower.patch_size);
        let up_to = if tower.smaller { "up to " } else { "" };
        let size = if tower.any_shape { (rows * columns).to_string() } else { format!("{rows} by {columns}") };
        let sees = format!("images of {up_to}{size} pixels as {} tokens", tower.tokens(tower.largest));
        assert!(said(&with).contains(&sees), "{}", said(&with));
    }
}

/// Names as other writers have them: what stands before them, by what they have in its place.
#[test]
fn towers_have_the_same_bits_by_other_names() {
    let folder = folder("gemma-3");
    let image = &images(&folder)[0];
    let first = bits_of(&rows(&common::builder().vision(true).load(folder.join("bf16")).expect("a model"), image));
    for (tower, projector, text) in [
        ("vision_tower.vision_model.", "", "language_model.model."),
        ("model.vision_tower.", "model.", "model.language_model."),
        ("model.vision_tower.vision_model.", "model.", "model.language_model."),
    ] {
        let to = tempfile::tempdir().expect("a folder");
        for entry in std::fs::read_dir(folder.join("bf16")).expect("a folder") {
            let entry = entry.expect("an entry");
            std::fs::copy(entry.path(), to.path().join(entry.file_name())).expect("a copy");
        }
        let bytes = std::fs::read(folder.join("bf16/model.safetensors")).expect("weights");
        let stored = SafeTensors::deserialize(&bytes).expect("sound weights");
        let renamed = stored.tensors().into_iter().map(|(name, tensor)| {
            let name = match (name.strip_prefix("vision_tower."), name.strip_prefix("language_model.model.")) {
                (Some(rest), _) => format!("{tower}{rest}"),
                (_, Some(rest)) => format!("{text}{rest}"),
                _ => format!("{projector}{name}"),
            };
            (name, tensor)
        });
        safetensors::serialize_to_file(renamed, None, &to.path().join("model.safetensors"))
            .expect("weights are written");
        let model = common::builder().vision(true).load(to.path()).expect("the model loads");
        assert_eq!(bits_of(&rows(&model, image)), first, "{tower}");
    }
}

/// A window that no image leaves is attention to all of the image, in every block; one block without windows is another model.
#[test]
fn a_window_of_a_whole_image_is_attention_to_all_of_it() {
    let from = folder("qwen2.5-vl").join("f32");
    let to = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(&from).expect("a folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).expect("a copy");
    }
    let config = std::fs::read(from.join("config.json")).expect("config.json");
    let images = images(&folder("qwen2.5-vl"));
    let made = |window: usize, whole: &[usize]| {
        let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
        config["vision_config"]["window_size"] = window.into();
        config["vision_config"]["fullatt_block_indexes"] = whole.into();
        std::fs::write(to.path().join("config.json"), config.to_string()).expect("a file");
        let model = common::builder().vision(true).load(to.path()).expect("the model loads");
        images.iter().map(|image| bits_of(&rows(&model, image))).collect::<Vec<_>>()
    };
    let (sound, whole) = (made(112, &[1]), made(140, &[0, 1, 2]));
    assert_eq!(made(140, &[1]), whole);
    assert_eq!(made(1 << 20, &[]), whole);
    for (window, blocks) in [(112, &[1][..]), (112, &[]), (112, &[0]), (112, &[0, 1]), (56, &[1]), (28, &[1])] {
        let other = made(window, blocks);
        assert_eq!(other == sound, (window, blocks) == (112, &[1]), "{window}, {blocks:?}");
        assert!(other.iter().zip(&whole).all(|(other, whole)| other != whole), "{window}, {blocks:?}");
    }
    // Blocks of which none has windows: patches that come by windows are the same, in other places.
    assert!(made(112, &[0, 1, 2]).iter().zip(&whole).all(|(other, whole)| other.len() == whole.len()));
}

#[test]
fn other_images_than_a_tower_takes_are_refused() {
    let folder = folder("gemma-3");
    let image = &images(&folder)[0];
    let model = common::builder().vision(true).load(folder.join("f32")).expect("a model");
    let tower = model.tower().expect("a tower");
    let (grid, never) = (image.grid, CancellationToken::new());
    let wide = Grid { columns: grid.columns + 1, ..grid };
    for (pixels, grid, says) in [
        (&image.pixels[1..], grid, "9407 values of 4 by 4 patches"),
        (&[][..], grid, "0 values of 4 by 4 patches"),
        (&image.pixels[..], wide, "9408 values of 4 by 5 patches"),
        (&[][..], Grid { rows: usize::MAX, columns: usize::MAX }, "0 values of"),
    ] {
        let error = Error::from(tower.forward(pixels, grid, &never).expect_err("another image"));
        assert!(matches!(&error, Error::Engine(EngineError::Image { .. })) && error.code() == 2, "{error}");
        assert!(error.to_string().contains(says) && error.to_string().contains("takes 9408 values"), "{error}");
    }
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let error = Error::from(tower.forward(&image.pixels, grid, &cancelled).expect_err("it was cancelled"));
    assert!(matches!(error, Error::Cancelled), "{error}");
}

/// A model without a tower, or with one that is not known, runs without it as before, and says why it does not run with it.
#[test]
fn what_has_no_known_tower_is_refused_where_one_is_asked_for() {
    let from = folder("gemma-3").join("bf16");
    let to = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(&from).expect("a folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).expect("a copy");
    }
    let config = std::fs::read_to_string(from.join("config.json")).expect("config.json");
    assert!(config.contains("siglip_vision_model"));
    std::fs::write(to.path().join("config.json"), config.replace("siglip_vision_model", "other_eyes")).expect("a file");
    for (path, says) in [
        (to.path().to_owned(), "vision_config.model_type other_eyes of Gemma3ForConditionalGeneration is not known"),
        (common::fixtures().join("models/llama-3/bf16"), "config.json has no vision_config"),
        (common::fixtures().join("models/llama-3/q8_0.gguf"), "no mmproj*.gguf lies in"),
    ] {
        common::load(&path);
        let Err(error) = common::builder().vision(true).load(&path) else { panic!("{} sees", path.display()) };
        assert!(error.code() == 11 && error.to_string().contains(says), "{error}");
        assert!(error.to_string().contains("there is no vision tower to load"), "{error}");
    }
}

#[test]
fn every_tensor_of_a_tower_changes_what_it_makes() {
    for name in archives::names_in("vision") {
        let folder = folder(&name);
        let image = &images(&folder)[0];
        let bytes = std::fs::read(folder.join("bf16/model.safetensors")).expect("weights");
        let stored = SafeTensors::deserialize(&bytes).expect("sound weights");
        let to = tempfile::tempdir().expect("a folder");
        for entry in std::fs::read_dir(folder.join("bf16")).expect("a folder") {
            let entry = entry.expect("an entry");
            std::fs::copy(entry.path(), to.path().join(entry.file_name())).expect("a copy");
        }
        let sound = common::builder().vision(true).load(to.path()).expect("a model");
        let first = bits_of(&rows(&sound, image));
        let tower = sound.spec().vision.as_deref().expect("a tower");
        let names: Vec<String> = tower.tensors().map(|tensor| tensor.name.clone()).collect();
        assert!(names.len() >= 20, "{name}: {names:?}");
        for changed in names {
            let tensors = stored.tensors().into_iter().map(|(name, tensor)| {
                let mut data = tensor.data().to_vec();
                if name == changed {
                    // The last element becomes 2 or 3.
                    let last = data.last_chunk_mut::<2>().expect("an element of BF16");
                    *last = if *last == [0, 0x40] { [0x40, 0x40] } else { [0, 0x40] };
                }
                (name, tensor.shape().to_vec(), data)
            });
            let made: Vec<_> = tensors.collect();
            let views = made.iter().map(|(name, shape, data)| {
                (name, TensorView::new(Dtype::BF16, shape.clone(), data).expect("a tensor"))
            });
            safetensors::serialize_to_file(views, None, &to.path().join("model.safetensors"))
                .expect("weights are written");
            let model = common::builder().vision(true).load(to.path()).expect("the model loads");
            // A bias of keys moves all scores of a query alike: it changes only what is rounded. The last row of positions is of the
            // last patch of the largest image.
            let same = changed.ends_with("k_proj.bias");
            assert!(same || bits_of(&rows(&model, image)) != first, "{name}: {changed} is not used");
        }
    }
}
