//! The user's options for a diagnosis and for loading.

use crate::hardware::Hardware;
use crate::plan::{ActivationDtype, DraftSize, KvDtype, Request, ReservedAdapters, WeightStorage};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The user's options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The device to run on.
    pub device: DeviceChoice,
    /// Tokens of context; `None` is the largest that fits.
    pub context: Option<usize>,
    /// The most bytes that the plan may use, if below what the machine has.
    pub memory_limit: Option<u64>,
    /// The tiers that are accepted.
    pub dtypes: DtypePolicy,
    /// What activations are rounded to where their format prescribes 16 bits.
    pub activation_dtype: ActivationDtype,
    /// The element type of the KV cache.
    pub kv_dtype: KvDtype,
    /// Sessions that are open at once; `None` plans one, and does not limit how many share the memory that is left.
    pub sessions: Option<usize>,
    /// Where weights are kept for the processor.
    pub weights: WeightStorage,
    /// Threads that compute; `None` is one for each of the processor's fast ones.
    pub threads: Option<usize>,
    /// A `tokenizer.json` that replaces the model's own, which need not have one then.
    pub tokenizer: Option<PathBuf>,
    /// The size of a draft model, which was judged before.
    pub draft: Option<DraftSize>,
    /// Whether to load the head that predicts further tokens, if the model has one.
    pub predictor: bool,
    /// Whether to load the tower that makes rows of images, if the model has one that is known.
    pub vision: bool,
    /// The file that holds the vision tower of a GGUF model, which is loaded then; `None` is the one in its folder.
    pub mmproj: Option<PathBuf>,
    /// Adapters that memory is reserved for.
    pub adapters: Option<ReservedAdapters>,
    /// Files and folders of adapters that are diagnosed with the model; a model is loaded without them.
    pub lora: Vec<PathBuf>,
}

impl Policy {
    /// Whether the vision tower is loaded.
    pub fn sees(&self) -> bool {
        self.vision || self.mmproj.is_some()
    }

    /// Whether adapters are computed with.
    pub fn adapts(&self) -> bool {
        self.adapters.is_some() || !self.lora.is_empty()
    }

    /// What a plan for `hardware` is asked for.
    pub fn request(&self, hardware: &Hardware) -> Request {
        let Policy { context, sessions, kv_dtype, activation_dtype, weights, threads, draft, adapters, .. } = *self;
        let threads = threads.unwrap_or(hardware.cpu.fast_threads());
        Request { context, sessions, kv_dtype, activation_dtype, weights, threads, draft, adapters }
    }
}

/// The device to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The best device that can run the model.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this index among those of [`Hardware::gpus`](crate::Hardware::gpus).
    Cuda(usize),
}

/// The tiers that are accepted. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DtypePolicy {
    /// Native arithmetic, or lossless widening inside a register.
    #[default]
    NativeOrWidened,
    /// Only arithmetic in the stored dtype.
    NativeOnly,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// The error for a text that names no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, cpu, cuda or cuda:N")]
pub struct UnknownDevice;

impl FromStr for DeviceChoice {
    type Err = UnknownDevice;

    /// Parses `auto`, `cpu`, `cuda` (the first GPU) or `cuda:N`.
    fn from_str(text: &str) -> Result<DeviceChoice, UnknownDevice> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => {
                let index = text.strip_prefix("cuda:").and_then(|index| index.parse().ok());
                index.map(DeviceChoice::Cuda).ok_or(UnknownDevice)
            }
        }
    }
}
