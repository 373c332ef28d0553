//! The models of the server: which one a request asks for, and which are loaded.

mod memory;

use crate::api::{Refusal, blocking, done};
use crate::common::tell;
use memory::Stages;
use model_factory::diagnostics::Report;
use model_factory::{Adapter, Error, ErrorKind, Model, ModelBuilder, PromptCacheUsage, Verdict};
use model_factory_openai::ApiError;
use serde_json::{Value, json};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, RwLock, watch};

/// How long a model that is let go may write the last prompts to disk.
const MOST_FLUSH: Duration = Duration::from_secs(30);

/// The models, of which some are loaded.
pub(crate) struct Models {
    /// The first one is meant where a request names none.
    all: Vec<Arc<Listed>>,
    /// The bytes that loaded models on one device may take together by their plans; what the machine had when the server began where
    /// absent.
    memory: Option<u64>,
    /// Which have memory, and which wait for some.
    stages: watch::Sender<Stages>,
    /// Held while a model is loaded, as what is half loaded cannot be counted.
    loading: Mutex<()>,
    /// What models that were let go did with prompts on disk.
    gone: std::sync::Mutex<PromptCacheUsage>,
    /// The number of uses so far.
    uses: AtomicU64,
}

/// Where a model comes from.
pub(crate) struct Source {
    /// All names by which requests may ask for it, at least one.
    pub(crate) names: Vec<String>,
    pub(crate) path: PathBuf,
    pub(crate) builder: ModelBuilder,
    /// Its adapters, each with a name that requests may ask for too.
    pub(crate) adapters: Vec<(String, PathBuf)>,
}

/// A model that requests may ask for.
pub(crate) struct Listed {
    source: Source,
    /// What was said of it when the server began.
    report: Report,
    /// Read by whoever computes with it; written by the one that loads it or lets it go, which therefore waits for them.
    loaded: Arc<RwLock<Option<Loaded>>>,
    /// The model while its memory is taken, also while somebody waits for the lock above.
    model: std::sync::Mutex<Option<Model>>,
    /// Who loads it has this.
    turn: Arc<Mutex<()>>,
    /// How often loading has failed.
    failures: AtomicU64,
    last_use: AtomicU64,
}

/// A loaded model and its adapters.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) adapters: Vec<Adapter>,
}

/// A loaded model that stays while this is held, by the name that a request asked for.
pub(crate) struct Lease {
    loaded: Read,
    pub(crate) name: String,
    /// The adapters that the name asks for, each with its scale: one or none.
    pub(crate) named: Vec<(Adapter, f64)>,
}

/// A model that is loaded, and stays while this is held.
type Read = OwnedRwLockReadGuard<Option<Loaded>, Loaded>;

impl Deref for Lease {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        &self.loaded
    }
}

impl Lease {
    /// The adapters that a request asks for by their numbers, each with its scale; those of scale 0 are left out.
    ///
    /// # Errors
    /// For a number that no adapter has, one that is there twice, and where `model` names an adapter too.
    pub(crate) fn by_number(&self, asked: &[(usize, f64)]) -> Result<Vec<(Adapter, f64)>, Refusal> {
        let refuse = |message: String| Err(ApiError::new(400, message, Some("lora"), None).into());
        if !self.named.is_empty() {
            return refuse("the model that is asked for is an adapter; ask for one or the other".into());
        }
        let mut adapters = Vec::new();
        for (index, (id, scale)) in asked.iter().enumerate() {
            let Some(adapter) = self.adapters.get(*id) else {
                return refuse(format!("there is no adapter {id}, there are {}, numbered from 0", self.adapters.len()));
            };
            if asked[..index].iter().any(|(before, _)| before == id) {
                return refuse(format!("adapter {id} is there twice"));
            }
            if *scale != 0.0 {
                adapters.push((adapter.clone(), *scale));
            }
        }
        Ok(adapters)
    }
}

