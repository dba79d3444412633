//! Chunks that are changed in temporary files agree with arrays in memory.

use super::access::IodConnector;
use super::check_tests::{checked, details};
use super::readers_tests::WaitingStore;
use super::tests::{empty, errno, open, open_in, spec};
use crate::base::locks::Mutex;
use crate::connector::edit::{Edit, Elements};
use crate::connector::{ChunksSpec, Connector, DatasetSpec, FillSpec, FilterSpec, Form, ObjectId};
use crate::file::store::local::LocalStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::keys;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Bytes of a chunk: too large for the caches of these tests, which have 1 MiB.
const LARGE: u64 = 65 << 20;
/// Bytes that are looked at: the beginning, the end, and some between.
const PLACES: [u64; 5] = [0, 1_000_000, LARGE / 2 + 3, LARGE - 5000, LARGE - 100];

fn filters(ids: &[u16]) -> Option<Vec<FilterSpec>> {
    let filter = |id: &u16| FilterSpec { id: *id, flags: 0, name: Vec::new(), cd_values: if *id == 2 { vec![4] } else { vec![1] } };
    Some(ids.iter().map(filter).collect())
}

fn large(filter: &[u16], rows: u64) -> DatasetSpec {
    let chunks = Some(ChunksSpec::Dims(vec![LARGE]));
    DatasetSpec { chunks, filters: filters(filter), maxshape: Some(vec![None]), ..spec("u1", &[rows]) }
}

