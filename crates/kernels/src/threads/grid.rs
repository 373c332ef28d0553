//! Parallel regions that write one buffer: the buffer is cut into tiles, each handed to exactly one task.
use super::{Pool, Split};
use std::ops::Range;

/// A task's part of a `[rows, width]` buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of the buffer.
    pub rows: Range<usize>,
    /// Columns of the buffer.
    pub columns: Range<usize>,
}

/// Write access to one [`Tile`].
pub struct TileMut<'a> {
    buffer: Split<'a, f32>,
    width: usize,
    tile: &'a Tile,
}

impl TileMut<'_> {
    /// The tile's columns of buffer row `row`. Panics when the row is not the tile's.
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(self.tile.rows.contains(&row), "row {row} is outside of {:?}", self.tile);
        let columns = &self.tile.columns;
        // SAFETY: `run_grid` hands every task a tile of its own, and `&mut self` keeps two parts of one tile from
        // existing at once.
        unsafe { self.buffer.part(row * self.width + columns.start, columns.len()) }
    }

    /// The tile's columns of each of its rows.
    pub fn rows(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let columns = &self.tile.columns;
        // SAFETY: as in `row`; rows do not overlap.
        self.tile.rows.clone().map(|row| unsafe { self.buffer.part(row * self.width + columns.start, columns.len()) })
    }
}

impl Pool {
    /// Cuts `buffer` `[rows, width]` into bands between neighbors of `rows`, and these into the columns between neighbors of
    /// `columns`; runs `task(band, tile, ..)` once for each tile; tiles of a band run one after the other.
    /// Panics when `width` does not divide the buffer, or `rows` and `columns` do not ascend from 0 to its ends.
    pub fn run_bands(
        &self,
        buffer: &mut [f32],
        width: usize,
        rows: &[usize],
        columns: &[usize],
        task: &(dyn Fn(usize, &Tile, &mut TileMut<'_>) + Sync),
    ) {
        assert!(width > 0 && buffer.len().is_multiple_of(width), "{} elements, width {width}", buffer.len());
        assert!(rows.first() == Some(&0) && rows.last() == Some(&(buffer.len() / width)) && rows.is_sorted());
        self.run_tiles(buffer, width, rows.len() - 1, &|band| rows[band]..rows[band + 1], columns, task);
    }

    /// Cuts `buffer` `[rows, width]` into tiles of `row_step` rows and the columns between neighbors of `columns`, and
    /// runs `task` once for each.
    /// Panics when `width` does not divide the buffer, or `columns` does not ascend from 0 to `width`.
    pub fn run_grid(
        &self,
        buffer: &mut [f32],
        width: usize,
        row_step: usize,
        columns: &[usize],
        task: &(dyn Fn(&Tile, &mut TileMut<'_>) + Sync),
    ) {
        if buffer.is_empty() {
            return;
        }
        assert!(buffer.len().is_multiple_of(width) && row_step > 0, "{} elements, width {width}", buffer.len());
        let rows = buffer.len() / width;
        let band = |band: usize| band * row_step..rows.min((band + 1) * row_step);
        self.run_tiles(buffer, width, rows.div_ceil(row_step), &band, columns, &|_, tile, out| task(tile, out));
    }

    /// Runs `task` for the columns between neighbors of `columns` in each of `bands` bands of rows, which do not overlap.
    fn run_tiles(
        &self,
        buffer: &mut [f32],
        width: usize,
        bands: usize,
        rows: &(dyn Fn(usize) -> Range<usize> + Sync),
        columns: &[usize],
        task: &(dyn Fn(usize, &Tile, &mut TileMut<'_>) + Sync),
    ) {
        assert!(columns.first() == Some(&0) && columns.last() == Some(&width) && columns.is_sorted());
        let column_tiles = columns.len() - 1;
        let buffer = Split::new(buffer);
        self.run(bands * column_tiles, &|index| {
            let (band, column) = (index / column_tiles, index % column_tiles);
            let tile = Tile { rows: rows(band), columns: columns[column]..columns[column + 1] };
            task(band, &tile, &mut TileMut { buffer: buffer.share(), width, tile: &tile });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_belongs_to_one_tile() {
        let pool = Pool::new(2);
        for (rows, row_step) in [(1, 1), (5, 2), (7, 3), (4, 100)] {
            let mut buffer = vec![0f32; rows * 10];
            pool.run_grid(&mut buffer, 10, row_step, &[0, 3, 4, 10], &|tile, out| {
                for row in tile.rows.clone() {
                    for (column, y) in tile.columns.clone().zip(out.row(row)) {
                        *y += (row * 10 + column) as f32;
                    }
                }
                out.rows().flatten().for_each(|y| *y += 1.0);
            });
            let expected: Vec<f32> = (1..=rows * 10).map(|i| i as f32).collect();
            assert_eq!(buffer, expected, "{rows} rows in steps of {row_step}");
        }
    }

    #[test]
    fn every_element_belongs_to_one_tile_of_a_band() {
        let pool = Pool::new(2);
        let mut buffer = vec![0f32; 7 * 10];
        pool.run_bands(&mut buffer, 10, &[0, 3, 3, 4, 7], &[0, 6, 10], &|band, tile, out| {
            for row in tile.rows.clone() {
                for (column, y) in tile.columns.clone().zip(out.row(row)) {
                    *y += (100 * band + row * 10 + column) as f32;
                }
            }
        });
        let band = |row| [0, 0, 0, 2, 3, 3, 3][row];
        let expected: Vec<f32> = (0..70).map(|i| (100 * band(i / 10) + i) as f32).collect();
        assert_eq!(buffer, expected);
    }

    #[test]
    #[should_panic(expected = "outside of")]
    fn a_tile_does_not_reach_other_rows() {
        Pool::new(1).run_grid(&mut [0.0; 8], 4, 1, &[0, 4], &|tile, out| {
            out.row(tile.rows.end);
        });
    }
}
