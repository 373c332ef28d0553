//! A warp: 32 lanes that run an instruction together as long as they agree where to go. Lanes that have parted run in groups,
//! in the order of the schedule, and are one group again where they meet at a label. An instruction of several lanes waits
//! for all of them; that it waits for ever is a fault.

use super::fault::Cause;
use super::memory::Frame;
use super::order::Order;
use super::program::{Members, Op, Program, Step, Trap};
use super::registers::{LANES, Registers, lanes};

/// A warp of a block.
#[derive(Debug)]
pub(super) struct Warp {
    pub(super) registers: Registers,
    /// The next instruction of each lane. Those of running lanes are kept by the group.
    next: [usize; LANES],
    /// Lanes that the block has.
    all: u32,
    /// Those that have not returned.
    live: u32,
    /// Live ones that wait for others at an instruction that runs together.
    waiting: u32,
    /// Barriers of this warp alone that it has passed in this block.
    pub(super) epoch: u32,
}

/// Where a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// All lanes have returned.
    Returned,
    /// All lanes wait at this barrier of the block.
    Barrier(usize),
}

/// A fault and the instruction of it.
pub(super) type Fatal = (Trap, usize);

impl Warp {
    pub(super) fn new(program: &Program) -> Warp {
        Warp { registers: program.registers.clone(), next: [0; LANES], all: 0, live: 0, waiting: 0, epoch: 0 }
    }

    /// Begins a block of which it has `threads` threads.
    pub(super) fn begin(&mut self, threads: usize) {
        self.all = if threads >= LANES { !0 } else { (1 << threads) - 1 };
        (self.live, self.waiting, self.epoch, self.next) = (self.all, 0, 0, [0; LANES]);
    }

    /// A lane that has returned.
    pub(super) fn returned(&self) -> Option<usize> {
        lanes(self.all & !self.live).next()
    }
}

/// Runs a warp to the next barrier of its block, or to its end. `warp` lends its registers to `frame`.
pub(super) fn run(program: &Program, warp: &mut Warp, order: &mut Order, mut frame: Frame<'_>) -> Result<Stop, Fatal> {
    let ops = &program.ops;
    loop {
        let ready = warp.live & !warp.waiting;
        if ready == 0 {
            return if warp.live == 0 { Ok(Stop::Returned) } else { Err(stuck(warp, ops, frame.registers)) };
        }
        let mut at = warp.next[order.group(ready, &warp.next)];
        let mut group = warp.at(ready, at);
        loop {
            let op = &ops[at];
            if group != warp.live && matches!(op.step, Step::Together(..) | Step::WarpBarrier(_) | Step::Barrier) {
                // Those who wait there already are of the group.
                group |= warp.at(warp.waiting, at);
                warp.waiting &= !group;
            }
            let guard = frame.registers.predicates[op.guard as usize];
            let mask = group & if op.negated { !guard } else { guard };
            frame.op = at as u32;
            if mask == 0 && !matches!(op.step, Step::Compute(_)) {
                at += 1;
            } else {
                match op.step {
                    Step::Compute(compute) => {
                        compute(frame.registers, op, mask);
                        at += 1;
                    }
                    Step::Reach(reach) => {
                        reach(&mut frame, op, mask).map_err(|trap| (trap, at))?;
                        at += 1;
                    }
                    Step::Branch(to) if mask == group => at = to,
                    Step::Branch(to) => {
                        warp.part(group & !mask, at + 1);
                        warp.part(mask, to);
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
                        warp.part(group & !mask, at + 1);
                        warp.part(mask, at);
                        break;
                    }
                    Step::Barrier => {
                        warp.part(group, at);
                        if group != warp.live {
                            warp.waiting |= group;
                            break;
                        }
                        if group != warp.all {
                            return Err(stuck(warp, ops, frame.registers));
                        }
                        warp.part(group, at + 1);
                        return Ok(Stop::Barrier(at));
                    }
                    Step::Together(exchange, members) => {
                        let together = warp.together(members, group, frame.registers).map_err(|trap| (trap, at))?;
                        if together != 0 {
                            exchange(&mut frame, op, together).map_err(|trap| (trap, at))?;
                        }
                        if together != group {
                            warp.wait(group & !together, at);
                            warp.part(together, at + 1);
                            break;
                        }
                        at += 1;
                    }
                    Step::WarpBarrier(members) => {
                        let together = warp.together(members, group, frame.registers).map_err(|trap| (trap, at))?;
                        if together == warp.live {
                            // A barrier of some lanes orders nothing here: that of all is what kernels use.
                            warp.epoch += 1;
                            frame.warp_epoch = warp.epoch;
                        }
                        if together != group {
                            warp.wait(group & !together, at);
                            warp.part(together, at + 1);
                            break;
                        }
                        at += 1;
                    }
                }
            }
            if group != warp.live && ops[at].label {
                warp.part(group, at);
                break;
            }
        }
    }
}

impl Warp {
    /// Those of `mask` whose next instruction is `at`.
    fn at(&self, mask: u32, at: usize) -> u32 {
        lanes(mask).filter(|lane| self.next[*lane] == at).fold(0, |all, lane| all | 1 << lane)
    }

    /// Lanes go on at `at`.
    fn part(&mut self, mask: u32, at: usize) {
        lanes(mask).for_each(|lane| self.next[lane] = at);
    }

    fn wait(&mut self, mask: u32, at: usize) {
        self.part(mask, at);
        self.waiting |= mask;
    }

    /// The lanes of `group` whose members are all there.
    fn together(&self, members: Members, group: u32, registers: &Registers) -> Result<u32, Trap> {
        let Members::Named(row) = members else {
            // All 32, none of which may have returned.
            return Ok(if group == !0 { group } else { 0 });
        };
        let named = registers.row::<u32>(row);
        let mut ready = 0;
        for lane in lanes(group) {
            if named[lane] >> lane & 1 == 0 {
                let cause = Cause::Divergent { running: group, needed: named[lane] };
                return Err(Trap::Lane { lane, cause });
            }
            // Lanes that have returned are not waited for.
            let needed = named[lane] & self.live;
            let same = lanes(needed & group).all(|other| named[other] == named[lane]);
            ready |= u32::from(needed & !group == 0 && same) << lane;
        }
        Ok(ready)
    }
}

/// All live lanes wait, for others that do not come.
fn stuck(warp: &Warp, ops: &[Op], registers: &Registers) -> Fatal {
    let lane = warp.live.trailing_zeros() as usize;
    let at = warp.next[lane];
    let running = warp.at(warp.live, at);
    let needed = match ops[at].step {
        Step::Together(_, Members::Named(row)) | Step::WarpBarrier(Members::Named(row)) => registers.lane(row, lane),
        Step::Barrier => warp.all,
        _ => !0,
    };
    (Trap::Lane { lane, cause: Cause::Divergent { running, needed } }, at)
}
