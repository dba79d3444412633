//! The first byte chooses a structure, the rest is its bytes: decoders must fail or succeed, never panic.
#![no_main]

use h5dir::base::Address;
use h5dir::filter::{Params, registry};
use h5dir::format::message::{attribute, data_layout, dataspace, datatype, fill_value, filter_pipeline, link};
use h5dir::format::{Context, Reader, object_header::Prefix, superblock::Superblock};
use libfuzzer_sys::fuzz_target;

const FILTERS: [u16; 14] = [1, 2, 3, 4, 5, 6, 307, 32000, 32001, 32003, 32004, 32008, 32015, 32026];

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    let (at, ctx) = (Address(64), &Context::DEFAULT);
    match which {
        0 => drop(Superblock::decode(bytes, at)),
        1 => drop(Prefix::decode(bytes, at).and_then(|p| p.decode_chunk0(bytes, at))),
        2 => drop(datatype::decode(&mut Reader::new(bytes, "datatype", at))),
        3 => drop(data_layout::DataLayout::decode(bytes, ctx, at)),
        4 => drop(dataspace::Dataspace::decode(bytes, ctx, at)),
        5 => drop(fill_value::FillValue::decode(bytes, at)),
        6 => drop(filter_pipeline::FilterPipeline::decode(bytes, at)),
        7 => drop(link::LinkMessage::decode(bytes, ctx, at)),
        8 => drop(attribute::Attribute::decode(bytes, at)),
        n => {
            let Some(decode) = FILTERS.get(usize::from(n) % FILTERS.len()).and_then(|id| registry::decoder(*id)) else { return };
            let Some((values, input)) = bytes.split_at_checked(32) else { return };
            let cd_values: Vec<u32> = values.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
            let limit = 1 << 16;
            let out = decode(input, &Params { cd_values: &cd_values, expected: limit, limit });
            assert!(out.map_or(0, |o| o.len()) <= limit, "more than the limit");
        }
    }
});
