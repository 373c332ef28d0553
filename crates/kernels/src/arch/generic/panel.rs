//! Products with many tokens for block dtypes: weight rows unpacked once into bytes, then multiplied with all tokens.
//!
//! A panel holds a row for each lane, so that one vector register has four consecutive elements of each row. It is multiplied
//! with four activations of a token, repeated in all lanes. A lane is a row: each output's sum runs through the same
//! operations as in the dtype's product with one token, where a lane is a block.

#![allow(clippy::needless_range_loop)] // tokens are indices of several arrays

use super::prefetch::prefetch;
use super::simd::Simd;
use crate::dtypes::blocks::Format;
use crate::input::{Lines, Packed};
use crate::memory;
use crate::order::{BLOCK, GROUP, Order};
use crate::scratch::{Scratch, room};
use crate::{Call, LANES};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Bytes of unpacked panels that are multiplied with all tokens before others are unpacked; a single panel may have more.
const UNPACKED: usize = 1 << 20;

/// The parts that differ between vector widths.
pub(crate) trait Multiply: Simd {
    /// The most tokens multiplied at once; the other tokens of a group follow.
    const TOKENS: usize;
    /// Whether the next panel's rows are prefetched, and a few tokens are multiplied with one panel after the other.
    const ASKS: bool;
    /// Whether two rows are multiplied with two tokens at once, as in [`Pairs`](crate::input::Layout::Pairs).
    const PAIRS: bool = false;
    /// Whether sums of blocks without minima begin with a product instead of 0, where that saves an instruction.
    const BEGINS: bool = false;

    /// The sums of the products of some of a block's eight groups of four elements, without what offsets add to them.
    /// `offsets` are -128 times the sums of these activations, for panels that keep the offsets of elements.
    ///
    /// # Safety
    /// `w` has the eight vectors of a block, aligned to 16 bytes, and the processor what the implementation is compiled for, which
    /// may be more than `Self` proves: AVX-512 VNNI.
    unsafe fn products<F: Format, const T: usize>(
        self,
        w: *const u8,
        x: &[[[i8; 4]; 8]; T],
        groups: Range<usize>,
        offsets: &[i32; T],
    ) -> [Self::Floats; T];

    /// How many vectors of a panel have a number of each row.
    const OF_ROWS: usize = 1 + Self::PAIRS as usize;

    /// The part of a number of each row for the lanes of vector `v` of [`products`](Self::products), for the first
    /// [`OF_ROWS`](Self::OF_ROWS), which alternate: the lanes are rows and the vectors tokens, unless products are of
    /// pairs.
    #[inline(always)]
    fn of_rows(self, rows: Self::Floats, _v: usize) -> Self::Floats {
        rows
    }

    /// The part of a number of each of `T` tokens, in `tokens` in the layout of an [`Input`], for the lanes of vector `v`.
    /// If it is `unpaired`, it is loaded like by [`Simd::load_unpaired`].
    ///
    /// # Safety
    /// The numbers of `T` tokens are there, and `v` is less than `T`; numbers of pairs are aligned to 16 bytes.
    #[inline(always)]
    unsafe fn of_tokens<const T: usize>(self, tokens: *const f32, v: usize, _unpaired: bool) -> Self::Floats {
        // SAFETY: the caller guarantees it.
        self.all(unsafe { *tokens.add(v) })
    }

    /// Like `of_tokens`, for the negated sum of each token's activations; `offsets` has -128 times the sums.
    #[inline(always)]
    fn of_offsets<const T: usize>(self, offsets: &[i32; T], v: usize) -> Self::Floats {
        self.all_int(offsets[v] >> 7)
    }

    /// A vector of all rows for each token.
    #[inline(always)]
    fn by_token<const T: usize>(self, sums: [Self::Floats; T]) -> [Self::Floats; T] {
        sums
    }
}

/// The stored bytes of a panel's `R` rows.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, const R: usize> {
    first: usize,
    bytes: &'a [u8],
    row_bytes: usize,
}

