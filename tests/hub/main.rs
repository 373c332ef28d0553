//! Models of the Hub, from a server in this process: what is loaded, what is transferred, and every fault.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

#[path = "../common/mod.rs"]
mod common;
mod content;
mod faults;
mod large;
#[cfg(feature = "images")]
mod mmproj;
#[cfg(unix)]
mod own;
mod server;
#[path = "../../examples/common/shell.rs"]
mod shell;
mod waiting;

use model_factory::diagnostics::report::Presentation;
use model_factory::hub::HubOptions;
use model_factory::load::Stage;
use model_factory::{Error, GenerateOptions, Model, ModelBuilder, Progress, Report};
use serde_json::Value;
use server::{COMMIT, Server};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Reports in the words of the examples.
const SHELL: shell::Shell = shell::Shell { colours: false };

/// A server, and a cache of only this test.
pub(crate) struct Place {
    pub(crate) server: Server,
    pub(crate) cache: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { server: Server::start(), cache: tempfile::tempdir().expect("a folder") }
    }

    /// A place where `repo` is the fixture at `path`.
    pub(crate) fn offering(repo: &str, path: &str) -> Place {
        let place = Place::new();
        place.server.offer(repo, &fixture(path));
        place
    }

    pub(crate) fn options(&self) -> HubOptions {
        HubOptions::new(self.cache.path()).endpoint(self.server.url())
    }

    pub(crate) fn builder(&self) -> ModelBuilder {
        common::builder().threads(1).hub(self.options())
    }

    pub(crate) fn offline(&self) -> ModelBuilder {
        self.builder().hub(self.options().offline(true))
    }

    pub(crate) fn load(&self, id: &str) -> Result<Model, Error> {
        self.builder().load(id)
    }

    /// The folder of `repo` in the cache.
    pub(crate) fn folder(&self, repo: &str) -> PathBuf {
        self.cache.path().join(format!("models--{}", repo.replace('/', "--")))
    }

    /// The file `name` of `repo` in the cache.
    pub(crate) fn cached(&self, repo: &str, name: &str) -> PathBuf {
        self.folder(repo).join("snapshots").join(COMMIT).join(name)
    }
}

pub(crate) fn fixture(path: &str) -> PathBuf {
    path.strip_prefix("models/").map_or_else(|| common::fixtures().join(path), common::archives::path)
}

/// What a model says, the same on every run.
pub(crate) fn text(model: &Model) -> String {
    let options = GenerateOptions::default().max_tokens(24).temperature(0.0);
    model.generate("Once upon a time", &options).expect("a prompt").text().expect("a text")
}

pub(crate) fn json(report: &Report) -> Value {
    serde_json::from_str(&report.to_json()).expect("JSON")
}

/// A refusal's report.
pub(crate) fn refused(result: Result<Model, Error>) -> Report {
    match result {
        Err(Error::Refused(report)) => *report,
        Err(error) => panic!("expected a refusal, found {error}"),
        Ok(_) => panic!("expected a refusal, it was loaded"),
    }
}

/// (repository, fixture, id, what is loaded by its path)
const MODELS: [(&str, &str, &str, &str); 5] = [
    ("org/demo", "demo", "org/demo", "demo"),
    ("org/sharded", "models/llama-3.1/f32-sharded", "org/sharded@main", "models/llama-3.1/f32-sharded"),
    ("org/one-GGUF", "models/llama-3.1", "org/one-GGUF:Q8_0", "models/llama-3.1/q8_0.gguf"),
    ("org/many-GGUF", "models/llama-256", "org/many-GGUF:q4_k_m", "models/llama-256/q4_k_m.gguf"),
    (
        "org/split",
        "models/llama-256/split",
        "org/split:Q8_0",
        "models/llama-256/split/llama-256-q8_0-00001-of-00003.gguf",
    ),
];

