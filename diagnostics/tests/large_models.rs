//! Real large models on described machines: headers with the sizes of published checkpoints, behind which no weights lie.
#![allow(clippy::expect_used)] // all of it is test code

#[path = "../../tests/common/archives.rs"]
#[allow(dead_code)] // the tests of whole models use more of it
mod archives;

use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::{Policy, diagnose};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// `fixtures/` of this checkout.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// From a laptop to the largest GPU.
const MACHINES: &[&str] = &["cpu-16gb", "ryzen-7950x", "epyc-9654", "rtx-4090", "h100", "h200"];

/// A checkpoint in BF16, but for blocks of four bits and their scales. One more is one more entry of [`models`].
struct Checkpoint {
    /// Its repository.
    name: &'static str,
    /// `config.json` as it is published, without what says nothing of the language model.
    config: Value,
    /// Names and shapes.
    tensors: Vec<(String, Vec<u64>)>,
    /// Elements of all tensors that text needs, by the repository's own count or by hand.
    parameters: u64,
    /// The fixture whose small tokenizer stands for its own.
    tokenizer: &'static str,
}

fn models() -> Vec<Checkpoint> {
    vec![
        mistral_small(),
        gemma_3_27b(),
        gemma_4_31b(),
        qwen3_30b_a3b(),
        qwen3_6_35b_a3b(),
        mixtral_8x7b(),
        gpt_oss_120b(),
    ]
}

/// What a block of the Llama kind is made of.
struct Block {
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    /// Tensors of the feed-forward layer by their names within the block.
    feed_forward: Vec<(String, Vec<u64>)>,
    /// Further norms by name and width.
    norms: Vec<(&'static str, u64)>,
}

impl Block {
    fn tensors(&self, prefix: &str, layers: u64) -> Vec<(String, Vec<u64>)> {
        let &Block { hidden, heads, kv_heads, head_dim, .. } = self;
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let matrices = [
            ("self_attn.q_proj", vec![queries, hidden]),
            ("self_attn.k_proj", vec![keys, hidden]),
            ("self_attn.v_proj", vec![keys, hidden]),
            ("self_attn.o_proj", vec![hidden, queries]),
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
        ];
        let matrices = matrices.map(|(name, shape)| (name.to_owned(), shape));
        let norms = self.norms.iter().map(|(name, width)| ((*name).to_owned(), vec![*width]));
        let all: Vec<_> = matrices.into_iter().chain(norms).chain(self.feed_forward.iter().cloned()).collect();
        let name = |layer, part: &str| format!("{prefix}layers.{layer}.{part}.weight");
        (0..layers).flat_map(|layer| all.iter().map(move |(part, shape)| (name(layer, part), shape.clone()))).collect()
    }
}

fn gated(prefix: &str, [gate, up, down]: [&str; 3], hidden: u64, width: u64) -> Vec<(String, Vec<u64>)> {
    let shapes = [(gate, vec![width, hidden]), (up, vec![width, hidden]), (down, vec![hidden, width])];
    shapes.into_iter().map(|(name, shape)| (format!("{prefix}{name}"), shape)).collect()
}

const MLP: [&str; 3] = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"];

/// The embedding, the last norm and, where it is stored, the head.
fn ends(prefix: &str, head: Option<&str>, vocab: u64, hidden: u64) -> Vec<(String, Vec<u64>)> {
    let ends =
        [(format!("{prefix}embed_tokens.weight"), vec![vocab, hidden]), (format!("{prefix}norm.weight"), vec![hidden])];
    ends.into_iter().chain(head.map(|name| (name.to_owned(), vec![vocab, hidden]))).collect()
}

fn mistral_small() -> Checkpoint {
    let block = Block {
        hidden: 5120,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        feed_forward: gated("", MLP, 5120, 32768),
        norms: Vec::new(),
    };
    let mut tensors = block.tensors("language_model.model.", 40);
    tensors.extend(ends("language_model.model.", Some("language_model.lm_head.weight"), 131_072, 5120));
    tensors.push(("multi_modal_projector.linear_1.weight".into(), vec![5120, 1024]));
    tensors.push(("vision_tower.patch_conv.weight".into(), vec![1024, 3, 14, 14]));
    Checkpoint {
        name: "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        config: json!({"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "torch_dtype": "bfloat16",
            "text_config": {"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
                "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131_072,
                "max_position_embeddings": 131_072, "rope_theta": 1e9, "rms_norm_eps": 1e-5, "hidden_act": "silu",
                "sliding_window": null, "tie_word_embeddings": false},
            "vision_config": {"model_type": "pixtral", "hidden_size": 1024}}),
        tensors,
        parameters: 23_572_403_200,
        tokenizer: "mistral-nemo",
    }
}

