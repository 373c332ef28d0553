//! What adapters take is what the plan reserves for them.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why; bytes are for reading

use crate::common::{self, adapters, archives};
use crate::counting;

use model_factory::diagnostics::plan::{adapter_bytes, adapter_rows_bytes};
use model_factory::{Adapter, EmbedOptions, Error, Pooling};

/// A step of a prompt with all adapters at once takes no more than is planned, and the adapters no more than is reserved.
#[test]
fn a_step_with_adapters_takes_what_was_reserved() {
    let _alone = counting::alone();
    for (file, count, rank) in [
        ("llama-3.2/bf16", 3, 8),
        ("phi-3.5/bf16", 2, 16),
        ("qwen3.5/bf16", 2, 4),
        ("qwen3-moe/bf16", 3, 4),
        ("mamba-2/bf16", 2, 8),
        ("lfm2/bf16", 2, 8),
        ("gemma-3n/bf16", 2, 4),
    ] {
        let path = archives::path(file);
        let plain = common::builder().context_length(1024).threads(2).load(&path).unwrap();
        let model = common::builder().context_length(1024).threads(2).adapters(count, rank).load(&path).unwrap();
        let [without, plan] = [&plain, &model].map(|model| model.report().plan.clone().unwrap());
        assert_eq!((without.adapters, plan.activations), (0, without.activations), "{file}");
        assert_eq!(plan.total, without.total + plan.adapters, "{file}");
        let folder = tempfile::tempdir().unwrap();
        adapters::write(&model, rank, folder.path(), |_| true);
        let before = model.cache_usage();
        let loaded: Vec<(Adapter, f64)> =
            (0..count).map(|_| (model.load_adapter(folder.path()).unwrap(), 0.5)).collect();
        assert_eq!(model.cache_usage(), before, "{file}: nothing is taken from the caches");
        assert_eq!(loaded[0].0.bytes(), adapter_bytes(model.spec(), rank), "{file}: the whole of it");
        let tensors = count as u64 * adapter_bytes(model.spec(), rank);
        let reserved = (plan.adapters - tensors) as usize;
        let prompt: Vec<u32> = (0..512).map(|i| i * 97 % 256).collect();
        let mut session = model.session();
        session.set_adapters(&loaded).unwrap();
        let (_, taken) = counting::peak(|| drop(session.forward(&prompt).unwrap()));
        let most = plan.activations as usize + reserved + session.cache_bytes() + (64 << 10);
        println!("{file}: {taken} of {most}, {reserved} of it for {count} adapters of rank {rank}");
        assert!(taken <= most, "{file}: {taken} of {most}");
        // Without the reserved bytes that would not do where steps take most for adapters.
        let (_, plain_taken) = counting::peak(|| drop(plain.session().forward(&prompt).unwrap()));
        assert!(taken > plain_taken, "{file}: adapters take something: {taken}, {plain_taken} without");
        let (_, token) = counting::peak(|| drop(session.forward(&[7]).unwrap()));
        assert!(token <= most, "{file}: {token} of {most} for a token");
    }
}

#[test]
fn reserved_adapters_are_loaded_however_full_the_caches_are() {
    let _alone = counting::alone();
    let path = archives::path("llama-3.2/bf16");
    let of = adapters::named("llama-3.2");
    let load = |reserved: bool| {
        let builder = common::builder().context_length(256).sessions(1).threads(1);
        let builder = if reserved { builder.adapters(2, 6) } else { builder };
        builder.load(&path).unwrap()
    };
    let prompt: Vec<u32> = (0..200).map(|i| i * 97 % 256).collect();
    // The caches of one session are all there is: it takes them.
    let model = load(false);
    let mut session = model.session();
    session.forward(&prompt).unwrap();
    let refused = model.load_adapter(of.path("first", "f32")).unwrap_err();
    assert!(matches!(refused, Error::Engine(_)), "{refused}");
    let model = load(true);
    let mut session = model.session();
    session.forward(&prompt).unwrap();
    let first = model.load_adapter(of.path("first", "f32")).unwrap();
    let second = model.load_adapter(of.path("second", "f32")).unwrap();
    // What is reserved is for two that change every layer: small ones leave room, and it ends.
    let mut more = vec![first.clone(), second];
    let ended = loop {
        match model.load_adapter(of.path("first", "f32")) {
            Ok(adapter) => more.push(adapter),
            Err(error) => break error,
        }
        assert!(more.len() < 10, "{} adapters are loaded", more.len());
    };
    assert!(matches!(ended, Error::Engine(_)), "{ended}");
    session.set_adapters(&[(first, 1.0)]).unwrap();
    session.forward(&prompt[..20]).unwrap();
    drop((session, more));
    model.load_adapter(of.path("first", "f32")).expect("its memory is free again");
    // One of a larger rank than was reserved takes what the caches leave.
    let model = load(true);
    let folder = tempfile::tempdir().unwrap();
    adapters::write(&model, 6, folder.path(), |_| true);
    let two = [(); 2].map(|()| model.load_adapter(folder.path()).unwrap());
    assert_eq!(model.cache_usage().bytes, 0);
    let rows = adapter_rows_bytes(model.spec(), model.context_length(), model.threads(), 6);
    assert!(
        two[0].bytes() + rows > model.report().plan.as_ref().unwrap().kv_cache
            || model.load_adapter(folder.path()).is_ok()
    );
}

/// An encoder computes a text at once: what adapters take of a step grows with its context.
#[test]
fn texts_of_encoders_with_adapters_take_what_was_reserved() {
    let _alone = counting::alone();
    let path = common::fixtures().join("embeddings/modernbert");
    let model = common::builder().threads(2).adapters(1, 8).load(&path).unwrap();
    let plan = model.report().plan.clone().unwrap();
    let folder = tempfile::tempdir().unwrap();
    adapters::write(&model, 8, folder.path(), |_| true);
    let adapter = model.load_adapter(folder.path()).unwrap();
    let options = EmbedOptions::default().pooling(Pooling::Mean).truncate(true).adapter(&adapter, 1.0);
    let text = "the cat ".repeat(plan.context);
    let (_, taken) = counting::peak(|| drop(model.embeddings(&[&text], &options).unwrap()));
    let most = (plan.activations + plan.adapters - adapter.bytes()) as usize + (256 << 10) + 16 * text.len();
    assert!(taken <= most, "{taken} of {most}");
}
