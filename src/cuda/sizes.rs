//! ModelSpec -> where each stored tensor lies on a card.

use model_diagnostics::header::TensorInfo;
use model_diagnostics::plan::card_tensor_bytes;
use model_diagnostics::spec::{LayerWeights, LinearWeights, ModelSpec, NormWeights};
use std::collections::BTreeMap;

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
