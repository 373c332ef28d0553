//! The metrics of the server.

use crate::api::Server;
use crate::common::process_bytes;
use model_factory::Model;
use model_factory::generate::Timings;
use model_factory::session::CacheUsage;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The counts since the server began; each shares its values with the registry that writes the text.
pub(crate) struct Metrics {
    pub(crate) requests: Family<[(&'static str, String); 2], Counter>,
    /// Seconds until the first token.
    pub(crate) first_token: Histogram,
    tokens: [Counter; 3],
    gauges: [Gauge; 6],
    /// Of the prompts on disk; not counted here but by the model.
    prompt_cache: [Gauge; 7],
    registry: Registry,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let first_token = Histogram::new([0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]);
        let mut registry = Registry::with_prefix("serve");
        let (requests, tokens, gauges) = (Family::default(), <[Counter; 3]>::default(), <[Gauge; 6]>::default());
        registry.register("requests", "Responses by path and status", Family::clone(&requests));
        registry.register("first_token_seconds", "Times to first tokens", first_token.clone());
        for (counter, kind) in tokens.iter().zip(["prompt", "cached", "generated"]) {
            registry.register(format!("{kind}_tokens"), format!("Tokens, {kind}"), counter.clone());
        }
        let names =
            ["running", "waiting", "kv_cache_bytes", "kv_cache_unused_bytes", "resident_bytes", "loaded_models"];
        for (gauge, name) in gauges.iter().zip(names) {
            registry.register(name, name.replace('_', " "), gauge.clone());
        }
        let prompt_cache = <[Gauge; 7]>::default();
        let names = ["bytes", "read", "read_bytes", "written", "written_bytes", "dropped", "damaged"];
        for (gauge, name) in prompt_cache.iter().zip(names) {
            let help = format!("Prompt cache on disk, {}", name.replace('_', " "));
            registry.register(format!("prompt_cache_{name}"), help, gauge.clone());
        }
        Metrics { prompt_cache, requests, first_token, tokens, gauges, registry }
    }

    pub(crate) fn ended(&self, timings: &Timings) {
        let tokens = [timings.prompt_tokens, timings.cached_tokens, timings.generated];
        self.tokens.iter().zip(tokens).for_each(|(counter, tokens)| _ = counter.inc_by(tokens as u64));
    }

    /// All metrics, in the text format of OpenMetrics.
    pub(crate) fn text(&self, server: &Server) -> String {
        let usages = server.models.loaded(Model::cache_usage);
        let [running, waiting] = server.queue.lengths().map(|length| length as u64);
        let resident = process_bytes("VmRSS").unwrap_or_default();
        let caches = |of: fn(&CacheUsage) -> u64| usages.iter().map(of).sum::<u64>();
        let (bytes, unused) = (caches(|cache| cache.bytes), caches(|cache| cache.unused));
        let values = [running, waiting, bytes, unused, resident, usages.len() as u64];
        self.gauges.iter().zip(values).for_each(|(gauge, value)| _ = gauge.set(value as i64));
        let disk = server.models.prompt_cache_usage();
        let values =
            [disk.bytes, disk.read, disk.read_bytes, disk.written, disk.written_bytes, disk.dropped, disk.damaged];
        self.prompt_cache.iter().zip(values).for_each(|(gauge, value)| _ = gauge.set(value as i64));
        let mut text = String::new();
        let _ = encode(&mut text, &self.registry); // writing to a String cannot fail
        text
    }
}
