//! `fixtures/adapters`: adapters for other fixtures, and what transformers with PEFT makes of them.

use super::{Greedy, archives};
use model_factory::diagnostics::spec::Module;
use model_factory::{Adapter, Model};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const TENSORS: &str = "adapter_model.safetensors";

/// An archive of adapters.
pub(crate) struct Adapters {
    pub(crate) folder: PathBuf,
    pub(crate) expected: Expected,
    truth: Vec<u8>,
}

/// `expected.json`, which `fixtures/make/adapters.py` writes.
#[derive(Deserialize)]
pub(crate) struct Expected {
    /// The fixture that they are for.
    pub(crate) base: String,
    pub(crate) tokens: Vec<u32>,
    /// Tokens of its tokenizer; a GGUF file may have more rows.
    pub(crate) vocab: usize,
    /// Every so many rows, and of these every so many logits, have a truth.
    pub(crate) kept: [usize; 2],
    /// Adapters that are used together, each by a factor.
    pub(crate) uses: BTreeMap<String, Vec<(String, f64)>>,
    /// By dtype and use.
    pub(crate) transformers_error: BTreeMap<String, BTreeMap<String, f64>>,
    #[serde(default)]
    pub(crate) llama_cpp_error: BTreeMap<String, f64>,
    pub(crate) greedy: Greedy,
}

/// All of them.
pub(crate) fn all() -> Vec<Adapters> {
    let mut names: Vec<String> = archives::names_in("adapters").collect();
    names.sort();
    assert!(names.len() >= 5, "only {names:?}");
    names.iter().map(|name| named(name)).collect()
}

/// Those for the fixture `name`.
pub(crate) fn named(name: &str) -> Adapters {
    let folder = archives::extracted("adapters", name, |folder| {
        for adapter in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if let Ok(stored) = fs::read(adapter.join(TENSORS)) {
                for (dtype, end) in [(Dtype::F32, "f32"), (Dtype::F16, "f16")] {
                    write_as(&adapter, &stored, dtype, &adapter.with_extension(end));
                }
            }
        }
    });
    let text = fs::read(folder.join("expected.json")).expect("expected.json");
    let expected = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let truth = fs::read(folder.join("expected.safetensors")).expect("expected.safetensors");
    Adapters { folder, expected, truth }
}

/// The adapter of BF16 in a folder, in another dtype in another folder.
fn write_as(adapter: &Path, stored: &[u8], dtype: Dtype, folder: &Path) {
    fs::create_dir(folder).expect("a folder");
    fs::copy(adapter.join("adapter_config.json"), folder.join("adapter_config.json")).expect("keys are copied");
    let stored = SafeTensors::deserialize(stored).expect("sound tensors");
    archives::write_as(&folder.join(TENSORS), &stored, Dtype::BF16, dtype);
}

impl Adapters {
    /// The model that they are for, in this dtype.
    pub(crate) fn base(&self, dtype: &str) -> PathBuf {
        archives::path(&format!("{}/{dtype}", self.expected.base))
    }

    /// The path of an adapter in this dtype.
    pub(crate) fn path(&self, name: &str, dtype: &str) -> PathBuf {
        self.folder.join(if dtype == "bf16" { name.to_owned() } else { format!("{name}.{dtype}") })
    }

    /// The adapters that are used together, in this dtype, loaded for `model`.
    pub(crate) fn used(&self, model: &Model, uses: &str, dtype: &str) -> Vec<(Adapter, f64)> {
        let each = self.expected.uses[uses].iter().map(|(name, scale)| {
            let path = self.path(name, dtype);
            let adapter = model.load_adapter(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (adapter, *scale)
        });
        each.collect()
    }

    /// The rows of logits that `name` has.
    pub(crate) fn truth(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.truth).expect("expected.safetensors is valid");
        let tensor = tensors.tensor(name).expect("the case has a truth");
        tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

/// The two matrices of a linear layer, in order of rows.
#[allow(dead_code)] // not in every test
pub(crate) struct Pair {
    pub(crate) layer: String,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    /// Whether its weight is stored `[inputs, outputs]`.
    pub(crate) by_inputs: bool,
    /// `[rank, inputs]`.
    pub(crate) a: Vec<f32>,
    /// `[outputs, rank]`.
    pub(crate) b: Vec<f32>,
}

/// What multiplies the products of an adapter of [`write`].
#[allow(dead_code)] // not in every test
pub(crate) const SCALE: f64 = 2.0;

/// Writes an adapter of `rank` in F32 for every linear layer of `model`, a folder of safetensors, whose name `takes` accepts, into `folder`: a
/// few levels, which follow from their place.
#[allow(dead_code)] // not in every test
pub(crate) fn write(model: &Model, rank: usize, folder: &Path, takes: impl Fn(&str) -> bool) -> Vec<Pair> {
    let mut shapes: BTreeMap<&str, (usize, usize, bool)> = BTreeMap::new();
    for matrix in model.spec().weights.matrices() {
        // PEFT gives no adapter to experts that lie in one tensor.
        let alone = |module: &&Module| module.experts == 1 && takes(&module.name);
        if let Some(module) = matrix.module.as_ref().filter(alone) {
            shapes.insert(&module.name, (module.total as usize, matrix.inputs(), matrix.transposed));
        }
    }
    let numbers = |place: usize, count: usize| {
        (0..count).map(|index| (((index * 7919 + place * 104_729) % 61) as f32 - 30.0) / 256.0).collect::<Vec<f32>>()
    };
    let pairs: Vec<Pair> = shapes
        .into_iter()
        .enumerate()
        .map(|(place, (layer, (outputs, inputs, by_inputs)))| {
            let (a, b) = (numbers(2 * place, rank * inputs), numbers(2 * place + 1, outputs * rank));
            Pair { layer: layer.to_owned(), outputs, inputs, by_inputs, a, b }
        })
        .collect();
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let sides: Vec<(String, Vec<usize>, Vec<u8>)> = pairs
        .iter()
        .flat_map(|Pair { layer, outputs, inputs, a, b, .. }| {
            let name = |side: &str| format!("base_model.model.{layer}.lora_{side}.weight");
            [(name("A"), vec![rank, *inputs], bytes(a)), (name("B"), vec![*outputs, rank], bytes(b))]
        })
        .collect();
    let view = |shape: &Vec<usize>, bytes| TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor");
    let views = sides.iter().map(|(name, shape, bytes)| (name, view(shape, bytes)));
    safetensors::serialize_to_file(views, None, &folder.join(TENSORS)).expect("tensors are written");
    let keys = serde_json::json!({
        "peft_type": "LORA", "r": rank, "lora_alpha": SCALE * rank as f64, "target_modules": "all-linear",
    });
    fs::write(folder.join("adapter_config.json"), keys.to_string()).expect("keys are written");
    pairs
}
