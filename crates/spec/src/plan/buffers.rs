//! ModelSpec -> the buffers of a forward pass and the weights in GPU memory: the plan and the decoder's allocations use
//! the same functions.

use super::{KV_PAGE, PREFILL_CHUNK, product, sum};
use crate::block::ExpertInput;
use crate::spec::{AttentionWeights, FeedForwardLayer, FeedForwardWeights, LayerWeights, Mixer, ModelSpec};
use model_factory_dtypes::thread_bytes;

/// On a GPU each tensor starts, and each buffer ends, at a multiple of this.
pub const GPU_ALIGNMENT: u64 = 256;

/// Bytes that GPU kernels may read beyond the end of a tensor.
pub const GPU_OVERREAD: u64 = 16;

/// The number of parts into which attention on a GPU divides the positions of all rows, each with its own result.
pub const GPU_ATTENTION_PARTS: usize = 256;

/// The number of rows of logits that a GPU computes at a time.
pub const GPU_LOGIT_ROWS: usize = 32;

/// Bytes of a recorded launch on a GPU. As measured by others, drivers take about 10 KB (CUDA 12) to 68 KB (driver 470)
/// for a kernel of a graph: this is more than either.
const GPU_LAUNCH_BYTES: u64 = 72 << 10;

/// Steps of generation whose launches a GPU keeps: of one sequence and of batches, at the current length and the last one.
const GPU_RECORDINGS: usize = 4;

/// Launches of a layer: four products, the preparation of each, rotation and attention. Where more are recorded, fewer
/// recordings are kept.
const GPU_LAYER_LAUNCHES: usize = 10;

/// Launches outside of the layers: the embedding, and the head's product and preparation.
const GPU_OTHER_LAUNCHES: usize = 3;

/// Launches for one token on a GPU.
pub fn gpu_launches(spec: &ModelSpec) -> usize {
    spec.weights.layers.len().saturating_mul(GPU_LAYER_LAUNCHES).saturating_add(GPU_OTHER_LAUNCHES)
}

/// The most bytes that a recording of `launches` takes on a GPU.
pub fn gpu_recording_bytes(launches: usize) -> u64 {
    GPU_LAUNCH_BYTES.saturating_mul(launches as u64)
}

/// Bytes that a tensor of `bytes` takes on a GPU.
pub fn gpu_tensor_bytes(bytes: u64) -> u64 {
    aligned(bytes.saturating_add(GPU_OVERREAD))
}

/// Bytes of the weights on a GPU when their files have `weights_file` bytes: every stored tensor once, at an aligned
/// address and with room to read beyond its end.
pub fn gpu_weight_bytes(spec: &ModelSpec, weights_file: u64) -> u64 {
    let tensors = || spec.tensors().map(|tensor| tensor.bytes);
    let stored = tensors().fold(0, u64::saturating_add);
    let placed = tensors().map(gpu_tensor_bytes).fold(0, u64::saturating_add);
    // A smaller file of the same model has the same tensors.
    weights_file.min(stored).saturating_add(placed.saturating_sub(stored))
}

