//! Chunks that are too large for the cache, and forms of many elements.

use super::access::IodConnector;
use super::decoding::chunk_key;
use super::image::Body;
use super::kind::root_entries;
use super::tests::{bytes, empty, open, open_in, spec};
use crate::connector::check::Problem;
use crate::connector::edit::{Edit, NewReference};
use crate::connector::{ChunksSpec, Connector, DatasetSpec, FilterSpec, Form, ObjectId, Part, Target};
use crate::file::store::local::LocalStore;
use crate::iod::{Cell, Container, Data, Extent, PackWriter, Ranges, keys};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const STRING: &str = r#"{"class":"H5T_STRING","charSet":"H5T_CSET_UTF8","strPad":"H5T_STR_NULLTERM","length":"H5T_VARIABLE"}"#;
/// Decoded bytes of a large chunk: the caches of these tests have 1 MiB.
const LARGE: u64 = 40 << 20;

fn zlib(zeros: u64, tail: &[u8]) -> Vec<u8> {
    let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let piece = vec![0; 1 << 20];
    let mut left = zeros;
    while left > 0 {
        let n = left.min(1 << 20);
        z.write_all(&piece[..n as usize]).unwrap();
        left -= n;
    }
    z.write_all(tail).unwrap();
    z.finish().unwrap()
}

/// A dataset with a deflated chunk whose stored bytes are `stored`.
fn dataset(c: &IodConnector, chunk: u64, filters: &[u16], stored: &[u8]) -> (ObjectId, Extent) {
    let filter = |id: &u16| FilterSpec { id: *id, flags: 0, name: Vec::new(), cd_values: vec![1] };
    let filters = Some(filters.iter().map(filter).collect());
    let dims = Some(ChunksSpec::Dims(vec![chunk]));
    let id = c.create_dataset(c.root(), b"d", &DatasetSpec { chunks: dims, filters, ..spec("u1", &[chunk]) }).unwrap();
    let mut state = c.states.next();
    let session = state.session.clone().unwrap();
    let mut packs = PackWriter::new(&c.container, &session);
    let extent = packs.add(stored).unwrap();
    packs.finish().unwrap();
    let key = c.objects.dataset_of(&state, id.serial()).unwrap().chunk_key(0);
    state.change(key, Body::Cell(Cell { mask: 0, data: Data::Extent(extent) }), Ranges::whole());
    drop(state);
    (id, extent)
}

fn read(c: &IodConnector, id: ObjectId, at: u64, len: usize) -> crate::base::Result<Vec<u8>> {
    let mut buf = vec![9; len];
    let n = c.content(id, Form::Main)?.read(at, &mut buf)?;
    buf.truncate(n);
    Ok(buf)
}

/// A reader that gets a whole chunk without filters gets it from the folder, or the error of that
/// chunk.
#[test]
fn whole_chunks_of_a_folder_are_read_without_the_cache() {
    const CHUNK: usize = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let local = || Arc::new(LocalStore::open(folder.path()).unwrap());
    Container::create(local(), root_entries()).unwrap();
    let c = open_in(local(), None).unwrap();
    let dims = Some(ChunksSpec::Dims(vec![CHUNK as u64]));
    let id = c.create_dataset(c.root(), b"d", &DatasetSpec { chunks: dims, ..spec("u1", &[3 * CHUNK as u64]) }).unwrap();
    let data: Vec<u8> = (0..3 * CHUNK).map(|n| (n % 251) as u8).collect();
    c.write(id, 0, &data).unwrap();
    c.close().unwrap();
    let c = open_in(local(), None).unwrap();
    assert_eq!(bytes(&*c, id), data);
    let state = c.states.shown();
    let d = c.objects.dataset_of(&state, id.serial()).unwrap();
    let extent = |n: u64| match state.get(&d.chunk_key(n)).unwrap().unwrap().data {
        Data::Extent(extent) => extent,
        Data::Inline(_) => panic!("inline"),
    };
    assert!((0..3).all(|n| !c.env.cache.contains(chunk_key(&d, &extent(n)))));
    // A part of a chunk has the cache load all of it.
    assert_eq!(read(&c, id, 10, 100).unwrap(), data[10..110]);
    assert!(c.env.cache.contains(chunk_key(&d, &extent(0))));
    let pack = folder.path().join(keys::pack_name(extent(1).session, extent(1).pack));
    let file = std::fs::OpenOptions::new().write(true).open(&pack).unwrap();
    file.write_all_at(b"wrong", extent(1).offset + 77).unwrap();
    let damaged = read(&c, id, CHUNK as u64, CHUNK).unwrap_err().to_string();
    assert!(damaged.contains("have another checksum"), "{damaged}");
    assert_eq!(read(&c, id, 2 * CHUNK as u64, CHUNK).unwrap(), data[2 * CHUNK..]);
    // No file has bytes there.
    let mut next = c.states.next();
    let far = Extent { offset: u64::MAX - 9, ..extent(2) };
    next.change(d.chunk_key(1), Body::Cell(Cell { mask: 0, data: Data::Extent(far) }), Ranges::whole());
    drop(next);
    let past = read(&c, id, CHUNK as u64, CHUNK).unwrap_err().to_string();
    assert!(past.contains("have another checksum"), "{past}");
    file.set_len(extent(2).offset + 5).unwrap();
    let short = read(&c, id, 2 * CHUNK as u64, CHUNK).unwrap_err().to_string();
    assert!(short.contains("have another checksum"), "{short}");
    std::fs::remove_file(pack).unwrap();
    let gone = open_in(local(), None).unwrap();
    let gone = read(&gone, id, 2 * CHUNK as u64, CHUNK).unwrap_err().to_string();
    assert!(gone.contains("garbage collection"), "{gone}");
}

