use crate::build::*;
use crate::table;
use model_factory_diagnostics::error::{Error, FormatErrorKind as Kind, IncompleteKind};
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::header::safetensors::SafetensorsFile;
use model_factory_diagnostics::{DType, Result, source};
use std::path::Path;

fn parse(bytes: Vec<u8>) -> Result<SafetensorsFile> {
    SafetensorsFile::parse(Path::new("x.safetensors"), 0, bytes.len() as u64, bytes.as_slice())
}

/// A file whose one tensor `t` has this dtype, shape and range.
fn one(dtype: &str, shape: &str, begin: u64, end: u64, data: usize) -> Result<SafetensorsFile> {
    let entry = format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#);
    parse(safetensors(&entry, data))
}

/// A file of F32 vectors with these names and ranges.
fn ranges(tensors: &[(&str, u64, u64)], data: usize) -> Result<SafetensorsFile> {
    let entries = tensors.iter().map(|(name, begin, end)| {
        let elements = (end - begin) / 4;
        format!(r#""{name}":{{"dtype":"F32","shape":[{elements}],"data_offsets":[{begin},{end}]}}"#)
    });
    parse(safetensors(&format!("{{{}}}", entries.collect::<Vec<_>>().join(",")), data))
}

#[test]
fn locates_tensors() {
    let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[16,16]}}   "#;
    let file = parse(safetensors(header, 16)).unwrap();
    let (a, b, e) = (&file.tensors["a"], &file.tensors["b"], &file.tensors["e"]);
    let data = 8 + header.len() as u64;
    assert_eq!((a.offset, a.bytes, a.shape.len()), (data, 4, 0));
    assert_eq!((b.offset, b.bytes, b.shape.as_slice(), b.dtype), (data + 4, 12, [2, 3].as_slice(), DType::BF16));
    assert_eq!((e.offset, e.bytes), (data + 16, 0));
    assert!(parse(safetensors("{}", 0)).unwrap().tensors.is_empty());
    assert!(one("F4", "[3,2]", 0, 3, 3).is_ok());
    assert!(one("F6_E2M3", "[4]", 0, 3, 3).is_ok());
    // A header of 0x0280 bytes begins like a pickle.
    let padded = format!("{:0640}", "").replace('0', " ");
    assert!(parse(safetensors(&format!("{{}}{}", &padded[2..]), 0)).is_ok());
}

