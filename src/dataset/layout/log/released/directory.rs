//! Entries of a log by dataset, and the writes of one dataset.

use super::super::block_index::{BlockIndex, Stored, Write};
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::dataset::environment::Environment;
use crate::dataset::layout::DatasetBytes;
use crate::format::log::released::{Blocks, Body, EntryHeader, EntryShape, HEADER_BYTES, NAME, decode_body, section_count, sections};
use crate::meta::Store;
use foldhash::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Entries of all datasets of a file.
const ENTRIES_MAX: usize = 1 << 27;
/// Bytes of metadata read at once.
const WINDOW_BYTES: usize = 64 << 10;
/// Longest entry, bytes.
const ENTRY_BYTES_MAX: u64 = 256 << 20;
/// Most that a zlib stream expands by, and the bytes of its shortest form.
const INFLATION_MAX: u64 = 1100;

/// A file with a log.
pub(crate) struct LogFile {
    /// The HDF5 file.
    pub(crate) store: Arc<Store>,
    /// Raw data of each data dataset, by number; empty if it cannot be read.
    pub(crate) data: Vec<Range<Address>>,
    /// Metadata datasets, by number.
    pub(crate) metadata: Vec<Result<Arc<DatasetBytes>>>,
}

/// Opens the log files of an HDF5 file.
type OpenFiles = dyn Fn() -> Result<Vec<LogFile>> + Send + Sync;

/// The log of an HDF5 file; read when one of its datasets is first used.
pub(crate) struct ReleasedLog {
    pub(super) environment: Arc<Environment>,
    open: Box<OpenFiles>,
    directory: Mutex<Option<Arc<Directory>>>,
}

/// Position of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) file: u32,
    pub(super) metadata: u32,
    /// Start of its section.
    pub(super) section: u64,
    pub(super) offset: u64,
}

/// Positions of all entries by dataset ID.
pub(super) struct Directory {
    pub(super) files: Vec<LogFile>,
    entries: HashMap<i32, Vec<Place>>,
    /// Entries that are not sound, by dataset ID.
    broken: HashMap<i32, Error>,
    /// Why entries of any dataset may be missing.
    damage: Option<Error>,
}

/// Reads a dataset in order, a window at a time.
pub(super) struct Window<'a> {
    bytes: &'a DatasetBytes,
    environment: &'a Environment,
    from: u64,
    window: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(bytes: &'a DatasetBytes, environment: &'a Environment) -> Self {
        Window { bytes, environment, from: 0, window: Vec::new() }
    }

    pub(super) fn address(&self) -> Address {
        self.bytes.layout.describe(self.bytes).address.unwrap_or(Address::UNDEF)
    }

    /// The sections of a metadata dataset.
    pub(super) fn sections(&mut self) -> Result<Vec<Range<u64>>> {
        let at = self.address();
        let size = self.bytes.size;
        let head = self.get(0, 8)?.try_into().map_err(|_| Error::corrupt(NAME, at, "shorter than its number of sections"))?;
        let table = usize::try_from(section_count(head, size, at)?.saturating_mul(8)).unwrap_or(usize::MAX);
        sections(self.get(8, table)?, size, at)
    }

    /// The bytes from `offset`: `len`, or fewer at the end of the dataset.
    pub(super) fn get(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let at = |from: u64| offset.checked_sub(from).and_then(|n| usize::try_from(n).ok());
        let have = at(self.from).is_some_and(|at| at.checked_add(len).is_some_and(|end| end <= self.window.len()));
        if !have {
            let left = usize::try_from(self.bytes.size.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.window.resize(len.max(WINDOW_BYTES).min(left), 0);
            self.from = offset;
            let n = self.bytes.read(self.environment, offset, &mut self.window)?;
            self.window.truncate(n);
        }
        let start = at(self.from).unwrap_or(0);
        let rest = self.window.get(start..).unwrap_or_default();
        Ok(rest.get(..len.min(rest.len())).unwrap_or_default())
    }
}

impl ReleasedLog {
    /// The log whose files `open` opens.
    pub(crate) fn new(environment: Arc<Environment>, open: Box<OpenFiles>) -> Self {
        ReleasedLog { environment, open, directory: Mutex::default() }
    }

