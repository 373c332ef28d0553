//! Two models on the same tokens: how far their predictions differ, and the cost of each.
//!
//! `cargo run --release --example compare -- A B [--prompt TEXT | --tokens IDS | --file FILE] [--json]`

mod common;

use clap::{ArgGroup, Parser};
use model_factory::diagnostics::hardware::Memory;
use model_factory::diagnostics::plan::{Plan, PlanMemory};
use model_factory::diagnostics::report::{Available, Bytes};
use model_factory::diagnostics::source::probe;
use model_factory::{ActivationDtype, DeviceChoice, Error, Logits, Model, ModelBuilder, UnifiedModelFactory, Verdict};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The text for both models when nothing is given.
const PROMPT: &str = "Once upon a time there was a small boat. It wanted to see the world, and so one morning it left \
    the harbour, sailed past the lighthouse and did not look back.";

/// Compares two models with one vocabulary: A is the reference, B the other.
#[derive(Parser)]
#[command(group(ArgGroup::new("input").args(["tokens", "prompt", "file"])))]
struct Arguments {
    /// The reference: a model file or folder.
    a: PathBuf,
    /// The model that is compared with it.
    b: PathBuf,
    /// Ids, used as given: 1,2,3
    #[arg(long, value_delimiter = ',')]
    tokens: Vec<u32>,
    /// A text, encoded by A's tokenizer; a short story when nothing is given.
    #[arg(long)]
    prompt: Option<String>,
    /// A file whose content is the text.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Tokens that are computed together, BOS included; a longer text is cut into windows of as many.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = common::count, allow_negative_numbers = true)]
    window: usize,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_parser = common::device)]
    device: DeviceChoice,
    /// What B's activations are rounded to where its format prescribes 16 bits: these (prescribed) or int8. A has what is prescribed.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    activations: ActivationDtype,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Model(error)) => common::fail(&error),
        Err(stop) => {
            common::tell(format_args!("error: {stop}"));
            ExitCode::from(if matches!(stop, Stop::Unreadable { .. }) { 1 } else { 2 })
        }
    }
}

/// Why the models are not compared.
enum Stop {
    /// A model is refused or fails.
    Model(Error),
    /// The ids mean different tokens.
    Vocabularies {
        a: PathBuf,
        b: PathBuf,
        difference: String,
    },
    EmptyPrompt,
    EmptyFile(PathBuf),
    Unreadable {
        file: PathBuf,
        why: std::io::Error,
    },
    /// A's tokenizer makes no tokens of the text.
    NoTokens,
    /// BOS itself fills a window of this many tokens.
    Window(usize),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Model(error) => error.fmt(f),
            Stop::Vocabularies { a, b, difference } => write!(
                f,
                "{} and {} have different vocabularies: {difference}; compare models with the same tokenizer",
                a.display(),
                b.display()
            ),
            Stop::EmptyPrompt => f.write_str("the prompt is empty; give a text that both models read"),
            Stop::EmptyFile(file) => write!(f, "{} is empty; give a file with a text", file.display()),
            Stop::Unreadable { file, why } => write!(f, "cannot read {}: {why}", file.display()),
            Stop::NoTokens => f.write_str("A's tokenizer makes no token of the text; give another"),
            Stop::Window(most) => write!(f, "a window of {most} has no room for a token after BOS; take a larger one"),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Model(error)
    }
}

fn run(arguments: &Arguments) -> Result<(), Stop> {
    let input = ComparedText::read(arguments)?;
    let builder = || UnifiedModelFactory::builder().device(arguments.device);
    let trained = [&arguments.a, &arguments.b].map(|path| {
        let report = builder().diagnose(path);
        report.model.map_or(usize::MAX, |model| model.context_trained)
    });
    let most = trained.into_iter().fold(arguments.window, usize::min);
    let builder = || builder().context_length(most);
    let a = load(&builder(), &arguments.a)?;
    let windows = input.windows(&a, most)?;
    let longest = windows.iter().map(Vec::len).max().unwrap_or(0);
    let b = load_beside(builder().activations(arguments.activations), arguments, &a, longest)?;
    if let Some(difference) = vocabularies_differ(&a, &b) {
        let (a, b) = (arguments.a.clone(), arguments.b.clone());
        return Err(Stop::Vocabularies { a, b, difference });
    }
    let mut sums = Sums::default();
    let (mut a_time, mut b_time) = (Duration::ZERO, Duration::ZERO);
    for window in &windows {
        let (a, b) = (timed(&a, window, &mut a_time)?, timed(&b, window, &mut b_time)?);
        sums.add(window, &a, &b);
    }
    let tokens: usize = windows.iter().map(Vec::len).sum();
    let sides = [side(&arguments.a, &a, a_time, tokens, &sums.a), side(&arguments.b, &b, b_time, tokens, &sums.b)];
    let text = match arguments.json {
        true => format!("{}\n", sums.json(&sides, windows.len(), longest)),
        false => sums.table(&sides, windows.len(), longest),
    };
    Ok(common::print(&text)?)
}

