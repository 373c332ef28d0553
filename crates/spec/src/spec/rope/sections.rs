//! Which of the three positions of an image's rows each pair of a head turns by.

use super::{Place, Resolver};
use crate::error::Result;
use crate::header::Fields;
use crate::spec::RopeSections;

/// A list of three numbers in `config.json`, of four in GGUF.
const CONFIG: &str = "mrope_section";
const GGUF: &str = ".rope.dimension_sections";

impl Resolver<'_> {
    /// The sections of `pairs`, where the family has any. `None` too where no key gives them and those of the family's default do
    /// not fit, or where those of a GGUF file do not: text does not need them.
    pub(super) fn sections(&self, places: [Place<'_>; 2], pairs: usize) -> Result<Option<RopeSections>> {
        let Some((interleaved, default, source)) = self.table.sections else { return Ok(None) };
        let (key, found) = match self.reader.gguf() {
            Some(metadata) => {
                let key = self.reader.gguf_key(GGUF);
                let found = metadata.integers(&key)?;
                (
                    key,
                    found
                        .map(|found| found.into_iter().map(|count| u64::try_from(count).unwrap_or(u64::MAX)).collect()),
                )
            }
            None => {
                let section = places.into_iter().flatten().find(|section| section.has(CONFIG));
                let found = section.map_or(Ok(None), |section| section.integers(CONFIG))?;
                (section.map_or_else(|| CONFIG.into(), |section| section.dotted(CONFIG)), found)
            }
        };
        let is_whole = |counts: [usize; 3]| {
            interleaved || counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count)) == pairs
        };
        let counts = match found {
            None if is_whole(default) => {
                let what = format_args!("sections of the rotation {default:?}");
                self.reader.or_absent(None, default, what, &key, source)
            }
            None => return Ok(None),
            Some(found) => {
                let counts: Vec<usize> =
                    found.iter().map(|count| usize::try_from(*count).unwrap_or(usize::MAX)).collect();
                match *counts {
                    [time, height, width] | [time, height, width, 0] if is_whole([time, height, width]) => {
                        [time, height, width]
                    }
                    // Equal positions turn by the same angles whatever the sections: only images would differ.
                    _ if self.reader.is_gguf() => {
                        self.reader
                            .assume(format!("images are not taken: {key} {counts:?} does not add up to {pairs} pairs"));
                        return Ok(None);
                    }
                    _ => {
                        let expected = format!("the pairs that turn by time, height and width, {pairs} in all");
                        return Err(self.reader.value(&key, format!("{counts:?}"), expected));
                    }
                }
            }
        };
        Ok(Some(RopeSections { counts, interleaved }))
    }
}
