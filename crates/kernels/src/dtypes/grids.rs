//! The codebooks of the IQ types, and the code these types share: elements in words of eight bytes, from a codebook by index,
//! with signs. A codebook's file in `grids/` has 16-bit words of codes, eight of 2 bits or four of 3 bits
//! (`fixtures/make/grids.py` writes it).

/// The word at `n`, whose bytes are little-endian.
const fn word(bytes: &[u8], n: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * n], bytes[2 * n + 1]])
}

/// Eight codes of 2 bits a word -> eight signed bytes.
const fn eight<const N: usize>(words: &[u8], values: [i8; 3]) -> [u64; N] {
    assert!(words.len() == 2 * N);
    let mut entries = [0; N];
    let mut n = 0;
    while n < N {
        let mut i = 0;
        while i < 8 {
            let value = values[(word(words, n) >> (2 * i) & 3) as usize];
            entries[n] |= (value as u8 as u64) << (8 * i);
            i += 1;
        }
        n += 1;
    }
    entries
}

/// Four codes of 3 bits a word -> four bytes.
const fn four<const N: usize>(words: &[u8], values: [u8; 8]) -> [u32; N] {
    assert!(words.len() == 2 * N);
    let mut entries = [0; N];
    let mut n = 0;
    while n < N {
        let mut i = 0;
        while i < 4 {
            entries[n] |= (values[(word(words, n) >> (3 * i) & 7) as usize] as u32) << (8 * i);
            i += 1;
        }
        n += 1;
    }
    entries
}

pub(super) static IQ2_XXS: [u64; 256] = eight(include_bytes!("grids/iq2_xxs.bin"), [8, 25, 43]);
pub(super) static IQ2_XS: [u64; 512] = eight(include_bytes!("grids/iq2_xs.bin"), [8, 25, 43]);
pub(super) static IQ2_S: [u64; 1024] = eight(include_bytes!("grids/iq2_s.bin"), [8, 25, 43]);
pub(super) static IQ3_XXS: [u32; 256] = four(include_bytes!("grids/iq3_xxs.bin"), [4, 12, 20, 28, 36, 44, 52, 62]);
pub(super) static IQ3_S: [u32; 512] = four(include_bytes!("grids/iq3_s.bin"), [1, 3, 5, 7, 9, 11, 13, 15]);
/// The codebook of IQ1_S and IQ1_M, eight times as large, so that a shift by an eighth is one by 1.
pub(super) static IQ1: [u64; 2048] = eight(include_bytes!("grids/iq1.bin"), [-8, 0, 8]);

/// `1` in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Negates those of eight bytes whose bit is set; none of the bytes is 0.
#[inline(always)]
pub(super) fn signed(bytes: u64, signs: u8) -> u64 {
    let bits = (u64::from(signs) * ONES) & 0x8040_2010_0804_0201;
    let turned = ((bits + 0x7f * ONES) >> 7) & ONES;
    (bytes ^ (turned * 0xff)) + turned
}

/// Seven signs, and an eighth that makes the number of set bits even.
#[inline(always)]
pub(super) fn even(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() as u8 & 1) << 7)
}

/// Eight bytes, each 1 more or 1 less.
#[inline(always)]
pub(super) fn shifted(bytes: u64, down: bool) -> u64 {
    let by = if down { 0xff * ONES } else { ONES };
    // The high bits are added separately, so that no byte carries into the next.
    const LOW: u64 = 0x7f * ONES;
    ((bytes & LOW) + (by & LOW)) ^ ((bytes ^ by) & !LOW)
}

/// The bytes of a block in order.
#[inline(always)]
pub(super) fn bytes(words: [u64; 4]) -> [i8; 32] {
    let mut all = [0; 32];
    for (all, word) in all.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *all = word.to_le_bytes().map(|byte| byte as i8);
    }
    all
}

// One type serves all of them: with a type each, some loops would keep one vector more on the stack by NEON.
super::blocks::define_format!(Halves { halves: true });

/// Kernels of a dtype `$format` with one scale for 32 elements, by `block(stored, b) -> (scale, elements)`: elements fit the
/// shared vector products as signed bytes.
macro_rules! grid_kernels {
    ($dtype:ident, $name:literal, $format:ident $elements:tt) => {
        $crate::dtypes::blocks::block_kernels!($dtype, $name, $format $elements, BYTES);

        fn unpack(stored: &[u8; BYTES], b: usize) -> $crate::dtypes::blocks::Unpacked {
            let (scale, words) = block(stored, b);
            $crate::dtypes::blocks::Unpacked::scaled(scale, $crate::dtypes::grids::bytes(words))
        }

        $crate::dtypes::blocks::eights! {
            $format, BYTES;

            fn elements(stored: &[u8; BYTES]) -> [Bytes; 8] {
                let mut elements = [all(0); 8];
                for (b, element) in elements.iter_mut().enumerate() {
                    *element = load_numbers(&block(stored, b).1);
                }
                elements
            }

            fn factors(stored: &[u8; BYTES]) -> Factors {
                let scales: [f32; 8] = std::array::from_fn(|b| block(stored, b).0);
                Factors::scaled(load_floats(&scales))
            }
        }
    };
}
pub(super) use grid_kernels;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_shifts_bytes_one_by_one() {
        let word = u64::from_le_bytes([8, 25, 43, 1, 62, 15, 8, 43]);
        for signs in 0..=255u8 {
            let turned = signed(word, signs).to_le_bytes();
            for (i, (turned, byte)) in turned.into_iter().zip(word.to_le_bytes()).enumerate() {
                let expected = if signs >> i & 1 == 1 { -(byte as i8) } else { byte as i8 };
                assert_eq!(turned as i8, expected, "{signs:#x} {i}");
            }
            assert!(even(u32::from(signs)).count_ones().is_multiple_of(2));
        }
        for entry in &IQ1 {
            for (down, by) in [(false, 1), (true, -1)] {
                let expected = entry.to_le_bytes().map(|byte| byte as i8 + by);
                assert_eq!(shifted(*entry, down).to_le_bytes().map(|byte| byte as i8), expected);
            }
        }
    }
}
