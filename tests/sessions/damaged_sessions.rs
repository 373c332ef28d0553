//! A file that is no session of the model, or not as it was saved, is a typed error or the same bits: never other ones.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, bits};

use model_factory::error::SessionFileProblem as Problem;
use model_factory::load::Isa;
use model_factory::session::WeightsDigest;
use model_factory::{ActivationDtype, Error, KvDtype, Model, ModelBuilder};
use std::fs;
use std::path::{Path, PathBuf};

const IDS: [u32; 5] = [5, 102, 199, 296, 73];

/// Bytes before the header; its length is in the last four.
const PREAMBLE: usize = 16;

fn builder() -> ModelBuilder {
    common::builder().prefix_caching(false).threads(1).context_length(512)
}

fn model() -> PathBuf {
    common::named("llama-3.2").folder.join("bf16")
}

/// A folder, and in it a file of a short session of `model`.
fn saved(model: &Model) -> (tempfile::TempDir, PathBuf) {
    // Thousands of files cost no disk where there is a file system in memory.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = folder.path().join("a.session");
    let mut session = model.session();
    session.forward(&IDS).unwrap();
    session.save(&path, WeightsDigest::Sampled).unwrap();
    (folder, path)
}

/// What is wrong with the file at `path`, which the error names.
fn problem(model: &Model, path: &Path) -> Problem {
    match model.restore(path) {
        Ok(_) => panic!("it was restored"),
        Err(Error::SessionFile(error)) => {
            assert_eq!(error.file, path);
            assert!(error.to_string().starts_with(&format!("{}: ", path.display())));
            error.problem
        }
        Err(error) => panic!("{error}"),
    }
}

/// The text of the error for the file at `path`, without its path, and its code.
fn refused(model: &Model, path: &Path) -> (String, u8) {
    let error = model.restore(path).expect_err("it was restored");
    assert!(matches!(error, Error::SessionFile(_)), "{error}");
    let text = error.to_string();
    (text.strip_prefix(&format!("{}: ", path.display())).expect("the path").to_owned(), error.code())
}

/// The file with its header changed and right checksums.
fn with_header(bytes: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let end = header_end(bytes);
    let mut header = serde_json::from_slice(&bytes[PREAMBLE..end]).unwrap();
    change(&mut header);
    with_text(bytes, header.to_string().as_bytes())
}

/// The file with this header and right checksums.
fn with_text(bytes: &[u8], header: &[u8]) -> Vec<u8> {
    let end = header_end(bytes);
    let mut parts = vec![[&bytes[..12], &(header.len() as u32).to_le_bytes(), header].concat()];
    let ids = end + 4..end + 4 + 4 * IDS.len();
    parts.push(bytes[ids.clone()].to_vec());
    parts.push(bytes[ids.end + 4..bytes.len() - 4].to_vec());
    summed(&parts)
}

/// Where the header ends.
fn header_end(bytes: &[u8]) -> usize {
    PREAMBLE + u32::from_le_bytes(bytes[12..PREAMBLE].try_into().unwrap()) as usize
}

/// Each of `parts`, and the checksum of all so far after it.
fn summed(parts: &[Vec<u8>]) -> Vec<u8> {
    let (mut file, mut sum) = (Vec::new(), crc32fast::Hasher::new());
    for part in parts {
        sum.update(part);
        file.extend_from_slice(part);
        file.extend_from_slice(&sum.clone().finalize().to_le_bytes());
    }
    file
}

#[test]
fn every_changed_byte_and_every_length_is_an_error() {
    for dtype in [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0] {
        let model = builder().kv_cache(dtype).load(model()).unwrap();
        let (folder, path) = saved(&model);
        let whole = fs::read(&path).unwrap();
        let expected = bits(&mut model.restore(&path).unwrap(), &[7]);
        let mut counts = [0; 5];
        let changed = folder.path().join("changed");
        let mut tell = |bytes: &[u8], what: std::fmt::Arguments<'_>| {
            fs::write(&changed, bytes).unwrap();
            match model.restore(&changed) {
                // Nothing may be restored: no change of one byte keeps a checksum of 32 bits.
                Ok(mut session) => panic!("{what}: restored, the same bits: {}", bits(&mut session, &[7]) == expected),
                Err(Error::SessionFile(error)) => {
                    let kind = match error.problem {
                        Problem::NotASession { .. } => 0,
                        Problem::Version { .. } => 1,
                        Problem::Length { .. } => 2,
                        Problem::Checksum { .. } => 3,
                        Problem::Malformed { .. } => 4,
                        _ => panic!("{what}: {error}"),
                    };
                    counts[kind] += 1;
                }
                Err(error) => panic!("{what}: {error}"),
            }
        };
        for at in 0..whole.len() {
            for mask in [1 << (at % 8), 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= mask;
                tell(&bytes, format_args!("byte {at} ^ {mask}"));
            }
            tell(&whole[..at], format_args!("{at} bytes"));
        }
        for more in [1, 3, 4, 4096] {
            tell(&[&whole[..], &vec![0; more]].concat(), format_args!("{more} bytes more"));
        }
        println!("{dtype}: {} bytes, no session, version, length, checksum, malformed: {counts:?}", whole.len());
        assert!(counts[..4].iter().all(|count| *count > 0), "{counts:?}");
    }
}

