//! Reports in the words of the examples: options, command lines, colours, and the picture.

#[path = "../../examples/common/shell.rs"]
mod shell;
#[path = "../../diagnostics/tests/common/mod.rs"]
mod specs;
#[path = "../../examples/diagnose/svg.rs"]
mod svg;

use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::report::{HubModel, InputSummary, LayerBytes, Presentation};
use model_factory_diagnostics::spec::ModelSpec;
use model_factory_diagnostics::{DType, DeviceChoice, Hardware, Policy, Report, Verdict, assess, diagnose};
use shell::{Shell, of_llama_cpp, quoted};
use specs::{LLAMA_31_8B, LLAMA_32_1B, PHI_3_MINI_128K, TINY_LLAMA, gguf, safetensors};
use std::path::Path;

const PLAIN: Shell = Shell { colours: false };

fn machine(profile: &str) -> Hardware {
    Profile::find(profile).expect("a profile").hardware()
}

/// A machine that is described, as the one of the run.
fn this_machine(profile: &str) -> Hardware {
    let mut hardware = machine(profile);
    hardware.profile = None;
    hardware
}

fn remedies(report: &Report) -> Vec<String> {
    report.remedies.iter().map(|remedy| PLAIN.remedy(remedy)).collect()
}

fn hub_model(repo: &str, wanted: Option<&str>, revision: Option<&str>, files: &[&str]) -> HubModel {
    let own = |text: Option<&str>| text.map(str::to_owned);
    let files = files.iter().map(|file| (*file).into()).collect();
    HubModel { repo: repo.into(), wanted: own(wanted), revision: own(revision), files }
}

/// The report of a model that is on the Hub and too large for `profile`.
fn past_one_machine(model: HubModel, spec: &ModelSpec, input: InputSummary, profile: &str) -> Report {
    let input = InputSummary { path: model.to_string(), hub: Some(model), ..input };
    assess(spec, &input, &machine(profile), &Policy { context: Some(8192), ..Policy::default() })
}

