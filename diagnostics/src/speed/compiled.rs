//! Written by `benches/cuda/sass.py --record`: what the compiler makes of the GPU's products.

use crate::dtype::DType;

/// Instructions that a warp issues in a turn of the inner loop, and its multiplications: of the kernel for one token, with
/// the instructions before and behind the loop, and of the kernel for many.
pub(super) type Compiled = (DType, [u32; 3], Option<[u32; 2]>);

#[rustfmt::skip]
pub(super) const COMPILED: &[Compiled] = &[
    (DType::F32,   [77, 1024, 145], None),
    (DType::F16,   [189, 2048, 143], Some([355, 65536])),
    (DType::BF16,  [189, 2048, 143], Some([355, 65536])),
    (DType::I8,    [123, 4096, 161], Some([358, 131072])),
    (DType::Q4_0,  [393, 4096, 131], Some([1183, 131072])),
    (DType::Q4_1,  [364, 4096, 131], Some([1084, 131072])),
    (DType::Q5_0,  [521, 4096, 131], Some([1247, 131072])),
    (DType::Q5_1,  [487, 4096, 131], Some([1148, 131072])),
    (DType::Q8_0,  [364, 4096, 119], Some([868, 131072])),
    (DType::Q2_K,  [447, 4096, 134], Some([2036, 131072])),
    (DType::Q3_K,  [727, 4096, 133], Some([1870, 131072])),
    (DType::Q4_K,  [497, 4096, 131], Some([1198, 131072])),
    (DType::Q5_K,  [637, 4096, 130], Some([1250, 131072])),
    (DType::Q6_K,  [681, 4096, 130], Some([1790, 131072])),
];
