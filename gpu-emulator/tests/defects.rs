//! Kernels of a few lines with a defect each, which has to be found, and the same kernels without it.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{SCHEDULES, fault, kernel, launch, run};
use cuda::ptx::{Cause, Error, Launch, Module, Schedule, Space};

const WORDS: [u32; 64] = {
    let mut all = [0; 64];
    let mut index = 0;
    while index < 64 {
        all[index] = index as u32;
        index += 1;
    }
    all
};

/// Two warps exchange through shared memory.
const EXCHANGE: &str = "
    mov.u32 %r2, own; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;
    ld.global.u32 %r5, [%q4];
    st.shared.u32 [%r4], %r5;
    bar.sync 0;
    xor.b32 %r6, %r1, 32; shl.b32 %r6, %r6, 2; add.s32 %r6, %r2, %r6;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%q5], %r7;";

fn forward(threads: u32, shared: u32) -> Launch {
    launch(1, threads, shared, Schedule::Forward)
}

/// `body` runs by every schedule, and what it writes is `expected`.
fn sound(body: &str, launch: Launch, expected: impl Fn(u32) -> u32) {
    for schedule in SCHEDULES {
        let found = run(&kernel(body), &WORDS, Launch { schedule, ..launch }).unwrap_or_else(|fault| panic!("{fault}"));
        let expected: Vec<u32> = (0..64).map(&expected).collect();
        assert_eq!(found, expected, "{schedule:?}\n{body}");
    }
}

fn faulty(body: &str, launch: Launch) -> Cause {
    fault(&kernel(body), 64, launch).cause
}

#[test]
fn a_dropped_barrier_is_a_race() {
    sound(EXCHANGE, forward(64, 0), |thread| thread ^ 32);
    let dropped = EXCHANGE.replace("bar.sync 0;", "");
    // One warp runs to its end before the other begins, so some of what it reads was never written, or is written later.
    let cause = faulty(&dropped, forward(64, 0));
    assert!(matches!(cause, Cause::Race { .. } | Cause::Uninitialised { .. }), "{cause:?}");
    // Written before by all, it is only a race.
    let twice = format!("{EXCHANGE} bar.sync 0; {}", dropped.replace("%r5;", "%r1;"));
    let cause = faulty(&twice, forward(64, 0));
    let Cause::Race { other, .. } = cause else { panic!("{cause:?}") };
    assert!(other.instruction.contains(".shared.u32") && other.line > 0, "{other:?}");
}

#[test]
fn a_write_before_others_have_read_is_a_race() {
    let next = format!("{EXCHANGE} bar.sync 0; st.shared.u32 [%r4], %r1;");
    sound(&next, forward(64, 0), |thread| thread ^ 32);
    assert!(matches!(faulty(&next.replacen("bar.sync 0; st", "st", 1), forward(64, 0)), Cause::Race { .. }));
}

#[test]
fn lanes_of_a_warp_need_a_barrier_too() {
    let own =
        EXCHANGE.replace("bar.sync 0;", "bar.warp.sync -1;").replace("xor.b32 %r6, %r1, 32", "xor.b32 %r6, %r1, 1");
    sound(&own, forward(64, 0), |thread| thread ^ 1);
    assert!(matches!(faulty(&own.replace("bar.warp.sync -1;", ""), forward(64, 0)), Cause::Race { .. }));
    // A barrier of a warp orders nothing between warps.
    let other = EXCHANGE.replace("bar.sync 0;", "bar.warp.sync -1;");
    assert!(matches!(faulty(&other, forward(64, 0)), Cause::Race { .. } | Cause::Uninitialised { .. }));
}

#[test]
fn an_exchange_of_lanes_orders_no_memory() {
    let own = EXCHANGE
        .replace("bar.sync 0;", "shfl.sync.bfly.b32 %r9, %r5, 1, 31, -1;")
        .replace("xor.b32 %r6, %r1, 32", "xor.b32 %r6, %r1, 1");
    assert!(matches!(faulty(&own, forward(64, 0)), Cause::Race { .. }));
}

