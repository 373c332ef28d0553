//! The image processors of transformers 5.23: the defaults of each class, from `models/*/image_processing_*.py`, and its keys.

use super::Resample;
use super::Resample::{Bicubic, Bilinear, Lanczos};

/// One class, with what it takes for keys that are absent or null.
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) resample: Resample,
    pub(super) normalize: bool,
    pub(super) mean: [f64; 3],
    pub(super) std: [f64; 3],
    /// The keys of `size`, with their values.
    pub(super) size: &'static [(&'static str, u64)],
    /// Whole numbers.
    pub(super) numbers: &'static [(&'static str, u64)],
    /// Whether an image is cut, unless `do_image_splitting` says otherwise.
    pub(super) splits: bool,
    /// Further keys that are read, or that change nothing for a single image.
    pub(super) others: &'static [&'static str],
}

/// Which rule of sizes a class has.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Fixed,
    Budget,
    Smart,
    Within,
    Squares,
    Tiles,
    Soft { merged: bool },
}

/// The values of the file that end in no arithmetic: bookkeeping, the form of the result, a batch's padding. Images are read as
/// RGB whatever `do_convert_rgb` says.
pub(super) const WITHOUT_EFFECT: &[&str] = &[
    "_valid_processor_keys",
    "crop_size",
    "data_format",
    "default_to_square",
    "device",
    "disable_grouping",
    "do_convert_rgb",
    "feature_extractor_type",
    "image_processor_type",
    "input_data_format",
    "pad_size",
    "processor_class",
    "return_tensors",
];

/// The keys that every class reads.
pub(super) const COMMON: &[&str] = &[
    "do_center_crop",
    "do_normalize",
    "do_pad",
    "do_rescale",
    "do_resize",
    "image_mean",
    "image_seq_length",
    "image_std",
    "resample",
    "rescale_factor",
    "size",
];

const HALF: [f64; 3] = [0.5; 3];
/// `OPENAI_CLIP_MEAN` and `OPENAI_CLIP_STD`.
const CLIP_MEAN: [f64; 3] = [0.48145466, 0.4578275, 0.40821073];
const CLIP_STD: [f64; 3] = [0.26862954, 0.26130258, 0.27577711];

/// What a class has where nothing else is said.
const PLAIN: Class = Class {
    name: "",
    kind: Kind::Fixed,
    resample: Bilinear,
    normalize: true,
    mean: HALF,
    std: HALF,
    size: &[],
    numbers: &[],
    splits: false,
    others: &[],
};

const GEMMA4: Class = Class {
    resample: Bicubic,
    normalize: false,
    mean: [0.0; 3],
    std: [1.0; 3],
    numbers: &[("patch_size", 16), ("max_soft_tokens", 280), ("pooling_kernel_size", 3)],
    ..PLAIN
};

const IDEFICS3: Class = Class {
    kind: Kind::Squares,
    resample: Lanczos,
    size: &[("longest_edge", 1456)],
    splits: true,
    others: &["do_image_splitting", "max_image_size", "return_row_col_info", "video_sampling"],
    ..PLAIN
};

pub(super) const CLASSES: &[Class] = &[
    Class {
        name: "Gemma3ImageProcessor",
        size: &[("height", 224), ("width", 224)],
        others: &[
            "do_pan_and_scan",
            "pan_and_scan_max_num_crops",
            "pan_and_scan_min_crop_size",
            "pan_and_scan_min_ratio_to_activate",
        ],
        ..PLAIN
    },
    Class { name: "Gemma4ImageProcessor", kind: Kind::Soft { merged: false }, ..GEMMA4 },
    Class { name: "Gemma4UnifiedImageProcessor", kind: Kind::Soft { merged: true }, ..GEMMA4 },
    Class { name: "Idefics3ImageProcessor", ..IDEFICS3 },
    Class {
        name: "Lfm2VlImageProcessor",
        kind: Kind::Tiles,
        size: &[("height", 512), ("width", 512)],
        numbers: &[
            ("downsample_factor", 2),
            ("min_tiles", 2),
            ("max_tiles", 10),
            ("min_image_tokens", 64),
            ("max_image_tokens", 256),
            ("encoder_patch_size", 16),
            ("tile_size", 512),
        ],
        splits: true,
        others: &[
            "do_image_splitting",
            "max_num_patches",
            "max_pixels_tolerance",
            "return_row_col_info",
            "use_thumbnail",
        ],
        ..PLAIN
    },
    Class {
        name: "PixtralImageProcessor",
        kind: Kind::Within,
        resample: Bicubic,
        mean: CLIP_MEAN,
        std: CLIP_STD,
        size: &[("longest_edge", 1024)],
        others: &["patch_size"],
        ..PLAIN
    },
    Class {
        name: "Qwen2VLImageProcessor",
        kind: Kind::Smart,
        resample: Bicubic,
        mean: CLIP_MEAN,
        std: CLIP_STD,
        size: &[("shortest_edge", 56 * 56), ("longest_edge", 28 * 28 * 1280)],
        numbers: &[("patch_size", 14), ("temporal_patch_size", 2), ("merge_size", 2)],
        others: &["max_pixels", "min_pixels"],
        ..PLAIN
    },
    Class {
        name: "Siglip2ImageProcessor",
        kind: Kind::Budget,
        numbers: &[("patch_size", 16), ("max_num_patches", 256)],
        ..PLAIN
    },
    Class { name: "SiglipImageProcessor", resample: Bicubic, size: &[("height", 224), ("width", 224)], ..PLAIN },
    Class { name: "SmolVLMImageProcessor", ..IDEFICS3 },
];