fn gemma_3_27b() -> Checkpoint {
    let block = Block {
        hidden: 5376,
        heads: 32,
        kv_heads: 16,
        head_dim: 128,
        feed_forward: gated("", MLP, 5376, 21504),
        norms: vec![
            ("self_attn.q_norm", 128),
            ("self_attn.k_norm", 128),
            ("pre_feedforward_layernorm", 5376),
            ("post_feedforward_layernorm", 5376),
        ],
    };
    let mut tensors = block.tensors("language_model.model.", 62);
    tensors.extend(ends("language_model.model.", None, 262_208, 5376));
    tensors.push(("multi_modal_projector.mm_input_projection_weight".into(), vec![1152, 5376]));
    Checkpoint {
        name: "google/gemma-3-27b-it",
        config: json!({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
            "text_config": {"model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504,
                "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
                "query_pre_attn_scalar": 168, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024},
            "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152}}),
        tensors,
        parameters: 27_009_346_304,
        tokenizer: "gemma-3",
    }
}

fn gemma_4_31b() -> Checkpoint {
    let kind = |layer: u64| if layer % 6 == 5 { "full_attention" } else { "sliding_attention" };
    let mut tensors = ends("model.language_model.", None, 262_144, 5376);
    for layer in 0..60 {
        let (head_dim, keys) = if kind(layer) == "full_attention" { (512, 4) } else { (256, 16) };
        let mut parts = vec![
            ("self_attn.q_proj.weight", vec![32 * head_dim, 5376]),
            ("self_attn.k_proj.weight", vec![keys * head_dim, 5376]),
            ("self_attn.o_proj.weight", vec![5376, 32 * head_dim]),
            ("self_attn.q_norm.weight", vec![head_dim]),
            ("self_attn.k_norm.weight", vec![head_dim]),
            ("input_layernorm.weight", vec![5376]),
            ("post_attention_layernorm.weight", vec![5376]),
            ("pre_feedforward_layernorm.weight", vec![5376]),
            ("post_feedforward_layernorm.weight", vec![5376]),
            ("mlp.gate_proj.weight", vec![21504, 5376]),
            ("mlp.up_proj.weight", vec![21504, 5376]),
            ("mlp.down_proj.weight", vec![5376, 21504]),
            ("layer_scalar", vec![1]),
        ];
        if kind(layer) == "sliding_attention" {
            parts.push(("self_attn.v_proj.weight", vec![keys * head_dim, 5376]));
        }
        tensors.extend(in_layer("model.language_model.", layer, parts));
    }
    tensors.push(("model.vision_tower.patch_embedder.weight".into(), vec![1152, 768]));
    Checkpoint {
        name: "google/gemma-4-31B-it",
        config: json!({"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "torch_dtype": "bfloat16",
            "text_config": {"model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504,
                "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
                "global_head_dim": 512, "num_global_key_value_heads": 4, "attention_k_eq_v": true,
                "layer_types": (0..60).map(kind).collect::<Vec<_>>(), "sliding_window": 1024, "vocab_size": 262_144,
                "max_position_embeddings": 262_144, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh",
                "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                "enable_moe_block": false, "use_double_wide_mlp": false, "tie_word_embeddings": true,
                "rope_parameters": {
                    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
            "vision_config": {"model_type": "gemma4_vision", "hidden_size": 1152}}),
        tensors,
        parameters: 30_697_345_340,
        tokenizer: "gemma-4-31b",
    }
}

fn in_layer(prefix: &str, layer: u64, parts: Vec<(&str, Vec<u64>)>) -> Vec<(String, Vec<u64>)> {
    parts.into_iter().map(|(name, shape)| (format!("{prefix}layers.{layer}.{name}"), shape)).collect()
}

fn qwen3_6_35b_a3b() -> Checkpoint {
    let kind = |layer: u64| if layer % 4 == 3 { "full_attention" } else { "linear_attention" };
    let mut tensors = ends("model.language_model.", Some("lm_head.weight"), 248_320, 2048);
    for layer in 0..40 {
        let mut parts = vec![
            ("input_layernorm.weight", vec![2048]),
            ("post_attention_layernorm.weight", vec![2048]),
            ("mlp.gate.weight", vec![256, 2048]),
            ("mlp.experts.gate_up_proj", vec![256, 1024, 2048]),
            ("mlp.experts.down_proj", vec![256, 2048, 512]),
            ("mlp.shared_expert.gate_proj.weight", vec![512, 2048]),
            ("mlp.shared_expert.up_proj.weight", vec![512, 2048]),
            ("mlp.shared_expert.down_proj.weight", vec![2048, 512]),
            ("mlp.shared_expert_gate.weight", vec![1, 2048]),
        ];
        parts.extend(match kind(layer) {
            "full_attention" => vec![
                ("self_attn.q_proj.weight", vec![8192, 2048]),
                ("self_attn.k_proj.weight", vec![512, 2048]),
                ("self_attn.v_proj.weight", vec![512, 2048]),
                ("self_attn.o_proj.weight", vec![2048, 4096]),
                ("self_attn.q_norm.weight", vec![256]),
                ("self_attn.k_norm.weight", vec![256]),
            ],
            _ => vec![
                ("linear_attn.in_proj_qkv.weight", vec![8192, 2048]),
                ("linear_attn.in_proj_z.weight", vec![4096, 2048]),
                ("linear_attn.in_proj_b.weight", vec![32, 2048]),
                ("linear_attn.in_proj_a.weight", vec![32, 2048]),
                ("linear_attn.conv1d.weight", vec![8192, 1, 4]),
                ("linear_attn.dt_bias", vec![32]),
                ("linear_attn.A_log", vec![32]),
                ("linear_attn.norm.weight", vec![128]),
                ("linear_attn.out_proj.weight", vec![2048, 4096]),
            ],
        });
        tensors.extend(in_layer("model.language_model.", layer, parts));
    }
    tensors.push(("model.visual.patch_embed.proj.weight".into(), vec![1152, 3, 2, 16, 16]));
    tensors.push(("mtp.fc.weight".into(), vec![2048, 4096]));
    Checkpoint {
        name: "Qwen/Qwen3.6-35B-A3B",
        config: json!({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "tie_word_embeddings": false,
            "text_config": {"model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "hidden_size": 2048,
                "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
                "attn_output_gate": true, "full_attention_interval": 4,
                "layer_types": (0..40).map(kind).collect::<Vec<_>>(), "linear_conv_kernel_dim": 4,
                "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                "linear_num_value_heads": 32, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                "num_experts": 256, "num_experts_per_tok": 8, "vocab_size": 248_320,
                "max_position_embeddings": 262_144, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                "mtp_num_hidden_layers": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                    "partial_rotary_factor": 0.25, "mrope_interleaved": true, "mrope_section": [11, 11, 10]}},
            "vision_config": {"model_type": "qwen3_5_moe", "hidden_size": 1152}}),
        tensors,
        parameters: 34_660_610_688,
        tokenizer: "qwen3.5-moe",
    }
}

fn gpt_oss_120b() -> Checkpoint {
    let kind = |layer: u64| if layer.is_multiple_of(2) { "sliding_attention" } else { "full_attention" };
    let mut tensors = ends("model.", Some("lm_head.weight"), 201_088, 2880);
    for layer in 0..36 {
        let parts = vec![
            ("input_layernorm.weight", vec![2880]),
            ("post_attention_layernorm.weight", vec![2880]),
            ("self_attn.q_proj.weight", vec![4096, 2880]),
            ("self_attn.q_proj.bias", vec![4096]),
            ("self_attn.k_proj.weight", vec![512, 2880]),
            ("self_attn.k_proj.bias", vec![512]),
            ("self_attn.v_proj.weight", vec![512, 2880]),
            ("self_attn.v_proj.bias", vec![512]),
            ("self_attn.o_proj.weight", vec![2880, 4096]),
            ("self_attn.o_proj.bias", vec![2880]),
            ("self_attn.sinks", vec![64]),
            ("mlp.router.weight", vec![128, 2880]),
            ("mlp.router.bias", vec![128]),
            ("mlp.experts.gate_up_proj_blocks", vec![128, 5760, 90, 16]),
            ("mlp.experts.gate_up_proj_scales", vec![128, 5760, 90]),
            ("mlp.experts.gate_up_proj_bias", vec![128, 5760]),
            ("mlp.experts.down_proj_blocks", vec![128, 2880, 90, 16]),
            ("mlp.experts.down_proj_scales", vec![128, 2880, 90]),
            ("mlp.experts.down_proj_bias", vec![128, 2880]),
        ];
        tensors.extend(in_layer("model.", layer, parts));
    }
    Checkpoint {
        name: "openai/gpt-oss-120b",
        config: json!({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16",
            "attention_bias": true, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
            "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 128,
            "num_experts_per_tok": 4, "experts_per_token": 4, "vocab_size": 201_088,
            "layer_types": (0..36).map(kind).collect::<Vec<_>>(), "sliding_window": 128, "swiglu_limit": 7.0,
            "hidden_act": "silu", "initial_context_length": 4096, "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5, "rope_theta": 150_000, "tie_word_embeddings": false,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": 4096, "truncate": false},
            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn",
                "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}),
        tensors,
        parameters: 116_829_156_672,
        tokenizer: "gpt-oss",
    }
}

fn qwen3_30b_a3b() -> Checkpoint {
    let experts = (0..128)
        .flat_map(|expert| gated(&format!("mlp.experts.{expert}."), ["gate_proj", "up_proj", "down_proj"], 2048, 768));
    let block = Block {
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        head_dim: 128,
        feed_forward: experts.chain([("mlp.gate".to_owned(), vec![128, 2048])]).collect(),
        norms: vec![("self_attn.q_norm", 128), ("self_attn.k_norm", 128)],
    };
    let mut tensors = block.tensors("model.", 48);
    tensors.extend(ends("model.", Some("lm_head.weight"), 151_936, 2048));
    Checkpoint {
        name: "Qwen/Qwen3-30B-A3B",
        config: json!({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
            "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
            "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
            "vocab_size": 151_936, "max_position_embeddings": 40960, "rope_theta": 1e6, "rope_scaling": null,
            "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": false, "use_sliding_window": false,
            "sliding_window": null, "tie_word_embeddings": false}),
        tensors,
        parameters: 30_532_122_624,
        tokenizer: "qwen3-moe",
    }
}

fn mixtral_8x7b() -> Checkpoint {
    let experts = (0..8)
        .flat_map(|expert| gated(&format!("block_sparse_moe.experts.{expert}."), ["w1", "w3", "w2"], 4096, 14336));
    let block = Block {
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        feed_forward: experts.chain([("block_sparse_moe.gate".to_owned(), vec![8, 4096])]).collect(),
        norms: Vec::new(),
    };
    let mut tensors = block.tensors("model.", 32);
    tensors.extend(ends("model.", Some("lm_head.weight"), 32000, 4096));
    Checkpoint {
        name: "mistralai/Mixtral-8x7B-Instruct-v0.1",
        config: json!({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16",
            "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
            "max_position_embeddings": 32768, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "hidden_act": "silu",
            "sliding_window": null, "tie_word_embeddings": false}),
        tensors,
        parameters: 46_702_792_704,
        tokenizer: "mixtral",
    }
}

/// A folder with its files: of the weights the header, and behind it a hole of their size.
fn written(model: &Checkpoint, folder: &Path) {
    let mut header = Map::new();
    let mut end = 0u64;
    for (name, shape) in &model.tensors {
        let start = end;
        let bytes = name.ends_with("_blocks") || name.ends_with("_scales");
        let (dtype, each) = if bytes { ("U8", 1) } else { ("BF16", 2) };
        end += each * shape.iter().product::<u64>();
        header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]}));
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let path = folder.join("model.safetensors");
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], &header].concat()).expect("written");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.set_len(8 + header.len() as u64 + end).expect("a file with a hole");
    fs::write(folder.join("config.json"), model.config.to_string()).expect("written");
    let fixture = archives::path(&format!("{}/bf16", model.tokenizer));
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        fs::copy(fixture.join(name), folder.join(name)).expect("copied");
    }
}

