//! Prefill and decode speed, beside the memory bandwidth of the same run.

mod common;

use clap::Parser;
use model_factory::diagnostics::header::TensorInfo;
use model_factory::kernels::{Isa, Kernel};
use model_factory::linear::Matrix;
use model_factory::{DeviceChoice, Error, KvDtype, Model, Session, UnifiedModelFactory};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Measure prompt processing into an empty cache, and generation.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; the bundled demo model when absent.
    path: Option<PathBuf>,
    /// Prompt tokens.
    #[arg(short, default_value_t = 256)]
    p: usize,
    /// Generated tokens.
    #[arg(short, default_value_t = 64)]
    n: usize,
    /// Tokens in the cache before the first that is generated.
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Sequences that are generated together, in one pass over the weights.
    #[arg(long, default_value_t = 1, value_parser = common::count())]
    sessions: usize,
    /// Repetitions of each test.
    #[arg(short, default_value_t = 5, value_parser = common::count())]
    r: usize,
    /// Keys and values are kept in f32, as computed, or rounded to f16, which takes half the memory.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    kv_cache: KvDtype,
    /// Threads to compute with; all when absent.
    #[arg(long, value_parser = common::count())]
    threads: Option<usize>,
    /// Instruction sets to use at most (avx2, portable), for a machine that misbehaves; all when absent.
    #[arg(long, value_parser = common::isa)]
    isa: Option<Isa>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let path = arguments.path.clone().unwrap_or_else(common::bundled);
    let mut builder = UnifiedModelFactory::builder().device(arguments.device).kv_cache(arguments.kv_cache);
    if let Some(threads) = arguments.threads {
        builder = builder.threads(threads);
    }
    if let Some(isa) = arguments.isa {
        builder = builder.isa(isa);
    }
    let model = builder.load(&path)?;
    common::tell(model.report().first_line());
    let threads = model.threads();
    let anonymous = common::process_bytes("RssAnon");

    // A first short run touches every page of the weights and fills the caches of the allocator.
    prefill(&model, 8)?;
    let bytes = weight_bytes_per_token(&model);
    let (mut prefills, mut decodes) = (Vec::new(), Vec::new());
    let (mut bandwidths, mut bandwidth_shares) = (Vec::new(), Vec::new());
    let (mut peaks, mut peak_shares): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut block_peaks: Vec<f64> = Vec::new();
    let per_position = model.report().plan.as_ref().map_or(0, |plan| plan.kv_per_token as usize);
    let cache = per_position * (arguments.depth + arguments.n / 2);
    let operations = operations_per_prompt_token(&model) as f64;
    let mut sessions = sessions(&model, arguments)?;
    for _ in 0..arguments.r {
        // Right beside each other: what a machine can do changes with its neighbours.
        if arguments.p > 0 {
            block_peaks.extend(peak(&model, threads, Kernel::block_peak));
            let (peak, speed) = (peak(&model, threads, Kernel::peak), prefill(&model, arguments.p)?);
            prefills.push(speed);
            peaks.extend(peak);
            peak_shares.extend(peak.map(|peak| speed * operations / peak));
        }
        let bandwidth = bandwidth(&model, threads)?;
        bandwidths.push(bandwidth);
        if arguments.n > 0 {
            let speed = decode(&mut sessions, arguments)?;
            decodes.push(speed);
            bandwidth_shares.push(speed * (bytes / arguments.sessions + cache) as f64 / bandwidth);
        }
    }
    let bandwidth = Spread::of(&mut bandwidths);
    let median = |figures: &mut Vec<f64>| (!figures.is_empty()).then(|| Spread::of(figures).median);
    let (arithmetic, arithmetic_share) = (median(&mut peaks), median(&mut peak_shares));
    let blocks = median(&mut block_peaks);
    let (prefill, decode) = (Spread::of(&mut prefills), Spread::of(&mut decodes));
    let share = Spread::of(&mut bandwidth_shares).median;
    let plan = model.report().plan.as_ref();
    let (planned, planned_anonymous) = (plan.map(|plan| plan.total), plan.map(|plan| plan.anonymous()));
    let peak = common::process_bytes("VmHWM");
    if arguments.json {
        let object = json!({
            "model": path.display().to_string(),
            "device": model.report().device,
            "threads": threads,
            "load_s": model.load_time().as_secs_f64(),
            "prefill": { "tokens": arguments.p, "tok_s": prefill.json() },
            "decode": {
                "tokens": arguments.n,
                "depth": arguments.depth,
                "sessions": arguments.sessions,
                "tok_s": decode.json(),
            },
            "peak_rss_bytes": peak,
            "planned_bytes": planned,
            "anonymous_after_load_bytes": anonymous,
            "planned_anonymous_bytes": planned_anonymous,
            "weight_bytes_per_token": bytes,
            "operations_per_token": operations_per_token(&model),
            "cache_bytes_per_token": cache,
            "bandwidth_gb_s": bandwidth.median / 1e9,
            "bandwidth_share": share,
            "arithmetic_gop_s": arithmetic.map(|peak| peak / 1e9),
            "arithmetic_share": arithmetic_share,
            "block_arithmetic_gop_s": blocks.map(|peak| peak / 1e9),
        });
        return common::print(&format!("{object}\n"));
    }
    let mib = |bytes: Option<u64>| bytes.map_or("unknown".into(), |bytes| format!("{} MiB", bytes >> 20));
    let row = |name: &str, tokens: usize, of: &Spread| {
        format!("{name:<7} {tokens:>6} {:>8.1} {:>7.1} {:>7.1}", of.median, of.min, of.max)
    };
    let mut lines = vec![
        format!("test             median     min     max  tokens/s, {threads} threads, {} repetitions", arguments.r),
        row("prefill", arguments.p, &prefill),
        row("decode", arguments.n, &decode),
        format!("load             {:.3} s", model.load_time().as_secs_f64()),
        format!("a step reads     {} MiB of weights, {} MiB of cache a sequence", bytes >> 20, cache >> 20),
        format!(
            "bandwidth        {:.1} GB/s read, of which decode uses {:.0} %",
            bandwidth.median / 1e9,
            share * 100.0
        ),
    ];
    if let (Some(peak), Some(share)) = (arithmetic, arithmetic_share) {
        let (peak, share) = (peak / 1e9, share * 100.0);
        lines.push(format!("arithmetic       {peak:.0} Gop/s in registers, of which prefill uses {share:.0} %"));
        if let Some(blocks) = blocks {
            lines.push(format!("                 {:.0} Gop/s with the scales of blocks", blocks / 1e9));
        }
    }
    let (anonymous, planned_anonymous) = (mib(anonymous), mib(planned_anonymous));
    lines.push(format!("after load       {anonymous} anonymous, planned {planned_anonymous} at full context"));
    lines.push(format!("peak resident    {}, planned {} at full context\n", mib(peak), mib(planned)));
    common::print(&lines.join("\n"))
}

