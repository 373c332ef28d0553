//! NVIDIA cards by NVML, loaded at run time. Whatever goes wrong is a sentence in the report, never an error.

use super::Gpu;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The cards, and why there are none or not all.
pub(super) fn detect() -> (Vec<Gpu>, Option<String>) {
    match Nvml::init() {
        Ok(nvml) => cards(&nvml).unwrap_or_else(|error| (Vec::new(), Some(explain(&error)))),
        Err(error) => (Vec::new(), Some(explain(&error))),
    }
}

fn cards(nvml: &Nvml) -> Result<(Vec<Gpu>, Option<String>), NvmlError> {
    let driver = nvml.sys_driver_version().unwrap_or_else(|_| "unknown".into());
    let count = nvml.device_count()?;
    let (mut gpus, mut notes) = (Vec::new(), Vec::new());
    for index in 0..count {
        match card(nvml, index, &driver) {
            Ok(gpu) => gpus.push(gpu),
            Err(error) => notes.push(format!("card {index} does not answer: {error}")),
        }
    }
    if count == 0 {
        notes.push("the NVIDIA driver lists no card".into());
    }
    Ok((gpus, (!notes.is_empty()).then(|| notes.join("; "))))
}

fn card(nvml: &Nvml, index: u32, driver: &str) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let capability = device.cuda_compute_capability()?;
    // Cards that share the machine's memory answer NotSupported here.
    let memory = device.memory_info().ok();
    Ok(Gpu {
        name: device.name()?,
        uuid: device.uuid().ok(),
        compute_capability: (capability.major.unsigned_abs(), capability.minor.unsigned_abs()),
        memory_total: memory.as_ref().map(|memory| memory.total),
        memory_free: memory.as_ref().map(|memory| memory.free),
        driver: driver.into(),
    })
}

fn explain(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => "no NVIDIA driver library".into(),
        NvmlError::DriverNotLoaded => "the NVIDIA driver library is there, the driver is not loaded".into(),
        NvmlError::NoPermission => "no permission to ask the NVIDIA driver".into(),
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA driver and its library have different versions; restart after an update".into()
        }
        other => format!("the NVIDIA driver does not answer: {other}"),
    }
}
