//! A block's shared memory, with the last use of each byte. It finds races, reads of bytes that nothing wrote, accesses
//! between and after the variables, and uses of bytes that are still being copied there.

use super::copies::{AsyncCopy, Copies};
use super::fault::{Access, Cause, Space};
use super::program::{Accessor, SharedLayout, Trap};

/// Shared memory. Accesses are recorded by granules: as many bytes as the least access of the kernel has.
#[derive(Debug, Default)]
pub(super) struct Shared {
    bytes: Vec<u8>,
    shadow: Vec<Shadow>,
    /// Bytes of a granule, as a power of two.
    shift: u32,
    /// Counts the barriers of all blocks; 0 is before the first.
    pub(super) epoch: u32,
    /// The epoch in which the block began.
    began: u32,
    copies: Vec<Copies>,
}

/// The uses of a granule that a later one may race with. Epochs of warps count the barriers of a warp within one epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    gap: bool,
    written: LastAccess,
    /// The last warp that read it.
    read: LastAccess,
    /// More threads of that warp have read it since the warp's last barrier.
    by_many: bool,
    /// A reader of another warp.
    read_elsewhere: LastAccess,
    /// `written` is a copy that nobody has waited for.
    awaited: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct LastAccess {
    epoch: u32,
    user: Accessor,
}

impl LastAccess {
    /// Whether a barrier stands between this use and one by `user` in `epoch`, or it was the same thread.
    fn ordered(&self, epoch: u32, user: Accessor) -> bool {
        self.epoch != epoch
            || self.user.thread == user.thread
            || self.same_warp(user) && self.user.warp_epoch < user.warp_epoch
    }

    fn same_warp(&self, user: Accessor) -> bool {
        self.user.thread / 32 == user.thread / 32
    }
}

impl Shadow {
    /// Whether nothing is being copied there, and no write by another thread races with a use by `user`.
    fn settled(&self, epoch: u32, user: Accessor, address: u64) -> Result<(), Trap> {
        if self.awaited {
            let cause = Cause::InFlight { address, copy: Access::default() };
            return Err(Trap { earlier: Some((self.written.user, true)), ..trap(user, cause) });
        }
        if self.written.ordered(epoch, user) { Ok(()) } else { Err(race(user, address, self.written, true)) }
    }
}

impl Shared {
    /// Memory of `bytes` bytes in this layout, the same for all launches. Data of earlier launches has an earlier epoch.
    pub(super) fn lay_out(&mut self, layout: &SharedLayout, bytes: u32) {
        const LAST: u32 = 1 << 31;
        if self.epoch != 0 && self.bytes.len() == bytes as usize && self.epoch < LAST {
            return;
        }
        self.shift = layout.granule.trailing_zeros();
        self.bytes.resize(bytes as usize, 0);
        self.shadow.clear();
        self.shadow.resize((bytes as usize).div_ceil(layout.granule as usize), Shadow::default());
        for gap in &layout.gaps {
            for byte in gap.clone().filter(|byte| *byte < bytes) {
                self.shadow[(byte >> self.shift) as usize].gap = true;
            }
        }
        (self.epoch, self.began) = (1, 1);
    }

    /// A block begins: writes of other blocks are not visible.
    pub(super) fn begin(&mut self) {
        self.epoch += 1;
        self.began = self.epoch;
        // No copy of an earlier block is in flight for this one.
        for (_, copy) in std::mem::take(&mut self.copies).into_iter().flat_map(|copies| copies.flying) {
            self.awaited(copy.to, copy.bytes.len(), false);
        }
    }

    /// Begins a copy to the bytes at `to`, which no thread may use before it was waited for.
    pub(super) fn start_copy(&mut self, copy: AsyncCopy, user: Accessor) -> Result<(), Trap> {
        self.write(copy.to, copy.bytes.len() as u32, user)?;
        self.awaited(copy.to, copy.bytes.len(), true);
        let copies = self.copies_of(user);
        copies.flying.push_back((copies.committed, copy));
        Ok(())
    }

