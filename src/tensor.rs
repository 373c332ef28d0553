//! candle's tensors, which the face gives: made of rows of floats, and read as such.

use crate::error::Result;
use candle_core::{CpuStorage, Device, Storage, Tensor};

/// `logits` `[vocab]` as a tensor, without a copy.
pub(crate) fn of_row(logits: Vec<f32>) -> Result<Tensor> {
    let vocab = logits.len();
    Ok(Tensor::from_vec(logits, vocab, &Device::Cpu)?)
}

/// Runs `take` on the elements of a tensor: its own, or a copy of those that do not lie in main memory, or not one behind the
/// other.
pub(crate) fn with_floats<R>(tensor: &Tensor, take: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(data)), Some((start, end))) => Ok(take(&data[start..end])),
        _ => Ok(take(&tensor.flatten_all()?.to_vec1::<f32>()?)),
    }
}
