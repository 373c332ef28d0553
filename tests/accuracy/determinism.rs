//! The same tokens give the same bits, whatever the threads, the chunks and the rest of the batch.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use crate::common::{self, bits_of, tokens};

use model_factory::decoder::{Compute, OutputRows, PassOptions, Segment};
use model_factory::diagnostics::block::ExpertInput;
use model_factory::diagnostics::family::{ExpertTable, Family, REGISTRY, Role, TensorName};
use model_factory::{CancellationToken, KvDtype, Model, Session};

/// Files that cover every dtype with a kernel.
const FILES: &[&str] = &[
    "llama-3.2/f32",
    "llama-3.2/bf16",
    "qwen2.5/f16",
    "qwen3-moe/bf16",
    "qwen3-moe/q4_k_m.gguf",
    "phi-3.5-moe/q8_0.gguf",
    "qwen3.5/bf16",
    "qwen3.5/q4_k_m.gguf",
    "lfm2-moe/bf16",
    "lfm2-moe/q4_k_m.gguf",
    "deepseek-v2/q8_0.gguf",
    "llama-4/q8_0.gguf",
    "llama-4-chunks/bf16",
    "granite-4-h-dense/f16",
    "nemotron-3/bf16",
    "mamba/bf16",
    "kimi-linear/bf16",
    "gemma-4-26b-a4b/bf16",
    "gemma-4-26b-a4b/q4_k_m.gguf",
    "gemma-3n/q8_0.gguf",
    "gemma-3n-other/bf16",
    "gemma-4-e2b/bf16",
    "gemma-4-e2b/q8_0.gguf",
    "llama-256/q8_0.gguf",
    "llama-256/q4_k.gguf",
    "llama-256/q6_k.gguf",
    "llama-256/q4_k_m.gguf",
    "llama-256/iq2_xs.gguf",
    "bloom/q8_0.gguf",
    "gpt-oss/bf16",
    "gpt-oss/mxfp4",
    "gpt-oss/mxfp4.gguf",
    "../int8/llama-channel-token",
    "../packed/llama-mixed",
    "../packed/qwen3-moe-w4-32-asymmetric",
    "../columns/phi3-auto-round-awq",
    "../columns/llama-gptq-3-bits",
    "../columns/llama-gptq-8-bits",
    "../columns/qwen3-gptq-shuffled",
    "../columns/qwen3-moe-gptq-32",
    "../fp8/llama-channel",
    "../fp8/qwen3moe-block",
    "../fp8/qwen3-mxfp8",
    "../fp4/llama-nvfp4",
    "../fp4/qwen3moe-mxfp4a16",
    "../fp4/qwen3-modelopt-mixed",
    "../fp4-gguf/nvfp4/model.gguf",
    "../mlx/qwen3-3-6",
    "../mlx/gemma3-8-32",
    "../mlx/qwen3-moe-mxfp4",
    "../mlx/gpt-oss-mxfp4-8",
    "../bnb/llama-nf4-nested",
    "../bnb/llama-int8",
];

/// Those, or the ones of them that `DETERMINISM` names: an emulated processor takes a second for each.
fn files() -> impl Iterator<Item = &'static str> {
    let only = std::env::var("DETERMINISM").ok();
    let named = only.iter().flat_map(|only| only.split_whitespace());
    named.clone().for_each(|name| assert!(FILES.contains(&name), "DETERMINISM names {name}, which is not in the list"));
    let named: Vec<String> = named.map(str::to_owned).collect();
    FILES.iter().copied().filter(move |file| named.is_empty() || named.iter().any(|name| name == file))
}

fn load(file: &str, threads: usize) -> Model {
    load_with(file, threads, KvDtype::F32)
}

fn load_with(file: &str, threads: usize, kv: KvDtype) -> Model {
    common::builder().threads(threads).kv_cache(kv).load(common::archives::path(file)).expect("a fixture loads")
}

/// The bits of the logits after the last token.
fn last(session: &mut Session, chunks: &[&[u32]]) -> Vec<u32> {
    let mut logits = None;
    for chunk in chunks {
        logits = Some(session.next_logits(chunk).expect("a chunk computes"));
    }
    bits_of(&logits.expect("at least one chunk"))
}