/// How the vocabularies differ: in size, or in the first id that is another token. Ids without a text in one of the models
/// only pad the vocabulary.
fn vocabularies_differ(a: &Model, b: &Model) -> Option<String> {
    let (rows, others) = (a.spec().vocab, b.spec().vocab);
    if rows != others {
        return Some(format!("{rows} and {others} tokens"));
    }
    let (a, b) = (a.tokenizer(), b.tokenizer());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (0..rows as u32).find_map(|id| {
        let unused = [a, b].iter().any(|tokenizer| tokenizer.unused_ids().binary_search(&id).is_ok());
        let (one, other) = (a.token_bytes(id)?, b.token_bytes(id)?);
        (!unused && one != other).then(|| format!("id {id} is {:?} and {:?}", text(one), text(other)))
    })
}

fn load(builder: &ModelBuilder, path: &Path) -> Result<Model, Error> {
    let model = builder.load(path)?;
    common::tell(model.report().first_line());
    Ok(model)
}

/// Loads B into the part of the available main memory that A leaves, for windows of `longest` tokens.
///
/// The system counts A's mapped weights as memory that it can reclaim. Both models read all of theirs for every window,
/// so they are subtracted here; a file that both map counts once. The models compute in turns, so of their caches and buffers
/// the larger ones count. Logits are in memory at most three times: A's, and B's as computed and as compared.
fn load_beside(builder: ModelBuilder, arguments: &Arguments, a: &Model, longest: usize) -> Result<Model, Stop> {
    let (path, report) = (&arguments.b, builder.diagnose(&arguments.b));
    let (Some(of_a), Some(of_b)) = (&a.report().plan, &report.plan) else { return Ok(load(&builder, path)?) };
    if of_b.place == PlanMemory::Gpu {
        // The driver reports the free memory of a GPU, which does not include A's.
        return Ok(load(&builder, path)?);
    }
    let working = |plan: &Plan| plan.total.saturating_sub(plan.load_peak);
    let more = working(of_a).saturating_sub(working(of_b));
    let (weights, beside) = match of_a.place {
        PlanMemory::Main => {
            let mapped = of_a.weights_file;
            (mapped.saturating_sub(shared(arguments)), of_a.load_peak.saturating_sub(mapped).saturating_add(more))
        }
        PlanMemory::Gpu => (0, of_a.anonymous()),
        PlanMemory::Shared => (0, of_a.load_peak.saturating_add(more)),
    };
    let before = a.report().hardware.memory.available;
    let logits = 3 * (longest * a.spec().vocab * size_of::<f32>()) as u64;
    // The process is one, but it is in both plans.
    let held = [weights, beside, logits].iter().sum::<u64>().saturating_sub(of_b.process);
    let builder = match before {
        Memory::UNKNOWN => builder,
        before => builder.memory_limit(before.saturating_sub(held)),
    };
    match load(&builder, path) {
        Err(Error::Refused(report)) if report.verdict == Verdict::DoesNotFit => {
            let (held, weights, logits) = (Bytes(held), Bytes(weights), Bytes(logits));
            common::tell(format_args!(
                "B does not fit next to A: of {} available, {held} are taken, {weights} by A's weights and {logits} by \
                 logits",
                Bytes(before)
            ));
            Err(Error::Refused(report).into())
        }
        loaded => Ok(loaded?),
    }
}

/// Bytes of the files that both models map. An id of the Hub is not a path, so two ids count as sharing nothing: files that the
/// models do share then count twice, so B is planned into too little memory, never into too much.
fn shared(arguments: &Arguments) -> u64 {
    let files = |path: &Path| -> BTreeSet<(PathBuf, u64)> {
        let files = probe(path).map(|source| source.files).unwrap_or_default().into_iter();
        files.filter_map(|file| Some((file.path.canonicalize().ok()?, file.bytes))).collect()
    };
    let of_b = files(&arguments.b);
    files(&arguments.a).intersection(&of_b).map(|(_, bytes)| bytes).sum()
}

