//! The global heap as elements use it: variable-length elements name objects in it.

use crate::base::parts::Budget;
use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader};

/// The global heap of a file, and the paths of its objects.
pub trait Heap {
    /// Field widths of the file.
    fn ctx(&self) -> &Context;

    /// Object `index` of the collection at `collection`.
    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>>;

    /// A path of the object at `address`; `None` when no name of it is known.
    fn path(&self, _address: Address) -> Option<Vec<u8>> {
        None
    }
}

/// A variable-length element on disk: `u32 length | address of the heap collection | u32 object
/// index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Number of base elements.
    pub count: u32,
    /// Address of the global heap collection.
    pub collection: Address,
    /// Object in the collection.
    pub index: u32,
}

impl Descriptor {
    /// Reads a descriptor; nil ones (no length, or address 0 or undefined) have count 0.
    pub fn decode(element: &[u8], ctx: &Context) -> Result<Descriptor> {
        let mut r = Reader::new(element, "variable-length element", Address::UNDEF);
        let mut d = Descriptor { count: r.u32()?, collection: r.addr(ctx)?, index: r.u32()? };
        if d.collection == Address(0) || !d.collection.is_defined() {
            d.count = 0;
        }
        Ok(d)
    }

    /// Bytes of `count` elements of `size` bytes each, which must be in the heap.
    pub fn payload_len(&self, size: u32) -> u64 {
        u64::from(self.count).saturating_mul(size.into())
    }

    /// The elements' bytes, exactly `count * size`; the heap is not read when there are none.
    pub fn payload<H: Heap + ?Sized>(&self, size: u32, heap: &H, budget: &mut Budget) -> Result<Vec<u8>> {
        if self.count == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = heap.object(self.collection, self.index, budget)?;
        let want = self.payload_len(size);
        if (bytes.len() as u64) < want {
            return Err(Error::corrupt(
                "global heap",
                self.collection,
                format!("object {} has {} bytes, a variable-length element needs {want}", self.index, bytes.len()),
            ));
        }
        bytes.truncate(usize::try_from(want).unwrap_or(usize::MAX));
        Ok(bytes)
    }
}

/// Stores what lies outside new elements.
pub trait HeapStore {
    /// Stores `count` base elements, `payload`; returns the variable-length element: length, heap
    /// address, index. Without base elements it is nil.
    fn sequence(&mut self, count: u32, payload: &[u8]) -> Result<Vec<u8>>;

    /// The address of the object with this path; 0 when a reference to it is to be nil.
    fn object(&mut self, path: &[u8]) -> Result<Address>;
}
