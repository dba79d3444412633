//! Revisions of an HDF5 file in an onion file beside it (driver onion of libhdf5), for reading.

use crate::base::{Address, Error, Result};
use crate::connector::versions::VersionName;
use crate::file::host_file::HostFile;
use crate::file::paged::PagedFile;
use crate::file::posix::PosixFile;
use crate::file::{FileDriver, read_all};
use crate::filter::fletcher32::checksum;
use crate::format::onion::{HEADER_BYTES, Header, NAME, OnionExtent, Revision, SIGNATURE, decode_history};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;

/// What follows the name of the HDF5 file in that of its onion file.
const SUFFIX: &str = ".onion";
/// The version before all revisions.
const ORIGINAL: &str = "original";

fn failed(e: io::Error) -> Error {
    Error::io("open", Address(0), &e)
}

fn read(file: &PosixFile, place: OnionExtent) -> Result<Vec<u8>> {
    let len = file.status().map_err(failed)?.len;
    if place.address.checked_add(place.len).is_none_or(|end| end > len) {
        return Err(Error::corrupt(NAME, Address(place.address), format!("{} bytes, and the file has {len}", place.len)));
    }
    let mut bytes = vec![0; usize::try_from(place.len).unwrap_or_default()];
    let n = read_all(file, &mut bytes, place.address).map_err(failed)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The onion file of `host`; `None`: it has none.
fn beside(host: &HostFile) -> Result<Option<PosixFile>> {
    let name: OsString = [host.name(), SUFFIX.as_ref()].into_iter().collect();
    let entry = host.directory().entry(&name).map_err(failed)?;
    if !entry.is_some_and(|entry| entry.is_openable()) {
        return Ok(None);
    }
    let file = host.directory().open_file(&name, OFlag::O_RDONLY, Mode::empty()).and_then(PosixFile::from_file).map_err(failed)?;
    let mut head = [0; SIGNATURE.len()];
    let n = read_all(&file, &mut head, 0).map_err(failed)?;
    Ok(Some(file).filter(|_| n == head.len() && head == *SIGNATURE))
}

/// The revision `version` of `host`; `None`: it has no onion file. Errors: there is no such
/// revision; damage.
pub(super) fn open(host: &HostFile, version: &VersionName) -> Result<Option<Arc<dyn FileDriver>>> {
    let Some(onion) = beside(host)? else {
        return match version {
            VersionName::Newest => Ok(None),
            _ => Err(Error::refused(libc::ENOENT, "the file has no revisions: there is no onion file beside it")),
        };
    };
    let header = Header::decode(&read(&onion, OnionExtent { address: 0, len: HEADER_BYTES })?, &checksum)?;
    let records = decode_history(&read(&onion, header.history)?, header.history.address, &checksum)?;
    let newest = records.len() as u64;
    let number = match version {
        VersionName::Newest => newest,
        VersionName::Number(number) if (1..=newest).contains(number) => *number,
        VersionName::Tag(name) if name == ORIGINAL => 0,
        other => {
            return Err(Error::refused(libc::ENOENT, format!("there is no revision {other}; there are {ORIGINAL} and 1 to {newest}")));
        }
    };
    let record = number.checked_sub(1).and_then(|i| records.get(usize::try_from(i).ok()?));
    let revision = match record {
        Some(place) => Revision::decode(&read(&onion, *place)?, place.address, &checksum)?,
        None => Revision { eof: header.original_eof, page_size: 1, pages: Vec::new() },
    };
    let original = host.reader().map_err(failed)?;
    let paged = PagedFile::new((original, header.original_eof), onion, revision.eof, revision.page_size, revision.pages);
    Ok(Some(Arc::new(paged.map_err(failed)?)))
}
