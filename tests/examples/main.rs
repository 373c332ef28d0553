//! The examples as a user runs them: exit codes, what goes to which stream, and the JSON that tools rely on.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod embed;
mod generate;
mod hints;
mod reports;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An example. `cargo test` builds them with the tests; `cargo test --test examples` does not renew them.
fn program(name: &str) -> Command {
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
    let mut program = Command::new(target.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION));
    program.current_dir(common::repository());
    program
}

/// Runs an example.
fn example(name: &str, arguments: &[&str]) -> Output {
    program(name).args(arguments).output().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error} in {}", text(&output.stdout)))
}

fn model(path: &str) -> String {
    common::archives::path(path).display().to_string()
}

#[test]
fn every_example_explains_itself_and_refuses_unknown_options() {
    let all = "diagnose generate extract tools embed search classify batch tokenize logits bench compare";
    for name in all.split(' ') {
        let help = example(name, &["--help"]);
        assert!(help.status.success() && text(&help.stdout).contains("Usage"), "{name} --help");
        assert_eq!(example(name, &["--no-such-option"]).status.code(), Some(2), "{name}");
    }
}

/// With the feature `hub` examples ask the Hub, and `tests/hub` tests what they ask with; `src/factory/remote.rs` what a build
/// without it answers.
#[cfg(not(feature = "hub"))]
#[test]
fn an_id_of_the_hub_says_which_feature_it_needs() {
    for name in ["diagnose", "generate", "bench", "logits"] {
        let more: &[&str] = if name == "logits" { &["org/name:Q4_K_M", "--prompt", "x"] } else { &["org/name:Q4_K_M"] };
        let output = example(name, more);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{name}");
        let told = text(&output.stderr);
        assert!(told.contains("org/name:Q4_K_M") && told.contains("--features hub"), "{name}: {told}");
    }
}

#[test]
fn a_path_that_does_not_exist_is_no_id_of_the_hub() {
    let path = example("diagnose", &["no/such.gguf"]);
    assert_eq!((path.status.code(), text(&path.stderr).contains("hub")), (Some(1), false));
}

#[test]
fn generate_refuses_options_out_of_range_by_name() {
    let cases = [
        ("--temperature", "-1", "--temperature is -1"),
        ("--temperature", "nan", "--temperature is NaN"),
        ("--top-p", "1.5", "--top-p is 1.5"),
        ("--min-p", "-0.5", "--min-p is -0.5"),
        ("--repeat-penalty", "0", "--repeat-penalty is 0"),
        ("--presence-penalty", "-3", "--presence-penalty is -3"),
        ("--frequency-penalty", "9", "--frequency-penalty is 9"),
        ("--top-k", "-1", "--top-k"),
        ("--seed", "-1", "expected a number from 0 up"),
        ("--max-tokens", "-1", "expected a number from 0 up"),
        ("--threads", "0", "expected a number from 1 up"),
        ("--context", "-1", "expected a number from 1 up"),
        ("--tools", "README.md", "expected a JSON list of tool schemas"),
        ("--messages", "README.md", "expected a JSON list of messages"),
        ("--stop", "", "--stop"),
    ];
    for (option, value, told) in cases {
        let output = example("generate", &["--chat", "Hi", option, value]);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(told), "{option} {value}: {error}");
        assert!(!error.contains("compatible"), "{option} {value} is refused before a model is loaded");
    }
}

#[test]
fn a_described_machine_is_for_diagnose_only() {
    let devices = [("t4", true), ("T4", true), ("abacus", false)];
    for (name, arguments) in
        [("generate", &[][..]), ("bench", &[]), ("logits", &["--prompt", "x"]), ("compare", &["a", "b"])]
    {
        for (device, described) in devices {
            let output = example(name, &[arguments, &["--device", device]].concat());
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}: {error}");
            assert!(error.contains("expected auto, cpu, cuda or cuda:N"), "{name}: {error}");
            assert_eq!(error.contains("t4 is a described machine, for diagnose only"), described, "{name}: {error}");
        }
    }
}

