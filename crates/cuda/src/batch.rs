//! The description of the rows of a forward pass: ids, positions, pages, angles, in one copy to the GPU.

use super::attention::{Attention, QueryTiles};
use super::buffer::Buffer;
use super::driver::{Gpu, Recording};
use bytemuck::NoUninit;
use model_factory_engine::decoder::{Batch, Sequence};
use model_factory_engine::error::Result;
use std::sync::Arc;

/// The addresses of the copied parts, and their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchTable {
    pub(super) rows: usize,
    /// An `i32` for each row.
    pub(super) ids: u64,
    /// A `Place` for each row.
    pub(super) places: u64,
    /// Queries of sequences of few rows, and of sequences of many.
    pub(super) queries: [QueryTiles; 2],
    /// The rows whose logits are wanted, `i32` each.
    pub(super) wanted: u64,
    pub(super) wanted_rows: usize,
    /// Addresses of pages.
    pub(super) pages: u64,
    /// The cosines, `[rows, pairs]`.
    pub(super) cos: u64,
    /// The sines, `[rows, pairs]`.
    pub(super) sin: u64,
    /// The address of the first value that the cache could not hold: 8 bytes, read by [`overflow`].
    pub(super) overflow: u64,
}

#[derive(Debug)]
pub(super) struct BatchState {
    pub(super) table: Buffer,
    /// The launches of batches that were seen twice, the oldest first.
    pub(super) recordings: Vec<(BatchTable, Recording)>,
    /// The last batch that was computed without a recording. By then all kernels in it are loaded.
    pub(super) last: Option<BatchTable>,
    /// A batch whose launches could not be recorded, or could not be started so. It is tried again after another batch.
    pub(super) unrecordable: Option<BatchTable>,
}

impl BatchState {
    pub(super) fn new(table: Buffer) -> BatchState {
        BatchState { table, recordings: Vec::new(), last: None, unrecordable: None }
    }

    /// Keeps a recording, and frees the oldest ones while all take more than `bytes`: perhaps this one too.
    pub(super) fn keep(&mut self, table: BatchTable, recording: Recording, bytes: u64) {
        self.recordings.push((table, recording));
        self.free_oldest(bytes);
    }

    /// Frees the oldest recordings until one as large as the largest has room, within `bytes`.
    pub(super) fn make_room(&mut self, bytes: u64) {
        let largest = self.recordings.iter().map(|(_, recording)| recording.bytes()).max().unwrap_or(0);
        self.free_oldest(bytes.saturating_sub(largest));
    }

    fn free_oldest(&mut self, bytes: u64) {
        while self.recordings.iter().map(|(_, recording)| recording.bytes()).sum::<u64>() > bytes {
            self.recordings.remove(0);
        }
    }
}

/// Appends a part to a table and returns where it begins.
fn part(table: &mut Vec<u8>, values: &[impl NoUninit]) -> u64 {
    table.resize(table.len().next_multiple_of(8), 0);
    let start = table.len();
    table.extend_from_slice(bytemuck::cast_slice(values)); // GPUs are in machines of their order of bytes
    start as u64
}

impl BatchTable {
    /// Copies the description of `batch` into `buffer`, which grows when it must, in the tiles of `attention`.
    /// `parts(rows, tiles, longest)` says in how many parts positions up to `longest` are attended to.
    ///
    /// Another batch with as many rows of as many sequences has every part at the same address again.
    pub(super) fn upload(
        batch: &Batch<'_>,
        attention: &Attention,
        parts: impl Fn(usize, usize, usize) -> usize,
        gpu: &Arc<Gpu>,
        buffer: &mut Buffer,
    ) -> Result<BatchTable> {
        let (mut ids, mut places, mut wanted, mut pages) = (vec![], vec![], vec![], vec![]);
        let (mut queries, mut longest) = ([vec![], vec![]], [0; 2]);
        for Sequence { tokens, rows, start, pages: held, wanted: of_sequence, .. } in &batch.sequences {
            let first_page = pages.len();
            pages.extend(held.iter().map(|pair| pair.full.memory.address()));
            ids.extend(tokens.iter().map(|id| *id as i32));
            places.extend((0..tokens.len()).flat_map(|token| [(start + token) as i32, first_page as i32]));
            let (many, tile) = attention.tile(tokens.len());
            let many = usize::from(many);
            for first in (0..tokens.len()).step_by(tile.rows) {
                let count = tile.rows.min(tokens.len() - first);
                queries[many]
                    .extend([rows.start + first, count, start + first, first_page].map(|number| number as i32));
            }
            longest[many] = longest[many].max(start + tokens.len());
            wanted.extend(of_sequence.clone().map(|row| row as i32));
        }
        let mut table = Vec::new();
        let overflow = part(&mut table, &[u64::MAX]); // at the start of the buffer
        let [of_ids, of_places, of_few, of_many, of_wanted] =
            [&ids, &places, &queries[0], &queries[1], &wanted].map(|values: &Vec<i32>| part(&mut table, values));
        let [cos, sin] = [&batch.angles[0].cos, &batch.angles[0].sin].map(|values| part(&mut table, values));
        let page_table = part(&mut table, &pages); // the one part that grows comes last
        if table.len() > buffer.bytes() {
            *buffer = Buffer::new(gpu, "the table of a batch", table.len())?;
        }
        buffer.upload(0, &table)?;
        let at = |offset| buffer.address + offset;
        let tiles = |index: usize, offset| {
            let count = queries[index].len() / 4;
            QueryTiles { address: at(offset), count, parts: parts(batch.rows, count, longest[index]) }
        };
        Ok(BatchTable {
            rows: batch.rows,
            ids: at(of_ids),
            places: at(of_places),
            queries: [tiles(0, of_few), tiles(1, of_many)],
            wanted: at(of_wanted),
            wanted_rows: wanted.len(),
            pages: at(page_table),
            cos: at(cos),
            sin: at(sin),
            overflow: at(overflow),
        })
    }
}

/// The layer, row and value that `overflow_of` of `steps.cu` put into the word; `None` where the cache holds all.
pub(super) fn overflow(word: [u8; 8]) -> Option<(usize, usize, f32)> {
    let word = u64::from_le_bytes(word);
    let value = f32::from_bits((!(word as u32)).rotate_right(1));
    (word != u64::MAX).then_some(((word >> 48) as usize, (word >> 32 & 0xffff) as usize, value))
}
