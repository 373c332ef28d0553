//! Hardware -> the list of devices a model can be judged for, with the tier of every dtype on each.

use super::Bytes;
use super::paint::row;
use crate::capability::{self, Engine, Tier};
use crate::dtype::DType;
use crate::hardware::Hardware;
use crate::hardware::profiles::PROFILES;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The machine and the described ones.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceList {
    /// The machine.
    pub hardware: Hardware,
    /// Its devices, then the described machines.
    pub devices: Vec<DeviceTiers>,
}

/// What one device does with every dtype.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceTiers {
    /// What `--device` takes.
    pub name: String,
    /// The device in words.
    pub title: String,
    /// Whether it is described and not of this machine.
    pub described: bool,
    /// Bytes of its memory; `None` where the driver does not tell.
    pub memory: Option<u64>,
    /// How it computes with matrices of each dtype; `None` where it does not.
    pub tiers: BTreeMap<DType, Option<Tier>>,
}

impl DeviceList {
    /// The devices of `hardware` and every profile.
    pub fn new(hardware: &Hardware) -> DeviceList {
        let mut devices = Vec::new();
        if hardware.profile.is_none() {
            devices.push(cpu("cpu", hardware));
            devices.extend(hardware.gpus.iter().enumerate().map(|(index, gpu)| DeviceTiers {
                name: format!("cuda:{index}"),
                title: gpu.name.clone(),
                described: false,
                memory: gpu.memory_total,
                tiers: tiers(&Engine::Cuda { compute_capability: gpu.compute_capability }),
            }));
        }
        devices.extend(PROFILES.iter().map(|profile| cpu(profile.name, &profile.hardware())));
        DeviceList { hardware: hardware.clone(), devices }
    }

    /// The list as pretty JSON.
    pub fn to_json(&self) -> String {
        // Every key is a string or a dtype's name, and there are no numbers but whole ones, so this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn cpu(name: &str, hardware: &Hardware) -> DeviceTiers {
    DeviceTiers {
        name: name.into(),
        title: hardware.cpu.model.clone(),
        described: hardware.profile.is_some(),
        memory: Some(hardware.memory.total),
        tiers: tiers(&Engine::Cpu { features: &hardware.cpu.features }),
    }
}

fn tiers(engine: &Engine<'_>) -> BTreeMap<DType, Option<Tier>> {
    DType::all().map(|dtype| (dtype, capability::tier(dtype, engine).ok())).collect()
}

impl Display for DeviceList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.hardware.lines(f)?;
        let memory = &self.hardware.memory;
        let (available, total) = (Bytes(memory.available), Bytes(memory.total));
        row(f, "", format_args!("memory: {available} of {total} available ({})", memory.how))?;
        writeln!(f)?;
        for device in &self.devices {
            let memory = device.memory.map_or_else(|| "shared".into(), |bytes| Bytes(bytes).to_string());
            writeln!(f, "{:<16} {memory:>10}  {}", device.name, device.title)?;
            let with = |wanted: Tier| {
                let names =
                    device.tiers.iter().filter(|(_, tier)| **tier == Some(wanted)).map(|(dtype, _)| dtype.name());
                names.collect::<Vec<_>>().join(" ")
            };
            for tier in [Tier::Native, Tier::Widened] {
                let names = with(tier);
                if !names.is_empty() {
                    writeln!(f, "{:<29}{tier}: {names}", "")?;
                }
            }
            if device.tiers.values().all(Option::is_none) {
                writeln!(f, "{:<29}no dtype: this build has no engine for it", "")?;
            }
        }
        Ok(())
    }
}
