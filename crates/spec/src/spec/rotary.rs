//! Rotary position embeddings of models.

use crate::block::RopeLayout;
use crate::header::TensorInfo;
use std::fmt;

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements are rotated as a pair.
    pub layout: RopeLayout,
    /// The base of the frequencies.
    pub theta: f64,
    /// The change of the frequencies from `theta^(-2i/dimensions)`.
    pub scaling: RopeScaling,
    /// Leading elements of a head that are rotated.
    pub dimensions: usize,
    /// The factor of cosines and sines: 1, unless the scaling sets another.
    pub magnitude: f64,
    /// The factor of products of queries and keys that belongs to the scaling: 1, unless the family has one.
    pub score_factor: f64,
    /// Which pairs turn by which of the three positions of an image's rows, where the family tells them apart.
    pub sections: Option<RopeSections>,
    /// The keys or tensors that this was read from.
    pub source: String,
}

/// Which pairs of a head turn by the position in time, in height and in width. Those of text are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeSections {
    /// The pairs of each.
    pub counts: [usize; 3],
    /// Whether every third pair from the second on turns by height, and from the third on by width, as many as are counted
    /// (Qwen3-VL); else pairs lie side by side (Qwen2-VL).
    pub interleaved: bool,
}

impl RopeSections {
    /// Which of the three positions pair `pair` turns by.
    pub fn axis(&self, pair: usize) -> usize {
        let [time, height, _] = self.counts;
        match self.interleaved {
            true if !pair.is_multiple_of(3) && pair < self.counts[pair % 3].saturating_mul(3) => pair % 3,
            true => 0,
            false => usize::from(pair >= time) + usize::from(pair >= time.saturating_add(height)),
        }
    }
}

/// Queries are multiplied by `1 + beta * ln(1 + floor((position + first) / period))` (transformers `get_llama_4_attn_scale` of
/// `modeling_ministral3.py`; `modeling_llama4.py`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryScale {
    /// How fast the factor grows.
    pub beta: f64,
    /// Positions with one factor: the context of the original training.
    pub period: u64,
    /// The number of the first position.
    pub first: u64,
}

impl QueryScale {
    /// The factor at `position`.
    pub fn at(&self, position: usize) -> f32 {
        let periods = (position as u64).saturating_add(self.first) / self.period;
        (1.0 + self.beta * (periods as f64).ln_1p()) as f32
    }
}

/// A change of the rotary frequencies, by the formulas of transformers (`modeling_rope_utils.py`). Complete.
/// `original_context` is the context of the original training.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum RopeScaling {
    /// No change.
    Default,
    /// Every frequency is divided by `factor`.
    Linear { factor: f64 },
    /// Frequencies of wavelengths above `original_context / low_freq_factor` are divided by `factor`, those below
    /// `original_context / high_freq_factor` are kept, with a ramp between (`llama3`).
    Llama3 { factor: f64, low_freq_factor: f64, high_freq_factor: f64, original_context: u64 },
    /// A stored F32 tensor of `dimensions / 2` factors, by which the frequencies are divided (GGUF `rope_freqs.weight`).
    Factors { tensor: TensorInfo },
    /// Frequencies of pairs that turn less often than `beta_slow` in the original context are divided by `factor`,
    /// those that turn more often than `beta_fast` are kept, with a ramp between over the pairs of a head, whose ends
    /// are rounded to whole pairs if `truncate` is set (`yarn`).
    Yarn { factor: f64, original_context: u64, beta_fast: f64, beta_slow: f64, truncate: bool },
    /// Only the first `pairs` are rotated, with the frequencies of all pairs of the head divided by `factor` (`proportional`).
    Proportional { factor: f64, pairs: usize },
    /// Every frequency is divided by one of two lists, chosen by the length of the whole sequence: `short` up to
    /// `original_context`, and `long` beyond, where `long_magnitude` replaces [`Rope::magnitude`] (`longrope`).
    LongRope { short: FrequencyFactors, long: FrequencyFactors, long_magnitude: f64, original_context: usize },
}

/// Divisors of the frequencies, `dimensions / 2` numbers: `short_factor` and `long_factor` in `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub enum FrequencyFactors {
    /// Numbers from `config.json`.
    Values(Vec<f64>),
    /// A stored F32 tensor.
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
    /// The number of positions to which YaRN extends the original context.
    pub(super) fn scaled_context(&self) -> Option<usize> {
        let RopeScaling::Yarn { factor, original_context, .. } = self.scaling else { return None };
        Some((original_context as f64 * factor).min(f64::from(i32::MAX)) as usize)
    }

    /// The factor of the scaling, if the metadata gives one.
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