#[test]
fn a_model_of_the_hub_is_that_of_its_path() {
    for (repo, folder, id, path) in MODELS {
        let place = Place::offering(repo, folder);
        let expected = common::load(fixture(path));
        let model = place.load(id).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(text(&model), text(&expected), "{id}");
        assert_eq!(model.report().input.path, id);
        let (size, sent) = (expected.report().input.bytes(), place.server.take_sent());
        assert!(sent >= size && sent < size + size / 2 + (1 << 18), "{id}: {sent} bytes were sent for {size}");

        // A second time nothing but the description is asked for, and offline nothing at all.
        place.server.take_requests();
        assert_eq!(text(&place.load(id).unwrap()), text(&expected), "{id} again");
        let requests = place.server.take_requests();
        assert!(requests.len() == 1 && requests[0].path.starts_with("/api/models/"), "{requests:?}");
        place.server.set_down(true);
        assert_eq!(text(&place.offline().load(id).unwrap()), text(&expected), "{id} offline");
        assert_eq!(place.offline().diagnose(id).exit_code, 0, "{id} offline");
        assert!(place.server.take_requests().is_empty());
    }
}

#[test]
fn a_load_reads_headers_once_and_fetches_companions_once() {
    let place = Place::offering("org/demo", "demo");
    // How often headers are read, and the model.
    let load = || {
        let reads = Arc::new(Mutex::new(0));
        let count = reads.clone();
        let begins = |progress: &Progress| progress.stage == Stage::Header && progress.bytes_total == 0;
        let builder = place.builder().on_progress(move |told| *count.lock().unwrap() += usize::from(begins(&told)));
        let model = builder.load("org/demo").unwrap();
        let reads = *reads.lock().unwrap();
        (reads, model)
    };
    let (reads, model) = load();
    let requests = place.server.take_requests();
    let small: Vec<&str> =
        requests.iter().map(|r| r.path.as_str()).filter(|path| path.starts_with("/cached")).collect();
    assert!(small.len() >= 3 && small.iter().all(|path| small.iter().filter(|other| *other == path).count() == 1));
    let (again, same) = load();
    assert_eq!((reads, again), (1, 1));
    assert_eq!(format!("{:?}", model.spec()), format!("{:?}", same.spec()));
    assert_eq!(json(model.report())["input"], json(same.report())["input"]);

    // What was read of the weights, and is not what came, is read again.
    std::fs::remove_dir_all(place.folder("org/demo")).unwrap();
    place.server.fault("/store", 1, server::Kind::Wrong);
    let (reads, third) = load();
    assert_eq!((reads, text(&third)), (2, text(&model)));
}

