//! Prefill and decode speed, and the memory bandwidth of the same run.

#[path = "../common/mod.rs"]
mod common;
mod concurrency;
mod measure;
mod peak;

use clap::{Parser, ValueEnum};
use concurrency::Load;
use measure::{Measured, Test};
use model_factory::kernels::Isa;
use model_factory::{ActivationDtype, DeviceChoice, Error, KvDtype, Model, UnifiedModelFactory};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// From this share of the memory's read speed on, caches must hold the weights.
const CACHED: f64 = 1.5;

/// Measure prompt processing and generation.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder, or with the feature hub org/name[:quantization]; the bundled demo model when absent.
    path: Option<PathBuf>,
    /// Prompt tokens.
    #[arg(short, default_value_t = 256)]
    p: usize,
    /// Generated tokens.
    #[arg(short, default_value_t = 64)]
    n: usize,
    /// Tokens in the cache before the prompt, and before the first that is generated.
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Sequences that are generated together, in one pass over the weights.
    #[arg(long, default_value_t = 1, value_parser = common::count, allow_negative_numbers = true)]
    sessions: usize,
    /// Generate so many at once, a thread each with `-p` and `-n` tokens, next to a single one and a batch stepped by hand.
    #[arg(long, value_name = "N", value_parser = common::count, allow_negative_numbers = true)]
    #[arg(conflicts_with_all = ["compare", "depth", "sessions"])]
    concurrency: Option<usize>,
    /// Repetitions of each test.
    #[arg(short, default_value_t = 5, value_parser = common::count, allow_negative_numbers = true)]
    r: usize,
    /// Keys and values are kept in f32, as computed, or rounded to f16, which takes half the memory, or to q8_0, 0.27 of it.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    kv_cache: KvDtype,
    /// Where a format prescribes activations of 16 bits they keep them (prescribed), or are rounded to int8, which is sooner.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    activations: ActivationDtype,
    /// Threads to compute with; all when absent.
    #[arg(long, value_parser = common::count, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Instruction sets to use at most (avx2, portable), for a machine that misbehaves; all when absent.
    #[arg(long, value_parser = common::isa)]
    isa: Option<Isa>,
    /// Measure once for each instruction set or number of threads, in turns, and print a table.
    #[arg(long, value_name = "WHAT")]
    compare: Option<Axis>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_parser = common::device)]
    device: DeviceChoice,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What to compare.
#[derive(Clone, Copy, ValueEnum)]
enum Axis {
    /// The vector instruction sets of this machine.
    Isa,
    /// 1, 2, 4 .. threads.
    Threads,
}

/// The settings of a computation; all when absent.
#[derive(Clone, Copy)]
struct Setting {
    isa: Option<Isa>,
    threads: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    match (arguments.compare, arguments.concurrency) {
        (Some(axis), _) => compare(arguments, axis),
        (None, Some(concurrency)) => at_once(arguments, concurrency),
        (None, None) => measure(arguments),
    }
}

impl Arguments {
    fn path(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(common::bundled)
    }

    fn setting(&self) -> Setting {
        Setting { isa: self.isa, threads: self.threads }
    }

    fn test(&self) -> Test {
        Test { prompt: self.p, generated: self.n, depth: self.depth, sessions: self.sessions }
    }

    fn load(&self, setting: Setting) -> Result<Model, Error> {
        let mut builder = UnifiedModelFactory::builder()
            .prefix_caching(false)
            .device(self.device)
            .kv_cache(self.kv_cache)
            .activations(self.activations)
            .on_progress(common::show);
        if let Some(threads) = setting.threads {
            builder = builder.threads(threads);
        }
        if let Some(isa) = setting.isa {
            builder = builder.isa(isa);
        }
        builder.load(self.path())
    }

    fn measured(&self, setting: Setting) -> Result<Measured, Error> {
        Measured::new(self.load(setting)?, self.test())
    }
}

