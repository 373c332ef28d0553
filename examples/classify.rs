//! Gives a text one of some labels: the one that the model finds most likely behind it.

mod common;

use clap::Parser;
use model_factory::{Error, Model};
use std::path::PathBuf;
use std::process::ExitCode;

/// Label a text, with the likelihood of each label.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; the bundled demo model when absent, which knows stories alone.
    path: Option<PathBuf>,
    /// The text.
    #[arg(long)]
    text: String,
    /// The labels, with commas between them.
    #[arg(long, value_delimiter = ',', required = true)]
    labels: Vec<String>,
    /// What stands between the text and the label.
    #[arg(long, default_value = "\nThis is about")]
    question: String,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let model = Model::load(arguments.path.clone().unwrap_or_else(common::bundled))?;
    let prompt = format!("{}{}", arguments.text, arguments.question);
    let labels: Vec<String> = arguments.labels.iter().map(|label| format!(" {label}")).collect();
    let scores = model.score_continuations(&prompt, &labels)?;

    // The mean of a token, so that a long label is no worse for its length.
    let means = scores.iter().map(|score| score.total() / score.logprobs.len() as f64);
    let mut likely: Vec<(f64, &String)> = means.map(f64::exp).zip(&arguments.labels).collect();
    let total: f64 = likely.iter().map(|(likely, _)| likely).sum();
    likely.sort_by(|a, b| b.0.total_cmp(&a.0));
    let lines = likely.iter().map(|(likely, label)| format!("{:.3}  {label}\n", likely / total));
    common::print(&lines.collect::<String>())
}
