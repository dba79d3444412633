//! Bytes in packs that a check reads, many at a time by several threads.

use super::access::IodConnector;
use super::cells;
use super::coalesce::{each_group, grouped};
use super::dataset::Dataset;
use super::decoding::permit;
use crate::base::{Address, Error, Result};
use crate::iod::limits::{CELLS_BYTES_MAX, VALUE_BYTES_MAX};
use crate::iod::{Container, Extent, keys};
use foldhash::HashMap;
use std::sync::Arc;

/// Extents that are checked at once.
const EXTENTS_MAX: usize = 4096;
/// Bytes that are checked at once.
const BYTES_MAX: u64 = 64 << 20;

/// A value whose bytes are checked.
#[derive(Clone)]
pub(super) struct Stored {
    pub id: u64,
    pub kind: u8,
    /// The dataset of a chunk.
    pub dataset: Option<Arc<Dataset>>,
    pub mask: u32,
    /// Its bytes are read; else only where they are is checked.
    pub whole: bool,
}

impl Stored {
    /// Checks the value, which has these bytes; returns the bytes of elements that it decoded.
    pub fn check(&self, connector: &IodConnector, bytes: Vec<u8>) -> Result<u64> {
        match (&self.dataset, self.kind) {
            (Some(d), _) if self.whole => {
                let stored = bytes.len() as u64;
                connector.chunks.check_whole(d, stored)?;
                let _permit = permit(&connector.env, d.decoding_bytes(stored));
                let decoded = d.decode(bytes, self.mask)?.element_bytes();
                let short = || Error::corrupt("chunk", Address(self.id), format!("it decodes to {decoded} bytes"));
                if decoded == d.grid.chunk_bytes() { Ok(d.decoded_len(stored)) } else { Err(short()) }
            }
            (None, keys::CELLS) => cells::check_block(&bytes, self.id).map(|()| 0),
            _ => Ok(0),
        }
    }
}

impl Stored {
    /// True if the value in `extent` is a chunk that is decoded to a temporary file.
    fn is_large(&self, connector: &IodConnector, extent: &Extent) -> bool {
        self.dataset.as_ref().is_some_and(|d| connector.chunks.is_large(d, extent.len.into()))
    }

    /// Reads and checks the value in `extent`; returns the bytes of elements that it decoded.
    fn read(&self, connector: &IodConnector, extent: &Extent) -> Result<u64> {
        if let Some(d) = &self.dataset {
            let (chunks, len) = (&connector.chunks, d.decoded_len(extent.len.into()));
            if self.is_large(connector, extent) {
                return chunks.decoded_file(d, extent, self.mask).map(|_| len);
            }
            connector.chunks.check_whole(d, extent.len.into())?;
            return self.check(connector, connector.container.read_within("chunk", extent, extent.len.into())?);
        }
        let max = if self.kind == keys::CELLS { CELLS_BYTES_MAX } else { VALUE_BYTES_MAX };
        self.check(connector, connector.container.read_within("value", extent, max)?)
    }
}

/// Values whose bytes wait to be checked.
#[derive(Default)]
pub(super) struct Pending {
    all: Vec<(Extent, Stored)>,
    bytes: u64,
    /// Lengths of packs and originals; `None`: there is none.
    places: HashMap<(u64, u32), Option<u64>>,
}

impl Pending {
    pub fn add(&mut self, extent: Extent, stored: Stored) {
        if stored.whole {
            self.bytes = self.bytes.saturating_add(extent.len.into());
        }
        self.all.push((extent, stored));
    }

    /// True if no more should wait.
    pub fn is_full(&self) -> bool {
        self.all.len() >= EXTENTS_MAX || self.bytes >= BYTES_MAX
    }

    /// Checks what waits; returns the object of each, and the bytes of elements that were decoded.
    pub fn fetch(&mut self, connector: &IodConnector) -> Vec<(u64, Result<u64>)> {
        let container = &connector.container;
        self.bytes = 0;
        let (mut whole, mut done) = (Vec::new(), Vec::new());
        for (extent, stored) in std::mem::take(&mut self.all) {
            match self.check_place(container, &extent) {
                Err(e) => done.push((stored.id, Err(e))),
                Ok(()) if stored.whole => whole.push((extent, stored)),
                Ok(()) => {}
            }
        }
        // Large chunks are decoded to temporary files, one after the other.
        let (large, whole): (Vec<_>, Vec<_>) = whole.into_iter().partition(|(extent, stored)| stored.is_large(connector, extent));
        done.extend(large.iter().map(|(extent, stored)| (stored.id, stored.read(connector, extent))));
        done.extend(each_group(grouped(whole, |(extent, _)| *extent), &|group| read(connector, &group)));
        // The order of threads is of no matter.
        done.sort_by_key(|(id, _)| *id);
        done
    }

    /// Errors: the pack or original of an extent is not there, or ends before it.
    fn check_place(&mut self, container: &Container, extent: &Extent) -> Result<()> {
        let (structure, name) = match extent.original() {
            Some(number) => ("original", keys::original_name(number)),
            None => ("pack", keys::pack_name(extent.session, extent.pack)),
        };
        let place = (extent.session, extent.pack);
        let len = match self.places.get(&place) {
            Some(len) => *len,
            None => {
                let len = match extent.original() {
                    Some(number) => Some(container.original_len(number)?),
                    None => container.store().head(&name).map_err(|e| Error::io("read a pack", Address(extent.offset), &e))?,
                };
                self.places.insert(place, len);
                len
            }
        };
        let wrong = |what: String| Err(Error::corrupt(structure, Address(extent.offset), what));
        match (len, extent.offset.checked_add(extent.len.into())) {
            (None, _) => wrong(format!("{name} is missing")),
            (Some(len), Some(end)) if end <= len => Ok(()),
            (Some(len), _) => wrong(format!("{name} has {len} bytes, and ends before {} bytes at {}", extent.len, extent.offset)),
        }
    }
}

/// Reads and checks the extents of one request.
fn read(connector: &IodConnector, request: &[(Extent, Stored)]) -> Vec<(u64, Result<u64>)> {
    if let [(extent, stored)] = request {
        return vec![(stored.id, stored.read(connector, extent))];
    }
    let extents: Vec<Extent> = request.iter().map(|(extent, _)| *extent).collect();
    match connector.container.read_many(&extents) {
        Ok(all) => {
            let one = |((_, stored), bytes): (&(Extent, Stored), Result<Vec<u8>>)| {
                (stored.id, bytes.and_then(|bytes| stored.check(connector, bytes)))
            };
            request.iter().zip(all).map(one).collect()
        }
        Err(e) => request.iter().map(|(_, stored)| (stored.id, Err(e.clone()))).collect(),
    }
}
