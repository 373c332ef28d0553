//! The state of the driver: the context, and the objects in it.

use super::code::{Code, Result};
use super::failure::Failures;
use super::memory::Allocations;
use super::settings::{GRAPH_NODE, Settings};
use super::stream::{Capture, CaptureMode, KernelLaunch, Stream};
use crate::ptx::{Kernel, Launch, Module};
use std::cell::Cell;
use std::collections::BTreeMap;

thread_local! {
    /// The context of this thread; 0 for none.
    pub(super) static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Shared memory of a block that does not ask for more.
pub(super) const PLAIN_SHARED: u32 = 48 << 10;

/// The most blocks in the second and third direction, and the most threads of a block.
const MOST_BLOCKS: u32 = 65535;
const MOST_THREADS: u64 = 1024;

#[derive(Debug, Default)]
pub(super) struct Driver {
    /// The settings of the emulated GPU, once the driver is started.
    pub(super) settings: Option<Settings>,
    pub(super) failures: Failures,
    /// The primary context and how often it is retained.
    pub(super) context: Option<(Context, usize)>,
    /// The last handle that was given. No handle is given twice.
    handles: usize,
    pub(super) leaks: Vec<String>,
}

/// A context and its objects, by handles.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) handle: usize,
    pub(super) memory: Allocations,
    pub(super) pinned: Allocations,
    pub(super) streams: BTreeMap<usize, Stream>,
    pub(super) modules: BTreeMap<usize, Module>,
    pub(super) functions: BTreeMap<usize, Function>,
    pub(super) graphs: BTreeMap<usize, Vec<KernelLaunch>>,
    pub(super) executables: BTreeMap<usize, Vec<KernelLaunch>>,
    pub(super) broken: Option<Code>,
}

#[derive(Debug)]
pub(super) struct Function {
    pub(super) module: usize,
    pub(super) kernel: Kernel,
    /// The most bytes of dynamic shared memory for a launch.
    pub(super) most_shared: u32,
    /// Whether it was started before: until then it need not be loaded.
    pub(super) started: bool,
}

pub(super) fn find<T>(objects: &mut BTreeMap<usize, T>, handle: usize) -> Result<&mut T> {
    objects.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
}

pub(super) fn remove<T>(objects: &mut BTreeMap<usize, T>, handle: usize) -> Result<T> {
    objects.remove(&handle).ok_or(Code::INVALID_HANDLE)
}

impl Driver {
    pub(super) fn handle(&mut self) -> usize {
        self.handles += 1;
        // Handles are far from any pointer, and from the default streams' handles.
        0x5EED_0000 + 16 * self.handles
    }

    pub(super) fn settings(&self) -> Result<&Settings> {
        self.settings.as_ref().ok_or(Code::NOT_INITIALIZED)
    }

    /// The settings of a device by its number.
    pub(super) fn device(&self, device: i32) -> Result<&Settings> {
        self.settings().and_then(|settings| if device == 0 { Ok(settings) } else { Err(Code::INVALID_DEVICE) })
    }

    /// A description of what is left in the living context.
    pub(super) fn left(&self) -> Option<String> {
        let (context, retained) = self.context.as_ref()?;
        let left = context.left().unwrap_or_else(|| "nothing in it".into());
        Some(format!("a context, retained {retained} times: {left}"))
    }

    pub(super) fn free_memory(&self) -> Result<(u64, u64)> {
        let all = self.settings()?.memory;
        let taken = self.context.as_ref().map_or(0, |(context, _)| context.taken());
        Ok((all.saturating_sub(taken), all))
    }

    /// The thread's context, broken or not.
    pub(super) fn context(&mut self) -> Result<&mut Context> {
        self.settings()?;
        let current = CURRENT.get();
        if current == 0 {
            return Err(Code::INVALID_CONTEXT.because("the thread has none"));
        }
        let alive = self.context.as_mut().map(|(context, _)| context).filter(|context| context.handle == current);
        alive.ok_or_else(|| Code::CONTEXT_IS_DESTROYED.because("the thread's was released"))
    }

    /// The thread's context, or the error that broke it.
    pub(super) fn sound(&mut self) -> Result<&mut Context> {
        let context = self.context()?;
        context.broken.map_or(Ok(context), Err)
    }

    /// The thread's context, or the error that broke it, with a handle for something new in it.
    pub(super) fn making(&mut self) -> Result<(usize, &mut Context)> {
        let handle = self.handle();
        Ok((handle, self.sound()?))
    }

