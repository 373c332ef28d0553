//! Each kind of instruction compared with plain Rust, for numbers at the ends of their ranges and for others.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Buffers, SCHEDULES, kernel, launch, run};
use cuda::ptx::Module;

/// An instruction with `D`, `A`, `B`, `C` for its registers, their bits, and what it computes of the bits.
type Case = (&'static str, [u32; 4], fn(u64, u64, u64) -> u64);

const SINGLES: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.333_333_34,
    65504.0,
    65520.0,
    1e-8,
    -6e-8,
    1e-40,
    3.5,
    -2.5,
    2147483648.0,
    -3e9,
    f32::MAX,
    f32::INFINITY,
];
const INTEGERS: [u64; 12] =
    [0, 1, 2, 7, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0001];

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn of(value: f32) -> u64 {
    value.to_bits().into()
}

fn byte(word: u64, index: u32) -> i64 {
    i64::from((word >> (8 * index)) as i8)
}

const CASES: &[Case] = &[
    ("add.s32 D, A, B", [32, 32, 32, 0], |a, b, _| (a as u32).wrapping_add(b as u32).into()),
    ("sub.s64 D, A, B", [64, 64, 64, 0], |a, b, _| a.wrapping_sub(b)),
    ("add.s16 D, A, B", [16, 16, 16, 0], |a, b, _| u64::from((a as u16).wrapping_add(b as u16))),
    ("mul.lo.s32 D, A, B", [32, 32, 32, 0], |a, b, _| (a as u32).wrapping_mul(b as u32).into()),
    ("mul.hi.s32 D, A, B", [32, 32, 32, 0], |a, b, _| {
        ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32 as u64
    }),
    ("mul.hi.u32 D, A, B", [32, 32, 32, 0], |a, b, _| (a as u32 as u64 * (b as u32 as u64)) >> 32),
    ("mul.wide.s32 D, A, B", [64, 32, 32, 0], |a, b, _| (i64::from(a as i32) * i64::from(b as i32)) as u64),
    ("mul.wide.u32 D, A, B", [64, 32, 32, 0], |a, b, _| a as u32 as u64 * (b as u32 as u64)),
    ("mul.hi.u16 D, A, B", [16, 16, 16, 0], |a, b, _| ((a & 0xffff) * (b & 0xffff)) >> 16),
    ("mul.hi.s16 D, A, B", [16, 16, 16, 0], |a, b, _| {
        ((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u64 & 0xffff
    }),
    ("mul.wide.u16 D, A, B", [32, 16, 16, 0], |a, b, _| (a & 0xffff) * (b & 0xffff)),
    ("mad.lo.s32 D, A, B, C", [32; 4], |a, b, c| (a as u32).wrapping_mul(b as u32).wrapping_add(c as u32).into()),
    ("mad.lo.s64 D, A, B, C", [64; 4], |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
    ("min.s32 D, A, B", [32, 32, 32, 0], |a, b, _| (a as i32).min(b as i32) as u32 as u64),
    ("max.u32 D, A, B", [32, 32, 32, 0], |a, b, _| (a as u32).max(b as u32).into()),
    ("neg.s32 D, A", [32, 32, 0, 0], |a, _, _| (a as u32).wrapping_neg().into()),
    ("not.b32 D, A", [32, 32, 0, 0], |a, _, _| (!(a as u32)).into()),
    ("xor.b32 D, A, B", [32, 32, 32, 0], |a, b, _| (a ^ b) & 0xffff_ffff),
    ("shl.b32 D, A, B", [32, 32, 32, 0], |a, b, _| if b as u32 > 31 { 0 } else { (a << (b as u32)) & 0xffff_ffff }),
    ("shr.u64 D, A, B", [64, 64, 32, 0], |a, b, _| if b as u32 > 63 { 0 } else { a >> (b as u32) }),
    ("shr.s32 D, A, B", [32, 32, 32, 0], |a, b, _| (i64::from(a as i32) >> u64::from(b as u32).min(40)) as u32 as u64),
    ("shr.u16 D, A, B", [16, 16, 32, 0], |a, b, _| if b as u32 > 15 { 0 } else { (a & 0xffff) >> (b as u32) }),
    ("shf.r.wrap.b32 D, A, B, C", [32; 4], |a, b, c| ((b << 32 | a & 0xffff_ffff) >> (c & 31)) & 0xffff_ffff),
    ("shf.l.wrap.b32 D, A, B, C", [32; 4], |a, b, c| {
        (((u128::from(b as u32) << 32 | u128::from(a as u32)) << (c & 31)) >> 32) as u32 as u64
    }),
    ("div.u32 D, A, B", [32, 32, 32, 0], |a, b, _| (a as u32).checked_div(b as u32).unwrap_or(!0).into()),
    ("div.s32 D, A, B", [32, 32, 32, 0], |a, b, _| {
        if b as i32 == 0 { 0xffff_ffff } else { (i64::from(a as i32) / i64::from(b as i32)) as u32 as u64 }
    }),
    ("bfe.u32 D, A, B, C", [32; 4], |a, b, c| {
        (0..(c & 0xff).min(32)).fold(0, |all, bit| {
            let at = (b & 0xff) + bit;
            all | (if at < 32 { a >> at & 1 } else { 0 }) << bit
        })
    }),
    // As the PTX ISA words it, bit by bit.
    ("bfe.s32 D, A, B, C", [32; 4], |a, b, c| {
        let (at, bits) = (b & 0xff, c & 0xff);
        let sign = if bits == 0 { 0 } else { a >> (at + bits - 1).min(31) & 1 };
        (0..32).fold(0, |all, bit| all | (if bit < bits && at + bit < 32 { a >> (at + bit) & 1 } else { sign }) << bit)
    }),
    ("bfi.b32 D, A, B, C, 4", [32; 4], |a, b, c| {
        (0..4).fold(b & 0xffff_ffff, |all, bit| {
            let at = (c & 0xff) + bit;
            if at < 32 { all & !(1 << at) | (a >> bit & 1) << at } else { all }
        })
    }),
    ("bfi.b64 D, A, B, C, 32", [64, 64, 64, 32], |a, b, c| {
        (0..32).fold(b, |all, bit| {
            let at = (c & 0xff) + bit;
            if at < 64 { all & !(1 << at) | (a >> bit & 1) << at } else { all }
        })
    }),
    ("prmt.b32 D, A, B, C", [32; 4], |a, b, c| {
        (0..4).fold(0, |all, digit| {
            let choice = c >> (4 * digit) & 15;
            let byte = (b << 32 | a & 0xffff_ffff) >> (8 * (choice & 7)) & 0xff;
            let byte = if choice < 8 {
                byte
            } else if byte & 0x80 != 0 {
                0xff
            } else {
                0
            };
            all | byte << (8 * digit)
        })
    }),
    ("dp4a.s32.s32 D, A, B, C", [32; 4], |a, b, c| {
        (0..4).map(|i| byte(a, i) * byte(b, i)).sum::<i64>().wrapping_add(c as i64) as u32 as u64
    }),
    ("dp4a.u32.s32 D, A, B, C", [32; 4], |a, b, c| {
        (0..4).map(|i| (byte(a, i) & 0xff) * byte(b, i)).sum::<i64>().wrapping_add(c as i64) as u32 as u64
    }),
    ("dp2a.lo.s32.u32 D, A, B, C", [32; 4], |a, b, c| {
        let products = i64::from(a as i16) * (byte(b, 0) & 0xff) + i64::from((a >> 16) as i16) * (byte(b, 1) & 0xff);
        products.wrapping_add(c as i64) as u32 as u64
    }),
    ("dp2a.lo.s32.s32 D, A, B, C", [32; 4], |a, b, c| {
        let products = i64::from(a as i16) * byte(b, 0) + i64::from((a >> 16) as i16) * byte(b, 1);
        products.wrapping_add(c as i64) as u32 as u64
    }),
    ("setp.lt.s32 %p1, A, B; selp.b32 D, A, B, %p1", [32, 32, 32, 0], |a, b, _| (a as i32).min(b as i32) as u32 as u64),
    ("setp.gt.u32 %p1, A, B; not.pred %p2, %p1; @!%p2 mov.u32 D, A; @%p2 mov.u32 D, B", [32, 32, 32, 0], |a, b, _| {
        (a as u32).max(b as u32).into()
    }),
    ("cvt.s32.s8 D, A", [32, 32, 0, 0], |a, _, _| a as i8 as i32 as u32 as u64),
    ("cvt.s64.s32 D, A", [64, 32, 0, 0], |a, _, _| a as i32 as i64 as u64),
    ("cvt.u16.u32 D, A", [16, 32, 0, 0], |a, _, _| a & 0xffff),
    ("cvt.u32.u16 D, A", [32, 16, 0, 0], |a, _, _| a & 0xffff),
    ("cvt.s32.s16 D, A", [32, 32, 0, 0], |a, _, _| a as i16 as i32 as u32 as u64),
    ("mov.b64 {D, _}, A", [32, 64, 0, 0], |a, _, _| a & 0xffff_ffff),
    ("mov.b64 D, {A, B}", [64, 32, 32, 0], |a, b, _| b << 32 | a & 0xffff_ffff),
    ("mov.b32 {_, D}, A", [16, 32, 0, 0], |a, _, _| a >> 16 & 0xffff),
    ("cvt.rn.f32.s32 D, A", [32, 32, 0, 0], |a, _, _| of(a as i32 as f32)),
    ("cvt.rn.f64.s32 D, A", [64, 32, 0, 0], |a, _, _| f64::from(a as i32).to_bits()),
];

const FLOATS: &[Case] = &[
    ("add.rn.f32 D, A, B", [32, 32, 32, 0], |a, b, _| of(f(a) + f(b))),
    ("mul.rn.f32 D, A, B", [32, 32, 32, 0], |a, b, _| of(f(a) * f(b))),
    ("sub.rn.f64 D, A, B", [64, 64, 64, 0], |a, b, _| (d(a) - d(b)).to_bits()),
    ("div.rn.f32 D, A, B", [32, 32, 32, 0], |a, b, _| of(f(a) / f(b))),
    ("rcp.rn.f32 D, A", [32, 32, 0, 0], |a, _, _| of(1.0 / f(a))),
    ("sqrt.rn.f64 D, A", [64, 64, 0, 0], |a, _, _| d(a).sqrt().to_bits()),
    ("fma.rn.f32 D, A, B, C", [32; 4], |a, b, c| of(f(a).mul_add(f(b), f(c)))),
    (
        "min.f32 D, A, B",
        [32, 32, 32, 0],
        |a, b, _| {
            if f(a) == f(b) { (a | b) & 0xffff_ffff } else { of(f(a).min(f(b))) }
        },
    ),
    ("max.f32 D, A, B", [32, 32, 32, 0], |a, b, _| if f(a) == f(b) { a & b & 0xffff_ffff } else { of(f(a).max(f(b))) }),
    ("neg.f32 D, A", [32, 32, 0, 0], |a, _, _| (a ^ 0x8000_0000) & 0xffff_ffff),
    ("setp.leu.f32 %p1, A, B; selp.f32 D, A, B, %p1", [32, 32, 32, 0], |a, b, _| {
        if f(a) > f(b) { b & 0xffff_ffff } else { a & 0xffff_ffff }
    }),
    ("cvt.sat.f32.f32 D, A", [32, 32, 0, 0], |a, _, _| of(if f(a) > 0.0 { f(a).min(1.0) } else { 0.0 })),
    ("cvt.rni.f32.f32 D, A", [32, 32, 0, 0], |a, _, _| of(f(a).round_ties_even())),
    ("cvt.rzi.s32.f32 D, A", [32, 32, 0, 0], |a, _, _| {
        f64::from(f(a)).trunc().clamp(-2147483648.0, 2147483647.0) as i64 as u32 as u64
    }),
    ("cvt.rn.f16.f32 D, A", [16, 32, 0, 0], |a, _, _| half::f16::from_f32(f(a)).to_bits().into()),
    ("cvt.f32.f16 D, A", [32, 16, 0, 0], |a, _, _| of(half::f16::from_bits(a as u16).to_f32())),
    ("cvt.f64.f32 D, A", [64, 32, 0, 0], |a, _, _| f64::from(f(a)).to_bits()),
    ("cvt.rn.f32.f64 D, A", [32, 64, 0, 0], |a, _, _| of(d(a) as f32)),
    // Numbers below the normal ones are zeros before and after.
    ("ex2.approx.ftz.f32 D, A", [32, 32, 0, 0], |a, _, _| {
        let a = if f(a).is_subnormal() { 0.0 } else { f(a) };
        let power = f64::from(a).exp2() as f32;
        of(if power.is_subnormal() { 0.0 } else { power })
    }),
];

/// The destination of `instruction` for each triple of sources.
fn computed(instruction: &str, bits: [u32; 4], sources: &[[u64; 3]]) -> Vec<u64> {
    let register = |index: usize| match bits[index] {
        16 => format!("%h{}", index + 1),
        32 => format!("%r{}", index + 1),
        _ => format!("%q{}", index + 1),
    };
    let mut text = String::from(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 from, .param .u64 to)\n{\n\
         .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %q<20>;\n\
         ld.param.u64 %q9, [from]; ld.param.u64 %q10, [to]; mov.u32 %r8, %tid.x; mul.wide.u32 %q11, %r8, 24;\n\
         add.s64 %q9, %q9, %q11; mul.wide.u32 %q11, %r8, 8; add.s64 %q10, %q10, %q11;\n",
    );
    for (source, bits) in bits.iter().enumerate().skip(1).filter(|source| *source.1 > 0) {
        text += &format!("ld.global.b{bits} {}, [%q9+{}];\n", register(source), 8 * (source - 1));
    }
    let named = ["D", "A", "B", "C"].iter().enumerate().fold(instruction.to_owned(), |text, (index, name)| {
        let words = text.split(' ').map(|word| {
            let bare = word.trim_matches(|sign| "{},;".contains(sign));
            if bare == *name { word.replace(name, &register(index)) } else { word.to_owned() }
        });
        words.collect::<Vec<_>>().join(" ")
    });
    text += &format!("{named};\nst.global.b{} [%q10], {};\nret;\n}}\n", bits[0], register(0));
    let module = Module::compile(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let from: Vec<u8> = sources.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let mut buffers = Buffers::default();
    let (from, to) = (buffers.add(&from), buffers.add(&vec![0; 8 * sources.len()]));
    let parameters: Vec<u8> = [from, to].iter().flat_map(|address| address.to_le_bytes()).collect();
    let launch = launch(1, sources.len() as u32, 0, SCHEDULES[0]);
    module.kernel("k").unwrap().run(&launch, &parameters, &buffers).unwrap_or_else(|fault| panic!("{fault}"));
    buffers.bytes(to).chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn check(cases: &[Case], values: impl Fn(u32) -> Vec<u64>, equal: impl Fn(u32, u64, u64) -> bool) {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state ^ state >> 29
    };
    for (instruction, bits, oracle) in cases {
        let sources: Vec<[u64; 3]> = (0..1000)
            .map(|_| {
                std::array::from_fn(|source| {
                    let own = values(bits[source + 1]);
                    own[random() as usize % own.len()]
                })
            })
            .collect();
        for (index, found) in computed(instruction, *bits, &sources).into_iter().enumerate() {
            let [a, b, c] = sources[index];
            let expected = oracle(a, b, c);
            assert!(
                equal(bits[0], found, expected),
                "{instruction} of {a:#x}, {b:#x}, {c:#x}: {found:#x}, not {expected:#x}"
            );
        }
    }
}

#[test]
fn integers_and_bits() {
    let values = |_| {
        let small = (0..40).collect::<Vec<u64>>();
        let mixed = (0..40u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect::<Vec<_>>();
        [&INTEGERS[..], &small, &mixed].concat()
    };
    check(CASES, values, |_, found, expected| found == expected);
}

#[test]
fn floats() {
    let values = |bits| match bits {
        16 => (0..0x7c00u64).step_by(37).chain((0x8000..0xfc00).step_by(41)).collect(),
        64 => SINGLES.iter().map(|x| (f64::from(*x) * 1.000_000_1).to_bits()).collect(),
        _ => SINGLES
            .iter()
            .flat_map(|x| [of(*x), of(-*x * 0.7), of(x.sin() * 12.0)])
            .filter(|x| !f(*x).is_nan())
            .collect(),
    };
    let no_number = |bits, x| if bits == 64 { d(x).is_nan() } else { bits == 32 && f(x).is_nan() };
    check(FLOATS, values, |bits, found, expected| {
        found == expected || no_number(bits, found) && no_number(bits, expected)
    });
}

/// Ten numbers in turn, from 0 on, whatever order the lanes come in; 32 leave the third.
#[test]
fn a_counter_starts_again_behind_its_last() {
    let body = "mov.b32 %r2, 9; membar.gl; fence.acq_rel.gpu; atom.global.inc.u32 %r3, [%q1], %r2;\n\
                mul.wide.u32 %q6, %r3, 4; add.s64 %q7, %q2, %q6; mov.b32 %r5, 999;\n\
                atom.global.inc.u32 %r4, [%q7], %r5; ld.global.b32 %r6, [%q1]; st.global.b32 [%q2+124], %r6;";
    for schedule in SCHEDULES {
        let found = run(&kernel(body), &[0; 32], launch(1, 32, 0, schedule)).unwrap();
        assert_eq!(found[..10], [4, 4, 3, 3, 3, 3, 3, 3, 3, 3], "{schedule:?}");
        assert_eq!(found[31], 2, "{schedule:?}");
    }
}
