//! Profile map: which chunks are deflated again, and what their readers find.

use super::*;
use crate::base::Address;
use crate::meta::Store;

/// Chunks of 1 MiB.
const DIMS: [u64; 2] = [1024, 1024];

fn spec(id: u16, flags: u16, cd_values: &[u32]) -> FilterSpec {
    FilterSpec { id, flags, name: Vec::new(), cd_values: cd_values.to_vec() }
}

fn of(filters: Vec<FilterSpec>) -> Arc<dyn ChunkFormat> {
    let (fill, pipeline) = (FillPattern::zero(), Pipeline { filters });
    let (chunk_bytes, element_size, sections, raw_edges) = (1 << 20, 1, None, false);
    open(&Parts { chunk_bytes, chunk_dims: &DIMS, element_size, fill: &fill, pipeline: &pipeline, sections, raw_edges }).unwrap()
}

fn stored_filters(filters: &[FilterSpec]) -> Vec<FilterSpec> {
    Map.stored_filters(&NewChunks { dims: &DIMS, element_size: 1, fill: FillPattern::zero() }, filters).unwrap()
}

/// Stores a chunk with these bytes and reads it again; returns its stored length and filter mask.
fn stored(format: &dyn ChunkFormat, written: &[(u64, &[u8])]) -> (usize, u32) {
    let mut image = format.blank(None).unwrap();
    written.iter().for_each(|(at, bytes)| image.write(*at, bytes).unwrap());
    let (mut want, set) = (vec![0; 1 << 20], image.defined().unwrap().clone());
    written.iter().for_each(|(at, bytes)| want[*at as usize..][..bytes.len()].copy_from_slice(bytes));
    let (chunk, form) = format.encode(image, false).unwrap();
    let StoredForm::Whole { filter_mask } = form else { panic!("{form:?}") };
    let store = Store::over_bytes(chunk.clone());
    let record = ChunkRecord { address: Address(0), size: chunk.len() as u64, form };
    assert_eq!(format.defined(&store, record, false).unwrap().as_ref(), Some(&set));
    let decoded = format.decode(&store, record, false).unwrap();
    let mut bytes = vec![0; 1 << 20];
    decoded.read(0, &mut bytes).unwrap();
    assert!(decoded.defined() == Some(&set) && bytes == want);
    (chunk.len(), filter_mask)
}

fn noise(len: usize) -> Vec<u8> {
    let mut x = 1u32;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn streams_of_few_bytes_are_deflated_again() {
    let user = [spec(DEFLATE, 0, &[1])];
    let filters = stored_filters(&user);
    assert_eq!(filters, [user[0].clone(), spec(DEFLATE, OPTIONAL | MARK | AGAIN, &[AGAIN_LEVEL])]);
    assert_eq!(Map.user_filters(&filters), user);
    let format = of(filters);
    // Deflate alone makes 1,020 bytes of zeros.
    let (len, mask) = stored(&*format, &[(5000, b"spot"), (700_000, b"another")]);
    assert!(len < 300 && mask == 0, "{len} {mask}");
    let (blank, mask) = stored(&*format, &[]);
    assert!(blank < 200 && mask == 0, "{blank} {mask}");
    let (len, mask) = stored(&*format, &[(1000, &noise(500_000))]);
    assert!(len > 400_000 && mask == 0b10, "{len} {mask}");
}

#[test]
fn a_checksum_covers_both_forms() {
    let user = [spec(2, 0, &[1]), spec(DEFLATE, 0, &[4]), spec(FLETCHER32, 0, &[])];
    let filters = stored_filters(&user);
    assert_eq!((filters.iter().map(|f| f.id).collect::<Vec<_>>(), Map.user_filters(&filters)), (vec![2, 1, 1, 3], user.to_vec()));
    let format = of(filters);
    assert_eq!(stored(&*format, &[(77, b"spot")]).1, 0);
    assert_eq!(stored(&*format, &[(0, &noise(1 << 20))]).1, 0b100);
}

/// Datasets of one deflate filter are read, and changed without another one.
#[test]
fn one_marked_filter_is_enough() {
    let format = of(vec![spec(DEFLATE, OPTIONAL | MARK, &[4])]);
    let (len, mask) = stored(&*format, &[(5000, b"spot")]);
    assert!((1000..2000).contains(&len) && mask == 0, "{len} {mask}");
}

/// A chunk that neither deflate filter was applied to has no map: all that is not zero is defined.
#[test]
fn a_chunk_without_a_stream_has_no_map() {
    let format = of(stored_filters(&[]));
    let mut chunk = vec![0; 1 << 20];
    chunk[9..12].fill(3);
    let store = Store::over_bytes(chunk);
    let record = ChunkRecord { address: Address(0), size: 1 << 20, form: StoredForm::Whole { filter_mask: 0b11 } };
    assert_eq!(format.defined(&store, record, false).unwrap().unwrap().elements(), 3);
}
