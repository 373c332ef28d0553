//! Path -> Model: the whole pipeline, once, with no branch per family or dtype.

mod draft;
mod remote;

use crate::adapter::AdapterRoom;
use crate::cancel::CancellationToken;
use crate::cpu::CpuDevice;
use crate::decoder::{Decoder, Tower};
use crate::error::{DraftError, Error, Result};
use crate::fingerprint::Fingerprint;
use crate::generate::in_ranges;
use crate::hub;
use crate::kernels::Isa;
use crate::model::{DeviceDecoder, Inner, LoadedEngine, Model};
use crate::predictor::Predictor;
use crate::progress::{OnProgress, Progress, Stage};
use crate::prompt_cache::{Folder, PromptCache};
use crate::scheduler::Scheduler;
use crate::scheduler::admission::Admission;
use crate::threads::Pool;
use crate::tokenizer::Tokenizer;
use crate::weights::Weights;
use draft::Draft;
use model_factory_diagnostics::family::{Family, REGISTRY};
use model_factory_diagnostics::header::{Header, Metadata};
use model_factory_diagnostics::plan::{ActivationDtype, KvDtype, ReservedAdapters, WeightStorage, adapter_step_bytes};
use model_factory_diagnostics::report::HubModel;
use model_factory_diagnostics::spec::ModelSpec;
use model_factory_diagnostics::{
    ChosenDevice, DeviceChoice, Diagnosis, DtypePolicy, Hardware, Policy, Ready, Report, diagnose_hub, diagnose_with,
};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Instant;
use tracing::{Span, field, info_span};

/// Loads whatever lies at a path, in the dtypes it is stored in, or refuses with a report.
#[derive(Clone, Copy, Debug)]
pub struct UnifiedModelFactory;

impl UnifiedModelFactory {
    /// Loads the model at `path`: a `.gguf` or `.safetensors` file, a `config.json`, an index, or a folder. With the feature
    /// `hub` also the model of a [`HubId`](hub::HubId), where nothing lies at such a path.
    ///
    /// Weights are pages of the mapped files. Nobody may truncate or write these files while a model uses them: a file that
    /// becomes shorter ends the process by a bus error, and one that is written changes what the model computes. Put a new
    /// version next to the old one and rename it, or take [`WeightStorage::Resident`] ([`ModelBuilder::weights`]).
    ///
    /// # Errors
    /// [`Error::Refused`] with the report when the model is not recognized, not complete, needs a cast or does not fit;
    /// no weight byte has been read then, nor downloaded. `Error::Hub` when the Hub does not give the model.
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        Self::builder().load(path)
    }

    /// Everything [`load`](Self::load) does short of weights: what the model is, and whether it runs here.
    pub fn diagnose(path: impl AsRef<Path>) -> Report {
        Self::builder().diagnose(path)
    }

    /// Loading with options.
    pub fn builder() -> ModelBuilder {
        ModelBuilder::default()
    }
}

impl Model {
    /// Like [`UnifiedModelFactory::load`].
    ///
    /// # Errors
    /// The errors of [`UnifiedModelFactory::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        Self::builder().load(path)
    }

    /// Like [`UnifiedModelFactory::builder`].
    pub fn builder() -> ModelBuilder {
        ModelBuilder::default()
    }
}

/// The most threads of a model: more than any machine has. Starting tens of thousands aborts a process.
pub const MAX_THREADS: usize = 1024;

/// Options of a load; every one has a sensible value when it is not given.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder loads nothing before `load` or `diagnose`"]
pub struct ModelBuilder {
    policy: Policy,
    isa: Option<Isa>,
    families: Option<Vec<&'static Family>>,
    on_progress: OnProgress,
    cancel: CancellationToken,
    revision: Option<String>,
    without_prefix_caching: bool,
    prompt_cache: Option<(PathBuf, u64)>,
    draft: Option<PathBuf>,
    admission: Admission,
    #[cfg(feature = "hub")]
    hub: Option<hub::HubOptions>,
}

