//! Prints the ids of a text: `tokenize [PATH] --text T`, or of a chat: `--messages FILE`. A GGUF file that holds only a
//! vocabulary is enough.

mod common;

use clap::Parser;
use model_factory::ChatOptions;
use model_factory::chat::ChatTemplate;
use model_factory::tokenizer::Tokenizer;
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::report::escaped;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the ids of a text or a chat on one line, separated by spaces.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; without it the bundled demo model.
    path: Option<PathBuf>,
    /// The text.
    #[arg(long, conflicts_with = "file", required_unless_present_any = ["file", "messages"])]
    text: Option<String>,
    /// A file whose content is the text, a final newline included.
    #[arg(long)]
    file: Option<PathBuf>,
    /// A file with a JSON list of messages: the ids of the prompt that a chat of them is, by the model's own chat template.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "file", "no_special"], value_parser = common::messages)]
    messages: Option<common::Messages>,
    /// Adds no BOS and no EOS.
    #[arg(long)]
    no_special: bool,
    /// Prints an object with the ids and their texts instead.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref() {
            Some(error) => common::fail(error),
            None => {
                common::tell(format_args!("error: {error}"));
                ExitCode::FAILURE
            }
        },
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let path = arguments.path.clone().unwrap_or_else(common::bundled);
    let (tokenizer, spec) = open(&path)?;
    let ids = if let Some(messages) = &arguments.messages {
        let options = ChatOptions::default();
        ChatTemplate::of(&spec, &options)?.render_with_spans(&messages.0, &options, true)?.encode(&tokenizer)?
    } else {
        let text = match (&arguments.text, &arguments.file) {
            (Some(text), _) => text.clone(),
            (None, Some(file)) => {
                std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?
            }
            (None, None) => String::new(),
        };
        tokenizer.encode(&text, !arguments.no_special)?
    };
    let line = if arguments.json {
        let texts: Vec<Option<String>> = ids.iter().map(|id| tokenizer.token_text(*id)).collect();
        let decoded = tokenizer.decode(&ids);
        serde_json::json!({"ids": ids, "tokens": texts, "decoded": decoded}).to_string()
    } else {
        ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
    };
    Ok(common::print(&format!("{line}\n"))?)
}

fn open(path: &std::path::Path) -> model_factory::Result<(Tokenizer, TokenizerSpec)> {
    let header = Header::read(probe(path)?)?;
    let spec = TokenizerSpec::from_header(&header)?;
    for assumption in &spec.assumptions {
        common::tell(format_args!("assumed: {}", escaped(assumption)));
    }
    Ok((Tokenizer::from_header(&header, &spec)?, spec))
}
