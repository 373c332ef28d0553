//! F16: widened in a register; summed in the order of `floats.rs`.

super::floats::float_kernels!(F16, "f16", Widened, half::f16, crate::element::f16_to_f32);
