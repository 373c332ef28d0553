//! What is recognised and refused by name: quantization methods wherever they announce themselves, architectures of
//! other kinds, adapters. Every row asserts the exit code, the method or kind in words, and the file with the key or
//! the tensor.

// A sample that cannot be written is a broken test; `pub` is for the sibling modules.
#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "formats/build.rs"]
#[allow(dead_code)] // this file uses its part
mod build;
#[path = "hostile/edit.rs"]
#[allow(dead_code)] // this file uses its part
mod edit;
#[path = "hostile/table.rs"]
#[allow(dead_code)] // this file uses its part
mod table;

use build::{Tree, safetensors};
use edit::{Files, Gguf};
use model_factory_diagnostics::DType;
use serde_json::{Value, json};
use table::Table;

/// What every refusal of a method offers.
const OFFER: &str = "the unquantised checkpoint, or a GGUF";

fn model() -> Files {
    Files::fixture("llama-3.1/bf16")
}

/// The model with one more key in its `config.json`.
fn config(key: &str, value: Value) -> Files {
    model().json("config.json", |config| drop(config.insert(key.into(), value)))
}

#[test]
fn methods_are_named_by_config_json() {
    #[rustfmt::skip]
    let cases: &[(Value, &[&str])] = &[
        (json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true}), &["GPTQ, 4 bits, groups of 128", "Q4_K_M"]),
        (json!({"quant_method": "gptq", "bits": 8, "group_size": -1}), &["GPTQ, 8 bits, groups of -1", "Q8_0"]),
        (json!({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}), &["AWQ, 4 bits, groups of 64"]),
        (json!({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}}}), &["torchao, groups of 32, Int4WeightOnlyConfig"]),
        (json!({"quant_method": "torchao", "quant_type": "int8_weight_only"}), &["torchao, int8_weight_only"]),
        (json!({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}), &["HQQ, 4 bits, groups of 64"]),
        (json!({"quant_method": "eetq", "weights": "int8"}), &["EETQ, int8"]),
        (json!({"quant_method": "quanto", "weights": "int4"}), &["quanto, int4"]),
        (json!({"quant_method": "aqlm", "in_group_size": 8, "nbits_per_codebook": 16}), &["AQLM, groups of 8"]),
        (json!({"quant_method": "vptq", "config_for_layers": {}}), &["VPTQ"]),
        (json!({"quant_method": "spqr", "bits": 3}), &["SpQR, 3 bits"]),
        (json!({"quant_method": "higgs", "bits": 4, "group_size": 256}), &["HIGGS, 4 bits, groups of 256"]),
        (json!({"quant_method": "auto-round", "bits": 2, "group_size": 64}), &["AutoRound, 2 bits, groups of 64"]),
        (json!({"quant_method": "intel/auto-round", "bits": 4}), &["AutoRound, 4 bits"]),
        (json!({"quant_method": "bitnet"}), &["BitNet"]),
        (json!({"quant_method": "mxfp4"}), &["MXFP4"]),
        (json!({"quant_method": "mxfp8"}), &["MXFP8"]),
        (json!({"quant_method": "nvfp4"}), &["NVFP4"]),
        (json!({"quant_method": "quark", "global_quant_config": {"input_tensors": {"dtype": "int8"}, "weight": {"dtype": "uint4", "group_size": 128}}}), &["Quark, groups of 128, uint4"]),
        (json!({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}), &["FP-Quant"]),
        (json!({"quant_method": "sinq", "nbits": 4, "group_size": 64}), &["SINQ, 4 bits, groups of 64"]),
        (json!({"quant_method": "exl2", "bits": 4.25, "head_bits": 6, "version": "0.1.8"}), &["EXL2, 4.25 bits", "Q4_K_M"]),
        (json!({"quant_method": "exl3", "bits": 6.0}), &["EXL3, 6.0 bits", "Q6_K"]),
        (json!({"quant_method": "metal", "bits": 4, "group_size": 64}), &["MLX, 4 bits, groups of 64"]),
        (json!({"quant_method": "GPTQ", "bits": 3}), &["GPTQ, 3 bits"]),
        (json!({"quant_method": "fouroversix", "dtype": "nvfp4", "scale_rule": "mse"}), &["Four Over Six, nvfp4"]),
        (json!({"quant_method": "gemma", "bits": 4}), &["Gemma's own, 4 bits"]),
        (json!({"quant_method": "deepspeedfp", "bits": 6, "group_size": 512}), &["DeepSpeedFP, 6 bits, groups of 512", "Q6_K"]),
        (json!({"quant_method": "quip", "codebook": "E8P12"}), &["QuIP#"]),
        (json!({"quant_method": "smoothquant"}), &["SmoothQuant int8"]),
        (json!({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8DynamicActivationFloat8WeightConfig", "_version": 2}}}), &["torchao, Float8DynamicActivationFloat8WeightConfig"]),
        (json!({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}}), &["Quark, groups of 32, fp4"]),
        (json!({"quant_method": "qqq", "wbits": 4, "group_size": 128}), &["quantization method \"qqq\", groups of 128"]),
        (json!({"quant_method": "paroquant", "bits": 4}), &["quantization method \"paroquant\", 4 bits"]),
        (json!({"quant_method": "brand-new", "bits": 1.58}), &["quantization method \"brand-new\", 1.58 bits"]),
    ];
    let mut table = Table::default();
    for (section, says) in cases {
        let tree = config("quantization_config", section.clone()).tree();
        let says = [says, ["config.json", "quantization_config.quant_method", OFFER].as_slice()].concat();
        table.refuses(&section.to_string(), &tree, "", 12, &says);
    }
    #[rustfmt::skip]
    let elsewhere: &[(&str, Value, &[&str])] = &[
        ("quantization_config", json!({"load_in_4bit": true, "bnb_4bit_quant_type": "fp4"}), &["bitsandbytes, 4 bits, fp4", "quantization_config.load_in_4bit"]),
        ("quantization_config", json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false, "bnb_4bit_quant_type": "nf4"}), &["bitsandbytes, 4 bits, nf4", "load_in_4bit is true and no tensor is stored so", "Q4_K_M"]),
        ("quantization_config", json!({"quant_method": "bitsandbytes", "load_in_8bit": true}), &["bitsandbytes, 8 bits", "load_in_8bit is true and no tensor is stored so", "Q8_0"]),
        ("quantization_config", json!({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}), &["ModelOpt, groups of 128, W4A16_AWQ", "quantization_config.quant_algo is \"W4A16_AWQ\", expected"]),
        ("quantization_config", json!({"quant_method": "modelopt", "quant_algo": "NVFP4_SVD"}), &["ModelOpt, NVFP4_SVD", "quant_algo is"]),
        ("quantization_config", json!({"bits": 4}), &["a quantization_config without quant_method, 4 bits"]),
        ("quantization_config", json!({}), &["a quantization_config without quant_method"]),
        ("bigdl_transformers_low_bit", json!("sym_int4"), &["ipex-llm low bit, sym_int4", "bigdl_transformers_low_bit"]),
    ];
    let group = |format: &str, bits: u64, activations: Value| {
        let args = json!({"num_bits": bits, "type": "int", "strategy": "group", "group_size": 128});
        json!({"quant_method": "compressed-tensors", "format": format,
               "config_groups": {"group_0": {"targets": ["Linear"], "weights": args, "input_activations": activations}}})
    };
    let (int8, fp8) = (json!({"num_bits": 8, "type": "int"}), json!({"num_bits": 8, "type": "float"}));
    let with = |key: &str, value: Value| {
        let mut block = group("pack-quantized", 4, Value::Null);
        block[key] = value;
        block
    };
    const OF_GROUP: &str = "quantization_config.config_groups.group_0.";
    #[rustfmt::skip]
    let of_compressed_tensors: &[(Value, &[&str])] = &[
        (group("marlin-24", 4, Value::Null), &["quantization_config.format is \"marlin-24\""]),
        (group("mxfp6-pack-quantized", 6, Value::Null), &["quantization_config.format is \"mxfp6-pack-quantized\""]),
        (group("int-quantized", 4, int8), &[OF_GROUP, "weights.num_bits is 4", "expected 8, or activations of floats with pack-quantized"]),
        (group("int-quantized", 4, fp8), &[OF_GROUP, "weights.num_bits is 4"]),
        (group("pack-quantized", 2, Value::Null), &[OF_GROUP, "weights.num_bits is 2, expected 4 or 8"]),
        (with("sparsity_config", json!({"format": "sparse-24-bitmask"})), &["sparsity_config.format is \"sparse-24-bitmask\""]),
        (with("sparsity_config", json!({"format": "sparse-bitmask"})), &["sparsity_config.format is \"sparse-bitmask\""]),
        (with("transform_config", json!({"config_groups": {"R1": {"type": "hadamard"}}})), &["transform_config is given, expected none"]),
    ];
    let of_compressed_tensors: Vec<_> =
        of_compressed_tensors.iter().map(|(block, says)| ("quantization_config", block.clone(), *says)).collect();
    for (key, value, says) in elsewhere.iter().chain(&of_compressed_tensors) {
        let says = [says, ["config.json", OFFER].as_slice()].concat();
        table.refuses(&format!("{key} {value}"), &config(key, value.clone()).tree(), "", 12, &says);
    }
    // What runs where it is stored.
    #[rustfmt::skip]
    let not_stored = [
        ("quantization_config", json!({"quant_method": "fp8", "weight_block_size": [128, 128]}), "quantization_config says fp8", "F8_E4M3"),
        ("quantization_config", json!({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}), "quantization_config says fbgemm_fp8", "F8_E4M3"),
        ("quantization_config", json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), "quantization_config says ModelOpt", "F8_E4M3"),
        ("quantization_config", json!({"quant_algo": "FP8"}), "quantization_config says ModelOpt", "F8_E4M3"),
        ("quantization", json!({"group_size": 64, "bits": 4, "mode": "affine"}), "quantization says MLX", "U32"),
    ];
    for (key, value, says, dtype) in &not_stored {
        let says = ["config.json", says, &format!("no tensor is {dtype}")];
        table.refuses(&format!("{key} {value}"), &config(key, value.clone()).tree(), "", 15, &says);
    }
    table.refuses(
        "a number as method",
        &config("quantization_config", json!({"quant_method": 4})).tree(),
        "",
        10,
        &["quantization_config.quant_method"],
    );
    table.refuses(
        "a number as section",
        &config("quantization_config", json!(4)).tree(),
        "",
        10,
        &["quantization_config"],
    );
    table.accepts("no quantization", &config("quantization_config", Value::Null).tree(), "");
    assert_eq!(table.finish(), cases.len() + elsewhere.len() + of_compressed_tensors.len() + not_stored.len() + 2);
}

