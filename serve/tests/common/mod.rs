//! A server in a process of its own, and requests to it.
#![allow(dead_code, clippy::expect_used)] // every test uses its own part; one that cannot go on says why

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running server; ended when dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) address: String,
    pub(crate) key: Option<String>,
    /// What it has written to its log since it listens.
    log: Option<JoinHandle<Vec<String>>>,
}

/// A model in `fixtures/`.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(path)
}

/// A server of the demo model.
pub(crate) fn demo(options: &[&str]) -> Server {
    serve(&fixture("demo"), options)
}

/// A server of the model at `path`, on a free port.
pub(crate) fn serve(path: &Path, options: &[&str]) -> Server {
    start(Command::new(env!("CARGO_BIN_EXE_serve")).arg(path).args(["--port", "0"]).args(options))
}

/// The server that `command` starts.
pub(crate) fn start(command: &mut Command) -> Server {
    let mut process = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(process.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line.split_once(" at http://")?.1.to_owned())).expect("it listens");
    let log = Some(std::thread::spawn(move || lines.collect()));
    Server { process, address, key: None, log }
}

impl Server {
    fn agent() -> ureq::Agent {
        ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build())
    }

    /// The status and the body of what `path` answers.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut request = Server::agent().get(format!("http://{}{path}", self.address));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        read(request.call().expect("it answers"))
    }

    /// What `path` answers to a body: the status, and a JSON value.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = read(self.send(path, body.to_string().as_bytes()));
        (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}")))
    }

    /// What comes back for `body`.
    pub(crate) fn send(&self, path: &str, body: &[u8]) -> ureq::http::Response<ureq::Body> {
        let mut request =
            Server::agent().post(format!("http://{}{path}", self.address)).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        request.send(body).expect("it answers")
    }

    /// The events of a streamed answer.
    pub(crate) fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let response = self.send(path, body.to_string().as_bytes());
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let (_, text) = read(response);
        let mut events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{text}");
        events.into_iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }

    /// A connection on which `request` was sent, and nothing read.
    pub(crate) fn connect(&self, request: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(&self.address).expect("it listens");
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        client.write_all(request).expect("it reads");
        client
    }

    /// As [`connect`](Self::connect), with a whole request of `body` to `path`.
    pub(crate) fn begin(&self, path: &str, body: &Value) -> TcpStream {
        let (host, body) = (&self.address, body.to_string());
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n");
        self.connect(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
    }

    /// A value of the metrics.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    /// Waits until a value of the metrics `is` as it should be.
    pub(crate) fn wait_for(&self, name: &str, is: impl Fn(u64) -> bool) {
        let begin = Instant::now();
        while !is(self.metric(name)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{name} is {}", self.metric(name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Threads of the process, where the system tells.
    pub(crate) fn threads(&self) -> Option<usize> {
        Some(std::fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()?.count())
    }

    /// Ends it; what it wrote to its log.
    pub(crate) fn log(mut self) -> Vec<String> {
        let log = self.log.take();
        drop(self);
        log.expect("it is taken once").join().expect("it is read to its end")
    }

    /// Sends a signal to stop.
    #[cfg(unix)]
    pub(crate) fn stop(&self) {
        let sent = Command::new("kill").args(["-s", "TERM", &self.process.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn read(mut response: ureq::http::Response<ureq::Body>) -> (u16, String) {
    let status = response.status().as_u16();
    (status, response.body_mut().read_to_string().expect("a text"))
}

/// All that comes on a connection until it ends.
pub(crate) fn rest(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes); // a reset ends it too
    String::from_utf8_lossy(&bytes).into_owned()
}
