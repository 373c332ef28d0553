//! Bytes -> pixels, by the decoders of the image crate: limits first, then the pixels, then RGB as Pillow makes it.

use crate::scan::{self, GifFrame};
use crate::{Error, Format, Limits, Picture, Result, orientation};
use image::codecs::{gif::GifDecoder, jpeg::JpegDecoder, png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageError};
use model_factory_dtypes::memory;
use model_factory_spec::vision::processor::Size;
use std::io::{Cursor, ErrorKind};

const WHAT: &str = "an image";

/// Bytes for the parts of a PNG that are no pixels: text, color profiles.
const PNG_CHUNKS: u64 = 16 << 20;

/// The color type of a PNG without color and without transparency.
const GRAY: u8 = 0;

/// A file whose header was read and found to be within the limits.
struct Opened<'a> {
    format: Format,
    decoder: Box<dyn ImageDecoder + 'a>,
    size: Size,
    orientation: Orientation,
    /// Whether a PNG has gray pixels of 16 bits.
    deep_gray: bool,
    frame: Option<GifFrame>,
}

pub(crate) fn size(bytes: &[u8], limits: &Limits) -> Result<Size> {
    let opened = open(bytes, limits)?;
    Ok(orientation::turned(opened.size, opened.orientation))
}

pub(crate) fn picture(bytes: &[u8], limits: &Limits) -> Result<Picture> {
    let Opened { format, decoder, size, orientation, deep_gray, frame } = open(bytes, limits)?;
    let color = decoder.color_type();
    let Ok(length) = usize::try_from(decoder.total_bytes()) else {
        return Err(Error::Limit {
            what: "bytes of the pixels",
            found: decoder.total_bytes(),
            limit: usize::MAX as u64,
        });
    };
    let mut pixels = memory::zeros::<u8>(length, WHAT)?;
    decoder.read_image_boxed(&mut pixels).map_err(|error| failed(format, error))?;
    let mut pixels = rgb(format, color, pixels, deep_gray)?;
    if let Some(GifFrame { frame, around, screen }) = frame.filter(|frame| frame.frame != frame.screen.all()) {
        let (rows, columns) = (frame.top..frame.top + frame.size.height, frame.left..frame.left + frame.size.width);
        let places = (0..screen.height).flat_map(|y| (0..screen.width).map(move |x| (x, y)));
        for ((x, y), pixel) in places.zip(pixels.as_chunks_mut::<3>().0) {
            if !rows.contains(&y) || !columns.contains(&x) {
                *pixel = around;
            }
        }
    }
    orientation::apply(Picture { size, pixels }, orientation)
}

/// Reads the header of a file, and checks what it says.
fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Opened<'a>> {
    within("bytes", bytes.len() as u64, limits.bytes as u64)?;
    let format = scan::format(bytes)?;
    // What the decoders would fill up.
    match format {
        Format::Jpeg if !scan::jpeg_is_whole(bytes) => return scan::truncated(format, "it has no end"),
        Format::WebP if !scan::webp_is_whole(bytes) => return scan::truncated(format, "it is shorter than it says"),
        _ => {}
    }
    let wrong = |error| failed(format, error);
    let (mut deep_gray, mut frame) = (false, None);
    let mut decoder: Box<dyn ImageDecoder + 'a> = match format {
        Format::Png => {
            let (size, bits, color) = scan::png_header(bytes)?;
            check(format, size, limits)?;
            deep_gray = bits == 16 && color == GRAY;
            let mut chunks = image::Limits::no_limits();
            chunks.max_alloc = Some(PNG_CHUNKS + u64::from(size.width) * 32);
            Box::new(PngDecoder::with_limits(Cursor::new(bytes), chunks).map_err(wrong)?)
        }
        Format::Jpeg => Box::new(JpegDecoder::new(Cursor::new(bytes)).map_err(wrong)?),
        Format::WebP => Box::new(WebPDecoder::new(Cursor::new(bytes)).map_err(wrong)?),
        Format::Gif => {
            let found = scan::gif_frame(bytes)?;
            check(format, found.screen, limits)?;
            let (inner, outer) = (found.frame, found.screen);
            let ends = (inner.left + inner.size.width, inner.top + inner.size.height);
            if ends.0 > outer.width || ends.1 > outer.height {
                return Err(Error::Unsupported { format, what: "its first frame lies beyond its edges".into() });
            }
            frame = Some(found);
            Box::new(GifDecoder::new(Cursor::new(bytes)).map_err(wrong)?)
        }
    };
    let (width, height) = decoder.dimensions();
    let size = Size::new(width, height);
    check(format, size, limits)?;
    let orientation = oriented(bytes, format, decoder.as_mut());
    Ok(Opened { format, decoder, size, orientation, deep_gray, frame })
}

