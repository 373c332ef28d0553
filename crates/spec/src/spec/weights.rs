//! The type of the weights in a model's structures: where the files store them, or what a device made of them.
//!
//! The `try_map` of a structure visits its weights. Loading uses it, and listing does so with a map that creates nothing.

use super::{LinearWeights, NormWeights};
use crate::header::TensorInfo;
use std::convert::Infallible;
use std::fmt::Debug;

/// The types of the weights in a model's structures.
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

/// The weights of a structure without weights.
impl WeightTypes for () {
    type Matrix = ();
    type Norm = ();
    type Vector = ();
    type Numbers = ();
}

/// Converts the weights of a structure. The first error ends the conversion.
#[allow(missing_docs)] // of names that say it
pub trait MapWeights<'w, W: WeightTypes> {
    /// The types of the converted weights.
    type To: WeightTypes;
    /// The error of a conversion.
    type Error;

    fn matrix(&mut self, matrix: &'w W::Matrix) -> Result<<Self::To as WeightTypes>::Matrix, Self::Error>;
    fn norm(&mut self, norm: &'w W::Norm) -> Result<<Self::To as WeightTypes>::Norm, Self::Error>;
    fn vector(&mut self, vector: &'w W::Vector) -> Result<<Self::To as WeightTypes>::Vector, Self::Error>;
    fn numbers(&mut self, numbers: &'w W::Numbers) -> Result<<Self::To as WeightTypes>::Numbers, Self::Error>;
}

/// Defines structures of weights, each with `try_map`: the same structure of converted weights, in the order of the fields. A
/// field's type is followed by its kind: a `matrix`, a `norm`, a `vector` or `numbers`, or if it has a `try_map` of its own a
/// `part`, one of `matrices`, or `gates` of these; any may be `optional`, `boxed` or a `list`. Other fields are copied.
macro_rules! weights {
    ($(
        $(#[$of_struct:meta])*
        pub struct $name:ident<W> {
            $($(#[$of_field:meta])* pub $field:ident: $type:ty $(= $($kind:ident)+)?,)*
        }
    )*) => {$(
        $(#[$of_struct])*
        #[derive(Clone, Debug)]
        pub struct $name<W: WeightTypes = Stored> {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl<W: WeightTypes> $name<W> {
            /// The same structure with weights converted by `map`.
            ///
            /// # Errors
            /// The errors of `map`.
            pub fn try_map<'w, M: MapWeights<'w, W>>(&'w self, map: &mut M) -> Result<$name<M::To>, M::Error> {
                Ok($name { $($field: mapped!([$($($kind)+)?] &self.$field, map),)* })
            }

            /// All of its weights, in the order of the fields.
            pub fn list(&self) -> Vec<$crate::spec::Weight<'_, W>> {
                $crate::spec::weights::List::collect(|list| self.try_map(list))
            }
        }
    )*};
}

/// The code that `weights` generates for a field.
macro_rules! mapped {
    ([] $from:expr, $map:ident) => { $from.clone() };
    ([part] $from:expr, $map:ident) => { $from.try_map($map)? };
    ([matrices] $from:expr, $map:ident) => { $from.try_map(|matrix| $map.matrix(matrix))? };
    ([gates] $from:expr, $map:ident) => { $from.try_map(|gates| gates.try_map(|matrix| $map.matrix(matrix)))? };
    ([boxed $($kind:ident)+] $from:expr, $map:ident) => { Box::new(mapped!([$($kind)+] $from, $map)) };
    ([optional $($kind:ident)+] $from:expr, $map:ident) => {
        $from.as_ref().map(|part| Ok(mapped!([$($kind)+] part, $map))).transpose()?
    };
    ([list $($kind:ident)+] $from:expr, $map:ident) => {
        $from.iter().map(|part| Ok(mapped!([$($kind)+] part, $map))).collect::<Result<_, _>>()?
    };
    ([$kind:ident] $from:expr, $map:ident) => { $map.$kind($from)? };
}

pub(super) use {mapped, weights};

/// One of the weights of a structure. Complete.
#[derive(Debug)]
#[allow(missing_docs)] // as the types of `WeightTypes`
pub enum Weight<'w, W: WeightTypes = Stored> {
    Matrix(&'w W::Matrix),
    Norm(&'w W::Norm),
    Vector(&'w W::Vector),
    Numbers(&'w W::Numbers),
}

impl<'w, W: WeightTypes> Weight<'w, W> {
    /// The matrix, where it is one.
    pub fn matrix(self) -> Option<&'w W::Matrix> {
        if let Weight::Matrix(matrix) = self { Some(matrix) } else { None }
    }
}

impl<'w> Weight<'w> {
    /// The tensor, where it is neither a matrix nor a norm.
    pub fn vector(self) -> Option<&'w TensorInfo> {
        if let Weight::Vector(vector) | Weight::Numbers(vector) = self { Some(vector) } else { None }
    }

    /// The tensors that the weight is stored in.
    pub fn tensors(self) -> Vec<&'w TensorInfo> {
        match self {
            Weight::Matrix(matrix) => matrix.tensors().collect(),
            Weight::Norm(norm) => norm.tensors().collect(),
            Weight::Vector(vector) | Weight::Numbers(vector) => vec![vector],
        }
    }
}

/// Lists the weights that a map visits.
pub(super) struct List<'w, W: WeightTypes>(Vec<Weight<'w, W>>);

impl<'w, W: WeightTypes> List<'w, W> {
    /// The weights that `map` visits, in its order.
    pub(super) fn collect<T>(map: impl FnOnce(&mut Self) -> Result<T, Infallible>) -> Vec<Weight<'w, W>> {
        let mut list = List(Vec::new());
        let Ok(_) = map(&mut list);
        list.0
    }
}

impl<'w, W: WeightTypes> MapWeights<'w, W> for List<'w, W> {
    type To = ();
    type Error = Infallible;

    fn matrix(&mut self, matrix: &'w W::Matrix) -> Result<(), Infallible> {
        self.0.push(Weight::Matrix(matrix));
        Ok(())
    }

    fn norm(&mut self, norm: &'w W::Norm) -> Result<(), Infallible> {
        self.0.push(Weight::Norm(norm));
        Ok(())
    }

    fn vector(&mut self, vector: &'w W::Vector) -> Result<(), Infallible> {
        self.0.push(Weight::Vector(vector));
        Ok(())
    }

    fn numbers(&mut self, numbers: &'w W::Numbers) -> Result<(), Infallible> {
        self.0.push(Weight::Numbers(numbers));
        Ok(())
    }
}
