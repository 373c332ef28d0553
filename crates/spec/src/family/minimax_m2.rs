//! MiniMax-M2: experts chosen by sigmoids with a bias, norms over all heads of q and k. A table of GGUF alone.

use super::*;

#[rustfmt::skip]
const BIAS: &[TensorName] = &[
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "" },
];

pub(super) const FAMILY: Family = Family {
    id: "minimax_m2",
    gguf_architectures: &["minimax-m2"],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, BIAS],
    biases: &[(&[Role::ChoiceBias], Bias::Always)],
    block: BlockTable { head_norms: HeadNorms::OfAllHeads, ..BLOCK },
    experts: Some(ExpertTable { score: RouterScore::Sigmoid, normalized: Normalized::Fixed(true), ..ROUTED }),
    rope: RopeTable { rotary_part: Some((0.5, "llama.cpp's converter")), ..ROPE },
    name: "MiniMax-M2",
    ..LLAMA_LIKE
};
