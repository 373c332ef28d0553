//! A report in the terms of these examples: their options, command lines for the next steps, and the colors of a terminal.

use anstyle::{AnsiColor, Style};
use model_factory::Report;
use model_factory::diagnostics::Hardware;
use model_factory::diagnostics::plan::{ActivationDtype, KvDtype};
use model_factory::diagnostics::report::{
    Candidate, HubModel, InputSummary, NextStep, Presentation, Remedy, ServingEngine, Tone,
};
use model_factory::diagnostics::{DType, DeviceChoice, Policy};

/// The default port of llama.cpp's `rpc-server`.
const RPC_PORT: u16 = 50052;

/// A shell in a checkout of this library.
pub(crate) struct Shell {
    /// Whether it is on a terminal that shows colors.
    pub(crate) colours: bool,
}

impl Presentation for Shell {
    fn paint(&self, tone: Tone, text: &str) -> String {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(anstyle::Color::Ansi(colour)));
        let style = match tone {
            Tone::Label => Style::new().bold(),
            Tone::Faint => Style::new().dimmed(),
            Tone::Good => colour(AnsiColor::Green).bold(),
            Tone::Warning => colour(AnsiColor::Yellow).bold(),
            Tone::Bad => colour(AnsiColor::Red).bold(),
            Tone::Command | Tone::Activations => colour(AnsiColor::Cyan),
            Tone::Weights => colour(AnsiColor::Blue),
            Tone::Cache => colour(AnsiColor::Magenta),
            Tone::Rest => colour(AnsiColor::Yellow),
            Tone::Missing => colour(AnsiColor::Red),
        };
        if self.colours { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn remedy(&self, remedy: &Remedy) -> String {
        match remedy {
            Remedy::SmallerContext(context) => format!("take a smaller context: --context {context}"),
            Remedy::TrainedContext(context) => format!("ask for at most --context {context}"),
            Remedy::CacheDtype(dtype, _) => format!("{remedy}:{}", kv_option(*dtype)),
            Remedy::Processor(None) => format!("{remedy}: --device cpu"),
            Remedy::Processor(Some(context)) => {
                format!("run it on the processor: --device cpu, where context {context} fits")
            }
            Remedy::SomeProcessor => format!("{remedy}: --device cpu judges the one of this machine"),
            Remedy::Feature(feature) => format!("build with --features {feature}"),
            Remedy::Words(words) => words.clone(),
        }
    }

    fn commands(&self, report: &Report) -> Vec<String> {
        report.next.iter().map(|step| command(step, report)).collect()
    }

    fn serving_commands(&self, report: &Report) -> Vec<String> {
        let (Some(distribution), input) = (&report.distribution, &report.input) else { return Vec::new() };
        let (context, shares) = (distribution.context, &distribution.shares);
        match distribution.engine {
            ServingEngine::LlamaCpp => {
                let hosts: Vec<String> = (1..=shares.len()).map(|host| format!("HOST{host}:{RPC_PORT}")).collect();
                let layers: Vec<String> = shares.iter().map(|share| share.layers.len().to_string()).collect();
                let all = shares.last().map_or(0, |share| share.layers.end);
                vec![
                    // llama.cpp's RPC has no passwords.
                    format!(
                        "rpc-server --host HOST1 --port {RPC_PORT}  # on every machine, with its own address; no password, so only in a private network"
                    ),
                    format!(
                        "llama-server {} --ctx-size {context} --n-gpu-layers {} --tensor-split {} --rpc {}",
                        for_llama_cpp(input),
                        all + 1,
                        layers.join(","),
                        hosts.join(",")
                    ),
                ]
            }
            ServingEngine::Vllm => {
                let gpus = distribution.tensor_parallel;
                let groups = shares.len() / gpus.max(1);
                let pipeline = if groups > 1 { format!(" --pipeline-parallel-size {groups}") } else { String::new() };
                let dtype = match distribution.dtype {
                    Some(DType::BF16) => "bfloat16",
                    Some(DType::F16) => "float16",
                    _ => "float32",
                };
                vec![format!(
                    "vllm serve {} --tensor-parallel-size {gpus}{pipeline} --dtype {dtype} --max-model-len {context}",
                    for_vllm(input)
                )]
            }
        }
    }
}

/// The command of an example in a checkout, in a build with the features that `input` needs and, if a GPU may be used, `cuda`.
fn example(name: &str, input: &InputSummary, gpu: bool) -> String {
    let features = [(gpu, "cuda"), (input.hub.is_some(), "hub")];
    let features: Vec<&str> = features.into_iter().filter_map(|(needed, feature)| needed.then_some(feature)).collect();
    match features.as_slice() {
        [] => format!("cargo run --release --example {name} --"),
        features => format!("cargo run --release --features {} --example {name} --", features.join(",")),
    }
}

/// Whether a run may use a GPU of `hardware`.
fn may_use_gpu(hardware: &Hardware, policy: &Policy) -> bool {
    let gpu = hardware.profile.is_none() && hardware.has_cuda() && !hardware.gpus.is_empty();
    gpu && policy.device != DeviceChoice::Cpu
}

/// The command line of `step`, after `report`.
fn command(step: &NextStep, report: &Report) -> String {
    let (input, policy, path) = (&report.input, &report.policy, quoted(&report.input.path));
    let trained = report.model.as_ref().map(|model| model.context_trained);
    let (kv, asked, device) = (dtype_options(policy), context_option(policy, trained), device_option(policy));
    let gpu = may_use_gpu(&report.hardware, policy);
    let generate = |options: &str| format!("{} {path}{options}", example("generate", input, gpu));
    let diagnose = |options: &str| format!("{} {path}{options}", example("diagnose", input, false));
    match step {
        NextStep::Run => {
            // A model without an output head makes vectors of texts, and may score labels.
            if let Some(model) = report.model.as_ref().filter(|model| model.embeds.only) {
                let (name, options) = match model.labels.len() {
                    0 => ("embed", "--text 'Once upon a time'"),
                    1 => ("search", "--file FILE --ask 'Once upon a time'"),
                    _ => ("classify", "--text 'Once upon a time'"),
                };
                return format!("{} {path} {options}", example(name, input, false));
            }
            let talks = report.model.as_ref().is_some_and(|model| model.chat_template);
            let talk = if talks { " --chat 'Hello'" } else { " --prompt 'Once upon a time'" };
            let lora: String =
                policy.lora.iter().map(|path| format!(" --lora {}", quoted(&path.display().to_string()))).collect();
            generate(&format!("{talk}{lora}{device}{asked}{kv}"))
        }
        NextStep::RunOnProcessor => generate(&format!(" --device cpu{asked}{kv}")),
        NextStep::WithContext(context) => match report.hardware.profile {
            None => generate(&format!("{device} --context {context}{kv}")),
            Some(name) => diagnose(&format!(" --device {name} --context {context}{kv}")),
        },
        NextStep::OnMachine(name) => diagnose(&format!(" --device {name}{asked}{kv}")),
        NextStep::OneOf(index) => command_of_one(&input.models[*index], &report.hardware, policy),
    }
}

/// The command for one of several models at a path, which were diagnosed for `hardware`.
fn command_of_one(model: &Candidate, hardware: &Hardware, policy: &Policy) -> String {
    let (path, kv, asked) = (quoted(&model.path), dtype_options(policy), context_option(policy, model.context_trained));
    let (gpu, device) = (may_use_gpu(hardware, policy), device_option(policy));
    let run = |name: &str| format!("{} {path}", example(name, &InputSummary::default(), gpu));
    match hardware.profile {
        None if model.verdict.runs() => format!("{}{device}{asked}{kv}", run("generate")),
        None => format!("{}{device}{asked}{kv}", run("diagnose")),
        Some(name) => format!("{} --device {name}{asked}{kv}", run("diagnose")),
    }
}

/// Those of the KV cache and of activations.
fn dtype_options(policy: &Policy) -> String {
    let activations = match policy.activation_dtype {
        ActivationDtype::Prescribed => "",
        ActivationDtype::Int8 => " --activations int8",
    };
    format!("{}{activations}", kv_option(policy.kv_dtype))
}

fn kv_option(dtype: KvDtype) -> &'static str {
    match dtype {
        KvDtype::F32 => "",
        KvDtype::F16 => " --kv-cache f16",
        KvDtype::Q8_0 => " --kv-cache q8_0",
    }
}

