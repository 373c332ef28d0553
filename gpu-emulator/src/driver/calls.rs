//! The functions of `libcuda` by their names: each checks its arguments and changes the state.
#![allow(clippy::missing_safety_doc, non_snake_case)] // the driver API's documentation has each function
#![allow(clippy::too_many_arguments)] // the driver's own

use super::code::{Code, Result};
use super::driver;
use super::failure::Failures;
use super::settings::{GRAPH_NODE, Settings, UUID};
use super::state::{CURRENT, Context, Driver, Function, PLAIN_SHARED, find, remove};
use super::stream::{Capture, CaptureMode, KernelLaunch, Stream, Work};
use crate::ptx::{Kernel, Launch, Module};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

type Handle = *mut c_void;

/// Runs a call, unless it is to fail. A call that frees something does so even then: a driver answers such a call with an
/// earlier error, too.
fn call(name: &'static str, gives_back: bool, run: impl FnOnce(&mut Driver) -> Result) -> Code {
    let mut driver = driver();
    let failure = driver.failures.count(name);
    let done = if failure.is_none() || gives_back { run(&mut driver) } else { Ok(()) };
    let result = failure.map_or(done, Err);
    if let Err(code) = result {
        driver.keep(code);
    }
    result.err().unwrap_or(Code(0))
}

/// Writes an answer through a pointer.
///
/// # Safety
/// `to` is null or valid for writing.
pub(super) unsafe fn answer<T>(to: *mut T, value: T) -> Result {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller guarantees it.
    unsafe { to.write(value) };
    Ok(())
}

/// Frees something of the context, also where the context is broken.
fn give_back(driver: &mut Driver, give: impl FnOnce(&mut Context) -> Result) -> Result {
    let given = give(driver.context()?);
    driver.sound().and(given)
}

/// Like [`give_back`], after all work of the context is done; `what` names the call in an error.
fn finish_and_give_back(driver: &mut Driver, what: &str, give: impl FnOnce(&mut Context) -> Result) -> Result {
    give_back(driver, |context| {
        context.forbidden_while_capturing(what, true)?;
        let finished = context.finish_all();
        give(context).and(finished)
    })
}

/// Declares the functions, whose bodies run under the lock. The value after `->` is written to the first argument.
macro_rules! functions {
    ($(
        $name:ident($(-> $answer:ty;)? $($argument:ident: $kind:ty),*)
        $(gives $back:ident)? |$driver:ident| $body:block
    )*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the driver API.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($(to: *mut $answer,)? $($argument: $kind),*) -> Code {
            call(stringify!($name), functions!(@back $($back)?), |$driver| {
                let result: Result<_> = $body;
                $(
                    // SAFETY: the caller guarantees it.
                    let result = unsafe { answer::<$answer>(to, result?) };
                )?
                result
            })
        }
    )*};
    (@back back) => { true };
    (@back) => { false };
}

