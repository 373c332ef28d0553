//! Machines described as data, so that a model can be judged for a machine that is not there.

use super::{Cpu, Gpu, Hardware};

/// A machine by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// What `--device` takes: lower case with hyphens.
    pub name: &'static str,
    /// The machine in words.
    pub title: &'static str,
    /// Instruction sets as [`Cpu::features`] names them.
    pub features: &'static [&'static str],
    /// Threads.
    pub threads: usize,
    /// Bytes of main memory.
    pub memory: u64,
    /// Its cards.
    pub gpus: &'static [GpuProfile],
}

/// A card by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuProfile {
    /// The product name.
    pub name: &'static str,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes a second of device memory, by the data sheet.
    pub bandwidth: u64,
}

const GIB: u64 = 1 << 30;
const AVX2: &[&str] = &["avx", "avx2", "fma", "f16c"];
const AVX512: &[&str] = &["avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"];
#[rustfmt::skip]
const AVX512_VNNI_BF16: &[&str] = &[
    "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16",
];
const NEON: &[&str] = &["neon", "fp16", "dotprod"];

/// Every profile. `cpu-Ngb` is any processor, without a vector instruction set to rely on.
#[rustfmt::skip]
pub const PROFILES: &[Profile] = &[
    cpu("cpu-2gb",          "any CPU, 2 GiB",                                 &[],               2,    2 * GIB),
    cpu("cpu-4gb",          "any CPU, 4 GiB",                                 &[],               4,    4 * GIB),
    cpu("cpu-8gb",          "any CPU, 8 GiB",                                 &[],               4,    8 * GIB),
    cpu("cpu-16gb",         "any CPU, 16 GiB",                                &[],               8,   16 * GIB),
    cpu("cpu-32gb",         "any CPU, 32 GiB",                                &[],               8,   32 * GIB),
    cpu("cpu-avx2-16gb",    "laptop with AVX2 (Haswell or Zen and later)",    AVX2,              8,   16 * GIB),
    cpu("cpu-avx512-64gb",  "server with AVX-512 (Skylake-SP)",               AVX512,           32,   64 * GIB),
    cpu("cpu-bf16-64gb",    "AVX-512 with VNNI and BF16 (Zen 4)",             AVX512_VNNI_BF16, 16,   64 * GIB),
    cpu("cpu-bf16-512gb",   "large server (Sapphire Rapids, Genoa)",          AVX512_VNNI_BF16, 64,  512 * GIB),
    cpu("cpu-neon-8gb",     "small ARM machine, 8 GiB",                       NEON,              4,    8 * GIB),
    cpu("cpu-neon-16gb",    "ARM laptop, 16 GiB",                             NEON,              8,   16 * GIB),
];

const fn cpu(
    name: &'static str,
    title: &'static str,
    features: &'static [&'static str],
    threads: usize,
    memory: u64,
) -> Profile {
    Profile { name, title, features, threads, memory, gpus: &[] }
}

impl Profile {
    /// The profile of this name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The machine, with a build that fits it.
    pub fn hardware(&'static self) -> Hardware {
        let cpu = Cpu {
            model: self.title.into(),
            features: self.features.to_vec(),
            threads: self.threads,
            missing: Vec::new(),
        };
        let gpus = self.gpus.iter().map(|gpu| Gpu {
            name: gpu.name.into(),
            uuid: None,
            compute_capability: gpu.compute_capability,
            memory_total: Some(gpu.memory),
            memory_free: Some(gpu.memory),
            driver: "described".into(),
        });
        let build: &[&str] = if self.gpus.is_empty() { &[] } else { &["cuda"] };
        let hardware = Hardware::described(cpu, self.memory).with_build(build);
        Hardware { profile: Some(self.name), gpus: gpus.collect(), ..hardware }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_lower_case_and_found() {
        let names: BTreeSet<_> = PROFILES.iter().map(|profile| profile.name).collect();
        assert_eq!(names.len(), PROFILES.len());
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            assert_eq!(Profile::find(name).map(|profile| profile.hardware().profile), Some(Some(name)));
        }
        assert_eq!(Profile::find("cpu"), None);
    }
}