#[test]
fn runs_and_threads_give_the_same_bits() {
    for file in files() {
        let (one, two) = (load(file, 1), load(file, 2));
        let tokens = tokens(300, 256);
        let first = bits_of(&one.all_logits(&tokens).expect("logits"));
        assert_eq!(first, bits_of(&one.all_logits(&tokens).expect("logits")), "{file}: a second run");
        assert_eq!(first, bits_of(&two.all_logits(&tokens).expect("logits")), "{file}: two threads");
    }
}

/// Stricter than a tolerance: every output is one sum in one order, so chunks cannot matter at all.
#[test]
fn whole_chunked_and_single_token_prompts_give_the_same_bits() {
    for file in files() {
        let model = load(file, 2);
        let tokens = tokens(270, 256); // crosses a page of the cache and a chunk of the prefill
        let whole = last(&mut model.session(), &[&tokens]);
        let pieces = [&tokens[..7], &tokens[7..8], &tokens[8..200], &tokens[200..263], &tokens[263..]];
        assert_eq!(whole, last(&mut model.session(), &pieces), "{file}: chunks");
        let singles: Vec<&[u32]> = tokens.chunks(1).collect();
        assert_eq!(whole, last(&mut model.session(), &singles), "{file}: one by one");
    }
}

/// Attention cuts a context into parts of 1024 positions, which are tasks of their own for one token.
#[test]
fn long_contexts_give_the_same_bits_in_chunks_alone_and_in_company() {
    for file in [
        "llama-3.2/bf16",
        "phi-3-window/bf16",
        "qwen3.5/q8_0.gguf",
        "granite-4-h/bf16",
        "falcon-mamba/bf16",
        "deepseek-v3/bf16",
        "llama-4-chunks/bf16",
        "gpt-oss/mxfp4.gguf",
        "../packed/llama-mixed",
        "../mlx/gpt-oss-mxfp4-8",
    ] {
        // No further than a model of 2048 positions goes.
        let length = if file.starts_with("gpt-oss") || file.starts_with("..") { 2040 } else { 2600 };
        let tokens = tokens(length, 256);
        let whole = last(&mut load(file, 1).session(), &[&tokens]);
        for threads in [1, 3] {
            let model = load(file, threads);
            let mut session = model.session();
            let pieces = [&tokens[..1000], &tokens[1000..1100], &tokens[1100..length - 1], &tokens[length - 1..]];
            assert_eq!(whole, last(&mut session, &pieces), "{file}: {threads} threads");
            session.truncate(length - 1);
            let mut other = model.session();
            other.next_logits(&tokens[..7]).expect("a prefix");
            let mut steps = [(&mut other, &tokens[7..60]), (&mut session, &tokens[length - 1..])];
            let logits = Session::batch_logits(&mut steps).expect("a batch computes");
            assert_eq!(
                whole,
                bits_of(logits.rows().nth(1).expect("the second")),
                "{file}: {threads} threads, in a batch"
            );
        }
    }
}

/// The bits of the logits after `tokens`, which `one` computes at once on one thread, and `two` on two in chunks, token by token, in
/// company, in a fork, and after other tokens that were cut off.
fn same_bits(one: &Model, two: &Model, tokens: &[u32], label: &str) -> Vec<u32> {
    let whole = last(&mut one.session(), &[tokens]);
    let (before, end) = tokens.split_at(tokens.len() - 10);
    let pieces = [&before[..7], &before[7..8], &before[8..200], &before[200..], end];
    assert_eq!(whole, last(&mut two.session(), &pieces), "{label}: chunks");
    let mut session = two.session();
    session.next_logits(&before[..200]).expect("tokens compute");
    before[200..].chunks(1).for_each(|token| drop(session.next_logits(token).expect("a token computes")));
    let mut fork = session.fork().expect("a fork");
    session.next_logits(&[1, 2, 3]).expect("other tokens compute");
    session.truncate(before.len());
    let mut other = two.session();
    let mut steps = [(&mut other, &tokens[..60]), (&mut fork, end), (&mut session, end)];
    let logits = Session::batch_logits(&mut steps).expect("a batch computes");
    for (row, who) in [(1, "a fork"), (2, "cut back")] {
        assert_eq!(whole, bits_of(logits.rows().nth(row).expect("a row")), "{label}: {who}, in company");
    }
    whole
}

/// Each family with its options: a float file and a quantized one.
#[test]
fn every_family_gives_the_same_bits_in_chunks_in_company_and_in_a_fork() {
    for file in common::small_files() {
        let load = |threads| common::builder().threads(threads).load(&file).expect("a fixture loads");
        let (one, two) = (load(1), load(2));
        let length = one.context_length().min(270); // crosses a page of the cache and a chunk of the prefill
        same_bits(&one, &two, &tokens(length, 256), &file.display().to_string());
    }
}