    /// The store of log file `number`.
    pub(super) fn store(&self, number: usize) -> Result<Arc<Store>> {
        let directory = self.directory()?;
        let file = directory.files.get(number).ok_or_else(|| Error::corrupt(NAME, Address::UNDEF, "there is no such log file"))?;
        Ok(file.store.clone())
    }

    /// Raw data of each data dataset of the first log file, and its number of metadata datasets.
    pub(crate) fn datasets(&self) -> Result<(Vec<Range<Address>>, u32)> {
        let directory = self.directory()?;
        let first = directory.files.first();
        let metadata = first.map_or(0, |file| file.metadata.len());
        let metadata = u32::try_from(metadata).map_err(|_| Error::limit(NAME, Address::UNDEF, "2^32 metadata datasets"))?;
        Ok((first.map(|file| file.data.clone()).unwrap_or_default(), metadata))
    }

    pub(super) fn directory(&self) -> Result<Arc<Directory>> {
        let mut kept = self.directory.lock();
        if let Some(directory) = &*kept {
            return Ok(directory.clone());
        }
        let mut directory = Directory { files: (self.open)()?, entries: HashMap::default(), broken: HashMap::default(), damage: None };
        directory.scan(&self.environment);
        let directory = Arc::new(directory);
        *kept = Some(directory.clone());
        Ok(directory)
    }

    /// The writes to dataset `id`, of `element_size` bytes an element. Writes that cannot be
    /// decoded are in it as broken ones, with a log line.
    pub(in crate::dataset::layout::log) fn index(&self, id: i32, shape: EntryShape<'_>, element_size: u64) -> Result<BlockIndex> {
        let directory = self.directory()?;
        let mut index = BlockIndex::new(shape.dims);
        let everything = |error: &Error| {
            let write = Write {
                order: (u32::MAX, u64::MAX, u64::MAX),
                file: 0,
                address: Address::UNDEF,
                stored_bytes: 0,
                elements: 0,
                stored: Stored::Broken(Box::new(error.clone())),
            };
            (write, vec![0; shape.dims.len()], shape.dims.to_vec())
        };
        for place in directory.entries.get(&id).into_iter().flatten() {
            let (write, starts, counts) = match directory.write(&self.environment, *place, shape, element_size) {
                Ok((write, blocks)) => (write, blocks.starts, blocks.counts),
                Err(Error::Io { operation, address, errno }) => return Err(Error::Io { operation, address, errno }),
                // What it selects is not known: all that no later write supplies.
                Err(error) => {
                    let (write, starts, counts) = everything(&error);
                    let order = directory.order(&self.environment, *place).unwrap_or(write.order);
                    (Write { order, ..write }, starts, counts)
                }
            };
            if let Stored::Broken(error) = &write.stored {
                tracing::warn!("dataset ID {id} of the log: {error}");
            }
            index.add(write, &starts, &counts)?;
        }
        for error in directory.broken.get(&id).into_iter().chain(&directory.damage) {
            let (write, starts, counts) = everything(error);
            index.add(write, &starts, &counts)?;
        }
        index.finish();
        Ok(index)
    }
}

impl Directory {
    /// Finds the entries of all metadata datasets.
    fn scan(&mut self, environment: &Environment) {
        let mut parts = Vec::new();
        for (file, log) in self.files.iter().enumerate() {
            parts.extend(log.metadata.iter().enumerate().map(|(number, bytes)| (file, number, bytes.clone())));
        }
        for (file, number, bytes) in parts {
            let (Ok(file), Ok(metadata)) = (u32::try_from(file), u32::try_from(number)) else { continue };
            let place = Place { file, metadata, section: 0, offset: 0 };
            if let Err(error) = bytes.and_then(|bytes| self.scan_dataset(environment, &bytes, place)) {
                tracing::warn!("entries of the log are missing: {error}");
                self.damage.get_or_insert(error);
            }
        }
    }

    fn scan_dataset(&mut self, environment: &Environment, bytes: &DatasetBytes, place: Place) -> Result<()> {
        let mut window = Window::new(bytes, environment);
        let sections = window.sections()?;
        sections.into_iter().try_for_each(|section| self.scan_section(&mut window, section, place))
    }

