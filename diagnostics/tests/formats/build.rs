//! Writers of small GGUF and safetensors files, sound by default, with every part open to damage.

use model_factory_diagnostics::DType;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// ggml type ids used here.
pub const F32: u32 = 0;
#[allow(dead_code)] // not every test that has this file uses it
pub const F16: u32 = 1;
pub const Q4_0: u32 = 2;
pub const Q4_K: u32 = 12;

/// Value type ids used here.
pub const U8: u32 = 0;
pub const U16: u32 = 2;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32_VALUE: u32 = 6;
pub const BOOL: u32 = 7;
pub const TEXT: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;
pub const I64: u32 = 11;
pub const F64: u32 = 12;

/// A GGUF string.
pub fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = text.as_ref();
    [(bytes.len() as u64).to_le_bytes().as_slice(), bytes].concat()
}

/// A GGUF array of `count` elements of type `kind` that are the bytes `elements`.
pub fn array(kind: u32, count: u64, elements: impl AsRef<[u8]>) -> Vec<u8> {
    [kind.to_le_bytes().as_slice(), &count.to_le_bytes(), elements.as_ref()].concat()
}

/// A GGUF file under construction.
#[derive(Clone)]
pub struct Gguf {
    pub magic: [u8; 4],
    pub version: u32,
    pub pairs: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub pair_count: Option<u64>,
    pub tensor_count: Option<u64>,
    pub alignment: u64,
    pub data: u64,
    pub tail: Vec<u8>,
}

impl Gguf {
    /// No keys and no tensors.
    pub fn empty() -> Self {
        Gguf {
            magic: *b"GGUF",
            version: 3,
            pairs: Vec::new(),
            tensors: Vec::new(),
            pair_count: None,
            tensor_count: None,
            alignment: 32,
            data: 0,
            tail: Vec::new(),
        }
    }

    /// A key or two of each type and three tensors.
    pub fn sample() -> Self {
        Gguf::empty()
            .text("general.architecture", "llama")
            .text("general.name", "sample")
            .u32("llama.block_count", 2)
            .pair("llama.rope.freq_base", F32_VALUE, 10_000_f32.to_le_bytes())
            .pair("llama.f64", F64, 0.5_f64.to_le_bytes())
            .pair("llama.i64", I64, (-7_i64).to_le_bytes())
            .pair("llama.u64", U64, u64::MAX.to_le_bytes())
            .pair("llama.u8", U8, [200])
            .pair("llama.i32", I32, 12_i32.to_le_bytes())
            .pair("llama.flag", BOOL, [1])
            .pair(
                "tokenizer.ggml.tokens",
                ARRAY,
                array(TEXT, 3, [string("a"), string(""), string(b"\xff\xfe")].concat()),
            )
            .pair(
                "tokenizer.ggml.scores",
                ARRAY,
                array(F32_VALUE, 2, [0_f32.to_le_bytes(), 1.5_f32.to_le_bytes()].concat()),
            )
            .pair(
                "tokenizer.ggml.token_type",
                ARRAY,
                array(I32, 2, [1_i32.to_le_bytes(), 6_i32.to_le_bytes()].concat()),
            )
            .tensor("token_embd.weight", &[64, 3], F32)
            .tensor("blk.0.attn_q.weight", &[64, 32, 1], Q4_0)
            .tensor("output_norm.weight", &[5], F32)
    }

    pub fn pair(mut self, key: impl AsRef<[u8]>, kind: u32, value: impl AsRef<[u8]>) -> Self {
        self.pairs.push([&string(key), kind.to_le_bytes().as_slice(), value.as_ref()].concat());
        self
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        self.pair(key, TEXT, string(value))
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.pair(key, U32, value.to_le_bytes())
    }

    /// Adds a tensor where the one before it ends. `shape` is in GGUF's order.
    pub fn tensor(self, name: &str, shape: &[u64], kind: u32) -> Self {
        let offset = self.data;
        let bytes = DType::from_ggml_id(kind).unwrap().bytes_of(shape.iter().product()).unwrap();
        let mut with = self.info(name, shape, kind, offset);
        with.data = (offset + bytes).next_multiple_of(with.alignment);
        with
    }

