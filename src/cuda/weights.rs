//! The stored bytes of a model on the card.

use super::gpu::{Buffer, Gpu};
use super::sizes;
use crate::error::CudaError;
use crate::error::Error;
use crate::weights::Weights;
use model_diagnostics::header::TensorInfo;
use model_diagnostics::spec::ModelSpec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that are copied at a time.
const STRIDE: usize = 64 << 20;

/// Told bytes that are copied and those in all, after each piece; its error ends the upload.
pub(super) type Uploaded<'u> = dyn Fn(u64, u64) -> Result<(), Error> + 'u;

/// All tensors that kernels read, in one allocation, byte for byte as the files store them.
#[derive(Debug)]
pub(super) struct DeviceWeights {
    buffer: Buffer,
    places: BTreeMap<sizes::Place, u64>,
}

impl DeviceWeights {
    /// Uploads the ranges of the mapped files, and tells `uploaded` how far it is.
    ///
    /// # Errors
    /// `Memory` when they do not fit; `Driver`; those of `uploaded`.
    pub(super) fn upload(
        gpu: &Arc<dyn Gpu>,
        spec: &ModelSpec,
        weights: &Weights,
        uploaded: &Uploaded<'_>,
    ) -> Result<DeviceWeights, Error> {
        let (places, bytes) = sizes::layout(spec);
        let buffer = Buffer::new(gpu, "the model", bytes as usize)?;
        let tensors: BTreeMap<sizes::Place, &TensorInfo> =
            sizes::tensors(spec).map(|tensor| (sizes::place(tensor), tensor)).collect();
        let (mut done, total) = (0, tensors.values().map(|tensor| tensor.bytes).sum());
        uploaded(done, total)?;
        for (place, tensor) in tensors {
            let view = weights.view(tensor);
            for (index, bytes) in view.bytes().chunks(STRIDE).enumerate() {
                buffer.upload(places[&place] as usize + index * STRIDE, bytes)?;
                done += bytes.len() as u64;
                uploaded(done, total)?;
            }
        }
        Ok(DeviceWeights { buffer, places })
    }

    /// The address of a tensor's first byte.
    ///
    /// # Errors
    /// `Internal` for one that was not uploaded.
    pub(super) fn address(&self, tensor: &TensorInfo) -> Result<u64, Error> {
        let place = self.places.get(&sizes::place(tensor));
        let place = place.ok_or_else(|| Error::Internal(format!("{} is not on the card", tensor.name)))?;
        Ok(self.buffer.address() + place)
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// The name of the first tensor whose bytes on the card are not those of the file.
    pub(super) fn first_difference(&self, spec: &ModelSpec, weights: &Weights) -> Result<Option<String>, CudaError> {
        for tensor in sizes::tensors(spec) {
            let start = self.places[&sizes::place(tensor)] as usize;
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
