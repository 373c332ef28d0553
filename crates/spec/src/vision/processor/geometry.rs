//! What an image of some size becomes: the sizes it is resized to, its parts, their patches, and the rows that it takes of the
//! language model. The numbers are computed as Python computes them, in 64-bit floats.

use super::{ImageProcessor, Layout, Rule, Tiles, tiles};

/// Pixels of all parts of one image, or of one stage: more is refused before anything is resized. Published processors stay under
/// 2^25.
pub(super) const MAX_PIXELS: u64 = 1 << 28;

/// The most that one side of a picture may be as often as long as the other in `smart_resize` of Qwen2-VL.
const MAX_ASPECT: f64 = 200.0;

/// `MAX_IMAGE_SIZE` of Idefics 3.
const IDEFICS3_EDGE: u32 = 4096;

/// A size in pixels, or in patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say what they are
pub struct Size {
    pub width: u32,
    pub height: u32,
}

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say what they are
pub struct Rect {
    pub left: u32,
    pub top: u32,
    pub size: Size,
}

/// What one image becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Geometry {
    /// The sizes that the whole image is resized to, each from the one before.
    pub stages: Vec<Size>,
    /// The parts that the tower sees, in the order in which it sees them.
    pub parts: Vec<Part>,
}

/// A part of an image, or all of it, as the tower sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// The stage that it is cut from; 0 is the image itself.
    pub stage: usize,
    /// Where it lies there.
    pub crop: Rect,
    /// The size that it is resized to.
    pub size: Size,
    /// Its patches, where the processor makes them.
    pub grid: Option<Size>,
    /// Rows of the language model, where the processor's files say it.
    pub tokens: Option<u64>,
    /// Which part it is.
    pub place: Place,
}

/// Which part of an image something is. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All of it, and there is no other part.
    Whole,
    /// A tile.
    Tile {
        /// Its row from the top.
        row: u32,
        /// Its column from the left.
        column: u32,
    },
    /// All of it, after the tiles.
    Overview,
}

/// Why an image of some size cannot be shown to a model.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum SizeError {
    /// No pixels.
    #[error("the image has {width} by {height} pixels, expected at least one")]
    Empty { width: u32, height: u32 },
    /// Too long for its width.
    #[error(
        "the image has {width} by {height} pixels, and this model takes images of which one side is at most {limit} times the other; cut it"
    )]
    Aspect { width: u32, height: u32, limit: f64 },
    /// So thin that nothing is left of a side.
    #[error(
        "the image has {width} by {height} pixels, and less than one pixel is left of a side when it is shrunk into {limit}; cut it"
    )]
    Thin { width: u32, height: u32, limit: u32 },
    /// No size that the processor allows.
    #[error("an image of {width} by {height} pixels has no size that fits {limit} patches; cut it")]
    Patches { width: u32, height: u32, limit: u64 },
    /// The processor's options ask for more than any model needs.
    #[error(
        "an image of {width} by {height} pixels would become {pixels} pixels, expected at most {limit}; cut it, or lower the sizes in {file}"
    )]
    Pixels { width: u32, height: u32, pixels: u64, limit: u64, file: &'static str },
}

impl Size {
    /// A size of `width` by `height`.
    pub fn new(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    /// Width times height.
    pub fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// All of an image of this size.
    pub fn all(self) -> Rect {
        Rect { left: 0, top: 0, size: self }
    }

    /// This size in squares of `side`.
    pub(super) fn per(self, side: u32) -> Size {
        Size::new(self.width / side, self.height / side)
    }
}

impl Geometry {
    /// Rows of the language model for the whole image, without those of marks between its parts; `None` where the processor's files
    /// do not say it.
    pub fn tokens(&self) -> Option<u64> {
        self.parts.iter().map(|part| part.tokens).sum()
    }

