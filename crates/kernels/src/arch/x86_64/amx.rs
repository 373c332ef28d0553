//! Tiles by AMX: registers of 16 rows of 64 bytes. Rust has no intrinsics for them, so all of it is assembly.
//!
//! Instructions: Intel's Software Developer's Manual, volume 1, chapter 18 (programming with AMX), and volume 2. Permission: the kernel's
//! `Documentation/arch/x86/xstate.rst`.

use super::avx512::simd::mask_16;
use super::avx512::{load, load_numbers, store_numbers, transpose};
use crate::Call;
use crate::arch::generic::tiles::{self, Bf16, Int8, Product, ROW, ROWS, Sums, Tiles, Weights};
use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// The product of BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(crate) fn bf16(call: &mut Call<'_>) {
    assert!(call.input.is_tiled(), "the activations were prepared for the level of another kernel");
    // SAFETY: the caller has the instruction sets of the registered kernel, of which AMX is one.
    unsafe { tiles::multiply::<Registers, Bf16>(call) };
}

/// The product of int8 with more tokens than [`Input`](crate::Input) leaves in rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
pub(crate) fn int8(call: &mut Call<'_>) {
    if !call.input.is_tiled() {
        return super::avx512::i8::matmul(call);
    }
    // SAFETY: the reason above holds here too.
    unsafe { tiles::multiply::<Registers, Int8>(call) };
}

/// Arranges up to 16 rows for tiles: four bytes of each in turns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn arrange(rows: &[&[u8]], to: &mut [u8]) {
    let each = rows.len() * 4;
    for (step, to) in to.chunks_exact_mut(each * ROWS).enumerate() {
        let mut vectors = [_mm512_setzero_si512(); ROWS];
        for (vector, row) in vectors.iter_mut().zip(rows) {
            let rest = &row[step * ROW..];
            *vector = match rest.first_chunk() {
                Some(bytes) => load(bytes),
                // SAFETY: what the mask leaves out is not read.
                None => unsafe { _mm512_maskz_loadu_epi8((1 << rest.len()) - 1, rest.as_ptr().cast()) },
            };
        }
        for (to, column) in to.chunks_exact_mut(each).zip(transpose(&vectors)) {
            // SAFETY: the mask keeps the store inside.
            unsafe { _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), mask_16(rows.len()), column) };
        }
    }
}

/// Whether the processor has tiles, int8 and BF16, and the operating system lets this process use them, which is asked for once.
pub(crate) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        const BF16_TILE_INT8: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        const OSXSAVE: u32 = 1 << 27;
        // The state of tiles: their configuration and their data.
        const TILES: u64 = 1 << 17 | 1 << 18;
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
            return false;
        }
        let has = __cpuid_count(7, 0).edx & BF16_TILE_INT8 == BF16_TILE_INT8;
        // SAFETY: the instruction is there, as the bit above says.
        has && unsafe { _xgetbv(0) } & TILES == TILES && is_permitted()
    })
}

/// Asks Linux for the tiles' data, which a process gets only if it asks.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let result: i64;
    // SAFETY: the call reads and writes no memory of this process; what `syscall` changes is said.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Elsewhere it is not known how tiles are asked for.
#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// This thread's tiles, from their configuration until they are released: an idle thread holds none. Nothing else in the process
/// uses them: compilers make no code for tiles by themselves.
struct Registers {
    tokens: [usize; 2],
}

/// What `ldtilecfg` reads: of each tile the bytes of a row and the rows.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: a value is only made by `new`, so the processor has the instruction.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

