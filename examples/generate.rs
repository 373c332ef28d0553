//! Continues a prompt: the report goes to standard error, the text to standard output as it comes.

mod common;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Parser};
use model_factory::kernels::Isa;
use model_factory::session::WeightsDigest;
use model_factory::{
    ActivationDtype, CancellationToken, DeviceChoice, Error, GenerateOptions, Grammar, KvDtype, Message, Model,
    Speculation, ToolChoice, UnifiedModelFactory,
};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Continue a prompt with a model file or folder.
#[derive(Parser)]
#[command(group(ArgGroup::new("conversation").args(["chat", "messages"])))]
struct Arguments {
    /// A model file or folder, or with the feature hub org/name[:quantization]; the bundled demo model when absent.
    path: Option<PathBuf>,
    /// The text to continue.
    #[arg(long, default_value = "Once upon a time")]
    prompt: String,
    /// Asks this, by the model's own chat template, instead of continuing a text.
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt")]
    chat: Option<String>,
    /// Goes on with a conversation: a file with a JSON list of messages.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "chat"], value_parser = common::messages)]
    messages: Option<common::Messages>,
    /// With --chat: a picture (PNG, JPEG, WebP or GIF) that the question is about, put before it; may be given several times. The
    /// model's vision tower is loaded for it.
    #[arg(long, value_name = "FILE", requires = "chat")]
    image: Vec<PathBuf>,
    /// The file with the vision tower of a GGUF model, llama.cpp's mmproj: for images, where several lie beside it.
    #[arg(long, value_name = "FILE")]
    mmproj: Option<PathBuf>,
    /// The system message, with --chat.
    #[arg(long, value_name = "TEXT", requires = "chat", conflicts_with = "messages")]
    system: Option<String>,
    /// The model's chat template of this name, such as tool_use, with --chat or --messages; its default one when absent.
    #[arg(long, value_name = "NAME", requires = "conversation")]
    template: Option<String>,
    /// A file with a JSON list of tool schemas for the chat template, with --chat or --messages.
    #[arg(long, value_name = "FILE", requires = "conversation", value_parser = tools)]
    tools: Option<Tools>,
    /// With --tools: auto calls tools as the model likes, strict holds the calls that it makes to the schemas, required wants
    /// calls, none forbids them, and a tool's name wants a call of that one.
    #[arg(long, value_name = "CHOICE", requires = "tools", default_value = "auto", value_parser = tool_choice)]
    tool_choice: ToolChoice,
    /// Sets a variable of the chat template, such as enable_thinking=false, with --chat or --messages; may be given several
    /// times.
    #[arg(long, value_name = "NAME=JSON", requires = "conversation", value_parser = variable)]
    set: Vec<(String, Value)>,
    /// Tokens to generate at most.
    #[arg(long, default_value_t = 256, value_parser = common::number, allow_negative_numbers = true)]
    max_tokens: usize,
    /// Ends what the model thinks after N tokens, so that its answer follows; as long as it likes when absent.
    #[arg(long, value_name = "N", value_parser = common::number, allow_negative_numbers = true)]
    thinking_budget: Option<usize>,
    /// 0 always takes the most likely token; higher is more varied. As the model ships it when absent; so are top-k, top-p,
    /// min-p and repeat-penalty.
    #[arg(long, allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Chooses among this many of the most likely tokens; 0 is all.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top_k: Option<usize>,
    /// Chooses among the fewest most likely tokens that together have this probability; 1 is all.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,
    /// Chooses among tokens at least this share as likely as the most likely one; 0 is all.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f64>,
    /// Above 1 makes tokens of the prompt and the text less likely; 1 is off.
    #[arg(long, value_name = "PENALTY", allow_negative_numbers = true)]
    repeat_penalty: Option<f64>,
    /// Makes tokens of the text less likely, -2 to 2; 0 is off.
    #[arg(long, value_name = "PENALTY", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f64,
    /// Makes tokens of the text less likely every time they occur, -2 to 2; 0 is off.
    #[arg(long, value_name = "PENALTY", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f64,
    /// Repeats a varied text; drawn and printed when absent.
    #[arg(long, value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Ends before this text; may be given several times.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    /// The answer is a value of the JSON schema in this file.
    #[arg(long, value_name = "FILE", value_parser = schema)]
    json_schema: Option<Grammar>,
    /// The answer is this text or another one that is given so; several times, or with commas between them.
    #[arg(long, value_name = "TEXT", value_delimiter = ',', conflicts_with = "json_schema")]
    choice: Vec<String>,
    /// ngram guesses the next tokens by what followed the last ones before, and computes them together: the same text, sooner
    /// where it repeats itself or its prompt. mtp guesses by the model's own multi-token prediction head, where its files bring one.
    #[arg(long, value_name = "ngram|mtp|off", default_value = "off", value_parser = speculation)]
    speculate: Speculation,
    /// A small model of the same vocabulary guesses the next tokens, a file or folder: the same text, sooner.
    #[arg(long, value_name = "PATH", conflicts_with = "speculate")]
    draft: Option<PathBuf>,
    /// An adapter (LoRA) of the model, with this SCALE or as it was trained: a folder of PEFT, or a GGUF adapter for a GGUF
    /// model; may be given several times.
    #[arg(long, value_name = "PATH[:SCALE]", value_parser = common::lora)]
    lora: Vec<(PathBuf, f64)>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_parser = common::device)]
    device: DeviceChoice,
    /// Tokens the model can look back on; the most that fit when absent.
    #[arg(long, value_parser = common::count, allow_negative_numbers = true)]
    context: Option<usize>,
    /// Keys and values are kept in f32, as computed, or rounded to f16, which takes half the memory, or to q8_0, 0.27 of it.
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    kv_cache: KvDtype,
    /// Where a format prescribes activations of 16 bits they keep them (prescribed), or are rounded to int8, which is sooner.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    activations: ActivationDtype,
    /// Threads to compute with; all when absent.
    #[arg(long, value_parser = common::count, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Instruction sets to use at most (avx2, portable), for a machine that misbehaves; all when absent.
    #[arg(long, value_parser = common::isa)]
    isa: Option<Isa>,
    /// Reads the session that is saved in this file, if it exists, and saves it there at the end. The prompt is the whole text all the
    /// same: what it has in common with the session is not computed again.
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
    /// With --json: the log-probability of each token, and of the N most likely ones at its place.
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<usize>,
    /// Print one JSON object instead of the text as it comes; of a model that is refused, its report.
    #[arg(long)]
    json: bool,
}

