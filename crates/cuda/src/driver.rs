//! A GPU by the driver API: memory, kernels and launches. Everything happens in the order of the calls.

use super::buffer::{Function, LaunchShape, PLAIN_SHARED};
use super::modules::Module;
use super::nvrtc::Nvrtc;
use crate::error::{CudaError, Result};
use bytemuck::NoUninit;
use cudarc::driver::{result, sys};
use model_factory_dtypes::LOWEST_CUDA;
use model_factory_engine::error::Error;
use model_factory_spec::plan::gpu_recording_bytes;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Held for writing while launches are recorded, and for reading by what may wait for the whole context meanwhile. All
/// GPUs of a process use it: the driver allows no waiting for a stream that is being recorded.
static RECORDING: RwLock<()> = RwLock::new(());

/// Bytes that are read from the GPU at a time: about the logits of a token, and a few bytes that come with them.
const STAGED: usize = (1 << 20) + 4096;

/// A GPU with its primary context and a stream of its own.
#[derive(Debug)]
pub(super) struct Gpu {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// The compute capability that kernels are compiled for: the GPU's, or less where a test asks for that.
    pub(super) capability: (u32, u32),
    compiled_for: (u32, u32),
    pub(super) processors: usize,
    compiler: Arc<Nvrtc>,
    /// [`STAGED`] bytes of main memory that the GPU writes to without the driver's help.
    staging: Mutex<*mut u8>,
    modules: Mutex<HashMap<Module, usize>>,
    #[cfg(test)]
    pub(super) watch: super::tests::Watch,
}