impl<'a, const R: usize> Rows<'a, R> {
    /// The rows of `bytes` from row `first` on. If they are fewer than `R`, they are copied one after the other, with zeros for
    /// the missing ones.
    fn new(first: usize, bytes: &'a [u8], row_bytes: usize, copy: &'a mut Lines<u8>) -> memory::Result<Rows<'a, R>> {
        if bytes.len() == R * row_bytes {
            return Ok(Rows { first, bytes, row_bytes });
        }
        let copy = room(copy, R * row_bytes)?;
        let (rows, rest) = copy.split_at_mut(bytes.len());
        rows.copy_from_slice(bytes);
        rest.fill(0);
        Ok(Rows { first, bytes: copy, row_bytes })
    }

    /// The number of the first row in the weight.
    #[inline(always)]
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// The `i`-th `N` bytes of each row, with zeros after a row's end, which is put into `padding`.
    #[inline(always)]
    pub(crate) fn step<'s, const N: usize>(
        &'s self,
        i: usize,
        padding: &'s mut Option<[[u8; N]; R]>,
    ) -> Step<'s, N, R> {
        let at = i * N;
        if at + N <= self.row_bytes {
            assert!(self.bytes.len() == R * self.row_bytes);
            return Step { first: &self.bytes[at..], stride: self.row_bytes };
        }
        Step { first: self.padded(at, padding).as_flattened(), stride: N }
    }

    #[cold]
    fn padded<'s, const N: usize>(&self, at: usize, padding: &'s mut Option<[[u8; N]; R]>) -> &'s [[u8; N]; R] {
        let padding = padding.insert([[0; N]; R]);
        for (row, padded) in self.bytes.chunks_exact(self.row_bytes).zip(padding.iter_mut()) {
            let rest = &row[at.min(row.len())..];
            padded[..rest.len()].copy_from_slice(rest);
        }
        padding
    }
}

/// `N` bytes of each of `R` rows.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a, const N: usize, const R: usize> {
    /// The bytes from those of the first row on.
    first: &'a [u8],
    stride: usize,
}

impl<'a, const N: usize, const R: usize> Step<'a, N, R> {
    /// The bytes of row `r`.
    #[inline(always)]
    pub(crate) fn row(self, r: usize) -> &'a [u8; N] {
        self.part(r, 0)
    }

    /// The `M` bytes of row `r` from `at` on.
    #[inline(always)]
    pub(crate) fn part<const M: usize>(self, r: usize, at: usize) -> &'a [u8; M] {
        assert!(r < R && M <= N && at <= N - M);
        // SAFETY: only `Rows::step` makes one: from `first` on there are `R - 1` strides and `N` bytes.
        unsafe { &*self.first.as_ptr().add(r * self.stride + at).cast() }
    }
}

/// The memory of one panel, which the dtype fills.
pub(crate) struct Panel<'a, S> {
    simd: S,
    order: Order,
    /// The beginning of the bytes of the next panel.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))] // dtypes ask for them only by AVX-512
    next: *const u8,
    /// Whether half of the next panel's bytes are prefetched while this one is multiplied.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    halved: bool,
    /// For each block elements `[8, rows, 4]`, then floats `[numbers of each row, vectors of one, lanes]`.
    bytes: &'a mut [u8],
    /// The bytes of a block.
    each: usize,
}

