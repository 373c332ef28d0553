//! Every call of the driver fails once, in turn: a typed error each time, nothing left on the GPU, and the next request is
//! right. Needs the stand-in for the driver (`gpu-emulator`), whose calls fail on demand; says so where it is not there.
#![cfg(all(feature = "cuda", unix))]
#![allow(clippy::expect_used, clippy::print_stdout, unsafe_code)] // a test says what it skips; the stand-in is a C library

mod common;

use libloading::Library;
use model_factory::cuda::CudaError;
use model_factory::{DeviceChoice, Error, Model, Session, UnifiedModelFactory};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `CUDA_ERROR_OUT_OF_MEMORY`, after which a context goes on.
const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_LAUNCH_FAILED` and `CUDA_ERROR_UNKNOWN`, after which it does not.
const LAUNCH_FAILED: u32 = 719;
const UNKNOWN: u32 = 999;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
const CAPTURE_INVALIDATED: u32 = 901;

/// The stand-in: the library that the engine has loaded as the driver.
struct Driver(Library);

impl Driver {
    /// `None` where the driver is NVIDIA's, or none.
    fn stand_in() -> Option<Driver> {
        // SAFETY: loading a driver's library runs only its own initialization.
        let library = unsafe { Library::new("libcuda.so") }.ok()?;
        // SAFETY: it is only looked for.
        let found = unsafe { library.get::<extern "C" fn()>(c"gpu_emulator_fail") }.is_ok();
        found.then_some(Driver(library))
    }

    /// After `calls` more calls of `function` the next fails.
    fn fail(&self, function: &str, calls: u64, code: u32) {
        type Fail = unsafe extern "C" fn(*const c_char, u64, u32);
        let function = CString::new(function).expect("a name");
        // SAFETY: the signature is the stand-in's; the name ends with a zero.
        unsafe { self.0.get::<Fail>(c"gpu_emulator_fail").expect("a function")(function.as_ptr(), calls, code) }
    }

    fn is_planned(&self) -> bool {
        // SAFETY: the signature is the stand-in's.
        unsafe { self.0.get::<extern "C" fn() -> bool>(c"gpu_emulator_is_planned").expect("a function")() }
    }

    fn calls(&self, function: &str) -> u64 {
        type Calls = unsafe extern "C" fn(*const c_char) -> u64;
        let function = CString::new(function).expect("a name");
        // SAFETY: as in `fail`.
        unsafe { self.0.get::<Calls>(c"gpu_emulator_calls").expect("a function")(function.as_ptr()) }
    }

    /// What nobody gave back.
    fn left(&self) -> String {
        type Left = unsafe extern "C" fn(*mut c_char, usize);
        let mut text = [0 as c_char; 4096];
        // SAFETY: the signature is the stand-in's, and there are as many bytes.
        unsafe { self.0.get::<Left>(c"gpu_emulator_left").expect("a function")(text.as_mut_ptr(), text.len()) };
        // SAFETY: it ends with a zero.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
    }
}

fn load() -> Result<Model, Error> {
    let path = common::fixtures().join("models/llama-3.2/f32");
    UnifiedModelFactory::builder().device(DeviceChoice::Cuda(0)).context_length(64).load(path)
}

/// A prompt, a token that is computed, one that is recorded, and two that are replayed.
const STEPS: [&[u32]; 5] = [&[1, 2, 3], &[4], &[5], &[6], &[7]];

/// The bits of a step's logits; with `again` a step that fails is tried once more.
fn step(session: &mut Session, tokens: &[u32], again: bool) -> Result<Vec<u32>, Error> {
    let logits = match session.forward(tokens) {
        Err(error) if again => {
            typed(&error);
            session.forward(tokens)
        }
        other => other,
    }?;
    let logits = logits.to_vec1::<f32>().map_err(Error::from)?;
    Ok(logits.into_iter().map(f32::to_bits).collect())
}

/// Loads a model and takes the steps.
fn request(again: bool) -> Result<Vec<Vec<u32>>, Error> {
    let model = match load() {
        Err(error) if again => {
            typed(&error);
            load()
        }
        other => other,
    }?;
    let mut session = model.session();
    STEPS.iter().map(|tokens| step(&mut session, tokens, again)).collect()
}

/// What the driver says is an error of its own kind.
fn typed(error: &Error) {
    let typed = matches!(error, Error::Cuda(CudaError::Driver { .. } | CudaError::Memory { .. }));
    assert!(typed, "{error:?}");
}

/// The walks share one GPU.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The stand-in, where the driver is one. Where it is meant to be, it is.
fn stand_in() -> Option<Driver> {
    let driver = Driver::stand_in();
    if driver.is_none() {
        assert!(std::env::var_os("GPU_EMULATOR_NVRTC").is_none(), "the driver is not the stand-in");
        println!("skipped: the driver is not the stand-in, whose calls fail on demand");
    }
    driver
}

/// What breaks the context ends the request; after the rest it is asked once more.
fn walk(function: &str, codes: &[u32]) {
    walk_again(function, codes, |code| ![LAUNCH_FAILED, UNKNOWN].contains(&code));
}

/// Lets calls of `function` fail, and asks once more after the codes that `is_passing`. How many failures ended a request.
fn walk_again(function: &str, codes: &[u32], is_passing: impl Fn(u32) -> bool) -> usize {
    let _alone = ALONE.lock();
    let Some(driver) = stand_in() else { return 0 };
    let expected = request(false).expect("a GPU");
    let before = driver.calls(function);
    assert_eq!(request(false).expect("a GPU"), expected);
    assert_eq!(driver.left(), "");
    let calls = driver.calls(function) - before;
    assert!(calls > 0, "{function} is not called");
    // Every call with every code by `FAILURES=all`; else every so many that some of each step are among them.
    let all = std::env::var_os("FAILURES").is_some_and(|value| value == "all");
    let cases: Vec<(u64, u32)> = if all {
        (0..calls).flat_map(|call| codes.iter().map(move |code| (call, *code))).collect()
    } else {
        (0..calls).step_by((calls / 24).max(1) as usize).zip(codes.iter().copied().cycle()).collect()
    };
    let mut failed = 0;
    for (call, code) in &cases {
        let (call, code) = (*call, *code);
        let label = format!("{function} {call} of {calls}, {code}");
        let again = is_passing(code);
        driver.fail(function, call, code);
        let answer =
            catch_unwind(AssertUnwindSafe(|| request(again))).unwrap_or_else(|_| panic!("{label}: it panicked"));
        assert!(!driver.is_planned(), "{label}: no such call");
        match answer {
            Ok(logits) => assert_eq!(logits, expected, "{label}"),
            Err(error) if again => panic!("{label}: twice: {error}"),
            Err(error) => {
                typed(&error);
                failed += 1;
            }
        }
        assert_eq!(driver.left(), "", "{label}");
        if !again {
            assert_eq!(request(false).expect("a GPU"), expected, "{label}: the next request");
        }
    }
    println!("{function}: {} failures of {calls} calls, {failed} ended a request", cases.len());
    failed
}

#[test]
fn any_call_may_fail() {
    walk("*", &[OUT_OF_MEMORY, LAUNCH_FAILED, UNKNOWN]);
}

#[test]
fn memory_may_run_out() {
    walk("cuMemAlloc_v2", &[OUT_OF_MEMORY]);
    walk("cuMemHostAlloc", &[OUT_OF_MEMORY]);
}

#[test]
fn a_launch_may_fail() {
    walk("cuLaunchKernel", &[LAUNCH_FAILED, OUT_OF_MEMORY]);
}

/// Each is computed without a recording, and so no request fails.
#[test]
fn a_recording_may_fail() {
    for (function, code) in [
        ("cuStreamBeginCapture_v2", OUT_OF_MEMORY),
        ("cuStreamEndCapture", CAPTURE_INVALIDATED),
        ("cuGraphInstantiateWithFlags", OUT_OF_MEMORY),
        ("cuGraphLaunch", OUT_OF_MEMORY),
    ] {
        assert_eq!(walk_again(function, &[code], |_| false), 0, "{function}");
    }
}

/// The GPU's memory is just what the plan says: a model that is planned to fit runs, with all that the driver takes.
#[test]
fn a_model_takes_no_more_than_its_plan() {
    let _alone = ALONE.lock();
    let Some(_) = stand_in() else { return };
    let model = load().expect("a GPU");
    let plan = model.report().plan.clone().expect("a plan");
    let decoder = model.cuda().expect("a model on a GPU");
    let mut sessions: Vec<Session> = (0..7).map(|_| model.session()).collect();
    for count in 1..=sessions.len() {
        for id in 0..4 {
            let ids = [id];
            let mut steps: Vec<(&mut Session, &[u32])> =
                sessions[..count].iter_mut().map(|session| (session, &ids[..])).collect();
            Session::batch(&mut steps).expect("a batch");
        }
    }
    let (free, total) = decoder.memory().expect("an answer");
    let pages: u64 = sessions.iter().map(|session| session.cache_bytes() as u64).sum();
    let planned = plan.weights_resident + plan.activations + pages;
    assert!((total - free) as u64 <= planned, "{} bytes are taken, {planned} planned", total - free);
}