functions! {
    cuInit(flags: c_uint) |driver| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if driver.settings.is_none() {
            let read = Settings::of_environment().and_then(|settings| Ok((settings, Failures::of_environment()?)));
            let (settings, failures) = read.map_err(|why| Code::INVALID_VALUE.because(why))?;
            driver.settings = Some(settings);
            driver.failures = failures;
        }
        Ok(())
    }

    cuDriverGetVersion(-> c_int;) |driver| {
        let (major, minor) = driver.settings()?.cuda;
        Ok((1000 * major + 10 * minor) as c_int)
    }

    cuDeviceGetCount(-> c_int;) |driver| {
        driver.settings().map(|_| 1)
    }

    cuDeviceGet(-> c_int; ordinal: c_int) |driver| {
        driver.device(ordinal).map(|_| ordinal)
    }

    cuDeviceGetUuid(-> [u8; 16]; device: c_int) |driver| {
        driver.device(device).map(|_| UUID)
    }

    cuDeviceGetAttribute(-> c_int; attribute: c_uint, device: c_int) |driver| {
        let settings = driver.device(device)?;
        let found = match attribute {
            1 => 1024, // threads of a block
            8 => 48 << 10, // shared memory of a block that does not ask for more
            10 => 32, // lanes of a warp
            16 => settings.processors,
            75 => settings.capability.0,
            76 => settings.capability.1,
            97 => settings.most_shared(),
            other => return Err(Code::NOT_SUPPORTED.because(format_args!("attribute {other} is not emulated"))),
        };
        Ok(found as c_int)
    }

    cuDevicePrimaryCtxRetain(-> Handle; device: c_int) |driver| {
        driver.device(device)?;
        let handle = driver.handle();
        let made = || (Context { handle, ..Context::default() }, 0);
        let (context, retained) = driver.context.get_or_insert_with(made);
        *retained += 1;
        Ok(context.handle as Handle)
    }

    cuDevicePrimaryCtxRelease_v2(device: c_int) gives back |driver| {
        driver.device(device)?;
        let (context, retained) = driver.context.as_mut().ok_or(Code::INVALID_CONTEXT)?;
        *retained -= 1;
        // The last release ends the context, with all that is left in it, which is a leak.
        if *retained == 0 {
            let _ = context.finish_all();
            driver.leaks.extend(context.left());
            driver.context = None;
        }
        Ok(())
    }

    cuCtxSetCurrent(context: Handle) |driver| {
        driver.settings()?;
        let handle = context as usize; // null takes the thread's off
        if handle != 0 && driver.context.as_ref().is_none_or(|(context, _)| context.handle != handle) {
            return Err(Code::INVALID_CONTEXT.because("it was never made, or released before"));
        }
        CURRENT.set(handle);
        Ok(())
    }

    cuCtxSynchronize() |driver| {
        let context = driver.sound()?;
        context.forbidden_while_capturing("waiting for the context", true)?;
        context.finish_all()
    }

    cuMemGetInfo_v2(-> usize; total: *mut usize) |driver| {
        driver.sound()?;
        let (free, all) = driver.free_memory()?;
        // SAFETY: the caller guarantees it.
        unsafe { answer(total, all as usize) }?;
        Ok(free as usize)
    }

    cuMemAlloc_v2(-> u64; bytes: usize) |driver| {
        driver.sound()?.forbidden_while_capturing("allocating memory", false)?;
        let (free, _) = driver.free_memory()?;
        if bytes == 0 {
            return Err(Code::INVALID_VALUE.because("an allocation of no bytes"));
        }
        if bytes as u64 > free {
            return Err(Code::OUT_OF_MEMORY);
        }
        driver.sound()?.memory.allocate(bytes).ok_or(Code::OUT_OF_MEMORY)
    }

    cuMemFree_v2(address: u64) gives back |driver| {
        let what = "freeing memory, which waits for the context,";
        finish_and_give_back(driver, what, |context| context.memory.free(address))
    }

    cuMemHostAlloc(-> Handle; bytes: usize, flags: c_uint) |driver| {
        let context = driver.sound()?;
        context.forbidden_while_capturing("pinning memory", false)?;
        if flags != 0 || bytes == 0 {
            return Err(Code::INVALID_VALUE.because("no bytes, or flags, which are not emulated"));
        }
        context.pinned.pin(bytes).map(|host| host as Handle).ok_or(Code::OUT_OF_MEMORY)
    }

    cuMemFreeHost(host: Handle) gives back |driver| {
        let what = "freeing pinned memory, which waits for the context,";
        finish_and_give_back(driver, what, |context| context.pinned.free(host as u64))
    }

    cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: Handle) |driver| {
        let (stream, pinned) = driver.sound()?.copying(to, from as usize, bytes, stream as usize)?;
        stream.work.push_back(if pinned {
            Work::Copy { device: to, host: from as usize, bytes, upload: true }
        } else {
            // Pageable memory is read before the call returns.
            // SAFETY: the caller guarantees it.
            Work::Write { to, bytes: unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec() }
        });
        Ok(())
    }

    cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: Handle) |driver| {
        let context = driver.sound()?;
        let (on, pinned) = context.copying(from, to as usize, bytes, stream as usize)?;
        if pinned {
            on.work.push_back(Work::Copy { device: from, host: to as usize, bytes, upload: false });
            return Ok(());
        }
        // For pageable memory the call returns when all bytes are there.
        context.finish(stream as usize)?;
        let from = context.memory.host(from, bytes)?;
        // SAFETY: the caller guarantees it; as many bytes are allocated on the GPU.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
        Ok(())
    }

    cuStreamCreate(-> Handle; flags: c_uint) |driver| {
        if flags != 1 {
            return Err(Code::NOT_SUPPORTED.because("streams that wait for the default stream are not emulated"));
        }
        let (handle, context) = driver.making()?;
        context.streams.insert(handle, Stream::default());
        Ok(handle as Handle)
    }

    cuStreamDestroy_v2(stream: Handle) gives back |driver| {
        give_back(driver, |context| remove(&mut context.streams, stream as usize)?.finish(&context.memory))
    }

    cuStreamSynchronize(stream: Handle) |driver| {
        driver.sound()?.finish(stream as usize)
    }

    cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) |driver| {
        let mode = CaptureMode::new(mode).ok_or(Code::INVALID_VALUE)?;
        let stream = find(&mut driver.sound()?.streams, stream as usize)?;
        if stream.capture.is_some() {
            return Err(Code::INVALID_VALUE.because("the stream is captured already"));
        }
        let thread = std::thread::current().id();
        stream.capture = Some(Capture { mode, thread, launches: Vec::new(), invalid: false });
        Ok(())
    }

    cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) |driver| {
        if !nodes.is_null() {
            return Err(Code::NOT_SUPPORTED.because("nodes have no handles"));
        }
        let found = find(&mut driver.sound()?.graphs, graph as usize)?.len();
        // SAFETY: the caller guarantees it.
        unsafe { answer(count, found) }
    }

    cuGraphInstantiateWithFlags(-> Handle; graph: Handle, flags: u64) |driver| {
        if flags != 0 {
            return Err(Code::NOT_SUPPORTED.because("flags of graphs are not emulated"));
        }
        let (free, _) = driver.free_memory()?;
        let (handle, context) = driver.making()?;
        let launches = find(&mut context.graphs, graph as usize)?.clone();
        if launches.len() as u64 * GRAPH_NODE > free {
            return Err(Code::OUT_OF_MEMORY);
        }
        context.executables.insert(handle, launches);
        Ok(handle as Handle)
    }

    cuGraphDestroy(graph: Handle) gives back |driver| {
        give_back(driver, |context| remove(&mut context.graphs, graph as usize).map(drop))
    }

    cuGraphExecDestroy(executable: Handle) gives back |driver| {
        give_back(driver, |context| remove(&mut context.executables, executable as usize).map(drop))
    }

    cuGraphLaunch(executable: Handle, stream: Handle) |driver| {
        let context = driver.sound()?;
        let launches = find(&mut context.executables, executable as usize)?;
        let stream = find(&mut context.streams, stream as usize)?;
        if stream.capture.is_some() {
            return Err(Code::NOT_SUPPORTED.because("a graph in a graph is not emulated"));
        }
        stream.work.extend(launches.iter().cloned().map(Work::Launch));
        Ok(())
    }

    cuModuleUnload(module: Handle) gives back |driver| {
        let what = "unloading a module, which waits for the context,";
        finish_and_give_back(driver, what, |context| {
            remove(&mut context.modules, module as usize)?;
            context.functions.retain(|_, function| function.module != module as usize);
            Ok(())
        })
    }

    cuModuleGetFunction(-> Handle; module: Handle, name: *const c_char) |driver| {
        let (handle, context) = driver.making()?;
        // SAFETY: the caller guarantees it.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let module = module as usize;
        let same = |function: &Function| function.module == module && function.kernel.name() == name;
        let known = context.functions.iter().find(|(_, function)| same(function)).map(|(known, _)| *known);
        if known.is_none() {
            let kernel = find(&mut context.modules, module)?.kernel(&name);
            let kernel = kernel.ok_or_else(|| Code::NOT_FOUND.because(&name))?;
            let most_shared = PLAIN_SHARED.saturating_sub(kernel.static_shared());
            context.functions.insert(handle, Function { module, kernel, most_shared, started: false });
        }
        Ok(known.unwrap_or(handle) as Handle)
    }

    cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int) |driver| {
        let most = driver.settings()?.most_shared();
        let bytes = u32::try_from(value).map_err(|_| Code::INVALID_VALUE)?;
        match attribute {
            8 => {
                let function = find(&mut driver.sound()?.functions, function as usize)?;
                if u64::from(bytes) + u64::from(function.kernel.static_shared()) > u64::from(most) {
                    let why = format_args!("{bytes} bytes of shared memory, {most} at most");
                    return Err(Code::INVALID_VALUE.because(why));
                }
                function.most_shared = bytes;
                Ok(())
            }
            other => Err(Code::NOT_SUPPORTED.because(format_args!("attribute {other} is not emulated"))),
        }
    }

    cuLaunchKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, dynamic_shared: c_uint, stream: Handle, parameters: *const *const u8, extra: *mut Handle
    ) |driver| {
        if !extra.is_null() {
            return Err(Code::NOT_SUPPORTED.because("parameters in one piece are not emulated"));
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let launch = Launch { grid, block, dynamic_shared, schedule: driver.settings()?.schedule };
        let most_shared = driver.settings()?.most_shared();
        let context = driver.sound()?;
        let function = find(&mut context.functions, function as usize)?;
        function.check(&launch, most_shared)?;
        let kernel = function.kernel.clone();
        // SAFETY: the caller guarantees it: a pointer for each parameter that the kernel declares, to as many bytes.
        let parameters = unsafe { copied(&kernel, parameters) }?;
        let stream = find(&mut context.streams, stream as usize)?;
        match &mut stream.capture {
            Some(capture) if capture.invalid => return Err(Code::CAPTURE_INVALIDATED),
            // The first launch of a kernel may load it, which waits for the context.
            Some(capture) if !function.started => {
                capture.invalid = true;
                let why = format_args!("{} was never started", kernel.name());
                return Err(Code::CAPTURE_UNSUPPORTED.because(why));
            }
            Some(capture) => capture.launches.push(KernelLaunch { kernel, launch, parameters }),
            None => stream.work.push_back(Work::Launch(KernelLaunch { kernel, launch, parameters })),
        }
        function.started = true;
        Ok(())
    }
}

