//! What GPU is emulated: read from the environment when the driver is started.

use crate::ptx::Schedule;
use std::str::FromStr;

/// The GPU. There is one.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Major and minor compute capability, of `GPU_EMULATOR_CAPABILITY` (`9.0`).
    pub capability: (u32, u32),
    /// Bytes of memory, of `GPU_EMULATOR_MEMORY` (8 GiB).
    pub memory: u64,
    /// Multiprocessors, of `GPU_EMULATOR_PROCESSORS` (4).
    pub processors: u32,
    /// The CUDA version of the driver, of `GPU_EMULATOR_CUDA` (`13.0`).
    pub cuda: (u32, u32),
    /// The order of what runs at once, of `GPU_EMULATOR_SCHEDULE` (`forward`).
    pub schedule: Schedule,
}

/// Names of the GPU for all to see.
pub(super) const NAME: &str = "emulated GPU";
/// Its UUID, `GPU-67707520-656d-756c-6174-6f7200000001`.
pub(super) const UUID: [u8; 16] = *b"gpu emulator\0\0\0\x01";

/// Bytes that the driver takes of a graph for each kernel in it: as much as has been measured of any (driver 470).
pub(super) const GRAPH_NODE: u64 = 68 << 10;

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// A sentence that names the variable.
    pub fn of_environment() -> Result<Settings, String> {
        Ok(Settings {
            capability: version("GPU_EMULATOR_CAPABILITY", (9, 0))?,
            memory: number("GPU_EMULATOR_MEMORY", 8 << 30)?,
            processors: number("GPU_EMULATOR_PROCESSORS", 4)?,
            cuda: version("GPU_EMULATOR_CUDA", (13, 0))?,
            schedule: schedule("GPU_EMULATOR_SCHEDULE")?,
        })
    }

    /// Bytes of shared memory that a block may ask for: CUDA C++ Programming Guide, "Technical Specifications per Compute
    /// Capability".
    pub fn most_shared(&self) -> u32 {
        let kib = match self.capability {
            (..=6, _) => 48,
            (7, 5) => 64,
            (7, _) => 96,
            (8, 0 | 7) => 163,
            (8, _) | (12.., _) => 99,
            (9..=11, _) => 227,
        };
        kib << 10
    }
}

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number<N: FromStr>(name: &str, usual: N) -> Result<N, String> {
    let Some(value) = given(name) else { return Ok(usual) };
    value.parse().map_err(|_| format!("{name} is {value:?}, expected a number"))
}

fn schedule(name: &str) -> Result<Schedule, String> {
    let Some(value) = given(name) else { return Ok(Schedule::default()) };
    value.parse().map_err(|()| format!("{name} is {value:?}, expected forward, reverse or random:SEED"))
}

fn version(name: &str, usual: (u32, u32)) -> Result<(u32, u32), String> {
    let Some(value) = given(name) else { return Ok(usual) };
    let parts = value.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.ok_or_else(|| format!("{name} is {value:?}, expected a version like 9.0"))
}