#[test]
fn a_path_that_is_not_there_is_told_alike() {
    let path = "/no/such/path";
    let cases =
        [("diagnose", vec![path]), ("generate", vec![path]), ("bench", vec![path]), ("compare", vec![path, path])];
    for (name, arguments) in cases {
        let output = example(name, &arguments);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let error = text(&output.stderr);
        assert!(
            error.starts_with("error: cannot read /no/such/path: ") && error.lines().count() == 1,
            "{name}: {error}"
        );
    }
}

/// Runs an example whose output and errors go into one pipe that nobody reads, and gives its exit code.
fn unread(name: &str, arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let errors = writer.try_clone().expect("a second end");
    let status = program(name).args(arguments).stdout(writer).stderr(errors).status();
    status.unwrap_or_else(|error| panic!("{name}: {error}")).code()
}

#[test]
fn a_reader_that_has_seen_enough_changes_no_verdict() {
    let path = model("llama-3.2/f32");
    let cases: [(&str, &[&str], i32); 11] = [
        ("bench", &["-p", "4", "-n", "1", "-r", "1", "--threads", "1"], 0),
        ("bench", &["-p", "4", "-n", "1", "-r", "1", "--threads", "1", "--json"], 0),
        ("bench", &["--device", "cuda"], 13),
        ("generate", &["--max-tokens", "4"], 0),
        ("generate", &["--max-tokens", "4", "--json"], 0),
        ("generate", &["--device", "cuda"], 13),
        ("compare", &[&path, &path], 0),
        ("logits", &[&path, "--tokens", "1"], 0),
        ("logits", &[&path, "--tokens", "99999"], 2),
        ("tokenize", &["--text", "a"], 0),
        ("diagnose", &["--device", "cuda"], 13),
    ];
    for (name, arguments, code) in cases {
        assert_eq!(unread(name, arguments), Some(code), "{name} {arguments:?}");
    }
}

#[test]
fn counts_of_none_are_refused() {
    for (name, option) in [
        ("bench", "-r"),
        ("bench", "--threads"),
        ("generate", "--threads"),
        ("generate", "--context"),
        ("diagnose", "--context"),
    ] {
        let output = example(name, &[option, "0"]);
        assert_eq!(output.status.code(), Some(2), "{name} {option} 0");
        assert!(text(&output.stderr).contains(option), "{}", text(&output.stderr));
    }
    let many = example("generate", &["--threads", "5000"]);
    assert_eq!(many.status.code(), Some(2));
    assert!(text(&many.stderr).contains("threads is 5000, expected 1 to 1024"), "{}", text(&many.stderr));
}

