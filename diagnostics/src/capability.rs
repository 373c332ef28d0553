//! dtype x engine x features -> tier: the one answer to "is this dtype supported?"
//!
//! The tables below are the whole knowledge. A test of the engine's package holds them against the kernels that exist,
//! both ways. Compute capabilities: NVIDIA's tables of GPUs and of arithmetic throughput, and the PTX manual's target
//! notes of `fma`, `dp4a` and `mma`.

use crate::plan::ActivationDtype;
use model_factory_dtypes::DType;

pub use model_factory_dtypes::{GPU_MOST_HEAD_DIM, LOWEST_CUDA, Tier, cpu_level};

/// What a tensor is used for, as far as the code that reads it differs. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorKind {
    /// A projection, the embedding or the head: read by a matrix kernel, one file a dtype.
    Matrix,
    /// A norm's scale, a bias or the rope frequency factors: read element by element.
    Vector,
}

/// What computes, with the features that decide. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum DeviceEngine<'a> {
    /// The processor, with its instruction sets by their usual names (see [`Cpu`](crate::hardware::Cpu)).
    Cpu { features: &'a [&'static str] },
    /// An NVIDIA GPU, and whether kernels for GPUs are compiled into the build.
    Cuda { compute_capability: ComputeCapability, compiled: bool },
}

/// Major and minor.
pub type ComputeCapability = (u32, u32);

/// Why an engine does not compute with a dtype. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum Lacking {
    /// No kernel reads the stored dtype in place, so running it would need a cast.
    #[error("{dtype} {}", match role {
        TensorKind::Matrix => format!("matrices have no {engine} kernel that computes on the stored bytes"),
        TensorKind::Vector => format!("vectors are not read by the {engine}"),
    })]
    Kernel { dtype: DType, role: TensorKind, engine: &'static str },
    /// The GPU lacks the arithmetic; `needed` is the first compute capability that has it, and `kernel` whether GPUs
    /// that have it would run the dtype.
    #[error("{dtype} matrices need compute capability {}.{}, found {}.{}", needed.0, needed.1, found.0, found.1)]
    Capability { dtype: DType, found: ComputeCapability, needed: ComputeCapability, kernel: bool },
    /// The engine itself is not part of this build.
    #[error("this build has no {engine} engine")]
    Build { engine: &'static str },
}

/// The lowest compute capability that kernels are made for: Maxwell.
pub const LOWEST_COMPUTE_CAPABILITY: ComputeCapability = (5, 0);

/// What executes F16 arithmetic at a 64th of its F32 rate (CUDA programming guide, arithmetic instructions).
pub const SLOW_F16: ComputeCapability = (6, 1);

/// When a processor multiplies a dtype itself.
#[derive(Clone, Copy)]
enum Native {
    /// On every machine.
    Always,
    /// Where one of these features is present; widened elsewhere.
    With(&'static [&'static str]),
    /// Nowhere: always widened.
    Never,
}

/// What a GPU needs for a dtype.
#[derive(Clone, Copy)]
struct OnGpus {
    /// The first compute capability whose arithmetic the dtype needs.
    from: ComputeCapability,
    /// The first that multiplies the stored values; below it they are widened in registers.
    native: ComputeCapability,
    /// Whether there is a kernel.
    kernel: bool,
}

const fn gpus(from: ComputeCapability, native: ComputeCapability) -> Option<OnGpus> {
    Some(OnGpus { from, native, kernel: true })
}

/// A GPU has the arithmetic from this compute capability on, and there is no kernel for it.
const fn no_kernel(from: ComputeCapability) -> Option<OnGpus> {
    Some(OnGpus { from, native: from, kernel: false })
}

/// The integer products of blocks on GPUs: by DP4A, which 6.0 lacks and 6.1, 6.2 and all from 7.0 have; integer tensor
/// cores come with 7.2.
const DP4A: Option<OnGpus> = gpus((6, 1), (6, 1));