/// Made-up ids.
fn prompt(model: &Model, tokens: usize) -> Vec<u32> {
    let vocab = model.spec().vocab as u32;
    (0..tokens as u32).map(|i| (i * 7919 + 13) % vocab).collect()
}

/// Tokens a second of a prompt of `tokens` ids into an empty cache.
fn prefill(model: &Model, tokens: usize) -> Result<f64, Error> {
    let ids = prompt(model, tokens);
    let mut session = model.session();
    let start = Instant::now();
    session.forward(&ids)?;
    Ok(tokens as f64 / start.elapsed().as_secs_f64())
}

/// The sessions that generate, with the tokens that their caches begin with.
fn sessions(model: &Model, arguments: &Arguments) -> Result<Vec<Session>, Error> {
    let mut sessions: Vec<Session> = (0..arguments.sessions).map(|_| model.session()).collect();
    let ids = prompt(model, arguments.depth);
    for session in sessions.iter_mut().filter(|_| !ids.is_empty()) {
        session.forward(&ids)?;
    }
    Ok(sessions)
}

/// Tokens a second of greedy steps of all sessions together.
fn decode(sessions: &mut [Session], arguments: &Arguments) -> Result<f64, Error> {
    for session in &mut *sessions {
        session.truncate(arguments.depth);
    }
    let mut next: Vec<u32> = (1..=arguments.sessions as u32).collect();
    let start = Instant::now();
    for _ in 0..arguments.n {
        let mut steps: Vec<(&mut Session, &[u32])> =
            sessions.iter_mut().zip(&next).map(|(session, next)| (session, std::slice::from_ref(next))).collect();
        let logits: Vec<Vec<f32>> = Session::batch(&mut steps)?.to_vec2()?;
        for (next, logits) in next.iter_mut().zip(logits) {
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            *next = best.unwrap_or(0) as u32;
        }
    }
    Ok((arguments.n * arguments.sessions) as f64 / start.elapsed().as_secs_f64())
}

