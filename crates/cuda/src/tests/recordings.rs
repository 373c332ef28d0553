//! Steps that cannot be recorded are computed without recording, on a GPU whose recordings, their starts and launches
//! fail on demand.

use super::super::buffer::Function;
use super::super::driver::Gpu;
use super::models::{on, with_context};
use super::{archives, gpu};
use crate::CudaError;
use model_factory::Model;
use model_factory::error::{EngineError, Error};
use model_factory_spec::plan::{GpuBuffers, KvDtype, gpu_recording_bytes};
use std::collections::HashSet;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The history of a GPU, and which of its calls fail: each count runs down to the call that fails.
#[derive(Debug)]
pub(in super::super) struct Watch {
    /// Recordings, starts of recordings and launches that succeed before one fails; below zero all do.
    left: [AtomicIsize; 3],
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    recording: bool,
    /// Kernels that ran once: the driver may load others at their first launch, which a recording forbids.
    loaded: HashSet<usize>,
    /// Launches of each recording.
    recorded: Vec<usize>,
    forgotten: usize,
}

pub(in super::super) const RECORD: usize = 0;
pub(in super::super) const REPLAY: usize = 1;
const LAUNCH: usize = 2;

impl Default for Watch {
    fn default() -> Watch {
        Watch { left: [(); 3].map(|()| AtomicIsize::new(-1)), seen: Mutex::default() }
    }
}

impl Watch {
    fn fail_after(&self, kind: usize, calls: isize) {
        self.left[kind].store(calls, Relaxed);
    }

    /// Counts a call, and fails if it is to fail.
    pub(in super::super) fn refuse(&self, kind: usize) -> Result<(), CudaError> {
        match self.left[kind].fetch_sub(1, Relaxed) {
            0 => Err(CudaError::Driver { step: "a test", code: 2, text: "out of memory".into() }),
            _ => Ok(()),
        }
    }

    pub(in super::super) fn set_recording(&self, recording: bool) {
        self.seen.lock().unwrap().recording = recording;
    }

    pub(in super::super) fn recorded(&self, launches: usize) {
        self.seen.lock().unwrap().recorded.push(launches);
    }

    pub(in super::super) fn forgotten(&self) {
        self.seen.lock().unwrap().forgotten += 1;
    }

    pub(in super::super) fn launch(&self, function: Function) -> Result<(), CudaError> {
        self.refuse(LAUNCH)?;
        let mut seen = self.seen.lock().unwrap();
        let loaded = if seen.recording { seen.loaded.contains(&function.0) } else { true };
        assert!(loaded, "a kernel that never ran is recorded");
        seen.loaded.insert(function.0);
        Ok(())
    }
}

fn model(gpu: &Arc<Gpu>, name: &str) -> Model {
    let path = archives::path(name);
    let processor = with_context(&path, KvDtype::F32, 512);
    on(Arc::clone(gpu), &processor, &path, KvDtype::F32)
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
    let Some(gpu) = gpu((9, 0)) else { return };
    let model = model(&gpu, "llama-3.2/f32");
    let expected = tokens(&model, 6);
    assert_eq!(gpu.watch.seen.lock().unwrap().recorded.len(), 1);
    // A recording is freed with the start that fails, so that the next has to be made.
    for (kind, calls) in [(REPLAY, 0), (RECORD, 0), (REPLAY, 2), (REPLAY, 3)] {
        gpu.watch.fail_after(kind, calls);
        assert_eq!(tokens(&model, 6), expected, "{kind} {calls}");
        let left = gpu.watch.left[kind].load(Relaxed);
        assert!(left < 0, "{kind} {calls}: did not fail");
        gpu.watch.fail_after(kind, -1);
    }
}

#[test]
fn a_step_that_failed_is_not_recorded_before_it_was_computed() {
    let Some(gpu) = gpu((9, 0)) else { return };
    let model = model(&gpu, "llama-3.2/f32");
    let mut session = model.session();
    session.forward(&[1, 2, 3]).unwrap();
    gpu.watch.fail_after(LAUNCH, 3);
    // The facade knows the errors of the crate that it was built with, not those of this test's crate.
    let Err(Error::Engine(EngineError::Device { error, .. })) = session.forward(&[4]) else { panic!("no error") };
    assert!(matches!(error.downcast_ref(), Some(CudaError::Driver { .. })), "{error}");
    session.forward(&[4]).unwrap();
    assert_eq!(gpu.watch.seen.lock().unwrap().recorded, [0; 0]);
    session.forward(&[5]).unwrap();
    assert_eq!(gpu.watch.seen.lock().unwrap().recorded.len(), 1);
}

/// The plan for recordings covers some of a usual step, and the engine frees the others.
#[test]
fn recordings_take_no_more_than_the_plan_says() {
    for name in ["llama-3.2/f32", "phi-2/f32", "qwen3/f32", "llama-256/q4_k_m.gguf"] {
        let Some(gpu) = gpu((9, 0)) else { return };
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
            let seen = gpu.watch.seen.lock().unwrap();
            let kept = &seen.recorded[seen.forgotten..];
            let taken: u64 = kept.iter().map(|launches| gpu_recording_bytes(*launches)).sum();
            assert!(taken <= planned, "{name}: {kept:?} launches take {taken} of {planned}");
            assert!(kept.len() >= sequences.min(3), "{name}: {kept:?} launches, {planned} bytes");
            assert_eq!(seen.recorded.len(), sequences, "{name}");
        }
    }
}
