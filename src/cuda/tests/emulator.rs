//! Runs kernels on the processor: the GPU's sources compiled as C++, with `emulator.h` for what a GPU is.

use super::super::gpu::{Function, LaunchShape, Launcher, PLAIN_SHARED};
use super::super::modules::Module;
use crate::error::{CudaError, Error};
use libloading::Library;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

const HEADER: &str = include_str!("emulator.h");

/// Bytes behind every allocation that must not change.
const GUARD: usize = 512;

type Kernel = unsafe extern "C" fn(*const LaunchShape, *const c_void, c_int) -> c_int;

/// Compiled modules of this process; the lock is also that of running them, for they have one state each.
static MODULES: LazyLock<Mutex<HashMap<Module, Library>>> = LazyLock::new(Mutex::default);

/// The emulated GPU.
#[derive(Debug)]
struct Emulator {
    capability: (u32, u32),
    /// The recording that is being made.
    open: Mutex<Option<Vec<Launch>>>,
    /// Recordings by number; those forgotten are gone.
    kept: Mutex<Vec<Option<Vec<Launch>>>>,
}

/// A launch with a copy of its arguments.
#[derive(Clone, Debug)]
struct Launch {
    function: Function,
    shape: LaunchShape,
    arguments: Vec<u64>,
    size: usize,
}

/// A GPU of this capability; prints why and returns `None` where nothing can be emulated.
pub(super) fn gpu(capability: (u32, u32)) -> Option<Arc<dyn Launcher>> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        println!("skipped: the emulator of kernels is written for x86-64 Linux");
        return None;
    }
    if Command::new("c++").arg("--version").output().is_err() {
        println!("skipped: the emulator of kernels needs a C++ compiler");
        return None;
    }
    Some(Arc::new(Emulator { capability, open: Mutex::default(), kept: Mutex::default() }))
}

fn compile(module: Module) -> Library {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
    std::fs::write(&source, module.source(HEADER)).unwrap();
    // No multiplication is fused with an addition but where a kernel says so: as on the GPU.
    let options = [
        "-O1",
        "-std=c++17",
        "-march=native",
        "-ffp-contract=off",
        "-fvisibility=hidden",
        "-fPIC",
        "-shared",
        "-w",
        "-o",
    ];
    let output = Command::new("c++").args(options).arg(&library).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}:\n{}", module.name(), String::from_utf8_lossy(&output.stderr));
    // SAFETY: the library was compiled from our own sources and has nothing that runs on loading.
    unsafe { Library::new(library) }.unwrap()
}

fn padded(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes + GUARD, 256).unwrap()
}

impl Launcher for Emulator {
    fn capability(&self) -> (u32, u32) {
        self.capability
    }

    fn processors(&self) -> usize {
        4
    }

    fn allocate(&self, _: &'static str, bytes: usize) -> Result<u64, CudaError> {
        // SAFETY: the size is not zero.
        let start = unsafe { std::alloc::alloc(padded(bytes)) };
        // All bits set is no number in any float dtype: what was never written shows.
        // SAFETY: as many bytes were allocated.
        unsafe { start.write_bytes(0xff, bytes + GUARD) };
        Ok(start as u64)
    }

    unsafe fn free(&self, address: u64, bytes: usize) {
        let start = address as *mut u8;
        // SAFETY: the guard is part of the allocation.
        let guard = unsafe { std::slice::from_raw_parts(start.add(bytes), GUARD) };
        let whole = guard.iter().all(|byte| *byte == 0xff);
        // SAFETY: the caller's.
        unsafe { std::alloc::dealloc(start, padded(bytes)) };
        assert!(whole || std::thread::panicking(), "a kernel wrote behind an allocation of {bytes} bytes");
    }

    unsafe fn upload(&self, from: &[u8], to: u64) -> Result<(), CudaError> {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    unsafe fn download(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<(), CudaError> {
        for (from, to) in pieces {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(*from as *const u8, to.as_mut_ptr(), to.len()) };
        }
        Ok(())
    }

    fn function(&self, module: Module, name: &str) -> Result<Function, CudaError> {
        let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        let library = modules.entry(module).or_insert_with(|| compile(module));
        // SAFETY: `emulator.h` makes every kernel a function of this type.
        let kernel = unsafe { library.get::<Kernel>(format!("emulate_{name}").as_bytes()) };
        let kernel = *kernel.unwrap_or_else(|error| panic!("{}: {name}: {error}", module.name()));
        Ok(Function(kernel as usize))
    }

    fn memory(&self) -> Result<(usize, usize), CudaError> {
        Ok((1 << 30, 1 << 30))
    }

    fn record(&self, launches: &mut dyn FnMut() -> Result<(), Error>) -> Result<(usize, usize), Error> {
        *self.open.lock().unwrap() = Some(Vec::new());
        let launched = launches();
        let recorded = self.open.lock().unwrap().take();
        launched?;
        let mut kept = self.kept.lock().unwrap();
        let count = recorded.as_ref().map_or(0, Vec::len);
        kept.push(recorded);
        Ok((kept.len() - 1, count))
    }

    unsafe fn replay(&self, recording: usize) -> Result<(), CudaError> {
        let launches = self.kept.lock().unwrap()[recording].clone().expect("a recording that was not forgotten");
        for Launch { function, shape, arguments, size } in launches {
            // SAFETY: the caller's; the arguments are a copy of those that were recorded.
            unsafe { self.launch(function, shape, arguments.as_ptr().cast(), size)? };
        }
        Ok(())
    }

    unsafe fn forget(&self, recording: usize) {
        self.kept.lock().unwrap()[recording] = None;
    }

    unsafe fn launch(
        &self,
        function: Function,
        shape: LaunchShape,
        arguments: *const c_void,
        size: usize,
    ) -> Result<(), CudaError> {
        let limit = if self.capability < (7, 0) { PLAIN_SHARED } else { 64 << 10 };
        assert!(shape.shared <= limit, "a block of this GPU has no {} bytes of shared memory", shape.shared);
        if let Some(open) = self.open.lock().unwrap().as_mut() {
            let mut copy = vec![0u64; size.div_ceil(8)];
            // SAFETY: the caller's; the copy is at least as long.
            unsafe { std::ptr::copy_nonoverlapping(arguments.cast::<u8>(), copy.as_mut_ptr().cast(), size) };
            open.push(Launch { function, shape, arguments: copy, size });
            return Ok(());
        }
        let _alone = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: functions are made by `function` alone, and libraries stay loaded.
        let kernel = unsafe { std::mem::transmute::<usize, Kernel>(function.0) };
        // SAFETY: the caller's.
        match unsafe { kernel(&shape, arguments, size as c_int) } {
            0 => Ok(()),
            -1 => panic!("no GPU runs {shape:?}"),
            -2 => panic!("shared memory was written beyond {} bytes", shape.shared),
            other => panic!("the kernel's arguments have {other} bytes, ours {size}"),
        }
    }
}
