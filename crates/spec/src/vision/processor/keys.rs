//! The keys of the files -> the description.

use super::classes::{CLASSES, COMMON, Class, Kind, WITHOUT_EFFECT};
use super::{ImageProcessor, Normalize, Resample, Rule, Size, Tiles};
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::header::Fields;
use crate::header::config::{JsonFile, JsonObject, Section, wrong_type};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The section of `processor_config.json` that transformers 5 nests the image processor in.
const SECTION: &str = "image_processor";

/// Pixels of a side that a file may ask for, and rows for an image; published ones stay under 4096.
pub(super) const SIDE: u64 = 8192;
const ROWS: u64 = 1 << 16;
/// Pixels of a patch's side; squares of patches, tiles and frames of a patch.
pub(super) const PATCH: u64 = 256;
pub(super) const COUNT: u64 = 64;
/// Pixels of the side of a square that images are cut into, at least: a side of 4096 gives 256 of them.
pub(super) const SQUARE: u32 = 16;
/// Factors and deviations, and means but for their signs: with these every value is finite in float32.
pub(super) const SMALLEST: f64 = 1e-6;
pub(super) const LARGEST: f64 = 1e6;

/// The sizes that Gemma 4's processors take.
const SOFT_TOKENS: [u64; 5] = [70, 140, 280, 560, 1120];

pub(super) fn read(processor: Option<&JsonFile>, own: Option<&JsonFile>) -> Result<Option<ImageProcessor>> {
    let nested = match processor {
        Some(file) => file.section(SECTION)?,
        None => None,
    };
    let Some(section) = nested.or_else(|| own.map(|file| file.whole())) else { return Ok(None) };
    let class = class(section)?;
    let keys = Keys { section, class, outer: processor.map(|file| file.whole()), assumptions: RefCell::default() };
    keys.known()?;
    let rule = keys.rule()?;
    let (resample, rescale, normalize) = (keys.resample()?, keys.rescale()?, keys.normalize()?);
    let (file, assumptions) = (section.file().into(), keys.assumptions.into_inner());
    Ok(Some(ImageProcessor { class: class.name, file, resample, rescale, normalize, rule, assumptions }))
}

/// The class that the file names: `Fast` and `Pil` at its end name a backend.
fn class(section: Section<'_>) -> Result<&'static Class> {
    const KEY: &str = "image_processor_type";
    const WHY: &str = "it names the class of transformers that prepares the images";
    let key = section.dotted(KEY);
    let name = section.text(KEY)?.ok_or_else(|| Error::key_missing(section.file(), &key, WHY))?;
    let plain = name.strip_suffix("Fast").or(name.strip_suffix("Pil")).unwrap_or(name);
    CLASSES.iter().find(|class| class.name == plain).ok_or_else(|| {
        let known: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
        let feature = format!("the image processor {}", name.chars().take(80).collect::<String>());
        refused(section, KEY, feature, format!("one of {}", known.join(", ")))
    })
}

fn refused(section: Section<'_>, key: &str, feature: String, expected: String) -> Error {
    let kind = ArchitectureErrorKind::Feature { feature, key: section.dotted(key), expected };
    Error::Architecture { file: section.file().into(), kind }
}

/// The keys of one processor.
struct Keys<'a> {
    section: Section<'a>,
    class: &'static Class,
    /// `processor_config.json`, whose own keys say more of some models.
    outer: Option<Section<'a>>,
    assumptions: RefCell<Vec<String>>,
}

