//! Two models on the same tokens: how far apart what they say is, and what each costs.
//!
//! `cargo run --release --example compare -- A B [--prompt TEXT | --tokens IDS | --file FILE] [--json]`

mod common;

use clap::{ArgGroup, Parser};
use model_factory::{DeviceChoice, Error, Model, UnifiedModelFactory};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What both models read when nothing is given.
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
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = common::count())]
    window: usize,
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
        Err(Stop::Model(error)) => common::fail(&error),
        Err(Stop::Usage(reason)) => {
            common::tell(format_args!("error: {reason}"));
            ExitCode::from(2)
        }
        Err(Stop::Text(reason)) => {
            common::tell(format_args!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// Why nothing is compared.
enum Stop {
    Model(Error),
    Usage(String),
    Text(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Model(error)
    }
}

impl From<model_factory::candle_core::Error> for Stop {
    fn from(error: model_factory::candle_core::Error) -> Stop {
        Stop::Model(error.into())
    }
}

fn run(arguments: &Arguments) -> Result<(), Stop> {
    let load = |path: &Path| -> Result<Model, Error> {
        let model = UnifiedModelFactory::builder().device(arguments.device).load(path)?;
        common::tell(model.report().first_line());
        Ok(model)
    };
    let (a, b) = (load(&arguments.a)?, load(&arguments.b)?);
    if let Some(difference) = vocabularies_differ(&a, &b) {
        let (a, b) = (arguments.a.display(), arguments.b.display());
        return Err(Stop::Usage(format!(
            "{a} and {b} have different vocabularies: {difference}; compare models with the same tokenizer"
        )));
    }
    let windows = windows(&a, &b, arguments)?;
    let mut sums = Sums::default();
    let (mut a_time, mut b_time) = (Duration::ZERO, Duration::ZERO);
    for window in &windows {
        let (a, b) = (timed(&a, window, &mut a_time)?, timed(&b, window, &mut b_time)?);
        sums.add(window, &a, &b);
    }
    let tokens: usize = windows.iter().map(Vec::len).sum();
    let sides = [side(&arguments.a, &a, a_time, tokens, &sums.a), side(&arguments.b, &b, b_time, tokens, &sums.b)];
    let longest = windows.iter().map(Vec::len).max().unwrap_or(0);
    let text = match arguments.json {
        true => format!("{}\n", sums.json(&sides, windows.len(), longest)),
        false => sums.table(&sides, windows.len(), longest),
    };
    Ok(common::print(&text)?)
}

/// In what the vocabularies differ: their sizes, or the first id that is another token. Ids of which one model does not
/// know a text only fill a vocabulary up.
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

/// The tokens, each window no longer than both models can hold. A text that is cut has A's BOS in front of every window
/// where A's tokenizer puts one in front of a text.
fn windows(a: &Model, b: &Model, arguments: &Arguments) -> Result<Vec<Vec<u32>>, Stop> {
    let most = arguments.window.min(a.context_length()).min(b.context_length());
    let tokenizer = a.tokenizer();
    let (bos, ids) = match (&arguments.file, &arguments.prompt) {
        _ if !arguments.tokens.is_empty() => (None, arguments.tokens.clone()),
        (Some(file), _) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| Stop::Text(format!("cannot read {}: {error}", file.display())))?;
            (tokenizer.bos().filter(|_| tokenizer.adds_bos()), tokenizer.encode(&text, false)?)
        }
        (None, prompt) => (None, tokenizer.encode_prompt(prompt.as_deref().unwrap_or(PROMPT))?),
    };
    let each = most.saturating_sub(bos.iter().count());
    if each == 0 || ids.is_empty() {
        return Err(Stop::Usage(match ids.len() {
            0 => "there is no token to compare the models on".into(),
            _ => format!("a window of {most} has no room for a token behind BOS"),
        }));
    }
    Ok(ids.chunks(each).map(|chunk| bos.into_iter().chain(chunk.iter().copied()).collect()).collect())
}

/// The logits of `tokens`, each row those of the next token.
fn timed(model: &Model, tokens: &[u32], time: &mut Duration) -> Result<Vec<Vec<f32>>, Stop> {
    let start = Instant::now();
    let logits = model.logits(tokens)?;
    *time += start.elapsed();
    let rows: Vec<Vec<f32>> = logits.to_vec2()?;
    let wrong = rows.iter().find_map(|row| row.iter().enumerate().find(|(_, logit)| !logit.is_finite()));
    match wrong {
        Some((id, &value)) => Err(Error::NonFiniteLogits { id, value }.into()),
        None => Ok(rows),
    }
}

/// What is summed up over all positions, in double precision.
#[derive(Default)]
struct Sums {
    positions: u64,
    /// Of the probabilities of B from those of A, in nats.
    divergence: f64,
    largest_divergence: f64,
    same_top: u64,
    largest_difference: f64,
    a: Text,
    b: Text,
}

/// How likely a model finds the text.
#[derive(Default)]
struct Text {
    /// Tokens with one in front of them in their window.
    tokens: u64,
    /// Of their negated log-probabilities, in nats.
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
    fn add(&mut self, window: &[u32], a: &[Vec<f32>], b: &[Vec<f32>]) {
        for (position, (a, b)) in a.iter().zip(b).enumerate() {
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
        let gib = |bytes: u64| model_factory::diagnostics::report::Bytes(bytes).to_string();
        let perplexity = |side: &Side| side.perplexity.map_or_else(|| "-".into(), |value| format!("{value:.4}"));
        let plural = if windows == 1 { "" } else { "s" };
        let row = |name: &str, a: &str, b: &str| format!("{name:<12} {a:>24} {b:>24}\n");
        [
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
            row("files", &gib(a.bytes), &gib(b.bytes)),
            row("memory plan", &gib(a.planned), &gib(b.planned)),
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

/// The first of the largest logits.
fn likeliest(logits: &[f32]) -> usize {
    let better = |best: usize, id: usize| if logits[id] > logits[best] { id } else { best };
    (0..logits.len()).fold(0, better)
}

/// What is told of each model alone.
struct Side {
    path: String,
    stored_as: String,
    bytes: u64,
    planned: u64,
    /// Tokens a second, all logits computed.
    speed: f64,
    perplexity: Option<f64>,
}

fn side(path: &Path, model: &Model, time: Duration, tokens: usize, text: &Text) -> Side {
    let report = model.report();
    Side {
        path: path.display().to_string(),
        stored_as: report.stored_as().unwrap_or_default(),
        bytes: report.input.bytes(),
        planned: report.plan.as_ref().map_or(0, |plan| plan.total),
        speed: tokens as f64 / time.as_secs_f64(),
        perplexity: text.perplexity(),
    }
}

impl Side {
    fn json(&self) -> Value {
        json!({
            "model": self.path, "stored_as": self.stored_as, "file_bytes": self.bytes, "planned_bytes": self.planned,
            "tok_s": self.speed, "perplexity": self.perplexity,
        })
    }
}
