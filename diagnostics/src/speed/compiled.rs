//! Written by `benches/cuda/sass.py --record`: what the compiler makes of the GPU's products.

use model_factory_dtypes::DType;

/// Instructions that a warp issues in a turn of the inner loop, and its multiplications: of the kernel for one token, with
/// the instructions before and behind the loop, and of the kernel for many.
pub(super) type Compiled = (DType, [u32; 3], Option<[u32; 2]>);

#[rustfmt::skip]
pub(super) const COMPILED: &[Compiled] = &[
    (DType::F32,   [77, 1024, 145], None),
    (DType::F16,   [189, 2048, 143], Some([395, 393216])),
    (DType::BF16,  [189, 2048, 143], Some([395, 393216])),
    (DType::I8,    [123, 4096, 161], Some([405, 786432])),
    (DType::Q4_0,  [340, 4096, 161], Some([1136, 262144])),
    (DType::Q4_1,  [310, 4096, 161], Some([1418, 262144])),
    (DType::Q5_0,  [468, 4096, 161], Some([1202, 262144])),
    (DType::Q5_1,  [434, 4096, 161], Some([1481, 262144])),
    (DType::Q8_0,  [352, 4096, 154], Some([1083, 262144])),
    (DType::Q2_K,  [321, 4096, 149], Some([1734, 262144])),
    (DType::Q3_K,  [474, 4096, 161], Some([1334, 262144])),
    (DType::Q4_K,  [370, 8192, 165], Some([1387, 262144])),
    (DType::Q5_K,  [541, 8192, 166], Some([1453, 262144])),
    (DType::Q6_K,  [427, 4096, 162], Some([1793, 262144])),
];
