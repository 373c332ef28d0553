//! The kernels' sources, and how they are combined: one module for each dtype, one for attention with
//! heads of one size, and one for the rest.

use model_factory_dtypes::DType;

/// Kernels that are compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Module {
    /// Norms, activations, rotation.
    Steps,
    /// Attention with heads of `dim` elements over a cache in F16 if `halves`, else in F32.
    Attention { dim: usize, halves: bool },
    /// The products with matrices of a dtype.
    Matrix(DType),
}

/// How the kernels of a dtype read activations and weights. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    Halves,
    /// Signed bytes, whose scales are stored apart.
    Int8,
    /// Blocks with scales in them.
    Blocks,
}

/// The dtypes with kernels, and the file of each.
const MATRICES: &[(DType, Kind, &str)] = &[
    (DType::F32, Kind::F32, include_str!("kernels/f32.cu")),
    (DType::F16, Kind::Halves, include_str!("kernels/f16.cu")),
    (DType::BF16, Kind::Halves, include_str!("kernels/bf16.cu")),
    (DType::I8, Kind::Int8, include_str!("kernels/i8.cu")),
    (DType::Q4_0, Kind::Blocks, include_str!("kernels/q4_0.cu")),
    (DType::Q4_1, Kind::Blocks, include_str!("kernels/q4_1.cu")),
    (DType::Q5_0, Kind::Blocks, include_str!("kernels/q5_0.cu")),
    (DType::Q5_1, Kind::Blocks, include_str!("kernels/q5_1.cu")),
    (DType::Q8_0, Kind::Blocks, include_str!("kernels/q8_0.cu")),
    (DType::Q2_K, Kind::Blocks, include_str!("kernels/q2_k.cu")),
    (DType::Q3_K, Kind::Blocks, include_str!("kernels/q3_k.cu")),
    (DType::Q4_K, Kind::Blocks, include_str!("kernels/q4_k.cu")),
    (DType::Q5_K, Kind::Blocks, include_str!("kernels/q5_k.cu")),
    (DType::Q6_K, Kind::Blocks, include_str!("kernels/q6_k.cu")),
];

const TYPES: &str = include_str!("kernels/types.cuh");
const COMMON: &str = include_str!("kernels/common.cuh");
const TILE: &str = include_str!("kernels/tile.cuh");
const FLOATS: &str = include_str!("kernels/floats.cuh");
const HALVES: &str = include_str!("kernels/halves.cuh");
const FACTORS: &str = include_str!("kernels/factors.cuh");
const BLOCKS: &str = include_str!("kernels/blocks.cuh");
const STAGED: &str = include_str!("kernels/staged.cuh");
const PAIRS: &str = include_str!("kernels/pairs.cuh");
const MATRIX: &str = include_str!("kernels/matrix.cuh");
const STEPS: &str = include_str!("kernels/steps.cu");
const ATTENTION: &str = include_str!("kernels/attention.cu");
const ATTENTION_MANY: &str = include_str!("kernels/attention_many.cu");

const DEVICE: &str = include_str!("kernels/device.cuh");

/// The matrix dtypes that have kernels.
pub fn dtypes() -> impl Iterator<Item = DType> {
    MATRICES.iter().map(|row| row.0)
}

/// How matrices of `dtype` are read; `None` where there is no kernel.
pub(super) fn kind(dtype: DType) -> Option<Kind> {
    MATRICES.iter().find(|row| row.0 == dtype).map(|row| row.1)
}

impl Module {
    /// Every module; for attention some sizes, among them some whose quads reach over the end of a row.
    #[cfg(test)]
    pub(super) fn all() -> impl Iterator<Item = Module> {
        let attention = [(18, true), (80, true), (128, true), (128, false), (256, false)];
        std::iter::once(Module::Steps)
            .chain(attention.map(|(dim, halves)| Module::Attention { dim, halves }))
            .chain(dtypes().map(Module::Matrix))
    }

    pub(super) fn name(self) -> String {
        match self {
            Module::Steps => "steps.cu".into(),
            Module::Attention { .. } => "attention.cu".into(),
            Module::Matrix(dtype) => format!("{}.cu", dtype.name().to_lowercase()),
        }
    }

    /// The whole text. Empty for a dtype without kernels.
    pub(super) fn source(self) -> String {
        let mut sizes = String::new();
        let parts: Vec<&str> = match self {
            Module::Steps => vec![STEPS],
            Module::Attention { dim, halves } => {
                sizes = format!("#define DIM {dim}\n#define HALVES {}", u8::from(halves));
                vec![ATTENTION, ATTENTION_MANY]
            }
            Module::Matrix(dtype) => match MATRICES.iter().find(|row| row.0 == dtype) {
                Some((_, Kind::F32, own)) => vec![own, FLOATS],
                Some((_, Kind::Halves, own)) => vec![TILE, own, FLOATS, HALVES],
                Some((_, Kind::Int8, own)) => vec![TILE, own],
                Some((DType::Q4_K | DType::Q5_K, _, own)) => vec![TILE, FACTORS, own, BLOCKS, PAIRS, MATRIX],
                Some((_, Kind::Blocks, own)) => vec![TILE, FACTORS, own, BLOCKS, STAGED, MATRIX],
                None => return String::new(),
            },
        };
        [TYPES, DEVICE, COMMON, &sizes].into_iter().chain(parts).collect::<Vec<_>>().join("\n")
    }
}
