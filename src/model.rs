//! A loaded model: shared weights, and the report of what was loaded.

use crate::adapter::AdapterRoom;
use crate::cpu::CpuDevice;
use crate::decoder::{Compute, Decoder, Tower};
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::generate::KeptLogProbs;
use crate::grammar::{GRAMMAR_MEMORY, Grammar};
use crate::predictor::Predictor;
use crate::prompt_cache::PromptCache;
use crate::scheduler::Scheduler;
use crate::tokenizer::Tokenizer;
use model_factory_diagnostics::Report;
use model_factory_diagnostics::source::Format;
use model_factory_diagnostics::spec::ModelSpec;
use std::sync::Arc;
use std::time::Duration;

// The plan has to count exactly what grammars may take.
const _: () = assert!(GRAMMAR_MEMORY == model_factory_diagnostics::plan::GRAMMAR_MEMORY);

/// A loaded model, and the place to start reading. [`UnifiedModelFactory::load`](crate::UnifiedModelFactory::load) makes one,
/// [`generate`](Model::generate) continues a text,
/// ids or a conversation, and [`session`](Model::session) is a sequence that can be continued.
///
/// ```
/// use model_factory::{GenerateOptions, UnifiedModelFactory};
///
/// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
/// let text = model.generate("Once upon a time", &GenerateOptions::default().max_tokens(20))?.text()?;
/// assert!(!text.is_empty());
/// # Ok::<(), model_factory::Error>(())
/// ```
///
/// Clones share the weights; every [`Session`](crate::Session) is a sequence of its own.
///
/// Sessions that compute at the same time, on whatever threads, do it together: each pass over the weights takes the next
/// token of every sequence that generates, and fills up with chunks of prompts: half of the room for the prompt that waits
/// longest, the rest for short ones first. Eight generations take little longer than one, each waits for no more than
/// a chunk of another's prompt, and no bit of its logits depends on the other requests.
#[derive(Clone)]
pub struct Model {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) spec: ModelSpec,
    /// That of its files.
    pub(crate) format: Format,
    pub(crate) report: Report,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) engine: LoadedEngine,
    pub(crate) scheduler: Arc<Scheduler>,
    #[cfg(feature = "async")]
    pub(crate) streams: crate::scheduler::streams::Streams,
    pub(crate) context_length: usize,
    pub(crate) threads: usize,
    /// The store of its prompts on disk, which is complete when this is dropped.
    pub(crate) prompt_cache: Option<PromptCache>,
    pub(crate) load_time: Duration,
    pub(crate) draft: Option<Model>,
    /// The memory for adapters.
    pub(crate) adapter_room: AdapterRoom,
    /// The log-probabilities of the last prompts for which they were asked.
    pub(crate) prompt_logprobs: Arc<KeptLogProbs>,
    /// The rows of the images that were computed last.
    #[cfg(feature = "images")]
    pub(crate) image_cache: crate::pictures::ImageCache,
}

/// The weights of a model on a device.
pub(crate) struct LoadedEngine {
    pub(crate) decoder: DeviceDecoder,
    /// The fingerprint of the weights, for a model on the processor.
    pub(crate) fingerprint: Option<Arc<Fingerprint>>,
    /// The model's prediction head, where it was loaded ([`ModelBuilder::mtp`](crate::ModelBuilder::mtp)).
    pub(crate) predictor: Option<Predictor>,
    /// The model's tower, where it was loaded ([`ModelBuilder::vision`](crate::ModelBuilder::vision)).
    pub(crate) tower: Option<Tower<CpuDevice>>,
}

impl LoadedEngine {
    /// The engine of a device that neither saves sessions nor has a prediction head or a tower.
    #[cfg(feature = "cuda")]
    pub(crate) fn new(decoder: DeviceDecoder) -> LoadedEngine {
        LoadedEngine { decoder, fingerprint: None, predictor: None, tower: None }
    }
}

impl Inner {
    /// A model with a scheduler of its own, which refuses what does not fit, and without a draft model.
    pub(crate) fn new(
        spec: ModelSpec,
        format: Format,
        report: Report,
        tokenizer: Arc<Tokenizer>,
        engine: LoadedEngine,
    ) -> Inner {
        Inner {
            spec,
            format,
            report,
            tokenizer,
            engine,
            scheduler: Arc::default(),
            #[cfg(feature = "async")]
            streams: crate::scheduler::streams::Streams::default(),
            context_length: 0,
            threads: 0,
            prompt_cache: None,
            load_time: Duration::ZERO,
            draft: None,
            adapter_room: AdapterRoom::default(),
            prompt_logprobs: Arc::default(),
            #[cfg(feature = "images")]
            image_cache: crate::pictures::ImageCache::default(),
        }
    }
}

