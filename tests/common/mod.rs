//! Fixture discovery and comparison, shared by the integration tests.
#![allow(dead_code, clippy::expect_used, clippy::print_stdout)] // every test binary uses its own part, and says what it skips

pub(crate) mod adapters;
pub(crate) mod archives;
pub(crate) mod given;
pub(crate) mod phi_128k;
pub(crate) mod spans;
pub(crate) mod texts;

use model_factory::kernels::Isa;
use model_factory::{DeviceChoice, Error, Model, ModelBuilder, Session, UnifiedModelFactory};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// This checkout.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package of the tests lies in the repository")
}

/// `fixtures/` of this checkout.
pub(crate) fn fixtures() -> PathBuf {
    repository().join("fixtures")
}

/// The bundled model.
pub(crate) fn demo() -> PathBuf {
    fixtures().join("demo")
}

/// `count` ids below `vocabulary`, never the same twice in a row.
pub(crate) fn tokens(count: usize, vocabulary: u32) -> Vec<u32> {
    (0..count as u32).map(|index| (index * 97 + 5) % vocabulary).collect()
}

/// `count` ids below `vocabulary`, others for each seed.
pub(crate) fn seeded_tokens(seed: u32, count: usize, vocabulary: u32) -> Vec<u32> {
    (0..count as u32).map(|index| (index * 97 + seed * 13 + index * index % 7) % vocabulary).collect()
}

/// The bits of logits of any shape.
pub(crate) fn bits_of(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// The bits of the logits after `tokens`.
pub(crate) fn bits(session: &mut Session, tokens: &[u32]) -> Vec<u32> {
    bits_of(&session.next_logits(tokens).expect("tokens compute"))
}

/// A builder held to the instruction sets that `TEST_ISA` names (`avx2`, `portable`), or to none, on the device that
/// `TEST_DEVICE` names (`cuda`), or on the processor. With one thread, as two of models this small mostly wait for each other, or as
/// many as `TEST_THREADS` says: tests of what threads could change ask for more.
pub(crate) fn builder() -> ModelBuilder {
    let device = std::env::var("TEST_DEVICE").map_or(DeviceChoice::Cpu, |name| name.parse().expect("a device"));
    let threads = std::env::var("TEST_THREADS").map_or(1, |threads| threads.parse().expect("a number of threads"));
    // What a test compares is computed, unless it is about prefixes.
    let builder = UnifiedModelFactory::builder().device(device).threads(threads).prefix_caching(false);
    match std::env::var("TEST_ISA") {
        Ok(name) => {
            let isa = Isa::named(&name).unwrap_or_else(|| panic!("TEST_ISA={name}: this machine does not have it"));
            builder.isa(isa)
        }
        Err(_) => builder,
    }
}

/// Loads a model that must load.
pub(crate) fn load(path: impl AsRef<Path>) -> Model {
    let path = path.as_ref();
    builder().load(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Loads the bundled model.
pub(crate) fn load_demo() -> Model {
    load(demo())
}

/// A model of `fixtures/models` or of an archive, loaded as users do, with the defaults of all options.
pub(crate) fn load_with_defaults(path: &str) -> Model {
    UnifiedModelFactory::load(archives::path(path)).expect("the model loads")
}

/// Loads a model that must load, except where `TEST_DEVICE` names a GPU and kernels for GPUs do not compute its dtypes (code
/// 12), or its block (code 13, as where there is no GPU): that is printed, and `None`.
pub(crate) fn load_where_it_runs(path: impl AsRef<Path>) -> Option<Model> {
    load_built_where_it_runs(&builder(), path)
}

/// Like [`load_where_it_runs`], with the options of `builder`.
pub(crate) fn load_built_where_it_runs(builder: &ModelBuilder, path: impl AsRef<Path>) -> Option<Model> {
    let path = path.as_ref();
    match builder.load(path) {
        Ok(model) => Some(model),
        Err(Error::Refused(report))
            if given::on_gpu()
                && (report.exit_code == 12 || report.exit_code == 13 && report.reason.contains("kernels for GPUs")) =>
        {
            println!("skipped: {}: {}", path.display(), report.first_line());
            None
        }
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// One folder of `fixtures/models`, or one archive of `fixtures/families`.
pub(crate) struct Fixture {
    pub(crate) folder: PathBuf,
    pub(crate) expected: Expected,
    truth: Vec<u8>,
}

/// `expected.json`; `fixtures/README.md` describes it.
#[derive(Deserialize)]
pub(crate) struct Expected {
    pub(crate) variant: String,
    pub(crate) family: String,
    pub(crate) cases: BTreeMap<String, Case>,
    pub(crate) files: BTreeMap<String, FileExpectation>,
    pub(crate) greedy: BTreeMap<String, Greedy>,
    pub(crate) stop_ids: Vec<u32>,
    pub(crate) bos: Option<u32>,
}

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) tokens: Vec<u32>,
    pub(crate) first_kept: usize,
}

#[derive(Deserialize)]
pub(crate) struct FileExpectation {
    pub(crate) dtype: String,
    pub(crate) truth: String,
    pub(crate) reference: String,
    pub(crate) reference_error: BTreeMap<String, f64>,
    pub(crate) transformers_error: Option<BTreeMap<String, f64>>,
}

#[derive(Deserialize)]
pub(crate) struct Greedy {
    pub(crate) prompt: Vec<u32>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) gaps: Vec<f64>,
}

/// Every fixture, sorted by name. Panics when there is none: a test that finds nothing to test must not pass.
pub(crate) fn all() -> Vec<Fixture> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(fixtures().join("models"))
        .expect("fixtures/models exists")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("expected.json").exists())
        .collect();
    folders.extend(archives::names().map(|name| archives::unpacked(&name)));
    folders.sort();
    assert!(folders.len() >= 8, "only {} fixtures found", folders.len());
    folders.into_iter().map(Fixture::open).collect()
}

