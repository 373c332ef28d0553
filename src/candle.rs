//! What models compute as tensors of candle, in main memory.

use crate::embed::{EmbedOptions, Embeddings};
use crate::error::{Error, Result};
use crate::logits::Logits;
use crate::model::Model;
use crate::session::Session;
use candle_core::{Device, Tensor};
use std::sync::Arc;

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Error::Candle(Arc::new(error))
    }
}

/// The rows as F32 `[rows, columns]`.
impl TryFrom<Logits> for Tensor {
    type Error = candle_core::Error;

    fn try_from(logits: Logits) -> candle_core::Result<Tensor> {
        let shape = (logits.rows().len(), logits.columns());
        Tensor::from_vec(logits.into_vec(), shape, &Device::Cpu)
    }
}

/// A copy of a tensor F32, whose last dimension is that of the rows.
impl TryFrom<&Tensor> for Logits {
    type Error = candle_core::Error;

    fn try_from(tensor: &Tensor) -> candle_core::Result<Logits> {
        let columns = tensor.dims().last().copied().unwrap_or(1);
        Ok(Logits::new(tensor.flatten_all()?.to_vec1()?, columns))
    }
}

/// The vectors as F32 `[texts, dimensions]`.
impl TryFrom<Embeddings> for Tensor {
    type Error = candle_core::Error;

    fn try_from(embeddings: Embeddings) -> candle_core::Result<Tensor> {
        let shape = (embeddings.vectors().len(), embeddings.dimensions());
        Tensor::from_vec(embeddings.into_vec(), shape, &Device::Cpu)
    }
}

impl Session {
    /// Like [`next_logits`](Self::next_logits), as F32 `[vocab]`.
    pub fn forward(&mut self, tokens: &[u32]) -> Result<Tensor> {
        Ok(Tensor::try_from(self.next_logits(tokens)?)?.squeeze(0)?)
    }

    /// Like [`all_logits`](Self::all_logits), as F32 `[tokens, vocab]`.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Tensor> {
        Ok(self.all_logits(tokens)?.try_into()?)
    }

    /// Like [`batch_logits`](Self::batch_logits), as F32 `[sessions, vocab]`.
    pub fn batch(steps: &mut [(&mut Session, &[u32])]) -> Result<Tensor> {
        Ok(Session::batch_logits(steps)?.try_into()?)
    }
}

impl Model {
    /// The device of the tensors: main memory, also for a model on a GPU. `report().device` says which device computes.
    pub fn device(&self) -> &Device {
        &Device::Cpu
    }

    /// Like [`all_logits`](Self::all_logits), as F32 `[tokens, vocab]`.
    pub fn logits(&self, tokens: &[u32]) -> Result<Tensor> {
        self.session().logits(tokens)
    }

    /// Like [`embeddings`](Self::embeddings), as F32 `[texts, dimensions]`.
    pub fn embed(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Tensor> {
        Ok(self.embeddings(texts, options)?.try_into()?)
    }

    /// Like [`label_logits`](Self::label_logits), as F32 `[texts, labels]`.
    pub fn classify(&self, texts: &[impl AsRef<str>]) -> Result<Tensor> {
        Ok(self.label_logits(texts)?.try_into()?)
    }

    /// Like [`label_logits_of_pairs`](Self::label_logits_of_pairs), as F32 `[pairs, labels]`.
    pub fn classify_pairs(&self, pairs: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<Tensor> {
        Ok(self.label_logits_of_pairs(pairs)?.try_into()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_have_the_rows_of_logits_and_give_them_back() {
        let tensor = Tensor::try_from(Logits::new(vec![1.0, 2.0, 3.0, 4.0], 2)).unwrap();
        assert_eq!(tensor.to_vec2::<f32>().unwrap(), [[1.0, 2.0], [3.0, 4.0]]);
        let columns = Logits::try_from(&tensor.t().unwrap()).unwrap();
        assert_eq!(columns.rows().collect::<Vec<_>>(), [[1.0, 3.0], [2.0, 4.0]]);
        assert_eq!(Tensor::try_from(Logits::new(Vec::new(), 3)).unwrap().dims(), [0, 3]);
        assert!(Logits::try_from(&Tensor::new(&[1u32], &Device::Cpu).unwrap()).is_err());
    }
}