/// Beside the experts a dense layer, which is the first expert's.
const BESIDE: &[TensorName] = &[
    TensorName { role: Role::ExpertsNorm, gguf: "", config: "model.layers.{}.input_layernorm" },
    TensorName { role: Role::Gate, gguf: "", config: "model.layers.{}.block_sparse_moe.experts.0.w1" },
    TensorName { role: Role::Up, gguf: "", config: "model.layers.{}.block_sparse_moe.experts.0.w3" },
    TensorName { role: Role::Down, gguf: "", config: "model.layers.{}.block_sparse_moe.experts.0.w2" },
];

/// Of SmallThinker and Arctic there are GGUF files alone: here a Mixtral has their order of a block.
#[test]
fn experts_that_read_the_input_of_a_block_give_the_same_bits() {
    let mixtral = *REGISTRY.iter().find(|family| family.id == "mixtral").expect("Mixtral");
    let tokens = tokens(270, 256);
    let plain = last(&mut load("mixtral/f32", 1).session(), &[&tokens]);
    for (input, beside) in
        [(ExpertInput::RouterBefore, false), (ExpertInput::Before, false), (ExpertInput::Before, true)]
    {
        let experts = mixtral.experts.map(|table| ExpertTable { input, ..table });
        let tensors = [if beside { BESIDE } else { &[] }, mixtral.tensors[0], mixtral.tensors[1]];
        let family = Family { experts, tensors: Vec::leak(tensors.to_vec()), ..*mixtral };
        let family: &'static Family = Box::leak(Box::new(family));
        let load = |threads| {
            let builder = common::builder().threads(threads).families(&[family]);
            builder.load(common::archives::path("mixtral/f32")).expect("a fixture loads")
        };
        let whole = same_bits(&load(1), &load(2), &tokens, &format!("{input:?}"));
        assert_ne!(whole, plain, "{input:?}");
    }
}

/// Keys and values are rounded once, when they are stored, each by what is its own.
#[test]
fn rounded_caches_give_the_same_bits_in_chunks_alone_in_company_and_behind_a_truncation() {
    for file in [
        "llama-3.2/bf16",
        "phi-3-window/bf16",
        "phi-2/f16",
        "llama-256/q4_k_m.gguf",
        "qwen3.5/q8_0.gguf",
        "deepseek-v2/q8_0.gguf",
    ] {
        let tokens = tokens(1300, 256); // crosses a part of attention, pages and chunks of the prefill
        let exact = last(&mut load(file, 1).session(), &[&tokens]);
        for kv in [KvDtype::F16, KvDtype::Q8_0] {
            let whole = last(&mut load_with(file, 1, kv).session(), &[&tokens]);
            assert_ne!(whole, exact, "{file} {kv}: something was rounded");
            for threads in [1, 3] {
                let model = load_with(file, threads, kv);
                let mut session = model.session();
                let pieces = [&tokens[..7], &tokens[7..8], &tokens[8..900], &tokens[900..1030], &tokens[1030..]];
                assert_eq!(whole, last(&mut session, &pieces), "{file} {kv}: chunks, {threads} threads");
                // What other tokens left after the end of a block and of a tile is written over.
                session.truncate(1000);
                session.next_logits(&tokens[..77]).expect("other tokens compute");
                session.truncate(1000);
                let (before, end) = tokens[1000..].split_at(260);
                before.iter().for_each(|&token| drop(session.next_logits(&[token]).expect("a token computes")));
                let (mut first, mut third) = (model.session(), model.session());
                first.next_logits(&tokens[..33]).expect("a prefix");
                let mut steps = [(&mut first, &tokens[33..34]), (&mut session, end), (&mut third, &tokens[..300])];
                let logits = Session::batch_logits(&mut steps).expect("a batch computes");
                let together = bits_of(logits.rows().nth(1).expect("the second"));
                assert_eq!(whole, together, "{file} {kv}: after a truncation, in a batch, {threads} threads");
            }
        }
    }
}