fn read(c: &IodConnector, id: ObjectId, at: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![77; len];
    let n = c.content(id, Form::Main).unwrap().read(at, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

fn check(c: &IodConnector, id: ObjectId, model: &[u8]) {
    for at in PLACES {
        let end = (at as usize + 4096).min(model.len());
        let want = model.get(at as usize..end).unwrap_or_default();
        assert!(read(c, id, at, 4096) == want, "bytes at {at} of {}", model.len());
    }
}

#[test]
fn large_chunks_are_changed_in_temporary_files() {
    // Chunks of shuffle or Zstandard alone were stored, and could not be read.
    for filter in [&[][..], &[1], &[2, 1], &[3, 1], &[2], &[32015]] {
        let store = empty();
        let mut c = open(&store);
        let id = c.create_dataset(c.root(), b"d", &large(filter, LARGE)).unwrap();
        let mut model = vec![0u8; LARGE as usize];
        let write = |c: &IodConnector, model: &mut Vec<u8>, at: u64, bytes: &[u8]| {
            c.write(id, at, bytes).unwrap();
            model[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        let again = |c: Arc<IodConnector>| {
            c.close().unwrap();
            open(&store)
        };
        write(&c, &mut model, PLACES[1], b"first");
        check(&c, id, &model);
        assert!(c.env.images.now().0 == 1, "the chunk is in a file");
        Edit::commit(&*c).unwrap();
        assert_eq!(c.env.images.now(), (0, 0), "files that are not needed stay");
        check(&c, id, &model);
        c = again(c);
        check(&c, id, &model);
        // Parts of what is stored change; others stay.
        write(&c, &mut model, PLACES[1] + 2, b"second");
        write(&c, &mut model, PLACES[3], &[9; 5000]);
        c.zero(id, PLACES[1], 3).unwrap();
        model[PLACES[1] as usize..PLACES[1] as usize + 3].fill(0);
        check(&c, id, &model);
        // Stored beside writers, and changed again.
        c.values.store_ahead().unwrap();
        check(&c, id, &model);
        write(&c, &mut model, 0, b"third");
        c = again(c);
        check(&c, id, &model);
        // What is cut off is gone when it grows again.
        c.set_size(id, PLACES[3] + 10).unwrap();
        c.set_size(id, LARGE).unwrap();
        model[PLACES[3] as usize + 10..].fill(0);
        check(&c, id, &model);
        c = again(c);
        check(&c, id, &model);
        // Another layout.
        let smaller = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![8 << 20])), ..DatasetSpec::default() };
        c.change_dataset(id, smaller, Elements::Kept).unwrap();
        check(&c, id, &model);
        c = again(c);
        check(&c, id, &model);
        c.close().unwrap();
    }
}

/// Bytes past the last written one have the fill value.
#[test]
fn large_chunks_with_a_fill_value() {
    let store = empty();
    let c = open(&store);
    let fill = crate::base::value::NewValue::plain(crate::base::datatype::Datatype::byte(), crate::base::shape::Shape::Scalar, vec![7]);
    let id = c.create_dataset(c.root(), b"d", &DatasetSpec { fillvalue: Some(FillSpec::Value(fill)), ..large(&[], LARGE) }).unwrap();
    let mut model = vec![7u8; LARGE as usize];
    c.write(id, 1_000_000, b"abc").unwrap();
    model[1_000_000..1_000_003].copy_from_slice(b"abc");
    check(&c, id, &model);
    c.close().unwrap();
    let c = open(&store);
    check(&c, id, &model);
    c.write(id, LARGE - 2, b"yz").unwrap();
    c.zero(id, LARGE - 90, 10).unwrap();
    model[LARGE as usize - 2..].copy_from_slice(b"yz");
    model[LARGE as usize - 90..LARGE as usize - 80].fill(0);
    check(&c, id, &model);
    c.close().unwrap();
    check(&open(&store), id, &model);
}

/// Two writers change one chunk, which is merged.
#[test]
fn writers_share_a_large_chunk() {
    for filter in [&[][..], &[1]] {
        let store = empty();
        let a = open(&store);
        let id = a.create_dataset(a.root(), b"d", &large(filter, LARGE)).unwrap();
        let mut model = vec![0u8; LARGE as usize];
        let mut put = |c: &IodConnector, at: u64, bytes: &[u8]| {
            c.write(id, at, bytes).unwrap();
            model[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        put(&a, 5, b"both");
        Edit::commit(&*a).unwrap();
        let b = open(&store);
        put(&a, 1_000_000, b"of a");
        put(&b, LARGE - 4, b"of b");
        Edit::commit(&*a).unwrap();
        Edit::commit(&*b).unwrap();
        check(&b, id, &model);
        b.close().unwrap();
        a.close().unwrap();
        check(&open(&store), id, &model);
    }
}

/// A failed operation leaves the chunk as it was; a copy of it is in the file meanwhile.
#[test]
fn operations_that_fail_leave_a_large_chunk() {
    let c = open(&empty());
    let id = c.create_dataset(c.root(), b"d", &large(&[], LARGE)).unwrap();
    let mut model = vec![0u8; LARGE as usize];
    c.write(id, 100, b"before").unwrap();
    model[100..106].copy_from_slice(b"before");
    let failed = c.operate(|state| {
        let d = c.objects.dataset_of(state, id.serial())?;
        c.objects.write_elements(state, &d, 100, b"AFTER!")?;
        Err::<(), _>(crate::base::Error::refused(libc::EDOM, "as the test wants"))
    });
    assert_eq!(errno(&failed), libc::EDOM);
    check(&c, id, &model);
    assert_eq!(c.env.images.now().0, 1);
}

#[test]
fn large_chunks_in_a_folder_are_packs_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let local = || Arc::new(LocalStore::open(folder.path()).unwrap());
    crate::iod::Container::create(local(), super::kind::root_entries()).unwrap();
    let c = open_in(local(), None).unwrap();
    let id = c.create_dataset(c.root(), b"d", &large(&[], LARGE)).unwrap();
    c.write(id, LARGE - 3, b"end").unwrap();
    c.write(id, 0, b"begin").unwrap();
    let other = c.create_dataset(c.root(), b"e", &spec("u1", &[3])).unwrap();
    c.write(other, 0, b"abc").unwrap();
    c.close().unwrap();
    let c = open_in(local(), None).unwrap();
    assert_eq!(
        (read(&c, id, LARGE - 4, 9), read(&c, id, 0, 6), read(&c, other, 0, 9)),
        (b"\0end".into(), b"begin\0".into(), b"abc".into())
    );
    let checked = Connector::check(&*c).unwrap().check(true, &mut |_| {}).unwrap();
    assert_eq!(checked.findings, []);
}

/// What is written while a chunk is stored beside writers is not in what was stored.
#[test]
fn writes_while_a_large_chunk_is_stored_are_kept() {
    for filter in [&[][..], &[1]] {
        let (store, (begun, began), (go, go_on)) = (empty(), channel(), channel());
        let waiting = WaitingStore { store: store.clone(), at: ("put", keys::PACKS), begun, go_on: Mutex::new(Some(go_on)) };
        let c = open_in(Arc::new(waiting), None).unwrap();
        let id = c.create_dataset(c.root(), b"d", &large(filter, LARGE)).unwrap();
        c.write(id, 5, b"before").unwrap();
        c.write(id, LARGE - 4, b"tail").unwrap();
        std::thread::scope(|scope| {
            let stored = scope.spawn(|| c.values.store_ahead());
            began.recv_timeout(Duration::from_secs(60)).expect("the chunk is stored");
            c.write(id, 1_000_000, b"meanwhile").unwrap();
            go.send(()).unwrap();
            stored.join().unwrap().unwrap();
        });
        let check = |c: &IodConnector| {
            assert_eq!((read(c, id, 5, 6), read(c, id, 1_000_000, 9)), (b"before".into(), b"meanwhile".into()));
        };
        check(&c);
        c.close().unwrap();
        check(&open(&store));
    }
}

/// Those of one request were taken for chunks that are decoded in memory.
#[test]
fn large_chunks_near_each_other_are_checked() {
    let store = empty();
    let c = open(&store);
    let id = c.create_dataset(c.root(), b"d", &large(&[1], 2 * LARGE)).unwrap();
    [7, LARGE + 7].iter().for_each(|at| c.write(id, *at, b"some").unwrap());
    c.close().unwrap();
    let checked = checked(&store, true).unwrap();
    assert_eq!((details(&checked), checked.decoded), (Vec::new(), 2 * LARGE));
}

/// Filters that need a chunk as a whole in memory.
#[test]
fn chunks_too_large_for_files_are_refused_when_they_are_written() {
    let store: MemoryStore = empty();
    let c = open(&store);
    let id = c
        .create_dataset(c.root(), b"d", &DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![100 << 20])), ..large(&[1, 1], 100 << 20) })
        .unwrap();
    let refused = c.write(id, 3, b"x");
    assert_eq!(errno(&refused), libc::EFBIG);
    assert!(refused.unwrap_err().to_string().contains("--cache-size"));
}
