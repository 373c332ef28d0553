//! Written by `benches/cuda/sass.py --record`: what the compiler makes of the GPU's products.

use crate::dtype::DType;

/// Instructions that a warp issues in a turn of the inner loop, and its multiplications: of the kernel for one token, with
/// the instructions before and behind the loop, and of the kernel for many.
pub(super) type Compiled = (DType, [u32; 3], Option<[u32; 2]>);

#[rustfmt::skip]
pub(super) const COMPILED: &[Compiled] = &[
    (DType::F32,   [77, 1024, 145], None),
    (DType::F16,   [189, 2048, 143], Some([180, 65536])),
    (DType::BF16,  [189, 2048, 143], Some([180, 65536])),
    (DType::I8,    [123, 4096, 161], Some([233, 131072])),
    (DType::Q4_0,  [340, 4096, 161], Some([1036, 131072])),
    (DType::Q4_1,  [310, 4096, 161], Some([940, 131072])),
    (DType::Q5_0,  [468, 4096, 161], Some([1068, 131072])),
    (DType::Q5_1,  [434, 4096, 161], Some([971, 131072])),
    (DType::Q8_0,  [352, 4096, 154], Some([718, 131072])),
    (DType::Q2_K,  [321, 4096, 149], Some([1909, 131072])),
    (DType::Q3_K,  [474, 4096, 161], Some([1613, 131072])),
    (DType::Q4_K,  [370, 8192, 165], Some([987, 131072])),
    (DType::Q5_K,  [541, 8192, 166], Some([1045, 131072])),
    (DType::Q6_K,  [427, 4096, 162], Some([1575, 131072])),
];
