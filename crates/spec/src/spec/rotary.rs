//! Rotary position embeddings as models have them.

use crate::block::RopeLayout;
use crate::header::TensorInfo;
use std::fmt;

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements turn together.
    pub layout: RopeLayout,
    /// The base of the frequencies.
    pub theta: f64,
    /// How the frequencies differ from `theta^(-2i/dimensions)`.
    pub scaling: RopeScaling,
    /// Leading elements of a head that are rotated.
    pub dimensions: usize,
    /// What cosines and sines are multiplied by: 1 but for scalings that say otherwise.
    pub magnitude: f64,
    /// What queries are multiplied by, where that depends on their position.
    pub query_scale: Option<QueryScale>,
    /// Which keys or tensors this comes from.
    pub source: String,
}

/// Queries are multiplied by `1 + beta * ln(1 + floor(position / original_context))`
/// (transformers `modeling_ministral3.py`, `get_llama_4_attn_scale`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryScale {
    /// How fast it grows.
    pub beta: f64,
    /// The context of the original training.
    pub original_context: u64,
}

/// A change to the rotary frequencies. Complete.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// Every frequency divided by `factor`.
    Linear {
        /// The factor that frequencies are divided by.
        factor: f64,
    },
    /// Long wavelengths divided by `factor`, short ones kept, a ramp between
    /// (transformers `modeling_rope_utils.py`, `llama3`).
    Llama3 {
        /// What the frequencies of long wavelengths are divided by.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are long.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are short.
        high_freq_factor: f64,
        /// The context of the original training.
        original_context: u64,
    },
    /// A stored F32 tensor of `dimensions / 2` factors, by which the frequencies are divided (GGUF `rope_freqs.weight`).
    Factors {
        /// The tensor.
        tensor: TensorInfo,
    },
    /// Slow rotations divided by `factor`, fast ones kept, a ramp between them over the pairs of a head
    /// (transformers `modeling_rope_utils.py`, `yarn`).
    Yarn {
        /// What the frequencies of slow rotations are divided by.
        factor: f64,
        /// The context of the original training.
        original_context: u64,
        /// Pairs that turn more often than this in the original context are kept.
        beta_fast: f64,
        /// Pairs that turn less often than this are divided.
        beta_slow: f64,
        /// Whether the ends of the ramp are whole pairs.
        truncate: bool,
    },
    /// Only the first pairs turn, at the frequencies of all of a head's pairs divided by `factor`
    /// (transformers `modeling_rope_utils.py`, `proportional`).
    Proportional {
        /// What their frequencies are divided by.
        factor: f64,
        /// How many pairs turn.
        pairs: usize,
    },
    /// Every frequency divided by one of two lists, by the length of the whole sequence
    /// (transformers `modeling_rope_utils.py`, `longrope`).
    LongRope {
        /// For sequences up to `original_context`.
        short: FrequencyFactors,
        /// For longer ones.
        long: FrequencyFactors,
        /// What their cosines and sines are multiplied by, in place of [`Rope::magnitude`].
        long_magnitude: f64,
        /// The context of the original training.
        original_context: usize,
    },
}

/// What the frequencies are divided by, `dimensions / 2` numbers: `short_factor` and `long_factor` in `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub enum FrequencyFactors {
    /// From `config.json`.
    Values(Vec<f64>),
    /// An F32 tensor.
    Stored(TensorInfo),
}

impl fmt::Display for RopeScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RopeScaling::Default => f.write_str("no scaling"),
            RopeScaling::Linear { factor } => write!(f, "linear, factor {factor}"),
            RopeScaling::Llama3 { factor, original_context, .. } => {
                write!(f, "llama3, factor {factor} from {original_context}")
            }
            RopeScaling::Factors { tensor } => write!(f, "frequency factors stored in {}", tensor.name),
            RopeScaling::Yarn { factor, original_context, .. } => {
                write!(f, "yarn, factor {factor} from {original_context}")
            }
            RopeScaling::Proportional { pairs, .. } => write!(f, "{pairs} pairs"),
            RopeScaling::LongRope { original_context, .. } => {
                write!(f, "longrope, its long list beyond {original_context}")
            }
        }
    }
}

impl FrequencyFactors {
    fn tensor(&self) -> Option<&TensorInfo> {
        match self {
            FrequencyFactors::Stored(tensor) => Some(tensor),
            FrequencyFactors::Values(_) => None,
        }
    }
}

impl Rope {
    /// The positions that YaRN stretches the original context to.
    pub(super) fn scaled_context(&self) -> Option<usize> {
        let RopeScaling::Yarn { factor, original_context, .. } = self.scaling else { return None };
        Some((original_context as f64 * factor).min(f64::from(i32::MAX)) as usize)
    }

    /// The factor of the scaling, where the metadata gives one.
    pub fn factor(&self) -> Option<f64> {
        match self.scaling {
            RopeScaling::Linear { factor } | RopeScaling::Llama3 { factor, .. } | RopeScaling::Yarn { factor, .. } => {
                Some(factor)
            }
            _ => None,
        }
    }

    /// The stored tensors of frequency factors.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        let [first, second] = match &self.scaling {
            RopeScaling::Factors { tensor } => [Some(tensor), None],
            RopeScaling::LongRope { short, long, .. } => [short.tensor(), long.tensor()],
            _ => [None, None],
        };
        first.into_iter().chain(second)
    }
}
