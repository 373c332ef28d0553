//! What the structures of a model hold as its weights: where the files store them, or what a device made of them.
//!
//! The `try_map` of a structure is the one place that lists its weights. They are loaded by it, and listed by a map that makes
//! nothing of them.

use super::{LinearWeights, NormWeights};
use crate::header::TensorInfo;
use std::convert::Infallible;
use std::fmt::Debug;

/// What weights are in a model's structures.
pub trait WeightTypes {
    /// A weight matrix with its bias.
    type Matrix: Clone + Debug + Send + Sync;
    /// A norm.
    type Norm: Clone + Debug + Send + Sync;
    /// A vector of floats.
    type Vector: Clone + Debug + Send + Sync;
    /// A vector of floats that the host reads.
    type Numbers: Clone + Debug + Send + Sync;
}

/// Weights as the files store them.
#[derive(Clone, Copy, Debug)]
pub struct Stored;

impl WeightTypes for Stored {
    type Matrix = LinearWeights;
    type Norm = NormWeights;
    type Vector = TensorInfo;
    type Numbers = TensorInfo;
}

/// No weights.
impl WeightTypes for () {
    type Matrix = ();
    type Norm = ();
    type Vector = ();
    type Numbers = ();
}

/// Makes other weights of those of a structure.
pub trait MapWeights<'w, W: WeightTypes> {
    /// What is made.
    type To: WeightTypes;
    /// Why it is not.
    type Error;

    /// Makes a matrix.
    ///
    /// # Errors
    /// Those of the implementation.
    fn matrix(&mut self, matrix: &'w W::Matrix) -> Result<<Self::To as WeightTypes>::Matrix, Self::Error>;

    /// Makes a norm.
    ///
    /// # Errors
    /// Those of the implementation.
    fn norm(&mut self, norm: &'w W::Norm) -> Result<<Self::To as WeightTypes>::Norm, Self::Error>;

    /// Makes a vector.
    ///
    /// # Errors
    /// Those of the implementation.
    fn vector(&mut self, vector: &'w W::Vector) -> Result<<Self::To as WeightTypes>::Vector, Self::Error>;

    /// Makes a vector that the host reads.
    ///
    /// # Errors
    /// Those of the implementation.
    fn numbers(&mut self, numbers: &'w W::Numbers) -> Result<<Self::To as WeightTypes>::Numbers, Self::Error>;
}

/// One of the weights of a structure. Complete.
#[derive(Debug)]
pub enum Weight<'w, W: WeightTypes = Stored> {
    /// A weight matrix with its bias.
    Matrix(&'w W::Matrix),
    /// A norm.
    Norm(&'w W::Norm),
    /// A vector of floats.
    Vector(&'w W::Vector),
    /// A vector of floats that the host reads.
    Numbers(&'w W::Numbers),
}

impl<'w, W: WeightTypes> Weight<'w, W> {
    /// The matrix, where it is one.
    pub fn matrix(self) -> Option<&'w W::Matrix> {
        match self {
            Weight::Matrix(matrix) => Some(matrix),
            Weight::Norm(_) | Weight::Vector(_) | Weight::Numbers(_) => None,
        }
    }
}

impl<'w> Weight<'w> {
    /// The tensor, where it is neither a matrix nor a norm.
    pub fn vector(self) -> Option<&'w TensorInfo> {
        match self {
            Weight::Vector(vector) | Weight::Numbers(vector) => Some(vector),
            Weight::Matrix(_) | Weight::Norm(_) => None,
        }
    }

    /// The tensors that it is stored in.
    pub fn tensors(self) -> impl Iterator<Item = &'w TensorInfo> {
        let (matrix, norm, vector) = match self {
            Weight::Matrix(matrix) => (Some(matrix), None, None),
            Weight::Norm(norm) => (None, Some(norm), None),
            Weight::Vector(vector) | Weight::Numbers(vector) => (None, None, Some(vector)),
        };
        let (matrix, norm) = (matrix.into_iter(), norm.into_iter());
        matrix.flat_map(LinearWeights::tensors).chain(norm.flat_map(NormWeights::tensors)).chain(vector)
    }
}

/// Lists the weights that a map goes through.
pub(super) struct List<'w, W: WeightTypes>(Vec<Weight<'w, W>>);

impl<'w, W: WeightTypes> List<'w, W> {
    /// The weights that `map` goes through, in its order.
    pub(super) fn of<T>(map: impl FnOnce(&mut Self) -> Result<T, Infallible>) -> Vec<Weight<'w, W>> {
        let mut list = List(Vec::new());
        let Ok(_) = map(&mut list);
        list.0
    }

    fn add(&mut self, weight: Weight<'w, W>) -> Result<(), Infallible> {
        self.0.push(weight);
        Ok(())
    }
}

impl<'w, W: WeightTypes> MapWeights<'w, W> for List<'w, W> {
    type To = ();
    type Error = Infallible;

    fn matrix(&mut self, matrix: &'w W::Matrix) -> Result<(), Infallible> {
        self.add(Weight::Matrix(matrix))
    }

    fn norm(&mut self, norm: &'w W::Norm) -> Result<(), Infallible> {
        self.add(Weight::Norm(norm))
    }

    fn vector(&mut self, vector: &'w W::Vector) -> Result<(), Infallible> {
        self.add(Weight::Vector(vector))
    }

    fn numbers(&mut self, numbers: &'w W::Numbers) -> Result<(), Infallible> {
        self.add(Weight::Numbers(numbers))
    }
}

/// What `make` makes of a part that a structure may lack.
pub(super) fn optional<'w, T, U, E>(
    part: &'w Option<T>,
    make: impl FnOnce(&'w T) -> Result<U, E>,
) -> Result<Option<U>, E> {
    part.as_ref().map(make).transpose()
}
