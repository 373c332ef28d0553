//! Images of many kinds beside what Pillow and the image processors of transformers make of them (`fixtures/make/images.py`).

#![allow(clippy::unwrap_used)] // a test

#[allow(dead_code)] // what is kept is not counted here
#[path = "../../../../tests/common/counting.rs"]
mod counting;
mod decoding;
mod hostile;
mod sizes;
mod values;

use model_factory_format::header::config::JsonFile;
use model_factory_images::ImageProcessor;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/images")
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(name)).unwrap()
}

fn expected() -> Value {
    serde_json::from_slice(&bytes("expected.json")).unwrap()
}

/// The description in `processors/NAME.json`, which is a file of either kind.
fn processor(name: &str) -> ImageProcessor {
    let file = JsonFile::read(&fixtures().join(format!("processors/{name}.json"))).unwrap();
    let (whole, own) = match file.object().contains_key("image_processor") {
        true => (Some(&file), None),
        false => (None, Some(&file)),
    };
    ImageProcessor::from_files(whole, own).unwrap().unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}
