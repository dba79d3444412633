//! Properties of a new container file, as `H5Pcreate(H5P_FILE_CREATE)` has them.

use crate::base::{Error, Result};

/// Smallest user block that is not empty, bytes.
const USER_BLOCK_MIN: u64 = 512;
/// Page sizes that libhdf5 accepts, bytes.
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 512..=1 << 30;
/// Page size of a file that does not state one, bytes.
pub const PAGE_BYTES: u64 = 4096;
/// K values that libhdf5 accepts: 2K is less than 65,536.
const K_VALUES: std::ops::RangeInclusive<u16> = 1..=32_767;

/// Types of messages that can be shared, by name, with their bits (`H5O_SHMESG_*_FLAG`).
pub const SHARED_MESSAGES: [(&str, u16); 5] =
    [("dataspace", 1 << 1), ("datatype", 1 << 3), ("fillvalue", 1 << 5), ("filters", 1 << 11), ("attribute", 1 << 12)];

/// File space strategy of libhdf5 (`H5Pset_file_space_strategy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Free-space managers and aggregators.
    #[default]
    Fsm,
    /// Free-space managers, in pages.
    Page,
    /// Aggregators only.
    Aggregate,
    /// New space at the end of the file only.
    None,
}

/// What is asked for of a new file; the default is that of libhdf5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewFile {
    /// Every release of libhdf5 reads and changes it.
    pub earliest: bool,
    /// Bytes before the superblock: 0, or a power of two from 512 on.
    pub user_block: u64,
    /// Strategy of libhdf5 for file space.
    pub strategy: Strategy,
    /// Bytes of a page of file space.
    pub page_size: Option<u64>,
    /// Free space is recorded when the file is closed.
    pub persist: bool,
    /// Smallest free section that libhdf5 tracks, bytes.
    pub threshold: Option<u64>,
    /// K of version 1 B-trees of chunks.
    pub chunk_k: Option<u16>,
    /// K of version 1 B-trees of groups.
    pub group_k: Option<u16>,
    /// K of symbol table nodes.
    pub leaf_k: Option<u16>,
    /// Bit n set: libhdf5 shares messages of type n.
    pub shared_messages: u16,
}

fn check(is_fine: bool, reason: impl FnOnce() -> String) -> Result<()> {
    if is_fine { Ok(()) } else { Err(Error::refused(libc::EINVAL, reason())) }
}

impl NewFile {
    /// A new file with default properties; `earliest`: for every release of libhdf5.
    pub fn of_version(earliest: bool) -> Self {
        NewFile { earliest, ..NewFile::default() }
    }

    /// True if only the version is stated.
    pub fn is_plain(&self) -> bool {
        *self == NewFile::of_version(self.earliest)
    }

    /// True if the strategy or one of its parameters differs from the default of libhdf5.
    pub fn has_file_space(&self) -> bool {
        self.strategy != Strategy::Fsm
            || self.persist
            || self.page_size.is_some_and(|size| size != PAGE_BYTES)
            || self.threshold.is_some_and(|bytes| bytes != 1)
    }

    /// Errors: `EINVAL` with a sentence, if libhdf5 would refuse the properties or contradict them.
    pub fn check(&self) -> Result<()> {
        let block = self.user_block;
        check(block == 0 || block >= USER_BLOCK_MIN && block.is_power_of_two(), || {
            format!("a user block of {block} bytes is not possible; give 0, 512 or a larger power of two")
        })?;
        check(block <= 1 << 40, || format!("a user block of {block} bytes is longer than 1 TiB"))?;
        if let Some(size) = self.page_size {
            check(PAGE_SIZES.contains(&size), || format!("a page of {size} bytes is not possible; give 512 bytes to 1 GiB"))?;
            check(self.strategy == Strategy::Page, || "a page size needs the strategy page".into())?;
        }
        let page = if self.strategy == Strategy::Page { self.page_size.unwrap_or(PAGE_BYTES) } else { 1 };
        check(block.is_multiple_of(page), || {
            format!("a user block of {block} bytes is no multiple of a page of {page} bytes, as libhdf5 wants it")
        })?;
        check(!self.persist || matches!(self.strategy, Strategy::Fsm | Strategy::Page), || {
            "only the strategies fsm and page record free space".into()
        })?;
        check(self.threshold.is_none() || matches!(self.strategy, Strategy::Fsm | Strategy::Page), || {
            "only the strategies fsm and page have a threshold".into()
        })?;
        for (name, k) in [("btree-k", self.chunk_k), ("sym-k", self.group_k), ("sym-leaf-k", self.leaf_k)] {
            check(k.is_none_or(|k| K_VALUES.contains(&k)), || format!("{name} is from 1 to {}", K_VALUES.end()))?;
        }
        let newer = self.has_file_space() || self.shared_messages != 0;
        check(!(self.earliest && newer), || {
            "file space strategies and shared messages need a superblock that not every release reads; leave out libver earliest".into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradicting_properties_are_refused() {
        let plain = NewFile::default();
        let page = NewFile { strategy: Strategy::Page, ..plain };
        for fine in [plain, page, NewFile { page_size: Some(512), persist: true, ..page }, NewFile { user_block: 1024, ..plain }] {
            assert_eq!(fine.check(), Ok(()));
        }
        let none = NewFile { strategy: Strategy::None, ..plain };
        for wrong in [
            NewFile { user_block: 256, ..plain },
            NewFile { user_block: 768, ..plain },
            NewFile { user_block: 1 << 50, ..plain },
            NewFile { page_size: Some(4096), ..plain },
            NewFile { page_size: Some(100), ..page },
            NewFile { user_block: 512, ..page },
            NewFile { persist: true, ..none },
            NewFile { threshold: Some(1), ..none },
            NewFile { chunk_k: Some(0), ..plain },
            NewFile { leaf_k: Some(40_000), ..plain },
            NewFile { earliest: true, ..page },
            NewFile { earliest: true, shared_messages: 2, ..plain },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
