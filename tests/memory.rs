//! The KV cache is as large as the context that was asked for, however long a context the model was trained on.
#![cfg(target_os = "linux")] // /proc tells the anonymous memory
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

mod common;

use common::phi_128k::{TRAINED, cache, write_128k};
use common::tokens;
use model_factory::{Error, KvDtype, Model};
use std::path::Path;

/// Anonymous memory that comes and goes next to the cache: freed buffers that the allocator keeps for a chunk of prefill,
/// a page's headroom for each thread. The cache of the trained context is 128 MiB.
const BESIDE: u64 = 8 << 20;

fn anonymous() -> u64 {
    common::status("RssAnon").expect("/proc/self/status has RssAnon")
}

#[test]
fn a_cache_in_f16_is_half_as_large_and_one_in_q8_0_a_byte_an_element_and_a_scale_a_block() {
    let folder = tempfile::tempdir().expect("a folder");
    write_128k(folder.path());
    // Heads have 16 elements of 4 bytes, which are half a block.
    for (dtype, bytes) in [(KvDtype::F16, cache(1024) / 2), (KvDtype::Q8_0, cache(1024) / 64 * 18)] {
        let builder = common::builder().context_length(1024).kv_cache(dtype);
        let model = builder.load(folder.path()).expect("the model loads");
        let plan = model.report().plan.as_ref().expect("a plan");
        assert_eq!((plan.kv_cache, plan.kv_dtype), (bytes, dtype));
        let mut session = model.session();
        session.forward(&tokens(1024, 320)).expect("tokens compute");
        assert_eq!(session.cache_bytes() as u64, plan.kv_cache);
    }
}

/// Of a position a latent of 32 elements and a rotated key of 16, whatever the heads.
#[test]
fn latents_are_cached_once_for_all_heads() {
    let path = common::archives::path("deepseek-v3/bf16");
    for (dtype, bytes) in [(KvDtype::F32, 48 * 4), (KvDtype::F16, 48 * 2), (KvDtype::Q8_0, 48 + 2 * 2)] {
        let model = common::builder().context_length(1024).kv_cache(dtype).load(&path).expect("the model loads");
        let plan = model.report().plan.as_ref().expect("a plan");
        assert_eq!((plan.kv_cache, plan.kv_per_token), (1024 * 2 * bytes, 2 * bytes), "{dtype}");
        let mut session = model.session();
        session.forward(&tokens(1024, 256)).expect("tokens compute");
        assert_eq!(session.cache_bytes() as u64, plan.kv_cache, "{dtype}");
    }
}

fn load(folder: &Path, context: usize) -> Model {
    let model = common::builder().context_length(context).load(folder).expect("the model loads");
    assert_eq!((model.context_length(), model.spec().context_trained), (context, TRAINED));
    let plan = model.report().plan.as_ref().expect("a plan");
    assert_eq!(plan.kv_cache, cache(context), "planned for {context}");
    model
}

#[test]
fn the_cache_is_as_large_as_the_context_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    write_128k(folder.path());
    // Everything that is allocated once: threads, kernels, the allocator's own.
    load(folder.path(), 512).session().forward(&tokens(300, 320)).expect("tokens compute");

    println!("{:>8} {:>8} {:>12} {:>12}", "context", "tokens", "cache", "anonymous");
    for (context, lengths) in [(512, &[512][..]), (TRAINED, &[512, 8192][..])] {
        let before = anonymous();
        let model = load(folder.path(), context);
        let mut session = model.session();
        assert_eq!(session.cache_bytes(), 0, "a session without tokens has no cache");
        for &length in lengths {
            session.forward(&tokens(length - session.len(), 320)).expect("tokens compute");
            let (held, grown) = (session.cache_bytes() as u64, anonymous().saturating_sub(before));
            println!("{context:>8} {length:>8} {held:>12} {grown:>12}");
            assert_eq!(held, cache(length), "context {context}, {length} tokens");
            assert!(grown <= held + BESIDE, "{grown} bytes for a cache of {held}; context {context}, {length} tokens");
            // What is in the cache is in memory: the measure sees it. Half is for what had been freed and was used again.
            assert!(held < BESIDE || grown >= held / 2, "{grown} bytes cannot hold a cache of {held}");
        }
        let refused = session.forward(&tokens(context - session.len() + 1, 320));
        assert!(matches!(refused, Err(Error::ContextOverflow { .. })), "context {context} holds no more");
    }
}