/// Bytes of the matrices that one token reads in full: all but an untied embedding, of which it reads one row.
fn weight_bytes_per_token(model: &Model) -> usize {
    matrices(model).iter().skip(1).map(|matrix| matrix.bytes as usize).sum()
}

/// The matrices of a model: embedding, blocks, head.
fn matrices(model: &Model) -> Vec<&TensorInfo> {
    let weights = &model.spec().weights;
    let layers = weights.layers.iter().flat_map(|layer| {
        let always = [&layer.q, &layer.k, &layer.v, &layer.o, &layer.up, &layer.down];
        always.into_iter().chain(&layer.gate).map(|linear| &linear.weight)
    });
    std::iter::once(&weights.embedding).chain(layers).chain([&weights.head.weight]).collect()
}

/// Multiplications and additions for one token that is generated.
fn operations_per_token(model: &Model) -> usize {
    matrices(model).iter().skip(1).map(|matrix| 2 * matrix.shape.iter().product::<u64>() as usize).sum()
}

/// Bytes a second: what copies on the card move, or what `threads` threads read from the mapped weights, doing next to
/// nothing with them.
fn bandwidth(model: &Model, threads: usize) -> Result<f64, Error> {
    #[cfg(feature = "cuda")]
    if let Some(decoder) = model.cuda_decoder() {
        return decoder.copy_rate();
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

/// The matrices of the processor's computation but the embedding; none for a model on a card.
fn on_processor(model: &Model) -> impl Iterator<Item = &Matrix> {
    model.decoder().into_iter().flat_map(|decoder| decoder.matrices().skip(1))
}

/// The matrices that every token of a prompt is multiplied with: the head computes the last token alone.
fn blocks(model: &Model) -> impl Iterator<Item = &Matrix> {
    let all: Vec<&Matrix> = on_processor(model).collect();
    let head = all.len().saturating_sub(1);
    all.into_iter().take(head)
}

/// Multiplications and additions for one token of a prompt.
fn operations_per_prompt_token(model: &Model) -> usize {
    blocks(model).map(Matrix::operations).sum()
}

/// Operations a second of `threads` threads, as `measure` finds them for the kernel that most of the model is multiplied
/// with.
fn peak(model: &Model, threads: usize, measure: fn(&Kernel, Duration) -> Option<f64>) -> Option<f64> {
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

/// All bytes folded into 64, in a way the compiler turns into vector loads.
fn xor(bytes: &[u8]) -> [u8; 64] {
    let mut folded = [0u8; 64];
    for chunk in bytes.chunks_exact(64) {
        for (folded, byte) in folded.iter_mut().zip(chunk) {
            *folded ^= byte;
        }
    }
    folded
}

/// Median, least and most of some figures; zeros for none.
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(figures: &mut [f64]) -> Spread {
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(0.0);
        Spread { median: at(figures.len() / 2), min: at(0), max: at(figures.len().saturating_sub(1)) }
    }

    fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}
