use crate::build::*;
use crate::table;
use model_factory_diagnostics::error::{ArchitectureErrorKind, Error, FormatErrorKind as Kind, IncompleteKind};
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::{self, Format, ModelSource};
use model_factory_diagnostics::{Result, error};

fn probe(tree: &Tree, name: &str) -> Result<ModelSource> {
    source::probe(&tree.path(name))
}

fn model() -> Vec<u8> {
    Gguf::sample().build()
}

fn of_type(kind: &str) -> Vec<u8> {
    Gguf::empty().text("general.architecture", "llama").text("general.type", kind).tensor("t", &[8], F32).build()
}

fn clip() -> Vec<u8> {
    Gguf::empty().text("general.architecture", "clip").tensor("t", &[8], F32).build()
}

/// The names of the files of a source.
fn files(source: Result<ModelSource>) -> Vec<String> {
    let source = source.unwrap();
    source.files.iter().map(|file| file.path.file_name().unwrap().to_str().unwrap().into()).collect()
}

#[test]
fn finds_the_model_by_content_before_extension() {
    let tree = Tree::new().with("weights.bin", model()).with("odd.gguf", vectors(&["a"]));
    assert_eq!(probe(&tree, "weights.bin").unwrap().format, Format::Gguf);
    assert_eq!(probe(&tree, "odd.gguf").unwrap().format, Format::Safetensors);
    let nameless = Tree::new().with("sha256-0123", model()).with("README.md", "x");
    assert_eq!(files(probe(&nameless, "")), ["sha256-0123"]);
    let cased = Tree::new().with("MODEL.GGUF", model());
    assert_eq!(files(probe(&cased, "")), ["MODEL.GGUF"]);
}

#[test]
fn finds_the_one_model_among_other_files() {
    let safetensors = |tree: Tree| tree.with("config.json", "{}").with("model.safetensors", vectors(&["a"]));
    let cases: [(&str, Tree, &str); 11] = [
        ("one GGUF", Tree::new().with("a.gguf", model()).with("README.md", ""), "a.gguf"),
        ("a GGUF with a config", Tree::new().with("a.gguf", model()).with("config.json", "{}"), "a.gguf"),
        (
            "a GGUF and safetensors without a config",
            Tree::new().with("a.gguf", model()).with("x.safetensors", vectors(&["a"])),
            "a.gguf",
        ),
        ("a projector beside it", Tree::new().with("a.gguf", model()).with("mmproj-a-f16.gguf", clip()), "a.gguf"),
        (
            "an oddly named projector beside it",
            Tree::new().with("a.gguf", model()).with("vision.gguf", clip()),
            "a.gguf",
        ),
        (
            "an importance matrix, an adapter and a vocabulary beside it",
            Tree::new()
                .with("a.gguf", model())
                .with("i.gguf", of_type("imatrix"))
                .with("l.gguf", of_type("adapter"))
                .with("v.gguf", Gguf::empty().build()),
            "a.gguf",
        ),
        ("a draft head beside it", Tree::new().with("a.gguf", model()).with("mtp-a.gguf", model()), "a.gguf"),
        ("a hidden file beside it", Tree::new().with("a.gguf", model()).with("._a.gguf", "x"), "a.gguf"),
        (
            "pickles and folders beside it",
            safetensors(
                Tree::new()
                    .with("pytorch_model.bin", "PK\x03\x04")
                    .with("original/consolidated.00.pth", "x")
                    .with("onnx/m.onnx", "x")
                    .with("runs/a.gguf", model()),
            ),
            "model.safetensors",
        ),
        (
            "an adapter and Mistral's own file beside it",
            safetensors(
                Tree::new()
                    .with("adapter_config.json", "{}")
                    .with("adapter_model.safetensors", vectors(&["a"]))
                    .with("consolidated.safetensors", vectors(&["a"])),
            ),
            "model.safetensors",
        ),
        (
            "another name",
            Tree::new().with("config.json", "{}").with("mine.safetensors", vectors(&["a"])),
            "mine.safetensors",
        ),
    ];
    let mut failures = Failures::default();
    for (name, tree, expected) in &cases {
        match probe(tree, "") {
            Ok(source) if files(Ok(source.clone())) == [*expected] => {
                let read = Header::read(source);
                if read.is_err() {
                    failures.add(name, show(read));
                }
            }
            other => failures.add(name, show(other)),
        }
    }
    let noted = probe(&cases[9].1, "").unwrap();
    assert_eq!(noted.notes.len(), 1);
}

