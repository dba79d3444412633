//! Creation of virtual datasets: the mappings are alone in a global heap collection.

use super::storage::NAME;
use crate::base::shape::Extent;
use crate::base::{Address, Error, Result};
use crate::dataset::creation::{CreateLayout, Creation};
use crate::dataset::elsewhere::{self, Elsewhere, SourceMapping};
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::format::object_header::kind;
use crate::meta::Store;
use crate::structures::global_heap::edit::{FreeSpace, insert};

/// Version of the data layout message, the first one with this class.
const VERSION: u8 = 4;
/// Oldest superblock with which libhdf5 expects such messages.
const SUPERBLOCK_MIN: u8 = 2;

/// Creates virtual datasets.
pub(in crate::dataset::layout) struct Create;

fn mappings_of(creation: &Creation) -> Result<&[SourceMapping]> {
    match &creation.elsewhere {
        Some(Elsewhere::Datasets(mappings)) => Ok(mappings),
        _ => Err(Error::refused(libc::EINVAL, "layout virtual needs its sources: \"virtual\": [{\"source\": \"FILE:/PATH\"}]")),
    }
}

fn message(heap: Address, index: u32) -> DataLayout {
    DataLayout { version: VERSION, class: Class::Virtual { heap, index } }
}

impl CreateLayout for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    fn grows(&self) -> bool {
        true
    }

    fn allocation_time(&self) -> u8 {
        3
    }

    fn check(&self, creation: &Creation) -> Result<()> {
        if creation.extent != Extent::Simple {
            return Err(Error::refused(libc::EINVAL, "a virtual dataset has dimensions"));
        }
        elsewhere::check_mappings(mappings_of(creation)?, creation.dims.len())
    }

    fn message(&self, _ctx: &Context, superblock_version: u8, _creation: &Creation) -> Result<DataLayout> {
        if superblock_version < SUPERBLOCK_MIN {
            let reason = "a file for every release of libhdf5 has no virtual datasets; create it with libver v110";
            return Err(Error::refused(libc::EINVAL, reason));
        }
        Ok(message(Address::UNDEF, 0))
    }

    fn store(&self, store: &Store, creation: &Creation, messages: &mut Vec<(u16, u8, Vec<u8>)>) -> Result<()> {
        let bytes = elsewhere::encodable(mappings_of(creation)?).encode(store.ctx());
        // A collection without other objects: its deletion cannot touch those.
        let (heap, index) = insert(store, &mut FreeSpace::default(), &bytes)?;
        for m in messages.iter_mut().filter(|m| m.0 == kind::DATA_LAYOUT) {
            m.2 = message(heap, index).encode(store.ctx())?;
        }
        Ok(())
    }
}
