//! Adapters (LoRA) of a loaded model: read once, given to any number of generations.

use crate::cache_budget::{CacheBudget, CacheShare};
use crate::decoder::Compute;
use crate::error::{AdapterError, Error, Result};
use crate::model::{Inner, Model};
use crate::weights::Weights;
use model_factory_diagnostics::plan::{Plan, adapter_rows_bytes, adapter_step_bytes};
use model_factory_engine::adapter::{self, AdapterSpec, Adapters};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tracing::info_span;

/// An adapter of one loaded model: what a fine-tune (LoRA) adds to the products of its weights, which stay as they are.
/// [`Model::load_adapter`] makes one, [`GenerateOptions::adapter`](crate::GenerateOptions::adapter) gives it to a generation. Clones are
/// the same adapter; its memory is free again when the last clone and the last session with it are gone.
///
/// ```no_run
/// use model_factory::{GenerateOptions, UnifiedModelFactory};
///
/// let model = UnifiedModelFactory::load("path/to/model")?;
/// let support = model.load_adapter("path/to/support-adapter")?; // a folder of PEFT, or a GGUF adapter for a GGUF model
/// let options = GenerateOptions::default().adapter(&support, 1.0);
/// let with = model.generate("Dear customer,", &options)?.text()?;
/// let without = model.generate("Dear customer,", &GenerateOptions::default())?.text()?; // as if nothing were loaded
/// # Ok::<(), model_factory::Error>(())
/// ```
#[derive(Clone)]
pub struct Adapter {
    engine: Arc<adapter::Adapter>,
    model: Weak<Inner>,
}

impl Adapter {
    /// The SHA-256 of its files, by which shared prefixes and saved sessions know it.
    pub fn digest(&self) -> &[u8; 32] {
        self.engine.digest()
    }

    /// Bytes of its tensors. With what steps take for it they are counted in the memory that
    /// [`ModelBuilder::adapters`](crate::ModelBuilder::adapters) has reserved, or else in that of the model's KV caches.
    pub fn bytes(&self) -> u64 {
        self.engine.bytes()
    }
}

impl PartialEq for Adapter {
    fn eq(&self, other: &Adapter) -> bool {
        Weak::ptr_eq(&self.model, &other.model) && self.digest() == other.digest()
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Adapter(")?;
        self.digest()[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ", {} bytes)", self.bytes())
    }
}

/// The memory that is taken for adapters.
#[derive(Debug, Default)]
pub(crate) struct AdapterRoom {
    /// What the plan has reserved, without what steps take for all adapters together.
    reserved: Option<Arc<CacheBudget>>,
    /// What steps take for all adapters together, while there are any, where nothing is reserved.
    of_steps: Mutex<Weak<CacheShare>>,
}

impl AdapterRoom {
    /// That of a model of `plan`, of whose reserved bytes steps take `of_steps`.
    pub(crate) fn new(plan: &Plan, of_steps: u64) -> AdapterRoom {
        let reserved = (plan.adapters > 0).then(|| CacheBudget::new(plan.adapters.saturating_sub(of_steps)));
        AdapterRoom { reserved, of_steps: Mutex::default() }
    }

    /// Takes `bytes` for an adapter, of what is reserved or of what caches leave, and `of_steps` once for all adapters.
    fn hold(&self, compute: &dyn Compute, bytes: u64, of_steps: u64) -> Result<Vec<Arc<CacheShare>>> {
        if let Some(reserved) = &self.reserved {
            let mut share = reserved.share();
            if share.grow_to(bytes).is_ok() {
                return Ok(vec![Arc::new(share)]);
            }
            return Ok(vec![Arc::new(compute.pages().hold(bytes)?)]);
        }
        let mut held = self.of_steps.lock().unwrap_or_else(PoisonError::into_inner);
        let room = match held.upgrade() {
            Some(room) => room,
            None => Arc::new(compute.pages().hold(of_steps)?),
        };
        *held = Arc::downgrade(&room);
        Ok(vec![Arc::new(compute.pages().hold(bytes)?), room])
    }
}

impl Model {
    /// Reads the adapter at `path` for this model: a folder of PEFT (`adapter_config.json`, `adapter_model.safetensors`) where the
    /// model is safetensors, a GGUF adapter where it is GGUF. Its matrices stay as the file stores them (F32, F16 or BF16), mapped,
    /// and are checked against the model's. Their bytes, and what steps take for them, are taken from the memory that
    /// [`ModelBuilder::adapters`](crate::ModelBuilder::adapters) has reserved, or where that does not do, from that of the KV caches.
    ///
    /// # Errors
    /// `Files` for an adapter that is damaged, asks for what is not computed, or is of another model, by file, key and tensor; `Adapter`
    /// for a model on a GPU; `Engine` when the sessions of the model leave too little memory (`CacheBudget`); `Io`.
    pub fn load_adapter(&self, path: impl AsRef<Path>) -> Result<Adapter> {
        self.adapter_at(path.as_ref())
    }

    fn adapter_at(&self, path: &Path) -> Result<Adapter> {
        let _span = info_span!("adapter", path = %path.display()).entered();
        let (compute, spec) = (self.compute(), self.spec());
        if !compute.takes_adapters() {
            return Err(AdapterError::Device.into());
        }
        let adapter = AdapterSpec::read(path, spec, self.inner.format)?;
        let (context, threads) = (self.context_length(), self.threads());
        let rank = adapter.changes.iter().map(|change| change.rank).max().unwrap_or(0);
        let bytes = adapter.bytes().saturating_add(adapter_rows_bytes(spec, context, threads, rank));
        let shares = self.inner.adapter_room.hold(compute, bytes, adapter_step_bytes(spec, context, threads))?;
        let weights = Weights::map(&adapter.source)?;
        let mut digest = Sha256::new();
        weights.files().for_each(|file| {
            digest.update((file.len() as u64).to_le_bytes());
            digest.update(file);
        });
        let engine = adapter::Adapter::new(&adapter, &weights, digest.finalize().into(), shares)?;
        Ok(Adapter { engine: Arc::new(engine), model: Arc::downgrade(&self.inner) })
    }

    /// What sequences of this model add for `adapters`.
    ///
    /// # Errors
    /// `Adapter` for one of another model, `Option` for a scale that is not finite.
    pub(crate) fn adapters(&self, adapters: &[(Adapter, f64)]) -> Result<Adapters> {
        check_scales(adapters)?;
        match adapters.iter().all(|(adapter, _)| Weak::ptr_eq(&adapter.model, &Arc::downgrade(&self.inner))) {
            true => Ok(Adapters::new(adapters.iter().map(|(adapter, scale)| (Arc::clone(&adapter.engine), *scale)))),
            false => Err(AdapterError::OtherModel.into()),
        }
    }
}

/// `Option` for a scale that is not finite, as float32 too.
pub(crate) fn check_scales(adapters: &[(Adapter, f64)]) -> Result<()> {
    match adapters.iter().find(|(_, scale)| !(*scale as f32).is_finite()) {
        Some((_, value)) => Err(Error::Option { option: "adapter", value: *value, expected: "a finite float32" }),
        None => Ok(()),
    }
}
