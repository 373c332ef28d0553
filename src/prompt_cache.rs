//! What is computed of prompts, on disk: the store of a model's pages, and the thread that writes it.

mod folder;

use crate::decoder::{Compute, Key, PagePool, PrefixStore, Unsaved, Work};
use crate::error::{Error, Result};
use crate::fingerprint::WeightsDigest;
use crate::model::{DeviceDecoder, LoadedEngine, Model};
use crate::saved::identity;
pub(crate) use folder::Folder;
use model_factory_diagnostics::plan::KV_PAGE;
use model_factory_diagnostics::spec::ModelSpec;
use model_factory_engine::decoder::Entry;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// Bytes that are copied out of a page at a time, while nothing else takes pages.
const PIECE: usize = 256 << 10;
/// For so long nothing is written after the disk refused.
const PAUSE: Duration = Duration::from_secs(5);
/// For so long a model that ends waits for what it did not write yet.
const LAST_WRITES: Duration = Duration::from_secs(30);

/// What the folder of [`ModelBuilder::prompt_cache`](crate::ModelBuilder::prompt_cache) holds, and what this model did there. An entry
/// is a page of 256 tokens, or a state of layers that carry one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptCacheUsage {
    /// Bytes of all entries in the folder, those of other processes and models too, as far as they are known.
    pub bytes: u64,
    /// Entries that were read in place of being computed.
    pub read: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Entries that were written.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Entries that were not written: the disk refused, they are larger than the bound, or memory was freed before their turn.
    pub dropped: u64,
    /// Entries that were not as they were written, and were removed.
    pub damaged: u64,
}

#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    read_bytes: AtomicU64,
    written: AtomicU64,
    written_bytes: AtomicU64,
    dropped: AtomicU64,
    damaged: AtomicU64,
}

/// What the thread that writes is told, and tells.
#[derive(Debug, Default)]
struct Signal {
    is_woken: bool,
    is_idle: bool,
    /// When it is to end, whatever is left.
    end: Option<Instant>,
}

struct Store {
    folder: Folder,
    seed: OnceLock<Key>,
    make_seed: Box<dyn Fn() -> Key + Send + Sync>,
    counts: Counts,
    signal: Mutex<Signal>,
    changed: Condvar,
}

/// The store of a model; dropped, it is complete and its thread has ended.
pub(crate) struct PromptCache {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
    /// The process that the thread is of.
    process: u32,
}

impl PromptCache {
    /// Keeps the pages of a model in `folder`.
    pub(crate) fn new(folder: Folder, engine: &LoadedEngine, spec: &ModelSpec) -> Result<PromptCache> {
        let (decoder, fingerprint) = match (&engine.decoder, &engine.fingerprint) {
            (DeviceDecoder::Cpu(decoder), Some(fingerprint)) if decoder.pages().shares() => (decoder, fingerprint),
            _ => {
                let expected = "a model whose prompts share pages, which is on the processor, not of int8 activations with one scale, \
                                and with prefix caching; load it without the folder";
                return Err(Error::Option { option: "prompt_cache", value: folder.limit() as f64, expected });
            }
        };
        let (identity, fingerprint) =
            (identity(spec, decoder.device(), WeightsDigest::Full, &[]), Arc::clone(fingerprint));
        let make_seed = move || {
            // Texts and numbers: they can be written.
            let [described, weights] =
                [serde_json::to_vec(&identity), serde_json::to_vec(fingerprint.digests(WeightsDigest::Full))]
                    .map(Result::unwrap_or_default);
            let parts =
                [&(KV_PAGE as u64).to_le_bytes(), &(described.len() as u64).to_le_bytes(), &*described, &*weights];
            parts.into_iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().into()
        };
        let store = Arc::new(Store {
            folder,
            seed: OnceLock::new(),
            make_seed: Box::new(make_seed),
            counts: Counts::default(),
            signal: Mutex::default(),
            changed: Condvar::new(),
        });
        // All weights are read for it: while the model is loaded, and not while others generate.
        store.seed();
        let pages = Arc::clone(decoder.pages());
        pages.set_store(Arc::clone(&store) as Arc<dyn PrefixStore>);
        let writer = Arc::clone(&store);
        let thread = std::thread::Builder::new().name("prompt-cache".into()).spawn(move || writer.write(&pages));
        let thread = thread.map_err(|error| Error::io(store.folder.path(), error))?;
        Ok(PromptCache { store, thread: Some(thread), process: std::process::id() })
    }

    fn usage(&self) -> PromptCacheUsage {
        let Counts { read, read_bytes, written, written_bytes, dropped, damaged } = &self.store.counts;
        let [read, read_bytes, written, written_bytes, dropped, damaged] =
            [read, read_bytes, written, written_bytes, dropped, damaged].map(|count| count.load(Ordering::Relaxed));
        let bytes = self.store.folder.bytes();
        PromptCacheUsage { bytes, read, read_bytes, written, written_bytes, dropped, damaged }
    }
}

