//! Filtered chunks that are too large for memory: changed in temporary files, and encoded once when
//! they are written out.

use super::super::NativeConnector;
use super::super::tests::options_in;
use super::fault_tests::{bytes, dataset};
use super::write_errors_tests::{empty, find};
use crate::base::Error;
use crate::connector::edit::{Allocate, Edit};
use crate::connector::{Form, ObjectId};
use crate::dataset::environment::Environment;
use crate::dataset::layout::Front;
use crate::file::memory::{GrowingFile, MemoryJournal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a chunk.
const CHUNK: usize = 300_000;

fn open(file: &Arc<GrowingFile>) -> Arc<NativeConnector> {
    open_with(file, 512 << 10)
}

/// `whole`: largest chunk that is in memory for a moment.
fn open_with(file: &Arc<GrowingFile>, whole: u64) -> Arc<NativeConnector> {
    let mut environment = Environment::new(256 << 10, 128 << 20, 2).unwrap();
    (environment.changed_chunk_min, environment.whole_chunk_min) = (64 << 10, whole);
    NativeConnector::writable_over(file.clone(), Box::new(MemoryJournal::default()), PathBuf::from("/"), options_in(environment)).unwrap()
}

fn made(rows: usize, filters: &str, fill: u32) -> (Arc<GrowingFile>, Arc<NativeConnector>, ObjectId) {
    let file = empty();
    let c = open(&file);
    let fact = format!(
        r#"{{"dtype": "<u4", "shape": [{rows}, 3], "maxshape": [null, 3], "chunks": [25000, 3], "fillvalue": {fill}, "filters": {filters}}}"#
    );
    let id = dataset(&c, &fact);
    (file, c, id)
}

const ALL: &str = r#"["shuffle", "deflate 1", "fletcher32"]"#;

fn streamed(c: &NativeConnector) -> u64 {
    c.environment().streamed.load(Ordering::Relaxed)
}

fn noise(n: usize, seed: u32) -> Vec<u8> {
    (0..n as u32).map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 24) as u8 & 0x3f).collect()
}

#[test]
fn what_is_written_in_order_is_encoded_once() {
    let (file, c, id) = made(0, ALL, 0);
    let data = noise(5 * CHUNK, 1);
    for (i, piece) in data.chunks(10_000).enumerate() {
        c.write(id, (i * 10_000) as u64, piece).unwrap();
    }
    assert_eq!(streamed(&c), 0);
    assert!(bytes(&c, id) == data, "before it is in the file");
    c.commit().unwrap();
    assert_eq!((streamed(&c), c.environment().images.now()), (5, (0, 0)));
    let most = c.environment().dirty.peak_bytes();
    assert!(most < 10_000, "{most} bytes in memory");
    assert!(bytes(&c, id) == data);
    // A few bytes of one that is there.
    c.write(id, 7, &[0xee; 9]).unwrap();
    c.close().unwrap();
    assert_eq!(streamed(&c), 6);
    let c = open(&file);
    let read = bytes(&c, find(&c, b"d"));
    assert!(read[7..16] == [0xee; 9] && read[16..] == data[16..]);
}

#[test]
fn what_filters_take_as_a_whole_is_refused_where_it_is_too_large() {
    for filters in [r#"["lzf"]"#, r#"["fletcher32"]"#, r#"["deflate 1", "shuffle"]"#] {
        let (file, c, _) = made(50_000, filters, 0);
        c.close().unwrap();
        let c = open_with(&file, 256 << 10);
        let id = find(&c, b"d");
        assert!(matches!(c.write(id, 5, b"x"), Err(Error::Refused { errno: libc::EFBIG, .. })), "{filters}");
    }
}

