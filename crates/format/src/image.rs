//! An image as it is given: what decodes it is in a crate of its own.

use crate::error::Result;
use crate::source::content;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image: a file, the bytes of a file, or pixels. Files are PNG, JPEG, WebP or GIF, of which the first frame counts.
///
/// ```
/// use model_factory_format::Image;
///
/// assert_eq!(Image::from("cat.png"), Image::Path("cat.png".into()));
/// assert_eq!(Image::from(b"GIF89a".as_slice()).to_string(), "6 bytes");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Image {
    /// A file, read when the prompt is made.
    Path(PathBuf),
    /// The bytes of a file.
    Bytes(Arc<[u8]>),
    /// Pixels in rows from the top: red, green and blue of each.
    #[allow(missing_docs)] // the names say what they are
    Rgb { width: u32, height: u32, pixels: Arc<[u8]> },
}

impl Image {
    /// The bytes of the file, at most `limit`; `None` for pixels.
    ///
    /// # Errors
    /// `Io`, `Incomplete` or `Format` for a file that cannot be read, is not a regular file, or is longer.
    pub fn file_bytes(&self, limit: u64) -> Result<Option<Cow<'_, [u8]>>> {
        match self {
            Image::Path(path) => content::read(path, limit).map(|bytes| Some(bytes.into())),
            Image::Bytes(bytes) => Ok(Some(Cow::Borrowed(bytes))),
            Image::Rgb { .. } => Ok(None),
        }
    }
}

macro_rules! from {
    ($($variant:ident: $($given:ty),+;)+) => {
        $($(impl From<$given> for Image {
            fn from(given: $given) -> Image {
                Image::$variant(given.into())
            }
        })+)+
    };
}

from! {
    Path: &str, String, &Path, PathBuf;
    Bytes: &[u8], Vec<u8>, Arc<[u8]>;
}

/// The path, or how much is given.
impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Image::Path(path) => write!(f, "{}", path.display()),
            Image::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Image::Rgb { width, height, .. } => write!(f, "{width} by {height} pixels"),
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({self})")
    }
}
