//! A server of models: the APIs of OpenAI, Anthropic, Ollama and llama.cpp's server, and a page to chat with them.

mod access;
mod api;
mod apis;
mod budget;
#[path = "../../examples/common/mod.rs"]
mod common;
mod completions;
mod direct;
mod llama_cpp;
mod metrics;
mod models;
mod observe;
mod ollama;
mod openapi;
mod responses;

use access::Access;
use api::{Queue, Server};
use axum::http::HeaderValue;
use axum::serve::Listener;
use budget::Budget;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use metrics::Metrics;
use model_factory::{
    ActivationDtype, Admission, CancellationToken, DeviceChoice, Error, KvDtype, ModelBuilder, Reranker,
    UnifiedModelFactory,
};
use models::{Listed, Models, Source};
use observe::Exporter;
use responses::Responses;
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// The most bytes of a request's head, and of the bytes that are read ahead of a connection.
const HEAD_BYTES: usize = 64 << 10;

/// Serve a model file or folder to clients of the APIs of OpenAI, Anthropic, Ollama and llama.cpp, with a page to chat with it.
#[derive(Parser)]
struct Arguments {
    /// A model file or folder, or with the feature hub org/name:quantization; the bundled demo model when absent.
    path: Option<PathBuf>,
    /// The port; 0 takes a free one.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The address to listen on; 0.0.0.0 lets other machines in.
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// A file with a key that requests must give; anybody may ask when absent.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Another name by which requests may call this server; may be repeated. Without a key, pages of other sites cannot reach it by
    /// a name that is not listed here.
    #[arg(long, value_name = "NAME", value_parser = access::host)]
    allowed_host: Vec<String>,
    /// Lets pages of this origin ask, its scheme, host and port; * lets all.
    #[arg(long, value_name = "ORIGIN")]
    cors: Option<HeaderValue>,
    /// The model's name for clients; that of the file or folder when absent. More of them are names of the same model.
    #[arg(long)]
    name: Vec<String>,
    /// One more model, loaded when a request asks for NAME; may be repeated. Without a path these are all. --name, --lora, --vision and
    /// --mmproj are not for it.
    #[arg(long, value_name = "NAME=PATH", value_parser = named)]
    model: Vec<(String, PathBuf)>,
    /// Bytes that loaded models may take by their plans: those that were used longest ago are let go for another. What the machine
    /// has when absent. K, M, G and T are powers of 1024.
    #[arg(long, value_name = "SIZE", requires = "model", value_parser = bytes)]
    model_memory: Option<u64>,
    /// Full contexts that the caches of all answers of a model take together, where there are several models.
    #[arg(long, value_name = "COUNT", default_value_t = 4, requires = "model", value_parser = common::count)]
    model_contexts: usize,
    /// An adapter (LoRA) of the model, which requests ask for by NAME in the place of the model's; may be repeated.
    #[arg(long, value_name = "NAME=PATH", value_parser = named)]
    lora: Vec<(String, PathBuf)>,
    /// Where to run: auto, cpu, or cuda and cuda:N.
    #[arg(long, default_value = "auto", value_parser = common::device)]
    device: DeviceChoice,
    /// Tokens of a prompt and its answer together; the most that fit, up to what the model was trained for, when absent.
    #[arg(long, value_parser = common::count)]
    context: Option<usize>,
    /// f32 rounds nothing; f16 takes half the memory, q8_0 0.27 of it.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    kv_cache: KvDtype,
    /// Where a format prescribes activations of 16 bits they keep them (prescribed), or are rounded to int8, which is sooner.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    activations: ActivationDtype,
    /// Threads to compute with; all when absent.
    #[arg(long, value_parser = common::count)]
    threads: Option<usize>,
    /// Answers that are computed at once, as far as their memory allows it.
    #[arg(long, default_value_t = 64, value_parser = common::count)]
    sessions: usize,
    /// Answers that may wait for that; a request beyond is refused.
    #[arg(long, default_value_t = 256, value_parser = common::number)]
    queue: usize,
    /// Connections at once; others wait until one closes.
    #[arg(long, default_value_t = 512, value_parser = common::count)]
    connections: usize,
    /// Bytes of a request at most.
    #[arg(long, value_name = "BYTES", default_value_t = 2 << 20, value_parser = common::count)]
    body_limit: usize,
    /// Bytes that all requests may take before they are computed: half of them as they come, half as they are read.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = common::count)]
    request_memory: usize,
    /// Bytes of the responses that are kept for requests that go on with them; those that were used longest ago go first.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = common::count)]
    response_memory: usize,
    /// Scores documents by whether a model that generates says yes, as Qwen3-Reranker's card has it, with this instruction; models
    /// with a classification head need none.
    #[arg(long, value_name = "INSTRUCTION")]
    rerank: Option<String>,
    /// Ends what a model thinks in an answer after N tokens, where the request says nothing else; 0 lets none think.
    #[arg(long, value_name = "N", value_parser = common::number)]
    reasoning_budget: Option<usize>,
    /// Loads the model's vision tower too: messages may have images, as data URLs.
    #[arg(long)]
    vision: bool,
    /// The file with the vision tower of a GGUF model, llama.cpp's mmproj, where it is not the only one beside it.
    #[arg(long, value_name = "FILE")]
    mmproj: Option<PathBuf>,
    /// Computes the beginning of every prompt, though another one began alike.
    #[arg(long)]
    no_prefix_caching: bool,
    /// Keeps what is computed of prompts in this folder too, within SIZE (10G when absent; K, M, G and T are powers of 1024), so that it
    /// is not computed again after a restart, or by another server with the same folder.
    #[arg(long, value_name = "DIR[:SIZE]", conflicts_with = "no_prefix_caching", value_parser = prompt_cache)]
    prompt_cache: Option<(PathBuf, u64)>,
    /// Prompts share whole pages of their beginnings, whoever sends them: as with a key, or only on loopback.
    #[arg(long, conflicts_with = "no_prefix_caching")]
    share_prefixes: bool,
    /// Sends spans and metrics to this collector of OpenTelemetry by OTLP over HTTP, such as http://127.0.0.1:4318, with the feature otel;
    /// to the one that OTEL_EXPORTER_OTLP_ENDPOINT names when absent.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Seconds after which a client that does not go on reading is left.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    client_timeout: u64,
    /// Seconds after which a stream that has nothing to send sends a comment, and its headers, for proxies that give up what is silent.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    keep_alive: u64,
    /// Seconds that a connection may be idle before its next request, whose head has to come in that time.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    idle_timeout: u64,
    /// Seconds in which answers have to finish once the server is to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    shutdown_timeout: u64,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).map_or_else(|error| common::fail(&error), |()| ExitCode::SUCCESS)
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let key = arguments.api_key_file.as_deref().map(access::key).transpose()?;
    let exporter = Exporter::new(arguments.otlp.as_deref()).unwrap_or_else(|message| wrong(message));
    let models = models(arguments)?;
    let is_local = arguments.host.is_loopback();
    if !is_local && key.is_none() {
        common::tell("warning: anybody who reaches this port may use the model (--api-key-file)");
    }
    let address = SocketAddr::new(arguments.host, arguments.port);
    let failed = |source| Error::Io { path: address.to_string().into(), source: Arc::new(source) };
    // One thread serves all clients, computing has threads of its own, and one thread is for large requests.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let large = Builder::new_current_thread().max_blocking_threads(1).build().map_err(failed)?;
    let server = Arc::new(Server {
        models: Arc::clone(&models),
        shares_prefixes: arguments.share_prefixes || is_local || key.is_some(),
        access: Access { key, is_local, hosts: arguments.allowed_host.clone() },
        queue: Queue::new(arguments.sessions, arguments.queue),
        budget: Budget::new(arguments.body_limit, arguments.request_memory, large.handle().clone()),
        metrics: Metrics::new(),
        exporter: exporter.clone(),
        thinking_budget: arguments.reasoning_budget,
        responses: Responses::new(arguments.response_memory),
        reranker: arguments.rerank.as_deref().map_or_else(Reranker::classifier, Reranker::qwen3),
        keep_alive: Duration::from_secs(arguments.keep_alive),
        cancel: CancellationToken::new(),
    });
    let served = finish([runtime, large], listen(server, address, arguments)).map_err(failed);
    let end = Instant::now() + Duration::from_secs(arguments.shutdown_timeout);
    if !models.flush(end) {
        common::tell("some of the last prompts were not written to the prompt cache");
    }
    exporter.shut_down(end.saturating_duration_since(Instant::now()));
    served
}

