//! Tag `tag/<name>`: names a version. A tag is created once; it moves by removal and creation.
//!
//! ```text
//! "H5IODT1\n" | version u64 | seconds since 1970 u64 | label length u16, label | checksum u32
//! ```

use super::container::{Container, now};
use super::gc::state::GcState;
use super::objects::failed;
use super::origin::label;
use super::record::LABEL_MAX;
use super::rules::Rule;
use super::{keys, sealed};
use crate::base::request_error::is_absent;
use crate::base::{Error, Result};

const SIGNATURE: &[u8; 8] = b"H5IODT1\n";
const NAME: &str = "tag";
/// Longest stored tag, bytes.
const TAG_MAX_BYTES: u64 = 4096;
/// Longest name of a tag, bytes.
const NAME_MAX: usize = 64;
/// Name that means the newest version, and so is no tag.
pub const NEWEST: &str = "latest";

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// The version that it names.
    pub version: u64,
    /// When it was created, seconds since 1970, by the clock of its creator.
    pub seconds: u64,
    /// Text of its creator.
    pub label: Vec<u8>,
}

impl Tag {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = sealed::begin(SIGNATURE);
        let label = self.label.get(..self.label.len().min(LABEL_MAX)).unwrap_or_default();
        w.u64(self.version).u64(self.seconds).uint(label.len() as u64, 2).bytes(label);
        sealed::end(w)
    }

    /// Decodes a tag.
    pub fn decode(bytes: &[u8]) -> Result<Tag> {
        let mut r = sealed::open(bytes, SIGNATURE, NAME, 0)?;
        let (version, seconds) = (r.u64()?, r.u64()?);
        let len = usize::from(r.u16()?);
        let label = r.bytes(len)?.to_vec();
        if version == 0 || label.len() > LABEL_MAX {
            return Err(r.corrupt(format!("version {version} with a label of {} bytes", label.len())));
        }
        sealed::finish(&r)?;
        Ok(Tag { version, seconds, label })
    }
}

/// True for names that a tag can have: those of stored objects, but for numbers and `latest`.
pub fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    !is_number && name.len() <= NAME_MAX && name != NEWEST && name.bytes().all(fits)
}

fn check_name(name: &str) -> Result<()> {
    let reason = "a tag has 1 to 64 characters of a-z, 0-9, - and _, and is neither a number nor 'latest'";
    if is_name(name) { Ok(()) } else { Err(Error::refused(libc::EINVAL, reason)) }
}

impl Container {
    /// Names of the tags, ascending.
    pub fn tags(&self) -> Result<Vec<String>> {
        let listed = self.store().list_after(keys::TAGS, "").map_err(failed("list the tags", 0))?;
        let name = |key: &String| key.strip_prefix(keys::TAGS).filter(|name| is_name(name)).map(str::to_owned);
        Ok(listed.iter().filter_map(name).collect())
    }

    /// The tag `name`; `None`: there is none.
    pub fn tag(&self, name: &str) -> Result<Option<Tag>> {
        if !is_name(name) {
            return Ok(None);
        }
        match self.store().get(&keys::tag_name(name), 0..TAG_MAX_BYTES) {
            Err(e) if is_absent(&e) => Ok(None),
            read => Tag::decode(&read.map_err(failed("read a tag", 0))?).map(Some),
        }
    }

    /// Creates the tag `name` of `version`. Errors: `EINVAL` for a name that no tag has, `ENOENT`
    /// if there is no such version, `EEXIST` if the tag names another version, `ESTALE` if garbage
    /// collection may delete the version.
    pub fn create_tag(&self, name: &str, version: u64) -> Result<()> {
        check_name(name)?;
        if self.read_record(version)?.is_none() {
            return Err(Error::refused(libc::ENOENT, format!("the container has no version {version}")));
        }
        let tag = Tag { version, seconds: now(), label: label() };
        let bytes = tag.encode();
        let mut lost_reply = false;
        let create = || self.store().create(&keys::tag_name(name), &bytes).inspect_err(|_| lost_reply = true);
        if self.again("create a tag", create)? {
            return self.keep_tag(name, &tag);
        }
        match self.tag(name)? {
            // An attempt that seemed to fail may have created it.
            Some(there) if lost_reply && there == tag => self.keep_tag(name, &tag),
            Some(there) => {
                let reason = format!("the tag '{name}' exists and names version {}; remove it first, or take another name", there.version);
                Err(Error::refused(libc::EEXIST, reason))
            }
            None => Err(Error::refused(libc::EAGAIN, format!("the tag '{name}' was removed at the same time; try again"))),
        }
    }

