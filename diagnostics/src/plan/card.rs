//! What lies in a card's memory: the sizes that the plan counts and that the engine allocates, from the same functions.

use super::{KV_PAGE, PREFILL_CHUNK, product, sum, widest_input};
use crate::spec::ModelSpec;

/// Where each tensor starts on a card is a multiple of this, and so is where each buffer ends.
pub const CARD_ALIGNMENT: u64 = 256;

/// Bytes that kernels of cards may read beyond the end of a tensor.
pub const CARD_OVERREAD: u64 = 16;

/// Parts that attention on a card divides the positions of all rows into, each with a result of its own.
pub const CARD_ATTENTION_PARTS: usize = 64;

/// Rows of logits that a card computes at a time.
pub const CARD_LOGIT_ROWS: usize = 32;

/// Bytes that a tensor of `bytes` takes on a card.
pub fn card_tensor_bytes(bytes: u64) -> u64 {
    aligned(bytes.saturating_add(CARD_OVERREAD))
}

/// Bytes of the weights on a card when their files have `weights_file` bytes: every stored tensor once, each from an
/// aligned address and with room to read beyond its end.
pub fn card_weight_bytes(spec: &ModelSpec, weights_file: u64) -> u64 {
    let tensors = || spec.tensors().map(|tensor| tensor.bytes);
    let stored = tensors().fold(0, u64::saturating_add);
    let placed = tensors().fold(0, |sum: u64, bytes| sum.saturating_add(card_tensor_bytes(bytes)));
    // A smaller file of the same model has the same tensors.
    weights_file.min(stored).saturating_add(placed.saturating_sub(stored))
}

/// The buffers that forward passes work in on a card: bytes of each, all multiples of [`CARD_ALIGNMENT`]. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardBuffers {
    /// Rows that a forward pass takes at a time.
    pub rows: usize,
    /// What is said of the rows: rotation angles, and 32 bytes of indices each; the addresses of pages.
    pub batch: u64,
    /// The residual stream.
    pub hidden: u64,
    /// The operand of a product as it is read.
    pub prepared: u64,
    /// Its scales, 8 bytes for every 32 elements.
    pub steps: u64,
    /// Its extents.
    pub extents: u64,
    /// Queries, keys and values.
    pub qkv: u64,
    /// The attention's output.
    pub attended: u64,
    /// Gate and up.
    pub up_gate: u64,
    /// Parts of the attention with their maxima and sums.
    pub partial: u64,
    /// Some rows of logits.
    pub logits: u64,
}

impl CardBuffers {
    /// For sequences of up to `context` tokens.
    pub fn new(spec: &ModelSpec, context: usize) -> CardBuffers {
        let rows = PREFILL_CHUNK.min(context).max(1);
        let queries = spec.heads.saturating_mul(spec.head_dim);
        let keys = spec.kv_heads.saturating_mul(spec.head_dim);
        let widest = widest_input(spec);
        let bytes = |factors: &[usize]| aligned(product(factors));
        let floats = |factors: &[usize]| aligned(product(factors).saturating_mul(size_of::<f32>() as u64));
        let angles = product(&[rows, spec.rope.dimensions, size_of::<f32>()]);
        let pages = sum(&[context.div_ceil(KV_PAGE) as u64, rows as u64]).saturating_mul(8);
        CardBuffers {
            rows,
            batch: aligned(sum(&[angles, product(&[rows, 32]), pages])),
            hidden: floats(&[rows, spec.hidden]),
            prepared: floats(&[rows, widest]),
            steps: bytes(&[rows, widest.div_ceil(32).max(1), 8]),
            extents: bytes(&[rows, 16]),
            qkv: floats(&[rows, queries.saturating_add(keys.saturating_mul(2))]),
            attended: floats(&[rows, queries]),
            up_gate: floats(&[rows, 2, spec.feed_forward]),
            partial: floats(&[CARD_ATTENTION_PARTS, spec.heads, spec.head_dim.saturating_add(2)]),
            logits: floats(&[CARD_LOGIT_ROWS.min(rows), spec.vocab]),
        }
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        sum(&[
            self.batch,
            self.hidden,
            self.prepared,
            self.steps,
            self.extents,
            self.qkv,
            self.attended,
            self.up_gate,
            self.partial,
            self.logits,
        ])
    }
}

fn aligned(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(CARD_ALIGNMENT).unwrap_or(u64::MAX)
}
