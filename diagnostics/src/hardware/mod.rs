//! The machine, detected or described: what `assess` judges against.

mod cores;
mod cpu;
mod cuda;
mod memory;
pub mod profiles;

use crate::plan::{Budget, PlanMemory, unless_unknown};
use serde::{Serialize, Serializer};

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Hardware {
    /// The name of the profile, when the machine is described and not this one.
    pub profile: Option<&'static str>,
    /// The processor.
    pub cpu: Cpu,
    /// Main memory.
    pub memory: Memory,
    /// NVIDIA GPUs; empty without a driver.
    pub gpus: Vec<Gpu>,
    /// Why `gpus` is empty or incomplete, in words.
    pub gpu_note: Option<String>,
    /// Abilities compiled into this build: `cuda`.
    #[serde(serialize_with = "build")]
    pub build: Vec<&'static str>,
    /// Environment variables that are set and would make an engine cast weights.
    pub casting_variables: Vec<&'static str>,
}

/// A processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// The model's name.
    pub model: String,
    /// Instruction sets by their usual names (`avx2`, `avx512vnni`), those that kernels here use.
    pub features: Vec<&'static str>,
    /// Threads this process may use.
    pub threads: usize,
    /// How many of them run on cores of less than half the speed of the fastest, where the system tells; 0 where all are alike.
    #[serde(skip_serializing_if = "is_zero")]
    pub slow_threads: usize,
    /// Instruction sets that this build was compiled to take for granted and that the processor does not report.
    pub missing: Vec<&'static str>,
}

/// Main memory as this process may use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Memory {
    /// Bytes in all, the tightest limit applied; [`UNKNOWN`](Memory::UNKNOWN) where nobody tells, `null` in JSON.
    #[serde(serialize_with = "unless_unknown")]
    pub total: u64,
    /// Bytes free for use, reclaimable cache included; [`UNKNOWN`](Memory::UNKNOWN) where nobody tells, `null` in JSON.
    #[serde(serialize_with = "unless_unknown")]
    pub available: u64,
    /// Bytes free for memory that is no mapped file, where a limit counts only such memory (`RLIMIT_DATA`).
    pub anonymous: Option<u64>,
    /// Where the figures come from.
    pub how: String,
    /// Bytes a second by the data sheet; `None` where it is not known, as of every detected machine.
    pub bandwidth: Option<u64>,
}

/// A GPU, or a slice of a divided one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gpu {
    /// The product name.
    pub name: String,
    /// `GPU-...`, or `MIG-...` of a slice, by which the driver's other interfaces know it.
    pub uuid: Option<String>,
    /// Major and minor compute capability.
    #[serde(serialize_with = "dotted")]
    pub compute_capability: (u32, u32),
    /// Bytes in all; `None` where the driver does not tell.
    pub memory_total: Option<u64>,
    /// Bytes free; `None` where the driver does not tell.
    pub memory_free: Option<u64>,
    /// Whether its memory is the machine's, of which the driver gives no figures.
    pub shared_memory: bool,
    /// The driver's version.
    pub driver: String,
    /// The newest CUDA version that the driver runs; `None` where it does not tell.
    #[serde(serialize_with = "dotted_option")]
    pub cuda: Option<(u32, u32)>,
    /// What `CUDA_VISIBLE_DEVICES` has to be for a process to compute on it; `None` where CUDA lists it as things are. CUDA
    /// lists one slice of a divided GPU to a process, and no whole GPU next to a slice.
    #[serde(rename = "cuda_visible_devices")]
    pub visible_as: Option<String>,
    /// Bytes a second of its memory by the data sheet; `None` where it is not known, as of every detected GPU.
    pub bandwidth: Option<u64>,
}

/// The variables by which candle's quantized layers are told to dequantize (candle-core 0.11 `quantized/mod.rs`).
const CASTING_VARIABLES: [&str; 2] = ["CANDLE_DEQUANTIZE_ALL", "CANDLE_DEQUANTIZE_ALL_F16"];

