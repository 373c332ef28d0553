//! What was computed of a prompt is read from disk in place of being computed again, with the same bits: by a model that is loaded
//! anew, by another process, and beside others. Whatever is wrong with the files costs time and no more.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, bits, bits_of, seeded_tokens, tokens};

use model_factory::load::Isa;
use model_factory::{Error, GenerateOptions, Input, KvDtype, Model, ModelBuilder, PromptCacheUsage, SoftTokens};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 256;
const BOUND: u64 = 1 << 30;
const LONG: Duration = Duration::from_secs(60);

fn builder() -> ModelBuilder {
    common::builder().prefix_caching(true).context_length(1024).sessions(4).threads(1)
}

fn llama() -> PathBuf {
    common::named("llama-3").folder.join("bf16")
}

/// A folder in memory where there is a file system there, and the path of a folder in it that is not made yet.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = folder.path().join("prompts");
    (folder, path)
}

/// Ids that every fixture has.
fn prompt(seed: u32, count: usize) -> Vec<u32> {
    seeded_tokens(seed, count, 250)
}

fn usage(model: &Model) -> PromptCacheUsage {
    assert!(model.flush_prompt_cache(LONG));
    model.prompt_cache_usage().unwrap()
}

/// Tokens of `prompt` that were found in memory or on disk, and the ids that `model` answers it with.
fn ask(model: &Model, prompt: &[u32], salt: Option<&str>) -> (usize, Vec<u32>) {
    let options = GenerateOptions::default().max_tokens(4).temperature(0.0).ignore_stop(true);
    let options = salt.into_iter().fold(options, GenerateOptions::cache_salt);
    let mut generation = model.generate(prompt, &options).unwrap();
    generation.text().unwrap();
    (generation.finish().1.cached_tokens, generation.ids().to_vec())
}

/// The entries in `folder`, in the order of their names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.')).collect();
    files.sort();
    files
}

fn bytes_of(files: &[PathBuf]) -> u64 {
    files.iter().map(|file| fs::metadata(file).unwrap().len()).sum()
}

#[test]
fn every_family_has_the_same_bits_from_disk() {
    let int8 = fs::read_dir(common::fixtures().join("int8")).unwrap().map(|entry| entry.unwrap().path());
    let files = common::small_files().into_iter().chain(int8.filter(|path| path.is_dir()));
    let (mut with_pages, mut with_windows, mut with_states, mut refused) = (0, 0, 0, 0);
    for file in files {
        let (_folder, path) = folder();
        let stored = |bound| {
            let context = |builder: ModelBuilder| builder.prompt_cache(&path, bound).load(&file);
            match context(builder()) {
                // Some fixtures were trained for less.
                Err(Error::Refused(_)) => context(builder().context_length(600)),
                loaded => loaded,
            }
        };
        let first = match stored(BOUND) {
            Ok(model) => model,
            Err(Error::Option { option: "prompt_cache", .. }) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{}: {error}", file.display()),
        };
        let context = first.context_length();
        if context < PAGE + 80 {
            continue; // no whole page
        }
        let start = prompt(1, (2 * PAGE).min(context - 80));
        let prompts = [2, 3].map(|seed| [&start[..], &prompt(seed, 40)].concat());
        let plain = common::builder().threads(1).context_length(context).load(&file).unwrap();
        let expected = prompts.each_ref().map(|prompt| bits(&mut plain.session(), prompt));
        assert!(bits(&mut first.session(), &prompts[0]) == expected[0], "{}", file.display());
        drop(first);
        let names: Vec<String> =
            entries(&path).iter().map(|path| path.extension().unwrap().to_str().unwrap().into()).collect();
        let has = |part: &str| usize::from(names.iter().any(|name| name == part));
        (with_pages, with_windows, with_states) =
            (with_pages + has("page"), with_windows + has("window"), with_states + has("state"));
        let again = stored(BOUND).unwrap();
        for (prompt, expected) in prompts.iter().zip(&expected).rev() {
            let mut session = again.session();
            assert!(bits(&mut session, prompt) == *expected, "{}: other bits", file.display());
            // What is taken from disk goes on as what was computed.
            let mut computed = plain.session();
            bits(&mut computed, prompt);
            for token in [5, 6, 7] {
                assert!(bits(&mut session, &[token]) == bits(&mut computed, &[token]), "{}", file.display());
            }
        }
        let counts = usage(&again);
        assert_eq!(counts.damaged, 0, "{}", file.display());
        assert!(counts.read > 0, "{}: {counts:?}, {names:?}", file.display());
    }
    println!("{with_pages} with pages, {with_windows} with windows, {with_states} with states, {refused} refused");
    assert!(with_pages > 50 && with_windows > 3 && with_states > 3 && refused > 0);
}