    pub(super) fn end_copy(&mut self, copy: &AsyncCopy, user: Accessor) -> Result<(), Trap> {
        self.awaited(copy.to, copy.bytes.len(), false);
        self.write(copy.to, copy.bytes.len() as u32, user)?.copy_from_slice(&copy.bytes);
        Ok(())
    }

    pub(super) fn copies_of(&mut self, user: Accessor) -> &mut Copies {
        let thread = user.thread as usize;
        if self.copies.len() <= thread {
            self.copies.resize_with(thread + 1, Copies::default);
        }
        &mut self.copies[thread]
    }

    fn awaited(&mut self, address: u64, bytes: usize, awaited: bool) {
        let shadow = address as usize >> self.shift..(address as usize + bytes).div_ceil(1 << self.shift);
        self.shadow[shadow].iter_mut().for_each(|shadow| shadow.awaited = awaited);
    }

    pub(super) fn read(&mut self, address: u64, bytes: u32, user: Accessor) -> Result<&mut [u8], Trap> {
        let (epoch, began, shift) = (self.epoch, self.began, self.shift);
        for (index, shadow) in self.shadow(address, bytes, user)?.iter_mut().enumerate() {
            let at = address + ((index as u64) << shift);
            if shadow.written.epoch < began {
                return Err(trap(user, Cause::Uninitialised { address: at }));
            }
            shadow.settled(epoch, user, at)?;
            let now = LastAccess { epoch, user };
            if shadow.read.epoch == epoch && !shadow.read.same_warp(user) {
                shadow.read_elsewhere = now;
            } else if shadow.read.epoch != epoch || shadow.read.user.warp_epoch != user.warp_epoch {
                (shadow.read, shadow.by_many) = (now, false);
            } else {
                shadow.by_many |= shadow.read.user.thread != user.thread;
            }
        }
        Ok(&mut self.bytes[address as usize..][..bytes as usize])
    }

    pub(super) fn write(&mut self, address: u64, bytes: u32, user: Accessor) -> Result<&mut [u8], Trap> {
        let (epoch, shift) = (self.epoch, self.shift);
        for (index, shadow) in self.shadow(address, bytes, user)?.iter_mut().enumerate() {
            let at = address + ((index as u64) << shift);
            shadow.settled(epoch, user, at)?;
            // With several readers at least one is another thread.
            let mut read = shadow.read;
            if shadow.by_many && read.same_warp(user) {
                read.user.thread = user.thread ^ 1;
            }
            if !read.ordered(epoch, user) {
                return Err(race(user, at, shadow.read, false));
            }
            if !shadow.read_elsewhere.same_warp(user) && !shadow.read_elsewhere.ordered(epoch, user) {
                return Err(race(user, at, shadow.read_elsewhere, false));
            }
            shadow.written = LastAccess { epoch, user };
        }
        Ok(&mut self.bytes[address as usize..][..bytes as usize])
    }

    /// The shadow of these bytes, all of which belong to variables.
    fn shadow(&mut self, address: u64, bytes: u32, user: Accessor) -> Result<&mut [Shadow], Trap> {
        let outside = || trap(user, Cause::OutOfBounds { space: Space::Shared, address, bytes });
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(trap(user, Cause::Misaligned { space: Space::Shared, address, bytes }));
        }
        let end = address.checked_add(u64::from(bytes)).filter(|end| *end <= self.bytes.len() as u64);
        let end = end.ok_or_else(outside)? as usize;
        let shadow = &mut self.shadow[address as usize >> self.shift..end.div_ceil(1 << self.shift)];
        if shadow.iter().any(|shadow| shadow.gap) { Err(outside()) } else { Ok(shadow) }
    }
}

fn trap(user: Accessor, cause: Cause) -> Trap {
    Trap::new((user.thread % 32) as usize, cause)
}

fn race(user: Accessor, address: u64, earlier: LastAccess, write: bool) -> Trap {
    let cause = Cause::Race { address, other: Access::default() };
    Trap { earlier: Some((earlier.user, write)), ..trap(user, cause) }
}
