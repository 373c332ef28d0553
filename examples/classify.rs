//! Gives a text one of some labels: the one that the model finds most likely after it, or that its classification head scores
//! highest.

mod common;

use clap::Parser;
use model_factory::diagnostics::report::escaped;
use model_factory::{ClassifyOptions, Error, Model, UnifiedModelFactory};
use std::path::PathBuf;
use std::process::ExitCode;

/// Label a text, with the likelihood of each label.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; the bundled demo model when absent, which knows only stories.
    path: Option<PathBuf>,
    /// The text.
    #[arg(long)]
    text: String,
    /// The labels, with commas between them; those of the model's classification head when absent.
    #[arg(long, value_delimiter = ',')]
    labels: Vec<String>,
    /// What stands between the text and the label.
    #[arg(long, default_value = "\nThis is about")]
    question: String,
    /// An adapter (LoRA) of the model, with this SCALE or as it was trained: a folder of PEFT, or a GGUF adapter for a GGUF
    /// model; may be given several times.
    #[arg(long, value_name = "PATH[:SCALE]", value_parser = common::lora)]
    lora: Vec<(PathBuf, f64)>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let model = UnifiedModelFactory::load(arguments.path.clone().unwrap_or_else(common::bundled))?;
    let mut options = ClassifyOptions::default();
    for (path, scale) in &arguments.lora {
        options = options.adapter(&model.load_adapter(path)?, *scale);
    }
    let mut likely = match arguments.labels.is_empty() {
        true => by_head(&model, arguments, &options)?,
        false => by_text(&model, arguments, &options)?,
    };
    let total: f64 = likely.iter().map(|(likely, _)| likely).sum();
    likely.sort_by(|a, b| b.0.total_cmp(&a.0));
    let lines = likely.iter().map(|(likely, label)| format!("{:.3}  {}\n", likely / total, escaped(label)));
    common::print(&lines.collect::<String>())
}

/// The mean probability of a label's tokens after the text, so that a long label has no disadvantage.
fn by_text(model: &Model, arguments: &Arguments, options: &ClassifyOptions) -> Result<Vec<(f64, String)>, Error> {
    let prompt = format!("{}{}", arguments.text, arguments.question);
    let labels: Vec<String> = arguments.labels.iter().map(|label| format!(" {label}")).collect();
    let scores = model.score_continuations_with(&prompt, &labels, options)?;
    let means = scores.iter().map(|score| score.total() / score.logprobs.len() as f64);
    Ok(means.map(f64::exp).zip(arguments.labels.iter().cloned()).collect())
}

/// The exponentials of the scores; the caller divides them by their sum, which makes a softmax.
fn by_head(model: &Model, arguments: &Arguments, options: &ClassifyOptions) -> Result<Vec<(f64, String)>, Error> {
    let scores = model.label_logits_with(&[&arguments.text], options)?;
    let most = scores.iter().fold(f32::NEG_INFINITY, |most, score| most.max(*score));
    Ok(scores.iter().map(|score| f64::from(score - most).exp()).zip(model.labels().iter().cloned()).collect())
}
