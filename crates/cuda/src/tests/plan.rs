//! The report on GPUs agrees with the engine.

use super::super::dtypes;
use super::archives;
use model_factory_diagnostics::DType;
use model_factory_diagnostics::capability::{DeviceEngine, tier};
use model_factory_format::header::Header;
use model_factory_format::source::probe;
use model_factory_spec::family::REGISTRY;
use model_factory_spec::plan::{gpu_tensor_bytes, gpu_weight_bytes};
use model_factory_spec::spec::inspect;
use std::collections::BTreeSet;

#[test]
fn the_matrix_of_gpus_has_the_dtypes_that_have_kernels() {
    let newest = DeviceEngine::Cuda { compute_capability: (99, 0), compiled: true };
    let reported: BTreeSet<_> = DType::all().filter(|dtype| tier(*dtype, &newest).is_ok()).collect();
    let built: BTreeSet<_> = dtypes().collect();
    assert_eq!(reported, built);
}

/// A model of every family, one of int8, and one with a tied head, which is one tensor.
#[test]
fn the_weights_that_are_planned_are_the_tensors_of_the_files() {
    let names = [
        "llama-3.1/f32-sharded",
        "tinyllama/bf16",
        "smollm2/bf16",
        "phi-2/f32",
        "../int8/phi3",
        "../int8/qwen2",
        "../demo-q4_k_m.gguf",
    ];
    for name in names {
        let spec = inspect(&Header::read(probe(&archives::path(name)).unwrap()).unwrap(), REGISTRY).unwrap();
        let ranges: BTreeSet<_> = spec.tensors().map(|tensor| (tensor.file, tensor.offset, tensor.bytes)).collect();
        let placed: u64 = ranges.iter().map(|(_, _, bytes)| gpu_tensor_bytes(*bytes)).sum();
        assert_eq!(gpu_weight_bytes(&spec, u64::MAX), placed, "{name}");
    }
}