#[test]
fn every_command_for_a_model_of_the_hub_names_its_revision_and_what_its_program_takes() {
    let (spec, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let report = past_one_machine(hub_model("org/model", None, Some("v1"), &[]), &spec, input, "rtx-4060");
    let vllm = "vllm serve org/model --revision v1 --tensor-parallel-size 4 --dtype bfloat16 --max-model-len 8192";
    assert_eq!(PLAIN.serving_commands(&report), [vllm]);
    let diagnose = "cargo run --release --features hub --example diagnose -- org/model@v1 --device ";
    let commands = PLAIN.commands(&report);
    assert!(commands.iter().all(|command| command.starts_with(diagnose)), "{commands:?}");
    assert!(!commands.is_empty());

    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    let model = hub_model("org/model-GGUF", Some("Q8_0"), Some("v1"), &["model-Q8_0.gguf"]);
    let report = past_one_machine(model, &spec, input, "cpu-4gb");
    let serving = PLAIN.serving_commands(&report);
    let file =
        "llama-server --model \"$(hf download org/model-GGUF model-Q8_0.gguf --revision v1 --quiet)\" --ctx-size";
    assert!(serving[1].starts_with(file), "{}", serving[1]);
    let here = "cargo run --release --features hub --example diagnose -- org/model-GGUF:Q8_0@v1 --device ";
    let commands = PLAIN.commands(&report);
    assert!(commands.iter().all(|command| command.starts_with(here)), "{commands:?}");
}

/// A model runs on a GPU by the build that was asked, and by one without the feature it would not.
#[test]
fn commands_have_the_features_of_the_build() {
    let (spec, input) = gguf(&LLAMA_32_1B, "Q8_0");
    let hub =
        InputSummary { hub: Some(hub_model("org/m", None, None, &["m.gguf"])), path: "org/m".into(), ..input.clone() };
    let here = |build: &[&'static str]| this_machine("t4").with_build(build);
    for (input, build, start) in [
        (&input, &[] as &[_], "cargo run --release --example generate -- models/model-Q8_0.gguf "),
        (&input, &["cuda"], "cargo run --release --features cuda --example generate -- models/model-Q8_0.gguf "),
        (&hub, &[], "cargo run --release --features hub --example generate -- org/m "),
        (&hub, &["cuda"], "cargo run --release --features cuda,hub --example generate -- org/m "),
    ] {
        let report = assess(&spec, input, &here(build), &Policy::default());
        let device = if build.is_empty() { "cpu" } else { "cuda:0" };
        assert_eq!(report.device, device);
        let commands = PLAIN.commands(&report);
        assert!(commands.len() == 1 && commands[0].starts_with(start), "{commands:?}");
    }
}

#[test]
fn commands_for_several_machines_name_the_files_and_the_split() {
    let policy = Policy { context: Some(8192), ..Policy::default() };
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    assert_eq!(
        PLAIN.serving_commands(&assess(&spec, &input, &machine("cpu-4gb"), &policy)),
        [
            "rpc-server --host HOST1 --port 50052  # on every machine, with its own address; no password, so only in a private \
             network",
            "llama-server --model models/model-Q8_0.gguf --ctx-size 8192 --n-gpu-layers 33 --tensor-split 11,11,10 \
             --rpc HOST1:50052,HOST2:50052,HOST3:50052"
        ]
    );
    let (spec, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let report = assess(&spec, &input, &machine("rtx-4060"), &policy);
    let vllm = "vllm serve models --tensor-parallel-size 4 --dtype bfloat16 --max-model-len 8192";
    assert_eq!(PLAIN.serving_commands(&report), [vllm]);
    let text = report.text(&PLAIN);
    assert!(text.contains(vllm) && !report.to_string().contains("vllm serve"), "{text}");
}

#[test]
fn one_of_several_models_is_run_here_and_judged_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.gguf", "b.gguf"] {
        std::fs::copy(super::common::fixtures().join("demo-q4_k_m.gguf"), folder.path().join(name)).expect("copied");
    }
    let two = folder.path().join("b.gguf").display().to_string();
    let report = diagnose(folder.path(), &machine("cpu-8gb"), &Policy::default());
    assert!(PLAIN.commands(&report)[0].ends_with(&format!("diagnose -- {two} --device cpu-8gb")), "{report}");
    let policy = Policy { device: DeviceChoice::Cpu, context: Some(256), ..Policy::default() };
    let report = diagnose(folder.path(), &this_machine("cpu-8gb"), &policy);
    let command = &PLAIN.commands(&report)[0];
    assert!(command.ends_with(&format!("generate -- {two} --device cpu --context 256")), "{command}");
}

#[test]
fn remedies_name_the_options_of_the_examples() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    let ask = |context| Policy { context: Some(context), ..Policy::default() };
    let refused = assess(&spec, &input, &machine("cpu-8gb"), &ask(131_072));
    let largest = refused.plan.as_ref().map(|plan| plan.max_context).expect("a plan");
    assert_eq!(remedies(&refused)[0], format!("take a smaller context: --context {largest}"));
    let (spec, input) = gguf(&PHI_3_MINI_128K, "Q4_K_M");
    let refused = remedies(&assess(&spec, &input, &machine("cpu-8gb"), &ask(8192)));
    assert!(refused.concat().contains(", for context 8192: --kv-cache f16"), "{refused:?}");
    let (spec, input) = gguf(&TINY_LLAMA, "Q4_K_M");
    let report = assess(&spec, &input, &this_machine("cpu-avx2-16gb"), &ask(100_000));
    assert_eq!(remedies(&report), ["ask for at most --context 2048"]);
    assert!(PLAIN.commands(&report)[0].ends_with(" --context 2048"), "what a remedy has mended is not asked for again");
    let gpu = Policy { device: DeviceChoice::Cuda(0), ..Policy::default() };
    let report = assess(&spec, &input, &this_machine("t4"), &gpu);
    assert_eq!(remedies(&report), ["build with --features cuda", "run it on the processor: --device cpu"]);
    assert_eq!((report.verdict, PLAIN.commands(&report).len()), (Verdict::HardwareInsufficient, 1));
    assert!(PLAIN.commands(&report)[0].ends_with(" --device cpu"));
    let text = report.to_string();
    assert!(!text.contains("--"), "the library names no option: {text}");
}

