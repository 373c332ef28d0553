//! ModelSpec + memory -> Plan: every allocation of loading and running, computed by the functions that allocate.

mod adapters;
mod batching;
mod buffers;
mod kv;
mod vision;

pub use adapters::{ADAPTER_ROWS, ReservedAdapters, adapter_bytes, adapter_rows_bytes, adapter_step_bytes};
pub use batching::Batching;
pub use buffers::{
    CpuBuffers, GPU_ALIGNMENT, GPU_ATTENTION_PARTS, GPU_LOGIT_ROWS, GPU_OVERREAD, GpuBuffers, StepRoom, gpu_launches,
    gpu_recording_bytes, gpu_tensor_bytes, gpu_weight_bytes,
};
pub use kv::{
    KvDtype, KvSize, STATE_CHUNK, StateSize, UnknownKvDtype, kv_bytes, kv_bytes_per_token, kv_bytes_read, state_bytes,
    windowed_layers,
};
pub use vision::{KEPT_IMAGES, vision_bytes};

use crate::spec::{ImageRows, ModelSpec};
use crate::tokenizer::TokenizerKind;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Positions in a page of the KV cache; pages are allocated as the context fills.
pub const KV_PAGE: usize = 256;

/// Bytes that the tables of all grammars of a model may take: kept grammars, and those of running constrained answers.
pub const GRAMMAR_MEMORY: u64 = 256 << 20;

/// Tokens of a prompt that are computed at a time.
pub const PREFILL_CHUNK: usize = 512;

/// The most tokens of a text of an encoder unless more are asked for: a step takes memory for all of a text.
pub const ENCODER_CONTEXT: usize = 8192;

/// The smallest context worth loading a model for: below it, the model does not fit (unless it was trained for less).
pub const SMALLEST_CONTEXT: usize = 512;

/// Bytes that a vocabulary entry takes in a tokenizer built from `tokenizer.json`, its share of the merges included: a
/// vocabulary of 128000 tokens and as many merges took 490 a token; Llama 3 has more than two merges a token.
const TOKENIZER_JSON_BYTES_PER_TOKEN: u64 = 800;

/// Bytes that a vocabulary entry takes in a tokenizer built from GGUF keys: Llama 3's took 280 a token.
const TOKENIZER_GGUF_BYTES_PER_TOKEN: u64 = 400;

/// Bytes that a process takes in addition to the model: program, stacks, libraries, the parsed header.
const PROCESS_BYTES: u64 = 24 << 20;

/// Bytes of GPU memory that the driver takes for a process and its kernels. Measured with ggml's build of llama.cpp (its pull
/// request 23604): 107 MiB on an RTX 4060 Ti, 555 MiB on an RTX PRO 6000; it grows with the number of processors.
const DEVICE_CONTEXT_BYTES: u64 = 576 << 20;

/// Where weights are kept for the processor. Complete: they are pages of the files or memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightStorage {
    /// In the pages of the mapped files: nothing is read before it is used, and processes share the pages. A file must
    /// not be truncated or rewritten meanwhile.
    #[default]
    Mapped,
    /// In memory of the process, into which the files are read once while loading (llama.cpp's `--no-mmap`): the same
    /// bytes. Later changes to the files have no effect.
    Resident,
}

/// What activations are rounded to where a format prescribes that they keep 16 bits: packed integers. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationDtype {
    /// To integers of 16 bits in blocks of 32.
    #[default]
    Prescribed,
    /// To integers of 8 bits in blocks of 32, as for GGUF's blocks: sooner, and with more error than the format means.
    Int8,
}

impl fmt::Display for ActivationDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ActivationDtype::Prescribed => "prescribed",
            ActivationDtype::Int8 => "int8",
        })
    }
}

/// The error for a text that names no [`ActivationDtype`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected prescribed or int8")]
pub struct UnknownActivationDtype;

impl FromStr for ActivationDtype {
    type Err = UnknownActivationDtype;

    /// Parses `prescribed` or `int8`.
    fn from_str(text: &str) -> Result<ActivationDtype, UnknownActivationDtype> {
        let named = |dtype: &ActivationDtype| dtype.to_string() == text;
        [ActivationDtype::Prescribed, ActivationDtype::Int8].into_iter().find(named).ok_or(UnknownActivationDtype)
    }
}

