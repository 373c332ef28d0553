//! Copies of fixtures with a prediction head: random, or one whose guesses are right by construction.

use crate::common;
use candle_core::quantized::gguf_file::{self, Value as GgufValue};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Tensors by their names in safetensors.
pub(crate) type Tensors = HashMap<String, Tensor>;

/// Numbers that look random, from -1 to 1.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1 << 23) as f32) - 1.0
    }

    pub(crate) fn tensor(&mut self, shape: &[usize], scale: f32) -> Tensor {
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| self.next() * scale).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
    }
}

/// The F32 checkpoint of the fixture `name`.
fn checkpoint(name: &str) -> (PathBuf, Tensors, Value) {
    let folder = common::archives::path(&format!("{name}/f32"));
    let weights = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let weights = weights.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    let tensors = weights.flat_map(|path| candle_core::safetensors::load(path, &Device::Cpu).unwrap()).collect();
    let config = serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    (folder, tensors, config)
}

/// A random head for a model of `tensors`: a block as its last one with attention, and what comes before and after it.
pub(crate) fn random_head(tensors: &Tensors, seed: u64) -> Tensors {
    let attends = |name: &&String| name.contains(".self_attn.q_proj.weight");
    let block = tensors.keys().filter(attends).max().unwrap().split(".self_attn").next().unwrap().to_owned() + ".";
    let mut of_block: Vec<(&str, &Tensor)> =
        tensors.iter().filter_map(|(name, tensor)| Some((name.strip_prefix(&block)?, tensor))).collect();
    of_block.sort_by_key(|(name, _)| *name);
    let mut numbers = Numbers(seed);
    let mut head: Tensors = of_block
        .into_iter()
        .map(|(name, like)| (format!("mtp.layers.0.{name}"), numbers.tensor(like.dims(), 0.3)))
        .collect();
    let hidden = tensors["model.norm.weight"].dims()[0];
    head.insert("mtp.fc.weight".into(), numbers.tensor(&[hidden, 2 * hidden], 0.3));
    for name in ["mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"] {
        head.insert(format!("{name}.weight"), numbers.tensor(&[hidden], 0.3));
    }
    head
}

/// The fixture `name` with what `change` leaves of its tensors and its `config.json`.
pub(crate) fn changed(name: &str, change: impl FnOnce(&mut Tensors, &mut Value)) -> TempDir {
    let (from, mut tensors, mut config) = checkpoint(name);
    change(&mut tensors, &mut config);
    let folder = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        fs::copy(from.join(file), folder.path().join(file)).unwrap();
    }
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}

/// The fixture `name` with a random head.
pub(crate) fn with_random_head(name: &str) -> TempDir {
    changed(name, |tensors, config| {
        let head = random_head(tensors, 7);
        tensors.extend(head);
        config["mtp_num_hidden_layers"] = json!(1);
    })
}

/// The token after `token` in every text of [`counting`].
pub(crate) fn next(token: u32) -> u32 {
    (token * 5 + 3) % 256
}

/// Which of its two inputs the head of [`counting`] reads.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Reads {
    /// The embedding of the last token: what follows that is right.
    Embedding,
    /// The hidden state of the position before, by which it guesses the last token again.
    Hidden,
}

