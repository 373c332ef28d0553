//! ModelSpec + Weights -> Decoder: ids and caches in, logits out. Knows sizes and options, never a family or a format.

mod attention;
mod block;
mod kv_cache;
mod rope;

pub use kv_cache::{Heads, KvCache};
pub use rope::Rotation;

#[cfg(feature = "cuda")]
pub(crate) use rope::RopeFrequencies;

use crate::cache_budget::CacheBudget;
use crate::cancel::CancellationToken;
use crate::error::Error;
use crate::linear::{Engine, Matrix, NormLinear, NormScale};
use crate::memory;
use crate::weights::Weights;
use attention::Sequence;
use block::{Block, Buffers};
use candle_core::{Device, Tensor};
use model_diagnostics::plan::KvDtype;
use model_diagnostics::spec::{LinearWeights, ModelSpec};
#[cfg(not(feature = "cuda"))]
use rope::RopeFrequencies;
use std::ops::Range;
use std::sync::Arc;
use tracing::trace_span;

/// One model's computation.
pub struct Decoder {
    embedding: Matrix,
    blocks: Vec<Block>,
    head: NormLinear,
    rope: RopeFrequencies,
    heads: Heads,
    hidden: usize,
    vocab: usize,
    kv_dtype: KvDtype,
    budget: Arc<CacheBudget>,
    device: Device,
}

/// The next tokens of one sequence, whose keys and values `C` holds.
pub struct Segment<'a, C = KvCache> {
    /// Ids, at least one.
    pub tokens: &'a [u32],
    /// What the sequence has cached; its length is the position of the first token.
    pub cache: &'a mut C,
    /// The length of the sequence when all that is known of it is in: this segment, and those of the same prompt that
    /// follow. It decides on the rotation, where a model has two, and what is cached must have been computed with the
    /// same: see [`Decoder::rotation`].
    pub reach: usize,
    /// Which positions' logits are wanted.
    pub logits: Logits,
}

/// Which positions' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: the tokens only fill the cache.
    None,
    /// The last token's.
    Last,
    /// Every token's.
    All,
}

impl Decoder {
    /// Attaches kernels to the weights of `spec`; copies none of them. The caches of all sequences take at most `cache_bytes`.
    ///
    /// # Errors
    /// `Files` when the rotary frequencies or the scales of int8 weights that the files give are no sound numbers;
    /// `Internal` when a dtype has no kernel, which the diagnosis rules out.
    pub fn new(
        spec: &ModelSpec,
        weights: &Weights,
        engine: Engine,
        kv_dtype: KvDtype,
        cache_bytes: u64,
    ) -> Result<Decoder, Error> {
        let heads = Heads { queries: spec.heads, kv: spec.kv_heads, dim: spec.head_dim };
        let stored = &spec.weights;
        let matrix = |linear: &LinearWeights| Matrix::new(weights, linear, engine.isa);
        let embedding = LinearWeights { weight: stored.embedding.clone(), bias: None, int8: None };
        let blocks = stored
            .layers
            .iter()
            .map(|layer| Block::new(&engine, heads, spec, weights, layer))
            .collect::<Result<_, Error>>()?;
        let final_norm = NormScale::new(weights, &stored.final_norm, spec.norm);
        Ok(Decoder {
            embedding: matrix(&embedding)?,
            blocks,
            head: NormLinear::new(engine.clone(), final_norm, vec![matrix(&stored.head)?]),
            rope: RopeFrequencies::new(&spec.rope, weights)?,
            heads,
            hidden: spec.hidden,
            vocab: spec.vocab,
            kv_dtype,
            budget: CacheBudget::new(cache_bytes),
            device: Device::Cpu,
        })
    }

    /// An empty cache for one sequence.
    pub fn cache(&self) -> KvCache {
        KvCache::new(self.blocks.len(), self.heads, self.kv_dtype, &self.device, self.budget.share())
    }

    /// Ids an embedding row exists for.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// How a sequence of `length` tokens is rotated. Keys that were cached with one rotation are useless with another.
    pub fn rotation(&self, length: usize) -> Rotation {
        self.rope.rotation(length)
    }

