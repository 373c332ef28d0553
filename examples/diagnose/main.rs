//! Reports what lies at a path and whether this machine, or a described one, can run it. Reads only headers.
//!
//! `cargo run --release --example diagnose -- [PATH] [--json] [--device DEVICE] [--context N] [--devices] [--svg FILE]
//! [--tokenizer [TEXT]]`

#[path = "../common/mod.rs"]
mod common;
mod svg;

use clap::{Parser, ValueEnum};
use common::shell::Shell;
use model_factory::tokenizer::Tokenizer;
use model_factory::{ModelBuilder, UnifiedModelFactory};
use model_factory_diagnostics::hardware::profiles::{PROFILES, Profile};
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::plan::{ActivationDtype, KvDtype};
use model_factory_diagnostics::report::{DeviceList, Presentation, Verdict};
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use model_factory_diagnostics::{DeviceChoice, Hardware, Report};
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A sentence for which tokenizers differ: capitals, contractions, numbers, runs of spaces, accents, other scripts, an
/// emoji of several code points, and an end of line.
const SENTENCE: &str = "Hello, I'm 1234.5 km  from Zürich: 東京 and 👩‍🚀!\n";

/// Tells what lies at a path and whether a machine can run it, from its headers.
#[derive(Parser)]
struct Arguments {
    /// A .gguf or .safetensors file, a config.json, an index or a folder, or with the feature hub org/name[:quantization];
    /// the bundled demo model by default.
    path: Option<PathBuf>,
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
    /// auto, cpu, cuda[:N], or the name of a described machine (see --devices).
    #[arg(long, default_value = "auto", value_parser = device)]
    device: Device,
    /// Tokens of context to plan for; by default the largest that fits.
    #[arg(long, value_name = "N", value_parser = context)]
    context: Option<usize>,
    /// Sessions to plan for, each with a full context.
    #[arg(long, value_name = "N", value_parser = sessions)]
    sessions: Option<usize>,
    /// Keys and values are kept in f32, as computed, or rounded to f16, which takes half the memory, or to q8_0, 0.27 of it.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    kv_cache: KvDtype,
    /// Where a format prescribes activations of 16 bits they keep them (prescribed), or are rounded to int8, which is sooner.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    activations: ActivationDtype,
    /// Count the model's vision tower too: what it sees with, and what an image takes in tokens and memory.
    #[arg(long)]
    vision: bool,
    /// The same for a GGUF model, with the tower of this file: llama.cpp's mmproj.
    #[arg(long, value_name = "FILE")]
    mmproj: Option<PathBuf>,
    /// An adapter (LoRA) of the model: what it changes, and whether both belong together; may be given several times.
    #[arg(long, value_name = "PATH")]
    lora: Vec<PathBuf>,
    /// Plan memory for so many adapters of up to this rank.
    #[arg(long, value_name = "N:RANK", value_parser = adapters)]
    adapters: Option<(usize, usize)>,
    /// Draw the memory plan and the weights by layer and dtype into an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Show how TEXT, or a sentence of many kinds of characters, is tokenized. PATH may stand before or after it:
    /// a single word is PATH where something lies at it, and else TEXT.
    #[arg(long, value_name = "TEXT", num_args = 0..=1, default_missing_value = SENTENCE)]
    tokenizer: Option<String>,
    /// Color the text: on a terminal unless NO_COLOR is set, always or never.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    color: Color,
    /// List this machine and the described ones instead.
    #[arg(long)]
    devices: bool,
}