/// Ends the process with what is wrong about its options.
fn wrong(message: String) -> ! {
    Arguments::command().error(ErrorKind::ValueValidation, message).exit()
}

/// The models of the server: that of the path is loaded, and the others are diagnosed.
fn models(arguments: &Arguments) -> Result<Arc<Models>, Error> {
    let bundled = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/demo");
    let path = arguments.path.clone().or_else(|| arguments.model.is_empty().then(bundled));
    let of_first =
        !arguments.name.is_empty() || !arguments.lora.is_empty() || arguments.vision || arguments.mmproj.is_some();
    if path.is_none() && of_first {
        wrong("--name, --lora, --vision and --mmproj are of the model whose path is given, and none is".into());
    }
    let first = path.map(|path| {
        let of_path = path.file_name().map(|name| name.to_string_lossy().trim_end_matches(".gguf").to_owned());
        let names = match &*arguments.name {
            [] => vec![of_path.unwrap_or_else(|| "model".into())],
            names => names.to_vec(),
        };
        let builder = builder(arguments).vision(arguments.vision);
        let builder = arguments.mmproj.iter().fold(builder, ModelBuilder::mmproj);
        Source { names, path, builder, adapters: arguments.lora.clone() }
    });
    let others = arguments.model.iter().map(|(name, path)| Source {
        names: vec![name.clone()],
        path: path.clone(),
        builder: builder(arguments),
        adapters: Vec::new(),
    });
    let others: Vec<Source> = others.collect();
    let mut names = HashSet::new();
    for name in first.iter().chain(&others).flat_map(Source::all_names) {
        if !names.insert(name) {
            wrong(format!("{name} is the name of two models or adapters"));
        }
    }
    // Before one is loaded, as memory is free now.
    let waiting = others.into_iter().map(Source::waiting).collect::<Result<Vec<Listed>, Error>>()?;
    let first = first.map(Source::loaded).transpose()?;
    for listed in first.iter().chain(&waiting) {
        common::tell(format_args!("{}: {}", listed.names()[0], listed.report().first_line()));
    }
    Ok(Models::new(first.into_iter().chain(waiting).collect(), arguments.model_memory))
}

