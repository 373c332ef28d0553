//! A session that was saved and restored goes on with the same bits, in whatever process; its file is replaced whole.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, bits, tokens};

use common::phi_128k::{cache, write_128k};
use common::spans;
use model_factory::error::EngineError;
use model_factory::session::WeightsDigest;
use model_factory::{CancellationToken, Error, GenerateOptions, KvDtype, Model, ModelBuilder, Session};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a restored session holds comes from its file, and from no other session.
fn builder() -> ModelBuilder {
    common::builder().prefix_caching(false)
}

fn load(path: &Path, dtype: KvDtype, threads: usize) -> Model {
    spans::watch_threads();
    builder().kv_cache(dtype).threads(threads).load(path).expect("a fixture loads")
}

/// The bits of the logits after `token` and after each of the next `count`, the likeliest at each place, and these.
fn goes_on(session: &mut Session, mut token: u32, count: usize) -> (Vec<Vec<u32>>, Vec<u32>) {
    let (mut rows, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let row = bits(session, &[token]);
        let logits: Vec<f32> = row.iter().map(|bits| f32::from_bits(*bits)).collect();
        token = common::top(&logits).0 as u32;
        rows.push(row);
        ids.push(token);
    }
    (rows, ids)
}

/// Every fixture's smallest files, and every int8 checkpoint.
fn files() -> Vec<PathBuf> {
    let int8 = fs::read_dir(common::fixtures().join("int8")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = common::small_files().into_iter().chain(int8.filter(|path| path.is_dir())).collect();
    files.sort();
    files
}

#[test]
fn every_family_goes_on_with_the_same_bits_in_a_model_that_is_loaded_anew() {
    let (folder, files) = (tempfile::tempdir().unwrap(), files());
    // Two threads, as a file is waited for until it is on the disk.
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (files, path) = (&files, folder.path().join(format!("{half}.session")));
            scope.spawn(move || {
                for (index, file) in files.iter().enumerate().filter(|(index, _)| index % 2 == half) {
                    // A page and a part of a tile; a part of the first tile; whole pages.
                    let counts = [[300, 256 + 64][index / 2 % 2], 5, 256];
                    restores(file, counts, 2 - half, &path);
                }
            });
        }
    });
}

/// Sessions of these numbers of tokens, saved by one model of `file` with so many threads and restored by another with one.
fn restores(file: &Path, counts: [usize; 3], threads: usize, path: &Path) {
    for dtype in [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0] {
        let (model, anew) = (load(file, dtype, threads), load(file, dtype, 1));
        for count in counts {
            let count = count.min(model.context_length() - 65);
            let prompt: Vec<u32> = tokens(count, 320).iter().map(|id| id % model.spec().vocab as u32).collect();
            let mut session = model.session();
            session.forward(&prompt).unwrap();
            session.save(path, WeightsDigest::Sampled).unwrap();
            let expected = goes_on(&mut session, 7, 64);
            session.truncate(count - count.min(70) / 2);
            let cut = bits(&mut session, &[3]);
            let mut restored = anew.restore(path).unwrap();
            assert_eq!(restored.ids(), prompt, "{}", file.display());
            let found = goes_on(&mut restored, 7, 64);
            assert!(found == expected, "{}, {dtype}, {count} tokens: other bits", file.display());
            restored.truncate(count - count.min(70) / 2);
            assert!(bits(&mut restored, &[3]) == cut, "{}, {dtype}, {count} tokens: cut back", file.display());
        }
    }
}

/// The part of a test that another process does: what the variables ask for.
const MODEL: &str = "SAVED_SESSIONS_MODEL";
const FILE: &str = "SAVED_SESSIONS_FILE";