/// A model that says [`next`] of each token, whatever is before it, as no mixer and no feed-forward layer adds anything: the
/// output head has the embedding of a token in the row of the next one. So has its head.
pub(crate) fn counting(reads: Reads) -> TempDir {
    changed("qwen3.5", |tensors, config| {
        tensors.extend(random_head(tensors, 7));
        let mutes = [".out_proj.weight", ".o_proj.weight", ".down_proj.weight", "model.norm.weight", "mtp.norm.weight"];
        for (name, tensor) in tensors.iter_mut() {
            if mutes.iter().any(|end| name.ends_with(end)) || name.starts_with("mtp.pre_fc_norm") {
                *tensor = tensor.zeros_like().unwrap();
            }
        }
        let embedding = Numbers(5).tensor(&[272, 32], 1.0);
        let rows: Vec<Vec<f32>> = embedding.to_vec2().unwrap();
        let mut head = vec![vec![0.0f32; 32]; 272];
        for token in 0..256 {
            let length = rows[token as usize].iter().map(|x| x * x).sum::<f32>().sqrt();
            head[next(token) as usize] = rows[token as usize].iter().map(|x| x / length).collect();
        }
        let one = Tensor::eye(32, DType::F32, &Device::Cpu).unwrap();
        let none = one.zeros_like().unwrap();
        let halves = if reads == Reads::Embedding { [&one, &none] } else { [&none, &one] };
        tensors.insert("mtp.fc.weight".into(), Tensor::cat(&halves, 1).unwrap());
        tensors.insert("model.embed_tokens.weight".into(), embedding);
        tensors.insert("lm_head.weight".into(), Tensor::new(head, &Device::Cpu).unwrap());
        config["tie_word_embeddings"] = json!(false);
        config["mtp_num_hidden_layers"] = json!(1);
    })
}

/// What a converter calls the parts of a head, and whether it stores a norm's weight and not its offset from one.
const GGUF_NAMES: [(&str, &str, bool); 15] = [
    ("mtp.fc", "nextn.eh_proj", false),
    ("mtp.pre_fc_norm_embedding", "nextn.enorm", true),
    ("mtp.pre_fc_norm_hidden", "nextn.hnorm", true),
    ("mtp.norm", "nextn.shared_head_norm", true),
    ("mtp.layers.0.input_layernorm", "attn_norm", true),
    ("mtp.layers.0.post_attention_layernorm", "post_attention_norm", true),
    ("mtp.layers.0.self_attn.q_proj", "attn_q", false),
    ("mtp.layers.0.self_attn.k_proj", "attn_k", false),
    ("mtp.layers.0.self_attn.v_proj", "attn_v", false),
    ("mtp.layers.0.self_attn.o_proj", "attn_output", false),
    ("mtp.layers.0.self_attn.q_norm", "attn_q_norm", true),
    ("mtp.layers.0.self_attn.k_norm", "attn_k_norm", true),
    ("mtp.layers.0.mlp.gate_proj", "ffn_gate", false),
    ("mtp.layers.0.mlp.up_proj", "ffn_up", false),
    ("mtp.layers.0.mlp.down_proj", "ffn_down", false),
];

/// The fixture `qwen3.5` as GGUF in F16, with `head` in F32 as block 4; what `left_out` ends in is not written.
pub(crate) fn gguf_with(head: &Tensors, left_out: &str, folder: &Path) -> PathBuf {
    let mut from = File::open(common::archives::path("qwen3.5/f16.gguf")).unwrap();
    let content = gguf_file::Content::read(&mut from).unwrap();
    let mut tensors: Vec<(String, QTensor)> = content
        .tensor_infos
        .keys()
        .map(|name| (name.clone(), content.tensor(&mut from, name, &Device::Cpu).unwrap()))
        .collect();
    for (config, gguf, is_norm) in
        GGUF_NAMES.iter().filter(|(_, gguf, _)| left_out.is_empty() || !gguf.ends_with(left_out))
    {
        let stored = &head[&format!("{config}.weight")];
        let stored = if *is_norm { (stored + 1.0).unwrap() } else { stored.clone() };
        let stored = QTensor::quantize(&stored, GgmlDType::F32).unwrap();
        tensors.push((format!("blk.4.{gguf}.weight"), stored));
    }
    tensors.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut metadata = content.metadata.clone();
    metadata.insert("qwen35.block_count".into(), GgufValue::U32(5));
    metadata.insert("qwen35.nextn_predict_layers".into(), GgufValue::U32(1));
    let states = [true, true, true, false, false].map(GgufValue::Bool).to_vec();
    metadata.insert("qwen35.attention.recurrent_layers".into(), GgufValue::Array(states));
    let metadata: Vec<(&str, &GgufValue)> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let path = folder.join("model.gguf");
    gguf_file::write(&mut File::create(&path).unwrap(), &metadata, &tensors).unwrap();
    path
}

/// The tensors of the fixture `name`.
pub(crate) fn tensors(name: &str) -> Tensors {
    checkpoint(name).1
}