// SAFETY: contexts, streams and modules of the driver may be used by any thread, and by several at once; every call
// here makes the context the thread's own first.
unsafe impl Send for Gpu {}
// SAFETY: the reason above holds here too.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// The GPU with this UUID (`GPU-...`), or, if there is no UUID, the GPU of this index in the driver's order.
    pub(super) fn open(uuid: Option<&str>, index: usize) -> Result<Gpu> {
        // SAFETY: it looks for the library and does nothing with it.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        step("starting the driver", result::init())?;
        let version = version()?;
        // The report says so before, where NVML is there to ask.
        if version < (LOWEST_CUDA.0 as i32, LOWEST_CUDA.1 as i32) {
            return Err(CudaError::DriverTooOld { found: version });
        }
        let device = find(uuid, index)?;
        let attribute = |attribute| {
            // SAFETY: the driver has returned the device.
            step("asking for an attribute", unsafe { result::device::get_attribute(device, attribute) })
        };
        use sys::CUdevice_attribute_enum as Attribute;
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let compiler = Nvrtc::load(Some(version))?;
        // SAFETY: as above; it is released when the GPU is dropped.
        let context = step("taking the GPU's context", unsafe { result::primary_ctx::retain(device) })?;
        let capability = (major.unsigned_abs(), minor.unsigned_abs());
        let mut gpu = Gpu {
            device,
            context,
            stream: std::ptr::null_mut(),
            capability,
            compiled_for: capability,
            processors: processors.unsigned_abs() as usize,
            compiler,
            staging: Mutex::new(std::ptr::null_mut()),
            modules: Mutex::default(),
            #[cfg(test)]
            watch: Default::default(),
        };
        gpu.bind()?;
        // If a step fails, this lock is released before the GPU is dropped, which takes it too.
        let _apart = apart();
        // SAFETY: the context is current; the memory is freed when the GPU is dropped.
        let staging = step("allocating pinned memory", unsafe { result::malloc_host(STAGED, 0) })?;
        // SAFETY: as many bytes were allocated.
        unsafe { staging.cast::<u8>().write_bytes(0, STAGED) };
        gpu.staging = Mutex::new(staging.cast());
        gpu.stream = step("creating a stream", result::stream::create(result::stream::StreamKind::NonBlocking))?;
        Ok(gpu)
    }

    fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained until the GPU is dropped.
        step("entering the GPU's context", unsafe { result::ctx::set_current(self.context) })
    }

    /// The GPU, with kernels chosen as for one of `capability` where that is less than its own.
    #[cfg(test)]
    pub(super) fn acting_as(mut self, capability: (u32, u32)) -> Gpu {
        self.capability = capability.min(self.compiled_for);
        self
    }

    /// The GPU, with tiles chosen as for so many multiprocessors.
    #[cfg(test)]
    pub(super) fn with_processors(mut self, processors: usize) -> Gpu {
        self.processors = processors;
        self
    }

    fn wait(&self) -> Result<()> {
        // SAFETY: the stream is the GPU's own.
        step("waiting for the GPU", unsafe { result::stream::synchronize(self.stream) })
    }

    fn module(&self, module: Module) -> Result<sys::CUmodule> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = modules.get(&module) {
            return Ok(*loaded as sys::CUmodule);
        }
        // Compiling takes seconds and does not use the driver: it delays no recording.
        let image = self.compiler.compile(module, self.compiled_for)?;
        let _apart = apart();
        // SAFETY: the image is machine code that knows its length, or text that ends with a zero; the driver copies it.
        let loaded = step("loading kernels", unsafe { result::module::load_data(image.0.as_ptr().cast()) })?;
        modules.insert(module, loaded as usize);
        Ok(loaded)
    }

    /// The address of `bytes` bytes, aligned to 256.
    pub(super) fn allocate(&self, what: &'static str, bytes: usize) -> Result<u64> {
        self.bind()?;
        let allocated = {
            let _apart = apart();
            // SAFETY: the context is current.
            unsafe { result::malloc_sync(bytes) }
        };
        match allocated {
            Err(error) if error.0 == sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = self.memory().map_or(0, |(free, _)| free);
                Err(CudaError::Memory { what, bytes, free })
            }
            other => step("allocating memory", other),
        }
    }

    /// Frees memory.
    ///
    /// # Safety
    /// `address` comes from `allocate`, and nothing uses it from now on.
    pub(super) unsafe fn free(&self, address: u64) {
        let _ = self.bind(); // tried at any rate: most often it is current
        let _apart = apart();
        // SAFETY: the caller guarantees it. Freeing waits for what runs; an error then is one of a kernel before, which the next
        // call that can fail returns.
        let _ = unsafe { result::free_sync(address) };
    }

    /// Copies to the GPU. `from` may be changed when this returns.
    ///
    /// # Safety
    /// `from.len()` bytes at `to` are allocated.
    pub(super) unsafe fn upload(&self, from: &[u8], to: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller guarantees the GPU's side; `from` is not freed before the stream has been waited for.
        let copied = unsafe { result::memcpy_htod_async(to, from, self.stream) };
        // Where GPUs read pageable memory themselves, the copy may still be under way.
        self.wait()?;
        step("copying to the GPU", copied)
    }

    /// Copies from the GPU, after all earlier work: to each slice the bytes at its address. Up to a mebibyte
    /// together is waited for once.
    ///
    /// # Safety
    /// Each address has as many bytes allocated as its slice.
    pub(super) unsafe fn download(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.bind()?;
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = pieces.iter_mut().flat_map(|(from, to)| {
            let starts = (*from..).step_by(STAGED);
            starts.zip(to.chunks_mut(STAGED))
        });
        let mut chunks = chunks.peekable();
        while chunks.peek().is_some() {
            let (mut room, mut copied, mut staged) = (STAGED, Ok(()), Vec::new());
            while let Some((from, to)) = chunks.next_if(|(_, to)| to.len() <= room) {
                // SAFETY: `STAGED` bytes were allocated, of which `room` are left; the lock leaves them to this call.
                let part = unsafe { std::slice::from_raw_parts_mut(staging.add(STAGED - room), to.len()) };
                room -= to.len();
                if copied.is_ok() {
                    // SAFETY: the caller guarantees it; staged bytes are not read before the stream has been waited for.
                    copied = unsafe { result::memcpy_dtoh_async(part, from, self.stream) };
                }
                staged.push((part, to));
            }
            self.wait()?;
            step("copying from the GPU", copied)?;
            staged.into_iter().for_each(|(part, to)| to.copy_from_slice(part));
        }
        Ok(())
    }

    /// A kernel by its name; compiles and loads its module first if it is not loaded.
    pub(super) fn function(&self, module: Module, name: &str) -> Result<Function> {
        self.bind()?;
        let loaded = self.module(module)?;
        let name = CString::new(name).unwrap_or_default();
        let _apart = apart();
        // SAFETY: modules stay loaded as long as the GPU.
        let function = step("looking up a kernel", unsafe { result::module::get_function(loaded, name) })?;
        Ok(Function(function as usize))
    }

    /// Free bytes and all bytes.
    pub(super) fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        step("asking for the free memory", result::mem_get_info())
    }

    /// Records the launches that `launch` makes instead of starting them. It does nothing else with the GPU.
    pub(super) fn record(self: &Arc<Self>, launch: &mut dyn FnMut() -> Result<(), Error>) -> Result<Recording, Error> {
        #[cfg(test)]
        self.watch.refuse(super::tests::RECORD)?;
        self.bind()?;
        let _alone = RECORDING.write().unwrap_or_else(PoisonError::into_inner);
        // Other threads may copy meanwhile, on streams of their own.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is the GPU's own, and the caller starts nothing else on it: the decoder's lock.
        step("beginning a graph", unsafe { result::stream::begin_capture(self.stream, mode) })?;
        #[cfg(test)]
        self.watch.set_recording(true);
        let launched = launch();
        #[cfg(test)]
        self.watch.set_recording(false);
        // SAFETY: it was begun above.
        let ended = step("ending a graph", unsafe { result::stream::end_capture(self.stream) });
        // The error of a launch says more than the error of ending the recording that it broke.
        let made = launched.and_then(|()| {
            let (graph, mut nodes) = (ended.clone()?, 0);
            // SAFETY: the graph was ended above; without an array only the number is written.
            let counted = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes) }.result();
            // SAFETY: the reason above holds here too.
            let made =
                counted.and_then(|()| unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) });
            Ok((step("making a graph ready", made)? as usize, nodes))
        });
        if let Some(graph) = ended.ok().filter(|graph| !graph.is_null()) {
            // SAFETY: this is the last use of it: what was made of it does not need it. An error cannot be returned.
            let _ = unsafe { result::graph::destroy(graph) };
        }
        let (graph, launches) = made?;
        #[cfg(test)]
        self.watch.recorded(launches);
        Ok(Recording { gpu: Arc::clone(self), graph, launches })
    }

    /// Starts a kernel, unless there are no blocks. `given`, its only parameter, is laid out as the structure of the same name in
    /// the kernels' source.
    pub(super) fn start(&self, function: Function, shape: LaunchShape, given: &impl NoUninit) -> Result<()> {
        if shape.grid.contains(&0) {
            return Ok(());
        }
        #[cfg(test)]
        self.watch.launch(function)?;
        self.bind()?;
        let function = function.0 as sys::CUfunction;
        if shape.shared > PLAIN_SHARED {
            let allowed = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is one of a loaded module.
            let set = unsafe { result::function::set_function_attribute(function, allowed, shape.shared as i32) };
            step("asking for shared memory", set)?;
        }
        let [x, y, z] = shape.grid;
        let mut parameters = [std::ptr::from_ref(given).cast_mut().cast()];
        let (grid, block, shared) = ((x, y, z), (shape.threads, 1, 1), shape.shared);
        // SAFETY: callers fill in addresses of buffers as long as the arguments say, for the rows and widths of a pass
        // as long as `GpuBuffers` makes them; and a type of `arguments`, without padding. The driver copies the parameter
        // before it returns.
        let launched = unsafe { result::launch_kernel(function, grid, block, shared, self.stream, &mut parameters) };
        step("starting a kernel", launched)
    }
}

