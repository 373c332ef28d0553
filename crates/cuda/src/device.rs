//! An NVIDIA GPU: the decoder's operations as launches of kernels.

use super::arguments::{Attend, Embed, Rotate};
use super::attention::Attention;
use super::batch::{BatchState, BatchTable, overflow};
use super::buffer::{Buffer, Function, LaunchShape};
use super::driver::Gpu;
use super::modules::Module;
use super::product::{DeviceMatrix, DeviceNorm, FEW_TOKENS, Multiplier, ProductTarget, RowSource, Rows, Vector};
use super::weights::{DeviceWeights, Uploaded};
use crate::error::CudaError;
use model_factory_dtypes::GPU_MOST_HEAD_DIM;
use model_factory_engine::decoder::{AllocatePage, Batch, Device, Extensions, Operand, Output, PageMemory};
use model_factory_engine::error::{Error, Result};
use model_factory_engine::weights::Weights;
use model_factory_format::header::TensorInfo;
use model_factory_kernels::memory;
use model_factory_spec::plan::{GPU_ATTENTION_PARTS, GPU_LOGIT_ROWS, GpuBuffers, KvDtype, KvSize, PREFILL_CHUNK, Plan};
use model_factory_spec::spec::{
    Activation, AttentionWeights, DenseWeights, LinearWeights, Mixer, ModelSpec, Multipliers, NormWeights, RopeLayout,
    WeightTypes,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Attention to fewer positions than this is not divided further.
const PART_POSITIONS: usize = 128;

/// The most parts of the positions of a row: `MOST_PARTS` of `attention.cu`.
const MOST_PARTS: usize = 64;

/// A GPU as one model uses it.
#[derive(Debug)]
pub struct CudaDevice {
    pub(super) gpu: Arc<Gpu>,
    weights: DeviceWeights,
    sizes: LaunchSizes,
    kv_dtype: KvDtype,
    page_bytes: usize,
    attention: Attention,
    rotate: Function,
    /// The arguments of `rotate` and of attention that all layers share.
    of_rotate: Rotate,
    of_attend: Attend,
    buffers: PassBuffers,
    multiplier: Multiplier,
    /// Bytes that recordings may take together.
    recordings_bytes: u64,
    /// The state of the forward pass or measurement that runs; there is one at a time: [`lock`](Self::lock).
    scratch: Mutex<BatchState>,
}

#[derive(Debug)]
struct LaunchSizes {
    hidden: usize,
    feed_forward: usize,
    vocab: usize,
    /// The longest window of a layer, where all have one.
    window: Option<usize>,
    kv_heads: usize,
    /// Elements of queries, keys and values.
    qkv: usize,
}

#[derive(Debug)]
struct PassBuffers {
    rows: usize,
    hidden: Buffer,
    qkv: Buffer,
    attended: Buffer,
    up_gate: Buffer,
    partial: Buffer,
    arrived: Buffer,
    logits: Buffer,
    /// The memory of the multiplier: prepared rows, their steps, their extents.
    prepared: [Buffer; 3],
}

impl PassBuffers {
    fn new(gpu: &Arc<Gpu>, sizes: GpuBuffers) -> Result<PassBuffers, CudaError> {
        let buffer = |bytes: u64| Buffer::new(gpu, "the buffers of a forward pass", bytes as usize);
        let arrived = buffer(sizes.arrived)?;
        arrived.upload(0, &vec![0; sizes.arrived as usize])?;
        Ok(PassBuffers {
            rows: sizes.rows,
            hidden: buffer(sizes.hidden)?,
            qkv: buffer(sizes.qkv)?,
            attended: buffer(sizes.attended)?,
            up_gate: buffer(sizes.up_gate)?,
            partial: buffer(sizes.partial)?,
            arrived,
            logits: buffer(sizes.logits)?,
            prepared: [buffer(sizes.prepared)?, buffer(sizes.steps)?, buffer(sizes.extents)?],
        })
    }

    fn bytes(&self) -> usize {
        let PassBuffers { rows: _, hidden, qkv, attended, up_gate, partial, arrived, logits, prepared } = self;
        [hidden, qkv, attended, up_gate, partial, arrived, logits].into_iter().chain(prepared).map(Buffer::bytes).sum()
    }
}

impl CudaDevice {
    /// Uploads the weights to the GPU of this UUID, or else to the GPU of this index, and compiles the kernels needed.
    /// `uploaded` is called with the bytes copied so far and the bytes in all; its error ends the upload and frees what
    /// it took.
    ///
    /// # Errors
    /// [`CudaError`], or the error of `uploaded`.
    pub fn open(
        spec: &ModelSpec,
        weights: &Weights,
        plan: &Plan,
        uuid: Option<&str>,
        index: usize,
        uploaded: &Uploaded<'_>,
    ) -> Result<CudaDevice> {
        let gpu = Gpu::open(uuid, index)?;
        CudaDevice::new(Arc::new(gpu), spec, weights, plan.kv_dtype, plan.context, uploaded)
    }

    /// Like [`open`](Self::open), on a GPU that is already open.
    pub(super) fn new(
        gpu: Arc<Gpu>,
        spec: &ModelSpec,
        weights: &Weights,
        kv_dtype: KvDtype,
        context: usize,
        uploaded: &Uploaded<'_>,
    ) -> Result<CudaDevice> {
        // `MOST_DIM` of `steps.cu`.
        if spec.head_dim > GPU_MOST_HEAD_DIM {
            return Err(Error::Internal(format!("the diagnosis accepted heads of {} elements", spec.head_dim)));
        }
        if kv_dtype == KvDtype::Q8_0 {
            return Err(Error::Internal(format!("the diagnosis accepted a KV cache in {kv_dtype}")));
        }
        let halves = kv_dtype == KvDtype::F16;
        let attention = Attention::load(&gpu, spec.heads / spec.kv_heads, spec.head_dim, halves)?;
        let (rotate, prepare) = (gpu.function(Module::Steps, "rotate")?, gpu.function(Module::Steps, "prepare")?);
        // All that may be refused comes before the weights are copied.
        let sizes = GpuBuffers::new(spec, context);
        let buffers = PassBuffers::new(&gpu, sizes)?;
        let table = Buffer::new(&gpu, "the table of a batch", sizes.batch as usize)?;
        let [prepared, steps, extents] = buffers.prepared.each_ref().map(|buffer| buffer.address);
        let (heads, kv_heads) = (spec.heads as i32, spec.kv_heads as i32);
        let of_rotate = Rotate {
            qkv: buffers.qkv.address,
            heads,
            kv_heads,
            dim: spec.head_dim as i32,
            pairs: spec.rope().map_or(0, |rope| rope.dimensions / 2) as i32,
            interleaved: i32::from(spec.rope().is_some_and(|rope| rope.layout == RopeLayout::Interleaved)),
            halves: i32::from(halves),
            ..Rotate::default()
        };
        let of_attend = Attend {
            qkv: buffers.qkv.address,
            out: buffers.attended.address,
            partial: buffers.partial.address,
            arrived: buffers.arrived.address,
            heads,
            kv_heads,
            ..Attend::default()
        };
        Ok(CudaDevice {
            weights: DeviceWeights::upload(&gpu, spec, weights, uploaded)?,
            sizes: LaunchSizes {
                hidden: spec.hidden,
                feed_forward: spec.feed_forward,
                vocab: spec.vocab,
                window: spec.sliding_window(),
                kv_heads: spec.kv_heads,
                qkv: (spec.heads + 2 * spec.kv_heads) * spec.head_dim,
            },
            kv_dtype,
            page_bytes: KvSize::of_gpu(spec, kv_dtype).page as usize,
            attention,
            rotate,
            of_rotate,
            of_attend,
            buffers,
            multiplier: Multiplier { gpu: Arc::clone(&gpu), prepare, prepared, steps, extents },
            recordings_bytes: sizes.recordings,
            scratch: Mutex::new(BatchState::new(table)),
            gpu,
        })
    }

    /// Bytes on the GPU that belong to the model: its weights, the buffers of forward passes, and the most recordings
    /// of them take. Caches come on top.
    pub fn bytes(&self) -> usize {
        self.weights.bytes() + self.buffers.bytes() + self.lock().table.bytes() + self.recordings_bytes as usize
    }

    /// Reads the weights back and names the first tensor whose bytes differ from the file. For checks.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn first_difference(&self, spec: &ModelSpec, weights: &Weights) -> Result<Option<String>, CudaError> {
        let _lock = self.lock();
        self.weights.first_difference(spec, weights)
    }

    /// The free bytes of the GPU, and all of its bytes.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.gpu.memory()
    }

    /// The right to use the buffers and the GPU's stream: launches of others during a recording
    /// would become part of the recording.
    pub(super) fn lock(&self) -> MutexGuard<'_, BatchState> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes by the launches that were recorded for such a batch, or records them now. Returns whether it could.
    fn recorded(
        &self,
        state: &mut BatchState,
        table: BatchTable,
        compute: &mut dyn FnMut(&mut CudaPass, bool) -> Result<()>,
    ) -> bool {
        let recording = match state.recordings.iter().position(|(other, _)| *other == table) {
            Some(index) => Ok(state.recordings.remove(index).1),
            None => {
                state.make_room(self.recordings_bytes);
                self.gpu.record(&mut || compute(&mut CudaPass::new(table), true))
            }
        };
        // SAFETY: the launches work in the weights and the buffers of this device, and in the table of the batch, whose
        // addresses are compared; the addresses of pages are in the table.
        let started = recording.and_then(|recording| Ok(unsafe { recording.replay() }.map(|()| recording)?));
        match started {
            Ok(recording) => state.keep(table, recording, self.recordings_bytes),
            Err(error) => {
                // The recording may be what memory is missing for. If the error lasts, the next launch returns it too.
                tracing::debug!(%error, "a step is computed without a recording");
                state.recordings.clear();
                state.unrecordable = Some(table);
                return false;
            }
        }
        true
    }

    /// Appends the remaining wanted logits, and checks for values that the cache could not hold: one wait for both.
    fn finish(&self, state: &BatchState, batch: &Batch<'_>, pass: &mut CudaPass) -> Result<()> {
        let CudaPass { table, logits, .. } = pass;
        let left = table.wanted_rows * self.sizes.vocab - logits.len();
        memory::grow(logits, left, "logits")?;
        let mut word = [0; 8];
        self.buffers.logits.append_floats(left, logits, &state.table, &mut word)?;
        let Some((layer, row, value)) = overflow(word) else { return Ok(()) };
        let of_row = batch.sequences.iter().find(|sequence| sequence.rows.contains(&row));
        let of_row = of_row.ok_or_else(|| Error::Internal(format!("the GPU names row {row} of {}", batch.rows)))?;
        let position = of_row.start + row - of_row.rows.start;
        Err(Error::CacheOverflow { layer, position, value, dtype: self.kv_dtype })
    }

    fn rows<'a>(&self, pass: &CudaPass, source: RowSource<'a>, from: &Buffer, stride: usize) -> Rows<'a> {
        Rows { source, address: from.address, stride, gather: 0, count: pass.table.rows }
    }

    /// The residual stream, normed where there is a norm.
    fn hidden<'a>(&self, pass: &CudaPass, norm: Option<&'a DeviceNorm>) -> Rows<'a> {
        self.rows(pass, norm.map_or(RowSource::Plain, RowSource::Normed), &self.buffers.hidden, self.sizes.hidden)
    }

    /// The number of parts for positions up to `longest`, a power of two, so that there are blocks for the whole GPU.
    fn parts(&self, rows: usize, tiles: usize, longest: usize) -> usize {
        let seen = self.sizes.window.map_or(longest, |window| longest.min(window));
        let wanted = (2 * self.gpu.processors).div_ceil(self.sizes.kv_heads * tiles.max(1));
        let most = MOST_PARTS.min(GPU_ATTENTION_PARTS / rows.max(1));
        let parts = wanted.min(seen.div_ceil(PART_POSITIONS)).min(most).max(1);
        1 << parts.ilog2()
    }
}