/// The buffers of forward passes on the processor: elements a row, all F32. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBuffers {
    /// The residual stream.
    pub hidden: usize,
    /// A row of the embedding, which is there before a projection makes the residual stream of it.
    pub embedding: usize,
    /// The products of a token mixer's input: queries, keys and values. It also holds the coefficients of residual streams, and what is
    /// in the middle of a low-rank residual.
    pub projected: usize,
    /// The input of a token mixer's output projection, which is the attention's output. It also holds the gated input
    /// of a layer's embedding, the sum of experts' outputs where experts are next to a dense layer, and after it the latents
    /// that values are made of.
    pub mixed: usize,
    /// The same of a second mixer of a layer, while the first is computed; 0 where no layer has one.
    pub aside: usize,
    /// The feed-forward layer's activations, as the down projection reads them.
    pub activated: usize,
    /// The output of a sub-layer before its norm, or of a residual stream; 0 where no layer has any.
    pub output: usize,
    /// The operand of a product, of the widest product.
    pub operand: usize,
    /// Outputs of the up and gate projections before they are combined, of all threads together.
    pub up_gate: usize,
    /// What a layer of experts takes in addition: its normalized input, the outputs of its router, the experts of a row, and
    /// for each of these the operands of both products, the activations, and the up and gate projections before they are combined.
    pub experts: usize,
    /// The inputs of all layers, where layers have embeddings.
    pub layer_inputs: usize,
    /// All residual streams, where there are several.
    pub streams: usize,
    /// Buffers of a prediction head: the hidden state it gets, the input of its projection, and the hidden state it returns.
    pub joined: usize,
    /// The logits of the last row.
    pub logits: usize,
    /// What is added to scores by distance, where anything is: for each head the distances to either side.
    pub distances: usize,
    /// Rows of embeddings of relative positions, of which each row of a step needs two at most; 0 where there are none.
    pub relative_rows: usize,
    /// Such a row, its operand, and its keys and queries in a layer.
    pub relative: usize,
    /// Elements of a head of a text whose tokens attend to all of it, and query heads for each head of keys; 0 of a decoder.
    pub whole_head: [usize; 2],
    /// What each thread takes for attention to latents: the values of a tile, and a head's part of the projection of keys.
    pub latents: usize,
}

impl CpuBuffers {
    /// No buffers.
    pub(super) const NONE: CpuBuffers = CpuBuffers {
        hidden: 0,
        embedding: 0,
        projected: 0,
        mixed: 0,
        aside: 0,
        activated: 0,
        output: 0,
        operand: 0,
        up_gate: 0,
        experts: 0,
        layer_inputs: 0,
        streams: 0,
        joined: 0,
        logits: 0,
        distances: 0,
        relative_rows: 0,
        relative: 0,
        whole_head: [0, 0],
        latents: 0,
    };

    /// The buffers of the model `spec`.
    pub fn new(spec: &ModelSpec) -> CpuBuffers {
        let mixers = || spec.weights.layers.iter().flat_map(LayerWeights::mixers);
        let wide = widest_feed_forward(spec);
        let input = layer_input(spec);
        let beside = feed_forwards(spec).any(|layer| layer.beside.is_some());
        let summed = if beside { spec.hidden } else { 0 };
        let relative = spec.weights.input.as_ref().and_then(|input| input.relative.as_ref());
        let projected = mixers().map(Mixer::mixed).max().unwrap_or(0);
        CpuBuffers {
            hidden: spec.hidden,
            embedding: spec.weights.embedding.weight.shape[1] as usize,
            projected: mixers().map(Mixer::projected).max().unwrap_or(0).max(beside_mixers(spec)),
            mixed: mixers()
                .map(|mixer| mixer.mixed().saturating_add(mixer.latents()))
                .max()
                .unwrap_or(0)
                .max(input)
                .max(summed),
            aside: spec.weights.layers.iter().map(aside).max().unwrap_or(0),
            activated: wide,
            output: if spec.weights.layers.iter().any(puts_out) { spec.hidden } else { 0 },
            operand: widest_operand(spec),
            up_gate: wide.saturating_mul(2),
            experts: spec.weights.layers.iter().map(expert_elements).max().unwrap_or(0),
            layer_inputs: input.saturating_mul(spec.layers()),
            streams: streams(spec).saturating_mul(spec.hidden),
            joined: if spec.weights.joined.is_some() { spec.hidden.saturating_mul(4) } else { 0 },
            logits: spec.vocab,
            distances: if by_distance(spec) { spec.heads.saturating_mul(2) } else { 0 },
            relative_rows: relative.map_or(0, |relative| 2 * relative.positions.span),
            // A place is as long as two floats.
            relative: relative.map_or(0, |_| 2 * (spec.hidden + projected + 1)),
            whole_head: if spec.is_encoder() { [spec.head_dim, spec.heads / spec.kv_heads.max(1)] } else { [0, 0] },
            latents: spec.attentions().map(latent_elements).max().unwrap_or(0),
        }
    }

