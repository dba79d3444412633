//! References as stored in elements.
//!
//! ```text
//! object           address of the object header
//! dataset region   global heap ID (address, u32 index) of: address of the dataset, selection
//! H5R_ref_t        u8 kind (2 object, 3 region, 4 attribute), u8 flags (1: other file), then
//!   object, same file   u8 token length, token, unused bytes
//!   else                u32 length, global heap ID of: u8 token length, token,
//!                       [flag 1: u16 length, file name],
//!                       [region: u32 selection length, u32 rank, selection]
//!                       [attribute: u16 length, name]
//! ```
//!
//! A token is an address, lowest byte first. Nil references are all 0. The layout of `H5R_ref_t`
//! is not in the specification; it was taken from H5Rint.c and H5Tref.c of libhdf5 2.2.

use super::heap::{Descriptor, Heap, HeapStore};
use crate::base::datatype::{Reference, ReferenceKind};
use crate::base::parts::{self, Budget, Region, Target};
use crate::base::{Address, Error, Result};
use crate::format::selection::{Form, SerializedSelection};
use crate::format::{Context, Reader, Writer};

/// What a stored reference names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// File that holds the object, if not this one.
    pub file: Option<Vec<u8>>,
    /// Address of the object's header.
    pub object: Address,
    /// Which part of the object.
    pub part: Part,
}

/// Part of an object that a reference names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Object,
    /// Elements of a dataset: a serialized selection.
    Region(Vec<u8>),
    /// The attribute of this name.
    Attribute(Vec<u8>),
}

const STRUCTURE: &str = "reference";

/// Target of the reference `element`; `None` when it is nil.
pub fn decode<H: Heap + ?Sized>(t: &Reference, element: &[u8], heap: &H, budget: &mut Budget) -> Result<Option<Stored>> {
    if element.iter().all(|&b| b == 0) {
        return Ok(None);
    }
    let mut r = Reader::new(element, STRUCTURE, Address::UNDEF);
    let ctx = heap.ctx();
    match t.kind {
        ReferenceKind::Object1 => {
            let object = r.addr(ctx)?;
            Ok(object.is_defined().then_some(Stored { file: None, object, part: Part::Object }))
        }
        ReferenceKind::DatasetRegion1 => {
            let (collection, index) = (r.addr(ctx)?, r.u32()?);
            if !collection.is_defined() || collection == Address(0) {
                return Ok(None);
            }
            let blob = heap.object(collection, index, budget)?;
            let mut b = Reader::new(&blob, STRUCTURE, collection);
            let object = b.addr(ctx)?;
            Ok(Some(Stored { file: None, object, part: Part::Region(b.rest().to_vec()) }))
        }
        _ => standard(&mut r, heap, budget),
    }
}

/// The global heap collection with a part of the reference `element`; `None` if it has none.
pub fn collection(t: &Reference, element: &[u8], ctx: &Context) -> Result<Option<Address>> {
    if element.iter().all(|&b| b == 0) {
        return Ok(None);
    }
    let mut r = Reader::new(element, STRUCTURE, Address::UNDEF);
    match t.kind {
        ReferenceKind::Object1 => Ok(None),
        ReferenceKind::DatasetRegion1 => Ok(Some(r.addr(ctx)?).filter(|at| at.is_defined() && *at != Address(0))),
        _ => {
            let (kind, flags) = (r.u8()?, r.u8()?);
            if is_inline(kind, flags) {
                return Ok(None);
            }
            let d = Descriptor::decode(r.rest(), ctx)?;
            Ok((d.count > 0).then_some(d.collection))
        }
    }
}

/// True if an `H5R_ref_t` of this kind with these flags has no part in the global heap.
fn is_inline(kind: u8, flags: u8) -> bool {
    kind == 2 && flags & 1 == 0
}

fn standard<H: Heap + ?Sized>(r: &mut Reader<'_>, heap: &H, budget: &mut Budget) -> Result<Option<Stored>> {
    let (kind, flags) = (r.u8()?, r.u8()?);
    if is_inline(kind, flags) {
        let object = token(r)?;
        return Ok(Some(Stored { file: None, object, part: Part::Object }));
    }
    let d = Descriptor::decode(r.rest(), heap.ctx())?;
    if d.count == 0 {
        return Ok(None);
    }
    let blob = d.payload(1, heap, budget)?;
    let mut b = Reader::new(&blob, STRUCTURE, d.collection);
    let object = token(&mut b)?;
    let file = if flags & 1 == 1 { Some(counted(&mut b)?) } else { None };
    let part = match kind {
        2 => Part::Object,
        3 => {
            let len = b.u32()?;
            let _rank = b.u32()?;
            Part::Region(b.bytes(len as usize)?.to_vec())
        }
        4 => Part::Attribute(counted(&mut b)?),
        n => return Err(Error::corrupt(STRUCTURE, d.collection, format!("reference kind {n} is undefined"))),
    };
    Ok(Some(Stored { file, object, part }))
}

fn token(r: &mut Reader<'_>) -> Result<Address> {
    let len = usize::from(r.u8()?);
    if len == 0 {
        return Err(r.corrupt("an object token has no bytes"));
    }
    r.uint(len).map(Address)
}

fn counted(r: &mut Reader<'_>) -> Result<Vec<u8>> {
    let len = r.u16()?;
    Ok(r.bytes(len.into())?.to_vec())
}

fn not_supported(reason: &'static str) -> Error {
    Error::refused(libc::EOPNOTSUPP, reason)
}

