//! Copies the bytes of a file: data only, holes stay holes.

use super::sink::SinkFile;
use crate::cli::process;
use crate::cli::side::{Content, PIECE_BYTES};
use std::io;

/// Longest range of stored chunks that one call copies, bytes.
const RANGE_BYTES: u64 = 64 << 20;

/// Copies `from` into `to`. Calls `progress` with the number of bytes after each piece. The buffer
/// `piece` is reused.
pub(super) fn copy(from: &mut dyn Content, to: &mut dyn SinkFile, piece: &mut Vec<u8>, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    piece.resize(PIECE_BYTES, 0);
    let (mut at, mut skips) = (0, true);
    'ranges: while let Some(range) = from.data(at)? {
        at = range.start;
        while at < range.end {
            // A fill value that the destination has, too, is not copied.
            let unwritten = if skips { from.written(at)?.map_or(range.end, |written| written.start.min(range.end)) } else { at };
            if unwritten.saturating_sub(at) > piece.len() as u64 {
                let n = from.read(at, piece)?;
                skips = to.is_unwritten(at..unwritten, piece.get(..n).unwrap_or_default())?;
                if skips {
                    at = unwritten;
                    continue;
                }
            }
            if process::is_interrupted() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let stored = match from.as_object() {
                Some(object) => to.copy_range(object, at..range.end.min(at.saturating_add(RANGE_BYTES)))?,
                None => 0,
            };
            if stored > 0 {
                at = at.saturating_add(stored);
                progress(stored);
                continue;
            }
            let most = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
            let n = from.read(at, piece.get_mut(..most).unwrap_or_default())?;
            to.write(at, piece.get(..n).unwrap_or_default())?;
            at = at.saturating_add(n as u64);
            progress(n as u64);
            if n < most {
                break 'ranges;
            }
        }
    }
    to.set_size(from.size()?.max(at))
}
