//! Steps that cannot be recorded are computed without: by a GPU whose recordings, starts of them, and launches fail on
//! demand.

use super::super::gpu::{Function, LaunchShape, Launcher};
use super::super::modules::Module;
use super::gpu;
use super::models::{fixtures, on, with_context};
use crate::CudaError;
use model_factory::Model;
use model_factory::error::{EngineError, Error};
use model_factory_spec::plan::{GpuBuffers, KvDtype, gpu_recording_bytes};
use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The GPU of the tests, which refuses what is counted down to nothing.
#[derive(Debug)]
struct Refusing {
    gpu: Arc<dyn Launcher>,
    /// Recordings, starts of recordings and launches that succeed before one fails; below zero all do.
    left: [AtomicIsize; 3],
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    recording: bool,
    /// Kernels that ran once: the driver may load others at their first launch, which a recording forbids.
    loaded: HashSet<usize>,
    /// Launches of each recording, and starts of one.
    recorded: Vec<usize>,
    replayed: usize,
    forgotten: usize,
}

const RECORD: usize = 0;
const REPLAY: usize = 1;
const LAUNCH: usize = 2;

impl Refusing {
    fn new() -> Option<Arc<Refusing>> {
        let left = [(); 3].map(|()| AtomicIsize::new(-1));
        Some(Arc::new(Refusing { gpu: gpu((9, 0))?, left, seen: Mutex::default() }))
    }

    fn fail_after(&self, kind: usize, calls: isize) {
        self.left[kind].store(calls, Relaxed);
    }

    fn count(&self, kind: usize) -> Result<(), CudaError> {
        match self.left[kind].fetch_sub(1, Relaxed) {
            0 => Err(CudaError::Driver { step: "a test", code: 2, text: "out of memory".into() }),
            _ => Ok(()),
        }
    }
}

impl Launcher for Refusing {
    fn capability(&self) -> (u32, u32) {
        self.gpu.capability()
    }

    fn processors(&self) -> usize {
        self.gpu.processors()
    }

    fn allocate(&self, what: &'static str, bytes: usize) -> Result<u64, CudaError> {
        self.gpu.allocate(what, bytes)
    }

    unsafe fn free(&self, address: u64, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { self.gpu.free(address, bytes) }
    }

    unsafe fn upload(&self, from: &[u8], to: u64) -> Result<(), CudaError> {
        // SAFETY: the caller's.
        unsafe { self.gpu.upload(from, to) }
    }

    unsafe fn download(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<(), CudaError> {
        // SAFETY: the caller's.
        unsafe { self.gpu.download(pieces) }
    }

    fn function(&self, module: Module, name: &str) -> Result<Function, CudaError> {
        self.gpu.function(module, name)
    }

    fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.gpu.memory()
    }

    fn record(&self, launches: &mut dyn FnMut() -> Result<(), EngineError>) -> Result<(usize, usize), EngineError> {
        self.count(RECORD)?;
        self.seen.lock().unwrap().recording = true;
        let recorded = self.gpu.record(launches);
        let mut seen = self.seen.lock().unwrap();
        seen.recording = false;
        seen.recorded.extend(recorded.as_ref().ok().map(|(_, launches)| *launches));
        recorded
    }

    unsafe fn replay(&self, recording: usize) -> Result<(), CudaError> {
        self.count(REPLAY)?;
        self.seen.lock().unwrap().replayed += 1;
        // SAFETY: the caller's.
        unsafe { self.gpu.replay(recording) }
    }

    unsafe fn forget(&self, recording: usize) {
        self.seen.lock().unwrap().forgotten += 1;
        // SAFETY: the caller's.
        unsafe { self.gpu.forget(recording) }
    }

    unsafe fn launch(
        &self,
        function: Function,
        shape: LaunchShape,
        arguments: *const c_void,
        size: usize,
    ) -> Result<(), CudaError> {
        self.count(LAUNCH)?;
        {
            let mut seen = self.seen.lock().unwrap();
            let loaded = if seen.recording { seen.loaded.contains(&function.0) } else { true };
            assert!(loaded, "a kernel that never ran is recorded");
            seen.loaded.insert(function.0);
        }
        // SAFETY: the caller's.
        unsafe { self.gpu.launch(function, shape, arguments, size) }
    }
}

