//! New objects, and the metadata of datasets.

use super::dataset::BYTES_CHUNK;
use super::object_access::ObjectAccess;
use super::paths;
use super::state::{DATASET, GROUP, State, now};
use crate::base::{Address, Error, Result};
use crate::connector::errors::refused;
use crate::connector::plan::{Now, plan};
use crate::connector::{self, DatasetSpec, LinkTarget};
use crate::dataset::create::dataset_messages;
use crate::dataset::creation::Creation;
use crate::dataset::layout::{self, new_chunked};
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::format::message::times;
use crate::format::object_header::kind;
use crate::iod::{keys, merge};
use std::borrow::Cow;

/// Superblock version whose message versions are used.
pub(super) const SUPERBLOCK: u8 = 2;
/// Metadata that makes a dataset.
const MESSAGES: [u16; 5] = [kind::DATASPACE, kind::DATATYPE, kind::FILL_VALUE, kind::DATA_LAYOUT, kind::FILTER_PIPELINE];
/// Longest name of a link, bytes.
const NAME_MAX: usize = keys::KEY_MAX / 2;

/// The dataset that a new file is.
pub(super) fn bytes_file() -> Creation {
    Creation { layout: new_chunked(vec![BYTES_CHUNK]), ..connector::bytes_file::bytes_file() }
}

/// Errors: a layout that containers do not have.
pub(super) fn check_layout(creation: &Creation) -> Result<()> {
    let layout = creation.layout.kind;
    if layout.fits_any_container() {
        return Ok(());
    }
    let profile = layout.profile().map_or_else(String::new, |profile| format!(" of profile {profile}"));
    let reason = format!(
        "a container in an object store has no layout {}{profile}; use chunked, contiguous, compact, or sparse of profile map or filter",
        layout.name()
    );
    Err(Error::refused(libc::EOPNOTSUPP, reason))
}

/// The request with a layout that containers have, if it asks for that.
fn converted(spec: &DatasetSpec) -> Result<Cow<'_, DatasetSpec>> {
    let Some(name) = spec.layout.as_deref().filter(|_| spec.converts_layout) else { return Ok(Cow::Borrowed(spec)) };
    let layout = layout::named(name, spec.profile.as_deref()).map_err(refused)?;
    if layout.fits_any_container() {
        return Ok(Cow::Borrowed(spec));
    }
    let mut spec = spec.clone();
    let has_dims = spec.shape.as_ref().is_some_and(|dims| !dims.is_empty());
    match layout.in_any_container(spec.filters.as_deref().unwrap_or_default()) {
        Some(other) if has_dims => (spec.layout, spec.profile) = (Some(other.name().into()), other.profile().map(Into::into)),
        // Without chunks an ordinary one could not grow: they are chosen.
        _ => (spec.layout, spec.profile, spec.allocation_time, spec.chunks) = (None, None, None, None),
    }
    Ok(Cow::Owned(spec))
}

/// Errors: a name that no link can have.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::refused(libc::EINVAL, "no link has an empty name")),
        _ if name.contains(&0) => Err(Error::refused(libc::EINVAL, "a link has a name without NUL")),
        _ if name.len() > NAME_MAX => Err(Error::refused(libc::ENAMETOOLONG, "the name is longer than 16 KiB")),
        _ => Ok(()),
    }
}

impl State {
    /// Sets the metadata that makes `id` the dataset of `creation`.
    pub(super) fn put_dataset(&mut self, id: u64, creation: &Creation) -> Result<()> {
        check_layout(creation)?;
        let ctx = &Context::DEFAULT;
        let messages = dataset_messages(ctx, SUPERBLOCK, creation).map_err(refused)?;
        for message in MESSAGES.into_iter().filter(|m| !messages.iter().any(|(kind, ..)| kind == m)) {
            self.remove(keys::header(id, message))?;
        }
        for (message, _, body) in messages {
            if message == kind::DATA_LAYOUT {
                let mut layout = DataLayout::decode(&body, ctx, Address(id))?;
                // Elements are chunks of the map, never part of the message.
                if let Class::Compact { data, .. } = &mut layout.class {
                    data.clear();
                }
                self.put_header(id, message, &layout.encode(ctx)?)?;
            } else {
                self.put_header(id, message, &body)?;
            }
        }
        Ok(())
    }

    /// A new object with one name.
    fn create(&mut self, group: u64, name: &[u8], object_type: u8) -> Result<u64> {
        check_name(name)?;
        self.check_holds_links(group)?;
        if paths::lookup(self, group, name)?.is_some() {
            return Err(Error::refused(libc::EEXIST, "the name is taken"));
        }
        let id = self.new_id()?;
        self.put_header(id, keys::OBJECT_TYPE, &[object_type])?;
        self.put_header(id, kind::MTIME, &times::encode(now()))?;
        self.put_header(id, kind::REFERENCE_COUNT, &merge::encode_link_count(1))?;
        let link = paths::encode_link(name, &LinkTarget::Hard(super::ids::object(id)))?;
        self.put(keys::key(group, keys::LINK, name), &link)?;
        self.touch(group)?;
        Ok(id)
    }

    /// A new group.
    pub(super) fn create_group(&mut self, group: u64, name: &[u8]) -> Result<u64> {
        self.create(group, name, GROUP)
    }

    /// A new dataset.
    pub(super) fn create_dataset(&mut self, group: u64, name: &[u8], creation: &Creation) -> Result<u64> {
        check_layout(creation)?;
        dataset_messages(&Context::DEFAULT, SUPERBLOCK, creation).map_err(refused)?;
        let id = self.create(group, name, DATASET)?;
        self.put_dataset(id, creation)?;
        Ok(id)
    }
}

impl ObjectAccess {
    /// What `spec` makes of the dataset `now`, with the blocks of cells of its fill value. The last
    /// is true if a reference of the fill value names no object, and is nil.
    #[allow(clippy::type_complexity)]
    pub(super) fn planned(&self, state: &State, now: &Now, spec: &DatasetSpec) -> Result<(Creation, Vec<(u64, Vec<u8>)>, bool)> {
        let mut cells = super::cells::NewCells::new(state, true, true);
        let creation = plan(now, converted(spec)?.as_ref(), &mut cells).map_err(refused)?;
        check_layout(&creation)?;
        let nowhere = cells.nowhere.get();
        Ok((creation, cells.into_blocks()?, nowhere))
    }
}
