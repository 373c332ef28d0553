//! Runs a launch: blocks one after the other, their warps from barrier to barrier.

use super::fault::{Access, Cause, Fault};
use super::memory::Frame;
use super::order::Order;
use super::program::{Program, Special, Trap};
use super::registers::LANES;
use super::shared::Shared;
use super::warp::{Fatal, Stop, Warp, run as run_warp};
use super::{Allocation, Launch, Memory};

/// What running a kernel needs beside its program, kept for the next launch.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    warps: Vec<Warp>,
    shared: Shared,
}

/// Threads of a block at most, of every GPU.
const MOST_THREADS: [u32; 3] = [1024, 1024, 64];

/// Runs a launch to its end or its first fault.
pub(super) fn run(
    program: &Program,
    launch: &Launch,
    parameters: &[u8],
    memory: &dyn Memory,
    workspace: &mut Workspace,
) -> Result<(), Box<Fault>> {
    let refused = |cause| Box::new(Fault { kernel: program.name.clone(), block: [0; 3], at: Access::default(), cause });
    let threads = checked(program, launch, parameters).map_err(refused)?;
    let Workspace { warps, shared } = workspace;
    warps.resize_with(warps.len().max(threads.div_ceil(LANES)), || Warp::new(program));
    let warps = &mut warps[..threads.div_ceil(LANES)];
    for (warp, state) in warps.iter_mut().enumerate() {
        for (row, special) in &program.specials {
            let row = &mut state.registers.b32[*row as usize];
            for (lane, value) in row.iter_mut().enumerate() {
                let thread = place((LANES * warp + lane) as u32, launch.block);
                *value = match *special {
                    Special::Thread(axis) => thread[axis],
                    Special::Threads(axis) => launch.block[axis],
                    Special::Blocks(axis) => launch.grid[axis],
                    Special::Lane => lane as u32,
                    Special::Block(_) => 0,
                };
            }
        }
    }
    shared.lay_out(&program.shared, program.shared.dynamic + launch.dynamic_shared);
    let nothing = Allocation { start: 0, bytes: 0, host: std::ptr::null_mut() };
    let mut last = vec![nothing; program.accesses];
    let mut order = Order::new(launch.schedule);
    let blocks = launch.grid.map(|blocks| blocks as usize);
    for block in order.of(blocks.iter().product()) {
        let block = place(block as u32, launch.grid);
        shared.begin();
        for (warp, state) in warps.iter_mut().enumerate() {
            state.begin(threads - LANES * warp);
            for (row, special) in &program.specials {
                if let Special::Block(axis) = special {
                    state.registers.b32[*row as usize] = [block[*axis]; LANES];
                }
            }
        }
        let mut whole = Block { program, warps, shared, memory, parameters, last: &mut last, order: &mut order };
        whole.run().map_err(|(warp, (trap, op))| fault(program, launch, block, warp, trap, op))?;
    }
    Ok(())
}

/// A block that runs.
struct Block<'a> {
    program: &'a Program,
    warps: &'a mut [Warp],
    shared: &'a mut Shared,
    memory: &'a dyn Memory,
    parameters: &'a [u8],
    last: &'a mut [Allocation],
    order: &'a mut Order,
}