#[test]
fn only_the_files_of_the_model_are_fetched() {
    let place = Place::offering("org/model", "models/llama-3.1/bf16");
    for stranger in ["pytorch_model.bin", "README.md", "training_args.bin", "onnx/model.onnx", "tokenizer.model"] {
        place.server.offer_as("org/model", stranger, None);
    }
    place.load("org/model").unwrap();
    let mut files: Vec<String> = std::fs::read_dir(place.cached("org/model", ""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let expected =
        ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    assert_eq!(files, expected);
}

#[test]
fn a_path_that_exists_wins() {
    // No other test of this program has a relative path.
    std::env::set_current_dir(common::repository()).unwrap();
    let place = Place::offering("fixtures/demo", "models/tinyllama/f16");
    assert!(Path::new("fixtures/demo").is_dir());
    let model = place.load("fixtures/demo").unwrap();
    assert_eq!(text(&model), text(&common::load(fixture("demo"))));
    assert!(place.server.take_requests().is_empty());
}

#[test]
fn several_models_and_none_named_are_listed() {
    let place = Place::offering("org/m", "models/qwen3");
    let report = refused(place.load("org/m"));
    assert_eq!((report.exit_code, &report.input.candidates), (16, &place.builder().diagnose("org/m").input.candidates));
    assert_eq!(report.input.candidates, ["org/m:f16", "org/m:q4_k_m", "org/m:q8_0"]);
    for id in &report.input.candidates {
        assert_eq!(place.builder().diagnose(id).exit_code, 0, "{id}");
    }
    let report = place.builder().diagnose("org/m:Q2_K");
    assert_eq!(report.exit_code, 1);
    assert!(report.reason.contains("choose one of org/m:f16, org/m:q4_k_m, org/m:q8_0"), "{}", report.reason);
}

#[test]
fn a_report_on_the_hub_is_that_on_its_files() {
    for (repo, folder, id, path) in MODELS {
        let place = Place::offering(repo, folder);
        let (remote, local) = (place.builder().diagnose(id), place.builder().diagnose(fixture(path)));
        assert_eq!(remote.input.path, id);
        let commands = SHELL.commands(&remote);
        let here = format!("--features hub --example generate -- {id} ");
        assert!(!commands.is_empty() && commands.iter().all(|command| command.contains(&here)), "{commands:?}");
        let (mut remote_json, mut local_json) = (json(&remote), json(&local));
        for report in [&mut remote_json, &mut local_json] {
            // Free memory changes between two diagnoses.
            for key in ["input", "hardware", "plan"] {
                report.as_object_mut().unwrap().remove(key);
            }
            report["checks"].as_array_mut().unwrap().retain(|check| check["id"] != "memory");
        }
        assert_eq!(remote_json, local_json, "{id}");
        assert_eq!(remote.input.files, local.input.files, "{id}");
        let (remote_plan, local_plan) = (remote.plan.unwrap(), local.plan.unwrap());
        assert_eq!((remote_plan.context, remote_plan.total), (local_plan.context, local_plan.total), "{id}");
        assert!(!place.folder(repo).exists(), "{id}: a diagnosis leaves nothing in the cache");
    }
}

#[test]
fn a_refusal_names_the_repository_and_comes_before_the_download() {
    let place = Place::offering("org/model", "models/llama-3.1/bf16");
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(fixture("models/llama-3.1/bf16/config.json")).unwrap();
    let broken = folder.path().join("config.json");
    for (from, to, code) in [
        ("\"llama\"", "\"mamba\"", 11),
        ("\"vocab_size\": 320", "\"vocab_size\": 321", 15),
        ("\"hidden_size\": 64", "\"hidden_size\": \"64\"", 10),
    ] {
        assert!(config.contains(from), "{from}");
        std::fs::write(
            &broken,
            config.replace(from, to).replace("LlamaForCausalLM", if code == 11 { "M" } else { "LlamaForCausalLM" }),
        )
        .unwrap();
        place.server.offer_as("org/model", "config.json", Some(&broken));
        let report = refused(place.load("org/model"));
        assert_eq!(report.exit_code, code, "{}", report.reason);
        let (text, temporary) = (report.to_json() + &report.to_string(), std::env::temp_dir().display().to_string());
        assert!(text.contains("org/model") && !text.contains(&temporary), "{text}");
        assert!(!place.folder("org/model").exists());
    }
    let report = refused(place.builder().memory_limit(1 << 10).load("org/model"));
    assert!(report.exit_code != 0);
    // Folders that hold no model are recognized by their names.
    let place = Place::offering("org/none", "templates");
    for (file, says) in [("pytorch_model.bin", "pickled"), ("adapter_model.safetensors", "LoRA")] {
        place.server.offer_as("org/none", file, None);
        let report = place.builder().diagnose("org/none");
        assert!(report.exit_code >= 10 && report.reason.contains(says), "{}", report.reason);
    }
}

#[test]
fn progress_counts_every_byte_once() {
    let place = Place::offering("org/sharded", "models/llama-3.1/f32-sharded");
    let told = Arc::new(Mutex::new(Vec::<Progress>::new()));
    let tell = told.clone();
    let builder = place.builder().on_progress(move |progress| tell.lock().unwrap().push(progress));
    let model = builder.load("org/sharded").unwrap();
    let told = std::mem::take(&mut *told.lock().unwrap());
    let downloads: Vec<&Progress> = told.iter().filter(|progress| progress.stage == Stage::Download).collect();
    let last = downloads.last().unwrap();
    assert_eq!(last.bytes_done, last.bytes_total);
    assert!(last.bytes_total > model.report().input.bytes(), "the companions count too");
    let mut ends = downloads.split(|progress| progress.bytes_done == 0).filter(|part| !part.is_empty());
    assert!(ends.all(|part| part.is_sorted_by_key(|progress| progress.bytes_done)), "{downloads:?}");
}

#[test]
fn a_revision_is_named_in_the_id_or_by_the_builder() {
    let place = Place::offering("org/demo", "demo");
    for (builder, id, revision) in [
        (place.builder(), "org/demo", "main"),
        (place.builder().revision("refs/pr/7"), "org/demo", "refs%2Fpr%2F7"),
        (place.builder().revision("other"), "org/demo@v1.0", "v1.0"),
    ] {
        builder.load(id).unwrap();
        let asked = &place.server.take_requests()[0].path;
        assert_eq!(*asked, format!("/api/models/org/demo/revision/{revision}"));
    }
    let reference = |name: &str| std::fs::read_to_string(place.folder("org/demo").join("refs").join(name)).unwrap();
    assert_eq!([reference("main"), reference("refs/pr/7"), reference("v1.0")], [COMMIT; 3]);
    // Commands are for the same revision, and so are the ids to choose from.
    let here = place.builder().revision("refs/pr/7");
    for report in [here.diagnose("org/demo"), here.load("org/demo").unwrap().report().clone()] {
        assert_eq!(report.input.path, "org/demo@refs/pr/7");
        let commands = SHELL.commands(&report);
        let same = |command: &String| command.contains(" org/demo@refs/pr/7 ");
        assert!(!commands.is_empty() && commands.iter().all(same), "{commands:?}");
    }
    place.server.offer("org/m", &fixture("models/qwen3"));
    let report = here.diagnose("org/m");
    assert_eq!(
        report.input.candidates,
        ["org/m:f16", "org/m:q4_k_m", "org/m:q8_0"].map(|id| format!("{id}@refs/pr/7"))
    );
    // A commit needs no reference.
    place.offline().load(format!("org/demo@{COMMIT}")).unwrap();
    let report = place.offline().diagnose("org/demo@never-asked-for");
    assert!(report.exit_code == 1 && report.reason.contains("HF_HUB_OFFLINE"), "{}", report.reason);
}

#[test]
fn a_token_is_shown_to_the_hub_alone() {
    let place = Place::offering("org/demo", "demo");
    let options = place.options().token(Some("hf_secret".into()));
    assert!(!format!("{options:?}").contains("hf_secret"), "{options:?}");
    place.builder().hub(options).load("org/demo").unwrap();
    let requests = place.server.take_requests();
    assert!(requests.iter().any(|request| request.at_store));
    for request in &requests {
        let expected = (!request.at_store).then_some("hf_secret");
        assert_eq!(request.token.as_deref(), expected, "{request:?}");
    }
}

/// What a process with these variables is told, and the token of its first request.
fn in_environment(place: &Place, home: &Path, more: &[(&str, &str)]) -> (String, Option<String>) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "loads_by_the_environment", "--nocapture"]);
    for (name, _) in std::env::vars() {
        let proxy = name.to_ascii_uppercase().ends_with("_PROXY");
        if proxy || name.starts_with("HF_") || name.starts_with("HUGGING") {
            child.env_remove(name);
        }
    }
    child.env_remove("TRANSFORMERS_OFFLINE").env("HF_HOME", home);
    child.env("HF_ENDPOINT", format!("{}/", place.server.url())).envs(more.iter().copied());
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let token = place.server.take_requests().first().and_then(|request| request.token.clone());
    (text.lines().find_map(|line| line.strip_prefix("told: ").map(str::to_owned)).unwrap(), token)
}