#[test]
fn methods_are_named_by_the_files_beside_config_json() {
    #[rustfmt::skip]
    let cases: &[(&str, Value, &[&str])] = &[
        ("quantize_config.json", json!({"bits": 4, "group_size": 128, "desc_act": false, "sym": true}), &["GPTQ, 4 bits, groups of 128", "desc_act"]),
        ("quantize_config.json", json!({"bits": 4, "quant_method": "awq"}), &["AWQ, 4 bits", "quant_method"]),
        ("quant_config.json", json!({"zero_point": true, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}), &["AWQ, 4 bits, groups of 128", "w_bit"]),
        ("quantization_config.json", json!({"quant_method": "exl3", "bits": 3.5}), &["EXL3, 3.5 bits", "quant_method"]),
        ("hf_quant_config.json", json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "W4A8_AWQ", "group_size": 128}}), &["ModelOpt, groups of 128, W4A8_AWQ", "quantization.quant_algo is"]),
        ("quanto_qmap.json", json!({"model.layers.0.mlp.up_proj": {"weights": "qint8", "activations": "none"}}), &["quanto, qint8"]),
    ];
    let mut table = Table::default();
    for (name, content, says) in cases {
        let tree = model().with(name, content.to_string()).tree();
        let says = [says, [*name, OFFER].as_slice()].concat();
        table.refuses(&format!("{name} {content}"), &tree, "", 12, &says);
    }
    table.refuses("a damaged file", &model().with("quant_config.json", "{").tree(), "", 10, &["quant_config.json"]);
    let none = model().with("hf_quant_config.json", json!({"quantization": {"quant_algo": "NVFP4"}}).to_string());
    table.refuses(
        "no such weights",
        &none.tree(),
        "",
        15,
        &["hf_quant_config.json", "quantization says ModelOpt", "F8_E4M3"],
    );
    assert_eq!(table.finish(), cases.len() + 2);
}