/// Matrices by dtypes: on processors, where integer formats multiply integers on every machine, and on GPUs, where
/// tensor cores for F16 that the kernels use come with 7.5. Where nothing is said, there is no kernel.
#[rustfmt::skip]
const MATRICES: &[(&[DType], Option<Native>, Option<OnGpus>)] = &[
    (&[DType::F32],  Some(Native::Always),                        gpus((5, 0), (5, 0))),
    (&[DType::F16],  Some(Native::Never),                         gpus((5, 3), (7, 5))),
    (&[DType::BF16], Some(Native::With(&["avx512bf16", "amx-bf16", "bf16"])), gpus((8, 0), (8, 0))),
    (&[DType::I8, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q2_K, DType::Q3_K, DType::Q4_K,
       DType::Q5_K, DType::Q6_K],
     Some(Native::Always), DP4A),
    (&[DType::IQ4_NL, DType::IQ4_XS, DType::IQ3_S, DType::IQ3_XXS, DType::IQ2_S, DType::IQ2_XS, DType::IQ2_XXS,
       DType::IQ1_S, DType::IQ1_M, DType::TQ1_0, DType::TQ2_0, DType::MXFP4,
       DType::Q1_0, DType::Q2_0],
     Some(Native::Always), None),
    (&[DType::F4],   Some(Native::Always),                        no_kernel((10, 0))),
    (&[DType::U2, DType::U3, DType::U4, DType::U5, DType::U6, DType::U8, DType::S8], Some(Native::Always), None),
    (&[DType::NF4, DType::FP4], Some(Native::Never),              None),
    (&[DType::NVFP4], Some(Native::Always),                       no_kernel((10, 0))),
    (&[DType::F8_E4M3], Some(Native::Never),                      no_kernel((8, 9))),
    (&[DType::F8_E5M2], None,                                     no_kernel((8, 9))),
];

/// The row of a dtype: how processors and GPUs compute with its matrices.
fn matrices(dtype: DType) -> (Option<Native>, Option<OnGpus>) {
    MATRICES.iter().find(|row| row.0.contains(&dtype)).map_or((None, None), |row| (row.1, row.2))
}

/// How vectors of a dtype are read, on every engine.
fn vectors(dtype: DType) -> Option<Native> {
    match dtype {
        DType::F32 => Some(Native::Always),
        DType::F16 | DType::BF16 => Some(Native::Never),
        _ => None,
    }
}

/// How `engine` computes with matrices of `dtype`.
///
/// # Errors
/// What is lacking, when a cast would be needed or the engine is not there.
pub fn tier(dtype: DType, engine: &DeviceEngine<'_>) -> Result<Tier, Lacking> {
    tier_for(TensorKind::Matrix, dtype, engine)
}

/// How `engine` computes with tensors of `dtype` in `role`.
///
/// # Errors
/// What is lacking, when a cast would be needed or the engine is not there.
pub fn tier_for(role: TensorKind, dtype: DType, engine: &DeviceEngine<'_>) -> Result<Tier, Lacking> {
    match *engine {
        DeviceEngine::Cpu { features } => on_cpu(role, dtype, features),
        DeviceEngine::Cuda { compiled: false, .. } => Err(Lacking::Build { engine: "CUDA" }),
        DeviceEngine::Cuda { compute_capability, .. } => on_gpu(role, dtype, compute_capability),
    }
}

/// Dtypes of matrices whose formats prescribe activations of 16 bits.
pub const SIXTEEN_BITS: &[DType] =
    &[DType::U2, DType::U3, DType::U4, DType::U5, DType::U6, DType::U8, DType::S8, DType::F4];

