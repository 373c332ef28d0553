//! Adapters of a model (LoRA): what sequences add to the products of its weights.
//!
//! An adapter is two small matrices for some of the model's, read from its own files as they are stored. A sequence may
//! have several, each with a factor: `y = W x + scale * B (A x)`, added in the order in which the sequence has them.

use crate::cache_budget::CacheShare;
use crate::error::Result;
use crate::weights::{WeightView, Weights};
pub use model_factory_spec::adapter::AdapterSpec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An adapter's matrices.
#[derive(Debug)]
pub struct Adapter {
    /// By the places of the model's matrices.
    changes: Vec<Option<LowRank>>,
    digest: [u8; 32],
    /// Bytes of its tensors.
    bytes: u64,
    /// The memory that it takes: its bytes, and what steps take for it and for all adapters.
    _shares: Vec<Arc<CacheShare>>,
}

/// What is added to the products of a matrix: `scale * B (A x)`.
#[derive(Debug)]
pub struct LowRank {
    /// `A`, `[rank, inputs]`; of a matrix of several experts one after the other.
    pub(crate) a: WeightView,
    /// `B`, `[outputs, rank]`.
    pub(crate) b: WeightView,
    pub(crate) rank: usize,
    scale: f64,
}

impl Adapter {
    /// The adapter that `spec` describes, with the bytes of its files. It is known by `digest`, and `shares` are held as
    /// long as it.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(
        spec: &AdapterSpec,
        weights: &Weights,
        digest: [u8; 32],
        shares: Vec<Arc<CacheShare>>,
    ) -> Result<Adapter> {
        let places = spec.changes.last().map_or(0, |change| change.matrix + 1);
        let mut changes = crate::memory::reserved(places, "the matrices of an adapter")?;
        changes.resize_with(places, || None);
        for change in &spec.changes {
            let [a, b] = [&change.a, &change.b].map(|tensor| weights.view(tensor));
            changes[change.matrix] = Some(LowRank { a, b, rank: change.rank, scale: change.scale });
        }
        Ok(Adapter { changes, digest, bytes: spec.bytes(), _shares: shares })
    }

    /// What its files are known by.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Bytes of its tensors.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it adds to the products of the matrix at `place`.
    pub(crate) fn of(&self, place: usize) -> Option<&LowRank> {
        self.changes.get(place)?.as_ref()
    }
}

/// The adapters of a sequence, each with its factor, in the order of their sums. They are equal where they add the same: files
/// with the same digest, by the same factor.
#[derive(Clone, Debug, Default)]
pub struct Adapters(Arc<[(Arc<Adapter>, f64)]>);

impl Adapters {
    /// These, each with its factor.
    pub fn new(adapters: impl IntoIterator<Item = (Arc<Adapter>, f64)>) -> Adapters {
        Adapters(adapters.into_iter().collect())
    }

    /// Each with its factor.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<Adapter>, f64)> {
        self.0.iter().map(|(adapter, scale)| (adapter, *scale))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one at `index`, and its factor for the matrix at `place`, where it changes that.
    pub(crate) fn change(&self, index: usize, place: usize) -> Option<(&Arc<Adapter>, f32)> {
        let (adapter, scale) = self.0.get(index)?;
        Some((adapter, (adapter.of(place)?.scale * scale) as f32))
    }

    /// The digest of each and the bits of its factor.
    pub fn keys(&self) -> impl Iterator<Item = ([u8; 32], u64)> {
        self.0.iter().map(|(adapter, scale)| (adapter.digest, scale.to_bits()))
    }
}

impl PartialEq for Adapters {
    fn eq(&self, other: &Adapters) -> bool {
        self.keys().eq(other.keys())
    }
}

impl Eq for Adapters {}

impl Hash for Adapters {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys().for_each(|key| key.hash(state));
    }
}
