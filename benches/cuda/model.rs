//! Made-up models of Llama 3.1 8B's geometry. Numbers repeat after some megabytes and are as large as real weights are:
//! speed depends on neither, clocks a little on zeros.

use model_factory::diagnostics::DType;
use model_factory::diagnostics::spec::ModelSpec;
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::{BufWriter, Result, Write};
use std::path::{Path, PathBuf};

pub(crate) const HIDDEN: usize = 4096;
pub(crate) const FEED_FORWARD: usize = 14_336;
pub(crate) const HEADS: usize = 32;
pub(crate) const KV_HEADS: usize = 8;
pub(crate) const HEAD_DIM: usize = 128;
pub(crate) const VOCAB: usize = 128_256;
const CONTEXT: usize = 8192;
const THETA: f32 = 500_000.0;

/// How the matrices of a model are stored.
pub(crate) struct Stored {
    /// As people call it.
    pub(crate) name: &'static str,
    /// Most of them.
    pub(crate) dtype: DType,
}

impl Stored {
    pub(crate) const ALL: &[Stored] = &[
        Stored { name: "BF16", dtype: DType::BF16 },
        Stored { name: "W8A8", dtype: DType::I8 },
        Stored { name: "Q8_0", dtype: DType::Q8_0 },
        Stored { name: "Q4_K_M", dtype: DType::Q4_K },
    ];
}

/// A tensor to be written.
struct Tensor {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
}

impl Tensor {
    fn new(name: impl Into<String>, dtype: DType, shape: &[usize]) -> Tensor {
        Tensor { name: name.into(), dtype, shape: shape.to_vec() }
    }

    fn bytes(&self) -> u64 {
        self.dtype.bytes_of(self.shape.iter().product::<usize>() as u64).expect("whole blocks")
    }
}

/// Writes a model of `layers` layers into `folder` and returns where it lies.
pub(crate) fn write(folder: &Path, stored: &Stored, layers: usize) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    match stored.dtype {
        DType::I8 => safetensors(&folder.join("w8a8"), layers),
        _ => gguf(&folder.join(format!("{}.gguf", stored.name.to_lowercase())), stored, layers),
    }
}

/// Weights that a token of a prompt is multiplied with, the head left out, and the bytes that one generated token reads.
pub(crate) fn linear_weights(spec: &ModelSpec) -> (u64, u64) {
    let (mut weights, mut bytes) = (0, spec.weights.head.as_ref().map_or(0, |head| head.weight.bytes));
    for layer in &spec.weights.layers {
        for linear in layer.linears() {
            weights += linear.weight.shape.iter().product::<u64>();
            bytes += linear.weight.bytes;
        }
    }
    (weights, bytes)
}

/// Name, outputs and inputs of the matrices of a layer: as `config.json` models name them, and as GGUF does.
const MATRICES: [(&str, &str, usize, usize); 7] = [
    ("self_attn.q_proj", "attn_q", HEADS * HEAD_DIM, HIDDEN),
    ("self_attn.k_proj", "attn_k", KV_HEADS * HEAD_DIM, HIDDEN),
    ("self_attn.v_proj", "attn_v", KV_HEADS * HEAD_DIM, HIDDEN),
    ("self_attn.o_proj", "attn_output", HIDDEN, HEADS * HEAD_DIM),
    ("mlp.gate_proj", "ffn_gate", FEED_FORWARD, HIDDEN),
    ("mlp.up_proj", "ffn_up", FEED_FORWARD, HIDDEN),
    ("mlp.down_proj", "ffn_down", HIDDEN, FEED_FORWARD),
];

fn gguf(path: &Path, stored: &Stored, layers: usize) -> Result<PathBuf> {
    let mixed = stored.dtype == DType::Q4_K;
    let mut tensors = vec![Tensor::new("token_embd.weight", stored.dtype, &[VOCAB, HIDDEN])];
    for layer in 0..layers {
        // Where llama.cpp's Q4_K_M has more bits.
        let more = layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
        for (_, name, outputs, inputs) in MATRICES {
            let dtype = if mixed && more && matches!(name, "attn_v" | "ffn_down") { DType::Q6_K } else { stored.dtype };
            tensors.push(Tensor::new(format!("blk.{layer}.{name}.weight"), dtype, &[outputs, inputs]));
        }
        for name in ["attn_norm", "ffn_norm"] {
            tensors.push(Tensor::new(format!("blk.{layer}.{name}.weight"), DType::F32, &[HIDDEN]));
        }
    }
    tensors.push(Tensor::new("output_norm.weight", DType::F32, &[HIDDEN]));
    let head = if mixed { DType::Q6_K } else { stored.dtype };
    tensors.push(Tensor::new("output.weight", head, &[VOCAB, HIDDEN]));

    let mut header = Vec::new();
    let text = |header: &mut Vec<u8>, text: &str| {
        header.extend((text.len() as u64).to_le_bytes());
        header.extend(text.as_bytes());
    };
    let integers = [
        ("block_count", layers),
        ("context_length", CONTEXT),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", FEED_FORWARD),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("rope.dimension_count", HEAD_DIM),
        ("vocab_size", VOCAB),
    ];
    let floats = [("attention.layer_norm_rms_epsilon", 1e-5f32), ("rope.freq_base", THETA)];
    header.extend(b"GGUF");
    header.extend(3u32.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((1 + integers.len() as u64 + floats.len() as u64).to_le_bytes());
    text(&mut header, "general.architecture");
    header.extend(8u32.to_le_bytes());
    text(&mut header, "llama");
    for (key, value) in integers {
        text(&mut header, &format!("llama.{key}"));
        header.extend(4u32.to_le_bytes());
        header.extend((value as u32).to_le_bytes());
    }
    for (key, value) in floats {
        text(&mut header, &format!("llama.{key}"));
        header.extend(6u32.to_le_bytes());
        header.extend(value.to_le_bytes());
    }
    let mut end = 0u64;
    for tensor in &tensors {
        text(&mut header, &tensor.name);
        header.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|size| header.extend((*size as u64).to_le_bytes()));
        let code: u32 = match tensor.dtype {
            DType::F32 => 0,
            DType::Q8_0 => 8,
            DType::Q4_K => 12,
            DType::Q6_K => 14,
            _ => 30,
        };
        header.extend(code.to_le_bytes());
        header.extend(end.to_le_bytes());
        end = (end + tensor.bytes()).next_multiple_of(32);
    }
    header.resize(header.len().next_multiple_of(32), 0);
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&header)?;
    for tensor in &tensors {
        fill(&mut file, tensor)?;
        let bytes = tensor.bytes();
        file.write_all(&vec![0; (bytes.next_multiple_of(32) - bytes) as usize])?;
    }
    file.flush()?;
    Ok(path.to_path_buf())
}

