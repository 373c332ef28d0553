//! Checkpoints that are archives, `fixtures/families/NAME.tar.gz` or those of `fixtures/vision`: they are unpacked once, where cargo keeps what tests write.
//!
//! Of `f32/`, `bf16/` and `f16/` one has weights and what is the same in all: what others lack is made of it. The weights are the
//! same numbers in each, or those of `f32/` rounded.
//!
//! Tests of other crates have this file as a part too.

use super::fixtures;
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::fs;
use std::path::{Path, PathBuf};

const WEIGHTS: &str = "model.safetensors";

/// The names of all archives.
pub(crate) fn names() -> impl Iterator<Item = String> {
    names_in("families")
}

/// The names of all archives of a folder of the fixtures.
pub(crate) fn names_in(folder: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(fixtures().join(folder)).expect("the folder exists");
    entries.filter_map(|entry| Some(entry.expect("an entry").file_name().to_str()?.strip_suffix(".tar.gz")?.to_owned()))
}

/// The name of an archive in that of its folder, which ends by the sum of its bytes.
pub(crate) fn without_sum(folder: &str) -> &str {
    folder.split_once('@').map_or(folder, |(name, _)| name)
}

/// A path within `fixtures/models`, or within an archive.
pub(crate) fn path(file: &str) -> PathBuf {
    let (stored, (name, rest)) = (fixtures().join("models").join(file), file.split_once('/').unwrap_or((file, "")));
    if stored.exists() { stored } else { unpacked(name).join(rest) }
}

/// The folder of an archive, as one of `fixtures/models`.
pub(crate) fn unpacked(name: &str) -> PathBuf {
    unpacked_from("families", name)
}

/// The folder of an archive that is in this folder of the fixtures.
pub(crate) fn unpacked_from(within: &str, name: &str) -> PathBuf {
    extracted(within, name, |folder| {
        let dtypes = [(Dtype::F32, "f32"), (Dtype::BF16, "bf16"), (Dtype::F16, "f16")];
        let folders = dtypes.map(|(dtype, name)| (dtype, folder.join(name)));
        let whole = folders.iter().find(|(_, folder)| folder.join(WEIGHTS).exists()).expect("weights");
        folders.iter().filter(|(_, folder)| folder.exists()).for_each(|lacking| complete(whole, lacking));
        fill_ggufs(&folder.join("gguf"), whole);
    })
}

/// The same of any archive, which `complete` is called with once.
pub(crate) fn extracted(within: &str, name: &str, complete: impl Fn(&Path)) -> PathBuf {
    let archive = fixtures().join(within).join(format!("{name}.tar.gz"));
    let bytes = fs::read(&archive).unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
    // gzip ends by a checksum and the length.
    let (_, sum) = bytes.split_last_chunk::<8>().expect("a gzip file");
    let all = temporary().join(within);
    let folder = all.join(format!("{name}@{:016x}", u64::from_le_bytes(*sum)));
    if !folder.exists() {
        fs::create_dir_all(&all).expect("a folder for archives");
        let made = tempfile::tempdir_in(&all).expect("a folder");
        tar::Archive::new(flate2::read::GzDecoder::new(&*bytes)).unpack(made.path()).expect("a sound archive");
        complete(made.path());
        // Another test may have been faster.
        let _ = fs::rename(made.path(), &folder);
        assert!(folder.exists(), "{} was not made", folder.display());
    }
    folder
}

/// Where cargo keeps what tests write, which it says to integration tests only: `tmp` next to `release/deps/` of a test.
fn temporary() -> PathBuf {
    let beside = || std::env::current_exe().expect("a test").ancestors().nth(3).expect("a target folder").join("tmp");
    option_env!("CARGO_TARGET_TMPDIR").map_or_else(beside, PathBuf::from)
}

/// Gives a folder of a dtype what it lacks of the `whole` one.
fn complete((stored, whole): &(Dtype, PathBuf), (dtype, folder): &(Dtype, PathBuf)) {
    for entry in fs::read_dir(whole).expect("a folder with weights") {
        let name = entry.expect("an entry").file_name();
        if !folder.join(&name).exists() && name != WEIGHTS {
            fs::copy(whole.join(&name), folder.join(&name)).expect("a file is copied");
        }
    }
    if folder.join(WEIGHTS).exists() {
        return;
    }
    let weights = fs::read(whole.join(WEIGHTS)).expect("weights");
    let weights = SafeTensors::deserialize(&weights).expect("sound weights");
    write_as(&folder.join(WEIGHTS), &weights, *stored, *dtype);
}