/// A folder with a Llama's `config.json` and tensors of these names and dtypes, each of 16 x 16 elements.
fn tensors(pairs: &[(&str, DType)]) -> Tree {
    let (mut entries, mut end) = (Vec::new(), 0);
    for (name, dtype) in pairs {
        let bytes = dtype.bytes_of(256).unwrap();
        let offsets = [end, end + bytes];
        end += bytes;
        entries.push(format!(
            "{:?}:{}",
            name,
            json!({"dtype": dtype.name(), "shape": [16, 16], "data_offsets": offsets})
        ));
    }
    model().with("model.safetensors", safetensors(&format!("{{{}}}", entries.join(",")), end as usize)).tree()
}

#[test]
fn methods_are_named_by_their_tensors() {
    use DType::{BF16, F8_E4M3, F16, F32, I8, I16, I32, I64, U8, U32};
    /// The endings of a layer's tensors, and what they are called.
    #[rustfmt::skip]
    const CASES: &[(&[(&str, DType)], &str)] = &[
        (&[(".qweight", I32), (".qzeros", I32), (".scales", F16), (".g_idx", I32)], "GPTQ ("),
        (&[(".qweight", I32), (".qzeros", I32), (".scales", F16)], "AWQ, or GPTQ"),
        (&[(".weight", U8), (".weight.absmax", U8), (".weight.quant_map", F32), (".weight.quant_state.bitsandbytes__nf4", U8)], "bitsandbytes 4-bit"),
        (&[(".weight", I8), (".SCB", F32), (".weight_format", U8)], "bitsandbytes 8-bit"),
        (&[(".weight", F8_E4M3), (".weight_scale_inv", F32)], "FP8 in blocks"),
        (&[(".weight", F8_E4M3), (".weight_scale", F32), (".input_scale", F32)], "FP8 ("),
        (&[(".weight", U8), (".weight_scale", F8_E4M3), (".weight_scale_2", F32)], "NVFP4"),
        (&[(".weight_packed", U8), (".weight_scale", F8_E4M3), (".weight_global_scale", F32)], "NVFP4"),
        (&[(".weight_packed", I32), (".weight_scale", BF16), (".weight_shape", I64)], "compressed-tensors"),
        (&[(".weight", I8), (".weight_scale", BF16)], "int8 with scales"),
        (&[("_blocks", U8), ("_scales", U8)], "MXFP4"),
        (&[(".weight", U32), (".scales", BF16), (".biases", BF16)], "MLX"),
        (&[(".weight", U8), (".weight_scale", BF16)], "BitNet"),
        (&[(".weight._data", I8), (".weight._scale", BF16)], "quanto"),
        (&[(".weight", I8), (".weight_scales", F16)], "EETQ"),
        (&[(".W_q", U8), (".scale", F16), (".zero", F16)], "HQQ or SINQ ("),
        (&[(".codes", I8), (".codebooks", F16), (".scales", F16)], "AQLM"),
        (&[(".indices", I16), (".centroids.weight", F16)], "VPTQ"),
        (&[(".dense_weights", I64), (".row_offsets", I32)], "SpQR"),
        (&[(".weight", I16), (".scales", F16), (".tables2", F32)], "HIGGS"),
        (&[("._weight_qdata", I8), ("._weight_scale", F32)], "torchao"),
        (&[(".q_weight", I32), (".q_scale", I32), (".q_invperm", I16)], "EXL2"),
        (&[(".trellis", I16), (".suh", F16), (".svh", F16)], "EXL3"),
        (&[(".qweight", U8), (".scales", U8), (".forward_hadamard_matrix", BF16)], "FP-Quant"),
        (&[(".Qidxs", I64), (".SU", F16), (".SV", F16)], "QuIP#"),
        (&[(".weight", I8), (".weight_quantizer.scale", F32)], "Quark"),
        (&[(".compressed", BF16), (".bitmask", U8), (".shape", I64)], "compressed-tensors"),
        (&[(".weight", I8), (".dequant_scale", F32)], "SmoothQuant"),
    ];
    let mut table = Table::default();
    for (parts, method) in CASES {
        let names: Vec<String> = parts.iter().map(|(end, _)| format!("model.layers.0.mlp.up_proj{end}")).collect();
        let pairs: Vec<(&str, DType)> = names.iter().zip(*parts).map(|(name, part)| (name.as_str(), part.1)).collect();
        let says = [method, "model.safetensors", "tensor model.layers.0.mlp.up_proj", OFFER];
        table.refuses(&format!("{parts:?}"), &tensors(&pairs), "", 12, &says);
    }
    assert_eq!(table.finish(), CASES.len());
}

