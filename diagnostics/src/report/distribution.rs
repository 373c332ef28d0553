//! ModelSpec x machine -> how several machines or cards of its kind hold a model that one does not, and what runs it there.
//!
//! This library runs on one machine. Past it, llama.cpp runs a GGUF file split by layers over its RPC, and vLLM runs
//! safetensors on cards, each matrix split over all of them (tensor parallel) and the layers over groups of cards
//! (pipeline parallel). Both keep keys and values in 16 bits, which is what is counted here.

use super::{Bytes, HubModel, Input, commands::quoted};
use crate::dtype::DType;
use crate::hardware::Hardware;
use crate::header::TensorInfo;
use crate::plan::{self, KvDtype, PREFILL_CHUNK};
use crate::policy::Policy;
use crate::spec::ModelSpec;
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// Devices at most; a larger plan is a cluster's, not a person's.
const MOST: usize = 64;

/// Cards that share a matrix at most: those of one machine.
const TENSOR_PARALLEL: usize = 8;

/// The context that is planned when none is asked for, where the model was trained for as much.
const CONTEXT: usize = 8192;

/// The share of a card's memory, in percent, that vLLM uses unless told otherwise (`--gpu-memory-utilization 0.9`).
const VLLM_PERCENT: u64 = 90;

/// The port that llama.cpp's `rpc-server` listens on unless told otherwise.
const RPC_PORT: u16 = 50052;

/// A model split over several devices of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Distribution {
    /// What the devices are: a profile's name, a card's, or `machines like this one`.
    pub device: String,
    /// Bytes of each device that the plan may fill.
    pub available: u64,
    /// What each device holds.
    pub shares: Vec<Share>,
    /// Devices that share every matrix; 1 where layers alone are split.
    pub tensor_parallel: usize,
    /// Tokens of context.
    pub context: usize,
    /// What runs it.
    pub engine: ServingEngine,
    /// Command lines, in their order; `HOST1` and so on stand for the machines' addresses.
    pub commands: Vec<String>,
}

/// What one device holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Share {
    /// The first of its layers, from 0, and the one behind the last.
    pub layers: Range<usize>,
    /// Bytes of weights, of the KV cache and of buffers together.
    pub bytes: u64,
}

/// A program that runs a model over several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServingEngine {
    /// llama.cpp with its RPC backend.
    LlamaCpp,
    /// vLLM.
    Vllm,
}

impl fmt::Display for ServingEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServingEngine::LlamaCpp => "llama.cpp",
            ServingEngine::Vllm => "vLLM",
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distribution { device, shares, tensor_parallel, context, engine, .. } = self;
        let most = shares.iter().map(|share| share.bytes).max().unwrap_or(0);
        let (most, available) = (Bytes(most), Bytes(self.available));
        write!(
            f,
            "run it by {engine} on {} x {device}, at most {most} of {available} each, context {context}: ",
            shares.len()
        )?;
        let mut groups: Vec<String> = Vec::new();
        for share in shares.iter().step_by(*tensor_parallel) {
            let Range { start, end } = share.layers;
            groups.push(if end - start == 1 { format!("{start}") } else { format!("{start}-{}", end - 1) });
        }
        match (*tensor_parallel, groups.len()) {
            (1, _) => write!(f, "layers {}", groups.join(", ")),
            (cards, 1) => write!(f, "every matrix split over {cards} cards"),
            (cards, _) => {
                write!(f, "layers {} on groups of {cards} cards, which split every matrix", groups.join(", "))
            }
        }
    }
}

/// The fewest devices of the kind that `hardware` is which hold the model; `None` where one engine cannot or none needs
/// to.
pub(crate) fn distribute(
    spec: &ModelSpec,
    input: &Input,
    hardware: &Hardware,
    policy: &Policy,
) -> Option<Distribution> {
    let context = policy.context.unwrap_or(CONTEXT).min(spec.context_trained);
    let card = hardware.gpus.first();
    let device = match (hardware.profile, card) {
        (Some(name), _) => name.to_owned(),
        (None, Some(card)) => card.name.clone(),
        (None, None) => "machines like this one".into(),
    };
    let memory = card.map_or(Some(hardware.memory.available), |card| card.memory_total)?;
    match (input.kind?, card) {
        ("gguf", _) => by_layers(spec, input, context, device, memory),
        ("safetensors", Some(_)) => by_matrices(spec, input, context, device, memory / 100 * VLLM_PERCENT),
        // vLLM splits a model over cards; over processors nothing runs safetensors.
        _ => None,
    }
}

/// Weights and keys and values of each block, and what is before and behind them, in bytes.
struct Loads {
    layers: Vec<u64>,
    head: u64,
    buffers: u64,
}

impl Loads {
    /// Each device's part when every matrix is split over `cards`; vectors are on all of them.
    fn new(spec: &ModelSpec, context: usize, cards: usize) -> Loads {
        let held = |tensor: &TensorInfo| match tensor.shape.len() {
            1 => tensor.bytes,
            _ => tensor.bytes.div_ceil(cards as u64),
        };
        // A head of keys and values is not split: more cards than heads hold copies.
        let kv = plan::kv_bytes(spec, context, KvDtype::F16) / spec.layers().max(1) as u64;
        let kv = kv.div_ceil(cards.min(spec.kv_heads).max(1) as u64);
        let layers = spec.weights.layers.iter();
        let layers = layers.map(|layer| layer.tensors().map(held).fold(kv, u64::saturating_add));
        let weights = &spec.weights;
        let head = weights.final_norm.tensors().map(held).sum::<u64>() + held(&weights.head.weight);
        let buffers = plan::activation_bytes(spec, PREFILL_CHUNK.min(spec.context_trained));
        Loads { layers: layers.collect(), head, buffers }
    }

