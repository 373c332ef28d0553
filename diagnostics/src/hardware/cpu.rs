//! The processor: name, instruction sets that CPU and operating system support, threads, and how many of these run on the
//! fast cores where cores differ.
//!
//! Linux gives each core's capacity or else its highest frequency, macOS levels of cores. Elsewhere and on x86 all threads count.

use super::Cpu;
use model_factory_dtypes::generation;
use std::fs::{self, File};
use std::io::Read;

/// Pushes each feature that the processor has, and each that the build requires but Linux does not report.
macro_rules! features {
    ($detected:ident, $found:ident, $missing:ident, $flags:ident, [$(($feature:tt, $flag:literal)),* $(,)?]) => {
        $(
            if std::arch::$detected!($feature) {
                $found.push($feature);
            }
            if cfg!(target_feature = $feature) && $flags.is_some_and(|flags| !flags.contains(&$flag)) {
                $missing.push($feature);
            }
        )*
    };
}

pub(super) fn detect() -> Cpu {
    let text = cpuinfo();
    let flags: Option<Vec<&str>> = ["flags", "Features"].iter().find_map(|key| field(&text, key)).map(words);
    let (mut features, missing) = features(flags.as_deref());
    let slow = generation().avoided;
    let avoided = features.extract_if(.., |feature| slow.contains(feature)).collect();
    let name = ["model name", "Model", "Hardware"].iter().find_map(|key| field(&text, key));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Cpu {
        model: name.map_or_else(|| format!("unnamed {} processor", std::env::consts::ARCH), str::to_owned),
        features,
        avoided,
        threads,
        slow_threads: threads - fast(threads),
        missing,
    }
}

/// The features found and those missing, each with its name in Rust and in `/proc/cpuinfo`.
#[allow(unused_mut, unused_variables)] // other architectures have none of them
fn features(flags: Option<&[&str]>) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    #[cfg(target_arch = "x86_64")]
    #[rustfmt::skip]
    features!(is_x86_feature_detected, found, missing, flags, [
        ("avx", "avx"), ("avx2", "avx2"), ("fma", "fma"), ("f16c", "f16c"),
        ("avxvnni", "avx_vnni"), ("avxvnniint8", "avx_vnni_int8"),
        ("avx512f", "avx512f"), ("avx512bw", "avx512bw"), ("avx512dq", "avx512dq"), ("avx512vl", "avx512vl"),
        ("avx512vnni", "avx512_vnni"), ("avx512bf16", "avx512_bf16"), ("avx512fp16", "avx512_fp16"),
    ]);
    // The standard library cannot detect tiles yet. Kernels need all three, and the system's leave, which the engine asks for.
    #[cfg(target_arch = "x86_64")]
    if flags.is_some_and(|flags| ["amx_tile", "amx_int8", "amx_bf16"].iter().all(|flag| flags.contains(flag))) {
        found.extend(["amx-tile", "amx-int8", "amx-bf16"]);
    }
    #[cfg(target_arch = "aarch64")]
    #[rustfmt::skip]
    features!(is_aarch64_feature_detected, found, missing, flags, [
        ("neon", "asimd"), ("fp16", "asimdhp"), ("dotprod", "asimddp"), ("i8mm", "i8mm"), ("bf16", "bf16"),
        ("sve", "sve"),
    ]);
    (found, missing)
}

/// The start of `/proc/cpuinfo`, enough for its first processor: the rest repeats it and takes the kernel milliseconds
/// on large machines. Empty if there is no such file.
fn cpuinfo() -> String {
    let mut bytes = Vec::new();
    let read = File::open("/proc/cpuinfo").and_then(|file| file.take(8 << 10).read_to_end(&mut bytes));
    if read.is_ok() { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.trim(), value.trim())).find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn words(text: &str) -> Vec<&str> {
    text.split_ascii_whitespace().collect()
}

/// How many of `threads` run on cores of at least half the speed of the fastest, or on cores that macOS does not call
/// efficiency cores; all of them if the system does not say.
fn fast(threads: usize) -> usize {
    let known = match std::env::consts::OS {
        _ if !cfg!(target_arch = "aarch64") => None,
        "macos" => of_other_levels(),
        _ => usable()
            .map(|cores| cores.into_iter().filter_map(speed).collect())
            .map(|speeds: Vec<_>| at_least_half(&speeds)),
    };
    known.filter(|&fast| fast > 0).map_or(threads, |fast| fast.min(threads))
}

/// Asks `sysctl`, which needs no unsafe code here.
fn of_other_levels() -> Option<usize> {
    let ask = |level: usize, what: &str| {
        let name = format!("hw.perflevel{level}.{what}");
        let asked = std::process::Command::new("/usr/sbin/sysctl").args(["-n", &name]).output().ok()?;
        let text = String::from_utf8(asked.stdout).ok()?.trim().to_owned();
        Some(text).filter(|text| asked.status.success() && !text.is_empty())
    };
    let levels = (0..).map_while(|level| Some((level, ask(level, "name")?)));
    levels
        .filter(|(_, name)| name != "Efficiency")
        .map(|(level, _)| ask(level, "logicalcpu")?.parse::<usize>().ok())
        .sum()
}

/// The cores that this process may run on.
fn usable() -> Option<Vec<usize>> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim())
}

/// Parses `0-3,6` (cpuset(7)).
fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// The speed of a core, in a unit that is the same for all cores of a machine.
fn speed(core: usize) -> Option<u64> {
    let folder = format!("/sys/devices/system/cpu/cpu{core}");
    let number = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse().ok();
    number("cpu_capacity").or_else(|| number("cpufreq/cpuinfo_max_freq"))
}

fn at_least_half(speeds: &[u64]) -> usize {
    let fastest = speeds.iter().copied().max().unwrap_or(0);
    speeds.iter().filter(|&&speed| speed * 2 >= fastest).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_name_and_flags_of_the_first_processor() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2:1\nflags\t\t: fpu avx2\n\nmodel name\t: other\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2:1"));
        assert_eq!(field(text, "flags").map(words), Some(vec!["fpu", "avx2"]));
        assert_eq!(field(text, "Model"), None);
    }

    #[test]
    fn this_machine_has_what_this_build_needs() {
        let cpu = detect();
        assert!(cpu.threads > 0 && !cpu.model.is_empty());
        assert_eq!(cpu.missing, Vec::<&str>::new());
    }

    #[test]
    fn counts_cores_of_at_least_half_the_speed() {
        let eight_of = |big: u64, little: u64| [[big; 4], [little; 4]].concat();
        assert_eq!(at_least_half(&eight_of(1024, 414)), 4); // Cortex-A76 and A55
        assert_eq!(at_least_half(&eight_of(1024, 718)), 8); // Cortex-X925 and A725
        assert_eq!(at_least_half(&[1_800_000; 4]), 4);
        assert_eq!(at_least_half(&[]), 0);
    }

    #[test]
    fn reads_lists_of_cores() {
        assert_eq!(list("0-3,6"), Some(vec![0, 1, 2, 3, 6]));
        assert_eq!(list("5"), Some(vec![5]));
        assert_eq!(list(""), None);
        assert_eq!(list("0-x"), None);
    }

    #[test]
    fn never_more_than_there_are() {
        for threads in [1, 2, 1000] {
            assert!((1..=threads).contains(&fast(threads)));
        }
    }
}