/// Rows of a dataset have parts of its chunks: a reader of rows finds the next chunks in the cache.
#[test]
fn tiles_of_a_folder_are_read_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let local = || Arc::new(LocalStore::open(folder.path()).unwrap());
    Container::create(local(), root_entries()).unwrap();
    let c = open_in(local(), None).unwrap();
    let tiles = Some(ChunksSpec::Dims(vec![256, 256]));
    let id = c.create_dataset(c.root(), b"d", &DatasetSpec { chunks: tiles, ..spec("u1", &[512, 512]) }).unwrap();
    c.write(id, 0, &vec![7; 512 * 512]).unwrap();
    c.close().unwrap();
    let c = open_in(local(), None).unwrap();
    let state = c.states.shown();
    let d = c.objects.dataset_of(&state, id.serial()).unwrap();
    assert_eq!(c.content(id, Form::Main).unwrap().read_ahead(0, 0), 512 * 512);
    let is_cached = |n: u64| match state.get(&d.chunk_key(n)).unwrap().unwrap().data {
        Data::Extent(extent) => c.env.cache.contains(chunk_key(&d, &extent)),
        Data::Inline(_) => panic!("inline"),
    };
    let end = Instant::now() + Duration::from_secs(10);
    while !(0..4).all(is_cached) {
        assert!(Instant::now() < end, "tiles are not read ahead");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reading ahead fetched as many bytes as a value claims.
#[test]
fn chunks_that_claim_many_stored_bytes_are_not_read_ahead() {
    let c = open(&empty());
    let (id, extent) = dataset(&c, 1 << 20, &[1], &zlib((1 << 20) - 5, b"hello"));
    let mut state = c.states.next();
    let key = c.objects.dataset_of(&state, id.serial()).unwrap().chunk_key(0);
    let claimed = Extent { len: u32::MAX, ..extent };
    state.change(key, Body::Cell(Cell { mask: 0, data: Data::Extent(claimed) }), Ranges::whole());
    drop(state);
    let content = c.content(id, Form::Main).unwrap();
    let before = c.container.store().counters();
    assert_eq!(content.read_ahead(0, 0), 0);
    assert!(read(&c, id, 0, 10).unwrap_err().to_string().contains("stored bytes for"));
    assert_eq!(c.container.store().counters(), before, "something was fetched");
}

#[test]
fn large_chunks_are_decoded_to_temporary_files() {
    let c = open(&empty());
    let (id, extent) = dataset(&c, LARGE, &[1], &zlib(LARGE - 5, b"hello"));
    assert_eq!(read(&c, id, LARGE - 7, 100).unwrap(), b"\0\0hello");
    assert_eq!(read(&c, id, 10, 3).unwrap(), [0; 3]);
    let d = c.objects.dataset_of(&c.states.shown(), id.serial()).unwrap();
    assert!(!c.env.cache.contains(chunk_key(&d, &extent)));
    // A whole chunk in memory is within the limit for a writer.
    c.write(id, 3, b"x").unwrap();
    assert_eq!(read(&c, id, 2, 3).unwrap(), b"\0x\0");
    assert_eq!(read(&c, id, LARGE - 5, 5).unwrap(), b"hello");
}

#[test]
fn large_chunks_without_filters_are_copied_and_their_checksums_verified() {
    let c = open(&empty());
    let mut data = vec![0; LARGE as usize - 100];
    data[LARGE as usize - 101] = 7;
    let (id, extent) = dataset(&c, LARGE, &[], &data);
    assert_eq!(read(&c, id, LARGE - 102, 10).unwrap(), [0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut state = c.states.next();
    let key = c.objects.dataset_of(&state, id.serial()).unwrap().chunk_key(0);
    let wrong = Cell { mask: 0, data: Data::Extent(Extent { checksum: extent.checksum ^ 1, ..extent }) };
    state.change(key, Body::Cell(wrong), Ranges::whole());
    drop(state);
    assert!(read(&c, id, 0, 10).unwrap_err().to_string().contains("another checksum"));
}

/// The problems that a check of all elements finds, after a commit.
fn problems(c: &IodConnector) -> Vec<Problem> {
    Edit::commit(c).unwrap();
    let checked = Connector::check(c).unwrap().check(true, &mut |_| {}).unwrap();
    checked.findings.into_iter().map(|finding| finding.problem).collect()
}

#[test]
fn chunks_past_the_limits_are_refused() {
    let c = open(&empty());
    // Deflated twice: it is decoded as a whole.
    let (id, _) = dataset(&c, 100 << 20, &[1, 1], &zlib(0, &zlib(100 << 20, b"")));
    let e = read(&c, id, 0, 10).unwrap_err().to_string();
    assert!(e.contains("--cache-size"), "{e}");
    assert_eq!(problems(&c), [Problem::NotChecked]);
    // More stored bytes than any filter makes of a chunk.
    let c = open(&empty());
    let (id, _) = dataset(&c, 1000, &[1], &vec![1; 100_000]);
    assert!(read(&c, id, 0, 10).unwrap_err().to_string().contains("stored bytes"));
    assert_eq!(problems(&c), [Problem::Damaged]);
}

/// Elements of chunks that are not stored cost nothing.
#[test]
fn a_billion_strings_without_chunks_have_a_size() {
    let c = open(&empty());
    let strings = |dims: &[u64], chunk: &[u64]| DatasetSpec { chunks: Some(ChunksSpec::Dims(chunk.to_vec())), ..spec(STRING, dims) };
    let id = c.create_dataset(c.root(), b"s", &strings(&[1_000_000_000], &[1024])).unwrap();
    let content = c.content(id, Form::Main).unwrap();
    assert_eq!(content.size().unwrap(), 1_000_000_000);
    assert_eq!(read(&c, id, 999_999_990, 100).unwrap(), [b'\n'; 10]);
    assert!(c.newlines(id).unwrap().unwrap().is_empty());
    // With some chunks stored, in one dimension and in a row of a matrix.
    for (name, dims, chunk, at) in
        [(b"a", vec![300_000_000], vec![1024], 200_000_000), (b"b", vec![3, 100_000_000], vec![1, 1000], 150_000_000)]
    {
        let id = c.create_dataset(c.root(), name, &strings(&dims, &chunk)).unwrap();
        let mut state = c.states.next();
        let d = c.objects.dataset_of(&state, id.serial()).unwrap();
        c.objects.write_elements(&mut state, &d, at * 16, &[0; 16]).unwrap();
        drop(state);
        assert_eq!(c.content(id, Form::Main).unwrap().size().unwrap(), 300_000_000);
    }
}

/// Parts of the form end after a MiB; each byte of it can be read.
#[test]
fn forms_of_long_strings_are_read_part_by_part() {
    let c = open(&empty());
    let strings = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![4])), maxshape: Some(vec![None]), ..spec(STRING, &[0]) };
    let id = c.create_dataset(c.root(), b"s", &strings).unwrap();
    let lines: Vec<u8> = (0..9u8).flat_map(|n| [vec![b'a' + n; 700_000], b"\n".to_vec()].concat()).collect();
    c.hold(id);
    c.write_as(id, Form::Main, 0, &lines).unwrap();
    assert!(c.finish(id, true).unwrap());
    c.release(id);
    let whole = lines;
    assert_eq!(bytes(&*c, id), whole);
    for at in [0, 699_999, 700_001, 3 * 700_001 - 2, whole.len() - 3, whole.len() - 1] {
        assert_eq!(read(&c, id, at as u64, 5).unwrap(), whole[at..whole.len().min(at + 5)], "{at}");
    }
}

