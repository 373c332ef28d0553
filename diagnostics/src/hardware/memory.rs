//! Main memory that this process may use: the system's figures, cgroup limits of every level, resource limits.
//!
//! Page cache counts as usable everywhere, because the kernel gives it back: `MemAvailable` includes it by definition,
//! and a cgroup's usage is taken without its `inactive_file` and `active_file`. Otherwise a model that was read once
//! would count against itself.

use super::Memory;
use std::path::{Component, Path, PathBuf};

/// One upper bound of the available memory.
struct Bound {
    total: u64,
    available: u64,
    how: String,
}

pub(super) fn detect() -> Memory {
    let base = system_memory();
    let cgroup = cgroup_folder(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    let cgroup = cgroup.map(|folder| folder.bounds(base.total)).unwrap_or_default();
    let limits = Limits::parse(&text("/proc/self/limits"), &text("/proc/self/status"));
    tightest(base, cgroup, &limits)
}

/// The system's figures; no bound if there are none.
fn system_memory() -> Bound {
    let told = sysinfo::System::new().map_err(|error| error.to_string()).map(|mut system| {
        system.refresh_memory();
        (system.total_memory(), system.available_memory())
    });
    bound(told)
}

/// The bound by the total and available bytes that the system reports. A total of 0 counts as unknown: Linux without
/// `/proc`.
fn bound(told: Result<(u64, u64), String>) -> Bound {
    let how = if cfg!(target_os = "linux") { "MemAvailable" } else { "the operating system" };
    let unknown =
        |why: &str| Bound { total: Memory::UNKNOWN, available: Memory::UNKNOWN, how: format!("unknown: {why}") };
    match told {
        Ok((0, _)) => unknown("the system does not tell how much memory it has"),
        Ok((total, available)) => Bound { total, available, how: how.into() },
        Err(error) => unknown(&error),
    }
}

fn tightest(base: Bound, cgroup: Vec<Bound>, limits: &Limits) -> Memory {
    let address_space = limits.address_space.map(|(limit, used)| Bound {
        total: limit,
        available: limit.saturating_sub(used),
        how: "RLIMIT_AS (ulimit -v)".into(),
    });
    let anonymous = limits.data.map(|(limit, used)| limit.saturating_sub(used));
    let (mut total, mut tightest) = (base.total, base);
    for bound in cgroup.into_iter().chain(address_space) {
        total = total.min(bound.total);
        if bound.available < tightest.available {
            tightest = bound;
        }
    }
    Memory { total, available: tightest.available, anonymous, how: tightest.how, bandwidth: None }
}

/// The text of a pseudo-file; empty if there is none.
fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[derive(Debug, PartialEq, Eq)]
struct Cgroup {
    version: u8,
    /// The mount point of the hierarchy, the outermost level that is visible.
    mount: PathBuf,
    folder: PathBuf,
}

/// Finds the memory controller: a v1 hierarchy that carries it, else v2 (cgroups(7)).
fn cgroup_folder(cgroup: &str, mountinfo: &str) -> Option<Cgroup> {
    let entries = || cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let has_memory = |controllers: &str| controllers.split(',').any(|name| name == "memory");
    let v1 = entries().find(|(controllers, _)| has_memory(controllers)).map(|(_, path)| (1, path));
    let (version, path) = v1.or_else(|| entries().find(|(names, _)| names.is_empty()).map(|(_, path)| (2, path)))?;
    // proc(5): id, parent, device, root, mount point, options, optional fields, "-", type, source, super options.
    let mut mounts = mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let (left, right): (Vec<_>, Vec<_>) = (left.split(' ').collect(), right.split(' ').collect());
        let matches = match version {
            1 => *right.first()? == "cgroup" && has_memory(right.get(2)?),
            _ => *right.first()? == "cgroup2",
        };
        matches.then_some((*left.get(3)?, PathBuf::from(*left.get(4)?)))
    });
    let (root, mount) = mounts.next_back()?; // a later mount hides an earlier one
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    // `/../x` means that the process is outside of what this namespace sees.
    let visible = below.components().all(|part| matches!(part, Component::Normal(_)));
    let folder = if visible { mount.join(below) } else { mount.clone() };
    Some(Cgroup { version, mount, folder })
}

