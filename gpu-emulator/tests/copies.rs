//! Copies to shared memory that take their time, and matrices read from there: each defect has to be found, and the same
//! kernel without it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Buffers, SCHEDULES, fault, kernel, launch, run};
use cuda::ptx::{Cause, Launch, Module, Schedule, Space};

fn forward(threads: u32) -> Launch {
    launch(1, threads, 0, Schedule::Forward)
}

/// A word a thread of two warps, by way of the shared memory of the other warp's threads; two groups of which the second is
/// waited for later.
const COPY: &str = "
    mov.u32 %r2, own; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;
    cp.async.ca.shared.global [%r4], [%q4], 4;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    xor.b32 %r6, %r1, 32; shl.b32 %r6, %r6, 2; add.s32 %r6, %r2, %r6;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%q5], %r7;";

fn words() -> Vec<u32> {
    (0..64).collect()
}

fn sound(body: &str, expected: impl Fn(u32) -> u32) {
    for schedule in SCHEDULES {
        let found = run(&kernel(body), &words(), Launch { schedule, ..forward(64) });
        let found = found.unwrap_or_else(|fault| panic!("{fault}\n{body}"));
        assert_eq!(found, (0..64).map(&expected).collect::<Vec<u32>>(), "{schedule:?}\n{body}");
    }
}

/// The cause by every schedule, each of which has to be one that `fits`.
fn faulty(body: &str, fits: impl Fn(&Cause) -> bool) {
    for schedule in SCHEDULES {
        let fault = run(&kernel(body), &words(), Launch { schedule, ..forward(64) }).expect_err(body);
        assert!(fits(&fault.cause), "{schedule:?}: {fault}\n{body}");
    }
}

fn in_flight(cause: &Cause) -> bool {
    matches!(cause, Cause::InFlight { copy, .. } if copy.instruction.starts_with("cp.async"))
}

fn without(body: &str, line: &str) -> String {
    assert_eq!(body.matches(line).count(), 1, "{line}");
    body.replace(line, "")
}

#[test]
fn what_is_copied_is_there_after_the_wait_and_the_barrier() {
    sound(COPY, |thread| thread ^ 32);
    sound(&COPY.replace("cp.async.wait_group 0", "cp.async.wait_all"), |thread| thread ^ 32);
    sound(&without(&COPY.replace("wait_group 0", "wait_all"), "cp.async.commit_group;"), |thread| thread ^ 32);
    // A thread sees its own copies without a barrier.
    let own = without(&COPY.replace("%r6, %r1, 32", "%r6, %r1, 0"), "bar.sync 0;");
    sound(&own, |thread| thread);
}

#[test]
fn a_dropped_wait_is_found() {
    faulty(&without(COPY, "cp.async.wait_group 0;"), in_flight);
    faulty(&COPY.replace("wait_group 0", "wait_group 1"), in_flight);
    // What is in no group is not waited for.
    faulty(&without(COPY, "cp.async.commit_group;"), in_flight);
}

#[test]
fn a_dropped_barrier_is_found() {
    let race = |cause: &Cause| matches!(cause, Cause::Race { .. } | Cause::Uninitialised { .. });
    faulty(&without(COPY, "bar.sync 0;"), race);
    // A barrier before the wait orders nothing after it.
    let early = COPY.replace("bar.sync 0;", "").replace("cp.async.wait", "bar.sync 0; cp.async.wait");
    faulty(&early, |cause| race(cause) || in_flight(cause));
}

/// A second group on its way while the first is used; then both.
#[test]
fn groups_arrive_in_their_order() {
    let two = "
        mov.u32 %r2, own; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3; mov.u32 %r8, other; add.s32 %r9, %r8, %r3;
        cp.async.ca.shared.global [%r4], [%q4], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r9], [%q4], 4; cp.async.commit_group;
        cp.async.wait_group 1; bar.sync 0;
        xor.b32 %r6, %r3, 4; add.s32 %r6, %r2, %r6; ld.shared.u32 %r7, [%r6];
        cp.async.wait_group 0; bar.sync 0;
        xor.b32 %r6, %r3, 8; add.s32 %r6, %r8, %r6; ld.shared.u32 %r10, [%r6];
        shl.b32 %r10, %r10, 8; or.b32 %r7, %r7, %r10; st.global.u32 [%q5], %r7;";
    let body = format!(".shared .align 16 .b8 other[256];\n{two}");
    sound(&body, |thread| thread ^ 1 | (thread ^ 2) << 8);
    faulty(&body.replace("wait_group 1", "wait_group 2"), in_flight);
    faulty(&body.replace("cp.async.wait_group 0", "cp.async.wait_group 1"), in_flight);
}

