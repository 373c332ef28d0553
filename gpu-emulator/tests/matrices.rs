//! Products of small matrices by a warp compared with plain loops, by where the PTX ISA puts each element (9.7.14.5).
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{SCHEDULES, launch, run};
use cuda::ptx::Schedule;

/// A shape: name, types, rows, depth, registers of `a`, `b` and `d`.
const SHAPES: [(&str, &str, usize, usize, [usize; 3]); 7] = [
    ("m8n8k16", "s32.s8.s8.s32", 8, 16, [1, 1, 2]),
    ("m16n8k16", "s32.s8.s8.s32", 16, 16, [2, 1, 4]),
    ("m16n8k32", "s32.s8.s8.s32", 16, 32, [4, 2, 4]),
    ("m16n8k8", "f32.f16.f16.f32", 16, 8, [2, 1, 4]),
    ("m16n8k16", "f32.f16.f16.f32", 16, 16, [4, 2, 4]),
    ("m16n8k8", "f32.bf16.bf16.f32", 16, 8, [2, 1, 4]),
    ("m16n8k16", "f32.bf16.bf16.f32", 16, 16, [4, 2, 4]),
];

/// Row and column of element `i` of a lane's `a`, as the tables of the PTX ISA word it.
fn of_a(shape: &str, bytes: bool, lane: usize, i: usize) -> (usize, usize) {
    let (group, place) = (lane >> 2, lane % 4);
    match (shape, bytes) {
        ("m8n8k16", true) => (group, place * 4 + i),
        ("m16n8k16", true) => (if i < 4 { group } else { group + 8 }, place * 4 + (i & 3)),
        ("m16n8k32", true) => (
            if i < 4 || (8..12).contains(&i) { group } else { group + 8 },
            place * 4 + (i & 3) + if i < 8 { 0 } else { 16 },
        ),
        ("m16n8k8", false) => (if i < 2 { group } else { group + 8 }, place * 2 + (i & 1)),
        _ => (
            if i < 2 || (4..6).contains(&i) { group } else { group + 8 },
            place * 2 + (i & 1) + if i < 4 { 0 } else { 8 },
        ),
    }
}

/// Row and column of element `i` of a lane's `b`.
fn of_b(shape: &str, bytes: bool, lane: usize, i: usize) -> (usize, usize) {
    let (group, place) = (lane >> 2, lane % 4);
    let row = match (shape, bytes) {
        ("m16n8k32", true) => place * 4 + (i & 3) + if i < 4 { 0 } else { 16 },
        (_, true) => place * 4 + i,
        ("m16n8k8", false) => place * 2 + i,
        _ => place * 2 + (i & 1) + if i < 2 { 0 } else { 8 },
    };
    (row, group)
}

/// Small integers, which all types hold and sums do not round.
fn element(types: &str, row: usize, column: usize, seed: usize) -> (i32, u32) {
    let value = ((row * 7 + column * 13 + seed * 5 + row * column) % 23) as i32 - 11;
    let bits = match types {
        "s32.s8.s8.s32" => value as u8 as u32,
        "f32.f16.f16.f32" => half::f16::from_f32(value as f32).to_bits().into(),
        _ => half::bf16::from_f32(value as f32).to_bits().into(),
    };
    (value, bits)
}

fn body(shape: &str, types: &str, [a, b, d]: [usize; 3], swapped: bool) -> String {
    let names = |first: usize, count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("%r{}", first + index)).collect();
        format!("{{{}}}", names.join(", "))
    };
    let mut text = String::from("mul.wide.u32 %q6, %r1, 48; add.s64 %q7, %q1, %q6; add.s64 %q8, %q2, %q6;\n");
    for (first, count, at) in [(2, a, 0), (6, b, 4), (8, d, 6)] {
        for index in 0..count {
            text += &format!("ld.global.b32 %r{}, [%q7+{}];\n", first + index, 4 * (at + index));
        }
    }
    let (of_a, of_b) = if swapped && a == b { (names(6, b), names(2, a)) } else { (names(2, a), names(6, b)) };
    text += &format!("mma.sync.aligned.{shape}.row.col.{types} {}, {of_a}, {of_b}, {};\n", names(12, d), names(8, d));
    (0..d).for_each(|index| text += &format!("st.global.b32 [%q8+{}], %r{};\n", 4 * index, 12 + index));
    text
}

/// The elements that are wrong, of all.
fn wrong(
    shape: &str,
    types: &str,
    rows: usize,
    deep: usize,
    registers: [usize; 3],
    body: &str,
    schedule: Schedule,
) -> usize {
    let bytes = types.starts_with('s');
    let each = if bytes { 4 } else { 2 };
    let mut given = vec![0u32; 32 * 12];
    for lane in 0..32 {
        for i in 0..registers[0] * each {
            let (row, column) = of_a(shape, bytes, lane, i);
            given[12 * lane + i / each] |= element(types, row, column, 1).1 << (32 / each * (i % each));
        }
        for i in 0..registers[1] * each {
            let (row, column) = of_b(shape, bytes, lane, i);
            given[12 * lane + 4 + i / each] |= element(types, row, column, 2).1 << (32 / each * (i % each));
        }
        for i in 0..registers[2] {
            let value = (lane * 4 + i) as i32;
            given[12 * lane + 6 + i] = if bytes { value as u32 } else { (value as f32).to_bits() };
        }
    }
    let found =
        run(&common::kernel(body), &given, launch(1, 32, 0, schedule)).unwrap_or_else(|fault| panic!("{fault}"));
    let mut wrong = 0;
    for lane in 0..32 {
        for i in 0..registers[2] {
            let row = (lane >> 2) + if i < 2 { 0 } else { 8 };
            let column = (lane % 4) * 2 + (i & 1);
            assert!(row < rows);
            let products = (0..deep).map(|k| element(types, row, k, 1).0 * element(types, k, column, 2).0);
            let expected = products.sum::<i32>() + (lane * 4 + i) as i32;
            let expected = if bytes { expected as u32 } else { (expected as f32).to_bits() };
            wrong += usize::from(found[12 * lane + i] != expected);
        }
    }
    wrong
}

#[test]
fn products_are_those_of_plain_loops() {
    for (shape, types, rows, deep, registers) in SHAPES {
        for schedule in SCHEDULES {
            let body = body(shape, types, registers, false);
            let wrong = wrong(shape, types, rows, deep, registers, &body, schedule);
            assert_eq!(wrong, 0, "{shape} {types}");
        }
    }
}

/// The oracle sees a kernel that confuses its operands.
#[test]
fn swapped_operands_are_wrong() {
    let (shape, types, rows, deep, registers) = SHAPES[0];
    let swapped = body(shape, types, registers, true);
    assert!(wrong(shape, types, rows, deep, registers, &swapped, Schedule::Forward) > 32);
    let (shape, types, rows, deep, registers) = SHAPES[2];
    let plain = body(shape, types, registers, false);
    for (from, to) in [("{%r2, %r3,", "{%r3, %r2,"), ("{%r6, %r7}", "{%r7, %r6}")] {
        let swapped = plain.replace(from, to);
        assert_ne!(swapped, plain);
        assert!(wrong(shape, types, rows, deep, registers, &swapped, Schedule::Forward) > 32, "{to}");
    }
}
