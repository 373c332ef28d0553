//! Finds the lines of a file that are nearest in meaning to a question, or that a reranker says answer it best.

mod common;

use clap::Parser;
use model_factory::diagnostics::report::escaped;
use model_factory::{EmbedOptions, Error, Model, Reranker, UnifiedModelFactory};
use std::path::PathBuf;
use std::process::ExitCode;

/// Search a file by meaning: each line has a vector, and the nearest to the question's come first. A model with a
/// classification head scores each line with the question instead.
#[derive(Parser)]
struct Arguments {
    /// A model that embeds, a file or folder; a tiny encoder of random weights when absent, which finds nothing of sense.
    path: Option<PathBuf>,
    /// A file, of which each line is a text.
    #[arg(long)]
    file: PathBuf,
    /// What is looked for.
    #[arg(long)]
    ask: String,
    /// Lines to print.
    #[arg(long, default_value_t = 5)]
    top: usize,
    /// The name of the model's prompt for questions, such as query; texts have none.
    #[arg(long)]
    prompt_name: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let lines = common::lines(&arguments.file)?;
    let model = UnifiedModelFactory::load(arguments.path.clone().unwrap_or_else(common::encoder))?;

    let scores = if model.labels().is_empty() || arguments.prompt_name.is_some() {
        by_vectors(&model, &lines, arguments)?
    } else {
        model.rank(&arguments.ask, &lines, &Reranker::classifier().truncate(true))?
    };
    let mut found: Vec<(f32, &String)> = scores.into_iter().zip(&lines).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let lines = found.iter().take(arguments.top).map(|(score, line)| format!("{score:.4}  {}\n", escaped(line)));
    common::print(&lines.collect::<String>())
}

/// The cosines of each line's vector and the question's.
fn by_vectors(model: &Model, lines: &[String], arguments: &Arguments) -> Result<Vec<f32>, Error> {
    let options = EmbedOptions::default().truncate(true);
    let texts = model.embeddings(lines, &options)?;
    let question = arguments.prompt_name.iter().fold(options, |options, name| options.prompt_name(name));
    let question = model.embeddings(&[&arguments.ask], &question)?.into_vec();

    // Vectors have length one, so the dot product is the cosine.
    Ok(texts.vectors().map(|text| text.iter().zip(&question).map(|(a, b)| a * b).sum()).collect())
}