#[test]
fn diagnose_speaks_by_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a file");
        path.display().to_string()
    };
    let shard: PathBuf = common::named("llama-3.1").folder.join("f32-sharded");
    let lonely = folder.path().join("lonely");
    std::fs::create_dir(&lonely).expect("a folder");
    for file in ["config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors"] {
        std::fs::copy(shard.join(file), lonely.join(file)).expect("a copy");
    }
    let cases = [
        (0, vec![model("llama-3.1/f32-sharded")]),
        (0, vec![model("llama-256/q4_k_m.gguf")]),
        (1, vec!["/no/such/path".into()]),
        (2, vec!["--device".into(), "abacus".into()]),
        (10, vec![write("page.gguf", b"<!doctype html><html>please log in</html>")]),
        (13, vec!["--device".into(), "cuda".into(), model("llama-3.2/f32")]),
        (14, vec!["--device".into(), "cpu-2gb".into(), large_checkpoint(folder.path())]),
        (15, vec![lonely.display().to_string()]),
        (16, vec![model("llama-256")]),
    ];
    let mut wrong = Vec::new();
    for (code, arguments) in &cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = example("diagnose", &arguments);
        if output.status.code() != Some(*code) {
            wrong.push(format!(
                "{arguments:?}: {:?} instead of {code}\n{}",
                output.status.code(),
                text(&output.stdout)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A checkpoint of TinyLlama's shape in BF16, 2.2 GB of which are a hole in a sparse file: diagnosis reads headers only.
fn large_checkpoint(parent: &Path) -> String {
    let folder = parent.join("large");
    std::fs::create_dir(&folder).expect("a folder");
    let tiny = common::named("tinyllama").folder.join("bf16");
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(tiny.join(file), folder.join(file)).expect("a copy");
    }
    let (hidden, wide, kv, vocab) = (2048u64, 5632, 256, 32000);
    let config = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden,
        "intermediate_size": wide, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": vocab,
        "tie_word_embeddings": false,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file");
    let mut shapes = vec![
        ("model.embed_tokens".to_owned(), vec![vocab, hidden]),
        ("model.norm".to_owned(), vec![hidden]),
        ("lm_head".to_owned(), vec![vocab, hidden]),
    ];
    for layer in 0..22 {
        let named = [
            ("input_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("post_attention_layernorm", vec![hidden]),
            ("mlp.gate_proj", vec![wide, hidden]),
            ("mlp.up_proj", vec![wide, hidden]),
            ("mlp.down_proj", vec![hidden, wide]),
        ];
        shapes.extend(named.map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape)));
    }
    let mut end = 0u64;
    let entries: serde_json::Map<String, Value> = shapes
        .into_iter()
        .map(|(name, shape)| {
            let start = end;
            end += 2 * shape.iter().product::<u64>();
            let entry = serde_json::json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] });
            (format!("{name}.weight"), entry)
        })
        .collect();
    let header = Value::Object(entries).to_string();
    let mut file = std::fs::File::create(folder.join("model.safetensors")).expect("a file");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("a length");
    file.write_all(header.as_bytes()).expect("a header");
    file.set_len(8 + header.len() as u64 + end).expect("a sparse file");
    folder.display().to_string()
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = json(&example("diagnose", &["--json", "--device", "cpu-2gb", &large_checkpoint(folder.path())]));
    assert_eq!((&report["verdict"], &report["exit_code"]), (&"does_not_fit".into(), &14.into()));
    let remedies = report["remedies"].to_string();
    assert!(remedies.contains("Q4_K_M") && remedies.contains("context 2048"), "{remedies}");
    let read = report["input"]["header_bytes_read"].as_u64().expect("a number");
    assert!(read < 1 << 20, "{read} bytes read of a file of 2.2 GB");
}

#[test]
fn diagnose_names_the_variant_of_every_fixture() {
    for fixture in common::all() {
        for (name, file) in &fixture.expected.files {
            let path = fixture.folder.join(name).display().to_string();
            let report = json(&example("diagnose", &["--json", &path]));
            // Muse Glimmer's folders have the tensors that see, which the text does not use.
            let sees = fixture.name() == "muse-glimmer" && !name.ends_with(".gguf");
            let verdict = if sees { "compatible_with_warnings" } else { "compatible" };
            assert_eq!(report["verdict"], verdict, "{path}: {}", report["reason"]);
            assert_eq!(report["model"]["variant"], fixture.expected.variant.as_str(), "{path}");
            assert_eq!(report["model"]["family"], fixture.expected.family.as_str(), "{path}");
            assert_eq!(report["casts"], 0);
            let stops: Vec<u64> = report["model"]["tokenizer"]["stop_ids"]
                .as_array()
                .expect("ids")
                .iter()
                .filter_map(Value::as_u64)
                .collect();
            let expected: Vec<u64> = fixture.expected.stop_ids.iter().map(|id| u64::from(*id)).collect();
            assert_eq!(stops, expected, "{path}");
            assert!(!file.dtype.is_empty());
        }
    }
}