/// Writes tensors with those of `stored` in another dtype.
pub(crate) fn write_as(path: &Path, weights: &SafeTensors<'_>, stored: Dtype, dtype: Dtype) {
    // Others stay: a few are F32 in BF16's folder too.
    let made: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = weights
        .iter()
        .map(|(name, tensor)| match tensor.dtype() == stored {
            true => (name.to_owned(), dtype, tensor.shape().to_vec(), convert(tensor.data(), stored, dtype)),
            false => (name.to_owned(), tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()),
        })
        .collect();
    let views = made.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("the shape of the bytes"))
    });
    let metadata = Some([("format".to_owned(), "pt".to_owned())].into());
    safetensors::serialize_to_file(views, metadata, path).expect("weights are written");
}

/// Makes the GGUF files of which an archive has what is before their data, and where their tensors are among the `whole` weights, as
/// `without_weights` of `fixtures/make/mmproj.py` wrote it.
fn fill_ggufs(folder: &Path, (stored, whole): &(Dtype, PathBuf)) {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    for head in entries.filter(|path| path.extension().is_some_and(|end| end == "head")).collect::<Vec<_>>() {
        let part = |end: &str| fs::read(head.with_extension(end)).expect("a part of a GGUF file");
        let (places, rest, bytes) = (part("tensors"), part("rest"), fs::read(whole.join(WEIGHTS)).expect("weights"));
        let (weights, mut rest) = (SafeTensors::deserialize(&bytes).expect("sound weights"), &*rest);
        let mut lines = std::str::from_utf8(&places).expect("text").lines();
        let mut data = vec![0; lines.next().and_then(|length| length.parse().ok()).expect("the length of the data")];
        for line in lines {
            let [at, dtype, source, length] = *line.split(' ').collect::<Vec<_>>() else { panic!("{line}") };
            let [at, length]: [usize; 2] = [at, length].map(|number| number.parse().expect("a number"));
            let numbers = match source {
                "rest" => rest.split_off(..length).expect("further bytes").to_vec(),
                source => {
                    let dtype = match dtype {
                        "F32" => Dtype::F32,
                        "F16" => Dtype::F16,
                        _ => Dtype::BF16,
                    };
                    convert(&frame_of(&weights, source), *stored, dtype)
                }
            };
            data[at..][..length].copy_from_slice(&numbers);
        }
        fs::write(head.with_extension(""), [part("head"), data].concat()).expect("a GGUF file is written");
    }
}

/// The numbers of a tensor, of a frame of a kernel `[outputs, channels, frames, height, width]`, or of one `[outputs, pixels * 3]` with
/// channels first.
fn frame_of(weights: &SafeTensors<'_>, source: &str) -> Vec<u8> {
    let (name, part) = source.split_once(':').unwrap_or((source, ""));
    let tensor = weights.tensor(name).expect("a tensor of the weights");
    if part == "channels" {
        let (outputs, size) = (tensor.shape()[0], tensor.dtype().bitsize() / 8);
        let of_channel =
            |row: &[u8], channel: usize| row.chunks(size).skip(channel).step_by(3).flatten().copied().collect();
        let rows = tensor.data().chunks(tensor.data().len() / outputs);
        return rows.flat_map(|row| (0..3).flat_map(move |channel| -> Vec<u8> { of_channel(row, channel) })).collect();
    }
    let Ok(frame) = part.parse() else { return tensor.data().to_vec() };
    let kernels = tensor.shape()[..2].iter().product::<usize>();
    let frames = tensor.shape()[2];
    let of_kernel = |kernel: &[u8]| kernel.chunks(kernel.len() / frames).nth(frame).expect("a frame").to_vec();
    tensor.data().chunks(tensor.data().len() / kernels).flat_map(of_kernel).collect()
}

/// Weights in another dtype: those of F32 are rounded, others are the same numbers.
fn convert(bytes: &[u8], stored: Dtype, dtype: Dtype) -> Vec<u8> {
    let narrow = || bytes.as_chunks().0.iter().map(|pair| bf16::from_le_bytes(*pair).to_f32());
    let wide = || bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four));
    match (stored, dtype) {
        (stored, dtype) if stored == dtype => bytes.to_vec(),
        (Dtype::BF16, Dtype::F32) => narrow().flat_map(f32::to_le_bytes).collect(),
        (Dtype::BF16, Dtype::F16) => narrow().flat_map(|value| exactly(value).to_le_bytes()).collect(),
        (Dtype::F32, Dtype::BF16) => wide().flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        (Dtype::F32, Dtype::F16) => wide().flat_map(|value| f16::from_f32(value).to_le_bytes()).collect(),
        other => panic!("{other:?} in an archive"),
    }
}

fn exactly(value: f32) -> f16 {
    let half = f16::from_f32(value);
    assert_eq!(half.to_f32(), value, "weights of an archive are the same in F16");
    half
}
