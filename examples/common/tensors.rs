//! Rows of numbers -> a safetensors file.

use crate::common::tell;
use model_factory::Error;
use safetensors::{Dtype, tensor::TensorView};
use std::path::Path;
use std::sync::Arc;

/// Writes rows of F32 to the file at `path`, as a tensor with this name.
pub(crate) fn save(path: &Path, name: &str, numbers: &[f32], shape: [usize; 2]) -> Result<(), Error> {
    let tensor = TensorView::new(Dtype::F32, shape.to_vec(), bytemuck::cast_slice(numbers));
    let saved = tensor.and_then(|tensor| safetensors::serialize_to_file([(name, tensor)], None, path));
    saved.map_err(|error| Error::Io { path: path.to_owned(), source: Arc::new(std::io::Error::other(error)) })?;
    tell(format_args!("wrote {shape:?} {name} to {}", path.display()));
    Ok(())
}