impl Source {
    /// All names by which requests may ask for it, those of its adapters too.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(self.adapters.iter().map(|(name, _)| name))
    }

    fn load(&self) -> Result<Loaded, Error> {
        let model = self.builder.load(&self.path)?;
        let adapters = self.adapters.iter().map(|(_, path)| model.load_adapter(path)).collect::<Result<_, Error>>()?;
        Ok(Loaded { model, adapters })
    }

    /// The model, loaded now.
    pub(crate) fn loaded(self) -> Result<Listed, Error> {
        let loaded = self.load()?;
        let report = loaded.model.report().clone();
        Ok(Listed::new(self, report, Some(loaded)))
    }

    /// The model, loaded when it is asked for.
    ///
    /// # Errors
    /// With its report where it would not run.
    pub(crate) fn waiting(self) -> Result<Listed, Error> {
        let report = self.builder.diagnose(&self.path);
        if !report.verdict.runs() {
            return Err(Error::Refused(Box::new(report)));
        }
        Ok(Listed::new(self, report, None))
    }
}

impl Listed {
    /// What was planned first holds for every later load: the context does not change with the memory that is free then.
    fn new(mut source: Source, report: Report, loaded: Option<Loaded>) -> Listed {
        let context = report.plan.as_ref().map(|plan| plan.context);
        source.builder = context.into_iter().fold(source.builder, ModelBuilder::context_length);
        let model = std::sync::Mutex::new(loaded.as_ref().map(|loaded| loaded.model.clone()));
        let loaded = Arc::new(RwLock::new(loaded));
        let (failures, last_use) = (AtomicU64::new(0), AtomicU64::new(0));
        Listed { source, report, loaded, model, turn: Arc::default(), failures, last_use }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.source.names
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// The names of its adapters.
    pub(crate) fn adapters(&self) -> impl Iterator<Item = &String> {
        self.source.adapters.iter().map(|(name, _)| name)
    }

    /// All names by which requests may ask for it.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = &String> {
        self.source.all_names()
    }

    /// Tokens of a prompt and its answer together.
    pub(crate) fn context(&self) -> usize {
        self.report.plan.as_ref().map_or(0, |plan| plan.context)
    }

    fn not_loaded(&self) -> Refusal {
        let message = format!("the model {:?} cannot be loaded now; the log of the server says why", self.names()[0]);
        ApiError::new(503, message, None, Some("model_not_loaded")).into()
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.peek(|model| model.is_some())
    }

    fn planned(&self) -> u64 {
        self.report.plan.as_ref().map_or(0, |plan| plan.total)
    }

    /// What OpenAI's list of models says of it under the name `id`.
    fn entry(&self, id: &str) -> Value {
        let summary = self.report.model.as_ref();
        // In the words of llama.cpp's server.
        let says = summary.is_some_and(|model| !model.embeds.only).then_some("completion");
        let sees = summary.is_some_and(|model| model.vision.is_some()).then_some("multimodal");
        json!({
            "id": id, "object": "model", "created": 0, "owned_by": "model-factory", "context_length": self.context(),
            "capabilities": says.into_iter().chain(sees).collect::<Value>(),
            "status": { "value": if self.is_loaded() { "loaded" } else { "unloaded" } },
        })
    }

    /// What `of` makes of the model, if it is loaded.
    pub(crate) fn peek<T>(&self, of: impl FnOnce(Option<&Model>) -> T) -> T {
        of(self.model.lock().unwrap_or_else(PoisonError::into_inner).as_ref())
    }

    fn set_model(&self, model: Option<Model>) -> Option<Model> {
        std::mem::replace(&mut *self.model.lock().unwrap_or_else(PoisonError::into_inner), model)
    }

    /// Waits until nobody computes with it and its last prompts are on disk, and frees its memory. What it did with prompts on disk
    /// is added to `gone`.
    async fn let_go(&self, gone: &std::sync::Mutex<PromptCacheUsage>) {
        let Some(loaded) = self.loaded.write().await.take() else { return };
        let flush = move || {
            loaded.model.flush_prompt_cache(MOST_FLUSH);
            Ok(loaded.model.prompt_cache_usage())
        };
        let usage = blocking(flush).await.ok().flatten(); // nothing fails in it
        let model = {
            let mut gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
            *gone = usage.map_or(*gone, |usage| together(&gone, &usage));
            self.set_model(None)
        };
        let free = move || {
            drop(model);
            Ok(())
        };
        let _ = blocking(free).await; // nothing fails in it
    }
}

