//! Loads, stores, atomic operations and copies to shared memory (PTX ISA 9.7.9.8 `ld`, 9.7.9.11 `st`, 9.7.13.5 `atom`, 9.7.13.7
//! `red`, 9.7.9.25 `cp.async`, 9.7.14.5.15 `ldmatrix`), each access checked.
#![allow(unsafe_code)] // the GPU's memory is given as addresses

use super::copies::AsyncCopy;
use super::fault::{Cause, Space};
use super::program::{AccessKind, Accessor, Done, Effect, Op, Trap};
use super::registers::{LANES, Registers, Word, lanes};
use super::shared::Shared;
use super::syntax::Width;
use super::{Allocation, Memory};

/// The first generic address of shared memory; no allocation of a GPU is near.
pub(super) const SHARED_WINDOW: u64 = 1 << 56;

/// The memory that the running warp reaches.
pub(super) struct Frame<'a> {
    pub(super) registers: Registers,
    pub(super) shared: &'a mut Shared,
    pub(super) memory: &'a dyn Memory,
    pub(super) parameters: Vec<u8>,
    /// The allocation that each instruction used last.
    pub(super) last: Vec<Allocation>,
    pub(super) first_thread: u32,
    /// Lanes that have not returned.
    pub(super) live: u32,
    /// Barriers that the warp has passed.
    pub(super) warp_epoch: u32,
    pub(super) op: usize,
}

/// An instruction that moves elements to or from registers of a width, perhaps wider; and the bytes of an element.
pub(super) fn transfer(kind: &str, width: Width, write: bool) -> Option<(Effect, u32)> {
    macro_rules! of {
        ($bytes:literal $signed:literal: $($width:ident $word:ty),*) => {
            match width {
                $(
                    Width::$width if write => Some((store::<$bytes, $word> as Effect, $bytes)),
                    Width::$width => Some((load::<$bytes, $signed, $word>, $bytes)),
                )*
                _ => None,
            }
        };
    }
    match kind {
        "u8" | "b8" => of!(1 false: B16 u16, B32 u32, B64 u64),
        "s8" => of!(1 true: B16 u16, B32 u32, B64 u64),
        "u16" | "b16" => of!(2 false: B16 u16, B32 u32, B64 u64),
        "s16" => of!(2 true: B16 u16, B32 u32, B64 u64),
        "u32" | "b32" | "f32" => of!(4 false: B32 u32, B64 u64),
        "s32" => of!(4 true: B32 u32, B64 u64),
        "u64" | "s64" | "b64" | "f64" => of!(8 false: B64 u64),
        _ => None,
    }
}

fn element(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// Loads `rows` from consecutive elements at the address in `a`.
fn load<const BYTES: usize, const SIGNED: bool, W: Word>(frame: &mut Frame<'_>, op: &Op, mask: u32) -> Done {
    for lane in lanes(mask) {
        let mut words = [W::default(); 4];
        let bytes = frame.reach(op, lane)?;
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
            let (bits, above) = (element(bytes), 64 - 8 * BYTES);
            *word = W::from_bits(if SIGNED { ((bits << above).cast_signed() >> above).cast_unsigned() } else { bits });
        }
        for (row, word) in op.rows.iter().zip(words) {
            frame.registers.set_lane(*row, lane, word);
        }
    }
    Ok(())
}

/// Stores `rows` as consecutive elements at the address in `a`.
fn store<const BYTES: usize, W: Word>(frame: &mut Frame<'_>, op: &Op, mask: u32) -> Done {
    for lane in lanes(mask) {
        let mut words = [W::default(); 4];
        for (row, word) in op.rows.iter().zip(&mut words) {
            *word = W::rows(&frame.registers)[*row as usize][lane];
        }
        let bytes = frame.reach(op, lane)?;
        for (word, bytes) in words.iter().zip(bytes.as_chunks_mut::<BYTES>().0) {
            bytes.copy_from_slice(&(*word).into().to_le_bytes()[..BYTES]);
        }
    }
    Ok(())
}

