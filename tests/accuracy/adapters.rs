//! Adapters: as near to the truth as transformers with PEFT, and no bit of any row changes with who else is computed.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use crate::common::{self, adapters, bits_of, relative_l2, seeded_tokens};

use adapters::Adapters;
use model_factory::error::{AdapterError, SessionFileProblem};
use model_factory::session::WeightsDigest;
use model_factory::{Adapter, Error, GenerateOptions, Model, Session, Speculation};
use std::path::Path;
use std::sync::Barrier;

/// The logits that have a truth.
fn logits(model: &Model, adapters: &[(Adapter, f64)], of: &Adapters) -> Vec<f32> {
    let mut session = model.session();
    session.set_adapters(adapters).unwrap();
    let all = session.all_logits(&of.expected.tokens).unwrap();
    let [rows, columns] = of.expected.kept;
    let kept = all.rows().step_by(rows).flat_map(|row| row[..of.expected.vocab].iter().step_by(columns));
    kept.copied().collect()
}

/// Of F32 another order of the same sums may be as far from the truth again; of BF16 ours rounds less often than transformers. The
/// kernels of a BF16 adapter round what they read to BF16, as those of a BF16 model do, and nothing else is rounded beside them.
#[test]
fn logits_are_as_near_to_the_truth_as_those_of_transformers_with_peft() {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for of in adapters::all() {
        for (dtype, errors) in &of.expected.transformers_error {
            let model = common::load(of.base(dtype));
            for (uses, error) in errors {
                let truth = of.truth(&format!("{dtype}/{uses}"));
                let without = relative_l2(&logits(&model, &[], &of), &truth);
                for stored in ["bf16", "f16", "f32"] {
                    let bound = match (&**dtype, stored) {
                        ("f32", "bf16") => of.expected.transformers_error["bf16"][uses],
                        ("f32", _) => 2.0 * error,
                        _ => *error,
                    };
                    let found = relative_l2(&logits(&model, &of.used(&model, uses, stored), &of), &truth);
                    let label = format!("{} {dtype}, {uses} in {stored}", of.expected.base);
                    println!("{label:<40} {found:.2e} of {bound:.2e}: {:.2}, without {without:.2}", found / bound);
                    if !(found <= bound && without > 5.0 * bound) {
                        failures.push(label);
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 60 && failures.is_empty(), "{compared} comparisons, {failures:?}");
}

/// As in `accuracy.rs`: llama.cpp quantizes activations with coarser scales, and a tenth covers the other order of sums.
#[test]
fn converted_adapters_are_as_near_to_the_truth_as_those_of_llama_cpp() {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for of in adapters::all() {
        for (file, error) in &of.expected.llama_cpp_error {
            let model = common::load(common::archives::path(&format!("{}/{file}", of.expected.base)));
            let adapter = model.load_adapter(of.folder.join("converted.gguf")).unwrap();
            let truth = of.truth(&format!("{file}/converted"));
            let found = relative_l2(&logits(&model, &[(adapter, 1.0)], &of), &truth);
            let bound = 1.1 * error;
            println!("{} {file}: {found:.2e} of {bound:.2e}: {:.2}", of.expected.base, found / bound);
            if found > bound {
                failures.push(format!("{} {file}", of.expected.base));
            }
            compared += 1;
        }
    }
    assert!(compared >= 3 && failures.is_empty(), "{failures:?}");
}

#[test]
fn greedy_texts_are_those_of_transformers_with_peft() {
    for of in adapters::all() {
        let (model, greedy) = (common::load(of.base("f32")), &of.expected.greedy);
        let options = GenerateOptions::default().max_tokens(greedy.tokens.len()).temperature(0.0).ignore_stop(true);
        let options =
            of.used(&model, "first", "f32").iter().fold(options, |options, (of, by)| options.adapter(of, *by));
        for speculate in [Speculation::Off, Speculation::Ngram] {
            let mut generation = model.generate(&greedy.prompt, &options.clone().speculate(speculate)).unwrap();
            generation.text().unwrap();
            assert!(greedy.gaps.iter().all(|gap| *gap > 1e-3), "{}: a choice is not clear", of.expected.base);
            assert_eq!(generation.ids(), greedy.tokens, "{} {speculate:?}", of.expected.base);
        }
        let mut plain = options;
        plain.adapters.clear();
        let mut generation = model.generate(&greedy.prompt, &plain).unwrap();
        generation.text().unwrap();
        assert_ne!(generation.ids(), greedy.tokens, "{}: the adapter changes nothing", of.expected.base);
    }
}

/// A prompt and then single tokens, for each of `sessions` at the same time: the bits of all logits.
fn in_company(sessions: &mut [Session], prompts: &[Vec<u32>]) -> Vec<Vec<Vec<u32>>> {
    let line = Barrier::new(sessions.len());
    std::thread::scope(|scope| {
        let each = sessions.iter_mut().zip(prompts).map(|(session, prompt)| {
            let line = &line;
            scope.spawn(move || {
                let (start, rest) = prompt.split_at(prompt.len() - 6);
                let steps = std::iter::once(start).chain(rest.chunks(1));
                let step = |tokens: &[u32]| {
                    line.wait();
                    bits_of(&session.next_logits(tokens).unwrap())
                };
                steps.map(step).collect()
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What `Session` computes by itself, on one thread, all at once.
fn alone(model: &Model, adapters: &[(Adapter, f64)], prompt: &[u32]) -> Vec<Vec<u32>> {
    let mut session = model.session();
    session.set_adapters(adapters).unwrap();
    let all = session.all_logits(prompt).unwrap();
    let wanted = prompt.len() - 7;
    all.rows().skip(wanted).map(bits_of).collect()
}

#[test]
fn no_bit_depends_on_threads_chunks_or_company() {
    // Floats, blocks of GGUF, fused layers, a layer with states, experts.
    let files = [
        "llama-3.2/f32",
        "llama-3.2/q8_0.gguf",
        "qwen3/bf16",
        "phi-3.5/bf16",
        "gemma-3/bf16",
        "qwen3.5/bf16",
        "qwen3-moe/bf16",
        "qwen3-moe/q8_0.gguf",
    ];
    for file in files {
        let (name, _) = file.split_once('/').unwrap();
        let (of, path) = (adapters::named(name), common::archives::path(file));
        let load = |threads| common::builder().threads(threads).load(&path).unwrap();
        let (untouched, single, model) = (load(1), load(1), load(3));
        let used = |model: &Model| -> Vec<Vec<(Adapter, f64)>> {
            if file.ends_with(".gguf") {
                let adapter = model.load_adapter(of.folder.join("converted.gguf")).unwrap();
                return vec![vec![], vec![(adapter.clone(), 1.0)], vec![(adapter.clone(), -0.5), (adapter, 1.5)]];
            }
            let [first, both] = ["first", "both"].map(|uses| of.used(model, uses, "bf16"));
            let turned = both.iter().rev().cloned().collect();
            vec![vec![], first, both, turned]
        };
        let (of_single, of_model) = (used(&single), used(&model));
        // Twice each: rows of one adapter are of several sequences.
        let kinds: Vec<usize> = (0..of_model.len()).chain(0..of_model.len()).collect();
        let prompts: Vec<Vec<u32>> =
            kinds.iter().enumerate().map(|(i, _)| seeded_tokens(i as u32, 20 + 5 * i, 256)).collect();
        let mut sessions: Vec<Session> = kinds
            .iter()
            .map(|kind| {
                let mut session = model.session();
                session.set_adapters(&of_model[*kind]).unwrap();
                session
            })
            .collect();
        let together = in_company(&mut sessions, &prompts);
        for ((kind, prompt), found) in kinds.iter().zip(&prompts).zip(&together) {
            assert_eq!(*found, alone(&single, &of_single[*kind], prompt), "{file}, adapters {kind}");
            if of_model[*kind].is_empty() {
                assert_eq!(*found, alone(&untouched, &[], prompt), "{file} without adapters");
            }
        }
        let last = |index: usize| together[index].last().unwrap();
        assert!((1..of_model.len()).all(|kind| last(kind) != last(0)), "{file}: adapters change nothing");
    }
}

#[test]
fn prefixes_are_shared_between_equal_adapters_only() {
    let of = adapters::named("llama-3.2");
    let model = common::builder().prefix_caching(true).context_length(2048).load(of.base("bf16")).unwrap();
    let prompt = seeded_tokens(3, 2 * 256 + 40, 256);
    let [first, again, both] = ["first", "first", "both"].map(|uses| of.used(&model, uses, "bf16"));
    let half = vec![(first[0].0.clone(), 0.5)];
    // Who computes the prompt anew, and who finds the two whole pages of one before.
    let turns: [(&[(Adapter, f64)], usize); 7] =
        [(&[], 0), (&first, 0), (&both, 0), (&half, 0), (&again, 512), (&[], 512), (&half, 512)];
    let mut kept = Vec::new();
    for (turn, (adapters, expected)) in turns.into_iter().enumerate() {
        let options = GenerateOptions::default().max_tokens(4).temperature(0.0).ignore_stop(true);
        let options = adapters.iter().fold(options, |options, (of, by)| options.adapter(of, *by));
        let mut generation = model.generate(&prompt, &options).unwrap();
        generation.text().unwrap();
        assert_eq!(generation.finish().1.cached_tokens, expected, "turn {turn}");
        kept.push(generation.into_inner());
    }
}

#[test]
fn a_session_keeps_its_adapters_and_computes_again_what_others_made() {
    let of = adapters::named("llama-3.2");
    let model = common::load(of.base("f32"));
    let (first, prompt) = (of.used(&model, "first", "f32"), seeded_tokens(5, 40, 256));
    let expected = alone(&model, &first, &prompt);
    let mut session = model.session();
    session.next_logits(&prompt[..20]).unwrap();
    session.set_adapters(&first).unwrap();
    session.next_logits(&prompt[20..39]).unwrap();
    assert_eq!(bits_of(&session.fork().unwrap().next_logits(&prompt[39..]).unwrap()), expected[6]);
    // A request without adapters leaves a session those that it has.
    let options = GenerateOptions::default().max_tokens(2).temperature(0.0).ignore_stop(true);
    let with = session.generate(&prompt, &options).unwrap().text().unwrap();
    let named = first.iter().fold(options.clone(), |options, (of, by)| options.adapter(of, *by));
    assert_eq!(with, model.generate(&prompt, &named).unwrap().text().unwrap());
    session.set_adapters(&[]).unwrap();
    session.truncate(39);
    assert_eq!(bits_of(&session.next_logits(&prompt[39..]).unwrap()), alone(&model, &[], &prompt)[6]);
}

#[test]
fn a_restored_session_has_its_adapters_or_is_refused() {
    let of = adapters::named("qwen3");
    let model = common::load(of.base("bf16"));
    let (both, prompt) = (of.used(&model, "both", "bf16"), seeded_tokens(7, 300, 256));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("with.session");
    let mut session = model.session();
    session.set_adapters(&both).unwrap();
    session.next_logits(&prompt).unwrap();
    session.save(&path, WeightsDigest::Full).unwrap();
    let expected = bits_of(&session.next_logits(&[9]).unwrap());
    // Loaded anew, in another process as far as the file knows, and in another order.
    let other = common::load(of.base("bf16"));
    let loaded: Vec<Adapter> = of.used(&other, "both", "bf16").into_iter().rev().map(|(adapter, _)| adapter).collect();
    let mut restored = other.restore_with(&path, &loaded).unwrap();
    assert_eq!(bits_of(&restored.next_logits(&[9]).unwrap()), expected);
    for given in [&loaded[..0], &loaded[..1]] {
        let Err(Error::SessionFile(error)) = other.restore_with(&path, given) else { panic!("it was restored") };
        assert!(matches!(&error.problem, SessionFileProblem::Differs { what, .. } if what == "adapter"), "{error}");
    }
    let mine: Vec<Adapter> = both.into_iter().map(|(adapter, _)| adapter).collect();
    let Err(Error::Adapter(error)) = other.restore_with(&path, &mine) else { panic!("of another model") };
    assert_eq!(*error, AdapterError::OtherModel);
}

#[test]
fn what_cannot_be_meant_is_refused_and_memory_is_given_back() {
    let of = adapters::named("qwen3");
    let (model, other) = (common::load(of.base("bf16")), common::load(of.base("bf16")));
    let before = model.cache_usage();
    let (adapter, path) = (of.used(&model, "first", "bf16")[0].0.clone(), of.path("first", "bf16"));
    let stored: u64 = std::fs::metadata(path.join("adapter_model.safetensors")).unwrap().len();
    assert!(adapter.bytes() > stored / 2 && adapter.bytes() < stored, "{} of {stored} bytes", adapter.bytes());
    assert!(model.cache_usage().bytes > before.bytes + adapter.bytes(), "what steps take for it is counted too");
    for scale in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let options = GenerateOptions::default().adapter(&adapter, scale);
        let errors = [options.check().unwrap_err(), model.generate("a", &options).unwrap_err()];
        assert!(errors.iter().all(|error| matches!(error, Error::Option { option: "adapter", .. })), "{errors:?}");
        assert!(errors.iter().all(|error| error.code() == 2));
    }
    let options = GenerateOptions::default().adapter(&adapter, 1.0);
    let error = other.generate("a", &options).unwrap_err();
    assert!(matches!(&error, Error::Adapter(of) if **of == AdapterError::OtherModel) && error.code() == 2, "{error}");
    // A session holds what it computes with, however soon its caller lets go.
    let mut session = model.session();
    session.set_adapters(&[(adapter, 1.0)]).unwrap();
    drop(options);
    session.next_logits(&[1, 2, 3]).unwrap();
    drop(session);
    assert_eq!(model.cache_usage(), before);
    assert!(matches!(model.load_adapter(Path::new("/no/such/adapter")), Err(Error::Io { .. } | Error::Files(_))));
}
