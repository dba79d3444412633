//! Default of `--cache-size`: an eighth of the available memory, from 64 MiB to 1 GiB.
//!
//! Available is the least of: memory of the machine, limits of the control groups of this process
//! (cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`), its address space (`ulimit -v`).

use nix::sys::resource::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// Smallest default, bytes.
const CACHE_BYTES_MIN: u64 = 64 << 20;
/// Largest default, bytes.
const CACHE_BYTES_MAX: u64 = 1 << 30;

/// Default of `--cache-size`, bytes.
pub(crate) fn default_cache_bytes() -> u64 {
    share(available())
}

fn share(available: Option<u64>) -> u64 {
    (available.unwrap_or(0) / 8).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX)
}

/// Available memory, bytes; `None` if unknown.
fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits(line, Path::new("/sys/fs/cgroup")));
    let space = getrlimit(Resource::RLIMIT_AS).ok().map(|(most, _)| most);
    machine.into_iter().chain(limits).chain(space).min()
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Limits of a group and its ancestors, for one line `id:controllers:path` of /proc/self/cgroup.
fn limits(line: &str, root: &Path) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (base, name) = if controllers.is_empty() {
        (root.to_owned(), "memory.max")
    } else if controllers.split(',').any(|c| c == "memory") {
        (root.join("memory"), "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let group = Path::new(group.trim_start_matches('/'));
    // "max" does not parse: no limit.
    group.ancestors().filter_map(|g| fs::read_to_string(base.join(g).join(name)).ok()?.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_bounded() {
        assert_eq!(share(None), CACHE_BYTES_MIN);
        assert_eq!(share(Some(4 << 30)), 512 << 20);
        assert_eq!(share(Some(1 << 40)), CACHE_BYTES_MAX);
        assert!((CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&default_cache_bytes()));
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_smallest_limit_of_all_groups_is_used() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/memory.max"), "1048576\n").unwrap();
        fs::write(dir.path().join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(limits("0::/a/b", dir.path()), [1_048_576]);
        assert_eq!(limits("3:cpu:/a", dir.path()), [0u64; 0]);
        fs::create_dir_all(dir.path().join("memory/a")).unwrap();
        fs::write(dir.path().join("memory/a/memory.limit_in_bytes"), "77").unwrap();
        assert_eq!(limits("3:cpu,memory:/a", dir.path()), [77]);
        assert_eq!(total("MemTotal:       16 kB\n"), Some(16_384));
        assert_eq!(total("nothing"), None);
    }
}