#[test]
fn what_was_never_written_is_not_read() {
    let only_one = EXCHANGE.replace("st.shared", "setp.lt.s32 %p1, %r1, 32; @%p1 st.shared");
    assert!(matches!(faulty(&only_one, forward(64, 0)), Cause::Uninitialised { .. }));
}

/// What an earlier block wrote is not there.
#[test]
fn blocks_begin_empty() {
    let only_first = EXCHANGE.replace(
        "st.shared",
        "mov.u32 %r8, %ctaid.x; mov.u32 %r9, %nctaid.x; setp.eq.s32 %p1, %r9, 1; setp.eq.s32 %p2, %r8, 0; \
         or.pred %p3, %p1, %p2; @%p3 st.shared",
    );
    sound(&only_first, forward(64, 0), |thread| thread ^ 32);
    let two = launch(2, 64, 0, Schedule::Forward);
    assert!(matches!(faulty(&only_first, two), Cause::Uninitialised { .. }));
}

#[test]
fn global_memory_ends_where_it_ends() {
    let copy = "ld.global.u32 %r5, [%q4]; st.global.u32 [%q5], %r5;";
    sound(copy, forward(64, 0), |thread| thread);
    let found = fault(&kernel(&copy.replace("[%q4]", "[%q4+4]")), 64, forward(64, 0));
    assert!(matches!(found.cause, Cause::OutOfBounds { space: Space::Global, bytes: 4, .. }), "{found:?}");
    assert_eq!(found.at.thread, [63, 0, 0]);
    assert_eq!(found.at.instruction, "ld.global.u32 %r5, [%q4+4]");
    assert!(matches!(faulty(&copy.replace("[%q5]", "[%q5+-4]"), forward(64, 0)), Cause::OutOfBounds { .. }));
}

#[test]
fn the_last_row_needs_its_check() {
    let copy = "setp.lt.u32 %p1, %r1, 64; @!%p1 bra DONE; ld.global.u32 %r5, [%q4]; st.global.u32 [%q5], %r5; DONE:";
    sound(copy, forward(96, 0), |thread| thread);
    let found = faulty(&copy.replace("@!%p1 bra DONE;", ""), forward(96, 0));
    assert!(matches!(found, Cause::OutOfBounds { space: Space::Global, .. }), "{found:?}");
}

#[test]
fn addresses_are_multiples_of_what_is_accessed() {
    let vector = "shl.b64 %q6, %q3, 2; add.s64 %q7, %q1, %q6; setp.lt.u32 %p1, %r1, 8; \
                  @%p1 ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%q7]; st.global.u32 [%q5], %r1;";
    sound(vector, forward(64, 0), |thread| thread);
    let found = faulty(&vector.replace("[%q7]", "[%q7+4]"), forward(64, 0));
    assert!(matches!(found, Cause::Misaligned { space: Space::Global, bytes: 16, .. }), "{found:?}");
    let shared = faulty(&EXCHANGE.replace("[%r4]", "[%r4+2]"), forward(64, 0));
    assert!(matches!(shared, Cause::Misaligned { space: Space::Shared, .. }), "{shared:?}");
}

#[test]
fn shared_memory_ends_where_it_ends() {
    let dynamic = EXCHANGE.replace("own", "shared");
    sound(&dynamic, forward(64, 256), |thread| thread ^ 32);
    let found = faulty(&dynamic, forward(64, 252));
    assert!(matches!(found, Cause::OutOfBounds { space: Space::Shared, .. }), "{found:?}");
    // After a variable is another's, or nothing.
    let found = faulty(&EXCHANGE.replace("[%r4]", "[%r4+4]"), forward(64, 256));
    assert!(matches!(found, Cause::OutOfBounds { space: Space::Shared, .. }), "{found:?}");
    let asked = faulty(EXCHANGE, forward(64, 164 << 10));
    assert_eq!(asked, Cause::SharedMemory { asked: (164 << 10) + 256, limit: 163 << 10 });
}

