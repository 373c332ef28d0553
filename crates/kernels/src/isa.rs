//! Instruction-set tokens: proof that the processor has what a kernel needs.
//!
//! A level is one line in `LEVELS`: its name, the sets it has (including those of the levels it builds on) and
//! how its presence is detected. A new instruction set is a constant in `Sets`, a line here, and functions in `arch` for
//! the dtypes that gain from it.

use model_factory_dtypes::{cpu_level_features, generation};
use std::fmt;

/// Instruction sets that a kernel needs, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sets(u32);

#[allow(dead_code)] // an architecture has no use for the sets of another
impl Sets {
    /// The sets for which Rust compiles by default.
    pub(crate) const PORTABLE: Sets = Sets(0);
    /// AVX2, FMA and F16C.
    pub(crate) const AVX2: Sets = Sets(1);
    /// AVX-512 F, BW, DQ and VL, and AVX2.
    pub(crate) const AVX512: Sets = Sets(2).and(Sets::AVX2);
    /// AVX-512 VNNI.
    pub(crate) const VNNI: Sets = Sets(4);
    /// AVX-512 BF16.
    pub(crate) const BF16: Sets = Sets(8);
    /// AVX-VNNI: the instructions of AVX-512 VNNI in vectors of 256 bits, for processors without AVX-512.
    pub(crate) const AVX_VNNI: Sets = Sets(16);
    /// NEON, which every aarch64 has.
    pub(crate) const NEON: Sets = Sets(32);
    /// The dot product of bytes (ARMv8.2), and NEON.
    pub(crate) const DOTPROD: Sets = Sets(64).and(Sets::NEON);
    /// The product of matrices of bytes (ARMv8.6), and the dot product.
    pub(crate) const I8MM: Sets = Sets(128).and(Sets::DOTPROD);
    /// The products of BF16 (ARMv8.6), and NEON.
    pub(crate) const ARM_BF16: Sets = Sets(256).and(Sets::NEON);

    /// Tiles of int8 and of BF16 (AMX), and AVX-512 VNNI.
    pub(crate) const AMX: Sets = Sets(512).and(Sets::AVX512).and(Sets::VNNI);

    /// Whether all of `sets` are among these.
    pub(crate) const fn has(self, sets: Sets) -> bool {
        self.0 & sets.0 == sets.0
    }

    /// The sets of both.
    pub(crate) const fn and(self, other: Sets) -> Sets {
        Sets(self.0 | other.0)
    }
}

/// A combination of sets that is found in processors and can be chosen by name. [`cpu_level_features`] has the features to
/// detect for it.
#[derive(PartialEq, Eq)]
struct Level {
    name: &'static str,
    sets: Sets,
}

/// The levels from slow to fast; a later level is preferred, if the processor's generation does not avoid its sets.
static LEVELS: &[Level] = &[
    Level { name: "portable", sets: Sets::PORTABLE },
    #[cfg(target_arch = "x86_64")]
    Level { name: "avx2", sets: Sets::AVX2 },
    #[cfg(target_arch = "x86_64")]
    Level { name: "avx-vnni", sets: Sets::AVX2.and(Sets::AVX_VNNI) },
    #[cfg(target_arch = "x86_64")]
    Level { name: "avx512", sets: Sets::AVX512 },
    #[cfg(target_arch = "x86_64")]
    Level { name: "avx512-vnni", sets: Sets::AVX512.and(Sets::VNNI) },
    #[cfg(target_arch = "x86_64")]
    Level { name: "avx512-vnni-bf16", sets: Sets::AVX512.and(Sets::VNNI).and(Sets::BF16) },
    #[cfg(target_arch = "x86_64")]
    Level { name: "amx", sets: Sets::AMX },
    #[cfg(target_arch = "aarch64")]
    Level { name: "neon", sets: Sets::NEON },
    #[cfg(target_arch = "aarch64")]
    Level { name: "dotprod", sets: Sets::DOTPROD },
    #[cfg(target_arch = "aarch64")]
    Level { name: "i8mm", sets: Sets::I8MM },
    #[cfg(target_arch = "aarch64")]
    Level { name: "i8mm-bf16", sets: Sets::I8MM.and(Sets::ARM_BF16) },
];

impl Level {
    fn is_detected(&self) -> bool {
        cpu_level_features(self.name).iter().all(|feature| detected(feature))
    }
}