/// What activations enter a product with matrices of `dtype` as, rounded on request: `f32`, `bf16`, `int16` or `int8`; `None` where
/// `engine` does not multiply them, and for GPUs.
pub fn activations(dtype: DType, engine: &DeviceEngine<'_>, request: ActivationDtype) -> Option<&'static str> {
    let DeviceEngine::Cpu { features } = *engine else { return None };
    Some(match (dtype, on_cpu(TensorKind::Matrix, dtype, features).ok()?) {
        (DType::BF16, Tier::Native) => "bf16",
        (DType::F32, _) | (_, Tier::Widened) => "f32",
        (DType::F4, _) => "int16",
        _ if SIXTEEN_BITS.contains(&dtype) && request == ActivationDtype::Prescribed => "int16",
        _ => "int8",
    })
}

fn on_cpu(role: TensorKind, dtype: DType, features: &[&str]) -> Result<Tier, Lacking> {
    let native = match role {
        TensorKind::Matrix => matrices(dtype).0,
        TensorKind::Vector => vectors(dtype),
    };
    Ok(match native.ok_or(Lacking::Kernel { dtype, role, engine: "CPU" })? {
        Native::Always => Tier::Native,
        Native::With(needed) if needed.iter().any(|feature| features.contains(feature)) => Tier::Native,
        Native::With(_) | Native::Never => Tier::Widened,
    })
}

fn on_gpu(role: TensorKind, dtype: DType, found: ComputeCapability) -> Result<Tier, Lacking> {
    let missing = Lacking::Kernel { dtype, role, engine: "CUDA" };
    if role == TensorKind::Vector {
        // Every GPU widens these element by element, as processors do.
        return on_cpu(role, dtype, &[]).map_err(|_| missing);
    }
    match matrices(dtype).1.ok_or(missing)? {
        OnGpus { from, kernel, .. } if found < from => Err(Lacking::Capability { dtype, found, needed: from, kernel }),
        OnGpus { kernel: false, .. } => Err(missing),
        OnGpus { native, .. } => Ok(if found >= native { Tier::Native } else { Tier::Widened }),
    }
}

/// A kind of model file as people name and offer it; used to say what would run instead.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FileType {
    /// The usual name: `Q4_K_M`.
    pub name: &'static str,
    /// Whether only GGUF files of it exist.
    pub gguf_only: bool,
    /// The dtypes of its matrices.
    pub matrices: &'static [DType],
    /// Mean bits a weight, for an estimate of the file's size.
    pub bits_per_weight: f64,
}

/// File types from the largest to the smallest. The figures of `Q5_K_M`, `Q4_K_M` and `Q4_0`, mixtures that depend on the
/// model, are the upper end of what Llama files of 1 to 70 billion parameters have; the others are the formats' own.
const FILE_TYPES: &[FileType] = &[
    FileType { name: "F32", gguf_only: false, matrices: &[DType::F32], bits_per_weight: 32.0 },
    FileType { name: "BF16", gguf_only: false, matrices: &[DType::BF16], bits_per_weight: 16.0 },
    FileType { name: "F16", gguf_only: false, matrices: &[DType::F16], bits_per_weight: 16.0 },
    FileType { name: "Q8_0", gguf_only: true, matrices: &[DType::Q8_0], bits_per_weight: 8.5 },
    FileType { name: "Q6_K", gguf_only: true, matrices: &[DType::Q6_K], bits_per_weight: 6.5625 },
    FileType { name: "Q5_K_M", gguf_only: true, matrices: &[DType::Q5_K, DType::Q6_K], bits_per_weight: 5.7 },
    FileType { name: "Q4_K_M", gguf_only: true, matrices: &[DType::Q4_K, DType::Q6_K], bits_per_weight: 4.95 },
    FileType { name: "Q4_0", gguf_only: true, matrices: &[DType::Q4_0, DType::Q6_K], bits_per_weight: 4.7 },
];

