//! What was computed of a prompt is read from disk in place of being computed again, with the same bits: by a model that is loaded
//! anew, by another process, and beside others. Whatever is wrong with the files costs time and no more.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, bits, bits_of, seeded_tokens};

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

/// What tokens of a prompt of `count` are found by a model that is loaded anew, and by one whose prompt has an end of its own.
#[test]
fn a_restart_finds_all_whole_pages() {
    for (name, dtype) in [
        ("llama-3", KvDtype::F32),
        ("llama-3", KvDtype::F16),
        ("llama-3", KvDtype::Q8_0),
        ("phi-3-window", KvDtype::F16),
        ("gemma-3", KvDtype::F32),
        ("qwen3.5", KvDtype::F32),
        ("deepseek-v2", KvDtype::F32),
    ] {
        let ((_folder, path), file) = (folder(), common::named(name).folder.join("bf16"));
        let load = || builder().kv_cache(dtype).prompt_cache(&path, BOUND).load(&file).unwrap();
        let long = prompt(1, 3 * PAGE + 40);
        let plain = common::builder().kv_cache(dtype).context_length(1024).threads(1).load(&file).unwrap();
        for (turn, expected) in [0, 3 * PAGE, 3 * PAGE].into_iter().enumerate() {
            let model = load();
            let waiting = model.generate(&long, &GenerateOptions::default()).unwrap();
            // On the thread that makes the generation: those of steps and streams do not wait for the disk.
            assert_eq!(usage(&model).read > 0, turn > 0, "{name}: read before the first step");
            drop(waiting);
            let found = ask(&model, &long, None);
            assert_eq!(found, (expected, ask(&plain, &long, None).1), "{name}, {dtype}, turn {turn}");
            let counts = usage(&model);
            assert_eq!((counts.read > 0, counts.written > 0), (turn > 0, turn == 0), "{name}: {counts:?}");
            // What is there is not written again.
            drop(model);
        }
        let model = load();
        let other = [&long[..2 * PAGE + 100], &prompt(2, 40)].concat();
        // A state is kept where the prompt ended, and at every fourth page.
        let expected = if name == "qwen3.5" { 0 } else { 2 * PAGE };
        assert_eq!(ask(&model, &other, None), (expected, ask(&plain, &other, None).1), "{name}, {dtype}");
    }
}

const CHILD: &str = "PROMPT_CACHE_CHILD";

/// Runs `test` of this file in another process, which `set_up` prepares.
fn child(test: &str, value: &Path, set_up: &str) -> String {
    let test = format!("prompt_cache::{test}");
    let child = Command::new("sh")
        .args(["-c", &format!("{set_up} exec \"$0\" \"$@\""), std::env::current_exe().unwrap().to_str().unwrap()])
        .args([&*test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{text}");
    text
}

#[cfg(unix)]
#[test]
fn another_process_finds_it_while_this_one_runs() {
    let long = prompt(1, 3 * PAGE + 40);
    let load = |path: &Path| builder().prompt_cache(path, BOUND).load(llama()).unwrap();
    if let Some(path) = std::env::var_os(CHILD) {
        println!("\nfound {:?}", ask(&load(path.as_ref()), &long, None));
        return;
    }
    let (_folder, path) = folder();
    let model = load(&path);
    let (_, ids) = ask(&model, &long, None);
    assert!(usage(&model).written > 0);
    let text = child("another_process_finds_it_while_this_one_runs", &path, "");
    assert!(text.contains(&format!("found {:?}", (3 * PAGE, ids))), "{text}");
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert!(fs::read_dir(&path).unwrap().all(|file| mode(&file.unwrap().path()) == 0o600));
}

/// Every kind of entry with bytes changed in all of its parts, cut at many lengths, longer, empty, a link, a folder, another entry's bytes.
#[test]
fn a_damaged_entry_is_computed_again() {
    for (name, part) in [("llama-3", "page"), ("gemma-3", "window"), ("qwen3.5", "state")] {
        let ((folder, path), file) = (folder(), common::named(name).folder.join("bf16"));
        let load = || builder().prompt_cache(&path, BOUND).load(&file).unwrap();
        let long = prompt(1, 2 * PAGE + 40);
        let (_, expected) = ask(&load(), &long, None);
        let all = entries(&path);
        // One that is read: of windows and states that of the most tokens.
        let is_read = |path: &&PathBuf| {
            let whole = fs::read(path).unwrap();
            fs::write(path, []).unwrap();
            let model = load();
            ask(&model, &long, None);
            let is_read = usage(&model).damaged == 1;
            drop(model);
            fs::write(path, whole).unwrap();
            is_read
        };
        let victim = all.iter().filter(|path| path.extension().unwrap() == part).find(is_read).unwrap();
        let stranger = folder.path().join("secret");
        let whole = fs::read(victim).unwrap();
        fs::write(&stranger, &whole).unwrap();
        let mut damaged: Vec<Vec<u8>> = Vec::new();
        let middle = whole.len() / 2;
        for at in (0..56).chain([middle, whole.len() - 5]).chain(whole.len() - 4..whole.len()) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            damaged.push(bytes);
        }
        damaged.extend([0, 1, 8, 51, 52, middle, whole.len() - 4, whole.len() - 1].map(|len| whole[..len].to_vec()));
        damaged.push([&whole[..], &[0]].concat());
        damaged.extend(all.iter().filter(|path| *path != victim).map(|path| fs::read(path).unwrap()));
        for (index, bytes) in damaged.iter().enumerate() {
            fs::write(victim, bytes).unwrap();
            let model = load();
            assert_eq!(ask(&model, &long, None).1, expected, "{name}: {index}");
            assert_eq!(usage(&model).damaged, 1, "{name}: {index} of {} bytes", bytes.len());
            drop(model);
            assert!(fs::read(victim).unwrap() == whole, "{name}: {index}: it is written anew, the same");
        }
        // What is no file is not followed, and stays.
        fs::remove_file(victim).unwrap();
        fs::create_dir(victim).unwrap();
        assert_eq!(ask(&load(), &long, None).1, expected);
        fs::remove_dir(victim).unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&stranger, victim).unwrap();
            let model = load();
            assert_eq!(ask(&model, &long, None).1, expected);
            assert_eq!(usage(&model).damaged, 0);
            drop(model);
            assert!(fs::read(&stranger).unwrap() == whole, "what a link leads to stays");
        }
        // The folder itself goes while it is used.
        let model = load();
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(ask(&model, &long, None), (0, expected));
        assert_eq!(usage(&model).written, 0);
    }
}

