//! What only a GPU can show. Without one every test says that it was skipped, and why.
#![cfg(feature = "cuda")]
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why

mod common;

use common::relative_l2;
use model_factory::cuda::dtypes;
use model_factory::diagnostics::{DType, source};
use model_factory::load::Stage;
use model_factory::weights::Weights;
use model_factory::{DeviceChoice, GenerateOptions, Model, UnifiedModelFactory};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The model on the first GPU; `None` where there is no GPU, no driver or no NVRTC, unless `TEST_DEVICE=cuda` asks for one.
fn on_gpu(path: &Path) -> Option<Model> {
    match UnifiedModelFactory::builder().device(DeviceChoice::Cuda(0)).load(path) {
        Ok(model) => Some(model),
        Err(error) if error.code() == 13 && std::env::var_os("TEST_DEVICE").is_none() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Every fixture whose dtypes and blocks have kernels for GPUs.
fn fixtures() -> Vec<PathBuf> {
    let known: Vec<DType> = dtypes().collect();
    let all = common::all();
    let files = all.iter().flat_map(|fixture| fixture.expected.files.keys().map(|name| fixture.folder.join(name)));
    let runs = |path: &PathBuf| {
        let on = |device| UnifiedModelFactory::builder().device(device).diagnose(path);
        let dtypes = on(DeviceChoice::Cpu).model.expect("a model that the processor runs").dtypes;
        dtypes.iter().all(|summary| known.contains(&summary.dtype))
            && !on(DeviceChoice::Cuda(0)).reason.contains("kernels for GPUs do not compute")
    };
    let found: Vec<PathBuf> = files.filter(runs).collect();
    assert!(found.len() >= 60, "only {} fixtures", found.len());
    found
}

#[test]
fn the_bytes_on_the_gpu_are_the_files() {
    for path in fixtures() {
        let Some(model) = on_gpu(&path) else { return };
        let weights = Weights::map(&source::probe(&path).expect("a model")).expect("its files");
        let decoder = model.cuda().expect("a model on a GPU");
        assert_eq!(decoder.first_difference(model.spec(), &weights).expect("an answer"), None, "{}", path.display());
    }
}

/// Steps of generation are graphs, prompts are not: both, and attention in parts, against a prompt at once.
#[test]
fn tokens_one_by_one_are_the_prompt_at_once() {
    for name in ["llama-3.2/f32", "phi-2/f32", "qwen3/f32", "phi-3.5/f32"] {
        let path = common::archives::path(name);
        let Some(model) = on_gpu(&path) else { return };
        let vocab = model.spec().vocab as u32;
        let tokens: Vec<u32> = (0..400.min(model.context_length() as u32)).map(|i| (i * 37 + 5) % vocab).collect();
        let whole = model.logits(&tokens).expect("logits").to_vec2::<f32>().expect("F32 logits");
        let mut session = model.session();
        let first = tokens.len() - 40;
        session.forward(&tokens[..first]).expect("a prompt");
        let mut steps = Vec::new();
        for token in &tokens[first..] {
            steps.extend(session.forward(&[*token]).expect("a token").to_vec1::<f32>().expect("F32 logits"));
        }
        // Another order of the same F32 sums.
        let distance = relative_l2(&steps, &whole[first..].concat());
        println!("{name}: {distance:.2e}");
        assert!(distance < 4e-6, "{name}: {distance:.3e} apart");
    }
}

#[test]
fn a_callback_that_panics_during_an_upload_ends_the_load_with_its_panic() {
    let path = common::demo();
    if on_gpu(&path).is_none() {
        return;
    }
    for end in [false, true] {
        let builder = UnifiedModelFactory::builder().device(DeviceChoice::Cuda(0)).on_progress(move |progress| {
            if progress.stage == Stage::Upload && (progress.bytes_done == progress.bytes_total) == end {
                std::panic::panic_any(end);
            }
        });
        let panic = catch_unwind(AssertUnwindSafe(|| builder.load(&path).map(drop))).expect_err("it panics");
        assert_eq!(panic.downcast_ref(), Some(&end));
        // The GPU is free for the next load.
        assert!(on_gpu(&path).is_some_and(|model| model.logits(&[5]).is_ok()));
    }
}

#[test]
fn a_model_on_a_gpu_takes_no_adapters() {
    let of = common::adapters::named("llama-3.2");
    let Some(model) = on_gpu(&of.base("f32")) else { return };
    let error = model.load_adapter(of.path("first", "f32")).expect_err("adapters are the processor's");
    assert!(error.code() == 13 && error.to_string().contains("adapters are computed on the processor"), "{error}");
    let builder = UnifiedModelFactory::builder().device(DeviceChoice::Cuda(0)).adapters(1, 4);
    let error = builder.load(of.base("f32")).expect_err("nothing is reserved there");
    assert!(error.code() == 13 && error.to_string().contains("adapters are asked for"), "{error}");
}

#[test]
fn the_bundled_model_tells_its_story() {
    let path = common::demo();
    let Some(model) = on_gpu(&path) else { return };
    let options = GenerateOptions::default().max_tokens(32).temperature(0.0);
    let text = |model: &Model| -> String {
        let pieces = model.generate("Once upon a time", &options).expect("a generation");
        pieces.map(|piece| piece.expect("a piece").text).collect()
    };
    let processor = UnifiedModelFactory::builder().device(DeviceChoice::Cpu).load(&path).expect("the bundled model");
    assert_eq!(text(&model), text(&processor));
}