impl Drop for PromptCache {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return; // the thread is not in this process
        }
        self.store.signal().end = Some(Instant::now() + LAST_WRITES);
        self.store.changed.notify_all();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            warn!("the thread of the prompt cache panicked");
        }
    }
}

impl Model {
    /// What the folder of [`ModelBuilder::prompt_cache`](crate::ModelBuilder::prompt_cache) holds, where there is one.
    pub fn prompt_cache_usage(&self) -> Option<PromptCacheUsage> {
        self.inner.prompt_cache.as_ref().map(PromptCache::usage)
    }

    /// Waits until what was computed of prompts so far is in the folder of
    /// [`ModelBuilder::prompt_cache`](crate::ModelBuilder::prompt_cache), at most for `limit`, and says whether it is. A model that is
    /// dropped waits for up to 30 seconds.
    pub fn flush_prompt_cache(&self, limit: Duration) -> bool {
        let Some(PromptCache { store, process, .. }) = &self.inner.prompt_cache else { return true };
        if *process != std::process::id() {
            return false;
        }
        store.wake();
        let waits = |signal: &mut Signal| !signal.is_idle || signal.is_woken;
        let (_signal, wait) =
            store.changed.wait_timeout_while(store.signal(), limit, waits).unwrap_or_else(PoisonError::into_inner);
        !wait.timed_out()
    }
}

impl Store {
    fn signal(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is queued until the model ends.
    fn write(&self, pages: &PagePool) {
        let (mut piece, mut paused) = (vec![0; PIECE], None);
        loop {
            while let Some(work) = pages.next_work(self.seed()) {
                if self.signal().end.is_some_and(|end| end < Instant::now()) {
                    return;
                }
                match work {
                    Work::Used(keys) => self.folder.used(&keys),
                    Work::Store(unsaved) => self.put(pages, &unsaved, &mut piece, &mut paused),
                }
            }
            let mut signal = self.signal();
            if !signal.is_woken {
                if signal.end.is_some() {
                    return;
                }
                signal.is_idle = true;
                self.changed.notify_all();
                let waits = |signal: &mut Signal| !signal.is_woken && signal.end.is_none();
                signal = self.changed.wait_while(signal, waits).unwrap_or_else(PoisonError::into_inner);
            }
            (signal.is_woken, signal.is_idle) = (false, false);
        }
    }

    /// Writes an entry, unless it is there, or the disk has refused one shortly before.
    fn put(&self, pages: &PagePool, unsaved: &Unsaved, piece: &mut [u8], paused: &mut Option<Instant>) {
        if self.folder.has(&unsaved.entry) {
            return;
        }
        if paused.is_none_or(|since| since.elapsed() > PAUSE) {
            let written = self.folder.write(&unsaved.entry, unsaved.bytes as u64, |out| {
                let mut offset = 0;
                while offset < unsaved.bytes {
                    let piece = &mut piece[..PIECE.min(unsaved.bytes - offset)];
                    if !pages.copy_unsaved(unsaved, offset, piece) {
                        return Ok(false);
                    }
                    out.write(piece)?;
                    offset += piece.len();
                }
                Ok(true)
            });
            match written {
                Ok(true) => {
                    self.counts.written.fetch_add(1, Ordering::Relaxed);
                    self.counts.written_bytes.fetch_add(unsaved.bytes as u64, Ordering::Relaxed);
                    return;
                }
                Ok(false) => {}
                Err(error) => {
                    warn!(%error, "a part of a prompt is not kept");
                    *paused = Some(Instant::now());
                }
            }
        }
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl PrefixStore for Store {
    fn seed(&self) -> &Key {
        self.seed.get_or_init(|| (self.make_seed)())
    }

    fn has(&self, entry: &Entry) -> bool {
        self.folder.has(entry)
    }

    fn read(&self, entry: &Entry, parts: &mut [&mut [u8]]) -> bool {
        match self.folder.read(entry, parts) {
            Ok(()) => {
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                self.counts.read.fetch_add(1, Ordering::Relaxed);
                self.counts.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                true
            }
            Err(error) => {
                if matches!(error, Error::SessionFile(_)) {
                    self.counts.damaged.fetch_add(1, Ordering::Relaxed);
                }
                debug!(%error, "an entry of the prompt cache is computed again");
                false
            }
        }
    }

    fn wake(&self) {
        self.signal().is_woken = true;
        self.changed.notify_all();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("folder", &self.folder).field("counts", &self.counts).finish_non_exhaustive()
    }
}
