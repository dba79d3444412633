//! Filters as codecs, for programs that decode stored chunks.
//!
//! | filter | version 3 | version 2 |
//! |---|---|---|
//! | shuffle, deflate, fletcher32, bzip2 | `numcodecs.shuffle`, `.zlib` and so on | `shuffle` ... |
//! | zstd, blosc | `zstd`, `blosc` | `zstd`, `blosc` |
//!
//! The formats of the filters lz4, lzf, bitshuffle and others are not those of codecs.

use super::ZarrFormat;
use crate::connector::FilterSpec;
use crate::present::json::Json;

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
const BZIP2: u16 = 307;
const BLOSC: u16 = 32001;
const ZSTD: u16 = 32015;

/// Compressors inside of blosc, by their number; numcodecs has no snappy.
const BLOSC_COMPRESSORS: [Option<&str>; 6] = [Some("blosclz"), Some("lz4"), Some("lz4hc"), None, Some("zlib"), Some("zstd")];

/// The codecs of a dataset in the order of writing; `None`: not all of its filters are codecs.
pub(super) fn codecs(filters: &[FilterSpec], format: ZarrFormat) -> Option<Vec<Json>> {
    let mut all = Vec::new();
    let mut is_first = true;
    for filter in filters {
        all.extend(codec(filter, is_first, format)?);
        is_first &= filter.id == SHUFFLE;
    }
    Some(all)
}

/// The codec of a filter; none if it leaves the bytes as they are. `is_first`: only filters that
/// keep the number of bytes are before it.
fn codec(filter: &FilterSpec, is_first: bool, format: ZarrFormat) -> Option<Option<Json>> {
    let value = |i: usize| filter.cd_values.get(i).copied();
    let of_numcodecs = |id: &'static str, configuration: Vec<(&'static str, Json)>| match format {
        ZarrFormat::V2 => Json::Object([vec![("id", Json::string(id))], configuration].concat()),
        ZarrFormat::V3 => {
            let name = Json::string(format!("numcodecs.{id}"));
            Json::Object(vec![("name", name), ("configuration", Json::Object(configuration))])
        }
    };
    let of_zarr = |id: &'static str, configuration: Vec<(&'static str, Json)>| match format {
        ZarrFormat::V2 => Json::Object([vec![("id", Json::string(id))], configuration].concat()),
        ZarrFormat::V3 => Json::Object(vec![("name", Json::string(id)), ("configuration", Json::Object(configuration))]),
    };
    Some(Some(match filter.id {
        SHUFFLE => match value(0)? {
            0 | 1 => return Some(None),
            size if is_first => of_numcodecs("shuffle", vec![("elementsize", Json::integer(size))]),
            _ => return None,
        },
        DEFLATE => of_numcodecs("zlib", vec![("level", Json::integer(value(0).unwrap_or(6).min(9)))]),
        FLETCHER32 => of_numcodecs("fletcher32", Vec::new()),
        BZIP2 => of_numcodecs("bz2", vec![("level", Json::integer(value(0).unwrap_or(9).clamp(1, 9)))]),
        ZSTD => {
            // The level is a signed number.
            let level = value(0).map_or(3, |v| v.cast_signed()).clamp(-131_072, 22);
            let checksum = (format == ZarrFormat::V3).then_some(("checksum", Json::Number("false".into())));
            of_zarr("zstd", [("level", Json::integer(level))].into_iter().chain(checksum).collect())
        }
        BLOSC => {
            let name = BLOSC_COMPRESSORS.get(usize::try_from(value(6).unwrap_or(0)).ok()?).copied().flatten()?;
            let mode = value(5).unwrap_or(1).min(2);
            let by_name = ["noshuffle", "shuffle", "bitshuffle"].get(usize::try_from(mode).ok()?).copied()?;
            let typesize = value(2).unwrap_or(1).clamp(1, 255);
            let shuffle = if format == ZarrFormat::V3 { Json::string(by_name) } else { Json::integer(mode) };
            let mut fields = vec![
                ("cname", Json::string(name)),
                ("clevel", Json::integer(value(4).unwrap_or(5).min(9))),
                ("shuffle", shuffle),
                ("blocksize", Json::integer(0)),
            ];
            if format == ZarrFormat::V3 {
                fields.push(("typesize", Json::integer(typesize)));
            }
            of_zarr("blosc", fields)
        }
        _ => return None,
    }))
}

/// True for codecs that version 2 calls compressors; others are filters.
pub(super) fn is_compressor(codec: &Json) -> bool {
    let Json::Object(fields) = codec else { return false };
    let id = fields.iter().find(|(name, _)| *name == "id");
    id.is_some_and(|(_, id)| !["shuffle", "fletcher32"].map(Json::string).contains(id))
}
