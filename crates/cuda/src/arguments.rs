//! The parameters of the kernels, as `kernels/*.cuh` declare them. A test compares their sizes.

use bytemuck::{NoUninit, Pod, Zeroable};

/// The code of a stored float dtype in `common.cuh`; `None` for other dtypes.
pub(super) fn code(dtype: model_factory_dtypes::DType) -> Option<i32> {
    use model_factory_dtypes::DType;
    match dtype {
        DType::F32 => Some(0),
        DType::F16 => Some(1),
        DType::BF16 => Some(2),
        _ => None,
    }
}

/// One of the matrices that a launch multiplies.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct MatrixArguments {
    pub(super) weight: u64,
    pub(super) bias: u64,
    pub(super) scales: u64,
    pub(super) rows: i32,
    pub(super) column: i32,
    pub(super) bias_code: i32,
    pub(super) scales_code: i32,
    pub(super) scales_a_row: i32,
    pub(super) group: i32,
}

/// The most matrices that one launch multiplies.
pub(super) const MOST_MATRICES: usize = 3;

#[derive(Clone, Copy, Debug, NoUninit)]
#[repr(C)]
pub(super) struct Product {
    pub(super) x: u64,
    pub(super) steps: u64,
    pub(super) y: u64,
    pub(super) matrices: [MatrixArguments; MOST_MATRICES],
    pub(super) count: i32,
    pub(super) inputs: i32,
    pub(super) row_bytes: i32,
    pub(super) tokens: i32,
    pub(super) width: i32,
    pub(super) add: i32,
    pub(super) zeros: i32,
    pub(super) whole: i32,
}

#[derive(Clone, Copy, Debug, NoUninit)]
#[repr(C)]
pub(super) struct Embed {
    pub(super) weight: u64,
    pub(super) ids: u64,
    pub(super) out: u64,
    pub(super) width: i32,
    pub(super) row_bytes: i32,
}

#[derive(Clone, Copy, Debug, Default, NoUninit)]
#[repr(C)]
pub(super) struct Prepare {
    pub(super) x: u64,
    pub(super) gate: u64,
    pub(super) weight: u64,
    pub(super) bias: u64,
    pub(super) gather: u64,
    pub(super) out: u64,
    pub(super) steps: u64,
    pub(super) extents: u64,
    pub(super) source: i32,
    pub(super) form: i32,
    pub(super) width: i32,
    pub(super) stride: i32,
    pub(super) columns: i32,
    pub(super) weight_code: i32,
    pub(super) bias_code: i32,
    pub(super) eps: f32,
    pub(super) rule: i32,
    pub(super) zero: i32,
    pub(super) scale: f32,
    pub(super) together: i32,
}

#[derive(Clone, Copy, Debug, Default, NoUninit)]
#[repr(C)]
pub(super) struct Rotate {
    pub(super) qkv: u64,
    pub(super) cos: u64,
    pub(super) sin: u64,
    pub(super) q_norm: u64,
    pub(super) q_bias: u64,
    pub(super) k_norm: u64,
    pub(super) k_bias: u64,
    pub(super) places: u64,
    pub(super) pages: u64,
    pub(super) overflow: u64,
    pub(super) heads: i32,
    pub(super) kv_heads: i32,
    pub(super) dim: i32,
    pub(super) pairs: i32,
    pub(super) interleaved: i32,
    pub(super) halves: i32,
    pub(super) layer: i32,
    pub(super) layer_norm: i32,
    pub(super) q_norm_code: i32,
    pub(super) q_bias_code: i32,
    pub(super) k_norm_code: i32,
    pub(super) k_bias_code: i32,
    pub(super) eps: f32,
    pub(super) unused: i32,
}

#[derive(Clone, Copy, Debug, Default, NoUninit)]
#[repr(C)]
pub(super) struct Attend {
    pub(super) qkv: u64,
    pub(super) out: u64,
    pub(super) queries: u64,
    pub(super) pages: u64,
    pub(super) partial: u64,
    pub(super) arrived: u64,
    pub(super) heads: i32,
    pub(super) kv_heads: i32,
    pub(super) layer: i32,
    pub(super) window: i32,
    pub(super) parts: i32,
    pub(super) heads_a_block: i32,
    pub(super) scale: f32,
    pub(super) unused: i32,
}

#[derive(Clone, Copy, Debug, NoUninit)]
#[repr(C)]
pub(super) struct Copy16 {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) lines: u64,
}

#[derive(Clone, Copy, Debug, NoUninit)]
#[repr(C)]
pub(super) struct Rate {
    pub(super) out: u64,
    pub(super) count: i32,
    pub(super) unused: i32,
}
