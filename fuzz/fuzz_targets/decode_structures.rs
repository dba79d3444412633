//! One structure: its kind and the field widths from the first two bytes, the rest is its bytes. What can be
//! decoded and encoded again must decode to the same.
#![no_main]

use h5dir::base::Address;
use h5dir::format::btree1::{Btree1Kind, Node};
use h5dir::format::message::{
    attribute::Attribute, attribute_info::AttributeInfo, data_layout::DataLayout, dataspace::Dataspace, datatype, external_files::ExternalFiles,
    fill_value::FillValue, filter_pipeline::FilterPipeline, group_info::GroupInfo, link::LinkMessage, link_info::LinkInfo,
    section_filters::SectionFilters, shared_message_table::SharedMessageTable, symbol_table::SymbolTable, times,
};
use h5dir::format::object_header::Prefix;
use h5dir::format::selection::{RegionReference, SerializedSelection};
use h5dir::format::superblock::Superblock;
use h5dir::format::virtual_mapping::VirtualMappings;
use h5dir::format::{Context, Reader, btree1, btree2, cache_image, earray, farray, fractal_heap, global_heap, local_heap, shared_message, symbol_table};
use libfuzzer_sys::fuzz_target;

const AT: Address = Address(0);

fuzz_target!(|data: &[u8]| {
    let [kind, widths, bytes @ ..] = data else { return };
    let width = |n: u8| [2, 4, 8, 8][usize::from(n & 3)];
    let ctx = Context { sizeof_addr: width(*widths), sizeof_size: width(widths >> 2) };
    if *kind < 24 { message(*kind, bytes, &ctx) } else { block(*kind, bytes, &ctx) }
});

fn message(kind: u8, b: &[u8], ctx: &Context) {
    let r = || Reader::new(b, "fuzzed", AT);
    match kind {
        0 => drop(Attribute::decode(b, AT)),
        1 => drop(AttributeInfo::decode(b, ctx, AT)),
        2 => {
            if let Ok(layout) = DataLayout::decode(b, ctx, AT)
                && let Ok(again) = layout.encode(ctx)
            {
                assert!(DataLayout::decode(&again, ctx, AT).is_ok_and(|again| again == layout));
            }
        }
        3 => drop(Dataspace::decode(b, ctx, AT)),
        4 => {
            if let Ok(t) = datatype::decode(&mut r()) {
                let again = datatype::decode(&mut Reader::new(&t.to_bytes(), "encoded", AT));
                assert!(again.is_ok_and(|again| again == t));
                drop(h5dir::present::text(&t));
                drop(h5dir::present::numpy_dtype(&t));
            }
        }
        5 => drop(ExternalFiles::decode(b, ctx, AT)),
        6 => drop((FillValue::decode(b, AT), FillValue::decode_old(b, AT))),
        7 => drop(FilterPipeline::decode(b, AT)),
        8 => drop(GroupInfo::decode(b, ctx, AT)),
        9 => drop(LinkMessage::decode(b, ctx, AT).map(|l| l.into_link(AT))),
        10 => drop(LinkInfo::decode(b, ctx, AT)),
        11 => drop(SharedMessageTable::decode(b, AT, ctx)),
        12 => drop(SymbolTable::decode(b, ctx, AT)),
        13 => drop((times::decode(b, AT), times::decode_old(b, AT))),
        14 => drop(SerializedSelection::decode(&mut r())),
        15 => drop(RegionReference::decode(&mut r(), ctx)),
        16 => drop(SectionFilters::decode(b, AT)),
        _ => drop(VirtualMappings::decode(b, AT, ctx)),
    }
}

fn block(kind: u8, b: &[u8], ctx: &Context) {
    match kind {
        24 => drop(Superblock::decode(b, AT)),
        25 => {
            if let Ok(p) = Prefix::decode(b, AT) {
                drop((p.decode_chunk0(b, AT), p.decode_continuation(b, AT)));
            }
        }
        26..=30 => drop(Node::decode(b, Btree1Kind::Chunk { dims: kind - 24 }, ctx, AT)),
        31 => drop(Node::decode(b, Btree1Kind::Group, ctx, AT)),
        32 => {
            if let Ok(h) = btree2::Header::decode(b, AT, ctx)
                && let Ok(g) = h.geometry(ctx, AT)
            {
                drop(btree2::Leaf::decode(b, AT, &h, 3));
                drop(btree2::Internal::decode(b, AT, &h, &g, 1, 3, ctx));
            }
        }
        33 => drop(cache_image::decode(b, ctx, AT)),
        34 => drop(earray::Header::decode(b, ctx, AT).map(|h| earray::Geometry::new(&h, ctx, AT).is_ok())),
        35 => drop(farray::header::Header::decode(b, ctx, AT).map(|h| farray::data_block::DataBlock::decode(b, ctx, AT, &h, AT).is_ok())),
        36 => drop(fractal_heap::Header::decode(b, AT, ctx).map(|h| fractal_heap::Geometry::new(&h, AT, ctx).is_ok())),
        37 => drop(global_heap::Directory::of(b, AT, ctx)),
        38 => drop(btree1::Node::decode(b, btree1::Btree1Kind::Group, ctx, AT)),
        39 => drop(local_heap::Header::decode(b, AT, ctx)),
        40 => drop(symbol_table::SymbolTableNode::decode(b, ctx, AT)),
        _ => drop(shared_message::decode_table(b, AT, 2, ctx)),
    }
}
