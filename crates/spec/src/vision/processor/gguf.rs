//! The keys of llama.cpp's `mmproj` -> the description. It has sizes, means and deviations; the rest is what transformers' class takes
//! where nothing is said.

use super::classes::{CLASSES, Class, Kind};
use super::keys::{LARGEST, PATCH, SIDE, SMALLEST};
use super::{ImageProcessor, Normalize, Rule, Size};
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::header::Fields;
use crate::header::gguf::GgufMetadata;

/// The sizes in pixels that a tower's keys give: an image's side, a patch's, and the patches of the side of a square of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    pub(crate) image: usize,
    pub(crate) patch: usize,
    pub(crate) merge: usize,
}

pub(super) fn read(keys: &GgufMetadata, class: &str, sides: Sides) -> Result<ImageProcessor> {
    let known = CLASSES.iter().find(|known| known.name == class);
    let (class, rule) = match known.map(|known| (known, known.kind)) {
        Some((known, Kind::Fixed)) => {
            let side = within(keys, "clip.vision.image_size", sides.image, SIDE)?;
            (known, Rule::Fixed { size: Size { width: side, height: side }, tokens: None })
        }
        Some((known, Kind::Within)) => {
            let side = within(keys, "clip.vision.image_size", sides.image, SIDE)?;
            let patch = within(keys, "clip.vision.patch_size", sides.patch, PATCH)?;
            let merge = within(keys, "clip.vision.spatial_merge_size", sides.merge, PATCH)?;
            (known, Rule::Within { limit: Size { width: side, height: side }, patch, merge })
        }
        _ => {
            let (feature, key) = (format!("the image processor {class}"), "clip.projector_type".to_owned());
            let expected = "one whose keys GGUF has".to_owned();
            let kind = ArchitectureErrorKind::Feature { feature, key, expected };
            return Err(Error::Architecture { file: keys.file().into(), kind });
        }
    };
    let mean = channels(keys, "clip.vision.image_mean", |mean| mean.abs() <= LARGEST, "three numbers up to 1e6")?;
    let valid = |std| (SMALLEST..=LARGEST).contains(&std);
    let std = channels(keys, "clip.vision.image_std", valid, "three numbers from 1e-6 to 1e6")?;
    let Class { name, resample, .. } = *class;
    let source = format!("GGUF does not say it (the default of transformers' {name})");
    let assumptions = vec![format!("resample {resample:?} and rescale_factor 1/255: {source}")];
    let (file, rescale, normalize) = (keys.file().into(), Some(1.0 / 255.0), Some(Normalize { mean, std }));
    Ok(ImageProcessor { class: name, file, resample, rescale, normalize, rule, assumptions })
}

fn within(keys: &GgufMetadata, key: &str, found: usize, most: u64) -> Result<u32> {
    match u32::try_from(found) {
        Ok(number) if (1..=most).contains(&number.into()) => Ok(number),
        _ => Err(Error::key_value(keys.file(), key, found.to_string(), format!("a whole number from 1 to {most}"))),
    }
}

/// A number for each channel.
fn channels(keys: &GgufMetadata, key: &str, valid: fn(f64) -> bool, expected: &str) -> Result<[f64; 3]> {
    const WHY: &str = "it says how images are prepared";
    let wrong = |found: String| Error::key_value(keys.file(), key, found, expected);
    if let Some(count) = keys.array_len(key).filter(|count| *count != 3) {
        return Err(wrong(format!("an array of {count}")));
    }
    let numbers = keys.floats(key)?.ok_or_else(|| Error::key_missing(keys.file(), key, WHY))?;
    match <[f32; 3]>::try_from(numbers) {
        Ok(numbers) if numbers.iter().all(|number| valid((*number).into())) => Ok(numbers.map(f64::from)),
        Ok(numbers) => Err(wrong(format!("{numbers:?}"))),
        Err(numbers) => Err(wrong(format!("an array of {}", numbers.len()))),
    }
}