/// The requested context, at most the one that the model was `trained` for.
fn context_option(policy: &Policy, trained: Option<usize>) -> String {
    let context = policy.context.map(|context| context.min(trained.unwrap_or(context)));
    context.map(|context| format!(" --context {context}")).unwrap_or_default()
}

fn device_option(policy: &Policy) -> String {
    if policy.device == DeviceChoice::Auto { String::new() } else { format!(" --device {}", policy.device) }
}

/// `text` as one word of a shell's command line.
pub(crate) fn quoted(text: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    // A leading dash would be taken for an option.
    let text = if text.starts_with('-') { format!("./{text}") } else { text.to_owned() };
    if !text.is_empty() && text.bytes().all(safe) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The path of the model for llama.cpp's programs: the first part of a split file.
fn for_llama_cpp(input: &InputSummary) -> String {
    match &input.hub {
        Some(model) => of_llama_cpp(model),
        None if input.path.ends_with(".gguf") || input.files.is_empty() => format!("--model {}", quoted(&input.path)),
        None => {
            let file = format!("{}/{}", input.path.trim_end_matches('/'), input.files[0].name);
            format!("--model {}", quoted(&file))
        }
    }
}

/// The model of the Hub for llama.cpp's programs. They have no option for a revision, so that is downloaded by another program.
pub(crate) fn of_llama_cpp(model: &HubModel) -> String {
    let HubModel { repo, wanted, revision, files } = model;
    let first = files.first().map(String::as_str).unwrap_or_default();
    let (repo, revision) = (quoted(repo), revision.as_deref().map(quoted));
    match (revision, wanted) {
        (Some(revision), _) => {
            let names: Vec<String> = files.iter().map(|file| quoted(file)).collect();
            let download = format!("$(hf download {repo} {} --revision {revision} --quiet)", names.join(" "));
            // That program prints the path of one file, or the folder of several.
            let inside = if files.len() > 1 { format!("/{}", quoted(first)) } else { String::new() };
            format!("--model \"{download}\"{inside}")
        }
        (None, Some(wanted)) if !wanted.ends_with(".gguf") => format!("-hf {repo}:{}", quoted(wanted)),
        (None, _) => format!("--hf-repo {repo} --hf-file {}", quoted(first)),
    }
}

/// The model for vLLM: its id on the Hub, or the folder of the checkpoint.
fn for_vllm(input: &InputSummary) -> String {
    if let Some(HubModel { repo, revision, .. }) = &input.hub {
        let revision = revision.as_ref().map(|revision| format!(" --revision {}", quoted(revision)));
        return quoted(repo) + &revision.unwrap_or_default();
    }
    let file = [".safetensors", ".json"].iter().any(|ext| input.path.ends_with(ext));
    match input.path.rsplit_once('/') {
        Some((folder, _)) if file => quoted(folder),
        None if file => ".".into(),
        _ => quoted(&input.path),
    }
}
