//! Rows of BF16 and of int8 arranged for tiles (`arch/generic/tiles.rs`).

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // no other processors have tiles

use super::{Form, Input, stride};
use crate::arch::generic::tiles::{ROW, ROWS};
use crate::isa::{Isa, Sets};
use crate::memory;
use crate::threads::{Pool, Split};

/// With at most so many tokens int8 is multiplied in rows: panels take no longer, and the sums are exact either way.
const INT8_IN_ROWS: usize = 8;

/// A group of up to 16 tokens: `[row bytes / 4, tokens, 4]`, with zeros up to a whole number of 64 bytes a row.
#[derive(Clone, Copy)]
pub(crate) struct Tiled<'a> {
    pub(crate) tokens: usize,
    pub(crate) bytes: &'a [u8],
}

impl Input {
    /// Whether rows of the form are arranged for tiles.
    pub(super) fn is_for_tiles(isa: Isa, form: Form, tokens: usize) -> bool {
        isa.has(Sets::AMX)
            && match form {
                Form::Bf16 => true,
                Form::Int8(_) => tokens > INT8_IN_ROWS,
                _ => false,
            }
    }

    /// Whether the rows are arranged for tiles too.
    pub(crate) fn is_tiled(&self) -> bool {
        self.tiled
    }

    /// Arranges the rows for tiles, if the processor has them and the form is multiplied by them.
    pub(super) fn arrange(&mut self, pool: Option<&Pool>, isa: Isa) -> memory::Result<()> {
        if !Input::is_for_tiles(isa, self.form, self.tokens) {
            return Ok(());
        }
        self.arrange_for_tiles(pool, isa).inspect_err(|_| self.tokens = 0)
    }

    /// Arranges the rows for tiles, on this thread if there is no pool.
    pub(crate) fn arrange_for_tiles(&mut self, pool: Option<&Pool>, isa: Isa) -> memory::Result<()> {
        let mut tiles = std::mem::take(&mut self.buffers.tiles);
        let room = tiles.grow(self.tokens * self.padded_row());
        if room.is_ok() {
            let to = Split::new(tiles.all_mut());
            let group = |group: usize| {
                let (first, tokens) = (group * ROWS, ROWS.min(self.tokens - group * ROWS));
                // SAFETY: groups do not overlap, and each is arranged once.
                let to = unsafe { to.part(first * self.padded_row(), tokens * self.padded_row()) };
                let rows: [&[u8]; ROWS] =
                    std::array::from_fn(|t| if t < tokens { self.stored(first + t) } else { &[] });
                arrange(isa, &rows[..tokens], to);
            };
            let groups = self.tokens.div_ceil(ROWS);
            match pool {
                Some(pool) if groups > 1 => pool.run(groups, &group),
                _ => (0..groups).for_each(group),
            }
            self.tiled = true;
        }
        self.buffers.tiles = tiles;
        room
    }

    /// Group `group` of the tokens. Panics if the rows are not arranged for tiles.
    #[inline]
    pub(crate) fn tiled(&self, group: usize) -> Tiled<'_> {
        assert!(self.tiled && group * ROWS < self.tokens);
        let tokens = ROWS.min(self.tokens - group * ROWS);
        let each = self.padded_row();
        Tiled { tokens, bytes: &self.buffers.tiles.all()[group * ROWS * each..][..tokens * each] }
    }

    /// Bytes of a row, up to a whole number of 64.
    fn padded_row(&self) -> usize {
        let element = if self.form == Form::Bf16 { 2 } else { 1 };
        (self.inputs * element).next_multiple_of(ROW)
    }

    /// The bytes of row `token`.
    fn stored(&self, token: usize) -> &[u8] {
        match self.form {
            Form::Bf16 => {
                bytemuck::cast_slice(&self.buffers.halves.all()[token * stride(self.inputs, 32)..][..self.inputs])
            }
            _ => bytemuck::cast_slice(&self.buffers.bytes.all()[token * stride(self.inputs, 64)..][..self.inputs]),
        }
    }
}

/// Arranges rows of a group.
fn arrange(isa: Isa, rows: &[&[u8]], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has(Sets::AVX512) {
        // SAFETY: the token proves the instruction sets that the function is compiled for.
        return unsafe { crate::arch::x86_64::amx::arrange(rows, to) };
    }
    let _ = isa;
    for (i, to) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let (four, row) = (i / rows.len(), rows[i % rows.len()]);
        *to = std::array::from_fn(|k| row.get(4 * four + k).copied().unwrap_or_default());
    }
}