#[test]
fn colours_change_nothing_but_the_colour() {
    let (spec, input) = gguf(&LLAMA_32_1B, "Q8_0");
    let report = assess(&spec, &input, &machine("cpu-avx2-16gb"), &Policy::default());
    let (text, coloured) = (report.text(&PLAIN), report.text(&Shell { colours: true }));
    let stripped: String = coloured.split('\x1b').enumerate().fold(String::new(), |text, (index, part)| {
        text + if index == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) }
    });
    assert_eq!(stripped, text);
    assert!(coloured.len() > text.len() && !text.contains('\x1b'));
}

#[test]
fn a_path_is_one_word_of_a_shell() {
    for (path, word) in [
        ("models/a-1.5_b.gguf", "models/a-1.5_b.gguf"),
        ("my models/a.gguf", "'my models/a.gguf'"),
        ("it's", r"'it'\''s'"),
        ("$(reboot)", "'$(reboot)'"),
        ("-rf", "./-rf"),
        ("", "''"),
        ("größe", "'größe'"),
    ] {
        assert_eq!(quoted(path), word, "{path}");
    }
}

#[test]
fn programs_are_given_what_they_take_for_an_id() {
    let split = ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"];
    for (wanted, revision, files, expected) in [
        (Some("Q8_0"), None, &split as &[&str], "-hf org/name:Q8_0"),
        (Some("it's"), None, &["m-it's.gguf"], r"-hf org/name:'it'\''s'"),
        (None, None, &["m-Q8_0.gguf"], "--hf-repo org/name --hf-file m-Q8_0.gguf"),
        (Some("a b.gguf"), None, &["a b.gguf"], "--hf-repo org/name --hf-file 'a b.gguf'"),
        (
            Some("Q4_0"),
            Some("v1"),
            &["m-Q4_0.gguf"],
            r#"--model "$(hf download org/name m-Q4_0.gguf --revision v1 --quiet)""#,
        ),
        (
            None,
            Some("refs/pr/1"),
            &split,
            concat!(
                r#"--model "$(hf download org/name Q8_0/m-Q8_0-00001-of-00002.gguf "#,
                r#"Q8_0/m-Q8_0-00002-of-00002.gguf --revision refs/pr/1 --quiet)"/Q8_0/m-Q8_0-00001-of-00002.gguf"#
            ),
        ),
    ] {
        let model = hub_model("org/name", wanted, revision, files);
        assert_eq!(of_llama_cpp(&model), expected, "{model}");
    }
}

#[test]
fn pictures_are_of_every_layer_and_need_nothing_else() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    let mut report = assess(&spec, &input, &machine("cpu-avx2-16gb"), &Policy::default());
    report.input.path = "models/<script>&.gguf".into();
    let svg = svg::draw(&report).expect("a picture");
    for layer in 0..32 {
        assert!(svg.contains(&format!("<title>layer {layer}: ")), "layer {layer}");
    }
    assert!(svg.contains("models/&lt;script&gt;&amp;.gguf") && !svg.contains("<script"), "{svg}");
    assert!(svg.contains("prefers-color-scheme:dark"));
    assert_eq!(svg.matches("http").count(), 1, "only the name space");
    let bytes: u64 = report.model.iter().flat_map(|model| &model.weights).flat_map(|part| part.bytes.values()).sum();
    let stored: u64 = report.model.iter().flat_map(|model| &model.dtypes).map(|summary| summary.bytes).sum();
    assert_eq!(bytes, stored, "every tensor is in one part");
    let report = diagnose(Path::new("/no/such"), &machine("cpu-8gb"), &Policy::default());
    assert_eq!(svg::draw(&report), None);
}

#[test]
fn what_a_file_says_is_text_and_nothing_else() {
    let said = "<script>\"a\"&\u{1b}]0;x\u{7}\u{ffff}";
    assert_eq!(svg::escaped(said), "&lt;script&gt;&quot;a&quot;&amp;\\u{1b}]0;x\\u{7}\u{fffd}");
}

#[test]
fn neighbours_share_a_column_and_lose_no_byte() {
    let part = |index: usize| LayerBytes { name: format!("layer {index}"), bytes: [(DType::BF16, 1)].into() };
    let parts: Vec<LayerBytes> = (0..333).map(part).collect();
    let columns = svg::columns(&parts);
    assert_eq!((columns.len(), columns[1].name.as_str()), (111, "layer 3"));
    assert!(columns.iter().all(|column| column.bytes == [(DType::BF16, 3)].into()));
}