    /// Pixels of all parts.
    pub fn pixels(&self) -> u64 {
        self.parts.iter().map(|part| part.size.area()).sum()
    }
}

impl ImageProcessor {
    /// The most patches that an image of any size may have, where the processor makes patches; else 0.
    pub fn most_patches(&self) -> usize {
        let patches = match self.rule {
            Rule::Smart { patch, merge, min_pixels, max_pixels, .. } => {
                smart_places(patch * merge, min_pixels, max_pixels) * u64::from(merge).pow(2)
            }
            Rule::Budget { patches, .. } => patches.into(),
            Rule::Tiles(Tiles { patch, downsample_factor, max_image_tokens, tiles, .. }) => {
                let tile = tiles.map_or(0, |(side, ..)| u64::from(side / patch).pow(2));
                (u64::from(max_image_tokens) * u64::from(downsample_factor).pow(2)).max(tile)
            }
            _ => 0,
        };
        usize::try_from(patches).unwrap_or(usize::MAX)
    }

    /// The side, in patches, of the squares of which the sides of images are whole multiples, where patches come from left to right.
    pub(crate) fn joined(&self) -> u32 {
        if let Rule::Tiles(Tiles { downsample_factor, .. }) = self.rule { downsample_factor } else { 1 }
    }

    /// The most parts that an image of any size becomes.
    pub fn most_parts(&self) -> usize {
        let parts = match self.rule {
            Rule::Squares { longest, side, split: true, .. } => match longest.min(IDEFICS3_EDGE).div_ceil(side) {
                0 | 1 => 1,
                along => along * along + 1,
            },
            Rule::Tiles(Tiles { tiles: Some((_, _, most)), .. }) => most + 1,
            _ => 1,
        };
        parts as usize
    }

    /// What an image of this size becomes, after its orientation was applied.
    ///
    /// # Errors
    /// When the processor does not take images of this size.
    pub fn geometry(&self, image: Size) -> Result<Geometry, SizeError> {
        let Size { width, height } = image;
        if width == 0 || height == 0 {
            return Err(SizeError::Empty { width, height });
        }
        let patches = |size: Size, side: u32, merge: u32| {
            let grid = size.per(side);
            whole(image, size, Some(grid), Some(grid.area() / u64::from(merge).pow(2)))
        };
        let geometry = match self.rule {
            Rule::Fixed { size, tokens } => whole(image, size, None, tokens),
            Rule::Budget { patch, patches: most } => {
                let size = within_budget(image, patch, most);
                whole(image, size, Some(size.per(patch)), None)
            }
            Rule::Smart { patch, merge, min_pixels, max_pixels, .. } => {
                patches(smart(image, patch * merge, min_pixels, max_pixels)?, patch, merge)
            }
            Rule::Within { limit, patch, merge } => patches(whole_patches(image, limit, patch * merge)?, patch, merge),
            Rule::Squares { longest, side, split, tokens } => squares(image, longest, side, split, tokens),
            Rule::Tiles(rule) => tiles::of(image, &rule),
            Rule::Soft { patch, pooling, tokens, .. } => patches(soft(image, patch, pooling, tokens)?, patch, pooling),
        };
        let grids = self.rule.layout();
        let geometry = match grids {
            Layout::Patches { patch } => Geometry {
                parts: geometry.parts.iter().map(|part| Part { grid: Some(part.size.per(patch)), ..*part }).collect(),
                ..geometry
            },
            _ => geometry,
        };
        let most = geometry.stages.iter().map(|size| size.area()).chain([geometry.pixels()]).max().unwrap_or(0);
        if most > MAX_PIXELS {
            let file = super::PREPROCESSOR_FILE;
            return Err(SizeError::Pixels { width, height, pixels: most, limit: MAX_PIXELS, file });
        }
        Ok(geometry)
    }
}

/// The image resized to one size.
pub(super) fn whole(image: Size, size: Size, grid: Option<Size>, tokens: Option<u64>) -> Geometry {
    let part = Part { stage: 0, crop: image.all(), size, grid, tokens, place: Place::Whole };
    Geometry { stages: Vec::new(), parts: vec![part] }
}

/// `stage` cut into squares of `side`, from left to right and then down.
pub(super) fn cut(stage: usize, size: Size, side: u32, tokens: Option<u64>) -> impl Iterator<Item = Part> {
    let square = Size::new(side, side);
    let Size { width: columns, height: rows } = size.per(side);
    let places = (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)));
    places.map(move |(row, column)| {
        let crop = Rect { left: column * side, top: row * side, size: square };
        Part { stage, crop, size: square, grid: None, tokens, place: Place::Tile { row, column } }
    })
}