#[test]
fn bytes_on_their_way_are_not_written_nor_copied_to_again() {
    let written = COPY.replace("cp.async.commit_group;", "cp.async.commit_group; st.shared.u32 [%r4], %r1;");
    faulty(&written, in_flight);
    let again = "cp.async.ca.shared.global [%r4], [%q4], 4; cp.async.ca.shared.global [%r4], [%q4], 4;";
    faulty(&COPY.replace("cp.async.ca.shared.global [%r4], [%q4], 4;", again), in_flight);
    // Others may still be reading what was there.
    let next = "ld.shared.u32 %r7, [%r6]; bar.sync 0; cp.async.ca.shared.global [%r4], [%q4], 4; cp.async.wait_all;";
    let reused = COPY.replace("ld.shared.u32 %r7, [%r6];", next);
    sound(&reused, |thread| thread ^ 32);
    let race = |cause: &Cause| in_flight(cause) || matches!(cause, Cause::Race { .. });
    faulty(&reused.replace("[%r6]; bar.sync 0;", "[%r6];"), race);
}

#[test]
fn sources_stay_as_they_are_until_the_wait() {
    let body = COPY.replace("cp.async.commit_group;", "cp.async.commit_group; st.global.u32 [%q4], %r3;");
    faulty(&body, |cause| matches!(cause, Cause::SourceChanged { .. }));
    let later = COPY.replace("cp.async.wait_group 0;", "cp.async.wait_group 0; st.global.u32 [%q4], %r3;");
    sound(&later, |thread| thread ^ 32);
}

/// Bytes that are not read are zeros, and may lie after the end.
#[test]
fn copies_are_filled_up_with_zeros() {
    let few = "setp.lt.u32 %p1, %r1, 40; selp.b32 %r8, 4, 0, %p1;
               cp.async.ca.shared.global [%r4], [%q4], 4, %r8;";
    let body = COPY.replace("cp.async.ca.shared.global [%r4], [%q4], 4;", few);
    sound(&body, |thread| if thread ^ 32 < 40 { thread ^ 32 } else { 0 });
    sound(
        &body.replace("[%q4], 4, %r8", "[%q4+96], 4, %r8"),
        |thread| {
            if thread ^ 32 < 40 { (thread ^ 32) + 24 } else { 0 }
        },
    );
    let found = fault(&kernel(&body.replace("[%q4], 4, %r8", "[%q4+100], 4, %r8")), 64, forward(64)).cause;
    assert!(matches!(found, Cause::OutOfBounds { space: Space::Global, .. }), "{found:?}");
    let found = fault(&kernel(&body.replace("selp.b32 %r8, 4", "selp.b32 %r8, 8")), 64, forward(64)).cause;
    assert!(matches!(found, Cause::OutOfBounds { space: Space::Global, bytes: 8, .. }), "{found:?}");
}

#[test]
fn copies_are_aligned_and_within_bounds() {
    let wide = "setp.lt.u32 %p1, %r1, 16; shl.b32 %r3, %r1, 4; add.s32 %r4, %r2, %r3; shl.b64 %q6, %q3, 2;
                add.s64 %q7, %q1, %q6; @%p1 cp.async.cg.shared.global.L2::128B [%r4], [%q7], 16;";
    let body = COPY.replace("cp.async.ca.shared.global [%r4], [%q4], 4;", wide);
    sound(&body, |thread| thread ^ 32);
    for (wrong, expected) in [("[%r4+4], [%q7]", Space::Shared), ("[%r4], [%q7+8]", Space::Global)] {
        let found = fault(&kernel(&body.replace("[%r4], [%q7]", wrong)), 64, forward(64)).cause;
        assert!(matches!(found, Cause::Misaligned { space, bytes: 16, .. } if space == expected), "{found:?}");
    }
    for (wrong, expected) in [("[%r4+64], [%q7]", Space::Shared), ("[%r4], [%q7+64]", Space::Global)] {
        let found = fault(&kernel(&body.replace("[%r4], [%q7]", wrong)), 64, forward(64)).cause;
        assert!(matches!(found, Cause::OutOfBounds { space, bytes: 16, .. } if space == expected), "{found:?}");
    }
    for wrong in ["cp.async.cg.shared.global [%r4], [%q4], 4;", "cp.async.ca.shared.global [%r4], [%q4], 2;"] {
        assert!(Module::compile(&kernel(wrong)).is_err(), "{wrong}");
    }
    // GPUs before 8.0 have no such copies.
    assert!(Module::compile(&kernel(COPY).replace("sm_80", "sm_75")).is_err());
}

/// What a block did not wait for is not in the way of the next.
#[test]
fn copies_end_with_their_block() {
    let left = format!("{COPY} bar.sync 0; cp.async.ca.shared.global [%r4], [%q4], 4;");
    let mut buffers = Buffers::default();
    let bytes: Vec<u8> = words().iter().flat_map(|word| word.to_le_bytes()).collect();
    let parameters: Vec<u8> = [buffers.add(&bytes), buffers.add(&bytes)].iter().flat_map(|a| a.to_le_bytes()).collect();
    let module = Module::compile(&kernel(&left)).unwrap();
    for schedule in SCHEDULES {
        module.kernel("k").unwrap().run(&launch(3, 64, 0, schedule), &parameters, &buffers).unwrap();
    }
}