/// The names of the candidates; each, given back, is one model.
fn candidates(tree: &Tree, name: &str) -> Vec<String> {
    let Err(Error::Ambiguous { candidates, .. }) = probe(tree, name) else { return vec![show(probe(tree, name))] };
    for candidate in &candidates {
        source::probe(candidate).and_then(Header::read).unwrap();
    }
    candidates.iter().map(|path| path.file_name().unwrap().to_str().unwrap().into()).collect()
}

#[test]
fn lists_the_models_of_an_ambiguous_folder() {
    let split = |tree: Tree| {
        tree.with("b-00001-of-00002.gguf", Gguf::empty().part(0, 2, 1).build())
            .with("b-00002-of-00002.gguf", Gguf::empty().part(1, 2, 1).tensor("t", &[8], F32).build())
    };
    let two = split(Tree::new()).with("a.gguf", model());
    assert_eq!(candidates(&two, ""), ["a.gguf", "b-00001-of-00002.gguf"]);
    let vocabularies = Tree::new().with("a.gguf", Gguf::empty().build()).with("b.gguf", Gguf::empty().build());
    assert_eq!(candidates(&vocabularies, ""), ["a.gguf", "b.gguf"]);
    let both = Tree::new().with("a.gguf", model()).with("config.json", "{}").with("model.safetensors", vectors(&["a"]));
    assert_eq!(candidates(&both, ""), ["model.safetensors", "a.gguf"]);
    assert_eq!(files(probe(&both, "config.json")), ["model.safetensors"]);
    let shard = "model-00001-of-00001.safetensors";
    let index = index(&[("a", shard)]);
    let twice = Tree::new().with("config.json", "{}").with("model.safetensors", vectors(&["a"]));
    let twice = twice.with(shard, vectors(&["a"])).with("model.safetensors.index.json", index);
    assert_eq!(candidates(&twice, ""), ["model.safetensors.index.json", "model.safetensors"]);
    let loose = Tree::new()
        .with("config.json", "{}")
        .with("x.safetensors", vectors(&["a"]))
        .with("y.safetensors", vectors(&["a"]));
    assert_eq!(candidates(&loose, ""), ["x.safetensors", "y.safetensors"]);
    let folders = Tree::new().with("one/a.gguf", model()).with("two/b.gguf", model()).with("docs/x.txt", "");
    assert_eq!(candidates(&folders, ""), ["one", "two"]);
}