/// The input of both models.
enum ComparedText {
    Tokens(Vec<u32>),
    /// A text, and whether every window of it begins with BOS.
    Text(String, bool),
}

impl ComparedText {
    /// Reads the input that was given, before a model is loaded.
    fn read(arguments: &Arguments) -> Result<ComparedText, Stop> {
        match (&arguments.file, &arguments.prompt) {
            _ if !arguments.tokens.is_empty() => Ok(ComparedText::Tokens(arguments.tokens.clone())),
            (Some(file), _) => match std::fs::read_to_string(file) {
                Ok(text) if text.is_empty() => Err(Stop::EmptyFile(file.clone())),
                Ok(text) => Ok(ComparedText::Text(text, true)),
                Err(why) => Err(Stop::Unreadable { file: file.clone(), why }),
            },
            (None, Some(prompt)) if prompt.is_empty() => Err(Stop::EmptyPrompt),
            (None, prompt) => Ok(ComparedText::Text(prompt.clone().unwrap_or_else(|| PROMPT.into()), false)),
        }
    }

    /// The tokens, at most `most` in a window. If A's tokenizer adds BOS to a text, every window of a file's text begins
    /// with it.
    fn windows(&self, a: &Model, most: usize) -> Result<Vec<Vec<u32>>, Stop> {
        let tokenizer = a.tokenizer();
        let (bos, ids) = match self {
            ComparedText::Tokens(ids) => (None, ids.clone()),
            ComparedText::Text(text, true) => {
                (tokenizer.bos().filter(|_| tokenizer.adds_bos()), tokenizer.encode(text, false).map_err(Error::from)?)
            }
            ComparedText::Text(text, false) => (None, tokenizer.encode_prompt(text).map_err(Error::from)?),
        };
        let each = most.saturating_sub(bos.iter().count());
        match (each, ids.len()) {
            (_, 0) => Err(Stop::NoTokens),
            (0, _) => Err(Stop::Window(most)),
            _ => {
                let window = |chunk: &[u32]| bos.into_iter().chain(chunk.iter().copied()).collect();
                Ok(ids.chunks(each).map(window).collect())
            }
        }
    }
}

/// The logits after each of `tokens`; adds the time that they take.
fn timed(model: &Model, tokens: &[u32], time: &mut Duration) -> Result<Logits, Stop> {
    let start = Instant::now();
    let logits = model.all_logits(tokens)?;
    *time += start.elapsed();
    let wrong = logits.rows().find_map(|row| row.iter().enumerate().find(|(_, logit)| !logit.is_finite()));
    match wrong {
        Some((id, &value)) => Err(Error::NonFiniteLogits { id, value }.into()),
        None => Ok(logits),
    }
}

/// The sums over all positions, in double precision.
#[derive(Default)]
struct Sums {
    positions: u64,
    /// The sum of the KL divergences of B's probabilities from A's, in nats.
    divergence: f64,
    largest_divergence: f64,
    same_top: u64,
    largest_difference: f64,
    a: Text,
    b: Text,
}

/// The likelihood of the text for a model.
#[derive(Default)]
struct Text {
    /// Tokens that have another one before them in their window.
    tokens: u64,
    /// The sum of their negative log-probabilities, in nats.
    surprise: f64,
}

impl Text {
    fn add(&mut self, log_probability: f64) {
        self.tokens += 1;
        self.surprise -= log_probability;
    }

    fn perplexity(&self) -> Option<f64> {
        (self.tokens > 0).then(|| (self.surprise / self.tokens as f64).exp())
    }
}

impl Sums {
    fn add(&mut self, window: &[u32], a: &Logits, b: &Logits) {
        for (position, (a, b)) in a.rows().zip(b.rows()).enumerate() {
            let (log_a, log_b) = (log_softmax(a), log_softmax(b));
            let divergence: f64 = log_a.iter().zip(&log_b).map(|(p, q)| p.exp() * (p - q)).sum();
            self.positions += 1;
            self.divergence += divergence;
            self.largest_divergence = self.largest_divergence.max(divergence);
            self.same_top += u64::from(likeliest(a) == likeliest(b));
            let difference = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
            self.largest_difference = a.iter().zip(b).map(difference).fold(self.largest_difference, f64::max);
            if let Some(&next) = window.get(position + 1) {
                self.a.add(log_a[next as usize]);
                self.b.add(log_b[next as usize]);
            }
        }
    }

