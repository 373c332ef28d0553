use super::*;

const PATH: &str = "tokenizer.model";

fn fixture() -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/tinyllama/bf16");
    std::fs::read(root.join(PATH)).unwrap()
}

fn parse(bytes: &[u8]) -> Result<SentencePieceModel> {
    SentencePieceModel::parse(Path::new(PATH), bytes)
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A protobuf field of bytes.
fn field(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// A protobuf field of a number.
fn number(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn piece_of(text: &[u8], score: f32, kind: u64) -> Vec<u8> {
    let score = [vec![0x15], score.to_le_bytes().to_vec()].concat();
    field(1, &[field(1, text), score, number(3, kind)].concat())
}

/// The smallest supported model: `<unk>`, the 256 bytes, and `more`.
fn model(more: &[u8], trainer: &[u8], normalizer: &[u8]) -> Vec<u8> {
    let bytes = (0..256).flat_map(|byte| piece_of(format!("<0x{byte:02X}>").as_bytes(), 0.0, 6));
    let trainer = field(2, &[number(3, 2), number(35, 1), trainer.to_vec()].concat());
    let normalizer = field(3, &[number(4, 0), normalizer.to_vec()].concat());
    [piece_of(b"<unk>", 0.0, 2), bytes.collect(), more.to_vec(), trainer, normalizer].concat()
}

#[test]
fn reads_what_sentencepiece_wrote() {
    let model = parse(&fixture()).unwrap();
    assert_eq!((model.pieces.len(), model.space_prefix), (480, true));
    let piece = |text: &str, score, kind| Piece { text: text.into(), score, kind };
    assert_eq!(model.pieces[..2], [piece("<unk>", 0.0, PieceKind::Unknown), piece("<s>", 0.0, PieceKind::Control)]);
    assert_eq!(model.pieces[3], piece("<0x00>", 0.0, PieceKind::Byte));
    assert_eq!(model.pieces[260..262], [piece("▁t", -1.0, PieceKind::Normal), piece("▁the", -2.0, PieceKind::Normal)]);
}

#[test]
fn reads_fields_in_any_order_and_passes_over_unknown_ones() {
    let more = [piece_of("▁a".as_bytes(), -1.5, 4), field(4, b"self test"), number(60, 7)].concat();
    let read = parse(&model(&more, &[0x91, 0x03, 1, 2, 3, 4, 5, 6, 7, 8], &number(3, 0))).unwrap();
    assert_eq!((read.pieces.len(), read.space_prefix), (258, false));
    assert_eq!(read.pieces[257], Piece { text: "▁a".into(), score: -1.5, kind: PieceKind::UserDefined });
}

/// A unigram model has a character map and no bytes.
#[test]
fn a_unigram_model_is_another_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spm.model");
    let read = |trainer: &[u8], normalizer: &[u8], more: &[u8]| {
        let [trainer, normalizer] = [(2, trainer), (3, normalizer)].map(|(section, content)| field(section, content));
        let whole = [piece_of(b"[UNK]", 0.0, 2), piece_of(b"a", -1.0, 1), more.to_vec(), trainer, normalizer].concat();
        std::fs::write(&path, whole).unwrap();
        SentencePieceModel::read_unigram(&path)
    };
    let charsmap = field(2, b"compiled");
    let model = read(&number(3, 1), &charsmap, b"").unwrap();
    assert_eq!((model.pieces.len(), model.space_prefix, &*model.charsmap), (2, true, &b"compiled"[..]));
    for (name, model, key) in [
        ("BPE", read(&number(3, 2), b"", b""), "trainer_spec.model_type"),
        ("bytes", read(&number(35, 1), b"", b""), "trainer_spec.byte_fallback"),
        ("spaces as they are", read(b"", &number(4, 0), b""), "normalizer_spec.remove_extra_whitespaces"),
        ("a map for decoding", read(b"", b"", &field(5, &charsmap)), "denormalizer_spec.precompiled_charsmap"),
        ("a byte", read(b"", b"", &piece_of(b"<0x00>", 0.0, 6)), "pieces[2]"),
    ] {
        let refused = model.unwrap_err().to_string();
        assert!(refused.contains(key), "{name}: {refused}");
    }
}

#[test]
fn refuses_by_name_what_is_not_run() {
    let charsmap = field(2, b"compiled");
    let cases: [(&str, Vec<u8>, &str); 16] = [
        ("unigram", model(b"", &number(3, 1), b""), "trainer_spec.model_type"),
        ("an unknown model type", model(b"", &number(3, u64::MAX), b""), "trainer_spec.model_type"),
        ("no byte fallback", model(b"", &number(35, 0), b""), "trainer_spec.byte_fallback"),
        ("a space behind", model(b"", &number(24, 1), b""), "trainer_spec.treat_whitespace_as_suffix"),
        ("a character map", model(b"", b"", &charsmap), "normalizer_spec.precompiled_charsmap"),
        ("one for decoding", model(&field(5, &charsmap), b"", b""), "denormalizer_spec.precompiled_charsmap"),
        ("joined spaces", model(b"", b"", &number(4, 1)), "normalizer_spec.remove_extra_whitespaces"),
        ("spaces as they are", model(b"", b"", &number(5, 0)), "normalizer_spec.escape_whitespaces"),
        ("an unused piece", model(&piece_of(b"a", 0.0, 5), b"", b""), "pieces[257]"),
        ("an unknown type", model(&piece_of(b"a", 0.0, 77), b"", b""), "pieces[257]"),
        ("a text twice", model(&piece_of(b"<unk>", 0.0, 1), b"", b""), "pieces[257]"),
        ("no text", model(&piece_of(b"", 0.0, 1), b"", b""), "pieces[257]"),
        ("no UTF-8", model(&piece_of(b"\xff", 0.0, 1), b"", b""), "pieces[257]"),
        ("NaN", model(&piece_of(b"a", f32::NAN, 1), b"", b""), "pieces[257]"),
        ("a byte too many", model(&piece_of(b"<0x100>", 0.0, 6), b"", b""), "pieces"),
        ("no pieces", field(2, &number(3, 2)), "pieces"),
    ];
    for (case, bytes, expected) in cases {
        match parse(&bytes) {
            Err(Error::Format { kind: FormatErrorKind::KeyValue { key, .. }, .. }) => {
                assert_eq!(key, expected, "{case}");
            }
            other => panic!("{case}: {other:?}"),
        }
    }
}

#[test]
fn tells_a_tiktoken_file_from_a_damaged_one() {
    for text in ["IQ== 0\nIg== 1\n", "IQ== 0"] {
        let kind = parse(text.as_bytes()).unwrap_err();
        assert!(matches!(kind, Error::Format { kind: FormatErrorKind::OtherTokenizer { .. }, .. }), "{kind:?}");
    }
    for bytes in [
        b"IQ= 0\n".as_slice(),
        b"not a model",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x00\x00",
        b"\x0b\x0c",
    ] {
        let kind = parse(bytes).unwrap_err();
        assert!(
            matches!(kind, Error::Format { kind: FormatErrorKind::SentencePiece { .. }, .. }),
            "{bytes:?}: {kind:?}"
        );
    }
    assert!(matches!(parse(b""), Err(Error::Format { kind: FormatErrorKind::EmptyFile, .. })));
    let pointer = parse(b"version https://git-lfs.github.com/spec/v1\n");
    assert!(matches!(pointer, Err(Error::Format { kind: FormatErrorKind::UnsupportedFile { .. }, .. })), "{pointer:?}");
}

#[test]
fn no_part_of_a_file_is_taken_for_the_whole() {
    let bytes = fixture();
    for end in 0..bytes.len() {
        let read = parse(&bytes[..end]);
        assert!(matches!(read, Err(Error::Format { .. })), "the first {end} bytes: {read:?}");
    }
}

#[test]
fn a_changed_bit_is_an_error_or_another_model() {
    let bytes = fixture();
    let whole = parse(&bytes).unwrap();
    let mut refused = 0;
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            match parse(&changed) {
                Ok(model) => assert!(model.pieces.len() <= whole.pieces.len(), "byte {at}, bit {bit}"),
                Err(error) => refused += usize::from(matches!(error, Error::Format { .. })),
            }
        }
    }
    assert!(refused > bytes.len(), "only {refused} of {} changes were refused", 3 * bytes.len());
}
