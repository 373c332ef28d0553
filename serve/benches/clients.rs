//! Many clients of one server: throughput, time to the first token and between tokens, of any server of OpenAI's `completions`.
//!
//! `cargo bench -p model-factory-serve --bench clients -- ours=http://127.0.0.1:8080 theirs=http://127.0.0.1:8081`
//!
//! Each client asks for as many tokens as all others, after a prompt of its own, again and again until all is asked. Servers take
//! turns. Times are those of the events of a stream; `--json` prints all figures.
#![allow(clippy::expect_used, clippy::print_stdout)] // a bench that cannot go on says why, and its table is for reading

use clap::Parser;
use serde_json::{Value, json};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

#[derive(Parser)]
struct Arguments {
    /// Servers, each a name and a URL.
    #[arg(required = true, value_name = "NAME=URL")]
    servers: Vec<String>,
    /// How many ask at once.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,128")]
    clients: Vec<usize>,
    /// Requests of a measurement at least; each client makes one.
    #[arg(long, default_value_t = 8)]
    requests: usize,
    /// Tokens of a prompt.
    #[arg(long, default_value_t = 128)]
    prompt: usize,
    /// Tokens of an answer.
    #[arg(long, default_value_t = 64)]
    generate: usize,
    /// Ids of prompts are below this.
    #[arg(long, default_value_t = 30_000)]
    vocabulary: u32,
    #[arg(long)]
    json: bool,
    /// What cargo gives a bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What one measurement found, in seconds.
#[derive(Default)]
struct Found {
    first: Vec<f64>,
    gaps: Vec<f64>,
    tokens: usize,
}

fn main() {
    let arguments = Arguments::parse();
    let mut rows = Vec::new();
    for clients in &arguments.clients {
        for server in &arguments.servers {
            let (name, url) = server.split_once('=').expect("NAME=URL");
            let row = measure(&arguments, url, *clients);
            if !arguments.json {
                let part = |figures: &str, part: &str| row[figures][part].as_f64().unwrap_or_default() * 1e3;
                let times =
                    |figures| ["median", "p95", "p99"].map(|name| format!("{:>9.1}", part(figures, name))).concat();
                let speed = row["throughput_tok_s"].as_f64().unwrap_or_default();
                println!(
                    "{clients:>4} {name:>12} {speed:>8.1} tokens/s  first{} ms  gap{} ms",
                    times("ttft_s"),
                    times("gap_s")
                );
            }
            rows.push(json!({ "clients": clients, "server": name, "figures": row }));
        }
    }
    if arguments.json {
        println!("{}", json!({ "prompt": arguments.prompt, "generate": arguments.generate, "rows": rows }));
    }
}

fn measure(arguments: &Arguments, url: &str, clients: usize) -> Value {
    let (found, next) = (Mutex::new(Found::default()), AtomicUsize::new(0));
    let requests = clients.max(arguments.requests);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < requests {
                    // One that no server has seen, so that nobody finds it in a cache.
                    let mut random = RandomState::new().build_hasher();
                    let mut id = || {
                        random.write_u8(0);
                        300 + (random.finish() % u64::from(arguments.vocabulary - 300)) as u32
                    };
                    let prompt: Vec<u32> = (0..arguments.prompt).map(|_| id()).collect();
                    let body = json!({
                        "prompt": prompt, "max_tokens": arguments.generate, "temperature": 0, "ignore_eos": true,
                        "stream": true, "stream_options": { "include_usage": true },
                    });
                    ask(url, &body, &found);
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let Found { first, gaps, tokens } = found.into_inner().expect("no panic");
    assert_eq!(tokens, requests * arguments.generate, "every answer has its tokens");
    json!({ "throughput_tok_s": tokens as f64 / seconds, "ttft_s": spread(first), "gap_s": spread(gaps) })
}

/// Asks once, on a connection of its own: servers differ in when they close one.
fn ask(url: &str, body: &Value, found: &Mutex<Found>) {
    let agent = ureq::Agent::new_with_defaults();
    let sent = Instant::now();
    let request = agent.post(format!("{url}/v1/completions")).header("content-type", "application/json");
    let response = request.send(body.to_string()).expect("it answers");
    let (mut times, mut tokens) = (Vec::new(), 0);
    for line in BufReader::new(response.into_body().into_reader()).lines() {
        let line = line.expect("it is read");
        let Some(event) = line.strip_prefix("data: ").filter(|event| *event != "[DONE]") else { continue };
        let now = sent.elapsed().as_secs_f64();
        let event: Value = serde_json::from_str(event).expect("JSON");
        assert!(event.get("error").is_none(), "{event}");
        if event["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()) {
            times.push(now);
        }
        tokens = event["usage"]["completion_tokens"].as_u64().map_or(tokens, |tokens| tokens as usize);
    }
    let mut found = found.lock().expect("no panic");
    found.first.extend(times.first());
    found.gaps.extend(times.windows(2).map(|pair| pair[1] - pair[0]));
    found.tokens += tokens;
}

fn spread(mut figures: Vec<f64>) -> Value {
    figures.sort_by(f64::total_cmp);
    let part = |share: f64| figures.get(((figures.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
    json!({ "median": part(0.5), "p95": part(0.95), "p99": part(0.99) })
}