/// The exit code that a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cancel = CancellationToken::new();
    let first = cancel.clone();
    // The first Ctrl-C ends the generation and keeps its text and session; the second one ends the program.
    let handler = move || if first.is_cancelled() { std::process::exit(INTERRUPTED.into()) } else { first.cancel() };
    if let Err(error) = ctrlc::set_handler(handler) {
        common::tell(format_args!("Ctrl-C will end the program at once: {error}"));
    }
    match run(&arguments, &cancel) {
        Ok(()) if cancel.is_cancelled() => ExitCode::from(INTERRUPTED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let (true, Error::Refused(report)) = (arguments.json, &error) {
                let _ = common::print(&format!("{}\n", report.to_json()));
            }
            common::fail(&error)
        }
    }
}

fn run(arguments: &Arguments, cancel: &CancellationToken) -> Result<(), Error> {
    let options = options(arguments).cancel(cancel);
    // Invalid options are reported before a model is loaded.
    options.check()?;
    let model = load(arguments, cancel)?;
    common::tell(model.report().first_line());
    let (mut options, mut adapters) = (options, Vec::new());
    for (path, scale) in &arguments.lora {
        let adapter = model.load_adapter(path)?;
        options = options.adapter(&adapter, *scale);
        adapters.push(adapter);
    }
    let session = match &arguments.session {
        Some(file) if file.exists() => model.restore_with(file, &adapters)?,
        _ => model.session(),
    };
    let mut generation = match (&arguments.chat, &arguments.messages) {
        (None, None) => session.into_generation(&arguments.prompt, &options)?,
        (None, Some(messages)) => session.into_generation(&messages.0, &options)?,
        (Some(question), _) => {
            let system = arguments.system.as_ref().map(Message::system);
            let pictures = arguments.image.iter().map(PathBuf::as_path);
            let asked = match arguments.image.is_empty() {
                true => Message::user(question),
                false => pictures.fold(Message::user(""), Message::image).text(question),
            };
            let messages: Vec<Message> = system.into_iter().chain([asked]).collect();
            session.into_generation(&messages, &options)?
        }
    };
    let (mut text, mut thought, mut answer) = (String::new(), String::new(), String::new());
    let (mut logprobs, mut tool_calls) = (Vec::new(), Vec::new());
    let mut dim = Dim { on_terminal: std::io::stdout().is_terminal(), on: false };
    if !arguments.json && arguments.chat.is_none() && arguments.messages.is_none() {
        common::print(&arguments.prompt)?;
    }
    for piece in &mut generation {
        let piece = piece.inspect_err(|_| {
            // The error gets a line of its own.
            let _ = if arguments.json { Ok(()) } else { common::print("\n") };
        })?;
        if arguments.json {
            text.push_str(&piece.text);
            logprobs.extend(piece.token.zip(piece.logprobs).map(|(token, of)| {
                let top: Vec<_> = of.top.iter().map(|(token, logprob)| entry(*token, *logprob)).collect();
                serde_json::json!({ "token": token, "logprob": of.chosen, "top": top })
            }));
            if piece.thinking { &mut thought } else { &mut answer }.push_str(&piece.text);
        } else {
            common::print(dim.mark(piece.thinking))?;
            common::print(&piece.text)?;
            if let Some(call) = &piece.tool_call {
                common::print(&format!("\n{}\n", serde_json::to_string(call).unwrap_or_default()))?;
            }
        }
        tool_calls.extend(piece.tool_call);
    }
    common::print(dim.mark(false))?;
    let (finish, timings) = generation.finish();
    let finish = finish.map(|reason| reason.to_string()).unwrap_or_default();
    let (prefill, decode) = (timings.prompt_tokens_per_second(), timings.tokens_per_second());
    if arguments.json {
        let timings = serde_json::json!({
            "load_s": model.load_time().as_secs_f64(),
            "prompt_tokens": timings.prompt_tokens,
            "cached_tokens": timings.cached_tokens,
            "prefill_s": timings.prefill.as_secs_f64(),
            "prefill_tok_s": prefill,
            "generated_tokens": timings.generated,
            "decode_s": timings.decode.as_secs_f64(),
            "decode_tok_s": decode,
            "forced": timings.forced,
            "guessed": timings.guessed,
            "accepted": timings.accepted,
            "seed": timings.seed,
        });
        let mut object = serde_json::json!({
            "text": text,
            "thinking": thought,
            "answer": answer,
            "tool_calls": tool_calls,
            "tokens": generation.ids(),
            "finish": finish,
            "timings": timings,
        });
        if arguments.logprobs.is_some() {
            object["logprobs"] = logprobs.into();
        }
        common::print(&format!("{object}\n"))?;
    } else {
        common::print("\n")?;
        let seed = if options.sampling.or(&model.spec().sampling).draws() {
            format!("seed {}, ", timings.seed)
        } else {
            String::new()
        };
        let guesses = match options.speculate {
            Speculation::Off => String::new(),
            _ => format!("{} of {} guesses accepted, ", timings.accepted, timings.guessed),
        };
        // One token, or tokens that a grammar left no choice, take no steps of their own.
        let speed = if decode > 0.0 { format!(" at {decode:.0} tokens/s") } else { String::new() };
        common::tell(format_args!(
            "{} prompt tokens at {prefill:.0} tokens/s, {} generated{speed}, ended by {finish}, \
             {guesses}{seed}loaded in {:.3} s",
            timings.prompt_tokens,
            timings.generated,
            model.load_time().as_secs_f64()
        ));
    }
    match &arguments.session {
        Some(file) => generation.into_inner().save(file, WeightsDigest::Sampled),
        None => Ok(()),
    }
}