/// Each `stat` made the form of all strings, as often as one of them was there.
#[test]
fn long_strings_that_are_the_same_are_measured_once_and_forms_by_one_reader() {
    let c = open(&empty());
    let strings = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![1024])), maxshape: Some(vec![None]), ..spec(STRING, &[0]) };
    let id = c.create_dataset(c.root(), b"s", &strings).unwrap();
    let line = [vec![b'x'; 4 << 20], b"\n".to_vec()].concat();
    c.hold(id);
    c.write_as(id, Form::Main, 0, &line).unwrap();
    assert!(c.finish(id, true).unwrap());
    c.release(id);
    // The other elements refer to the cell of the first.
    let mut state = c.states.next();
    let d = c.objects.dataset_of(&state, id.serial()).unwrap();
    c.objects.set_rows(&mut state, &d, 1000).unwrap();
    let d = c.objects.dataset_of(&state, id.serial()).unwrap();
    let mut element = vec![0; 16];
    c.chunks.read_elements(&state, &d, 0, &mut element).unwrap();
    c.objects.write_elements(&mut state, &d, 0, &element.repeat(1000)).unwrap();
    state.changed(id.serial());
    drop(state);
    let whole = 1000 * line.len() as u64;
    let size = || c.content(id, Form::Main).unwrap().size().unwrap();
    assert_eq!(size(), whole);
    let index = || {
        let d = c.objects.dataset_of(&c.states.shown(), id.serial()).unwrap();
        let index = c.derived.form_index(&d, true).lock().clone();
        index.unwrap()
    };
    let first = index();
    // Another operation does not make it again; a change of the dataset does.
    c.create_group(c.root(), b"other").unwrap();
    assert_eq!((size(), std::sync::Arc::ptr_eq(&first, &index())), (whole, true));
    assert_eq!(read(&c, id, whole - 2, 9).unwrap(), b"x\n");
    let mut state = c.states.next();
    c.objects.set_rows(&mut state, &d, 3).unwrap();
    drop(state);
    assert_eq!((size(), read(&c, id, line.len() as u64 - 2, 3).unwrap()), (3 * line.len() as u64, b"x\nx".to_vec()));
}