/// Every fixture's smallest float file and its smallest quantized one.
pub(crate) fn small_files() -> Vec<PathBuf> {
    let of_fixture = |fixture: Fixture| {
        let kinds: [&[&str]; 2] = [&["bf16", "f16", "f32"], &["q4_k_m.gguf", "iq2_xs.gguf", "q8_0.gguf", "q4_k.gguf"]];
        let there = |names: &[&str]| names.iter().map(|name| fixture.folder.join(name)).find(|path| path.exists());
        let found: Vec<PathBuf> = kinds.into_iter().filter_map(there).collect();
        assert!(!found.is_empty(), "{}", fixture.folder.display());
        found
    };
    all().into_iter().flat_map(of_fixture).collect()
}

/// The fixture called `name`.
pub(crate) fn named(name: &str) -> Fixture {
    let folder = fixtures().join("models").join(name);
    Fixture::open(if folder.exists() { folder } else { archives::unpacked(name) })
}

impl Fixture {
    fn open(folder: PathBuf) -> Fixture {
        let text = std::fs::read_to_string(folder.join("expected.json")).expect("expected.json is readable");
        let expected = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let truth = std::fs::read(folder.join("expected.safetensors")).expect("expected.safetensors is readable");
        Fixture { folder, expected, truth }
    }

    pub(crate) fn name(&self) -> String {
        let folder = self.folder.file_name().expect("a folder name").to_string_lossy();
        archives::without_sum(&folder).to_owned()
    }

    /// The truth `name` of `case`: rows of `vocab` logits.
    pub(crate) fn truth(&self, name: &str, case: &str) -> Vec<f32> {
        let tensors = safetensors::SafeTensors::deserialize(&self.truth).expect("expected.safetensors is valid");
        let tensor = tensors.tensor(&format!("{name}/{case}")).expect("the case has a truth");
        assert_eq!(tensor.dtype(), safetensors::Dtype::F32);
        tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

/// A line of `/proc/self/status` in bytes; `None` where the system has no such file.
pub(crate) fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// `||a - truth|| / ||truth||` over all elements together, in double precision.
pub(crate) fn relative_l2(a: &[f32], truth: &[f32]) -> f64 {
    assert_eq!(a.len(), truth.len());
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(truth).map(|(a, t)| square(f64::from(*a) - f64::from(*t))).sum();
    let norm: f64 = truth.iter().map(|t| square(f64::from(*t))).sum();
    (difference / norm).sqrt()
}

/// The index of the largest element, the first of equals, and its distance to the second largest.
pub(crate) fn top(logits: &[f32]) -> (usize, f64) {
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("a vocabulary");
    let others = logits.iter().enumerate().filter(|(index, _)| *index != best);
    let second = others.map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max);
    (best, f64::from(logits[best]) - f64::from(second))
}
