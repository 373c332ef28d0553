//! Operations on rows of floats.

pub(crate) mod columns;
pub(crate) mod conv;
pub(crate) mod delta;
pub(crate) mod exp;
pub(crate) mod routing;
pub(crate) mod rows;
pub(crate) mod selective;
pub(crate) mod transposed;
pub(crate) mod vector;