impl Block<'_> {
    /// An error is that of the warp whose number is with it.
    fn run(&mut self) -> Result<(), (usize, Fatal)> {
        loop {
            let mut stops = vec![Stop::Returned; self.warps.len()];
            for warp in self.order.of(self.warps.len()) {
                stops[warp] = self.step(warp).map_err(|fatal| (warp, fatal))?;
            }
            let at = stops.iter().enumerate().find_map(|(warp, stop)| match stop {
                Stop::Barrier(at) => Some((warp, *at)),
                Stop::Returned => None,
            });
            let Some((waiting, at)) = at else { return Ok(()) };
            let trap = |cause| (waiting, (Trap::Lane { lane: 0, cause }, at));
            for (warp, stop) in stops.iter().enumerate() {
                if let Some(lane) = self.warps[warp].returned() {
                    return Err(trap(Cause::BarrierNotReached { thread: [(LANES * warp + lane) as u32, 0, 0] }));
                }
                if let Stop::Barrier(other) = stop
                    && *other != at
                {
                    let other = access(self.program, *other, [(LANES * warp) as u32, 0, 0]);
                    return Err(trap(Cause::DivergentBarrier { other }));
                }
            }
            self.shared.barrier();
        }
    }

    fn step(&mut self, number: usize) -> Result<Stop, Fatal> {
        let warp = &mut self.warps[number];
        let mut registers = std::mem::take(&mut warp.registers);
        let frame = Frame {
            registers: &mut registers,
            shared: self.shared,
            memory: self.memory,
            parameters: self.parameters,
            last: self.last,
            first_thread: (LANES * number) as u32,
            warp_epoch: warp.epoch,
            op: 0,
        };
        let stop = run_warp(self.program, warp, self.order, frame);
        warp.registers = registers;
        stop
    }
}

/// The threads of a block, where GPUs run such a launch.
fn checked(program: &Program, launch: &Launch, parameters: &[u8]) -> Result<usize, Cause> {
    let asked = launch.block;
    let count = |threads: [u32; 3]| threads.iter().map(|side| u64::from(*side)).product::<u64>();
    let limit = program.max_threads.unwrap_or(MOST_THREADS);
    let most = program.max_threads.map_or(1024, count).min(1024);
    if !(1..=most).contains(&count(asked)) || asked.iter().zip(MOST_THREADS).any(|(asked, most)| *asked > most) {
        return Err(Cause::Threads { asked, limit });
    }
    let shared = u64::from(program.shared.declared) + u64::from(launch.dynamic_shared);
    let limit = most_shared(program.target);
    if shared > limit {
        return Err(Cause::SharedMemory { asked: shared, limit });
    }
    if parameters.len() != program.parameter_bytes {
        return Err(Cause::Parameters { given: parameters.len(), declared: program.parameter_bytes });
    }
    Ok(count(asked) as usize)
}

/// Bytes of shared memory that a block can ask for (CUDA C++ Programming Guide, compute capabilities).
fn most_shared(target: u32) -> u64 {
    let kibibytes = match target {
        ..70 => 48,
        70..75 => 96,
        75..80 => 64,
        80 | 87 => 163,
        81..90 => 99,
        90..120 => 227,
        _ => 99,
    };
    kibibytes << 10
}

/// Where the `number`-th of these stands, x counted first.
fn place(number: u32, sides: [u32; 3]) -> [u32; 3] {
    [number % sides[0], number / sides[0] % sides[1], number / sides[0] / sides[1]]
}

fn access(program: &Program, op: usize, thread: [u32; 3]) -> Access {
    let op = &program.ops[op];
    Access { line: op.line, instruction: op.text.clone().into(), thread, write: op.access.write }
}

fn fault(program: &Program, launch: &Launch, block: [u32; 3], warp: usize, trap: Trap, op: usize) -> Box<Fault> {
    let thread = |number: usize| place(number as u32, launch.block);
    let (lane, cause) = match trap {
        Trap::Lane { lane, cause } => (lane, cause),
        Trap::Race { lane, address, other } => {
            let earlier = access(program, other.op as usize, thread(other.thread as usize));
            (lane, Cause::Race { address, other: Access { write: other.write, ..earlier } })
        }
        Trap::InFlight { lane, address, other } => {
            let copy = access(program, other.op as usize, thread(other.thread as usize));
            (lane, Cause::InFlight { address, copy })
        }
    };
    let cause = match cause {
        Cause::BarrierNotReached { thread: [number, ..] } => {
            Cause::BarrierNotReached { thread: thread(number as usize) }
        }
        Cause::DivergentBarrier { other } => {
            Cause::DivergentBarrier { other: Access { thread: thread(other.thread[0] as usize), ..other } }
        }
        cause => cause,
    };
    let at = access(program, op, thread(LANES * warp + lane));
    Box::new(Fault { kernel: program.name.clone(), block, at, cause })
}