impl Keys<'_> {
    /// Refuses keys that the class does not have, and options that are not computed here.
    fn known(&self) -> Result<()> {
        let class = self.class;
        let names = COMMON.iter().chain(WITHOUT_EFFECT).chain(class.others);
        let names: Vec<&str> = names.copied().chain(class.numbers.iter().map(|number| number.0)).collect();
        let unknown = |(key, value): &(&String, &Value)| !value.is_null() && !names.contains(&key.as_str());
        if let Some((key, _)) = self.section.object().iter().find(unknown) {
            let expected = format!("keys of transformers' {}: remove it if the model was made without it", class.name);
            let key: String = key.chars().take(80).collect();
            return Err(refused(self.section, &key, "an option that this class does not have".into(), expected));
        }
        self.must("do_resize", true, "images of any size")?;
        self.must("do_center_crop", false, "cropping to the center")?;
        self.must("do_pan_and_scan", false, "pan and scan")?;
        if matches!(class.kind, Kind::Fixed) {
            self.must("do_pad", false, "padding")?;
        }
        Ok(())
    }

    fn must(&self, key: &str, expected: bool, feature: &str) -> Result<()> {
        match self.section.boolean(key)? {
            Some(found) if found != expected => Err(refused(self.section, key, feature.into(), expected.to_string())),
            _ => Ok(()),
        }
    }

    /// Notes a default of the class.
    fn default<T: std::fmt::Debug>(&self, key: &str, value: T) -> T {
        let Class { name, .. } = self.class;
        let said =
            format!("{} {value:?}: it is absent (the default of transformers' {name})", self.section.dotted(key));
        self.assume(said);
        value
    }

    fn assume(&self, said: String) {
        let mut assumptions = self.assumptions.borrow_mut();
        if !assumptions.contains(&said) {
            assumptions.push(said);
        }
    }

    /// `found`, if it is from 1 to `most`.
    fn within(&self, section: Section<'_>, key: &str, found: u64, most: u64) -> Result<u32> {
        match u32::try_from(found) {
            Ok(number) if (1..=most).contains(&found) => Ok(number),
            _ => {
                let expected = format!("a whole number from 1 to {most}");
                Err(Error::key_value(section.file(), &section.dotted(key), found.to_string(), expected))
            }
        }
    }

    /// A whole number from 1 to `most` under a key of the class.
    fn number(&self, key: &str, most: u64) -> Result<u32> {
        let stored = self.section.unsigned(key)?;
        let default = || self.class.numbers.iter().find(|number| number.0 == key).map_or(0, |number| number.1);
        let found = stored.unwrap_or_else(|| self.default(key, default()));
        self.within(self.section, key, found, most)
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.section.boolean(key)?.unwrap_or_else(|| self.default(key, default)))
    }

    /// The keys of `size`, or of another key of that form.
    fn sizes(&self, key: &str, default: &[(&str, u64)]) -> Result<BTreeMap<String, u64>> {
        let value = self.section.object().get(key).filter(|value| !value.is_null());
        let wrong = |value| wrong_type(self.section.file(), &self.section.dotted(key), value, "an object of sizes");
        let whole = |value: &Value| value.as_u64();
        match value {
            None => {
                let sizes: BTreeMap<String, u64> = default.iter().map(|(key, size)| ((*key).into(), *size)).collect();
                Ok(self.default(key, sizes))
            }
            Some(Value::Object(sizes)) => {
                let sizes = sizes.iter().filter(|(_, size)| !size.is_null());
                sizes.map(|(key, size)| Ok((key.clone(), whole(size).ok_or_else(|| wrong(size))?))).collect()
            }
            // `default_to_square`: a number is both sides, in these classes.
            Some(value) => match (whole(value), default) {
                (Some(side), [("height", _), _]) => Ok([("height".into(), side), ("width".into(), side)].into()),
                _ => Err(wrong(value)),
            },
        }
    }

    /// The size under `key`, which has exactly these keys of a size.
    fn exactly<const N: usize>(
        &self,
        key: &str,
        default: &[(&str, u64)],
        names: [&str; N],
        most: u64,
    ) -> Result<[u32; N]> {
        let sizes = self.sizes(key, default)?;
        let found: Vec<&str> = sizes.keys().map(String::as_str).collect();
        let mut expected = names;
        expected.sort_unstable();
        if found != expected {
            let file = self.section.file();
            return Err(Error::key_value(file, &self.section.dotted(key), found.join(" and "), names.join(" and ")));
        }
        let mut values = [0; N];
        for (value, name) in values.iter_mut().zip(names) {
            *value = self.within(self.section, &format!("{key}.{name}"), sizes[name], most)?;
        }
        Ok(values)
    }

    /// A number of the whole processor, or `default` with the class of transformers that has it.
    fn outer_number(&self, key: &str, default: (u64, &str), most: u64) -> Result<u32> {
        let (value, class) = default;
        let stored = match self.outer {
            Some(outer) => outer.unsigned(key)?.map(|found| (outer, found)),
            None => None,
        };
        let (place, found) = stored.unwrap_or_else(|| {
            let file = super::PROCESSOR_FILE;
            let said = format!("{key} {value}: {file} does not have it (the default of transformers' {class})");
            self.assume(said);
            (self.section, value)
        });
        self.within(place, key, found, most)
    }

    fn rule(&self) -> Result<Rule> {
        let size = self.class.size;
        Ok(match self.class.kind {
            Kind::Fixed => {
                let [width, height] = self.exactly("size", size, ["width", "height"], SIDE)?;
                Rule::Fixed { size: Size { width, height }, tokens: self.fixed_tokens()? }
            }
            Kind::Budget => Rule::Budget {
                patch: self.number("patch_size", PATCH)?,
                patches: self.number("max_num_patches", ROWS)?,
            },
            Kind::Smart => {
                let [min_pixels, max_pixels] = self.pixels()?;
                Rule::Smart {
                    patch: self.number("patch_size", PATCH)?,
                    merge: self.number("merge_size", COUNT)?,
                    temporal: self.number("temporal_patch_size", COUNT)?,
                    min_pixels,
                    max_pixels,
                }
            }
            Kind::Within => self.rectangle()?,
            Kind::Squares => {
                let [longest] = self.exactly("size", size, ["longest_edge"], SIDE)?;
                let [side] = self.exactly("max_image_size", &[("longest_edge", 364)], ["longest_edge"], SIDE)?;
                if side < SQUARE {
                    let key = self.section.dotted("max_image_size.longest_edge");
                    let expected = format!("a whole number from {SQUARE} to {SIDE}");
                    return Err(Error::key_value(self.section.file(), &key, side.to_string(), expected));
                }
                let split = self.flag("do_image_splitting", self.class.splits)?;
                let name = self.class.name.replace("ImageProcessor", "Processor");
                let tokens = self.outer_number("image_seq_len", (169, &name), ROWS)?;
                Rule::Squares { longest, side, split, tokens: tokens.into() }
            }
            Kind::Tiles => Rule::Tiles(self.tiles()?),
            Kind::Soft { merged } => {
                let tokens = self.number("max_soft_tokens", ROWS)?;
                if !SOFT_TOKENS.contains(&tokens.into()) {
                    let key = self.section.dotted("max_soft_tokens");
                    let expected = format!("one of {SOFT_TOKENS:?}");
                    return Err(Error::key_value(self.section.file(), &key, tokens.to_string(), expected));
                }
                let (patch, pooling) = (self.number("patch_size", PATCH)?, self.number("pooling_kernel_size", COUNT)?);
                Rule::Soft { patch, pooling, tokens, merged }
            }
        })
    }

    /// Rows for an image of one size: `image_seq_length` of Gemma 3's processor, which older files have beside the pixels' keys.
    fn fixed_tokens(&self) -> Result<Option<u64>> {
        const KEY: &str = "image_seq_length";
        let own = self.section.unsigned(KEY)?;
        let outer = match self.outer {
            Some(outer) => outer.unsigned(KEY)?,
            None => None,
        };
        match (own, outer) {
            (Some(own), Some(outer)) if own != outer => {
                let one = format!("{} is {own}", self.section.dotted(KEY));
                Err(Error::contradiction(
                    self.section.file(),
                    one,
                    format!("{KEY} of {} is {outer}", super::PROCESSOR_FILE),
                ))
            }
            (own, outer) => match outer.or(own) {
                Some(found) => self.within(self.section, KEY, found, ROWS).map(|tokens| Some(tokens.into())),
                None if self.class.name == "Gemma3ImageProcessor" => {
                    self.outer_number(KEY, (256, "Gemma3Processor"), ROWS).map(|tokens| Some(tokens.into()))
                }
                None => Ok(None),
            },
        }
    }

    /// The fewest and the most pixels: of `size`, or as older files have them, in keys of their own.
    fn pixels(&self) -> Result<[u64; 2]> {
        const MOST: u64 = super::geometry::MAX_PIXELS;
        let sizes = self.sizes("size", self.class.size)?;
        let known = ["shortest_edge", "longest_edge", "min_pixels", "max_pixels"];
        if let Some(other) = sizes.keys().find(|key| !known.contains(&key.as_str())) {
            let expected = "shortest_edge and longest_edge";
            return Err(Error::key_value(self.section.file(), &self.section.dotted("size"), other.as_str(), expected));
        }
        let mut found = [0; 2];
        for (found, (alone, edge)) in
            found.iter_mut().zip([("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")])
        {
            let key = self.section.dotted(&format!("size.{edge}"));
            let stored = self.section.object().get("size").is_some_and(|size| !size.is_null());
            let all = [self.section.unsigned(alone)?, sizes.get(alone).copied().filter(|_| stored)];
            let edge = sizes.get(edge).copied();
            let said = if stored || all[0].is_none() { edge } else { None };
            let mut said = all.into_iter().flatten().chain(said);
            const WHY: &str = "it bounds the pixels of an image";
            let first = said.next().ok_or_else(|| Error::key_missing(self.section.file(), &key, WHY))?;
            if let Some(other) = said.find(|other| *other != first) {
                let one = format!("{} is {first}", self.section.dotted(alone));
                return Err(Error::contradiction(self.section.file(), one, format!("{key} is {other}")));
            }
            *found = self.within(self.section, alone, first, MOST)?.into();
        }
        let [min, max] = found;
        if min > max {
            let (one, other) = (format!("min_pixels is {min}"), format!("max_pixels is {max}"));
            return Err(Error::contradiction(self.section.file(), one, other));
        }
        Ok(found)
    }

    /// Pixtral's: the patch is that of the whole processor, not of the image processor, as `PixtralProcessor` passes it on.
    fn rectangle(&self) -> Result<Rule> {
        let sizes = self.sizes("size", self.class.size)?;
        let limit = match sizes.contains_key("longest_edge") {
            true => {
                let [edge] = self.exactly("size", self.class.size, ["longest_edge"], SIDE)?;
                Size { width: edge, height: edge }
            }
            false => {
                let [width, height] = self.exactly("size", self.class.size, ["width", "height"], SIDE)?;
                Size { width, height }
            }
        };
        const PROCESSOR: &str = "PixtralProcessor";
        let patch = self.outer_number("patch_size", (16, PROCESSOR), PATCH)?;
        let merge = self.outer_number("spatial_merge_size", (1, PROCESSOR), COUNT)?;
        Ok(Rule::Within { limit, patch, merge })
    }

    fn tiles(&self) -> Result<Tiles> {
        let (file, path) = (self.section.file(), |key: &str| self.section.dotted(key));
        let tiles = match self.flag("do_image_splitting", self.class.splits)? {
            true => Some((
                self.number("tile_size", SIDE)?,
                self.number("min_tiles", COUNT)?,
                self.number("max_tiles", COUNT)?,
            )),
            false => None,
        };
        let patch = self.number("encoder_patch_size", PATCH)?;
        let rule = Tiles {
            patch,
            downsample_factor: self.number("downsample_factor", COUNT)?,
            min_image_tokens: self.number("min_image_tokens", ROWS)?,
            max_image_tokens: self.number("max_image_tokens", ROWS)?,
            max_pixels_tolerance: match self.section.number("max_pixels_tolerance")? {
                Some(tolerance) => tolerance,
                None => self.default("max_pixels_tolerance", 2.0),
            },
            tiles,
            use_thumbnail: self.flag("use_thumbnail", true)?,
        };
        match rule.tiles {
            Some((_, least, most)) if least > most => {
                let (one, other) =
                    (format!("{} is {least}", path("min_tiles")), format!("{} is {most}", path("max_tiles")));
                Err(Error::contradiction(file, one, other))
            }
            Some((side, ..)) if side % patch != 0 => {
                let one = format!("{} is {side}", path("tile_size"));
                Err(Error::contradiction(file, one, format!("{} is {patch}", path("encoder_patch_size"))))
            }
            _ => Ok(rule),
        }
    }

    fn resample(&self) -> Result<Resample> {
        const KEY: &str = "resample";
        match self.section.unsigned(KEY)? {
            None => Ok(self.default(KEY, self.class.resample)),
            Some(1) => Ok(Resample::Lanczos),
            Some(2) => Ok(Resample::Bilinear),
            Some(3) => Ok(Resample::Bicubic),
            Some(other) => {
                let name = match other {
                    0 => "nearest neighbor",
                    4 => "box",
                    5 => "Hamming",
                    _ => "an unknown",
                };
                let expected = "1 (Lanczos), 2 (bilinear) or 3 (bicubic)".into();
                Err(refused(self.section, KEY, format!("{name} resampling ({other})"), expected))
            }
        }
    }

    fn rescale(&self) -> Result<Option<f64>> {
        const KEY: &str = "rescale_factor";
        if !self.flag("do_rescale", true)? {
            return Ok(None);
        }
        let factor = match self.section.number(KEY)? {
            Some(factor) => factor,
            None => self.default(KEY, 1.0 / 255.0),
        };
        match (SMALLEST..=LARGEST).contains(&factor) {
            true => Ok(Some(factor)),
            false => {
                let (key, expected) = (self.section.dotted(KEY), format!("a number from {SMALLEST:e} to {LARGEST:e}"));
                Err(Error::key_value(self.section.file(), &key, factor.to_string(), expected))
            }
        }
    }

    fn normalize(&self) -> Result<Option<Normalize>> {
        if !self.flag("do_normalize", self.class.normalize)? {
            return Ok(None);
        }
        let mean =
            self.channels("image_mean", self.class.mean, |mean| mean.abs() <= LARGEST, "three numbers up to 1e6")?;
        let valid = |std| (SMALLEST..=LARGEST).contains(&std);
        let std = self.channels("image_std", self.class.std, valid, "three numbers from 1e-6 to 1e6")?;
        Ok(Some(Normalize { mean, std }))
    }

    /// A number for each channel, or one for all.
    fn channels(
        &self,
        key: &str,
        default: [f64; 3],
        valid: fn(f64) -> bool,
        expected: &'static str,
    ) -> Result<[f64; 3]> {
        let Some(value) = self.section.object().get(key).filter(|value| !value.is_null()) else {
            return Ok(self.default(key, default));
        };
        let wrong = || wrong_type(self.section.file(), &self.section.dotted(key), value, expected);
        let number = |value: &Value| value.as_f64().filter(|number| valid(*number));
        let numbers: Option<Vec<f64>> = match value {
            Value::Array(values) => values.iter().map(number).collect(),
            value => number(value).map(|number| vec![number; 3]),
        };
        numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(wrong)
    }
}
