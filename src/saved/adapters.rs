//! The adapters of a sequence in a file, which knows them by the digests of their files.

use super::file::Reader;
use super::header::SavedAdapter;
use crate::adapter::Adapter;
use crate::error::{Result, SessionFileProblem};
use crate::model::Model;
use model_factory_engine::adapter::Adapters;

/// `adapters`, as the header has them.
pub(super) fn described(adapters: &Adapters) -> Vec<SavedAdapter> {
    adapters.iter().map(|(of, scale)| SavedAdapter { digest: *of.digest(), scale: scale.to_bits() }).collect()
}

/// The adapters that the file has, each found among those that are `given`.
pub(super) fn found(file: &Reader<'_>, saved: &[SavedAdapter], given: &[Adapter], model: &Model) -> Result<Adapters> {
    let each = saved.iter().map(|SavedAdapter { digest, scale }| {
        let adapter = given.iter().find(|adapter| adapter.digest() == digest).ok_or_else(|| {
            let expected = match given {
                [] => "none".to_owned(),
                given => given.iter().map(|adapter| hex(adapter.digest())).collect::<Vec<_>>().join(" or "),
            };
            let remedy = "give it to restore_with, loaded from the same files, or compute the session again";
            file.problem(SessionFileProblem::Differs { what: "adapter".into(), found: hex(digest), expected, remedy })
        })?;
        Ok((adapter.clone(), f64::from_bits(*scale)))
    });
    model.adapters(&each.collect::<Result<Vec<_>>>()?)
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