/// The options of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Tokens of context; `None` is the largest that fits, up to the trained one and of an encoder up to
    /// [`ENCODER_CONTEXT`], or [`SMALLEST_CONTEXT`] where not even that fits. A larger context than the trained one is never planned.
    pub context: Option<usize>,
    /// Sessions that are open at once, at least 1, each with a full cache. `None` plans one session; others may use the
    /// memory that is left.
    pub sessions: Option<usize>,
    /// The element type of the KV cache.
    pub kv_dtype: KvDtype,
    /// What activations are rounded to.
    pub activation_dtype: ActivationDtype,
    /// Where weights are kept; on a GPU they are in its memory.
    pub weights: WeightStorage,
    /// Threads that compute, each with memory of its own.
    pub threads: usize,
    /// A draft model on the processor, where there is one; a plan for a GPU has none. A prediction head counts as the draft model.
    pub draft: Option<DraftSize>,
    /// Adapters on the processor that memory is reserved for.
    pub adapters: Option<ReservedAdapters>,
}

/// What a draft model takes in addition to the target model, in bytes unless a field says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftSize {
    /// The files of the draft model, all of them in full.
    pub weights_file: u64,
    /// The buffers of its forward pass.
    pub activations: u64,
    /// The KV cache of a session.
    pub kv: KvSize,
    /// What a session takes in addition: hidden states that a prediction head has not read yet.
    pub session: u64,
    /// Tokens that it was trained for: it drafts no further.
    pub context: usize,
}

impl DraftSize {
    /// The size of `spec`, whose files have `weights_file` bytes together, with a cache of `kv_dtype`.
    pub fn new(spec: &ModelSpec, weights_file: u64, kv_dtype: KvDtype) -> DraftSize {
        let context = spec.context_trained;
        let activations = CpuBuffers::new(spec).bytes(PREFILL_CHUNK.min(context));
        DraftSize { weights_file, activations, kv: KvSize::of_cpu(spec, kv_dtype), session: 0, context }
    }

    /// The size of the prediction head `spec`, which is in the files of its model; steps and sessions hold hidden states for it.
    fn of_predictor(spec: &ModelSpec, kv_dtype: KvDtype) -> DraftSize {
        let rows = product(&[PREFILL_CHUNK, spec.hidden, size_of::<f32>()]);
        let size = DraftSize::new(spec, 0, kv_dtype);
        DraftSize { activations: size.activations.saturating_add(rows), session: rows, ..size }
    }
}