    fn scan_section(&mut self, window: &mut Window<'_>, section: Range<u64>, place: Place) -> Result<()> {
        let at = window.address();
        let mut offset = section.start;
        let header_bytes = usize::try_from(HEADER_BYTES).unwrap_or(usize::MAX);
        let mut entries = 0usize;
        while offset < section.end {
            let header = EntryHeader::decode(window.get(offset, header_bytes)?, at)?;
            let left = section.end.saturating_sub(offset);
            let mut size = u64::from(header.size);
            if header.is_sound(left) && size <= ENTRY_BYTES_MAX {
                let place = Place { section: section.start, offset, ..place };
                self.entries.entry(header.dataset).or_default().push(place);
            } else {
                let error = Error::corrupt(NAME, at, format!("an entry of {size} bytes at {offset}"));
                tracing::warn!("dataset ID {} of the log: {error}", header.dataset);
                size = self.resume(window, &header, offset..section.end).ok_or_else(|| error.clone())?;
                self.broken.entry(header.dataset).or_insert(error);
            }
            entries = entries.saturating_add(1);
            if entries > ENTRIES_MAX {
                return Err(Error::limit(NAME, at, "too many entries"));
            }
            offset = offset.saturating_add(size);
        }
        Ok(())
    }

    /// Size of an entry with a damaged size: the only one from which sound entries lead to the end
    /// of the section.
    fn resume(&self, window: &mut Window<'_>, header: &EntryHeader, rest: Range<u64>) -> Option<u64> {
        let body = window.get(rest.start.saturating_add(HEADER_BYTES), 16).ok()?.to_vec();
        let mut found = None;
        for size in header.possible_sizes(&body) {
            if leads_to_end(window, rest.start.saturating_add(size)..rest.end) && found.replace(size).is_some() {
                return None;
            }
        }
        found
    }

    fn bytes(&self, place: Place) -> Result<(&LogFile, &DatasetBytes)> {
        let missing = || Error::corrupt(NAME, Address::UNDEF, "there is no such metadata dataset");
        let file = usize::try_from(place.file).ok().and_then(|n| self.files.get(n)).ok_or_else(missing)?;
        let bytes = usize::try_from(place.metadata).ok().and_then(|n| file.metadata.get(n)).ok_or_else(missing)?;
        Ok((file, bytes.as_deref().map_err(Error::clone)?))
    }

    /// Header and body of an entry.
    fn entry(&self, environment: &Environment, place: Place) -> Result<(EntryHeader, Vec<u8>, Address)> {
        let (_, bytes) = self.bytes(place)?;
        let at = bytes.layout.describe(bytes).address.unwrap_or(Address::UNDEF);
        let mut head = [0; HEADER_BYTES as usize];
        bytes.read(environment, place.offset, &mut head)?;
        let header = EntryHeader::decode(&head, at)?;
        if !header.is_sound(bytes.size.saturating_sub(place.offset)) || u64::from(header.size) > ENTRY_BYTES_MAX {
            return Err(Error::corrupt(NAME, at, format!("an entry of {} bytes", header.size)));
        }
        let mut body = vec![0; (header.size as usize).saturating_sub(head.len())];
        bytes.read(environment, place.offset.saturating_add(HEADER_BYTES), &mut body)?;
        Ok((header, body, at))
    }

    fn order(&self, environment: &Environment, place: Place) -> Result<(u32, u64, u64)> {
        let (header, _, at) = self.entry(environment, place)?;
        self.locate(&header, place, at).map(|(order, _)| order)
    }

    /// Order and address of an entry's data. Errors: it is not in a data dataset.
    fn locate(&self, header: &EntryHeader, place: Place, at: Address) -> Result<((u32, u64, u64), Address)> {
        let (file, _) = self.bytes(place)?;
        // Offsets count the user block that the file had when the log was written.
        let address = header.data_offset.checked_sub(file.store.recorded_base()).map(Address);
        let end = address.and_then(|a| a.checked_add(header.data_len));
        let (Some(address), Some(end)) = (address, end) else {
            return Err(Error::corrupt(NAME, at, format!("data at offset {}", header.data_offset)));
        };
        let holds = |data: &Range<Address>| data.start <= address && end <= data.end;
        // They are in the order of their addresses, but for damaged files.
        let likely = file.data.partition_point(|data| data.end <= address);
        let number = if file.data.get(likely).is_some_and(holds) { Some(likely) } else { file.data.iter().position(holds) };
        let number = number.ok_or_else(|| {
            Error::corrupt(NAME, at, format!("{} bytes at offset {} are not in the log", header.data_len, header.data_offset))
        })?;
        Ok(((place.file, number as u64, address.0), address))
    }

