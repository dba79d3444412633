//! `.h5dir/kerchunk.json`: where the chunks of the mounted group are in its file, as references of
//! fsspec.
//!
//! The text is made as it is read, and the page cache is bypassed.

use super::bytes::Bytes;
use super::context::Context;
use super::view::{Class, Inode, Item, View};
use super::zarr::name_of_node;
use crate::base::escape::escaped_bytes;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::{Connector, ObjectId};
use crate::present::References;
use std::sync::Arc;

/// Most bytes of text that are made for one request.
const AHEAD_MAX: u64 = 64 << 20;

/// See the module's description.
pub struct Kerchunk;

impl View for Kerchunk {
    fn name(&self) -> &'static str {
        "kerchunk.json"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("kerchunk.json", "where chunks are in the file, for fsspec and xarray")
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Item::part_of(self, Class::File, group, b"")
    }

    /// Places of chunks that are not committed yet change.
    fn is_shown(&self, cx: &Context<'_>) -> bool {
        !cx.changing && cx.connector.location().is_some()
    }

    fn follows_names(&self) -> bool {
        false
    }

    /// It has the paths of all objects, and elements of some.
    fn is_private(&self) -> bool {
        true
    }

    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let (Some(group), Some(url)) = (inode.item().owner, cx.connector.location()) else { return Ok(None) };
        Ok(Some(Box::new(Text { connector: cx.connector.clone(), group, url, progress: Mutex::new(None) })))
    }
}

/// The text of references, made as it is read.
struct Text {
    connector: Arc<dyn Connector>,
    group: ObjectId,
    url: Vec<u8>,
    progress: Mutex<Option<Progress>>,
}

/// How far the text was made.
struct Progress {
    references: References,
    /// First byte of the last piece.
    start: u64,
    piece: Vec<u8>,
}

impl Text {
    /// Makes the next piece. False: there is none.
    fn advance(progress: &mut Progress) -> Result<bool> {
        let Some(piece) = progress.references.next_piece()? else { return Ok(false) };
        progress.start = progress.start.saturating_add(progress.piece.len() as u64);
        progress.piece = piece;
        for left in progress.references.left_out.drain(..).filter(|left| left.is_failure) {
            tracing::warn!("left out of kerchunk.json: {}: {}", escaped_bytes(&left.path), left.reason);
        }
        Ok(true)
    }
}

impl Bytes for Text {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut kept = self.progress.lock();
        // A read of what is gone begins again.
        if kept.as_ref().is_none_or(|progress| offset < progress.start) {
            let references = References::new(self.connector.clone(), self.group, self.url.clone(), name_of_node);
            *kept = Some(Progress { references, start: 0, piece: Vec::new() });
        }
        let Some(progress) = kept.as_mut() else { return Ok(0) };
        let (mut done, from) = (0usize, progress.start);
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let skip = usize::try_from(at.saturating_sub(progress.start)).unwrap_or(usize::MAX);
            let part = progress.piece.get(skip..).unwrap_or_default();
            let n = part.len().min(rest.len());
            rest.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            done = done.saturating_add(n);
            if n == 0 && !Self::advance(progress)? {
                break;
            }
            if progress.start.saturating_sub(from) > AHEAD_MAX && done == 0 {
                return Err(Error::refused(libc::EFBIG, "the text is made from its begin on; read all of it"));
            }
        }
        Ok(done)
    }

    /// Errors: `EINVAL`, it is known at the end only.
    fn size(&self) -> Result<u64> {
        Err(Error::refused(libc::EINVAL, "the size of the text is not known"))
    }
}