impl Memory {
    /// Stands for an amount that nobody tells.
    pub const UNKNOWN: u64 = Budget::UNKNOWN;

    /// What it leaves for a plan, and at most `limit` where the user set one.
    pub fn budget(&self, limit: Option<u64>) -> Budget {
        let available = self.available.min(limit.unwrap_or(u64::MAX));
        Budget { available, anonymous: self.anonymous, place: PlanMemory::Main }
    }
}

impl Cpu {
    /// The threads to compute with: those of the fast cores. A slow one would be waited for at the end of every product.
    pub fn fast_threads(&self) -> usize {
        self.threads - self.slow_threads
    }
}

impl Gpu {
    /// A GPU with this name, compute capability and memory, all of it free; other fields can be set.
    pub fn described(name: &str, compute_capability: (u32, u32), memory: u64) -> Gpu {
        Gpu {
            name: name.into(),
            uuid: None,
            compute_capability,
            memory_total: Some(memory),
            memory_free: Some(memory),
            shared_memory: false,
            driver: "described".into(),
            cuda: None,
            visible_as: None,
            bandwidth: None,
        }
    }
}

impl Hardware {
    /// This machine. Takes a few milliseconds, and never fails: what cannot be found out is said in words.
    pub fn detect() -> Hardware {
        let (gpus, gpu_note) = cuda::detect();
        // As candle takes them for set.
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        Hardware {
            profile: None,
            cpu: cpu::detect(),
            memory: memory::detect(),
            gpus,
            gpu_note,
            build: Vec::new(),
            casting_variables: CASTING_VARIABLES.into_iter().filter(is_set).collect(),
        }
    }

    /// A machine with this processor and `memory_bytes` of memory, of which an eighth is left to the system.
    pub fn described(cpu: Cpu, memory_bytes: u64) -> Hardware {
        let how = "described; an eighth is left to the system".into();
        let available = memory_bytes - memory_bytes / 8;
        Hardware {
            profile: None,
            cpu,
            memory: Memory { total: memory_bytes, available, anonymous: None, how, bandwidth: None },
            gpus: Vec::new(),
            gpu_note: Some("none described".into()),
            build: Vec::new(),
            casting_variables: Vec::new(),
        }
    }

    /// The same machine with a build that has these abilities.
    pub fn with_build(mut self, features: &[&'static str]) -> Hardware {
        self.build = features.to_vec();
        self
    }

    /// Whether this is a described machine that is described for its GPU.
    pub fn describes_gpu(&self) -> bool {
        self.profile.and_then(profiles::Profile::find).is_some_and(|profile| profile.gpu().is_some())
    }

    /// Whether this build has kernels for GPUs.
    pub fn has_cuda(&self) -> bool {
        self.build.contains(&"cuda")
    }

    /// Bytes that `gpu` has available, and where the figure comes from; `None` where nobody tells.
    pub fn gpu_memory(&self, gpu: &Gpu) -> Option<(u64, String)> {
        match (gpu.memory_free.or(gpu.memory_total), gpu.shared_memory) {
            (_, true) if self.memory.available == Memory::UNKNOWN => None,
            (_, true) => Some((self.memory.available, format!("shared with the machine: {}", self.memory.how))),
            (Some(free), _) if self.describes_gpu() => {
                Some((free, "described; a 32nd of it is left to the driver".into()))
            }
            (Some(free), _) => Some((free, "free on the GPU, by NVML".into())),
            (None, false) => None,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for this form
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `8.6` of major and minor.
pub(crate) fn version((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn dotted<S: Serializer>(numbers: &(u32, u32), serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&version(*numbers))
}

#[allow(clippy::ref_option)] // serde asks for this form
pub(crate) fn dotted_option<S: Serializer>(numbers: &Option<(u32, u32)>, serializer: S) -> Result<S::Ok, S::Error> {
    numbers.map(version).serialize(serializer)
}

/// The build as an object with its features.
#[allow(clippy::ptr_arg)] // serde asks for this form
fn build<S: Serializer>(features: &Vec<&'static str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([("features", features)])
}
