//! Bounds of memory and time, and consistency after operations that fail.

use super::super::NativeConnector;
use super::super::tests::options;
use super::fault_tests::{bytes, dataset, writable};
use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::native::tests::editor;
use crate::connector::{Connector, Form};
use crate::file::fault::{Fault, LENGTH, Plan, READ, SYNC, WRITE};
use crate::file::memory::{GrowingFile, MemoryFile};
use crate::meta::Store;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn container() -> Arc<NativeConnector> {
    writable(&Plan::new(0, 0, 0, Fault::Short))
}

const ROWS: &str = r#"{"dtype": "u1", "shape": [600], "maxshape": [null], "chunks": [100], "filters": ["deflate 1"]}"#;

#[test]
fn an_operation_that_panics_is_rolled_back() {
    let c = container();
    let id = dataset(&c, ROWS);
    c.write(id, 0, &[7; 600]).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        c.operate(&[id], |change| -> crate::base::Result<()> {
            change.data().write(id, Form::Main, 550, &[9; 100])?;
            change.objects().create_file(c.root(), b"half")?;
            panic!("a bug");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(bytes(&c, id), [7; 600]);
    assert!(c.lookup(c.root(), b"half").unwrap().is_none(), "nothing half done is seen, nor committed");
    c.write(id, 600, &[8; 10]).unwrap();
    c.commit().unwrap();
    assert_eq!(bytes(&c, id)[550..], [[7; 50].as_slice(), &[8; 10]].concat());
    assert!(c.lookup(c.root(), b"half").unwrap().is_none());
}

#[test]
fn a_full_disk_does_not_fill_the_memory() {
    let plan = Plan::new(WRITE | LENGTH, 0, u32::MAX, Fault::Errno(libc::ENOSPC));
    let c = writable(&plan);
    let id = dataset(&c, r#"{"dtype": "u1", "shape": [1], "maxshape": [null], "chunks": [65536]}"#);
    c.commit().unwrap();
    plan.pause(false);
    let failed = (0..200).filter(|i| c.write(id, i << 16, &vec![1; 1 << 16]).is_err()).count();
    let waiting = c.environment().dirty.bytes();
    assert!(failed > 100 && waiting < 1 << 20, "{failed} writes failed, {waiting} bytes wait");
    plan.pause(true);
    c.write(id, 0, &[2; 1 << 16]).unwrap();
    c.commit().unwrap();
    assert_eq!(bytes(&c, id)[..1 << 16], [2; 1 << 16]);
}

#[test]
fn chunks_of_a_broken_dataset_do_not_hang_who_writes() {
    let c = container();
    let id = dataset(&c, r#"{"dtype": "u1", "shape": [400000], "chunks": [50000]}"#);
    let other = c.create_file(c.root(), b"other").unwrap();
    c.write(id, 0, &[1; 200_000]).unwrap();
    c.operate(&[id], |change| change.store()?.write(id.address, &[0; 8])).unwrap();
    c.forget_all();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for i in 0..10 {
            let _ = c.write(other, i * 50_000, &[2; 50_000]);
        }
        sender.send(c.environment().dirty.bytes()).unwrap();
    });
    let waiting = receiver.recv_timeout(Duration::from_secs(30)).expect("it never ends");
    assert!(waiting < 1 << 20, "{waiting}");
}

#[test]
fn a_row_across_high_chunks_is_written_within_bounds() {
    let c = container();
    let id = dataset(&c, r#"{"dtype": "u1", "shape": [16000, 512], "maxshape": [null, 512], "chunks": [16384, 1]}"#);
    let row: Vec<u8> = (0..512).map(|i| (i % 251) as u8 + 1).collect();
    // Within the dataset, and beyond its end.
    for at in [5, 16010] {
        c.write(id, at * 512, &row).unwrap();
        let most = c.environment().dirty.peak_bytes();
        assert!(most < 1 << 20, "{most} bytes waited in memory");
        let mut read = vec![0; 3 * 512];
        c.content(id, Form::Main).unwrap().read((at - 1) * 512, &mut read).unwrap();
        assert_eq!(read[512..1024], row);
        assert!(read[..512].iter().all(|b| *b == 0));
    }
    c.commit().unwrap();
}

#[test]
fn a_sparse_dataset_laid_out_anew_stays_sparse() {
    let c = container();
    let id = dataset(&c, r#"{"dtype": "u1", "shape": [1000000, 1000000], "chunks": [100, 100]}"#);
    let places: Vec<u64> = (0..100).map(|i| (500_000 + i) * 1_000_000 + 500_000).collect();
    places.iter().for_each(|at| c.write(id, *at, &[7; 100]).unwrap());
    editor(&c).set_fact(id, "chunks", b"[200, 200]").unwrap();
    let content = c.content(id, Form::Main).unwrap();
    assert_eq!(content.allocated().unwrap(), 200 * 200);
    for at in places {
        let mut read = [0; 102];
        content.read(at - 1, &mut read).unwrap();
        assert_eq!(read, *[[0].as_slice(), &[7; 100], &[0]].concat());
    }
    assert!(c.environment().dirty.peak_bytes() < 1 << 20, "only chunks with data became dirty");
}

#[test]
fn another_fill_value_does_not_write_a_terabyte() {
    let c = container();
    let id = dataset(&c, r#"{"dtype": "u1", "shape": [1099511627776], "chunks": [65536]}"#);
    c.write(id, 1 << 39, &[7]).unwrap();
    let refused = editor(&c).set_fact(id, "fillvalue", b"9");
    assert!(matches!(refused, Err(Error::Refused { errno: libc::EFBIG, .. })), "{refused:?}");
    let few = c.create_file(c.root(), b"few").unwrap();
    editor(&c).set_fact(few, "dataset", br#"{"dtype": "u1", "shape": [1000], "chunks": [100]}"#).unwrap();
    c.write(few, 550, &[7]).unwrap();
    editor(&c).set_fact(few, "fillvalue", b"9").unwrap();
    assert_eq!(bytes(&c, few)[549..552], [0, 7, 0], "they read as before");
}

#[test]
fn to_append_and_look_does_not_walk_the_index() {
    // 5,000 reads of the file would be more than one walk of the index for each of the appends.
    let plan = Plan::new(READ, 5_000, 1, Fault::Errno(libc::EIO));
    let c = writable(&plan);
    let id = dataset(&c, r#"{"dtype": "u1", "shape": [0], "maxshape": [null], "chunks": [8], "filters": ["deflate 1"]}"#);
    c.write(id, 0, &vec![1; 160_000]).unwrap();
    c.commit().unwrap();
    let look = || c.content(id, Form::Main).unwrap().allocated().unwrap();
    let before = look();
    plan.pause(false);
    for i in 0..100 {
        c.write(id, 160_000 + i * 8, &[2; 8]).unwrap();
        assert!(look() > before);
    }
    plan.pause(true);
    assert!(!plan.has_struck());
    let counted = look();
    c.commit().unwrap();
    let kept = look();
    c.environment().stored.clear();
    assert_eq!(kept, look(), "what is followed is what is counted");
    assert_eq!(counted, before + 800, "not encoded yet they count in full");
}

/// After a failed close the end-of-file address on disk is unknown: a commit that succeeds later
/// leaves all data before it.
#[test]
fn after_a_failed_close_the_file_stays_whole() {
    let mut failures = 0;
    for (kinds, n) in (0..12).flat_map(|n| [(SYNC, n), (WRITE, n)]) {
        let plan = Plan::new(kinds, n, 1, Fault::Errno(libc::EIO));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.h5");
        super::super::create(&path, &crate::connector::new_file::NewFile::default()).unwrap();
        let file = Arc::new(GrowingFile::new(std::fs::read(path).unwrap()));
        plan.pause(true);
        let c = over(&file, &plan);
        let b = dataset(&c, r#"{"dtype": "u1", "shape": [20000], "layout": "contiguous"}"#);
        let a = c.create_file(c.root(), b"a").unwrap();
        c.write(a, 0, &[1; 5000]).unwrap();
        plan.pause(false);
        let closed = c.close();
        plan.pause(true);
        if closed.is_ok() {
            continue;
        }
        failures += 1;
        // One sector of live bytes: the commit does not write the superblock if its end is known to
        // suffice.
        let after = c.write(b, 0, &[2; 20_000]).and_then(|()| c.commit());
        let mut image = file.bytes();
        let end = Store::open(Arc::new(MemoryFile::new(image.clone()))).unwrap().superblock().eof.0;
        if after.is_ok() {
            image.truncate(end as usize);
            let again = NativeConnector::open(Arc::new(MemoryFile::new(image)), PathBuf::from("/"), options()).unwrap();
            assert_eq!(bytes(&again, b), [2; 20_000], "{kinds} {n}: the end-of-file address is before the data");
        }
    }
    assert!(failures > 5, "{failures}");
}

fn over(file: &Arc<GrowingFile>, plan: &Arc<Plan>) -> Arc<NativeConnector> {
    use crate::file::fault::{FaultyFile, FaultyPlace};
    let place = Box::new(FaultyPlace::new(crate::file::memory::MemoryJournal::default(), plan.clone()));
    NativeConnector::writable_over(Arc::new(FaultyFile::new(file.clone(), plan.clone())), place, PathBuf::from("/"), options()).unwrap()
}

/// Where partial edge chunks are stored unfiltered, those that become whole ones, or no longer are,
/// are written anew.
#[test]
fn edge_chunks_follow_the_extent() {
    let file = Arc::new(GrowingFile::new(&include_bytes!("../../../../tests/fixtures/edges/edges.h5")[..]));
    let c = over(&file, &Plan::new(0, 0, 0, Fault::Short));
    let Some(crate::connector::LinkTarget::Hard(id)) = c.lookup(c.root(), b"d").unwrap().map(|l| l.target) else { panic!() };
    let mut model: Vec<u8> = (0..24).collect();
    for rows in [5, 6, 7, 12, 13, 8, 9, 10, 3, 2, 1, 4, 11] {
        model.resize(rows * 6, 0);
        c.set_size(id, rows as u64 * 6).unwrap();
        if rows % 2 == 0 {
            let last = model.len() - 2;
            model[last] = rows as u8;
            c.write(id, last as u64, &[rows as u8]).unwrap();
        }
        c.commit().unwrap();
        assert_eq!(bytes(&c, id), model, "{rows}");
        let image = MemoryFile::new(file.bytes());
        let again = NativeConnector::open(Arc::new(image), PathBuf::from("/"), options()).unwrap();
        assert_eq!(bytes(&again, id), model, "{rows} rows, read anew");
    }
}

/// One that is a partial chunk now, and so will be stored unfiltered, takes no more than it was
/// stored in under the extent before.
#[test]
fn a_chunk_that_becomes_partial_frees_its_storage() {
    let file = Arc::new(GrowingFile::new(&include_bytes!("../../../../tests/fixtures/edges/edges.h5")[..]));
    let c = over(&file, &Plan::new(0, 0, 0, Fault::Short));
    let seven = 7i32.to_le_bytes();
    let mut all = Vec::new();
    for (round, name) in ["growing", "fixed"].into_iter().enumerate() {
        let Some(crate::connector::LinkTarget::Hard(id)) = c.lookup(c.root(), name.as_bytes()).unwrap().map(|l| l.target) else { panic!() };
        let mut model = seven.repeat(20 * 8);
        for (turn, rows) in [5, 9, 6, 20, 13, 1, 16].into_iter().enumerate() {
            let at = if turn == 0 { 4 * 32 } else { model.len().saturating_sub(40) / 4 * 4 };
            let end = model.len().min(at + 32);
            model[at..end].fill(turn as u8 + 1);
            c.write(id, at as u64, &model[at..end]).unwrap();
            model.truncate(rows * 32);
            model.extend(seven.repeat((rows * 8).saturating_sub(model.len() / 4)));
            c.set_size(id, rows as u64 * 32).unwrap();
            for i in 0..4u8 {
                let other = c.create_file(c.root(), format!("o{round}{turn}{i}").as_bytes()).unwrap();
                c.write(other, 0, &[i + 100; 60]).unwrap();
                all.push((other, vec![i + 100; 60]));
            }
            c.commit().unwrap();
            assert_eq!(bytes(&c, id), model, "{name}, {rows} rows");
        }
        all.push((id, model));
    }
    let again = NativeConnector::open(Arc::new(MemoryFile::new(file.bytes())), PathBuf::from("/"), options()).unwrap();
    for (id, want) in all {
        assert_eq!((bytes(&c, id), bytes(&again, id)), (want.clone(), want), "{id:?}");
    }
}