/// A pass over the rows of a batch. Its activations are the buffers of the device.
#[derive(Debug)]
pub struct CudaPass {
    table: BatchTable,
    /// Whether the gate follows the up projection in each row; the down projection applies the activation.
    gated: bool,
    logits: Vec<f32>,
}

impl CudaPass {
    fn new(table: BatchTable) -> CudaPass {
        CudaPass { table, gated: false, logits: Vec::new() }
    }
}

impl WeightTypes for CudaDevice {
    type Matrix = DeviceMatrix;
    type Norm = DeviceNorm;
    type Vector = Vector;
    type Numbers = Vec<f32>;
}

impl Device for CudaDevice {
    type Pass<'b> = CudaPass;

    const ADAPTERS: bool = false;

    const BATCH_INVARIANT: bool = false; // attention's parts and the products' forms depend on the rows

    fn matrix(&self, weights: &Weights, linear: &LinearWeights, _: usize) -> Result<DeviceMatrix> {
        DeviceMatrix::new(&self.gpu, &self.weights, weights, linear)
    }

    fn load_norm(&self, _: &Weights, norm: &NormWeights) -> Result<DeviceNorm> {
        DeviceNorm::new(&self.weights, norm)
    }

    fn vector(&self, _: &Weights, vector: &TensorInfo) -> Result<Vector> {
        Vector::new(&self.weights, vector)
    }

