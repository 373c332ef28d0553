//! The stored dtypes, a file each, and what they share.

pub(crate) mod bf16;
pub(crate) mod blocks;
pub(crate) mod codes;
pub(crate) mod e4m3;
mod f16;
mod f32;
mod f4;
mod fields;
mod floats;
mod grids;
pub(crate) mod i8;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
pub(crate) mod mxfp4;
pub(crate) mod nvfp4;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
pub(crate) mod q4_0;
mod q4_1;
pub(crate) mod q4_k;
pub(crate) mod q5_0;
mod q5_1;
pub(crate) mod q5_k;
pub(crate) mod q6_k;
pub(crate) mod q8_0;
mod s8;
pub(crate) mod scaled;
mod tables;
mod tq1_0;
mod tq2_0;
mod u4;
mod u8;

use super::Registered;

/// The registry: one line for each dtype; in each file the fastest comes first. A function that is not inlined, as all kernels would be
/// compiled for the unit tests with a `static`, and for each crate that selects one with a `const`.
#[inline(never)]
pub(crate) fn registry() -> &'static [&'static [Registered]] {
    &[
        f32::KERNELS,
        f16::KERNELS,
        bf16::KERNELS,
        e4m3::KERNELS,
        i8::KERNELS,
        q8_0::KERNELS,
        q4_0::KERNELS,
        q5_0::KERNELS,
        q4_k::KERNELS,
        q5_k::KERNELS,
        q6_k::KERNELS,
        q4_1::KERNELS,
        q5_1::KERNELS,
        q2_k::KERNELS,
        q3_k::KERNELS,
        iq4_nl::KERNELS,
        iq4_xs::KERNELS,
        iq3_s::KERNELS,
        iq3_xxs::KERNELS,
        iq2_s::KERNELS,
        iq2_xs::KERNELS,
        iq2_xxs::KERNELS,
        iq1_s::KERNELS,
        iq1_m::KERNELS,
        mxfp4::KERNELS,
        f4::KERNELS,
        nvfp4::KERNELS,
        q1_0::KERNELS,
        q2_0::KERNELS,
        tq1_0::KERNELS,
        tq2_0::KERNELS,
        fields::u2::KERNELS,
        fields::u3::KERNELS,
        u4::KERNELS,
        fields::u5::KERNELS,
        fields::u6::KERNELS,
        u8::KERNELS,
        s8::KERNELS,
        tables::NF4,
        tables::FP4,
    ]
}
