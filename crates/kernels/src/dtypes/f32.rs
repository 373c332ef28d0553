//! F32: multiplied as stored.
//!
//! Lane `i` of 16 (by AVX2 and NEON, of 8) adds up the products whose index is `i` modulo 16, in order; the lanes are added by
//! `sum_lanes`.

super::floats::float_kernels!(F32, "f32", Native, f32, f32::from_le_bytes);
