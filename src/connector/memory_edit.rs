//! Changes of the in-memory model: what [`Edit`] says, as plainly as it can be done.

use super::edit::{Edit, Existing, NpyHeader, Taken};
use super::memory::{MemoryConnector, MemoryObject, Rows, State};
use super::{LinkTarget, ObjectId, Result};
use crate::base::Error;
use std::collections::BTreeMap;

/// Rows of a stream file.
const STREAM: Rows = Rows { bytes: 1, max: None };

fn no(errno: i32, reason: &'static str) -> Error {
    Error::refused(errno, reason)
}

fn resized(object: &MemoryObject, id: ObjectId, size: u64) -> Result<usize> {
    let now = object.bytes.as_ref().ok_or_else(|| Error::corrupt("object", id.address, "it is not a dataset"))?.len() as u64;
    let Some(rows) = object.rows else {
        return match size.cmp(&now) {
            std::cmp::Ordering::Equal => Ok(now as usize),
            std::cmp::Ordering::Less => Err(no(libc::EPERM, "the dataset's shape is fixed")),
            std::cmp::Ordering::Greater => Err(no(libc::EFBIG, "the dataset's shape is fixed")),
        };
    };
    let count = size.div_ceil(rows.bytes.max(1));
    if rows.max.is_some_and(|max| count > max) {
        return Err(no(libc::EFBIG, "the dataset has as many rows as it may"));
    }
    count.checked_mul(rows.bytes).and_then(|n| usize::try_from(n).ok()).ok_or_else(|| no(libc::EFBIG, "too large"))
}

/// Makes a dataset `len` bytes long.
fn resize(object: &mut MemoryObject, len: usize) {
    let fill = if object.fill.is_empty() { vec![0] } else { object.fill.clone() };
    let bytes = object.bytes.get_or_insert_default();
    bytes.truncate(len);
    let more = fill.into_iter().cycle().skip(bytes.len().checked_rem(object.fill.len()).unwrap_or(0));
    bytes.extend(more.take(len.saturating_sub(bytes.len())));
}

impl State {
    fn object_mut(&mut self, id: ObjectId) -> Result<&mut MemoryObject> {
        self.object(id)?;
        self.objects.get_mut(&id.address.0).ok_or_else(|| no(libc::ESTALE, "there is no such object"))
    }

    fn links_mut(&mut self, id: ObjectId) -> Result<&mut BTreeMap<Vec<u8>, LinkTarget>> {
        self.object_mut(id)?.links.as_mut().ok_or_else(|| no(libc::ENOTDIR, "it is not a group"))
    }

    fn enter(&mut self, group: ObjectId, name: &[u8], target: LinkTarget) -> Result<()> {
        let links = self.links_mut(group)?;
        if links.contains_key(name) {
            return Err(no(libc::EEXIST, "the name is taken"));
        }
        links.insert(name.to_vec(), target);
        Ok(())
    }

    /// A new object; the lowest number that is free, so that numbers are used again.
    fn create(&mut self, group: ObjectId, name: &[u8], object: MemoryObject) -> Result<ObjectId> {
        let number = (0..).find(|n| !self.objects.contains_key(n)).unwrap_or(u64::MAX);
        let id = MemoryConnector::id(number);
        self.enter(group, name, LinkTarget::Hard(id))?;
        self.objects.insert(number, object);
        Ok(id)
    }

    fn is_group(&self, target: &LinkTarget) -> bool {
        matches!(target, LinkTarget::Hard(id) if self.object(*id).is_ok_and(|o| o.links.is_some()))
    }

    fn is_only_name(&self, target: &LinkTarget) -> bool {
        matches!(target, LinkTarget::Hard(id) if self.names_of(*id) < 2)
    }

    fn is_full(&self, target: &LinkTarget) -> bool {
        matches!(target, LinkTarget::Hard(id) if self.links(*id).is_ok_and(|l| !l.is_empty()))
    }

