//! Pictures that were stored turned or mirrored.

use crate::{Picture, Result};
use image::metadata::Orientation;
use model_factory_dtypes::memory;
use model_factory_spec::vision::processor::Size;

/// The orientation in XMP data, which Pillow reads where EXIF data have none.
pub(crate) fn of_xmp(xmp: &[u8]) -> Option<Orientation> {
    const TAG: &[u8] = b"tiff:Orientation";
    let at = xmp.windows(TAG.len()).position(|window| window == TAG)?;
    let rest = &xmp[at + TAG.len()..];
    let digit = rest.strip_prefix(b"=\"").or(rest.strip_prefix(b">"))?.first()?;
    Orientation::from_exif(digit.wrapping_sub(b'0'))
}

/// The size of a picture of `size` after it was turned.
pub(crate) fn turned(size: Size, orientation: Orientation) -> Size {
    if swaps(orientation) { Size::new(size.height, size.width) } else { size }
}

fn swaps(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// Turns a picture upright.
pub(crate) fn apply(picture: Picture, orientation: Orientation) -> Result<Picture> {
    // In the stored picture: whether its columns, and its rows, run backwards in the upright one.
    let (columns_back, rows_back) = match orientation {
        Orientation::NoTransforms => return Ok(picture),
        Orientation::FlipHorizontal | Orientation::Rotate270 => (true, false),
        Orientation::Rotate180 | Orientation::Rotate270FlipH => (true, true),
        Orientation::FlipVertical | Orientation::Rotate90 => (false, true),
        Orientation::Rotate90FlipH => (false, false),
    };
    let (from, size) = (picture.size, turned(picture.size, orientation));
    let mut pixels = memory::reserved(picture.pixels.len(), "an image that is turned")?;
    let (stored, _) = picture.pixels.as_chunks::<3>();
    for y in 0..size.height {
        for x in 0..size.width {
            let (column, row) = if swaps(orientation) { (y, x) } else { (x, y) };
            let column = if columns_back { from.width - 1 - column } else { column };
            let row = if rows_back { from.height - 1 - row } else { row };
            pixels.extend(stored[row as usize * from.width as usize + column as usize]);
        }
    }
    Ok(Picture { size, pixels })
}