fn entry(token: u32, logprob: f64) -> Value {
    serde_json::json!({ "token": token, "logprob": logprob })
}

fn options(arguments: &Arguments) -> GenerateOptions {
    let mut options = GenerateOptions::default()
        .max_tokens(arguments.max_tokens)
        .presence_penalty(arguments.presence_penalty)
        .frequency_penalty(arguments.frequency_penalty);
    options.sampling.temperature = arguments.temperature;
    options.sampling.top_k = arguments.top_k;
    options.sampling.top_p = arguments.top_p;
    options.sampling.min_p = arguments.min_p;
    options.thinking_budget = arguments.thinking_budget;
    options.sampling.repetition_penalty = arguments.repeat_penalty;
    options.sampling.seed = arguments.seed;
    options.logprobs = arguments.logprobs;
    options.speculate = if arguments.draft.is_some() { Speculation::Draft } else { arguments.speculate };
    options.stop.clone_from(&arguments.stop);
    options.grammar.clone_from(&arguments.json_schema);
    if !arguments.choice.is_empty() {
        options = options.choice(&arguments.choice);
    }
    options.chat.template.clone_from(&arguments.template);
    for (name, value) in &arguments.set {
        options.chat.variables.insert(name.clone(), value.clone());
    }
    options.tool_choice.clone_from(&arguments.tool_choice);
    options.chat.tools = arguments.tools.as_ref().map(|tools| tools.0.clone());
    options
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a number from 0 up, or no --seed for one that is drawn".into())
}

