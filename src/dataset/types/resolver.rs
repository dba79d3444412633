//! What a value needs from the rest of the file: heap objects, names of objects, selections.

use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader};
use serde_json::Value;

/// Follows the addresses that elements hold.
pub trait Resolver {
    /// Payload of object `index` in the global heap collection at `collection`.
    fn vlen(&self, collection: Address, index: u32) -> Result<Vec<u8>>;

    /// A path of the object at `address`; `None` when no name of it is known.
    fn object_path(&self, _address: Address) -> Option<Vec<u8>> {
        None
    }

    /// Description of the serialized selection `selection` of the dataset at `dataset`;
    /// `None` when it is not understood.
    fn region(&self, _dataset: Address, _selection: &[u8]) -> Option<Value> {
        None
    }
}

/// Resolver of a place without a file: every address is an error.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoResolver;

impl Resolver for NoResolver {
    fn vlen(&self, collection: Address, _index: u32) -> Result<Vec<u8>> {
        Err(Error::unsupported("global heap", collection, "no file to look in"))
    }
}

/// A variable-length element on disk: `u32 length | address of the heap collection | u32 object index`.
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

    /// The elements' bytes, exactly `count * size`; nothing is asked for when there are none.
    pub fn payload(&self, size: u32, resolver: &dyn Resolver, budget: &mut Budget) -> Result<Vec<u8>> {
        if self.count == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = resolver.vlen(self.collection, self.index)?;
        budget.heap(bytes.len())?;
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

/// Where values are shown: the file's widths, its heap and the most bytes one call may produce.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Field widths of the file.
    pub ctx: Context,
    /// Follows addresses.
    pub resolver: &'a dyn Resolver,
    /// Most bytes of output; more is [`Error::Limit`].
    pub limit: u64,
}

/// What is left of a call's means. Nested sequences may name one heap object many times, so
/// neither the output nor what is read is bounded by the file's size.
#[derive(Debug, Clone)]
pub struct Budget {
    output: u64,
    heap: u64,
}

impl Budget {
    /// Output of `limit` bytes, and 64 times that and 64 MiB of heap objects.
    pub fn new(limit: u64) -> Self {
        Budget { output: limit, heap: limit.saturating_mul(64).saturating_add(64 << 20) }
    }

    /// Takes `n` bytes of output.
    pub fn output(&mut self, n: u64) -> Result<()> {
        let left = self.output.checked_sub(n);
        self.output = left.ok_or_else(|| Error::limit("value", Address::UNDEF, "the value is larger than its reader allows"))?;
        Ok(())
    }

    /// Takes a heap object of `n` bytes.
    pub fn heap(&mut self, n: usize) -> Result<()> {
        let left = self.heap.checked_sub((n as u64).max(64));
        self.heap = left.ok_or_else(|| Error::limit("value", Address::UNDEF, "too much of the global heap is read for one value"))?;
        Ok(())
    }
}
