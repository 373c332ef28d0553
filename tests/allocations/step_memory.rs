//! What a step of many sequences takes is what the plan counts, however many logits are wanted at once.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, given::greedy};
use crate::counting;

use model_factory::{EmbedOptions, Model, ModelBuilder, Pooling};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;
use std::sync::{Barrier, Mutex};
use std::thread;

/// Entries of the vocabulary: the logits of a token take much more than what a thread keeps.
const VOCAB: usize = 1 << 16;

/// `llama-3/bf16` with its embedding and head again and again, up to [`VOCAB`].
fn write(folder: &Path) {
    let from = common::named("llama-3").folder.join("bf16");
    for name in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), folder.join(name)).unwrap();
    }
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config["vocab_size"] = VOCAB.into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = stored
        .iter()
        .map(|(name, tensor)| {
            let (mut shape, mut data) = (tensor.shape().to_vec(), tensor.data().to_vec());
            if shape[0] == 320 {
                data = data.iter().copied().cycle().take(data.len() / 320 * VOCAB).collect();
                shape[0] = VOCAB;
            }
            (name.to_owned(), shape, data)
        })
        .collect();
    assert_eq!(tensors.iter().filter(|(_, shape, _)| shape[0] == VOCAB).count(), 2);
    let views =
        tensors.iter().map(|(name, shape, data)| (name, TensorView::new(Dtype::BF16, shape.clone(), data).unwrap()));
    let written = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.join("model.safetensors"), written).unwrap();
}

/// Scratch memory is the model's: a thread that led a step has none left.
#[test]
fn threads_that_led_a_step_keep_nothing() {
    const THREADS: usize = 64;
    let _alone = counting::alone();
    let path = common::fixtures().join("models/llama-3/q8_0.gguf");
    let model = common::builder().context_length(256).threads(2).load(path).unwrap();
    let lead = || drop(model.session().forward(&[1, 2, 3]).unwrap());
    lead();
    let (turn, ended) = (Mutex::new(()), Barrier::new(THREADS + 1));
    let kept = thread::scope(|scope| {
        let spawn = || {
            scope.spawn(|| {
                drop(turn.lock().map(|_alone| lead()));
                ended.wait();
                ended.wait();
            })
        };
        let (_, kept) = counting::kept(|| {
            let threads: Vec<_> = (0..THREADS).map(|_| spawn()).collect();
            ended.wait();
            threads
        });
        ended.wait();
        kept
    });
    // What a thread's handle and its name take.
    assert!(kept <= THREADS * 2048, "{kept} bytes by {THREADS} threads");
}

/// A prompt whose tokens are all given to a few experts has its rows once for each of these.
#[test]
fn a_prompt_of_experts_takes_what_was_planned() {
    let _alone = counting::alone();
    for file in ["qwen2-moe/bf16", "olmoe/q8_0.gguf", "granite-moe/f32", "../packed/mixtral-mixed"] {
        let path = common::archives::path(file);
        let model = common::builder().context_length(1024).threads(2).load(path).unwrap();
        let plan = model.report().plan.clone().unwrap();
        let prompt: Vec<u32> = (0..512).map(|i| i * 97 % 256).collect();
        let mut session = model.session();
        let (_, taken) = counting::peak(|| drop(session.forward(&prompt).unwrap()));
        let pages = plan.kv_per_token as usize * 512;
        // Bounds of tasks, visits and the like, which do not grow with the widths.
        let most = plan.activations as usize + pages + (64 << 10);
        assert!(taken <= most, "{file}: {taken} of {most}");
    }
}

/// Latents, states of each kind, residual streams, chunks: a prompt and its sequence take what was planned.
#[test]
fn a_prompt_of_each_kind_of_layer_takes_what_was_planned() {
    let _alone = counting::alone();
    for file in [
        "deepseek-v3/bf16",
        "qwen3.5/bf16",
        "mamba/bf16",
        "mamba-2/bf16",
        "kimi-linear/bf16",
        "falcon-h1/bf16",
        "lfm2/bf16",
        "llama-4-chunks/bf16",
        "gemma-3n/bf16",
        "bloom/bf16",
    ] {
        let path = common::archives::path(file);
        let model = common::builder().context_length(1024).threads(2).load(path).unwrap();
        let plan = model.report().plan.clone().unwrap();
        let prompt: Vec<u32> = (0..512).map(|i| i * 97 % 256).collect();
        let mut session = model.session();
        let (_, taken) = counting::peak(|| drop(session.forward(&prompt).unwrap()));
        // Bounds of tasks, visits and the like, which do not grow with the widths.
        let most = plan.activations as usize + session.cache_bytes() + (64 << 10);
        assert!(taken <= most, "{file}: {taken} of {most}");
    }
}

