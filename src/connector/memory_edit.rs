//! Changes of the in-memory model: what [`Edit`] says, as plainly as it can be done.

use super::Connector as _;
use super::edit::{Allocate, Edit, Elements, NewReference, Taken};
use super::extent::check_extent;
use super::maps::EditMaps;
use super::memory::{Grid, MemoryConnector, MemoryObject, Rows, State};
use super::memory_value::MemoryValue;
use super::{DatasetSpec, Datatype, FillSpec, LinkTarget, LinkText, NewAttribute, NewValue, ObjectId, Ownership, Result};
use crate::base::Error;
use std::collections::BTreeMap;

/// Rows of a stream file.
const STREAM: Rows = Rows { bytes: 1, max: None };

fn no(errno: i32, reason: &'static str) -> Error {
    Error::refused(errno, reason)
}

fn resized(object: &MemoryObject, id: ObjectId, size: u64) -> Result<usize> {
    let now = object.bytes.as_ref().ok_or_else(|| Error::corrupt("object", id.address, "it is not a dataset"))?.len() as u64;
    let Some(rows) = object.rows.filter(|rows| rows.bytes > 0) else {
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
    if let (Some(grid), Some(rows)) = (&mut object.grid, object.rows)
        && let (Some(first), Some(n)) = (grid.dims.first_mut(), (len as u64).checked_div(rows.bytes))
    {
        *first = n;
    }
}

/// Gives a dataset of this grid the extent `next`; each element keeps its coordinates.
fn place(object: &mut MemoryObject, grid: Grid, next: &[u64]) -> Result<()> {
    let size = usize::try_from(object.element_type().element_size()).unwrap_or(usize::MAX);
    let row = next.iter().skip(1).fold(size as u64, |n, d| n.saturating_mul(*d));
    let len = next.iter().take(1).fold(row, |n, d| n.saturating_mul(*d));
    let old = std::mem::take(object.bytes.get_or_insert_default());
    object.grid = Some(Grid { dims: next.to_vec(), ..grid.clone() });
    object.rows = object.rows.map(|rows| Rows { bytes: row, ..rows });
    resize(object, usize::try_from(len).map_err(|_| no(libc::EFBIG, "too large"))?);
    let new = object.bytes.get_or_insert_default();
    for (number, element) in (0u64..).zip(old.chunks_exact(size.max(1))) {
        let (mut rest, mut to, mut stride, mut is_within) = (number, 0u64, 1u64, true);
        for (from, next) in grid.dims.iter().zip(next).rev() {
            let at = rest.checked_rem(*from).unwrap_or(0);
            is_within &= at < *next;
            to = to.saturating_add(at.saturating_mul(stride));
            (rest, stride) = (rest.checked_div(*from).unwrap_or(0), stride.saturating_mul(*next));
        }
        let start = usize::try_from(to).unwrap_or(usize::MAX).saturating_mul(size);
        if let Some(place) = new.get_mut(start..start.saturating_add(size)).filter(|_| is_within) {
            place.copy_from_slice(element);
        }
    }
    Ok(())
}

/// Makes a dataset what `spec` states: type, shape, whether it grows, and fill value.
fn describe(object: &mut MemoryObject, spec: &DatasetSpec, elements: Elements) -> Result<()> {
    let len = object.bytes.as_ref().ok_or_else(|| no(libc::EINVAL, "it is not a dataset"))?.len() as u64;
    let datatype = spec.dtype.clone().unwrap_or_else(|| object.element_type());
    if datatype.contains_vlen() || datatype.contains_reference() {
        return Err(no(libc::EOPNOTSUPP, "the model's datasets have elements of fixed size"));
    }
    let size = datatype.element_size();
    let wrong = || no(libc::EINVAL, "the bytes do not fit the shape");
    let dims = spec.shape.clone().unwrap_or_else(|| vec![len.checked_div(size).unwrap_or(0)]);
    let row = dims.iter().skip(1).try_fold(size, |n, d| n.checked_mul(*d)).ok_or_else(wrong)?;
    let bytes = dims.iter().take(1).try_fold(row, |n, d| n.checked_mul(*d)).ok_or_else(wrong)?;
    if elements == Elements::Kept && len != 0 && bytes != len {
        return Err(wrong());
    }
    let max = match (&spec.maxshape, object.rows) {
        (Some(max), _) => max.first().copied(),
        (None, rows) => rows.map(|rows| rows.max),
    };
    object.grid = None;
    object.rows = max.filter(|_| row > 0 && !dims.is_empty()).map(|max| Rows { bytes: row, max });
    match &spec.fillvalue {
        Some(FillSpec::Value(value)) => object.fill = value.form.clone(),
        Some(FillSpec::Default | FillSpec::Undefined) => object.fill.clear(),
        None if object.fill.len() as u64 != size => object.fill.clear(),
        None => {}
    }
    object.datatype = Some(datatype);
    if elements == Elements::Dropped {
        object.bytes = Some(Vec::new());
    }
    resize(object, usize::try_from(bytes).map_err(|_| wrong())?);
    Ok(())
}

impl State {
    pub(super) fn object_mut(&mut self, id: ObjectId) -> Result<&mut MemoryObject> {
        self.object(id)?;
        self.objects.get_mut(&id.address.0).ok_or_else(|| no(libc::ESTALE, "there is no such object"))
    }

    fn links_mut(&mut self, id: ObjectId) -> Result<&mut BTreeMap<Vec<u8>, LinkTarget>> {
        let object = self.object_mut(id)?;
        let reason =
            if object.map.is_some() { (libc::EPERM, "a map holds pairs, and no links") } else { (libc::ENOTDIR, "it is not a group") };
        object.links.as_mut().ok_or_else(|| no(reason.0, reason.1))
    }

    fn enter(&mut self, group: ObjectId, name: &[u8], target: LinkTarget) -> Result<()> {
        let links = self.links_mut(group)?;
        if links.contains_key(name) {
            return Err(no(libc::EEXIST, "the name is taken"));
        }
        links.insert(name.to_vec(), target);
        Ok(())
    }

    /// Sets the text of a soft link; returns the one that it had.
    fn set_text(&mut self, group: ObjectId, name: &[u8], text: Option<LinkText>) -> Result<Option<LinkText>> {
        let texts = &mut self.object_mut(group)?.texts;
        Ok(match text {
            Some(text) => texts.insert(name.to_vec(), text),
            None => texts.remove(name),
        })
    }

    /// A new object; the lowest number that is free, so that numbers are used again.
    fn create(&mut self, group: ObjectId, name: &[u8], object: MemoryObject) -> Result<ObjectId> {
        let number = (0..).find(|n| !self.objects.contains_key(n)).unwrap_or(u64::MAX);
        let id = MemoryConnector::id(number);
        self.enter(group, name, LinkTarget::Hard(id))?;
        self.objects.insert(number, object);
        Ok(id)
    }

    fn is_directory(&self, target: &LinkTarget) -> bool {
        matches!(target, LinkTarget::Hard(id) if self.object(*id).is_ok_and(|o| o.links.is_some() || o.map.is_some()))
    }

    fn is_only_name(&self, target: &LinkTarget) -> bool {
        matches!(target, LinkTarget::Hard(id) if self.names_of(*id) < 2)
    }

    fn is_full(&self, target: &LinkTarget) -> bool {
        let full =
            |o: &MemoryObject| o.links.as_ref().is_some_and(|l| !l.is_empty()) || o.map.as_ref().is_some_and(|m| !m.pairs.is_empty());
        matches!(target, LinkTarget::Hard(id) if self.object(*id).is_ok_and(full))
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
            match (self.is_directory(&moved), self.is_directory(there)) {
                (true, false) => return Err(no(libc::ENOTDIR, "a group cannot replace what is none")),
                (false, true) if self.is_only_name(there) => return Err(no(libc::EISDIR, "only a group can replace a group")),
                (true, true) if self.is_full(there) => return Err(no(libc::ENOTEMPTY, "the group has links")),
                _ => {}
            }
        }
        self.links_mut(from.0)?.remove(from.1);
        self.links_mut(to.0)?.insert(to.1.to_vec(), moved);
        let text = self.set_text(from.0, from.1, None)?;
        self.set_text(to.0, to.1, text)?;
        Ok(there.and_then(|t| self.drop_name(&t)))
    }
}

