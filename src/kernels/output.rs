//! Where kernels write, and how many rows a task should have.

/// The outputs `[tokens, rows]` of one call of a kernel.
pub(super) struct Output<'a> {
    y: &'a mut [f32],
    rows: usize,
}

impl<'a> Output<'a> {
    /// All of `y` `[tokens, rows]`. Panics if it has another length.
    pub(super) fn new(y: &'a mut [f32], tokens: usize, rows: usize) -> Output<'a> {
        assert_eq!(y.len(), tokens * rows, "outputs of {tokens} tokens and {rows} rows");
        Output { y, rows }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The outputs of `len` rows from `row` on, for `token`. Panics when there are not so many.
    #[inline]
    pub(super) fn part(&mut self, token: usize, row: usize, len: usize) -> &mut [f32] {
        assert!(row <= self.rows && len <= self.rows - row);
        &mut self.y[token * self.rows + row..][..len]
    }
}

/// Rows that one task computes: enough bytes that handing it out costs nothing, few enough that the threads end
/// together, and a multiple of the tiles of the kernels.
pub fn rows_per_task(rows: usize, row_bytes: usize, tokens: usize, threads: usize) -> usize {
    const TILE: usize = 16;
    let bytes = if tokens == 1 { 64 << 10 } else { 128 << 10 };
    let by_bytes = (bytes / row_bytes.max(1)).max(TILE);
    let by_share = rows.div_ceil(threads * 4).max(TILE);
    by_bytes.min(by_share).next_multiple_of(TILE)
}
