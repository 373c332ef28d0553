//! Lets a model call functions of this program until it answers.

mod common;

use clap::Parser;
use model_factory::{ChatOptions, Error, GenerateOptions, Message, ToolCall, ToolChoice, UnifiedModelFactory};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Ask a question; the model may calculate.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; the bundled demo model when absent, which knows no tools and has to be made to call one.
    path: Option<PathBuf>,
    /// The question.
    #[arg(long, default_value = "What is 1234 times 5678?")]
    ask: String,
    /// Rounds of calls at most.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

/// `a operation b`, or what the model did wrong: it reads this, and may try again.
fn calculate(call: &ToolCall) -> Result<f64, String> {
    let number =
        |name: &str| call.arguments.get(name).and_then(|value| value.as_f64()).ok_or(format!("{name} is no number"));
    if call.name != "calculate" {
        return Err(format!("there is no tool {}", call.name));
    }
    let (a, b) = (number("a")?, number("b")?);
    match call.arguments.get("operation").and_then(|value| value.as_str()) {
        Some("+") => Ok(a + b),
        Some("-") => Ok(a - b),
        Some("*") => Ok(a * b),
        Some("/") => Ok(a / b),
        _ => Err("operation is one of + - * /".into()),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let model = UnifiedModelFactory::load(arguments.path.clone().unwrap_or_else(common::bundled))?;
    let number = json!({"type": "number", "minimum": -1_000_000, "maximum": 1_000_000});
    let tool = json!({"type": "function", "function": {
        "name": "calculate",
        "description": "Calculates with two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": number, "operation": {"enum": ["+", "-", "*", "/"]}, "b": number},
            "required": ["a", "operation", "b"],
        },
    }});
    let options = GenerateOptions::default().max_tokens(1024).chat(ChatOptions::default().tool(tool));
    let mut messages = vec![Message::user(&arguments.ask)];
    for round in 0..=arguments.rounds {
        let choice = match round {
            0 if arguments.path.is_none() => ToolChoice::Named("calculate".into()),
            last if last == arguments.rounds => ToolChoice::None,
            _ => ToolChoice::Auto,
        };
        let answer = model.chat(&messages, &options.clone().tool_choice(choice))?.answer()?;
        let calls = answer.tool_calls.clone();
        if calls.is_empty() {
            return common::print(&format!("{}\n", answer.text.trim()));
        }
        messages.push(answer.into());
        for call in &calls {
            let result = calculate(call).map_or_else(|error| error, |result| result.to_string());
            common::tell(format_args!("{}({}) = {result}", call.name, json!(call.arguments)));
            messages.push(Message::tool_result(call, result));
        }
    }
    Ok(())
}