    /// Removes the new tag `name` again if it does not hold its version. Errors: that of
    /// [`Container::check_kept`].
    fn keep_tag(&self, name: &str, tag: &Tag) -> Result<()> {
        let kept = self.check_kept(tag.version, "tag a later version");
        if kept.is_err() && matches!(self.tag(name), Ok(Some(there)) if there == *tag) {
            // A tag that stays names a version that is gone; garbage collection reports it.
            let _ = self.store().delete(&keys::tag_name(name));
        }
        kept
    }

    /// Errors: `ESTALE` with `advice` if garbage collection may delete `version`. It reads tags and
    /// records again after it published a floor: what was created before this call is seen.
    pub(super) fn check_kept(&self, version: u64, advice: &str) -> Result<()> {
        let state = if self.rules().keep(Rule::FloorAfterTag) { GcState::newest(self.store())? } else { None };
        let Some(state) = state else { return Ok(()) };
        let floor = state.floor_version();
        // A version that another tag names is kept until no tag names it.
        if version >= floor || state.tags.contains_key(&version) {
            return Ok(());
        }
        let reason = format!("garbage collection keeps versions from {floor} on, and may delete version {version} at any time; {advice}");
        Err(Error::refused(libc::ESTALE, reason))
    }

    /// Removes the tag `name`. Errors: `ENOENT` if there is none.
    pub fn remove_tag(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let key = keys::tag_name(name);
        if self.store().head(&key).map_err(failed("read a tag", 0))?.is_none() {
            return Err(Error::refused(libc::ENOENT, format!("the container has no tag '{name}'")));
        }
        self.again("remove a tag", || self.store().delete(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::store::faulty::{Fault, FaultyStore};
    use crate::file::store::memory::MemoryStore;
    use std::sync::Arc;

    fn errno<T>(result: Result<T>) -> i32 {
        match result {
            Err(Error::Refused { errno, .. }) => errno,
            Err(_) => -1,
            Ok(_) => 0,
        }
    }

    #[test]
    fn tags_have_the_documented_bytes() {
        let tag = Tag { version: 258, seconds: 7, label: b"me".to_vec() };
        let bytes = tag.encode();
        let body = b"H5IODT1\n\x02\x01\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02\0me";
        assert_eq!(bytes.get(..body.len()), Some(&body[..]));
        assert_eq!(bytes.len(), body.len() + 4);
        assert_eq!(Tag::decode(&bytes).unwrap(), tag);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Tag::decode(&damaged).is_err() && Tag::decode(&bytes[..at]).is_err(), "byte {at}");
        }
        assert!(Tag::decode(&Tag { version: 0, ..tag }.encode()).is_err());
    }

    /// A reply that is lost is no other tag of the same name.
    #[test]
    fn a_tag_whose_reply_is_lost_is_created() {
        let store = MemoryStore::default();
        Container::create(Arc::new(store.clone()), Vec::new()).unwrap();
        let faulty = Arc::new(FaultyStore::new(store, Fault::LostReply, 0));
        let container = Container::open(faulty.clone()).unwrap();
        container.create_tag("a", 1).unwrap();
        assert!(faulty.is_hit());
        assert_eq!(errno(container.create_tag("a", 1)), libc::EEXIST);
    }

    #[test]
    fn tags_are_created_once_removed_and_listed() {
        let store = Arc::new(MemoryStore::default());
        Container::create(store.clone(), Vec::new()).unwrap();
        let container = Container::open(store).unwrap();
        for bad in ["", "latest", "12", "A", "a/b", "a b", ".", &"x".repeat(65)] {
            assert_eq!(errno(container.create_tag(bad, 1)), libc::EINVAL, "{bad}");
            assert_eq!(container.tag(bad).unwrap(), None);
        }
        assert_eq!(errno(container.create_tag("none", 9)), libc::ENOENT);
        container.create_tag("b-1", 1).unwrap();
        container.create_tag("a_0", 1).unwrap();
        let mut snapshot = container.snapshot(None).unwrap();
        container.begin_session(&mut snapshot).unwrap();
        assert_eq!(errno(container.create_tag("b-1", 2)), libc::EEXIST);
        assert_eq!(container.tags().unwrap(), ["a_0", "b-1"]);
        assert_eq!(container.tag("b-1").unwrap().map(|t| t.version), Some(1));
        container.remove_tag("b-1").unwrap();
        assert_eq!((errno(container.remove_tag("b-1")), container.tag("b-1").unwrap()), (libc::ENOENT, None));
        container.create_tag("b-1", 2).unwrap();
        assert_eq!(container.tag("b-1").unwrap().map(|t| t.version), Some(2));
    }
}
