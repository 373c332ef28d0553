//! Memory of a GPU, and the parameters of a launch.

use super::driver::Gpu;
use crate::error::Result;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LaunchShape {
    pub(super) grid: [u32; 3],
    /// Threads of a block.
    pub(super) threads: u32,
    /// Bytes of shared memory that the kernel does not declare itself.
    pub(super) shared: u32,
}

impl LaunchShape {
    /// The shape of blocks of `threads` without more shared memory.
    pub(super) fn new(grid: [usize; 3], threads: usize) -> LaunchShape {
        LaunchShape { grid: grid.map(|blocks| blocks as u32), threads: threads as u32, shared: 0 }
    }
}

/// Shared memory of a block that every GPU has; from compute capability 7.0 on a kernel can ask for more.
pub(super) const PLAIN_SHARED: u32 = 48 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function(pub(super) usize);

pub(super) struct Buffer {
    gpu: Arc<Gpu>,
    /// The address of its first byte.
    pub(super) address: u64,
    bytes: usize,
}

impl Buffer {
    /// Allocates; what the bytes hold is unspecified.
    pub(super) fn new(gpu: &Arc<Gpu>, what: &'static str, bytes: usize) -> Result<Buffer> {
        let bytes = bytes.next_multiple_of(256).max(256);
        Ok(Buffer { address: gpu.allocate(what, bytes)?, gpu: Arc::clone(gpu), bytes })
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `from` to byte `at`. Panics past the end.
    pub(super) fn upload(&self, at: usize, from: &[u8]) -> Result<()> {
        assert!(at + from.len() <= self.bytes, "{} bytes at {at} of {}", from.len(), self.bytes);
        // SAFETY: they are within this buffer (line above).
        unsafe { self.gpu.upload(from, self.address + at as u64) }
    }

    /// Copies from byte `at`. Panics past the end.
    pub(super) fn download(&self, at: usize, to: &mut [u8]) -> Result<()> {
        assert!(at + to.len() <= self.bytes, "{} bytes at {at} of {}", to.len(), self.bytes);
        // SAFETY: they are within this buffer (line above).
        unsafe { self.gpu.download(&mut [(self.address + at as u64, to)]) }
    }

    /// Appends the first `len` floats to `to`, which has room for them, and copies the start of `other` to `word`.
    pub(super) fn append_floats(&self, len: usize, to: &mut Vec<f32>, other: &Buffer, word: &mut [u8]) -> Result<()> {
        let (start, bytes) = (to.len(), len * size_of::<f32>());
        assert!(bytes <= self.bytes && word.len() <= other.bytes, "{bytes} bytes of {}", self.bytes);
        to.resize(start + len, 0.0);
        let floats = bytemuck::cast_slice_mut(&mut to[start..]); // GPUs are in machines of their order of bytes
        // SAFETY: both are within their buffers (lines above).
        unsafe { self.gpu.download(&mut [(self.address, floats), (other.address, word)]) }
    }

    /// The first `len` floats.
    #[cfg(test)]
    pub(super) fn floats(&self, len: usize) -> Result<Vec<f32>> {
        let mut floats = vec![0.0; len];
        self.download(0, bytemuck::cast_slice_mut(&mut floats))?;
        Ok(floats)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the buffer allocated it and is gone; kernels started before run before.
        unsafe { self.gpu.free(self.address) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}