#[test]
fn no_proxy_sees_the_token() {
    let place = Place::offering("org/demo", "demo");
    let home = tempfile::tempdir().unwrap();
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let (told, token) = in_environment(&place, home.path(), &[("ALL_PROXY", &address), ("HF_TOKEN", "hf_secret")]);
    assert_eq!(proxy.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{told}");
    assert_eq!((told, token.as_deref()), (format!("{:?}", text(&common::load(fixture("demo")))), Some("hf_secret")));
    // The same server by a name that is not known to be this machine: no token is sent, and none is said to be.
    let elsewhere = place.server.url().replace("127.0.0.1", "127.1");
    place.server.fault("/api/models", 2, server::Kind::Status(401, None));
    for (endpoint, sent, says) in
        [(place.server.url(), Some("hf_secret"), "the token it was given"), (&elsewhere, None, "check the id")]
    {
        let variables = [("HF_TOKEN", "hf_secret"), ("HF_ENDPOINT", endpoint)];
        let (told, token) = in_environment(&place, home.path(), &variables);
        assert!(token.as_deref() == sent && told.contains(says), "{endpoint}: {token:?}, {told}");
    }
    assert_eq!(place.server.faults_left(), 0);
}

#[test]
fn a_token_of_two_lines_is_refused_and_not_shown() {
    let place = Place::offering("org/demo", "demo");
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), "hf_one\nhf_two\n").unwrap();
    for variables in [&[] as &[_], &[("HF_TOKEN", "hf_one hf_two")], &[("HF_TOKEN", "hf_one\r\nhf_two")]] {
        let (told, token) = in_environment(&place, home.path(), variables);
        assert!(told.contains("the token is not one word") && !told.contains("hf_"), "{variables:?}: {told}");
        assert_eq!(token, None, "{variables:?}");
    }
}