/// Runs `main` on the first of `runtimes` to its end, without waiting for what is left on their threads: it ends with
/// the process.
fn finish<T>(runtimes: [Runtime; 2], main: impl Future<Output = T>) -> T {
    let done = runtimes[0].block_on(main);
    runtimes.into_iter().for_each(Runtime::shutdown_background);
    done
}

/// `NAME=PATH`.
fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("expected NAME=PATH, such as support=path/to/files".into()),
    }
}

/// A number of bytes, at least 1, with a unit or without.
fn bytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let power = match &text[number.len()..] {
        "" => Some(0),
        unit => ["K", "M", "G", "T"].iter().position(|known| known.eq_ignore_ascii_case(unit)).map(|at| 10 * (at + 1)),
    };
    let bytes = power.and_then(|power| number.parse::<u64>().ok()?.checked_mul(1 << power));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size, such as 10G".into())
}

/// `DIR` or `DIR:SIZE`.
fn prompt_cache(text: &str) -> Result<(PathBuf, u64), String> {
    let (folder, size) = match text.rsplit_once(':') {
        Some((folder, size)) if size.starts_with(|first: char| first.is_ascii_digit()) => (folder, size),
        _ => (text, "10G"),
    };
    match bytes(size) {
        Ok(bytes) if !folder.is_empty() => Ok((folder.into(), bytes)),
        _ => Err("expected a folder, or one and a size, such as prompts:10G".into()),
    }
}

