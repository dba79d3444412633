//! Files of a dataset's elements: what the views of datasets have in common.

use super::context::{Context, Effects};
use super::view::{Extent, Inode};
use crate::base::Result;
use crate::connector::{Form, ObjectId, Seek};
use crate::fs::types::{Errno, FsResult};

/// Size and storage of the elements of `id` in `form`.
pub fn dataset_extent(cx: &Context<'_>, id: ObjectId, form: Form) -> Result<Extent> {
    let content = cx.connector.glance(id, form)?;
    let size = content.size()?;
    // Of a damaged chunk index the chunks that it still leads to can be read.
    let allocated = content.allocated().unwrap_or_else(|e| {
        cx.host.failed(Some(id), &e);
        0
    });
    // Programs take a file without blocks for one hole, without asking (`tar -S`): it would lose a
    // fill value that is not zero.
    let has_data = || content.seek(0, Seek::Data).is_ok_and(|at| at == Some(0));
    let allocated = if allocated == 0 && size > 0 && has_data() { 1 } else { allocated };
    Ok(Extent { size, allocated, block_size: content.block_size() })
}

/// Size of the dataset of `inode` in `form`, bytes.
pub fn dataset_size(cx: &Context<'_>, inode: &dyn Inode, form: Form) -> FsResult<u64> {
    let id = inode.item().dataset().ok_or(Errno(libc::EACCES))?;
    cx.connector.content(id, form).and_then(|c| c.size()).map_err(|e| cx.host.failed(Some(id), &e))
}

/// Sets the size of the dataset of `inode`, given in `form`.
pub fn dataset_resize(cx: &Context<'_>, inode: &dyn Inode, form: Form, size: u64) -> FsResult<Effects> {
    let id = inode.item().dataset().ok_or(Errno(libc::EACCES))?;
    let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
    dataset_write(cx, id, edit.set_size_as(id, form, size))
}

/// The result of a change of the bytes of `id`.
pub fn dataset_write(cx: &Context<'_>, id: ObjectId, done: Result<()>) -> FsResult<Effects> {
    done.map(|()| Effects::changed(id)).map_err(|e| cx.host.refused(Some(id), &e))
}