    /// Bytes of all buffers for `rows` tokens, and the logits of one token. Logits are counted twice: as computed, and
    /// as a sampler reads them. A step of several sequences stays within them by [`room`](Self::room).
    pub fn bytes(&self, rows: usize) -> u64 {
        let relative = product(&[self.relative, self.relative_rows.min(rows.saturating_mul(2))]);
        let elements = self.row().saturating_mul(rows as u64).saturating_add(product(&[self.logits, 2]));
        elements.saturating_add(relative).saturating_mul(size_of::<f32>() as u64)
    }

    /// The most bytes that `threads` take for themselves while `rows` tokens are computed.
    pub fn of_threads(&self, threads: usize, rows: usize) -> u64 {
        let elements = sum(&[self.latents as u64, self.whole_text(rows)]);
        let bytes = elements.saturating_mul(size_of::<f32>() as u64);
        thread_bytes(self.operand, rows).saturating_add(bytes).saturating_mul(threads as u64)
    }

    /// Elements that a thread takes for the attention of a head to all of a text of `rows` tokens: its keys and values, its queries
    /// and, where there are relative positions, what scores have by them, and the keys and queries that this is made of.
    fn whole_text(&self, rows: usize) -> u64 {
        // A query with its sums, and its row.
        const QUERY: usize = 40;
        const TILE: usize = 64;
        let [dim, queries] = self.whole_head;
        let positions = self.relative_rows.min(rows.saturating_mul(2));
        let terms = if positions > 0 { rows } else { 0 };
        let stored = positions.saturating_add(terms).saturating_add(positions.max(terms));
        sum(&[
            product(&[2, dim, rows.saturating_add(TILE)]),
            product(&[QUERY, queries, rows]),
            product(&[terms, terms.saturating_add(positions.saturating_mul(2))]),
            product(&[stored, dim]),
        ])
    }

    /// The part of [`bytes`](Self::bytes) of `rows` that a step may fill.
    pub fn room(&self, rows: usize) -> StepRoom {
        let logits = usize::try_from(product(&[self.logits, 2]).div_ceil(self.row().max(1))).unwrap_or(usize::MAX);
        StepRoom { rows: rows.saturating_add(logits), logits }
    }

    fn row(&self) -> u64 {
        let CpuBuffers { hidden, embedding, projected, mixed, aside, activated, output, operand, .. } = *self;
        let CpuBuffers { up_gate, experts, layer_inputs, streams, joined, distances, logits: _, latents: _, .. } =
            *self;
        let hidden = hidden.max(embedding);
        let all = [
            hidden,
            projected,
            mixed,
            aside,
            activated,
            output,
            operand,
            up_gate,
            experts,
            layer_inputs,
            streams,
            joined,
            distances,
        ];
        sum(&all.map(|elements| elements as u64))
    }
}

/// What the tokens of a step may take together: each takes a row, and one whose logits are wanted takes `logits` more.
/// A step with many logits is shorter by the rows that use the same memory. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRoom {
    /// The number of rows.
    pub rows: usize,
    /// Rows whose buffers take as much memory as the logits of a token.
    pub logits: usize,
}

/// Whether scores of attention have something by the distance of positions.
fn by_distance(spec: &ModelSpec) -> bool {
    spec.weights.input.as_ref().is_some_and(|input| input.distances.is_some())
}

