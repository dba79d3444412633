//! Filter identifiers, names, decoders and encoders.

use super::{
    FilterError, Params, bitshuffle, blosc, blosc2, bzip2, deflate, fletcher32, lz4, lzf, nbit, scaleoffset, shuffle, snappy, szip, zfp,
    zstd,
};

/// A filter's decoder: stored bytes in, bytes before the filter out.
pub type Decoder = fn(&[u8], &Params<'_>) -> Result<Vec<u8>, FilterError>;

/// A filter's encoder: bytes before the filter in, stored bytes out. Uses only the client data of
/// [`Params`].
///
/// `None`: the filter declines (the bytes do not shrink); a chunk is then stored without it if it
/// is optional.
pub type Encoder = fn(&[u8], &Params<'_>) -> Result<Option<Vec<u8>>, FilterError>;

/// Identifier of the deflate filter.
pub const DEFLATE: u16 = 1;
/// Identifier of the shuffle filter.
pub const SHUFFLE: u16 = 2;
/// Identifier of the fletcher32 filter.
pub const FLETCHER32: u16 = 3;

/// Returns the decoder of filter `id`, if implemented.
pub fn decoder(id: u16) -> Option<Decoder> {
    Some(match id {
        DEFLATE => deflate::decode,
        SHUFFLE => shuffle::decode,
        FLETCHER32 => fletcher32::decode,
        4 => szip::decode,
        5 => nbit::decode,
        6 => scaleoffset::decode,
        307 => bzip2::decode,
        32000 => lzf::decode,
        32001 => blosc::decode,
        32003 => snappy::decode,
        32004 => lz4::decode,
        32008 => bitshuffle::decode,
        32013 => zfp::decode,
        32015 => zstd::decode,
        32026 => blosc2::decode,
        _ => return None,
    })
}

/// Returns the encoder of filter `id`, if implemented.
pub fn encoder(id: u16) -> Option<Encoder> {
    Some(match id {
        DEFLATE => deflate::encode,
        SHUFFLE => shuffle::encode,
        FLETCHER32 => fletcher32::encode,
        4 => szip::encode,
        5 => nbit::encode,
        6 => scaleoffset::encode,
        307 => bzip2::encode,
        32000 => lzf::encode,
        32001 => blosc::encode,
        32003 => snappy::encode,
        32004 => lz4::encode,
        32008 => bitshuffle::encode,
        32013 => zfp::encode,
        32015 => zstd::encode,
        32026 => blosc2::encode,
        _ => return None,
    })
}

/// True if filter `id` is implemented and its decoder returns the encoded bytes. N-Bit drops bits
/// outside the precision; scale-offset and zfp round.
pub fn is_lossless(id: u16) -> bool {
    !matches!(id, 5 | 6 | 32013) && encoder(id).is_some()
}

/// Returns the name of filter `id` in libhdf5 and The HDF Group's registry
/// (RegisteredFilterPlugins.md).
pub fn name_of(id: u16) -> &'static str {
    match id {
        1 => "deflate",
        2 => "shuffle",
        3 => "fletcher32",
        4 => "szip",
        5 => "nbit",
        6 => "scaleoffset",
        257 => "hzip",
        258 | 32014 => "fpzip",
        305 => "lzo",
        306 => "ucl",
        307 => "bzip2",
        32000 => "lzf",
        32001 => "blosc",
        32002 => "mafisc",
        32003 => "snappy",
        32004 => "lz4",
        32005 => "apax",
        32006 => "cbf",
        32007 => "jpeg-xr",
        32008 => "bitshuffle",
        32009 => "spdp",
        32010 => "lpc-rice",
        32011 => "ccsds-123",
        32012 => "jpeg-ls",
        32013 => "zfp",
        32015 => "zstd",
        32016 => "b3d",
        32017 => "sz",
        32018 => "fcidecomp",
        32019 => "jpeg",
        32020 => "vbz",
        32021 => "fapec",
        32022 => "bitgroom",
        32023 => "granular bitround",
        32024 => "sz3",
        32025 => "delta-rice",
        32026 => "blosc2",
        32027 => "flac",
        32028 => "sperr",
        32029 => "terse/prolix",
        32030 => "ffmpeg",
        32031 => "jpeg2000",
        32032 => "bitround",
        256..=511 => "testing",
        32768.. => "private",
        _ => "unregistered",
    }
}