#[test]
fn names_what_is_no_model() {
    let file = |name: &str, bytes: &[u8]| probe(&Tree::new().with(name, bytes), name);
    let folder = |names: &[&str]| probe(&names.iter().fold(Tree::new(), |tree, name| tree.with(name, "x")), "");
    let zip = b"PK\x03\x04\x14\0\0\0\0\0archive/data.pkl";
    table! {
        "nothing": probe(&Tree::new(), "nowhere") => Err(Error::Io { .. }),
        "no bytes": file("a.gguf", b"") => Err(Error::Format { kind: Kind::EmptyFile, .. }),
        "no bytes of safetensors": file("a.safetensors", b"") => Err(Error::Format { kind: Kind::EmptyFile, .. }),
        "a pointer of Git LFS": file("a.gguf", b"version https://git-lfs.github.com/spec/v1\n") => Err(Error::Format { kind: Kind::UnsupportedFile { remedy, .. }, .. }) if remedy.contains("git lfs pull"),
        "a web page": file("a.gguf", b"\n<!DOCTYPE HTML>\n<html>") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "a web page of safetensors": file("a.safetensors", b"<html lang=\"en\">") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "an error in XML": file("a.gguf", b"<?xml version=\"1.0\"?><Error>") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "the server's message": file("a.gguf", b"Entry not found") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "a zip": file("pytorch_model.bin", zip) => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "a pickle": file("a.bin", b"\x80\x02}q\0X\x05\0\0\0model") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "a pickle of protocol 4": file("a.pt", b"\x80\x04\x95\x10\0\0\0\0\0\0\0}") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "ggml": file("a.bin", b"lmgg\0\0\0\0") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "ggjt": file("a.bin", b"tjgg\x03\0\0\0") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "zeros": file("a.gguf", &[0; 4096]) => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "gzip": file("a.tar.gz", b"\x1f\x8b\x08\0") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "JSON": file("tokenizer.json", b"{\"version\":\"1.0\"}") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "text": file("README.md", b"# A model\n") => Err(Error::Format { kind: Kind::Unrecognised { found }, .. }) if found == "23 20 41 20 6d 6f 64 65 (\"# A mode\"), which looks like a text file",
        "an unfinished download": file("a.gguf.incomplete", &model()) => Err(Error::Incomplete { kind: IncompleteKind::Unfinished, .. }),
        "a projector": file("a.gguf", &clip()) => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "a folder of a projector": probe(&Tree::new().with("mmproj.gguf", clip()), "") => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "type mmproj": file("a.gguf", &of_type("mmproj")) => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "type adapter": file("a.gguf", &of_type("adapter")) => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "type imatrix": file("a.gguf", &of_type("imatrix")) => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "a folder of a LoRA": folder(&["adapter_config.json", "adapter_model.safetensors"]) => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "a LoRA": file("adapter_model.safetensors", &vectors(&["a"])) => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "a LoRA's config": file("adapter_config.json", b"{}") => Err(Error::Architecture { kind: ArchitectureErrorKind::NotAModel { .. }, .. }),
        "Mistral's own layout": file("consolidated.safetensors", &vectors(&["a"])) => Err(Error::Format { kind: Kind::OtherWeights { .. }, .. }),
        "a folder in Mistral's own layout": folder(&["consolidated.safetensors", "params.json"]) => Err(Error::Format { kind: Kind::OtherWeights { .. }, .. }),
        "a folder of pickles": folder(&["config.json", "pytorch_model-00001-of-00002.bin", "tokenizer.json"]) => Err(Error::Format { kind: Kind::OtherWeights { name, .. }, .. }) if name.starts_with("pytorch_model"),
        "a folder of ONNX": folder(&["config.json", "model.onnx"]) => Err(Error::Format { kind: Kind::OtherWeights { .. }, .. }),
        "a folder of Keras": folder(&["tf_model.h5"]) => Err(Error::Format { kind: Kind::OtherWeights { .. }, .. }),
        "an empty folder": folder(&[]) => Err(Error::Format { kind: Kind::NoModel { .. }, .. }),
        "a folder of texts": folder(&["a.txt", "b.txt"]) => Err(Error::Format { kind: Kind::NoModel { found }, .. }) if found.contains("a.txt"),
        "a model one folder down": probe(&Tree::new().with("deep/a.gguf", model()), "") => Err(Error::Format { kind: Kind::NoModel { found }, .. }) if found.contains("deep"),
        "an unfinished download in a folder": folder(&["config.json", "model.safetensors.incomplete"]) => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { .. }, .. }),
        "a config alone": folder(&["config.json"]) => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { .. }, .. }),
        "a config without weights": probe(&Tree::new().with("config.json", "{}").with("a.gguf", model()), "config.json") => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { .. }, .. }),
        "weights without a config": probe(&Tree::new().with("model.safetensors", vectors(&["a"])), "").and_then(Header::read) => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { name, .. }, .. }) if name == "config.json",
        "one weight file without a config": probe(&Tree::new().with("a.safetensors", vectors(&["a"])), "a.safetensors").and_then(Header::read) => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { .. }, .. }),
        "a shard alone": probe(&Tree::new().with("config.json", "{}").with("model-00001-of-00004.safetensors", vectors(&["a"])), "") => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { why, .. }, .. }) if why.starts_with("1 of 4"),
        "a part of thousands": probe(&Tree::new().with("m-00001-of-99999.gguf", model()), "") => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { name, .. }, .. }) if name.ends_with("and 99993 more"),
        "GGUF cut off in its magic": probe(&Tree::new().with("a.gguf", "GG"), "a.gguf").and_then(Header::read) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "safetensors cut off in its length": probe(&Tree::new().with("a.safetensors", "\x40\0\0").with("config.json", "{}"), "a.safetensors").and_then(Header::read) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
    }
}

