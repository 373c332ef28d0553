//! The files of a model -> checksums that distinguish its weights from those of other models.

use crate::weights::Weights;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Parts of a file that have a checksum each.
const PARTS: usize = 16;
/// Bytes that are read at a time where a part is sampled, and how often.
const SAMPLE: usize = 4096;
const SAMPLES: usize = 16;

/// Which bytes of the weights are compared to recognize a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WeightsDigest {
    /// 256 evenly spaced pieces of each file, 1 MiB together, or all of a shorter file: a few milliseconds. It distinguishes models
    /// whose weights differ throughout, like those of fine-tunes, but not files of which only a few bytes were changed.
    #[default]
    Sampled,
    /// All bytes of the files, read once for each loaded model at the speed of the disk.
    Full,
}

/// The digest of a file of weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileDigest {
    /// The length of the file in bytes.
    pub(crate) bytes: u64,
    /// The CRC-32 of each part of the file.
    pub(crate) parts: [u32; PARTS],
}

/// The weights of a model, with their digests once these are asked for.
#[derive(Debug)]
pub(crate) struct Fingerprint {
    weights: Weights,
    /// The digests by their kind.
    kept: [OnceLock<Vec<FileDigest>>; 2],
    /// What [`Model::system_fingerprint`](crate::Model::system_fingerprint) says, once it is asked for.
    pub(crate) system: OnceLock<String>,
}

impl Fingerprint {
    /// A fingerprint; nothing is read yet.
    pub(crate) fn new(weights: Weights) -> Fingerprint {
        Fingerprint { weights, kept: Default::default(), system: OnceLock::new() }
    }

    /// The digest of each file.
    pub(crate) fn digests(&self, digest: WeightsDigest) -> &[FileDigest] {
        self.kept[digest as usize]
            .get_or_init(|| self.weights.files().map(|file| FileDigest::new(file, digest)).collect())
    }
}

impl FileDigest {
    fn new(file: &[u8], digest: WeightsDigest) -> FileDigest {
        let bound = |part: usize| (file.len() as u128 * part as u128 / PARTS as u128) as usize;
        let parts = std::array::from_fn(|part| {
            let bytes = &file[bound(part)..bound(part + 1)];
            if digest == WeightsDigest::Full || bytes.len() <= SAMPLE * SAMPLES {
                return crc32fast::hash(bytes);
            }
            let mut sum = crc32fast::Hasher::new();
            for sample in 0..SAMPLES {
                let start = (bytes.len() - SAMPLE) * sample / (SAMPLES - 1);
                sum.update(&bytes[start..start + SAMPLE]);
            }
            sum.finalize()
        });
        FileDigest { bytes: file.len() as u64, parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the changed bytes, one at every `step`, that change a digest.
    fn seen(bytes: usize, digest: WeightsDigest, step: usize) -> usize {
        let mut file = vec![7u8; bytes];
        let before = FileDigest::new(&file, digest);
        (0..bytes)
            .step_by(step)
            .filter(|at| {
                file[*at] ^= 1;
                let changed = FileDigest::new(&file, digest) != before;
                file[*at] ^= 1;
                changed
            })
            .count()
    }

    #[test]
    fn every_byte_counts_in_a_full_digest_and_in_that_of_a_short_file() {
        for bytes in [0, 1, 15, 1000] {
            for digest in [WeightsDigest::Sampled, WeightsDigest::Full] {
                assert_eq!(seen(bytes, digest, 1), bytes);
            }
        }
        let (bytes, step) = (3 << 20, 60_001);
        let tried = (0..bytes).step_by(step).count();
        assert_eq!(seen(bytes, WeightsDigest::Full, step), tried);
        let sampled = seen(bytes, WeightsDigest::Sampled, step);
        assert!(sampled > tried / 6 && sampled < tried / 2, "{sampled} of {tried}: a third is read");
    }

    #[test]
    fn files_of_other_lengths_differ() {
        for digest in [WeightsDigest::Sampled, WeightsDigest::Full] {
            assert_ne!(FileDigest::new(&[0; 100], digest), FileDigest::new(&[0; 101], digest));
            // The beginning and the end of each sampled piece.
            let bytes = 2 << 20;
            let (one, mut other) = (vec![0u8; bytes], vec![0u8; bytes]);
            for at in [0, SAMPLE - 1, bytes / PARTS, bytes - 1] {
                other[at] = 1;
                assert_ne!(FileDigest::new(&one, digest), FileDigest::new(&other, digest), "{digest:?}: {at}");
                other[at] = 0;
            }
        }
    }
}
