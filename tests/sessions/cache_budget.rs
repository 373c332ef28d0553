//! The sessions of one model share the memory that was planned for their KV caches, and what exceeds it is refused.
#![allow(clippy::expect_used, clippy::panic)] // a test that cannot go on says why

use crate::common::{self, bits, tokens};

use common::phi_128k::{cache, write_128k};
use model_factory::error::EngineError;
use model_factory::{Error, Session};

#[test]
fn sessions_share_what_was_planned_for_them() {
    let folder = tempfile::tempdir().expect("a folder");
    write_128k(folder.path());
    let model = common::builder().context_length(1024).sessions(2).load(folder.path()).expect("the model loads");
    let plan = model.report().plan.as_ref().expect("a plan");
    assert_eq!((plan.sessions, plan.kv_cache), (2, 2 * cache(1024)));

    let (mut first, mut second, mut third) = (model.session(), model.session(), model.session());
    let expected = bits(&mut first, &tokens(1024, 320));
    bits(&mut second, &tokens(768, 320));
    // 256 positions are left. A prompt of two chunks is refused as a whole, before the first of them is computed.
    let refused = third.forward(&tokens(1024, 320)).expect_err("more than is left");
    assert_eq!(refused.code(), 14);
    let Error::Engine(EngineError::CacheBudget { asked, left, budget }) = refused else { panic!("{refused}") };
    assert_eq!((asked, left, budget), (cache(1024), cache(256), 2 * cache(1024)));
    assert_eq!((third.len(), third.cache_bytes()), (0, 0), "the session is as it was");
    // A batch of which one exceeds it leaves both as they were.
    let one = tokens(1, 320);
    let refused = Session::batch(&mut [(&mut third, &one), (&mut second, &one)]);
    assert!(matches!(refused, Err(Error::Engine(EngineError::CacheBudget { left: 0, .. }))), "{refused:?}");
    assert_eq!((third.len(), third.cache_bytes(), second.len()), (0, 0, 768));

    // What another session forgets is free again.
    first.truncate(0);
    assert_eq!(bits(&mut third, &tokens(1024, 320)), expected, "the same bits");
    drop(third);
    assert_eq!(bits(&mut first, &tokens(1024, 320)), expected);
}

#[test]
fn without_a_number_of_sessions_they_share_what_the_limit_leaves() {
    let folder = tempfile::tempdir().expect("a folder");
    write_128k(folder.path());
    let load = |limit| common::builder().context_length(512).memory_limit(limit).load(folder.path());
    let plan = load(u64::MAX).expect("the model loads").report().plan.clone().expect("a plan");
    assert_eq!(plan.sessions, 1);
    let model = load(plan.total + cache(512)).expect("the model loads");
    let mut sessions = [(); 3].map(|()| model.session());
    let held: Vec<bool> = sessions.iter_mut().map(|session| session.forward(&tokens(512, 320)).is_ok()).collect();
    assert_eq!(held, [true, true, false], "the limit holds for all sessions together");
    // The model itself opens one for a generation, and drops it.
    assert!(matches!(model.logits(&tokens(8, 320)), Err(Error::Engine(EngineError::CacheBudget { .. }))));
    sessions[0].truncate(0);
    assert!(model.logits(&tokens(8, 320)).is_ok() && sessions[2].forward(&tokens(512, 320)).is_ok());
}