impl Cgroup {
    /// One bound for every level that has a limit below the machine's memory.
    fn bounds(&self, machine: u64) -> Vec<Bound> {
        let (limits, usage, prefix): (&[&str], _, _) = match self.version {
            1 => (&["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_"),
            // Above `memory.high` the kernel throttles until nothing makes progress, so it counts as a limit.
            _ => (&["memory.max", "memory.high"], "memory.current", ""),
        };
        let levels = self.folder.ancestors().take_while(|level| level.starts_with(&self.mount));
        levels
            .filter_map(|level| {
                // A missing file and the word `max` both mean no limit.
                let limit = limits.iter().filter_map(|name| number(&level.join(name))).min()?;
                let used = number(&level.join(usage)).unwrap_or(0);
                let stat = text(level.join("memory.stat"));
                let cache = ["inactive_file", "active_file"].map(|key| stat_value(&stat, prefix, key)).iter().sum();
                (limit < machine).then(|| Bound {
                    total: limit,
                    available: limit.saturating_sub(used.saturating_sub(cache)),
                    how: format!("the memory limit of a cgroup (v{})", self.version),
                })
            })
            .collect()
    }
}

fn number(path: &Path) -> Option<u64> {
    text(path).trim().parse().ok()
}

fn stat_value(stat: &str, prefix: &str, key: &str) -> u64 {
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let mut values = lines.filter(|(name, _)| name.strip_prefix(prefix) == Some(key));
    values.next().and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Resource limits as `(limit, used)` in bytes; `None` is unlimited.
#[derive(Debug, Default, PartialEq, Eq)]
struct Limits {
    /// `RLIMIT_AS`, which counts every mapping, mapped files too.
    address_space: Option<(u64, u64)>,
    /// `RLIMIT_DATA`, which counts private writable memory.
    data: Option<(u64, u64)>,
}

impl Limits {
    fn parse(limits: &str, status: &str) -> Limits {
        let limit = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let used = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or(0).saturating_mul(1024)
        };
        Limits {
            address_space: limit("Max address space").map(|limit| (limit, used("VmSize:"))),
            data: limit("Max data size").map(|limit| (limit, used("VmData:"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    const MIB: u64 = 1 << 20;

    #[test]
    fn finds_the_cgroup_of_either_version() {
        let v1 = "5:devices:/\n4:cpu,memory:/docker/abc\n0::/\n";
        let mounts = "35 31 0:32 /docker /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let expected =
            Cgroup { version: 1, mount: "/sys/fs/cgroup/memory".into(), folder: "/sys/fs/cgroup/memory/abc".into() };
        assert_eq!(cgroup_folder(v1, mounts), Some(expected));
        let v2 = |path: &str| cgroup_folder(&format!("0::{path}\n"), mounts).map(|cgroup| cgroup.folder);
        assert_eq!(v2("/user.slice/a.scope"), Some("/sys/fs/cgroup/unified/user.slice/a.scope".into()));
        assert_eq!(v2("/../../other"), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(cgroup_folder("", ""), None);
    }

    #[test]
    fn the_outer_level_may_be_the_tighter_one_and_page_cache_is_free() {
        let mount = tempfile::tempdir().unwrap();
        let folder = mount.path().join("outer/inner");
        create_dir_all(&folder).unwrap();
        let level = |path: &Path, max: &str, current: u64, stat: &str| {
            write(path.join("memory.max"), max).unwrap();
            write(path.join("memory.current"), current.to_string()).unwrap();
            write(path.join("memory.stat"), stat).unwrap();
        };
        level(&folder, "max\n", 900 * MIB, "anon 1\n");
        let stat = format!("anon 5\nactive_file {}\ninactive_file {}\n", 100 * MIB, 500 * MIB);
        level(folder.parent().unwrap(), &(1024 * MIB).to_string(), 900 * MIB, &stat);
        let cgroup = Cgroup { version: 2, mount: mount.path().into(), folder };
        let bounds = cgroup.bounds(u64::MAX);
        assert_eq!(bounds.len(), 1);
        assert_eq!((bounds[0].total, bounds[0].available), (1024 * MIB, 724 * MIB));
        assert!(cgroup.bounds(512 * MIB).is_empty(), "a limit above the machine's memory is none");
    }

    #[test]
    fn reads_resource_limits() {
        let limits = "Max data size             unlimited            unlimited            bytes     \n\
                      Max address space         4294967296           unlimited            bytes     \n";
        let status = "VmSize:\t    2048 kB\nVmData:\t 4 kB\n";
        let expected = Limits { address_space: Some((4 << 30, 2 << 20)), data: None };
        assert_eq!(Limits::parse(limits, status), expected);
        assert_eq!(Limits::parse("", ""), Limits::default());
    }

    #[test]
    fn the_tightest_bound_names_itself() {
        let base = Bound { total: 64 << 30, available: 60 << 30, how: "MemAvailable".into() };
        let limits = Limits { address_space: Some((8 << 30, 1 << 30)), data: Some((MIB, 2 * MIB)) };
        let memory = tightest(base, Vec::new(), &limits);
        assert_eq!((memory.total, memory.available, memory.anonymous), (8 << 30, 7 << 30, Some(0)));
        assert!(memory.how.contains("RLIMIT_AS"));
    }

    #[test]
    fn what_the_system_does_not_tell_is_unknown_and_limits_still_count() {
        let nothing = || tightest(bound(Ok((0, 0))), Vec::new(), &Limits::default());
        assert_eq!((nothing().total, nothing().available), (Memory::UNKNOWN, Memory::UNKNOWN));
        assert!(nothing().how.starts_with("unknown: "), "{}", nothing().how);
        let limits = Limits { address_space: Some((8 << 30, 1 << 30)), data: None };
        let memory = tightest(bound(Ok((0, 0))), Vec::new(), &limits);
        assert_eq!((memory.total, memory.available), (8 << 30, 7 << 30));
        assert!(memory.how.contains("RLIMIT_AS"));
        let full = bound(Ok((8 << 30, 0)));
        assert_eq!((full.total, full.available), (8 << 30, 0));
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = detect();
        assert!(memory.available > 0 && memory.available <= memory.total, "{memory:?}");
    }
}
