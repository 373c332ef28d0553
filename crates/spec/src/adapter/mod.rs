//! An adapter's files -> what it adds to the products of which matrices, checked against the model.
//!
//! LoRA (arXiv 2106.09685): a linear layer with the weight `W` gives `W x + scale * B (A x)`. Two formats have it: the
//! folders of PEFT, for models of safetensors, and GGUF files of llama.cpp's converter, for GGUF models.

mod gguf;
mod pattern;
mod peft;

use crate::error::{Error, IncompleteKind, Result};
use crate::header::{TensorInfo, TensorTable};
use crate::source::{Format, ModelSource, SourceFile, open};
use crate::spec::{LayerWeights, LinearWeights, ModelSpec, Module, nearest_names};
use model_factory_dtypes::DType;
use std::collections::BTreeMap;
use std::path::Path;

/// An adapter for a model. Every tensor in it exists and has the shape that the model's matrix asks for.
#[derive(Clone, Debug)]
pub struct AdapterSpec {
    /// Its files: the one with the tensors, and after it those that say how they are scaled.
    pub source: ModelSource,
    /// The name of the model that it was made for, where it says one.
    pub base: Option<String>,
    /// What it adds, in the order of the model's matrices, each of which is there once at most.
    pub changes: Vec<LowRank>,
}

/// What is added to the products of a matrix: `scale * B (A x)`.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// The matrix, as its place in [`ModelWeights::matrices`](crate::spec::ModelWeights::matrices).
    pub matrix: usize,
    /// `A`, `[rank, inputs]`; of a matrix of several experts one after the other.
    pub a: TensorInfo,
    /// The rows of `B` that are the matrix's, `[outputs, rank]`.
    pub b: TensorInfo,
    /// The rank.
    pub rank: usize,
    /// The factor of the products.
    pub scale: f64,
}

