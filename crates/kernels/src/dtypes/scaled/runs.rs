//! Scales of runs of consecutive weights, whatever rows these are of: bitsandbytes' absmax.

use super::Parts;
use crate::ops::vector::Floats;
use model_factory_dtypes::DType;

/// The scales of runs.
#[derive(Clone, Copy, Debug)]
pub enum RunScales<'a> {
    /// F32, one for each run.
    Floats(Floats<'a>),
    /// A byte for each run, whose scale is `table[byte] * factors[run / 256] + offset`.
    Nested {
        /// The bytes.
        bytes: &'a [u8],
        /// F32, 256 of them.
        table: Floats<'a>,
        /// F32, one for each 256 runs.
        factors: Floats<'a>,
        /// What is added.
        offset: f32,
    },
}

/// Runs that share a factor.
const NESTED: usize = 256;

/// The scales of a call's rows, whose parts are of one run each.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    /// Runs have two to the power of this weights.
    shift: u32,
    before: usize,
    /// Inputs of a row.
    row: usize,
    part: usize,
    scales: Scales<'a>,
}

#[derive(Clone, Copy)]
enum Scales<'a> {
    Floats(&'a [[u8; 4]]),
    Nested { bytes: &'a [u8], table: &'a [[u8; 4]; 256], factors: &'a [[u8; 4]], offset: f32 },
}

impl<'a> Runs<'a> {
    /// Panics unless all runs of `rows` have scales.
    pub(super) fn new(size: usize, before: usize, scales: RunScales<'a>, [rows, inputs]: [usize; 2]) -> Runs<'a> {
        assert!(size.is_power_of_two(), "runs of {size}");
        let runs = (before + rows * inputs).div_ceil(size);
        let enough = |len: usize| assert!(len >= runs, "{len} scales of {runs} runs");
        let scales = match scales {
            RunScales::Floats(scales) => {
                enough(scales.len());
                Scales::Floats(words(scales))
            }
            RunScales::Nested { bytes, table, factors, offset } => {
                enough(bytes.len());
                enough(factors.len() * NESTED);
                let Some(table) = words(table).first_chunk() else { panic!("{} floats of a table", table.len()) };
                Scales::Nested { bytes, table, factors: words(factors), offset }
            }
        };
        // The largest that begins wherever a row does.
        let part = 1 << size.ilog2().min((inputs | before).trailing_zeros());
        Runs { shift: size.ilog2(), before, row: inputs, part, scales }
    }
}

impl Parts for Runs<'_> {
    fn part(&self) -> usize {
        self.part
    }

    fn across(&self) -> usize {
        self.row / self.part
    }

    fn below(&self, row: usize) -> usize {
        row
    }

    #[inline(always)]
    fn at(&self, row: usize, part: usize) -> f32 {
        let run = (self.before + row * self.row + part * self.part) >> self.shift;
        match self.scales {
            Scales::Floats(scales) => f32::from_le_bytes(scales[run]),
            Scales::Nested { bytes, table, factors, offset } => {
                let [value, factor] = [table[usize::from(bytes[run])], factors[run / NESTED]].map(f32::from_le_bytes);
                value * factor + offset
            }
        }
    }

    #[inline(always)]
    fn of_row(&self, row: usize, scales: &mut [f32]) {
        if self.part < 1 << self.shift {
            return scales.iter_mut().enumerate().for_each(|(part, scale)| *scale = self.at(row, part));
        }
        let mut run = (self.before + row * self.row) >> self.shift;
        match self.scales {
            Scales::Floats(stored) => {
                for (scale, stored) in scales.iter_mut().zip(&stored[run..]) {
                    *scale = f32::from_le_bytes(*stored);
                }
            }
            Scales::Nested { bytes, table, factors, offset } => {
                let mut left = scales;
                while !left.is_empty() {
                    // A factor is looked up once for as many as share it.
                    let (now, later) = left.split_at_mut(left.len().min(NESTED - run % NESTED));
                    let factor = f32::from_le_bytes(factors[run / NESTED]);
                    for (scale, byte) in now.iter_mut().zip(&bytes[run..]) {
                        *scale = f32::from_le_bytes(table[usize::from(*byte)]) * factor + offset;
                    }
                    run += now.len();
                    left = later;
                }
            }
        }
    }
}

/// The elements of F32. Panics for others.
fn words(floats: Floats<'_>) -> &[[u8; 4]] {
    assert_eq!(floats.dtype(), DType::F32, "scales of runs");
    floats.bytes().as_chunks().0
}
