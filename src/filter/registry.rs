//! The filters: one row each, with identifier, names, decoder and encoder.

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
/// Identifiers from this one on are not libhdf5's own; messages have the names of those alone.
pub const RESERVED: u16 = 256;

/// A filter of libhdf5, or of The HDF Group's registry (RegisteredFilterPlugins.md).
struct Filter {
    id: u16,
    /// Registered name.
    name: &'static str,
    /// Other names in use.
    other_names: &'static [&'static str],
    /// Name that the filter's plugin stores in the pipeline message; empty: none.
    stored_name: &'static str,
    codec: Option<Codec>,
}

/// An implemented filter.
struct Codec {
    decode: Decoder,
    encode: Encoder,
    /// Encodes what `encode` declines, for pipelines that cannot do without the filter.
    store: Option<Encoder>,
    /// The decoder returns the encoded bytes.
    is_lossless: bool,
}

const fn lossless(decode: Decoder, encode: Encoder) -> Option<Codec> {
    Some(Codec { decode, encode, store: None, is_lossless: true })
}

/// A lossless filter that stores what does not shrink.
const fn storing(decode: Decoder, encode: Encoder, store: Encoder) -> Option<Codec> {
    Some(Codec { decode, encode, store: Some(store), is_lossless: true })
}

/// N-Bit drops bits outside the precision; scale-offset and zfp round.
const fn lossy(decode: Decoder, encode: Encoder) -> Option<Codec> {
    Some(Codec { decode, encode, store: None, is_lossless: false })
}

const fn implemented(id: u16, name: &'static str, stored_name: &'static str, codec: Option<Codec>) -> Filter {
    Filter { id, name, other_names: &[], stored_name, codec }
}

const fn known(id: u16, name: &'static str) -> Filter {
    Filter { id, name, other_names: &[], stored_name: "", codec: None }
}

impl Filter {
    const fn also(self, other_names: &'static [&'static str]) -> Filter {
        Filter { other_names, ..self }
    }
}

const LZ4_NAME: &str = "HDF5 lz4 filter; see https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md";
const ZSTD_NAME: &str = "HDF5 zstd filter; see https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md";
const BITSHUFFLE_NAME: &str = "bitshuffle; see https://github.com/kiyo-masui/bitshuffle";

/// All filters, ascending by identifier.
static FILTERS: &[Filter] = &[
    implemented(DEFLATE, "deflate", "deflate", lossless(deflate::decode, deflate::encode)).also(&["gzip", "zlib"]),
    implemented(SHUFFLE, "shuffle", "shuffle", lossless(shuffle::decode, shuffle::encode)),
    implemented(FLETCHER32, "fletcher32", "fletcher32", lossless(fletcher32::decode, fletcher32::encode)),
    implemented(4, "szip", "szip", lossless(szip::decode, szip::encode)),
    implemented(5, "nbit", "nbit", lossy(nbit::decode, nbit::encode)),
    implemented(6, "scaleoffset", "scaleoffset", lossy(scaleoffset::decode, scaleoffset::encode)).also(&["scale-offset", "scale_offset"]),
    known(257, "hzip"),
    known(258, "fpzip"),
    known(305, "lzo"),
    known(306, "ucl"),
    implemented(307, "bzip2", "bzip2", lossless(bzip2::decode, bzip2::encode)).also(&["bz2"]),
    implemented(32000, "lzf", "lzf", lossless(lzf::decode, lzf::encode)),
    implemented(32001, "blosc", "blosc", storing(blosc::decode, blosc::encode, blosc::store)),
    known(32002, "mafisc"),
    implemented(32003, "snappy", "", lossless(snappy::decode, snappy::encode)),
    implemented(32004, "lz4", LZ4_NAME, lossless(lz4::decode, lz4::encode)),
    known(32005, "apax"),
    known(32006, "cbf"),
    known(32007, "jpeg-xr"),
    implemented(32008, "bitshuffle", BITSHUFFLE_NAME, lossless(bitshuffle::decode, bitshuffle::encode)).also(&["bshuf"]),
    known(32009, "spdp"),
    known(32010, "lpc-rice"),
    known(32011, "ccsds-123"),
    known(32012, "jpeg-ls"),
    implemented(32013, "zfp", "", lossy(zfp::decode, zfp::encode)),
    known(32014, "fpzip"),
    implemented(32015, "zstd", ZSTD_NAME, lossless(zstd::decode, zstd::encode)).also(&["zstandard"]),
    known(32016, "b3d"),
    known(32017, "sz"),
    known(32018, "fcidecomp"),
    known(32019, "jpeg"),
    known(32020, "vbz"),
    known(32021, "fapec"),
    known(32022, "bitgroom"),
    known(32023, "granular bitround"),
    known(32024, "sz3"),
    known(32025, "delta-rice"),
    implemented(32026, "blosc2", "blosc2", lossless(blosc2::decode, blosc2::encode)),
    known(32027, "flac"),
    known(32028, "sperr"),
    known(32029, "terse/prolix"),
    known(32030, "ffmpeg"),
    known(32031, "jpeg2000"),
    known(32032, "bitround"),
];

