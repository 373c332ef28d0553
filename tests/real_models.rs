//! Every model in a folder of the user's own: diagnosed, and what runs is loaded, generates and keeps to its plan.
//!
//! `MODEL_FACTORY_MODELS=~/models cargo test --release --test real_models -- --ignored --nocapture`
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use model_factory::{GenerateOptions, Model, Report, UnifiedModelFactory};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The folder that is searched, with everything below it.
const FOLDER: &str = "MODEL_FACTORY_MODELS";

/// In a process of its own: the model that it measures.
const ONE: &str = "MODEL_FACTORY_ONE_MODEL";

/// What the line with a child's measurements begins with.
const MEASURED: &str = "measured: ";

/// Tokens generated: enough for a speed, few enough for a large model.
const TOKENS: usize = 16;

/// Tokens of context; the plan is made for these, so that it can be compared with what is used.
const CONTEXT: usize = 512;

/// Least tokens of the prompt where the context has room: one chunk of the widest forward pass and one more.
const PROMPT: usize = 300;

/// What the prompt repeats.
const SENTENCE: &str = "Once upon a time there was a small town by the sea, and in it lived a girl. ";

#[test]
#[ignore = "needs a folder of models"]
fn every_model_of_the_folder_runs_or_is_refused() {
    if let Some(path) = std::env::var_os(ONE) {
        println!("{MEASURED}{}", measure(Path::new(&path)));
        return;
    }
    let folder = std::env::var_os(FOLDER).map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join("models")));
    let folder = folder.expect("a home directory, or a folder in MODEL_FACTORY_MODELS");
    assert!(folder.is_dir(), "no folder {}; {FOLDER} names another", folder.display());
    let mut found = Found::default();
    found.search(&folder);
    assert!(!found.models.is_empty(), "no model in {}; {FOLDER} names another folder", folder.display());

    println!(
        "{:<28} {:<11} {:<24} {:<24} {:>7} {:>8} {:>8} {:>15}  path",
        "family", "format", "dtypes", "verdict", "load s", "prefill", "decode", "MiB, planned"
    );
    let mut failures = Vec::new();
    for path in &found.models {
        let report = UnifiedModelFactory::diagnose(path);
        let measured = if report.verdict.runs() { run(path) } else { Ok(Value::Null) };
        let shown = path.strip_prefix(&folder).unwrap_or(path).display();
        println!("{}  {shown}", row(&report, measured.as_ref().unwrap_or(&Value::Null)));
        match measured {
            Ok(Value::Null) => println!("    {}", report.reason),
            Ok(measured) => failures.extend(over(&measured).map(|what| format!("{shown}: {what}"))),
            Err(error) => failures.push(format!("{shown}: {} was the verdict, but {error}", report.verdict)),
        }
    }
    assert!(failures.is_empty(), "{} of {} models:\n{}", failures.len(), found.models.len(), failures.join("\n"));
}

/// What lies in a folder tree.
#[derive(Default)]
struct Found {
    models: Vec<PathBuf>,
    /// Folders and files by where they really lie: links may lead to one of them twice, or round in a circle.
    seen: BTreeSet<PathBuf>,
}

