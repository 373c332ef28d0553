//! PTX text -> kernels that run on the processor.
//!
//! [`Module::compile`] parses a module and turns each instruction into a function that works on a register of a whole warp, 32
//! lanes at once. [`Kernel::run`] runs a launch block by block, warps from barrier to barrier, and stops at the first
//! [`Fault`].

use program::Program;
use run::Workspace;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

mod copies;
mod decode;
mod error;
mod fault;
mod lex;
mod memory;
mod operations;
mod order;
mod parse;
mod program;
mod registers;
mod run;
mod shared;
mod syntax;
mod warp;

pub use error::Error;
pub use fault::{Access, Cause, Fault, Space};
pub(crate) use run::most_shared;

/// The modules of this process, by their texts.
static MODULES: LazyLock<Mutex<HashMap<String, Module>>> = LazyLock::new(Mutex::default);

/// A loaded module.
#[derive(Clone, Debug)]
pub struct Module {
    target: u32,
    kernels: Arc<[Kernel]>,
}

/// A kernel of a loaded module, which it keeps loaded.
#[derive(Clone, Debug)]
pub struct Kernel(Arc<LoadedKernel>);

/// A kernel, and memory that its last launches leave to the next.
#[derive(Debug)]
struct LoadedKernel {
    program: Program,
    workspaces: Mutex<Vec<Workspace>>,
}

/// The place of a parameter among the bytes of all, which are in the order of the declaration, each aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes before the parameter.
    pub offset: usize,
    /// Bytes of the parameter.
    pub bytes: usize,
}

/// The order in which the warps of a block run between two barriers, the blocks of a grid one after the other, and the lanes
/// of a warp that has diverged. A kernel without races computes the same with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// All run from the first to the last.
    #[default]
    Forward,
    /// All run from the last to the first.
    Reverse,
    /// All run in a random order with this seed.
    Random(u64),
}

/// The shape of a launch: blocks, threads of a block, and bytes of shared memory besides those the kernel declares.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Launch {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub schedule: Schedule,
}

/// An allocation of the GPU's memory: its address on the GPU, its bytes, and its address in this process.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Allocation {
    pub start: u64,
    pub bytes: u64,
    pub host: *mut u8,
}

/// The GPU's memory.
///
/// # Safety
/// `bytes` bytes at the `host` of an [`Allocation`] can be read and written while a kernel runs, and nothing else writes them.
#[allow(unsafe_code)] // a promise of the implementation
pub unsafe trait Memory {
    /// The allocation that holds the byte at `address`.
    fn allocation(&self, address: u64) -> Option<Allocation>;
}

impl Schedule {
    /// Parses `forward`, `reverse`, or `random:` and a seed.
    pub(crate) fn parse(text: &str) -> Option<Schedule> {
        match text {
            "forward" => Some(Schedule::Forward),
            "reverse" => Some(Schedule::Reverse),
            _ => text.strip_prefix("random:")?.parse().ok().map(Schedule::Random),
        }
    }
}

impl Module {
    /// Makes a module ready to run, or returns the earlier result of this process for the same text.
    ///
    /// # Errors
    /// [`Error`].
    pub fn compile(ptx: &str) -> Result<Module, Error> {
        let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(ptx) {
            return Ok(module.clone());
        }
        let (target, programs) = parse::parse(ptx)?;
        let kernels = programs.into_iter();
        let kernels = kernels.map(|program| Kernel(Arc::new(LoadedKernel { program, workspaces: Mutex::default() })));
        let module = Module { target, kernels: kernels.collect() };
        modules.insert(ptx.to_owned(), module.clone());
        Ok(module)
    }

    /// The compute capability of its target, `10 * major + minor`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// A kernel by its name.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        self.kernels.iter().find(|kernel| kernel.name() == name).cloned()
    }
}

impl Kernel {
    /// The name of the kernel.
    pub fn name(&self) -> &str {
        &self.0.program.name
    }

    /// The kernel's parameters, in their order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.0.program.parameters
    }

    /// Bytes of shared memory that it declares.
    pub fn static_shared(&self) -> u32 {
        self.0.program.shared.declared
    }

    /// The most threads of a block, where the kernel has `.maxntid`.
    pub fn max_threads(&self) -> Option<[u32; 3]> {
        self.0.program.max_threads
    }

    /// Runs a launch to its end. `parameters` are the bytes that [`parameters`](Self::parameters) lays out.
    ///
    /// # Errors
    /// The first fault. Bytes that were written before it stay written.
    pub fn run(&self, launch: &Launch, parameters: &[u8], memory: &dyn Memory) -> Result<(), Box<Fault>> {
        let kept = || self.0.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut workspace = kept().pop().unwrap_or_default();
        let result = run::run(&self.0.program, launch, parameters, memory, &mut workspace);
        kept().push(workspace);
        result
    }
}
