//! Layers with a window keep the positions that a later one may see: the memory that is planned, and no other bits.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, bits, seeded_tokens};

use model_factory::diagnostics::plan::{KV_PAGE, KvSize};
use model_factory::session::WeightsDigest;
use model_factory::{GenerateOptions, KvDtype, Model};

/// Fixtures whose windows of 24 and 40 positions leave most of their contexts out: some layers, all layers, layers that read what others
/// store, layers whose windows are chunks.
const FIXTURES: [&str; 6] = ["gemma-3", "gpt-oss", "mistral-7b", "gemma-4-e2b", "gemma-3n-other", "llama-4-chunks"];

fn load(fixture: &str, prefix_caching: bool) -> Model {
    let folder = common::named(fixture).folder.join("bf16");
    common::builder().context_length(2048).sessions(1).prefix_caching(prefix_caching).load(folder).unwrap()
}

/// The bits after `ids`, computed at once by a session of its own.
fn alone(model: &Model, ids: &[u32]) -> Vec<u32> {
    bits(&mut model.session(), ids)
}

#[test]
fn a_sequence_takes_what_is_planned_and_its_bits_do_not_depend_on_its_steps() {
    for fixture in FIXTURES {
        let (plain, ids) = (load(fixture, false), seeded_tokens(1, 2048, 256));
        let size = KvSize::of_cpu(plain.spec(), KvDtype::F32);
        assert!(size.window_page > 0 && size.window_pages(2048) < 2048 / KV_PAGE, "{fixture}: {size:?}");
        let plan = plain.report().plan.clone().unwrap();
        assert_eq!((plan.kv_cache, plan.kv_window), (size.bytes(2048), 5 * KV_PAGE), "{fixture}");
        assert_eq!(plan.cache_budget, plan.kv_cache);
        let whole = alone(&plain, &ids);
        // Steps of all lengths, first long ones and at last single tokens.
        let (mut session, mut done) = (plain.session(), 0);
        for step in [700, 1, 300, 511, 513].into_iter().chain([1; 22]) {
            let last = bits(&mut session, &ids[done..done + step]);
            done += step;
            assert_eq!(session.cache_bytes() as u64, size.bytes(done), "{fixture}: {done}");
            if done == 1512 {
                assert_eq!(last, alone(&load(fixture, false), &ids[..done]), "{fixture}: {done}");
            }
        }
        assert_eq!(bits(&mut session, &ids[done..]), whole, "{fixture}");
    }
}

/// Chunks, their size and how queries grow are no keys of Llama 4's GGUF files: beyond the end of a chunk they are what a folder says.
#[test]
fn chunks_end_in_gguf_where_they_do_in_a_folder() {
    let (folder, file) = ("llama-4/f16", "llama-4/f16.gguf");
    let ids = seeded_tokens(5, 8200, 256);
    let last = |path: &std::path::Path| {
        let model = common::builder().context_length(8448).sessions(1).load(path).unwrap();
        assert!(model.spec().attentions().any(|attention| attention.chunked));
        alone(&model, &ids).into_iter().map(f32::from_bits).collect::<Vec<_>>()
    };
    let whole = last(&common::archives::path(folder));
    // Experts that are stored by inputs are summed up in another order.
    assert!(common::relative_l2(&last(&common::archives::path(file)), &whole) < 1e-5);
    // Without either, another function.
    for (key, value) in [("attention_chunk_size", 10_000.into()), ("floor_scale", serde_json::Value::from(10_000))] {
        let edited = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(common::archives::path(folder)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), edited.path().join(entry.file_name())).unwrap();
        }
        let config = std::fs::read(edited.path().join("config.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        config[key] = value;
        std::fs::write(edited.path().join("config.json"), config.to_string()).unwrap();
        assert!(common::relative_l2(&last(edited.path()), &whole) > 1e-3, "{key}");
    }
}