    /// Adds a tensor info as it is, and no data.
    pub fn info(mut self, name: impl AsRef<[u8]>, shape: &[u64], kind: u32, offset: u64) -> Self {
        let shape_bytes: Vec<u8> = shape.iter().flat_map(|dimension| dimension.to_le_bytes()).collect();
        let count = (shape.len() as u32).to_le_bytes();
        self.tensors
            .push([&string(name), count.as_slice(), &shape_bytes, &kind.to_le_bytes(), &offset.to_le_bytes()].concat());
        self
    }

    /// Makes it part `number` (from 0) of `count` with `tensors` tensors in all.
    pub fn part(self, number: u16, count: u16, tensors: i32) -> Self {
        self.pair("split.no", U16, number.to_le_bytes()).pair("split.count", U16, count.to_le_bytes()).pair(
            "split.tensors.count",
            I32,
            tensors.to_le_bytes(),
        )
    }

    /// The bytes before the data section, without padding.
    pub fn header(&self) -> Vec<u8> {
        let tensors = self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes();
        let pairs = self.pair_count.unwrap_or(self.pairs.len() as u64).to_le_bytes();
        let version = self.version.to_le_bytes();
        [&self.magic, version.as_slice(), &tensors, &pairs, &self.pairs.concat(), &self.tensors.concat()].concat()
    }

    /// The whole file; its data is zeros.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = self.header();
        if !self.tensors.is_empty() {
            bytes.resize(bytes.len().next_multiple_of(self.alignment as usize) + self.data as usize, 0);
        }
        bytes.extend(&self.tail);
        bytes
    }
}

/// A safetensors file with the header text `header` and `data` zeros.
pub fn safetensors(header: &str, data: usize) -> Vec<u8> {
    [(header.len() as u64).to_le_bytes().as_slice(), header.as_bytes(), &vec![0; data]].concat()
}

/// A safetensors file with F32 vectors of four elements.
pub fn vectors(names: &[&str]) -> Vec<u8> {
    let entries = names.iter().enumerate().map(|(index, name)| {
        let begin = index * 16;
        format!(r#""{name}":{{"dtype":"F32","shape":[4],"data_offsets":[{begin},{}]}}"#, begin + 16)
    });
    safetensors(&format!("{{{}}}", entries.collect::<Vec<_>>().join(",")), names.len() * 16)
}

/// An index of (tensor, file) pairs.
pub fn index(pairs: &[(&str, &str)]) -> Vec<u8> {
    let map: Vec<String> = pairs.iter().map(|(tensor, file)| format!(r#""{tensor}":"{file}""#)).collect();
    format!(r#"{{"metadata":{{"total_size":1}},"weight_map":{{{}}}}}"#, map.join(",")).into_bytes()
}

/// A temporary folder with files in it.
pub struct Tree(TempDir);

impl Tree {
    pub fn new() -> Self {
        Tree(TempDir::new().unwrap())
    }

    /// Adds a file, with its folders.
    pub fn with(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        self
    }

    /// Adds a link to `target`.
    #[cfg(unix)]
    pub fn link(self, name: &str, target: impl AsRef<Path>) -> Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.0.path().into() } else { self.0.path().join(name) }
    }
}

/// Collects the cases of a table that fail, so that one run shows them all.
#[derive(Default)]
pub struct Failures(Vec<String>);

impl Failures {
    pub fn add(&mut self, case: &str, found: impl std::fmt::Display) {
        self.0.push(format!("{case}: {found}"));
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        if !self.0.is_empty() && !std::thread::panicking() {
            panic!("{} cases failed:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

/// A table of `name: result => pattern` rows; reports every row whose result does not match.
#[macro_export]
macro_rules! table {
    ($($name:literal: $result:expr => $pattern:pat $(if $guard:expr)?),* $(,)?) => {{
        let mut failures = $crate::build::Failures::default();
        $(match $result {
            #[allow(unused_variables)]
            $pattern $(if $guard)? => {}
            other => failures.add($name, $crate::build::show(other)),
        })*
    }};
}

/// A result in one line.
pub fn show<T: std::fmt::Debug>(result: model_factory_diagnostics::Result<T>) -> String {
    match result {
        Ok(value) => format!("accepted as {value:?}").chars().take(400).collect(),
        Err(error) => format!("{error} ({error:?})"),
    }
}
