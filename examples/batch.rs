//! Answers every line of a file, several at a time, and shows the progress.

mod common;

use clap::Parser;
use model_factory::{Error, GenerateOptions, Message, UnifiedModelFactory};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Answer each line of a file: a JSON object a line, in the order of the file. The same answers as one after another, sooner.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder; the bundled demo model when absent.
    path: Option<PathBuf>,
    /// A file, of which each line is a prompt.
    #[arg(long)]
    file: PathBuf,
    /// Answers that are generated together.
    #[arg(long, default_value_t = 8)]
    concurrency: usize,
    /// Tokens of an answer at most.
    #[arg(long, default_value_t = 128)]
    max_tokens: usize,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let lines = common::lines(&arguments.file)?;
    let model = UnifiedModelFactory::load(arguments.path.clone().unwrap_or_else(common::bundled))?;
    let options = GenerateOptions::default().max_tokens(arguments.max_tokens).seed(0);
    let chats = !model.spec().tokenizer.chat_templates.is_empty();
    let answer = |line: &str| {
        let generation =
            if chats { model.chat(&[Message::user(line)], &options) } else { model.generate(line, &options) };
        generation?.answer()
    };

    // Threads on one model share its passes over the weights.
    let (next, (done, answers)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        for _ in 0..arguments.concurrency.clamp(1, lines.len().max(1)) {
            let (next, lines, answer, done) = (&next, &lines, &answer, done.clone());
            scope.spawn(move || {
                while let Some((index, line)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, lines.get(index)?)))
                {
                    // Once an answer failed, nobody receives the others.
                    if done.send((index, answer(line))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        let mut waiting: Vec<Option<String>> = vec![None; lines.len()];
        let mut printed = 0;
        for (count, (index, answer)) in answers.into_iter().enumerate() {
            let answer = answer?;
            waiting[index] = Some(format!("{}\n", json!({ "prompt": lines[index], "answer": answer.text })));
            while let Some(line) = waiting.get_mut(printed).and_then(Option::take) {
                common::print(&line)?;
                printed += 1;
            }
            common::tell(format_args!("{} of {}", count + 1, lines.len()));
        }
        Ok(())
    })
}
