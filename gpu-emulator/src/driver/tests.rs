//! Tests of what the driver forbids, and of when the work of a program is done.
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)] // all pointers are to variables and texts of this file

use super::settings::Settings;
use super::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

type Handle = *mut c_void;

const DONE: Code = Code(0);

/// Writes its second parameter to the address that is its first, by one thread.
const STORE: &CStr = c".version 8.0
.target sm_90
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 value)
.maxntid 64, 1, 1
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

/// A context with a stream, for one test at a time: the process has one GPU.
struct Gpu {
    context: Handle,
    stream: Handle,
    ended: bool,
    _alone: MutexGuard<'static, ()>,
}

fn gpu() -> Gpu {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut context, mut stream) = (null_mut(), null_mut());
    unsafe {
        assert_eq!(cuInit(0), DONE);
        super::driver().leaks.clear();
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), DONE);
        assert_eq!(cuCtxSetCurrent(context), DONE);
        assert_eq!(cuStreamCreate(&mut stream, 1), DONE);
    }
    Gpu { context, stream, ended: false, _alone: alone }
}

impl Gpu {
    fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0;
        assert_eq!(unsafe { cuMemAlloc_v2(&mut address, bytes) }, DONE);
        address
    }

    fn store(&self) -> (Handle, Handle) {
        let (mut module, mut function) = (null_mut(), null_mut());
        let loaded = unsafe { cuModuleLoadData(&mut module, STORE.as_ptr()) };
        assert_eq!(loaded, DONE, "{}", said(loaded));
        assert_eq!(unsafe { cuModuleGetFunction(&mut function, module, c"store".as_ptr()) }, DONE);
        (module, function)
    }

    fn launch(&self, function: Handle, grid: u32, threads: u32, shared: u32, to: u64, value: u32) -> Code {
        let parameters: [*const u8; 2] = [(&raw const to).cast(), (&raw const value).cast()];
        let parameters = parameters.as_ptr();
        unsafe { cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared, self.stream, parameters, null_mut()) }
    }

    fn wait(&self) -> Code {
        unsafe { cuStreamSynchronize(self.stream) }
    }

    /// The word at an address.
    fn read(&self, from: u64) -> u32 {
        let mut word = 0u32;
        let copied = unsafe { cuMemcpyDtoHAsync_v2((&raw mut word).cast(), from, 4, self.stream) };
        assert_eq!(copied, DONE, "{}", said(copied));
        word
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            unsafe {
                cuStreamDestroy_v2(self.stream);
                cuDevicePrimaryCtxRelease_v2(0);
            }
        }
    }
}

/// Ends the context, and returns what is left.
fn end(gpu: &mut Gpu) -> Vec<String> {
    gpu.ended = true;
    unsafe {
        cuStreamDestroy_v2(gpu.stream);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), DONE);
    }
    std::mem::take(&mut super::driver().leaks)
}

