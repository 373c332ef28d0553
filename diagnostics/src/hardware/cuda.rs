//! NVIDIA GPUs by NVML, loaded at run time. Every failure is a sentence in the report, never an error.
//!
//! NVML lists every GPU in bus order and ignores `CUDA_VISIBLE_DEVICES`; the effect of that variable is computed here,
//! by the rules of the CUDA programming guide, and its order is the order of the GPUs.
//!
//! A GPU divided by MIG is listed as its slices: a program runs on one, with that slice's memory. NVIDIA's MIG user
//! guide ("CUDA Device Enumeration") says which devices CUDA lists to a process: one compute instance, the first of the
//! visible ones, and no whole GPU next to it. `CUDA_VISIBLE_DEVICES` selects another one by its UUID (`MIG-...`). So
//! every slice is listed here, first the one that CUDA lists, then the others with the value of the variable that
//! selects them.

use super::Gpu;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::MemoryInfo;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use std::panic::resume_unwind;
use std::thread;

/// The GPUs that CUDA programs see, and why there are none or some are missing.
pub(super) fn detect() -> (Vec<Gpu>, Option<String>) {
    let (listed, mut notes) = match with_own_stack(|| Nvml::init().and_then(|nvml| devices(&nvml))) {
        Ok(found) => found,
        Err(error) => return (Vec::new(), Some(explain(&error))),
    };
    let variable = std::env::var_os("CUDA_VISIBLE_DEVICES").map(|value| value.to_string_lossy().into_owned());
    let by_bus = std::env::var_os("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID");
    let all = listed.len();
    let gpus: Vec<Gpu> = match visible(variable.as_deref(), by_bus, &listed) {
        Ok(places) => enumerated(places.into_iter().map(|place| listed[place].clone()).collect()),
        Err(note) => {
            notes.push(note);
            Vec::new()
        }
    };
    if let (Some(value), true) = (variable, gpus.len() < all && notes.is_empty()) {
        notes.push(format!("{} of {all} are hidden by CUDA_VISIBLE_DEVICES={value}", all - gpus.len()));
    }
    (gpus, (!notes.is_empty()).then(|| notes.join("; ")))
}

/// The result of `ask`, in a thread of its own if one can be started: the library's table of functions is moved from
/// frame to frame, and the driver takes an unknown amount of stack, which the caller's thread may not have.
fn with_own_stack<T: Send>(ask: impl Fn() -> T + Sync) -> T {
    thread::scope(|scope| match thread::Builder::new().name("nvml".into()).spawn_scoped(scope, &ask) {
        Ok(asking) => asking.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => ask(),
    })
}

/// A GPU, or a slice of one.
#[derive(Clone, Debug)]
struct Listed {
    /// The position of the GPU on the bus.
    device: u32,
    /// The GPU's name; a slice has one of its own.
    model: String,
    slice: bool,
    gpu: Gpu,
}

/// The devices in CUDA's order: next to a slice, any other device has to be made visible by its UUID.
fn enumerated(mut listed: Vec<Listed>) -> Vec<Gpu> {
    if let Some(first) = listed.iter().position(|device| device.slice) {
        listed[..=first].rotate_right(1);
        listed[1..].iter_mut().for_each(|device| device.gpu.visible_as.clone_from(&device.gpu.uuid));
        let mut place = 0..;
        listed.retain(|device| place.next() == Some(0) || device.gpu.visible_as.is_some());
    }
    listed.into_iter().map(|device| device.gpu).collect()
}