impl<S: Multiply> Panel<'_, S> {
    /// The steps of `len` blocks in a row; the last may be shorter.
    pub(crate) fn steps(&self, len: usize) -> Range<usize> {
        0..self.order.blocks.div_ceil(len)
    }

    /// Prefetches as many bytes of the next panel's rows as the `i`-th `len` bytes of this one, while these are unpacked; or
    /// half as many, of the first half.
    #[inline]
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    pub(crate) fn ask_ahead(&self, i: usize, len: usize) {
        if self.halved {
            prefetch(self.next.wrapping_add(i * (len / 2)), len / 2);
        } else {
            prefetch(self.next.wrapping_add(i * len), len);
        }
    }

    /// Stores block `b`: column `c` has elements `4 * c ..` of all rows.
    #[inline(always)]
    pub(crate) fn put_columns(&mut self, b: usize, columns: &[S::Bits; 8]) {
        self.put_some_columns(b, 0, columns);
    }

    /// Stores the columns of block `b` from `first` on.
    #[inline(always)]
    pub(crate) fn put_some_columns<const N: usize>(&mut self, b: usize, first: usize, columns: &[S::Bits; N]) {
        if let Some(place) = self.order.place(b) {
            let bytes = &mut self.bytes[place * self.each..][4 * first * S::LANES..][..4 * N * S::LANES];
            for c in 0..N {
                // SAFETY: that many vectors are there.
                unsafe { self.simd.store_bits(bytes.as_mut_ptr().add(c * 4 * S::LANES), columns[c]) };
            }
        }
    }

    /// Stores the numbers of block `b` that a format has: scale and minimum, and the scales and minima of both halves.
    #[inline(always)]
    pub(crate) fn put_factors<F: Format>(
        &mut self,
        b: usize,
        [scale, min]: [S::Floats; 2],
        [first, second]: [S::Floats; 2],
        [first_min, second_min]: [S::Floats; 2],
    ) {
        match (F::HALVES, F::MINS) {
            (false, false) => self.put_floats(b, [scale]),
            (false, true) => self.put_floats(b, [scale, min]),
            (true, false) => self.put_floats(b, [first, second, scale]),
            (true, true) => self.put_floats(b, [first, second, scale, first_min, second_min, min]),
        }
    }

    /// Stores the floats of block `b`, each a vector of all rows.
    #[inline(always)]
    pub(crate) fn put_floats<const N: usize>(&mut self, b: usize, rows: [S::Floats; N]) {
        if let Some(place) = self.order.place(b) {
            let vectors = N * S::OF_ROWS;
            let floats = &mut self.bytes[place * self.each..][BLOCK * S::LANES..][..4 * vectors * S::LANES];
            for v in 0..vectors {
                let of_rows = self.simd.of_rows(rows[v / S::OF_ROWS], v % S::OF_ROWS);
                // SAFETY: that many vectors are there.
                unsafe { self.simd.store_all(floats.as_mut_ptr().cast::<f32>().add(v * S::LANES), of_rows) };
            }
        }
    }
}

/// The numbers of each row that a format has for each block: a scale and a minimum; or the scales of both halves and their
/// factor, then their minima and the factor of these. Numbers that the format lacks are left out.
const fn numbers_a_block<F: Format>() -> usize {
    (1 + F::MINS as usize) * (1 + 2 * F::HALVES as usize)
}

/// Whether half blocks have scales and minima, too many numbers for the registers.
const fn is_crowded<F: Format>() -> bool {
    F::HALVES && F::MINS
}

/// The bytes of each block in a panel.
const fn bytes_a_block<S: Multiply, F: Format>() -> usize {
    (BLOCK + 4 * numbers_a_block::<F>() * S::OF_ROWS) * S::LANES
}

