//! The synchronization of the pool and the queue: the standard library's, or loom's, which tries the orders in which threads
//! can take such steps (`.ci/loom`).

#[cfg(not(loom))]
pub use self::standard::UnsafeCell;
#[cfg(loom)]
pub use ::loom::{
    cell::UnsafeCell,
    hint,
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};
#[cfg(not(loom))]
pub use std::{
    hint,
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

/// Between two sequentially consistent operations of a thread, where their order counts: loom takes such operations for
/// acquire and release only, and knows the order by fences.
#[inline(always)]
pub fn in_order() {
    #[cfg(loom)]
    atomic::fence(atomic::Ordering::SeqCst);
}

#[cfg(not(loom))]
mod standard {
    /// The standard library's cell with the methods of loom's cell, which records accesses.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Calls `look` with the value, for reading.
        #[inline(always)]
        pub fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        /// Calls `look` with the value, for writing.
        #[inline(always)]
        pub fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
            look(self.0.get())
        }
    }
}