fn devices(nvml: &Nvml) -> Result<(Vec<Listed>, Vec<String>), NvmlError> {
    let driver = nvml.sys_driver_version().unwrap_or_else(|_| "unknown".into());
    let cuda = nvml.sys_cuda_driver_version().ok();
    let cuda = cuda.map(|version| (cuda_driver_version_major(version), cuda_driver_version_minor(version)));
    let cuda = cuda.map(|(major, minor)| (major.unsigned_abs(), minor.unsigned_abs()));
    let count = nvml.device_count()?;
    let (mut listed, mut notes) = (Vec::new(), Vec::new());
    for device in 0..count {
        match slices(nvml, device, &driver, cuda) {
            Ok(devices) if devices.is_empty() => notes.push(format!("GPU {device} is divided by MIG and has no slice")),
            Ok(devices) => listed.extend(devices),
            Err(error) => notes.push(format!("GPU {device} does not answer: {error}")),
        }
    }
    if count == 0 {
        notes.push("the NVIDIA driver lists no GPU".into());
    }
    Ok((listed, notes))
}

fn slices(nvml: &Nvml, index: u32, driver: &str, cuda: Option<(u32, u32)>) -> Result<Vec<Listed>, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let capability = device.cuda_compute_capability()?;
    let capability = (capability.major.unsigned_abs(), capability.minor.unsigned_abs());
    let model = device.name()?;
    let describe = |device: &Device<'_>, slice: bool, name: String| {
        let (memory_total, memory_free, shared_memory) = figures(device.memory_info());
        let (uuid, driver) = (device.uuid().ok(), driver.into());
        let gpu = Gpu::described(&name, capability, 0);
        let gpu = Gpu { uuid, memory_total, memory_free, shared_memory, driver, cuda, ..gpu };
        Listed { device: index, model: model.clone(), slice, gpu }
    };
    // GPUs that cannot be divided answer NotSupported.
    if !device.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Ok(vec![describe(&device, false, model.clone())]);
    }
    // The count is the number of places for slices; empty ones answer NotFound.
    let slices = (0..device.mig_device_count()?).filter_map(|place| device.mig_device_by_index(place).ok());
    let name = |slice: &Device<'_>| slice.name().unwrap_or_else(|_| format!("slice of {model}"));
    Ok(slices.map(|slice| describe(&slice, true, name(&slice))).collect())
}

/// Total and free bytes, and whether they are the machine's: GPUs without memory of their own answer NotSupported.
fn figures(answer: Result<MemoryInfo, NvmlError>) -> (Option<u64>, Option<u64>, bool) {
    match answer {
        Ok(memory) => (Some(memory.total), Some(memory.free), false),
        Err(error) => (None, None, matches!(error, NvmlError::NotSupported)),
    }
}

/// The positions in `listed` that `CUDA_VISIBLE_DEVICES` selects, in its order: indices, which for a divided GPU mean
/// all its slices, UUIDs or their prefixes; the first that is not a GPU hides itself and all after it.
///
/// # Errors
/// A sentence, when indices are ambiguous: CUDA counts the fastest GPU first unless `CUDA_DEVICE_ORDER` is
/// `PCI_BUS_ID`, and only CUDA knows which GPU that is.
fn visible(variable: Option<&str>, by_bus: bool, listed: &[Listed]) -> Result<Vec<usize>, String> {
    let Some(variable) = variable else {
        return Ok((0..listed.len()).collect());
    };
    let alike = listed.windows(2).all(|pair| pair[0].model == pair[1].model);
    let mut places = Vec::new();
    for entry in variable.split(',').map(str::trim) {
        let found: Vec<usize> = match entry.parse::<u32>() {
            Ok(_) if !by_bus && !alike => {
                return Err(format!(
                    "CUDA_VISIBLE_DEVICES={variable} counts different GPUs the fastest first; name them by UUID, or set \
                     CUDA_DEVICE_ORDER=PCI_BUS_ID"
                ));
            }
            Ok(index) => (0..listed.len()).filter(|place| listed[*place].device == index).collect(),
            Err(_) => by_uuid(entry, listed).into_iter().collect(),
        };
        if found.is_empty() || found.iter().any(|place| places.contains(place)) {
            break;
        }
        places.extend(found);
    }
    Ok(places)
}