/// An atomic operation by the rest of its name, its width and its bytes in memory. Lanes take turns.
pub(super) fn atomic(name: &[&str]) -> Option<(Effect, Width, u32)> {
    match name {
        ["inc", "u32"] => Some((|frame, op, mask| replace::<u32>(frame, op, mask, next), Width::B32, 4)),
        ["min", "u64"] => Some((|frame, op, mask| replace::<u64>(frame, op, mask, u64::min), Width::B64, 8)),
        _ => None,
    }
}

/// Counts up to `most`, and then from 0 again.
fn next(before: u64, most: u64) -> u64 {
    if before >= most { 0 } else { before + 1 }
}

/// Replaces the element at the address in `a` by `f` of it and of `rows[0]`; `d` is the old element.
fn replace<W: Word>(frame: &mut Frame<'_>, op: &Op, mask: u32, f: fn(u64, u64) -> u64) -> Done {
    for lane in lanes(mask) {
        let value = W::rows(&frame.registers)[op.rows[0] as usize][lane].into();
        let bytes = frame.reach(op, lane)?;
        let before = element(bytes);
        bytes.copy_from_slice(&f(before, value).to_le_bytes()[..size_of::<W>()]);
        frame.registers.set_lane(op.d, lane, W::from_bits(before));
    }
    Ok(())
}

/// Begins to copy `rows[0]` bytes, with zeros after them, from the address in `b` to the address in `a`.
pub(super) fn start_copy(frame: &mut Frame<'_>, op: &Op, mask: u32) -> Done {
    let bytes = op.access.bytes;
    for lane in lanes(mask) {
        let (to, from) = (frame.address(op.access, op.a, lane), frame.address(op.from, op.b, lane));
        let (_, to) = Frame::place(op.access.place, to);
        let read = frame.registers.b32[op.rows[0] as usize][lane];
        if read > bytes {
            // Bytes after the source must not be read.
            return Err(out_of_bounds(Space::Global, from, read, lane));
        }
        aligned(Space::Global, from, bytes, lane)?;
        let mut all = vec![0; bytes as usize];
        if read > 0 {
            let start = frame.global(AccessKind { bytes: read, ..op.from }, from, lane)?;
            // SAFETY: `global` found as many bytes in one allocation, which `Memory` keeps readable.
            all[..read as usize].copy_from_slice(unsafe { std::slice::from_raw_parts(start, read as usize) });
        }
        let copy = AsyncCopy { to, from, read: read as usize, bytes: all };
        frame.shared.start_copy(copy, frame.user(lane))?;
    }
    Ok(())
}

/// Copies that were started since the last group become one group.
pub(super) fn commit_copies(frame: &mut Frame<'_>, _: &Op, mask: u32) -> Done {
    for lane in lanes(mask) {
        frame.shared.copies_of(frame.user(lane)).committed += 1;
    }
    Ok(())
}

/// Waits for all groups but the last `rows[0]`.
pub(super) fn wait_for_copies(frame: &mut Frame<'_>, op: &Op, mask: u32) -> Done {
    for lane in lanes(mask) {
        let left = frame.registers.b32[op.rows[0] as usize][lane];
        let user = frame.user(lane);
        while let Some(copy) = frame.shared.copies_of(user).next_landed(left) {
            frame.shared.end_copy(&copy, user)?;
            if copy.read > 0 {
                let from = AccessKind { bytes: copy.read as u32, ..op.access };
                let start = frame.global(from, copy.from, lane)?;
                // SAFETY: the reason above holds here too.
                let now = unsafe { std::slice::from_raw_parts(start, copy.read) };
                if now != &copy.bytes[..copy.read] {
                    return Err(Trap::new(lane, Cause::SourceChanged { address: copy.from }));
                }
            }
        }
    }
    Ok(())
}

/// Like [`wait_for_copies`], for all copies, in groups or not.
pub(super) fn wait_for_all_copies(frame: &mut Frame<'_>, op: &Op, mask: u32) -> Done {
    commit_copies(frame, op, mask)?;
    wait_for_copies(frame, op, mask)
}