fn out_of_range(reason: &'static str) -> Error {
    Error::refused(libc::ERANGE, reason)
}

/// The reference of type `t`, of `size` bytes, to `target`. One whose object has address 0 is nil.
pub fn encode(t: &Reference, size: usize, target: &Target, store: &mut dyn HeapStore) -> Result<Vec<u8>> {
    let address = store.object(&target.object)?.0;
    let mut element = vec![0; size];
    if address == 0 {
        // It leads nowhere yet.
        return Ok(element);
    }
    let bytes = match &target.part {
        parts::Part::Object => object(t, size, address)?,
        // Address and index, without the length.
        parts::Part::Region(region) if !t.is_standard() => {
            kept(store, &old_region(address, size.saturating_sub(4), &serialized(region)?))?.split_off(4)
        }
        part => {
            let (kind, blob) = part_of(address, part)?;
            let mut bytes = vec![kind, 0];
            bytes.extend(kept(store, &blob)?);
            bytes
        }
    };
    let place = element.get_mut(..bytes.len());
    place.ok_or_else(|| Error::refused(libc::EINVAL, "an element is too small for a reference"))?.copy_from_slice(&bytes);
    Ok(element)
}

/// A reference to the object at `address` as a whole.
fn object(t: &Reference, size: usize, address: u64) -> Result<Vec<u8>> {
    let address = address.to_le_bytes();
    // `H5R_ref_t`: object, no flags, 8 bytes of token.
    let head: &[u8] = if t.is_standard() { &[2, 0, 8] } else { &[] };
    let stored = if t.is_standard() { address.len() } else { size.min(address.len()) };
    if address.iter().skip(stored).any(|&b| b != 0) {
        return Err(out_of_range("an object's address is too large for a reference"));
    }
    Ok(head.iter().chain(address.iter().take(stored)).copied().collect())
}

/// A heap object as a sequence of bytes: length, address, index.
fn kept(store: &mut dyn HeapStore, blob: &[u8]) -> Result<Vec<u8>> {
    let count = u32::try_from(blob.len()).map_err(|_| out_of_range("a reference is too long"))?;
    let element = store.sequence(count, blob)?;
    if element.len() < 4 { Err(not_supported("references cannot be kept here")) } else { Ok(element) }
}

/// The heap object of a region reference of the old kind: `sizeof_addr` bytes of address,
/// selection.
fn old_region(address: u64, sizeof_addr: usize, selection: &SerializedSelection) -> Vec<u8> {
    let mut w = Writer::new();
    w.uint(address, sizeof_addr);
    selection.encode(&mut w);
    w.into_bytes()
}

/// Kind and heap object of an `H5R_ref_t` to a part of an object.
fn part_of(address: u64, part: &parts::Part) -> Result<(u8, Vec<u8>)> {
    let mut w = Writer::new();
    w.u8(8).u64(address);
    let kind = match part {
        parts::Part::Region(region) => {
            let selection = serialized(region)?;
            let rank = region.rank().ok_or_else(|| not_supported("a reference of this kind to all or nothing of a dataset"))?;
            let mut bytes = Writer::new();
            selection.encode(&mut bytes);
            let bytes = bytes.into_bytes();
            let len = u32::try_from(bytes.len()).map_err(|_| out_of_range("a selection is too long"))?;
            w.u32(len).u32(u32::try_from(rank).unwrap_or(u32::MAX)).bytes(&bytes);
            3
        }
        parts::Part::Attribute(name) => {
            w.u16(u16::try_from(name.len()).map_err(|_| out_of_range("an attribute's name is too long"))?).bytes(name);
            4
        }
        parts::Part::Object => return Err(not_supported("references cannot be kept here")),
    };
    Ok((kind, w.into_bytes()))
}

/// `region` in the oldest form that can hold it.
fn serialized(region: &Region) -> Result<SerializedSelection> {
    let empty = Form::V1 { reserved: 0, length: 0 };
    Ok(match region {
        Region::None => SerializedSelection::None(empty),
        Region::All => SerializedSelection::All(empty),
        Region::Points { rank, coordinates } => {
            let form = form(coordinates, Form::Compact { width: 8 });
            SerializedSelection::Points { form, rank: *rank, coordinates: coordinates.clone() }
        }
        Region::Blocks { rank, corners } => {
            let form = form(corners, Form::HyperslabV2 { length: 0 });
            SerializedSelection::Blocks { form, rank: *rank, corners: corners.clone() }
        }
        Region::Regular(dims) => {
            // Behind the length: the rank and four numbers of 8 bytes for each dimension.
            let length = u32::try_from(dims.len().saturating_mul(32).saturating_add(4)).unwrap_or(u32::MAX);
            SerializedSelection::Regular { form: Form::HyperslabV2 { length }, dims: dims.clone() }
        }
        Region::Opaque(_) => return Err(not_supported("a selection of unknown form")),
    })
}

/// Version 1 if its 4-byte numbers are enough, else `large`, with the length that follows it.
fn form(numbers: &[u64], large: Form) -> Form {
    let length = |width: usize| u32::try_from(numbers.len().saturating_mul(width).saturating_add(4).saturating_add(width)).ok();
    match large {
        _ if numbers.iter().all(|&n| n <= u64::from(u32::MAX)) => Form::V1 { reserved: 0, length: length(4).unwrap_or(0) },
        Form::HyperslabV2 { .. } => Form::HyperslabV2 { length: length(8).unwrap_or(0) },
        other => other,
    }
}