    pub(super) fn keep(&mut self, code: Code) {
        if let Some((context, _)) = self.context.as_mut().filter(|_| code.stays()) {
            context.broken.get_or_insert(code);
        }
    }
}

impl Context {
    fn taken(&self) -> u64 {
        self.memory.taken() + self.executables.values().map(|launches| launches.len() as u64 * GRAPH_NODE).sum::<u64>()
    }

    /// A description of what was never freed.
    pub(super) fn left(&self) -> Option<String> {
        let counts = [
            (self.memory.count(), "allocations"),
            (self.pinned.count(), "pieces of pinned memory"),
            (self.streams.len(), "streams"),
            (self.modules.len(), "modules"),
            (self.graphs.len(), "graphs"),
            (self.executables.len(), "executable graphs"),
        ];
        let left = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let left = left.collect::<Vec<_>>().join(", ");
        let bytes = match self.memory.taken() {
            0 => String::new(),
            bytes => format!(" ({bytes} bytes)"),
        };
        (!left.is_empty()).then_some(left + &bytes)
    }

    /// Waits for a stream, which ends its capture.
    pub(super) fn finish(&mut self, stream: usize) -> Result {
        let stream = find(&mut self.streams, stream)?;
        stream.not_captured("a stream is waited for while it is captured")?;
        stream.finish(&self.memory)
    }

    /// The stream of a copy between the GPU's memory and main memory, both of which are checked, and whether the latter is pinned.
    /// Copies of a capture are not emulated, and those from and to pageable memory no driver captures.
    pub(super) fn copying(&mut self, gpu: u64, host: usize, len: usize, stream: usize) -> Result<(&mut Stream, bool)> {
        self.memory.host(gpu, len)?;
        let pinned = self.pinned.holds(host as u64..(host + len) as u64)?;
        let stream = find(&mut self.streams, stream)?;
        stream.not_captured("a copy")?;
        Ok((stream, pinned))
    }

    pub(super) fn finish_all(&mut self) -> Result {
        let memory = &self.memory;
        self.streams.values_mut().map(|stream| stream.finish(memory)).fold(Ok(()), Result::and)
    }

    /// What a capture forbids: in relaxed mode calls that wait for the whole context, else all that might. See the
    /// driver API, "cuThreadExchangeStreamCaptureMode" and "Prohibited and Unhandled Operations" of the programming guide.
    pub(super) fn forbidden_while_capturing(&mut self, what: &str, waits: bool) -> Result {
        let thread = std::thread::current().id();
        let mut captures = self.streams.values_mut().filter_map(|stream| stream.capture.as_mut());
        let forbids = |capture: &Capture| match capture.mode {
            CaptureMode::Global => true,
            CaptureMode::ThreadLocal => waits || capture.thread == thread,
            CaptureMode::Relaxed => waits,
        };
        match captures.find(|capture| forbids(capture)) {
            Some(capture) => {
                capture.invalid = true;
                Err(Code::CAPTURE_UNSUPPORTED.because(what))
            }
            None => Ok(()),
        }
    }
}

impl Function {
    pub(super) fn check(&self, launch: &Launch, most_shared: u32) -> Result {
        let Launch { grid, block, dynamic_shared, .. } = *launch;
        let name = self.kernel.name();
        let [_, y, z] = grid;
        if grid.contains(&0) || block.contains(&0) || grid[0] > i32::MAX as u32 || y.max(z) > MOST_BLOCKS {
            return Err(Code::INVALID_VALUE.because(format_args!("{name}: {grid:?} blocks of {block:?} threads")));
        }
        let count = |sides: [u32; 3]| sides.iter().map(|side| u64::from(*side)).product();
        let (threads, most) = (count(block), self.kernel.max_threads().map_or(MOST_THREADS, count));
        if threads > MOST_THREADS {
            return Err(Code::INVALID_VALUE.because(format_args!("{name}: {threads} threads")));
        }
        if threads > most {
            return Err(Code::OUT_OF_RESOURCES.because(format_args!("{name}: {threads} threads, {most} at most")));
        }
        let most = self.most_shared.min(most_shared);
        if dynamic_shared > most {
            let why = format_args!("{name}: {dynamic_shared} bytes of shared memory, {most} were asked for");
            return Err(Code::INVALID_VALUE.because(why));
        }
        Ok(())
    }
}