#[test]
fn a_barrier_is_for_all_threads() {
    // Some lanes of a warp pass by and return.
    let no_exchange = "setp.lt.u32 %p1, %r1, 16; @%p1 bra OVER; bar.sync 0; OVER: st.global.u32 [%q5], %r1;";
    let found = faulty(no_exchange, forward(32, 0));
    assert!(matches!(found, Cause::BarrierNotReached { .. } | Cause::Divergent { .. }), "{found:?}");
    // A whole warp does.
    let found = faulty(&no_exchange.replace(", 16;", ", 32;"), forward(64, 0));
    assert!(matches!(found, Cause::BarrierNotReached { .. }), "{found:?}");
    // Each waits at its own.
    let two = "setp.lt.u32 %p1, %r1, 32; @%p1 bra ONE; bar.sync 0; bra OVER; ONE: bar.sync 0; OVER:
               st.global.u32 [%q5], %r1;";
    assert!(matches!(faulty(two, forward(64, 0)), Cause::DivergentBarrier { .. }));
    let lanes = two.replace(", 32;", ", 16;");
    assert!(matches!(faulty(&lanes, forward(32, 0)), Cause::Divergent { .. }));
}

/// Lanes that parted meet again, whatever the order: what needs them all does not come too early.
#[test]
fn lanes_part_and_meet() {
    let meets = "mov.u32 %r5, 0; and.b32 %r2, %r1, 3; MORE: setp.eq.s32 %p1, %r2, 0; @%p1 bra DONE;
                 add.s32 %r5, %r5, %r2; sub.s32 %r2, %r2, 1; bra MORE; DONE:
                 shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1; st.global.u32 [%q5], %r6;";
    let sum = |n: u32| n * (n + 1) / 2;
    // Those who come last to where the others wait find them there.
    let late = "setp.lt.u32 %p1, %r1, 8; mov.u32 %r5, %r1; @%p1 bra SLOW; JOIN: add.s32 %r5, %r5, 1;
                shfl.sync.bfly.b32 %r6, %r5, 8, 31, -1; bra OVER; SLOW: add.s32 %r5, %r5, 1; sub.s32 %r5, %r5, 1;
                bra JOIN; OVER: st.global.u32 [%q5], %r6;";
    sound(&late.replace("%r1, 8;", "%r1, 48;"), forward(64, 0), |thread| (thread ^ 8) + 1);
    sound(meets, forward(64, 0), |thread| sum((thread & 3) ^ 1));
}

#[test]
fn an_exchange_needs_the_lanes_that_it_names() {
    // Each half waits for all, at an exchange of its own.
    let apart = "setp.lt.u32 %p1, %r1, 16; @%p1 bra ONE; shfl.sync.bfly.b32 %r6, %r1, 1, 31, -1; bra OVER;
                 ONE: shfl.sync.bfly.b32 %r6, %r1, 1, 31, -1; OVER: st.global.u32 [%q5], %r6;";
    assert!(matches!(faulty(apart, forward(32, 0)), Cause::Divergent { needed: u32::MAX, .. }));
    // Lanes that have returned, or are not named, are not waited for.
    let upper =
        "setp.lt.u32 %p1, %r1, 16; mov.u32 %r6, 7; @%p1 bra OVER; shfl.sync.bfly.b32 %r6, %r1, 1, 31, 0xffff0000;
                 OVER: st.global.u32 [%q5], %r6;";
    for schedule in SCHEDULES {
        let found = run(&kernel(upper), &WORDS[..32], launch(1, 32, 0, schedule)).unwrap();
        let expected: Vec<u32> = (0..32).map(|lane| if lane < 16 { 7 } else { lane ^ 1 }).collect();
        assert_eq!(found, expected);
    }
    // A lane that is not named, and one that does not take part.
    let unnamed = upper.replace("0xffff0000", "0x7fff0000");
    assert!(matches!(faulty(&unnamed, forward(32, 0)), Cause::Divergent { needed: 0x7fff_0000, .. }));
    let absent = upper.replace("%r1, 1, 31", "%r1, 16, 31");
    assert!(matches!(faulty(&absent, forward(32, 0)), Cause::AbsentLane { .. }));
}