/// `cuStreamEndCapture` of the driver API. The capture ends even if the call fails, and then leaves no graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> Code {
    let mut made = 0;
    let code = call("cuStreamEndCapture", true, |driver| {
        let handle = driver.handle();
        give_back(driver, |context| {
            let stream = find(&mut context.streams, stream as usize)?;
            let capture = stream.capture.take().ok_or(Code::CAPTURE_UNMATCHED)?;
            if capture.mode != CaptureMode::Relaxed && capture.thread != std::thread::current().id() {
                stream.capture = Some(capture);
                return Err(Code::CAPTURE_WRONG_THREAD);
            }
            if capture.invalid {
                return Err(Code::CAPTURE_INVALIDATED);
            }
            context.graphs.insert(handle, capture.launches);
            made = handle;
            Ok(())
        })
    });
    if code != Code(0) && made != 0 {
        let _ = driver().context().and_then(|context| remove(&mut context.graphs, made));
        made = 0;
    }
    // SAFETY: the caller guarantees it.
    unsafe { answer(graph, made as Handle) }.err().unwrap_or(code)
}

/// `cuModuleLoadData` of the driver API, for PTX only. It is translated and compiled without the lock, as that takes seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_char) -> Code {
    // SAFETY: the caller guarantees it: text that ends with a zero, or a header that is longer than this.
    let is_text = !image.is_null() && unsafe { image.cast::<u8>().read() } != 0x7f;
    // SAFETY: the reason above holds here too.
    let compiled = is_text.then(|| Module::compile(&unsafe { CStr::from_ptr(image) }.to_string_lossy()));
    call("cuModuleLoadData", false, |driver| {
        let capability = driver.settings()?.target();
        driver.sound()?.forbidden_while_capturing("loading a module, which may wait for the context,", true)?;
        let compiled = compiled.ok_or_else(|| Code::INVALID_IMAGE.because("machine code is not emulated"))?;
        let compiled = compiled.map_err(|error| Code::INVALID_PTX.because(error))?;
        if compiled.target() > capability {
            let why = format_args!("PTX for {} on a GPU of {capability}", compiled.target());
            return Err(Code::NO_BINARY_FOR_GPU.because(why));
        }
        let (handle, context) = driver.making()?;
        context.modules.insert(handle, compiled);
        // SAFETY: the caller guarantees it.
        unsafe { answer(module, handle as Handle) }
    })
}

