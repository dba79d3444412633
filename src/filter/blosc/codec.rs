//! The general-purpose codecs of the streams inside Blosc, Blosc2 and bitshuffle chunks.

use super::lz;
use crate::filter::{FilterError, Params, deflate, zstd as zstd_filter};

/// Codec of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::filter) enum Codec {
    /// Blosc's own LZ77.
    BloscLz,
    /// LZ4 block (LZ4HC writes the same format).
    Lz4,
    /// Snappy raw block.
    Snappy,
    /// zlib stream.
    Zlib,
    /// Zstandard frame.
    Zstd,
}

impl Codec {
    /// Compresses one stream. `level` is the codec's own; only zlib and Zstandard use it.
    pub(in crate::filter) fn compress(self, input: &[u8], level: i32) -> Result<Vec<u8>, FilterError> {
        match self {
            Codec::BloscLz => Ok(lz::compress(input)),
            Codec::Lz4 => Ok(lz4_flex::block::compress(input)),
            Codec::Snappy => snap::raw::Encoder::new().compress_vec(input).map_err(|e| FilterError::corrupt("snappy", e.to_string())),
            Codec::Zlib => {
                let level = u32::try_from(level).unwrap_or(0).min(9);
                let p = Params { cd_values: &[level], expected: input.len(), limit: usize::MAX };
                Ok(deflate::encode(input, &p)?.unwrap_or_default())
            }
            Codec::Zstd => {
                let mut out = vec![0; zstd::zstd_safe::compress_bound(input.len())];
                let len = zstd_filter::compress_into(input, &mut out, level)?;
                out.truncate(len);
                Ok(out)
            }
        }
    }
}

/// Decoder of streams of one codec; reuses its state.
pub(in crate::filter) struct Streams<'a> {
    codec: Codec,
    dictionary: Option<&'a [u8]>,
    zstd: Option<zstd::bulk::Decompressor<'a>>,
}

impl<'a> Streams<'a> {
    /// A decoder of streams of `codec`.
    pub(in crate::filter) fn new(codec: Codec, dictionary: Option<&'a [u8]>) -> Self {
        Streams { codec, dictionary, zstd: None }
    }

    /// Decompresses one stream into all of `out`; false if it is invalid or has another length.
    pub(in crate::filter) fn decompress(&mut self, input: &[u8], out: &mut [u8]) -> bool {
        let length = out.len();
        let got = match self.codec {
            Codec::BloscLz => return lz::decompress(input, out),
            Codec::Lz4 => match self.dictionary {
                Some(d) => lz4_flex::block::decompress_into_with_dict(input, out, d).ok(),
                None => lz4_flex::block::decompress_into(input, out).ok(),
            },
            Codec::Snappy => snap::raw::Decoder::new().decompress(input, out).ok(),
            Codec::Zlib => inflate(input, out),
            Codec::Zstd => self.zstd().and_then(|z| z.decompress_to_buffer(input, out).ok()),
        };
        got == Some(length)
    }

    fn zstd(&mut self) -> Option<&mut zstd::bulk::Decompressor<'a>> {
        if self.zstd.is_none() {
            self.zstd = match self.dictionary {
                Some(d) => zstd::bulk::Decompressor::with_dictionary(d),
                None => zstd::bulk::Decompressor::new(),
            }
            .ok();
        }
        self.zstd.as_mut()
    }
}

fn inflate(input: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut state = flate2::Decompress::new(true);
    match state.decompress(input, out, flate2::FlushDecompress::Finish) {
        Ok(flate2::Status::StreamEnd) => usize::try_from(state.total_out()).ok(),
        _ => None,
    }
}
