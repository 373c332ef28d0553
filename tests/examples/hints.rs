//! What the examples say where something can be meant in another way.

use super::{common, example, json, model, text};
use std::path::Path;

#[test]
fn an_unknown_machine_has_the_nearest_names_and_the_list() {
    for (asked, named) in [
        ("rtx-4091", Some("rtx-4090")),
        ("rtx4090", Some("rtx-4090")),
        ("NVIDIA GeForce RTX 4090", Some("rtx-4090")),
        ("4090", Some("rtx-4090")),
        ("a100", Some("a100-40gb, a100-80gb")),
        ("h100-sxm", Some("h100")),
        ("rasberry-pi-5", Some("raspberry-pi-5")),
        ("pi5", Some("raspberry-pi-5")),
        ("M1 Max", Some("apple-m1-max-32gb")),
        ("wombat", None),
        ("", None),
    ] {
        let output = example("diagnose", &["--device", asked]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{asked}: {told}");
        assert!(told.contains("diagnose --devices lists all"), "{asked}: {told}");
        match named {
            Some(names) => assert!(told.contains("nearest names are") && told.contains(names), "{asked}: {told}"),
            None => assert!(!told.contains("nearest"), "{asked}: {told}"),
        }
    }
    // Whole names in any case are the machine.
    assert_eq!(example("diagnose", &["--device", "RTX-4090"]).status.code(), Some(0));
}

#[test]
fn a_truncated_file_says_what_is_missing_and_to_fetch_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(common::fixtures().join("demo-q4_k_m.gguf")).expect("the demo");
    let path = folder.path().join("cut.gguf");
    for (left, missing) in [(whole.len() - 1000, "1000 of 831872 bytes are missing"), (3000, "at byte 3000")] {
        std::fs::write(&path, &whole[..left]).expect("a file");
        let path = path.to_str().expect("a name");
        for (name, more) in [("diagnose", &[] as &[&str]), ("generate", &["--prompt", "x"])] {
            let output = example(name, &[&[path, "--json"], more].concat());
            assert_eq!(output.status.code(), Some(15), "{name}");
            let report = json(&output);
            let remedies = report["remedies"].as_array().expect("a list");
            let remedy = remedies.first().and_then(|remedy| remedy.as_str()).unwrap_or_default();
            assert!(remedies.len() == 1 && remedy.contains("fetch cut.gguf again"), "{name} {left}: {remedies:?}");
            assert!(remedy.contains(missing), "{name} {left}: {remedy}");
        }
        let output = example("diagnose", &[path]);
        assert!(text(&output.stdout).contains("remedies"), "{}", text(&output.stdout));
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a fixture") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a copy");
    }
}

#[test]
fn a_gguf_file_beside_folders_of_models_is_one_of_several() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a name");
    let gguf = folder.path().join("demo.gguf");
    std::fs::copy(common::fixtures().join("demo-q4_k_m.gguf"), &gguf).expect("a copy");
    // Folders that hold no model of their own change nothing.
    std::fs::create_dir_all(folder.path().join("logs")).expect("a folder");
    std::fs::create_dir_all(folder.path().join("extra")).expect("a folder");
    std::fs::write(folder.path().join("extra/scores.safetensors"), "no model").expect("a file");
    let alone = example("diagnose", &[path]);
    assert_eq!(alone.status.code(), Some(0), "{}", text(&alone.stdout));
    copy(&common::demo(), &folder.path().join("stories"));
    copy(Path::new(&model("smollm2/bf16")), &folder.path().join("smollm2"));
    let told = example("diagnose", &[path, "--json"]);
    let report = json(&told);
    assert_eq!((told.status.code(), &report["verdict"]), (Some(16), &"ambiguous_input".into()));
    let paths: Vec<&str> =
        report["input"]["candidates"].as_array().expect("a list").iter().flat_map(|p| p.as_str()).collect();
    let names: Vec<&str> =
        paths.iter().map(|path| Path::new(path).file_name().and_then(|n| n.to_str()).expect("a name")).collect();
    assert_eq!(names, ["demo.gguf", "smollm2", "stories"]);
    for path in paths {
        assert_eq!(example("diagnose", &[path]).status.code(), Some(0), "{path}");
    }
    let refused = example("generate", &[path, "--prompt", "x"]);
    assert_eq!((refused.status.code(), refused.stdout.is_empty()), (Some(16), true));
    let table = text(&example("diagnose", &[path]).stdout);
    assert!(["demo.gguf", "smollm2", "stories"].iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn a_chat_with_the_demo_is_one_story_told_in_turns() {
    for path in ["demo", "demo-q4_k_m.gguf"] {
        let path = common::fixtures().join(path).display().to_string();
        let told = |more: &[&str]| {
            let output = example("generate", &[&[path.as_str(), "--json", "--max-tokens", "20"], more].concat());
            assert!(output.status.success(), "{}", text(&output.stderr));
            json(&output)
        };
        let (chat, prompt) = (told(&["--chat", " Once upon a time\n"]), told(&["--prompt", "Once upon a time"]));
        assert_eq!((&chat["tokens"], &chat["text"]), (&prompt["tokens"], &prompt["text"]), "{path}");
        assert_eq!(chat["timings"]["prompt_tokens"], prompt["timings"]["prompt_tokens"], "BOS stands once");
        assert_eq!(chat["timings"]["cached_tokens"], 0);
        let set = told(&["--chat", "The captain", "--system", "Once upon a time"]);
        assert_eq!(set["tokens"], told(&["--prompt", "Once upon a time The captain"])["tokens"], "{path}");
    }
}