impl Registers {
    /// Sums 0 to 3 are tiles 0 to 3: of the first tile of weights and both groups of tokens, then of the second. Tiles 4 and 5 are weights,
    /// 6 and 7 activations.
    fn configuration([first, second]: [usize; 2]) -> Configuration {
        let (first, second) = (4 * first as u16, 4 * second as u16);
        let mut row_bytes = [0; 16];
        row_bytes[..8].copy_from_slice(&[first, second, first, second, ROW as u16, ROW as u16, first, second]);
        // A tile of no columns has no rows.
        let rows = row_bytes.map(|bytes| if bytes > 0 { ROWS as u8 } else { 0 });
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// Adds the product of two tiles to a third, where `{int8}` says of what.
macro_rules! product {
    ($tiles:literal) => {
        concat!(".if {int8}\n tdpbssd ", $tiles, "\n .else\n tdpbf16ps ", $tiles, "\n .endif")
    };
}

/// How far ahead in each row of weights the product with one group of tokens prefetches.
const AHEAD: usize = 512;

impl Registers {
    /// [`Tiles::multiply`] for `TILES` tiles of weights and `GROUPS` groups of tokens. With one of each the memory is the bound, so weights are
    /// prefetched.
    ///
    /// # Safety
    /// That of [`Tiles::multiply`].
    #[inline]
    unsafe fn steps<P: Product, const TILES: usize, const GROUPS: usize>(
        &self,
        weights: Weights,
        tokens: [*const u8; 2],
        steps: usize,
        begins: bool,
        sums: &mut [Sums; 4],
    ) {
        let [width, second_width] = self.tokens;
        // SAFETY: the caller guarantees what is read, and the sums are four tiles. Prefetches accept any address.
        unsafe {
            asm!(
                "test {begins:l}, {begins:l}",
                "jz 3f",
                "tilezero tmm0",
                "tilezero tmm2",
                ".if {groups} == 2",
                "tilezero tmm1",
                "tilezero tmm3",
                ".endif",
                "jmp 2f",
                "3:",
                "tileloadd tmm0, [{sums} + {row}*1]",
                "tileloadd tmm2, [{sums} + {row}*1 + 2048]",
                ".if {groups} == 2",
                "tileloadd tmm1, [{sums} + {row}*1 + 1024]",
                "tileloadd tmm3, [{sums} + {row}*1 + 3072]",
                ".endif",
                "2:",
                "tileloaddt1 tmm4, [{w} + {stride}*1]",
                "tileloaddt1 tmm6, [{x} + {x_stride}*1]",
                product!("tmm0, tmm4, tmm6"),
                ".if {groups} == 2",
                "tileloaddt1 tmm7, [{second_x} + {second_stride}*1]",
                product!("tmm1, tmm4, tmm7"),
                ".endif",
                ".if {tiles} == 2",
                "tileloaddt1 tmm5, [{second_w} + {stride}*1]",
                product!("tmm2, tmm5, tmm6"),
                ".if {groups} == 2",
                product!("tmm3, tmm5, tmm7"),
                ".endif",
                ".endif",
                ".if {groups} == 2",
                "prefetcht1 [{ahead}]",
                "prefetcht1 [{ahead} + 64]",
                "prefetcht1 [{ahead} + 128]",
                "prefetcht1 [{ahead} + 192]",
                "add {ahead}, 256",
                ".endif",
                ".if {tiles} == 1 && {groups} == 1",
                "lea {second_w}, [{w} + {in_row}]",
                ".rept 16",
                "prefetcht0 [{second_w}]",
                "add {second_w}, {stride}",
                ".endr",
                ".endif",
                "add {w}, {advance}",
                "add {second_w}, {advance}",
                // Sixteen rows of four bytes of each token.
                "lea {x}, [{x} + {x_stride}*8]",
                "lea {x}, [{x} + {x_stride}*8]",
                "lea {second_x}, [{second_x} + {second_stride}*8]",
                "lea {second_x}, [{second_x} + {second_stride}*8]",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{sums} + {row}*1], tmm0",
                "tilestored [{sums} + {row}*1 + 2048], tmm2",
                ".if {groups} == 2",
                "tilestored [{sums} + {row}*1 + 1024], tmm1",
                "tilestored [{sums} + {row}*1 + 3072], tmm3",
                ".endif",
                w = inout(reg) weights.tiles[0] => _,
                second_w = inout(reg) weights.tiles[1] => _,
                x = inout(reg) tokens[0] => _,
                second_x = inout(reg) tokens[1] => _,
                stride = inout(reg) weights.stride => _,
                advance = in(reg) weights.advance,
                x_stride = in(reg) 4 * width,
                second_stride = in(reg) 4 * second_width,
                ahead = inout(reg) weights.ahead => _,
                begins = in(reg) usize::from(begins),
                row = in(reg) ROW,
                steps = inout(reg) steps => _,
                sums = in(reg) sums.as_mut_ptr(),
                int8 = const P::INT8 as usize,
                tiles = const TILES,
                groups = const GROUPS,
                in_row = const AHEAD,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

impl Tiles for Registers {
    #[inline]
    unsafe fn new(tokens: [usize; 2]) -> Registers {
        let configuration = Registers::configuration(tokens);
        // SAFETY: the caller guarantees that the processor has tiles; the configuration is one of its palette.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &configuration, options(nostack, preserves_flags, readonly)) };
        Registers { tokens }
    }

    #[inline]
    unsafe fn multiply<P: Product>(
        &self,
        weights: Weights,
        tokens: [*const u8; 2],
        steps: usize,
        begins: bool,
        sums: &mut [Sums; 4],
    ) {
        // SAFETY: the caller guarantees it.
        unsafe {
            match (weights.count, self.tokens[1] > 0) {
                (1, false) => self.steps::<P, 1, 1>(weights, tokens, steps, begins, sums),
                (1, true) => self.steps::<P, 1, 2>(weights, tokens, steps, begins, sums),
                (_, false) => self.steps::<P, 2, 1>(weights, tokens, steps, begins, sums),
                (_, true) => self.steps::<P, 2, 2>(weights, tokens, steps, begins, sums),
            }
        }
    }

    #[inline(always)]
    unsafe fn by_token(sums: &Sums) -> Sums {
        let mut columns = [[0; ROWS]; ROWS];
        // SAFETY: whoever has tiles has AVX-512.
        unsafe {
            let rows = std::array::from_fn(|row| load_numbers(&sums[row]));
            columns.iter_mut().zip(transpose(&rows)).for_each(|(column, numbers)| store_numbers(column, numbers));
        }
        columns
    }
}
