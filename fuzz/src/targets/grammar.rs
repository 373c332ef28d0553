//! Bytes as a JSON schema, a regular expression or a Lark grammar: compiled, and some tokens drawn, within the time
//! and the memory that grammars are allowed.

use crate::common::json::{self, random_node};
use crate::common::random::Random;
use crate::common::{Bytes, any_bytes};
use crate::counting;
use model_factory::generate::{Constraint, Sampler, SamplingOptions, StopTokens};
use model_factory::{Error, Grammar, Model};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::LazyLock;

/// Bytes, and seconds of the processor, that one grammar may take.
const BYTES: usize = 256 << 20;
const SECONDS: f64 = 2.0;
/// The counters of coverage and the checks of this build take up to five times as long as a release build. So what takes
/// longer than `SECONDS` while inputs are searched goes to the folder that `SLOW_INPUTS` names, and `.ci/fuzz` runs it again
/// in a build without them, where `SECONDS` holds.
const SEARCH_SECONDS: f64 = 5.0 * SECONDS;

const TOKENS: usize = 40;

static MODEL: LazyLock<(Model, Vec<f32>)> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/models/llama-3.1/q8_0.gguf");
    let model = Model::builder().threads(1).context_length(64).memory_limit(256 << 20).load(path).unwrap();
    let logits = vec![0.0; model.tokenizer().vocab_len()];
    model.compile_grammar(&Grammar::choice(&["a"])).unwrap();
    (model, logits)
});

pub fn run(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let text = |key| value.get(key).and_then(Value::as_str);
    let grammar = match (text("regex"), text("lark")) {
        (Some(regex), _) => Grammar::regex(regex),
        (_, Some(lark)) => Grammar::lark(lark),
        _ => Grammar::json_schema(value),
    };
    LazyLock::force(&MODEL);
    let begun = processor_seconds();
    let (drawn, peak) = counting::peak(|| draw(&grammar, bytes.len() as u64));
    let seconds = processor_seconds() - begun;
    assert!(peak <= BYTES, "{peak} bytes");
    match std::env::var_os("SLOW_INPUTS") {
        None => assert!(seconds <= SECONDS, "{seconds} s"),
        Some(folder) => {
            assert!(seconds <= SEARCH_SECONDS, "{seconds} s");
            if seconds > SECONDS {
                let name = format!("{:08x}", crc32fast::hash(bytes));
                std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
            }
        }
    }
    if let Err(error) = drawn {
        assert!(matches!(error, Error::Grammar(_)), "{error:?}");
        assert!(!error.to_string().is_empty());
    }
}

/// Draws tokens from `grammar`, each as likely as the others.
fn draw(grammar: &Grammar, seed: u64) -> Result<(), Error> {
    let (model, logits) = &*MODEL;
    let tokenizer = model.tokenizer();
    let mut constraint = Constraint::new(tokenizer, grammar, StopTokens::from(&model.spec().tokenizer))?;
    let mut options = SamplingOptions::default();
    (options.temperature, options.seed) = (Some(1.0), Some(seed));
    let mut sampler = Sampler::new(&options, tokenizer.vocab_len())?;
    for _ in 0..TOKENS {
        if constraint.sample(&mut sampler, logits)?.is_none() {
            break;
        }
    }
    Ok(())
}

/// Seconds of the processor that the process took so far.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

pub fn mutate(input: &[u8], longest: usize, random: &mut Random, bytes: &mut Bytes) -> Vec<u8> {
    let changed = if random.yes() { with_keyword(input, random) } else { json::mutate(input, random) };
    let changed = changed.filter(|changed| changed.len() <= longest && !random.once_in(8));
    changed.unwrap_or_else(|| any_bytes(input, longest, random, bytes))
}

/// The schema in `bytes` with one more keyword somewhere.
fn with_keyword(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut root: Value = serde_json::from_slice(bytes).ok()?;
    // A large part three thousand times over would be the mutation's memory, and no input.
    let part = Some(random_node(&mut root, random).clone()).filter(|part| part.to_string().len() < 500);
    let part = part.unwrap_or(Value::Bool(true));
    let count = *random.pick(&[1, 2, 3, 30, 300, 3000]);
    let number: u64 = *random.pick(&[0, 1, 2, 7, 30, 255, 1009, 65_536, 1_000_003, 10_000_019, 300_000_001]);
    let pattern = format!(
        "{}{}{}",
        random.pick(&["^", ""]),
        random
            .pick(&["(.{N}|b)*[a-z]", "[^x]{0,N}", "(a|ab)*c", "(\\\\w+\\\\s?){1,N}", "\\\\p{L}+-\\\\d{N}", ".*a.{N}"])
            .replace('N', &number.to_string()),
        random.pick(&["$", ""]),
    );
    let (key, value) = match random.below(15) {
        0 => ("multipleOf", json!(number)),
        1 => ("pattern", json!(pattern)),
        2 => ("allOf", (0..count).map(|_| part.clone()).collect()),
        3 => ("anyOf", (0..count).map(|n| json!({"type": "object", "properties": {format!("a{n}"): part}})).collect()),
        4 => (
            "properties",
            (0..count).map(|n| (format!("a{n}"), part.clone())).collect::<serde_json::Map<_, _>>().into(),
        ),
        5 => ("patternProperties", json!({pattern: part})),
        13 => ("properties", json!({"b".repeat(count): part})),
        6 => ("additionalProperties", part),
        7 => ("minLength", json!(number)),
        8 => ("maxLength", json!(number)),
        9 => ("minProperties", json!(number)),
        10 => ("maxItems", json!(number)),
        11 => ("format", json!(random.pick(&["email", "uri", "ipv6", "date-time"]))),
        12 => ("$ref", json!("#")),
        _ => ("enum", (0..count).map(|n| json!(format!("x{}", n as u64 * number))).collect()),
    };
    if let Value::Object(object) = random_node(&mut root, random) {
        object.insert(key.into(), value);
    }
    serde_json::to_vec(&root).ok()
}