/// What a model takes on one machine, in bytes unless a field says otherwise. The default is an empty plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Tokens that the KV cache can hold.
    pub context: usize,
    /// The mapped files, all of them in full.
    pub weights_file: u64,
    /// Copies of weights outside of the mapped files: none on the CPU, or the files' bytes where they are read into memory;
    /// all of them on a GPU.
    pub weights_resident: u64,
    /// The element type of the KV cache.
    pub kv_dtype: KvDtype,
    /// What activations are rounded to where their format prescribes 16 bits.
    pub activation_dtype: ActivationDtype,
    /// The number of sessions that are open at once.
    pub sessions: usize,
    /// The KV caches of all sessions when `context` tokens are in each.
    pub kv_cache: u64,
    /// The part of `kv_cache` that recurrent layers carry from position to position, however long the sequences are.
    pub states: u64,
    /// The bytes that the caches of all sessions may take together: [`kv_cache`](Self::kv_cache) where the number of
    /// sessions was given, else all that the rest leaves.
    #[serde(skip)]
    pub cache_budget: u64,
    /// Bytes that a token adds to the cache of its session.
    pub kv_per_token: u64,
    /// The part of `kv_per_token` in layers with a window, which keep only the last [`kv_window`](Self::kv_window) tokens.
    pub kv_per_token_windowed: u64,
    /// Tokens that layers with a window keep at most; 0 where there are no such layers, or where they keep all tokens.
    pub kv_window: usize,
    /// Buffers of the forward pass, and what each thread takes for itself.
    pub activations: u64,
    /// The files of a draft model, mapped or read into memory like those of the model; 0 without a draft model.
    pub draft_weights: u64,
    /// The KV caches of a draft model or a prediction head, one for each session, when `context` tokens are in each,
    /// and the buffers of its forward pass.
    pub draft_memory: u64,
    /// The part of the files that is the weights of a vision tower; 0 where none is loaded.
    #[serde(skip_serializing_if = "is_zero")]
    pub vision_weights: u64,
    /// What a vision tower takes while it computes the largest image, which one that only a number of pixels bounds is of
    /// [`image_tokens`](Self::image_tokens).
    #[serde(skip_serializing_if = "is_zero")]
    pub vision_memory: u64,
    /// The most tokens of an image: the requested context, else the trained one, or where only a number of pixels bounds images as many
    /// as take half of the memory beside the weights. Larger ones are refused. 0 where no tower is loaded.
    #[serde(skip_serializing_if = "none")]
    pub image_tokens: usize,
    /// What is reserved for adapters: their tensors, and what steps take for them; 0 where nothing is.
    #[serde(skip_serializing_if = "is_zero")]
    pub adapters: u64,
    /// The built tokenizer.
    pub tokenizer: u64,
    /// The process itself: program, stacks, libraries, the parsed header.
    pub process: u64,
    /// What the grammars of constrained answers may take in addition to [`total`](Self::total), while there are such answers.
    pub grammars: u64,
    /// What the device's driver takes for itself; 0 on the CPU.
    pub device_context: u64,
    /// The part of all this that is in the memory that [`available`](Self::available) describes, at the full context.
    pub total: u64,
    /// The most memory that loading takes, before the first token.
    pub load_peak: u64,
    /// What the machine or the GPU, and the policy, leave for the plan; [`Budget::UNKNOWN`], `null` in JSON, where no
    /// figure is known and no limit was set.
    #[serde(serialize_with = "unless_unknown")]
    pub available: u64,
    /// Which memory the plan is for.
    pub place: PlanMemory,
    /// The largest context in tokens that fits, up to the trained one; 0 when none does.
    pub max_context: usize,
}

/// The memory that a plan is for. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanMemory {
    /// Main memory: mapped files, and everything else.
    #[default]
    Main,
    /// A GPU's own memory: uploaded weights, cache, activations and the driver's share. Files, tokenizer and process
    /// are in main memory.
    Gpu,
    /// Main memory that a GPU uses as its own: what lies in the memory of other GPUs, and tokenizer and process. The
    /// pages of the files are given back when others need them.
    Shared,
}

/// Memory that a plan may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Total bytes, mapped files included.
    pub available: u64,
    /// Bytes for memory other than mapped files, where that has a limit of its own.
    pub anonymous: Option<u64>,
    /// Which memory the budget is for.
    pub place: PlanMemory,
}

