//! The plan that the report prints and what is allocated for weights: the same numbers.

use super::super::dtypes;
use super::super::sizes::{self, place, weight_bytes};
use model_diagnostics::capability::cuda_dtypes;
use model_diagnostics::family::REGISTRY;
use model_diagnostics::header::Header;
use model_diagnostics::plan::{card_tensor_bytes, card_weight_bytes};
use model_diagnostics::source::probe;
use model_diagnostics::spec::{ModelSpec, inspect};
use std::collections::BTreeSet;
use std::path::Path;

/// A model of every family, and of int8.
fn specs() -> Vec<ModelSpec> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folders =
        ["models/llama-3.1/f32-sharded", "models/tinyllama/bf16", "models/smollm2/f32", "int8/phi3", "int8/qwen2"];
    let names = folders.iter().map(|name| fixtures.join(name));
    let specs: Vec<ModelSpec> = names
        .chain([fixtures.join("demo-q4_k_m.gguf")])
        .map(|path| inspect(&Header::read(probe(&path).unwrap()).unwrap(), REGISTRY).unwrap())
        .collect();
    assert_eq!(specs.len(), 6);
    specs
}

#[test]
fn the_matrix_of_cards_has_the_dtypes_that_have_kernels() {
    let [told, built]: [BTreeSet<_>; 2] = [cuda_dtypes().collect(), dtypes().collect()];
    assert_eq!(told, built);
}

#[test]
fn the_weights_that_are_planned_are_those_that_are_allocated() {
    for spec in specs() {
        // Tensors that only the processor reads, as factors of the rope, are planned and not uploaded; a tied head is one tensor.
        let (held, _) = sizes::layout(&spec);
        let mut left = BTreeSet::new();
        let extra: u64 = spec
            .tensors()
            .filter(|tensor| !held.contains_key(&place(tensor)) && left.insert(place(tensor)))
            .map(|tensor| card_tensor_bytes(tensor.bytes))
            .sum();
        assert_eq!(card_weight_bytes(&spec, u64::MAX), weight_bytes(&spec) + extra);
        assert!(extra < weight_bytes(&spec) / 50, "within two percent");
    }
}