#[test]
fn a_product_is_of_a_whole_warp() {
    let product = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r5, %r6}, {%r1}, {%r1}, {%r1, %r1};";
    let all = format!("{product} st.global.u32 [%q5], %r1;");
    sound(&all, forward(64, 0), |thread| thread);
    let guarded = format!("setp.lt.u32 %p1, %r1, 16; @%p1 bra OVER; {product} OVER: st.global.u32 [%q5], %r1;");
    assert!(matches!(faulty(&guarded, forward(32, 0)), Cause::Divergent { running: 0xffff_0000, needed: u32::MAX }));
    assert!(matches!(faulty(&all, forward(16, 0)), Cause::Divergent { running: 0xffff, needed: u32::MAX }));
}

#[test]
fn what_is_unknown_is_refused_by_line() {
    let text = kernel("tanh.approx.f32 %f1, %f2;");
    let line = text.lines().position(|line| line.contains("tanh")).unwrap() + 1;
    let refused = Module::compile(&text).unwrap_err();
    assert_eq!(refused, Error::Unsupported { line, text: "tanh.approx.f32 %f1, %f2".into() });
    for (body, undeclared) in [("bra NOWHERE;", "NOWHERE"), ("ld.param.u32 %r1, [third];", "third")] {
        let refused = Module::compile(&kernel(body)).unwrap_err();
        assert!(matches!(&refused, Error::Undeclared { name, .. } if name == undeclared), "{refused:?}");
    }
    for wrong in [
        "add.s32 %r1, %r2",
        "add.s32 %r1 %r2;",
        "add.s32 %q1, %r2, %r3;",
        "ld.global.v2.u32 %r1, [%q1];",
        "add.s33 %r1, %r1, 1;",
    ] {
        assert!(Module::compile(&kernel(wrong)).is_err(), "{wrong}");
    }
    for wrong in [
        ".shared .align 4294967296 .b8 x[4];".to_owned(),
        ".shared .b8 x[1073741824];".repeat(4),
        format!("mov.u32 %r1, {};", "{".repeat(100_000)),
        format!("ld.global.u32 %r1, {};", "[".repeat(100_000)),
        format!("mov.u32 %r1, {}%r1;", "%r1|".repeat(100_000)),
    ] {
        assert!(Module::compile(&kernel(&wrong)).is_err(), "{}", &wrong[..30]);
    }
    // No beginning of a text makes it panic.
    let whole = kernel(EXCHANGE);
    for end in 0..whole.len() {
        let _ = Module::compile(&whole[..end]);
    }
}

#[test]
fn launches_are_those_of_a_gpu() {
    let body = "st.global.u32 [%q5], %r1;";
    for threads in [0, 1025] {
        assert!(matches!(faulty(body, forward(threads, 0)), Cause::Threads { .. }));
    }
    let bounded = kernel(body).replace("to)\n{", "to)\n.maxntid 32, 1, 1\n{");
    assert!(matches!(fault(&bounded, 64, forward(64, 0)).cause, Cause::Threads { limit: [32, 1, 1], .. }));
    let module = Module::compile(&bounded).unwrap();
    let found = module.kernel("k").unwrap();
    assert_eq!((found.parameters().len(), found.static_shared(), found.max_threads()), (2, 256, Some([32, 1, 1])));
    let short = found.run(&forward(32, 0), &[0; 8], &common::Buffers::default()).unwrap_err();
    assert_eq!(short.cause, Cause::Parameters { given: 8, declared: 16 });
    assert!(module.kernel("other").is_none());
}
