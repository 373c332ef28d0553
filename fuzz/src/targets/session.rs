//! Bytes as the file of a saved session: restored, and a token computed on what that gives.
//! Mutations are of a file that the model's own session was saved in, most of them with checksums made right again.

use crate::common::random::Random;
use crate::common::{Bytes, any_bytes, json};
use model_factory::session::WeightsDigest;
use model_factory::{Error, Model, Session};
use std::path::Path;
use std::sync::LazyLock;

/// Bytes before the header; its length is in the last four.
const PREAMBLE: usize = 16;
const SUM: usize = 4;
const IDS: [u32; 3] = [5, 102, 199];

/// A small model, a file of its session, and the logits that this goes on with.
struct Saved {
    model: Model,
    file: Vec<u8>,
    logits: Vec<u32>,
}

static SAVED: LazyLock<Saved> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/models/llama-3.1/q8_0.gguf");
    let model = Model::builder().threads(1).context_length(64).memory_limit(256 << 20).load(path).unwrap();
    let mut session = model.session();
    session.next_logits(&IDS).unwrap();
    let written = tempfile::NamedTempFile::new().unwrap();
    session.save(written.path(), WeightsDigest::Sampled).unwrap();
    let file = std::fs::read(written.path()).unwrap();
    let logits = next(&mut session).unwrap();
    Saved { model, file, logits }
});

pub fn run(bytes: &[u8]) {
    let Ok(written) = tempfile::NamedTempFile::new() else { return };
    if std::fs::write(written.path(), bytes).is_err() {
        return;
    }
    match SAVED.model.restore(written.path()) {
        Ok(mut session) => {
            assert!(session.len() <= 64);
            let logits = next(&mut session);
            if bytes == SAVED.file {
                assert!(logits.is_ok_and(|logits| logits == SAVED.logits));
            }
        }
        Err(Error::SessionFile(error)) => {
            assert_eq!(error.file, written.path());
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub fn mutate(input: &[u8], longest: usize, random: &mut Random, bytes: &mut Bytes) -> Vec<u8> {
    let saved = &SAVED.file;
    // From an input of another kind nothing would come.
    let mut file = if input.starts_with(&saved[..8]) { input.to_vec() } else { saved.clone() };
    let changed = match header_end(&file) {
        Some(end) if random.yes() => json::mutate(&file[PREAMBLE..end], random).map(|header| {
            let length = (header.len() as u32).to_le_bytes();
            [&file[..PREAMBLE - 4], &length, &header, &file[end..]].concat()
        }),
        _ => None,
    };
    match changed.filter(|changed| changed.len() <= longest) {
        Some(changed) => file = changed,
        None => file = any_bytes(&file, longest, random, bytes),
    }
    if !random.once_in(4) {
        mend(&mut file);
    }
    file
}

/// Where the header ends that the file says it has.
fn header_end(file: &[u8]) -> Option<usize> {
    let length = file.get(PREAMBLE - 4..PREAMBLE)?.try_into().ok()?;
    let end = PREAMBLE.checked_add(u32::from_le_bytes(length) as usize)?;
    (end <= file.len()).then_some(end)
}

/// Writes the checksums after the header, after as many ids as it says, and at the end.
fn mend(file: &mut [u8]) {
    let Some(end) = header_end(file) else { return };
    let header: serde_json::Value = serde_json::from_slice(&file[PREAMBLE..end]).unwrap_or_default();
    let ids = header["ids"].as_u64().map_or(IDS.len(), |ids| ids.min(64) as usize);
    let cached = header["cached"].as_u64() != Some(0);
    let mut sums = vec![(0, end), (end + SUM, end + SUM + 4 * ids)];
    if cached {
        sums.push((end + 2 * SUM + 4 * ids, file.len().saturating_sub(SUM)));
    }
    let mut sum = crc32fast::Hasher::new();
    for (start, end) in sums {
        let Some(part) = file.get(start..end) else { return };
        sum.update(part);
        let Some(written) = file.get_mut(end..end + SUM) else { return };
        written.copy_from_slice(&sum.clone().finalize().to_le_bytes());
    }
}

/// The bits of the logits after one more token.
fn next(session: &mut Session) -> Result<Vec<u32>, Error> {
    Ok(session.next_logits(&[7])?.iter().copied().map(f32::to_bits).collect())
}