/// `rows` = matrices of 8 by 8 halves, one a register: lane `8 * m + r` has the address of row `r` of matrix `m`. Lane `l` gets two
/// elements from `2 * (l % 4)` on of row `l / 4`, or of that column.
pub(super) fn load_matrices<const TRANSPOSED: bool>(frame: &mut Frame<'_>, op: &Op, _: u32) -> Done {
    for (matrix, to) in op.rows.iter().enumerate() {
        let mut elements = [[0u16; 8]; 8];
        for (row, elements) in elements.iter_mut().enumerate() {
            let bytes = frame.reach(op, 8 * matrix + row)?;
            for (element, bytes) in elements.iter_mut().zip(bytes.as_chunks().0) {
                *element = u16::from_le_bytes(*bytes);
            }
        }
        let at = |row: usize, column: usize| {
            u32::from(if TRANSPOSED { elements[column][row] } else { elements[row][column] })
        };
        for lane in 0..LANES {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            frame.registers.set_lane(*to, lane, at(row, column) | at(row, column + 1) << 16);
        }
    }
    Ok(())
}

impl Frame<'_> {
    fn address(&self, AccessKind { wide, offset, .. }: AccessKind, row: u32, lane: usize) -> u64 {
        if wide {
            self.registers.b64[row as usize][lane].wrapping_add_signed(offset)
        } else {
            // Addresses of 32 bits wrap at 32 bits.
            u64::from(self.registers.b32[row as usize][lane].wrapping_add(offset as u32))
        }
    }

    /// The state space of an address, and the address there.
    fn place(place: Space, address: u64) -> (Space, u64) {
        match place {
            Space::Generic if address >> 56 == SHARED_WINDOW >> 56 => (Space::Shared, address - SHARED_WINDOW),
            Space::Generic => (Space::Global, address),
            place => (place, address),
        }
    }

    fn user(&self, lane: usize) -> Accessor {
        Accessor { thread: self.first_thread + lane as u32, warp_epoch: self.warp_epoch, op: self.op as u32 }
    }

    fn reach(&mut self, op: &Op, lane: usize) -> Result<&mut [u8], Trap> {
        let AccessKind { bytes, write, place, .. } = op.access;
        let user = self.user(lane);
        match Self::place(place, self.address(op.access, op.a, lane)) {
            (Space::Shared, address) if write => self.shared.write(address, bytes, user),
            (Space::Shared, address) => self.shared.read(address, bytes, user),
            (Space::Parameters, address) => {
                aligned(Space::Parameters, address, bytes, lane)?;
                let rest = usize::try_from(address).ok().and_then(|start| self.parameters.get_mut(start..));
                let found = rest.and_then(|rest| rest.get_mut(..bytes as usize)).filter(|_| !write);
                found.ok_or_else(|| out_of_bounds(Space::Parameters, address, bytes, lane))
            }
            (_, address) => {
                aligned(Space::Global, address, bytes, lane)?;
                let start = self.global(op.access, address, lane)?;
                // SAFETY: `global` found as many bytes in one allocation, which `Memory` keeps readable and writable, and no
                // other slice of them lives.
                Ok(unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) })
            }
        }
    }

    /// The process's pointer to the bytes at an address of the GPU's memory.
    fn global(&mut self, access: AccessKind, address: u64, lane: usize) -> Result<*mut u8, Trap> {
        let within = |allocation: &Allocation| {
            let offset = address.checked_sub(allocation.start)?;
            (offset.checked_add(access.bytes.into())? <= allocation.bytes).then_some(())
        };
        let last = &mut self.last[access.number];
        if within(last).is_none() {
            let found = self.memory.allocation(address).filter(|found| within(found).is_some());
            *last = found.ok_or_else(|| out_of_bounds(Space::Global, address, access.bytes, lane))?;
        }
        Ok(last.host.wrapping_add((address - last.start) as usize))
    }
}

fn out_of_bounds(space: Space, address: u64, bytes: u32, lane: usize) -> Trap {
    Trap::new(lane, Cause::OutOfBounds { space, address, bytes })
}

fn aligned(space: Space, address: u64, bytes: u32, lane: usize) -> Done {
    if address.is_multiple_of(bytes.into()) {
        return Ok(());
    }
    Err(Trap::new(lane, Cause::Misaligned { space, address, bytes }))
}
