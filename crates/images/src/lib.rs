#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod decode;
mod error;
mod orientation;
mod picture;
mod resize;
mod scan;
mod values;

pub use error::{Error, Result};
pub use model_factory_spec::vision::processor::{Geometry, ImageProcessor, Layout, Size, SizeError};
pub use picture::{Format, Limits, Picture};
pub use values::{Pixels, Values};
