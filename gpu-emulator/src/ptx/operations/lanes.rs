//! Values of other lanes (PTX ISA 9.7.9.6 `shfl.sync`, 9.7.13.10 `vote.sync`).

use super::super::fault::Cause;
use super::super::memory::Frame;
use super::super::program::{Op, Reach, Trap};
use super::super::registers::{LANES, Registers, Row, lanes};

/// How a lane chooses another.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// `d|rows[0] = shfl a, b, c`
pub(in super::super) fn shuffle(kind: Shuffle) -> Reach {
    match kind {
        Shuffle::Up => |frame, op, mask| exchange(frame.registers, op, mask, Shuffle::Up),
        Shuffle::Down => |frame, op, mask| exchange(frame.registers, op, mask, Shuffle::Down),
        Shuffle::Butterfly => |frame, op, mask| exchange(frame.registers, op, mask, Shuffle::Butterfly),
        Shuffle::Index => |frame, op, mask| exchange(frame.registers, op, mask, Shuffle::Index),
    }
}

fn exchange(registers: &mut Registers, op: &Op, mask: u32, kind: Shuffle) -> Result<(), Trap> {
    let (a, b, c) = (registers.row::<u32>(op.a), registers.row::<u32>(op.b), registers.row::<u32>(op.c));
    let (mut from, mut found) = ([0; LANES], 0);
    for lane in lanes(mask) {
        let (given, segments, own) = (b[lane] & 31, c[lane] >> 8 & 31, lane as u32);
        let last = own & segments | c[lane] & 31 & !segments;
        let (chosen, within) = match kind {
            Shuffle::Up => (own.wrapping_sub(given), own as i32 - given as i32 >= last as i32),
            Shuffle::Down => (own + given, own + given <= last),
            Shuffle::Butterfly => (own ^ given, own ^ given <= last),
            Shuffle::Index => {
                let chosen = own & segments | given & !segments;
                (chosen, chosen <= last)
            }
        };
        let chosen = if within { chosen } else { own };
        if mask >> chosen & 1 == 0 {
            return Err(Trap::Lane { lane, cause: Cause::AbsentLane { lane: chosen } });
        }
        from[lane] = chosen as usize;
        found |= u32::from(within) << lane;
    }
    registers.set::<u32>(op.d, mask, |lane| a[from[lane]]);
    registers.set_predicate(op.rows[0], mask, found);
    Ok(())
}

/// `d = vote a`, where `a` is a predicate and `d` is one too, but for `ballot`.
pub(in super::super) fn vote(kind: &str) -> Option<Reach> {
    fn of(frame: &Frame<'_>, op: &Op, mask: u32) -> u32 {
        frame.registers.predicates[op.a as usize] & mask
    }
    fn answer(frame: &mut Frame<'_>, op: &Op, mask: u32, answer: bool) -> Result<(), Trap> {
        frame.registers.set_predicate(op.d, mask, if answer { !0 } else { 0 });
        Ok(())
    }
    Some(match kind {
        "all" => |f, op, mask| answer(f, op, mask, of(f, op, mask) == mask),
        "any" => |f, op, mask| answer(f, op, mask, of(f, op, mask) != 0),
        "uni" => |f, op, mask| answer(f, op, mask, matches!(of(f, op, mask), all if all == 0 || all == mask)),
        "ballot" => |f, op, mask| {
            let all: Row<u32> = [of(f, op, mask); LANES];
            f.registers.set::<u32>(op.d, mask, |lane| all[lane]);
            Ok(())
        },
        _ => return None,
    })
}
