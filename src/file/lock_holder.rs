//! Who holds a lock on a file, as `/proc/locks` says.

use super::Identity;
use std::fs;

/// Longest `/proc/locks` that is searched, bytes.
const TEXT_MAX: usize = 1 << 20;

/// Process number and name of a process that has locked the file by flock(2); `None` if there is
/// none, or none that this process can see.
pub fn of(file: Identity) -> Option<String> {
    let pid = find(&fs::read_to_string("/proc/locks").ok().filter(|text| text.len() <= TEXT_MAX)?, file)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", name.trim_end().escape_default()))
}

/// The process of the first lock on `file`. A line: number, FLOCK, ADVISORY, WRITE, process,
/// major:minor:inode, range.
fn find(locks: &str, file: Identity) -> Option<u32> {
    let device = format!("{:02x}:{:02x}:{}", libc::major(file.device), libc::minor(file.device), file.inode);
    locks.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>()).find_map(|words| match words.as_slice() {
        [_, "FLOCK", _, _, pid, place, ..] if *place == device => pid.parse().ok().filter(|pid| *pid > 0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 77 fd:01:4711 0 EOF\n2: -> FLOCK ADVISORY WRITE 5 fd:01:4711 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 1234 fd:01:4711 0 EOF\n4: FLOCK  ADVISORY  READ 0 08:00:9 0 EOF\n";
        let identity = |major, minor, inode| Identity { device: libc::makedev(major, minor), inode };
        assert_eq!(find(locks, identity(0xfd, 1, 4711)), Some(1234));
        assert_eq!((find(locks, identity(0xfd, 1, 4712)), find(locks, identity(8, 0, 9))), (None, None));
    }
}
