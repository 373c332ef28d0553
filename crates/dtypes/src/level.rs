//! Levels of vector kernels: which instruction sets each needs.

/// Names and features of the levels of the processor's vector kernels, from slow to fast, of x86-64 and of aarch64.
#[rustfmt::skip]
const CPU_LEVELS: [&[(&str, &[&str])]; 2] = [
    &[
        ("avx2", &["avx2", "fma", "f16c"]),
        ("avx-vnni", &["avx2", "fma", "f16c", "avxvnni"]),
        ("avx512", &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"]),
        ("avx512-vnni", &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"]),
        ("avx512-vnni-bf16",
            &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16"]),
        ("amx",
            &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "amx-tile", "amx-int8", "amx-bf16"]),
    ],
    &[
        ("neon", &["neon"]),
        ("dotprod", &["neon", "dotprod"]),
        ("i8mm", &["neon", "dotprod", "i8mm"]),
        ("i8mm-bf16", &["neon", "dotprod", "i8mm", "bf16"]),
    ],
];

/// The level of kernels that a processor with these instruction sets gets, by its name for `--isa`, and the faster levels
/// that it lacks. `None` where portable kernels compute.
pub fn cpu_level(features: &[&str]) -> Option<(&'static str, Vec<&'static str>)> {
    CPU_LEVELS.iter().find_map(|levels| {
        let best = levels.iter().rposition(|(_, needed)| needed.iter().all(|feature| features.contains(feature)))?;
        Some((levels[best].0, levels[best + 1..].iter().map(|(name, _)| *name).collect()))
    })
}

/// The instruction sets of the level of this name; none where it is `portable`.
pub fn cpu_level_features(name: &str) -> &'static [&'static str] {
    let level = CPU_LEVELS.iter().flat_map(|levels| levels.iter()).find(|level| level.0 == name);
    level.map_or(&[], |(_, features)| features)
}
