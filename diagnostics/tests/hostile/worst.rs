//! The largest things that a file can claim, with their bytes really there: each ends within 2 GiB and 10 seconds.

use crate::build::{ARRAY, F32_VALUE, I32, TEXT, Tree, U8, array, string};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use crate::within_two_gibibytes;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

const MIB: usize = 1 << 20;

/// Writes `head`, `unit` until there are `bytes` of it, and `tail`.
fn write(path: &Path, head: &[u8], unit: &[u8], bytes: usize, tail: &[u8]) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(head).unwrap();
    let block = unit.repeat((MIB / unit.len()).max(1));
    let mut left = bytes / unit.len() * unit.len();
    while left > 0 {
        let now = left.min(block.len());
        file.write_all(&block[..now]).unwrap();
        left -= now;
    }
    file.write_all(tail).unwrap();
    file.flush().unwrap();
}

/// Lengthens a file with zeros that take no place.
fn lengthen(path: &Path, bytes: usize) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes as u64).unwrap();
}

/// A sound GGUF file but for `key`: an array of `count` elements of type `kind`, each of them `unit`.
fn gguf(tree: &Tree, key: &str, kind: u32, count: usize, unit: &[u8]) {
    let mut tiny = Gguf::fixture("tinyllama/q8_0.gguf");
    // The key comes last, so that everything before it is read.
    tiny.pairs.retain(|pair| pair.key != key);
    let (bytes, marks) = tiny.set(key, ARRAY, array(kind, count as u64, [])).marked();
    let at = |what: &str| marks.iter().find(|mark| mark.what.starts_with(what)).unwrap().at;
    let (tensors, end) = (at("the length of the name"), at("the end of the header"));
    let padding = (end + count * unit.len()).next_multiple_of(32) - (end + count * unit.len());
    let tail = [&bytes[tensors..end], &vec![0; padding], &tiny.data].concat();
    write(&tree.path("m.gguf"), &bytes[..tensors], unit, count * unit.len(), &tail);
}

#[test]
fn the_largest_claims_end_in_time_and_memory() {
    within_two_gibibytes("worst::the_largest_claims_end_in_time_and_memory", || {
        let mut table = Table::default();
        in_gguf(&mut table);
        in_safetensors(&mut table);
        in_json(&mut table);
        assert!(table.finish() >= 25);
    });
}

fn in_gguf(table: &mut Table) {
    let most = 255 * MIB;
    let text = string("</s>");
    // What is read is 1 byte an element, what it would widen to is 8.
    for (case, key, kind, unit, code, says) in [
        ("a type for each byte", "tokenizer.ggml.token_type", U8, &[1_u8][..], 15, "token_type"),
        ("a score for each byte", "tokenizer.ggml.scores", U8, &[1], 15, "scores"),
        ("a score for each 4 bytes", "tokenizer.ggml.scores", F32_VALUE, &[0; 4], 15, "scores"),
        ("a type for each 4 bytes", "tokenizer.ggml.token_type", I32, &[0; 4], 15, "token_type"),
        ("heads for each byte", "llama.attention.head_count_kv", U8, &[1], 15, "head_count_kv"),
        ("an empty token for each 8 bytes", "tokenizer.ggml.tokens", TEXT, &[0; 8], 15, "tokens"),
        ("an end of text for each 12 bytes", "tokenizer.ggml.tokens", TEXT, &text, 15, "tokens"),
    ] {
        let tree = Tree::new();
        gguf(&tree, key, kind, most / unit.len(), unit);
        table.refuses(case, &tree, "m.gguf", code, &["m.gguf", says]);
    }
    let tree = Tree::new();
    gguf(&tree, "unknown", TEXT, most / text.len(), &text);
    table.accepts("255 MiB that nobody reads", &tree, "m.gguf");
    // A vocabulary that agrees with itself: every token ends a text.
    let tree = Tree::new();
    let count = most / (text.len() + 8 + 2);
    let llama = Gguf::fixture("llama-3.1/q8_0.gguf").set(
        "tokenizer.ggml.token_type",
        ARRAY,
        array(U8, count as u64, vec![1; count]),
    );
    let llama = llama.set("tokenizer.ggml.tokens", ARRAY, array(TEXT, count as u64, text.repeat(count)));
    std::fs::write(tree.path("m.gguf"), llama.build()).unwrap();
    drop(llama);
    // Its equal texts are refused when the tokenizer is built; the plan has counted what that would take.
    table.accepts("a vocabulary of ends", &tree, "m.gguf");

    let llama = Gguf::fixture("llama-3.1/q8_0.gguf");
    for key in ["general.architecture", "tokenizer.ggml.pre", "tokenizer.chat_template"] {
        let tree = Tree::new().with("m.gguf", llama.text(key, &"\u{1}".repeat(200 * MIB)).build());
        table.refuses(&format!("200 MiB as {key}"), &tree, "m.gguf", 10, &["m.gguf", key]);
    }
    for (case, what, count) in [
        ("a million tensors of zeros", "the number of tensors", 1_u64 << 20),
        ("65536 keys of zeros", "the number of keys", 1 << 16),
    ] {
        let tree = Tree::new().with("m.gguf", llama.patched(what, count.to_le_bytes()));
        lengthen(&tree.path("m.gguf"), 1 << 40);
        table.refuses(case, &tree, "m.gguf", 10, &["m.gguf"]);
    }
}

