//! A text of unknown length as the bytes of a file, read at any offset.
//!
//! First rows and offsets of blocks are noted as far as the text was made. A read beyond that makes
//! the text up to there, if that is not far.

use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use std::sync::Arc;

/// Most bytes that are made for one request.
const AHEAD_MAX: u64 = 64 << 20;

/// Makes blocks of a text.
pub(super) trait Blocks: Send + Sync {
    /// The block that begins with `row`, and the row after it. `starts` has the first byte and the
    /// first row of each block up to this one.
    fn make(&self, row: u64, starts: &[(u64, u64)]) -> Result<(Vec<u8>, u64)>;

    /// True if the text ends before `row`.
    fn is_end(&self, row: u64) -> bool;
}

/// The text that `B` makes.
pub(super) struct BlockText<B> {
    pub(super) source: B,
    progress: Mutex<Progress>,
}

/// How far the text was made.
struct Progress {
    /// First byte and first row of each block, and of the one that is made next.
    starts: Vec<(u64, u64)>,
    /// The block that was made last.
    block: Option<(usize, Arc<Vec<u8>>)>,
    /// The last of `starts` is the end.
    ended: bool,
}

impl<B: Blocks> BlockText<B> {
    /// The text of `source`, which has at least one block.
    pub(super) fn new(source: B) -> Self {
        BlockText { source, progress: Mutex::new(Progress { starts: vec![(0, 0)], block: None, ended: false }) }
    }

    /// The block that has byte `offset`, and its first byte; `None`: the text ends before it, or
    /// the container changed and it is shorter than it was.
    fn block_at(&self, offset: u64) -> Result<Option<(u64, Arc<Vec<u8>>)>> {
        let mut progress = self.progress.lock();
        let made = |progress: &Progress| progress.starts.last().map_or(0, |(end, _)| *end);
        let before = made(&progress);
        loop {
            if made(&progress).saturating_sub(before) > AHEAD_MAX {
                let reason = format!("no text was made up to byte {offset}; read on from byte {before}, or from one near to it");
                return Err(Error::refused(libc::EFBIG, reason));
            }
            let number = progress.starts.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
            let (start, row) = progress.starts.get(number).copied().unwrap_or_default();
            let is_new = number.saturating_add(1) == progress.starts.len();
            if is_new && progress.ended {
                return Ok(None);
            }
            let made = progress.block.as_ref().filter(|(made, _)| *made == number).map(|(_, text)| text.clone());
            let text = match made {
                Some(text) => text,
                None => {
                    let before = progress.starts.get(..=number).unwrap_or_default();
                    let (text, next) = self.source.make(row, before)?;
                    if is_new {
                        progress.starts.push((start.saturating_add(text.len() as u64), next));
                        progress.ended = self.source.is_end(next);
                    }
                    Arc::new(text)
                }
            };
            progress.block = Some((number, text.clone()));
            if offset < start.saturating_add(text.len() as u64) {
                return Ok(Some((start, text)));
            }
            if !is_new {
                return Ok(None);
            }
        }
    }

    /// Fills the front of `buf` from `offset`; fewer bytes only at the end.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let Some((start, text)) = self.block_at(at)? else { break };
            let part = usize::try_from(at.saturating_sub(start)).ok().and_then(|skip| text.get(skip..)).unwrap_or_default();
            let n = part.len().min(rest.len());
            rest.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            done = done.saturating_add(n);
            if n == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Makes the text until its end is known, or it has `most` bytes.
    pub(super) fn make_up_to(&self, most: u64) -> Result<()> {
        self.block_at(most).map(drop)
    }

    /// Size of a text that was made to its end, bytes.
    pub(super) fn known_size(&self) -> Option<u64> {
        let progress = self.progress.lock();
        progress.starts.last().filter(|_| progress.ended).map(|(end, _)| *end)
    }
}