    /// What a link that is gone led to loses a name; returned if it was the last one.
    fn drop_name(&mut self, target: &LinkTarget) -> Option<ObjectId> {
        let LinkTarget::Hard(id) = *target else { return None };
        if id.address.0 == 0 || self.names_of(id) > 0 {
            return None;
        }
        if !self.held.contains_key(&id.address.0) {
            self.remove(id);
        }
        Some(id)
    }

    fn remove(&mut self, id: ObjectId) {
        let links = self.objects.remove(&id.address.0).and_then(|o| o.links).unwrap_or_default();
        for target in links.into_values() {
            self.drop_name(&target);
        }
    }

    fn replace(&mut self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8])) -> Result<Option<ObjectId>> {
        let link = |s: &State, (group, name): (ObjectId, &[u8])| s.links(group).map(|l| l.get(name).cloned());
        let moved = link(self, from)?.ok_or_else(|| no(libc::ENOENT, "no such name"))?;
        let there = link(self, to)?;
        if let Some(there) = &there {
            // Two names of one object: POSIX leaves both.
            if *there == moved && matches!(there, LinkTarget::Hard(_)) {
                return Ok(None);
            }
            match (self.is_group(&moved), self.is_group(there)) {
                (true, false) => return Err(no(libc::ENOTDIR, "a group cannot replace what is none")),
                (false, true) if self.is_only_name(there) => return Err(no(libc::EISDIR, "only a group can replace a group")),
                (true, true) if self.is_full(there) => return Err(no(libc::ENOTEMPTY, "the group has links")),
                _ => {}
            }
        }
        self.links_mut(from.0)?.remove(from.1);
        self.links_mut(to.0)?.insert(to.1.to_vec(), moved);
        Ok(there.and_then(|t| self.drop_name(&t)))
    }
}

impl MemoryConnector {
    fn change<T>(&self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.write();
        if state.closed { Err(no(libc::EROFS, "the container was closed")) } else { f(&mut state) }
    }
}

