//! The measurements of a round, and the most that the machine can do in the same round.

use crate::{common, peak};
use model_factory::cpu::Matrix;
use model_factory::diagnostics::spec::{LayerWeights, LinearWeights};
use model_factory::kernels::Kernel;
use model_factory::{Error, Model, Session};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Sizes of a test, in tokens and sequences.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    /// The number of tokens of the prompt.
    pub(crate) prompt: usize,
    /// The number of tokens that are generated.
    pub(crate) generated: usize,
    /// The number of tokens in the cache before the prompt, and before the first generated one.
    pub(crate) depth: usize,
    /// The number of sequences that are generated together.
    pub(crate) sessions: usize,
}

/// A loaded model and the results of the rounds so far, in tokens, operations and bytes per second.
pub(crate) struct Measured {
    pub(crate) model: Model,
    test: Test,
    sessions: Vec<Session>,
    /// Bytes of weights that a step reads.
    pub(crate) weights: usize,
    /// Bytes of cache that a step reads for a sequence, half way through.
    pub(crate) cache: usize,
    /// Bytes of anonymous memory (not of files) after the load.
    pub(crate) anonymous: Option<u64>,
    prefills: Vec<f64>,
    peaks: Vec<f64>,
    block_peaks: Vec<f64>,
    peak_shares: Vec<f64>,
    decodes: Vec<f64>,
    bandwidths: Vec<f64>,
    bandwidth_shares: Vec<f64>,
    distances: Vec<f64>,
}

/// The figures of all rounds: tokens, operations and bytes per second.
pub(crate) struct Figures {
    pub(crate) prefill: Spread,
    pub(crate) decode: Spread,
    pub(crate) bandwidth: f64,
    /// The share of the bandwidth that generating uses.
    pub(crate) bandwidth_share: f64,
    /// The peak of the multiply instruction.
    pub(crate) arithmetic: Option<f64>,
    /// The share of that peak that a prompt uses.
    pub(crate) arithmetic_share: Option<f64>,
    /// The peak of the multiply instruction with the scales of blocks.
    pub(crate) block_arithmetic: Option<f64>,
    /// The seconds that a cache line takes from one thread to another.
    pub(crate) distance: Option<f64>,
}

impl Measured {
    /// A model, warmed up: a first short run touches every page of the weights and fills the caches of the allocator.
    pub(crate) fn new(model: Model, test: Test) -> Result<Measured, Error> {
        let anonymous = common::process_bytes("RssAnon");
        prefill(&mut model.session(), 0, &prompt(&model, 8))?;
        let per_position = model.report().plan.as_ref().map_or(0, |plan| plan.kv_per_token as usize);
        Ok(Measured {
            sessions: sessions(&model, test)?,
            weights: weight_bytes_per_token(&model),
            cache: per_position * (test.depth + test.generated / 2),
            anonymous,
            model,
            test,
            prefills: Vec::new(),
            peaks: Vec::new(),
            block_peaks: Vec::new(),
            peak_shares: Vec::new(),
            decodes: Vec::new(),
            bandwidths: Vec::new(),
            bandwidth_shares: Vec::new(),
            distances: Vec::new(),
        })
    }

    /// Measures once. Speeds and bounds are measured right after each other: other work on a machine changes what it can do.
    pub(crate) fn round(&mut self) -> Result<(), Error> {
        let (model, test, threads) = (&self.model, self.test, self.model.threads());
        if test.prompt > 0 {
            self.block_peaks.extend(most(model, threads, peak::block_peak));
            let ids = prompt(model, test.prompt);
            let (peak, speed) = (most(model, threads, peak::peak), prefill(&mut self.sessions[0], test.depth, &ids)?);
            self.prefills.push(speed);
            self.peaks.extend(peak);
            let operations = operations_per_prompt_token(model) as f64;
            self.peak_shares.extend(peak.map(|peak| speed * operations / peak));
        }
        let at_once = threads.min(std::thread::available_parallelism().map_or(1, usize::from));
        self.distances.extend((at_once > 1).then(distance));
        let bandwidth = bandwidth(model, threads)?;
        self.bandwidths.push(bandwidth);
        if test.generated > 0 {
            let speed = decode(&mut self.sessions, test)?;
            self.decodes.push(speed);
            self.bandwidth_shares.push(speed * (self.weights / test.sessions + self.cache) as f64 / bandwidth);
        }
        Ok(())
    }

    /// Medians and spreads of all rounds.
    pub(crate) fn figures(&self) -> Figures {
        let median = |figures: &[f64]| (!figures.is_empty()).then(|| Spread::new(figures).median);
        Figures {
            prefill: Spread::new(&self.prefills),
            decode: Spread::new(&self.decodes),
            bandwidth: Spread::new(&self.bandwidths).median,
            bandwidth_share: Spread::new(&self.bandwidth_shares).median,
            arithmetic: median(&self.peaks),
            arithmetic_share: median(&self.peak_shares),
            block_arithmetic: median(&self.block_peaks),
            distance: median(&self.distances),
        }
    }

