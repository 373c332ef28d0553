//! What a model sees of an image: its parts, their sizes, the rows that they take, and the first values.
//!
//! `cargo run --release -p model-factory-images --example pixels -- path/to/model image.png`
#![allow(clippy::print_stdout)] // a program

use model_factory_images::{ImageProcessor, Limits, Picture, Values};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, image] = &arguments[..] else { return Err("give the folder of a model, and an image".into()) };
    let processor = ImageProcessor::read(Path::new(model))?.ok_or("this model has no image processor")?;
    println!("{} of {}", processor.class, processor.file.display());
    for assumption in &processor.assumptions {
        println!("  {assumption}");
    }
    let (begun, bytes) = (Instant::now(), std::fs::read(image)?);
    let picture = Picture::decode(&bytes, &Limits::default())?;
    let decoded = begun.elapsed();
    let values = Values::new(&picture, &processor)?;
    println!("{picture:?}, decoded in {decoded:.1?}, prepared in {:.1?}", begun.elapsed() - decoded);
    for (part, pixels) in values.geometry.parts.iter().zip(&values.parts) {
        let (size, first) = (part.size, &pixels.values[..4]);
        println!(
            "  {:?}: {} by {} pixels, values {:?}: {first:?}..",
            part.place, size.width, size.height, pixels.shape
        );
    }
    if let Some(tokens) = values.geometry.tokens() {
        println!("{tokens} rows of the language model");
    }
    Ok(())
}
