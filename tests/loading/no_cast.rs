//! Weights are the file: the bytes kernels read are the file's own, and nothing copies them.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use crate::common;

use model_factory::diagnostics::DType;
use model_factory::diagnostics::capability::{DeviceEngine, Tier, activations, tier};
use model_factory::kernels::{Form, Isa, Kernel};
use model_factory::{ActivationDtype, DtypePolicy, UnifiedModelFactory};
use std::collections::BTreeSet;

#[test]
fn kernels_read_the_bytes_of_the_file() {
    let of_models = common::all().into_iter().flat_map(|fixture| {
        let paths: Vec<_> = fixture.expected.files.keys().map(|name| fixture.folder.join(name)).collect();
        paths
    });
    let of_schemes = ["packed", "bnb", "columns", "fp8", "mlx", "fp4", "fp4-gguf"].into_iter().flat_map(|folder| {
        let entries = std::fs::read_dir(common::fixtures().join(folder)).expect("a folder of fixtures");
        entries.map(|entry| {
            let folder = entry.expect("an entry").path();
            let file = folder.join("model.gguf");
            if file.exists() { file } else { folder }
        })
    });
    let compared: usize = of_models.chain(of_schemes).map(|path| compared(&path)).sum();
    assert!(compared > 500, "only {compared} matrices");
}

/// Compares the matrices of a model with its files, and returns how many there are.
fn compared(path: &std::path::Path) -> usize {
    let model = common::load(path);
    let files: Vec<Vec<u8>> = weight_files(path).iter().map(|file| std::fs::read(file).expect("a file")).collect();
    let expected: Vec<_> = model.spec().matrices().collect();
    let read: Vec<_> = model.decoder().expect("a model on the processor").matrices().collect();
    assert_eq!(read.len(), expected.len());
    for (matrix, tensor) in read.iter().zip(&expected) {
        let bytes = matrix.weight().bytes();
        // Rows of words by columns have outputs of all parts of a fused matrix, each of which is given all of them.
        let all = tensor.name.ends_with(".qweight") && bytes.len() as u64 > tensor.bytes;
        assert!(all || bytes.len() as u64 == tensor.bytes, "{}: {}", path.display(), tensor.name);
        assert_eq!(matrix.weight().dtype(), tensor.dtype);
        let stored = &files[tensor.file][tensor.offset as usize..][..bytes.len()];
        assert!(bytes == stored, "{}: {}", path.display(), tensor.name);
    }
    if model.spec().tied_embeddings {
        let (embedding, head) = (read[0].weight().bytes(), read[read.len() - 1].weight().bytes());
        assert!(std::ptr::eq(embedding, head), "{}: a tied head is the embedding", path.display());
    }
    assert_eq!(model.report().casts, 0);
    expected.len()
}

/// The files of a model in part order, found independently of the library.
fn weight_files(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let folder = if path.is_dir() { path } else { path.parent().expect("a folder") };
    let is_part = |name: &str| name.contains("-of-") && (name.ends_with(".gguf") || name.ends_with(".safetensors"));
    let mut parts: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| is_part(&name.to_string_lossy())))
        .collect();
    parts.sort();
    match (path.is_dir(), parts.is_empty()) {
        (_, false) => parts,
        (true, true) => vec![path.join("model.safetensors")],
        (false, true) => vec![path.to_path_buf()],
    }
}

#[test]
fn capability_rows_and_kernels_agree_both_ways() {
    let runs = |dtype: &DType| tier(*dtype, &DeviceEngine::Cpu { features: &[] }).is_ok();
    let rows: BTreeSet<_> = DType::all().filter(runs).collect();
    let kernels: BTreeSet<_> = Kernel::dtypes().collect();
    assert_eq!(rows, kernels);
    for isa in Isa::available() {
        for dtype in &rows {
            let kernel = Kernel::select(*dtype, isa).expect("every dtype has a kernel on every instruction set");
            let features = isa.features();
            let tier = tier(*dtype, &DeviceEngine::Cpu { features }).expect("a row");
            assert_eq!(kernel.tier, tier, "{}", kernel.name);
            let prescribed = match kernel.form {
                Form::F32 => "f32",
                Form::Bf16 => "bf16",
                Form::Q16 => "int16",
                Form::Q8 | Form::Int8(_) => "int8",
            };
            let said = activations(*dtype, &DeviceEngine::Cpu { features }, ActivationDtype::Prescribed);
            assert_eq!(said, Some(prescribed), "{}", kernel.name);
        }
    }
}

#[test]
fn a_report_names_the_level_of_kernels_that_compute() {
    use model_factory::diagnostics::capability::cpu_level;
    for isa in Isa::available() {
        let level = cpu_level(isa.features());
        assert_eq!(level.as_ref().map_or("portable", |level| level.0), isa.name());
        let lacked = level.map_or(vec![], |level| level.1);
        assert!(lacked.iter().all(|lacked| Isa::names().any(|name| name == *lacked)), "{isa}: {lacked:?}");
    }
}

/// What the processor is said to have is what the system lets this process use.
#[test]
fn a_report_names_the_level_that_is_chosen() {
    let path = common::named("llama-3.2").folder.join("bf16");
    let cpu = UnifiedModelFactory::builder().diagnose(&path).hardware.cpu;
    assert_eq!(cpu.level().map_or("portable", |level| level.0), Isa::detect().name());
}

#[test]
fn a_forced_instruction_set_decides_the_tiers_of_the_report() {
    let path = common::named("llama-3.2").folder.join("bf16");
    for isa in Isa::available() {
        let builder = UnifiedModelFactory::builder().isa(isa);
        let report = builder.diagnose(&path);
        let model = report.model.expect("a model that runs");
        let bf16 = model.dtypes.iter().find(|summary| summary.dtype == DType::BF16).expect("BF16 tensors");
        // Two levels multiply BF16; all others widen it.
        let multiplies = ["avx512-vnni-bf16", "amx"].contains(&isa.name());
        assert_eq!(bf16.tier, Some(if multiplies { Tier::Native } else { Tier::Widened }), "{isa}");
        assert!(report.hardware.cpu.features.iter().all(|feature| isa.features().contains(feature)), "{isa}");
        let native_only = builder.dtype_policy(DtypePolicy::NativeOnly).diagnose(&path);
        assert_eq!(native_only.exit_code, if multiplies { 0 } else { 12 }, "{isa}: {}", native_only.reason);
    }
}
