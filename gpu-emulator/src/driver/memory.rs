//! The GPU's memory, and main memory that it writes to, which is pinned.

use super::code::{Code, Result};
use crate::ptx::{Allocation, Memory};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ops::Range;

/// The alignment of addresses, and the least distance of allocations.
const APART: u64 = 512;

/// Addresses of the GPU begin here, where a process has none: using one as a pointer ends the process.
const FIRST_ADDRESS: u64 = 0x10_0000_0000_0000;

/// Bytes of the process, all ones at first: NaN in every float dtype.
#[derive(Debug)]
struct Block {
    host: *mut u8,
    layout: Layout,
}

// SAFETY: the block owns its bytes.
unsafe impl Send for Block {}

impl Block {
    fn new(bytes: usize) -> Option<Block> {
        let layout = Layout::from_size_align(bytes.max(1), APART as usize).ok()?;
        // SAFETY: the size is not zero.
        let host = unsafe { alloc(layout) };
        if host.is_null() {
            return None;
        }
        // SAFETY: as many bytes were allocated.
        unsafe { host.write_bytes(0xff, layout.size()) };
        Some(Block { host, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it.
        unsafe { dealloc(self.host, self.layout) };
    }
}

/// Allocations by their addresses: on the GPU, or in pinned main memory. No address of the GPU is given twice.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    blocks: BTreeMap<u64, (u64, Block)>,
    next: u64,
}

impl Allocations {
    /// Bytes that are allocated on a GPU.
    pub(super) fn taken(&self) -> u64 {
        self.blocks.values().map(|(bytes, _)| bytes.next_multiple_of(APART)).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Option<u64> {
        let address = self.next.max(FIRST_ADDRESS);
        self.blocks.insert(address, (bytes as u64, Block::new(bytes)?));
        self.next = (address + bytes as u64).next_multiple_of(APART) + APART;
        Some(address)
    }

    /// Like [`allocate`](Self::allocate), in pinned main memory: the address is that of the process.
    pub(super) fn pin(&mut self, bytes: usize) -> Option<u64> {
        let block = Block::new(bytes)?;
        let address = block.host as u64;
        self.blocks.insert(address, (bytes as u64, block));
        Some(address)
    }

    pub(super) fn free(&mut self, address: u64) -> Result {
        let freed = self.blocks.remove(&address).map(drop);
        freed.ok_or_else(|| {
            Code::INVALID_VALUE.because(format_args!("{address:#x} is no allocation, or was freed before"))
        })
    }

    /// The process's pointer to `bytes` bytes at `address`.
    pub(super) fn host(&self, address: u64, bytes: usize) -> Result<*mut u8> {
        let whole = self.allocation(address).filter(|at| bytes as u64 <= at.bytes - (address - at.start));
        let at = whole.ok_or_else(|| {
            Code::INVALID_VALUE.because(format_args!("{bytes} bytes at {address:#x} are not all within an allocation"))
        })?;
        // SAFETY: the address is within the allocation.
        Ok(unsafe { at.host.add((address - at.start) as usize) })
    }

    /// Whether all of `range` is pinned; `Err` where only a part is.
    pub(super) fn holds(&self, range: Range<u64>) -> Result<bool> {
        let before = self.blocks.range(..range.end.max(range.start + 1)).next_back();
        let Some((start, (bytes, _))) = before.filter(|(start, (bytes, _))| **start + bytes > range.start) else {
            return Ok(false);
        };
        if *start <= range.start && range.end <= start + bytes {
            return Ok(true);
        }
        Err(Code::INVALID_VALUE.because("a copy goes over the end of pinned memory"))
    }
}

// SAFETY: allocations live in blocks that nothing else uses while the driver's lock is held, and kernels run under it.
unsafe impl Memory for Allocations {
    fn allocation(&self, address: u64) -> Option<Allocation> {
        let (start, (bytes, block)) = self.blocks.range(..=address).next_back()?;
        (address - start < *bytes).then_some(Allocation { start: *start, bytes: *bytes, host: block.host })
    }
}