    /// Planned bytes: all of them, and those of anonymous memory.
    pub(crate) fn planned(&self) -> (Option<u64>, Option<u64>) {
        let plan = self.model.report().plan.as_ref();
        (plan.map(|plan| plan.total), plan.map(|plan| plan.anonymous()))
    }

    /// All figures as one JSON object.
    pub(crate) fn json(&self, path: &Path, isa: Option<&str>) -> Value {
        let (figures, test) = (self.figures(), self.test);
        let (planned, planned_anonymous) = self.planned();
        json!({
            "model": path.display().to_string(),
            "device": self.model.report().device,
            "isa": isa,
            "threads": self.model.threads(),
            "load_s": self.model.load_time().as_secs_f64(),
            "prefill": { "tokens": test.prompt, "depth": test.depth, "tok_s": figures.prefill.json() },
            "decode": {
                "tokens": test.generated,
                "depth": test.depth,
                "sessions": test.sessions,
                "tok_s": figures.decode.json(),
            },
            "peak_rss_bytes": common::process_bytes("VmHWM"),
            "planned_bytes": planned,
            "anonymous_after_load_bytes": self.anonymous,
            "planned_anonymous_bytes": planned_anonymous,
            "weight_bytes_per_token": self.weights,
            "operations_per_token": operations_per_token(&self.model),
            "cache_bytes_per_token": self.cache,
            "bandwidth_gb_s": figures.bandwidth / 1e9,
            "bandwidth_share": figures.bandwidth_share,
            "arithmetic_gop_s": figures.arithmetic.map(|peak| peak / 1e9),
            "arithmetic_share": figures.arithmetic_share,
            "block_arithmetic_gop_s": figures.block_arithmetic.map(|peak| peak / 1e9),
            "thread_distance_ns": figures.distance.map(|distance| distance * 1e9),
        })
    }
}

/// A prompt of made-up ids.
pub(crate) fn prompt(model: &Model, tokens: usize) -> Vec<u32> {
    let vocab = model.spec().vocab as u32;
    (0..tokens as u32).map(|i| (i * 7919 + 13) % vocab).collect()
}

/// Tokens per second of a prompt after the first `depth` tokens of a session.
fn prefill(session: &mut Session, depth: usize, ids: &[u32]) -> Result<f64, Error> {
    session.truncate(depth);
    let start = Instant::now();
    session.next_logits(ids)?;
    Ok(ids.len() as f64 / start.elapsed().as_secs_f64())
}

/// The sessions that generate, with their caches filled to `depth`.
fn sessions(model: &Model, test: Test) -> Result<Vec<Session>, Error> {
    let mut sessions: Vec<Session> = (0..test.sessions).map(|_| model.session()).collect();
    let ids = prompt(model, test.depth);
    for session in sessions.iter_mut().filter(|_| !ids.is_empty()) {
        session.next_logits(&ids)?;
    }
    Ok(sessions)
}

/// Tokens per second of greedy steps of all sessions together.
fn decode(sessions: &mut [Session], test: Test) -> Result<f64, Error> {
    for session in &mut *sessions {
        session.truncate(test.depth);
    }
    let mut next: Vec<u32> = (1..=test.sessions as u32).collect();
    let start = Instant::now();
    for _ in 0..test.generated {
        let mut steps: Vec<(&mut Session, &[u32])> =
            sessions.iter_mut().zip(&next).map(|(session, next)| (session, std::slice::from_ref(next))).collect();
        let logits = Session::batch_logits(&mut steps)?;
        for (next, logits) in next.iter_mut().zip(logits.rows()) {
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            *next = best.unwrap_or(0) as u32;
        }
    }
    Ok((test.generated * test.sessions) as f64 / start.elapsed().as_secs_f64())
}

/// Bytes of the matrices that one token reads in full: all except an untied embedding, of which it reads one row, and the
/// experts that are not chosen for it.
fn weight_bytes_per_token(model: &Model) -> usize {
    let spec = model.spec();
    let all: u64 = spec.matrices().skip(1).map(|matrix| matrix.bytes).sum();
    let stored = spec.tensors().map(|tensor| tensor.bytes).sum::<u64>();
    (all - (stored - spec.active_bytes())) as usize
}

/// Multiplications and additions for one generated token.
fn operations_per_token(model: &Model) -> usize {
    let spec = model.spec();
    let all: u64 = spec.matrices().skip(1).map(|matrix| matrix.shape.iter().product::<u64>()).sum();
    2 * (all - (spec.parameters - spec.active_parameters())) as usize
}