fn child(test: &str, model: &Path, file: &Path) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args([&format!("saved_sessions::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(MODEL, model)
        .env(FILE, file);
    child
}

fn asked() -> Option<(PathBuf, PathBuf)> {
    Some((std::env::var_os(MODEL)?.into(), std::env::var_os(FILE)?.into()))
}

#[test]
fn another_process_goes_on_with_the_same_bits() {
    if let Some((model, file)) = asked() {
        let (rows, ids) = goes_on(&mut load(&model, KvDtype::F16, 1).restore(file).unwrap(), 7, 64);
        println!("\nfound {rows:?} {ids:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = (common::named("qwen3").folder.join("bf16"), folder.path().join("a.session"));
    let loaded = load(&model, KvDtype::F16, 2);
    let mut session = loaded.session();
    session.forward(&tokens(300, 320)).unwrap();
    session.save(&path, WeightsDigest::Sampled).unwrap();
    let output = child("another_process_goes_on_with_the_same_bits", &model, &path).output().unwrap();
    let (rows, ids) = goes_on(&mut session, 7, 64);
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix("found "));
    assert!(found == Some(&format!("{rows:?} {ids:?}")), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_file_depends_on_the_sequence_alone_and_is_as_small() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    for dtype in [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0] {
        let model = load(&common::named("llama-3.2").folder.join("bf16"), dtype, 2);
        model.session().save(&one, WeightsDigest::Sampled).unwrap();
        assert!(model.restore(&one).unwrap().is_empty());
        let head = fs::metadata(&one).unwrap().len();
        assert!(head < 2048, "{head} bytes of header");
        let per_token = model.report().plan.as_ref().unwrap().kv_per_token + 4;
        for (count, before) in
            [(1, 300), (63, 64), (64, 100), (199, 512), (200, 512), (256, 400), (257, 700), (400, 401)]
        {
            let mut fresh = model.session();
            fresh.forward(&tokens(count, 320)).unwrap();
            fresh.save(&one, WeightsDigest::Sampled).unwrap();
            // Another history: what was forgotten is not in the file.
            let mut other = model.session();
            other.forward(&tokens(before, 320).iter().map(|id| (id + 1) % 320).collect::<Vec<_>>()).unwrap();
            other.truncate(0);
            other.forward(&tokens(before, 320)).unwrap();
            other.truncate(count);
            other.save(&two, WeightsDigest::Sampled).unwrap();
            assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap(), "{dtype}, {count} of {before}");
            model.restore(&one).unwrap().save(&two, WeightsDigest::Sampled).unwrap();
            assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap(), "{dtype}, {count} restored");
            let bytes = fs::metadata(&one).unwrap().len();
            let body = count as u64 * per_token + 4 * count.div_ceil(256) as u64;
            assert!(
                (head + body..=head + body + 8).contains(&bytes),
                "{dtype}, {count} tokens: {bytes} bytes, {head} + {body}"
            );
        }
    }
}

/// A longrope sequence that grows past its original context is computed again. Broken off, its cache holds less than its
/// ids.
#[test]
fn a_session_whose_computing_anew_was_broken_off_goes_on_where_it_was() {
    spans::watch_threads();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    write_128k(folder.path());
    let config = fs::read_to_string(folder.path().join("config.json")).unwrap();
    let held = 2 * 512 + 100;
    // As JSON it was written again.
    let from = "\"original_max_position_embeddings\":256";
    assert!(config.contains(from));
    fs::write(folder.path().join("config.json"), config.replace(from, &from.replace("256", &held.to_string())))
        .unwrap();
    let model = builder().context_length(2048).load(folder.path()).unwrap();
    let (prompt, layers) = (tokens(held + 1, 320), model.spec().layers());
    let expected = bits(&mut model.session(), &prompt);
    let mut whole = model.session();
    whole.forward(&prompt).unwrap();
    whole.save(&path, WeightsDigest::Sampled).unwrap();
    assert_eq!(goes_on(&mut model.restore(&path).unwrap(), 5, 3), goes_on(&mut whole, 5, 3), "rotated as a long one");
    for at in [0, layers, 2 * layers, 3 * layers - 1] {
        let (cancel, mut session) = (CancellationToken::new(), model.session());
        session.forward(&prompt[..held]).unwrap();
        let token = cancel.clone();
        let begun = std::cell::Cell::new(0);
        let watch = move |span: &spans::Begun| {
            if span.name == "layer" {
                if begun.get() == at {
                    token.cancel();
                }
                begun.set(begun.get() + 1);
            }
        };
        let result = spans::watch_thread(watch, || session.next_logits_unless(&prompt[held..], &cancel));
        assert!(matches!(result, Err(Error::Cancelled)), "layer {at}: {result:?}");
        session.save(&path, WeightsDigest::Sampled).unwrap();
        let mut restored = model.restore(&path).unwrap();
        assert_eq!(restored.ids(), &prompt[..held]);
        assert_eq!(bits(&mut restored, &prompt[held..]), expected, "layer {at}");
        assert_eq!(bits(&mut session, &prompt[held..]), expected, "layer {at}: the one that was saved");
    }
}

#[test]
fn restored_sessions_share_the_budget_and_the_context_of_the_model() {
    spans::watch_threads();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    write_128k(folder.path());
    let model = builder().context_length(1024).sessions(1).load(folder.path()).unwrap();
    let mut session = model.session();
    session.forward(&tokens(513, 320)).unwrap();
    session.save(&path, WeightsDigest::Sampled).unwrap();
    // 768 positions are taken, 256 are left.
    let refused = model.restore(&path).expect_err("more than is left");
    let Error::Engine(EngineError::CacheBudget { asked, left, budget }) = refused else { panic!("{refused}") };
    assert_eq!((asked, left, budget), (cache(768), cache(256), cache(1024)));
    session.truncate(0);
    let restored = model.restore(&path).unwrap();
    assert_eq!(restored.cache_bytes() as u64, cache(768));
    assert!(
        matches!(session.forward(&tokens(257, 320)), Err(Error::Engine(EngineError::CacheBudget { .. }))),
        "what it takes is taken"
    );
    // A file that is damaged at its end has taken pages before that was seen; they are given back.
    drop(restored);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = folder.path().join("damaged");
    fs::write(&damaged, bytes).unwrap();
    for _ in 0..3 {
        assert!(matches!(model.restore(&damaged), Err(Error::SessionFile(_))));
    }
    session.forward(&tokens(1024, 320)).unwrap();
    // A shorter context.
    let model = builder().context_length(512).load(folder.path()).unwrap();
    let refused = model.restore(&path).expect_err("longer than the context");
    assert_eq!(refused.code(), 2);
    assert_eq!(
        refused.to_string(),
        format!(
            "{}: it has 513 tokens, and a session of this model holds 512; load the model with a larger context",
            path.display()
        )
    );
}

/// Checksums do not tell whether keys and values are what the model computes.
#[test]
fn what_was_restored_is_not_offered_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let fixture = common::named("llama-3.2").folder.join("bf16");
    // Whole pages and a part of one; only a part.
    for count in [600, 100] {
        let prompt = tokens(count, 320);
        let mut session = load(&fixture, KvDtype::F32, 1).session();
        session.forward(&prompt).unwrap();
        session.save(&path, WeightsDigest::Sampled).unwrap();
        let model = common::builder().prefix_caching(true).load(&fixture).unwrap();
        let found = |mut session: Session| {
            // By a salt parts of pages are shared too.
            let options = GenerateOptions::default().max_tokens(1).ignore_stop(true).cache_salt("a");
            let mut generation = session.generate_ids(&prompt, &options).unwrap();
            generation.text().unwrap();
            generation.finish().1.cached_tokens
        };
        let mut restored = model.restore(&path).unwrap();
        restored.set_cache_salt(Some("a"));
        bits(&mut restored, &[7]);
        let mut fork = restored.fork().unwrap();
        assert_eq!(bits(&mut fork, &[8]), bits(&mut restored, &[8]));
        assert_eq!(found(model.session()), 0, "{count}: next to it");
        // What that one computed is found, and is forgotten with its model.
        assert!(found(model.session()) > 0, "{count}: what was computed");
        let model = common::builder().prefix_caching(true).load(&fixture).unwrap();
        for is_fork in [false, true] {
            let mut session = model.restore(&path).unwrap();
            session.set_cache_salt(Some("a"));
            if is_fork {
                session = session.fork().unwrap();
            }
            bits(&mut session, &[7]);
            drop(session);
            assert_eq!(model.cache_usage().bytes, 0, "{count}: its pages are freed");
        }
        // Cut back to nothing, a session computes what it holds.
        let mut restored = model.restore(&path).unwrap();
        restored.truncate(0);
        assert_eq!(found(restored), 0);
        assert!(found(model.session()) > 0, "{count}: what was computed again");
    }
}

#[test]
fn threads_that_save_to_one_file_leave_one_of_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let model = load(&common::named("llama-3.2").folder.join("bf16"), KvDtype::F32, 1);
    std::thread::scope(|scope| {
        for count in [10, 300, 20] {
            let (model, path) = (&model, &path);
            scope.spawn(move || {
                let mut session = model.session();
                session.forward(&tokens(count, 320)).unwrap();
                for _ in 0..10 {
                    session.save(path, WeightsDigest::Full).unwrap();
                    let len = model.restore(path).unwrap().len();
                    assert!([10, 300, 20].contains(&len), "{len}");
                }
            });
        }
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Saves until it is ended, or until it is refused.
#[test]
#[cfg(unix)]
fn a_process_that_is_killed_while_it_saves_or_may_not_write_leaves_the_old_file() {
    use std::os::unix::process::CommandExt;

    const TEST: &str = "a_process_that_is_killed_while_it_saves_or_may_not_write_leaves_the_old_file";
    if let Some((model, file)) = asked() {
        let model = load(&model, KvDtype::F32, 1);
        let mut session = model.session();
        session.forward(&tokens(600, 320)).unwrap();
        loop {
            if let Err(error) = session.save(&file, WeightsDigest::Sampled) {
                println!("\nrefused {} {error}", error.code());
                return;
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = (common::named("llama-3.2").folder.join("bf16"), folder.path().join("a.session"));
    let loaded = load(&model, KvDtype::F32, 1);
    let mut session = loaded.session();
    session.forward(&tokens(10, 320)).unwrap();
    session.save(&path, WeightsDigest::Sampled).unwrap();
    let old = fs::read(&path).unwrap();

    // Files of at most 32 KiB, and no signal for more: as on a full disk, a write fails.
    let limited = child(TEST, &model, &path);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"])
        .arg(limited.get_program())
        .args(limited.get_args());
    shell.envs(limited.get_envs().filter_map(|(name, value)| Some((name, value?)))).arg0("sh");
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let refused = format!("refused 1 {}: ", path.display());
    assert!(text.lines().any(|line| line.starts_with(&refused)), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read(&path).unwrap() == old, "the old file stays");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else does");

    let mut found = [0, 0];
    for round in 0..8 {
        session.save(&path, WeightsDigest::Sampled).unwrap();
        let mut child = child(TEST, &model, &path).stdout(std::process::Stdio::null()).spawn().unwrap();
        // Long enough for some to have saved when they end, some not.
        std::thread::sleep(std::time::Duration::from_millis(20 + 40 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let len = loaded.restore(&path).unwrap().len();
        assert!([10, 600].contains(&len), "{len}");
        found[usize::from(len == 600)] += 1;
    }
    println!("old {}, new {}", found[0], found[1]);
}

/// `MODEL_FACTORY_MODEL` names the model. Restoring 4096 tokens takes at most a twentieth of computing them.
#[test]
#[ignore = "takes a large model"]
fn restoring_takes_a_twentieth_of_computing() {
    use std::time::Instant;

    const ROUNDS: usize = 5;
    let path = PathBuf::from(std::env::var_os("MODEL_FACTORY_MODEL").expect("MODEL_FACTORY_MODEL names a model"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.session");
    let timed = |times: &mut Vec<f64>, what: &mut dyn FnMut()| {
        let begun = Instant::now();
        what();
        times.push(begun.elapsed().as_secs_f64());
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    for dtype in [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0] {
        let model = builder().threads(cores).kv_cache(dtype).context_length(4224).load(&path).unwrap();
        let mut session = model.session();
        let begun = Instant::now();
        session.forward(&tokens(4096, 320)).unwrap();
        let prefill = begun.elapsed().as_secs_f64();
        let (mut saves, mut warm, mut cold, mut firsts) = (vec![], vec![], vec![], vec![]);
        let mut medians = [0.0; 3];
        for _ in 0..ROUNDS {
            medians[0] = timed(&mut saves, &mut || session.save(&file, WeightsDigest::Sampled).unwrap());
            medians[1] = timed(&mut warm, &mut || drop(model.restore(&file).unwrap()));
            // Out of the system's memory, where there is such a program.
            let of = format!("of={}", file.display());
            let dropped =
                Command::new("dd").args([&*of, "oflag=nocache", "conv=notrunc,fdatasync", "count=0"]).output();
            assert!(dropped.is_ok_and(|output| output.status.success()), "dd");
            medians[2] = timed(&mut cold, &mut || drop(model.restore(&file).unwrap()));
        }
        let anew = builder().threads(cores).kv_cache(dtype).context_length(4224).load(&path).unwrap();
        let first = timed(&mut firsts, &mut || drop(anew.restore(&file).unwrap()));
        let mut restored = anew.restore(&file).unwrap();
        assert_eq!(goes_on(&mut restored, 7, 8), goes_on(&mut session, 7, 8));
        let gigabytes = fs::metadata(&file).unwrap().len() as f64 / 1e9;
        let speed = |seconds: f64| format!("{seconds:.3} s, {:.1} GB/s", gigabytes / seconds);
        println!(
            "{dtype}: {gigabytes:.3} GB; computed in {prefill:.2} s; medians of {ROUNDS}: saved {}; restored from memory {}, \
             from disk {}; by a model loaded again {}; a {:.0}th of computing",
            speed(medians[0]),
            speed(medians[1]),
            speed(medians[2]),
            speed(first),
            prefill / medians[2]
        );
        assert!(medians[2] <= prefill / 20.0);
    }
}
