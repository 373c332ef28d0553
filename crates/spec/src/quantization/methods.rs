//! The quantization methods that are recognised and not computed: one row a method, with the places where it announces
//! itself. Tables hold data only.
//!
//! Methods and keys: transformers 5 `utils/quantization_config.py`. Tensor names: its `integrations/` and `quantizers/`.
//! Those of EXL2, EXL3, MLX, QuIP#, SmoothQuant and quanto are what published checkpoints have, as far as known.

use model_factory_dtypes::DType;

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

const fn method(
    name: &'static str,
    quant_methods: &'static [&'static str],
    nearest: &'static str,
    tensors: &'static [&'static [Mark]],
) -> Method {
    Method { name, quant_methods, tensors, nearest }
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
const I8: &[DType] = &[DType::I8];
const U8: &[DType] = &[DType::U8];
const BYTE: &[DType] = &[DType::U8, DType::I8];

const Q4: &str = "Q4_K_M";
const Q8: &str = "Q8_0";

/// Blocks of experts, which run.
pub(super) const MXFP4: &str = "MXFP4";

/// Of whose formats some run.
pub(super) const COMPRESSED_TENSORS: &str = "compressed-tensors";

/// Floats of 8 bits, which run where a config says what their scales are.
pub(super) const FP8: [&str; 2] = ["FP8 in blocks", "FP8"];

/// I8 matrices with scales, where nothing says how activations are to be quantised.
pub(super) const INT8_WITH_SCALES: &str = "int8 with scales (the layout of compressed-tensors)";

/// Tried from the top: a row whose marks are a part of another's comes after it.
#[rustfmt::skip]
pub(super) const METHODS: &[Method] = &[
    method("GPTQ", &["gptq", "marlin", "gptq_marlin"], Q4, &[&[End(".qweight"), End(".g_idx")]]),
    method("AWQ", &["awq", "awq_marlin"], Q4, &[]),
    method("AWQ, or GPTQ without g_idx", &[], Q4, &[&[End(".qweight"), End(".qzeros")]]),
    method("FP-Quant", &["fp_quant"], Q4,
           &[&[End(".forward_hadamard_matrix")], &[End(".qweight"), End(".act_global_scale")]]),
    method("AutoRound", &["auto-round", "intel/auto-round"], Q4, &[]),
    method("bitsandbytes 4-bit", &[], Q4,
           &[&[Part(".quant_state.bitsandbytes__")], &[End(".absmax"), End(".quant_map")]]),
    method("bitsandbytes 8-bit (LLM.int8)", &[], Q8, &[&[End(".SCB")]]),
    method("bitsandbytes", &["bitsandbytes"], Q8, &[]),
    method(FP8[0], &[], Q8, &[&[Typed(".weight", F8), End(".weight_scale_inv")]]),
    method("FBGEMM FP8", &["fbgemm_fp8"], Q8, &[]),
    method(FP8[1], &["fp8"], Q8,
           &[&[Typed(".weight", F8), End(".weight_scale")], &[Typed(".weight", F8), End(".scale_weight")]]),
    method("NVFP4", &["nvfp4"], Q4,
           &[&[Typed(".weight", BYTE), End(".weight_scale_2")], &[End(".weight_packed"), End(".weight_global_scale")]]),
    method("ModelOpt", &["modelopt", "modelopt_fp4"], Q8, &[]),
    method(MXFP4, &["mxfp4"], Q4, &[&[Typed("_blocks", U8), Typed("_scales", U8)]]),
    method("MXFP8", &["mxfp8"], Q8, &[]),
    method(COMPRESSED_TENSORS, &["compressed-tensors"], Q8,
           &[&[End(".weight_packed")], &[End(".weight_shape"), End(".weight_scale")],
             &[End(".bitmask"), End(".compressed")]]),
    method(INT8_WITH_SCALES, &[], Q8, &[&[Typed(".weight", I8), End(".weight_scale")]]),
    method("SmoothQuant int8", &["smoothquant"], Q8,
           &[&[Typed(".weight", I8), End(".dequant_scale")], &[Typed(".weight", I8), End(".a")]]),
    method("BitNet", &["bitnet"], Q4, &[&[Typed(".weight", U8), End(".weight_scale")]]),
    method("torchao", &["torchao"], Q8, &[&[End("_weight_qdata")], &[End(".weight_qdata")]]),
    method("quanto", &["quanto"], Q8, &[&[End(".weight._data")], &[End(".weight._data._data")]]),
    method("EETQ", &["eetq"], Q8, &[&[End(".weight_scales")]]),
    method("HQQ", &["hqq"], Q4, &[]),
    method("HQQ or SINQ", &[], Q4, &[&[End(".W_q")]]),
    method("SINQ", &["sinq"], Q4, &[]),
    method("AQLM", &["aqlm"], Q4, &[&[End(".codes"), End(".codebooks")]]),
    method("VPTQ", &["vptq"], Q4, &[&[End(".indices"), Part(".centroids")]]),
    method("SpQR", &["spqr"], Q4, &[&[End(".dense_weights"), End(".row_offsets")]]),
    method("HIGGS", &["higgs"], Q4, &[&[End(".tables2")]]),
    method("QuIP#", &["quip", "quip#"], Q4, &[&[End(".Qidxs")]]),
    method("Quark", &["quark"], Q8, &[&[Part(".weight_quantizer.")]]),
    method("Four Over Six", &["fouroversix"], Q4, &[]),
    method("EXL2", &["exl2"], Q4, &[&[End(".q_weight"), End(".q_scale")]]),
    method("EXL3", &["exl3"], Q4, &[&[End(".trellis")]]),
    method("MLX", &["mlx", "metal"], Q4, &[&[Typed(".weight", &[DType::U32]), End(".scales")]]),
    method("ipex-llm low bit", &["ipex-llm"], Q8, &[]),
    method("DeepSpeedFP", &["deepspeedfp"], Q8, &[]),
    method("Gemma's own", &["gemma"], Q4, &[]),
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
pub(super) const OTHER_PARTS: &str = "input_activations output_activations kv_cache_scheme input_tensors output_tensors \
                                      calibration meta producer";
