//! Streams: what was asked of them and not yet done, and what is captured instead.

use super::code::Code;
use super::memory::DeviceMemory;
use crate::ptx::{Kernel, Launch};
use std::collections::VecDeque;
use std::thread::ThreadId;

/// A launch with a copy of its parameters.
#[derive(Clone, Debug)]
pub(super) struct Started {
    pub(super) kernel: Kernel,
    pub(super) launch: Launch,
    pub(super) parameters: Vec<u8>,
}

/// Something that a stream does in its turn.
#[derive(Debug)]
pub(super) enum Work {
    Launch(Started),
    /// Bytes that are the driver's.
    Write {
        to: u64,
        bytes: Vec<u8>,
    },
    /// From pinned memory.
    Upload {
        from: usize,
        to: u64,
        bytes: usize,
    },
    /// To pinned memory.
    Download {
        from: u64,
        to: usize,
        bytes: usize,
    },
}

/// `CUstreamCaptureMode`. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureMode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl CaptureMode {
    pub(super) fn new(code: u32) -> Option<CaptureMode> {
        [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed].get(code as usize).copied()
    }
}

/// What is captured.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) mode: CaptureMode,
    pub(super) thread: ThreadId,
    pub(super) launches: Vec<Started>,
    /// Whether something happened that captures forbid.
    pub(super) invalid: bool,
}

/// A stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) work: VecDeque<Work>,
    pub(super) capture: Option<Capture>,
}

impl Stream {
    /// Does what was asked, in its order, up to the first fault; what comes after is not done.
    pub(super) fn finish(&mut self, memory: &DeviceMemory) -> Result<(), Code> {
        let result = self.work.drain(..).try_for_each(|work| work.run(memory));
        self.work.clear();
        result
    }
}

impl Work {
    fn run(self, memory: &DeviceMemory) -> Result<(), Code> {
        match self {
            Work::Launch(Started { kernel, launch, parameters }) => {
                kernel.run(&launch, &parameters, memory).map_err(|fault| Code::from(&*fault))
            }
            Work::Write { to, bytes } => {
                let to = freed_since(memory.host(to, bytes.len()))?;
                // SAFETY: as many bytes are allocated there, and the driver's lock is held.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                Ok(())
            }
            Work::Upload { from, to, bytes } => {
                let to = freed_since(memory.host(to, bytes))?;
                // SAFETY: as many bytes are pinned, until `free` has waited for this; those of the GPU are as above.
                unsafe { to.copy_from_nonoverlapping(from as *const u8, bytes) };
                Ok(())
            }
            Work::Download { from, to, bytes } => {
                let from = freed_since(memory.host(from, bytes))?;
                // SAFETY: as above.
                unsafe { (to as *mut u8).copy_from_nonoverlapping(from, bytes) };
                Ok(())
            }
        }
    }
}

/// A copy was within its allocation when it was asked for.
fn freed_since<T>(found: Result<T, Code>) -> Result<T, Code> {
    found.map_err(|_| Code::ILLEGAL_ADDRESS.because("a copy's memory was freed before its turn"))
}
