//! Real fixtures taken apart, so that each part of them can be damaged by itself.

#[path = "../../../tests/common/archives.rs"]
#[allow(dead_code, clippy::expect_used)] // the tests of whole models use more of it
mod archives;

use crate::build::{Tree, array, string};
use model_factory_diagnostics::DType;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// `fixtures/` of this checkout.
pub fn fixtures() -> PathBuf {
    // This file is part of tests in the root package too.
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("fixtures"));
    above.find(|folder| folder.is_dir()).unwrap()
}

/// A path in `fixtures/models`, or in an archive of `fixtures/families`.
pub fn fixture(name: &str) -> PathBuf {
    archives::path(name)
}

/// The content of a file in `fixtures/models`, or in an archive of `fixtures/families`.
pub fn content(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A GGUF file in parts.
#[derive(Clone)]
pub struct Gguf {
    pub version: u32,
    pub pairs: Vec<Pair>,
    pub tensors: Vec<Info>,
    pub data: Vec<u8>,
    pub alignment: usize,
}

#[derive(Clone)]
pub struct Pair {
    pub key: String,
    pub kind: u32,
    pub value: Vec<u8>,
}

#[derive(Clone)]
pub struct Info {
    pub name: String,
    /// Innermost first.
    pub shape: Vec<u64>,
    pub kind: u32,
    pub offset: u64,
}

/// Where a field of a GGUF file begins, and what it is.
pub struct Mark {
    pub what: String,
    pub at: usize,
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken.to_vec()
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }
    fn text(&mut self) -> Vec<u8> {
        let length = self.u64();
        self.take(length as usize)
    }
    fn value(&mut self, kind: u32) -> Vec<u8> {
        match kind {
            0 | 1 | 7 => self.take(1),
            2 | 3 => self.take(2),
            4..=6 => self.take(4),
            10..=12 => self.take(8),
            8 => string(self.text()),
            9 => {
                let (kind, count) = (self.u32(), self.u64());
                let elements: Vec<Vec<u8>> = (0..count).map(|_| self.value(kind)).collect();
                array(kind, count, elements.concat())
            }
            _ => panic!("a fixture has value type {kind}"),
        }
    }
}

impl Gguf {
    pub fn fixture(name: &str) -> Gguf {
        Gguf::read(name, &content(name))
    }

    /// A file of an archive in `fixtures/vision`.
    pub fn seeing(archive: &str, name: &str) -> Gguf {
        Gguf::read(name, &std::fs::read(archives::unpacked_from("vision", archive).join(name)).unwrap())
    }

    pub fn read(name: &str, bytes: &[u8]) -> Gguf {
        let mut cursor = Cursor(&bytes[4..]);
        let (version, tensors, pairs) = (cursor.u32(), cursor.u64(), cursor.u64());
        let pairs = (0..pairs).map(|_| {
            let (key, kind) = (String::from_utf8(cursor.text()).unwrap(), cursor.u32());
            Pair { key, kind, value: cursor.value(kind) }
        });
        let pairs = pairs.collect();
        let tensors = (0..tensors).map(|_| {
            let (name, dimensions) = (String::from_utf8(cursor.text()).unwrap(), cursor.u32());
            let shape = (0..dimensions).map(|_| cursor.u64()).collect();
            Info { name, shape, kind: cursor.u32(), offset: cursor.u64() }
        });
        let tensors = tensors.collect();
        let header = bytes.len() - cursor.0.len();
        let gguf = Gguf { version, pairs, tensors, data: bytes[header.next_multiple_of(32)..].to_vec(), alignment: 32 };
        assert_eq!(gguf.build(), bytes, "{name} is not put together again");
        gguf
    }

    /// The file, and where its fields begin.
    pub fn marked(&self) -> (Vec<u8>, Vec<Mark>) {
        let (mut bytes, mut marks) = (b"GGUF".to_vec(), vec![Mark { what: "the magic".into(), at: 0 }]);
        let mut put = |what: String, field: &[u8]| {
            marks.push(Mark { what, at: bytes.len() });
            bytes.extend(field);
        };
        put("the version".into(), &self.version.to_le_bytes());
        put("the number of tensors".into(), &(self.tensors.len() as u64).to_le_bytes());
        put("the number of keys".into(), &(self.pairs.len() as u64).to_le_bytes());
        for Pair { key, kind, value } in &self.pairs {
            put(format!("the length of key {key}"), &(key.len() as u64).to_le_bytes());
            put(format!("key {key}"), key.as_bytes());
            put(format!("the type of {key}"), &kind.to_le_bytes());
            put(format!("the value of {key}"), value);
        }
        for Info { name, shape, kind, offset } in &self.tensors {
            put(format!("the length of the name {name}"), &(name.len() as u64).to_le_bytes());
            put(format!("the name {name}"), name.as_bytes());
            put(format!("the number of dimensions of {name}"), &(shape.len() as u32).to_le_bytes());
            for (index, dimension) in shape.iter().enumerate() {
                put(format!("dimension {index} of {name}"), &dimension.to_le_bytes());
            }
            put(format!("the type of {name}"), &kind.to_le_bytes());
            put(format!("the offset of {name}"), &offset.to_le_bytes());
        }
        marks.push(Mark { what: "the end of the header".into(), at: bytes.len() });
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        marks.push(Mark { what: "the data".into(), at: bytes.len() });
        bytes.extend(&self.data);
        (bytes, marks)
    }

    pub fn build(&self) -> Vec<u8> {
        self.marked().0
    }

    /// The file with `bytes` in place of the field called `what`, or of what it begins with.
    pub fn patched(&self, what: &str, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let (mut file, marks) = self.marked();
        let at = marks.iter().find(|mark| mark.what == what).unwrap_or_else(|| panic!("no {what}")).at;
        file[at..at + bytes.as_ref().len()].copy_from_slice(bytes.as_ref());
        file
    }

