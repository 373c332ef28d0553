//! The registers of a warp: a row of 32 lanes each, by width. Constants are rows too, so that an operand is a number.

use super::program::Op;
use super::syntax::Width;
use std::array::from_fn;

pub(super) const LANES: usize = 32;

pub(super) type Row<T> = [T; LANES];

#[derive(Clone, Debug, Default)]
pub(super) struct Registers {
    /// Predicates, a bit for each lane.
    pub(super) predicates: Vec<u32>,
    pub(super) b16: Vec<Row<u16>>,
    pub(super) b32: Vec<Row<u32>>,
    pub(super) b64: Vec<Row<u64>>,
}

pub(super) trait Word: Copy + Default + Into<u64> {
    fn rows(registers: &Registers) -> &[Row<Self>];
    fn rows_mut(registers: &mut Registers) -> &mut [Row<Self>];
    /// Bits above those of a register are dropped, and missing bits are zero.
    fn from_bits(bits: u64) -> Self;
}

pub(super) trait Value: Copy {
    type Word: Word;
    const WIDTH: Width;
    fn from_word(word: Self::Word) -> Self;
    fn to_word(self) -> Self::Word;
}

macro_rules! word {
    ($word:ty, $bank:ident) => {
        impl Word for $word {
            fn rows(registers: &Registers) -> &[Row<Self>] {
                &registers.$bank
            }

            fn rows_mut(registers: &mut Registers) -> &mut [Row<Self>] {
                &mut registers.$bank
            }

            fn from_bits(bits: u64) -> Self {
                bits as $word
            }
        }
    };
}

word!(u16, b16);
word!(u32, b32);
word!(u64, b64);

macro_rules! value {
    ($value:ty, $word:ty, $width:ident, $from:expr, $to:expr) => {
        impl Value for $value {
            type Word = $word;
            const WIDTH: Width = Width::$width;

            #[inline(always)]
            fn from_word(word: $word) -> Self {
                ($from)(word)
            }

            #[inline(always)]
            fn to_word(self) -> $word {
                ($to)(self)
            }
        }
    };
}

value!(u16, u16, B16, |word| word, |value| value);
value!(i16, u16, B16, u16::cast_signed, i16::cast_unsigned);
value!(u32, u32, B32, |word| word, |value| value);
value!(i32, u32, B32, u32::cast_signed, i32::cast_unsigned);
value!(f32, u32, B32, f32::from_bits, f32::to_bits);
value!(u64, u64, B64, |word| word, |value| value);
value!(i64, u64, B64, u64::cast_signed, i64::cast_unsigned);
value!(f64, u64, B64, f64::from_bits, f64::to_bits);

pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

impl Registers {
    /// Adds a row whose lanes all have these bits, and returns its number.
    pub(super) fn add(&mut self, width: Width, bits: u64) -> u32 {
        fn push<T>(rows: &mut Vec<T>, row: T) -> u32 {
            rows.push(row);
            rows.len() as u32 - 1
        }
        match width {
            Width::Predicate => push(&mut self.predicates, if bits == 0 { 0 } else { !0 }),
            Width::B16 => push(&mut self.b16, [bits as u16; LANES]),
            Width::B32 => push(&mut self.b32, [bits as u32; LANES]),
            Width::B64 => push(&mut self.b64, [bits; LANES]),
        }
    }

    pub(super) fn row<T: Value>(&self, row: u32) -> Row<T> {
        T::Word::rows(self)[row as usize].map(T::from_word)
    }

    pub(super) fn lane<T: Value>(&self, row: u32, lane: usize) -> T {
        T::from_word(T::Word::rows(self)[row as usize][lane])
    }

    pub(super) fn set_lane<W: Word>(&mut self, row: u32, lane: usize, value: W) {
        W::rows_mut(self)[row as usize][lane] = value;
    }

    #[inline(always)]
    pub(super) fn set<T: Value>(&mut self, row: u32, mask: u32, value: impl Fn(usize) -> T) {
        let into = &mut T::Word::rows_mut(self)[row as usize];
        let all: Row<T::Word> = from_fn(|lane| value(lane).to_word());
        if mask == !0 {
            *into = all;
        } else {
            for lane in 0..LANES {
                into[lane] = if mask >> lane & 1 != 0 { all[lane] } else { into[lane] };
            }
        }
    }

    /// `d = f(a)`
    #[inline(always)]
    pub(super) fn one<A: Value, D: Value>(&mut self, op: &Op, mask: u32, f: impl Fn(A) -> D) {
        let a = self.row::<A>(op.a);
        self.set(op.d, mask, |lane| f(a[lane]));
    }

    /// `d = f(a, b)`
    #[inline(always)]
    pub(super) fn two<A: Value, B: Value, D: Value>(&mut self, op: &Op, mask: u32, f: impl Fn(A, B) -> D) {
        let (a, b) = (self.row::<A>(op.a), self.row::<B>(op.b));
        self.set(op.d, mask, |lane| f(a[lane], b[lane]));
    }

    /// `d = f(a, b, c)`
    #[inline(always)]
    pub(super) fn three<A: Value, B: Value, C: Value, D: Value>(
        &mut self,
        op: &Op,
        mask: u32,
        f: impl Fn(A, B, C) -> D,
    ) {
        let (a, b, c) = (self.row::<A>(op.a), self.row::<B>(op.b), self.row::<C>(op.c));
        self.set(op.d, mask, |lane| f(a[lane], b[lane], c[lane]));
    }

    /// The predicate of a row, a bit for each lane.
    pub(super) fn predicate(&self, row: u32) -> u32 {
        self.predicates[row as usize]
    }

    /// Sets a predicate in the lanes of `mask`.
    pub(super) fn set_predicate(&mut self, row: u32, mask: u32, bits: u32) {
        let predicate = &mut self.predicates[row as usize];
        *predicate = *predicate & !mask | bits & mask;
    }

    /// The predicate `d = f(a, b)`
    #[inline(always)]
    pub(super) fn compare<T: Value>(&mut self, op: &Op, mask: u32, f: impl Fn(T, T) -> bool) {
        let (a, b) = (self.row::<T>(op.a), self.row::<T>(op.b));
        let bits = (0..LANES).fold(0, |bits, lane| bits | u32::from(f(a[lane], b[lane])) << lane);
        self.set_predicate(op.d, mask, bits);
    }
}