impl Edit for MemoryConnector {
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.change(|s| {
            let object = s.object_mut(id)?;
            if bytes.is_empty() {
                return Ok(());
            }
            let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| no(libc::EFBIG, "too large"))?;
            let now = object.bytes.as_ref().map_or(0, Vec::len);
            let len = if end > now as u64 { resized(object, id, end)? } else { now };
            resize(object, len);
            let range = usize::try_from(offset).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
            if let Some(to) = object.bytes.as_mut().and_then(|b| b.get_mut(range)) {
                to.copy_from_slice(bytes);
            }
            Ok(())
        })
    }

    fn set_size(&self, id: ObjectId, size: u64) -> Result<()> {
        self.change(|s| {
            let object = s.object_mut(id)?;
            let len = resized(object, id, size)?;
            resize(object, len);
            Ok(())
        })
    }

    fn zero(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.change(|s| {
            let bytes = s.object_mut(id)?.bytes.get_or_insert_default();
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
            let range = at(offset)..at(offset.saturating_add(len));
            if let Some(hole) = bytes.get_mut(range) {
                hole.fill(0);
            }
            Ok(())
        })
    }

    fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let file = MemoryObject { bytes: Some(Vec::new()), rows: Some(STREAM), ..MemoryObject::default() };
        self.change(|s| s.create(group, name, file))
    }

    fn create_dataset(&self, _group: ObjectId, _name: &[u8], _description: &[u8]) -> Result<ObjectId> {
        Err(no(libc::EOPNOTSUPP, "the model has no types"))
    }

    fn create_group(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.change(|s| s.create(group, name, MemoryObject { links: Some(BTreeMap::new()), ..MemoryObject::default() }))
    }

    fn link(&self, group: ObjectId, name: &[u8], target: ObjectId) -> Result<()> {
        self.change(|s| {
            s.object(target)?;
            s.enter(group, name, LinkTarget::Hard(target))
        })
    }

    fn symlink(&self, group: ObjectId, name: &[u8], target: &[u8]) -> Result<()> {
        self.change(|s| s.enter(group, name, LinkTarget::Soft(target.to_vec())))
    }

    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        self.change(|s| {
            let target = s.links(group)?.get(name).cloned().ok_or_else(|| no(libc::ENOENT, "no such name"))?;
            match (directory, s.is_group(&target)) {
                (true, false) => return Err(no(libc::ENOTDIR, "it is not a group")),
                (false, true) if s.is_only_name(&target) => return Err(no(libc::EISDIR, "it is a group")),
                (true, true) if s.is_full(&target) => return Err(no(libc::ENOTEMPTY, "the group has links")),
                _ => {}
            }
            s.links_mut(group)?.remove(name);
            Ok(s.drop_name(&target))
        })
    }

    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>> {
        self.change(|s| {
            let there = s.links(to.0)?.get(to.1).cloned();
            match taken {
                Taken::Replace => s.replace(from, to),
                Taken::Refuse if there.is_some() => Err(no(libc::EEXIST, "the name is taken")),
                Taken::Refuse => s.replace(from, to),
                Taken::Exchange => {
                    let there = there.ok_or_else(|| no(libc::ENOENT, "no such name"))?;
                    let here = s.links(from.0)?.get(from.1).cloned().ok_or_else(|| no(libc::ENOENT, "no such name"))?;
                    s.links_mut(from.0)?.insert(from.1.to_vec(), there);
                    s.links_mut(to.0)?.insert(to.1.to_vec(), here);
                    Ok(None)
                }
            }
        })
    }

    fn set_attribute(&self, id: ObjectId, name: &[u8], text: &[u8], existing: Existing) -> Result<()> {
        self.change(|s| {
            let attributes = &mut s.object_mut(id)?.attributes;
            match (existing, attributes.contains_key(name)) {
                (Existing::Create, true) => return Err(no(libc::EEXIST, "the attribute exists")),
                (Existing::Replace, false) => return Err(no(libc::ENODATA, "no such attribute")),
                _ => {}
            }
            attributes.insert(name.to_vec(), text.to_vec());
            Ok(())
        })
    }

    fn set_npy(&self, _id: ObjectId, _header: &NpyHeader, _emptied: bool) -> Result<()> {
        Err(no(libc::EOPNOTSUPP, "the model has no types"))
    }

    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        self.set_attribute(id, name, bytes, Existing::Any)
    }

    fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        self.change(|s| {
            let attributes = &mut s.object_mut(id)?.attributes;
            if !replace && attributes.contains_key(to) {
                return Err(no(libc::EEXIST, "the attribute exists"));
            }
            let value = attributes.remove(from).ok_or_else(|| no(libc::ENODATA, "no such attribute"))?;
            attributes.insert(to.to_vec(), value);
            Ok(())
        })
    }

    fn set_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()> {
        self.change(|s| {
            let object = s.object_mut(id)?;
            let rows = std::str::from_utf8(text).ok().and_then(|t| t.trim().parse::<u64>().ok());
            match (name, rows) {
                // The one that the model has: bytes per row.
                ("row", Some(bytes)) if bytes > 0 && object.bytes.is_some() => {
                    object.rows = Some(Rows { bytes, max: object.rows.and_then(|r| r.max) });
                    Ok(())
                }
                ("row", _) => Err(no(libc::EINVAL, "not a number of bytes")),
                _ => Err(no(libc::EPERM, "this fact cannot be set")),
            }
        })
    }

    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        self.change(|s| s.object_mut(id)?.attributes.remove(name).map(drop).ok_or_else(|| no(libc::ENODATA, "no such attribute")))
    }

    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.change(|s| {
            let mtime = &mut s.object_mut(id)?.mtime;
            Ok(mtime.as_mut().map(|m| *m = seconds).is_some())
        })
    }

    fn hold(&self, id: ObjectId) {
        let mut state = self.state.write();
        let count = state.held.entry(id.address.0).or_insert(0);
        *count = count.saturating_add(1);
    }

    fn release(&self, id: ObjectId) {
        let mut state = self.state.write();
        let left = state.held.get(&id.address.0).map_or(0, |n| n.saturating_sub(1));
        if left > 0 {
            state.held.insert(id.address.0, left);
            return;
        }
        state.held.remove(&id.address.0);
        if id.address.0 != 0 && state.names_of(id) == 0 {
            state.remove(id);
        }
    }

    fn commit(&self) -> Result<()> {
        self.change(|s| {
            s.commits = s.commits.saturating_add(1);
            Ok(())
        })
    }

    fn close(&self) -> Result<()> {
        self.change(|s| {
            s.closed = true;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::{Connector, Form};

    fn errno<T>(result: Result<T>) -> i32 {
        match result {
            Err(Error::Refused { errno, .. }) => errno,
            Err(e) => panic!("{e}"),
            Ok(_) => 0,
        }
    }

    fn empty() -> (MemoryConnector, ObjectId) {
        let root = MemoryObject { links: Some(BTreeMap::new()), ..MemoryObject::default() };
        (MemoryConnector::writable(vec![root]).unwrap(), MemoryConnector::id(0))
    }

    fn size(c: &MemoryConnector, id: ObjectId) -> u64 {
        c.content(id, Form::Main).unwrap().size().unwrap()
    }

    #[test]
    fn datasets_grow_by_whole_rows_as_far_as_they_may() {
        let (c, root) = empty();
        let f = c.create_file(root, b"f").unwrap();
        c.write(f, 3, b"abc").unwrap();
        assert_eq!(size(&c, f), 6);
        c.set_fact(f, "row", b"4").unwrap();
        c.write(f, 6, b"z").unwrap();
        assert_eq!(size(&c, f), 8);
        c.set_size(f, 1).unwrap();
        assert_eq!(size(&c, f), 4);
        c.state.write().objects.get_mut(&f.address.0).unwrap().rows = Some(Rows { bytes: 4, max: Some(2) });
        assert_eq!(errno(c.write(f, 8, b"z")), libc::EFBIG);
        c.state.write().objects.get_mut(&f.address.0).unwrap().rows = None;
        assert_eq!((errno(c.set_size(f, 0)), errno(c.set_size(f, 5)), errno(c.set_size(f, 4))), (libc::EPERM, libc::EFBIG, 0));
    }

    #[test]
    fn what_is_held_outlives_its_names() {
        let (c, root) = empty();
        let f = c.create_file(root, b"f").unwrap();
        c.link(root, b"g", f).unwrap();
        c.hold(f);
        assert_eq!(c.unlink(root, b"f", false), Ok(None));
        assert_eq!(c.unlink(root, b"g", false), Ok(Some(f)));
        c.write(f, 0, b"x").unwrap();
        c.release(f);
        assert_eq!(c.len(), 1);
        assert_eq!(c.create_file(root, b"h"), Ok(f), "numbers are used again");
    }

    #[test]
    fn renames_replace_refuse_and_exchange() {
        let (c, root) = empty();
        let (a, g) = (c.create_file(root, b"a").unwrap(), c.create_group(root, b"g").unwrap());
        let b = c.create_file(g, b"b").unwrap();
        let rename = |from: &[u8], to: &[u8], taken| c.rename((root, from), (root, to), taken);
        assert_eq!(errno(rename(b"a", b"g", Taken::Replace)), libc::EISDIR);
        assert_eq!(errno(rename(b"g", b"a", Taken::Replace)), libc::ENOTDIR);
        assert_eq!(errno(rename(b"a", b"g", Taken::Refuse)), libc::EEXIST);
        assert_eq!(errno(c.unlink(root, b"g", true)), libc::ENOTEMPTY);
        assert_eq!(rename(b"a", b"g", Taken::Exchange), Ok(None));
        assert_eq!(c.resolve(root, b"a/b").unwrap(), Some(b));
        assert_eq!(c.rename((g, b"b"), (root, b"g"), Taken::Replace), Ok(Some(a)));
        assert_eq!(c.unlink(root, b"a", true), Ok(Some(g)));
        c.close().unwrap();
        assert_eq!(errno(c.commit()), libc::EROFS);
    }
}
