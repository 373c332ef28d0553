//! The raw logits after every token of a text or of given ids.

mod common;
#[path = "common/tensors.rs"]
mod tensors;

use clap::{ArgGroup, Parser};
use model_factory::{DeviceChoice, Error, Logits, UnifiedModelFactory};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the logits after every token, or print the ten most likely next tokens.
#[derive(Parser)]
#[command(group(ArgGroup::new("input").required(true).args(["tokens", "prompt"])))]
struct Arguments {
    /// A model file or folder, or with the feature hub org/name[:quantization]; the bundled demo model when absent.
    path: Option<PathBuf>,
    /// Ids, used as given: 1,2,3
    #[arg(long, value_delimiter = ',')]
    tokens: Vec<u32>,
    /// A text, encoded by the model's own tokenizer.
    #[arg(long)]
    prompt: Option<String>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_parser = common::device)]
    device: DeviceChoice,
    /// A safetensors file to write `logits` F32 [tokens, vocab] to.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let path = arguments.path.clone().unwrap_or_else(common::bundled);
    let model = UnifiedModelFactory::builder().device(arguments.device).on_progress(common::show).load(path)?;
    common::tell(model.report().first_line());
    let tokens = match &arguments.prompt {
        Some(prompt) => model.tokenizer().encode(prompt, true)?,
        None => arguments.tokens.clone(),
    };
    let logits = model.all_logits(&tokens)?;
    match &arguments.out {
        Some(out) => tensors::save(out, "logits", &logits, [logits.rows().len(), logits.columns()]),
        None => print_top(&model, &logits),
    }
}

fn print_top(model: &model_factory::Model, logits: &Logits) -> Result<(), Error> {
    let last = logits.rows().last().unwrap_or_default();
    let mut ids: Vec<usize> = (0..last.len()).collect();
    ids.sort_by(|a, b| last[*b].total_cmp(&last[*a]));
    let mut lines = vec![format!("{:>8}  {:>10}  text", "id", "logit")];
    for id in ids.into_iter().take(10) {
        let text = model.tokenizer().token_text(id as u32).unwrap_or_default();
        lines.push(format!("{id:>8}  {:>10.4}  {text:?}", last[id]));
    }
    common::print(&format!("{}\n", lines.join("\n")))
}