fn speculation(text: &str) -> Result<Speculation, String> {
    match text {
        "ngram" => Ok(Speculation::Ngram),
        "mtp" => Ok(Speculation::Mtp),
        "off" => Ok(Speculation::Off),
        _ => Err("expected ngram, mtp or off".into()),
    }
}

/// `NAME=JSON`, a variable of a chat template.
fn variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=JSON, such as enable_thinking=false")?;
    let value = serde_json::from_str(value)
        .map_err(|error| format!("the value is not JSON ({error}); a text is written {name}='\"{value}\"'"))?;
    Ok((name.into(), value))
}

/// The schemas of a file.
#[derive(Clone)]
struct Tools(Vec<Value>);

fn tools(path: &str) -> Result<Tools, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map(Tools).map_err(|error| format!("expected a JSON list of tool schemas: {error}"))
}

fn tool_choice(text: &str) -> Result<ToolChoice, String> {
    Ok(match text {
        "auto" => ToolChoice::Auto,
        "strict" => ToolChoice::Strict,
        "required" => ToolChoice::Required,
        "none" => ToolChoice::None,
        name => ToolChoice::Named(name.into()),
    })
}

fn schema(path: &str) -> Result<Grammar, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let schema: Value = serde_json::from_slice(&text).map_err(|error| format!("expected a JSON schema: {error}"))?;
    Ok(Grammar::json_schema(schema))
}

fn load(arguments: &Arguments, cancel: &CancellationToken) -> Result<Model, Error> {
    let mut builder = UnifiedModelFactory::builder()
        .device(arguments.device)
        .kv_cache(arguments.kv_cache)
        .activations(arguments.activations)
        .on_progress(common::show)
        .cancel(cancel);
    if let Some(context) = arguments.context {
        builder = builder.context_length(context);
    }
    if let Some(threads) = arguments.threads {
        builder = builder.threads(threads);
    }
    if let Some(isa) = arguments.isa {
        builder = builder.isa(isa);
    }
    let written = arguments.messages.iter().flat_map(|messages| &messages.0);
    builder =
        builder.vision(!arguments.image.is_empty() || written.flat_map(|message| &message.images).next().is_some());
    builder = builder.mtp(arguments.speculate == Speculation::Mtp);
    if let Some(mmproj) = &arguments.mmproj {
        builder = builder.mmproj(mmproj);
    }
    if let Some(draft) = &arguments.draft {
        builder = builder.draft(draft);
    }
    builder.load(arguments.path.clone().unwrap_or_else(common::bundled))
}

/// Shows thoughts dim on a terminal; elsewhere nothing is inserted into the text.
struct Dim {
    on_terminal: bool,
    on: bool,
}

impl Dim {
    /// The escape code that switches to thoughts, or to other text.
    fn mark(&mut self, thinking: bool) -> &'static str {
        if !self.on_terminal || self.on == thinking {
            return "";
        }
        self.on = thinking;
        if thinking { "\x1b[2m" } else { "\x1b[22m" }
    }
}
