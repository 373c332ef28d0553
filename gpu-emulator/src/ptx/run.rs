//! Runs a launch: blocks one after the other, their warps from barrier to barrier.

use super::fault::{Access, Cause, Fault};
use super::memory::Frame;
use super::order::Order;
use super::program::{Program, Special, Trap};
use super::registers::{LANES, Registers};
use super::shared::Shared;
use super::warp::{self, Stop, Warp};
use super::{Allocation, Launch, Memory};

/// The memory for running a kernel, kept for the next launch.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    warps: Vec<Warp>,
    shared: Shared,
}

/// The most threads of a block, for every GPU.
const MOST_THREADS: [u32; 3] = [1024, 1024, 64];

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
    let (last, registers) = (vec![nothing; program.accesses], Registers::default());
    let parameters = parameters.to_vec();
    let frame = Frame { registers, shared, memory, parameters, last, first_thread: 0, live: 0, warp_epoch: 0, op: 0 };
    let mut run = Run { program, launch, warps, frame, order: Order::new(launch.schedule) };
    let blocks = launch.grid.map(|blocks| blocks as usize);
    for block in run.order.permutation(blocks.iter().product()) {
        let block = place(block as u32, launch.grid);
        run.block(block, threads).map_err(|(warp, trap)| run.fault(block, warp, trap))?;
    }
    Ok(())
}

struct Run<'a> {
    program: &'a Program,
    launch: &'a Launch,
    warps: &'a mut [Warp],
    frame: Frame<'a>,
    order: Order,
}

impl Run<'_> {
    /// Runs a block. An error comes with the number of its warp, and is at the instruction of the frame.
    fn block(&mut self, block: [u32; 3], threads: usize) -> Result<(), (usize, Trap)> {
        self.frame.shared.begin();
        for (warp, state) in self.warps.iter_mut().enumerate() {
            state.begin(threads - LANES * warp);
            for (row, special) in &self.program.specials {
                if let Special::Block(axis) = special {
                    state.registers.b32[*row as usize] = [block[*axis]; LANES];
                }
            }
        }
        loop {
            let mut stops = vec![Stop::Returned; self.warps.len()];
            for warp in self.order.permutation(self.warps.len()) {
                stops[warp] = self.warp(warp).map_err(|trap| (warp, trap))?;
            }
            let at = stops.iter().enumerate().find_map(|(warp, stop)| match stop {
                Stop::Barrier(at) => Some((warp, *at)),
                Stop::Returned => None,
            });
            let Some((waiting, at)) = at else { return Ok(()) };
            self.frame.op = at;
            for (warp, stop) in stops.iter().enumerate() {
                let cause = match (self.warps[warp].returned(), stop) {
                    (Some(lane), _) => Cause::BarrierNotReached { thread: self.thread(LANES * warp + lane) },
                    (None, Stop::Barrier(other)) if *other != at => {
                        Cause::DivergentBarrier { other: self.access(*other, LANES * warp) }
                    }
                    _ => continue,
                };
                return Err((waiting, Trap::new(0, cause)));
            }
            self.frame.shared.epoch += 1;
        }
    }

    fn warp(&mut self, number: usize) -> Result<Stop, Trap> {
        let (warp, frame) = (&mut self.warps[number], &mut self.frame);
        std::mem::swap(&mut warp.registers, &mut frame.registers);
        (frame.first_thread, frame.warp_epoch) = ((LANES * number) as u32, warp.epoch);
        let stop = warp::run(self.program, warp, &mut self.order, frame);
        std::mem::swap(&mut warp.registers, &mut frame.registers);
        warp.epoch = frame.warp_epoch;
        stop
    }

    fn thread(&self, number: usize) -> [u32; 3] {
        place(number as u32, self.launch.block)
    }

    fn access(&self, op: usize, thread: usize) -> Access {
        let op = &self.program.ops[op];
        let (instruction, thread) = (op.text.clone().into(), self.thread(thread));
        Access { line: op.line, instruction, thread, write: op.access.write }
    }

    fn fault(&self, block: [u32; 3], warp: usize, trap: Trap) -> Box<Fault> {
        let Trap { lane, mut cause, earlier } = trap;
        if let (Some((user, write)), Cause::Race { other, .. } | Cause::InFlight { copy: other, .. }) =
            (earlier, &mut cause)
        {
            *other = Access { write, ..self.access(user.op as usize, user.thread as usize) };
        }
        let at = self.access(self.frame.op, LANES * warp + lane);
        Box::new(Fault { kernel: self.program.name.clone(), block, at, cause })
    }
}

/// The number of threads of a block, if GPUs run such a launch.
fn checked(program: &Program, launch: &Launch, parameters: &[u8]) -> Result<usize, Cause> {
    let asked = launch.block;
    let count = |threads: [u32; 3]| threads.iter().map(|side| u64::from(*side)).product::<u64>();
    let limit = program.max_threads.unwrap_or(MOST_THREADS);
    let most = program.max_threads.map_or(1024, count).min(1024);
    if !(1..=most).contains(&count(asked)) || asked.iter().zip(MOST_THREADS).any(|(asked, most)| *asked > most) {
        return Err(Cause::Threads { asked, limit });
    }
    let shared = u64::from(program.shared.declared) + u64::from(launch.dynamic_shared);
    let limit = most_shared(program.target).into();
    if shared > limit {
        return Err(Cause::SharedMemory { asked: shared, limit });
    }
    if parameters.len() != program.parameter_bytes {
        return Err(Cause::Parameters { given: parameters.len(), declared: program.parameter_bytes });
    }
    Ok(count(asked) as usize)
}

/// Bytes of shared memory that a block can ask for on a GPU of this compute capability, `10 * major + minor` (CUDA C++
/// Programming Guide, "Technical Specifications per Compute Capability").
pub(crate) fn most_shared(capability: u32) -> u32 {
    let kibibytes = match capability {
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

/// The place of item `number`, x counted first.
fn place(number: u32, sides: [u32; 3]) -> [u32; 3] {
    [number % sides[0], number / sides[0] % sides[1], number / sides[0] / sides[1]]
}
