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

use super::resolver::{Budget, Descriptor, Resolver};
use crate::base::{Address, Error, Result};
use crate::format::message::datatype::{Reference, ReferenceKind};
use crate::format::{Context, Reader};

/// What a reference names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
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
pub fn decode(t: &Reference, element: &[u8], ctx: &Context, resolver: &dyn Resolver, budget: &mut Budget) -> Result<Option<Target>> {
    if element.iter().all(|&b| b == 0) {
        return Ok(None);
    }
    let mut r = Reader::new(element, STRUCTURE, Address::UNDEF);
    match t.kind {
        ReferenceKind::Object1 => {
            let object = r.addr(ctx)?;
            Ok(object.is_defined().then_some(Target { file: None, object, part: Part::Object }))
        }
        ReferenceKind::DatasetRegion1 => {
            let (collection, index) = (r.addr(ctx)?, r.u32()?);
            if !collection.is_defined() || collection == Address(0) {
                return Ok(None);
            }
            let blob = heap_object(collection, index, resolver, budget)?;
            let mut b = Reader::new(&blob, STRUCTURE, collection);
            let object = b.addr(ctx)?;
            Ok(Some(Target { file: None, object, part: Part::Region(b.rest().to_vec()) }))
        }
        _ => standard(&mut r, ctx, resolver, budget),
    }
}

fn heap_object(collection: Address, index: u32, resolver: &dyn Resolver, budget: &mut Budget) -> Result<Vec<u8>> {
    let blob = resolver.vlen(collection, index)?;
    budget.heap(blob.len())?;
    Ok(blob)
}

fn standard(r: &mut Reader<'_>, ctx: &Context, resolver: &dyn Resolver, budget: &mut Budget) -> Result<Option<Target>> {
    let (kind, flags) = (r.u8()?, r.u8()?);
    if kind == 2 && flags & 1 == 0 {
        let object = token(r)?;
        return Ok(Some(Target { file: None, object, part: Part::Object }));
    }
    let d = Descriptor::decode(r.rest(), ctx)?;
    if d.count == 0 {
        return Ok(None);
    }
    let blob = d.payload(1, resolver, budget)?;
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
    Ok(Some(Target { file, object, part }))
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
