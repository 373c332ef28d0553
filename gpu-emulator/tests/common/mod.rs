//! Memory of a GPU, and kernels of a few lines.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use cuda::ptx::{Allocation, Cause, Fault, Launch, Memory, Module, Schedule};

/// Allocations with gaps between them, at addresses that are not this process's.
#[derive(Default)]
pub struct Buffers(Vec<(u64, Box<[u8]>)>);

// SAFETY: the bytes stay where they are while the buffers live, and tests look at them between launches only.
#[allow(unsafe_code)]
unsafe impl Memory for Buffers {
    fn allocation(&self, address: u64) -> Option<Allocation> {
        let found = self.0.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&address));
        found.map(|(start, bytes)| Allocation {
            start: *start,
            bytes: bytes.len() as u64,
            host: bytes.as_ptr().cast_mut(),
        })
    }
}

impl Buffers {
    /// The address of a buffer with these bytes.
    pub fn add(&mut self, bytes: &[u8]) -> u64 {
        let start = 0x7_0000_0000 + 0x1000_0000 * self.0.len() as u64;
        self.0.push((start, bytes.into()));
        start
    }

    pub fn bytes(&self, address: u64) -> &[u8] {
        &self.0.iter().find(|(start, _)| *start == address).unwrap().1
    }

    pub fn words(&self, address: u64) -> Vec<u32> {
        self.bytes(address).chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }
}

/// All schedules that tests run by.
pub const SCHEDULES: [Schedule; 3] = [Schedule::Forward, Schedule::Reverse, Schedule::Random(7)];

pub fn launch(blocks: u32, threads: u32, dynamic_shared: u32, schedule: Schedule) -> Launch {
    Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], dynamic_shared, schedule }
}

/// A module with the kernel `k` of two addresses, `%q1` and `%q2`; `%r1` is the thread, `%q3` four times it, `%q4` and `%q5` that
/// after the addresses. `shared` is dynamic.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 shared[];\n\
         .visible .entry k(.param .u64 from, .param .u64 to)\n{{\n\
         .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .f32 %f<9>; .reg .b64 %q<20>;\n\
         .shared .align 16 .b8 own[256];\n\
         ld.param.u64 %q1, [from];\nld.param.u64 %q2, [to];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %q3, %r1, 4;\n\
         add.s64 %q4, %q1, %q3;\nadd.s64 %q5, %q2, %q3;\n{body}\nret;\n}}\n"
    )
}

/// Runs `k` on copies of `from`, and of zeros as long: what it writes.
pub fn run(ptx: &str, from: &[u32], launch: Launch) -> Result<Vec<u32>, Box<Fault>> {
    let mut buffers = Buffers::default();
    let bytes: Vec<u8> = from.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (from, to) = (buffers.add(&bytes), buffers.add(&vec![0; bytes.len()]));
    let module = Module::compile(ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
    let parameters: Vec<u8> = [from, to].iter().flat_map(|address| address.to_le_bytes()).collect();
    module.kernel("k").unwrap().run(&launch, &parameters, &buffers)?;
    Ok(buffers.words(to))
}

/// The fault of `k` by each schedule, which is the same kind.
pub fn fault(ptx: &str, words: usize, launch: Launch) -> Fault {
    let found = SCHEDULES.map(|schedule| {
        let words: Vec<u32> = (0..words as u32).collect();
        *run(ptx, &words, Launch { schedule, ..launch }).expect_err(ptx)
    });
    let kind = |fault: &Fault| std::mem::discriminant::<Cause>(&fault.cause);
    assert!(found.iter().all(|fault| kind(fault) == kind(&found[0])), "{found:?}");
    let [forward, ..] = found;
    println!("{forward}");
    forward
}