/// Readers of a chunk waited without end for a thread that had panicked while it fetched it.
#[test]
fn a_panic_while_a_chunk_is_fetched_leaves_no_reader_waiting() {
    let c = open(&empty());
    let (id, extent) = dataset(&c, 100, &[1], &zlib(99, &[7]));
    let d = c.objects.dataset_of(&c.states.shown(), id.serial()).unwrap();
    let (reserved, reader) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| {
            let _reserved = c.env.cache.reserve(std::iter::once((chunk_key(&d, &extent), 100)));
            reserved.wait();
            reader.wait();
            std::thread::sleep(Duration::from_millis(50));
            panic!("as the test wants");
        });
        reserved.wait();
        let waiting = scope.spawn(|| {
            reader.wait();
            read(&c, id, 99, 1)
        });
        assert!(fetch.join().is_err());
        // It came before the panic, or after it.
        let _ = waiting.join().unwrap();
    });
    assert_eq!(read(&c, id, 99, 1).unwrap(), [7]);
}

/// The form stayed that of a null reference after a commit had led it to its target.
#[test]
fn a_reference_that_a_commit_leads_changes_the_form() {
    let c = open(&empty());
    let fields = format!(r#"{{"name":"s","type":{STRING}}},{{"name":"r","type":{{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"}}}}"#);
    let compound = format!(r#"{{"class":"H5T_COMPOUND","fields":[{fields}]}}"#);
    let id = c.create_dataset(c.root(), b"d", &DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![2])), ..spec(&compound, &[2]) }).unwrap();
    let late = Target { file: None, object: b"/late".to_vec(), part: Part::Object };
    c.set_references(id, 0, vec![NewReference::To(late), NewReference::Nil]).unwrap();
    let null = bytes(&*c, id);
    c.create_group(c.root(), b"late").unwrap();
    Edit::commit(&*c).unwrap();
    let led = bytes(&*c, id);
    assert!(null.iter().all(|b| *b == 0) && led.len() == null.len() && led != null, "{null:?} {led:?}");
}