/// Launches that are started together: the driver hands them to the GPU at once.
#[derive(Debug)]
pub(super) struct Recording {
    gpu: Arc<Gpu>,
    graph: usize,
    launches: usize,
}

impl Recording {
    /// The most bytes that the driver keeps for it.
    pub(super) fn bytes(&self) -> u64 {
        gpu_recording_bytes(self.launches)
    }

    /// Starts the launches in their order.
    ///
    /// # Safety
    /// All buffers that the launches were given are still allocated.
    pub(super) unsafe fn replay(&self) -> Result<()> {
        #[cfg(test)]
        self.gpu.watch.refuse(super::tests::REPLAY)?;
        self.gpu.bind()?;
        // SAFETY: the caller guarantees it for the launches; the graph is this recording's.
        step("starting a graph", unsafe { result::graph::launch(self.graph as sys::CUgraphExec, self.gpu.stream) })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        #[cfg(test)]
        self.gpu.watch.forgotten();
        let _ = self.gpu.bind(); // as above
        // SAFETY: the graph is this recording's, and this is the last use of it. An error cannot be returned.
        let _ = unsafe { result::graph::exec_destroy(self.graph as sys::CUgraphExec) };
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let _ = self.bind(); // tried at any rate: most often it is current
        let _apart = apart();
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        for module in modules.values() {
            // SAFETY: nothing that could use its kernels outlives the GPU. An error cannot be returned.
            let _ = unsafe { result::module::unload(*module as sys::CUmodule) };
        }
        let staging = *self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !staging.is_null() {
            // SAFETY: `open` allocated it, and nothing copies any more.
            let _ = unsafe { result::free_host(staging.cast()) };
        }
        if !self.stream.is_null() {
            // SAFETY: the stream is the GPU's own, and this the last use of it.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
        // SAFETY: the context was retained once, by `open`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Waits until nothing is recorded, and delays recordings until it is dropped.
fn apart() -> RwLockReadGuard<'static, ()> {
    RECORDING.read().unwrap_or_else(PoisonError::into_inner)
}

fn version() -> Result<(i32, i32)> {
    let mut version = 0;
    // SAFETY: it is valid for writing.
    step("asking for the driver's version", unsafe { sys::cuDriverGetVersion(&mut version) }.result())?;
    Ok((version / 1000, version % 1000 / 10))
}

fn find(uuid: Option<&str>, index: usize) -> Result<sys::CUdevice> {
    let count = step("counting GPUs", result::device::get_count())?;
    let mut by_index = None;
    for ordinal in 0..count {
        let device = step("asking for a GPU", result::device::get(ordinal))?;
        if ordinal.unsigned_abs() as usize == index {
            by_index = Some(device);
        }
        if let Some(uuid) = uuid {
            let own = step("asking for a GPU's UUID", result::device::get_uuid(device))?;
            if spelled(own.bytes.map(|byte| byte as u8)) == uuid {
                return Ok(device);
            }
        }
    }
    let asked = uuid.map_or_else(|| format!("number {index}"), str::to_owned);
    match by_index {
        // The slices of a divided GPU have names of their own, which the driver does not return.
        Some(device) if uuid.is_none_or(|uuid| uuid.starts_with("MIG-")) => Ok(device),
        _ => Err(CudaError::NoGpu { asked, count: count.unsigned_abs() as usize }),
    }
}

/// A UUID in NVML's format.
fn spelled(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn step<T>(step: &'static str, result: Result<T, result::DriverError>) -> Result<T> {
    result.map_err(|error| {
        let text =
            error.error_string().map_or_else(|_| "an unknown error".into(), |text| text.to_string_lossy().into());
        CudaError::Driver { step, code: error.0 as u32, text }
    })
}

#[cfg(test)]
mod tests {
    use super::spelled;

    #[test]
    fn spells_a_uuid_as_nvml_does() {
        let bytes = [0x12, 0xab, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff];
        assert_eq!(spelled(bytes), "GPU-12ab0001-0203-0405-0607-08090a0b0cff");
    }
}
