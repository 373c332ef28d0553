//! Registers made of narrower ones, the lowest bits first (PTX ISA 9.7.9.3, `mov` of vectors).

use super::super::program::{Compute, Op};
use super::super::registers::{Registers, Value, Word};
use super::super::syntax::Width;
use std::array::from_fn;

/// `d = {rows}`
pub(in super::super) fn pack(whole: Width, part: Width) -> Option<Compute> {
    fn of<W: Value<Word = W> + Word, P: Value<Word = P> + Word>(registers: &mut Registers, op: &Op, mask: u32) {
        let bits = 8 * size_of::<P>();
        let all: [u64; 32] = from_fn(|lane| {
            let parts = op.rows.iter().map(|row| registers.lane::<P>(*row, lane).to_bits());
            parts.enumerate().fold(0, |all, (index, part)| all | part << (index * bits))
        });
        registers.set::<W>(op.d, mask, |lane| W::from_bits(all[lane]));
    }
    match (whole, part) {
        (Width::B32, Width::B16) => Some(of::<u32, u16>),
        (Width::B64, Width::B16) => Some(of::<u64, u16>),
        (Width::B64, Width::B32) => Some(of::<u64, u32>),
        _ => None,
    }
}

/// `{rows} = a`
pub(in super::super) fn unpack(whole: Width, part: Width) -> Option<Compute> {
    fn of<W: Value<Word = W> + Word, P: Value<Word = P> + Word>(registers: &mut Registers, op: &Op, mask: u32) {
        let a = registers.row::<W>(op.a);
        for (index, row) in op.rows.iter().enumerate() {
            registers.set::<P>(*row, mask, |lane| P::from_bits(a[lane].to_bits() >> (index * 8 * size_of::<P>())));
        }
    }
    match (whole, part) {
        (Width::B32, Width::B16) => Some(of::<u32, u16>),
        (Width::B64, Width::B16) => Some(of::<u64, u16>),
        (Width::B64, Width::B32) => Some(of::<u64, u32>),
        _ => None,
    }
}
