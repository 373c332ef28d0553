//! Why bytes are no picture, or a picture is nothing that a model takes.

use crate::Format;
use model_factory_dtypes::memory::OutOfMemory;
use model_factory_spec::vision::processor::SizeError;

/// A result of reading or preparing a picture.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a picture cannot be read or prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum Error {
    /// A kind of file that is not read.
    #[error("this is {found}, expected a PNG, JPEG, WebP or GIF image; convert it to one of these")]
    Format { found: &'static str },
    /// A file that is not there, is no regular file, or is not given by the system.
    #[error("it cannot be read: {reason}; give the path of an image file")]
    File { reason: String },
    /// More than the limits allow, by what the file's header says. Nothing was decoded.
    #[error("the {what} of the image: {found}, at most {limit} are allowed; make the image smaller")]
    Limit { what: &'static str, found: u64, limit: u64 },
    /// No pixels.
    #[error("the {format} image has {width} by {height} pixels, expected at least one; get another copy of the file")]
    Empty { format: Format, width: u32, height: u32 },
    /// The file ends before the image does.
    #[error("the {format} image is truncated: {what}; get another copy of the file")]
    Truncated { format: Format, what: &'static str },
    /// The file is not what its format says.
    #[error("the {format} image is damaged: {message}; get another copy of the file")]
    Damaged { format: Format, message: String },
    /// A kind of its format that is not read.
    #[error("the {format} image is of a kind that is not read ({what}); convert it to an ordinary PNG or JPEG")]
    Unsupported { format: Format, what: String },
    /// Pixels that do not fit the size.
    #[error("{found} bytes of pixels were given for {width} by {height}, expected three for each pixel")]
    PixelCount { width: u32, height: u32, found: usize },
    /// A size that the model does not take.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Memory that the system refuses.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}