#[test]
fn it_goes_on_wherever_it_is_cut_back_forked_or_restored() {
    for fixture in FIXTURES {
        for shares in [false, true] {
            let (plain, model, start) = (load(fixture, false), load(fixture, shares), seeded_tokens(2, 1700, 256));
            let folder = tempfile::tempdir().unwrap();
            let mut session = model.session();
            session.next_logits(&start).unwrap();
            session.save(folder.path().join("saved"), WeightsDigest::Sampled).unwrap();
            // Within what is kept, then after it, then into the middle of a page that others may hold, and to the beginning.
            for back in [1699, 1690, 1500, 1300, 1024, 900, 255, 0] {
                session.truncate(back);
                let next = seeded_tokens(back as u32, 40, 256);
                let expected = alone(&plain, &[&start[..back], &next].concat());
                assert_eq!(bits(&mut session, &next), expected, "{fixture}, {shares}: {back}");
                session.truncate(back);
                bits(&mut session, &start[back..]);
            }
            drop(session);
            let mut restored = model.restore(folder.path().join("saved")).unwrap();
            assert_eq!(bits(&mut restored, &[3]), alone(&plain, &[&start[..], &[3]].concat()), "{fixture}: restored");
            drop(restored);
            let folder = common::named(fixture).folder.join("bf16");
            let two = common::builder().context_length(2048).sessions(2).prefix_caching(shares).load(folder).unwrap();
            let mut first = two.session();
            first.next_logits(&start).unwrap();
            let mut second = first.fork().unwrap();
            for (session, next) in [(&mut first, 5), (&mut second, 6)] {
                let next = seeded_tokens(next, 340, 256);
                assert_eq!(bits(session, &next), alone(&plain, &[&start[..], &next].concat()), "{fixture}: forked");
            }
        }
    }
}

#[test]
fn sequences_that_begin_alike_find_what_is_kept_and_never_want_for_memory() {
    let options = GenerateOptions::default().max_tokens(30).temperature(0.0).ignore_stop(true);
    let generate = |model: &Model, prompt: &[u32]| {
        let mut session = model.session();
        let mut generation = session.generate_ids(prompt, &options).unwrap();
        generation.text().unwrap();
        (generation.ids().to_vec(), generation.finish().1.cached_tokens)
    };
    for fixture in FIXTURES {
        let (plain, model) = (load(fixture, false), load(fixture, true));
        // Each goes on after what the one before has left, then others fill the memory, and the first comes again.
        let mut prompt = seeded_tokens(3, 600, 256);
        for turn in 0..5 {
            let (ids, found) = generate(&model, &prompt);
            assert_eq!(ids, generate(&plain, &prompt).0, "{fixture}: turn {turn}");
            assert!(turn == 0 || found >= prompt.len() - 250 - KV_PAGE, "{fixture}: turn {turn} found {found}");
            prompt = [&prompt, &ids[..], &seeded_tokens(turn, 220, 256)].concat();
        }
        for seed in [7, 8, 9, 3] {
            let other = seeded_tokens(seed, 2000, 256);
            assert_eq!(generate(&model, &other).0, generate(&plain, &other).0, "{fixture}: {seed}");
            let usage = model.cache_usage();
            assert!(usage.bytes == usage.unused && usage.bytes <= model.report().plan.as_ref().unwrap().kv_cache);
        }
        // Together, one after the other's pages.
        let folder = common::named(fixture).folder.join("bf16");
        let many = common::builder().context_length(2048).sessions(3).prefix_caching(true).load(folder).unwrap();
        let prompts = [1, 2, 3].map(|seed| [seeded_tokens(4, 1500, 256), seeded_tokens(seed, 60, 256)].concat());
        let expected = prompts.each_ref().map(|prompt| generate(&plain, prompt).0);
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads = prompts.each_ref().map(|prompt| scope.spawn(|| generate(&many, prompt)));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for ((ids, _), expected) in found.iter().zip(&expected) {
            assert_eq!(ids, expected, "{fixture}: together");
        }
        assert!(found.iter().map(|(_, found)| found).max() > Some(&1000), "{fixture}: {found:?}");
    }
}
