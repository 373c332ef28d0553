//! Generations of processors: which of the instruction sets that they have are worth using.
//!
//! What a processor has says nothing about its speed: Emerald Rapids multiplies BF16 in vectors at half the rate of F32. Sets that cannot
//! be slower than what they replace are not in the table.

/// A generation of x86-64 processors.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Generation {
    /// The maker's name of it.
    pub name: &'static str,
    /// Instruction sets, by their usual names, that are slower here than those that kernels use without them, or whose speed is
    /// not known.
    pub avoided: &'static [&'static str],
    /// Whether a product with one token by AVX-512 reads one row after the other, which was measured to be faster; else four in turns.
    pub one_stream: bool,
}

/// Tiles, and BF16 in vectors.
const UNSURE: &[&str] = &["avx512bf16", "amx-tile", "amx-int8", "amx-bf16"];

/// What is not in the table.
pub static UNKNOWN_GENERATION: Generation = Generation { name: "unknown", avoided: UNSURE, one_stream: false };

/// Vendor, families and models by CPUID, and the generation. The rates, of a core on data that looks random (`cargo bench --bench kernels`
/// gives them in one run): BF16 in vectors has twice the rate of F32 on Zen 4 and Zen 5; on Emerald Rapids 0.11 of 10^12 operations a second,
/// of 0.22 for F32, and tiles 2.3. Sapphire and Granite Rapids, which were not measured, have its units; what follows Zen 5 in its family is taken as it.
#[rustfmt::skip]
static GENERATIONS: &[(&str, u32, &[u32], Generation)] = &[
    ("AuthenticAMD", 0x19, &ZEN_4, Generation { name: "Zen 4", avoided: &[], one_stream: false }),
    ("AuthenticAMD", 0x1a, &[],    Generation { name: "Zen 5", avoided: &[], one_stream: true }),
    ("GenuineIntel", 6, &[0x8f],   Generation { name: "Sapphire Rapids", avoided: &["avx512bf16"], one_stream: false }),
    ("GenuineIntel", 6, &[0xcf],   Generation { name: "Emerald Rapids", avoided: &["avx512bf16"], one_stream: false }),
    ("GenuineIntel", 6, &[0xad, 0xae], Generation { name: "Granite Rapids", avoided: &["avx512bf16"], one_stream: false }),
];

/// Models of family 19h that are Zen 4, by their upper four bits; the others are Zen 3.
const ZEN_4: [u32; 6] = [0x10, 0x60, 0x70, 0x80, 0x90, 0xa0];

/// The generation of a processor. In the table a model of AMD stands for 16, and none for all of a family.
fn find(vendor: &str, family: u32, model: u32) -> &'static Generation {
    let model = if vendor == "AuthenticAMD" { model & 0xf0 } else { model };
    let is = |models: &[u32]| models.is_empty() || models.contains(&model);
    let row = GENERATIONS.iter().find(|row| row.0 == vendor && row.1 == family && is(row.2));
    row.map_or(&UNKNOWN_GENERATION, |row| &row.3)
}

/// The generation of this processor: on other architectures none is known.
pub fn generation() -> &'static Generation {
    let (vendor, family, model) = identity();
    find(&vendor, family, model)
}

/// Vendor, family and model.
#[cfg(target_arch = "x86_64")]
fn identity() -> (String, u32, u32) {
    use std::arch::x86_64::__cpuid;
    let (vendor, version) = (__cpuid(0), __cpuid(1).eax);
    let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
    let base = version >> 8 & 0xf;
    // The family's upper part counts only if the lower one is 15; the model's also for family 6.
    let family = if base == 0xf { base + (version >> 20 & 0xff) } else { base };
    let upper = if base == 0xf || base == 6 { version >> 16 & 0xf } else { 0 };
    (String::from_utf8_lossy(&vendor).into_owned(), family, upper << 4 | version >> 4 & 0xf)
}

/// No vendor.
#[cfg(not(target_arch = "x86_64"))]
fn identity() -> (String, u32, u32) {
    (String::new(), 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_found_by_family_and_model() {
        let name = |vendor, family, model| find(vendor, family, model).name;
        assert_eq!(name("AuthenticAMD", 0x19, 0x11), "Zen 4"); // Genoa
        assert_eq!(name("AuthenticAMD", 0x19, 0x61), "Zen 4"); // Raphael
        assert_eq!(name("AuthenticAMD", 0x19, 0x01), "unknown"); // Milan, Zen 3
        assert_eq!(name("AuthenticAMD", 0x1a, 0x44), "Zen 5");
        assert_eq!(name("GenuineIntel", 6, 0x8f), "Sapphire Rapids");
        assert_eq!(name("GenuineIntel", 6, 0xcf), "Emerald Rapids");
        assert_eq!(name("GenuineIntel", 6, 0x6a), "unknown"); // Ice Lake
        assert_eq!(name("GenuineIntel", 0x19, 0x11), "unknown");
        assert_eq!(find("GenuineIntel", 6, 0x6a).avoided, UNSURE);
    }
}
