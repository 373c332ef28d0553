//! The weights of a spec -> the weights that a device computes with.

use super::{Device, stored};
use crate::error::{Error, Result};
use crate::weights::Weights;
use model_factory_format::header::TensorInfo;
use model_factory_spec::spec::{LinearWeights, MapWeights, NormWeights, Stored};

pub(super) struct Load<'a, D: Device> {
    pub(super) device: &'a D,
    pub(super) weights: &'a Weights,
    /// Matrices that were loaded: the place of the next one.
    pub(super) matrices: usize,
}

impl<D: Device> MapWeights<'_, Stored> for Load<'_, D> {
    type To = D;
    type Error = Error;

    fn matrix(&mut self, matrix: &LinearWeights) -> Result<D::Matrix> {
        let place = self.matrices;
        self.matrices += 1;
        self.device.matrix(self.weights, matrix, place)
    }

    fn norm(&mut self, norm: &NormWeights) -> Result<D::Norm> {
        self.device.load_norm(self.weights, norm)
    }

    fn vector(&mut self, vector: &TensorInfo) -> Result<D::Vector> {
        self.device.vector(self.weights, vector)
    }

    fn numbers(&mut self, numbers: &TensorInfo) -> Result<Vec<f32>> {
        stored::numbers(self.weights, numbers)
    }
}