/// Bytes per second that copies on the GPU move, or that `threads` threads read from the mapped weights with almost no
/// computation.
fn bandwidth(model: &Model, threads: usize) -> Result<f64, Error> {
    #[cfg(feature = "cuda")]
    if let Some(decoder) = model.cuda() {
        return Ok(decoder.copy_rate()?);
    }
    let weights: Vec<&[u8]> = on_processor(model).map(|matrix| matrix.weight().bytes()).collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let weights = &weights;
            scope.spawn(move || {
                for bytes in weights {
                    let share = bytes.len() / threads;
                    black_box(xor(&bytes[thread * share..(thread + 1) * share]));
                }
            });
        }
    });
    Ok(weights.iter().map(|bytes| bytes.len()).sum::<usize>() as f64 / start.elapsed().as_secs_f64())
}

/// The matrices on the processor except the embedding; none for a model on a GPU.
fn on_processor(model: &Model) -> impl Iterator<Item = &Matrix> {
    model.decoder().into_iter().flat_map(|decoder| decoder.matrices().skip(1))
}

/// The matrices that every token of a prompt is multiplied with: the head computes only the last token.
fn blocks(model: &Model) -> impl Iterator<Item = &Matrix> {
    let all: Vec<&Matrix> = on_processor(model).collect();
    let head = all.len().saturating_sub(1);
    all.into_iter().take(head)
}

/// Multiplications and additions for one token of a prompt: after q, k and v the last layer computes only its last token.
fn operations_per_prompt_token(model: &Model) -> usize {
    let layers = &model.spec().weights.layers;
    let operations = |linear: &LinearWeights| 2 * linear.weight.shape.iter().product::<u64>() as usize;
    let of_layer = |layer: &LayerWeights| {
        let all: usize = layer.linears().map(operations).sum();
        let left_out = layer.experts().map_or(0, |experts| {
            let routed: usize = experts.routed().map(operations).sum();
            routed / experts.routing.experts * (experts.routing.experts - experts.routing.chosen)
        });
        all - left_out
    };
    let Some((last, before)) = layers.split_last() else { return 0 };
    before.iter().map(of_layer).sum::<usize>() + last.linears().take(3).map(operations).sum::<usize>()
}

/// Operations per second of `threads` threads, as `measure` finds them for the kernel that multiplies most of the
/// model.
fn most(model: &Model, threads: usize, measure: fn(&Kernel, Duration) -> Option<f64>) -> Option<f64> {
    let mut operations: BTreeMap<&str, (usize, Kernel)> = BTreeMap::new();
    for matrix in blocks(model) {
        let kernel = matrix.kernel();
        operations.entry(kernel.name).or_insert((0, kernel)).0 += matrix.operations();
    }
    let (_, kernel) = operations.into_values().max_by_key(|(operations, _)| *operations)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| measure(&kernel, Duration::from_millis(50)))).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).sum()
    })
}

/// Seconds that a cache line takes from one thread to another: some 30 ns where they share a cache, 100 and more where they
/// do not. The smallest of a few tries counts, as threads are interrupted.
fn distance() -> f64 {
    const TURNS: usize = 1000;
    let turn = AtomicUsize::new(0);
    // Increments the shared number at every second turn.
    let play = |turns: Range<usize>| {
        for mine in turns.step_by(2) {
            while turn.load(Ordering::Acquire) != mine {
                std::hint::spin_loop();
            }
            turn.store(mine + 1, Ordering::Release);
        }
    };
    let tries = (0..5).map(|_| {
        turn.store(0, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| play(0..TURNS));
            // The other thread is ready when it has taken the first turn.
            play(1..2);
            let start = Instant::now();
            play(3..TURNS);
            start.elapsed().as_secs_f64() / TURNS as f64
        })
    });
    tries.fold(f64::INFINITY, f64::min)
}

/// All bytes folded into 64, in a way that the compiler turns into vector loads.
fn xor(bytes: &[u8]) -> [u8; 64] {
    let mut folded = [0u8; 64];
    for chunk in bytes.chunks_exact(64) {
        for (folded, byte) in folded.iter_mut().zip(chunk) {
            *folded ^= byte;
        }
    }
    folded
}

/// Median, smallest and largest of some figures; zeros if there are none.
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn new(figures: &[f64]) -> Spread {
        let mut figures = figures.to_vec();
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(0.0);
        let last = figures.len().saturating_sub(1);
        // The median of an even number of figures is the mean of the two in the middle.
        Spread { median: (at(last / 2) + at(last.div_ceil(2))) / 2.0, min: at(0), max: at(last) }
    }

    fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}