#[test]
fn other_formats_and_versions_are_refused() {
    let model = builder().load(model()).unwrap();
    let (folder, path) = saved(&model);
    let whole = fs::read(&path).unwrap();
    let other = folder.path().join("other");
    let text = |bytes: &[u8]| {
        fs::write(&other, bytes).unwrap();
        refused(&model, &other)
    };
    let mut bytes = whole.clone();
    bytes[8] = 4;
    let expected = "it has version 4 of the format, expected 3; compute the session again and save it, or restore it with the \
                    version of the library that wrote it";
    assert_eq!(text(&bytes), (expected.into(), 10));
    let expected = "it begins with [47, 47, 55, 46], a saved session with [8c, 4d, 46, 53, 45, 53, 53, 0a]; give a file that a \
                    session was saved in";
    assert_eq!(text(b"GGUF"), (expected.into(), 10));
    assert_eq!(text(b"").1, 10);
    // A header of four gigabytes, and one that is longer than its file.
    let mut bytes = whole.clone();
    bytes[12..16].fill(255);
    let expected =
        "its length of the header is 4294967295, expected at most 1048576: no session was saved so; compute it again";
    assert_eq!(text(&bytes), (expected.into(), 10));
    bytes[12..16].copy_from_slice(&[0, 0, 1, 0]);
    assert!(text(&bytes).0.starts_with(&format!("it has {} bytes, expected 65556: it was cut off", bytes.len())));
    // Claims with right checksums.
    let claims = [("ids", 1u64 << 60), ("ids", 512), ("ids", 6), ("cached", 4), ("cached", 6), ("cached", u64::MAX)];
    for (key, claim) in claims {
        let bytes = with_header(&whole, |header| header[key] = claim.into());
        fs::write(&other, bytes).unwrap();
        let problem = problem(&model, &other);
        let right = match (key, claim) {
            ("ids", 0..=512) | ("cached", 4) => matches!(problem, Problem::Length { .. }),
            ("ids", _) => matches!(problem, Problem::Context { found, limit: 512 } if found == claim),
            _ => matches!(&problem, Problem::Malformed { found, .. } if *found == claim.to_string()),
        };
        assert!(right, "{key} {claim}: {problem}");
    }
    for header in [&b"{}"[..], b"", b"\xff", b"[[[[", &vec![b'['; 100_000]] {
        fs::write(&other, with_text(&whole, header)).unwrap();
        assert!(matches!(problem(&model, &other), Problem::Malformed { what: "header", .. }));
    }
    // An id without an embedding row.
    let mut ids = whole.clone();
    let at = header_end(&whole) + 4;
    ids[at + 2] = 1;
    let header = ids[PREAMBLE..header_end(&ids)].to_vec();
    let expected = format!(
        "its token is {}, expected an id below {}, the size of the vocabulary: no session was saved so; compute it again",
        IDS[0] + 65536,
        model.spec().vocab
    );
    assert_eq!(text(&with_text(&ids, &header)), (expected, 10));
    // What the tests write so is right but for what they change.
    fs::write(&other, with_header(&whole, |_| {})).unwrap();
    assert_eq!(bits(&mut model.restore(&other).unwrap(), &[7]), bits(&mut model.restore(&path).unwrap(), &[7]));
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let model = builder().load(model()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let expected = "it is no regular file, expected one that a session was saved in";
    assert_eq!(refused(&model, folder.path()), (expected.into(), 10));
    #[cfg(unix)]
    assert_eq!(refused(&model, Path::new("/dev/zero")), (expected.into(), 10));
    #[cfg(unix)]
    {
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(refused(&model, &pipe), (expected.into(), 10));
    }
    let missing = folder.path().join("missing");
    let error = model.restore(&missing).expect_err("there is none");
    assert!(matches!(&error, Error::Io { path, .. } if *path == missing) && error.code() == 1, "{error}");
}

#[test]
fn a_session_of_another_model_is_refused_by_what_differs() {
    let owner = builder().load(model()).unwrap();
    let (folder, path) = saved(&owner);
    let fixture = |name: &str, file: &str| builder().load(common::named(name).folder.join(file)).unwrap();
    let remedy = "load the model it was saved with, or compute the session again";
    let text = |what: &str, found: &str, expected: &str| {
        (format!("the {what} it was saved with is {found}, expected {expected}; {remedy}"), 2)
    };
    let other = fixture("qwen3", "bf16");
    let expected = text("model", &format!("{:?}", owner.spec().variant), &format!("{:?}", other.spec().variant));
    assert_eq!(refused(&other, &path), expected);
    // The same model in another container, and in another dtype.
    let other = fixture("llama-3.2", "q8_0.gguf");
    assert_eq!(refused(&other, &path), text("architecture", "\"LlamaForCausalLM\"", "\"llama\""));
    let Problem::Differs { what, .. } = problem(&fixture("llama-3.2", "f32"), &path) else { panic!("another problem") };
    assert!(["quantization", "checksum of the model's description"].contains(&&*what), "{what}");

    // The same header before other weights, as of a fine-tune, or options.
    let copy = |name: &str| {
        let to = folder.path().join(name);
        fs::create_dir(&to).unwrap();
        for file in fs::read_dir(model()).unwrap().map(|entry| entry.unwrap().path()) {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
        to
    };
    let tuned = copy("tuned");
    assert!(builder().load(&tuned).unwrap().restore(&path).is_ok(), "the same files elsewhere");
    let weights = tuned.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let Problem::Differs { what, .. } = problem(&builder().load(&tuned).unwrap(), &path) else {
        panic!("another problem")
    };
    assert_eq!(what, "checksum of part 16 of weight file 1");
    let scaled = copy("scaled");
    let config = fs::read_to_string(scaled.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["rms_norm_eps"] = 2e-5.into();
    fs::write(scaled.join("config.json"), config.to_string()).unwrap();
    let Problem::Differs { what, .. } = problem(&builder().load(&scaled).unwrap(), &path) else {
        panic!("another problem")
    };
    assert_eq!(what, "checksum of the model's description");
    // A tokenizer has no part in it.
    let retold = copy("retold");
    let file = retold.join("tokenizer_config.json");
    let mut config: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config["chat_template"] = "{{ messages }}".into();
    fs::write(&file, config.to_string()).unwrap();
    assert!(builder().load(&retold).unwrap().restore(&path).is_ok());
}

/// One changed byte of a long file is seen where all of it was asked for.
#[test]
fn a_digest_of_all_bytes_sees_each() {
    let (folder, demo) = (tempfile::tempdir().unwrap(), common::demo());
    for file in fs::read_dir(&demo).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let weights = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    assert!(bytes.len() > 9 << 17, "it is sampled");
    // Between the first two samples of the last part.
    let part = bytes.len() / 16;
    let at = 15 * part + part / 30 + 2048 + 16;
    bytes[at] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let [model, changed] = [&demo, folder.path()].map(|path| builder().load(path).unwrap());
    let path = folder.path().join("a.session");
    let mut session = model.session();
    session.forward(&IDS).unwrap();
    session.save(&path, WeightsDigest::Sampled).unwrap();
    assert!(changed.restore(&path).is_ok(), "a sample does not see it");
    session.save(&path, WeightsDigest::Full).unwrap();
    assert_eq!(bits(&mut model.restore(&path).unwrap(), &[7]), bits(&mut session, &[7]));
    let Problem::Differs { what, .. } = problem(&changed, &path) else { panic!("another problem") };
    assert_eq!(what, "checksum of part 16 of weight file 1");
}

#[test]
fn another_dtype_of_activations_is_refused() {
    let packed = common::fixtures().join("packed/llama-w4-128");
    let (_folder, path) = saved(&builder().load(&packed).unwrap());
    let other = builder().activations(ActivationDtype::Int8).load(&packed).unwrap();
    let expected = "the dtype of activations it was saved with is \"prescribed\", expected \"int8\"; load the model with activations \
                    of that dtype, or compute the session again";
    assert_eq!(refused(&other, &path), (expected.into(), 2));
}

#[test]
fn another_cache_level_or_library_is_refused() {
    let owner = builder().load(model()).unwrap();
    let (folder, path) = saved(&owner);
    let other = builder().kv_cache(KvDtype::F16).load(model()).unwrap();
    let expected = "the dtype of the KV cache it was saved with is \"F32\", expected \"F16\"; load the model with a KV cache of \
                    that dtype, or compute the session again";
    assert_eq!(refused(&other, &path), (expected.into(), 2));
    let [first, .., last] = Isa::available()[..] else {
        return println!("skipped: this machine has one level of instruction sets");
    };
    let [mut low, mut high] = [first, last].map(|isa| builder().isa(isa).load(model()).unwrap().session());
    for session in [&mut low, &mut high] {
        session.forward(&IDS).unwrap();
    }
    high.save(&path, WeightsDigest::Sampled).unwrap();
    let machine = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let expected = format!(
        "the instruction set level it was saved with is \"{machine} {last}\", expected \"{machine} {first}\"; hold the model to \
         those instruction sets where this machine has them, or compute the session again"
    );
    assert_eq!(refused(low.model(), &path), (expected, 2));
    let whole = fs::read(&path).unwrap();
    let older = folder.path().join("older");
    let library = "model-factory 0.0.1\u{1b}[31m";
    fs::write(&older, with_header(&whole, |header| header["identity"]["library"] = library.into())).unwrap();
    let expected = format!(
        "the version of the library it was saved with is \"model-factory 0.0.1\\u{{1b}}[31m\", expected \"model-factory {}\"; \
         restore it with that version of the library, or compute the session again",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(refused(high.model(), &older), (expected, 2));
}
