//! What the containers of image files say before a pixel is decoded.

use crate::{Error, Format, Result};
use model_factory_spec::vision::processor::{Rect, Size};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Kinds of files that are no images we read: the bytes at a place, and the name.
const OTHERS: &[(usize, &[u8], &str)] = &[
    (0, b"BM", "a BMP image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (4, b"ftypavif", "an AVIF image"),
    (4, b"ftypheic", "a HEIC image"),
    (4, b"ftypheix", "a HEIC image"),
    (4, b"ftypmif1", "a HEIF image"),
    (4, b"ftyp", "a video"),
    (0, b"\0\0\x01\0", "an icon"),
    (0, b"\xff\x0a", "a JPEG XL image"),
    (0, b"\0\0\0\x0cJXL ", "a JPEG XL image"),
    (0, b"\0\0\0\x0cjP  ", "a JPEG 2000 image"),
    (0, b"8BPS", "a Photoshop document"),
    (0, b"qoif", "a QOI image"),
    (0, b"%PDF", "a PDF document"),
    (0, b"<?xml", "an XML document, perhaps SVG"),
    (0, b"<svg", "an SVG drawing"),
    (0, b"<", "a text that begins like HTML or XML"),
    (0, b"data:", "a data URL, not the bytes in it"),
];

/// The format by the first bytes.
pub(crate) fn format(bytes: &[u8]) -> Result<Format> {
    let at = |place: usize, magic: &[u8]| bytes.get(place..).is_some_and(|rest| rest.starts_with(magic));
    match bytes {
        _ if at(0, PNG) => Ok(Format::Png),
        _ if at(0, b"\xff\xd8\xff") => Ok(Format::Jpeg),
        _ if at(0, b"RIFF") && at(8, b"WEBP") => Ok(Format::WebP),
        _ if at(0, b"GIF87a") || at(0, b"GIF89a") => Ok(Format::Gif),
        [] => Err(Error::Format { found: "an empty file" }),
        _ => {
            let known = OTHERS.iter().find(|(place, magic, _)| at(*place, magic));
            Err(Error::Format { found: known.map_or("a file of an unknown kind", |known| known.2) })
        }
    }
}

pub(crate) fn truncated<T>(format: Format, what: &'static str) -> Result<T> {
    Err(Error::Truncated { format, what })
}

fn damaged<T>(format: Format, message: &str) -> Result<T> {
    Err(Error::Damaged { format, message: message.into() })
}

/// Whether a WebP file has all the bytes that its header says.
pub(crate) fn webp_is_whole(bytes: &[u8]) -> bool {
    let said = bytes.get(4..).and_then(<[u8]>::first_chunk::<4>);
    said.is_some_and(|said| u64::from(u32::from_le_bytes(*said)) + 8 <= bytes.len() as u64)
}

/// The chunks of a PNG before the first that is cut off.
pub(crate) fn png_chunks(bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    let mut rest = bytes.get(PNG.len()..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let (data, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        rest = after.get(4..).unwrap_or_default();
        Some((name, data))
    })
}

/// The size that a PNG's header says, its bits for each channel, and its color type.
pub(crate) fn png_header(bytes: &[u8]) -> Result<(Size, u8, u8)> {
    match png_chunks(bytes).next() {
        Some((b"IHDR", data)) => match *data {
            [a, b, c, d, e, f, g, h, bits, color, _, _, _] => {
                let size = Size::new(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
                Ok((size, bits, color))
            }
            _ => damaged(Format::Png, "its header has another length"),
        },
        Some(_) => damaged(Format::Png, "it does not begin with its header"),
        None => truncated(Format::Png, "it ends within its header"),
    }
}

/// Whether a JPEG has its last marker; what lies in the segments is not looked at.
pub(crate) fn jpeg_is_whole(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        // The next marker; what lies before it is the data of a scan.
        let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xff)) else {
            return false;
        };
        at += next + 1;
        match bytes.get(at) {
            None => return false,
            Some(0xd9) => return true,
            // A byte of data, a marker that restarts, a further byte of filling: no segment follows.
            Some(0x00 | 0x01 | 0xd0..=0xd8) => at += 1,
            Some(0xff) => {}
            Some(_) => match bytes.get(at + 1..at + 3) {
                Some(&[high, low]) => at += 1 + usize::from(u16::from_be_bytes([high, low])),
                _ => return false,
            },
        }
    }
}

/// The first frame of a GIF.
pub(crate) struct GifFrame {
    /// The size of the image.
    pub(crate) screen: Size,
    /// Where the frame lies in it.
    pub(crate) frame: Rect,
    /// The color of what the frame does not cover.
    pub(crate) around: [u8; 3],
}

/// Reads a GIF up to the end of its first frame.
pub(crate) fn gif_frame(bytes: &[u8]) -> Result<GifFrame> {
    gif_parts(bytes).unwrap_or_else(|| truncated(Format::Gif, "it ends before its first frame does"))
}

/// As [`gif_frame`]; `None` where the bytes end.
fn gif_parts(bytes: &[u8]) -> Option<Result<GifFrame>> {
    let word = |at: usize| Some(u32::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    // The byte after the blocks of data that begin at `at`, each with its length; the last is empty.
    let after = |mut at: usize| {
        while let length @ 1.. = usize::from(*bytes.get(at)?) {
            at += 1 + length;
        }
        Some(at + 1)
    };
    let colors = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let screen = Size::new(word(6)?, word(8)?);
    let flags = *bytes.get(10)?;
    let (mut palette, mut count) = (13, colors(flags));
    let mut at = 13 + count;
    let mut transparent = 0;
    loop {
        match *bytes.get(at)? {
            0x21 => {
                if *bytes.get(at + 1)? == 0xf9 && *bytes.get(at + 3)? & 1 == 1 {
                    transparent = usize::from(*bytes.get(at + 6)?);
                }
                at = after(at + 2)?;
            }
            0x2c => {
                let frame =
                    Rect { left: word(at + 1)?, top: word(at + 3)?, size: Size::new(word(at + 5)?, word(at + 7)?) };
                let own = colors(*bytes.get(at + 9)?);
                if own > 0 {
                    (palette, count) = (at + 10, own);
                }
                let color = 3 * transparent;
                let stored = bytes.get(palette..palette + count)?.get(color..color + 3);
                let around = stored.and_then(|color| color.try_into().ok()).unwrap_or_default();
                // A byte with the size of its codes comes before the data.
                after(at + 10 + own + 1)?;
                return Some(Ok(GifFrame { screen, frame, around }));
            }
            0x3b => return Some(damaged(Format::Gif, "it has no frame")),
            _ => return Some(damaged(Format::Gif, "a block of an unknown kind comes before its first frame")),
        }
    }
}
