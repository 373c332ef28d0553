//! Registers made of narrower ones, the lowest bits first (PTX ISA 9.7.9.3, `mov` of vectors).

use super::super::program::{Compute, Op};
use super::super::registers::{Registers, Value, Word};
use super::super::syntax::Width;
use std::array::from_fn;

/// `d = {rows}` and `{rows} = a`, for `count` parts of a register of this width; and the width of a part.
pub(in super::super) fn pack_and_unpack(whole: Width, count: usize) -> Option<(Compute, Compute, Width)> {
    match (whole, count) {
        (Width::B32, 2) => Some((pack::<u32, u16>, unpack::<u32, u16>, Width::B16)),
        (Width::B64, 4) => Some((pack::<u64, u16>, unpack::<u64, u16>, Width::B16)),
        (Width::B64, 2) => Some((pack::<u64, u32>, unpack::<u64, u32>, Width::B32)),
        _ => None,
    }
}

fn pack<W: Value<Word = W> + Word, P: Value<Word = P> + Word>(registers: &mut Registers, op: &Op, mask: u32) {
    let bits = 8 * size_of::<P>();
    let all: [u64; 32] = from_fn(|lane| {
        let parts = op.rows.iter().map(|row| registers.lane::<P>(*row, lane).into());
        parts.enumerate().fold(0, |all, (index, part)| all | part << (index * bits))
    });
    registers.set::<W>(op.d, mask, |lane| W::from_bits(all[lane]));
}

fn unpack<W: Value<Word = W> + Word, P: Value<Word = P> + Word>(registers: &mut Registers, op: &Op, mask: u32) {
    let a = registers.row::<W>(op.a);
    for (index, row) in op.rows.iter().enumerate() {
        registers.set::<P>(*row, mask, |lane| P::from_bits(a[lane].into() >> (index * 8 * size_of::<P>())));
    }
}