impl Found {
    fn search(&mut self, folder: &Path) {
        let is_new =
            |path: &Path, seen: &mut BTreeSet<PathBuf>| seen.insert(path.canonicalize().unwrap_or(path.into()));
        if !is_new(folder, &mut self.seen) {
            return;
        }
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        let has = |name: &str| paths.iter().any(|path| path.ends_with(name));
        let described = has("config.json") || has("adapter_config.json");
        if has("config.json") && paths.iter().any(|path| extension(path) == "gguf") {
            // The folder itself would be ambiguous; its GGUF files are models of their own below.
            self.models.push(folder.join("config.json"));
        } else if described {
            self.models.push(folder.into());
        }
        let mut splits = BTreeSet::new();
        for path in &paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                self.search(path);
                continue;
            }
            let weights = extension(path) == "gguf" || (extension(path) == "safetensors" && !described);
            // The parts of a split model differ only in the number before `-of-`.
            let part = name.rsplit_once("-of-").and_then(|(front, rest)| Some((front.rsplit_once('-')?.0, rest)));
            let first = part.is_none_or(|(stem, rest)| splits.insert((stem.to_owned(), rest.to_owned())));
            if weights && first && is_new(path, &mut self.seen) {
                self.models.push(path.clone());
            }
        }
    }
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// Measures `path` in a process of its own, so that no model is charged with what another one left behind.
fn run(path: &Path) -> Result<Value, String> {
    let name = "every_model_of_the_folder_runs_or_is_refused";
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(ONE, path)
        .output()
        .expect("a process");
    let out = String::from_utf8_lossy(&output.stdout);
    // The test harness writes the test's name in front of what the test prints first.
    let line = out.lines().find_map(|line| line.split_once(MEASURED)).map(|(_, line)| line);
    match line.and_then(|line| serde_json::from_str(line).ok()) {
        Some(measured) if output.status.success() => Ok(measured),
        _ => Err(format!("it ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Loads the model, generates greedily, and gives speeds and memory in bytes.
fn measure(path: &Path) -> Value {
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // The system keeps no peak of the anonymous part, so it is looked at all the time.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(status("RssAnon").unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let end = End(&done);
        let model = UnifiedModelFactory::builder().context_length(CONTEXT).load(path).expect("the model loads");
        let options = GenerateOptions::default().max_tokens(TOKENS).temperature(0.0).ignore_stop(true);
        let mut generation = model.generate(&prompt(&model), &options).expect("the prompt fits");
        generation.text().expect("the model generates");
        let (_, timings) = generation.finish();
        assert_eq!(timings.generated, TOKENS, "tokens generated");
        peak.fetch_max(status("RssAnon").unwrap_or(0), Ordering::Relaxed);
        drop(end);
        let plan = model.report().plan.as_ref().expect("a model that runs has a plan");
        json!({
            "load_s": model.load_time().as_secs_f64(),
            "prefill": timings.prompt_tokens_per_second(),
            "decode": timings.tokens_per_second(),
            "anonymous": peak.load(Ordering::Relaxed),
            "planned_anonymous": plan.anonymous(),
            "resident": status("VmHWM").unwrap_or(0),
            "planned": plan.total,
        })
    })
}

/// The sentence as often as [`PROMPT`] needs, or as the context has room for.
fn prompt(model: &Model) -> String {
    let room = model.context_length().saturating_sub(TOKENS);
    let mut text = SENTENCE.to_owned();
    loop {
        let longer = format!("{text}{SENTENCE}");
        let tokens = |text: &str| model.tokenizer().encode_prompt(text).expect("a sentence has tokens").len();
        if tokens(&text) >= PROMPT || tokens(&longer) > room {
            return text;
        }
        text = longer;
    }
}

/// Ends the watch over memory, also when a test fails on the way.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What took more memory than its plan has.
fn over(measured: &Value) -> impl Iterator<Item = String> {
    let bytes = |key: &str| measured[key].as_u64().expect("a number of bytes");
    let pairs = [("anonymous", "planned_anonymous"), ("resident", "planned")]
        .map(|(key, planned)| (key, bytes(key), bytes(planned)));
    pairs
        .into_iter()
        .filter(|(_, bytes, planned)| bytes > planned)
        .map(|(key, bytes, planned)| format!("{bytes} bytes of {key} memory, {planned} planned"))
}

fn row(report: &Report, measured: &Value) -> String {
    let model = report.model.as_ref();
    let dtypes = model.map(|model| model.dtypes.iter().map(|summary| summary.dtype.name()).collect::<Vec<_>>());
    let number = |key: &str, decimals: usize| {
        measured[key].as_f64().map_or_else(|| "-".into(), |number| format!("{number:.decimals$}"))
    };
    let mib = |key: &str| measured[key].as_u64().map_or_else(|| "-".into(), |bytes| (bytes >> 20).to_string());
    format!(
        "{:<28} {:<11} {:<24} {:<24} {:>7} {:>8} {:>8} {:>15}",
        model.map_or("-", |model| model.variant.as_str()),
        report.input.kind.unwrap_or("-"),
        dtypes.map_or_else(|| "-".into(), |dtypes| dtypes.join("+")),
        report.verdict,
        number("load_s", 3),
        number("prefill", 1),
        number("decode", 1),
        format!("{}, {}", mib("anonymous"), mib("planned_anonymous")),
    )
}

#[test]
fn memory_above_the_plan_fails() {
    let measured = |anonymous: u64, resident: u64| json!({"anonymous": anonymous, "planned_anonymous": 10, "resident": resident, "planned": 20});
    assert_eq!(over(&measured(10, 20)).count(), 0);
    assert_eq!(
        over(&measured(11, 21)).collect::<Vec<_>>(),
        ["11 bytes of anonymous memory, 10 planned", "21 bytes of resident memory, 20 planned"]
    );
}

#[test]
fn models_are_found_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let names = [
        "a.gguf",
        "notes.txt",
        "b/m-00001-of-00002.gguf",
        "b/m-00002-of-00002.gguf",
        "b/m-00001-of-00003.gguf",
        "c/config.json",
        "c/model-00001-of-00002.safetensors",
        "c/model-00002-of-00002.safetensors",
        "d/e/config.json",
        "d/e/model.safetensors",
        "d/e/also.GGUF",
        "f/adapter_config.json",
        "f/adapter_model.safetensors",
        ".hidden/x.gguf",
        "g/lora.safetensors",
    ];
    for name in names {
        std::fs::create_dir_all(path(name).parent().expect("a folder")).expect("a folder");
        std::fs::write(path(name), "").expect("a file");
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path(), path("g/round")).expect("a link");
    let mut found = Found::default();
    found.search(folder.path());
    let expected = [
        "a.gguf",
        "b/m-00001-of-00002.gguf",
        "b/m-00001-of-00003.gguf",
        "c",
        "d/e/config.json",
        "d/e/also.GGUF",
        "f",
        "g/lora.safetensors",
    ];
    assert_eq!(found.models, expected.map(path));
}

/// A field of `/proc/self/status` in bytes.
fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