#[test]
fn any_change_agrees_with_plain_bytes() {
    let whole =
        [(r#"["lzf"]"#, 0u32), (r#"["shuffle", "lzf", "fletcher32"]"#, 7), (r#"["deflate 1", "shuffle"]"#, 0), (r#"["fletcher32"]"#, 3)];
    for (filters, fill) in [(ALL, 0u32), (r#"["deflate 1"]"#, 0), (r#"["fletcher32", "deflate 1"]"#, 77)].into_iter().chain(whole) {
        let (file, c, id) = made(60_000, filters, fill);
        let mut model = fill.to_le_bytes().repeat(180_000);
        let mut state = 12345u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as usize) % n
        };
        for round in 0..60 {
            let (at, len) = (random(model.len() - 1), 1 + random(40_000));
            match random(8) {
                0..=3 => {
                    let data = noise(len, round);
                    c.write(id, at as u64, &data).unwrap();
                    let end = (at + len).div_ceil(12) * 12;
                    let old = model.len();
                    if end > old {
                        model.extend(fill.to_le_bytes().repeat((end - old) / 4));
                    }
                    model[at..at + len].copy_from_slice(&data);
                }
                4 => {
                    let rows = 40_000 + random(60_000);
                    c.set_size(id, rows as u64 * 12).unwrap();
                    model.truncate(rows * 12);
                    model.extend(fill.to_le_bytes().repeat((rows * 12 - model.len()) / 4));
                }
                5 => {
                    let end = (at + len * 20).min(model.len());
                    c.zero(id, at as u64, (end - at) as u64).unwrap();
                    model[at..end].fill(0);
                }
                6 => Allocate::allocate(&*c, id, at as u64, 1).unwrap(),
                _ => {
                    c.commit().unwrap();
                    c.forget_all();
                }
            }
            assert!(bytes(&c, id) == model, "{filters} {round}");
        }
        c.close().unwrap();
        let c = open(&file);
        assert!(bytes(&c, find(&c, b"d")) == model, "{filters}");
        assert!(streamed(&c) == 0 && c.environment().dirty.peak_bytes() == 0);
    }
}

#[test]
fn an_operation_that_fails_is_rolled_back() {
    let (_, c, id) = made(60_000, ALL, 5);
    let data = noise(720_000, 9);
    c.write(id, 0, &data).unwrap();
    for committed in [false, true] {
        if committed {
            c.commit().unwrap();
        }
        let fail = |f: &dyn Fn(&super::Change<'_>) -> crate::base::Result<()>| {
            let failed = c.operate(&[id], |change| f(change).and(Err::<(), _>(Error::refused(libc::EIO, "a test"))));
            assert!(failed.is_err());
            assert!(bytes(&c, id) == data, "{committed}");
        };
        fail(&|change| change.data().write(id, Form::Main, 719_000, &[1; 20_000]));
        fail(&|change| change.data().set_size(id, Form::Main, 40_000 * 12));
        fail(&|change| change.data().set_size(id, Form::Main, 90_000 * 12));
    }
}

/// Each read of such a chunk was made five times, the last time with the lock.
#[test]
fn a_large_chunk_that_was_decoded_is_read_at_once() {
    const LARGE: u64 = 66 << 20;
    let c = open(&empty());
    let id = dataset(&c, &format!(r#"{{"dtype": "u1", "shape": [{LARGE}], "chunks": [{LARGE}], "filters": ["deflate 1"]}}"#));
    c.write(id, LARGE - 3, b"end").unwrap();
    c.commit().unwrap();
    c.environment().forget_decoded();
    let (env, mut buf) = (c.environment(), [0; 4]);
    let open = c.access().dataset(id).unwrap();
    let d = &open.dataset.bytes;
    match d.layout.read_front(d, &env, LARGE - 4, &mut buf).unwrap() {
        Front::Deferred(work) => work(),
        Front::Read(n) => panic!("{n} bytes were read at once"),
    }
    assert!(matches!(d.layout.read_front(d, &env, LARGE - 4, &mut buf).unwrap(), Front::Read(4)));
    assert_eq!(&buf, b"\0end");
}

/// A changed chunk in a temporary file was read with the lock of readers.
#[test]
fn a_changed_chunk_on_a_disk_is_read_when_the_lock_is_released() {
    const LARGE: u64 = 66 << 20;
    let c = open(&empty());
    let id = dataset(&c, &format!(r#"{{"dtype": "u1", "shape": [{LARGE}], "chunks": [{LARGE}], "filters": ["deflate 1"]}}"#));
    c.write(id, 5 << 20, b"there").unwrap();
    let (env, mut buf) = (c.environment(), [0; 5]);
    let open = c.access().dataset(id).unwrap();
    let d = &open.dataset.bytes;
    let number = *env.dirty.datasets().first().unwrap();
    let image = env.dirty.of(number)[0].1.in_file().unwrap();
    image.file().cool();
    assert!(d.layout.is_long_read(d, &env, 5 << 20, 5));
    match d.layout.read_front(d, &env, 5 << 20, &mut buf).unwrap() {
        Front::Deferred(work) => work(),
        Front::Read(n) => panic!("{n} bytes were read at once"),
    }
    assert!(!d.layout.is_long_read(d, &env, 5 << 20, 5));
    assert!(matches!(d.layout.read_front(d, &env, 5 << 20, &mut buf).unwrap(), Front::Read(5)));
    assert_eq!(&buf, b"there");
}

#[test]
fn few_chunks_wait_in_files() {
    let file = empty();
    let c = open(&file);
    let fact = r#"{"dtype": "u1", "shape": [100000, 40], "chunks": [100000, 1], "filters": ["deflate 1"]}"#;
    let id = dataset(&c, fact);
    for row in [0u64, 5, 99_999] {
        c.write(id, row * 40, &[row as u8 + 1; 40]).unwrap();
        let (files, _) = c.environment().images.now();
        assert!(files <= 17, "{files}");
    }
    c.close().unwrap();
    let c = open(&file);
    let read = bytes(&c, find(&c, b"d"));
    for row in [0, 5, 99_999usize] {
        assert_eq!(read[row * 40..][..40], [(row as u64) as u8 + 1; 40]);
    }
    assert_eq!(read.iter().filter(|b| **b != 0).count(), 3 * 40);
}

#[test]
fn commits_while_others_write_lose_nothing() {
    let (file, c, id) = made(75_000, ALL, 0);
    let data = noise(3 * CHUNK, 3);
    let ended = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                c.commit().unwrap();
            }
        });
        for (i, piece) in data.chunks(1000).enumerate() {
            c.write(id, (i * 1000) as u64, piece).unwrap();
        }
        ended.store(true, Ordering::Release);
    });
    c.close().unwrap();
    let c = open(&file);
    assert!(bytes(&c, find(&c, b"d")) == data);
}
