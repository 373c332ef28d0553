//! Reads a value of a Rust type out of a text: the model's answer is held to the schema of the type.

mod common;

use clap::Parser;
use model_factory::{Error, GenerateOptions, Message, UnifiedModelFactory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::ExitCode;

/// A person in a text.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Person {
    #[schemars(length(min = 1, max = 40))]
    name: String,
    age: Option<u8>,
    mood: Mood,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mood {
    Glad,
    Sad,
    Unknown,
}

/// Tell who a text is about, as JSON.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; the bundled demo model when absent, which knows no answer and still keeps the form.
    path: Option<PathBuf>,
    /// The text.
    #[arg(long, default_value = "Tom, who is six years old, laughed. He had found his red ball.")]
    text: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let model = UnifiedModelFactory::load(arguments.path.clone().unwrap_or_else(common::bundled))?;
    let question = format!(
        "{}\n\nWho is this about? Answer only with JSON: name, age (a number or null), mood (glad, sad or unknown).\n",
        arguments.text
    );
    // A chat model is asked by its own template; any other continues the text.
    let options = GenerateOptions::default().max_tokens(4096);
    let person: Person = if model.spec().tokenizer.chat_templates.is_empty() {
        model.extract(&question, &options)?
    } else {
        model.extract(&[Message::user(question)], &options)?
    };
    common::tell(format_args!("{person:?}"));
    let json = serde_json::to_string(&person).unwrap_or_default();
    common::print(&format!("{json}\n"))
}