/// `round(side / factor) * factor` of Python, which rounds halves to the even number.
pub(super) fn rounded(side: u32, factor: f64) -> f64 {
    (f64::from(side) / factor).round_ties_even() * factor
}

/// `smart_resize` of Qwen2-VL.
fn smart(image: Size, factor: u32, min_pixels: u64, max_pixels: u64) -> Result<Size, SizeError> {
    let Size { width, height } = image;
    let (long, short) = (width.max(height), width.min(height));
    if f64::from(long) / f64::from(short) > MAX_ASPECT {
        return Err(SizeError::Aspect { width, height, limit: MAX_ASPECT });
    }
    let factor = f64::from(factor);
    let near = [width, height].map(|side| rounded(side, factor));
    Ok(within(image, near, factor, min_pixels as f64, max_pixels as f64))
}

/// A bound of the squares of `factor` pixels of what [`smart`] makes of an image of any size. It is `max_pixels`, unless that is so
/// little that less than a square is left of the short side of an image, or that rounding up from `min_pixels` leads beyond it.
fn smart_places(factor: u32, min_pixels: u64, max_pixels: u64) -> u64 {
    let [least, most] = [min_pixels, max_pixels].map(|pixels| pixels as f64 / f64::from(factor).powi(2));
    let (long, thin) = (MAX_ASPECT.sqrt(), (MAX_ASPECT * most).sqrt());
    let grown = least + least.sqrt() * (long + 1.0 / long) + 1.0;
    let limit = MAX_PIXELS as f64 / f64::from(factor).powi(2);
    most.max(thin).max(grown).min(limit).max(1.0) as u64
}

/// `near`, multiples of `factor`, unless their area is not from `min` to `max`: then those that are, in the ratio of `image`.
pub(super) fn within(image: Size, near: [f64; 2], factor: f64, min: f64, max: f64) -> Size {
    let (sides, area) = ([image.width, image.height], image.area() as f64);
    let [width, height] = if near[0] * near[1] > max {
        let beta = (area / max).sqrt();
        sides.map(|side| ((f64::from(side) / beta / factor).floor() * factor).max(factor))
    } else if near[0] * near[1] < min {
        let beta = (min / area).sqrt();
        sides.map(|side| (f64::from(side) * beta / factor).ceil() * factor)
    } else {
        near
    };
    Size::new(width as u32, height as u32)
}

/// `get_resize_output_image_size` of Pixtral. Where no pixel is left of a side, torch refuses.
fn whole_patches(image: Size, limit: Size, patch: u32) -> Result<Size, SizeError> {
    let Size { width, height } = image;
    let ratio = f64::max(f64::from(height) / f64::from(limit.height), f64::from(width) / f64::from(limit.width));
    let [wide, high] = [width, height].map(|side| match ratio > 1.0 {
        true => (f64::from(side) / ratio).floor() as u32,
        false => side,
    });
    if wide == 0 || high == 0 {
        return Err(SizeError::Thin { width, height, limit: limit.width.max(limit.height) });
    }
    Ok(Size::new(wide.next_multiple_of(patch), high.next_multiple_of(patch)))
}

/// Idefics 3: the longest edge to a number, up to whole squares, which the image is cut into; then the image as one square.
fn squares(image: Size, longest: u32, side: u32, split: bool, tokens: u64) -> Geometry {
    let resized = below(longest_edge(image, longest), IDEFICS3_EDGE);
    let (square, tokens) = (Size::new(side, side), Some(tokens));
    let part = |stage, of: Size, place| Part { stage, crop: of.all(), size: square, grid: None, tokens, place };
    if !split {
        return Geometry { stages: vec![resized], parts: vec![part(1, resized, Place::Whole)] };
    }
    let full = whole_squares(resized, side);
    let parts = match full == square {
        true => vec![part(2, full, Place::Whole)],
        false => cut(2, full, side, tokens).chain([part(2, full, Place::Overview)]).collect(),
    };
    Geometry { stages: vec![resized, full], parts }
}

