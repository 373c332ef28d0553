//! The processor: name, instruction sets that CPU and operating system support, threads.

use super::Cpu;
use std::fs::File;
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
    let (features, missing) = features(flags.as_deref());
    let name = ["model name", "Model", "Hardware"].iter().find_map(|key| field(&text, key));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Cpu {
        model: name.map_or_else(|| format!("unnamed {} processor", std::env::consts::ARCH), str::to_owned),
        features,
        threads,
        slow_threads: threads - super::cores::fast(threads),
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
}
