//! Products of small matrices by a warp (PTX ISA 9.7.14, `mma.sync`).
//!
//! Integer sums are exact modulo 2^32. Products of halves are exact, summed in double precision and rounded once, to nearest.
//! A GPU's tensor cores align the summands and may cut off bits below single precision; how many is not documented.

use super::super::memory::Frame;
use super::super::program::{Done, Effect, Op};
use super::super::registers::{Registers, Row};
use half::{bf16, f16};

/// A product, and how many registers of a lane hold each of `d`, `a`, `b` and `c`, whose rows are `rows`.
pub(in super::super) fn multiply(name: &[&str]) -> Option<(Effect, [usize; 4])> {
    let ["mma", "sync", "aligned", shape, "row", "col", types @ ..] = name else { return None };
    Some(match (*shape, types) {
        ("m8n8k16", ["s32", "s8", "s8", "s32"]) => (integers::<2, 1, 1>, [2, 1, 1, 2]),
        ("m16n8k16", ["s32", "s8", "s8", "s32"]) => (integers::<4, 2, 1>, [4, 2, 1, 4]),
        ("m16n8k32", ["s32", "s8", "s8", "s32"]) => (integers::<4, 4, 2>, [4, 4, 2, 4]),
        ("m16n8k8", ["f32", "f16", "f16", "f32"]) => (halves::<false, 4, 2, 1>, [4, 2, 1, 4]),
        ("m16n8k16", ["f32", "f16", "f16", "f32"]) => (halves::<false, 4, 4, 2>, [4, 4, 2, 4]),
        ("m16n8k8", ["f32", "bf16", "bf16", "f32"]) => (halves::<true, 4, 2, 1>, [4, 2, 1, 4]),
        ("m16n8k16", ["f32", "bf16", "bf16", "f32"]) => (halves::<true, 4, 4, 2>, [4, 4, 2, 4]),
        _ => return None,
    })
}

fn integers<const D: usize, const A: usize, const B: usize>(frame: &mut Frame<'_>, op: &Op, _: u32) -> Done {
    let element = |word: u32, index: usize| i32::from((word >> (8 * index)) as i8);
    // The sums are exact: each has at most 32 products below 2^14.
    product::<i32, 4, D, A, B>(&mut frame.registers, op, element, |c, sum| c.wrapping_add(sum as u32));
    Ok(())
}

/// Products of `f16` or, with `BF16`, of `bf16`.
fn halves<const BF16: bool, const D: usize, const A: usize, const B: usize>(
    frame: &mut Frame<'_>,
    op: &Op,
    _: u32,
) -> Done {
    let element = |word: u32, index: usize| {
        let bits = (word >> (16 * index)) as u16;
        if BF16 { bf16::from_bits(bits).to_f64() } else { f16::from_bits(bits).to_f64() }
    };
    let add = |c: u32, sum: f64| ((f64::from(f32::from_bits(c)) + sum) as f32).to_bits();
    product::<f64, 2, D, A, B>(&mut frame.registers, op, element, add);
    Ok(())
}

/// `d = a * b + c`, `E` elements a register. A lane is of the group `lane / 4` and the `lane % 4`-th in it. Of `a`, its
/// register `j` holds columns from `E * (lane % 4) + 4 * E * (j / 2)` on, of row `group`, or `group + 8` for odd `j`; of
/// `b`, rows from `E * (lane % 4) + 4 * E * j` on, of column `group`; of `c` and `d`, column `2 * (lane % 4) + j % 2` of row
/// `group + 8 * (j / 2)`.
fn product<T, const E: usize, const D: usize, const A: usize, const B: usize>(
    registers: &mut Registers,
    op: &Op,
    element: impl Fn(u32, usize) -> T,
    finish: impl Fn(u32, T) -> u32,
) where
    T: Copy + Default + std::ops::Add<Output = T> + std::ops::Mul<Output = T>,
{
    const DEEPEST: usize = 32;
    let deep = 4 * E * B;
    let word = |at: usize| registers.row::<u32>(op.rows[at]);
    let (mut a, mut b) = ([[T::default(); DEEPEST]; 16], [[T::default(); 8]; DEEPEST]);
    for j in 0..A {
        let row: Row<u32> = word(D + j);
        for (lane, word) in row.iter().enumerate() {
            for index in 0..E {
                a[lane / 4 + 8 * (j % 2)][E * (lane % 4) + 4 * E * (j / 2) + index] = element(*word, index);
            }
        }
    }
    for j in 0..B {
        let row: Row<u32> = word(D + A + j);
        for (lane, word) in row.iter().enumerate() {
            for index in 0..E {
                b[E * (lane % 4) + 4 * E * j + index][lane / 4] = element(*word, index);
            }
        }
    }
    let mut sums = [[T::default(); 8]; 16];
    for (sums, a) in sums.iter_mut().zip(&a).take(4 * D) {
        for (a, b) in a[..deep].iter().zip(&b) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = *sum + *a * *b;
            }
        }
    }
    for j in 0..D {
        let c: Row<u32> = registers.row(op.rows[D + A + B + j]);
        let found: Row<u32> =
            std::array::from_fn(|lane| finish(c[lane], sums[lane / 4 + 8 * (j / 2)][2 * (lane % 4) + j % 2]));
        registers.set(op.rows[j], !0, |lane| found[lane]);
    }
}