    /// The layers and bytes of each of `groups`: as even as whole layers are, the first ones taking what is left over.
    fn split(&self, groups: usize, embedding: u64) -> Vec<Share> {
        let (each, more) = (self.layers.len() / groups, self.layers.len() % groups);
        let mut start = 0;
        let shares = (0..groups).map(|group| {
            let layers = start..start + each + usize::from(group < more);
            start = layers.end;
            let mut bytes =
                self.layers[layers.clone()].iter().fold(self.buffers, |sum, &layer| sum.saturating_add(layer));
            if group == 0 {
                bytes = bytes.saturating_add(embedding);
            }
            if group + 1 == groups {
                bytes = bytes.saturating_add(self.head);
            }
            Share { layers, bytes }
        });
        shares.collect()
    }
}

fn fits(shares: &[Share], available: u64) -> bool {
    shares.iter().all(|share| share.bytes <= available)
}

/// llama.cpp: whole layers on each machine. The embedding stays in the file that the first one maps.
fn by_layers(spec: &ModelSpec, input: &Input, context: usize, device: String, available: u64) -> Option<Distribution> {
    let loads = Loads::new(spec, context, 1);
    let embedding = spec.weights.embedding.bytes;
    let counts = 2..=MOST.min(spec.layers());
    let shares = counts.map(|count| loads.split(count, embedding)).find(|shares| fits(shares, available))?;
    let hosts: Vec<String> = (1..=shares.len()).map(|host| format!("HOST{host}:{RPC_PORT}")).collect();
    let layers: Vec<String> = shares.iter().map(|share| share.layers.len().to_string()).collect();
    // Of a split file llama.cpp is given the first part.
    let model = match &input.hub {
        Some(model) => model.of_llama_cpp(),
        None if input.path.ends_with(".gguf") || input.files.is_empty() => format!("--model {}", quoted(&input.path)),
        None => {
            let file = format!("{}/{}", input.path.trim_end_matches('/'), input.files[0].name);
            format!("--model {}", quoted(&file))
        }
    };
    let commands = vec![
        // llama.cpp's RPC knows no passwords.
        format!(
            "rpc-server --host HOST1 --port {RPC_PORT}  # on every machine, with its own address; no password, so only in a private network"
        ),
        format!(
            "llama-server {model} --ctx-size {context} --n-gpu-layers {} --tensor-split {} --rpc {}",
            spec.layers() + 1,
            layers.join(","),
            hosts.join(",")
        ),
    ];
    let engine = ServingEngine::LlamaCpp;
    Some(Distribution { device, available, shares, tensor_parallel: 1, context, engine, commands })
}

/// vLLM: every matrix on all cards of a group, layers over groups. The fewest groups, for cards that share every matrix
/// answer sooner than cards that wait for each other, and of those the fewest cards.
fn by_matrices(
    spec: &ModelSpec,
    input: &Input,
    context: usize,
    device: String,
    available: u64,
) -> Option<Distribution> {
    let dtype = float(spec)?;
    let mut splits: Vec<(usize, usize)> = (1..=TENSOR_PARALLEL)
        .filter(|&cards| splits_heads(spec, cards))
        .flat_map(|cards| (1..=MOST.min(spec.layers())).map(move |groups| (cards, groups)))
        .filter(|(cards, groups)| (2..=MOST).contains(&(cards * groups)))
        .collect();
    splits.sort_by_key(|&(cards, groups)| (groups, cards));
    let (cards, shares) = splits.into_iter().find_map(|(cards, groups)| {
        let loads = Loads::new(spec, context, cards);
        let shares = loads.split(groups, spec.weights.embedding.bytes.div_ceil(cards as u64));
        fits(&shares, available).then_some((cards, shares))
    })?;
    let groups = shares.len();
    let pipeline = if groups > 1 { format!(" --pipeline-parallel-size {groups}") } else { String::new() };
    let command = format!(
        "vllm serve {} --tensor-parallel-size {cards}{pipeline} --dtype {dtype} --max-model-len {context}",
        input.hub.as_ref().map_or_else(|| quoted(&folder(input)), HubModel::of_vllm)
    );
    let shares = shares.into_iter().flat_map(|share| std::iter::repeat_n(share, cards)).collect();
    let (engine, commands) = (ServingEngine::Vllm, vec![command]);
    Some(Distribution { device, available, shares, tensor_parallel: cards, context, engine, commands })
}

/// Whether `cards` hold whole heads each, those of keys and values split or copied evenly.
fn splits_heads(spec: &ModelSpec, cards: usize) -> bool {
    let kv = spec.kv_heads;
    spec.heads.is_multiple_of(cards) && (kv.is_multiple_of(cards) || cards.is_multiple_of(kv))
}

/// vLLM's name of the float dtype that the model is stored in, integers and their scales aside.
fn float(spec: &ModelSpec) -> Option<&'static str> {
    let floats = [(DType::BF16, "bfloat16"), (DType::F16, "float16"), (DType::F32, "float32")];
    let bytes = |dtype: DType| spec.dtypes().get(&dtype).map_or(0, |&(_, bytes)| bytes);
    floats
        .into_iter()
        .filter(|&(dtype, _)| bytes(dtype) > 0)
        .max_by_key(|&(dtype, _)| bytes(dtype))
        .map(|(_, name)| name)
}

/// The folder of a checkpoint, which is what vLLM is given.
fn folder(input: &Input) -> String {
    let file = [".safetensors", ".json"].iter().any(|ext| input.path.ends_with(ext));
    match input.path.rsplit_once('/') {
        Some((folder, _)) if file => folder.to_owned(),
        None if file => ".".into(),
        _ => input.path.clone(),
    }
}