#[test]
fn a_batch_gives_each_sequence_what_it_gets_alone() {
    for file in files() {
        let model = load(file, 2);
        let decoder = model.decoder().expect("a model on the processor");
        let (a, b) = (tokens(40, 256), tokens(300, 256));
        let mut alone = [model.session(), model.session()];
        let expected = [last(&mut alone[0], &[&a]), last(&mut alone[1], &[&b])].concat();

        let cancel = CancellationToken::new();
        let (mut cache_a, mut cache_b) = (decoder.cache(), decoder.cache());
        let prefix = Segment {
            tokens: (&b[..260]).into(),
            cache: &mut cache_b,
            reach: b.len(),
            second_text: None,
            rows: OutputRows::None,
        };
        let logits = |segments: &mut [Segment<'_>]| {
            decoder.pass(segments, PassOptions::LOGITS, &cancel).expect("the pass computes").logits
        };
        assert!(logits(&mut [prefix]).is_none());
        let mut batch = [
            Segment {
                tokens: (&a).into(),
                cache: &mut cache_a,
                reach: a.len(),
                second_text: None,
                rows: OutputRows::Last,
            },
            Segment {
                tokens: (&b[260..]).into(),
                cache: &mut cache_b,
                reach: b.len(),
                second_text: None,
                rows: OutputRows::Last,
            },
        ];
        let together = logits(&mut batch).expect("logits are wanted");
        assert_eq!(expected, bits_of(together.values()), "{file}");
    }
}

/// In the last layer only the rows that are wanted are computed; all of them where a scale of the activations is made for
/// all rows together.
#[test]
fn the_last_logits_are_the_last_of_all_logits() {
    for file in files().chain(["phi-2/bf16", "../int8/llama-dynamic-tensor"]) {
        let model = load(file, 2);
        let tokens = tokens(40, 256);
        let all = model.all_logits(&tokens).expect("logits");
        let expected = bits_of(all.rows().nth(tokens.len() - 1).expect("a row for each token"));
        assert_eq!(last(&mut model.session(), &[&tokens]), expected, "{file}");
    }
}

#[test]
fn what_is_wanted_changes_no_logits() {
    for file in [
        "llama-256/q4_k_m.gguf",
        "phi-2/f16",
        "phi-3-window/bf16",
        "qwen3-moe/q4_k_m.gguf",
        "qwen3-moe-dense/bf16",
        "gpt-oss/mxfp4",
    ] {
        let model = load(file, 2);
        let decoder = model.decoder().expect("a model on the processor");
        let cancel = CancellationToken::new();
        let all = [tokens(20, 256), tokens(33, 256), tokens(7, 256)];
        let alone: Vec<Vec<u32>> =
            all.iter().map(|tokens| bits_of(&model.all_logits(tokens).expect("logits"))).collect();
        let vocab = alone[0].len() / all[0].len();
        let wanted = [OutputRows::Last, OutputRows::None, OutputRows::First, OutputRows::All];
        for turn in 0..wanted.len() {
            let mut caches = [decoder.cache(), decoder.cache(), decoder.cache()];
            let mut batch: Vec<Segment<'_>> = Vec::new();
            let mut expected = Vec::new();
            for (i, cache) in caches.iter_mut().enumerate() {
                let rows = wanted[(i + turn) % wanted.len()];
                batch.push(Segment { tokens: (&all[i]).into(), cache, reach: all[i].len(), second_text: None, rows });
                let rows = match rows {
                    OutputRows::None => 0..0,
                    OutputRows::First => 0..vocab,
                    OutputRows::Last => alone[i].len() - vocab..alone[i].len(),
                    OutputRows::All => 0..alone[i].len(),
                };
                expected.extend_from_slice(&alone[i][rows]);
            }
            let together = decoder.pass(&mut batch, PassOptions::LOGITS, &cancel).expect("the batch computes").logits;
            let together = together.expect("logits are wanted");
            assert_eq!(bits_of(together.values()), expected, "{file} turn {turn}");
        }
    }
}

