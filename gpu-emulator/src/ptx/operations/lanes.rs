//! Values of other lanes (PTX ISA 9.7.9.6 `shfl.sync`, 9.7.13.10 `vote.sync`).

use super::super::fault::Cause;
use super::super::memory::Frame;
use super::super::program::{Done, Effect, Op, Trap};
use super::super::registers::{LANES, lanes};

/// `d|rows[0] = shfl a, b, c`. A lane chooses by its own number, `b`, its segment and the last lane there.
pub(in super::super) fn shuffle(kind: &str) -> Option<Effect> {
    Some(match kind {
        "up" => |frame, op, mask| {
            exchange(frame, op, mask, |own, given, _, last| (own.wrapping_sub(given), own >= last + given))
        },
        "down" => |frame, op, mask| exchange(frame, op, mask, |own, given, _, last| (own + given, own + given <= last)),
        "bfly" => |frame, op, mask| exchange(frame, op, mask, |own, given, _, last| (own ^ given, own ^ given <= last)),
        "idx" => |frame, op, mask| {
            exchange(frame, op, mask, |own, given, segments, last| {
                let chosen = own & segments | given & !segments;
                (chosen, chosen <= last)
            })
        },
        _ => return None,
    })
}

fn exchange(frame: &mut Frame<'_>, op: &Op, mask: u32, choose: impl Fn(u32, u32, u32, u32) -> (u32, bool)) -> Done {
    let registers = &mut frame.registers;
    let (a, b, c) = (registers.row::<u32>(op.a), registers.row::<u32>(op.b), registers.row::<u32>(op.c));
    let (mut from, mut found) = ([0; LANES], 0);
    for lane in lanes(mask) {
        let (own, segments) = (lane as u32, c[lane] >> 8 & 31);
        let last = own & segments | c[lane] & 31 & !segments;
        let (chosen, within) = choose(own, b[lane] & 31, segments, last);
        let chosen = if within { chosen } else { own };
        if mask >> chosen & 1 == 0 {
            return Err(Trap::new(lane, Cause::AbsentLane { lane: chosen }));
        }
        from[lane] = chosen as usize;
        found |= u32::from(within) << lane;
    }
    registers.set::<u32>(op.d, mask, |lane| a[from[lane]]);
    registers.set_predicate(op.rows[0], mask, found);
    Ok(())
}

/// `d = vote a`, where `a` is a predicate, and `d` is too, except for `ballot`.
pub(in super::super) fn vote(kind: &str) -> Option<Effect> {
    fn answer(frame: &mut Frame<'_>, op: &Op, mask: u32, is: impl Fn(u32) -> bool) -> Done {
        let answer = is(frame.registers.predicate(op.a) & mask);
        frame.registers.set_predicate(op.d, mask, if answer { !0 } else { 0 });
        Ok(())
    }
    Some(match kind {
        "all" => |frame, op, mask| answer(frame, op, mask, |votes| votes == mask),
        "any" => |frame, op, mask| answer(frame, op, mask, |votes| votes != 0),
        "uni" => |frame, op, mask| answer(frame, op, mask, |votes| votes == 0 || votes == mask),
        "ballot" => |frame, op, mask| {
            let votes = frame.registers.predicate(op.a) & mask;
            frame.registers.set::<u32>(op.d, mask, |_| votes);
            Ok(())
        },
        _ => return None,
    })
}
