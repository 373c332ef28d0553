//! Machines described as data, so that a model can be judged for a machine that is not present.

use super::{Cpu, Gpu, Hardware};
use std::sync::LazyLock;

/// A machine by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name for `--device`: lower case with hyphens.
    pub name: &'static str,
    hardware: Hardware,
}

/// The table of machines, with the sources of its numbers.
const TABLE: &str = include_str!("profiles.txt");

/// Levels of instruction sets by their names in the table.
const LEVELS: &[(&str, &str)] = &[
    ("none", ""),
    ("avx2", "avx avx2 fma f16c"),
    ("avx-vnni", "avx avx2 fma f16c avxvnni"),
    ("avx512", "avx avx2 fma f16c avx512f avx512bw avx512dq avx512vl"),
    ("avx512-bf16", "avx avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512vnni avx512bf16"),
    ("amx", "avx avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512vnni amx-tile amx-int8 amx-bf16"),
    ("armv8.0", "neon"),
    ("armv8.2", "neon fp16"),
    ("armv8.2-dot", "neon fp16 dotprod"),
    ("armv8.6", "neon fp16 dotprod i8mm bf16"),
];

/// Every profile, in the order of the table.
pub static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| rows().filter_map(Profile::parse).collect());

fn rows() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#'))
}

fn bytes_a_second(gb_s: &str) -> Option<u64> {
    Some((gb_s.parse::<f64>().ok()? * 1e9) as u64)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Profile {
    /// The profile of this name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The hardware of the machine. A GPU is judged with a build that supports it, whatever the hardware's `build` says
    /// about this one.
    pub fn hardware(&self) -> Hardware {
        self.hardware.clone()
    }

    /// The GPU of the machine.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.hardware.gpus.first()
    }

    /// Bytes of the GPU's memory, or else of main memory.
    pub(crate) fn memory(&self) -> u64 {
        self.gpu().and_then(|gpu| gpu.memory_total).unwrap_or(self.hardware.memory.total)
    }

    /// Parses a row of the table; `None` for anything else.
    fn parse(row: &'static str) -> Option<Profile> {
        let mut cells = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let (name, title, level) = (cells.next()?, cells.next()?, cells.next()?);
        let (_, features) = LEVELS.iter().find(|(known, _)| *known == level)?;
        let (threads, slow_threads) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        let features = features.split_whitespace().collect();
        let cpu =
            Cpu { model: title.into(), features, avoided: Vec::new(), threads, slow_threads, missing: Vec::new() };
        let mut hardware = Hardware::described(cpu, mebibytes(cells.next()?)?);
        hardware.profile = Some(name);
        hardware.memory.bandwidth = bytes_a_second(cells.next()?);
        if let Some(capability) = cells.next() {
            let own = cells.next()?;
            let memory = if own == "shared" { None } else { Some(mebibytes(own)?) };
            hardware.gpu_note = None;
            hardware.gpus.push(Gpu {
                memory_total: memory,
                memory_free: memory.map(|bytes| bytes - bytes / 32),
                shared_memory: memory.is_none(),
                bandwidth: Some(bytes_a_second(cells.next()?)?),
                cuda: cells.next().and_then(version),
                ..Gpu::described(title, version(capability)?, 0)
            });
        }
        Some(Profile { name, hardware })
    }
}

fn mebibytes(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(1 << 20)
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
