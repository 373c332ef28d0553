//! Continues a prompt: the verdict goes to standard error, the text to standard output as it comes.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod common;

use clap::Parser;
use model_factory::{DeviceChoice, Error, GenerateOptions, Model, UnifiedModelFactory};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Continue a prompt with a model file or folder.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; the bundled demo model when absent.
    path: Option<PathBuf>,
    /// The text to continue.
    #[arg(long, default_value = "Once upon a time")]
    prompt: String,
    /// Tokens to generate at most.
    #[arg(long, default_value_t = 256)]
    max_tokens: usize,
    /// 0 always takes the likeliest token; higher is more varied.
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// Repeats a varied text; drawn and printed when absent.
    #[arg(long)]
    seed: Option<u64>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Tokens the model can look back on; the most that fit when absent.
    #[arg(long)]
    context: Option<usize>,
    /// Threads to compute with; all when absent.
    #[arg(long)]
    threads: Option<usize>,
    /// Print one JSON object instead of the text as it comes.
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
    let model = load(arguments)?;
    eprintln!("{}", model.report().first_line());
    let mut options = GenerateOptions::default().max_tokens(arguments.max_tokens).temperature(arguments.temperature);
    options.sampling.seed = arguments.seed;
    let mut generation = model.generate(&arguments.prompt, &options)?;
    let (mut text, mut tokens) = (String::new(), Vec::new());
    let mut out = std::io::stdout();
    if !arguments.json {
        write(&mut out, &arguments.prompt)?;
    }
    for piece in &mut generation {
        let piece = piece?;
        tokens.extend(piece.token);
        if arguments.json {
            text.push_str(&piece.text);
        } else {
            write(&mut out, &piece.text)?;
        }
    }
    let (finish, timings) = generation.finish();
    let finish = finish.map(|reason| reason.to_string()).unwrap_or_default();
    let (prefill, decode) = (timings.prompt_tokens_per_second(), timings.tokens_per_second());
    if arguments.json {
        let timings = serde_json::json!({
            "load_s": model.load_time().as_secs_f64(),
            "prompt_tokens": timings.prompt_tokens,
            "prefill_s": timings.prefill.as_secs_f64(),
            "prefill_tok_s": prefill,
            "generated_tokens": timings.generated,
            "decode_s": timings.decode.as_secs_f64(),
            "decode_tok_s": decode,
            "seed": timings.seed,
        });
        let object = serde_json::json!({ "text": text, "tokens": tokens, "finish": finish, "timings": timings });
        write(&mut out, &format!("{object}\n"))?;
    } else {
        write(&mut out, "\n")?;
        eprintln!(
            "{} prompt tokens at {prefill:.0} tokens/s, {} generated at {decode:.0} tokens/s, ended by {finish}, \
             seed {}, loaded in {:.3} s",
            timings.prompt_tokens,
            timings.generated,
            timings.seed,
            model.load_time().as_secs_f64()
        );
    }
    Ok(())
}

fn load(arguments: &Arguments) -> Result<Model, Error> {
    let mut builder = UnifiedModelFactory::builder().device(arguments.device);
    if let Some(context) = arguments.context {
        builder = builder.context_length(context);
    }
    if let Some(threads) = arguments.threads {
        builder = builder.threads(threads);
    }
    builder.load(arguments.path.clone().unwrap_or_else(common::bundled))
}

fn write(out: &mut impl Write, text: &str) -> Result<(), Error> {
    let io = |source| Error::Io { path: "standard output".into(), source };
    out.write_all(text.as_bytes()).map_err(io)?;
    out.flush().map_err(io)
}