fn safetensors(folder: &Path, layers: usize) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let mut tensors = vec![Tensor::new("model.embed_tokens.weight", DType::BF16, &[VOCAB, HIDDEN])];
    for layer in 0..layers {
        for (name, _, outputs, inputs) in MATRICES {
            let name = format!("model.layers.{layer}.{name}");
            tensors.push(Tensor::new(format!("{name}.weight"), DType::I8, &[outputs, inputs]));
            tensors.push(Tensor::new(format!("{name}.weight_scale"), DType::BF16, &[outputs, 1]));
        }
        for name in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push(Tensor::new(format!("model.layers.{layer}.{name}.weight"), DType::BF16, &[HIDDEN]));
        }
    }
    tensors.push(Tensor::new("model.norm.weight", DType::BF16, &[HIDDEN]));
    tensors.push(Tensor::new("lm_head.weight", DType::BF16, &[VOCAB, HIDDEN]));
    let mut header = Map::new();
    let mut end = 0;
    for tensor in &tensors {
        let start = end;
        end += tensor.bytes();
        let dtype = if tensor.dtype == DType::I8 { "I8" } else { "BF16" };
        let entry = json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end] });
        header.insert(tensor.name.clone(), entry);
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors"))?);
    file.write_all(&(text.len() as u64).to_le_bytes())?;
    file.write_all(&text)?;
    tensors.iter().try_for_each(|tensor| fill(&mut file, tensor))?;
    file.flush()?;
    let scheme = |dynamic: bool, strategy: &str| json!({ "num_bits": 8, "type": "int", "symmetric": true, "dynamic": dynamic, "strategy": strategy, "group_size": null });
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": false,
        "mlp_bias": false,
        "tie_word_embeddings": false,
        "rope_theta": THETA,
        "dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": { "group_0": {
                "format": "int-quantized",
                "targets": ["Linear"],
                "weights": scheme(false, "channel"),
                "input_activations": scheme(true, "token"),
                "output_activations": null,
            } },
        },
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    Ok(folder.to_path_buf())
}

/// Writes the numbers of a tensor.
fn fill(file: &mut impl Write, tensor: &Tensor) -> Result<()> {
    let pattern = match tensor.shape.as_slice() {
        [_, 1] => repeated(&half::bf16::from_f32(3.6e-4).to_le_bytes()),
        [_] if tensor.dtype == DType::F32 => repeated(&1f32.to_le_bytes()),
        [_] => repeated(&half::bf16::ONE.to_le_bytes()),
        _ => numbers(tensor.dtype),
    };
    let mut left = tensor.bytes() as usize;
    while left > 0 {
        let now = left.min(pattern.len());
        file.write_all(&pattern[..now])?;
        left -= now;
    }
    Ok(())
}

/// Blocks in a pattern.
const BLOCKS: usize = 1 << 15;

fn repeated(bytes: &[u8]) -> Vec<u8> {
    bytes.repeat(BLOCKS)
}

/// Whole blocks of numbers up to about 0.03, as weights that keep the size of activations are.
fn numbers(dtype: DType) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    if dtype == DType::BF16 {
        let number = |bits: u32| (bits as f32 / u32::MAX as f32 - 0.5) * 0.054;
        return (0..64 * BLOCKS).flat_map(|_| half::bf16::from_f32(number(random())).to_le_bytes()).collect();
    }
    let blocks = if dtype == DType::I8 { 64 * BLOCKS } else { BLOCKS };
    let mut bytes: Vec<u8> = (0..blocks * dtype.block_bytes()).map(|_| random() as u8).collect();
    let scales: &[(usize, f32)] = match dtype {
        DType::Q8_0 => &[(0, 2.1e-4)],
        DType::Q4_K => &[(0, 1.1e-4), (2, 8.4e-4)],
        DType::Q6_K => &[(208, 2.6e-5)],
        _ => &[],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for (at, scale) in scales {
            block[*at..at + 2].copy_from_slice(&half::f16::from_f32(*scale).to_le_bytes());
        }
    }
    bytes
}