/// The position of the only device whose UUID has this prefix.
fn by_uuid(beginning: &str, listed: &[Listed]) -> Option<usize> {
    let named = beginning.starts_with("GPU-") || beginning.starts_with("MIG-");
    let begins = |device: &Listed| device.gpu.uuid.as_deref().is_some_and(|uuid| uuid.starts_with(beginning));
    let mut found = listed.iter().enumerate().filter(|(_, device)| named && begins(device)).map(|(place, _)| place);
    found.next().filter(|_| found.next().is_none())
}

fn explain(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) => "no NVIDIA driver library".into(),
        NvmlError::LibraryNotFound => "no NVIDIA driver library, or a stub of it".into(),
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            "the NVIDIA driver library lacks functions: it is a stub or too old".into()
        }
        NvmlError::DriverNotLoaded => "the NVIDIA driver library is there, the driver is not loaded".into(),
        NvmlError::NoPermission => "no permission to ask the NVIDIA driver".into(),
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA driver and its library have different versions; restart after an update".into()
        }
        other => format!("the NVIDIA driver does not answer: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(devices: &[(u32, &str, &str)]) -> Vec<Listed> {
        let gpu = |name: &str, uuid: &str| Gpu {
            name: name.into(),
            uuid: Some(uuid.into()),
            compute_capability: (8, 0),
            memory_total: Some(1 << 30),
            memory_free: Some(1 << 30),
            shared_memory: false,
            driver: "580.1".into(),
            cuda: Some((13, 0)),
            visible_as: None,
            bandwidth: None,
        };
        let listed = |(device, name, uuid): &(u32, &str, &str)| {
            let slice = uuid.starts_with("MIG-") || name.contains("MIG");
            let model = name.split(" MIG").next().unwrap_or(name).to_owned();
            Listed { device: *device, model, slice, gpu: gpu(name, uuid) }
        };
        devices.iter().map(listed).collect()
    }

    #[test]
    fn the_variable_chooses_and_orders_gpus() {
        let devices = listed(&[(0, "A", "GPU-aa1"), (1, "A", "GPU-aa2"), (2, "A", "GPU-bb3")]);
        let cases: [(Option<&str>, &[usize]); 12] = [
            (None, &[0, 1, 2]),
            (Some(""), &[]),
            (Some("2,0"), &[2, 0]),
            (Some(" 1 , 2"), &[1, 2]),
            (Some("1,9,0"), &[1]),
            (Some("-1,0"), &[]),
            (Some("0,0,1"), &[0]),
            (Some("GPU-bb3,GPU-aa1"), &[2, 0]),
            (Some("GPU-bb"), &[2]),
            (Some("GPU-aa,0"), &[]),
            (Some("bb3"), &[]),
            (Some("NoDevFiles"), &[]),
        ];
        for (variable, expected) in cases {
            assert_eq!(visible(variable, false, &devices).as_deref(), Ok(expected), "{variable:?}");
        }
    }

    #[test]
    fn indices_of_different_gpus_need_the_order_of_the_bus() {
        let devices = listed(&[(0, "small", "GPU-1"), (1, "large", "GPU-2")]);
        assert!(visible(Some("0"), false, &devices).is_err_and(|note| note.contains("CUDA_DEVICE_ORDER=PCI_BUS_ID")));
        assert_eq!(visible(Some("1"), true, &devices), Ok(vec![1]));
        assert_eq!(visible(Some("GPU-2"), false, &devices), Ok(vec![1]));
    }

    #[test]
    fn a_gpu_is_the_same_gpu_however_it_is_divided() {
        let (small, large) = ("A100 MIG 1g.5gb", "A100 MIG 3g.20gb");
        let one = listed(&[(0, small, "MIG-1"), (0, large, "MIG-2")]);
        assert_eq!(visible(Some("0"), false, &one), Ok(vec![0, 1]));
        let equal = listed(&[(0, "A100", "GPU-1"), (1, small, "MIG-1"), (1, large, "MIG-2")]);
        assert_eq!(visible(Some("1"), false, &equal), Ok(vec![1, 2]));
        let different = listed(&[(0, small, "MIG-1"), (1, "A30 MIG 1g.6gb", "MIG-2")]);
        assert!(visible(Some("0"), false, &different).is_err());
    }

    #[test]
    fn slices_are_chosen_by_their_own_names_or_by_their_gpu() {
        let devices = listed(&[(0, "A", "MIG-11"), (0, "A", "MIG-12"), (1, "A", "GPU-2")]);
        assert_eq!(visible(Some("MIG-12"), false, &devices), Ok(vec![1]));
        assert_eq!(visible(Some("1,0"), false, &devices), Ok(vec![2, 0, 1]), "an index is a GPU with all its slices");
        assert_eq!(visible(Some("0,MIG-11"), false, &devices), Ok(vec![0, 1]), "twice is the end");
    }

    /// The device of `devices` that CUDA lists comes first; the others come with the value that makes them visible.
    fn seen(variable: Option<&str>, devices: &[Listed]) -> Vec<(String, Option<String>)> {
        let places = visible(variable, false, devices).unwrap();
        let gpus = enumerated(places.into_iter().map(|place| devices[place].clone()).collect());
        gpus.into_iter().map(|gpu| (gpu.uuid.unwrap_or_default(), gpu.visible_as)).collect()
    }

    #[test]
    fn every_slice_is_a_device_and_cuda_lists_the_first() {
        let pair = |uuid: &str, hidden: bool| (uuid.to_owned(), hidden.then(|| uuid.to_owned()));
        let whole = listed(&[(0, "A", "GPU-1"), (1, "A", "GPU-2")]);
        assert_eq!(seen(None, &whole), [pair("GPU-1", false), pair("GPU-2", false)]);
        let divided = listed(&[(0, "A", "GPU-1"), (1, "A", "MIG-11"), (1, "A", "MIG-12"), (2, "A", "MIG-21")]);
        let all = [pair("MIG-11", false), pair("GPU-1", true), pair("MIG-12", true), pair("MIG-21", true)];
        assert_eq!(seen(None, &divided), all);
        assert_eq!(seen(Some("1"), &divided), [pair("MIG-11", false), pair("MIG-12", true)]);
        assert_eq!(seen(Some("MIG-12"), &divided), [pair("MIG-12", false)]);
        assert_eq!(seen(Some("MIG-21,MIG-11"), &divided), [pair("MIG-21", false), pair("MIG-11", true)]);
        assert_eq!(seen(Some("GPU-1"), &divided), [pair("GPU-1", false)]);
        let mut nameless = listed(&[(0, "A MIG 1g", "MIG-11"), (0, "A MIG 1g", "MIG-12")]);
        nameless.iter_mut().for_each(|slice| slice.gpu.uuid = None);
        assert_eq!(seen(None, &nameless), [(String::new(), None)], "what has no UUID cannot be made visible");
    }

    #[test]
    fn memory_without_figures_is_shared_only_when_the_driver_says_so() {
        let answer = MemoryInfo { free: 3, reserved: 1, total: 9, used: 5, version: 2 };
        assert_eq!(figures(Ok(answer)), (Some(9), Some(3), false));
        assert_eq!(figures(Err(NvmlError::NotSupported)), (None, None, true));
        assert_eq!(figures(Err(NvmlError::GpuLost)), (None, None, false));
    }

    #[test]
    fn what_the_driver_cannot_answer_is_a_sentence() {
        let cases = [
            (NvmlError::LibraryNotFound, "stub"),
            (NvmlError::FailedToLoadSymbol("nvmlInit_v2".into()), "stub or too old"),
            (NvmlError::DriverNotLoaded, "not loaded"),
            (NvmlError::LibRmVersionMismatch, "different versions"),
            (NvmlError::NoPermission, "no permission"),
            (NvmlError::Unknown, "does not answer"),
        ];
        for (error, says) in cases {
            assert!(explain(&error).contains(says), "{}", explain(&error));
        }
    }
}