/// Keys and values, latents, windows and chunks, keys of other layers, states: a sequence of the whole context holds what was
/// planned, to the byte.
#[test]
fn a_sequence_of_every_family_holds_what_was_planned() {
    let _alone = counting::alone();
    for path in common::small_files() {
        let context = common::load(&path).spec().context_trained.min(1024);
        let model = common::builder().context_length(context).load(&path).unwrap();
        let planned = model.report().plan.as_ref().unwrap().kv_cache;
        let mut session = model.session();
        session.forward(&common::tokens(context, 256)).unwrap();
        assert_eq!(session.cache_bytes() as u64, planned, "{}", path.display());
    }
}

/// A copy of an encoder that was trained for `context` tokens, as its `config.json` says.
fn trained_for(name: &str, context: usize) -> tempfile::TempDir {
    let (from, to) = (common::fixtures().join("embeddings").join(name), tempfile::tempdir().unwrap());
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(file), to.path().join(file)).unwrap();
    }
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config["max_position_embeddings"] = context.into();
    std::fs::write(to.path().join("config.json"), config.to_string()).unwrap();
    to
}

/// An encoder computes all of a text at once: the plan has room for as many tokens as were asked for, or for a bounded number, and not
/// for all that it was trained for. DeBERTa's scores have terms for each pair of positions.
#[test]
fn a_text_of_an_encoder_takes_what_was_planned() {
    let _alone = counting::alone();
    let options = EmbedOptions::default().pooling(Pooling::Mean);
    for (name, trained, asked) in
        [("deberta", 2048, 2048), ("llama-embed", 131_072, 4096), ("llama-embed", 131_072, 600)]
    {
        let folder = trained_for(name, trained);
        let load = |builder: ModelBuilder| builder.threads(2).load(folder.path()).unwrap();
        let plan = |model: &Model| model.report().plan.clone().unwrap();
        let unasked = plan(&load(common::builder()));
        assert_eq!((unasked.context, unasked.kv_cache), (trained.min(8192), 0), "{name}");
        let model = load(common::builder().context_length(asked));
        let asked_for = plan(&model);
        assert!(asked_for.context == asked && asked_for.activations <= unasked.activations, "{name}");
        let tokens = |count: usize| model.tokenizer().encode(&"cat ".repeat(count), true).unwrap().len();
        let count = (1..asked).rev().step_by(8).find(|count| tokens(*count) <= asked).unwrap();
        let text = "cat ".repeat(count);
        assert!(tokens(count) > asked - 64, "{name}");
        let (_, taken) = counting::peak(|| drop(model.embeddings(&[&text], &options).unwrap()));
        let most = asked_for.activations as usize + (256 << 10);
        assert!(taken <= most, "{name} {asked}: {taken} of {most}");
        // Each thread has 1.5 MiB beyond what is counted here.
        assert!(most < 2 * taken + (4 << 20), "{name} {asked}: {taken} of {most}");
        let longer = model.embeddings(&["cat ".repeat(asked + 1)], &options).unwrap_err();
        assert!(longer.to_string().contains("the context"), "{longer}");
    }
    let all = common::builder().context_length(131_072).threads(2).load(trained_for("llama-embed", 131_072).path());
    let all = all.unwrap().report().plan.clone().unwrap();
    assert!(all.context == 131_072 && all.activations > 100 << 20, "{}", all.activations);
}

#[test]
fn a_step_of_many_sequences_takes_what_was_planned() {
    const MANY: usize = 100;
    let _alone = counting::alone();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let model = common::builder().context_length(1024).threads(2).load(folder.path()).unwrap();
    let plan = model.report().plan.clone().unwrap();
    let (activations, row) = (plan.activations as usize, VOCAB * 4);
    assert!(MANY * row > 5 * activations, "the logits of all at once are much more than is planned");

    let prompts: Vec<Vec<u32>> =
        (0..MANY as u32).map(|seed| (0..3).map(|i| (seed * 7 + i * 97) % 320).collect()).collect();
    let alone: Vec<Vec<u32>> = prompts.iter().map(|prompt| greedy(&model, prompt, 8).unwrap()).collect();
    let line = Barrier::new(MANY);
    let (_, together) = counting::peak(|| {
        thread::scope(|scope| {
            for (prompt, expected) in prompts.iter().zip(&alone) {
                let (model, line) = (&model, &line);
                scope.spawn(move || {
                    line.wait();
                    assert_eq!(greedy(model, prompt, 8).unwrap(), *expected);
                });
            }
        });
    });
    // A page and a row that its caller holds for each, and what a generation has besides, which the plan does not count: its
    // sampler's and decoder's.
    let page = plan.kv_per_token as usize * 256;
    let each = page + row + (64 << 10);
    assert!(together <= activations + MANY * each, "{together} of {activations} + {MANY} * {each}");

    // Of every token the logits, which are what was asked for, and a step besides.
    let prompt: Vec<u32> = (0..512).map(|i| i * 97 % 320).collect();
    let (_, all) = counting::peak(|| drop(model.logits(&prompt).unwrap()));
    let most = prompt.len() * row + activations + 2 * page + (64 << 10);
    assert!(all <= most, "{all} of {most}");
}