fn said(code: Code) -> String {
    let mut text: *const c_char = null();
    assert_eq!(unsafe { cuGetErrorString(code, &mut text) }, DONE);
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[test]
fn copies_wait_for_their_turn_and_stay_within_allocations() {
    let mut gpu = gpu();
    let (to, mut pinned) = (gpu.allocate(8), null_mut());
    unsafe {
        assert_eq!(cuMemHostAlloc(&mut pinned, 8, 0), DONE);
        let word: *mut u32 = pinned.cast();
        word.write(1);
        let pageable = 5u32;
        assert_eq!(cuMemcpyHtoDAsync_v2(to, (&raw const pageable).cast(), 4, gpu.stream), DONE);
        assert_eq!(cuMemcpyHtoDAsync_v2(to + 4, pinned.cast(), 4, gpu.stream), DONE);
        assert_eq!(cuMemcpyDtoHAsync_v2(pinned.cast(), to, 4, gpu.stream), DONE);
        // Pinned memory is read and written in the copy's turn.
        assert_eq!(word.read(), 1);
        word.write(2);
        assert_eq!(gpu.wait(), DONE);
        assert_eq!((word.read(), gpu.read(to + 4)), (5, 2));
        for (address, bytes) in [(to + 4, 8), (to + 8, 1), (to - 1, 1)] {
            assert_eq!(cuMemcpyHtoDAsync_v2(address, pinned.cast(), bytes, gpu.stream), Code::INVALID_VALUE);
        }
        assert_eq!(cuMemcpyDtoHAsync_v2(pinned.cast::<u8>().add(6), to, 4, gpu.stream), Code::INVALID_VALUE);
        assert_eq!(cuMemFree_v2(to + 4), Code::INVALID_VALUE);
        assert_eq!((cuMemFree_v2(to), cuMemFree_v2(to)), (DONE, Code::INVALID_VALUE));
        assert_eq!(cuMemFreeHost(pinned), DONE);
    }
    assert_eq!(end(&mut gpu), [""; 0]);
}

#[test]
fn memory_is_as_large_as_is_said_and_what_is_left_is_told() {
    let mut gpu = gpu();
    let (mut free, mut total, mut address) = (0, 0, 0);
    unsafe {
        assert_eq!(cuMemGetInfo_v2(&mut free, &mut total), DONE);
        assert_eq!(free, total);
        assert_eq!(cuMemAlloc_v2(&mut address, total + 1), Code::OUT_OF_MEMORY);
        assert_eq!(cuMemAlloc_v2(&mut address, 0), Code::INVALID_VALUE);
        assert_eq!(cuMemAlloc_v2(&mut address, 1000), DONE);
        assert_eq!(cuMemGetInfo_v2(&mut free, &mut total), DONE);
        assert_eq!(total - free, 1024);
    }
    let left = end(&mut gpu);
    assert!(left.len() == 1 && left[0].contains("1 allocations (1024 bytes)"), "{left:?}");
}

#[test]
fn a_context_is_alive_and_the_threads_own() {
    let mut gpu = gpu();
    let mut address = 0;
    let of_other = std::thread::spawn(|| {
        let mut address = 0;
        unsafe { cuMemAlloc_v2(&mut address, 8) }
    });
    assert_eq!(of_other.join().unwrap(), Code::INVALID_CONTEXT);
    end(&mut gpu);
    assert_eq!(unsafe { cuMemAlloc_v2(&mut address, 8) }, Code::CONTEXT_IS_DESTROYED);
    assert_eq!(unsafe { cuCtxSetCurrent(gpu.context) }, Code::INVALID_CONTEXT);
}

#[test]
fn a_planned_failure_comes_once_and_gives_back_all_the_same() {
    let mut gpu = gpu();
    let plan = |function: &CStr, calls, code| unsafe { gpu_emulator_fail(function.as_ptr(), calls, code) };
    plan(c"cuMemAlloc_v2", 1, Code::OUT_OF_MEMORY);
    let (first, mut address) = (gpu.allocate(8), 0);
    assert_eq!(unsafe { cuMemAlloc_v2(&mut address, 8) }, Code::OUT_OF_MEMORY);
    let second = gpu.allocate(8);
    plan(c"*", 0, Code::INVALID_VALUE);
    assert_eq!(unsafe { cuMemFree_v2(first) }, Code::INVALID_VALUE);
    // An error that stays is returned by every call, and still all is freed.
    plan(c"*", 0, Code::UNKNOWN);
    assert_eq!((gpu.wait(), gpu.wait()), (Code::UNKNOWN, Code::UNKNOWN));
    assert_eq!(unsafe { cuMemFree_v2(second) }, Code::UNKNOWN);
    assert!(!gpu_emulator_is_planned());
    assert_eq!(end(&mut gpu), [""; 0]);
}

/// A call during a capture by its name, its result, and the result of the capture's end.
type Case<'a> = (&'a str, &'a dyn Fn() -> Code, (Code, Code));

#[test]
fn a_relaxed_capture_is_ended_by_what_waits_for_the_context_and_no_other() {
    let mut gpu = gpu();
    let memory = gpu.allocate(8);
    let mut graph = null_mut();
    unsafe {
        let invalid = (Code::CAPTURE_UNSUPPORTED, Code::CAPTURE_INVALIDATED);
        let cases: [Case<'_>; 5] = [
            ("nothing", &|| DONE, (DONE, DONE)),
            ("an allocation", &|| if gpu.allocate(8) > 0 { DONE } else { Code::UNKNOWN }, (DONE, DONE)),
            ("a wait", &|| gpu.wait(), invalid),
            ("a wait for all", &|| cuCtxSynchronize(), invalid),
            ("freeing", &|| cuMemFree_v2(memory), invalid),
        ];
        for (name, what, (answer, at_end)) in cases {
            assert_eq!(cuStreamBeginCapture_v2(gpu.stream, 2), DONE, "{name}");
            assert_eq!(what(), answer, "{name}");
            assert_eq!(cuStreamEndCapture(gpu.stream, &mut graph), at_end, "{name}");
            assert_eq!(graph.is_null(), at_end != DONE, "{name}");
            if !graph.is_null() {
                assert_eq!(cuGraphDestroy(graph), DONE);
            }
        }
        assert_eq!(cuStreamBeginCapture_v2(gpu.stream, 0), DONE);
        let mut address = 0;
        assert_eq!(cuMemAlloc_v2(&mut address, 8), Code::CAPTURE_UNSUPPORTED, "in global mode");
        assert_eq!(cuStreamEndCapture(gpu.stream, &mut graph), Code::CAPTURE_INVALIDATED);
        assert_eq!(cuStreamEndCapture(gpu.stream, &mut graph), Code::CAPTURE_UNMATCHED);
        assert_eq!(cuMemFree_v2(memory), DONE);
    }
    let left = end(&mut gpu);
    assert!(left.len() == 1 && left[0].starts_with("1 allocations"), "that of the second case: {left:?}");
}

#[test]
fn a_launch_runs_when_it_is_waited_for_and_a_graph_each_time_it_is_started() {
    let mut gpu = gpu();
    let (module, function) = gpu.store();
    let (to, mut graph, mut executable, mut nodes) = (gpu.allocate(4), null_mut(), null_mut(), 0);
    unsafe {
        // The kernel is not loaded yet: the driver may have to wait for the context to do that.
        assert_eq!(cuStreamBeginCapture_v2(gpu.stream, 2), DONE);
        assert_eq!(gpu.launch(function, 1, 1, 0, to, 1), Code::CAPTURE_UNSUPPORTED);
        assert_eq!(cuStreamEndCapture(gpu.stream, &mut graph), Code::CAPTURE_INVALIDATED);
        assert_eq!(gpu.launch(function, 1, 1, 0, to, 2), DONE);
        assert_eq!(gpu.read(to), 2);
        assert_eq!(cuStreamBeginCapture_v2(gpu.stream, 2), DONE);
        assert_eq!(gpu.launch(function, 1, 1, 0, to, 3), DONE);
        assert_eq!(cuStreamEndCapture(gpu.stream, &mut graph), DONE);
        assert_eq!(cuGraphGetNodes(graph, null_mut(), &mut nodes), DONE);
        assert_eq!((nodes, gpu.read(to)), (1, 2));
        assert_eq!(cuGraphInstantiateWithFlags(&mut executable, graph, 0), DONE);
        assert_eq!(cuGraphDestroy(graph), DONE);
        for value in [4, 5] {
            assert_eq!(gpu.launch(function, 1, 1, 0, to, value), DONE);
            assert_eq!(cuGraphLaunch(executable, gpu.stream), DONE);
            assert_eq!(gpu.read(to), 3);
        }
        assert_eq!(cuGraphExecDestroy(executable), DONE);
        assert_eq!(cuGraphLaunch(executable, gpu.stream), Code::INVALID_HANDLE);
        assert_eq!((cuModuleUnload(module), cuMemFree_v2(to)), (DONE, DONE));
        assert_eq!(gpu.launch(function, 1, 1, 0, to, 1), Code::INVALID_HANDLE);
    }
    assert_eq!(end(&mut gpu), [""; 0]);
}

#[test]
fn launches_stay_within_what_a_gpu_runs() {
    let mut gpu = gpu();
    let (module, function) = gpu.store();
    let to = gpu.allocate(4);
    for (grid, threads, shared, code) in [
        (0, 1, 0, Code::INVALID_VALUE),
        (1, 0, 0, Code::INVALID_VALUE),
        (1, 1025, 0, Code::INVALID_VALUE),
        (1, 65, 0, Code::OUT_OF_RESOURCES),
        (1 << 31, 1, 0, Code::INVALID_VALUE),
        (1, 64, (48 << 10) + 1, Code::INVALID_VALUE),
        (1, 64, 48 << 10, DONE),
    ] {
        assert_eq!(gpu.launch(function, grid, threads, shared, to, 1), code, "{grid} of {threads}, {shared}");
    }
    let allow = |bytes| unsafe { cuFuncSetAttribute(function, 8, bytes) };
    let most = Settings::of_environment().unwrap().most_shared() as i32;
    assert_eq!((allow(most + 1), allow(most)), (Code::INVALID_VALUE, DONE));
    assert_eq!(gpu.launch(function, 1, 64, most as u32, to, 1), DONE);
    unsafe { assert_eq!((cuModuleUnload(module), cuMemFree_v2(to)), (DONE, DONE)) };
    assert_eq!(end(&mut gpu), [""; 0]);
}

#[test]
fn a_fault_is_that_of_the_wait_and_breaks_the_context() {
    let mut gpu = gpu();
    let (_, function) = gpu.store();
    let (to, mut address) = (gpu.allocate(4), 0);
    assert_eq!(gpu.launch(function, 1, 1, 0, to + 4, 1), DONE);
    assert_eq!(gpu.launch(function, 1, 1, 0, to, 1), DONE);
    assert_eq!(gpu.wait(), Code::ILLEGAL_ADDRESS);
    assert!(said(Code::ILLEGAL_ADDRESS).contains("kernel store"), "{}", said(Code::ILLEGAL_ADDRESS));
    assert_eq!(unsafe { cuMemAlloc_v2(&mut address, 8) }, Code::ILLEGAL_ADDRESS);
    end(&mut gpu);
    // The next context is whole.
    drop(gpu);
    let mut gpu = self::gpu();
    let (_, function) = gpu.store();
    let to = gpu.allocate(8);
    assert_eq!(gpu.launch(function, 1, 1, 0, to + 2, 1), DONE);
    assert_eq!(gpu.wait(), Code::MISALIGNED_ADDRESS);
    end(&mut gpu);
}

/// A program finds the same GPU by NVML as by the driver.
#[test]
fn nvml_tells_of_the_same_gpu() {
    let mut text = [0 as c_char; 96];
    let mut handle = null_mut();
    unsafe {
        assert_eq!((nvmlInit_v2(), nvmlDeviceGetHandleByIndex_v2(0, &mut handle)), (0, 0));
        assert_ne!(nvmlDeviceGetHandleByIndex_v2(1, &mut handle), 0);
        assert_eq!(nvmlDeviceGetUUID(handle, text.as_mut_ptr(), 96), 0);
        let spelled = CStr::from_ptr(text.as_ptr()).to_str().unwrap();
        assert_eq!(spelled, "GPU-67707520-656d-756c-6174-6f7200000001");
    }
}

/// A capture ends there too, so that memory can be freed.
#[test]
fn a_capture_ends_in_a_broken_context_too() {
    let mut gpu = gpu();
    let (memory, mut graph) = (gpu.allocate(8), null_mut());
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(gpu.stream, 2), DONE);
        gpu_emulator_fail(c"*".as_ptr(), 0, Code::UNKNOWN);
        assert_eq!(cuGraphDestroy(null_mut()), Code::UNKNOWN);
        assert_eq!(cuStreamEndCapture(gpu.stream, &mut graph), Code::UNKNOWN);
        assert!(graph.is_null());
        assert_eq!(cuMemFree_v2(memory), Code::UNKNOWN);
    }
    assert_eq!(end(&mut gpu), [""; 0]);
}