#[test]
fn what_differs_shares_nothing() {
    let ((_folder, path), long) = (folder(), prompt(1, 2 * PAGE + 40));
    let with = |builder: ModelBuilder, file: &Path| builder.prompt_cache(&path, BOUND).load(file).unwrap();
    let reads = |model: &Model| usage(model).read;
    let (_, ids) = ask(&with(builder(), &llama()), &long, None);
    let before = entries(&path);
    // Another dtype, another level, and one changed weight at the end of the file.
    let other = tempfile::tempdir().unwrap();
    for file in fs::read_dir(llama()).unwrap().map(|file| file.unwrap().path()) {
        fs::copy(&file, other.path().join(file.file_name().unwrap())).unwrap();
    }
    let weights = other.path().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    fs::write(&weights, bytes).unwrap();
    for (what, model) in [
        ("dtype", with(builder().kv_cache(KvDtype::F16), &llama())),
        ("level", with(builder().isa(Isa::portable()), &llama())),
        ("weights", with(builder(), other.path())),
    ] {
        assert_eq!((ask(&model, &long, None).0, reads(&model)), (0, 0), "{what}");
        drop(model);
        assert!(entries(&path).len() > before.len(), "{what}");
    }
    // Salts, which share with themselves only; what begins with NUL is not even kept.
    for (salt, expected) in [(Some("one"), 0), (Some("two"), 0), (Some("one"), 2 * PAGE), (None, 2 * PAGE)] {
        let model = with(builder(), &llama());
        assert_eq!(ask(&model, &long, salt), (expected, ids.clone()), "{salt:?}");
    }
    let count = entries(&path).len();
    for _ in 0..2 {
        assert_eq!(ask(&with(builder(), &llama()), &long, Some("\0one")).0, 0);
    }
    assert_eq!(entries(&path).len(), count);
    // Adapters by their files and factors.
    let of = common::adapters::named("llama-3.2");
    for (uses, scale, expected) in
        [("none", 1.0, 0), ("first", 1.0, 0), ("first", 0.5, 0), ("first", 1.0, 512), ("none", 1.0, 512)]
    {
        let model = with(builder().sessions(16), &of.base("bf16"));
        let adapters = if uses == "none" { Vec::new() } else { of.used(&model, uses, "bf16") };
        let options = GenerateOptions::default().max_tokens(1).temperature(0.0).ignore_stop(true);
        let options = adapters.iter().fold(options, |options, (of, by)| options.adapter(of, *by * scale));
        let mut generation = model.generate(&long, &options).unwrap();
        generation.text().unwrap();
        assert_eq!(generation.finish().1.cached_tokens, expected, "{uses}, {scale}");
    }
    // Images by their digests, where ids are equal; their rows cross the ends of pages.
    let gemma = common::named("gemma-3").folder.join("bf16");
    let mut kept = Vec::new();
    for (digest, expected) in [(1, 0), (2, 0), (1, 2 * PAGE), (2, 2 * PAGE)] {
        let model = with(builder(), &gemma);
        let hidden = model.spec().hidden;
        let rows = (0..100 * hidden).map(|index| ((index * 37 + digest * 101) % 255) as f32 / 64.0 - 2.0).collect();
        let image = Arc::new(SoftTokens::new(rows, hidden, [digest as u8; 32]).unwrap());
        let mut input = Input::from(prompt(5, 200));
        input.push_soft_tokens(9, &image).unwrap();
        input.push_ids(&prompt(6, 300)).unwrap();
        let options = GenerateOptions::default().max_tokens(4).temperature(0.0).ignore_stop(true);
        let mut generation = model.generate(&input, &options).unwrap();
        generation.text().unwrap();
        assert_eq!(generation.finish().1.cached_tokens, expected, "image {digest}");
        kept.push(bits_of(&model.session().next_logits_of(&input).unwrap()));
    }
    assert!(kept[0] == kept[2] && kept[1] == kept[3] && kept[0] != kept[1]);
}