/// Elements of the longest row that a product reads: an input of the block's projections, of down or of o.
fn widest_operand(spec: &ModelSpec) -> usize {
    let ups = spec.attentions().filter_map(|attention| attention.kv.latent()?.q_up.as_ref());
    let mixed = spec
        .weights
        .layers
        .iter()
        .flat_map(LayerWeights::mixers)
        .map(Mixer::longest_input)
        .chain(ups.map(|up| up.rank));
    let joined = if spec.weights.joined.is_some() { spec.hidden.saturating_mul(2) } else { 0 };
    let embedding = spec.weights.embedding.weight.shape[1] as usize;
    let others = [spec.hidden, embedding, widest_feed_forward(spec), layer_input(spec), joined, beside_mixers(spec)];
    mixed.chain(others).max().unwrap_or(0)
}

/// Elements of a row that a second mixer puts out, or the first, as the two change places.
fn aside(layer: &LayerWeights) -> usize {
    let several = layer.mixers().count() > 1;
    layer.mixers().filter(|_| several).map(Mixer::mixed).max().unwrap_or(0)
}

/// Elements that a thread takes for attention to latents, of which it multiplies a few rows at a time.
fn latent_elements(attention: &AttentionWeights) -> usize {
    const TILE: usize = 64;
    attention.kv.latent().map_or(0, |latent| latent.rank.saturating_mul(TILE.saturating_add(latent.plain)))
}

/// Whether a layer has an output that is changed before it is added.
fn puts_out(layer: &LayerWeights) -> bool {
    let has_laurel = layer.mixer.as_ref().is_some_and(|mixer| mixer.laurel.is_some());
    layer.norms_outputs() || layer.altup.is_some() || has_laurel
}

/// The number of residual streams, where there are several.
fn streams(spec: &ModelSpec) -> usize {
    spec.weights.altup.as_ref().map_or(0, |altup| altup.inputs.len().saturating_add(1))
}

/// Elements that a row of the products beside those of a mixer takes: what a router of streams and its coefficients are, and the
/// low-rank residual.
fn beside_mixers(spec: &ModelSpec) -> usize {
    let ranks = spec.weights.layers.iter().filter_map(|layer| layer.mixer.as_ref()?.laurel.as_ref());
    let rank = ranks.map(|laurel| laurel.down.weight.shape[0] as usize).max().unwrap_or(0);
    let streams = streams(spec);
    streams.saturating_mul(streams.saturating_add(1)).max(rank)
}

/// Elements of a row of a layer's input where layers have embeddings.
fn layer_input(spec: &ModelSpec) -> usize {
    spec.weights.layer_embedding.as_ref().map_or(0, |embedding| embedding.width)
}

/// Rows of the widest up projection that every row is multiplied with.
fn widest_feed_forward(spec: &ModelSpec) -> usize {
    let dense = |layer: &FeedForwardWeights| match &layer.layer {
        FeedForwardLayer::Dense(_) => spec.feed_forward,
        FeedForwardLayer::Experts(experts) => {
            let shared = experts.shared.as_ref().map(|shared| &shared.dense);
            let dense = shared.into_iter().chain(layer.beside.iter().map(|beside| &beside.dense));
            dense.map(|dense| dense.up.weight.shape[0] as usize).max().unwrap_or(0)
        }
    };
    feed_forwards(spec).map(dense).max().unwrap_or(0)
}

fn feed_forwards(spec: &ModelSpec) -> impl Iterator<Item = &FeedForwardWeights> {
    spec.weights.layers.iter().filter_map(|layer| layer.feed_forward.as_ref())
}

/// Elements a row that a layer of experts takes in addition to those of every layer.
fn expert_elements(layer: &LayerWeights) -> usize {
    let Some(experts) = layer.experts() else { return 0 };
    let hidden = experts.down.outputs;
    // An expert and its weight for each row, stored twice: in the order of choice, and in the order of experts.
    const CHOICE: usize = 2 * 2 * size_of::<usize>() / size_of::<f32>();
    let wide = experts.feed_forward().saturating_mul(4);
    // The operands of both products, and the weighed input.
    let inputs = if experts.input == ExpertInput::Weighed { 3 } else { 2 };
    let each = hidden.saturating_mul(inputs).saturating_add(wide).saturating_add(CHOICE);
    // The normalized input, the router's input where that differs, and their operands.
    let inputs = if experts.router_norm.is_some() { 4 } else { 2 };
    hidden
        .saturating_mul(inputs)
        .saturating_add(experts.routing.experts)
        .saturating_add(each.saturating_mul(experts.routing.chosen))
}

