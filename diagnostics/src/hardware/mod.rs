//! The machine, detected or described: what `assess` judges against.

mod cpu;
mod cuda;
mod memory;
pub mod profiles;

use crate::plan::{Budget, PlanMemory, unless_unknown};
use model_factory_dtypes::{cpu_level, cpu_level_features};
use serde::{Serialize, Serializer};

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Hardware {
    /// The name of the profile, if the machine is described and not this one.
    pub profile: Option<&'static str>,
    /// The processor.
    pub cpu: Cpu,
    /// Main memory.
    pub memory: Memory,
    /// NVIDIA GPUs; empty if there is no driver.
    pub gpus: Vec<Gpu>,
    /// Why `gpus` is empty or incomplete, in words.
    pub gpu_note: Option<String>,
    /// Features compiled into this build: `cuda`.
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
    /// Instruction sets that kernels here use, by their usual names (`avx2`, `avx512vnni`).
    pub features: Vec<&'static str>,
    /// Instruction sets that are there and that kernels leave unused, because on this generation of processors they are slower than
    /// what they would replace, or their speed is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided: Vec<&'static str>,
    /// Threads this process may use.
    pub threads: usize,
    /// How many of them run on cores of less than half the speed of the fastest, if the system says so; 0 if all are alike.
    #[serde(skip_serializing_if = "is_zero")]
    pub slow_threads: usize,
    /// Instruction sets that this build requires and that the processor does not report.
    pub missing: Vec<&'static str>,
}

/// Main memory that this process may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Memory {
    /// Total bytes, after the tightest limit; [`UNKNOWN`](Memory::UNKNOWN), `null` in JSON, if not known.
    #[serde(serialize_with = "unless_unknown")]
    pub total: u64,
    /// Available bytes, reclaimable cache included; [`UNKNOWN`](Memory::UNKNOWN), `null` in JSON, if not known.
    #[serde(serialize_with = "unless_unknown")]
    pub available: u64,
    /// Bytes available for memory other than mapped files, if a limit counts only such memory (`RLIMIT_DATA`).
    pub anonymous: Option<u64>,
    /// The source of the figures.
    pub how: String,
    /// Bandwidth in bytes a second by the data sheet; `None` if it is not known, as for every detected machine.
    pub bandwidth: Option<u64>,
}

/// A GPU, or a slice of a divided one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gpu {
    /// The product name.
    pub name: String,
    /// `GPU-...`, or `MIG-...` for a slice, the id in the driver's other interfaces.
    pub uuid: Option<String>,
    /// Major and minor compute capability.
    #[serde(serialize_with = "dotted")]
    pub compute_capability: (u32, u32),
    /// Total bytes; `None` if the driver does not report them.
    pub memory_total: Option<u64>,
    /// Free bytes; `None` if the driver does not report them.
    pub memory_free: Option<u64>,
    /// Whether its memory is the machine's, for which the driver has no figures.
    pub shared_memory: bool,
    /// The driver's version.
    pub driver: String,
    /// The newest CUDA version that the driver supports; `None` if it does not report it.
    #[serde(serialize_with = "dotted_option")]
    pub cuda: Option<(u32, u32)>,
    /// The value of `CUDA_VISIBLE_DEVICES` for a process to run on it; `None` if CUDA already lists it. CUDA lists one
    /// slice of a divided GPU to a process, and no whole GPU next to a slice.
    #[serde(rename = "cuda_visible_devices")]
    pub visible_as: Option<String>,
    /// Bandwidth of its memory in bytes a second by the data sheet; `None` if it is not known, as for every detected GPU.
    pub bandwidth: Option<u64>,
}

/// The variables that make candle's quantized layers dequantize (candle-core 0.11 `quantized/mod.rs`).
const CASTING_VARIABLES: [&str; 2] = ["CANDLE_DEQUANTIZE_ALL", "CANDLE_DEQUANTIZE_ALL_F16"];

impl Memory {
    /// The value for an amount that is not known.
    pub const UNKNOWN: u64 = Budget::UNKNOWN;

    /// The memory that is available for a plan, at most `limit` if the user set one.
    pub fn budget(&self, limit: Option<u64>) -> Budget {
        let available = self.available.min(limit.unwrap_or(u64::MAX));
        Budget { available, anonymous: self.anonymous, place: PlanMemory::Main }
    }
}

impl Cpu {
    /// The level of kernels that computes here, and the faster levels whose instruction sets are not there. `None` where portable kernels
    /// compute.
    pub fn level(&self) -> Option<(&'static str, Vec<&'static str>)> {
        let (level, mut lacked) = cpu_level(&self.features)?;
        let has = |feature: &&'static str| self.features.contains(feature) || self.avoided.contains(feature);
        lacked.retain(|level| !cpu_level_features(level).iter().all(&has));
        Some((level, lacked))
    }

    /// The threads to compute with, on the fast cores only. A slow one would delay the end of every product.
    pub fn fast_threads(&self) -> usize {
        self.threads - self.slow_threads
    }
}

impl Gpu {
    /// A GPU with this name, compute capability and memory, all of it free; other fields can be set afterwards.
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
    /// This machine. Takes a few milliseconds, and never fails: missing figures are explained in words.
    pub fn detect() -> Hardware {
        let (gpus, gpu_note) = cuda::detect();
        // candle counts a variable as set in the same way.
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        Hardware {
            memory: memory::detect(),
            gpus,
            gpu_note,
            casting_variables: CASTING_VARIABLES.into_iter().filter(is_set).collect(),
            ..Hardware::described(cpu::detect(), 0)
        }
    }

    /// A machine with this processor and `memory_bytes` of memory, of which an eighth is reserved for the system.
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

    /// This machine with a build that has these features.
    pub fn with_build(mut self, features: &[&'static str]) -> Hardware {
        self.build = features.to_vec();
        self
    }

    /// Whether this is a described machine with a GPU.
    pub fn describes_gpu(&self) -> bool {
        self.profile.and_then(profiles::Profile::find).is_some_and(|profile| profile.gpu().is_some())
    }

    /// Whether this build has kernels for GPUs.
    pub fn has_cuda(&self) -> bool {
        self.build.contains(&"cuda")
    }

    /// Available bytes of `gpu`, and the source of the figure; `None` if it is not known.
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

/// Major and minor version as `8.6`.
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

/// The build as a JSON object with its features.
#[allow(clippy::ptr_arg)] // serde asks for this form
fn build<S: Serializer>(features: &Vec<&'static str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([("features", features)])
}
