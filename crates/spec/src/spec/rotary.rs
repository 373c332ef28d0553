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

/// A change to the rotary frequencies, whose formulas are those of transformers (`modeling_rope_utils.py`). Complete.
/// `original_context` is the context of the original training.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum RopeScaling {
    /// None.
    Default,
    /// Every frequency divided by `factor`.
    Linear { factor: f64 },
    /// Wavelengths above `original_context / low_freq_factor` have their frequencies divided by `factor`, those below
    /// `original_context / high_freq_factor` keep them, with a ramp between (`llama3`).
    Llama3 { factor: f64, low_freq_factor: f64, high_freq_factor: f64, original_context: u64 },
    /// A stored F32 tensor of `dimensions / 2` factors, by which the frequencies are divided (GGUF `rope_freqs.weight`).
    Factors { tensor: TensorInfo },
    /// Pairs that turn less often than `beta_slow` in the original context have their frequencies divided by `factor`, those
    /// that turn more often than `beta_fast` keep them, with a ramp between over the pairs of a head, whose ends are whole
    /// pairs where `truncate` says so (`yarn`).
    Yarn { factor: f64, original_context: u64, beta_fast: f64, beta_slow: f64, truncate: bool },
    /// Only the first `pairs` turn, at the frequencies of all of a head's pairs divided by `factor` (`proportional`).
    Proportional { factor: f64, pairs: usize },
    /// Every frequency divided by one of two lists, by the length of the whole sequence: `short` up to `original_context`, and
    /// `long` beyond, where cosines and sines are multiplied by `long_magnitude` in place of [`Rope::magnitude`]
    /// (`longrope`).
    LongRope { short: FrequencyFactors, long: FrequencyFactors, long_magnitude: f64, original_context: usize },
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
        if let FrequencyFactors::Stored(tensor) = self { Some(tensor) } else { None }
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
