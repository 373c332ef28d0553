//! The stored bytes of a model on the card.

use super::error::CudaError;
use super::gpu::{Buffer, Gpu};
use super::sizes;
use crate::error::Error;
use crate::weights::Weights;
use model_diagnostics::header::TensorInfo;
use model_diagnostics::spec::ModelSpec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that are copied at a time.
const STRIDE: usize = 64 << 20;

/// All tensors that kernels read, in one allocation, byte for byte as the files store them.
#[derive(Debug)]
pub(super) struct DeviceWeights {
    buffer: Buffer,
    places: BTreeMap<sizes::Place, u64>,
}

impl DeviceWeights {
    /// Uploads the ranges of the mapped files.
    ///
    /// # Errors
    /// `Memory` when they do not fit; `Driver`.
    pub(super) fn upload(gpu: &Arc<dyn Gpu>, spec: &ModelSpec, weights: &Weights) -> Result<DeviceWeights, CudaError> {
        let (places, bytes) = sizes::layout(spec);
        let buffer = Buffer::new(gpu, "the model", bytes as usize)?;
        let mut copied = BTreeMap::new();
        for tensor in sizes::tensors(spec) {
            let place = sizes::place(tensor);
            if copied.insert(place, ()).is_some() {
                continue;
            }
            let view = weights.view(tensor);
            for (index, bytes) in view.bytes().chunks(STRIDE).enumerate() {
                buffer.upload(places[&place] as usize + index * STRIDE, bytes)?;
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
