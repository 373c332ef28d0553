//! What the user asks of a diagnosis and of loading.

use crate::plan::{DraftSize, KvDtype, Request, WeightStorage};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where to run.
    pub device: DeviceChoice,
    /// Tokens of context; `None` is the largest that fits.
    pub context: Option<usize>,
    /// Bytes that the plan may use at most, below what the machine has.
    pub memory_limit: Option<u64>,
    /// Which tiers are good enough.
    pub dtypes: DtypePolicy,
    /// The element type of the KV cache.
    pub kv_dtype: KvDtype,
    /// Sessions that are open at once; `None` plans one, and does not limit how many share what memory is left.
    pub sessions: Option<usize>,
    /// Where weights lie for the processor.
    pub weights: WeightStorage,
    /// A `tokenizer.json` that takes the place of the model's own, which need not have one then.
    pub tokenizer: Option<PathBuf>,
    /// What a draft model next to it takes, which was judged before.
    pub draft: Option<DraftSize>,
    /// Whether the head that predicts further tokens is wanted, which some models bring.
    pub predictor: bool,
}

impl Policy {
    /// What a plan is made for.
    pub(crate) fn request(&self) -> Request {
        let Policy { context, sessions, kv_dtype, weights, draft, .. } = *self;
        Request { context, sessions, kv_dtype, weights, draft }
    }
}

/// Where to run.
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

/// Which tiers are good enough. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DtypePolicy {
    /// Native arithmetic, or loss-free widening inside a register.
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

/// A text that names no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, cpu, cuda or cuda:N")]
pub struct UnknownDevice;

impl FromStr for DeviceChoice {
    type Err = UnknownDevice;

    /// `auto`, `cpu`, `cuda` (the first GPU), `cuda:N`.
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
