//! Whether a user may read a file, by owners and mode bits. For files that another user names, and
//! that this process could read with its own rights.

use super::directory::{Directory, Entry};
use nix::unistd::{Gid, Uid, User, getgrouplist};
use std::ffi::CString;
use std::io;

/// Permission bits of other users.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// A user and the groups of that user.
#[derive(Debug, Clone)]
pub struct Reader {
    uid: u32,
    groups: Vec<u32>,
    /// Every user may write the directory: each of them must be allowed to read.
    everyone: bool,
}

impl Reader {
    /// The owner of `directory`, or all users if all may write it. A user whom the system does not
    /// know has the group of the directory only.
    pub fn owner_of(directory: &Directory) -> io::Result<Reader> {
        let entry = Entry::of(directory)?;
        let user = User::from_uid(Uid::from_raw(entry.uid)).ok().flatten();
        let listed = user.and_then(|user| getgrouplist(&CString::new(user.name).ok()?, user.gid).ok());
        let groups = listed.map_or_else(|| vec![entry.gid], |groups| groups.into_iter().map(Gid::as_raw).collect());
        Ok(Reader { uid: entry.uid, groups, everyone: entry.mode & WRITE != 0 })
    }

    /// Number of the user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// True if all that this process may read is read for the user.
    pub fn is_caller(&self) -> bool {
        !self.everyone && (self.uid == 0 || self.uid == nix::unistd::geteuid().as_raw())
    }

    fn has(&self, entry: &Entry, bit: u32) -> bool {
        if self.everyone {
            return entry.mode & bit != 0;
        }
        let shift = if self.groups.contains(&entry.gid) { 3 } else { 0 };
        // The owner may change the mode.
        self.is_caller() || entry.uid == self.uid || entry.mode & bit << shift != 0
    }

    /// True if the user may read the file.
    pub fn may_read(&self, file: &Entry) -> bool {
        self.has(file, READ)
    }

    /// True if the user may find names in the directory.
    pub fn may_search(&self, directory: &Entry) -> bool {
        self.has(directory, SEARCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Status;

    fn entry(uid: u32, gid: u32, mode: u32) -> Entry {
        let dir = tempfile::tempdir().unwrap();
        let status: Status = Entry::of(&Directory::open(dir.path()).unwrap()).unwrap().status;
        Entry { status, mode: mode | libc::S_IFREG, links: 1, uid, gid }
    }

    #[test]
    fn modes_decide_for_other_users() {
        let user = Reader { uid: 65533, groups: vec![7, 8], everyone: false };
        for (uid, gid, mode, may) in [
            (0, 0, 0o600, false),
            (0, 0, 0o640, false),
            (0, 0, 0o604, true),
            (0, 8, 0o640, true),
            (0, 8, 0o604, false),
            (65533, 0, 0o000, true),
            (1, 9, 0o660, false),
        ] {
            assert_eq!(user.may_read(&entry(uid, gid, mode)), may, "{uid} {gid} {mode:o}");
        }
        assert!(user.may_search(&entry(0, 0, 0o711)) && !user.may_search(&entry(0, 0, 0o744)));
        assert!(Reader { uid: 0, groups: vec![], everyone: false }.may_read(&entry(1, 1, 0)));
        let all = Reader { uid: 0, groups: vec![0], everyone: true };
        assert!(!all.is_caller() && !all.may_read(&entry(0, 0, 0o660)) && all.may_read(&entry(0, 0, 0o664)));
    }
}
