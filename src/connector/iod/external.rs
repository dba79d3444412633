//! Files that external links of a container in a folder lead to: read-only, beneath one directory.
//!
//! Each is a container of its own. The file number of its objects is `FOREIGN`, plus its number in
//! bits 11 to 27, plus the file number that the objects have there: files lead to further files.

use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::connector::native::kind::Hdf5File;
use crate::connector::open::{ConfinedDir, ContainerKind, ExternalPolicy, OpenOptions};
use crate::connector::shared::Shared;
use crate::connector::{Connector, ObjectId};
use crate::file::reader::Reader;
use foldhash::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// File numbers of objects of other files; versions have less than 28 bits.
pub(super) const FOREIGN: u32 = 1 << 28;
/// File numbers within one of the files.
pub(super) const INNER: u32 = (1 << 11) - 1;
/// Files that are opened, at most.
const FILES_MAX: usize = 256;
/// The memory for chunks of other files, as a part of the container's.
const CACHE_DIVISOR: u64 = 4;

/// See the module's description.
pub(super) struct External {
    place: Arc<Place>,
    options: OpenOptions,
    open: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    shared: Option<Shared>,
    numbers: HashMap<Vec<u8>, u32>,
    all: Vec<Arc<dyn Connector>>,
}

/// Where other files that a container names are.
pub(super) struct Place {
    /// The directory that files must lie beneath.
    pub root: ConfinedDir,
    /// The directory that names are relative to: that of the container's folder.
    pub from: PathBuf,
    /// The owner of the container's folder.
    pub owner: Reader,
}

impl External {
    /// Opens files for a container that was opened by `options`.
    pub fn new(place: Arc<Place>, options: &OpenOptions) -> External {
        let cache_bytes = (options.cache_bytes / CACHE_DIVISOR).max(1 << 20);
        let external = ExternalPolicy::Beneath(None);
        let own = OpenOptions {
            group: None,
            writable: false,
            swmr: false,
            log_writer: None,
            follow: false,
            rescue: false,
            external,
            ..options.clone()
        };
        let options = OpenOptions { cache_bytes, version: Default::default(), transaction: None, pin: None, shared: None, ..own };
        External { place, options, open: Mutex::default() }
    }

    /// The file `name` and its number.
    pub fn file(&self, name: &[u8]) -> Result<(u32, Arc<dyn Connector>)> {
        let mut open = self.open.lock();
        if let Some(number) = open.numbers.get(name) {
            return Ok((*number, self.numbered(&open, *number)?));
        }
        if open.all.len() >= FILES_MAX {
            return Err(Error::limit("external link", Address::UNDEF, format!("more than {FILES_MAX} files")));
        }
        let shared = match &open.shared {
            Some(shared) => shared.clone(),
            None => open.shared.insert(Shared::new(self.options.cache_bytes, self.options.threads, FILES_MAX)?).clone(),
        };
        let options = OpenOptions { shared: Some(shared), ..self.options.clone() };
        let opened = Hdf5File.open_named(&self.place.root, &self.place.from, name, &options)?;
        let number = u32::try_from(open.all.len()).unwrap_or(u32::MAX);
        open.all.push(opened.clone());
        open.numbers.insert(name.to_vec(), number);
        Ok((number, opened))
    }

    /// The file of an object with this file number.
    pub fn of(&self, file: u32) -> Result<Arc<dyn Connector>> {
        self.numbered(&self.open.lock(), (file & !FOREIGN) >> 11)
    }

    fn numbered(&self, open: &Opened, number: u32) -> Result<Arc<dyn Connector>> {
        let found = usize::try_from(number).ok().and_then(|n| open.all.get(n)).cloned();
        found.ok_or_else(|| Error::corrupt("object", Address::UNDEF, format!("there is no other file {number}")))
    }
}

/// The object `id` of the file, or of the version, that the file number `of` is of.
pub(super) fn shown(id: ObjectId, of: u32) -> ObjectId {
    ObjectId { file: if of < FOREIGN { of } else { of & !INNER | id.file & INNER }, ..id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_numbers_keep_the_file_and_the_one_it_leads_to() {
        let at = |file| ObjectId { file, address: Address(800) };
        for (number, inner) in [(0, 0), (255, 0), (7, 1023), (255, INNER)] {
            let id = shown(at(inner), FOREIGN | number << 11);
            assert_eq!(((id.file & !FOREIGN) >> 11, id.file & INNER), (number, inner));
            // A link of an object there leads to another one there.
            assert_eq!(shown(at(5), id.file), at(FOREIGN | number << 11 | 5));
        }
        assert_eq!(shown(at(0), 77), at(77), "a version");
    }
}
