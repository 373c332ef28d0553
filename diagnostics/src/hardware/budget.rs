//! The memory that a machine leaves for a model.

use super::{Gpu, Hardware, Memory};
use crate::plan::{Budget, PlanMemory};

impl Memory {
    /// What it leaves for a plan, and at most `limit` where the user set one.
    pub fn budget(&self, limit: Option<u64>) -> Budget {
        let available = self.available.min(limit.unwrap_or(u64::MAX));
        Budget { available, anonymous: self.anonymous, place: PlanMemory::Main }
    }
}

impl Hardware {
    /// What `gpu` leaves for a plan, and at most `limit`. Nothing where nobody tells how much that is.
    pub fn gpu_budget(&self, gpu: &Gpu, limit: Option<u64>) -> Budget {
        let free = self.gpu_memory(gpu).map_or(0, |(bytes, _)| bytes);
        let place = if gpu.shared_memory { PlanMemory::Shared } else { PlanMemory::Gpu };
        Budget { available: free.min(limit.unwrap_or(u64::MAX)), anonymous: None, place }
    }
}
