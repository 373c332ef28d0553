//! What the server counts, in Prometheus' text format.

use model_factory::generate::Timings;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the times to first tokens, in seconds.
const BUCKETS: [f64; 10] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What happened since the server began.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By path and status.
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    prompt: AtomicU64,
    cached: AtomicU64,
    generated: AtomicU64,
    first: [AtomicU64; BUCKETS.len() + 1],
    first_micros: AtomicU64,
}

impl Metrics {
    /// Counts a response to `path`, which is one of the server's.
    pub(crate) fn responded(&self, path: &str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((path.into(), status)).or_default() += 1;
    }

    /// Counts an answer whose first token came so long after its request.
    pub(crate) fn first_token(&self, time: Duration) {
        let bucket = BUCKETS.iter().position(|bound| time.as_secs_f64() <= *bound).unwrap_or(BUCKETS.len());
        self.first[bucket].fetch_add(1, Ordering::Relaxed);
        self.first_micros.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Counts a generation that ended.
    pub(crate) fn ended(&self, timings: &Timings) {
        for (count, tokens) in [
            (&self.prompt, timings.prompt_tokens),
            (&self.cached, timings.cached_tokens),
            (&self.generated, timings.generated),
        ] {
            count.fetch_add(tokens as u64, Ordering::Relaxed);
        }
    }

    /// All of it, and `gauges` by name.
    pub(crate) fn text(&self, gauges: &[(&str, u64)]) -> String {
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{line}"); // a String takes it
        };
        line(format_args!("# TYPE serve_requests_total counter"));
        for ((path, status), count) in &*self.requests.lock().unwrap_or_else(PoisonError::into_inner) {
            line(format_args!("serve_requests_total{{path=\"{path}\",status=\"{status}\"}} {count}"));
        }
        for (name, count) in [("prompt", &self.prompt), ("cached", &self.cached), ("generated", &self.generated)] {
            line(format_args!("# TYPE serve_{name}_tokens_total counter"));
            line(format_args!("serve_{name}_tokens_total {}", count.load(Ordering::Relaxed)));
        }
        line(format_args!("# TYPE serve_first_token_seconds histogram"));
        let mut count = 0;
        let bounds = BUCKETS.iter().map(f64::to_string).chain(["+Inf".into()]);
        for (bound, bucket) in bounds.zip(&self.first) {
            count += bucket.load(Ordering::Relaxed);
            line(format_args!("serve_first_token_seconds_bucket{{le=\"{bound}\"}} {count}"));
        }
        let seconds = self.first_micros.load(Ordering::Relaxed) as f64 / 1e6;
        line(format_args!("serve_first_token_seconds_sum {seconds}\nserve_first_token_seconds_count {count}"));
        for (name, value) in gauges {
            line(format_args!("# TYPE serve_{name} gauge\nserve_{name} {value}"));
        }
        text
    }
}