#[test]
fn other_architectures_are_named_with_their_kind() {
    /// `model_type`, class, and words of the kind.
    #[rustfmt::skip]
    const CONFIGS: &[(&str, &str, &str)] = &[
        ("jetmoe", "JetMoeForCausalLM", "mixture of experts"),
        ("grovemoe", "GroveMoeForCausalLM", "mixture of experts"),
        ("deepseek_v32", "DeepseekV32ForCausalLM", "mixture of experts"),
        ("longcat_flash", "LongcatFlashForCausalLM", "mixture of experts"),
        ("mllama", "MllamaForConditionalGeneration", "sees or hears"),
        ("qwen2_5_omni", "Qwen2_5OmniForConditionalGeneration", "sees or hears"),
        ("llava", "LlavaForConditionalGeneration", "sees or hears"),
        ("phi3_v", "Phi3VForCausalLM", "sees or hears"),
        ("phi-msft", "PhiForCausalLM", "first upload of Phi"),
        ("mixformer-sequential", "MixFormerSequentialForCausalLM", "first upload of Phi"),
        ("zamba2", "Zamba2ForCausalLM", "state-space"),
        ("rwkv", "RwkvForCausalLM", "state-space"),
        ("deberta", "DebertaForSequenceClassification", "an encoder:"),
        ("electra", "ElectraModel", "an encoder:"),
        ("t5", "T5ForConditionalGeneration", "encoder-decoder"),
        ("vaultgemma", "VaultGemmaForCausalLM", "Gemma"),
        ("nanochat", "NanoChatForCausalLM", "block is built otherwise"),
        ("whisper", "WhisperForConditionalGeneration", "encoder-decoder"),
        ("clip", "CLIPModel", "does not generate text"),
        ("llada", "LLaDAModelLM", "diffusion"),
    ];
    const GGUF: &[(&str, &str)] = &[
        ("grovemoe", "mixture of experts"),
        ("grok", "mixture of experts"),
        ("plm", "block is built otherwise"),
        ("minimax-01", "state-space"),
        ("rwkv7", "state-space"),
        ("t5encoder", "an encoder:"),
        ("t5", "encoder-decoder"),
        ("cogvlm", "sees or hears"),
        ("bitnet", "block is built otherwise"),
    ];
    let mut table = Table::default();
    for (model_type, class, kind) in CONFIGS {
        let files = model().json("config.json", |config| {
            config.insert("model_type".into(), json!(model_type));
            config.insert("architectures".into(), json!([class]));
        });
        table.refuses(class, &files.tree(), "", 11, &["config.json", class, kind, "supported: LlamaForCausalLM"]);
        let nameless = files.json("config.json", |config| drop(config.remove("architectures")));
        table.refuses(model_type, &nameless.tree(), "", 11, &["config.json", model_type, kind]);
    }
    let llama = Gguf::fixture("llama-3.1/q8_0.gguf");
    for (architecture, kind) in GGUF {
        let tree = Tree::new().with("m.gguf", llama.text("general.architecture", architecture).build());
        let says = ["m.gguf", &format!("{architecture:?}"), *kind, "supported: llama"];
        table.refuses(&format!("{architecture} in GGUF"), &tree, "m.gguf", 11, &says);
    }
    // Of no table: a key tells the kind, or nothing does.
    let unknown = |key: &str, value: Value| {
        model().json("config.json", |config| {
            config.insert("model_type".into(), json!("tomorrow"));
            config.insert("architectures".into(), json!(["TomorrowForCausalLM"]));
            config.insert(key.into(), value);
        })
    };
    #[rustfmt::skip]
    let keys = [
        ("num_experts", json!(64), "mixture of experts"), ("vision_config", json!({"depth": 1}), "sees or hears"),
        ("is_encoder_decoder", json!(true), "encoder-decoder"), ("state_size", json!(16), "state-space"),
    ];
    for (key, value, kind) in keys {
        table.refuses(key, &unknown(key, value).tree(), "", 11, &["TomorrowForCausalLM", kind, "supported: Llama"]);
    }
    let tomorrow = llama.text("general.architecture", "tomorrow");
    let experts = Tree::new().with("m.gguf", tomorrow.u32("tomorrow.expert_count", 8).build());
    table.refuses("unknown experts in GGUF", &experts, "m.gguf", 11, &["tomorrow", "mixture of experts"]);
    for (case, tree) in [
        ("unknown", unknown("num_experts", json!(0)).tree()),
        ("unknown in GGUF", Tree::new().with("m.gguf", tomorrow.build())),
    ] {
        table.refuses(case, &tree, "", 11, &["omorrow", "supported: "]);
        let line = table::judge(&tree.path("")).first_line();
        assert!(line.contains(" is not supported; supported: "), "no kind is guessed: {line}");
    }
    assert_eq!(table.finish(), 2 * CONFIGS.len() + GGUF.len() + 7);
}