impl Models {
    /// The models `all`, at least one, each with names of its own.
    pub(crate) fn new(all: Vec<Listed>, memory: Option<u64>) -> Arc<Models> {
        let stages = watch::Sender::new(Stages::new(&all));
        Arc::new(Models {
            all: all.into_iter().map(Arc::new).collect(),
            memory,
            stages,
            loading: Mutex::default(),
            gone: std::sync::Mutex::default(),
            uses: AtomicU64::new(1),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listed> {
        self.all.iter().map(|listed| &**listed)
    }

    /// What `of` makes of each model that is loaded.
    pub(crate) fn loaded<T>(&self, mut of: impl FnMut(&Model) -> T) -> Vec<T> {
        self.all.iter().filter_map(|listed| listed.peek(|model| model.map(&mut of))).collect()
    }

    /// What was done with prompts on disk since the server began. All models have one folder: its bytes are as the last of them counted.
    pub(crate) fn prompt_cache_usage(&self) -> PromptCacheUsage {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        self.loaded(Model::prompt_cache_usage).iter().flatten().fold(*gone, |all, usage| together(&all, usage))
    }

    /// Waits for what was computed of prompts to be on disk, until `end` at most, and says whether it is.
    pub(crate) fn flush(&self, end: Instant) -> bool {
        let flush = |model: &Model| model.flush_prompt_cache(end.saturating_duration_since(Instant::now()));
        let done: Vec<bool> = self.loaded(Model::clone).iter().map(flush).collect();
        done.into_iter().all(|is_done| is_done)
    }

    /// The model that `asked` is a name of, that name, and which adapter it names if it does.
    ///
    /// # Errors
    /// For a name that is nothing's.
    pub(crate) fn find(&self, asked: Option<&str>) -> Result<(&Arc<Listed>, String, Option<usize>), Refusal> {
        let is_named = |asked: &str| self.all.iter().any(|listed| listed.all_names().any(|name| name == asked));
        // Ollama's clients add a tag where a name has none.
        let asked = asked.map(|asked| asked.strip_suffix(":latest").filter(|_| !is_named(asked)).unwrap_or(asked));
        for listed in &self.all {
            match asked {
                None => return Ok((listed, listed.names()[0].clone(), None)),
                Some(asked) if listed.names().iter().any(|name| name == asked) => {
                    return Ok((listed, asked.to_owned(), None));
                }
                Some(asked) => {
                    if let Some(index) = listed.adapters().position(|name| name == asked) {
                        return Ok((listed, asked.to_owned(), Some(index)));
                    }
                }
            }
        }
        let names: Vec<String> = self.iter().flat_map(Listed::names).map(|name| format!("{name:?}")).collect();
        let (verb, names) = (if names.len() == 1 { "is" } else { "are" }, names.join(", "));
        let message = format!("there is no model {:?}, there {verb} {names}", asked.unwrap_or_default());
        Err(ApiError::new(404, message, Some("model"), Some("model_not_found")).into())
    }

    /// The model that `asked` is a name of, loaded: where it is not, those that were used longest ago are let go until it fits.
    ///
    /// # Errors
    /// For a name that is nothing's, and for a model that cannot be loaded any more.
    pub(crate) async fn lease(self: &Arc<Models>, asked: Option<&str>) -> Result<Lease, Refusal> {
        let (listed, name, adapter) = self.find(asked)?;
        let failures = listed.failures.load(Ordering::Relaxed);
        let read = Arc::clone(&listed.loaded).read_owned().await;
        // The lock is free again before another one is waited for.
        let is_loaded = OwnedRwLockReadGuard::try_map(read, Option::as_ref).ok();
        let loaded = match is_loaded {
            Some(loaded) => loaded,
            None => self.loaded_in_turn(listed, failures).await?,
        };
        listed.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let adapter = adapter.and_then(|index| loaded.adapters.get(index));
        let named = adapter.map(|adapter| (adapter.clone(), 1.0)).into_iter().collect();
        Ok(Lease { loaded, name, named })
    }

    /// Waits for the turn to load `listed`, and loads it unless another request has, or has failed to since there were so many
    /// `failures`.
    async fn loaded_in_turn(self: &Arc<Models>, listed: &Arc<Listed>, failures: u64) -> Result<Read, Refusal> {
        let turn = Arc::clone(&listed.turn).lock_owned().await;
        let read = Arc::clone(&listed.loaded).read_owned().await;
        if let Ok(loaded) = OwnedRwLockReadGuard::try_map(read, Option::as_ref) {
            return Ok(loaded);
        }
        if listed.failures.load(Ordering::Relaxed) > failures {
            return Err(listed.not_loaded());
        }
        let (models, listed) = (Arc::clone(self), Arc::clone(listed));
        // It goes on if the client goes away, as what is half loaded cannot be counted.
        done(tokio::spawn(async move { models.load(&listed, turn).await })).await
    }

    async fn load(&self, listed: &Arc<Listed>, _turn: OwnedMutexGuard<()>) -> Result<Read, Refusal> {
        let gone = || ApiError::of(&Error::Internal("a model that was just loaded is gone".into()), "");
        let index = self.all.iter().position(|other| Arc::ptr_eq(other, listed)).ok_or_else(gone)?;
        let mut place = Arc::clone(&listed.loaded).write_owned().await;
        self.room(index).await;
        // Others are let go one by one, each once: requests may load them again meanwhile.
        let mut left = self.all.len();
        let loaded: Result<Loaded, Refusal> = loop {
            left -= 1;
            let (source, turn) = (Arc::clone(listed), self.loading.lock().await);
            let loaded = blocking(move || Ok(source.source.load())).await;
            drop(turn);
            match loaded {
                Ok(Err(error)) if left > 0 && is_memory(&error) && self.more_room(index).await => {}
                Ok(Err(error)) => {
                    tell(format_args!("{} could not be loaded: {error}", listed.names()[0]));
                    listed.failures.fetch_add(1, Ordering::Relaxed);
                    break Err(listed.not_loaded());
                }
                Ok(Ok(loaded)) => break Ok(loaded),
                Err(refusal) => break Err(refusal),
            }
        };
        let loaded = loaded.inspect_err(|_| self.settle(index, false))?;
        listed.set_model(Some(loaded.model.clone()));
        *place = Some(loaded);
        let read = OwnedRwLockReadGuard::try_map(place.downgrade(), Option::as_ref).map_err(|_| gone())?;
        self.settle(index, true);
        Ok(read)
    }

    /// All names, as OpenAI lists models.
    pub(crate) fn json(&self) -> impl Iterator<Item = Value> {
        self.iter().flat_map(|listed| {
            let own = listed.names().iter().map(|name| listed.entry(name));
            own.chain(listed.adapters().map(|name| {
                let mut entry = listed.entry(name);
                entry["parent"] = Value::from(&*listed.names()[0]);
                entry
            }))
        })
    }
}

/// The sums of what two models did; the bytes of the folder are as the later one counted them.
fn together(earlier: &PromptCacheUsage, later: &PromptCacheUsage) -> PromptCacheUsage {
    let mut both = *later;
    both.read += earlier.read;
    both.read_bytes += earlier.read_bytes;
    both.written += earlier.written;
    both.written_bytes += earlier.written_bytes;
    both.dropped += earlier.dropped;
    both.damaged += earlier.damaged;
    both
}

fn is_memory(error: &Error) -> bool {
    matches!(error, Error::Refused(report) if report.verdict == Verdict::DoesNotFit)
        || error.kind() == ErrorKind::OutOfMemory
}
