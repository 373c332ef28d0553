//! Path -> Model: the whole pipeline, once, with no branch per family or dtype.

use crate::compute::Compute;
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::kernels::Isa;
use crate::linear::Engine;
use crate::model::{Inner, Model};
use crate::threads::Pool;
use crate::tokenizer::Tokenizer;
use crate::weights::Weights;
use model_diagnostics::family::{Family, REGISTRY};
use model_diagnostics::plan::KvDtype;
use model_diagnostics::{DeviceChoice, Diagnosis, DtypePolicy, Hardware, Policy, Report, diagnose_with};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Loads whatever lies at a path, in the dtypes it is stored in, or refuses with a report.
#[derive(Clone, Copy, Debug)]
pub struct UnifiedModelFactory;

impl UnifiedModelFactory {
    /// Loads the model at `path`: a `.gguf` or `.safetensors` file, a `config.json`, an index, or a folder.
    ///
    /// # Errors
    /// [`Error::Refused`] with the report when the model is not recognised, not complete, needs a cast or does not fit;
    /// no weight byte has been read then.
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        Self::builder().load(path)
    }

    /// Everything [`load`](Self::load) does short of weights: what the model is, and whether it runs here.
    pub fn diagnose(path: impl AsRef<Path>) -> Report {
        Self::builder().diagnose(path)
    }

    /// Loading with options.
    pub fn builder() -> Builder {
        Builder { policy: Policy::default(), threads: None, isa: None, families: REGISTRY.to_vec() }
    }
}

/// More threads than any machine has that one model is shared by. Starting tens of thousands aborts a process.
pub const MAX_THREADS: usize = 1024;

/// Options of a load; every one has a sensible value when it is not given.
#[derive(Clone, Debug)]
pub struct Builder {
    policy: Policy,
    threads: Option<usize>,
    isa: Option<Isa>,
    families: Vec<&'static Family>,
}

impl Builder {
    /// Where to run; by default the best device that can.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.policy.device = device;
        self
    }

    /// Tokens a session can hold, at least 1; by default the most that fit, up to what the model was trained for.
    pub fn context_length(mut self, tokens: usize) -> Self {
        self.policy.context = Some(tokens);
        self
    }

    /// Bytes the plan may use; by default what the machine has available.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.policy.memory_limit = Some(bytes);
        self
    }

    /// A `tokenizer.json` in place of the model's own, which need not have one then. Ids are the model's: its stop
    /// tokens and its template stay, and its BOS is found in the file by its text.
    pub fn tokenizer(mut self, path: impl Into<PathBuf>) -> Self {
        self.policy.tokenizer = Some(path.into());
        self
    }

    /// The element type of the KV cache; F32 by default, which rounds nothing.
    pub fn kv_cache(mut self, dtype: KvDtype) -> Self {
        self.policy.kv_dtype = dtype;
        self
    }

    /// Which tiers are good enough; by default loss-free widening inside a register is.
    pub fn dtype_policy(mut self, policy: DtypePolicy) -> Self {
        self.policy.dtypes = policy;
        self
    }

    /// Threads to compute with, 1 to [`MAX_THREADS`]; by default all that this process may use.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Instruction sets kernels may use; by default all that the processor has.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.isa = Some(isa);
        self
    }

    /// The families to recognise; by default [`REGISTRY`].
    pub fn families(mut self, families: &[&'static Family]) -> Self {
        self.families = families.to_vec();
        self
    }

    /// Tells what `path` holds and whether it runs, without reading a weight.
    pub fn diagnose(&self, path: impl AsRef<Path>) -> Report {
        self.diagnosis(path.as_ref()).report
    }

    /// Loads the model at `path`.
    ///
    /// # Errors
    /// As [`UnifiedModelFactory::load`]; [`Error::Option`] when the context or the number of threads is out of its range.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Model> {
        let start = Instant::now();
        self.check()?;
        let Diagnosis { report, ready, .. } = self.diagnosis(path.as_ref());
        let (Some((header, spec)), Some(plan)) = (ready, &report.plan) else {
            return Err(Error::Refused(Box::new(report)));
        };
        let context_length = plan.context;
        let pool = Arc::new(Pool::new(self.threads.unwrap_or(report.hardware.cpu.threads)));
        let threads = pool.threads();
        // The tokenizer takes longest, so it is built beside everything else.
        let (tokenizer, compute) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| match &self.policy.tokenizer {
                Some(given) => Tokenizer::from_json(given, &spec.tokenizer),
                None => Tokenizer::from_header(&header, &spec.tokenizer),
            });
            let compute = self.compute(&header, &spec, &report, pool);
            let tokenizer = tokenizer.join();
            (tokenizer, compute)
        });
        // The library that builds it is not ours, and what it is given comes from a file.
        let tokenizer = tokenizer.map_err(|_| Error::Tokenizer {
            file: header.source.path.clone(),
            reason: "building it panicked".into(),
        })??;
        let (tokenizer, compute) = (Arc::new(tokenizer), compute?);
        let load_time = start.elapsed();
        Ok(Model::new(Inner { spec, report, tokenizer, compute, context_length, threads, load_time }))
    }

    /// Whether the numbers that were given can be meant.
    fn check(&self) -> Result<()> {
        let wrong = |option, value: usize, expected| Err(Error::Option { option, value: value as f64, expected });
        match (self.policy.context, self.threads) {
            (Some(0), _) => wrong("context_length", 0, "at least 1"),
            (_, Some(threads)) if !(1..=MAX_THREADS).contains(&threads) => wrong("threads", threads, "1 to 1024"),
            _ => Ok(()),
        }
    }

    /// Attaches the weights to the device that the report chose.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] // without a card's engine the report chooses none
    fn compute(
        &self,
        header: &model_diagnostics::header::Header,
        spec: &model_diagnostics::spec::ModelSpec,
        report: &Report,
        pool: Arc<Pool>,
    ) -> Result<Compute> {
        let weights = Weights::map(&header.source)?;
        #[cfg(feature = "cuda")]
        if let (Ok(DeviceChoice::Cuda(index)), Some(plan)) = (report.device.parse(), &report.plan) {
            let card = report.hardware.gpus.get(index);
            let decoder =
                crate::cuda::Decoder::on_card(spec, &weights, self.policy.kv_dtype, plan.context, card, index)?;
            return Ok(Compute::Cuda(Box::new(decoder)));
        }
        let isa = self.isa.unwrap_or_else(Isa::detect);
        let decoder = Decoder::new(spec, &weights, Engine { isa, pool }, self.policy.kv_dtype)?;
        Ok(Compute::Cpu(Box::new(decoder)))
    }

    fn diagnosis(&self, path: &Path) -> Diagnosis {
        diagnose_with(&self.families, path, &self.hardware(), &self.policy)
    }

    /// The machine, with the instruction sets that kernels are held to.
    fn hardware(&self) -> Hardware {
        let mut hardware = Hardware::detect();
        if cfg!(feature = "cuda") {
            hardware.build.push("cuda");
        }
        if let Some(isa) = self.isa {
            hardware.cpu.features.retain(|feature| isa.features().contains(feature));
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
            (builder().threads(0), "threads is 0, expected 1 to 1024".into()),
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
