//! ModelSpec -> bytes on a card, by the rules that the allocating code follows.

use model_diagnostics::header::TensorInfo;
use model_diagnostics::plan::{
    CARD_ALIGNMENT, CARD_ATTENTION_PARTS, CARD_LOGIT_ROWS, KV_PAGE, KvDtype, PREFILL_CHUNK, card_tensor_bytes,
};
use model_diagnostics::spec::{LayerWeights, LinearWeights, ModelSpec, NormWeights};
use std::collections::BTreeMap;

/// Rows of logits that are computed at a time.
pub(super) const LOGIT_ROWS: usize = CARD_LOGIT_ROWS;

/// Parts of the positions, of all rows together, that attention leaves results of.
pub(super) const ATTENTION_PARTS: usize = CARD_ATTENTION_PARTS;

/// A tensor as a range of a file.
pub(super) type Place = (usize, u64, u64);

/// Where each stored tensor that kernels read lies in one allocation, and its bytes in all. A tied head is there once.
pub(super) fn layout(spec: &ModelSpec) -> (BTreeMap<Place, u64>, u64) {
    let mut places = BTreeMap::new();
    let mut end = 0;
    for tensor in tensors(spec) {
        places.entry(place(tensor)).or_insert_with(|| {
            let start = end;
            end = start + card_tensor_bytes(tensor.bytes);
            start
        });
    }
    (places, end)
}

/// The range of a tensor.
pub(super) fn place(tensor: &TensorInfo) -> Place {
    (tensor.file, tensor.offset, tensor.bytes)
}

/// Bytes of the weights on a card.
pub fn weight_bytes(spec: &ModelSpec) -> u64 {
    layout(spec).1
}

/// Every tensor that kernels read, in the decoder's order.
pub(super) fn tensors(spec: &ModelSpec) -> impl Iterator<Item = &TensorInfo> {
    let weights = &spec.weights;
    let layers = weights.layers.iter().flat_map(of_layer);
    let head = of_norm(&weights.final_norm).chain(of_linear(&weights.head));
    std::iter::once(&weights.embedding).chain(layers).chain(head)
}

fn of_layer(layer: &LayerWeights) -> impl Iterator<Item = &TensorInfo> {
    let norms = [Some(&layer.attention_norm), layer.q_norm.as_ref(), layer.k_norm.as_ref(), Some(&layer.mlp_norm)];
    let linears = [Some(&layer.q), Some(&layer.k), Some(&layer.v), Some(&layer.o), layer.gate.as_ref()];
    let linears = linears.into_iter().chain([Some(&layer.up), Some(&layer.down)]).flatten();
    norms.into_iter().flatten().flat_map(of_norm).chain(linears.flat_map(of_linear))
}

fn of_norm(norm: &NormWeights) -> impl Iterator<Item = &TensorInfo> {
    std::iter::once(&norm.weight).chain(&norm.bias)
}

fn of_linear(linear: &LinearWeights) -> impl Iterator<Item = &TensorInfo> {
    std::iter::once(&linear.weight).chain(&linear.bias).chain(linear.int8.iter().map(|int8| &int8.scale))
}

/// Bytes of each buffer that forward passes of up to [`PREFILL_CHUNK`] rows work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scratch {
    pub(super) rows: usize,
    pub(super) batch: usize,
    pub(super) hidden: usize,
    pub(super) prepared: usize,
    pub(super) steps: usize,
    pub(super) extents: usize,
    pub(super) qkv: usize,
    pub(super) attended: usize,
    pub(super) up_gate: usize,
    pub(super) partial: usize,
    pub(super) logits: usize,
}

impl Scratch {
    /// For sequences of up to `context` tokens.
    pub(super) fn new(spec: &ModelSpec, context: usize) -> Scratch {
        let float = size_of::<f32>();
        let rows = PREFILL_CHUNK.min(context).max(1);
        let queries = spec.heads * spec.head_dim;
        let widest = spec.hidden.max(spec.feed_forward).max(queries);
        // Angles, and of each row its id, its place, its query tile and which row it is; the table of pages.
        let batch = rows * (spec.rope.dimensions * float + 32) + (context.div_ceil(KV_PAGE) + rows) * 8;
        Scratch {
            rows,
            batch,
            hidden: rows * spec.hidden * float,
            prepared: rows * widest * float,
            steps: rows * widest.div_ceil(32).max(1) * 8,
            extents: rows * 16,
            qkv: rows * (queries + 2 * spec.kv_heads * spec.head_dim) * float,
            attended: rows * queries * float,
            up_gate: rows * 2 * spec.feed_forward * float,
            partial: ATTENTION_PARTS * spec.heads * (spec.head_dim + 2) * float,
            logits: LOGIT_ROWS.min(rows) * spec.vocab * float,
        }
    }

    /// All of them, each a whole number of 256 bytes.
    fn total(&self) -> u64 {
        let all = [
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
        ];
        all.iter().map(|bytes| (*bytes as u64).next_multiple_of(CARD_ALIGNMENT)).sum()
    }
}

/// Bytes of the buffers that forward passes work in, for sequences of up to `context` tokens.
pub fn activation_bytes(spec: &ModelSpec, context: usize) -> u64 {
    Scratch::new(spec, context).total()
}

/// Bytes of a page of the KV cache: [`KV_PAGE`] positions of all layers.
pub fn page_bytes(spec: &ModelSpec, dtype: KvDtype) -> usize {
    spec.layers() * 2 * spec.kv_heads * KV_PAGE * spec.head_dim * dtype.bytes()
}