impl Budget {
    /// The value for an amount that is not known.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// Serializes a number of bytes, or `null` for [`Budget::UNKNOWN`].
///
/// # Errors
/// The errors of `serializer`.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for this form
pub fn unless_unknown<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    if *bytes == Budget::UNKNOWN { serializer.serialize_none() } else { serializer.serialize_u64(*bytes) }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for this form
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for this form
fn none(count: &usize) -> bool {
    *count == 0
}

/// Rows of a step in which some sequence generates: that sequence waits for the step's rows of prompts.
pub const SHARED_STEP: usize = PREFILL_CHUNK / 4;

/// The most rows of a step: a chunk of a prompt, a whole image next to sequences that generate where its rows attend to
/// each other, or a whole text of an encoder with this `context`.
pub fn step_rows(spec: &ModelSpec, context: usize) -> usize {
    if !spec.is_encoder() {
        let image = match spec.images {
            Some(ImageRows::BothSides { most }) => most.saturating_add(SHARED_STEP),
            Some(ImageRows::Causal) | None => 0,
        };
        return PREFILL_CHUNK.max(image).min(spec.context_trained);
    }
    PREFILL_CHUNK.max(spec.text_limit.map_or(context, |limit| limit.tokens.min(context)))
}

impl Plan {
    /// Plans `spec`, whose files have `weights_file` bytes together, for the memory of `budget`.
    pub fn new(spec: &ModelSpec, weights_file: u64, budget: &Budget, request: &Request) -> Plan {
        let Request { context: requested, kv_dtype, activation_dtype, .. } = *request;
        let sessions = request.sessions.unwrap_or(1).max(1);
        let predictor = spec.predictor.as_ref().map(|head| DraftSize::of_predictor(head, kv_dtype));
        let draft = request.draft.or(predictor).filter(|_| budget.place == PlanMemory::Main);
        let kv = match budget.place {
            PlanMemory::Main => KvSize::of_cpu(spec, kv_dtype),
            PlanMemory::Gpu | PlanMemory::Shared => KvSize::of_gpu(spec, kv_dtype),
        };
        let trained = spec.context_trained;
        let (weights_resident, device_context) = match budget.place {
            PlanMemory::Main if request.weights == WeightStorage::Resident => (weights_file, 0),
            PlanMemory::Main => (0, 0),
            PlanMemory::Gpu | PlanMemory::Shared => (gpu_weight_bytes(spec, weights_file), DEVICE_CONTEXT_BYTES),
        };
        let activations = |context: usize| match budget.place {
            PlanMemory::Main => {
                let (buffers, rows) = (CpuBuffers::new(spec), step_rows(spec, context));
                buffers.bytes(rows).saturating_add(buffers.of_threads(request.threads, rows))
            }
            PlanMemory::Gpu | PlanMemory::Shared => GpuBuffers::new(spec, context).bytes(),
        };
        let reserved = request.adapters.filter(|_| budget.place == PlanMemory::Main);
        let adapters = |context: usize| reserved.map_or(0, |adapters| adapters.bytes(spec, context, request.threads));
        let a_token = match spec.tokenizer.kind {
            TokenizerKind::Json => TOKENIZER_JSON_BYTES_PER_TOKEN,
            _ => TOKENIZER_GGUF_BYTES_PER_TOKEN,
        };
        let of_all = |bytes: u64| bytes.saturating_mul(sessions as u64);
        let vision = spec.vision.as_deref().filter(|_| budget.place == PlanMemory::Main);
        let mut plan = Plan {
            weights_file,
            weights_resident,
            kv_dtype,
            activation_dtype,
            sessions,
            states: of_all(state_bytes(spec)),
            kv_per_token: kv_bytes_per_token(spec, kv_dtype),
            kv_per_token_windowed: kv.window_page / KV_PAGE as u64,
            kv_window: kv.window_pages(usize::MAX) * KV_PAGE,
            activations: activations(requested.unwrap_or(usize::MAX).min(trained)),
            draft_weights: draft.map_or(0, |draft| draft.weights_file),
            draft_memory: draft.map_or(0, |draft| draft.activations.saturating_add(of_all(draft.session))),
            vision_weights: vision
                .map_or(0, |tower| tower.tensors().map(|tensor| tensor.bytes).fold(0, u64::saturating_add)),
            adapters: adapters(requested.unwrap_or(usize::MAX).min(trained)),
            tokenizer: (spec.tokenizer.tokens as u64).saturating_mul(a_token),
            process: PROCESS_BYTES,
            grammars: GRAMMAR_MEMORY,
            device_context,
            available: budget.available,
            place: budget.place,
            ..Plan::default()
        };
        let smallest = SMALLEST_CONTEXT.min(trained);
        if let Some(tower) = vision {
            let left = plan.left(budget).filter(|_| plan.available != Budget::UNKNOWN);
            let tokens =
                requested.unwrap_or_else(|| vision::image_tokens(tower, [smallest, trained], request.threads, left));
            plan.image_tokens = tokens.min(trained);
            plan.vision_memory = vision_bytes(tower, plan.image_tokens, request.threads);
        }
        // An encoder keeps nothing of a text, and computes all of it at once.
        let whole = spec.is_encoder() && budget.place == PlanMemory::Main;
        if whole {
            let taking =
                |context| Plan { activations: activations(context), adapters: adapters(context), ..plan.clone() };
            plan.max_context = most(trained, |context| taking(context).left(budget).is_some());
            plan.context = requested.unwrap_or(ENCODER_CONTEXT.min(plan.max_context).max(smallest)).min(trained);
            (plan.activations, plan.adapters) = (activations(plan.context), adapters(plan.context));
        }
        let left = plan.left(budget);
        let own_caches = |positions| of_all(kv.bytes(positions));
        let draft_caches =
            |positions: usize| draft.map_or(0, |draft| of_all(draft.kv.bytes(positions.min(draft.context))));
        if !whole {
            plan.max_context = left.map_or(0, |left| {
                let caches = |pages: usize| {
                    let positions = pages.saturating_mul(KV_PAGE);
                    sum(&[plan.states, own_caches(positions), draft_caches(positions)])
                };
                most(trained.div_ceil(KV_PAGE), |pages| caches(pages) <= left).saturating_mul(KV_PAGE)
            });
            plan.max_context = plan.max_context.min(trained);
            plan.context = requested.unwrap_or(plan.max_context.max(smallest)).min(trained);
        }
        plan.kv_cache = own_caches(plan.context).saturating_add(plan.states);
        let draft_cache = draft_caches(plan.context);
        plan.draft_memory = plan.draft_memory.saturating_add(draft_cache);
        plan.cache_budget = match request.sessions {
            Some(_) => plan.kv_cache,
            // The memory for more sessions is not known.
            None if plan.available == Budget::UNKNOWN => plan.kv_cache,
            None => plan.kv_cache.max(left.unwrap_or(0).saturating_sub(draft_cache)),
        };
        plan.load_peak = plan.loaded();
        plan.total = sum(&[plan.load_peak, plan.kv_cache, plan.buffers()]);
        plan
    }