/// `_resize_output_size_rescale_to_max_len`: the longer edge becomes `longest`, the other stays in proportion, and even.
fn longest_edge(image: Size, longest: u32) -> Size {
    let aspect = f64::from(image.width) / f64::from(image.height);
    let even = |side: f64| (side as u32).next_multiple_of(2).max(1);
    match image.width >= image.height {
        true => Size::new(longest, even(f64::from(longest) / aspect)),
        false => Size::new(even(f64::from(longest) * aspect), longest),
    }
}

/// `_resize_output_size_scale_below_upper_bound`.
fn below(size: Size, limit: u32) -> Size {
    let aspect = f64::from(size.width) / f64::from(size.height);
    if size.width >= size.height && size.width > limit {
        Size::new(limit, ((f64::from(limit) / aspect) as u32).max(1))
    } else if size.height > size.width && size.height > limit {
        Size::new(((f64::from(limit) * aspect) as u32).max(1), limit)
    } else {
        size
    }
}

/// `resize_for_vision_encoder`.
fn whole_squares(size: Size, side: u32) -> Size {
    let aspect = f64::from(size.width) / f64::from(size.height);
    let up = |length: u32| length.div_ceil(side) * side;
    match size.width >= size.height {
        true => {
            let width = up(size.width);
            Size::new(width, up((f64::from(width) / aspect) as u32))
        }
        false => {
            let height = up(size.height);
            Size::new(up((f64::from(height) * aspect) as u32), height)
        }
    }
}

/// `get_aspect_ratio_preserving_size` of Gemma 4.
fn soft(image: Size, patch: u32, pooling: u32, tokens: u32) -> Result<Size, SizeError> {
    let Size { width, height } = image;
    let limit = u64::from(tokens) * u64::from(pooling).pow(2);
    let target = (limit * u64::from(patch).pow(2)) as f64;
    let factor = (target / image.area() as f64).sqrt();
    let side = u64::from(patch * pooling);
    let down = |length: u32| (factor * f64::from(length) / side as f64).floor() as u64 * side;
    let along = |long: u32, short: u32| (u64::from(long / short) * side).min(u64::from(tokens) * side);
    let (wide, high) = match (down(width), down(height)) {
        (0, 0) => return Err(SizeError::Patches { width, height, limit }),
        (_, 0) => (along(width, height), side),
        (0, _) => (side, along(height, width)),
        both => both,
    };
    if (wide * high) as f64 > target {
        return Err(SizeError::Patches { width, height, limit });
    }
    Ok(Size::new(wide as u32, high as u32))
}

/// `get_image_size_for_max_num_patches` of SigLIP 2: a search by halves for the scale.
fn within_budget(image: Size, patch: u32, most: u32) -> Size {
    const NEAR: f64 = 1e-5;
    let patch = f64::from(patch);
    let scaled = |scale: f64, side: u32| ((f64::from(side) * scale / patch).ceil() * patch).max(patch);
    let (mut low, mut high) = (NEAR / 10.0, 100.0);
    while high - low >= NEAR {
        let scale = (low + high) / 2.0;
        let patches = (scaled(scale, image.height) / patch) * (scaled(scale, image.width) / patch);
        match patches <= f64::from(most) {
            true => low = scale,
            false => high = scale,
        }
    }
    Size::new(scaled(low, image.width) as u32, scaled(low, image.height) as u32)
}

impl Tiles {
    /// The side of a square of pixels that becomes one row of the language model.
    pub(super) fn factor(&self) -> f64 {
        f64::from(self.patch) * f64::from(self.downsample_factor)
    }
}
