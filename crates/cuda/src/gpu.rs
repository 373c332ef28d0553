//! The seam between the decoder and what runs its kernels.

use super::modules::Module;
use crate::error::CudaError;
use model_factory_engine::error::Error;
use model_factory_spec::plan::gpu_recording_bytes;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LaunchShape {
    /// Blocks.
    pub(super) grid: [u32; 3],
    /// Threads of a block.
    pub(super) threads: u32,
    /// Bytes of shared memory that the kernel does not declare itself.
    pub(super) shared: u32,
}

impl LaunchShape {
    /// Blocks of `threads` without more shared memory.
    pub(super) fn new(grid: [usize; 3], threads: usize) -> LaunchShape {
        LaunchShape { grid: grid.map(|blocks| blocks as u32), threads: threads as u32, shared: 0 }
    }
}

/// Shared memory of a block that every GPU has; from compute capability 7.0 on there is more for those who ask.
pub(super) const PLAIN_SHARED: u32 = 48 << 10;

/// A kernel of a loaded module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function(pub(super) usize);

/// The one parameter of a kernel.
///
/// # Safety
/// The type is `repr(C)`, without padding, and laid out as the structure of the same name in the kernels' source.
pub(super) unsafe trait Arguments: Copy {}

/// What runs kernels: a GPU, and in tests one that fails on demand. Everything happens in the order of the calls.
pub(super) trait Launcher: Send + Sync + fmt::Debug {
    /// Major and minor compute capability.
    fn capability(&self) -> (u32, u32);

    /// Multiprocessors.
    fn processors(&self) -> usize;

