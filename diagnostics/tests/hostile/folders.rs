//! What lies at a path in place of a model, stale indexes, and links.

use crate::build::{Tree, index};
use crate::edit::{Files, content};
use crate::table::Table;
use serde_json::{Map, Value, json};

const INDEX: &str = "model.safetensors.index.json";

pub fn cases(table: &mut Table) {
    strangers(table);
    folders(table);
    shards(table);
    stale(table);
    escapes(table);
    #[cfg(unix)]
    links(table);
}

/// Files of other kinds under the names of models.
fn strangers(table: &mut Table) {
    let page = b"<!DOCTYPE html><html><body>Sign in</body></html>".to_vec();
    let cases: [(&str, Vec<u8>, &str); 16] = [
        ("an empty file", Vec::new(), "empty"),
        (
            "a pointer of Git LFS",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n".to_vec(),
            "Git LFS",
        ),
        ("a web page", page, "web page"),
        ("a zip archive", b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "zip"),
        ("a pickle", b"\x80\x02}q\0(X\x05\0\0\0".to_vec(), "pickle"),
        ("a gzip archive", b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "gzip"),
        ("a Zstandard archive", b"\x28\xb5\x2f\xfd\0\0\0\0\0\0\0\0".to_vec(), "Zstandard"),
        ("an HDF5 file", b"\x89HDF\r\n\x1a\n\0\0\0\0\0\0\0\0".to_vec(), "HDF5"),
        ("a NumPy array", b"\x93NUMPY\x01\0v\0{'descr'".to_vec(), "NumPy"),
        ("an old GGML file", b"lmgg\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "GGML"),
        ("a GGJT file", b"tjgg\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "GGML"),
        ("zeros", vec![0; 4096], "zeros"),
        ("a program", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(), "7f 45 4c 46"),
        ("random bytes", b"\xde\xad\xbe\xef\xde\xad\xbe\xef\xde\xad\xbe\xef".to_vec(), "de ad be ef"),
        ("the server's message", b"Entry not found".to_vec(), "no such file"),
        ("JSON in place of weights", b"{\"error\":\"gated\"}".to_vec(), "JSON"),
    ];
    for (what, bytes, says) in &cases {
        for name in ["m.gguf", "model.safetensors"] {
            let tree = Tree::new().with(name, bytes).with("config.json", "{}");
            table.refuses(&format!("{what} as {name}"), &tree, name, 10, &[name, says]);
        }
        let folder = Files::fixture("llama-3.1/bf16").with("model.safetensors", bytes);
        table.refuses(&format!("{what} as weights in a folder"), &folder.tree(), "", 10, &["model.safetensors", says]);
    }
    table.refuses("a part of the magic", &Tree::new().with("m.gguf", "GGU"), "m.gguf", 15, &["m.gguf", "magic"]);
}

fn folders(table: &mut Table) {
    let llama = Files::fixture("llama-3.1/bf16");
    let gguf = content("llama-3.1/q8_0.gguf");
    let weights = llama.get("model.safetensors");
    table.refuses("a path that is not there", &Tree::new(), "nothing.gguf", 1, &["nothing.gguf"]);
    table.refuses("an empty folder", &Tree::new(), "", 10, &["empty"]);
    table.refuses(
        "a folder of texts",
        &Tree::new().with("README.md", "x").with("LICENSE", "x"),
        "",
        10,
        &["README.md"],
    );
    table.refuses("a folder of folders", &Tree::new().with("a/b/c.txt", "x"), "", 10, &["no model"]);
    table.refuses("the model is one folder deeper", &Tree::new().with("sub/m.gguf", &gguf), "", 10, &["sub"]);
    table.refuses(
        "pickles alone",
        &llama.renamed("model.safetensors", "pytorch_model.bin").tree(),
        "",
        10,
        &["pytorch_model.bin"],
    );
    table.refuses("ONNX alone", &llama.renamed("model.safetensors", "model.onnx").tree(), "", 10, &["model.onnx"]);
    let mistral = llama.renamed("model.safetensors", "consolidated.safetensors");
    table.refuses("Mistral's own layout", &mistral.tree(), "", 10, &["consolidated.safetensors"]);
    table.refuses("no weights", &llama.without("model.safetensors").tree(), "", 15, &["model.safetensors", "missing"]);
    for end in ["incomplete", "part", "crdownload", "aria2"] {
        let name = format!("model.safetensors.{end}");
        let files = llama.renamed("model.safetensors", &name);
        table.refuses(&format!("an unfinished download ({end})"), &files.tree(), "", 15, &[&name]);
        table.refuses(&format!("an unfinished download itself ({end})"), &files.tree(), &name, 15, &[&name]);
    }
    let two = Tree::new().with("a.gguf", &gguf).with("b.gguf", &gguf);
    table.refuses("two models", &two, "", 16, &["2 models"]);
    table.refuses("two formats", &llama.with("m.gguf", &gguf).tree(), "", 16, &["2 models"]);
    let deeper = Tree::new().with("a/m.gguf", &gguf).with("b/m.gguf", &gguf);
    table.refuses("two folders with models", &deeper, "", 16, &["2 models"]);
    let adapter = Tree::new().with("adapter_config.json", "{}").with("adapter_model.safetensors", weights);
    table.refuses("an adapter's folder", &adapter, "", 11, &["LoRA"]);
    table.refuses("an adapter's weights", &adapter, "adapter_model.safetensors", 11, &["LoRA"]);
    table.refuses("an adapter's config", &adapter, "adapter_config.json", 11, &["LoRA"]);
    table.refuses(
        "weights without a config",
        &Tree::new().with("model.safetensors", weights),
        "",
        15,
        &["config.json"],
    );
    table.refuses("a text", &Tree::new().with("notes.txt", "hello"), "notes.txt", 10, &["notes.txt"]);
    table.refuses("the tokenizer's file", &llama.tree(), "tokenizer.json", 10, &["tokenizer.json"]);
    table.refuses(
        "a folder as weights",
        &llama.without("model.safetensors").with("model.safetensors/x", "x").tree(),
        "",
        15,
        &["model.safetensors"],
    );
    table.refuses(
        "a folder as config",
        &llama.without("config.json").with("config.json/x", "x").tree(),
        "",
        10,
        &["config.json"],
    );
    table.refuses(
        "a folder as tokenizer",
        &llama.without("tokenizer.json").with("tokenizer.json/x", "x").tree(),
        "",
        10,
        &["tokenizer.json"],
    );
    let cache = Tree::new().with("models--o--n/refs/main", "abc").with("models--o--n/snapshots/.keep", "");
    table.refuses("a cache without a snapshot", &cache, "models--o--n", 15, &["snapshot"]);
}

fn shard(number: usize) -> String {
    format!("model-{number:05}-of-00003.safetensors")
}

fn shards(table: &mut Table) {
    let sharded = Files::fixture("llama-3.1/f32-sharded");
    table.accepts("a sharded model", &sharded.tree(), "");
    let without_index = sharded.without(INDEX);
    table.accepts("a sharded model without an index", &without_index.tree(), "");
    for number in 1..=3 {
        let name = shard(number);
        for (how, files) in [("with", &sharded), ("without", &without_index)] {
            let gone = files.without(&name).tree();
            table.refuses(&format!("shard {number} missing {how} an index"), &gone, "", 15, &[&name, "missing"]);
            let empty = files.with(&name, "").tree();
            table.refuses(&format!("shard {number} empty {how} an index"), &empty, "", 10, &[&name, "empty"]);
            let cut = files.cut(&name, files.get(&name).len() - 1).tree();
            table.refuses(&format!("shard {number} cut off {how} an index"), &cut, "", 15, &[&name]);
        }
    }
    let gone = sharded.without(&shard(3)).with(&format!("{}.incomplete", shard(3)), "x");
    table.refuses("a shard that is being downloaded", &gone.tree(), "", 15, &[&shard(3), "unfinished"]);
    let twice = without_index.with(&shard(3), sharded.get(&shard(2)));
    table.refuses("a shard twice without an index", &twice.tree(), "", 15, &[&shard(2), &shard(3), "holds tensor"]);
    let twin = without_index.with("model-2-of-00003.safetensors", sharded.get(&shard(2)));
    table.refuses("a shard under two names", &twin.tree(), "", 15, &["part 2"]);
    let renumbered = without_index.renamed(&shard(3), "model-00003-of-00004.safetensors");
    table.refuses("a shard of another count", &renumbered.tree(), &shard(1), 15, &[&shard(3), "missing"]);
    let stranger = sharded.with(&shard(2), "<html></html>");
    table.refuses("a web page as a shard", &stranger.tree(), "", 10, &[&shard(2), "web page"]);
}

/// The sharded model with its index's map changed.
fn remapped(change: impl FnOnce(&mut Map<String, Value>)) -> Files {
    let sharded = Files::fixture("llama-3.1/f32-sharded");
    sharded.json(INDEX, |index| change(index["weight_map"].as_object_mut().unwrap()))
}

fn stale(table: &mut Table) {
    let tensor = "model.norm.weight";
    let mut case = |case: &str, files: &Files, code: u8, says: &[&str]| {
        table.refuses(case, &files.tree(), "", code, &[&[INDEX], says].concat());
    };
    let moved = |to: &'static str| remapped(|map| drop(map.insert(tensor.into(), json!(to))));
    case("an index that names the wrong shard", &moved("model-00001-of-00003.safetensors"), 15, &[tensor]);
    case(
        "an index that names a missing shard",
        &moved("model-00009-of-00009.safetensors"),
        15,
        &["model-00009-of-00009.safetensors"],
    );
    let more = remapped(|map| drop(map.insert("model.layers.9.mlp.up_proj.weight".into(), json!(shard(1)))));
    case("an index with a tensor that no shard holds", &more, 15, &["model.layers.9.mlp.up_proj.weight"]);
    let swapped = remapped(|map| {
        for value in map.values_mut() {
            *value = json!(if *value == shard(1) { shard(2) } else { shard(1) });
        }
    });
    case("an index with two shards swapped", &swapped, 15, &[shard(1).as_str()]);
    let sharded = Files::fixture("llama-3.1/f32-sharded");
    let exchanged = sharded.with(&shard(1), sharded.get(&shard(2))).with(&shard(2), sharded.get(&shard(1)));
    case("two shards swapped", &exchanged, 15, &["places tensor"]);
    let other = sharded.with(INDEX, index(&[("transformer.h.0.weight", &shard(1))]));
    case("the index of another model", &other, 15, &["transformer.h.0.weight"]);
    let copy = sharded.with(&shard(3), sharded.get(&shard(2)));
    case("a shard overwritten by another", &copy, 15, &[shard(3).as_str()]);
    case("an empty index", &sharded.with(INDEX, ""), 10, &["unexpected JSON"]);
    case("an index cut off", &sharded.cut(INDEX, sharded.get(INDEX).len() / 2), 10, &["unexpected JSON"]);
    case(
        "an index that is a pointer of Git LFS",
        &sharded.with(INDEX, "version https://git-lfs.github.com/spec/v1\n"),
        10,
        &["Git LFS"],
    );
    case("an index without a map", &sharded.with(INDEX, r#"{"metadata":{}}"#), 10, &["weight_map"]);
    case("an index with an empty map", &remapped(Map::clear), 10, &["weight_map"]);
    case("an index with a list as map", &sharded.with(INDEX, r#"{"weight_map":[]}"#), 10, &["unexpected JSON"]);
    case("an index with numbers as shards", &remapped(|map| drop(map.insert(tensor.into(), json!(1)))), 10, &[tensor]);
    let twice = format!(r#"{{"weight_map":{{"{tensor}":"{0}","{tensor}":"{0}"}}}}"#, shard(1));
    case("an index with a tensor twice", &sharded.with(INDEX, twice), 10, &[tensor, "twice"]);
    case(
        "an index with a map twice",
        &sharded.with(INDEX, r#"{"weight_map":{},"weight_map":{}}"#),
        10,
        &["weight_map"],
    );
    let config = moved("config.json").tree();
    table.refuses("an index that names the config as a shard", &config, "", 10, &["config.json", "a JSON file"]);
}

/// Names in an index that lead out of its folder.
fn escapes(table: &mut Table) {
    let outside = content("llama-3.1/f32-sharded/model-00001-of-00003.safetensors");
    let names = [
        "../model.safetensors",
        "../../etc/passwd",
        "sub/model.safetensors",
        "/etc/passwd",
        "./model.safetensors",
        "..",
        ".",
        "",
        "..\\model.safetensors",
        "\\\\server\\share\\model.safetensors",
        "C:\\model.safetensors",
        "C:model.safetensors",
        "model.safetensors\0.txt",
        "model\n.safetensors",
    ];
    for name in names {
        let files = remapped(|map| drop(map.insert("model.norm.weight".into(), json!(name))));
        let tree = files.0.iter().fold(Tree::new(), |tree, (name, bytes)| tree.with(&format!("m/{name}"), bytes));
        let tree = tree.with("model.safetensors", &outside).with("m/sub/model.safetensors", &outside);
        table.refuses(&format!("an index with {name:?}"), &tree, "m", 10, &[INDEX, "weight_map.model.norm.weight"]);
    }
}

#[cfg(unix)]
fn links(table: &mut Table) {
    let llama = Files::fixture("llama-3.1/bf16");
    let gguf = content("llama-3.1/q8_0.gguf");
    // Links are followed wherever they lead: download caches are made of them.
    let outside = Tree::new().with("blobs/1", llama.get("model.safetensors"));
    let outside = llama
        .without("model.safetensors")
        .0
        .iter()
        .fold(outside, |tree, (name, bytes)| tree.with(&format!("m/{name}"), bytes));
    table.accepts("a link to outside", &outside.link("m/model.safetensors", "../blobs/1"), "m");
    let linked = |name: &str, target: &str| llama.without(name).tree().link(name, target);
    for name in
        ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json", "tokenizer_config.json"]
    {
        table.refuses(&format!("a broken link as {name}"), &linked(name, "../blobs/gone"), "", 15, &[name, "nowhere"]);
        table.refuses(&format!("a link to itself as {name}"), &linked(name, name), "", 15, &[name, "nowhere"]);
        table.refuses(&format!("a device as {name}"), &linked(name, "/dev/zero"), "", 10, &[name]);
    }
    table.refuses("a broken link", &Tree::new().link("m.gguf", "gone"), "m.gguf", 15, &["m.gguf", "nowhere"]);
    table.refuses("a broken link in a folder", &Tree::new().link("m.gguf", "gone"), "", 15, &["m.gguf", "nowhere"]);
    let round = Tree::new().link("a.gguf", "b.gguf").link("b.gguf", "a.gguf");
    table.refuses("links in a circle", &round, "a.gguf", 15, &["a.gguf", "nowhere"]);
    table.refuses("a folder that links to itself", &Tree::new().link("m", "m"), "m", 15, &["nowhere"]);
    table.refuses("a folder within itself", &Tree::new().link("m", ".").with("x.txt", "x"), "", 10, &["no model"]);
    let index = Tree::new().with("config.json", "{}").link(INDEX, "gone");
    table.refuses("a broken link as index", &index, "", 15, &[INDEX, "nowhere"]);
    let sharded = Files::fixture("llama-3.1/f32-sharded");
    let broken = sharded.without(&shard(2)).tree().link(&shard(2), "../blobs/2");
    table.refuses("a broken link as a shard", &broken, "", 15, &[&shard(2), "nowhere"]);
    let part = "llama-256-q8_0-00002-of-00003.gguf";
    let broken = Files::fixture("llama-256/split").without(part).tree().link(part, "gone");
    table.refuses("a broken link as a part", &broken, "", 15, &[part, "nowhere"]);
    let twins = Tree::new().with("a.gguf", &gguf).link("b.gguf", "a.gguf");
    table.refuses("a model and a link to it", &twins, "", 16, &["2 models"]);
    let socket = Tree::new();
    let _listener = std::os::unix::net::UnixListener::bind(socket.path("m.gguf")).unwrap();
    table.refuses("a socket", &socket, "m.gguf", 10, &["m.gguf"]);
}