/// Multiplies rows with tokens; `unpack(rows, panel)` fills the steps of a panel from as many rows of stored bytes as it
/// has, or fewer.
///
/// # Safety
/// The processor has what [`Multiply::products`] of `S` is compiled for.
#[inline(always)]
pub(crate) unsafe fn matmul<S: Multiply, F: Format, const R: usize>(
    simd: S,
    scratch: &mut Scratch,
    call: &mut Call<'_>,
    unpack: impl Fn(&Rows<'_, R>, &mut Panel<'_, S>),
) -> memory::Result<()> {
    let (weight, input) = (call.weight, call.input);
    const { assert!(R == S::LANES) };
    let order = Order::new(input.inputs() / BLOCK);
    let row_bytes = weight.len() / call.rows();
    // With at most one group of tokens memory is the bound: each panel is multiplied before the next is unpacked, and half of
    // the next one's bytes are prefetched in each phase. With more, all panels are unpacked first, and
    // each group of tokens passes over all of them.
    let few = S::ASKS && input.tokens() <= GROUP;
    let tile = if S::PAIRS && (is_crowded::<F>() || F::FLOATS) { 4 } else { S::TOKENS };
    let tile = if F::FLOATS && S::TOKENS == 4 { 2 } else { tile };
    let each = bytes_a_block::<S, F>();
    let fitting = (UNPACKED / (order.blocks * each)).max(1);
    let panels = if few { 1 } else { call.rows().div_ceil(S::LANES).min(fitting) };
    let bytes = room(&mut scratch.bytes, panels * order.blocks * each)?;
    for (i, part) in weight.chunks(panels * S::LANES * row_bytes).enumerate() {
        let places = bytes.chunks_exact_mut(order.blocks * each);
        for (p, (rows, bytes)) in part.chunks(S::LANES * row_bytes).zip(places).enumerate() {
            let next = rows.as_ptr_range().end;
            let rows = Rows::new((i * panels + p) * S::LANES, rows, row_bytes, &mut scratch.rows)?;
            unpack(&rows, &mut Panel { simd, order, next, halved: few, bytes, each });
        }
        let unpacked = part.len().div_ceil(S::LANES * row_bytes);
        let ask = if few { part.len() / 2 } else { 0 };
        let next = part.as_ptr_range().end.wrapping_add(ask);
        for first in (0..input.tokens()).step_by(GROUP) {
            let x = input.packed(first / GROUP);
            for (p, bytes) in bytes.chunks_exact(order.blocks * each).take(unpacked).enumerate() {
                let row = (i * panels + p) * S::LANES;
                let product = PanelProduct { simd, order, bytes, x, next, ask: ask / LANES, row, first };
                for token in (0..x.tokens).step_by(tile) {
                    match x.tokens - token {
                        1 | 2 if S::PAIRS => product.multiply::<F, 2>(token, call),
                        3 | 4 if S::PAIRS => product.multiply::<F, 4>(token, call),
                        _ if S::PAIRS && tile == 4 => product.multiply::<F, 4>(token, call),
                        _ if S::PAIRS => product.multiply::<F, 6>(token, call),
                        1 => product.multiply::<F, 1>(token, call),
                        2 => product.multiply::<F, 2>(token, call),
                        // Scales of half blocks that are floats leave registers for no more.
                        _ if F::FLOATS && S::TOKENS == 4 => product.multiply::<F, 2>(token, call),
                        3 => product.multiply::<F, 3>(token, call),
                        // Code for more tokens than are multiplied at once is not compiled.
                        _ if S::TOKENS == 4 => product.multiply::<F, 4>(token, call),
                        4 => product.multiply::<F, 4>(token, call),
                        5 => product.multiply::<F, 5>(token, call),
                        6 => product.multiply::<F, 6>(token, call),
                        7 => product.multiply::<F, 7>(token, call),
                        _ => product.multiply::<F, GROUP>(token, call),
                    }
                }
            }
        }
    }
    Ok(())
}

/// A panel whose first row is `row`, and the group of tokens that it is multiplied with, whose first is `first`. Only
/// [`matmul`] makes one: the processor has what `S::products` is compiled for.
struct PanelProduct<'a, S> {
    simd: S,
    order: Order,
    /// Like in [`Panel`], aligned to 16 bytes: the beginning is a cache line's, and blocks are multiples of 32 bytes.
    bytes: &'a [u8],
    x: Packed<'a>,
    /// The beginning of the prefetches: `ask` bytes with each lane.
    next: *const u8,
    ask: usize,
    row: usize,
    first: usize,
}

/// The place of a block.
#[derive(Clone, Copy)]
struct Place {
    /// The address of the block in the panel.
    rows: *const u8,
    /// The addresses of its bytes, floats and integers of the tokens.
    tokens: *const i8,
    floats: *const f32,
    ints: *const i32,
}

