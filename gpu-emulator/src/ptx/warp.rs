//! A warp: 32 lanes that run an instruction together as long as they agree where to go. Diverged lanes run in groups,
//! in the order of the schedule, and are one group again where they meet at a label. An instruction of several lanes waits
//! for all of them; if it would wait for ever, that is a fault.

use super::fault::Cause;
use super::memory::Frame;
use super::order::Order;
use super::program::{Members, Op, Program, Step, Trap};
use super::registers::{LANES, Registers, lanes};

#[derive(Debug)]
pub(super) struct Warp {
    pub(super) registers: Registers,
    /// The next instruction of each lane. The group keeps those of running lanes.
    next: [usize; LANES],
    /// Lanes that the block has.
    all: u32,
    /// Lanes that have not returned.
    live: u32,
    /// Live lanes that wait for others at an instruction that runs together.
    waiting: u32,
    /// Barriers of only this warp that it has passed in this block.
    pub(super) epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Returned,
    /// All lanes wait at this barrier of the block.
    Barrier(usize),
}

impl Warp {
    pub(super) fn new(program: &Program) -> Warp {
        Warp { registers: program.registers.clone(), next: [0; LANES], all: 0, live: 0, waiting: 0, epoch: 0 }
    }

    /// Begins a block of which it has `threads` threads.
    pub(super) fn begin(&mut self, threads: usize) {
        self.all = if threads >= LANES { !0 } else { (1 << threads) - 1 };
        (self.live, self.waiting, self.epoch, self.next) = (self.all, 0, 0, [0; LANES]);
    }

    pub(super) fn returned(&self) -> Option<usize> {
        lanes(self.all & !self.live).next()
    }
}

/// The members wait for each other, and see all their writes. Barriers of some lanes order nothing here.
pub(super) fn wait_for_members(frame: &mut Frame<'_>, _: &Op, members: u32) -> Result<(), Trap> {
    frame.warp_epoch += u32::from(members == frame.live);
    Ok(())
}

/// Runs a warp, with the registers of `frame`, to its block's next barrier or its end; an error is that of `frame.op`.
pub(super) fn run(program: &Program, warp: &mut Warp, order: &mut Order, frame: &mut Frame<'_>) -> Result<Stop, Trap> {
    let ops = &program.ops;
    loop {
        let ready = warp.live & !warp.waiting;
        if ready == 0 {
            return if warp.live == 0 { Ok(Stop::Returned) } else { Err(warp.stuck(ops, frame)) };
        }
        let mut at = warp.next[order.group(ready, &warp.next)];
        let mut group = warp.at(ready, at);
        loop {
            let op = &ops[at];
            if group != warp.live && matches!(op.step, Step::Collective(..) | Step::Barrier) {
                // Lanes that wait there already belong to the group.
                group |= warp.at(warp.waiting, at);
                warp.waiting &= !group;
            }
            let guard = frame.registers.predicate(op.guard);
            let mask = group & if op.negated { !guard } else { guard };
            frame.op = at;
            match op.step {
                Step::Compute(compute) => {
                    compute(&mut frame.registers, op, mask);
                    at += 1;
                }
                _ if mask == 0 => at += 1,
                Step::Effect(reach) => {
                    reach(frame, op, mask)?;
                    at += 1;
                }
                Step::Branch(to) if mask == group => at = to,
                Step::Branch(to) => {
                    warp.move_to(group & !mask, at + 1);
                    warp.move_to(mask, to);
                    break;
                }
                Step::Return => {
                    warp.live &= !mask;
                    warp.waiting = 0; // those who wait look again for whom
                    group &= !mask;
                    if group == 0 {
                        break;
                    }
                    at += 1;
                }
                _ if mask != group => {
                    warp.move_to(group & !mask, at + 1);
                    warp.move_to(mask, at);
                    break;
                }
                Step::Barrier => {
                    warp.move_to(group, at);
                    if group != warp.live {
                        warp.waiting |= group;
                        break;
                    }
                    if group != warp.all {
                        return Err(warp.stuck(ops, frame));
                    }
                    warp.move_to(group, at + 1);
                    return Ok(Stop::Barrier(at));
                }
                Step::Collective(exchange, members) => {
                    let together = warp.together(members, group, &frame.registers)?;
                    if together != 0 {
                        frame.live = warp.live;
                        exchange(frame, op, together)?;
                    }
                    if together != group {
                        warp.move_to(group & !together, at);
                        warp.waiting |= group & !together;
                        warp.move_to(together, at + 1);
                        break;
                    }
                    at += 1;
                }
            }
            if group != warp.live && ops[at].label {
                warp.move_to(group, at);
                break;
            }
        }
    }
}

impl Warp {
    /// The lanes of `mask` whose next instruction is `at`.
    fn at(&self, mask: u32, at: usize) -> u32 {
        lanes(mask).filter(|lane| self.next[*lane] == at).fold(0, |all, lane| all | 1 << lane)
    }

    fn move_to(&mut self, mask: u32, at: usize) {
        lanes(mask).for_each(|lane| self.next[lane] = at);
    }

    /// The lanes of `group` whose members have all arrived.
    fn together(&self, members: Members, group: u32, registers: &Registers) -> Result<u32, Trap> {
        let Members::Named(row) = members else {
            // The instruction needs all 32 lanes, none of which may have returned.
            return Ok(if group == !0 { group } else { 0 });
        };
        let named = registers.row::<u32>(row);
        let mut ready = 0;
        for lane in lanes(group) {
            if named[lane] >> lane & 1 == 0 {
                let cause = Cause::Divergent { running: group, needed: named[lane] };
                return Err(Trap::new(lane, cause));
            }
            // Lanes that have returned are not waited for.
            let needed = named[lane] & self.live;
            let same = lanes(needed & group).all(|other| named[other] == named[lane]);
            ready |= u32::from(needed & !group == 0 && same) << lane;
        }
        Ok(ready)
    }

    /// The fault that all live lanes wait, for others that do not come.
    fn stuck(&self, ops: &[Op], frame: &mut Frame<'_>) -> Trap {
        let lane = self.live.trailing_zeros() as usize;
        let at = self.next[lane];
        let running = self.at(self.live, at);
        let needed = match ops[at].step {
            Step::Collective(_, Members::Named(row)) => frame.registers.lane(row, lane),
            Step::Barrier => self.all,
            _ => !0,
        };
        frame.op = at;
        Trap::new(lane, Cause::Divergent { running, needed })
    }
}
