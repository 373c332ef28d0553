//! Rows of floats -> BF16, and blocks of signed bytes.

use crate::isa::{Isa, compiled_for};
use crate::ops::exp::ROUND;
use crate::order::BLOCK;

/// Blocks that are made at a time.
pub(crate) const TOGETHER: usize = 16;

/// Blocks of signed bytes; see `crate::input::Q8`.
#[repr(align(64))]
pub(crate) struct Blocks {
    pub(crate) bytes: [[i8; BLOCK]; TOGETHER],
    pub(crate) scales: [f32; TOGETHER],
    pub(crate) sums: [f32; TOGETHER],
    pub(crate) offsets: [i32; TOGETHER],
    /// Of the first and of the second halves.
    pub(crate) half_offsets: [[i32; TOGETHER]; 2],
}

impl Blocks {
    pub(crate) const ZERO: Blocks = Blocks {
        bytes: [[0; BLOCK]; TOGETHER],
        scales: [0.0; TOGETHER],
        sums: [0.0; TOGETHER],
        offsets: [0; TOGETHER],
        half_offsets: [[0; TOGETHER]; 2],
    };
}

/// Brings `x` into blocks.
pub(crate) fn quantize(isa: Isa, x: &[[f32; BLOCK]; TOGETHER], to: &mut Blocks) {
    #[cfg(target_arch = "x86_64")]
    if isa.has(crate::isa::Sets::AVX512) {
        // SAFETY: the token is proof of the instruction sets.
        return unsafe { crate::arch::x86_64::avx512::quantize::quantize(x, to) };
    }
    quantize_by_blocks(isa, x, to);
}

compiled_for! {
    /// Rounds `x` to the nearest BF16, ties to even; a NaN stays one.
    pub(crate) fn round_to_bf16(isa: Isa, x: &[f32], row: &mut [u16]) {
        for (half, x) in row.iter_mut().zip(x) {
            let bits = x.to_bits();
            let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
            let nan = (bits >> 16) as u16 | 0x40;
            *half = if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded };
        }
    }

    fn quantize_by_blocks(isa: Isa, x: &[[f32; BLOCK]; TOGETHER], to: &mut Blocks) {
        for (b, x) in x.iter().enumerate() {
            // The largest magnitude by its bits, whose order is that of the numbers; a NaN is larger than all.
            let mut largest = [0u32; 16];
            for (lane, largest) in largest.iter_mut().enumerate() {
                let (a, b) = (x[lane].to_bits() & 0x7fff_ffff, x[lane + 16].to_bits() & 0x7fff_ffff);
                *largest = a.max(b);
            }
            let largest = f32::from_bits(largest.iter().fold(0, |a, &b| a.max(b)));
            let scale = largest / 127.0;
            // Where the scale is 0 or NaN any divisor will do: the bytes will be multiplied by that scale.
            let divisor = if scale > 0.0 { scale } else { 1.0 };
            let mut q = [0i32; BLOCK];
            for (q, &x) in q.iter_mut().zip(x) {
                let rounded = (x / divisor + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
                *q = rounded.clamp(-127, 127);
            }
            to.bytes[b] = q.map(|q| q as i8);
            let [first, second] = [q[..16].iter().sum::<i32>(), q[16..].iter().sum::<i32>()];
            to.half_offsets[0][b] = -128 * first;
            to.half_offsets[1][b] = -128 * second;
            to.offsets[b] = -128 * (first + second);
            to.scales[b] = scale;
            to.sums[b] = scale * (first + second) as f32;
        }
    }

    /// Takes what `blocks` hold off `x`.
    pub(crate) fn subtract(isa: Isa, x: &mut [[f32; BLOCK]; TOGETHER], blocks: &Blocks) {
        for ((x, bytes), scale) in x.iter_mut().zip(&blocks.bytes).zip(blocks.scales) {
            x.iter_mut().zip(bytes).for_each(|(x, &q)| *x = f32::from(q).mul_add(-scale, *x));
        }
    }
}