    /// Whether the plan, with at least one token, fits into what is available.
    pub fn fits(&self) -> bool {
        self.context.max(1) <= self.max_context
    }

    /// The bytes of that memory that weights take: the mapped files, or their copies.
    pub fn weights(&self) -> u64 {
        match self.place {
            PlanMemory::Main if self.weights_resident == 0 => self.weights_file,
            _ => self.weights_resident,
        }
    }

    /// The bytes of main memory other than mapped files, at the full context.
    pub fn anonymous(&self) -> u64 {
        match self.place {
            PlanMemory::Main => self.total.saturating_sub(self.mapped()),
            PlanMemory::Gpu => sum(&[self.tokenizer, self.process]),
            PlanMemory::Shared => self.total,
        }
    }

    /// The bytes of main memory that are pages of mapped files.
    fn mapped(&self) -> u64 {
        if self.weights_resident == 0 { self.weights().saturating_add(self.draft_weights) } else { 0 }
    }

    /// The KV caches of `predictor`, the prediction head, in all sessions.
    pub fn predictor_cache(&self, predictor: &ModelSpec) -> u64 {
        KvSize::of_cpu(predictor, self.kv_dtype).bytes(self.context).saturating_mul(self.sessions as u64)
    }

    /// What drafts tokens for the model, where something does: a prediction head is in the model's own files.
    pub fn draft_name(&self) -> &'static str {
        if self.draft_weights > 0 { "draft model" } else { "prediction head" }
    }

    /// The bytes that a draft model or a prediction head takes.
    pub fn draft(&self) -> u64 {
        self.draft_weights.saturating_add(self.draft_memory)
    }

    /// The bytes of that memory that are taken once the model is loaded.
    fn loaded(&self) -> u64 {
        let host = sum(&[self.tokenizer, self.process]);
        match self.place {
            PlanMemory::Main => sum(&[self.weights(), self.draft_weights, host]),
            PlanMemory::Gpu => sum(&[self.weights_resident, self.device_context]),
            PlanMemory::Shared => sum(&[self.weights_resident, self.device_context, host]),
        }
    }

    /// The bytes that computing takes in addition to caches.
    fn buffers(&self) -> u64 {
        sum(&[self.activations, self.draft_memory, self.vision_memory, self.adapters])
    }

    /// What is left for the KV cache; `None` when the rest by itself does not fit.
    fn left(&self, budget: &Budget) -> Option<u64> {
        let buffers = self.buffers();
        let left = budget.available.checked_sub(self.loaded())?.checked_sub(buffers)?;
        match budget.anonymous {
            Some(limit) => Some(left.min(limit.checked_sub(buffers)?.checked_sub(self.loaded() - self.mapped())?)),
            None => Some(left),
        }
    }
}

/// The largest number up to `limit` for which `fits` holds, where it holds for all smaller ones; 0 where it holds for none.
fn most(limit: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut beyond) = (0, limit.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    fitting
}

fn product(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |product: u64, &factor| product.saturating_mul(factor as u64))
}

fn sum(terms: &[u64]) -> u64 {
    terms.iter().fold(0, |sum: u64, &term| sum.saturating_add(term))
}
