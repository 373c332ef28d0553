//! The peak of a kernel's multiply instruction: a loop that touches only registers.

#![allow(unsafe_code)]

use model_factory::diagnostics::DType;
use model_factory::kernels::{Form, Kernel};
use std::time::{Duration, Instant};

/// Steps of the loop between two reads of the clock: some microseconds.
const STEPS: u64 = 1 << 14;

/// A loop of `STEPS` steps, which needs the instruction sets of its kernel, and the operations of one step.
struct Loop {
    run: unsafe fn(),
    operations: u64,
}

/// Multiplications and additions per second of this thread for about `time`, by only the instruction that `kernel` multiplies
/// with; `None` for portable code. A pair of factors counts as two operations.
pub(crate) fn peak(kernel: &Kernel, time: Duration) -> Option<f64> {
    Some(measure(peak_loop(kernel)?, time))
}

/// Like [`peak`], with the work on blocks of 32 after the products of each: the conversion of their sum, the product of scales,
/// its multiplication and sum, and that of the minimum if there is one. `None` if no such loop is implemented: only those for
/// the sums of Q8_0, Q4_0 and Q5_0, and of Q4_1, Q5_1, Q4_K and Q5_K by AVX-512 VNNI are.
pub(crate) fn block_peak(kernel: &Kernel, time: Duration) -> Option<f64> {
    Some(measure(block_loop(kernel)?, time))
}

/// Operations per second of a loop.
fn measure(Loop { run, operations }: Loop, time: Duration) -> f64 {
    let start = Instant::now();
    let mut loops = 0;
    while start.elapsed() < time {
        // SAFETY: a kernel named after instruction sets is selected only if they were detected.
        unsafe { run() };
        loops += 1;
    }
    (loops * STEPS * operations) as f64 / start.elapsed().as_secs_f64()
}

/// The instruction set in the name of a kernel: `avx512-vnni`.
#[cfg(target_arch = "x86_64")]
fn isa(kernel: &Kernel) -> &'static str {
    kernel.name.split_once('/').map_or("", |(_, isa)| isa)
}

#[cfg(target_arch = "x86_64")]
fn block_loop(kernel: &Kernel) -> Option<Loop> {
    let run: unsafe fn() = match kernel.dtype {
        _ if isa(kernel) != "avx512-vnni" => return None,
        DType::Q8_0 | DType::Q4_0 | DType::Q5_0 => x86::blocks_512,
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => x86::blocks_with_minima_512,
        _ => return None,
    };
    Some(Loop { run, operations: 12 * 8 * 64 * 2 })
}

#[cfg(target_arch = "x86_64")]
fn peak_loop(kernel: &Kernel) -> Option<Loop> {
    let (run, pairs): (unsafe fn(), u64) = match (kernel.form, isa(kernel)) {
        (Form::Q8 | Form::Int8(_), "avx512-vnni") => (x86::dpbusd_512, 64),
        (Form::Q8 | Form::Int8(_), "avx-vnni") => (x86::dpbusd_256, 32),
        (Form::Q8 | Form::Int8(_), "avx512" | "avx2") => (x86::maddubs_256, 32),
        (Form::Bf16, "amx") => return Some(Loop { run: x86::tiles_of_bf16, operations: 12 * 16 * 16 * 32 * 2 }),
        (Form::Int8(_), "amx") => return Some(Loop { run: x86::tiles_of_int8, operations: 12 * 16 * 16 * 64 * 2 }),
        (Form::Bf16, "avx512-bf16") => (x86::dpbf16_512, 32),
        (Form::F32, "avx512") => (x86::fma_512, 16),
        (Form::F32, "avx2") => (x86::fma_256, 8),
        _ => return None,
    };
    // Twelve chains hide the latency of each.
    Some(Loop { run, operations: 12 * pairs * 2 })
}

