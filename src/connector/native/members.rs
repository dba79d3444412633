//! Members of a group that is listed: their object headers are announced to a remote file.

use super::file::HdfFile;
use crate::base::Address;
use crate::format::message::link::{Link, LinkTarget};

/// Bytes announced per member: its header, and what is often stored after it.
const MEMBER_BYTES: u64 = 4 << 10;
/// Members announced at most per listing.
const MEMBERS_MAX: usize = 1 << 18;

/// Object headers of the members listed so far; empty for files of the host.
pub(super) struct Members<'a> {
    file: &'a HdfFile,
    /// Their addresses; `None`: the file is not remote.
    headers: Option<Vec<Address>>,
}

impl<'a> Members<'a> {
    /// Collects members of a group of `file`.
    pub(super) fn new(file: &'a HdfFile) -> Self {
        Members { file, headers: file.store.driver().is_remote().then(Vec::new) }
    }

    /// Adds a link of the group.
    pub(super) fn add(&mut self, link: &Link) {
        let Some(headers) = self.headers.as_mut().filter(|headers| headers.len() < MEMBERS_MAX) else { return };
        if let LinkTarget::Hard(address) = link.target {
            headers.push(address);
        }
    }

    /// Announces the headers to the driver.
    pub(super) fn announce(self) {
        self.file.store.announce(self.headers.into_iter().flatten(), MEMBER_BYTES);
    }
}