#[test]
fn the_bound_holds_and_the_least_recently_used_goes_first() {
    let (_folder, path) = folder();
    let load = |bound| builder().prompt_cache(&path, bound).load(llama()).unwrap();
    let prompts: Vec<Vec<u32>> = (1..5).map(|seed| prompt(seed, 2 * PAGE + 40)).collect();
    ask(&load(BOUND), &prompts[0], None);
    let two = bytes_of(&entries(&path));
    assert_eq!(entries(&path).len(), 2);
    let stranger = path.join("notes.page");
    fs::write(&stranger, vec![0; 4 * two as usize]).unwrap();
    // Room for three prompts and a tenth: the first one, which is used again, stays beside the last ones.
    let bound = two * 35 / 10;
    for prompt in [&prompts[1], &prompts[2], &prompts[0], &prompts[3]] {
        ask(&load(bound), prompt, None);
        let held: Vec<PathBuf> = entries(&path).into_iter().filter(|path| *path != stranger).collect();
        assert!(bytes_of(&held) <= bound);
    }
    assert_eq!(ask(&load(bound), &prompts[0], None).0, 2 * PAGE);
    assert_eq!(ask(&load(bound), &prompts[3], None).0, 2 * PAGE);
    assert!(stranger.is_file());
    // Two models that write at the same time are within it too.
    let models = [load(bound), load(bound)];
    std::thread::scope(|scope| {
        for (index, model) in models.iter().enumerate() {
            scope.spawn(move || {
                (0..6).for_each(|seed| _ = ask(model, &prompt(20 + 10 * index as u32 + seed, 3 * PAGE), None))
            });
        }
    });
    let counts = models.each_ref().map(usage);
    let held = bytes_of(&entries(&path)) - fs::metadata(&stranger).unwrap().len();
    assert!(held <= bound && counts.iter().all(|counts| counts.written > 0), "{held} of {bound}: {counts:?}");
    drop(models);
    // A bound of a few bytes keeps nothing, and a smaller bound than before is kept from the beginning.
    let model = load(100);
    assert_eq!(entries(&path), std::slice::from_ref(&stranger));
    ask(&model, &prompts[0], None);
    let counts = usage(&model);
    assert_eq!((counts.bytes, counts.written, counts.dropped > 0), (0, 0, true), "{counts:?}");
}

/// The system refuses files of more than a kilobyte, as a full disk does in the middle of a file.
#[cfg(unix)]
#[test]
fn a_full_disk_costs_nothing_but_the_entry() {
    let long = prompt(1, 2 * PAGE + 40);
    let load = |path: &Path| builder().prompt_cache(path, BOUND).load(llama()).unwrap();
    if let Some(path) = std::env::var_os(CHILD) {
        let model = load(path.as_ref());
        let found = ask(&model, &long, None);
        let counts = usage(&model);
        println!("\nfound {found:?} {} {}", counts.written, counts.dropped > 0);
        return;
    }
    let (_folder, path) = folder();
    let expected = ask(&common::builder().context_length(1024).load(llama()).unwrap(), &long, None);
    let text = child("a_full_disk_costs_nothing_but_the_entry", &path, "trap '' XFSZ; ulimit -f 1;");
    assert!(text.contains(&format!("found {expected:?} 0 true")), "{text}");
    let left: Vec<_> = fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn a_folder_that_others_could_read_is_refused() {
    let (folder, path) = folder();
    let load = |path: &Path| builder().prompt_cache(path, BOUND).load(llama());
    #[cfg(unix)]
    {
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o750)).unwrap();
        let Err(Error::Io { path: named, source }) = load(&path) else { panic!("it was taken") };
        assert_eq!(named, fs::canonicalize(&path).unwrap());
        assert!(source.to_string().contains("mode 750, expected 700"), "{source}");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("/dev/null", path.join(".lock")).unwrap();
        assert!(matches!(load(&path), Err(Error::Io { .. })));
    }
    let file = folder.path().join("a file");
    fs::write(&file, "kept").unwrap();
    assert!(matches!(load(&file), Err(Error::Io { .. })));
    assert_eq!(fs::read(&file).unwrap(), b"kept");
    let off = builder().prefix_caching(false).prompt_cache(&path, BOUND);
    assert!(matches!(off.load(&file), Err(Error::Refused(_))));
}

