//! F32: multiplied as stored; summed in the order of `floats.rs`.

super::floats::float_kernels!(F32, "f32", Native, f32, f32::from_le_bytes);