/// The options of every model.
fn builder(arguments: &Arguments) -> ModelBuilder {
    let builder = UnifiedModelFactory::builder()
        .device(arguments.device)
        .kv_cache(arguments.kv_cache)
        .activations(arguments.activations)
        .admission(Admission::Wait)
        .prefix_caching(!arguments.no_prefix_caching)
        .on_progress(common::show);
    let builder = arguments.context.into_iter().fold(builder, ModelBuilder::context_length);
    let builder = arguments.threads.into_iter().fold(builder, ModelBuilder::threads);
    let builder = arguments.model_memory.into_iter().fold(builder, ModelBuilder::memory_limit);
    // The plans of several models are bounds of what they take.
    let contexts = Some(arguments.model_contexts).filter(|_| !arguments.model.is_empty());
    let builder = contexts.into_iter().fold(builder, ModelBuilder::sessions);
    arguments.prompt_cache.iter().fold(builder, |builder, (path, bytes)| builder.prompt_cache(path, *bytes))
}

/// Answers clients until the process gets a signal to stop.
async fn listen(server: Arc<Server>, address: SocketAddr, arguments: &Arguments) -> io::Result<()> {
    let mut listener = TcpListener::bind(address).await?;
    let names: Vec<&str> = server.models.iter().map(|listed| &*listed.names()[0]).collect();
    common::tell(format_args!("{} at http://{}", names.join(", "), listener.local_addr()?));
    let router = api::router(Arc::clone(&server), arguments.cors.as_ref());
    let client_timeout = Duration::from_secs(arguments.client_timeout);
    let mut http = http1::Builder::new();
    let idle_timeout = Duration::from_secs(arguments.idle_timeout);
    http.timer(TokioTimer::new()).header_read_timeout(idle_timeout).max_buf_size(HEAD_BYTES);
    let (connections, running) = (Arc::new(Semaphore::new(arguments.connections)), GracefulShutdown::new());
    let mut stop = std::pin::pin!(told_to_stop());
    loop {
        let accept = async { (Arc::clone(&connections).acquire_owned().await, Listener::accept(&mut listener).await) };
        let (place, (client, _)) = tokio::select! {
            accepted = accept => accepted,
            () = &mut stop => break,
        };
        let _ = client.set_nodelay(true);
        let mut client = TimeoutStream::new(client);
        client.set_write_timeout(Some(client_timeout));
        let service = TowerToHyperService::new(router.clone());
        let connection = running.watch(http.serve_connection(TokioIo::new(Box::pin(client)), service));
        tokio::spawn(async move {
            let _ = connection.await; // an error here means that the client went away
            drop(place);
        });
    }
    drop(listener);
    common::tell("stopping: answers that are under way may end; a second signal ends them");
    let mut done = std::pin::pin!(running.shutdown());
    tokio::select! {
        () = &mut done => return Ok(()),
        () = tokio::time::sleep(Duration::from_secs(arguments.shutdown_timeout)) => {}
        () = told_to_stop() => {}
    }
    server.cancel.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), done).await; // so that clients get their errors
    Ok(())
}

async fn told_to_stop() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_cache_is_a_folder_and_a_size() {
        for (text, folder, bytes) in [
            ("prompts", "prompts", 10 << 30),
            ("prompts:5", "prompts", 5),
            ("/a/b:512M", "/a/b", 512 << 20),
            ("c:/prompts:2t", "c:/prompts", 2 << 40),
            ("c:/prompts", "c:/prompts", 10 << 30),
            ("a:b", "a:b", 10 << 30),
        ] {
            assert_eq!(prompt_cache(text), Ok((folder.into(), bytes)), "{text}");
        }
        for text in ["", ":5G", "a:0", "a:5X", "a:5GB", "a:99999999999T", "a:99999999999999999999"] {
            assert!(prompt_cache(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_left_behind_on_a_thread_is_not_waited_for() {
        let runtimes = [(); 2].map(|()| Builder::new_current_thread().enable_all().build().expect("a runtime"));
        let (begun, left) = (Instant::now(), Duration::from_secs(600));
        let sleep = move || std::thread::sleep(left);
        drop(runtimes[1].handle().spawn_blocking(sleep));
        finish(runtimes, async move { drop(tokio::task::spawn_blocking(sleep)) });
        assert!(begun.elapsed() < left / 10);
    }
}
