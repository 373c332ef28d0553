//! Hardware -> the list of devices a model can be judged for, with the tier of every dtype on each.

use super::page::{Bytes, Page, Plain};
use crate::capability::{self, DeviceEngine, Tier};
use crate::hardware::profiles::PROFILES;
use crate::hardware::{Gpu, Hardware, Memory, version};
use model_factory_dtypes::DType;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// This machine and the described machines.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceList {
    /// This machine.
    pub hardware: Hardware,
    /// The devices of this machine, then the described machines.
    pub devices: Vec<DeviceTiers>,
}

/// How one device computes with every dtype.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceTiers {
    /// The name of the device: `cpu`, `cuda:0`, or the name of a profile.
    pub name: String,
    /// The device in words.
    pub title: String,
    /// Whether the device is described, rather than part of this machine.
    pub described: bool,
    /// Bytes of its memory; `None` if the driver or the system does not report them.
    pub memory: Option<u64>,
    /// Bandwidth in bytes a second by the data sheet; `None` if it is not known.
    pub bandwidth: Option<u64>,
    /// The compute capability of a GPU.
    #[serde(serialize_with = "crate::hardware::dotted_option")]
    pub compute_capability: Option<(u32, u32)>,
    /// The tier of matrices of each dtype; `None` if the device does not support it.
    pub tiers: BTreeMap<DType, Option<Tier>>,
}

impl DeviceList {
    /// The devices of `hardware` and every profile.
    pub fn new(hardware: &Hardware) -> DeviceList {
        let mut devices = Vec::new();
        if hardware.profile.is_none() {
            devices.push(DeviceTiers::new("cpu".into(), hardware, None));
            let gpus = hardware.gpus.iter().enumerate();
            devices.extend(gpus.map(|(index, gpu)| DeviceTiers::new(format!("cuda:{index}"), hardware, Some(gpu))));
        }
        // A described machine is listed as its GPU, if it has one.
        let described = PROFILES.iter();
        devices.extend(described.map(|it| DeviceTiers::new(it.name.into(), &it.hardware(), it.gpu())));
        DeviceList { hardware: hardware.clone(), devices }
    }

    /// The list as pretty JSON.
    pub fn to_json(&self) -> String {
        // Every key is a string or a dtype's name, and all numbers are whole, so this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl Display for DeviceList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut page = Page::new(&Plain);
        self.hardware.lines(&mut page);
        let memory = &self.hardware.memory;
        match memory.total {
            Memory::UNKNOWN => page.row("", format_args!("memory {}", memory.how)),
            total => {
                let (available, total) = (Bytes(memory.available), Bytes(total));
                page.row("", format_args!("memory: {available} of {total} available ({})", memory.how));
            }
        }
        page.line("");
        for (index, device) in self.devices.iter().enumerate() {
            page.line(device);
            // Adjacent devices with the same tiers share one line about them.
            if self.devices.get(index + 1).is_none_or(|next| next.tiers != device.tiers) {
                device.tier_lines(&mut page);
            }
        }
        f.write_str(&page.text)
    }
}

impl Display for DeviceTiers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let memory = match (self.memory, self.compute_capability) {
            (Some(bytes), _) => Bytes(bytes).to_string(),
            (None, Some(_)) => "shared".into(),
            (None, None) => "unknown".into(),
        };
        let bandwidth = self.bandwidth.map_or_else(String::new, |bytes| format!("{} GB/s", bytes as f64 / 1e9));
        let capability = self.compute_capability.map(version).unwrap_or_default();
        write!(f, "{:<24}{memory:>10} {bandwidth:>12} {capability:>5}  {}", self.name, self.title)
    }
}

impl DeviceTiers {
    /// A GPU of `hardware`, or its processor.
    fn new(name: String, hardware: &Hardware, gpu: Option<&Gpu>) -> DeviceTiers {
        let (Hardware { cpu, memory, .. }, described) = (hardware, hardware.profile.is_some());
        let compute_capability = gpu.map(|gpu| gpu.compute_capability);
        let engine = match compute_capability {
            Some(compute_capability) => {
                DeviceEngine::Cuda { compute_capability, compiled: described || hardware.has_cuda() }
            }
            None => DeviceEngine::Cpu { features: &cpu.features },
        };
        let main = Some(memory.total).filter(|total| *total != Memory::UNKNOWN);
        DeviceTiers {
            name,
            title: gpu.map_or(&cpu.model, |gpu| &gpu.name).clone(),
            described,
            // Memory that a described GPU shares with the machine is listed as the GPU's.
            memory: gpu.map_or(main, |gpu| gpu.memory_total.or(main.filter(|_| described))),
            bandwidth: gpu.map_or(memory.bandwidth, |gpu| gpu.bandwidth),
            compute_capability,
            tiers: DType::all().map(|dtype| (dtype, capability::tier(dtype, &engine).ok())).collect(),
        }
    }

    fn tier_lines(&self, page: &mut Page<'_>) {
        for wanted in [Tier::Native, Tier::Widened] {
            let names = self.tiers.iter().filter(|(_, tier)| **tier == Some(wanted)).map(|(dtype, _)| dtype.name());
            let names = names.collect::<Vec<_>>().join(" ");
            if !names.is_empty() {
                page.line(format_args!("  {wanted}: {names}"));
            }
        }
        if self.tiers.values().all(Option::is_none) {
            page.line("  no dtype: this build has no engine for it");
        }
    }
}
