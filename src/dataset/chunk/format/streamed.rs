//! Filtered chunks too large for memory: decoded to and encoded from temporary files.
//!
//! Pipelines that end in deflate run piece by piece; other pipelines need the whole chunk in
//! memory.

use super::filtered_chunk::Filtered;
use super::traits::{Large, LargeReader, READ_AHEAD_CHUNK_MAX_BYTES, check_stored, encode_whole, refuse};
use crate::base::{Address, Error, Result, limits};
use crate::dataset::chunk::LARGE_DATA;
use crate::dataset::chunk::chunk_files::{ChunkFile, FilePlace, StreamPlan};
use crate::dataset::chunk::dirty_file::{DirtyFile, Stored};
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::filter::FilterError;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Chunks up to this size are decoded in memory whatever the cache size, bytes.
const WHOLE_CHUNK_MIN_BYTES: u64 = READ_AHEAD_CHUNK_MAX_BYTES;
/// Chunks up to this size are inflated to a temporary file whatever the cache size, bytes.
const STREAMED_CHUNK_MIN_BYTES: u64 = 2 << 30;
/// Chunks up to this size are decoded whole in memory if their filters need it, bytes.
const INDIVISIBLE_CHUNK_MAX_BYTES: u64 = 2 << 30;
/// Largest compression ratio at which a chunk may occupy a large part of the cache.
const COMPRESSION_RATIO_MAX: u64 = 64;

/// How chunks are encoded from temporary files.
#[derive(Debug, Clone, Copy)]
pub(super) enum Encoding {
    /// Piece by piece.
    InPieces(StreamPlan),
    /// Whole in memory, as the filters require.
    Whole,
}

/// Chooses how chunks are encoded from temporary files. `None`: chunks of this size cannot be
/// encoded or could not be decoded again.
pub(super) fn encoding(format: &Filtered, env: &Environment) -> Option<Encoding> {
    let bytes = format.chunk_bytes;
    let most = env.chunk_files.capacity().min(limits::CHUNK_BYTES_MAX);
    match StreamPlan::of(&format.pipeline, 0, bytes).filter(StreamPlan::encodes) {
        Some(plan) => (bytes <= STREAMED_CHUNK_MIN_BYTES.max(env.cache.budget()).min(most)).then_some(Encoding::InPieces(plan)),
        None => (bytes <= env.whole_chunk_max().min(most)).then_some(Encoding::Whole),
    }
}

/// Encodes a chunk from a temporary file.
pub(super) fn encode(format: &Filtered, env: &Environment, file: &DirtyFile) -> Result<Stored> {
    let how = encoding(format, env)
        .ok_or_else(|| refuse(&FilterError::unsupported("pipeline", "chunks of this size cannot be encoded from a file")))?;
    env.streamed.fetch_add(1, Ordering::Relaxed);
    match how {
        Encoding::InPieces(plan) => file.encode(plan),
        Encoding::Whole => {
            // Memory for the chunk and for its encoded form.
            let _permit = env.decoding.enter(format.chunk_bytes.saturating_mul(2));
            file.encode_whole(|bytes| encode_whole(&format.pipeline, bytes))
        }
    }
}

/// Why a chunk of `bytes` bytes is not decoded to a temporary file.
pub(crate) fn no_room(bytes: u64) -> String {
    format!("chunks of {bytes} bytes need as much free space in $TMPDIR")
}

