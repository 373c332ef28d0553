//! Where kernels write, and whole products spread over the pool.

#![allow(unsafe_code)]

use super::{Input, Kernel};
use crate::threads::{Pool, Split};

/// The outputs `[tokens, rows]` of one call of a kernel: some columns of a larger matrix.
pub(super) struct Output<'a> {
    y: Split<'a, f32>,
    tokens: usize,
    rows: usize,
    first: usize,
    stride: usize,
}

impl<'a> Output<'a> {
    /// All of `y` `[tokens, rows]`.
    pub(super) fn new(y: &'a mut [f32], tokens: usize, rows: usize) -> Output<'a> {
        assert_eq!(y.len(), tokens * rows);
        Output { y: Split::new(y), tokens, rows, first: 0, stride: rows }
    }

    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The outputs of `len` rows from `row` on, for `token`. Panics when there are not so many.
    #[inline]
    pub(super) fn part(&mut self, token: usize, row: usize, len: usize) -> &mut [f32] {
        assert!(token < self.tokens && row <= self.rows && len <= self.rows - row);
        // SAFETY: the columns of this output are its own (`new`: all of them; `multiply`: one task's), and the part
        // keeps `self` borrowed.
        unsafe { self.y.part(token * self.stride + self.first + row, len) }
    }
}

/// One of several products that [`multiply`] computes together.
pub struct Product<'a> {
    /// The kernel for the weight's dtype.
    pub kernel: Kernel,
    /// `[rows, inputs]` as stored.
    pub weight: &'a [u8],
    /// `[tokens, inputs]` in the kernel's form.
    pub input: &'a Input,
    /// `[tokens, rows]`, overwritten.
    pub y: &'a mut [f32],
}

/// Computes `products` (query, key and value, say) in one parallel region.
/// Panics when lengths or forms do not match, as [`Kernel::matmul`] does.
pub fn multiply(pool: &Pool, products: &mut [Product<'_>]) {
    struct Part<'a> {
        kernel: Kernel,
        weight: &'a [u8],
        input: &'a Input,
        y: Split<'a, f32>,
        rows: usize,
        row_bytes: usize,
        chunk: usize,
        tasks: usize,
    }
    let mut tasks = 0;
    let parts: Vec<Part<'_>> = products
        .iter_mut()
        .map(|product| {
            let rows = product.kernel.rows(product.weight, product.input);
            assert_eq!(product.y.len(), product.input.tokens() * rows, "outputs of {}", product.kernel.name);
            let row_bytes = product.kernel.row_bytes(product.input.inputs());
            let chunk = rows_per_task(rows, row_bytes, product.input.tokens(), pool.threads());
            let part = Part {
                kernel: product.kernel,
                weight: product.weight,
                input: product.input,
                y: Split::new(&mut *product.y),
                rows,
                row_bytes,
                chunk,
                tasks: rows.div_ceil(chunk),
            };
            tasks += part.tasks;
            part
        })
        .collect();
    pool.run(tasks, &|mut task| {
        for part in &parts {
            if task >= part.tasks {
                task -= part.tasks;
                continue;
            }
            let first = task * part.chunk;
            let rows = part.chunk.min(part.rows - first);
            let weight = &part.weight[first * part.row_bytes..(first + rows) * part.row_bytes];
            let tokens = part.input.tokens();
            let y = part.y.share();
            part.kernel.run(weight, part.input, &mut Output { y, tokens, rows, first, stride: part.rows });
            return;
        }
    });
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
