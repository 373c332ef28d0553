//! Attention by AVX2. The same bits as by AVX-512.

#![allow(unsafe_code)]

use super::ahead::Ahead;
use super::passes::{self, Attend, COLUMNS, dots};
use super::{Element, KvTile, Query, TILE};
use crate::kernels::avx2::store_floats;
use crate::kernels::simd::{Avx2, Simd};
use std::ops::Range;

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn attend<E: Element>(
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: Range<usize>,
    then: Option<KvTile<'_, E>>,
    scale: f32,
) {
    // SAFETY: the function is compiled for the instruction sets.
    passes::attend(unsafe { Avx2::new() }, queries, tile, &seen, then, scale);
}

impl Attend for Avx2 {
    const QUERIES: usize = 2;

    #[inline(always)]
    fn weigh<E: Element, const Q: usize>(
        self,
        queries: &mut [Query<'_>],
        keys: &[E],
        seen: &Range<usize>,
        ahead: Ahead,
        scale: f32,
    ) -> ([[f32; TILE]; Q], [Option<f32>; Q]) {
        let mut weights = [[0.0; TILE]; Q];
        for part in 0..Self::PARTS {
            let sums = dots::<Avx2, E, Q, COLUMNS>(self, queries, keys, part, ahead.after(part * queries[0].q.len()));
            for (weights, sums) in weights.iter_mut().zip(sums) {
                let weights = weights.as_chunks_mut().0[part * COLUMNS..].iter_mut();
                for (weights, sums) in weights.zip(sums) {
                    // SAFETY: the value is the proof.
                    unsafe { store_floats(weights, self.mul(sums, self.all(scale))) };
                }
            }
        }
        let mut rescale = [None; Q];
        for ((weights, query), rescale) in weights.iter_mut().zip(queries).zip(&mut rescale) {
            *rescale = super::weigh::<true>(weights, seen, query);
        }
        (weights, rescale)
    }
}