impl MemoryConnector {
    pub(super) fn change<T>(&self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.write();
        if state.closed { Err(no(libc::EROFS, "the container was closed")) } else { f(&mut state) }
    }
}

/// All bytes within the size are in memory.
impl Allocate for MemoryConnector {
    fn allocate(&self, id: ObjectId, _offset: u64, _len: u64) -> Result<()> {
        self.change(|s| s.object_mut(id).map(|_| ()))
    }
}

impl Edit for MemoryConnector {
    fn allocate(&self) -> Option<&dyn Allocate> {
        Some(self)
    }

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

    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()> {
        let now = self.dataset(id)?;
        if !check_extent(&now.shape, now.datatype.element_size(), now.resizes, dims)? {
            return Ok(());
        }
        if let Some(grid) = self.with(id, |object| object.grid.clone())? {
            return self.change(|s| place(s.object_mut(id)?, grid, dims));
        }
        if now.shape.dims().and_then(|now| now.get(1..)) != dims.get(1..) {
            return Err(no(libc::EOPNOTSUPP, "only the first dimension of the model's datasets changes"));
        }
        self.set_size(id, dims.iter().fold(now.datatype.element_size(), |n, d| n.saturating_mul(*d)))
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

    fn create_dataset(&self, group: ObjectId, name: &[u8], spec: &DatasetSpec) -> Result<ObjectId> {
        let mut file = MemoryObject { bytes: Some(Vec::new()), rows: Some(STREAM), ..MemoryObject::default() };
        describe(&mut file, spec, Elements::Dropped)?;
        self.change(|s| s.create(group, name, file))
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

    fn retarget(&self, group: ObjectId, name: &[u8], path: &[u8], text: Option<&[u8]>) -> Result<()> {
        self.change(|s| {
            let target = s.links_mut(group)?.get_mut(name).filter(|target| matches!(target, LinkTarget::Soft(_)));
            *target.ok_or_else(|| no(libc::ENOENT, "no such soft link"))? = LinkTarget::Soft(path.to_vec());
            s.set_text(group, name, text.map(|text| LinkText::new(text, path))).map(drop)
        })
    }

    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        self.change(|s| {
            let target = s.links(group)?.get(name).cloned().ok_or_else(|| no(libc::ENOENT, "no such name"))?;
            match (directory, s.is_directory(&target)) {
                (true, false) => return Err(no(libc::ENOTDIR, "it is not a group")),
                (false, true) if s.is_only_name(&target) => return Err(no(libc::EISDIR, "it is a group")),
                (true, true) if s.is_full(&target) => return Err(no(libc::ENOTEMPTY, "the group has links")),
                _ => {}
            }
            s.links_mut(group)?.remove(name);
            s.set_text(group, name, None)?;
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
                    let text = s.set_text(from.0, from.1, None)?;
                    let there = s.set_text(to.0, to.1, text)?;
                    s.set_text(from.0, from.1, there)?;
                    Ok(None)
                }
            }
        })
    }

    fn set_attribute(&self, id: ObjectId, name: &[u8], value: &NewValue) -> Result<()> {
        let value = MemoryValue::of(value)?;
        self.change(|s| {
            s.object_mut(id)?.attributes.insert(name.to_vec(), value);
            Ok(())
        })
    }

    fn set_attributes(&self, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
        let all = attributes.map(|a| a.and_then(|a| Ok((a.name, MemoryValue::of(&a.value)?))));
        let all = all.collect::<Result<Vec<_>>>()?;
        self.change(|s| {
            s.object_mut(id)?.attributes.extend(all);
            Ok(())
        })
    }

    fn change_dataset(&self, id: ObjectId, spec: DatasetSpec, elements: Elements) -> Result<()> {
        self.change(|s| describe(s.object_mut(id)?, &spec, elements))
    }

    fn become_datatype(&self, _id: ObjectId, _datatype: &Datatype, _shown: &[u8]) -> Result<()> {
        Err(no(libc::EOPNOTSUPP, "the model has no named datatypes"))
    }

    fn set_references(&self, _id: ObjectId, _first: u64, _references: Vec<NewReference>) -> Result<()> {
        Err(no(libc::EOPNOTSUPP, "the model has no references in datasets"))
    }

    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        let value = MemoryValue::of_bytes(bytes);
        self.change(|s| {
            s.object_mut(id)?.attributes.insert(name.to_vec(), value);
            Ok(())
        })
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

    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        self.change(|s| s.object_mut(id)?.attributes.remove(name).map(drop).ok_or_else(|| no(libc::ENODATA, "no such attribute")))
    }

    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.change(|s| {
            let mtime = &mut s.object_mut(id)?.mtime;
            Ok(mtime.as_mut().map(|m| *m = seconds).is_some())
        })
    }

    fn set_ownership(&self, id: ObjectId, ownership: &Ownership) -> Result<()> {
        self.change(|s| {
            s.object_mut(id)?.ownership = *ownership;
            Ok(())
        })
    }

    fn maps(&self) -> Option<&dyn EditMaps> {
        Some(self)
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
        let spec = DatasetSpec { shape: Some(vec![2, 4]), ..DatasetSpec::default() };
        c.set_size(f, 8).unwrap();
        c.change_dataset(f, spec, Elements::Kept).unwrap();
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
