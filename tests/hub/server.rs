//! A server of the Hub's protocol, with faults: the description of a repository, files by `resolve` with ETags, redirects
//! within the host (small files) and to a store of another host (weights), ranges.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The commit that every branch is at.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What goes wrong with answers to requests whose path contains `at`, `times` times.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) at: &'static str,
    pub(crate) times: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// This status, and this header.
    Status(u16, Option<(&'static str, &'static str)>),
    /// The connection ends after so many bytes of the body; those before are sent first.
    Cut(u64),
    /// Content-Range names another length of the file.
    Total(u64),
    /// Content-Length is so many bytes too small, and so is the body.
    Short(u64),
    /// The whole file comes, whatever range was asked for.
    NoRange,
    /// A range that begins so many bytes later than the one that was asked for.
    Later(u64),
    /// Another ETag.
    Etag(&'static str),
    /// A redirect to there, after a pause.
    Location(&'static str, Duration),
    /// The last byte of the body is another.
    Wrong,
    /// After so many bytes of the body nothing comes for as long as any test runs. With `None` there is no answer at all.
    Stall(Option<u64>),
    /// So many bytes of the body, a pause, and so on.
    Slow(usize, Duration),
    /// The repository lists so many files that end in this.
    Listing(usize, &'static str),
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) start: Option<u64>,
    pub(crate) token: Option<String>,
    pub(crate) at_store: bool,
}

/// The Hub and its store.
pub(crate) struct Server {
    state: Arc<State>,
}

struct State {
    hub: String,
    store: String,
    repos: Mutex<BTreeMap<String, BTreeMap<String, Option<PathBuf>>>>,
    faults: Mutex<Vec<Fault>>,
    requests: Mutex<Vec<Request>>,
    sent: AtomicU64,
    down: AtomicBool,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let (hub, store) = (listen(), listen());
        let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State {
            hub: url(&hub),
            store: url(&store),
            repos: Mutex::default(),
            faults: Mutex::default(),
            requests: Mutex::default(),
            sent: AtomicU64::new(0),
            down: AtomicBool::new(false),
        });
        for (listener, at_store) in [(hub, false), (store, true)] {
            let state = state.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = state.clone();
                    std::thread::spawn(move || serve(&state, stream, at_store));
                }
            });
        }
        Server { state }
    }

    pub(crate) fn url(&self) -> &str {
        &self.state.hub
    }

    /// Offers the files in `folder` as the repository `repo`.
    pub(crate) fn offer(&self, repo: &str, folder: &Path) {
        let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        for path in entries.filter(|path| path.is_file()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            self.offer_as(repo, &name, Some(&path));
        }
    }

    /// Offers one file under a name of its own; without a path it is listed and not there.
    pub(crate) fn offer_as(&self, repo: &str, name: &str, path: Option<&Path>) {
        let mut repos = lock(&self.state.repos);
        repos.entry(repo.into()).or_default().insert(name.into(), path.map(Path::to_owned));
    }

    pub(crate) fn fault(&self, at: &'static str, times: usize, kind: Kind) {
        lock(&self.state.faults).push(Fault { at, times, kind });
    }

    /// The faults that have not shown yet.
    pub(crate) fn faults_left(&self) -> usize {
        lock(&self.state.faults).iter().map(|fault| fault.times).sum()
    }

    pub(crate) fn clear_faults(&self) {
        lock(&self.state.faults).clear();
    }

    /// Ends every connection as soon as it is made, or no more.
    pub(crate) fn set_down(&self, down: bool) {
        self.state.down.store(down, Ordering::SeqCst);
    }

    /// Bytes of bodies sent since the last call.
    pub(crate) fn take_sent(&self) -> u64 {
        self.state.sent.swap(0, Ordering::SeqCst)
    }

    /// Requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut lock(&self.state.requests))
    }
}

/// Whether `path` is stored as a large file.
fn is_large(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors" || extension == "gguf")
}

/// What a cache calls the content of `path`: SHA-256 of a large file, git's id of another. Sparse files of gigabytes, which
/// nobody downloads, have a name of their own.
pub(crate) fn etag(path: &Path) -> String {
    let bytes = path.metadata().expect("a file").len();
    if bytes > 64 << 20 {
        return format!("{bytes:064}");
    }
    let mut context = Context::new(if is_large(path) { &SHA256 } else { &SHA1_FOR_LEGACY_USE_ONLY });
    if !is_large(path) {
        context.update(format!("blob {bytes}\0").as_bytes());
    }
    context.update(&std::fs::read(path).expect("a file"));
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Longer than any test.
fn stall() {
    std::thread::sleep(Duration::from_secs(600));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|lock| lock.into_inner())
}

/// Answers the requests of one connection until it ends.
fn serve(state: &State, stream: TcpStream, at_store: bool) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut lines = BufReader::new(stream);
    while !state.down.load(Ordering::SeqCst) {
        let Some(request) = read_request(&mut lines, at_store) else { return };
        lock(&state.requests).push(request.clone());
        if answer(state, &request, &mut out).is_none() {
            break;
        }
    }
    let _ = out.shutdown(Shutdown::Both);
}

fn read_request(lines: &mut BufReader<TcpStream>, at_store: bool) -> Option<Request> {
    let mut line = String::new();
    lines.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut request = Request { path, start: None, token: None, at_store };
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let line = line.trim();
        if line.is_empty() {
            return Some(request);
        }
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.token = Some(value.trim_start_matches("Bearer ").into()),
            "range" => {
                let (start, end) = value.strip_prefix("bytes=")?.split_once('-')?;
                request.start = Some(start.parse().ok()?);
                request.path += &format!("#{end}");
            }
            _ => {}
        }
    }
}