#[test]
fn logits_are_written_raw() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("logits.safetensors");
    let path = model("llama-3.2/f32");
    let output = example("logits", &[&path, "--tokens", "1,2,3", "--out", &out.display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = std::fs::read(&out).expect("the file");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid safetensors");
    assert_eq!(tensors.tensor("logits").expect("logits").shape(), [3, 320]);
    assert_eq!(example("logits", &[&path, "--tokens", "99999"]).status.code(), Some(2), "an id without a row");
    assert_eq!(text(&example("logits", &[&path, "--tokens", "1"]).stdout).lines().count(), 11);
}

#[test]
fn instruction_sets_can_be_forced_down() {
    let arguments = ["--prompt", "Once upon a time", "--max-tokens", "20", "--isa"];
    let stories = ["portable", model_factory::kernels::Isa::detect().name()]
        .map(|isa| example("generate", &[&arguments[..], &[isa]].concat()));
    assert!(stories.iter().all(|output| output.status.success()));
    assert_eq!(stories[0].stdout, stories[1].stdout, "the demo's choices are clear on every instruction set");
    assert_eq!(example("generate", &["--isa", "abacus"]).status.code(), Some(2));
}

#[test]
fn bench_measures_what_the_contract_lists() {
    let report = json(&example("bench", &["-p", "16", "-n", "4", "-r", "2", "--threads", "1", "--json"]));
    for key in [
        "model",
        "device",
        "threads",
        "load_s",
        "prefill",
        "decode",
        "peak_rss_bytes",
        "planned_bytes",
        "weight_bytes_per_token",
        "bandwidth_gb_s",
        "bandwidth_share",
    ] {
        assert!(!report[key].is_null(), "{key} in {report}");
    }
    assert!(report["decode"]["tok_s"]["median"].as_f64().is_some_and(|speed| speed > 0.0));
    assert_eq!((&report["prefill"]["tokens"], &report["threads"]), (&16.into(), &1.into()));
    assert!(report["thread_distance_ns"].is_null(), "one thread is not apart from another");
    if std::thread::available_parallelism().is_ok_and(|threads| threads.get() > 1) {
        let report = json(&example("bench", &["-p", "4", "-n", "1", "-r", "1", "--threads", "2", "--json"]));
        assert!(report["thread_distance_ns"].as_f64().is_some_and(|distance| distance > 0.0), "{report}");
    }
}

#[test]
fn diagnose_draws_shows_and_colours() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("memory.svg");
    let path = model("llama-3.1/q8_0.gguf");
    let output = example("diagnose", &[&path, "--svg", &svg.display().to_string(), "--tokenizer", "Hi there"]);
    assert!(output.status.success());
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    assert!(picture.starts_with("<svg ") && picture.contains("layer 1: ") && picture.trim_end().ends_with("</svg>"));
    let said = text(&output.stdout);
    assert!(said.contains("text       \"Hi there\"") && said.contains("round trip the same text"), "{said}");
    assert!(!said.contains('\x1b'), "a pipe gets no colours");
    let coloured = text(&example("diagnose", &[&path, "--color", "always"]).stdout);
    assert!(coloured.starts_with("\x1b[1m\x1b[32mcompatible\x1b[0m: "), "{coloured}");
    let cut = json(&example("diagnose", &[&path, "--json", "--tokenizer", "Hi there"]));
    let ids = text(&example("tokenize", &[&path, "--text", "Hi there"]).stdout);
    let shown: Vec<String> = cut["tokenization"]["ids"].as_array().expect("ids").iter().map(Value::to_string).collect();
    assert_eq!(shown.join(" "), ids.trim());
    assert_eq!((&cut["tokenization"]["same"], &cut["verdict"]), (&true.into(), &"compatible".into()));
    // The path may stand before and after, with a text and without.
    for (given, sentence) in [
        (["--json", "--tokenizer", "Hi there", &path].as_slice(), false),
        (&["--json", "--tokenizer", &path], true),
        (&["--tokenizer", "--json", &path], true),
        (&[&path, "--json", "--tokenizer"], true),
    ] {
        let other = json(&example("diagnose", given));
        assert_eq!(other["input"]["path"], *path, "{given:?}");
        let text = &other["tokenization"]["text"];
        assert_eq!(text == "Hi there", !sentence, "{given:?}: {text}");
    }
    let alone = example("diagnose", &["--json", "--tokenizer", "no/such/path"]);
    assert_eq!((alone.status.code(), &json(&alone)["tokenization"]["text"]), (Some(0), &"no/such/path".into()));
    assert!(text(&alone.stderr).contains("no PATH is given"), "{}", text(&alone.stderr));
    let nowhere = example("diagnose", &[&path, "--svg", &folder.path().join("no/such").display().to_string()]);
    assert_eq!(nowhere.status.code(), Some(1));
}

