//! Streams: the work that is not done yet, and work that is captured instead.

use super::code::{Code, Result};
use super::memory::Allocations;
use crate::ptx::{Kernel, Launch};
use std::collections::VecDeque;
use std::thread::ThreadId;

#[derive(Clone, Debug)]
pub(super) struct KernelLaunch {
    pub(super) kernel: Kernel,
    pub(super) launch: Launch,
    pub(super) parameters: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Work {
    Launch(KernelLaunch),
    /// Bytes that belong to the driver.
    Write {
        to: u64,
        bytes: Vec<u8>,
    },
    /// A copy from or to pinned memory.
    Copy {
        device: u64,
        host: usize,
        bytes: usize,
        upload: bool,
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

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) mode: CaptureMode,
    pub(super) thread: ThreadId,
    pub(super) launches: Vec<KernelLaunch>,
    /// Whether something happened that captures forbid.
    pub(super) invalid: bool,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) work: VecDeque<Work>,
    pub(super) capture: Option<Capture>,
}

impl Stream {
    /// Ends a capture because it forbids `what`.
    pub(super) fn not_captured(&mut self, what: &str) -> Result {
        let Some(capture) = &mut self.capture else { return Ok(()) };
        capture.invalid = true;
        Err(Code::CAPTURE_UNSUPPORTED.because(what))
    }

    /// Does the work in its order, up to the first fault; later work is not done.
    pub(super) fn finish(&mut self, memory: &Allocations) -> Result {
        let result = self.work.drain(..).try_for_each(|work| work.run(memory));
        self.work.clear();
        result
    }
}

impl Work {
    fn run(self, memory: &Allocations) -> Result {
        // The copy was within its allocation when it was started.
        let place = |address, bytes| {
            let found = memory.host(address, bytes);
            found.map_err(|_| Code::ILLEGAL_ADDRESS.because("a copy's memory was freed before its turn"))
        };
        match self {
            Work::Launch(KernelLaunch { kernel, launch, parameters }) => {
                kernel.run(&launch, &parameters, memory).map_err(|fault| Code::from(&*fault))
            }
            Work::Write { to, bytes } => {
                let to = place(to, bytes.len())?;
                // SAFETY: as many bytes are allocated there, and the driver's lock is held.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                Ok(())
            }
            Work::Copy { device, host, bytes, upload } => {
                let (device, host) = (place(device, bytes)?, host as *mut u8);
                let (from, to) = if upload { (host, device) } else { (device, host) };
                // SAFETY: as many bytes are pinned, until `free` has waited for this; those of the GPU are as above.
                unsafe { to.copy_from_nonoverlapping(from, bytes) };
                Ok(())
            }
        }
    }
}