    /// The device it computes on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs the tokens of several sequences through the model in one pass over its weights and appends them to their
    /// caches. Returns the wanted logits F32 `[rows, vocab]` in segment order, or `None` when none are wanted.
    ///
    /// # Errors
    /// `TokenOutOfVocabulary` before anything is computed; `Cancelled` after at most one more operation of a layer once
    /// `cancel` is; `OutOfMemory`. After an error the caches hold what they held before.
    pub fn forward(&self, segments: &mut [Segment<'_>], cancel: &CancellationToken) -> Result<Option<Tensor>, Error> {
        let rows = rows(segments)?;
        let total = rows.last().map_or(0, |rows| rows.end);
        let mut hidden = memory::zeros(total * self.hidden, "the residual stream")?;
        let ids = segments.iter().flat_map(|segment| segment.tokens);
        for (id, row) in ids.zip(hidden.chunks_exact_mut(self.hidden)) {
            if *id as usize >= self.vocab {
                return Err(Error::TokenOutOfVocabulary { id: *id, vocab: self.vocab });
            }
            self.embedding.widen_row(*id as usize, row);
        }
        for segment in segments.iter_mut() {
            segment.cache.reserve(segment.cache.len() + segment.tokens.len())?;
        }
        let mut angles = self.rope.no_angles();
        for Segment { tokens, cache, reach, .. } in segments.iter() {
            self.rope.extend(&mut angles, self.rope.rotation(*reach), cache.len()..cache.len() + tokens.len())?;
        }
        let hidden = Tensor::from_vec(hidden, (total, self.hidden), &self.device)?;
        let mut buffers = Buffers::new(hidden, self.heads)?;
        let wanted = segments.iter().zip(&rows).map(|(segment, rows)| segment.wanted(rows));
        let wanted = memory::collected(wanted, "the rows of a batch")?;
        let none_wanted = wanted.iter().all(Range::is_empty);
        let mut present = &rows;
        for (layer, block) in self.blocks.iter().enumerate() {
            cancel.check()?;
            let _span = trace_span!("layer", layer).entered();
            block.append(layer, &buffers, &angles, segments, &rows)?;
            if layer + 1 == self.blocks.len() {
                // Behind the last keys and values only what is wanted is computed.
                if none_wanted {
                    break;
                }
                if wanted != rows && !block.mixes_rows() {
                    (buffers, present) = (buffers.only(&wanted)?, &wanted);
                }
            }
            block.forward(&buffers, &sequences(layer, segments, &rows, present)?, cancel)?;
        }
        cancel.check()?;
        for segment in segments.iter_mut() {
            segment.cache.advance(segment.tokens.len());
        }
        if none_wanted {
            return Ok(None);
        }
        let wanted = if *present == wanted { buffers.hidden } else { buffers.only(&wanted)?.hidden };
        let (rows, vocab) = (wanted.dim(0)?, self.head.outputs());
        let logits = Tensor::from_vec(memory::zeros::<f32>(rows * vocab, "logits")?, (rows, vocab), &self.device)?;
        logits.inplace_op2(&wanted, &self.head)?;
        Ok(Some(logits))
    }

    /// Every weight matrix the kernels read, for inspection: the embedding, the blocks', the head.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        std::iter::once(&self.embedding).chain(self.blocks.iter().flat_map(Block::matrices)).chain(self.head.matrices())
    }
}

impl Segment<'_> {
    /// Those of its rows whose logits are wanted.
    fn wanted(&self, rows: &Range<usize>) -> Range<usize> {
        match self.logits {
            Logits::None => rows.end..rows.end,
            Logits::Last => rows.end - 1..rows.end,
            Logits::All => rows.clone(),
        }
    }
}

/// What attends in `layer`: of the rows of each segment those that are `present`, one behind the other.
fn sequences<'a>(
    layer: usize,
    segments: &'a [Segment<'_>],
    rows: &[Range<usize>],
    present: &[Range<usize>],
) -> memory::Result<Vec<Sequence<'a>>> {
    let mut end = 0;
    let of_segments = segments.iter().zip(rows).zip(present).map(|((segment, rows), present)| {
        let first = end;
        end += present.len();
        let start = segment.cache.len() + present.start - rows.start;
        Sequence { rows: first..end, start, pages: segment.cache.pages(layer) }
    });
    memory::collected(of_segments, "the sequences of a batch")
}

/// The rows of each segment in the batch.
fn rows(segments: &[Segment<'_>]) -> memory::Result<Vec<Range<usize>>> {
    let mut end = 0;
    let rows = segments.iter().map(|segment| {
        let start = end;
        end += segment.tokens.len();
        start..end
    });
    memory::collected(rows, "the rows of a batch")
}
