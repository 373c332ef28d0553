//! The quantization methods that are recognised and not computed: one row a method, with the places where it announces
//! itself. Tables hold data only.
//!
//! Methods and keys: transformers 5 `utils/quantization_config.py`. Tensor names: its `integrations/` and `quantizers/`.
//! Those of EXL2, EXL3, MLX, QuIP#, SmoothQuant and quanto are what published checkpoints have, as far as known.

use model_factory_dtypes::DType;

/// One method.
#[derive(Debug)]
pub(super) struct Method {
    /// What people call it.
    pub(super) name: &'static str,
    /// Values of `quant_method`.
    pub(super) quant_methods: &'static [&'static str],
    /// Sets of marks; the tensors are of this method when every mark of one set is found.
    pub(super) tensors: &'static [&'static [Mark]],
    /// The GGUF file type of about the same size, where `bits` does not say.
    pub(super) nearest: &'static str,
}

/// A tensor that tells a method: the end of its name, or any part of it, and the dtype it then has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// A name that ends so.
    End(&'static str),
    /// A name with this in it.
    Part(&'static str),
    /// A name that ends so, of one of these dtypes.
    Typed(&'static str, &'static [DType]),
}

use Mark::{End, Part, Typed};

const F8: &[DType] =
    &[DType::F8_E4M3, DType::F8_E5M2, DType::F8_E4M3FNUZ, DType::F8_E5M2FNUZ, DType::F6_E2M3, DType::F6_E3M2];
const BYTE: &[DType] = &[DType::U8, DType::I8];

/// Blocks of experts, which run.
pub(super) const MXFP4: &str = "MXFP4";

/// I8 matrices with scales, where nothing says how activations are to be quantised.
pub(super) const INT8_WITH_SCALES: &str = "int8 with scales (the layout of compressed-tensors)";

/// Tried from the top: a row whose marks are a part of another's comes after it.
#[rustfmt::skip]
pub(super) const METHODS: &[Method] = &[
    Method { name: "GPTQ", quant_methods: &["gptq", "marlin", "gptq_marlin"], nearest: "Q4_K_M",
             tensors: &[&[End(".qweight"), End(".g_idx")]] },
    Method { name: "AWQ", quant_methods: &["awq", "awq_marlin"], nearest: "Q4_K_M", tensors: &[] },
    Method { name: "AWQ, or GPTQ without g_idx", quant_methods: &[], nearest: "Q4_K_M",
             tensors: &[&[End(".qweight"), End(".qzeros")]] },
    Method { name: "FP-Quant", quant_methods: &["fp_quant"], nearest: "Q4_K_M",
             tensors: &[&[End(".forward_hadamard_matrix")], &[End(".qweight"), End(".act_global_scale")]] },
    Method { name: "AutoRound", quant_methods: &["auto-round", "intel/auto-round"], nearest: "Q4_K_M", tensors: &[] },
    Method { name: "bitsandbytes 4-bit", quant_methods: &[], nearest: "Q4_K_M",
             tensors: &[&[Part(".quant_state.bitsandbytes__")], &[End(".absmax"), End(".quant_map")]] },
    Method { name: "bitsandbytes 8-bit (LLM.int8)", quant_methods: &[], nearest: "Q8_0", tensors: &[&[End(".SCB")]] },
    Method { name: "bitsandbytes", quant_methods: &["bitsandbytes"], nearest: "Q8_0", tensors: &[] },
    Method { name: "FP8 in blocks", quant_methods: &[], nearest: "Q8_0",
             tensors: &[&[Typed(".weight", F8), End(".weight_scale_inv")]] },
    Method { name: "FBGEMM FP8", quant_methods: &["fbgemm_fp8"], nearest: "Q8_0", tensors: &[] },
    Method { name: "FP8", quant_methods: &["fp8"], nearest: "Q8_0",
             tensors: &[&[Typed(".weight", F8), End(".weight_scale")], &[Typed(".weight", F8), End(".scale_weight")]] },
    Method { name: "NVFP4", quant_methods: &["nvfp4"], nearest: "Q4_K_M",
             tensors: &[&[Typed(".weight", BYTE), End(".weight_scale_2")], &[End(".weight_packed"), End(".weight_global_scale")]] },
    Method { name: "ModelOpt", quant_methods: &["modelopt", "modelopt_fp4"], nearest: "Q8_0", tensors: &[] },
    Method { name: MXFP4, quant_methods: &["mxfp4"], nearest: "Q4_K_M",
             tensors: &[&[Typed("_blocks", &[DType::U8]), Typed("_scales", &[DType::U8])]] },
    Method { name: "MXFP8", quant_methods: &["mxfp8"], nearest: "Q8_0", tensors: &[] },
    Method { name: "compressed-tensors", quant_methods: &["compressed-tensors"], nearest: "Q8_0",
             tensors: &[&[End(".weight_packed")], &[End(".weight_shape"), End(".weight_scale")],
                        &[End(".bitmask"), End(".compressed")]] },
    Method { name: INT8_WITH_SCALES, quant_methods: &[], nearest: "Q8_0",
             tensors: &[&[Typed(".weight", &[DType::I8]), End(".weight_scale")]] },
    Method { name: "SmoothQuant int8", quant_methods: &["smoothquant"], nearest: "Q8_0",
             tensors: &[&[Typed(".weight", &[DType::I8]), End(".dequant_scale")], &[Typed(".weight", &[DType::I8]), End(".a")]] },
    Method { name: "BitNet", quant_methods: &["bitnet"], nearest: "Q4_K_M",
             tensors: &[&[Typed(".weight", &[DType::U8]), End(".weight_scale")]] },
    Method { name: "torchao", quant_methods: &["torchao"], nearest: "Q8_0",
             tensors: &[&[End("_weight_qdata")], &[End(".weight_qdata")]] },
    Method { name: "quanto", quant_methods: &["quanto"], nearest: "Q8_0",
             tensors: &[&[End(".weight._data")], &[End(".weight._data._data")]] },
    Method { name: "EETQ", quant_methods: &["eetq"], nearest: "Q8_0", tensors: &[&[End(".weight_scales")]] },
    Method { name: "HQQ", quant_methods: &["hqq"], nearest: "Q4_K_M", tensors: &[] },
    Method { name: "HQQ or SINQ", quant_methods: &[], nearest: "Q4_K_M", tensors: &[&[End(".W_q")]] },
    Method { name: "SINQ", quant_methods: &["sinq"], nearest: "Q4_K_M", tensors: &[] },
    Method { name: "AQLM", quant_methods: &["aqlm"], nearest: "Q4_K_M", tensors: &[&[End(".codes"), End(".codebooks")]] },
    Method { name: "VPTQ", quant_methods: &["vptq"], nearest: "Q4_K_M",
             tensors: &[&[End(".indices"), Part(".centroids")]] },
    Method { name: "SpQR", quant_methods: &["spqr"], nearest: "Q4_K_M",
             tensors: &[&[End(".dense_weights"), End(".row_offsets")]] },
    Method { name: "HIGGS", quant_methods: &["higgs"], nearest: "Q4_K_M", tensors: &[&[End(".tables2")]] },
    Method { name: "QuIP#", quant_methods: &["quip", "quip#"], nearest: "Q4_K_M", tensors: &[&[End(".Qidxs")]] },
    Method { name: "Quark", quant_methods: &["quark"], nearest: "Q8_0", tensors: &[&[Part(".weight_quantizer.")]] },
    Method { name: "Four Over Six", quant_methods: &["fouroversix"], nearest: "Q4_K_M", tensors: &[] },
    Method { name: "EXL2", quant_methods: &["exl2"], nearest: "Q4_K_M",
             tensors: &[&[End(".q_weight"), End(".q_scale")]] },
    Method { name: "EXL3", quant_methods: &["exl3"], nearest: "Q4_K_M", tensors: &[&[End(".trellis")]] },
    Method { name: "MLX", quant_methods: &["mlx", "metal"], nearest: "Q4_K_M",
             tensors: &[&[Typed(".weight", &[DType::U32]), End(".scales")]] },
    Method { name: "ipex-llm low bit", quant_methods: &["ipex-llm"], nearest: "Q8_0", tensors: &[] },
    Method { name: "DeepSpeedFP", quant_methods: &["deepspeedfp"], nearest: "Q8_0", tensors: &[] },
    Method { name: "Gemma's own", quant_methods: &["gemma"], nearest: "Q4_K_M", tensors: &[] },
];

/// Sections of `config.json` that announce a method.
pub(super) const SECTIONS: &[&str] = &["quantization_config", "compression_config", "quantization"];

/// Keys that tell a method where a section has no `quant_method`. The first that is there counts.
pub(super) const TELLING: &[(&str, &str)] = &[
    ("load_in_8bit", "bitsandbytes"),
    ("load_in_4bit", "bitsandbytes"),
    ("quant_algo", "ModelOpt"),
    ("config_groups", "compressed-tensors"),
    ("global_quant_config", "Quark"),
    ("weight_block_size", "FP8"),
    ("w_bit", "AWQ"),
    ("desc_act", "GPTQ"),
];

/// Keys worth saying, with the words around their value. `{}` stands for it; words without it stand for `true`.
pub(super) const DETAILS: &[(&str, &str)] = &[
    ("load_in_8bit", "8 bits"),
    ("load_in_4bit", "4 bits"),
    ("bits", "{} bits"),
    ("w_bit", "{} bits"),
    ("nbits", "{} bits"),
    ("num_bits", "{} bits"),
    ("in_group_size", "groups of {}"),
    ("group_size", "groups of {}"),
    ("q_group_size", "groups of {}"),
    ("weight_block_size", "blocks of {}"),
    ("bnb_4bit_quant_type", "{}"),
    ("quant_algo", "{}"),
    ("weights", "{}"),
    ("format", "{}"),
    ("type", "{}"),
    ("strategy", "a scale a {}"),
    ("dtype", "{}"),
    ("_type", "{}"),
    ("quant_type", "{}"),
    ("fmt", "{}"),
    ("mode", "{}"),
    ("activation_scheme", "{} activations"),
];

/// Keys under which nothing is said of weights.
pub(super) const OTHER_PARTS: &[&str] = &[
    "input_activations",
    "output_activations",
    "kv_cache_scheme",
    "input_tensors",
    "output_tensors",
    "calibration",
    "meta",
    "producer",
];
