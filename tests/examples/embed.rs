//! What `embed` writes.

use super::{example, model, text};

#[test]
fn embed_writes_a_vector_for_each_line_and_says_what_no_file_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let (lines, out) = (folder.path().join("lines.txt"), folder.path().join("vectors.safetensors"));
    std::fs::write(&lines, "The cat sat.\n日本\nThe cat sat.\n").expect("a file");
    let [lines, out] = [&lines, &out].map(|path| path.display().to_string());
    let output = example("embed", &["--file", &lines, "--out", &out]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let bytes = std::fs::read(&out).expect("it was written");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid safetensors");
    let vectors = tensors.tensor("embeddings").expect("the name of the contract");
    assert_eq!((vectors.dtype(), vectors.shape()), (safetensors::Dtype::F32, [3, 16].as_slice()));
    assert_eq!(vectors.data()[..64], vectors.data()[128..], "a text has one vector");

    let printed = text(&example("embed", &["--text", "the cat", "--text", "the mat"]).stdout);
    assert!(printed.starts_with("1.0000  the cat\n") && printed.ends_with("  the mat\n"), "{printed}");

    let decoder = model("qwen3/f32");
    let unsaid = example("embed", &[&decoder, "--text", "x"]);
    assert!(unsaid.status.code() == Some(2) && text(&unsaid.stderr).contains("1_Pooling/config.json"));
    assert!(example("embed", &[&decoder, "--text", "x", "--pooling", "last"]).status.success());
    let generated = example("generate", &[&common_bert(), "--prompt", "x"]);
    assert!(generated.status.code() == Some(10) && text(&generated.stderr).contains("Model::embed"));
}

fn common_bert() -> String {
    super::common::fixtures().join("embeddings/bert").display().to_string()
}

#[test]
fn a_classification_head_ranks_lines_and_labels_a_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lines.txt");
    std::fs::write(&file, "The cat sat on the mat.\nrunning\n").expect("a file");
    let path = file.to_str().expect("UTF-8");
    let (ranks, labels) = ("fixtures/embeddings/cross-encoder", "fixtures/embeddings/labels");
    let printed = text(&example("search", &[ranks, "--file", path, "--ask", "the cat"]).stdout);
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(printed.contains("0.3417  The cat sat on the mat."), "the score of transformers: {printed}");
    let printed = text(&example("classify", &[labels, "--text", "The cat sat on the mat."]).stdout);
    assert!(printed.lines().count() == 3 && printed.contains("entailment"), "{printed}");
    let printed = text(&example("diagnose", &[labels]).stdout);
    assert!(printed.contains("--example classify -- fixtures/embeddings/labels --text"), "{printed}");
    let printed = text(&example("diagnose", &[ranks]).stdout);
    assert!(printed.contains("--example search -- fixtures/embeddings/cross-encoder --file FILE"), "{printed}");
    let printed = text(&example("diagnose", &["fixtures/embeddings/bert"]).stdout);
    assert!(printed.contains("--example embed -- fixtures/embeddings/bert --text"), "{printed}");
}

/// An adapter that changes every linear layer of an encoder.
#[test]
fn embed_and_classify_take_adapters() {
    let labels = super::common::fixtures().join("embeddings/labels");
    let folder = tempfile::tempdir().expect("a folder");
    super::common::adapters::write(&super::common::load(&labels), 2, folder.path(), |_| true);
    let (labels, lora) = (labels.display().to_string(), folder.path().display().to_string());
    for (name, options) in [
        ("embed", &["--pooling", "mean", "--text", "the cat", "--text", "the mat on the mat"][..]),
        ("classify", &["--text", "the cat"]),
        ("classify", &["--text", "the cat", "--labels", "a,b"]),
    ] {
        let print = |lora: &[&str]| {
            let arguments: Vec<&str> = [labels.as_str()].iter().chain(options).chain(lora).copied().collect();
            example(name, &arguments)
        };
        let (plain, tuned) = (print(&[]), print(&["--lora", &lora]));
        if options.len() > 2 && name == "classify" {
            // The model has no output head.
            assert!(!plain.status.success() && !tuned.status.success());
            continue;
        }
        assert!(plain.status.success() && tuned.status.success(), "{name}: {}", text(&tuned.stderr));
        assert_ne!(plain.stdout, tuned.stdout, "{name}");
        assert_eq!(print(&["--lora", &format!("{lora}:0")]).stdout, plain.stdout, "{name}");
        assert_eq!(print(&["--lora", &format!("{lora}:nan")]).status.code(), Some(2), "{name}");
        assert_eq!(print(&["--lora", &labels]).status.code(), Some(15), "{name}: a model is no adapter");
    }
}

/// Labels and texts of a file may hold anything: a terminal only shows them, one line each.
#[test]
fn strings_of_files_are_printed_without_what_acts_on_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let labels = super::common::fixtures().join("embeddings/labels");
    for file in std::fs::read_dir(labels).expect("a fixture").map(|file| file.expect("an entry")) {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("copied");
    }
    let config = folder.path().join("config.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).expect("read")).expect("JSON");
    for (index, name) in ["entail\u{1b}[2Jment", "neutral\n1.000  forged", "back\u{202e}wards"].iter().enumerate() {
        json["id2label"][index.to_string()] = (*name).into();
    }
    json["label2id"] = serde_json::Value::Null;
    std::fs::write(&config, json.to_string()).expect("written");
    let path = folder.path().to_str().expect("UTF-8");
    let output = example("classify", &[path, "--text", "The cat sat on the mat."]);
    let printed = text(&output.stdout);
    assert!(output.status.success() && printed.lines().count() == 3, "{printed:?} {}", text(&output.stderr));
    for shown in ["entail\\u{1b}[2Jment", "neutral\\u{a}1.000  forged", "back\\u{202e}wards"] {
        assert!(printed.contains(shown), "{printed:?}");
    }
    let file = folder.path().join("lines.txt");
    std::fs::write(&file, "the cat\n\u{1b}[31mthe mat\n").expect("a file");
    let file = file.to_str().expect("UTF-8");
    for (name, arguments) in [("search", &["--file", file, "--ask", "the mat"][..]), ("embed", &["--file", file])] {
        let printed = text(&example(name, arguments).stdout);
        assert!(printed.contains("  \\u{1b}[31mthe mat\n") && printed.lines().count() == 2, "{name}: {printed:?}");
    }
}

#[test]
fn search_prints_the_nearest_lines_first() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "the cat\n\nthe mat\nthe cat sat\n").expect("it is written");
    let path = file.path().to_str().expect("UTF-8");
    let output = example("search", &["--file", path, "--ask", "the mat", "--top", "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = text(&output.stdout);
    assert!(found.starts_with("1.0000  the mat\n") && found.lines().count() == 2, "{found}");
    assert_eq!(example("search", &["--file", "no such file", "--ask", "x"]).status.code(), Some(1));
}
