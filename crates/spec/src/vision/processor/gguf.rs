//! The keys of llama.cpp's `mmproj` -> the description. It has sizes, means and deviations; the rest is what transformers' class takes
//! where nothing is said.

use super::classes::{CLASSES, Class, Kind};
use super::geometry::MAX_PIXELS;
use super::keys::{COUNT, LARGEST, PATCH, SIDE, SMALLEST, SQUARE};
use super::{ImageProcessor, Normalize, Rule, Size, Tiles};
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::header::Fields;
use crate::header::gguf::GgufMetadata;

/// The sizes in pixels that a tower's keys give: an image's side, where it has one, and a patch's; the patches of the side of a square of
/// them by their key, the frames of a patch, and what its table has for the fewest and the most pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    pub(crate) image: usize,
    pub(crate) patch: usize,
    pub(crate) merge: (&'static str, usize),
    pub(crate) frames: usize,
    pub(crate) pixels: Option<(u64, u64, &'static str)>,
}

/// Why the longest edge is four times a square's where a file does not say it.
const SQUARES: &str = "as in the published preprocessor_config.json of Idefics 3 and SmolVLM";

pub(super) fn read(keys: &GgufMetadata, class: &str, sides: Sides) -> Result<ImageProcessor> {
    let known = CLASSES.iter().find(|known| known.name == class);
    let side = || within(keys, "clip.vision.image_size", sides.image, SIDE);
    let patch = || within(keys, "clip.vision.patch_size", sides.patch, PATCH);
    let merge = |most: u64| within(keys, &format!("clip{}", sides.merge.0), sides.merge.1, most);
    let mut bounds = None;
    let (class, rule) = match known.map(|known| (known, known.kind, sides.pixels)) {
        Some((known, Kind::Fixed, _)) => {
            let side = side()?;
            (known, Rule::Fixed { size: Size { width: side, height: side }, tokens: None })
        }
        Some((known, Kind::Within, _)) => {
            let (side, patch, merge) = (side()?, patch()?, merge(PATCH)?);
            (known, Rule::Within { limit: Size { width: side, height: side }, patch, merge })
        }
        Some((known, Kind::Squares, _)) => {
            let (side, patch, merge) = (side()?, patch()?, merge(PATCH)?);
            let key = "clip.vision.preproc_image_size";
            let stored = keys.unsigned(key)?.map(|found| usize::try_from(found).unwrap_or(usize::MAX));
            let longest = stored.map(|found| within(keys, key, found, SIDE)).transpose()?.unwrap_or_else(|| {
                bounds =
                    Some(format!("images of {} pixels along the longest edge: {key} is absent ({SQUARES})", 4 * side));
                4 * side
            });
            if side < SQUARE {
                let expected = format!("a whole number from {SQUARE} to {SIDE}");
                return Err(Error::key_value(keys.file(), "clip.vision.image_size", side.to_string(), expected));
            }
            let tokens = u64::from(side / patch / merge).pow(2);
            (known, Rule::Squares { longest, side, split: known.splits, tokens })
        }
        Some((known, Kind::Tiles, _)) => {
            let (patch, downsample_factor) = (patch()?, merge(COUNT)?);
            let number =
                |key: &str| known.numbers.iter().find(|number| number.0 == key).map_or(1, |number| number.1 as u32);
            let [tile, least, most] = ["tile_size", "min_tiles", "max_tiles"].map(number);
            let [min_image_tokens, max_image_tokens] = ["min_image_tokens", "max_image_tokens"].map(number);
            let said = format!(
                "images of {min_image_tokens} to {max_image_tokens} tokens, and larger ones as {least} to {most} tiles of {tile} pixels"
            );
            bounds = Some(format!("{said}: GGUF does not say it (the default of transformers' {})", known.name));
            let tiles = known.splits.then_some((tile, least, most));
            let (max_pixels_tolerance, use_thumbnail) = (2.0, true);
            let rule = Tiles {
                patch,
                downsample_factor,
                min_image_tokens,
                max_image_tokens,
                max_pixels_tolerance,
                tiles,
                use_thumbnail,
            };
            (known, Rule::Tiles(rule))
        }
        Some((known, Kind::Smart, Some((min_pixels, max_pixels, source)))) => {
            let (patch, merge, temporal) = (patch()?, merge(COUNT)?, sides.frames as u32);
            let [least, most] = ["image_min_pixels", "image_max_pixels"].map(|key| format!("clip.vision.{key}"));
            let stored = [pixels(keys, &least)?, pixels(keys, &most)?];
            let (min_pixels, max_pixels) = (stored[0].unwrap_or(min_pixels), stored[1].unwrap_or(max_pixels));
            if stored.contains(&None) {
                let said = format!("images of {min_pixels} to {max_pixels} pixels");
                bounds = Some(format!("{said}: GGUF does not say it ({source})"));
            }
            if min_pixels > max_pixels {
                let (one, other) = (format!("{least} is {min_pixels}"), format!("{most} is {max_pixels}"));
                return Err(Error::contradiction(keys.file(), one, other));
            }
            (known, Rule::Smart { patch, merge, temporal, min_pixels, max_pixels })
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
    let resized = format!("resample {resample:?} and rescale_factor 1/255: {source}");
    let assumptions = std::iter::once(resized).chain(bounds).collect();
    let (file, rescale, normalize) = (keys.file().into(), Some(1.0 / 255.0), Some(Normalize { mean, std }));
    Ok(ImageProcessor { class: name, file, resample, rescale, normalize, rule, assumptions })
}

/// A bound of the pixels of an image, where the file has one.
fn pixels(keys: &GgufMetadata, key: &str) -> Result<Option<u64>> {
    let stored = keys.unsigned(key)?.map(|found| usize::try_from(found).unwrap_or(usize::MAX));
    stored.map(|found| within(keys, key, found, MAX_PIXELS).map(u64::from)).transpose()
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