impl AdapterSpec {
    /// Reads the adapter at `path`, a folder of PEFT or a GGUF file, for `model`, whose files are of `format`.
    ///
    /// # Errors
    /// `Io`; `Format` for files that are malformed and keys that are missing or of the wrong type; `Architecture` for
    /// what adapters may ask for that is not computed; `Incomplete` for tensors that are not those of the model's linear layers.
    pub fn read(path: &Path, model: &ModelSpec, format: Format) -> Result<AdapterSpec> {
        let is_folder = std::fs::metadata(path).map_err(|error| Error::io(path, error))?.is_dir();
        let is_of_folder = path.file_name().is_some_and(|name| name == peft::CONFIG || name == peft::TENSORS);
        let folder = match (is_folder, is_of_folder) {
            (true, _) => Some(path),
            (false, true) => {
                Some(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
            }
            (false, false) => None,
        };
        let contradiction = |one: &str, other: &str| Err(Error::contradiction(path, one, other));
        let adapter = match (format, folder) {
            (Format::Safetensors, Some(folder)) => peft::read(folder, model)?,
            (Format::Gguf, None) => gguf::read(path, model)?,
            (Format::Gguf, Some(_)) => {
                let other = "the model is GGUF, whose rows may lie in another order: convert it by convert_lora_to_gguf.py of llama.cpp";
                return contradiction("the adapter is a folder of PEFT", other);
            }
            (Format::Safetensors, None) => {
                let other = "the model is safetensors: give the folder with its adapter_config.json";
                return contradiction("the adapter is no folder of PEFT", other);
            }
        };
        adapter.matched(model)
    }

    /// Bytes of its tensors.
    pub fn bytes(&self) -> u64 {
        let tensors = self.changes.iter().flat_map(|change| [&change.a, &change.b]);
        let each: BTreeMap<(u64, u64), u64> =
            tensors.map(|tensor| ((tensor.offset, tensor.bytes), tensor.bytes)).collect();
        each.values().sum()
    }
}

/// An adapter's files as they are, before they are compared with a model.
struct Stored {
    source: ModelSource,
    base: Option<String>,
    /// By the name of the linear layer.
    pairs: BTreeMap<String, Pair>,
}

/// The two matrices of a linear layer.
struct Pair {
    a: TensorInfo,
    b: TensorInfo,
    /// The rank, where keys say it.
    rank: Option<u64>,
    scale: f64,
}

impl Stored {
    /// Compares every pair with the linear layer of `model` that it is for.
    fn matched(self, model: &ModelSpec) -> Result<AdapterSpec> {
        let mut layers: BTreeMap<&str, Vec<(usize, &LinearWeights, &Module)>> = BTreeMap::new();
        for (index, matrix) in model.weights.matrices().enumerate() {
            if let Some(module) = &matrix.module {
                layers.entry(within_model(&module.name)).or_default().push((index, matrix, module));
            }
        }
        let Stored { source, base, pairs } = self;
        let file = source.files[0].path.clone();
        let mut changes = Vec::new();
        for (name, pair) in pairs {
            let Some(matrices) = layers.get(within_model(&name)) else {
                if is_of_an_expert(&name) && has_experts_in_one(model) {
                    let one = format!("tensor {} is for one expert", pair.a.name);
                    let other = "the model stores all experts of a layer in one tensor, to which nothing is added: use the adapter \
                                 with a base that stores each expert, or merge it into its own";
                    return Err(Error::contradiction(&file, one, other));
                }
                let names: Vec<String> = layers.keys().map(|name| (*name).to_owned()).collect();
                let kind = IncompleteKind::NoSuchLayer {
                    tensor: pair.a.name,
                    nearest: nearest_names(&name, names.iter()),
                    module: name,
                };
                return Err(Error::incomplete(&file, kind));
            };
            pair.check(&file, matrices)?;
            for (index, matrix, module) in matrices {
                let rows = matrix.outputs() as u64;
                let row_bytes = pair.b.bytes / module.total.max(1);
                let b = TensorInfo {
                    shape: vec![rows, pair.rank()],
                    offset: pair.b.offset + module.before * row_bytes,
                    bytes: rows * row_bytes,
                    ..pair.b.clone()
                };
                let (rank, inputs) = (pair.rank(), matrix.inputs() as u64);
                let a = TensorInfo { shape: vec![module.experts * rank, inputs], ..pair.a.clone() };
                changes.push(LowRank { matrix: *index, a, b, rank: rank as usize, scale: pair.scale });
            }
        }
        changes.sort_by_key(|change| change.matrix);
        // Names may differ in what they begin with and be of one layer.
        if let Some([one, other]) = changes.array_windows().find(|[one, other]| one.matrix == other.matrix) {
            let [one, other] = [one, other].map(|change| format!("tensor {} is stored", change.a.name));
            return Err(Error::contradiction(&file, one, format!("{other} for the same layer")));
        }
        Ok(AdapterSpec { source, base, changes })
    }
}

impl Pair {
    /// The rank that is stored, once the shapes are checked.
    fn rank(&self) -> u64 {
        self.b.shape.last().copied().unwrap_or(1)
    }

