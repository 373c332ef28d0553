//! What a collector of OpenTelemetry is told, by a collector in the test (.ci/otel: with the feature `otel`).
#![allow(clippy::expect_used)] // a test that cannot go on says why

mod common;

use common::{Server, fixture, start};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A request to the collector: its path, its content type, its body.
type Told = (String, String, Vec<u8>);

/// A collector that keeps what it is told.
struct Collector {
    address: String,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Collector {
    /// One that answers with `status`, or never where that is empty.
    fn new(status: &'static str) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let all = Arc::clone(&told);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let all = Arc::clone(&all);
                std::thread::spawn(move || while answer(&client, status, &all).is_some() {});
            }
        });
        Collector { address, told }
    }

    /// A server of the model at `path` that tells this collector, at once, in this protocol.
    fn watched(&self, path: &Path, protocol: &str, options: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
        command.arg(path).args(["--port", "0", "--otlp", &format!("http://{}", self.address)]).args(options);
        command.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol).env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a");
        command.env("OTEL_BSP_SCHEDULE_DELAY", "20").env("OTEL_METRIC_EXPORT_INTERVAL", "100");
        start(&mut command)
    }

    fn bodies(&self, path: &str) -> Vec<Value> {
        let told = self.told.lock().expect("no test panics with it");
        let of_path = told.iter().filter(|(at, kind, _)| at == path && kind == "application/json");
        of_path.map(|(_, _, body)| serde_json::from_slice(body).expect("JSON")).collect()
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Value> {
        let bodies = self.bodies("/v1/traces");
        let scopes = bodies.iter().flat_map(|body| list(&body["resourceSpans"])).flat_map(|of| list(&of["scopeSpans"]));
        scopes.flat_map(|scope| list(&scope["spans"])).cloned().collect()
    }

    /// The span of this name in the trace, once it is told.
    fn span(&self, trace: &str, name: &str) -> Value {
        let is_it = |span: &Value| span["traceId"] == trace && span["name"] == name;
        wait(|| self.spans().into_iter().find(is_it)).unwrap_or_else(|| panic!("no {name} in {:#?}", self.spans()))
    }

    /// The data points of the metric of this name whose attributes are these, once there are some.
    fn points(&self, name: &str, of: &Value) -> (Value, Vec<Value>) {
        let find = || {
            let bodies = self.bodies("/v1/metrics");
            let scopes = bodies.iter().flat_map(|body| list(&body["resourceMetrics"]));
            let metrics = scopes.flat_map(|of| list(&of["scopeMetrics"])).flat_map(|scope| list(&scope["metrics"]));
            let last = metrics.filter(|metric| metric["name"] == name).next_back()?.clone();
            let points = list(&last["histogram"]["dataPoints"]).iter();
            let points: Vec<Value> = points.filter(|point| attributes(point) == *of).cloned().collect();
            (!points.is_empty()).then_some((last, points))
        };
        wait(find).unwrap_or_else(|| panic!("no {name} of {of} in {:#?}", self.bodies("/v1/metrics").last()))
    }
}

/// Reads a request and answers it; `None` at the end of the connection.
fn answer(client: &TcpStream, status: &str, told: &Mutex<Vec<Told>>) -> Option<()> {
    let mut reader = BufReader::new(client);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let header = |name: &str| {
        let of =
            head.iter().filter_map(|line| line.split_once(": ")).find(|(found, _)| found.eq_ignore_ascii_case(name));
        of.map(|(_, value)| value.to_owned())
    };
    let path = head.first()?.split(' ').nth(1)?.to_owned();
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    assert_eq!(header("x-tenant").as_deref(), Some("a"), "the headers of the environment");
    told.lock().expect("no test panics with it").push((path, header("content-type")?, body));
    while status.is_empty() {
        std::thread::sleep(Duration::from_secs(1));
    }
    let mut client = client;
    client.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes()).ok()
}

