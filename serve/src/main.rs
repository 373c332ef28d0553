//! A server of one model: the OpenAI API, and a page to chat with it.

mod api;
#[path = "../../examples/common/mod.rs"]
mod common;
mod metrics;

use api::{Queue, Server};
use axum::http::HeaderValue;
use axum::serve::Listener;
use clap::Parser;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use metrics::Metrics;
use model_factory::{
    Admission, CancellationToken, DeviceChoice, Error, KvDtype, Model, ModelBuilder, UnifiedModelFactory,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// Serve a model file or folder to clients of the OpenAI API, with a page to chat with it.
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
    /// Lets pages of this origin ask, its scheme, host and port; * lets all.
    #[arg(long, value_name = "ORIGIN")]
    cors: Option<HeaderValue>,
    /// The model's name for clients; that of the file or folder when absent.
    #[arg(long)]
    name: Option<String>,
    /// Where to run: auto, cpu, or cuda and cuda:N.
    #[arg(long, default_value = "auto", value_parser = common::device)]
    device: DeviceChoice,
    /// Tokens of a prompt and its answer together; the most that fit, up to what the model was trained for, when absent.
    #[arg(long, value_parser = common::count)]
    context: Option<usize>,
    /// f32 rounds nothing; f16 takes half the memory, q8_0 0.27 of it.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    kv_cache: KvDtype,
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
    /// Seconds that a client may take to send the head of a request or to read on.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    client_timeout: u64,
    /// Seconds that answers have to end in when the server is told to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    shutdown_timeout: u64,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).map_or_else(|error| common::fail(&error), |()| ExitCode::SUCCESS)
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/demo");
    let path = arguments.path.clone().unwrap_or(bundled);
    let key = arguments.api_key_file.as_deref().map(key).transpose()?;
    let model = load(arguments, &path)?;
    common::tell(model.report().first_line());
    let is_local = arguments.host.is_loopback();
    if !is_local && key.is_none() {
        common::tell("warning: anybody who reaches this port may use the model (--api-key-file)");
    }
    let of_path = || Some(path.file_name()?.to_string_lossy().trim_end_matches(".gguf").to_owned());
    let server = Arc::new(Server {
        name: arguments.name.clone().or_else(of_path).unwrap_or_else(|| "model".into()),
        model,
        key,
        is_local,
        queue: Queue::new(arguments.sessions, arguments.queue),
        metrics: Metrics::new(),
        cancel: CancellationToken::new(),
    });
    // One thread for all clients: what computes has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let address = SocketAddr::new(arguments.host, arguments.port);
    let failed = |source| Error::Io { path: address.to_string().into(), source: Arc::new(source) };
    runtime.map_err(failed)?.block_on(listen(server, address, arguments)).map_err(failed)
}

fn key(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source: Arc::new(source) };
    let key = std::fs::read_to_string(path).map_err(failed)?.trim().to_owned();
    let empty = || failed(io::Error::other("expected a key, found an empty file"));
    if key.is_empty() { Err(empty()) } else { Ok(key) }
}

fn load(arguments: &Arguments, path: &Path) -> Result<Model, Error> {
    let builder = UnifiedModelFactory::builder()
        .device(arguments.device)
        .kv_cache(arguments.kv_cache)
        .admission(Admission::Wait)
        .on_progress(common::show);
    let builder = arguments.context.into_iter().fold(builder, ModelBuilder::context_length);
    let builder = arguments.threads.into_iter().fold(builder, ModelBuilder::threads);
    builder.load(path)
}

/// Answers clients until the process is told to stop.
async fn listen(server: Arc<Server>, address: SocketAddr, arguments: &Arguments) -> io::Result<()> {
    let mut listener = TcpListener::bind(address).await?;
    common::tell(format_args!("{} at http://{}", server.name, listener.local_addr()?));
    let router = api::router(Arc::clone(&server), arguments.cors.as_ref(), arguments.body_limit);
    let client_timeout = Duration::from_secs(arguments.client_timeout);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(client_timeout);
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
            let _ = connection.await; // a client that went away is nobody to tell
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
    let _ = tokio::time::timeout(Duration::from_secs(1), done).await; // for clients to be told
    Ok(())
}

/// Ends with the first signal to stop.
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