/// Lanes give the addresses of 32 rows of 16 bytes, each four words of `from`, in an order that is no other's.
fn matrices(count: usize, transposed: bool) -> String {
    let to = ["%r10", "%r11", "%r12", "%r13"][..count].join(", ");
    let trans = if transposed { ".trans" } else { "" };
    let stores: String = (0..count).map(|m| format!("st.global.b32 [%q8+{}], %r1{m};\n", 4 * m)).collect();
    format!(
        ".shared .align 16 .b8 rows[512];
        mov.u32 %r2, rows; shl.b32 %r3, %r1, 4; add.s32 %r4, %r2, %r3; mul.wide.u32 %q6, %r1, 16;
        add.s64 %q7, %q1, %q6; add.s64 %q8, %q2, %q6;
        ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%q7];
        st.shared.v4.u32 [%r4], {{%r5, %r6, %r7, %r8}};
        bar.sync 0;
        xor.b32 %r9, %r3, 48; add.s32 %r9, %r2, %r9;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{to}}}, [%r9];
        {stores}"
    )
}

/// Elements `2 * i` and `2 * i + 1` in word `i` of 128.
fn elements() -> Vec<u32> {
    (0..128).map(|i| 0x2_0002 * i + 0x1_0000).collect()
}

/// The word of lane `lane` of matrix `m`, as the figure of the PTX ISA has it.
fn expected(m: usize, transposed: bool, lane: usize) -> u32 {
    // Row `r` of matrix `m` is the row of `from` of lane `8 * m + r`'s address.
    let element = |row: usize, column: usize| (8 * ((8 * m + row) ^ 3) + column) as u32;
    let (first, second) = (2 * (lane % 4), 2 * (lane % 4) + 1);
    let group = lane / 4;
    if transposed {
        element(first, group) | element(second, group) << 16
    } else {
        element(group, first) | element(group, second) << 16
    }
}

fn wrong(body: &str, count: usize, transposed: bool, schedule: Schedule) -> usize {
    let found = run(&kernel(body), &elements(), launch(1, 32, 0, schedule)).unwrap_or_else(|fault| panic!("{fault}"));
    let all = (0..32).flat_map(|lane| (0..count).map(move |m| (lane, m)));
    all.filter(|(lane, m)| found[4 * lane + m] != expected(*m, transposed, *lane)).count()
}

#[test]
fn matrices_are_where_the_isa_puts_them() {
    for schedule in SCHEDULES {
        for (count, transposed) in [(1, false), (2, false), (4, false), (1, true), (2, true), (4, true)] {
            assert_eq!(wrong(&matrices(count, transposed), count, transposed, schedule), 0, "{count} {transposed}");
        }
    }
    // The oracle sees registers that are confused, and the other order of elements.
    let swapped = matrices(4, false).replace("{%r10, %r11,", "{%r11, %r10,");
    assert!(wrong(&swapped, 4, false, Schedule::Forward) > 32);
    assert!(wrong(&matrices(4, true), 4, false, Schedule::Forward) > 64);
}

#[test]
fn rows_of_matrices_are_checked() {
    let sound = matrices(4, false);
    let cause = |body: &str, threads: u32| fault(&kernel(body), 128, forward(threads)).cause;
    let found = cause(&sound.replace("[%r9]", "[%r9+8]"), 32);
    assert!(matches!(found, Cause::Misaligned { space: Space::Shared, bytes: 16, .. }), "{found:?}");
    let found = cause(&sound.replace("[%r9]", "[%r9+64]"), 32);
    assert!(matches!(found, Cause::OutOfBounds { space: Space::Shared, bytes: 16, .. }), "{found:?}");
    let found = cause(&sound.replace("st.shared", "setp.ne.u32 %p1, %r1, 20; @%p1 st.shared"), 32);
    assert!(matches!(found, Cause::Uninitialised { .. }), "{found:?}");
    let found = cause(&without(&sound, "bar.sync 0;"), 32);
    assert!(matches!(found, Cause::Race { .. }), "{found:?}");
    // All lanes are needed, though one matrix takes the addresses of eight.
    let few = "setp.lt.u32 %p1, %r1, 8; @!%p1 bra OVER; ldmatrix";
    let parted = matrices(1, false).replace("ldmatrix", few).replace("st.global", "OVER: st.global");
    let found = cause(&parted, 32);
    assert!(matches!(found, Cause::Divergent { needed: u32::MAX, .. }), "{found:?}");
    for wrong in ["x2", "x8"] {
        assert!(Module::compile(&kernel(&sound.replace(".x4", &format!(".{wrong}")))).is_err(), "{wrong}");
    }
    assert!(Module::compile(&kernel(&sound).replace("sm_80", "sm_70")).is_err());
}
