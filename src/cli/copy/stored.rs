//! Moves stored chunks between containers, or has one refer to those of another: nothing is
//! decoded, the bytes stay the same.
//!
//! A thread reads the next chunks while those before them are stored.

use super::sink::SinkFile;
use crate::base::Result;
use crate::cli::process;
use crate::cli::side::container::ObjectSource;
use crate::fs::model::{StoredChunk, StoredSource, io_error};
use std::io;
use std::sync::mpsc;

/// Bytes of chunks that are read at once, about.
const BATCH_BYTES: u64 = 16 << 20;

/// Moves the chunks of `from` to `to`, or with `link` has it refer to them. Calls `progress` with
/// the number of bytes after each batch. False: the elements are to be copied, all of them.
pub(super) fn copy(from: &ObjectSource, to: &mut dyn SinkFile, link: bool, progress: &mut dyn FnMut(u64)) -> io::Result<bool> {
    if !to.may_take_chunks(from) {
        return Ok(false);
    }
    let Some(source) = from.stored_chunks(link)? else { return Ok(false) };
    let original = if link { source.original() } else { None };
    if !to.takes_chunks(source.storage())? {
        return Ok(false);
    }
    let mut store = |chunks: &[StoredChunk]| -> io::Result<bool> {
        if process::is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let stored = to.store_chunks(source.storage(), chunks, original.as_ref())?;
        if stored {
            progress(chunks.iter().fold(0u64, |n, chunk| n.saturating_add(chunk.bytes.len() as u64)));
        }
        Ok(stored)
    };
    let first = source.next(None, BATCH_BYTES).map_err(|e| io_error(&e))?;
    let Some(last) = last(&first) else { return Ok(true) };
    if !store(&first)? {
        return Ok(false);
    }
    drop(first);
    // Most datasets have one batch: no thread is started for them.
    let second = source.next(Some(&last), BATCH_BYTES).map_err(|e| io_error(&e))?;
    if second.is_empty() {
        return Ok(true);
    }
    std::thread::scope(|scope| {
        let (sender, batches) = mpsc::sync_channel(1);
        let source = &source;
        scope.spawn(move || read(source, second, &sender));
        for batch in batches {
            if !store(&batch.map_err(|e| io_error(&e))?)? {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Sends `batch` and all batches after it, until the receiver is gone.
fn read(source: &StoredSource, batch: Vec<StoredChunk>, batches: &mpsc::SyncSender<Result<Vec<StoredChunk>>>) {
    let mut batch = Ok(batch);
    loop {
        let after = match &batch {
            Ok(chunks) => last(chunks),
            Err(_) => None,
        };
        let ends = batch.is_ok() && after.is_none();
        if ends || batches.send(batch).is_err() {
            return;
        }
        let Some(after) = after else { return };
        batch = source.next(Some(&after), BATCH_BYTES);
    }
}

/// Coordinates of the last chunk.
fn last(chunks: &[StoredChunk]) -> Option<Vec<u64>> {
    chunks.last().map(|chunk| chunk.scaled.clone())
}