#[test]
fn diagnose_lists_the_models_of_a_folder() {
    let report = json(&example("diagnose", &["--json", &model("")]));
    let models = report["input"]["models"].as_array().expect("models");
    assert!(models.len() > 40, "folders in the folder are listed model by model: {}", models.len());
    // A folder around the folder of one model says which that is.
    let around_one =
        |model: &&Value| model["reason"].as_str().is_some_and(|reason| reason.contains("give that folder"));
    for model in models.iter().filter(|model| !around_one(model)) {
        assert!(model["verdict"] == "compatible" && model["bytes"].as_u64() > Some(0), "{model}");
        assert!(model["context"].as_u64() > Some(0) && !model["stored_as"].is_null(), "{model}");
    }
    let candidates = report["input"]["candidates"].as_array().expect("candidates");
    assert_eq!(candidates.len(), models.len());
    let reason = report["reason"].as_str().expect("a reason");
    assert!(reason.contains(&format!("holds {} models; name one of them", models.len())), "{reason}");
    let output = example("diagnose", &[&model("llama-3.1")]);
    assert_eq!(output.status.code(), Some(16));
    let said = text(&output.stdout);
    assert!(said.lines().any(|line| line.starts_with("f32-sharded  compatible  ")), "{said}");
}

/// Every command of a report, by the examples that were built: what it names is there and runs.
#[test]
#[cfg(unix)] // commands are lines of a shell
fn every_command_of_a_report_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let spaced = folder.path().join("two models");
    std::fs::create_dir(&spaced).expect("a folder");
    for name in ["it's.gguf", "other one.gguf"] {
        std::fs::copy(model("smollm2/f16.gguf"), spaced.join(name)).expect("a copy");
    }
    let (spaced, large) = (spaced.display().to_string(), large_checkpoint(folder.path()));
    let (all, family, one) = (model(""), model("llama-3.1"), model("smollm2/bf16"));
    let cases: [&[&str]; 13] = [
        &[],
        &[&one],
        &[&one, "--device", "cpu", "--context", "100", "--kv-cache", "f16"],
        &[&all],
        &[&all, "--device", "t4"],
        &[&family, "--device", "cpu", "--context", "100"],
        &[&family, "--device", "cpu-8gb"],
        &[&spaced],
        &[&one, "--device", "cuda:7"],
        &[&one, "--device", "t4"],
        &[&large, "--device", "t4"],
        &[&large, "--device", "cpu-2gb"],
        &[&large, "--device", "cpu-4gb", "--context", "2048"],
    ];
    let mut run = 0;
    for case in cases {
        let report = json(&example("diagnose", &[&["--json"], case].concat()));
        for command in report["commands"].as_array().expect("commands") {
            let line = command.as_str().expect("a line");
            let (name, arguments) = line
                .strip_prefix("cargo run --release --example ")
                .and_then(|rest| rest.split_once(" -- "))
                .expect(line);
            let program = program(name).get_program().display().to_string();
            let few = if name == "generate" { " --max-tokens 2" } else { "" };
            let shell = format!("'{program}' {arguments}{few}");
            let output = Command::new("sh").args(["-c", &shell]).output().expect("a shell");
            assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
            run += 1;
        }
        // A remedy that names an option of this program or a path is one that helps.
        for remedy in report["remedies"].as_array().expect("remedies") {
            let remedy = remedy.as_str().expect("a line");
            if let Some(path) = remedy.strip_prefix("give the path of one model, such as ") {
                let named = example("diagnose", &[path]);
                assert!(named.status.success(), "{remedy}: {}", text(&named.stdout));
                run += 1;
            }
            let described = case.contains(&"t4") || case.iter().any(|word| word.starts_with("cpu-"));
            assert!(!(described && remedy.ends_with("--device cpu")), "{case:?}: {remedy}");
        }
    }
    assert!(run >= cases.len(), "only {run} commands");
}
