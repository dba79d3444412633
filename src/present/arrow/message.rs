//! Messages of an Arrow file: metadata as flatbuffers, and bodies.

use super::cells::{ALIGN, Body};
use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::DictionaryTracker;
use arrow_ipc::{
    Block, Buffer, DictionaryBatchArgs, FieldNode, FooterArgs, Message, MessageArgs, MessageHeader, MetadataVersion, RecordBatch,
    RecordBatchArgs,
};
use arrow_schema::Schema;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

/// The first bytes of a file, with their padding.
pub(super) const BEGIN: &[u8; 8] = b"ARROW1\0\0";
/// The last bytes of a file.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Begins the length of metadata.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The place of a message with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) metadata: u64,
    pub(super) body: u64,
}

impl Place {
    fn block(self) -> Block {
        let metadata = i32::try_from(self.metadata).unwrap_or(i32::MAX);
        Block::new(self.offset.cast_signed(), metadata, self.body.cast_signed())
    }
}

/// The metadata of a message with its length, so that it ends `after` bytes after an aligned place.
fn framed(metadata: &[u8], after: usize) -> Vec<u8> {
    let unpadded = metadata.len().saturating_add(8).saturating_add(ALIGN.saturating_sub(after));
    let len = unpadded.next_multiple_of(ALIGN).saturating_sub(ALIGN.saturating_sub(after));
    let mut out = CONTINUATION.to_vec();
    out.extend_from_slice(&i32::try_from(len.saturating_sub(8)).unwrap_or(i32::MAX).to_le_bytes());
    out.extend_from_slice(metadata);
    out.resize(len, 0);
    out
}

/// Its length does not depend on the numbers in it.
fn builder<'a>() -> FlatBufferBuilder<'a> {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    builder
}

fn message(mut fbb: FlatBufferBuilder<'_>, kind: MessageHeader, header: WIPOffset<UnionWIPOffset>, body: u64, after: usize) -> Vec<u8> {
    let args = MessageArgs {
        version: MetadataVersion::V5,
        header_type: kind,
        header: Some(header),
        bodyLength: body.cast_signed(),
        custom_metadata: None,
    };
    let root = Message::create(&mut fbb, &args);
    fbb.finish(root, None);
    framed(fbb.finished_data(), after)
}

fn encoded_schema<'a>(fbb: &mut FlatBufferBuilder<'a>, schema: &Schema) -> WIPOffset<arrow_ipc::Schema<'a>> {
    // Numbers dictionaries from 0 on, in the order of the fields.
    let mut tracker = DictionaryTracker::new(false);
    IpcSchemaEncoder::new().with_dictionary_tracker(&mut tracker).schema_to_fb_offset(fbb, schema)
}

/// The message of `schema`, which follows [`BEGIN`].
pub(super) fn schema(schema: &Schema) -> Vec<u8> {
    let mut fbb = builder();
    let header = encoded_schema(&mut fbb, schema).as_union_value();
    message(fbb, MessageHeader::Schema, header, 0, ALIGN.saturating_sub(BEGIN.len()))
}

fn batch<'a>(fbb: &mut FlatBufferBuilder<'a>, body: &Body, rows: u64) -> WIPOffset<RecordBatch<'a>> {
    let nodes: Vec<FieldNode> = body.nodes.iter().map(|(count, nulls)| FieldNode::new(count.cast_signed(), nulls.cast_signed())).collect();
    let buffers: Vec<Buffer> = body.buffers.iter().map(|(offset, len)| Buffer::new(offset.cast_signed(), len.cast_signed())).collect();
    let (buffers, nodes) = (fbb.create_vector(&buffers), fbb.create_vector(&nodes));
    let args = RecordBatchArgs {
        length: rows.cast_signed(),
        nodes: Some(nodes),
        buffers: Some(buffers),
        compression: None,
        variadicBufferCounts: None,
    };
    RecordBatch::create(fbb, &args)
}

/// The metadata of a record batch.
pub(super) fn record_batch(body: &Body, rows: u64) -> Vec<u8> {
    let mut fbb = builder();
    let header = batch(&mut fbb, body, rows).as_union_value();
    message(fbb, MessageHeader::RecordBatch, header, body.len, ALIGN)
}

/// The metadata of dictionary `id`.
pub(super) fn dictionary(id: usize, body: &Body, rows: u64) -> Vec<u8> {
    let mut fbb = builder();
    let data = batch(&mut fbb, body, rows);
    let args = DictionaryBatchArgs { id: i64::try_from(id).unwrap_or(i64::MAX), data: Some(data), isDelta: false };
    let header = arrow_ipc::DictionaryBatch::create(&mut fbb, &args).as_union_value();
    message(fbb, MessageHeader::DictionaryBatch, header, body.len, ALIGN)
}

/// The end of a stream, the footer, and the end of a file.
pub(super) fn end(schema: &Schema, dictionaries: &[Place], batches: impl Iterator<Item = Place>) -> Vec<u8> {
    let mut fbb = builder();
    let schema = encoded_schema(&mut fbb, schema);
    let blocks: Vec<Block> = batches.map(Place::block).collect();
    let batches = fbb.create_vector(&blocks);
    let blocks: Vec<Block> = dictionaries.iter().map(|place| place.block()).collect();
    let dictionaries = fbb.create_vector(&blocks);
    let args = FooterArgs {
        version: MetadataVersion::V5,
        schema: Some(schema),
        dictionaries: Some(dictionaries),
        recordBatches: Some(batches),
        custom_metadata: None,
    };
    let root = arrow_ipc::Footer::create(&mut fbb, &args);
    fbb.finish(root, None);
    let footer = fbb.finished_data();
    let len = i32::try_from(footer.len()).unwrap_or(i32::MAX);
    [&CONTINUATION, &[0; 4][..], footer, &len.to_le_bytes(), MAGIC].concat()
}