/// Answers one request; `None` ends the connection.
fn answer(state: &State, request: &Request, out: &mut TcpStream) -> Option<()> {
    let (path, end) = request.path.split_once('#').unwrap_or((&request.path, ""));
    let end: Option<u64> = end.parse().ok();
    let fault = lock(&state.faults).iter_mut().find(|fault| fault.times > 0 && path.contains(fault.at)).map(|fault| {
        fault.times -= 1;
        fault.kind.clone()
    });
    match &fault {
        Some(Kind::Status(status, header)) => {
            let header = header.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
            return head(out, &format!("{status} Fault"), &header, 0);
        }
        Some(Kind::Stall(None)) => stall(),
        Some(Kind::Location(to, pause)) => {
            std::thread::sleep(*pause);
            return head(out, "302 Found", &format!("Location: {to}\r\n"), 0);
        }
        _ => {}
    }
    if let Some(rest) = path.strip_prefix("/api/models/") {
        let (repo, _revision) = rest.split_once("/revision/")?;
        let repos = lock(&state.repos);
        let Some(files) = repos.get(repo) else { return head(out, "404 Not Found", "", 0) };
        let mut names: Vec<String> = files.keys().cloned().collect();
        if let Some(Kind::Listing(count, end)) = &fault {
            names = (0..*count).map(|number| format!("{number}{end}")).collect();
        }
        let siblings: Vec<_> = names.iter().map(|name| serde_json::json!({ "rfilename": name })).collect();
        let text = serde_json::json!({ "sha": COMMIT, "siblings": siblings, "private": false }).to_string();
        head(out, "200 OK", "Content-Type: application/json\r\n", text.len() as u64)?;
        return out.write_all(text.as_bytes()).ok();
    }
    let place = path.split('?').next()?.trim_start_matches("/cached").trim_start_matches("/store");
    let (repo, rest) = place.trim_start_matches('/').split_once("/resolve/")?;
    let (_commit, name) = rest.split_once('/')?;
    let name = name.replace("%20", " ");
    let file = lock(&state.repos).get(repo).and_then(|files| files.get(&name).cloned()).flatten();
    let Some(file) = file else { return head(out, "404 Not Found", "X-Error-Code: EntryNotFound\r\n", 0) };
    let etag = match &fault {
        Some(Kind::Etag(etag)) => (*etag).into(),
        _ => etag(&file),
    };
    let weights = is_large(Path::new(&name));
    if weights && !request.at_store {
        let headers = format!(
            "Location: {}/store{place}?signature=x\r\nX-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: \"{etag}\"\r\nETag: \"other\"\r\n",
            state.store
        );
        return head(out, "302 Found", &headers, 0);
    }
    if !weights && !path.starts_with("/cached") {
        let headers = format!("Location: /cached{place}\r\nX-Repo-Commit: {COMMIT}\r\n");
        return head(out, "307 Temporary Redirect", &headers, 0);
    }
    // The store has tags of its own.
    let etag = if request.at_store { "of-the-store".into() } else { etag };
    let headers = format!("ETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\n");
    send_file(state, out, &file, &headers, request.start.map(|start| (start, end)), fault.as_ref())
}

fn send_file(
    state: &State,
    out: &mut TcpStream,
    path: &Path,
    headers: &str,
    range: Option<(u64, Option<u64>)>,
    fault: Option<&Kind>,
) -> Option<()> {
    let mut file = File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    let range = range.filter(|_| !matches!(fault, Some(Kind::NoRange)));
    let total = match fault {
        Some(Kind::Total(total)) => *total,
        _ => len,
    };
    let (status, start, end, more) = match range {
        None => ("200 OK", 0, len, String::new()),
        Some((start, _)) if start >= len => {
            let headers = format!("{headers}Content-Range: bytes */{total}\r\n");
            return head(out, "416 Range Not Satisfiable", &headers, 0);
        }
        Some((start, end)) => {
            let start = match fault {
                Some(Kind::Later(by)) => start + by,
                _ => start,
            };
            let end = end.map_or(len, |end| (end + 1).min(len));
            ("206 Partial Content", start, end, format!("Content-Range: bytes {start}-{}/{total}\r\n", end - 1))
        }
    };
    let mut left = end - start;
    if let Some(Kind::Short(by)) = fault {
        left = left.saturating_sub(*by);
    }
    head(out, status, &format!("{headers}{more}Accept-Ranges: bytes\r\n"), left)?;
    file.seek(SeekFrom::Start(start)).ok()?;
    let cut = match fault {
        Some(Kind::Cut(after)) => left.min(*after),
        _ => left,
    };
    let (at_once, pause) = match fault {
        Some(Kind::Slow(bytes, pause)) => (*bytes, *pause),
        _ => (64 << 10, Duration::ZERO),
    };
    let mut chunk = vec![0; at_once];
    let mut sent = 0;
    while sent < cut {
        std::thread::sleep(pause);
        let mut count = chunk.len().min((cut - sent) as usize);
        if let Some(Kind::Stall(Some(after))) = fault {
            count = count.min((after - sent) as usize);
            if count == 0 {
                stall();
            }
        }
        file.read_exact(&mut chunk[..count]).ok()?;
        if matches!(fault, Some(Kind::Wrong)) && sent + count as u64 == cut {
            chunk[count - 1] ^= 1;
        }
        out.write_all(&chunk[..count]).ok()?;
        sent += count as u64;
        state.sent.fetch_add(count as u64, Ordering::SeqCst);
    }
    (cut == left).then_some(())
}

fn head(out: &mut TcpStream, status: &str, headers: &str, length: u64) -> Option<()> {
    out.write_all(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n").as_bytes()).ok()
}