#[cfg(not(target_arch = "x86_64"))]
fn block_loop(_: &Kernel) -> Option<Loop> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn peak_loop(_: &Kernel) -> Option<Loop> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::STEPS;
    use std::arch::asm;

    /// Defines a loop with one step for each chain: `$step` adds to register `\\c`, which runs from 0 to 11.
    macro_rules! chains {
        ($name:ident, $features:literal, $step:literal) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name() {
                // SAFETY: the instructions need only these features, and touch only the given registers.
                unsafe {
                    asm!(
                        "vzeroall",
                        "2:",
                        ".irp c,0,1,2,3,4,5,6,7,8,9,10,11",
                        $step,
                        ".endr",
                        "dec {steps}",
                        "jnz 2b",
                        steps = inout(reg) STEPS => _,
                        out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                        out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                        out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
                        options(nomem, nostack),
                    );
                }
            }
        };
    }

    chains!(dpbusd_512, "avx512f,avx512vnni", "vpdpbusd zmm\\c, zmm14, zmm15");
    chains!(
        blocks_512,
        "avx512f,avx512vnni",
        ".rept 8\nvpdpbusd zmm\\c, zmm14, zmm15\n.endr\nvcvtdq2ps zmm12, zmm\\c\nvmulps zmm13, zmm14, zmm15\n\
         vfmadd231ps zmm\\c, zmm12, zmm13"
    );
    chains!(
        blocks_with_minima_512,
        "avx512f,avx512vnni",
        ".rept 8\nvpdpbusd zmm\\c, zmm14, zmm15\n.endr\nvcvtdq2ps zmm12, zmm\\c\nvmulps zmm13, zmm14, zmm15\n\
         vfmadd231ps zmm\\c, zmm12, zmm13\nvfnmadd231ps zmm\\c, zmm14, zmm15"
    );
    chains!(dpbusd_256, "avx2,avxvnni", "{{vex}} vpdpbusd ymm\\c, ymm14, ymm15");
    chains!(dpbf16_512, "avx512f,avx512bf16", "vdpbf16ps zmm\\c, zmm14, zmm15");
    chains!(fma_512, "avx512f", "vfmadd231ps zmm\\c, zmm14, zmm15");
    chains!(fma_256, "avx2,fma", "vfmadd231ps ymm\\c, ymm14, ymm15");
    /// What `ldtilecfg` reads: eight tiles of 16 rows of 64 bytes.
    #[repr(C, align(64))]
    struct Configuration {
        palette: [u8; 16],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Defines a loop of products of tiles: three steps for each of four chains. The factors look random, as zeros take less power and
    /// more speed.
    macro_rules! tiles {
        ($name:ident, $operation:literal) => {
            pub(super) fn $name() {
                let mut configuration = Configuration { palette: [0; 16], row_bytes: [0; 16], rows: [0; 16] };
                configuration.palette[0] = 1;
                configuration.row_bytes[..8].fill(64);
                configuration.rows[..8].fill(16);
                let factor: [u16; 512] = std::array::from_fn(|i| 0x3c00 | (i as u16).wrapping_mul(40503) & 0x83ff);
                // SAFETY: a kernel that is named after tiles was selected, so this process may use them; nothing else does.
                unsafe {
                    asm!(
                        "ldtilecfg [{configuration}]",
                        ".irp c,0,1,2,3\ntilezero tmm\\c\n.endr",
                        ".irp c,4,5,6,7\ntileloadd tmm\\c, [{factor} + {stride}*1]\n.endr",
                        "2:",
                        concat!(".rept 3\n", $operation, " tmm0, tmm4, tmm6\n", $operation, " tmm1, tmm4, tmm7"),
                        concat!($operation, " tmm2, tmm5, tmm6\n", $operation, " tmm3, tmm5, tmm7\n.endr"),
                        "dec {steps}",
                        "jnz 2b",
                        "tilerelease",
                        configuration = in(reg) &configuration,
                        factor = in(reg) &factor,
                        stride = in(reg) 64usize,
                        steps = inout(reg) STEPS => _,
                        options(readonly, nostack),
                    );
                }
            }
        };
    }

    tiles!(tiles_of_bf16, "tdpbf16ps");
    tiles!(tiles_of_int8, "tdpbssd");

    // A byte product without VNNI: products of bytes, sums of pairs, sum.
    chains!(
        maddubs_256,
        "avx2",
        "vpmaddubsw ymm12, ymm14, ymm15\nvpmaddwd ymm12, ymm12, ymm15\nvpaddd ymm\\c, ymm\\c, ymm12"
    );
}