/// What computes a model, by its device.
#[allow(clippy::large_enum_variant)] // there is one for each model
pub(crate) enum DeviceDecoder {
    Cpu(Decoder<CpuDevice>),
    #[cfg(feature = "cuda")]
    Cuda(Decoder<crate::cuda::CudaDevice>),
    /// A decoder for tests of devices.
    #[cfg(feature = "cuda")]
    Other(Box<dyn Compute>),
}

impl Model {
    pub(crate) fn new(inner: Inner) -> Model {
        Model { inner: Arc::new(inner) }
    }

    /// What makes rows of the language model of images, where it was loaded ([`ModelBuilder::vision`](crate::ModelBuilder::vision)).
    #[doc(hidden)]
    pub fn tower(&self) -> Option<&Tower<CpuDevice>> {
        self.inner.engine.tower.as_ref()
    }

    /// The diagnosis that this model was loaded by.
    pub fn report(&self) -> &Report {
        &self.inner.report
    }

    /// Sizes, options and tensors. Unstable: what a spec is made of may change in any version.
    pub fn spec(&self) -> &ModelSpec {
        &self.inner.spec
    }

    /// The tokenizer: the model's own, or the one that was given.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.inner.tokenizer
    }

    /// Compiles `grammar` ahead of the first request, with the trie of the vocabulary, which all grammars share. The model
    /// keeps the 32 that were used last.
    ///
    /// # Errors
    /// `Grammar`, with the place, for one that is malformed, impossible, unsupported or too large.
    pub fn compile_grammar(&self, grammar: &Grammar) -> Result<()> {
        Ok(self.tokenizer().grammars()?.prepare(grammar)?)
    }

    /// The draft model that was loaded with this model ([`ModelBuilder::draft`](crate::ModelBuilder::draft)).
    pub fn draft(&self) -> Option<&Model> {
        self.inner.draft.as_ref()
    }

    /// Whether both are the same loaded model.
    pub(crate) fn is(&self, other: &Model) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Tokens a session can hold.
    pub fn context_length(&self) -> usize {
        self.inner.context_length
    }

    /// How long loading took, diagnosis included.
    pub fn load_time(&self) -> Duration {
        self.inner.load_time
    }

    /// The number of threads that the model computes with.
    pub fn threads(&self) -> usize {
        self.inner.threads
    }

    /// The processor's computation itself, for tools that look at the weights; `None` for a model on a GPU.
    #[doc(hidden)] // its types are hidden too
    pub fn decoder(&self) -> Option<&Decoder<CpuDevice>> {
        match &self.inner.engine.decoder {
            DeviceDecoder::Cpu(decoder) => Some(decoder),
            #[cfg(feature = "cuda")]
            DeviceDecoder::Cuda(_) | DeviceDecoder::Other(_) => None,
        }
    }

    /// The GPU, for tools that look at its memory; `None` for a model on the processor.
    #[cfg(feature = "cuda")]
    pub fn cuda(&self) -> Option<&crate::cuda::CudaDevice> {
        match &self.inner.engine.decoder {
            DeviceDecoder::Cpu(_) | DeviceDecoder::Other(_) => None,
            DeviceDecoder::Cuda(decoder) => Some(decoder.device()),
        }
    }

    /// This model, computed by another decoder, for the tests of devices.
    #[cfg(feature = "cuda")]
    #[doc(hidden)]
    pub fn with_compute(&self, compute: Box<dyn Compute>) -> Model {
        let Inner { spec, format, report, tokenizer, context_length, threads, load_time, .. } = &*self.inner;
        let (context_length, threads, load_time) = (*context_length, *threads, *load_time);
        let engine = LoadedEngine::new(DeviceDecoder::Other(compute));
        let inner = Inner::new(spec.clone(), *format, report.clone(), Arc::clone(tokenizer), engine);
        Model::new(Inner { context_length, threads, load_time, ..inner })
    }

    pub(crate) fn compute(&self) -> &dyn Compute {
        match &self.inner.engine.decoder {
            DeviceDecoder::Cpu(decoder) => decoder,
            #[cfg(feature = "cuda")]
            DeviceDecoder::Cuda(decoder) => decoder,
            #[cfg(feature = "cuda")]
            DeviceDecoder::Other(compute) => &**compute,
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Model({}, {})", self.inner.spec.variant, self.inner.spec.quantization)
    }
}
