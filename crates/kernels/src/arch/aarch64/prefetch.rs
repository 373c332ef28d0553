//! Prefetches of aarch64.

use std::arch::asm;

/// Asks for `len` bytes to be brought into the second-level cache.
#[inline]
pub(crate) fn prefetch(bytes: *const u8, len: usize) {
    for line in 0..len.div_ceil(64) {
        let at = bytes.wrapping_add(64 * line);
        // SAFETY: every aarch64 processor has the instruction, and it accepts any address.
        unsafe { asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(readonly, nostack, preserves_flags)) };
    }
}

/// Asks for `len` bytes, at most 512, to be brought into the first-level cache.
#[inline(always)]
pub(crate) fn prefetch_near(bytes: *const u8, len: usize) {
    // The instruction contains an offset: one address serves all lines.
    macro_rules! lines {
        ($($at:literal)*) => {
            $(if len > $at {
                // SAFETY: every aarch64 processor has the instruction, and it accepts any address.
                unsafe {
                    asm!(
                        concat!("prfm pldl1keep, [{at}, #", $at, "]"),
                        at = in(reg) bytes, options(readonly, nostack, preserves_flags)
                    )
                };
            })*
        };
    }
    lines!(0 64 128 192 256 320 384 448);
}
