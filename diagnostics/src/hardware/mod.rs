//! The machine, detected or described: what `assess` judges against.

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// The processor.
    pub cpu: Cpu,
    /// Main memory.
    pub memory: Memory,
    /// NVIDIA GPUs; empty without a driver.
    pub gpus: Vec<Gpu>,
    /// Abilities compiled into this build: `cuda`.
    pub build: Vec<&'static str>,
}

/// A processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The model's name.
    pub model: String,
    /// Instruction sets by their usual names (`avx2`, `avx512vnni`), those that kernels here use.
    pub features: Vec<&'static str>,
    /// Threads this process may use.
    pub threads: usize,
}

/// Main memory as this process may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in all, the tightest limit applied.
    pub total: u64,
    /// Bytes free for use, reclaimable cache included.
    pub available: u64,
    /// Where the figures come from.
    pub how: String,
}

/// A graphics card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The product name.
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Bytes in all; `None` where the driver does not tell.
    pub memory_total: Option<u64>,
    /// Bytes free; `None` where the driver does not tell.
    pub memory_free: Option<u64>,
    /// The driver's version.
    pub driver: String,
}
