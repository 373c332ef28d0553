//! The settings of the emulated GPU, read from the environment when the driver is started.

use crate::ptx::Schedule;

/// The GPU, of which there is one, by the variables of [`driver`](super).
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) capability: (u32, u32),
    /// The bytes of its memory.
    pub(super) memory: u64,
    pub(super) processors: u32,
    pub(super) cuda: (u32, u32),
    pub(super) schedule: Schedule,
}

pub(super) const NAME: &str = "emulated GPU";
/// The UUID of the GPU, `GPU-67707520-656d-756c-6174-6f7200000001`.
pub(super) const UUID: [u8; 16] = *b"gpu emulator\0\0\0\x01";

/// Bytes that the driver takes for each kernel of a graph: the most measured of any (driver 470).
pub(super) const GRAPH_NODE: u64 = 68 << 10;

impl Settings {
    pub(super) fn of_environment() -> Result<Settings, String> {
        let version = |text: &str| {
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        Ok(Settings {
            capability: setting("GPU_EMULATOR_CAPABILITY", (9, 0), "a version like 9.0", version)?,
            memory: setting("GPU_EMULATOR_MEMORY", 8 << 30, "a number", |text| text.parse().ok())?,
            processors: setting("GPU_EMULATOR_PROCESSORS", 4, "a number", |text| text.parse().ok())?,
            cuda: setting("GPU_EMULATOR_CUDA", (13, 0), "a version like 9.0", version)?,
            schedule: setting(
                "GPU_EMULATOR_SCHEDULE",
                Schedule::default(),
                "forward, reverse or random:SEED",
                Schedule::parse,
            )?,
        })
    }

    /// The compute capability, `10 * major + minor`.
    pub(super) fn target(&self) -> u32 {
        10 * self.capability.0 + self.capability.1
    }

    /// Bytes of shared memory that a block may ask for.
    pub(super) fn most_shared(&self) -> u32 {
        crate::ptx::most_shared(self.target())
    }
}

/// The value of a variable, or the usual one where it is empty or not set.
pub(super) fn setting<T>(name: &str, usual: T, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => {
            parse(&value).ok_or_else(|| format!("{name} is {value:?}, expected {expected}"))
        }
        _ => Ok(usual),
    }
}