fn model(gpu: &Arc<Refusing>, name: &str) -> Model {
    let path = fixtures().join("models").join(name);
    let processor = with_context(&path, KvDtype::F32, 512);
    on(Arc::clone(gpu) as Arc<dyn Launcher>, &processor, &path, KvDtype::F32)
}

/// The logits of a prompt and of `tokens` tokens after it.
fn tokens(model: &Model, tokens: u32) -> Vec<Vec<f32>> {
    let mut session = model.session();
    let prompt = session.forward(&[1, 2, 3]).unwrap();
    let rest = (0..tokens).map(|id| session.forward(&[id + 4]).unwrap());
    std::iter::once(prompt).chain(rest).map(|logits| logits.to_vec1().unwrap()).collect()
}

#[test]
fn a_step_whose_recording_or_its_start_fails_is_computed_without() {
    let Some(gpu) = Refusing::new() else { return };
    let model = model(&gpu, "llama-3.2/f32");
    let expected = tokens(&model, 6);
    assert_eq!(gpu.seen.lock().unwrap().recorded.len(), 1);
    // A recording is freed with the start that fails, so that the next has to be made.
    for (kind, calls) in [(REPLAY, 0), (RECORD, 0), (REPLAY, 2), (REPLAY, 3)] {
        gpu.fail_after(kind, calls);
        assert_eq!(tokens(&model, 6), expected, "{kind} {calls}");
        let left = gpu.left[kind].load(Relaxed);
        assert!(left < 0, "{kind} {calls}: did not fail");
        gpu.fail_after(kind, -1);
    }
}

#[test]
fn a_step_that_failed_is_not_recorded_before_it_was_computed() {
    let Some(gpu) = Refusing::new() else { return };
    let model = model(&gpu, "llama-3.2/f32");
    let mut session = model.session();
    session.forward(&[1, 2, 3]).unwrap();
    gpu.fail_after(LAUNCH, 3);
    // The face knows the errors of the crate that it was built with, which this test's is not.
    let Err(Error::Engine(EngineError::Device { error, .. })) = session.forward(&[4]) else { panic!("no error") };
    assert!(matches!(error.downcast_ref(), Some(CudaError::Driver { .. })), "{error}");
    session.forward(&[4]).unwrap();
    assert_eq!(gpu.seen.lock().unwrap().recorded, [0; 0]);
    session.forward(&[5]).unwrap();
    assert_eq!(gpu.seen.lock().unwrap().recorded.len(), 1);
}

/// What is planned for recordings holds some of a usual step, and the engine frees those beyond it.
#[test]
fn recordings_take_no_more_than_the_plan_says() {
    for name in ["llama-3.2/f32", "phi-2/f32", "qwen3/f32", "llama-256/q4_k_m.gguf"] {
        let Some(gpu) = Refusing::new() else { return };
        let model = model(&gpu, name);
        let planned = GpuBuffers::new(model.spec(), 512).recordings;
        // One to seven sequences: as many kinds of steps.
        for sequences in 1..8 {
            let mut sessions: Vec<_> = (0..sequences).map(|_| model.session()).collect();
            for id in 0..4 {
                let ids = [id];
                let mut steps: Vec<_> = sessions.iter_mut().map(|session| (session, &ids[..])).collect();
                model_factory::Session::batch(&mut steps).unwrap();
            }
            let seen = gpu.seen.lock().unwrap();
            let kept = &seen.recorded[seen.forgotten..];
            let taken: u64 = kept.iter().map(|launches| gpu_recording_bytes(*launches)).sum();
            assert!(taken <= planned, "{name}: {kept:?} launches take {taken} of {planned}");
            assert!(kept.len() >= sequences.min(3), "{name}: {kept:?} launches, {planned} bytes");
            assert_eq!(seen.recorded.len(), sequences, "{name}");
        }
    }
}