impl Arguments {
    /// `--tokenizer PATH` looks like `--tokenizer TEXT`; if something lies at the path, it is a path.
    fn path_behind_tokenizer(&mut self) {
        let Some(text) = self.tokenizer.as_mut().filter(|text| self.path.is_none() && *text != SENTENCE) else {
            return;
        };
        if Path::new(text).exists() {
            self.path = Some(std::mem::replace(text, SENTENCE.into()).into());
        } else {
            common::tell(format_args!("no PATH is given: the bundled model tokenizes the text {text:?}"));
        }
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether standard output is to be colored (<https://no-color.org>).
    fn wanted(self) -> bool {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Color::Auto => {
                std::io::stdout().is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM") != Some("dumb".into())
            }
            Color::Always => true,
            Color::Never => false,
        }
    }
}

#[derive(Clone, Copy)]
enum Device {
    Here(DeviceChoice),
    Described(&'static Profile),
}

fn device(text: &str) -> Result<Device, String> {
    match (text.parse(), Profile::find(&text.to_ascii_lowercase())) {
        (Ok(choice), _) => Ok(Device::Here(choice)),
        (Err(_), Some(profile)) => Ok(Device::Described(profile)),
        (Err(error), None) => {
            let nearest = match nearest(text).as_slice() {
                [] => String::new(),
                names => format!("; the nearest names are {}", names.join(", ")),
            };
            Err(format!("{error}, or a described machine{nearest}; diagnose --devices lists all"))
        }
    }
}

/// Described machines whose names are similar to `text`, at most three.
fn nearest(text: &str) -> Vec<&'static str> {
    // Their names lack the vendor, and a user may leave out hyphens.
    let text = text.to_ascii_lowercase().replace([' ', '_', '-'], "").replace("nvidia", "").replace("geforce", "");
    let likeness = |name: &str| {
        let name = &name.replace('-', "");
        let within = (text.len() > 1 && name.contains(&text)) || text.contains(name);
        if within { 1.0 } else { strsim::normalized_damerau_levenshtein(&text, name) }
    };
    let mut names: Vec<(f64, &str)> = PROFILES.iter().map(|profile| (likeness(profile.name), profile.name)).collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    // If some names match exactly, only these are shown.
    let least = if names.first().is_some_and(|(likeness, _)| *likeness == 1.0) { 1.0 } else { 0.6 };
    names.into_iter().take_while(|(likeness, _)| *likeness >= least).take(3).map(|(_, name)| name).collect()
}

fn context(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&context| context > 0).ok_or_else(|| "expected a number of tokens above 0".into())
}

/// `N:RANK`, of adapters.
fn adapters(text: &str) -> Result<(usize, usize), String> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    let both = text.split_once(':').and_then(|(count, rank)| Some((number(count)?, number(rank)?)));
    both.ok_or_else(|| "expected a number of adapters and a rank, both above 0, such as 8:16".into())
}

fn sessions(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&sessions| sessions > 0).ok_or_else(|| "expected a number of sessions above 0".into())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    arguments.path_behind_tokenizer();
    let (mut hardware, device) = match arguments.device {
        Device::Here(choice) => (Hardware::detect(), choice),
        Device::Described(profile) => (profile.hardware(), DeviceChoice::Auto),
    };
    if cfg!(feature = "cuda") {
        hardware = hardware.with_build(&["cuda"]);
    }
    if arguments.devices {
        let list = DeviceList::new(&hardware);
        return write(&if arguments.json { list.to_json() } else { list.to_string() }, 0);
    }
    let path = arguments.path.unwrap_or_else(common::bundled);
    let mut factory =
        UnifiedModelFactory::builder().device(device).kv_cache(arguments.kv_cache).vision(arguments.vision);
    factory = factory.activations(arguments.activations);
    if let Some(mmproj) = &arguments.mmproj {
        factory = factory.mmproj(mmproj);
    }
    if let Some(context) = arguments.context {
        factory = factory.context_length(context);
    }
    if let Some(sessions) = arguments.sessions {
        factory = factory.sessions(sessions);
    }
    if let Some((count, rank)) = arguments.adapters {
        factory = factory.adapters(count, rank);
    }
    factory = arguments.lora.iter().fold(factory, ModelBuilder::lora);
    let report = factory.diagnose_on(&path, &hardware);
    if report.verdict == Verdict::Unreadable {
        common::tell(format_args!("error: {}", report.reason));
        return if arguments.json { write(&as_json(&report, None), report.exit_code) } else { report.exit_code.into() };
    }
    let mut code = report.exit_code;
    let tokenized =
        arguments.tokenizer.filter(|_| report.model.is_some()).and_then(|text| match tokenize(&path, text) {
            Ok(tokenized) => Some(tokenized),
            Err(error) => {
                common::tell(format_args!("error: {error}"));
                code = if code == 0 { error.code() } else { code };
                None
            }
        });
    if let Some(file) = &arguments.svg
        && let Err(error) = draw(&report, file)
    {
        common::tell(format_args!("error: {error}"));
        code = if code == 0 { 1 } else { code };
    }
    let text = if arguments.json {
        as_json(&report, tokenized.as_ref())
    } else {
        let text = report.text(&Shell { colours: arguments.color.wanted() });
        tokenized.iter().fold(text, |text, tokenized| text + &tokenized.to_string())
    };
    write(&text, code)
}