#[test]
fn sessions_that_advance_together_compute_what_each_does_alone() {
    for file in [
        "llama-256/q4_k_m.gguf",
        "qwen3/bf16",
        "phi-3.5/q8_0.gguf",
        "qwen3-moe/q8_0.gguf",
        "gpt-oss/mxfp4",
        "../fp8/qwen3moe-block",
        "../mlx/gpt-oss-mxfp4-8",
        "../columns/qwen3-moe-gptq-32",
    ] {
        let model = load(file, 2);
        // One crosses the original context of phi-3.5 in the first step, one is empty, one brings several tokens.
        let held = [tokens(256, 256), Vec::new(), tokens(31, 256)];
        let mut alone: Vec<_> = held.iter().map(|_| model.session()).collect();
        let mut together: Vec<_> = held.iter().map(|_| model.session()).collect();
        for (sessions, _) in [(&mut alone, ()), (&mut together, ())] {
            for (session, held) in sessions.iter_mut().zip(&held).filter(|(_, held)| !held.is_empty()) {
                session.next_logits(held).expect("tokens compute");
            }
        }
        for step in 1..4 {
            let next = [vec![step], vec![step + 1], vec![step + 2; 3]];
            let expected: Vec<u32> =
                alone.iter_mut().zip(&next).flat_map(|(session, next)| last(session, &[next])).collect();
            let mut steps: Vec<(&mut Session, &[u32])> =
                together.iter_mut().zip(&next).map(|(session, next)| (session, next.as_slice())).collect();
            assert_eq!(
                bits_of(&Session::batch_logits(&mut steps).expect("the batch computes")),
                expected,
                "{file} step {step}"
            );
        }
        let lengths = |sessions: &[Session]| sessions.iter().map(Session::len).collect::<Vec<_>>();
        assert_eq!(lengths(&alone), lengths(&together));
        // Nothing is computed when one of them cannot be.
        let before = lengths(&together);
        let [first, second, _] = together.as_mut_slice() else { panic!("three sessions") };
        assert!(Session::batch_logits(&mut [(first, &[1]), (second, &[99_999])]).is_err());
        let other = load(file, 1);
        let mut stranger = other.session();
        let mixed = Session::batch_logits(&mut [(first, &[1]), (&mut stranger, &[1])]);
        assert!(matches!(mixed, Err(model_factory::Error::OtherModel)));
        assert_eq!(lengths(&together), before);
    }
}

#[test]
fn sessions_run_in_parallel_on_one_model() {
    let model = load("llama-3.2/bf16", 2);
    let tokens = tokens(120, 256);
    let expected = last(&mut model.session(), &[&tokens]);
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| last(&mut model.session(), &tokens.chunks(11).collect::<Vec<_>>())))
            .collect();
        for session in sessions {
            assert_eq!(expected, session.join().expect("no panic"));
        }
    });
}

#[test]
fn a_session_forgets_and_goes_on() {
    let model = load("llama-256/q8_0.gguf", 2);
    let (first, second) = (tokens(290, 256), tokens(30, 256));
    let mut session = model.session();
    session.next_logits(&first).expect("tokens compute");
    let full = session.cache_bytes();
    session.truncate(100);
    assert_eq!(session.len(), 100);
    assert!(session.cache_bytes() < full, "a page after the end is freed");
    let expected = last(&mut model.session(), &[&first[..100], &second]);
    assert_eq!(expected, last(&mut session, &[&second]));
}

fn assert_send_sync<T: Send + Sync>() {}
fn assert_send<T: Send>() {}

#[test]
fn models_are_shared_and_sessions_move() {
    assert_send_sync::<Model>();
    assert_send::<Session>();
}

/// A conversation goes on from its prefix, and a request that is refused forgets nothing.
#[test]
fn a_refused_request_leaves_the_session_as_it_was() {
    let model = load("llama-256/q8_0.gguf", 1);
    let mut session = model.session();
    session.next_logits(&tokens(30, 256)).expect("tokens compute");
    let held = session.ids().to_vec();
    let options = model_factory::GenerateOptions::default().temperature(0.0);
    let too_hot = options.clone().temperature(-1.0);
    let too_long = vec![1; model.context_length() + 1];
    assert!(session.generate_ids(&too_long, &options).is_err());
    assert!(session.generate_ids(&[1, 2, 3], &too_hot).is_err());
    assert!(session.generate_ids(&[1, 2, 99_999], &options).is_err());
    assert!(session.next_logits(&[99_999]).is_err());
    assert_eq!(session.ids(), held);

    let longer = [held.as_slice(), &[7, 8, 9]].concat();
    let expected = bits_of(&model.session().next_logits(&longer).expect("tokens compute"));
    let generation = session.generate_ids(&longer, &options).expect("a continuation");
    assert_eq!(generation.finish().1.prompt_tokens, 3, "the prefix is not computed again");
    drop(generation);
    assert_eq!(bits_of(&session.next_logits(&longer[30..]).expect("tokens compute")), expected);
}
