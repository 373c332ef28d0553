//! Memory as the system gives it: zeros that need not be written, or none.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};

/// Types without padding or invalid bits.
///
/// # Safety
/// Every bit pattern of the type's size is a valid value, and 64 is a multiple of its size and of its alignment.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer of 1 byte.
unsafe impl Plain for i8 {}
// SAFETY: an integer of 1 byte.
unsafe impl Plain for u8 {}
// SAFETY: an integer of 2 bytes.
unsafe impl Plain for u16 {}
// SAFETY: an integer of 2 bytes.
unsafe impl Plain for i16 {}
// SAFETY: an integer of 4 bytes.
unsafe impl Plain for i32 {}
// SAFETY: an integer of 8 bytes.
unsafe impl Plain for u64 {}
// SAFETY: a float of 4 bytes.
unsafe impl Plain for f32 {}
// SAFETY: two bytes, a transparent wrapper of an integer.
unsafe impl Plain for half::f16 {}

/// `len` zeros; `None` when the system refuses them.
pub(crate) fn zeroed<T: Plain>(len: usize) -> Option<Vec<T>> {
    let layout = Layout::array::<T>(len).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout is not empty.
    let first = unsafe { alloc_zeroed(layout) }.cast::<T>();
    // SAFETY: the allocation is of `len` elements of the global allocator, whose zeros are valid for a plain type.
    (!first.is_null()).then(|| unsafe { Vec::from_raw_parts(first, len, len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_as_many_as_asked_for_or_none() {
        for len in [0, 1, 1000, 1 << 20] {
            assert_eq!(zeroed::<f32>(len).unwrap(), vec![0.0; len]);
        }
        assert_eq!(zeroed::<half::f16>(3).unwrap(), [half::f16::ZERO; 3]);
        // An allocation that nobody looks at is one that a compiler may take out.
        let most = std::hint::black_box(zeroed::<u8>(isize::MAX as usize));
        assert!(most.is_none() && zeroed::<f32>(usize::MAX / 2).is_none());
    }
}
