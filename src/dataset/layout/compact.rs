//! Compact layout: the elements are in the data layout message of the object header.

use super::parts::Parts;
use super::traits::{DatasetBytes, Description, Layout, Operation, Progress, Written};
use crate::base::fill::Fill;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::creation::{CreateLayout, Creation, MESSAGE_MAX_BYTES, NewLayout, refuse};
use crate::dataset::environment::Environment;
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::meta::extent;

/// Name of the layout.
pub(super) const NAME: &str = "compact";

/// A dataset in its object header.
struct Compact {
    bytes: Vec<u8>,
}

/// Opens the layout if the message is of this class. Moves the data out of the message.
pub(super) fn open(parts: &mut Parts<'_>) -> Result<Option<Box<dyn Layout>>> {
    let Class::Compact { data, .. } = &mut parts.message.class else { return Ok(None) };
    Ok(Some(Box::new(Compact { bytes: std::mem::take(data) })))
}

/// Creates compact datasets.
pub(super) struct Create;

impl CreateLayout for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fits_any_container(&self) -> bool {
        true
    }

    fn allocation_time(&self) -> u8 {
        1
    }

    fn check(&self, creation: &Creation) -> Result<()> {
        // The message has a version, a class and a size besides.
        if creation.bytes().is_none_or(|n| n > MESSAGE_MAX_BYTES as u64 - 8) {
            return Err(Error::refused(libc::EINVAL, "compact data has less than 64 KiB"));
        }
        Ok(())
    }

    fn message(&self, _ctx: &Context, _superblock_version: u8, creation: &Creation) -> Result<DataLayout> {
        let element = usize::try_from(creation.datatype.element_size()).unwrap_or(usize::MAX);
        let len = creation.bytes().and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= MESSAGE_MAX_BYTES);
        let Some(len) = len else { return refuse("compact data of 64 KiB") };
        let mut data = vec![0; len];
        if let Fill::Value(value) = &creation.fill {
            data.chunks_exact_mut(element).for_each(|e| e.copy_from_slice(value));
        }
        Ok(DataLayout { version: 3, class: Class::Compact { data, dims: Vec::new() } })
    }
}

fn too_short(header: Address) -> Error {
    Error::corrupt("compact data layout", header, "shorter than the dataset")
}

impl Layout for Compact {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> StorageClass {
        StorageClass::Compact
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        Description::default()
    }

    fn for_copy(&self) -> NewLayout {
        NewLayout { kind: &Create, chunk: Vec::new() }
    }

    fn read(&self, _data: &DatasetBytes, _env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = from.checked_add(buf.len()).and_then(|end| self.bytes.get(from..end));
        buf.copy_from_slice(part.ok_or_else(|| too_short(Address::UNDEF))?);
        Ok(())
    }

    fn allocated(&self, _data: &DatasetBytes, _env: &Environment) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn write(&self, op: &Operation<'_>, offset: u64, bytes: &[u8], _undone: bool) -> Result<Written> {
        let mut data = self.bytes.clone();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let target = from.checked_add(bytes.len()).and_then(|end| data.get_mut(from..end));
        target.ok_or_else(|| too_short(op.header))?.copy_from_slice(bytes);
        let Class::Compact { dims, .. } = &op.message.class else { return Err(too_short(op.header)) };
        let class = Class::Compact { data, dims: dims.clone() };
        Ok(Written { len: bytes.len(), layout: Some(DataLayout { version: op.message.version, class }) })
    }

    fn extents(&self, _op: &Operation<'_>, _visit: &mut extent::Visit<'_>) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, _op: &Operation<'_>, _range: &std::ops::Range<u64>, _from: u64) -> Result<Progress> {
        Ok(Progress::default())
    }
}
