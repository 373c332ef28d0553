//! The progress of a load, reported to its caller.

use std::fmt;
use std::sync::Arc;

/// The progress of a stage of a load. Every stage that takes place reports its beginning, with no bytes done, and its end, with
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The stage that is running.
    pub stage: Stage,
    /// Bytes that are done.
    pub bytes_done: u64,
    /// The total in bytes; 0 where it is not known before the end.
    pub bytes_total: u64,
}

/// A stage of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Files are downloaded.
    Download,
    /// Headers are read and judged: the diagnosis.
    Header,
    /// The tokenizer is built from its `tokenizer.json`, while the weights are mapped; from 0 bytes where the headers describe
    /// it.
    Tokenizer,
    /// The files of the weights are mapped.
    Mapping,
    /// The files of the weights are read into memory, where [`WeightStorage::Resident`](crate::WeightStorage) asks for it.
    Reading,
    /// The weights are copied to a GPU.
    Upload,
}

/// `download`, `header`, `tokenizer`, `mapping`, `reading` or `upload`.
impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

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
