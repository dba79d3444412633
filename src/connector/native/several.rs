//! HDF5 files in several files of the host: those of the family and multi (split) drivers, for
//! reading.
//!
//! The first member has the superblock and the driver information. Other members are in its
//! directory. Names and sizes from driver information are hostile: names have no slash, and every
//! member is as long as it should be.

use crate::base::escape::escaped;
use crate::base::{Address, Error, Result};
use crate::file::FileDriver;
use crate::file::host_file::HostFile;
use crate::file::members::{Member, Members};
use crate::format::driver_info::{BYTES_MAX, DriverInfo, MultiMember, PREFIX_BYTES};
use crate::format::object_header::kind;
use crate::format::superblock::{DRIVER_NAME, driver_block_len};
use crate::meta::{ObjectHeader, Store, find_superblock};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most members of a family.
const MEMBERS_MAX: u64 = 1 << 20;
/// Widest number in the name of a member, digits.
const DIGITS_MAX: usize = 20;

fn corrupt(detail: String) -> Error {
    Error::corrupt(DRIVER_NAME, Address(0), detail)
}

fn failed(e: io::Error) -> Error {
    Error::io("open", Address(0), &e)
}

/// The driver information of the file whose first member is `driver`; `None`: it has none.
pub(super) fn information(driver: Arc<dyn FileDriver>) -> Result<Option<DriverInfo>> {
    let Some((superblock, offset)) = find_superblock(&*driver)? else { return Ok(None) };
    let old = superblock.legacy.as_ref().and_then(|old| old.driver_info.defined());
    if old.is_none() && !superblock.extension.is_defined() {
        return Ok(None);
    }
    let store = Store::with_superblock(driver, superblock, offset)?;
    if let Some(address) = old.map(Address) {
        let len = driver_block_len(&store.read(address, PREFIX_BYTES, DRIVER_NAME)?, address)?;
        if len > BYTES_MAX {
            return Err(corrupt(format!("{len} bytes")));
        }
        return DriverInfo::decode_block(&store.read(address, len, DRIVER_NAME)?, address).map(Some);
    }
    // An extension that cannot be read is reported when the file is opened.
    let Ok(header) = ObjectHeader::load(&store, store.superblock().extension) else { return Ok(None) };
    header.find(kind::DRIVER_INFO).map(|m| DriverInfo::decode_message(&m.body, header.address)).transpose()
}

/// The file whose first member is `host`; `None`: it is a file of its own. Errors: a member is
/// missing or has another size; a driver that is not known.
pub(super) fn open(host: &HostFile) -> Result<Option<Arc<dyn FileDriver>>> {
    let first = host.reader().map_err(failed)?;
    let len = first.status().map_err(failed)?.len;
    let members = match information(Arc::new(first))? {
        None => return Ok(None),
        Some(DriverInfo::Family(size)) => family(host, size, len)?,
        Some(DriverInfo::Multi(members)) => multi(host, &members)?,
        Some(DriverInfo::Other(driver)) => {
            let name = String::from_utf8_lossy(&driver).into_owned();
            return Err(Error::unsupported(DRIVER_NAME, Address(0), format!("files of the driver {name:?}")));
        }
    };
    Ok(Some(Arc::new(Members::new(host.directory().clone(), members).map_err(failed)?)))
}

/// A name with a number: what is before it, its digits, what is after.
struct Numbered<'a> {
    before: &'a [u8],
    digits: usize,
    after: &'a [u8],
}

impl Numbered<'_> {
    /// The name of member `number`.
    fn name(&self, number: u64) -> OsString {
        let number = format!("{number:0width$}", width = self.digits);
        OsString::from_vec([self.before, number.as_bytes(), self.after].concat())
    }
}

/// Numbers in `name` that are 0, the last one first: one of them is that of the first member.
fn zeros(name: &[u8]) -> Vec<Numbered<'_>> {
    let mut found = Vec::new();
    let mut end = name.len();
    while let Some(last) = name.get(..end).and_then(|head| head.iter().rposition(u8::is_ascii_digit)) {
        let stop = last.saturating_add(1);
        let start = name.get(..stop).and_then(|head| head.iter().rposition(|c| !c.is_ascii_digit())).map_or(0, |at| at.saturating_add(1));
        let digits = name.get(start..stop).unwrap_or_default();
        if digits.len() <= DIGITS_MAX && digits.iter().all(|c| *c == b'0') {
            found.push(Numbered {
                before: name.get(..start).unwrap_or_default(),
                digits: digits.len(),
                after: name.get(stop..).unwrap_or_default(),
            });
        }
        end = start;
    }
    found
}

/// The members of a family with members of `size` bytes, whose first one is `host`, `len` bytes
/// long.
fn family(host: &HostFile, size: u64, len: u64) -> Result<Vec<Member>> {
    let first = Member { name: host.name().to_owned(), start: 0, len };
    let look = |name: &OsStr| host.directory().entry(name).map_err(failed);
    let mut names = None;
    for numbered in zeros(host.name().as_bytes()) {
        if look(&numbered.name(1))?.is_some_and(|entry| entry.is_openable()) {
            names = Some(numbered);
            break;
        }
    }
    let mut members = vec![first];
    for number in 1..MEMBERS_MAX {
        let Some(name) = names.as_ref().map(|names| names.name(number)) else { break };
        let Some(entry) = look(&name)?.filter(|entry| entry.is_openable()) else { break };
        let before = members.last().map_or(0, |m| m.len);
        // libhdf5 may leave empty members at the end.
        if before < size && entry.status.len == 0 {
            continue;
        }
        if before != size {
            let shown = escaped(Path::new(members.last().map_or(host.name(), |m| &m.name))).to_string();
            return Err(corrupt(format!("the member {shown} has {before} bytes, and members of the family {size}")));
        }
        let start = number.checked_mul(size).ok_or_else(|| corrupt(format!("members of {size} bytes")))?;
        members.push(Member { name, start, len: entry.status.len });
    }
    if let Some(last) = members.last().filter(|m| m.len > size) {
        return Err(corrupt(format!(
            "the member {} has {} bytes, and members of the family {size}",
            escaped(Path::new(&last.name)),
            last.len
        )));
    }
    Ok(members)
}