/// The buffers of forward passes on a GPU: bytes of each, all multiples of [`GPU_ALIGNMENT`]. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuBuffers {
    /// Rows that a forward pass takes at a time.
    pub rows: usize,
    /// Data on the rows: rotation angles, and 32 bytes of indices each; the addresses of pages; a word on overflow.
    pub batch: u64,
    /// The residual stream.
    pub hidden: u64,
    /// The operand of a product in the form that kernels read.
    pub prepared: u64,
    /// The scales of the operand, 8 bytes for every 32 elements.
    pub steps: u64,
    /// The extents of the operand.
    pub extents: u64,
    /// Queries, keys and values.
    pub qkv: u64,
    /// The attention's output.
    pub attended: u64,
    /// The outputs of the gate and up projections.
    pub up_gate: u64,
    /// Partial results of the attention with their maxima and sums.
    pub partial: u64,
    /// Counters of blocks that have stored their part.
    pub arrived: u64,
    /// The logits of some rows.
    pub logits: u64,
    /// What the driver keeps of recorded steps; recordings beyond it are freed.
    pub recordings: u64,
}

impl GpuBuffers {
    /// The buffers for sequences of up to `context` tokens.
    pub fn new(spec: &ModelSpec, context: usize) -> GpuBuffers {
        // A batch has this many rows, however short the sequences are.
        let rows = PREFILL_CHUNK;
        let queries = spec.heads.saturating_mul(spec.head_dim);
        let keys = spec.kv_heads.saturating_mul(spec.head_dim);
        let widest = widest_operand(spec);
        let bytes = |factors: &[usize]| aligned(product(factors));
        let floats = |factors: &[usize]| aligned(product(factors).saturating_mul(size_of::<f32>() as u64));
        let angles = product(&[rows, spec.rope().map_or(0, |rope| rope.dimensions), size_of::<f32>()]);
        let pages = sum(&[context.div_ceil(KV_PAGE) as u64, rows as u64]).saturating_mul(8);
        GpuBuffers {
            rows,
            batch: aligned(sum(&[angles, product(&[rows, 32]), pages, GPU_ALIGNMENT])),
            hidden: floats(&[rows, spec.hidden]),
            prepared: floats(&[rows, widest]),
            steps: bytes(&[rows, widest.div_ceil(32).max(1), 8]),
            extents: bytes(&[rows, 16]),
            qkv: floats(&[rows, queries.saturating_add(keys.saturating_mul(2))]),
            attended: floats(&[rows, queries]),
            up_gate: floats(&[rows, 2, spec.feed_forward]),
            partial: floats(&[GPU_ATTENTION_PARTS, spec.heads, spec.head_dim.saturating_add(2)]),
            arrived: bytes(&[GPU_ATTENTION_PARTS, spec.heads, size_of::<u32>()]),
            logits: floats(&[GPU_LOGIT_ROWS, spec.vocab]),
            recordings: gpu_recording_bytes(product(&[GPU_RECORDINGS, gpu_launches(spec)]) as usize),
        }
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        let GpuBuffers { rows: _, batch, hidden, prepared, steps, extents, qkv, attended, .. } = *self;
        let GpuBuffers { up_gate, partial, arrived, logits, recordings, .. } = *self;
        sum(&[batch, hidden, prepared, steps, extents, qkv, attended, up_gate, partial, arrived, logits, recordings])
    }
}

fn aligned(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GPU_ALIGNMENT).unwrap_or(u64::MAX)
}