/// The report as JSON, in the terms of this program: with the options that remedies name, command lines for the next steps, and
/// the key `tokenization` where a text was tokenized.
fn as_json(report: &Report, tokenized: Option<&Tokenized>) -> String {
    let shell = Shell { colours: false };
    let mut json: Value = serde_json::from_str(&report.to_json()).unwrap_or_default();
    json["remedies"] = report.remedies.iter().map(|remedy| shell.remedy(remedy)).collect();
    for (index, check) in report.checks.iter().enumerate() {
        json["checks"][index]["remedy"] = check.remedies.first().map(|remedy| shell.remedy(remedy)).into();
    }
    json["commands"] = shell.commands(report).into();
    if report.distribution.is_some() {
        json["distribution"]["commands"] = shell.serving_commands(report).into();
    }
    if let Some(Tokenized { text, ids, tokens, decoded }) = tokenized {
        json["tokenization"] =
            json!({ "text": text, "ids": ids, "tokens": tokens, "decoded": decoded, "same": text == decoded });
    }
    serde_json::to_string_pretty(&json).unwrap_or_default()
}

fn draw(report: &Report, file: &Path) -> Result<(), String> {
    let Some(svg) = svg::draw(report) else { return Err("nothing is drawn of what has no memory plan".into()) };
    std::fs::write(file, svg).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// A text that was tokenized by the model's tokenizer.
struct Tokenized {
    text: String,
    ids: Vec<u32>,
    /// The entries of the vocabulary.
    tokens: Vec<String>,
    /// The text of the ids.
    decoded: String,
}

fn tokenize(path: &Path, text: String) -> model_factory::Result<Tokenized> {
    if !path.exists() {
        let reason = "a text is tokenized by the files of a tokenizer, and these are on the Hub: load the model first, then give its path";
        return Err(model_factory::Error::Tokenizer { file: path.into(), reason: reason.into() });
    }
    let header = Header::read(probe(path)?)?;
    let tokenizer = Tokenizer::from_header(&header, &TokenizerSpec::from_header(&header)?)?;
    let ids = tokenizer.encode(&text, true)?;
    let tokens = ids.iter().map(|id| tokenizer.token_text(*id).unwrap_or_default()).collect();
    let decoded = tokenizer.decode(&ids);
    Ok(Tokenized { text, ids, tokens, decoded })
}

impl std::fmt::Display for Tokenized {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LINE: usize = 100;
        writeln!(f, "\ntext       {:?}", self.text)?;
        let count = self.ids.len();
        let mut line = format!("{:<11}", if count == 1 { "1 token".into() } else { format!("{count} tokens") });
        for (id, token) in self.ids.iter().zip(&self.tokens) {
            let cell = format!("{} {id}  ", token.escape_debug());
            if line.chars().count() + cell.chars().count() > LINE && !line.trim().is_empty() {
                writeln!(f, "{}", line.trim_end())?;
                line = " ".repeat(11);
            }
            line += &cell;
        }
        writeln!(f, "{}", line.trim_end())?;
        match self.text == self.decoded {
            true => writeln!(f, "round trip the same text"),
            false => writeln!(f, "round trip differs: {:?}", self.decoded),
        }
    }
}

/// Writes `text` to standard output at once. If the reader has seen enough, the exit code stays the same.
fn write(text: &str, code: u8) -> ExitCode {
    match std::io::stdout().write_all(format!("{}\n", text.trim_end()).as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            common::tell(format_args!("error: standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => code.into(),
    }
}