    fn mean_divergence(&self) -> f64 {
        self.divergence / self.positions as f64
    }

    fn agreement(&self) -> f64 {
        self.same_top as f64 / self.positions as f64
    }

    fn json(&self, sides: &[Side; 2], windows: usize, longest: usize) -> Value {
        let [a, b] = sides.each_ref().map(Side::json);
        json!({
            "a": a, "b": b, "positions": self.positions, "windows": windows, "window_tokens": longest,
            "kl_mean": self.mean_divergence(), "kl_max": self.largest_divergence,
            "top1_agreement": self.agreement(), "max_logit_difference": self.largest_difference,
        })
    }

    fn table(&self, [a, b]: &[Side; 2], windows: usize, longest: usize) -> String {
        let gib = |bytes: u64| Bytes(bytes).to_string();
        let available = |bytes: u64| Available(bytes).to_string();
        let perplexity = |side: &Side| side.perplexity.map_or_else(|| "-".into(), |value| format!("{value:.4}"));
        let plural = if windows == 1 { "" } else { "s" };
        let row = |name: &str, a: &str, b: &str| format!("{name:<12} {a:>24} {b:>24}\n");
        [
            format!("A  {}\nB  {}\n\n", a.path, b.path),
            format!("{} positions in {windows} window{plural} of at most {longest} tokens\n\n", self.positions),
            format!(
                "KL divergence, B from A   {:.6} nats a token, {:.6} at most\n",
                self.mean_divergence(),
                self.largest_divergence
            ),
            format!("likeliest token the same  {:.2} % of positions\n", 100.0 * self.agreement()),
            format!("largest logit difference  {:.6}\n\n", self.largest_difference),
            row("", "A", "B"),
            row("stored as", &a.stored_as, &b.stored_as),
            row("activations", &a.activations, &b.activations),
            row("files", &gib(a.bytes), &gib(b.bytes)),
            row("memory plan", &gib(a.planned), &gib(b.planned)),
            row("of available", &available(a.available), &available(b.available)),
            row("tokens/s", &format!("{:.1}", a.speed), &format!("{:.1}", b.speed)),
            row("perplexity", &perplexity(a), &perplexity(b)),
        ]
        .concat()
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted = || logits.iter().map(|&logit| f64::from(logit) - f64::from(largest));
    let log_sum = shifted().map(f64::exp).sum::<f64>().ln();
    shifted().map(|logit| logit - log_sum).collect()
}

/// The index of the largest logit, on a tie the first.
fn likeliest(logits: &[f32]) -> usize {
    let better = |best: usize, id: usize| if logits[id] > logits[best] { id } else { best };
    (0..logits.len()).fold(0, better)
}

/// The results of each model by itself.
struct Side {
    path: String,
    stored_as: String,
    /// What they enter products with matrices as, those of most bytes first.
    activations: String,
    bytes: u64,
    planned: u64,
    /// The memory that the plan had to fit into: B's is what A leaves.
    available: u64,
    /// Tokens per second, with all logits computed.
    speed: f64,
    perplexity: Option<f64>,
}

fn side(path: &Path, model: &Model, time: Duration, tokens: usize, text: &Text) -> Side {
    let report = model.report();
    let mut activations: Vec<&str> = Vec::new();
    for dtype in report.model.iter().flat_map(|model| &model.dtypes).filter_map(|summary| summary.activations) {
        activations.extend((!activations.contains(&dtype)).then_some(dtype));
    }
    Side {
        path: path.display().to_string(),
        stored_as: report.stored_as().unwrap_or_default(),
        activations: activations.join(" "),
        bytes: report.input.bytes(),
        planned: report.plan.as_ref().map_or(0, |plan| plan.total),
        available: report.plan.as_ref().map_or(0, |plan| plan.available),
        speed: tokens as f64 / time.as_secs_f64(),
        perplexity: text.perplexity(),
    }
}

impl Side {
    fn json(&self) -> Value {
        let available = (self.available != Memory::UNKNOWN).then_some(self.available);
        json!({
            "model": self.path, "stored_as": self.stored_as, "activations": self.activations, "file_bytes": self.bytes, "planned_bytes": self.planned,
            "available_bytes": available, "tok_s": self.speed, "perplexity": self.perplexity,
        })
    }
}