fn filter(id: u16) -> Option<&'static Filter> {
    FILTERS.binary_search_by_key(&id, |filter| filter.id).ok().and_then(|at| FILTERS.get(at))
}

/// Returns the decoder of filter `id`, if implemented.
pub fn decoder(id: u16) -> Option<Decoder> {
    filter(id)?.codec.as_ref().map(|codec| codec.decode)
}

/// Returns the encoder of filter `id`, if implemented.
pub fn encoder(id: u16) -> Option<Encoder> {
    filter(id)?.codec.as_ref().map(|codec| codec.encode)
}

/// Returns what encodes the bytes that the encoder of filter `id` declines, if there is such a
/// form.
pub fn storing_encoder(id: u16) -> Option<Encoder> {
    filter(id)?.codec.as_ref()?.store
}

/// True if filter `id` is implemented and its decoder returns the encoded bytes.
pub fn is_lossless(id: u16) -> bool {
    filter(id).and_then(|filter| filter.codec.as_ref()).is_some_and(|codec| codec.is_lossless)
}

/// The registered name of filter `id`.
pub fn registered_name(id: u16) -> Option<&'static str> {
    filter(id).map(|filter| filter.name)
}

/// The name of filter `id`; of one that is not registered, what its identifier says.
pub fn name_of(id: u16) -> &'static str {
    registered_name(id).unwrap_or(match id {
        RESERVED..=511 => "testing",
        32768.. => "private",
        _ => "unregistered",
    })
}

/// The name of filter `id` that a pipeline message has; empty for filters that are not known.
pub fn stored_name(id: u16) -> &'static str {
    filter(id).map_or("", |filter| filter.stored_name)
}

/// The identifier of the filter with this name, registered or in use, in lower case.
pub fn id_of(name: &str) -> Option<u16> {
    FILTERS.iter().find(|filter| filter.name == name || filter.other_names.contains(&name)).map(|filter| filter.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ascend_and_names_are_found() {
        assert!(FILTERS.is_sorted_by(|a, b| a.id < b.id));
        for filter in FILTERS {
            let first = FILTERS.iter().find(|other| other.name == filter.name).unwrap();
            assert_eq!((id_of(filter.name), name_of(filter.id)), (Some(first.id), filter.name));
            assert_eq!(filter.name, filter.name.to_ascii_lowercase());
        }
        assert_eq!((id_of("gzip"), id_of("bshuf"), id_of("fpzip"), id_of("testing")), (Some(1), Some(32008), Some(258), None));
        assert_eq!([300, 511, 40000, 7, 600].map(name_of), ["testing", "testing", "private", "unregistered", "unregistered"]);
    }

    #[test]
    fn what_rounds_is_not_lossless() {
        let lossless: Vec<u16> = FILTERS.iter().map(|filter| filter.id).filter(|id| is_lossless(*id)).collect();
        assert_eq!(lossless, [1, 2, 3, 4, 307, 32000, 32001, 32003, 32004, 32008, 32015, 32026]);
        assert!(decoder(5).is_some() && encoder(32013).is_some() && decoder(257).is_none() && decoder(9).is_none());
    }
}