/// Opens a chunk that is too large to be decoded in memory. `None`: it is small enough.
///
/// Chunks above half of the cache are too large, or above a sixteenth if compressed more than 1:64;
/// chunks up to [`WHOLE_CHUNK_MIN_BYTES`] never are.
pub(super) fn open<'a>(format: &'a Filtered, reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
    let LargeReader { env, key, record, .. } = reader;
    let (bytes, budget) = (format.chunk_bytes, env.cache.budget());
    let part = if record.size.saturating_mul(COMPRESSION_RATIO_MAX) >= bytes { 2 } else { 16 };
    if bytes <= WHOLE_CHUNK_MIN_BYTES.max(budget / part) {
        return Ok(None);
    }
    let skipped = |i: usize| u32::try_from(i).ok().and_then(|i| record.filter_mask().checked_shr(i)).unwrap_or(0) & 1 != 0;
    if record.size == bytes && (0..format.pipeline.filters.len()).all(skipped) {
        return Ok(Some(Large::Direct(record)));
    }
    let refused = |need: u64| {
        let detail = format!("chunks of {bytes} bytes are too large for the caches: use a --cache-size of {need}");
        Err(Error::limit(LARGE_DATA, record.address, detail))
    };
    let Some(plan) = StreamPlan::of(&format.pipeline, record.filter_mask(), bytes) else {
        let (most, times) = if part == 2 { (INDIVISIBLE_CHUNK_MAX_BYTES, 2) } else { (env.whole_chunk_max(), 4) };
        if bytes > most {
            return refused(bytes.saturating_mul(times));
        }
        if bytes > env.chunk_files.capacity() {
            return Ok(None);
        }
        let place = env.chunk_files.place(key, bytes);
        return Ok(Some(in_file(place, move || decode_to_file(format, reader))));
    };
    if bytes > STREAMED_CHUNK_MIN_BYTES.max(budget) {
        return refused(bytes);
    }
    if bytes > env.chunk_files.capacity() {
        // There is no room for a temporary file.
        return if bytes <= env.whole_chunk_max() { Ok(None) } else { Err(Error::limit(LARGE_DATA, record.address, no_room(bytes))) };
    }
    inflate(format, reader, plan).map(Some)
}

/// The chunk at `place`, which `make` decodes if no thread did.
fn in_file<'a>(place: FilePlace, make: impl FnOnce() -> Result<ChunkFile> + Send + 'a) -> Large<'a> {
    match place.made() {
        Some(Ok(file)) => Large::Made(file),
        _ => Large::File(Box::new(move || place.file(make))),
    }
}

/// Decodes a chunk in memory and writes it to a temporary file, so that later rows need not decode
/// it.
fn decode_to_file(format: &Filtered, reader: LargeReader<'_>) -> Result<ChunkFile> {
    let LargeReader { env, source, record, .. } = reader;
    let weight = format.chunk_bytes.saturating_mul(2).saturating_add(record.size);
    let _permit = env.decoding.enter(weight);
    env.share_temporary_space(0);
    env.cache.counters.decodes.fetch_add(1, Ordering::Relaxed);
    let image = format.decode_filtered(source, record)?;
    ChunkFile::from_decoded(image.dense().unwrap_or_default(), record.address)
}

/// Inflates a stored chunk into a temporary file that its readers share.
fn inflate<'a>(format: &'a Filtered, reader: LargeReader<'a>, plan: StreamPlan) -> Result<Large<'a>> {
    let LargeReader { env, source, key, record, .. } = reader;
    let bytes = format.chunk_bytes;
    check_stored(source, bytes, record, record.size)?;
    let place = env.chunk_files.place(key, bytes);
    let make = move || {
        env.share_temporary_space(0);
        env.cache.counters.decodes.fetch_add(1, Ordering::Relaxed);
        let mut read = |from: u64, buf: &mut [u8]| source.read(record.address.checked_add(from).unwrap_or(Address::UNDEF), buf);
        ChunkFile::inflate(plan, bytes, record.size, &mut read, record.address)
    };
    Ok(in_file(place, make))
}

/// Decodes a stored chunk into a new temporary file, to be changed there.
pub(super) fn to_file(format: &Filtered, reader: LargeReader<'_>) -> Result<DirtyFile> {
    let LargeReader { env, source, record, .. } = reader;
    let len = format.chunk_bytes;
    env.share_temporary_space(len);
    let large = match StreamPlan::of(&format.pipeline, record.filter_mask(), len) {
        Some(plan) => Some(inflate(format, reader, plan)?),
        None => open(format, reader)?,
    };
    let zeros = FillPattern::zero();
    let copied = |chunk: Arc<ChunkFile>| DirtyFile::filled(len, &zeros, len, &mut |at, buf| chunk.read(at, buf));
    match large {
        Some(Large::Made(chunk)) => copied(chunk),
        Some(Large::File(decode)) => copied(decode()?),
        Some(Large::Direct(record)) => {
            DirtyFile::filled(len, &zeros, len, &mut |at, buf| source.read(record.address.checked_add(at).unwrap_or(Address::UNDEF), buf))
        }
        None => {
            let file = DirtyFile::new(len)?;
            file.write(0, format.decode_filtered(source, record)?.dense().unwrap_or_default())?;
            Ok(file)
        }
    }
}