    /// The address of `bytes` bytes, aligned to 256.
    fn allocate(&self, what: &'static str, bytes: usize) -> Result<u64, CudaError>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `address` comes from `allocate` of the same `bytes`, and nothing uses it from now on.
    unsafe fn free(&self, address: u64, bytes: usize);

    /// Copies to the GPU. `from` may be changed when this returns.
    ///
    /// # Safety
    /// `from.len()` bytes at `to` are allocated.
    unsafe fn upload(&self, from: &[u8], to: u64) -> Result<(), CudaError>;

    /// Copies from the GPU, when all before is done: to each slice the bytes at its address. What is a mebibyte
    /// together is waited for once.
    ///
    /// # Safety
    /// Each address has as many bytes allocated as its slice.
    unsafe fn download(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<(), CudaError>;

    /// A kernel by its name; compiles and loads its module first where that was not done before.
    fn function(&self, module: Module, name: &str) -> Result<Function, CudaError>;

    /// Bytes free and in all.
    fn memory(&self) -> Result<(usize, usize), CudaError>;

    /// Keeps the launches that `launches` makes instead of starting them, and says how many. `launches` does nothing
    /// else with the GPU.
    fn record(&self, launches: &mut dyn FnMut() -> Result<(), Error>) -> Result<(usize, usize), Error>;

    /// Starts recorded launches in their order.
    ///
    /// # Safety
    /// `recording` comes from `record` and was not forgotten. What `launch` asks for holds for each of them now.
    unsafe fn replay(&self, recording: usize) -> Result<(), CudaError>;

    /// Forgets a recording.
    ///
    /// # Safety
    /// `recording` comes from `record`, and this is the last use of it.
    unsafe fn forget(&self, recording: usize);

    /// Starts a kernel.
    ///
    /// # Safety
    /// `arguments` points to `size` bytes: the kernel's own structure. All addresses in it are allocated, for as many
    /// bytes as the kernel reads or writes with these arguments and this shape.
    unsafe fn launch(
        &self,
        function: Function,
        shape: LaunchShape,
        arguments: *const c_void,
        size: usize,
    ) -> Result<(), CudaError>;
}

impl dyn Launcher {
    /// Starts a kernel, unless there are no blocks.
    pub(super) fn start<A: Arguments>(
        &self,
        function: Function,
        shape: LaunchShape,
        given: &A,
    ) -> Result<(), CudaError> {
        if shape.grid.contains(&0) {
            return Ok(());
        }
        // SAFETY: callers fill in addresses of buffers as long as the arguments say, for the rows and widths of a pass
        // as long as `GpuBuffers` makes them; and `Arguments` promises the layout.
        unsafe { self.launch(function, shape, std::ptr::from_ref(given).cast(), size_of::<A>()) }
    }
}

/// Memory of a GPU.
pub(super) struct Buffer {
    gpu: Arc<dyn Launcher>,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Allocates; what the bytes hold is unspecified.
    pub(super) fn new(gpu: &Arc<dyn Launcher>, what: &'static str, bytes: usize) -> Result<Buffer, CudaError> {
        let bytes = bytes.next_multiple_of(256).max(256);
        Ok(Buffer { address: gpu.allocate(what, bytes)?, gpu: Arc::clone(gpu), bytes })
    }

    /// The address of its first byte.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `from` to byte `at`. Panics past the end.
    pub(super) fn upload(&self, at: usize, from: &[u8]) -> Result<(), CudaError> {
        assert!(at + from.len() <= self.bytes, "{} bytes at {at} of {}", from.len(), self.bytes);
        // SAFETY: they are within this buffer (line above).
        unsafe { self.gpu.upload(from, self.address + at as u64) }
    }

    /// Copies from byte `at`. Panics past the end.
    pub(super) fn download(&self, at: usize, to: &mut [u8]) -> Result<(), CudaError> {
        assert!(at + to.len() <= self.bytes, "{} bytes at {at} of {}", to.len(), self.bytes);
        // SAFETY: they are within this buffer (line above).
        unsafe { self.gpu.download(&mut [(self.address + at as u64, to)]) }
    }

    /// Appends the first `len` floats to `to`, which has room for them, and copies the start of `other` to `word`.
    pub(super) fn append_floats(
        &self,
        len: usize,
        to: &mut Vec<f32>,
        other: &Buffer,
        word: &mut [u8],
    ) -> Result<(), CudaError> {
        let (start, bytes) = (to.len(), len * size_of::<f32>());
        assert!(bytes <= self.bytes && word.len() <= other.bytes, "{bytes} bytes of {}", self.bytes);
        to.resize(start + len, 0.0);
        let floats = bytemuck::cast_slice_mut(&mut to[start..]); // GPUs are in machines of their order of bytes
        // SAFETY: both are within their buffers (lines above).
        unsafe { self.gpu.download(&mut [(self.address, floats), (other.address, word)]) }
    }

    /// The first `len` floats.
    #[cfg(test)]
    pub(super) fn floats(&self, len: usize) -> Result<Vec<f32>, CudaError> {
        let mut floats = vec![0.0; len];
        self.download(0, bytemuck::cast_slice_mut(&mut floats))?;
        Ok(floats)
    }
}

/// Launches that are started together: the driver hands them to the GPU at once.
#[derive(Debug)]
pub(super) struct Recording {
    gpu: Arc<dyn Launcher>,
    handle: usize,
    launches: usize,
}

impl Recording {
    /// Records the launches that `launches` makes.
    pub(super) fn new(
        gpu: &Arc<dyn Launcher>,
        launches: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Recording, Error> {
        let (handle, launches) = gpu.record(launches)?;
        Ok(Recording { gpu: Arc::clone(gpu), handle, launches })
    }

    /// Bytes that the driver keeps for it at most.
    pub(super) fn bytes(&self) -> u64 {
        gpu_recording_bytes(self.launches)
    }

    /// Starts them.
    ///
    /// # Safety
    /// All buffers that the launches were given are still allocated.
    pub(super) unsafe fn replay(&self) -> Result<(), CudaError> {
        // SAFETY: the caller's for the launches; the handle is this recording's.
        unsafe { self.gpu.replay(self.handle) }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: the handle is this recording's.
        unsafe { self.gpu.forget(self.handle) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the buffer allocated it and is gone; kernels started before run before.
        unsafe { self.gpu.free(self.address, self.bytes) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}
