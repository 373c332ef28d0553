//! How an image becomes the numbers that a vision tower takes, as `preprocessor_config.json` and `processor_config.json` say it:
//! a description, and what an image of some size becomes, without decoding one. The arithmetic is that of the image processors
//! of transformers 5.23 on torchvision, which are its default.

mod classes;
mod geometry;
pub(crate) mod gguf;
mod keys;
#[cfg(test)]
mod tests;
mod tiles;

pub use geometry::{Geometry, Part, Place, Rect, Size, SizeError};

use crate::error::Result;
use crate::header::config::JsonFile;
pub use crate::header::config::{PREPROCESSOR_FILE, PROCESSOR_FILE};
use crate::header::gguf::GgufMetadata;
use std::path::{Path, PathBuf};

/// How a model's images are prepared.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ImageProcessor {
    /// The class of transformers.
    pub class: &'static str,
    /// The file that describes it.
    pub file: PathBuf,
    /// The filter of every resize.
    pub resample: Resample,
    /// What each value of 0 to 255 is multiplied by.
    pub rescale: Option<f64>,
    /// What is done with the values then.
    pub normalize: Option<Normalize>,
    /// The sizes, tiles and patches.
    pub rule: Rule,
    /// Defaults that were used, each with its source.
    pub assumptions: Vec<String>,
}

/// A separable filter, whose support grows with the factor by which an image shrinks. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resample {
    /// A triangle, two pixels wide.
    Bilinear,
    /// Cubic convolution with a = -0.5, four pixels wide.
    Bicubic,
    /// A windowed sinc, six pixels wide.
    Lanczos,
}

/// The mean and the standard deviation of each channel: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // the names say what they are
pub struct Normalize {
    pub mean: [f64; 3],
    pub std: [f64; 3],
}

/// How sizes, tiles and patches come of an image's size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Every image has the same size (Gemma 3, SigLIP).
    Fixed {
        /// That size.
        size: Size,
        /// Rows that the model has for an image, where the files say it.
        tokens: Option<u64>,
    },
    /// The largest size whose patches are not more than a number, nearly of the same shape (SigLIP 2).
    Budget {
        /// The side of a patch.
        patch: u32,
        /// The most patches.
        patches: u32,
    },
    /// Multiples of merged patches between two numbers of pixels (Qwen2-VL to Qwen3.6).
    Smart {
        /// The side of a patch.
        patch: u32,
        /// The side, in patches, of a square that becomes one row of the language model.
        merge: u32,
        /// How often an image is repeated as a frame of a patch.
        temporal: u32,
        /// The fewest pixels.
        min_pixels: u64,
        /// The most pixels.
        max_pixels: u64,
    },
    /// Shrunk into a rectangle, then rounded up to whole patches (Pixtral, Mistral 3).
    Within {
        /// The rectangle.
        limit: Size,
        /// The side of a patch.
        patch: u32,
        /// The side, in patches, of a square that becomes one row of the language model.
        merge: u32,
    },
    /// The longest edge by one number, then squares, and the whole image as one more (Idefics 3, SmolVLM).
    Squares {
        /// The longest edge before images are cut.
        longest: u32,
        /// The side of a square.
        side: u32,
        /// Whether images are cut.
        split: bool,
        /// Rows that the model has for a square.
        tokens: u64,
    },
    /// Between two numbers of rows, and images that are much larger as tiles with a thumbnail (LFM2-VL).
    Tiles(Tiles),
    /// The largest size within a number of rows, nearly of the same shape (Gemma 4).
    Soft {
        /// The side of a patch.
        patch: u32,
        /// The side, in patches, of a square that becomes one row of the language model.
        pooling: u32,
        /// The most rows of the language model.
        tokens: u32,
        /// Whether such a square is one patch of the model (Gemma 4 12B, which has no encoder).
        merged: bool,
    },
}

/// How LFM2-VL cuts images.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // the names are those of transformers
pub struct Tiles {
    /// The side of a patch.
    pub patch: u32,
    pub downsample_factor: u32,
    pub min_image_tokens: u32,
    pub max_image_tokens: u32,
    pub max_pixels_tolerance: f64,
    /// The side of a tile, and the fewest and the most of them; `None` where images are not cut.
    pub tiles: Option<(u32, u32, u32)>,
    pub use_thumbnail: bool,
}

/// The order of the values of one part of an image. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[3, height, width]`.
    Channels,
    /// `[patches, patch * patch * 3]`: patches from left to right and then down, in each the pixels likewise, and of each its channels.
    Patches {
        /// The side of a patch.
        patch: u32,
    },
    /// `[patches, 3 * temporal * patch * patch]`: the patches of a square of `merge` by `merge` follow each other, in each the channels,
    /// of each its equal frames, of each the pixels.
    Merged {
        /// The side of a patch.
        patch: u32,
        /// The side of a square in patches.
        merge: u32,
        /// Frames of a patch.
        temporal: u32,
    },
}

impl ImageProcessor {
    /// Reads the description in the folder of a model; `None` where it has none.
    ///
    /// # Errors
    /// As in [`ImageProcessor::from_files`], and those of [`JsonFile::read`].
    pub fn read(folder: &Path) -> Result<Option<ImageProcessor>> {
        let [processor, own] = [PROCESSOR_FILE, PREPROCESSOR_FILE].map(|name| JsonFile::optional(folder, name));
        ImageProcessor::from_files(processor?.as_ref(), own?.as_ref())
    }

    /// The description in `processor_config.json` or, where that nests none, in `preprocessor_config.json`: transformers takes them
    /// in this order. `None` where neither describes one.
    ///
    /// # Errors
    /// `Format` when a key is missing, or has a value of another type or one that no model can have; `Architecture` for another class,
    /// or an option that would change the arithmetic and is not computed here; `Incomplete` for keys that contradict each other.
    pub fn from_files(processor: Option<&JsonFile>, own: Option<&JsonFile>) -> Result<Option<ImageProcessor>> {
        keys::read(processor, own)
    }

    /// The description of a tower with these `sides` in llama.cpp's `mmproj`, whose images transformers' `class` prepares.
    ///
    /// # Errors
    /// `Format` when a key is missing, or has a value of another type or one that no model can have; `Architecture` for a class of
    /// which such a file does not say enough.
    pub(crate) fn of_mmproj(keys: &GgufMetadata, class: &str, sides: gguf::Sides) -> Result<ImageProcessor> {
        gguf::read(keys, class, sides)
    }
}

impl Rule {
    /// The order of the values that the model's tower takes.
    pub fn layout(&self) -> Layout {
        match *self {
            Rule::Fixed { .. } | Rule::Within { .. } | Rule::Squares { .. } => Layout::Channels,
            Rule::Budget { patch, .. } | Rule::Tiles(Tiles { patch, .. }) => Layout::Patches { patch },
            Rule::Soft { patch, pooling, merged, .. } => {
                Layout::Patches { patch: if merged { patch * pooling } else { patch } }
            }
            Rule::Smart { patch, merge, temporal, .. } => Layout::Merged { patch, merge, temporal },
        }
    }
}