#[test]
fn large_models_on_six_machines() {
    let mut text = String::new();
    for model in models() {
        let folder = tempfile::tempdir().expect("a folder");
        written(&model, folder.path());
        for (index, machine) in MACHINES.iter().enumerate() {
            let hardware = Profile::find(machine).unwrap_or_else(|| panic!("no profile {machine}")).hardware();
            let report = diagnose(folder.path(), &hardware, &Policy::default());
            let summary = report.model.as_ref().unwrap_or_else(|| panic!("{}: {}", model.name, report.first_line()));
            assert_eq!(summary.parameters, model.parameters, "{}", model.name);
            let mut line = |line: String| writeln!(text, "{line}").expect("a string");
            if index == 0 {
                line(format!("{}: {} of {}", model.name, summary.variant, summary.family));
                let experts = summary.experts.as_ref().map(|experts| experts.active_parameters);
                line(format!(
                    "  {} parameters, active {experts:?}, unused tensors {:?}",
                    summary.parameters, summary.unused_tensors
                ));
                line(format!("  {} layers, context {}", summary.layers, summary.context_trained));
            }
            line(format!("  {machine}: {:?} ({})", report.verdict, report.exit_code));
            if let Some(plan) = &report.plan {
                line(format!(
                    "    context {} of at most {}, {} bytes of {}",
                    plan.context, plan.max_context, plan.total, plan.available
                ));
            }
            if let Some(speed) = &report.speed {
                let bytes = (speed.weight_bytes_per_token, speed.cache_bytes_per_token);
                line(format!(
                    "    {:?} tokens a second, {:?} when full: {bytes:?} bytes of weights and cache a token",
                    speed.empty, speed.full
                ));
            }
            if !report.reason.is_empty() {
                line(format!("    {}", report.reason));
            }
            for remedy in &report.remedies {
                line(format!("    - {remedy}"));
            }
        }
        text.push('\n');
    }
    insta::assert_snapshot!("large_models", text);
}
