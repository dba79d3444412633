//! Compact layout: the elements are in the data layout message of the object header.

use super::parts::Parts;
use super::traits::{DatasetBytes, Description, Layout, Operation, Progress, Written};
use crate::base::{Address, Error, Result};
use crate::dataset::create::Layout as NewLayout;
use crate::dataset::environment::Environment;
use crate::format::message::data_layout::{DataLayout, Layout as Class};

/// A dataset in its object header.
struct Compact {
    bytes: Vec<u8>,
}

/// Opens the layout if the message is of this class. Moves the data out of the message.
pub(super) fn open(parts: &mut Parts<'_>) -> Result<Option<Box<dyn Layout>>> {
    let Class::Compact { data, .. } = &mut parts.message.class else { return Ok(None) };
    Ok(Some(Box::new(Compact { bytes: std::mem::take(data) })))
}

fn too_short(header: Address) -> Error {
    Error::corrupt("compact data layout", header, "shorter than the dataset")
}

impl Layout for Compact {
    fn name(&self) -> &'static str {
        "compact"
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        Description::default()
    }

    fn for_copy(&self) -> NewLayout {
        NewLayout::Compact
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

    fn write(&self, op: &Operation<'_>, offset: u64, bytes: &[u8], _grown: bool) -> Result<Written> {
        let mut data = self.bytes.clone();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let target = from.checked_add(bytes.len()).and_then(|end| data.get_mut(from..end));
        target.ok_or_else(|| too_short(op.header))?.copy_from_slice(bytes);
        let Class::Compact { dims, .. } = &op.message.class else { return Err(too_short(op.header)) };
        let class = Class::Compact { data, dims: dims.clone() };
        Ok(Written { len: bytes.len(), layout: Some(DataLayout { version: op.message.version, class }) })
    }

    fn allocate(&self, _op: &Operation<'_>, _range: &std::ops::Range<u64>, _from: u64) -> Result<Progress> {
        Ok(Progress::default())
    }
}