    fn kv_size(spec: &ModelSpec, dtype: KvDtype) -> KvSize {
        KvSize::of_gpu(spec, dtype)
    }

    fn pages(&self) -> AllocatePage {
        let (gpu, bytes) = (Arc::clone(&self.gpu), self.page_bytes);
        Arc::new(move |_| {
            let memory = Buffer::new(&gpu, "a page of the KV cache", bytes)?;
            Ok(PageMemory::Device { address: memory.address, memory: Box::new(memory) })
        })
    }

    fn extensions(&self) -> Extensions<'_, Self> {
        Extensions::NONE
    }

    fn run<'b>(
        &self,
        batch: Batch<'b>,
        compute: &mut dyn FnMut(&mut CudaPass, bool) -> Result<()>,
    ) -> Result<Vec<f32>> {
        let (mut scratch, most) = (self.lock(), self.buffers.rows);
        if batch.rows > most {
            return Err(Error::Internal(format!("{} rows at a time, expected at most {most}", batch.rows)));
        }
        let parts = |rows, tiles, longest| self.parts(rows, tiles, longest);
        let table = BatchTable::upload(&batch, &self.attention, parts, &self.gpu, &mut scratch.table)?;
        // Steps of generation follow each other by the thousand, with the same launches and only another table.
        let again = table.rows == batch.sequences.len() && table.wanted_rows == table.rows && table.rows <= FEW_TOKENS;
        let known = scratch.last == Some(table) || scratch.recordings.iter().any(|(other, _)| *other == table);
        let seen = again && known && scratch.unrecordable != Some(table);
        let mut pass = CudaPass::new(table);
        if !(seen && self.recorded(&mut scratch, table, compute)) {
            compute(&mut pass, false)?;
            if again {
                scratch.last = Some(table);
            }
            scratch.unrecordable.take_if(|other| *other != table);
        }
        self.finish(&scratch, &batch, &mut pass)?;
        Ok(pass.logits)
    }

    fn embed(&self, pass: &mut CudaPass, embedding: &DeviceMatrix, _: f32) -> Result<()> {
        let given = Embed {
            weight: embedding.part.weight,
            ids: pass.table.ids,
            out: self.buffers.hidden.address,
            width: self.sizes.hidden as i32,
            row_bytes: embedding.row_bytes as i32,
        };
        let function = embedding.kernels.embed()?;
        Ok(self.gpu.start(function, LaunchShape::new([pass.table.rows, 1, 1], 256), &given)?)
    }

    fn norm_project(&self, pass: &mut CudaPass, norm: Option<&DeviceNorm>, mixer: &Mixer<Self>) -> Result<()> {
        let target = ProductTarget { address: self.buffers.qkv.address, width: self.sizes.qkv, add: false };
        Ok(self.multiplier.multiply(self.hidden(pass, norm), &mixer.inputs(), target)?)
    }

    fn rotate_and_store(&self, pass: &mut CudaPass, layer: usize, attention: &AttentionWeights<Self>) -> Result<()> {
        let table = &pass.table;
        let norms = [attention.q_norm.as_ref(), attention.k_norm()];
        let [(q, q_bias), (k, k_bias)] =
            norms.map(|norm| norm.map_or(Default::default(), |norm| (norm.weight, norm.bias)));
        let any = norms.into_iter().flatten().next();
        let given = Rotate {
            cos: table.cos,
            sin: table.sin,
            q_norm: q.address,
            q_bias: q_bias.address,
            k_norm: k.address,
            k_bias: k_bias.address,
            places: table.places,
            pages: table.pages,
            overflow: table.overflow,
            layer: layer as i32,
            layer_norm: i32::from(any.is_some_and(|norm| norm.layer)),
            q_norm_code: q.code,
            q_bias_code: q_bias.code,
            k_norm_code: k.code,
            k_bias_code: k_bias.code,
            eps: any.map_or(0.0, |norm| norm.eps),
            ..self.of_rotate
        };
        const WARPS: usize = 4; // `ROTATE_WARPS` of `steps.cu`
        let heads = (given.heads + 2 * given.kv_heads) as usize;
        let shape = LaunchShape::new([table.rows, heads.div_ceil(WARPS), 1], 32 * WARPS);
        Ok(self.gpu.start(self.rotate, shape, &given)?)
    }

    fn attend(&self, pass: &mut CudaPass, layer: usize, attention: &AttentionWeights<Self>) -> Result<()> {
        let given = Attend {
            pages: pass.table.pages,
            layer: layer as i32,
            window: attention.window.unwrap_or(0) as i32,
            scale: attention.score_scale,
            ..self.of_attend
        };
        Ok(self.attention.launch(&self.multiplier, pass.table.queries, given)?)
    }

    fn norm_up_activate(
        &self,
        pass: &mut CudaPass,
        norm: Option<&DeviceNorm>,
        DenseWeights { up, activation, .. }: &DenseWeights<Self>,
    ) -> Result<()> {
        let matrices: &[&DeviceMatrix] = match activation {
            Activation::SwiGlu { gate } => &[up, gate],
            Activation::GeluTanh => &[up],
            Activation::GeGlu { .. }
            | Activation::GeGluErf { .. }
            | Activation::ReGlu { .. }
            | Activation::ClampedSwiGlu { .. }
            | Activation::Gelu
            | Activation::QuickGelu
            | Activation::Relu
            | Activation::ReluSquared
            | Activation::XIelu => {
                return Err(Error::Internal("the diagnosis accepted another activation".into()));
            }
        };
        let width = matrices.len() * self.sizes.feed_forward;
        let target = ProductTarget { address: self.buffers.up_gate.address, width, add: false };
        self.multiplier.multiply(self.hidden(pass, norm), matrices, target)?;
        pass.gated = activation.gate().is_some();
        Ok(())
    }

    fn linear_add(&self, pass: &mut CudaPass, from: Operand, matrix: &DeviceMatrix, _: Output<'_, Self>) -> Result<()> {
        let (PassBuffers { attended, up_gate, hidden, .. }, ff) = (&self.buffers, self.sizes.feed_forward);
        let rows = match from {
            Operand::Mixed => self.rows(pass, RowSource::Plain, attended, matrix.inputs),
            Operand::Activated if pass.gated => self.rows(pass, RowSource::SwiGlu { offset: ff }, up_gate, 2 * ff),
            Operand::Activated => self.rows(pass, RowSource::Gelu, up_gate, ff),
        };
        let target = ProductTarget { address: hidden.address, width: self.sizes.hidden, add: true };
        Ok(self.multiplier.multiply(rows, &[matrix], target)?)
    }

    fn keep_wanted(&self, _: &mut CudaPass) -> Result<()> {
        Ok(()) // `logits` reads only the wanted rows
    }

    fn logits(&self, pass: &mut CudaPass, norm: &DeviceNorm, head: &DeviceMatrix, _: &Multipliers) -> Result<()> {
        let (vocab, mut left) = (self.sizes.vocab, pass.table.wanted_rows);
        let rows = Rows { gather: pass.table.wanted, count: left, ..self.hidden(pass, Some(norm)) };
        let target = ProductTarget { address: self.buffers.logits.address, width: vocab, add: false };
        // `run` reads the last slice, the only one of a recording.
        self.multiplier.multiply_slices(rows, head, GPU_LOGIT_ROWS, target, |rows| {
            left -= rows;
            if left > 0 {
                memory::grow(&mut pass.logits, rows * vocab, "logits")?;
                self.buffers.logits.append_floats(rows * vocab, &mut pass.logits, &self.buffers.logits, &mut [])?;
            }
            Ok(())
        })
    }
}

const _: () = assert!(GPU_ATTENTION_PARTS <= PREFILL_CHUNK, "parts are for few rows");
const _: () = assert!(FEW_TOKENS <= GPU_LOGIT_ROWS, "what is recorded has one slice of logits");
