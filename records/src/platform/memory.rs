//! The most memory that this process can use, and the cause of that limit.
//!
//! Only certain limits count: memory in use by others may become free later.

use std::path::{Path, PathBuf};

use super::{field, kibibytes};

/// The maximum number of bytes that this process can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Size of the limit.
    pub bytes: u64,
    /// The cause of the limit, as a clause: `this machine has`.
    pub by: &'static str,
}

/// The smallest of the machine's memory, the control groups' limits, and the remaining address space.
pub fn memory_limit() -> Option<MemoryLimit> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let proc = |name: &str| read(&Path::new("/proc").join(name));
    let machine = kibibytes(&field(&proc("meminfo"), "MemTotal"));
    let machine = (machine > 0).then_some(machine);
    let group =
        group_files(&proc("self/cgroup")).iter().filter_map(|path| bytes(&read(path))).min();
    let mapped = kibibytes(&field(&proc("self/status"), "VmSize"));
    let space = address_space(&proc("self/limits")).map(|limit| limit.saturating_sub(mapped));
    let limits = [
        (machine, "this machine has"),
        (group, "the control group of this process allows"),
        (space, "this process may use (ulimit -v)"),
    ];
    let limits =
        limits.into_iter().filter_map(|(bytes, by)| Some(MemoryLimit { bytes: bytes?, by }));
    limits.min_by_key(|limit| limit.bytes)
}

/// Peak memory of this process in bytes; `None` if the system does not report it.
pub fn peak_memory() -> Option<u64> {
    peak_in("/proc/self/status")
}

/// Peak memory of a process in bytes; `None` if the system does not report it.
pub fn peak_memory_of(process: u32) -> Option<u64> {
    peak_in(&format!("/proc/{process}/status"))
}

/// Memory that this process has now in bytes; `None` if the system does not report it.
pub fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    Some(kibibytes(&field(&status, "VmRSS"))).filter(|bytes| *bytes > 0)
}

fn peak_in(file: &str) -> Option<u64> {
    let status = std::fs::read_to_string(file).unwrap_or_default();
    Some(kibibytes(&field(&status, "VmHWM"))).filter(|bytes| *bytes > 0)
}

/// The number of times that a process touched a page of memory that it did not have yet, without reading a disk;
/// `None` if the system does not report it.
pub fn page_faults_of(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses and may contain spaces; this is the tenth.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(7)?.parse().ok()
}

/// Limit files of a process's control group and of the groups around it.
fn group_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        // number:controllers:path; version 2 has one line, without controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|word| word == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        files.extend(path.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

/// A group's limit; `None` for `max` and for the number near 2^63 that means the same.
fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 62)
}

/// The soft limit of the line `Max address space`.
fn address_space(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_linux_writes_them() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\n\
            Max address space         6144000000           unlimited            bytes     \n";
        assert_eq!(address_space(limits), Some(6_144_000_000));
        assert_eq!(address_space(&limits.replace("6144000000", "unlimited")), None);
        assert_eq!(address_space(""), None);
        assert_eq!(bytes("1073741824\n"), Some(1 << 30));
        assert_eq!([bytes("max\n"), bytes("9223372036854771712\n"), bytes("")], [None; 3]);
    }

    #[test]
    fn every_group_around_a_process_counts() {
        let files = |groups: &str| -> Vec<String> {
            group_files(groups).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            files("0::/slice/job\n"),
            [
                "/sys/fs/cgroup/slice/job/memory.max",
                "/sys/fs/cgroup/slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            files("9:pids:/a\n4:cpu,memory:/a\n"),
            [
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert!(files("nonsense\n").is_empty());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_is_at_least_what_is_held_now() {
        let held = vec![1u8; 64 << 20];
        let peak = peak_memory().unwrap();
        assert!(peak >= held.iter().map(|byte| u64::from(*byte)).sum::<u64>(), "{peak}");
    }

    #[test]
    fn this_process_holds_no_more_than_the_machine_has() {
        let machine = crate::platform::observe_host().memory_bytes;
        if machine > 0 {
            let limit = memory_limit().unwrap();
            assert!(limit.bytes > 0 && limit.bytes <= machine, "{limit:?}");
        }
    }
}