    /// Replaces or adds a key.
    pub fn set(&self, key: &str, kind: u32, value: impl AsRef<[u8]>) -> Gguf {
        let mut edited = self.clone();
        let pair = Pair { key: key.into(), kind, value: value.as_ref().to_vec() };
        match edited.pairs.iter_mut().find(|pair| pair.key == key) {
            Some(old) => *old = pair,
            None => edited.pairs.push(pair),
        }
        edited
    }

    pub fn u32(&self, key: &str, value: u32) -> Gguf {
        self.set(key, crate::build::U32, value.to_le_bytes())
    }

    pub fn f32(&self, key: &str, value: f32) -> Gguf {
        self.set(key, crate::build::F32_VALUE, value.to_le_bytes())
    }

    pub fn text(&self, key: &str, value: &str) -> Gguf {
        self.set(key, crate::build::TEXT, string(value))
    }

    pub fn without(&self, key: &str) -> Gguf {
        let mut edited = self.clone();
        let before = edited.pairs.len();
        edited.pairs.retain(|pair| pair.key != key);
        assert_ne!(before, edited.pairs.len(), "no key {key}");
        edited
    }

    /// With the tensor `name` changed and every offset as the sizes then have it; the data is zeros.
    pub fn tensor(&self, name: &str, change: impl FnOnce(&mut Info)) -> Gguf {
        let mut edited = self.clone();
        change(edited.tensors.iter_mut().find(|info| info.name == name).unwrap_or_else(|| panic!("no tensor {name}")));
        edited.packed()
    }

    pub fn without_tensor(&self, name: &str) -> Gguf {
        let mut edited = self.clone();
        edited.tensors.retain(|info| info.name != name);
        edited.packed()
    }

    pub fn with_tensor(&self, name: &str, shape: &[u64], kind: u32) -> Gguf {
        let mut edited = self.clone();
        edited.tensors.push(Info { name: name.into(), shape: shape.to_vec(), kind, offset: 0 });
        edited.packed()
    }

    fn packed(mut self) -> Gguf {
        let mut end = 0;
        for info in &mut self.tensors {
            info.offset = end;
            let bytes = DType::from_ggml_id(info.kind).unwrap().bytes_of(info.shape.iter().product()).unwrap();
            end = (end + bytes).next_multiple_of(self.alignment as u64);
        }
        self.data = vec![0; end as usize];
        self
    }
}

/// A folder of files in memory.
#[derive(Clone)]
pub struct Files(pub Vec<(String, Vec<u8>)>);

impl Files {
    /// The files of a folder in `fixtures/models`, or in an archive of `fixtures/families`.
    pub fn fixture(name: &str) -> Files {
        Files::read(&fixture(name))
    }

    /// Those of an archive in `fixtures/vision`.
    pub fn seeing(archive: &str, name: &str) -> Files {
        Files::read(&archives::unpacked_from("vision", archive).join(name))
    }

    fn read(folder: &Path) -> Files {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            files.push((path.file_name().unwrap().to_str().unwrap().into(), std::fs::read(path).unwrap()));
        }
        files.sort();
        Files(files)
    }

    pub fn get(&self, name: &str) -> &[u8] {
        &self.0.iter().find(|file| file.0 == name).unwrap_or_else(|| panic!("no file {name}")).1
    }

    /// Replaces or adds a file.
    pub fn with(&self, name: &str, bytes: impl AsRef<[u8]>) -> Files {
        let mut edited = self.clone();
        edited.0.retain(|file| file.0 != name);
        edited.0.push((name.into(), bytes.as_ref().to_vec()));
        edited
    }

    pub fn without(&self, name: &str) -> Files {
        let mut edited = self.clone();
        edited.0.retain(|file| file.0 != name);
        assert_ne!(edited.0.len(), self.0.len(), "no file {name}");
        edited
    }

    pub fn renamed(&self, from: &str, to: &str) -> Files {
        self.without(from).with(to, self.get(from))
    }

    pub fn cut(&self, name: &str, len: usize) -> Files {
        self.with(name, &self.get(name)[..len])
    }

    /// With the JSON file `name` changed.
    pub fn json(&self, name: &str, change: impl FnOnce(&mut Map<String, Value>)) -> Files {
        let mut value: Value = serde_json::from_slice(self.get(name)).unwrap();
        change(value.as_object_mut().unwrap());
        self.with(name, value.to_string())
    }

    /// With the header of the safetensors file `name` changed as JSON; the data stays as it is.
    pub fn header(&self, name: &str, change: impl FnOnce(&mut Map<String, Value>)) -> Files {
        let (header, data) = self.split(name);
        let mut value: Value = serde_json::from_slice(header).unwrap();
        change(value.as_object_mut().unwrap());
        self.with(name, joined(value.to_string().as_bytes(), data))
    }

    /// With the header of the safetensors file `name` changed as text.
    pub fn header_text(&self, name: &str, change: impl FnOnce(&str) -> Vec<u8>) -> Files {
        let (header, data) = self.split(name);
        self.with(name, joined(&change(std::str::from_utf8(header).unwrap()), data))
    }

    fn split(&self, name: &str) -> (&[u8], &[u8]) {
        let (length, rest) = self.get(name).split_first_chunk::<8>().unwrap();
        rest.split_at(u64::from_le_bytes(*length) as usize)
    }

    pub fn tree(&self) -> Tree {
        self.0.iter().fold(Tree::new(), |tree, (name, bytes)| tree.with(name, bytes))
    }
}

fn joined(header: &[u8], data: &[u8]) -> Vec<u8> {
    [(header.len() as u64).to_le_bytes().as_slice(), header, data].concat()
}