crate::generate::setters! {
    ModelBuilder:
    /// Where to run; by default the best device that can.
    device(device: DeviceChoice) => policy.device = device;
    /// Tokens a session can hold, at least 1; by default the most that fit, up to what the model was trained for.
    context_length(tokens: usize) => policy.context = Some(tokens);
    /// The bytes that the plan may use; by default the memory that the machine has available.
    memory_limit(bytes: u64) => policy.memory_limit = Some(bytes);
    /// A `tokenizer.json` in place of the model's own, which need not have one then. The ids stay the model's: its stop
    /// tokens and its template stay, and its BOS is found in the file by its text.
    tokenizer(path: impl Into<PathBuf>) => policy.tokenizer = Some(path.into());
    /// Sessions that will be open at once, at least 1, each with a full context: the plan counts their caches, and they take
    /// no more than that together. Without it the plan counts one session, and all that are opened share what the machine,
    /// or [`memory_limit`](Self::memory_limit), leaves. What exceeds that is refused ([`EngineError::CacheBudget`](crate::error::EngineError::CacheBudget)).
    sessions(sessions: usize) => policy.sessions = Some(sessions);
    /// Where weights lie: by default in the pages of the mapped files, or in memory that the files are read into, which later
    /// changes of the files cannot affect. A GPU has its own copy in either case.
    weights(storage: WeightStorage) => policy.weights = storage;
    /// The element type of the KV cache; F32 by default, which rounds nothing.
    kv_cache(dtype: KvDtype) => policy.kv_dtype = dtype;
    /// Whether a sequence takes keys and values that another one has computed for the same beginning, to the same bits; it does
    /// by default: whole pages of 256 tokens, and all of it within a salt
    /// ([`GenerateOptions::cache_salt`](crate::GenerateOptions::cache_salt)). What no session holds any more stays for the next one, in as much memory as the plan counts for caches.
    /// Not on a GPU, nor for int8 models with one dynamic scale for all rows, where the bits would differ.
    prefix_caching(on: bool) => without_prefix_caching = !on;
    /// A small model that guesses the next tokens of this one, for [`Speculation::Draft`](crate::Speculation::Draft): a file or
    /// folder on this machine, of the same vocabulary. It shares the threads, and its weights, caches and buffers are in the
    /// memory plan. On the processor only.
    draft(path: impl Into<PathBuf>) => draft = Some(path.into());
    /// Whether the model's own multi-token prediction head is loaded, for [`Speculation::Mtp`](crate::Speculation::Mtp): some
    /// models bring one, and the report says so. It is not by default, and its weights are not read then. Its cache and
    /// buffers are in the memory plan. A model without one is refused.
    mtp(on: bool) => policy.predictor = on;
    /// Whether the model's vision tower is loaded, which makes rows of the language model of images. It is not by default, and its
    /// weights are not read then. They and the buffers of its largest image are in the memory plan. A model without a tower that is
    /// known is refused. On the processor only.
    vision(on: bool) => policy.vision = on;
    /// The file that holds the vision tower of a GGUF model, which is loaded then ([`vision`](Self::vision)); by default the one in
    /// the model's folder whose name has `mmproj` in it, and several of them are refused. Of a model on the Hub it may be the name of a
    /// file in the repository.
    mmproj(path: impl Into<PathBuf>) => policy.mmproj = Some(path.into());
    /// Reserves the memory of so many adapters of up to this rank, each for all layers that adapters may change, and of what steps take
    /// for them, each of which a request has once: [`Model::load_adapter`](crate::Model::load_adapter) does not fail for memory until
    /// as many are loaded. The report counts it. Without it adapters are loaded where the caches of sessions leave room. At least 1, and
    /// on the processor only.
    adapters(count: usize, rank: usize) => policy.adapters = Some(ReservedAdapters { count, rank });
    /// Whether a generation whose pages do not fit with those of others is refused, which is the default, or waits.
    admission(admission: Admission) => admission = admission;
    /// Which dtype tiers are accepted; by default, widening inside a register that loses nothing is.
    dtype_policy(policy: DtypePolicy) => policy.dtypes = policy;
    /// What activations are rounded to where their format prescribes 16 bits, as for packed integers: to these by default, or to
    /// int8, which is sooner and has more error than the format means. The report says which.
    activations(dtype: ActivationDtype) => policy.activation_dtype = dtype;
    /// The number of threads, 1 to [`MAX_THREADS`]; by default all that this process may use.
    threads(threads: usize) => policy.threads = Some(threads);
    /// The instruction sets that kernels may use; by default all that the processor has.
    isa(isa: Isa) => isa = Some(isa);
    /// The families to recognize; by default [`REGISTRY`]. Unstable: what a family is made of may change in any version.
    families(families: &[&'static Family]) => families = Some(families.to_vec());
    /// The branch, tag or commit of a model on the Hub whose id names none; `main` by default.
    revision(revision: impl Into<String>) => revision = Some(revision.into());
    /// Where the Hub and its cache are; by default the environment says it.
    #[cfg(feature = "hub")]
    hub(options: hub::HubOptions) => hub = Some(options);
    /// Reports the progress of a load to `told`, on the threads that load: it should return soon. If it panics, the load ends and
    /// the thread that called `load` goes on with that panic, at whatever stage; a later load is not affected.
    ///
    /// ```
    /// use model_factory::UnifiedModelFactory;
    ///
    /// let model = UnifiedModelFactory::builder()
    ///     .on_progress(|progress| eprintln!("{}: {} bytes", progress.stage, progress.bytes_done))
    ///     .load("fixtures/demo-q4_k_m.gguf")?;
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    on_progress(told: impl Fn(Progress) + Send + Sync + 'static) => on_progress = OnProgress::new(told);
    /// Gives a load up with [`Error::Cancelled`] once `cancel` is cancelled: in a moment while it waits for the Hub, after at
    /// most 64 MiB that are read into memory or copied to a GPU, and otherwise between its stages. Building a tokenizer is not interrupted.
    cancel(cancel: &CancellationToken) => cancel = cancel.clone();
}

impl ModelBuilder {
    /// An adapter (LoRA) that is diagnosed with the model, one more for each call: the report says what it changes, and an adapter that is
    /// damaged, asks for what is not computed or is of another model is a refusal. [`Model::load_adapter`](crate::Model::load_adapter)
    /// loads it. Its tensors are not read for that.
    pub fn lora(mut self, path: impl Into<PathBuf>) -> Self {
        self.policy.lora.push(path.into());
        self
    }

    /// Keeps what is computed of prompts also in the folder `path`, within about `bytes`, so that a prompt that begins like an earlier one
    /// is read in place of computed: after a restart, and by other processes with the same folder. It is made where it is not there,
    /// for this user only, and one that others may read or write is refused. Whole pages of 256 tokens are kept, and shared as in
    /// memory ([`prefix_caching`](Self::prefix_caching)); the weights are read once to know them. The bits are the same.
    ///
    /// ```
    /// use model_factory::{GenerateOptions, Model};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("prompts");
    /// let load = || Model::builder().prompt_cache(&path, 1 << 30).load("fixtures/demo-q4_k_m.gguf");
    /// let (prompt, options) = (vec![100; 300], GenerateOptions::default().max_tokens(1));
    /// load()?.generate(&prompt, &options)?.text()?;
    /// let mut again = load()?.generate(&prompt, &options)?;
    /// again.text()?;
    /// assert_eq!(again.finish().1.cached_tokens, 256);
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    pub fn prompt_cache(mut self, path: impl Into<PathBuf>, bytes: u64) -> Self {
        self.prompt_cache = Some((path.into(), bytes));
        self
    }

    /// Tells what `path` holds and whether it runs, without reading a weight.
    pub fn diagnose(&self, path: impl AsRef<Path>) -> Report {
        self.diagnose_on(path, &self.hardware())
    }

    /// Tells what `path` holds and whether it runs on `hardware`, this machine or a described one. If a draft model does not run
    /// there, this is the draft model's report. Vocabularies are compared only when models are loaded.
    pub fn diagnose_on(&self, path: impl AsRef<Path>, hardware: &Hardware) -> Report {
        self.diagnose_path(path.as_ref(), hardware)
    }

    // What is generic is compiled with the caller's crate, by its optimizations: only what converts.
    fn diagnose_path(&self, path: &Path, hardware: &Hardware) -> Report {
        let with_draft = match self.with_draft(hardware) {
            Ok((builder, _)) => builder,
            Err(report) => return *report,
        };
        match hub::id(path) {
            Some(id) => with_draft.diagnose_remote(&id, path, hardware),
            None => with_draft.diagnosis(path, None, hardware).report,
        }
    }

    /// Loads the model at `path`.
    ///
    /// # Errors
    /// The errors of [`UnifiedModelFactory::load`]; [`Error::Refused`] with the report of a draft model that does not run here,
    /// [`Error::Draft`] for one that cannot guess for the model; [`Error::Option`] when the context or the number of threads is
    /// out of its range; [`Error::Cancelled`].
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Model> {
        self.load_path(path.as_ref())
    }

    fn load_path(&self, path: &Path) -> Result<Model> {
        self.check()?;
        self.cancel.check()?;
        let start = Instant::now();
        let _span = info_span!("load", path = %path.display(), variant = field::Empty).entered();
        let hardware = self.hardware();
        let (with_draft, draft) = self.with_draft(&hardware).map_err(Error::Refused)?;
        match hub::id(path) {
            Some(id) => with_draft.load_remote(&id, path, draft),
            None => with_draft.load_diagnosed(start, with_draft.read_header(path, None, &hardware), draft),
        }
    }

    fn load_diagnosed(&self, start: Instant, diagnosis: Diagnosis, draft: Option<Draft>) -> Result<Model> {
        let Diagnosis { report, ready, .. } = diagnosis;
        let Some(ready) = ready else { return Err(Error::Refused(Box::new(report))) };
        let Ready { header, spec, plan, .. } = &ready;
        self.cancel.check()?;
        let folder = self.prompt_cache.as_ref().map(|(path, bytes)| Folder::open(path, *bytes)).transpose()?;
        Span::current().record("variant", field::display(&spec.variant));
        let context_length = plan.context;
        if let (Some(_), Some(reason)) = (&spec.predictor, ready.batching().reason()) {
            return Err(DraftError::Predictor { model: header.source.path.clone(), reason }.into());
        }
        let pool =
            Arc::new(Pool::new(self.policy.threads.unwrap_or(report.hardware.cpu.fast_threads().min(MAX_THREADS))));
        let threads = pool.threads();
        let building = info_span!("tokenizer", tokens = field::Empty);
        let build = || building.in_scope(|| self.build_tokenizer(header, spec));
        let (tokenizer, engine) = match &draft {
            // The tokenizer takes longest, so it is built while the rest is.
            None => std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().spawn_scoped(scope, build);
                let engine = self.engine(&ready, Arc::clone(&pool));
                // Without another thread, one runs after the other. Only `on_progress` can panic there, which is allowed here too.
                let joined =
                    |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                (thread.map_or_else(|_| build(), joined), engine)
            }),
            // Vocabularies are compared first, so that no weight is read for two models that differ in them.
            Some(draft) => {
                let tokenizer = build()?;
                self.check_draft(draft, &header.source.path, &ready, &tokenizer)?;
                (Ok(tokenizer), self.engine(&ready, Arc::clone(&pool)))
            }
        };
        let (tokenizer, engine) = (Arc::new(tokenizer?), engine?);
        let draft = draft.map(|draft| self.load_draft(draft, plan, Arc::clone(&tokenizer), pool)).transpose()?;
        self.cancel.check()?;
        let (scheduler, load_time) = (Arc::new(Scheduler::new(self.admission)), start.elapsed());
        let adapter_room = AdapterRoom::new(plan, adapter_step_bytes(spec, context_length, threads));
        let prompt_cache = folder.map(|folder| PromptCache::new(folder, &engine, spec)).transpose()?;
        let inner = Inner::new(ready.spec, ready.header.source.format, report, tokenizer, engine);
        Ok(Model::new(Inner {
            scheduler,
            context_length,
            threads,
            load_time,
            draft,
            adapter_room,
            prompt_cache,
            ..inner
        }))
    }

    /// Checks that the numbers that were given are in range.
    fn check(&self) -> Result<()> {
        let [context, sessions, threads] = [self.policy.context, self.policy.sessions, self.policy.threads]
            .map(|number| number.map(|number| number as f64));
        let adapters = self.policy.adapters;
        in_ranges([
            ("context_length", context, 1.0..=f64::MAX, "at least 1"),
            ("sessions", sessions, 1.0..=f64::MAX, "at least 1"),
            ("threads", threads, 1.0..=MAX_THREADS as f64, "1 to 1024"),
            (
                "adapters",
                adapters.map(|of| of.count.min(of.rank) as f64),
                1.0..=f64::MAX,
                "a count and a rank of at least 1",
            ),
        ])?;
        if self.policy.predictor && self.draft.is_some() { Err(DraftError::Both.into()) } else { Ok(()) }
    }

    fn read_header(&self, path: &Path, model: Option<&HubModel>, hardware: &Hardware) -> Diagnosis {
        let span = info_span!("header", bytes = field::Empty).entered();
        self.on_progress.tell(Stage::Header, 0, 0);
        let diagnosis = self.diagnosis(path, model, hardware);
        if let Some(Ready { header, .. }) = &diagnosis.ready {
            span.record("bytes", header.bytes_read);
            self.on_progress.tell(Stage::Header, header.bytes_read, header.bytes_read);
        }
        diagnosis
    }

    fn build_tokenizer(&self, header: &Header, spec: &ModelSpec) -> Result<Tokenizer> {
        let file = match (&self.policy.tokenizer, &header.metadata) {
            (Some(given), _) => Some(given),
            (None, Metadata::Config(files)) => files.tokenizer.as_ref(),
            (None, _) => None,
        };
        let bytes = file.and_then(|file| std::fs::metadata(file).ok()).map_or(0, |file| file.len());
        self.on_progress.tell(Stage::Tokenizer, 0, bytes);
        let tokenizer = Tokenizer::from_header(header, &spec.tokenizer)?;
        Span::current().record("tokens", tokenizer.vocab_len());
        self.on_progress.tell(Stage::Tokenizer, bytes, bytes);
        Ok(tokenizer)
    }

    /// Attaches the weights to the device that the diagnosis chose. Weights in main memory have a fingerprint.
    fn engine(&self, ready: &Ready, pool: Arc<Pool>) -> Result<LoadedEngine> {
        let Ready { header, spec, plan, device, .. } = ready;
        let bytes = header.source.files.iter().map(|file| file.bytes).sum();
        let _span = info_span!("weights", bytes).entered();
        let map = || -> Result<Weights> {
            self.on_progress.tell(Stage::Mapping, 0, bytes);
            let weights = Weights::map(&header.source)?;
            self.on_progress.tell(Stage::Mapping, bytes, bytes);
            self.cancel.check()?;
            Ok(weights)
        };
        match device {
            ChosenDevice::Cpu => {}
            #[cfg(feature = "cuda")]
            ChosenDevice::Gpu { index, gpu } => {
                let weights = map()?;
                let uploaded = |done, total| {
                    self.on_progress.tell(Stage::Upload, done, total);
                    Ok(self.cancel.check()?)
                };
                let uuid = gpu.uuid.as_deref();
                let device = || crate::cuda::CudaDevice::open(spec, &weights, plan, uuid, *index, &uploaded);
                let decoder = Decoder::new(spec, &weights, plan, !self.without_prefix_caching, device)?;
                return Ok(LoadedEngine::new(DeviceDecoder::Cuda(decoder)));
            }
            #[cfg(not(feature = "cuda"))]
            ChosenDevice::Gpu { gpu, .. } => {
                return Err(Error::Internal(format!(
                    "the diagnosis chose the {}, which this build does not run",
                    gpu.name
                )));
            }
        }
        let weights = match self.policy.weights {
            WeightStorage::Mapped => map()?,
            WeightStorage::Resident => Weights::read(&header.source, &|done, total| {
                self.on_progress.tell(Stage::Reading, done, total);
                Ok(self.cancel.check()?)
            })?,
        };
        let isa = self.isa.unwrap_or_else(Isa::detect);
        let device = |spec| CpuDevice::new(spec, isa, Arc::clone(&pool), plan);
        let decoder = Decoder::new(spec, &weights, plan, !self.without_prefix_caching, || Ok(device(spec)))?;
        let predictor = spec.predictor.as_deref().map(|head| {
            let mut of_head = plan.clone();
            of_head.kv_cache = plan.predictor_cache(head);
            of_head.cache_budget = of_head.kv_cache;
            let decoder = Decoder::new(head, &weights, &of_head, false, || Ok(device(head)))?;
            Ok::<_, Error>(Predictor::new(Box::new(decoder), head.hidden))
        });
        let tower = spec.vision.as_deref().map(|tower| {
            let device = CpuDevice::of_tower(tower, isa, Arc::clone(&pool), plan.activation_dtype);
            Tower::new(tower, plan.image_tokens.min(plan.context), &weights, device)
        });
        let (predictor, tower) = (predictor.transpose()?, tower.transpose()?);
        let fingerprint = Some(Arc::new(Fingerprint::new(weights)));
        Ok(LoadedEngine { decoder: DeviceDecoder::Cpu(decoder), fingerprint, predictor, tower })
    }

    /// The diagnosis of the files at `path`, which may be files of a model on the Hub.
    fn diagnosis(&self, path: &Path, model: Option<&HubModel>, hardware: &Hardware) -> Diagnosis {
        let families = self.families.as_deref().unwrap_or(REGISTRY);
        match model {
            Some(model) => diagnose_hub(families, path, model, hardware, &self.policy),
            None => diagnose_with(families, path, hardware, &self.policy),
        }
    }

    /// The machine, with only the instruction sets that kernels may use.
    fn hardware(&self) -> Hardware {
        let mut hardware = Hardware::detect();
        if cfg!(feature = "cuda") {
            hardware.build.push("cuda");
        }
        let cpu = &mut hardware.cpu;
        // Whether the system lets this process use tiles is known only by asking for them, which the diagnosis does not do.
        let is_tile = |set: &&'static str| set.starts_with("amx-");
        for sets in [&mut cpu.features, &mut cpu.avoided] {
            sets.retain(|set| !is_tile(set));
        }
        if let Some(isa) = Isa::named("amx") {
            let sets = if Isa::detect() == isa { &mut cpu.features } else { &mut cpu.avoided };
            sets.extend(isa.features().iter().copied().filter(is_tile));
        }
        if let Some(isa) = self.isa {
            cpu.features.append(&mut cpu.avoided);
            cpu.features.retain(|feature| isa.features().contains(feature));
        }
        hardware
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cannot_be_meant_are_refused_before_anything_is_read() {
        let builder = UnifiedModelFactory::builder;
        for (builder, says) in [
            (builder().context_length(0), "context_length is 0, expected at least 1".to_owned()),
            (builder().sessions(0), "sessions is 0, expected at least 1".into()),
            (builder().threads(0), "threads is 0, expected 1 to 1024".into()),
            (builder().adapters(0, 16), "adapters is 0, expected a count and a rank of at least 1".into()),
            (builder().adapters(8, 0), "adapters is 0, expected a count and a rank of at least 1".into()),
            (builder().threads(MAX_THREADS + 1), format!("threads is 1025, expected 1 to {MAX_THREADS}")),
        ] {
            let Err(error) = builder.load("/no/such/path") else { panic!("{says} was loaded") };
            assert!(matches!(error, Error::Option { .. }) && error.code() == 2, "{error:?}");
            assert_eq!(error.to_string(), says);
        }
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo");
        let least = builder().context_length(1).threads(1).load(&demo).unwrap();
        assert_eq!((least.context_length(), least.threads()), (1, 1));
        builder().threads(MAX_THREADS).check().unwrap();
    }
}
