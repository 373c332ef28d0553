//! The vectors of texts, for search, clusters and labels.

mod common;
#[path = "common/tensors.rs"]
mod tensors;

use clap::{ArgGroup, Parser};
use model_factory::diagnostics::report::escaped;
use model_factory::{EmbedOptions, Error, Model, Pooling};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Write the vectors of texts, or print how alike they are.
#[derive(Parser)]
#[command(group(ArgGroup::new("input").required(true).args(["text", "file"])))]
struct Arguments {
    /// A model file or folder, or with the feature hub org/name[:quantization]; a tiny encoder of random weights when absent.
    path: Option<PathBuf>,
    /// A text; may be given several times.
    #[arg(long)]
    text: Vec<String>,
    /// A file, of which each line is a text.
    #[arg(long)]
    file: Option<PathBuf>,
    /// A safetensors file to write `embeddings` F32 [texts, dim] to.
    #[arg(long)]
    out: Option<PathBuf>,
    /// last, mean or cls, in place of what the model's files say.
    #[arg(long, value_parser = pooling)]
    pooling: Option<Pooling>,
    /// The name of one of the model's prompts, such as query.
    #[arg(long)]
    prompt_name: Option<String>,
    /// Keep the first so many elements.
    #[arg(long)]
    dimensions: Option<usize>,
    /// Cut texts that are too long.
    #[arg(long)]
    truncate: bool,
    /// Take special tokens that texts spell for these tokens, as sentence-transformers does.
    #[arg(long)]
    trust_special_tokens: bool,
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
    let texts = match &arguments.file {
        Some(file) => {
            let failed = |source| Error::Io { path: file.clone(), source: Arc::new(source) };
            std::fs::read_to_string(file).map_err(failed)?.lines().map(str::to_owned).collect()
        }
        None => arguments.text.clone(),
    };
    let path = arguments.path.clone().unwrap_or_else(common::encoder);
    let model = Model::builder().on_progress(common::show).load(path)?;
    common::tell(model.report().first_line());

    let mut options =
        EmbedOptions::default().truncate(arguments.truncate).trust_special_tokens(arguments.trust_special_tokens);
    if let Some(pooling) = arguments.pooling {
        options = options.pooling(pooling);
    }
    if let Some(name) = &arguments.prompt_name {
        options = options.prompt_name(name);
    }
    if let Some(dimensions) = arguments.dimensions {
        options = options.dimensions(dimensions);
    }
    for (path, scale) in &arguments.lora {
        options = options.adapter(&model.load_adapter(path)?, *scale);
    }
    let embeddings = model.embeddings(&texts, &options)?;
    let vectors: Vec<&[f32]> = embeddings.vectors().collect();
    match &arguments.out {
        Some(out) => tensors::save(out, "embeddings", &vectors.concat(), [texts.len(), embeddings.dimensions()]),
        None => print_alike(&texts, &vectors),
    }
}

/// Prints each text with the cosine of its angle to the first.
fn print_alike(texts: &[String], vectors: &[&[f32]]) -> Result<(), Error> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let cosine = |a: &[f32], b: &[f32]| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    let line = |(text, vector): (&String, &&[f32])| format!("{:.4}  {}\n", cosine(vectors[0], vector), escaped(text));
    let lines = texts.iter().zip(vectors).map(line);
    common::print(&lines.collect::<String>())
}

fn pooling(text: &str) -> Result<Pooling, &'static str> {
    let name = if text == "last" { "lasttoken" } else { text };
    Pooling::named(name).ok_or("expected last, mean, cls, max, weightedmean or mean_sqrt_len_tokens")
}