#[test]
fn messages_are_lower_case_without_full_stop_and_offer_a_move() {
    for name in ["adapter_config.json", "a.txt", "config.json", "pytorch_model.bin"] {
        let text = error::Error::to_string(&probe(&Tree::new().with(name, "x"), "").unwrap_err());
        assert!(!text.ends_with('.') && (text.contains("; ") || text.contains("expected")), "{text}");
    }
}

#[cfg(unix)]
mod links {
    use super::*;

    const HASH: &str = "0123456789abcdef";

    /// A cache as the hub's client writes it: files are links into `blobs`.
    fn cache() -> Tree {
        let snapshot = |name: &str| format!("models--org--name/snapshots/{HASH}/{name}");
        Tree::new()
            .with("models--org--name/blobs/1", "{}")
            .with("models--org--name/blobs/2", vectors(&["a"]))
            .link(&snapshot("config.json"), "../../blobs/1")
            .link(&snapshot("model.safetensors"), "../../blobs/2")
    }

    #[test]
    fn follows_the_links_of_a_hugging_face_cache() {
        let tree = cache();
        let snapshot = format!("models--org--name/snapshots/{HASH}");
        for name in ["models--org--name", &snapshot, &format!("{snapshot}/model.safetensors")] {
            let header = probe(&tree, name).and_then(Header::read).unwrap();
            assert_eq!(header.source.folder, tree.path(&snapshot));
        }
        let two = cache().with("models--org--name/snapshots/other/a.gguf", model());
        assert_eq!(candidates(&two, "models--org--name"), [HASH, "other"]);
        let main = two.with("models--org--name/refs/main", HASH);
        assert_eq!(files(probe(&main, "models--org--name")), ["model.safetensors"]);
    }

    #[test]
    fn refuses_links_that_lead_nowhere_and_files_that_are_none() {
        let dead = |name: &str| Tree::new().with("config.json", "{}").link(name, "../blobs/gone");
        let round = Tree::new().link("a.gguf", "b.gguf").link("b.gguf", "a.gguf");
        let own = Tree::new().link("down", ".").with("x.txt", "");
        let escape = Tree::new().with("config.json", "{}").with("models--a/snapshots/s/a.gguf", model());
        let escape = escape.with("models--a/refs/main", "../../..");
        let shards = |tree: Tree| tree.with("model.safetensors.index.json", index(&[("a", "x.safetensors")]));
        let socket = Tree::new();
        let _listener = std::os::unix::net::UnixListener::bind(socket.path("a.gguf")).unwrap();
        table! {
            "a dead link": probe(&dead("a.gguf"), "a.gguf") => Err(Error::Incomplete { kind: IncompleteKind::BrokenLink { .. }, .. }),
            "a dead link in a folder": probe(&dead("model.safetensors"), "") => Err(Error::Incomplete { kind: IncompleteKind::BrokenLink { .. }, .. }),
            "a dead link in an index": probe(&shards(dead("x.safetensors")), "") => Err(Error::Incomplete { kind: IncompleteKind::BrokenLink { .. }, .. }),
            "links in a circle": probe(&round, "a.gguf") => Err(Error::Incomplete { kind: IncompleteKind::BrokenLink { .. }, .. }),
            "a folder in itself": probe(&own, "") => Err(Error::Format { kind: Kind::NoModel { .. }, .. }),
            "a device": source::probe("/dev/null".as_ref()) => Err(Error::Format { kind: Kind::NotAFile, .. }),
            "a socket": probe(&socket, "a.gguf") => Err(Error::Format { kind: Kind::NotAFile, .. }),
            "a reference that climbs": probe(&escape, "models--a") => Ok(source) if source.files.len() == 1,
        }
    }
}