/// Whether this processor and its operating system have the instruction set of this name.
fn detected(feature: &str) -> bool {
    #[cfg(target_arch = "aarch64")]
    use std::arch::is_aarch64_feature_detected as is_detected;
    #[cfg(target_arch = "x86_64")]
    use std::arch::is_x86_feature_detected as is_detected;
    /// Detection macros take literals.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    macro_rules! one_of {
        ($($name:tt)*) => {
            match feature {
                $($name => is_detected!($name),)*
                _ => false,
            }
        };
    }
    #[cfg(target_arch = "aarch64")]
    return one_of!("neon" "dotprod" "i8mm" "bf16");
    #[cfg(target_arch = "x86_64")]
    if feature.starts_with("amx-") {
        // Together, as no processor has only some of them; the standard library's detection is not stable.
        return crate::arch::x86_64::amx::is_available();
    }
    #[cfg(target_arch = "x86_64")]
    return one_of!("avx2" "fma" "f16c" "avxvnni" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "avx512bf16");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// The instruction sets that kernels may use here. Made only by detection, or by choosing less than was detected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa(&'static Level);

impl Isa {
    /// The fastest level on this processor: the last that it and its operating system support, and of whose sets none is
    /// [avoided](model_factory_dtypes::Generation::avoided) on its generation.
    pub fn detect() -> Isa {
        let avoided = generation().avoided;
        let is_fast = |level: &Level| cpu_level_features(level.name).iter().all(|feature| !avoided.contains(feature));
        Isa(LEVELS.iter().rev().find(|level| is_fast(level) && level.is_detected()).unwrap_or(&LEVELS[0]))
    }

    /// Only what Rust compiles for everywhere.
    pub fn portable() -> Isa {
        Isa(&LEVELS[0])
    }

    /// The level of this name, such as `avx512-vnni`; `None` when there is no such level or this machine lacks it.
    pub fn named(name: &str) -> Option<Isa> {
        LEVELS.iter().find(|level| level.name == name && level.is_detected()).map(Isa)
    }

    /// Every level that this machine supports, from slow to fast.
    pub fn available() -> Vec<Isa> {
        LEVELS.iter().filter(|level| level.is_detected()).map(Isa).collect()
    }

    /// The name of every level this build knows, supported here or not, from slow to fast.
    pub fn names() -> impl Iterator<Item = &'static str> {
        LEVELS.iter().map(|level| level.name)
    }

    /// The name: `portable`, `avx512-vnni-bf16`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The names of its sets, as in detection macros and reports.
    pub fn features(self) -> &'static [&'static str] {
        cpu_level_features(self.name())
    }

    /// Whether all of `sets` may be used: the proof that calls into functions compiled for them are sound.
    pub(crate) fn has(self, sets: Sets) -> bool {
        self.0.sets.has(sets)
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isa({})", self.name())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Functions that are compiled for every machine, for AVX2 and for AVX-512: a call runs what its first argument, the token, allows.
///
/// Only the compiler's vectorization differs, so the results have the same bits. What Rust compiles for every aarch64 has
/// NEON.
macro_rules! compiled_for {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($isa:ident: $token:ty, $($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?
        $body:block
    )*) => {
        $(
            $(#[$attribute])*
            $visibility fn $name($isa: $token, $($arg: $type),*) $(-> $result)? {
                #[inline(always)]
                fn body($($arg: $type),*) $(-> $result)? $body
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                    fn avx512($($arg: $type),*) $(-> $result)? {
                        body($($arg),*)
                    }
                    if $isa.has($crate::isa::Sets::AVX512) {
                        // SAFETY: the token proves the instruction sets that the function is compiled for.
                        return unsafe { avx512($($arg),*) };
                    }
                    #[target_feature(enable = "avx2,fma,f16c")]
                    fn avx2($($arg: $type),*) $(-> $result)? {
                        body($($arg),*)
                    }
                    if $isa.has($crate::isa::Sets::AVX2) {
                        // SAFETY: the reason above holds here too.
                        return unsafe { avx2($($arg),*) };
                    }
                }
                let _ = $isa;
                body($($arg),*)
            }
        )*
    };
}
pub(crate) use compiled_for;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_a_level_that_is_not_avoided_and_names_it() {
        let available = Isa::available();
        assert_eq!(available.first(), Some(&Isa::portable()));
        let avoids = |isa: &Isa| isa.features().iter().any(|feature| generation().avoided.contains(feature));
        assert_eq!(available.iter().rfind(|isa| !avoids(isa)), Some(&Isa::detect()));
        for isa in available {
            assert_eq!(Isa::named(isa.name()), Some(isa));
        }
        assert_eq!(Isa::named("sse9"), None);
    }
}
