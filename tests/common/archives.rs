//! Checkpoints that are archives, `fixtures/families/NAME.tar.gz`: they are unpacked once, where cargo keeps what tests write.
//!
//! The weights of one are the same numbers in BF16, F16 and F32, so that only `bf16/` has them: what `f32/` and `f16/` lack
//! is made of it.

use super::fixtures;
use half::f16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::fs;
use std::path::{Path, PathBuf};

/// The names of all archives.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(fixtures().join("families")).expect("fixtures/families exists");
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
    let archive = fixtures().join("families").join(format!("{name}.tar.gz"));
    let bytes = fs::read(&archive).unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
    // gzip ends by a checksum and the length.
    let (_, sum) = bytes.split_last_chunk::<8>().expect("a gzip file");
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("families");
    let folder = all.join(format!("{name}@{:016x}", u64::from_le_bytes(*sum)));
    if !folder.exists() {
        fs::create_dir_all(&all).expect("a folder for archives");
        let made = tempfile::tempdir_in(&all).expect("a folder");
        tar::Archive::new(flate2::read::GzDecoder::new(&*bytes)).unpack(made.path()).expect("a sound archive");
        for (dtype, name) in [(Dtype::F32, "f32"), (Dtype::F16, "f16")] {
            complete(&made.path().join("bf16"), &made.path().join(name), dtype);
        }
        // Another test may have been faster.
        let _ = fs::rename(made.path(), &folder);
        assert!(folder.exists(), "{} was not made", folder.display());
    }
    folder
}

/// Gives `folder` what it lacks of `bf16`, weights in `dtype`. Without a folder there is nothing to do.
fn complete(bf16: &Path, folder: &Path, dtype: Dtype) {
    if !folder.exists() {
        return;
    }
    for entry in fs::read_dir(bf16).expect("a folder bf16") {
        let name = entry.expect("an entry").file_name();
        if !folder.join(&name).exists() && name != "model.safetensors" {
            fs::copy(bf16.join(&name), folder.join(&name)).expect("a file is copied");
        }
    }
    let stored = fs::read(bf16.join("model.safetensors")).expect("weights");
    let stored = SafeTensors::deserialize(&stored).expect("sound weights");
    let widened: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> =
        stored.iter().map(|(name, tensor)| widen(name, &tensor, dtype)).collect();
    let views = widened.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("the shape of the bytes"))
    });
    let metadata = Some([("format".to_owned(), "pt".to_owned())].into());
    safetensors::serialize_to_file(views, metadata, &folder.join("model.safetensors")).expect("weights are written");
}

/// A tensor in `dtype`; one that is not BF16 stays as it is.
fn widen(name: &str, tensor: &TensorView<'_>, dtype: Dtype) -> (String, Dtype, Vec<usize>, Vec<u8>) {
    let floats =
        || tensor.data().chunks_exact(2).map(|pair| f32::from_bits(u32::from_le_bytes([0, 0, pair[0], pair[1]])));
    let (dtype, bytes) = match (tensor.dtype(), dtype) {
        (Dtype::BF16, Dtype::F32) => (dtype, floats().flat_map(f32::to_le_bytes).collect()),
        (Dtype::BF16, _) => (dtype, floats().flat_map(|value| exactly(value).to_le_bytes()).collect()),
        (stored, _) => (stored, tensor.data().to_vec()),
    };
    (name.to_owned(), dtype, tensor.shape().to_vec(), bytes)
}

fn exactly(value: f32) -> f16 {
    let half = f16::from_f32(value);
    assert_eq!(half.to_f32(), value, "weights of an archive are the same in F16");
    half
}
