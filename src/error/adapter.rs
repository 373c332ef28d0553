//! Why an adapter is not used.

/// An adapter that the model does not compute with, other than by its files ([`Error::Files`](super::Error::Files)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// The adapter was loaded for another loaded model (exit code 2).
    #[error(
        "the adapter was loaded for another model; load it by load_adapter of the model, or a clone, that generates"
    )]
    OtherModel,
    /// The model computes on a GPU (exit code 13).
    #[error("adapters are computed on the processor, and the model computes on a GPU; load it with device cpu")]
    Device,
}