fn in_safetensors(table: &mut Table) {
    const NAME: &str = "model.safetensors";
    let length = 99_000_000;
    let header = |table: &mut Table, case: &str, head: &str, unit: &str, tail: &str, code: u8, says: &str| {
        let tree = Files::fixture("llama-3.1/bf16").without(NAME).tree();
        let bytes = (length - head.len() - tail.len()) / unit.len() * unit.len();
        let whole = (bytes + head.len() + tail.len()) as u64;
        write(
            &tree.path(NAME),
            &[&whole.to_le_bytes(), head.as_bytes()].concat(),
            unit.as_bytes(),
            bytes,
            tail.as_bytes(),
        );
        table.refuses(case, &tree, "", code, &[says]);
    };
    header(table, "14 million texts of metadata", r#"{"__metadata__":{"#, r#""":"","#, r#""":""}}"#, 15, "missing");
    header(
        table,
        "50 million dimensions",
        r#"{"a":{"dtype":"F32","data_offsets":[0,0],"shape":["#,
        "1,",
        "1]}}",
        10,
        "dimensions",
    );
    let entry = r#""":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"#;
    header(
        table,
        "two million tensors",
        "{",
        entry,
        r#""":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
        10,
        "1048576 tensors",
    );
    header(table, "a hundred million spaces", "{", " ", "}", 15, "missing");
    header(table, "a hundred million brackets", r#"{"a":"#, "[", "", 10, "unexpected JSON");
    header(
        table,
        "a dtype of a hundred million bytes",
        r#"{"a":{"shape":[],"data_offsets":[0,0],"dtype":""#,
        "\u{7f}",
        r#""}}"#,
        12,
        "dtype",
    );
    header(
        table,
        "a name of a hundred million bytes",
        r#"{""#,
        "n",
        r#"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
        10,
        "tensor name",
    );
}

fn in_json(table: &mut Table) {
    let llama = Files::fixture("llama-3.1/bf16");
    let most = 8 * MIB - 64;
    let fill = |head: &str, unit: &str, tail: &str| {
        format!("{head}{}{tail}", unit.repeat((most - head.len() - tail.len()) / unit.len()))
    };
    let objects = fill(r#"{"a":["#, r#"{"":0},"#, "0]}");
    let all = ["config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"];
    let tree = all.iter().fold(llama.clone(), |files, name| files.with(name, &objects)).tree();
    table.refuses("a million objects in every config", &tree, "", 10, &["config.json", "values"]);
    // As many as are allowed, in every file at once.
    let objects = format!(r#"{{"a":[{}0]}}"#, r#"{"":0},"#.repeat((1 << 17) - 8));
    let tree = all.iter().fold(llama.clone(), |files, name| files.with(name, &objects)).tree();
    table.refuses("a hundred thousand objects in every config", &tree, "", 10, &["config.json", "model_type"]);
    let keys: Vec<String> = (0..200_000).map(|key| format!("\"{key:x}\":0")).collect();
    let deep = format!("{{\"{}\":{{{}}}}}", "k".repeat(4 * MIB), keys.join(","));
    table.refuses(
        "a long key around many",
        &llama.with("config.json", deep).tree(),
        "",
        10,
        &["config.json", "model_type"],
    );
    let long = fill(r#"{"model_type":""#, "x", r#""}"#);
    table.refuses("a model type of 8 MB", &llama.with("config.json", long).tree(), "", 11, &["shortened"]);

    let index = "model.safetensors.index.json";
    let tree = Files::fixture("llama-3.1/f32-sharded").tree();
    write(&tree.path(index), br#"{"weight_map":{"#, br#""":"a","#, 63 * MIB, br#""":"a"}}"#);
    table.refuses("nine million entries of an index", &tree, "", 10, &[index, "1048576 entries"]);

    let tokenizer = "tokenizer.json";
    let in_tokenizer = |table: &mut Table, case: &str, head: &str, unit: &str, tail: &str, code: u8, says: &str| {
        let tree = llama.tree();
        write(&tree.path(tokenizer), head.as_bytes(), unit.as_bytes(), 255 * MIB, tail.as_bytes());
        table.refuses(case, &tree, "", code, &[tokenizer, says]);
    };
    in_tokenizer(
        table,
        "36 million objects in a post-processor",
        r#"{"post_processor":["#,
        r#"{"":0},"#,
        "0]}",
        10,
        "values",
    );
    let end = r#"{"id":1,"content":"</s>"},"#;
    let tail = r#"{"id":1,"content":"</s>"}],"model":{"type":"BPE","vocab":{"a":0}}}"#;
    let tree = llama.tree();
    write(&tree.path(tokenizer), br#"{"added_tokens":["#, end.as_bytes(), 255 * MIB, tail.as_bytes());
    table.accepts("ten million added tokens", &tree, "");
    in_tokenizer(
        table,
        "a vocabulary with one id",
        r#"{"model":{"type":"BPE","vocab":{"#,
        r#""a":7,"#,
        r#""b":7}}}"#,
        10,
        "twice",
    );
}