/// The members of a multi file, whose first one is `host`.
fn multi(host: &HostFile, all: &[MultiMember]) -> Result<Vec<Member>> {
    let template = |m: &MultiMember| -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let at = memchr::memmem::find(&m.name, b"%s");
        let (before, after) = match at {
            Some(at) => (m.name.get(..at), m.name.get(at.saturating_add(2)..).map(<[u8]>::to_vec)),
            None => (m.name.get(..), None),
        };
        let before = before.unwrap_or_default().to_vec();
        let is_plain = |part: &[u8]| !part.contains(&b'/') && !part.contains(&b'%');
        if m.name.is_empty() || !is_plain(&before) || !after.as_deref().is_none_or(is_plain) {
            return Err(corrupt(format!("a member is called {:?}", String::from_utf8_lossy(&m.name))));
        }
        Ok((before, after))
    };
    let first = all.iter().min_by_key(|m| m.address).ok_or_else(|| corrupt("there are no members".into()))?;
    let base: Vec<u8> = match template(first)? {
        (before, Some(after)) => {
            let name = host.name().as_bytes();
            let base = name.strip_prefix(&before[..]).and_then(|rest| rest.strip_suffix(&after[..]));
            let shown = String::from_utf8_lossy(&first.name).into_owned();
            let wrong = || {
                corrupt(format!("the file is called {}, and should be {shown:?}, as when it was written", escaped(Path::new(host.name()))))
            };
            base.ok_or_else(wrong)?.to_vec()
        }
        (_, None) => Vec::new(),
    };
    let mut members = Vec::new();
    for m in all {
        let name = match template(m)? {
            (before, Some(after)) => [before, base.clone(), after].concat(),
            (name, None) => name,
        };
        let name = if std::ptr::eq(m, first) { host.name().to_owned() } else { OsString::from_vec(name) };
        let shown = escaped(Path::new(&name)).to_string();
        let entry = host.directory().entry(&name).map_err(failed)?.filter(|entry| entry.is_openable());
        // libhdf5 makes a member when something is stored in it.
        let Some(entry) = entry else {
            if m.eof == 0 {
                continue;
            }
            return Err(Error::Missing {
                what: "member of the file",
                name: shown,
                reason: "it is not in the directory of the first one".into(),
            });
        };
        // The EOF of the first member includes its address, which is 0.
        let least = m.eof.saturating_sub(if m.eof >= m.address { m.address } else { 0 });
        if entry.status.len < least {
            return Err(corrupt(format!("the member {shown} has {} bytes, and should have {least}", entry.status.len)));
        }
        members.push(Member { name, start: m.address, len: entry.status.len });
    }
    members.sort_by_key(|m| m.start);
    Ok(members)
}

/// Where the first member of the file `path` may be, if there is no file of that name: `path` has
/// the number of a family member as `%d` or `%05d`, or is the name of a split file as a whole.
pub(super) fn first_member(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes();
    let numbered = || -> Option<Vec<u8>> {
        let at = memchr::memchr(b'%', name)?;
        let rest = name.get(at.saturating_add(1)..)?;
        let width = rest.iter().take_while(|c| c.is_ascii_digit()).count();
        let after = rest.get(width..)?.strip_prefix(b"d")?;
        let digits: usize = std::str::from_utf8(rest.get(..width)?).ok()?.parse().unwrap_or(1);
        let zeros = vec![b'0'; digits.clamp(1, DIGITS_MAX)];
        Some([name.get(..at)?, &zeros, after].concat())
    };
    let split = || Some([name, b"-m.h5"].concat());
    let named = |name: Vec<u8>| path.with_file_name(OsString::from_vec(name));
    [numbered(), split()].into_iter().flatten().map(named).find(|place| place.symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_member_has_a_zero() {
        let names = |name: &[u8]| zeros(name).iter().map(|n| n.name(12).into_vec()).collect::<Vec<_>>();
        assert_eq!(names(b"run0_000.h5"), [b"run0_012.h5".to_vec(), b"run12_000.h5".to_vec()]);
        assert_eq!(names(b"run100.h5"), Vec::<Vec<u8>>::new());
        assert_eq!(names(b"00000"), [b"00012".to_vec()]);
    }

    #[test]
    fn patterns_name_the_first_member() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["fam00000.h5", "a0", "sp-m.h5"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let first = |name: &str| first_member(&dir.path().join(name)).map(|p| p.file_name().unwrap().to_owned());
        assert_eq!(first("fam%05d.h5"), Some("fam00000.h5".into()));
        assert_eq!(first("a%d"), Some("a0".into()));
        assert_eq!(first("sp"), Some("sp-m.h5".into()));
        assert_eq!((first("fam%d.h5"), first("none"), first("a%s")), (None, None, None));
        assert_eq!(first("a%99999999999999999999999d"), Some("a0".into()));
    }
}
