use crate::build::*;
use crate::table;
use model_factory_diagnostics::error::{Error, FormatErrorKind as Kind, IncompleteKind};
use model_factory_diagnostics::header::gguf::GgufFile;
use model_factory_diagnostics::header::{Fields, Header, Metadata};
use model_factory_diagnostics::{DType, Result, source};
use std::io::Cursor;
use std::path::Path;

fn parse(bytes: Vec<u8>) -> Result<GgufFile> {
    GgufFile::parse(Path::new("x.gguf"), 0, bytes.len() as u64, Cursor::new(bytes))
}

#[test]
fn reads_versions_2_and_3() {
    for version in [2, 3] {
        let gguf = parse(Gguf { version, ..Gguf::sample() }.build()).unwrap();
        let metadata = &gguf.metadata;
        assert_eq!(metadata.text("general.architecture").unwrap(), Some("llama"));
        assert_eq!(metadata.unsigned("llama.block_count").unwrap(), Some(2));
        assert_eq!(metadata.unsigned("llama.i32").unwrap(), Some(12));
        assert_eq!(metadata.unsigned("llama.u64").unwrap(), Some(u64::MAX));
        assert_eq!(metadata.number("llama.i64").unwrap(), Some(-7.0));
        assert_eq!(metadata.number("llama.f64").unwrap(), Some(0.5));
        assert_eq!(metadata.number("llama.rope.freq_base").unwrap(), Some(10_000.0));
        assert_eq!(metadata.boolean("llama.flag").unwrap(), Some(true));
        assert_eq!(metadata.boolean("absent").unwrap(), None);
        let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!(tokens.iter().collect::<Vec<_>>(), [b"a".as_slice(), b"", b"\xff\xfe"]);
        assert_eq!(metadata.floats("tokenizer.ggml.scores").unwrap().unwrap(), [0.0, 1.5]);
        assert_eq!(metadata.floats("tokenizer.ggml.token_type").unwrap().unwrap(), [1.0, 6.0]);
        assert_eq!(metadata.integers("tokenizer.ggml.token_type").unwrap().unwrap(), [1, 6]);
        assert_eq!(["tokenizer.ggml.tokens", "general.name"].map(|key| metadata.array_len(key)), [Some(3), None]);
        assert_eq!(metadata.keys().next(), Some("general.architecture"));
        let q = &gguf.tensors["blk.0.attn_q.weight"];
        assert_eq!((q.shape.as_slice(), q.dtype, q.bytes), ([32, 64].as_slice(), DType::Q4_0, 32 * 64 / 32 * 18));
        assert_eq!(q.offset % 32, 0);
        let header = Gguf::sample().header().len() as u64;
        assert_eq!(gguf.tensors["token_embd.weight"].offset, header.next_multiple_of(32));
    }
}

#[test]
fn accepts_what_llama_cpp_accepts() {
    let accepted = [
        ("no keys and no tensors", Gguf::empty().build()),
        ("a vocabulary without data section", Gguf::empty().text("general.architecture", "llama").build()),
        ("a scalar", Gguf::empty().tensor("t", &[], F32).build()),
        ("a tensor without elements", Gguf::empty().tensor("t", &[0, 4], F32).build()),
        (
            "another alignment",
            Gguf { alignment: 64, ..Gguf::empty() }
                .u32("general.alignment", 64)
                .tensor("t", &[3], F32)
                .tensor("u", &[3], F32)
                .build(),
        ),
        (
            "an alignment of 1",
            Gguf { alignment: 1, ..Gguf::empty() }.u32("general.alignment", 1).tensor("t", &[3], F32).build(),
        ),
        ("no padding after the last tensor", {
            let mut bytes = Gguf::sample().build();
            bytes.truncate(bytes.len() - 12);
            bytes
        }),
        ("any bytes in a string value", Gguf::empty().pair("general.name", TEXT, string(b"\xff\0")).build()),
        ("any bytes in a key beyond ASCII", Gguf::empty().text("général.nom", "x").build()),
        ("an empty array", Gguf::empty().pair("a", ARRAY, array(TEXT, 0, [])).build()),
        ("an array of bools", Gguf::empty().pair("a", ARRAY, array(BOOL, 2, [0, 1])).build()),
    ];
    let mut failures = Failures::default();
    for (name, bytes) in accepted {
        if let Err(error) = parse(bytes) {
            failures.add(name, error);
        }
    }
    drop(failures);
    let trailing = parse(Gguf { tail: vec![7; 100], ..Gguf::sample() }.build()).unwrap();
    assert_eq!(trailing.warnings.len(), 1);
}