    /// Blocks of an entry in each way that its numbers may be ordered.
    pub(super) fn blocks(&self, environment: &Environment, place: Place, shape: EntryShape<'_>) -> Result<Vec<Blocks>> {
        let (header, body, at) = self.entry(environment, place)?;
        let (back, record) = match decode_body(&header, &body, shape, at)? {
            Body::Own(blocks) => return Ok(blocks),
            Body::Reference { back, record } => (back, record),
        };
        let earlier = place.offset.checked_sub(back).filter(|o| *o >= place.section);
        let earlier = earlier.ok_or_else(|| Error::corrupt(NAME, at, "a reference out of its section"))?;
        let (header, body, at) = self.entry(environment, Place { offset: earlier, ..place })?;
        let Body::Own(mut all) = decode_body(&header, &body, shape, at)? else {
            return Err(Error::corrupt(NAME, at, "a reference to a reference"));
        };
        let rank = shape.dims.len();
        if let Some(record) = record {
            if rank == 0 {
                return Err(Error::corrupt(NAME, at, "a record number in a scalar dataset"));
            }
            for blocks in &mut all {
                blocks.starts.iter_mut().step_by(rank).for_each(|s| *s = record);
                blocks.counts.iter_mut().step_by(rank).for_each(|c| *c = 1);
            }
        }
        Ok(all)
    }

    /// The write that an entry describes. Errors: its blocks are not known.
    fn write(&self, environment: &Environment, place: Place, shape: EntryShape<'_>, element_size: u64) -> Result<(Write, Blocks)> {
        let mut all = self.blocks(environment, place, shape)?;
        let (header, _, at) = self.entry(environment, place)?;
        let rank = shape.dims.len();
        let bytes = |blocks: &Blocks| blocks.elements(rank).and_then(|n| n.checked_mul(element_size));
        let exact: Vec<usize> = (0..all.len()).filter(|i| all.get(*i).and_then(bytes) == Some(header.data_len)).collect();
        let chosen = match exact.as_slice() {
            [one] => all.swap_remove(*one),
            [] => all.swap_remove(0),
            _ => return Err(Error::corrupt(NAME, at, "merged requests, whose blocks have two meanings")),
        };
        let size = bytes(&chosen).ok_or_else(|| Error::corrupt(NAME, at, "blocks of 2^64 bytes"))?;
        let mut write = Write {
            order: (place.file, u64::MAX, u64::MAX),
            file: place.file as usize,
            address: Address::UNDEF,
            stored_bytes: header.data_len,
            elements: chosen.elements(rank).unwrap_or(0),
            stored: Stored::Plain,
        };
        match self.locate(&header, place, at) {
            Ok((order, address)) => (write.order, write.address) = (order, address),
            Err(error) => write.stored = Stored::Broken(Box::new(error)),
        }
        if exact.is_empty() && write.stored == Stored::Plain {
            // Nothing in the file records that data is compressed.
            write.stored = match size <= header.data_len.saturating_mul(INFLATION_MAX).saturating_add(INFLATION_MAX) {
                true => Stored::Deflated,
                false => Stored::Broken(Box::new(Error::corrupt(NAME, at, format!("{} bytes of data for {size}", header.data_len)))),
            };
        }
        Ok((write, chosen))
    }
}

/// True if sound entries lead from the start of `rest` to its end.
fn leads_to_end(window: &mut Window<'_>, rest: Range<u64>) -> bool {
    let mut offset = rest.start;
    while offset < rest.end {
        let header = window.get(offset, 28).and_then(|head| EntryHeader::decode(head, Address::UNDEF));
        match header {
            Ok(header) if header.is_sound(rest.end.saturating_sub(offset)) => offset = offset.saturating_add(header.size.into()),
            _ => return false,
        }
    }
    offset == rest.end
}