/// How the picture was stored, by its EXIF data, else by its XMP data; upright where neither says it.
fn oriented(bytes: &[u8], format: Format, decoder: &mut dyn ImageDecoder) -> Orientation {
    let exif = match format {
        // Also after the pixels, where the decoder has not been.
        Format::Png => scan::png_chunks(bytes).find(|(name, _)| *name == b"eXIf").map(|(_, data)| data.to_vec()),
        Format::Gif => return Orientation::NoTransforms,
        _ => decoder.exif_metadata().ok().flatten(),
    };
    let exif = exif.and_then(|exif| Orientation::from_exif_chunk(&exif));
    let xmp = || orientation::of_xmp(&decoder.xmp_metadata().ok()??);
    exif.or_else(xmp).unwrap_or(Orientation::NoTransforms)
}

fn check(format: Format, size: Size, limits: &Limits) -> Result<()> {
    let Size { width, height } = size;
    if width == 0 || height == 0 {
        return Err(Error::Empty { format, width, height });
    }
    within("pixels", size.area(), limits.pixels)?;
    within("longest side", width.max(height).into(), limits.side.into())
}

fn within(what: &'static str, found: u64, limit: u64) -> Result<()> {
    if found > limit { Err(Error::Limit { what, found, limit }) } else { Ok(()) }
}

/// RGB, as Pillow converts: transparency is left out, gray of 16 bits is cut off at 255, and of color its upper bits remain.
fn rgb(format: Format, color: ColorType, pixels: Vec<u8>, deep_gray: bool) -> Result<Vec<u8>> {
    let (bytes, channels) = match color {
        ColorType::Rgb8 => return Ok(pixels),
        ColorType::L8 => (1, 1),
        ColorType::La8 => (1, 2),
        ColorType::Rgba8 => (1, 4),
        ColorType::L16 => (2, 1),
        ColorType::La16 => (2, 2),
        ColorType::Rgb16 => (2, 3),
        ColorType::Rgba16 => (2, 4),
        other => return Err(Error::Unsupported { format, what: format!("its pixels are {other:?}") }),
    };
    let value = |bytes: &[u8]| match *bytes {
        [low, high] => match u16::from_ne_bytes([low, high]) {
            deep if deep_gray => deep.min(255) as u8,
            deep => (deep >> 8) as u8,
        },
        [byte, ..] => byte,
        [] => 0,
    };
    let count = pixels.len() / (bytes * channels);
    let mut rgb = memory::reserved(count * 3, WHAT)?;
    for pixel in pixels.chunks_exact(bytes * channels) {
        let at = |channel: usize| value(&pixel[channel * bytes..(channel + 1) * bytes]);
        rgb.extend(if channels < 3 { [at(0); 3] } else { [at(0), at(1), at(2)] });
    }
    Ok(rgb)
}

/// A decoder's error.
fn failed(format: Format, error: ImageError) -> Error {
    let message = |error: &dyn std::error::Error| {
        let cause = std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error);
        model_factory_format::error::escaped(&cause.to_string()).chars().take(200).collect::<String>()
    };
    match error {
        ImageError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Error::Truncated { format, what: "it ends before its pixels do" }
        }
        ImageError::Unsupported(error) => Error::Unsupported { format, what: message(&error) },
        ImageError::Limits(_) => {
            Error::Unsupported { format, what: "its texts or profiles take too much memory".into() }
        }
        other => Error::Damaged { format, message: message(&other) },
    }
}