#[test]
fn refuses_malformed_files_by_name() {
    let sample = Gguf::sample;
    let pair = |kind, value: Vec<u8>| parse(Gguf::empty().pair("k", kind, value).build());
    let info = |shape: &[u64], kind, offset| {
        parse(Gguf { data: 4096, ..Gguf::empty().info("t", shape, kind, offset) }.build())
    };
    table! {
        "no bytes": parse(Vec::new()) => Err(Error::Format { kind: Kind::EmptyFile, .. }),
        "foreign bytes": parse(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".into()) => Err(Error::Format { kind: Kind::Unrecognised { found }, .. }) if found == "7f 45 4c 46 02 01 01 00",
        "version 1": parse(Gguf { version: 1, ..sample() }.build()) => Err(Error::Format { kind: Kind::Version { found: 1, .. }, offset: Some(4), .. }),
        "version 0": parse(Gguf { version: 0, ..sample() }.build()) => Err(Error::Format { kind: Kind::Version { found: 0, .. }, .. }),
        "version 4": parse(Gguf { version: 4, ..sample() }.build()) => Err(Error::Format { kind: Kind::Version { found: 4, .. }, .. }),
        "big-endian": parse(Gguf { version: 3 << 24, ..sample() }.build()) => Err(Error::Format { kind: Kind::BigEndian { version: 3 }, .. }),
        "too many tensors": parse(Gguf { tensor_count: Some(u64::MAX), ..sample() }.build()) => Err(Error::Format { kind: Kind::TooMany { .. }, offset: Some(8), .. }),
        "more tensors than fit": parse(Gguf { tensor_count: Some(100_000), ..sample() }.build()) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "too many keys": parse(Gguf { pair_count: Some(1 << 40), ..sample() }.build()) => Err(Error::Format { kind: Kind::TooMany { .. }, offset: Some(16), .. }),
        "more keys than fit": parse(Gguf { pair_count: Some(60_000), ..sample() }.build()) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "an empty key": parse(sample().text("", "x").build()) => Err(Error::Format { kind: Kind::EmptyName { .. }, .. }),
        "a key that is no UTF-8": parse(sample().pair(b"\xc3\x28", U8, [0]).build()) => Err(Error::Format { kind: Kind::NotUtf8 { .. }, .. }),
        "a key of 65536 bytes": parse(sample().pair("k".repeat(65_536), U8, [0]).build()) => Err(Error::Format { kind: Kind::TooMany { .. }, .. }),
        "a key twice": parse(sample().text("general.name", "x").build()) => Err(Error::Format { kind: Kind::DuplicateKey { key }, offset: Some(_), .. }) if key == "general.name",
        "a value type 13": pair(13, vec![0; 8]) => Err(Error::Format { kind: Kind::ValueType { found: 13, .. }, .. }),
        "an element type 13": pair(ARRAY, array(13, 1, [0])) => Err(Error::Format { kind: Kind::ValueType { found: 13, .. }, .. }),
        "an array of arrays": pair(ARRAY, array(ARRAY, 1, array(U8, 1, [0]))) => Err(Error::Format { kind: Kind::NestedArray { .. }, .. }),
        "a bool of 2": pair(BOOL, vec![2]) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a bool of 255 in an array": pair(ARRAY, array(BOOL, 3, [0, 1, 255])) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a string longer than any": pair(TEXT, u64::MAX.to_le_bytes().into()) => Err(Error::Format { kind: Kind::TooMany { .. }, .. }),
        "a string longer than the file": pair(TEXT, 1000_u64.to_le_bytes().into()) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "an array longer than any": pair(ARRAY, array(F64, u64::MAX / 4, [])) => Err(Error::Format { kind: Kind::TooMany { .. }, .. }),
        "an array longer than the file": pair(ARRAY, array(U64, 5, [0; 39])) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "an array of strings longer than the file": pair(ARRAY, array(TEXT, 1 << 24, [0; 64])) => Err(Error::Incomplete { kind: IncompleteKind::HeaderTruncated { .. }, .. }),
        "a string of an array longer than any": pair(ARRAY, array(TEXT, 1, u64::MAX.to_le_bytes())) => Err(Error::Format { kind: Kind::TooMany { .. }, .. }),
        "an alignment of u64": parse(Gguf::empty().pair("general.alignment", U64, 32_u64.to_le_bytes()).build()) => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "an alignment of 0": parse(Gguf::empty().u32("general.alignment", 0).build()) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "an alignment of 48": parse(Gguf::empty().u32("general.alignment", 48).build()) => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "an empty tensor name": parse(Gguf::empty().info("", &[1], F32, 0).build()) => Err(Error::Format { kind: Kind::EmptyName { .. }, .. }),
        "a tensor name that is no UTF-8": parse(Gguf::empty().info(b"\xff", &[1], F32, 0).build()) => Err(Error::Format { kind: Kind::NotUtf8 { .. }, .. }),
        "a tensor name of 64 bytes": parse(Gguf::empty().info("t".repeat(64), &[1], F32, 0).build()) => Err(Error::Format { kind: Kind::TooMany { .. }, .. }),
        "a tensor twice": parse(Gguf::empty().tensor("t", &[8], F32).tensor("t", &[8], F32).build()) => Err(Error::Format { kind: Kind::DuplicateTensor { .. }, .. }),
        "five dimensions": info(&[1; 5], F32, 0) => Err(Error::Format { kind: Kind::Dimensions { found: 5, .. }, .. }),
        "overflowing dimensions": info(&[1 << 32, 1 << 32], F32, 0) => Err(Error::Format { kind: Kind::TensorSize { .. }, .. }),
        "overflowing bytes": info(&[1 << 62], F32, 0) => Err(Error::Format { kind: Kind::TensorSize { .. }, .. }),
        "a dimension of 2^64 - 1": info(&[u64::MAX], F32, 0) => Err(Error::Format { kind: Kind::TensorSize { .. }, .. }),
        "rows of half a block": info(&[16, 2], Q4_0, 0) => Err(Error::Format { kind: Kind::RowLength { row: 16, dtype: DType::Q4_0, .. }, .. }),
        "rows of a block and a half": info(&[384, 2], Q4_K, 0) => Err(Error::Format { kind: Kind::RowLength { .. }, .. }),
        "a quantised scalar": info(&[], Q4_0, 0) => Err(Error::Format { kind: Kind::RowLength { row: 1, .. }, .. }),
        "an unaligned offset": info(&[8], F32, 4) => Err(Error::Format { kind: Kind::TensorOffset { found: 4, expected: 0, .. }, .. }),
        "a gap": info(&[8], F32, 32) => Err(Error::Format { kind: Kind::TensorOffset { .. }, .. }),
        "an offset of 2^64 - 32": info(&[8], F32, u64::MAX - 31) => Err(Error::Format { kind: Kind::TensorOffset { .. }, .. }),
        "an overlap": parse(Gguf::empty().tensor("t", &[16], F32).info("u", &[8], F32, 32).build()) => Err(Error::Format { kind: Kind::TensorOffset { found: 32, expected: 64, .. }, .. }),
        "offsets in another order": parse(Gguf { data: 64, ..Gguf::empty() }.info("t", &[8], F32, 32).info("u", &[8], F32, 0).build()) => Err(Error::Format { kind: Kind::TensorOffset { .. }, .. }),
        "sizes that overflow together": parse(Gguf::empty().info("t", &[1 << 60], F32, 0).info("u", &[1 << 60], F32, 1 << 62).info("v", &[1 << 60], F32, 2 << 62).info("w", &[1 << 60], F32, 3 << 62).build()) => Err(Error::Format { kind: Kind::TensorSize { .. }, .. }),
        "a second file behind the first": parse(Gguf { tail: sample().build(), ..sample() }.build()) => Err(Error::Format { kind: Kind::Concatenated, .. }),
        "a second file behind a vocabulary": parse(Gguf { tail: sample().build(), ..Gguf::empty() }.build()) => Err(Error::Format { kind: Kind::Concatenated, .. }),
        "Q4_0_4_4": info(&[32], 31, 0) => Err(Error::Quantization { scheme, why, .. }) if scheme.contains("Q4_0_4_4") && scheme.contains("31") && why.contains("Q4_0 "),
        "Q4_2": info(&[32], 4, 0) => Err(Error::Quantization { scheme, .. }) if scheme.contains("Q4_2"),
        "IQ4_NL_8_8": info(&[32], 38, 0) => Err(Error::Quantization { why, .. }) if why.contains("IQ4_NL"),
        "type 43": info(&[32], 43, 0) => Err(Error::Quantization { scheme, why, .. }) if scheme.contains("43") && why.contains("tensor t "),
        "data cut off": parse({ let mut bytes = sample().build(); bytes.truncate(bytes.len() - 20); bytes }) => Err(Error::Incomplete { kind: IncompleteKind::DataTruncated { name, .. }, .. }) if name == "output_norm.weight",
        "no data at all": parse({ let mut bytes = sample().build(); bytes.truncate(sample().header().len()); bytes }) => Err(Error::Incomplete { kind: IncompleteKind::DataTruncated { name, .. }, .. }) if name == "token_embd.weight",
    }
}

#[test]
fn refuses_known_keys_of_the_wrong_type() {
    let gguf = parse(
        Gguf::sample().pair("nan", F32_VALUE, f32::NAN.to_le_bytes()).pair("bytes", TEXT, string(b"\xff")).build(),
    );
    let metadata = gguf.unwrap().metadata;
    table! {
        "text as a number": metadata.unsigned("general.name") => Err(Error::Format { kind: Kind::KeyType { key, .. }, .. }) if key == "general.name",
        "a negative count": metadata.unsigned("llama.i64") => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a float as a count": metadata.unsigned("llama.f64") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a bool as a count": metadata.unsigned("llama.flag") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "an array as a count": metadata.unsigned("tokenizer.ggml.tokens") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "NaN": metadata.number("nan") => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a number as a bool": metadata.boolean("llama.u8") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "bytes as text": metadata.text("bytes") => Err(Error::Format { kind: Kind::KeyValue { .. }, .. }),
        "a number as text": metadata.text("llama.u8") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "numbers as strings": metadata.strings("tokenizer.ggml.scores") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "strings as floats": metadata.floats("tokenizer.ggml.tokens") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "floats as integers": metadata.integers("tokenizer.ggml.scores") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
        "a plain value as an array": metadata.integers("llama.u8") => Err(Error::Format { kind: Kind::KeyType { .. }, .. }),
    }
}

/// Three parts named as llama.cpp names them; the first has the keys, the others tensors.
fn parts() -> [Gguf; 3] {
    [
        Gguf::empty().text("general.architecture", "llama").part(0, 3, 3),
        Gguf::empty().part(1, 3, 3).tensor("a", &[8], F32).tensor("b", &[8], F32),
        Gguf::empty().part(2, 3, 3).tensor("c", &[8], F32),
    ]
}

fn split(parts: &[Gguf]) -> Tree {
    let parts = parts.iter().enumerate();
    parts.fold(Tree::new(), |tree, (index, part)| tree.with(&format!("m-{:05}-of-00003.gguf", index + 1), part.build()))
}

fn read(tree: &Tree, name: &str) -> Result<Header> {
    source::probe(&tree.path(name)).and_then(Header::read)
}

#[test]
fn joins_a_split_model_from_any_part_or_its_folder() {
    let tree = split(&parts());
    for name in ["", "m-00001-of-00003.gguf", "m-00003-of-00003.gguf"] {
        let header = read(&tree, name).unwrap();
        assert_eq!(header.tensors.values().map(|tensor| tensor.file).collect::<Vec<_>>(), [1, 1, 2]);
        let Metadata::Gguf(metadata) = &header.metadata else { panic!() };
        assert_eq!(metadata.text("general.architecture").unwrap(), Some("llama"));
    }
}

#[test]
fn refuses_split_models_whose_parts_do_not_fit() {
    let [one, two, three] = parts();
    let again = Gguf::empty().part(2, 3, 3).tensor("a", &[8], F32);
    let with = |parts: [&Gguf; 3]| read(&split(&parts.map(Gguf::clone)), "");
    let renamed = Tree::new().with("model.gguf", one.build());
    table! {
        "a missing part": read(&split(&[one.clone(), two.clone()]), "") => Err(Error::Incomplete { kind: IncompleteKind::FileMissing { name, why }, .. }) if name == "m-00003-of-00003.gguf" && why.starts_with("2 of 3"),
        "two parts swapped": with([&one, &three, &two]) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
        "a tensor in two parts": with([&one, &two, &again]) => Err(Error::Format { kind: Kind::DuplicateTensor { name }, .. }) if name == "a",
        "too few tensors": with([&one, &two, &Gguf::empty().part(2, 3, 3)]) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
        "a part of another model": with([&one, &two, &Gguf::empty().part(2, 3, 9).tensor("c", &[8], F32)]) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
        "a part without keys": with([&one, &two, &Gguf::empty().tensor("c", &[8], F32)]) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
        "a part of two": with([&one, &two, &Gguf::empty().part(2, 2, 3).tensor("c", &[8], F32)]) => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
        "a part under another name": read(&renamed, "") => Err(Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }),
    }
    let merged = Tree::new().with("model.gguf", Gguf::sample().part(0, 0, 3).build());
    read(&merged, "").unwrap();
}
