//! How far a load is, told to whoever waits for it.

use std::fmt;
use std::sync::Arc;

/// How far a stage of a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes that are done.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
}

/// A stage of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Files come from the Hub into the cache.
    Download,
    /// The files of the weights are mapped.
    Mapping,
}

/// `download` or `mapping`.
impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stage::Download => "download",
            Stage::Mapping => "mapping",
        })
    }
}

/// Who is told, or nobody.
#[derive(Clone, Default)]
pub(crate) struct OnProgress(Option<Arc<dyn Fn(Progress) + Send + Sync>>);

impl OnProgress {
    pub(crate) fn new(told: impl Fn(Progress) + Send + Sync + 'static) -> OnProgress {
        OnProgress(Some(Arc::new(told)))
    }

    pub(crate) fn tell(&self, stage: Stage, bytes_done: u64, bytes_total: u64) {
        if let Some(told) = &self.0 {
            told(Progress { stage, bytes_done, bytes_total });
        }
    }
}

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnProgress" } else { "None" })
    }
}