fn wait<T>(mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        match find() {
            None if begin.elapsed() < Duration::from_secs(60) => std::thread::sleep(Duration::from_millis(20)),
            found => return found,
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The attributes of a span, a point or a resource, as an object of plain values.
fn attributes(of: &Value) -> Value {
    let plain = |value: &Value| match value.as_object().and_then(|value| value.iter().next()) {
        Some((kind, value)) if kind == "intValue" => {
            let text = value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
            json!(text.parse::<i64>().expect("a number"))
        }
        Some((kind, value)) if kind == "arrayValue" => {
            list(&value["values"]).iter().map(|value| value["stringValue"].clone()).collect()
        }
        Some((_, value)) => value.clone(),
        None => Value::Null,
    };
    let each =
        list(&of["attributes"]).iter().filter_map(|of| Some((of["key"].as_str()?.to_owned(), plain(&of["value"]))));
    Value::Object(each.collect())
}

/// Asks with a `traceparent` of this trace, and gives what comes back.
fn ask(server: &Server, path: &str, trace: &str, flags: &str, body: &Value) -> (u16, String) {
    let (host, body) = (&server.address, body.to_string());
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let parent = format!("traceparent: 00-{trace}-{PARENT}-{flags}\r\n");
    let mut client = server.connect(format!("{head}{parent}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let all = common::rest(&mut client);
    let (head, body) = all.split_once("\r\n\r\n").expect("a response");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

fn chat(more: Value) -> Value {
    let mut body =
        json!({ "model": "demo", "messages": [{ "role": "user", "content": "Once upon a time" }], "temperature": 0 });
    body.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
    body
}

#[test]
fn spans_and_metrics_of_a_chat_are_those_of_the_conventions() {
    let collector = Collector::new("200 OK");
    let server = collector.watched(&fixture("demo"), "http/json", &[]);
    let asked = chat(json!({ "max_tokens": 12, "seed": 7, "top_p": 0.5, "top_k": 9, "n": 2, "presence_penalty": 0.5 }));
    let (status, answer) = ask(&server, CHAT, TRACE, "01", &asked);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(status, 200, "{answer}");

    let http = collector.span(TRACE, &format!("POST {CHAT}"));
    assert_eq!((&http["parentSpanId"], &http["kind"]), (&json!(PARENT), &json!(2)), "a server's: {http:#}");
    let (host, port) = server.address.split_once(':').expect("a port");
    let of_http = attributes(&http);
    for (name, value) in [
        ("http.request.method", json!("POST")),
        ("http.route", json!(CHAT)),
        ("http.response.status_code", json!(200)),
        ("url.path", json!(CHAT)),
        ("url.scheme", json!("http")),
        ("network.protocol.version", json!("1.1")),
        ("server.address", json!(host)),
        ("server.port", json!(port.parse::<u16>().expect("a number"))),
    ] {
        assert_eq!(of_http[name], value, "{name} in {of_http:#}");
    }

    let operation = collector.span(TRACE, "chat demo");
    assert_eq!((&operation["parentSpanId"], &operation["kind"]), (&http["spanId"], &json!(1)), "{operation:#}");
    let mut of_chat = attributes(&operation);
    let first = of_chat["gen_ai.response.time_to_first_chunk"].as_f64().expect("seconds");
    assert!(first > 0.0 && first < 60.0, "{first}");
    of_chat["gen_ai.response.time_to_first_chunk"] = json!("a time");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(8), &json!(24)), "{answer}");
    let expected = json!({
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "model-factory",
        "gen_ai.request.model": "demo", "gen_ai.response.model": "demo", "gen_ai.response.id": answer["id"],
        "gen_ai.request.choice.count": 2, "gen_ai.request.seed": 7, "gen_ai.request.max_tokens": 12,
        "gen_ai.request.temperature": 0.0, "gen_ai.request.top_p": 0.5, "gen_ai.request.top_k": 9.0,
        "gen_ai.request.presence_penalty": 0.5,
        "gen_ai.usage.input_tokens": 8, "gen_ai.usage.output_tokens": 24, "gen_ai.usage.reasoning.output_tokens": 0,
        "gen_ai.usage.cache_read.input_tokens": usage["prompt_tokens_details"]["cached_tokens"],
        "gen_ai.response.finish_reasons": ["length", "length"], "gen_ai.response.time_to_first_chunk": "a time",
    });
    assert_eq!(of_chat, expected);
    // The library's own span of the prompt.
    assert_eq!(collector.span(TRACE, "prefill")["parentSpanId"], operation["spanId"]);
    assert!(collector.spans().iter().all(|span| span["name"] != "decode"), "no span for each token");

    let of = json!({
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "model-factory",
        "gen_ai.request.model": "demo", "gen_ai.response.model": "demo",
    });
    for (name, count, bounds) in [
        ("gen_ai.server.request.duration", 1, (0.01, 81.92, 14)),
        ("gen_ai.server.time_to_first_token", 1, (0.001, 10.0, 16)),
        ("gen_ai.server.time_per_output_token", 2, (0.01, 2.5, 13)),
    ] {
        let (metric, points) = collector.points(name, &of);
        assert_eq!(metric["unit"], "s", "{metric:#}");
        let point = &points[0];
        assert_eq!(
            attributes(&json!({ "attributes": [{ "key": "n", "value": { "intValue": point["count"] } }] }))["n"],
            count
        );
        let found = list(&point["explicitBounds"]);
        assert_eq!(
            (found[0].as_f64(), found[found.len() - 1].as_f64(), found.len()),
            (Some(bounds.0), Some(bounds.1), bounds.2)
        );
        let sum = point["sum"].as_f64().expect("seconds");
        let most = if name.ends_with("first_token") { first * 1.001 } else { 60.0 };
        assert!(sum > 0.0 && sum <= most, "{name}: {sum}, at most {most}");
    }

    // Who says what is told, and by which conventions.
    let bodies = [collector.bodies("/v1/traces"), collector.bodies("/v1/metrics")].concat();
    for body in &bodies {
        let of = list(&body["resourceSpans"]).iter().chain(list(&body["resourceMetrics"]));
        for of in of {
            assert_eq!(attributes(&of["resource"])["service.name"], "model-factory-serve", "{body:#}");
        }
    }
    // No text of a request or an answer.
    let text = answer["choices"][0]["message"]["content"].as_str().expect("a text");
    let word = text.split(' ').find(|word| word.len() > 3).expect("a word");
    for body in bodies.iter().map(Value::to_string) {
        assert!(!body.contains("Once upon") && !body.contains(word), "{word} in {body}");
    }
}

#[test]
fn streams_and_failures_are_told_too_and_what_a_caller_does_not_sample_is_not() {
    let collector = Collector::new("200 OK");
    let server = collector.watched(
        &fixture("demo"),
        "http/json",
        &["--model", &format!("bert={}", fixture("embeddings/bert").display())],
    );
    let trace = |last: u8| format!("{}{last:02x}", &TRACE[..30]);

    let format = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": { "type": "boolean" } } });
    let (_, events) = ask(&server, CHAT, &trace(1), "01", &chat(json!({ "stream": true, "response_format": format })));
    assert!(events.contains("[DONE]"), "{events}");
    let of = attributes(&collector.span(&trace(1), "chat demo"));
    assert_eq!((&of["gen_ai.request.stream"], &of["gen_ai.output.type"]), (&json!(true), &json!("json")), "{of:#}");
    assert_eq!(of["gen_ai.response.finish_reasons"], json!(["stop"]));
    assert!(of["gen_ai.usage.output_tokens"].as_i64().is_some_and(|tokens| tokens > 0), "{of:#}");

    let vectors = json!({ "model": "bert", "input": ["one", "two"] });
    let (status, answer) = ask(&server, "/v1/embeddings", &trace(2), "01", &vectors);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(status, 200, "{answer}");
    let of = attributes(&collector.span(&trace(2), "embeddings bert"));
    assert_eq!(of["gen_ai.usage.input_tokens"], answer["usage"]["prompt_tokens"], "{of:#}");

    // A prompt that does not fit: an error of the operation, and of HTTP only where the server is to blame.
    let (status, _) = ask(&server, "/v1/completions", &trace(3), "01", &json!({ "prompt": "a ".repeat(2000) }));
    assert_eq!(status, 400);
    let (operation, http) =
        (collector.span(&trace(3), "text_completion demo"), collector.span(&trace(3), "POST /v1/completions"));
    assert_eq!((&operation["status"]["code"], &attributes(&operation)["error.type"]), (&json!(2), &json!("400")));
    assert_eq!((&http["status"]["code"], &attributes(&http)["error.type"]), (&json!(0), &Value::Null), "{http:#}");
    let of = json!({
        "gen_ai.operation.name": "text_completion", "gen_ai.provider.name": "model-factory",
        "gen_ai.request.model": "demo", "gen_ai.response.model": "demo", "error.type": "400",
    });
    collector.points("gen_ai.server.request.duration", &of);

    // A client that goes away.
    let body = chat(json!({ "stream": true, "max_tokens": 400, "ignore_eos": true })).to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n", server.address);
    let parent = format!("traceparent: 00-{}-{PARENT}-01\r\n", trace(4));
    let mut client = server.connect(format!("{head}{parent}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
    client.read_exact(&mut [0; 300]).expect("it begins");
    drop(client);
    let of = attributes(&collector.span(&trace(4), "chat demo"));
    assert_eq!(of["error.type"], "cancelled", "{of:#}");

    // A model that is not there has no operation, and a name that a client makes up is no label.
    let (status, _) = ask(&server, CHAT, &trace(5), "01", &chat(json!({ "model": "made-up" })));
    assert_eq!(status, 404);
    collector.span(&trace(5), &format!("POST {CHAT}"));
    // Not sampled by who asks; and what watches the server is not told.
    ask(&server, CHAT, &trace(6), "00", &chat(json!({ "max_tokens": 1 })));
    server.get("/health");
    server.get("/metrics");
    // Without a parent it is a trace of its own, and the last one.
    let (_, answer) = server.post(CHAT, &chat(json!({ "max_tokens": 3 })));
    let id = &answer["id"];
    let last = wait(|| collector.spans().into_iter().find(|span| attributes(span)["gen_ai.response.id"] == *id))
        .expect("told");
    let http = collector.span(last["traceId"].as_str().expect("an id"), &format!("POST {CHAT}"));
    assert!(http["parentSpanId"].as_str().is_none_or(str::is_empty), "{http:#}");
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span["traceId"] != trace(6)), "not sampled");
    assert!(spans.iter().all(|span| !span["name"].as_str().is_some_and(|name| name.starts_with("GET"))));
    assert!(spans.iter().any(|span| span["name"] == "load"), "the load of a model");
    let metrics = collector.bodies("/v1/metrics").iter().map(Value::to_string).collect::<String>();
    assert!(!metrics.contains("made-up"));
}

#[cfg(unix)]
#[test]
fn the_last_spans_are_told_at_the_end_and_a_silent_collector_holds_nothing_up() {
    let collector = Collector::new("200 OK");
    let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
    command
        .arg(fixture("demo"))
        .args(["--port", "0"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address));
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a").env("OTEL_SERVICE_NAME", "stories");
    let mut server = start(command.env("OTEL_BSP_SCHEDULE_DELAY", "3600000"));
    server.post(CHAT, &chat(json!({ "max_tokens": 3 })));
    server.stop();
    assert!(server.process.wait().expect("it ends").success());
    // In protobuf, as nothing else was asked for: names and texts are as they are.
    let told = collector.told.lock().expect("no test panics with it");
    let has = |path: &str, text: &str| {
        told.iter().any(|(at, kind, body)| {
            at == path
                && kind == "application/x-protobuf"
                && body.windows(text.len()).any(|part| part == text.as_bytes())
        })
    };
    assert!(has("/v1/traces", "chat demo") && has("/v1/traces", "stories"));
    assert!(has("/v1/metrics", "gen_ai.server.request.duration"));

    let silent = Collector::new("");
    let mut server = silent.watched(&fixture("demo"), "http/protobuf", &["--shutdown-timeout", "1"]);
    let (status, _) = server.post(CHAT, &chat(json!({ "max_tokens": 3 })));
    assert_eq!(status, 200);
    wait(|| (!silent.told.lock().expect("no test panics with it").is_empty()).then_some(())).expect("it is asked");
    let begun = Instant::now();
    server.stop();
    assert!(server.process.wait().expect("it ends").success());
    assert!(begun.elapsed() < Duration::from_secs(5), "it waited {:?}", begun.elapsed());
}