impl<S: Multiply> PanelProduct<'_, S> {
    /// The panel times `T` tokens of the group from `token` on.
    #[inline(always)]
    fn multiply<F: Format, const T: usize>(&self, token: usize, call: &mut Call<'_>) {
        let (simd, blocks, tokens) = (self.simd, self.order.blocks, self.x.width);
        assert!(self.bytes.len() >= blocks * bytes_a_block::<S, F>());
        assert!(token + T <= tokens && (S::TOKENS < GROUP || token == 0 && T == tokens));
        assert!(self.x.bytes.len() >= blocks * tokens * BLOCK);
        assert!(self.x.floats.len() >= blocks * 2 * tokens * S::OF_ROWS && self.x.ints.len() >= blocks * 3 * tokens);
        let mut place = Place {
            rows: self.bytes.as_ptr(),
            tokens: self.x.bytes[token * BLOCK..].as_ptr(),
            floats: self.x.floats[S::OF_ROWS * token..].as_ptr(),
            ints: self.x.ints[token..].as_ptr(),
        };
        // Beginning with a product changes no bit. It is an integer times a float, so 0 or no smaller than the least subnormal: sums
        // from 0 would never be -0. One that is -0 here becomes 0 at the end.
        let begins = const { S::BEGINS && !F::MINS };
        // Sums that wait for the sums of as many lanes, those of the most lanes first.
        let mut waiting = [const { MaybeUninit::<[S::Floats; T]>::uninit() }; LANES.ilog2() as usize];
        let mut top = waiting.as_mut_ptr();
        let mut i = 0;
        let mut sums = loop {
            if S::ASKS {
                prefetch(self.next.wrapping_add(i * self.ask), self.ask);
            }
            let mut sums = [simd.all(0.0); T];
            let mut left = self.order.count(i);
            if begins && left > 0 {
                // SAFETY: the counts add up to `blocks`, and the lengths above are those of `blocks` blocks.
                place = unsafe { self.block::<F, T, true>(place, &mut sums) };
                left -= 1;
            }
            for _ in 0..left {
                // SAFETY: the reason above holds here too.
                place = unsafe { self.block::<F, T, false>(place, &mut sums) };
            }
            let mut bit = 1;
            while i & bit != 0 {
                bit <<= 1;
                const { assert!(size_of::<S::Floats>() == 4 * S::LANES) };
                // SAFETY: for each 1 of a lane's number, sums of lanes before it wait, each as many floats.
                unsafe {
                    top = top.sub(1);
                    for t in 0..T {
                        sums[t] = simd.add(simd.load_unpaired(top.cast::<f32>().add(t * S::LANES)), sums[t]);
                    }
                }
            }
            i += 1;
            if i == LANES {
                break sums;
            }
            // SAFETY: as many wait now as the next number has ones: at most four.
            top = unsafe {
                top.write(MaybeUninit::new(sums));
                top.add(1)
            };
        };
        if begins {
            for t in 0..T {
                sums[t] = simd.add(sums[t], simd.all(0.0));
            }
        }
        let sums = simd.by_token::<T>(sums);
        let (rows, tokens) = (S::LANES.min(call.rows() - self.row), T.min(self.x.tokens - token) / F::PARTS);
        let (to, apart) = call.tile([(self.first + token) / F::PARTS, tokens], [self.row, rows]);
        let whole = rows == S::LANES && tokens == T / F::PARTS;
        for t in 0..T / F::PARTS {
            let mut sum = sums[t * F::PARTS];
            for part in 1..F::PARTS {
                sum = simd.add(sum, sums[t * F::PARTS + part]);
            }
            // SAFETY: it reaches to the last of `rows` floats of the last of `tokens`.
            unsafe {
                if whole {
                    simd.store_all(to.as_mut_ptr().add(t * apart), sum);
                } else if t < tokens {
                    simd.store(to.as_mut_ptr().add(t * apart), rows, sum);
                }
            }
        }
    }

    /// Adds the block `at` of all rows to the sums of `T` tokens of the group, or begins the sums with it if it is `FIRST`. Returns
    /// the place of the next block.
    ///
    /// # Safety
    /// The panel and `x` have that block, and `x` those tokens; all of them if so many are multiplied at once.
    #[inline(always)]
    unsafe fn block<F: Format, const T: usize, const FIRST: bool>(
        &self,
        at: Place,
        sums: &mut [S::Floats; T],
    ) -> Place {
        let simd = self.simd;
        let each = S::OF_ROWS;
        // The compiler knows the number where a group is multiplied at once.
        let tokens = if S::TOKENS == GROUP { T } else { self.x.width };
        let w = at.rows;
        // SAFETY: the caller guarantees it; `w` is a block, and the processor as `matmul` asks.
        unsafe {
            // Unpaired numbers are loaded in the order below; where registers are few, the compiler does better.
            let of_tokens = |tokens, t| simd.of_tokens::<T>(tokens, t, !is_crowded::<F>());
            let x = &*at.tokens.cast::<[[[i8; 4]; 8]; T]>();
            let offsets = |i: usize| &*at.ints.add(i * tokens).cast::<[i32; T]>();
            let (offsets, of_first, of_second) = (offsets(0), offsets(1), offsets(2));
            let dots = if F::HALVES {
                let first = simd.products::<F, T>(w, x, 0..4, of_first);
                let mut dots = simd.products::<F, T>(w, x, 4..8, of_second);
                let [by_first, by_second] = self.factors::<F, 2>(w, 0);
                for t in 0..T {
                    // |sum| <= 16 * 32 * 127 < 2^16 and |scale| <= 2^7: both products and their sum are exact in f32.
                    dots[t] = simd.mul_add(dots[t], by_second[t % each], simd.mul(first[t], by_first[t % each]));
                }
                dots
            } else {
                simd.products::<F, T>(w, x, 0..8, offsets)
            };
            let [rows] = self.factors::<F, 1>(w, 2 * F::HALVES as usize);
            let mut mins = [[simd.all(0.0); 2]; 3];
            if is_crowded::<F>() {
                mins = self.factors::<F, 3>(w, 3);
            }
            let mut scale = simd.all(0.0);
            for t in 0..T {
                if t % each == 0 {
                    scale = of_tokens(at.floats, t);
                }
                let by = simd.mul(rows[t % each], scale);
                sums[t] = if FIRST { simd.mul(dots[t], by) } else { simd.mul_add(dots[t], by, sums[t]) };
                if is_crowded::<F>() {
                    // The following is exact too.
                    let less = simd.mul(simd.of_offsets::<T>(of_first, t), mins[0][t % each]);
                    let less = simd.mul_add(simd.of_offsets::<T>(of_second, t), mins[1][t % each], less);
                    sums[t] = simd.mul_add(less, simd.mul(mins[2][t % each], scale), sums[t]);
                }
            }
            if F::MINS && !F::HALVES {
                let (x_sums, [rows]) = (at.floats.add(each * tokens), self.factors::<F, 1>(w, 1));
                let mut sum = simd.all(0.0);
                for t in 0..T {
                    if t % each == 0 {
                        sum = of_tokens(x_sums, t);
                    }
                    sums[t] = simd.negated_mul_add(rows[t % each], sum, sums[t]);
                }
            }
        }
        Place {
            rows: w.wrapping_add(bytes_a_block::<S, F>()),
            tokens: at.tokens.wrapping_add(tokens * BLOCK),
            floats: at.floats.wrapping_add(2 * each * tokens),
            ints: at.ints.wrapping_add(3 * tokens),
        }
    }

    /// The `N` numbers of each row, from number `first` on, of the block at `block` of a panel.
    ///
    /// # Safety
    /// The numbers are there, aligned to 16 bytes.
    #[inline(always)]
    unsafe fn factors<F: Format, const N: usize>(&self, block: *const u8, first: usize) -> [[S::Floats; 2]; N] {
        let mut factors = [[self.simd.all(0.0); 2]; N];
        for n in 0..N {
            for v in 0..S::OF_ROWS {
                let at = block.wrapping_add((BLOCK + 4 * ((first + n) * S::OF_ROWS + v)) * S::LANES);
                // SAFETY: the caller guarantees it.
                factors[n][v] = unsafe {
                    if is_crowded::<F>() {
                        self.simd.load::<true>(at.cast(), S::LANES)
                    } else {
                        self.simd.load_unpaired(at.cast())
                    }
                };
            }
        }
        factors
    }
}
