//! Bytes or pixels -> a picture.

use crate::{Error, Result, decode, scan};
use model_factory_dtypes::memory;
use model_factory_format::error::FormatErrorKind;
use model_factory_format::{Error as FileError, Image};
use model_factory_spec::vision::processor::Size;
use std::borrow::Cow;
use std::fmt;

/// What an image may take, checked before anything of it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the file.
    pub bytes: usize,
    /// Width times height. Decoding takes up to 16 bytes of memory for each pixel.
    pub pixels: u64,
    /// Width or height, the larger.
    pub side: u32,
}

/// 64 MiB, and as many pixels as Pillow reads without a warning (`MAX_IMAGE_PIXELS`);
/// a side as long as JPEG and GIF can say.
impl Default for Limits {
    fn default() -> Limits {
        Limits { bytes: 64 << 20, pixels: 89_478_485, side: 65_535 }
    }
}

impl Limits {
    /// At most `bytes` in a file.
    pub fn bytes(self, bytes: usize) -> Limits {
        Limits { bytes, ..self }
    }

    /// At most `side` in width and in height.
    pub fn side(self, side: u32) -> Limits {
        Limits { side, ..self }
    }

    /// At most `pixels` in an image.
    pub fn pixels(self, pixels: u64) -> Limits {
        Limits { pixels, ..self }
    }
}

/// A kind of image file that is read. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say what they are
pub enum Format {
    Png,
    Jpeg,
    WebP,
    Gif,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Png => "PNG",
            Format::Jpeg => "JPEG",
            Format::WebP => "WebP",
            Format::Gif => "GIF",
        })
    }
}

/// An image in memory: red, green and blue of each pixel, from left to right and then down.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    pub(crate) size: Size,
    pub(crate) pixels: Vec<u8>,
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Picture({} by {})", self.size.width, self.size.height)
    }
}

impl Picture {
    /// Decodes an image file as `load_image` of transformers does: the first frame, turned as its EXIF data say, as Pillow's
    /// `convert("RGB")` makes it RGB. Transparency is left out: a pixel has the color that is stored for it.
    ///
    /// # Errors
    /// Any [`Error`] but `PixelCount` and `Size`.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture> {
        decode::picture(bytes, limits)
    }

    /// The size that [`Picture::decode`] would give, from the file's header.
    ///
    /// # Errors
    /// As [`Picture::decode`], but for what is only seen when the pixels are decoded.
    pub fn size_of(bytes: &[u8], limits: &Limits) -> Result<Size> {
        decode::size(bytes, limits)
    }

    /// The picture of `image`: of a file as [`decode`](Self::decode), of pixels as [`from_rgb`](Self::from_rgb).
    ///
    /// # Errors
    /// Those of both, and `File`.
    pub fn open(image: &Image, limits: &Limits) -> Result<Picture> {
        match (file(image, limits)?, image) {
            (None, Image::Rgb { width, height, pixels }) => Picture::from_rgb(*width, *height, pixels),
            (bytes, _) => Picture::decode(&bytes.unwrap_or_default(), limits),
        }
    }

    /// The size that [`open`](Self::open) would give, without decoding the pixels.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for what is only seen when the pixels are decoded.
    pub fn open_size(image: &Image, limits: &Limits) -> Result<Size> {
        match (file(image, limits)?, image) {
            (None, Image::Rgb { width, height, .. }) => Ok(Size::new(*width, *height)),
            (bytes, _) => Picture::size_of(&bytes.unwrap_or_default(), limits),
        }
    }

    /// The format of an image file, by its first bytes.
    ///
    /// # Errors
    /// `Format` for another one.
    pub fn format_of(bytes: &[u8]) -> Result<Format> {
        scan::format(bytes)
    }

    /// A picture of pixels that were decoded elsewhere: red, green and blue of each.
    ///
    /// # Errors
    /// `PixelCount` unless there are three bytes for each pixel, and at least one pixel; `Memory`.
    pub fn from_rgb(width: u32, height: u32, rgb: &[u8]) -> Result<Picture> {
        let size = Size::new(width, height);
        if size.area() == 0 || rgb.len() as u64 / 3 != size.area() || !rgb.len().is_multiple_of(3) {
            return Err(Error::PixelCount { width, height, found: rgb.len() });
        }
        Ok(Picture { size, pixels: memory::copied(rgb, "an image")? })
    }

    /// Its size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Red, green and blue of each pixel, from left to right and then down.
    pub fn rgb(&self) -> &[u8] {
        &self.pixels
    }
}

/// The bytes of the file of `image`.
fn file<'i>(image: &'i Image, limits: &Limits) -> Result<Option<Cow<'i, [u8]>>> {
    image.file_bytes(limits.bytes as u64).map_err(|error| match error {
        FileError::Io { source, .. } => Error::File { reason: source.to_string() },
        FileError::Format { kind: FormatErrorKind::NotAFile, .. } => {
            Error::File { reason: "it is no regular file".into() }
        }
        FileError::Format { kind: FormatErrorKind::TooMany { found, limit, .. }, .. } => {
            Error::Limit { what: "length of the file in bytes", found, limit }
        }
        error => Error::File { reason: error.to_string() },
    })
}

/// The pixels themselves.
impl From<Picture> for Image {
    fn from(picture: Picture) -> Image {
        let Size { width, height } = picture.size;
        Image::Rgb { width, height, pixels: picture.pixels.into() }
    }
}