#[test]
fn refuses_malformed_files_by_name() {
    let text = |header: &str, data| parse(safetensors(header, data));
    let raw = |length: u64, rest: &[u8]| parse([&length.to_le_bytes(), rest].concat());
    let twice = r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    table! {
        "no bytes": parse(Vec::new()) => Err(Error::Format { kind: Kind::EmptyFile, .. }),
        "seven bytes": parse(vec![2, 0, 0, 0, 0, 0, 0]) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "a length alone": raw(100, b"") => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "a header cut off": raw(100, b"{\"a\":") => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "a header over the cap": raw(100_000_001, b"{}") => Err(Error::Format { kind: Kind::TooMany { found: 100_000_001, .. }, .. }),
        "a header of 2^64 - 1": raw(u64::MAX, b"{}") => Err(Error::Format { kind: Kind::TooMany { .. }, .. }),
        "no header": raw(0, b"") => Err(Error::Format { .. }),
        "no object": text("[]", 0) => Err(Error::Format { .. }),
        "no JSON": text("{\"a\"}", 0) => Err(Error::Format { kind: Kind::Json { .. }, offset: Some(12), .. }),
        "bytes after the object": text("{}x", 0) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "no UTF-8": raw(7, b"{\"\xff\":1}") => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "nested without end": text(&format!("{{\"a\":{}", "[".repeat(100_000)), 0) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a tensor that is a number": text(r#"{"t":1}"#, 0) => Err(Error::Format { kind: Kind::Json { message }, .. }) if message.starts_with("t: "),
        "no dtype": text(r#"{"t":{"shape":[1],"data_offsets":[0,4]}}"#, 4) => Err(Error::Format { kind: Kind::Json { message }, .. }) if message.contains("dtype"),
        "no shape": text(r#"{"t":{"dtype":"F32","data_offsets":[0,4]}}"#, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "no offsets": text(r#"{"t":{"dtype":"F32","shape":[1]}}"#, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "one offset": text(r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}}"#, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "three offsets": text(r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}"#, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a negative dimension": one("F32", "[-1]", 0, 4, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "half a dimension": one("F32", "[1.5]", 0, 4, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a dimension over 2^64": one("F32", "[18446744073709551616]", 0, 4, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a dtype twice": text(r#"{"t":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}}"#, 4) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "metadata of numbers": text(r#"{"__metadata__":{"a":1}}"#, 0) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "metadata that is a string": text(r#"{"__metadata__":"pt"}"#, 0) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a tensor twice": text(twice, 8) => Err(Error::Format { kind: Kind::DuplicateTensor { name }, .. }) if name == "t",
        "an unknown dtype": one("F8_NEW", "[4]", 0, 4, 4) => Err(Error::Quantization { scheme, why, .. }) if scheme.contains("F8_NEW") && why.contains("tensor t "),
        "overflowing dimensions": one("F32", "[4294967296,4294967296]", 0, 4, 4) => Err(Error::Format { kind: Kind::TensorSize { .. }, .. }),
        "half a byte": one("F4", "[3]", 0, 2, 2) => Err(Error::Format { kind: Kind::TensorSize { .. }, .. }),
        "too many dimensions": one("F32", &format!("[{}1]", "1,".repeat(64)), 0, 4, 4) => Err(Error::Format { kind: Kind::Dimensions { .. }, .. }),
        "a range too short": one("F32", "[4]", 0, 12, 12) => Err(Error::Format { kind: Kind::TensorRange { expected: 16, .. }, .. }),
        "a range turned round": one("F32", "[4]", 16, 0, 16) => Err(Error::Format { kind: Kind::TensorRange { .. }, .. }),
        "a range near 2^64": one("F32", "[4]", u64::MAX - 16, u64::MAX, 16) => Err(Error::Format { .. }),
        "a gap at the start": one("F32", "[1]", 4, 8, 8) => Err(Error::Format { kind: Kind::TensorOffset { found: 4, expected: 0, .. }, .. }),
        "a gap between": ranges(&[("a", 0, 4), ("b", 8, 12)], 12) => Err(Error::Format { kind: Kind::TensorOffset { found: 8, expected: 4, .. }, .. }),
        "an overlap": ranges(&[("a", 0, 8), ("b", 4, 12)], 12) => Err(Error::Format { kind: Kind::TensorOffset { .. }, .. }),
        "the same range": ranges(&[("a", 0, 8), ("b", 0, 8)], 8) => Err(Error::Format { kind: Kind::TensorOffset { .. }, .. }),
        "bytes at the end": ranges(&[("a", 0, 8)], 9) => Err(Error::Format { kind: Kind::TrailingBytes { bytes: 1 }, .. }),
        "data cut off": ranges(&[("a", 0, 8), ("b", 8, 16)], 12) => Err(Error::Incomplete { kind: IncompleteKind::DataTruncated { name, .. }, .. }) if name == "b",
        "no data": ranges(&[("a", 0, 8)], 0) => Err(Error::Incomplete { kind: IncompleteKind::DataTruncated { .. }, .. }),
        "a pointer of Git LFS": parse(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".into()) => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
    }
}

fn sharded() -> Tree {
    Tree::new()
        .with("config.json", "{}")
        .with("model-00001-of-00002.safetensors", vectors(&["a", "b"]))
        .with("model-00002-of-00002.safetensors", vectors(&["c"]))
}

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn read(tree: &Tree, name: &str) -> Result<Header> {
    source::probe(&tree.path(name)).and_then(Header::read)
}

#[test]
fn joins_shards_with_and_without_an_index() {
    let without = sharded();
    let with = sharded().with(INDEX, index(&[("a", ONE), ("b", ONE), ("c", TWO)]));
    for tree in [&without, &with] {
        for name in ["", "config.json", ONE, TWO] {
            let header = read(tree, name).unwrap();
            assert_eq!(header.tensors.values().map(|tensor| tensor.file).collect::<Vec<_>>(), [0, 0, 1]);
            assert!(header.warnings.is_empty(), "{:?}", header.warnings);
        }
    }
    assert_eq!(read(&with, INDEX).unwrap().tensors.len(), 3);
    let odd = Tree::new()
        .with("config.json", "{}")
        .with("model-00001-of-000002.safetensors", vectors(&["a"]))
        .with("model-00002-of-000002.safetensors", vectors(&["b"]));
    assert_eq!(read(&odd, "").unwrap().tensors.len(), 2);
}

#[test]
fn audits_the_index_against_the_shards() {
    let indexed = |pairs: &[(&str, &str)]| read(&sharded().with(INDEX, index(pairs)), "");
    let stray = sharded().with(INDEX, index(&[("a", ONE), ("b", ONE)])).with("old-4bit.safetensors", vectors(&["z"]));
    let header = read(&stray, "").unwrap();
    assert_eq!(header.tensors.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(header.warnings.len(), 1, "{:?}", header.warnings);

    let unlisted = indexed(&[("a", ONE), ("c", TWO)]).unwrap();
    assert_eq!((unlisted.tensors.len(), unlisted.warnings.len()), (3, 1));

    let doubled = Tree::new().with("config.json", "{}").with(ONE, vectors(&["a"])).with(TWO, vectors(&["a", "c"]));
    let header = read(&doubled.with(INDEX, index(&[("a", TWO), ("c", TWO)])), TWO).unwrap();
    assert_eq!((header.tensors["a"].file, header.tensors.len()), (0, 2));

    let missing = "model-00003-of-00003.safetensors";
    let both = Tree::new().with("config.json", "{}").with(ONE, vectors(&["a", "c"])).with(TWO, vectors(&["c"]));
    let lfs = sharded()
        .with(TWO, "version https://git-lfs.github.com/spec/v1\n")
        .with(INDEX, index(&[("a", ONE), ("c", TWO)]));
    table! {
        "a missing shard": indexed(&[("a", ONE), ("c", missing)]) => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { name, .. }, .. }) if name == missing,
        "a missing tensor": indexed(&[("a", ONE), ("x", TWO)]) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { one, other }, .. }) if one.contains("tensor x") && other.starts_with("no shard"),
        "a tensor elsewhere": indexed(&[("a", TWO), ("c", TWO), ("b", ONE)]) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { other, .. }, .. }) if other.starts_with(ONE),
        "a shard the index does not name": read(&sharded().with(INDEX, index(&[("a", ONE)])), TWO) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
        "a pointer in a shard's place": read(&lfs, "") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
        "a tensor in two shards without an index": read(&both, "") => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
        "a path upwards": indexed(&[("a", "../x.safetensors")]) => Err(Error::Format { kind: Kind::KeyValue { key, .. }, .. }) if key == "weight_map.a",
        "an absolute path": indexed(&[("a", "/etc/passwd")]) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a path on a drive": indexed(&[("a", "C:x")]) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a path with a backslash": indexed(&[("a", "..\\\\x")]) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "the folder itself": indexed(&[("a", ".")]) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "an empty name": indexed(&[("a", "")]) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "an empty map": indexed(&[]) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a tensor twice": indexed(&[("a", ONE), ("a", TWO)]) => Err(Error::Format { kind: Kind::DuplicateKey { key }, .. }) if key == "weight_map.a",
        "no map": read(&sharded().with(INDEX, "{}"), "") => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "no JSON": read(&sharded().with(INDEX, "{"), ONE) => Err(Error::Format { kind: Kind::Json { .. }, .. }),
        "a web page": read(&sharded().with(INDEX, "<!DOCTYPE html><html>"), "") => Err(Error::Format { kind: Kind::UnsupportedFile { .. }, .. }),
    }
}
