//! ModelSpec x machine -> how several machines or GPUs of its kind hold a model that one does not, and with which engine.
//!
//! This library runs on one machine. For more, llama.cpp runs a GGUF file split by layers over its RPC, and vLLM runs
//! safetensors on GPUs, each matrix split over all of them (tensor parallel) and the layers over groups of GPUs
//! (pipeline parallel). Both keep keys and values in 16 bits, which is what is counted here.

use super::Case;
use crate::hardware::Memory;
use crate::header::TensorInfo;
use crate::plan::{self, KvDtype, PREFILL_CHUNK};
use crate::report::{Distribution, ServingEngine, Share};
use crate::spec::{ModelSpec, NormWeights};
use model_factory_dtypes::DType;

/// The most devices; a larger plan is for a cluster, not for a single user.
const MOST: usize = 64;

/// The most GPUs that share a matrix: those of one machine.
const TENSOR_PARALLEL: usize = 8;

/// The context that is planned by default, if the model was trained for as much.
const CONTEXT: usize = 8192;

/// The share of a GPU's memory, in percent, that vLLM uses by default (`--gpu-memory-utilization 0.9`).
const VLLM_PERCENT: u64 = 90;

/// The fewest devices of the kind of the hardware that hold the model; `None` if no engine runs it or one device is
/// enough.
pub(super) fn distribute(case: Case<'_>) -> Option<Distribution> {
    let Case { spec, input, hardware, policy, .. } = case;
    let context = policy.context.unwrap_or(CONTEXT).min(spec.context_trained);
    let gpu = hardware.gpus.first();
    let device = match (hardware.profile, gpu) {
        (Some(name), _) => name.to_owned(),
        (None, Some(gpu)) => gpu.name.clone(),
        (None, None) => "machines like this one".into(),
    };
    let memory = gpu.map_or(Some(hardware.memory.available), |gpu| gpu.memory_total);
    let memory = memory.filter(|memory| *memory != Memory::UNKNOWN)?;
    match (input.kind?, gpu) {
        ("gguf", _) => by_layers(spec, context, device, memory),
        ("safetensors", Some(_)) => by_matrices(spec, context, device, memory / 100 * VLLM_PERCENT),
        // vLLM splits a model over GPUs; no engine runs safetensors over processors.
        _ => None,
    }
}

/// Bytes of weights and of keys and values in each block, and of the weights before and after the blocks.
struct Loads {
    layers: Vec<u64>,
    head: u64,
    buffers: u64,
}

impl Loads {
    /// The part of each device when every matrix is split over `gpus`; each GPU has all vectors.
    fn new(spec: &ModelSpec, context: usize, gpus: usize) -> Loads {
        let held = |tensor: &TensorInfo| match tensor.shape.len() {
            1 => tensor.bytes,
            _ => tensor.bytes.div_ceil(gpus as u64),
        };
        // A key-value head is not split: more GPUs than heads hold copies.
        let kv = plan::kv_bytes(spec, context, KvDtype::F16) / spec.layers().max(1) as u64;
        let kv = kv.div_ceil(gpus.min(spec.kv_heads).max(1) as u64);
        let layers = spec.weights.layers.iter();
        let layers = layers.map(|layer| layer.tensors().map(held).fold(kv, u64::saturating_add));
        let weights = &spec.weights;
        let norm = weights.final_norm.iter().flat_map(NormWeights::tensors).map(held).sum::<u64>();
        let head = norm + weights.head.as_ref().map_or(0, |head| held(&head.weight));
        let buffers = plan::CpuBuffers::new(spec).bytes(PREFILL_CHUNK.min(spec.context_trained));
        Loads { layers: layers.collect(), head, buffers }
    }

    /// The layers and bytes of each of `groups`: whole layers, as even as possible, with the rest in the first groups.
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

/// The plan for llama.cpp: whole layers on each machine. The embedding stays in the file that the first machine maps.
fn by_layers(spec: &ModelSpec, context: usize, device: String, available: u64) -> Option<Distribution> {
    let loads = Loads::new(spec, context, 1);
    let embedding = spec.weights.embedding.weight.bytes;
    let counts = 2..=MOST.min(spec.layers());
    let shares = counts.map(|count| loads.split(count, embedding)).find(|shares| fits(shares, available))?;
    let engine = ServingEngine::LlamaCpp;
    Some(Distribution { device, available, shares, tensor_parallel: 1, context, engine, dtype: None })
}

/// The plan for vLLM: every matrix on all GPUs of a group, layers over groups. It has the fewest groups, as GPUs that
/// share every matrix answer sooner than GPUs that wait for each other, and of those plans the fewest GPUs.
fn by_matrices(spec: &ModelSpec, context: usize, device: String, available: u64) -> Option<Distribution> {
    let dtype = float(spec)?;
    let mut splits: Vec<(usize, usize)> = (1..=TENSOR_PARALLEL)
        .filter(|&gpus| splits_heads(spec, gpus))
        .flat_map(|gpus| (1..=MOST.min(spec.layers())).map(move |groups| (gpus, groups)))
        .filter(|(gpus, groups)| (2..=MOST).contains(&(gpus * groups)))
        .collect();
    splits.sort_by_key(|&(gpus, groups)| (groups, gpus));
    let (gpus, shares) = splits.into_iter().find_map(|(gpus, groups)| {
        let loads = Loads::new(spec, context, gpus);
        let shares = loads.split(groups, spec.weights.embedding.weight.bytes.div_ceil(gpus as u64));
        fits(&shares, available).then_some((gpus, shares))
    })?;
    let shares = shares.into_iter().flat_map(|share| std::iter::repeat_n(share, gpus)).collect();
    let engine = ServingEngine::Vllm;
    Some(Distribution { device, available, shares, tensor_parallel: gpus, context, engine, dtype: Some(dtype) })
}

/// Whether each of `gpus` holds whole heads, with key-value heads split or copied evenly.
fn splits_heads(spec: &ModelSpec, gpus: usize) -> bool {
    let kv = spec.kv_heads;
    spec.heads.is_multiple_of(gpus) && (kv.is_multiple_of(gpus) || gpus.is_multiple_of(kv))
}

/// The float dtype that most bytes of the model are stored in, apart from integers and their scales.
fn float(spec: &ModelSpec) -> Option<DType> {
    let stored = spec.dtypes();
    let bytes = |dtype: &DType| stored.get(dtype).map_or(0, |&(_, bytes)| bytes);
    [DType::BF16, DType::F16, DType::F32].into_iter().filter(|dtype| bytes(dtype) > 0).max_by_key(bytes)
}