#[test]
fn the_environment_says_where_the_hub_is() {
    let place = Place::offering("org/demo", "demo");
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), "hf_file\n").unwrap();
    let run = |more: &[(&str, &str)]| in_environment(&place, home.path(), more);
    let expected = format!("{:?}", text(&common::load(fixture("demo"))));
    assert_eq!(run(&[("HF_HUB_OFFLINE", "1")]).0.split(':').next(), Some("error"), "an empty cache");
    assert_eq!(run(&[("HF_TOKEN", " hf_variable ")]), (expected.clone(), Some("hf_variable".into())));
    assert!(home.path().join("hub/models--org--demo/refs/main").is_file());
    assert_eq!(run(&[]), (expected.clone(), Some("hf_file".into())));
    // Cache and token may lie elsewhere.
    let other = tempfile::tempdir().unwrap();
    let (cache, token) = (other.path().join("c"), other.path().join("t"));
    std::fs::write(&token, "hf_other").unwrap();
    let elsewhere = [("HF_HUB_CACHE", cache.to_str().unwrap()), ("HF_TOKEN_PATH", token.to_str().unwrap())];
    assert_eq!(run(&elsewhere), (expected.clone(), Some("hf_other".into())));
    assert!(cache.join("models--org--demo/refs/main").is_file());
    assert_eq!(run(&[elsewhere[0], ("HF_HUB_OFFLINE", "1")]), (expected.clone(), None));
    place.server.set_down(true);
    assert_eq!(run(&[("HF_HUB_OFFLINE", "TRUE")]), (expected, None));
}

/// What the test above runs in a process of its own.
#[test]
#[ignore = "run by the_environment_says_where_the_hub_is"]
#[allow(clippy::print_stdout)]
fn loads_by_the_environment() {
    match common::builder().threads(1).load("org/demo") {
        Ok(model) => println!("\ntold: {:?}", text(&model)),
        Err(error) => println!("\ntold: error: {error}"),
    }
}