/// Measures every setting of `axis` once a repetition, so that all meet the machine in the same states.
fn compare(arguments: &Arguments, axis: Axis) -> Result<(), Error> {
    let given = arguments.setting();
    let settings: Vec<(String, Setting)> = match axis {
        Axis::Isa => {
            let vectors = Isa::available().into_iter().filter(|&isa| isa != Isa::portable());
            vectors.map(|isa| (isa.to_string(), Setting { isa: Some(isa), ..given })).collect()
        }
        Axis::Threads => {
            let most = std::thread::available_parallelism().map_or(1, usize::from);
            let counts = (0..).map(|power| 1 << power).take_while(|&count| count < most).chain([most]);
            counts.map(|count| (count.to_string(), Setting { threads: Some(count), ..given })).collect()
        }
    };
    let mut all = settings
        .into_iter()
        .map(|(name, setting)| Ok((name, arguments.measured(setting)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    if let Some((_, first)) = all.first() {
        common::tell(first.model.report().first_line());
    }
    for _ in 0..arguments.r {
        for (_, measured) in &mut all {
            measured.round()?;
        }
    }
    let mut lines = vec![format!(
        "{:<24} {:>8} {:>8} {:>8} {:>8}   tokens/s, {} repetitions in turns",
        match axis {
            Axis::Isa => "instruction sets",
            Axis::Threads => "threads",
        },
        "prefill",
        "of peak",
        "decode",
        "of read",
        arguments.r
    )];
    let mut rows: Vec<Value> = Vec::new();
    for (name, measured) in &all {
        let figures = measured.figures();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let share = figures.arithmetic_share.map_or("-".into(), percent);
        let read = if figures.bandwidth_share > CACHED { "-".into() } else { percent(figures.bandwidth_share) };
        lines.push(format!(
            "{name:<24} {:>8.1} {share:>8} {:>8.1} {read:>8}",
            figures.prefill.median, figures.decode.median
        ));
        rows.push(measured.json(&arguments.path(), matches!(axis, Axis::Isa).then_some(name)));
    }
    if arguments.json {
        return common::print(&format!("{}\n", Value::from(rows)));
    }
    common::print(&(lines.join("\n") + "\n"))
}

/// Measures several generations at once.
fn at_once(arguments: &Arguments, concurrency: usize) -> Result<(), Error> {
    let model = arguments.load(arguments.setting())?;
    common::tell(model.report().first_line());
    let load = Load { concurrency, prompt: arguments.p, generated: arguments.n };
    let mut found = load.begin(&model)?;
    for _ in 0..arguments.r {
        load.round(&model, &mut found)?;
    }
    let text = if arguments.json { format!("{}\n", found.json(load)) } else { found.text(load) };
    common::print(&text)
}

/// Measures one setting and prints everything about it.
fn measure(arguments: &Arguments) -> Result<(), Error> {
    let mut measured = arguments.measured(arguments.setting())?;
    common::tell(measured.model.report().first_line());
    for _ in 0..arguments.r {
        measured.round()?;
    }
    if arguments.json {
        return common::print(&format!("{}\n", measured.json(&arguments.path(), arguments.isa.map(Isa::name))));
    }
    let (figures, threads) = (measured.figures(), measured.model.threads());
    let mib = |bytes: Option<u64>| bytes.map_or("unknown".into(), |bytes| format!("{} MiB", bytes >> 20));
    let row = |name: &str, tokens: usize, of: &measure::Spread| {
        format!("{name:<7} {tokens:>6} {:>8.1} {:>7.1} {:>7.1}", of.median, of.min, of.max)
    };
    let mut lines = vec![
        format!("test             median     min     max  tokens/s, {threads} threads, {} repetitions", arguments.r),
        row("prefill", arguments.p, &figures.prefill),
        row("decode", arguments.n, &figures.decode),
        format!("load             {:.3} s", measured.model.load_time().as_secs_f64()),
        format!(
            "a step reads     {} MiB of weights, {} MiB of cache a sequence",
            measured.weights >> 20,
            measured.cache >> 20
        ),
        match figures.bandwidth_share {
            // Memory whose speed changes between the two measurements explains less.
            share if share > CACHED => "bandwidth        no bound: the caches hold the weights".into(),
            share => {
                let bandwidth = figures.bandwidth / 1e9;
                format!("bandwidth        {bandwidth:.1} GB/s read, of which decode uses {:.0} %", share * 100.0)
            }
        },
    ];
    if let Some(distance) = figures.distance {
        lines.push(format!("threads          {:.0} ns apart, a cache line from one to another", distance * 1e9));
    }
    if let (Some(peak), Some(share)) = (figures.arithmetic, figures.arithmetic_share) {
        let (peak, share) = (peak / 1e9, share * 100.0);
        lines.push(format!("arithmetic       {peak:.0} Gop/s in registers, of which prefill uses {share:.0} %"));
        if let Some(blocks) = figures.block_arithmetic {
            lines.push(format!("                 {:.0} Gop/s with the scales of blocks", blocks / 1e9));
        }
    }
    let (total, planned_anonymous) = measured.planned();
    let (anonymous, planned_anonymous) = (mib(measured.anonymous), mib(planned_anonymous));
    lines.push(format!("after load       {anonymous} anonymous, planned {planned_anonymous} at full context"));
    let peak = mib(common::process_bytes("VmHWM"));
    lines.push(format!("peak resident    {peak}, planned {} at full context\n", mib(total)));
    common::print(&lines.join("\n"))
}