#[test]
fn adapters_are_named() {
    let peft = json!({"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B", "r": 8}).to_string();
    let ia3 = json!({"peft_type": "IA3"}).to_string();
    let lora = |prefix: &str| {
        let names = ["A", "B"].map(|part| format!("{prefix}layers.0.self_attn.q_proj.lora_{part}.weight"));
        build::vectors(&names.each_ref().map(String::as_str))
    };
    let weights = lora("base_model.model.model.");
    let mut table = Table::default();
    let folder = Tree::new().with("adapter_config.json", &peft).with("adapter_model.safetensors", &weights);
    for name in ["", "adapter_model.safetensors", "adapter_config.json"] {
        let says = ["a LoRA adapter", "the base model (meta-llama/Llama-3.1-8B)"];
        table.refuses(&format!("a PEFT adapter given as {name:?}"), &folder, name, 11, &says);
    }
    let other = Tree::new().with("adapter_config.json", &ia3).with("adapter_model.safetensors", &weights);
    table.refuses("an IA3 adapter", &other, "", 11, &["a PEFT adapter (IA3)"]);
    let pickled = Tree::new().with("adapter_config.json", &peft).with("adapter_model.bin", "x");
    table.refuses("a pickled adapter", &pickled, "", 11, &["a LoRA adapter", "meta-llama/Llama-3.1-8B"]);
    let beside = model().without("model.safetensors").with("adapter_config.json", &peft);
    let beside = beside.with("adapter_model.safetensors", &weights);
    table.refuses("an adapter beside a config.json", &beside.tree(), "", 11, &["a LoRA adapter"]);
    let alone = Tree::new().with("lora.safetensors", &weights);
    let says = ["lora.safetensors", "a LoRA adapter", "lora_A.weight"];
    table.refuses("a LoRA without any config", &alone, "", 11, &says);
    table.refuses("the file of a LoRA without any config", &alone, "lora.safetensors", 11, &says);
    let named = model().with("model.safetensors", &weights);
    table.refuses(
        "a LoRA called a model",
        &named.tree(),
        "",
        11,
        &["model.safetensors", "a LoRA adapter", "lora_A.weight"],
    );
    let unmerged = model()
        .with("model-2.safetensors", lora("model."))
        .renamed("model.safetensors", "model-00001-of-00002.safetensors");
    let unmerged = unmerged.renamed("model-2.safetensors", "model-00002-of-00002.safetensors");
    table.refuses(
        "an unmerged LoRA",
        &unmerged.tree(),
        "",
        11,
        &["model-00002-of-00002", "not merged", "lora_A.weight"],
    );
    let llama = Gguf::fixture("llama-3.1/q8_0.gguf");
    let typed = Tree::new().with("m.gguf", llama.text("general.type", "adapter").build());
    table.refuses("a GGUF of type adapter", &typed, "m.gguf", 11, &["m.gguf", "a LoRA adapter"]);
    let gguf = build::Gguf::empty().text("general.architecture", "llama").tensor(
        "blk.0.attn_q.weight.lora_a",
        &[8, 2],
        build::F32,
    );
    let gguf = Tree::new().with("m.gguf", gguf.tensor("blk.0.attn_q.weight.lora_b", &[2, 8], build::F32).build());
    table.refuses(
        "a GGUF adapter without a type",
        &gguf,
        "m.gguf",
        11,
        &["m.gguf", "a LoRA adapter", "attn_q.weight.lora_a"],
    );
    assert_eq!(table.finish(), 12);
}
