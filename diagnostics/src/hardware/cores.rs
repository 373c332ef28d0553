//! Processors whose cores differ: how many threads run on the fast ones.
//!
//! Linux gives each core's capacity or else its highest frequency, macOS levels of cores. Elsewhere and on x86 all threads count.

use std::fs;

/// How many of `threads` run on cores of at least half the speed of the fastest, or on cores that macOS does not call
/// efficiency cores; all of them if the system does not say.
pub(super) fn fast(threads: usize) -> usize {
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
