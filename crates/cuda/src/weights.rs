//! The stored bytes of a model on the GPU.

use super::buffer::Buffer;
use super::driver::Gpu;
use crate::error::CudaError;
use model_factory_engine::error::Error;
use model_factory_engine::weights::Weights;
use model_factory_format::header::TensorInfo;
use model_factory_spec::plan::gpu_tensor_bytes;
use model_factory_spec::spec::ModelSpec;
use std::collections::BTreeMap;
use std::sync::Arc;

const STRIDE: usize = 64 << 20;

/// Is called after each piece with the bytes copied so far and the bytes in all; its error ends the upload.
pub type Uploaded<'u> = dyn Fn(u64, u64) -> Result<(), Error> + 'u;

type FileRange = (usize, u64, u64);

fn file_range(tensor: &TensorInfo) -> FileRange {
    (tensor.file, tensor.offset, tensor.bytes)
}

/// All tensors of a model, in one allocation, byte for byte as the files store them.
#[derive(Debug)]
pub(super) struct DeviceWeights {
    buffer: Buffer,
    offsets: BTreeMap<FileRange, u64>,
}

impl DeviceWeights {
    /// Uploads the ranges of the mapped files, and calls `uploaded` with the progress.
    pub(super) fn upload(
        gpu: &Arc<Gpu>,
        spec: &ModelSpec,
        weights: &Weights,
        uploaded: &Uploaded<'_>,
    ) -> Result<DeviceWeights, Error> {
        let tensors: BTreeMap<FileRange, &TensorInfo> =
            spec.tensors().map(|tensor| (file_range(tensor), tensor)).collect();
        let mut end = 0;
        let offsets: BTreeMap<FileRange, u64> = tensors
            .iter()
            .map(|(range, tensor)| {
                let start = end;
                end += gpu_tensor_bytes(tensor.bytes);
                (*range, start)
            })
            .collect();
        let buffer = Buffer::new(gpu, "the model", end as usize)?;
        let (mut done, total) = (0, tensors.values().map(|tensor| tensor.bytes).sum());
        uploaded(done, total)?;
        for (range, tensor) in tensors {
            let view = weights.view(tensor);
            for (index, bytes) in view.bytes().chunks(STRIDE).enumerate() {
                buffer.upload(offsets[&range] as usize + index * STRIDE, bytes)?;
                done += bytes.len() as u64;
                uploaded(done, total)?;
            }
        }
        Ok(DeviceWeights { buffer, offsets })
    }

    pub(super) fn address(&self, tensor: &TensorInfo) -> Result<u64, Error> {
        let offset = self.offsets.get(&file_range(tensor));
        let offset = offset.ok_or_else(|| Error::Internal(format!("{} is not on the GPU", tensor.name)))?;
        Ok(self.buffer.address + offset)
    }

    pub(super) fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// The name of the first tensor whose bytes on the GPU differ from the file.
    pub(super) fn first_difference(&self, spec: &ModelSpec, weights: &Weights) -> Result<Option<String>, CudaError> {
        for tensor in spec.tensors() {
            let start = self.offsets[&file_range(tensor)] as usize;
            let view = weights.view(tensor);
            for (index, bytes) in view.bytes().chunks(STRIDE).enumerate() {
                let mut read = vec![0; bytes.len()];
                self.buffer.download(start + index * STRIDE, &mut read)?;
                if read != bytes {
                    return Ok(Some(tensor.name.clone()));
                }
            }
        }
        Ok(None)
    }
}