/// A memory so small that what was read and what is computed push each other out, and many that ask at once.
#[test]
fn concurrent_generations_have_the_same_bits_while_all_is_written_and_read() {
    for name in ["llama-3", "phi-3-window", "qwen3.5"] {
        let ((_folder, path), file) = (folder(), common::named(name).folder.join("bf16"));
        let load = || builder().sessions(2).threads(2).prompt_cache(&path, BOUND);
        let load = || load().admission(model_factory::Admission::Wait).load(&file).unwrap();
        let plain = common::builder().context_length(1024).load(&file).unwrap();
        let starts = [prompt(1, 2 * PAGE), prompt(2, 3 * PAGE - 20)];
        let prompts: Vec<Vec<u32>> =
            (0..6).map(|seed| [&starts[seed as usize % 2][..], &prompt(30 + seed, 90)].concat()).collect();
        let expected: Vec<Vec<u32>> = prompts.iter().map(|prompt| ask(&plain, prompt, None).1).collect();
        for _ in 0..3 {
            let model = load();
            std::thread::scope(|scope| {
                for turn in 0..4 {
                    let (model, prompts, expected) = (&model, &prompts, &expected);
                    scope.spawn(move || {
                        for index in (0..prompts.len()).map(|index| (index + turn) % prompts.len()) {
                            assert!(ask(model, &prompts[index], None).1 == expected[index], "{name}: other ids");
                        }
                    });
                }
            });
            assert_eq!(usage(&model).damaged, 0);
        }
        // All that they need is there.
        assert!(usage(&load()).bytes > 0);
    }
}

/// An agent's transcript of a hybrid model: each of forty requests has another stamp at its head, the process ends twice, and what of
/// a request was in the one before is read.
#[test]
fn forty_turns_with_a_changing_head_reuse_their_prefix() {
    let ((folder, path), fixture) = (folder(), common::named("qwen3.5").folder.join("bf16"));
    let copy = folder.path().join("model");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&fixture).unwrap().map(|file| file.unwrap().path()) {
        fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
    }
    // Forty turns take more than the fixture was trained for, and its rotation has no end.
    let config = fs::read_to_string(copy.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = 32_768.into();
    fs::write(copy.join("config.json"), config.to_string()).unwrap();
    let load = |on| {
        let builder = common::builder().prefix_caching(on).context_length(16_384).sessions(3);
        let builder = if on { builder.prompt_cache(&path, BOUND) } else { builder };
        builder.load(&copy).unwrap()
    };
    let (mut model, plain) = (load(true), load(false));
    let rules = "Read before you write, and say what you did. ".repeat(20);
    let mut turns = Vec::new();
    let (mut before, mut reused) = (0, 0);
    for turn in 0..40 {
        if turn == 15 || turn == 30 {
            drop(model);
            model = load(true);
        }
        let head = format!(
            "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch={:05x};{rules}",
            turn * 7919
        );
        let text = format!("Step {turn}: ") + &"the tool says that it is so. ".repeat(8);
        turns.push(serde_json::json!({ "role": "user", "content": text }));
        let body = serde_json::json!({ "model": "m", "max_tokens": 2, "system": head, "messages": turns });
        let request = model_factory_openai::anthropic::request(body.to_string().as_bytes()).unwrap();
        let model_factory_openai::CompletionInput::Messages(messages) = request.input else { panic!("messages") };
        let options = request.options.temperature(0.0).ignore_stop(true);
        let mut generation = model.generate(&messages, &options).unwrap();
        let answer = generation.text().unwrap();
        let timings = generation.finish().1;
        if turn % 13 == 4 {
            assert_eq!(plain.generate(&messages, &options).unwrap().text().unwrap(), answer, "turn {turn}");
        }
        if before > 0 {
            reused += timings.cached_tokens;
        }
        if turn < 39 {
            before += timings.cached_tokens + timings.prompt_tokens;
        }
        turns.push(serde_json::json!({ "role": "assistant", "content": "Done." }));
    }
    println!("{reused} of {before}");
    assert!(before > 100_000 && reused * 100 >= before * 95, "{reused} of {before}");
}