impl FileType {
    /// The file types that `engine` computes with, from the largest to the smallest.
    pub fn supported(engine: &DeviceEngine<'_>) -> impl Iterator<Item = &'static FileType> {
        let runs = move |file_type: &&FileType| file_type.matrices.iter().all(|&dtype| tier(dtype, engine).is_ok());
        FILE_TYPES.iter().filter(runs)
    }

    /// The bytes that a file of this type with `parameters` weights takes, about.
    pub fn estimated_bytes(&self, parameters: u64) -> u64 {
        (parameters as f64 * self.bits_per_weight / 8.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: DeviceEngine<'_> = DeviceEngine::Cpu { features: &["avx2"] };

    #[test]
    fn bf16_is_native_only_with_its_instruction_set() {
        assert_eq!(tier(DType::BF16, &PLAIN), Ok(Tier::Widened));
        for features in [&["avx512bf16"], &["amx-bf16"], &["bf16"]] {
            assert_eq!(tier(DType::BF16, &DeviceEngine::Cpu { features }), Ok(Tier::Native));
        }
    }

    #[test]
    fn every_dtype_has_an_answer_that_names_it() {
        for dtype in DType::all() {
            for role in [TensorKind::Matrix, TensorKind::Vector] {
                if let Err(lacking) = tier_for(role, dtype, &PLAIN) {
                    assert!(lacking.to_string().contains(dtype.name()), "{lacking}");
                }
            }
        }
        assert!(tier(DType::F8_E5M2, &PLAIN).is_err() && tier_for(TensorKind::Vector, DType::F16, &PLAIN).is_ok());
    }

    #[test]
    fn offers_only_file_types_that_run() {
        let names: Vec<_> = FileType::supported(&PLAIN).map(|file_type| file_type.name).collect();
        assert_eq!(names, ["F32", "BF16", "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0"]);
        let names = |engine| FileType::supported(&engine).map(|file_type| file_type.name).collect::<Vec<_>>();
        assert_eq!(names(gpu((7, 5))), ["F32", "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0"]);
        assert_eq!(names(gpu((6, 0))), ["F32", "F16"]);
        assert!(names(DeviceEngine::Cuda { compute_capability: (7, 5), compiled: false }).is_empty());
    }

    fn gpu(compute_capability: ComputeCapability) -> DeviceEngine<'static> {
        DeviceEngine::Cuda { compute_capability, compiled: true }
    }

    /// Every compute capability that NVIDIA has sold a product of since Maxwell, and one before.
    const GENERATIONS: [ComputeCapability; 20] = [
        (3, 7),
        (5, 0),
        (5, 2),
        (5, 3),
        (6, 0),
        (6, 1),
        (6, 2),
        (7, 0),
        (7, 2),
        (7, 5),
        (8, 0),
        (8, 6),
        (8, 7),
        (8, 9),
        (9, 0),
        (10, 0),
        (10, 3),
        (11, 0),
        (12, 0),
        (12, 1),
    ];

    /// One row a dtype, one letter a generation: native, widened, capability lacking, `-` no kernel.
    #[test]
    fn the_matrix_of_gpus() {
        let row = |dtype| {
            let letter = |&found: &ComputeCapability| match tier(dtype, &gpu(found)) {
                Ok(Tier::Native) => 'n',
                Ok(Tier::Widened) => 'w',
                Err(Lacking::Capability { needed, .. }) if found < needed => 'c',
                Err(_) => '-',
            };
            GENERATIONS.iter().map(letter).collect::<String>()
        };
        let rows = [
            (DType::F32, "cnnnnnnnnnnnnnnnnnnn"),
            (DType::F16, "cccwwwwwwnnnnnnnnnnn"),
            (DType::BF16, "ccccccccccnnnnnnnnnn"),
            (DType::I8, "cccccnnnnnnnnnnnnnnn"),
            (DType::Q4_K, "cccccnnnnnnnnnnnnnnn"),
            (DType::F8_E5M2, "ccccccccccccc-------"),
            (DType::F8_E4M3, "ccccccccccccc-------"),
            (DType::NVFP4, "ccccccccccccccc-----"),
            (DType::IQ4_NL, "--------------------"),
            (DType::MXFP4, "--------------------"),
            (DType::F64, "--------------------"),
        ];
        for (dtype, expected) in rows {
            assert_eq!(row(dtype), expected, "{dtype}");
        }
        assert_eq!(tier_for(TensorKind::Vector, DType::BF16, &gpu((5, 0))), Ok(Tier::Widened));
    }
}
