//! Machines described as data, so that a model can be judged for a machine that is not there.

use super::{Cpu, Gpu, Hardware};
use std::sync::LazyLock;

/// A machine by name.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// What `--device` takes: lower case with hyphens.
    pub name: &'static str,
    /// The machine in words.
    pub title: &'static str,
    /// Instruction sets as [`Cpu::features`] names them.
    pub features: &'static [&'static str],
    /// Threads.
    pub threads: usize,
    /// How many of them run on cores of less than half the speed of others.
    pub slow_threads: usize,
    /// Bytes of main memory.
    pub memory: u64,
    /// Bytes a second of main memory, by the data sheet; `None` of a kind of machine.
    pub bandwidth: Option<u64>,
    /// Its GPU.
    pub gpu: Option<GpuProfile>,
}

/// A GPU by name.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GpuProfile {
    /// The product name.
    pub name: &'static str,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes a second of device memory, by the data sheet.
    pub bandwidth: u64,
    /// Whether its memory is the machine's.
    pub shared_memory: bool,
    /// The newest CUDA version that its drivers run; `None` while new ones come.
    pub cuda: Option<(u32, u32)>,
}

/// The table of machines; it says where its numbers come from.
const TABLE: &str = include_str!("profiles.txt");

/// Levels of instruction sets by their names in the table.
const LEVELS: &[(&str, &[&str])] = &[
    ("none", &[]),
    ("avx2", &["avx", "avx2", "fma", "f16c"]),
    ("avx-vnni", &["avx", "avx2", "fma", "f16c", "avxvnni"]),
    ("avx512", &["avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"]),
    ("avx512-bf16", AVX512_VNNI_BF16),
    ("armv8.0", &["neon"]),
    ("armv8.2", &["neon", "fp16"]),
    ("armv8.2-dot", &["neon", "fp16", "dotprod"]),
    ("armv8.6", &["neon", "fp16", "dotprod", "i8mm", "bf16"]),
];
#[rustfmt::skip]
const AVX512_VNNI_BF16: &[&str] = &[
    "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16",
];

/// Every profile, in the order of the table.
pub static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| rows().filter_map(Profile::parse).collect());

fn rows() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#'))
}

fn bytes_a_second(gb_s: &str) -> Option<u64> {
    Some((gb_s.parse::<f64>().ok()? * 1e9) as u64)
}

fn dotted(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Profile {
    /// Reads a row of the table; `None` for anything else.
    fn parse(row: &'static str) -> Option<Profile> {
        let mut cells = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let (name, title, level) = (cells.next()?, cells.next()?, cells.next()?);
        let (_, features) = LEVELS.iter().find(|(known, _)| *known == level)?;
        let (threads, slow_threads) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        let memory = cells.next()?.parse::<u64>().ok()? << 20;
        let bandwidth = bytes_a_second(cells.next()?);
        let gpu = match cells.next() {
            None => None,
            Some(capability) => {
                let own = cells.next()?;
                Some(GpuProfile {
                    name: title,
                    compute_capability: dotted(capability)?,
                    memory: if own == "shared" { memory } else { own.parse::<u64>().ok()? << 20 },
                    bandwidth: bytes_a_second(cells.next()?)?,
                    shared_memory: own == "shared",
                    cuda: cells.next().and_then(dotted),
                })
            }
        };
        Some(Profile { name, title, features, threads, slow_threads, memory, bandwidth, gpu })
    }

    /// The profile of this name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The machine. A GPU is judged with a build that has its engine, whatever the hardware's `build` then says of this
    /// one.
    pub fn hardware(&'static self) -> Hardware {
        let cpu = Cpu {
            model: self.title.into(),
            features: self.features.to_vec(),
            threads: self.threads,
            slow_threads: self.slow_threads,
            missing: Vec::new(),
        };
        let gpus = self.gpu.iter().map(|gpu| Gpu {
            memory_total: (!gpu.shared_memory).then_some(gpu.memory),
            memory_free: (!gpu.shared_memory).then_some(gpu.memory - gpu.memory / 32),
            shared_memory: gpu.shared_memory,
            cuda: gpu.cuda,
            bandwidth: Some(gpu.bandwidth),
            ..Gpu::described(gpu.name, gpu.compute_capability, gpu.memory)
        });
        let mut hardware = Hardware::described(cpu, self.memory);
        hardware.memory.bandwidth = self.bandwidth;
        hardware.gpu_note = self.gpu.is_none().then(|| "none described".into());
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
        assert_eq!((names.len(), PROFILES.len()), (rows().count(), rows().count()), "every row is a profile");
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            assert_eq!(Profile::find(name).map(|profile| profile.hardware().profile), Some(Some(name)));
        }
        assert_eq!(Profile::find("cpu"), None);
    }
}
