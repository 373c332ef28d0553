//! F16: widened in a register.
//!
//! Lane `i` of 16 (by AVX2 and NEON, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are added by
//! `sum_lanes`.

super::floats::float_kernels!(F16, "f16", Widened, half::f16, crate::element::f16_to_f32);