/// `cuGetErrorString` of the driver API. It never fails on demand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: Code, text: *mut *const c_char) -> Code {
    let Some(found) = code.text() else { return Code::INVALID_VALUE };
    // SAFETY: the caller guarantees it.
    unsafe { answer(text, found.as_ptr()) }.err().unwrap_or(Code(0))
}

/// The bytes of a launch's parameters in the layout of the kernel.
///
/// # Safety
/// `parameters` has a pointer for each parameter, to as many bytes.
unsafe fn copied(kernel: &Kernel, parameters: *const *const u8) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if parameters.is_null() && !kernel.parameters().is_empty() {
        return Err(Code::INVALID_VALUE.because("parameters are missing"));
    }
    for (index, parameter) in kernel.parameters().iter().enumerate() {
        bytes.resize(parameter.offset, 0);
        // SAFETY: the caller guarantees it.
        let given = unsafe { std::slice::from_raw_parts(*parameters.add(index), parameter.bytes) };
        bytes.extend_from_slice(given);
    }
    Ok(bytes)
}

/// Writes a text and its zero into `bytes` bytes, as much as fits.
///
/// # Safety
/// `bytes` bytes can be written at `to`.
pub(super) unsafe fn spell(text: &str, to: *mut c_char, bytes: usize) -> Result {
    let Some(room) = bytes.checked_sub(1).filter(|_| !to.is_null()) else { return Err(Code::INVALID_VALUE) };
    let len = text.len().min(room);
    // SAFETY: the caller guarantees it.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len) };
    // SAFETY: the reason above holds here too.
    unsafe { to.add(len).write(0) };
    Ok(())
}