    /// Checks dtypes and shapes against the matrices that are the rows of a linear layer.
    fn check(&self, file: &Path, matrices: &[(usize, &LinearWeights, &Module)]) -> Result<()> {
        let Some((_, matrix, module)) = matrices.first() else { return Ok(()) };
        for tensor in [&self.a, &self.b] {
            if !matches!(tensor.dtype, DType::F32 | DType::F16 | DType::BF16) {
                let (name, found) = (tensor.name.clone(), tensor.dtype);
                let kind = IncompleteKind::TensorDType { name, found, expected: "F32, F16 or BF16 (adapters)" };
                return Err(Error::incomplete(file, kind));
            }
        }
        let stored = self.a.shape.len().checked_sub(2).map(|side| self.a.shape[side]);
        let rank = self.rank.or(stored).filter(|rank| *rank > 0).unwrap_or(1);
        // Of experts that lie in one tensor all have theirs in one too.
        let experts = Some(module.experts).filter(|experts| *experts > 1);
        let of_all = |sides: [u64; 2]| experts.into_iter().chain(sides).collect::<Vec<u64>>();
        let sides = [[rank, matrix.inputs() as u64], [module.total / module.experts.max(1), rank]];
        for (tensor, expected) in [&self.a, &self.b].into_iter().zip(sides.map(of_all)) {
            if tensor.shape != expected {
                let (name, found) = (tensor.name.clone(), tensor.shape.clone());
                let because = format!("{} of the model, and a rank of {rank}", module.name);
                let kind = IncompleteKind::TensorShape { name, found, expected, because };
                return Err(Error::incomplete(file, kind));
            }
        }
        Ok(())
    }
}

/// Whether a layer is one of a numbered expert.
fn is_of_an_expert(name: &str) -> bool {
    name.split_once(".experts.").is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a layer of the model has experts that are no linear layers of their own.
fn has_experts_in_one(model: &ModelSpec) -> bool {
    let mut experts = model.weights.layers.iter().filter_map(LayerWeights::experts);
    experts.any(|experts| experts.up.stored.iter().any(|matrix| matrix.module.is_none()))
}

/// What a file says, for people.
fn shortened(text: &str) -> String {
    crate::error::escaped(&text.chars().take(200).collect::<String>())
}

/// `scale`, which `key` gives by `alpha`, where float32 holds it.
fn finite(file: &Path, key: &str, alpha: f64, scale: f64) -> Result<f64> {
    let expected = "a number that divided by the rank is a finite float32";
    if (scale as f32).is_finite() {
        Ok(scale)
    } else {
        Err(Error::key_value(file, key, format!("{alpha:e}"), expected))
    }
}

/// The name of a layer within the language model or encoder, whatever classes are around that: files and PEFT name a model that also
/// sees in several ways, and an encoder with a head otherwise than without one. Names of other parts stay different.
fn within_model(name: &str) -> &str {
    #[rustfmt::skip]
    let fronts = [
        "model.language_model.model.", "model.language_model.", "language_model.model.", "language_model.", "model.",
        "bert.", "deberta.", "distilbert.", "mpnet.", "new.", "nomic_bert.", "roberta.",
    ];
    fronts.iter().find_map(|front| name.strip_prefix(front)).unwrap_or(name)
}

/// The pairs of `tensors`: `side` says of a name which layer and which side of it that is; `pair` completes them.
///
/// # Errors
/// Those of `side`; `Incomplete` where one of a pair is missing.
fn pairs(
    file: &Path,
    tensors: TensorTable,
    side: impl Fn(&str) -> Result<(String, bool)>,
    ends: [&str; 2],
    pair: impl Fn(&str, [TensorInfo; 2]) -> Result<Pair>,
) -> Result<BTreeMap<String, Pair>> {
    let mut both: BTreeMap<String, [Option<TensorInfo>; 2]> = BTreeMap::new();
    for (name, tensor) in tensors {
        let (module, is_b) = side(&name)?;
        both.entry(module).or_default()[usize::from(is_b)] = Some(tensor);
    }
    let complete = |(module, sides): (String, [Option<TensorInfo>; 2])| match sides {
        [Some(a), Some(b)] => pair(&module, [a, b]).map(|pair| (module, pair)),
        [a, b] => {
            let (there, [end, missing]) = if a.is_some() { (a, ends) } else { (b, [ends[1], ends[0]]) };
            let there = there.map(|tensor| tensor.name).unwrap_or_default();
            let name = there.strip_suffix(end).map_or(there.clone(), |front| format!("{front}{missing}"));
            Err(Error::incomplete(file, IncompleteKind::TensorMissing { name, nearest: vec![there] }))
        }
    };
    both.into_iter().map(complete).collect()
}

/// The source of an adapter whose tensors are in `file`, of `bytes`, and whose `keys` may be in another one.
fn source(path: &Path, format: Format, file: &Path, bytes: u64, keys: Option<SourceFile>) -> ModelSource {
    let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
    let files = std::iter::once(SourceFile { path: file.into(), bytes }).chain(keys).collect();
    ModelSource { path: path.into(), format, folder, files, index: None, projector: None, notes: Vec::new() }
}
