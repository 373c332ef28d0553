//! What computes a model: the processor or a card, chosen once, when the model is loaded.

use crate::cancel::CancellationToken;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::decoder::{Decoder, KvCache, Rotation, Segment};
use crate::error::Result;
use crate::memory;
use candle_core::Tensor;

/// A loaded computation.
pub(crate) enum Compute {
    /// On the processor.
    Cpu(Box<Decoder>),
    /// On a card.
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::Decoder>),
}

/// The keys and values of one sequence, where its model computes.
#[derive(Debug)]
pub(crate) enum Cache {
    /// In main memory.
    Cpu(KvCache),
    /// On a card.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Cache),
}

impl Compute {
    /// An empty cache for one sequence.
    pub(crate) fn cache(&self) -> Cache {
        match self {
            Compute::Cpu(decoder) => Cache::Cpu(decoder.cache()),
            #[cfg(feature = "cuda")]
            Compute::Cuda(decoder) => Cache::Cuda(decoder.cache()),
        }
    }

    /// Ids an embedding row exists for.
    pub(crate) fn vocab(&self) -> usize {
        match self {
            Compute::Cpu(decoder) => decoder.vocab(),
            #[cfg(feature = "cuda")]
            Compute::Cuda(decoder) => decoder.vocab(),
        }
    }

    /// How a sequence of `length` tokens is rotated.
    pub(crate) fn rotation(&self, length: usize) -> Rotation {
        match self {
            Compute::Cpu(decoder) => decoder.rotation(length),
            #[cfg(feature = "cuda")]
            Compute::Cuda(decoder) => decoder.rotation(length),
        }
    }

    /// As [`Decoder::forward`]. The caches of `segments` come from [`cache`](Self::cache) of the same computation: others
    /// are left out.
    pub(crate) fn forward(
        &self,
        segments: &mut [Segment<'_, Cache>],
        cancel: &CancellationToken,
    ) -> Result<Option<Tensor>> {
        match self {
            Compute::Cpu(decoder) => {
                let mut segments = own(segments, |cache| match cache {
                    Cache::Cpu(cache) => Some(cache),
                    #[cfg(feature = "cuda")]
                    Cache::Cuda(_) => None,
                })?;
                decoder.forward(&mut segments, cancel)
            }
            #[cfg(feature = "cuda")]
            Compute::Cuda(decoder) => {
                // What a card was given it computes to its end, a chunk at most.
                cancel.check()?;
                decoder.forward(&mut own(segments, |cache| match cache {
                    Cache::Cuda(cache) => Some(cache),
                    Cache::Cpu(_) => None,
                })?)
            }
        }
    }
}

/// The segments with the caches that `find` finds in theirs.
fn own<'s, C>(
    segments: &'s mut [Segment<'_, Cache>],
    find: impl Fn(&mut Cache) -> Option<&mut C>,
) -> Result<Vec<Segment<'s, C>>> {
    let mut own = memory::reserved(segments.len(), "the sequences of a batch")?;
    own.extend(segments.iter_mut().filter_map(|segment| {
        let cache = find(segment.cache)?;
        Some(Segment { tokens: segment.tokens, cache, reach: segment.reach, logits: segment.logits })
    }));
    Ok(own)
}

impl Cache {
    /// Positions held.
    pub(crate) fn len(&self) -> usize {
        match self {
            Cache::Cpu(cache) => cache.len(),
            #[cfg(feature = "cuda")]
            Cache::Cuda(cache) => cache.len(),
        }
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Cache::Cpu(cache) => cache.bytes(),
            #[cfg(feature = "cuda")]
            Cache::Cuda(cache) => cache.bytes(),
        }
    }

    /// Allocates the pages for the positions up to `len`, or none of them.
    ///
    /// # Errors
    /// `OutOfMemory`, or the card's error.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<()> {
        match self {
            Cache::Cpu(cache) => cache.reserve(len),
            #[cfg(feature = "cuda")]
            Cache::Cuda(cache) => cache.reserve(len),
        }
    }

    /// Forgets all positions and keeps the pages for others.
    pub(crate) fn clear(&mut self) {
        match self {
            Cache::Cpu(cache) => cache.clear(),
            #[cfg(feature = "cuda")]
            Cache::Cuda(cache) => cache.clear(),
        }
    }

    /// Forgets the positions from `len` on and frees the pages that hold none.
    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Cache::Cpu(cache) => cache.truncate(len),
            #[cfg(feature = "cuda")]
            Cache::Cuda(cache) => cache.truncate(len),
        }
    }
}
