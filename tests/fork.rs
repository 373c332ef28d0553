//! A process that is forked from one with a model: what it may do with that, and that nothing hangs or panics. In a process
//! of its own, as another test's threads would be forked from too.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why
#![allow(unsafe_code)] // fork

mod common;

use model_factory::error::EngineError;
use model_factory::{Error, GenerateOptions, Model};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RIGHT: i32 = 0;
const FORKED: i32 = 1;
const WRONG: i32 = 2;
const PANICKED: i32 = 3;

/// What a forked process that does `task` ends with. One that takes a minute is ended.
fn forked(what: &str, task: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs only `task` and leaves by `_exit`; the allocator's locks are the C library's to mend.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{what}: no process could be forked");
    if child == 0 {
        let code = catch_unwind(AssertUnwindSafe(task)).unwrap_or(PANICKED);
        // SAFETY: it returns to nobody.
        unsafe { libc::_exit(code) };
    }
    let (begun, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: the child is this process's, and `status` is there to be written.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            assert!(libc::WIFEXITED(status), "{what}: ended by a signal, {status}");
            return libc::WEXITSTATUS(status);
        }
        if begun.elapsed() > Duration::from_secs(60) {
            // SAFETY: the child is this process's, and was not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("{what}: it hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a loop in another thread, also where a test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn text(model: &Model) -> Result<String, Error> {
    let options = GenerateOptions::default().max_tokens(12).temperature(0.8).seed(3);
    model.generate("Once upon a time", &options)?.text()
}

fn generates(model: &Model, expected: &str) -> i32 {
    match text(model) {
        Ok(text) if text == expected => RIGHT,
        Err(Error::Engine(EngineError::Forked)) => FORKED,
        _ => WRONG,
    }
}

#[test]
fn a_forked_process_uses_and_drops_the_model_of_the_other() {
    for threads in [1, 3] {
        let load = || common::builder().threads(threads).load(common::demo()).unwrap();
        let mut model = Some(load());
        let expected = text(model.as_ref().unwrap()).unwrap();
        let dropped = |model: &mut Option<Model>| {
            drop(model.take());
            RIGHT
        };
        assert_eq!(forked("drop", || dropped(&mut model)), RIGHT, "{threads} threads");
        // The other process's model is its own.
        let mut model = Some(model.unwrap_or_else(load));
        let idle = model.as_ref().unwrap();
        assert_eq!(forked("generate", || generates(idle, &expected)), RIGHT, "{threads} threads");
        let anew = || if text(&load()).is_ok_and(|text| text == expected) { RIGHT } else { WRONG };
        assert_eq!(forked("load anew", anew), RIGHT, "{threads} threads");
        // Forked while a thread computes.
        let stop = AtomicBool::new(false);
        let ids: Vec<u32> = (0..400).map(|index| 20 + index % 200).collect();
        let outcomes: Vec<i32> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    idle.logits(&ids).unwrap();
                }
            });
            let _stops = Stops(&stop);
            (0..20).map(|_| forked("generate while another computes", || generates(idle, &expected))).collect()
        });
        // Between two passes nothing computes.
        assert!(outcomes.iter().all(|outcome| matches!(*outcome, RIGHT | FORKED)), "{outcomes:?}");
        assert!(outcomes.contains(&FORKED), "{outcomes:?}");
        let busy = std::thread::scope(|scope| {
            let computing = scope.spawn(|| idle.logits(&ids).unwrap());
            let clone = Some(idle.clone());
            let outcome = forked("drop while another computes", move || dropped(&mut { clone }));
            computing.join().unwrap();
            outcome
        });
        assert_eq!(busy, RIGHT, "{threads} threads");
        assert_eq!(text(idle).unwrap(), expected, "the first process goes on");
        drop(model.take());
    }
}
