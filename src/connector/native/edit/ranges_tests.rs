//! Zeroing, allocating and copying ranges, against plain bytes.

use super::super::NativeConnector;
use super::fault_tests::{bytes, writable};
use crate::connector::edit::{Allocate, CopyRange, Edit};
use crate::connector::native::tests::editor;
use crate::connector::{Connector, Form, ObjectId};
use crate::dataset::layout::Seek;
use crate::file::fault::{Fault, Plan};
use proptest::prelude::*;
use std::sync::Arc;

fn container() -> Arc<NativeConnector> {
    writable(&Plan::new(0, 0, 0, Fault::Short))
}

fn dataset(c: &NativeConnector, name: &str, fact: &str) -> ObjectId {
    let id = c.create_file(c.root(), name.as_bytes()).unwrap();
    editor(c).set_fact(id, "dataset", fact.as_bytes()).unwrap();
    id
}

fn allocated(c: &NativeConnector, id: ObjectId) -> u64 {
    c.content(id, Form::Main).unwrap().allocated().unwrap()
}

/// Ranges of data that SEEK_DATA and SEEK_HOLE find.
fn data(c: &NativeConnector, id: ObjectId) -> Vec<(u64, u64)> {
    let content = c.content(id, Form::Main).unwrap();
    let (mut out, mut at, size) = (Vec::new(), 0, content.size().unwrap());
    while at < size {
        let Some(start) = content.seek(at, Seek::Data).unwrap().filter(|s| *s < size) else { break };
        let end = content.seek(start, Seek::Hole).unwrap().unwrap();
        out.push((start, end));
        at = end;
    }
    out
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i % 251) as u8 + 1).collect()
}

/// One of each chunk index, with and without filters.
const CHUNKED: [&str; 8] = [
    r#"{"dtype": "u1", "shape": [4000], "maxshape": [null], "chunks": [100]}"#,
    r#"{"dtype": "u1", "shape": [4000], "maxshape": [null], "chunks": [100], "filters": ["deflate 1"]}"#,
    r#"{"dtype": "u1", "shape": [40, 100], "maxshape": [80, 100], "chunks": [7, 33]}"#,
    r#"{"dtype": "u1", "shape": [40, 100], "maxshape": [80, 100], "chunks": [7, 33], "filters": ["shuffle", "deflate 1", "fletcher32"]}"#,
    r#"{"dtype": "<u2", "shape": [40, 50], "maxshape": [null, null], "chunks": [9, 50]}"#,
    r#"{"dtype": "<u2", "shape": [40, 50], "maxshape": [null, null], "chunks": [1, 20], "filters": ["deflate 1"]}"#,
    r#"{"dtype": "u1", "shape": [4000], "chunks": [4000], "filters": ["deflate 1"]}"#,
    r#"{"dtype": "u1", "shape": [4000], "chunks": [4000]}"#,
];

#[test]
fn chunks_that_become_zero_are_freed() {
    for fact in CHUNKED {
        for committed in [false, true] {
            let c = container();
            let id = dataset(&c, "d", fact);
            c.write(id, 0, &pattern(4000)).unwrap();
            if committed {
                c.commit().unwrap();
            }
            let whole = allocated(&c, id);
            // In two halves that no chunk ends with.
            c.zero(id, 0, 1950).unwrap();
            let mut want = pattern(4000);
            want[..1950].fill(0);
            assert_eq!(bytes(&c, id), want);
            c.commit().unwrap();
            assert_eq!(bytes(&c, id), want);
            let single = fact.contains("[4000]}") || fact.contains("\"chunks\": [4000]");
            assert!(allocated(&c, id) < whole || single, "{fact}");
            assert!(data(&c, id)[0].0 >= 1400 || single, "{fact}: {:?}", data(&c, id));
            c.zero(id, 1950, 1 << 60).unwrap();
            assert_eq!((bytes(&c, id), allocated(&c, id)), (vec![0; 4000], 0), "{fact}");
            assert_eq!(data(&c, id), []);
            c.commit().unwrap();
            assert_eq!((bytes(&c, id), allocated(&c, id)), (vec![0; 4000], 0), "{fact}");
            c.write(id, 17, b"again").unwrap();
            c.commit().unwrap();
            assert_eq!(bytes(&c, id)[15..24], *b"\0\0again\0\0");
        }
    }
}

#[test]
fn a_hole_of_a_terabyte_is_punched_at_once() {
    let c = container();
    let id = dataset(&c, "d", r#"{"dtype": "u1", "shape": [0], "maxshape": [null], "chunks": [4096]}"#);
    c.set_size(id, 1 << 40).unwrap();
    for at in [0u64, 1 << 20, 1 << 35, (1 << 40) - 5] {
        c.write(id, at, b"12345").unwrap();
    }
    c.commit().unwrap();
    assert_eq!(data(&c, id).len(), 4);
    c.zero(id, 1, (1 << 40) - 5).unwrap();
    assert_eq!(data(&c, id), [(0, 4096), ((1 << 40) - 4096, 1 << 40)]);
    let mut buf = [9; 8];
    let content = c.content(id, Form::Main).unwrap();
    content.read(0, &mut buf).unwrap();
    assert_eq!(&buf, b"1\0\0\0\0\0\0\0");
    content.read((1 << 40) - 8, &mut buf).unwrap();
    assert_eq!(buf, [0, 0, 0, 0, b'2', b'3', b'4', b'5']);
}

#[test]
fn other_fill_values_and_layouts_are_written_with_zeros() {
    for layout in [r#""chunks": [16], "maxshape": [null]"#, r#""layout": "contiguous""#, r#""layout": "compact""#] {
        let c = container();
        let id = dataset(&c, "d", &format!(r#"{{"dtype": "u1", "shape": [100], "fillvalue": 7, {layout}}}"#));
        c.write(id, 90, b"x").unwrap();
        c.zero(id, 10, 70).unwrap();
        let mut want = vec![7; 100];
        want[10..80].fill(0);
        want[90] = b'x';
        assert_eq!(bytes(&c, id), want, "{layout}");
    }
}

#[test]
fn chunks_are_allocated_with_fill_values() {
    for (fact, fill) in CHUNKED.iter().map(|f| ((*f).to_owned(), 0)).chain([(CHUNKED[3].replace('}', r#", "fillvalue": 5}"#), 5)]) {
        let c = container();
        let id = dataset(&c, "d", &fact);
        assert_eq!(allocated(&c, id), 0);
        c.write(id, 100, b"abc").unwrap();
        Allocate::allocate(&*c, id, 0, 4000).unwrap();
        c.commit().unwrap();
        let mut want = vec![fill; 4000];
        want[100..103].copy_from_slice(b"abc");
        assert_eq!(bytes(&c, id), want);
        assert!(fill != 0 || data(&c, id) == [(0, 4000)], "{fact}");
        let all = allocated(&c, id);
        assert!(all >= 4000 || fact.contains("deflate"), "{fact}: {all}");
        Allocate::allocate(&*c, id, 0, 4000).unwrap();
        assert_eq!(allocated(&c, id), all, "what is there is not allocated twice");
    }
    let c = container();
    let id = dataset(&c, "c", r#"{"dtype": "u1", "shape": [100], "layout": "contiguous", "fillvalue": 3}"#);
    assert_eq!(allocated(&c, id), 0);
    Allocate::allocate(&*c, id, 5, 1).unwrap();
    assert_eq!((allocated(&c, id), bytes(&c, id)), (100, vec![3; 100]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn ranges_agree_with_plain_bytes(kind in 0usize..8, steps in prop::collection::vec((0u8..5, 0u64..4000, 1u64..3000), 1..14)) {
        let c = container();
        let id = dataset(&c, "d", CHUNKED[kind]);
        let mut model = vec![0u8; 4000];
        for (step, at, len) in steps {
            let end = (at + len).min(4000);
            let range = at as usize..end as usize;
            match step {
                0 => {
                    let bytes = pattern(range.len());
                    c.write(id, at, &bytes).unwrap();
                    model[range].copy_from_slice(&bytes);
                }
                1 | 2 => {
                    c.zero(id, at, len).unwrap();
                    model[range].fill(0);
                }
                3 => Allocate::allocate(&*c, id, at, len).unwrap(),
                _ => c.commit().unwrap(),
            }
            prop_assert_eq!(&bytes(&c, id), &model);
            // Holes read as zeros.
            let mut rest = model.clone();
            data(&c, id).iter().for_each(|(a, b)| rest[*a as usize..*b as usize].fill(0));
            prop_assert!(rest.iter().all(|b| *b == 0));
        }
    }
}

fn copied(c: &NativeConnector) -> u64 {
    c.environment().copied.load(std::sync::atomic::Ordering::Relaxed)
}

fn decoded(c: &NativeConnector) -> u64 {
    c.environment().cache.counters.decodes.load(std::sync::atomic::Ordering::Relaxed)
}

/// Copies all of a range, as programs do.
fn copy(c: &NativeConnector, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> u64 {
    let mut done = 0;
    while done < len {
        match CopyRange::copy_range(c, (from.0, from.1 + done), (to.0, to.1 + done), len - done).unwrap() {
            0 => break,
            n => done += n,
        }
    }
    done
}

#[test]
fn whole_chunks_are_copied_without_decoding() {
    for (fact, chunks) in [(CHUNKED[1], 40), (CHUNKED[3], 24), (CHUNKED[5], 120), (CHUNKED[4], 5), (CHUNKED[6], 1)] {
        let c = container();
        let (a, b) = (dataset(&c, "a", fact), dataset(&c, "b", fact));
        c.write(a, 0, &pattern(4000)).unwrap();
        c.write(b, 50, b"goes").unwrap();
        assert_eq!(copy(&c, (a, 0), (b, 0), 9999), 4000);
        assert_eq!((copied(&c), decoded(&c)), (chunks, 0), "{fact}");
        assert_eq!(bytes(&c, b), pattern(4000));
        c.zero(a, 0, 4000).unwrap();
        assert_eq!(copy(&c, (a, 0), (b, 0), 4000), 4000);
        assert_eq!((bytes(&c, b), allocated(&c, b), copied(&c)), (vec![0; 4000], 0, chunks), "holes are copied as holes");
        c.commit().unwrap();
        assert_eq!(bytes(&c, b), vec![0; 4000]);
    }
}

#[test]
fn stored_chunks_of_another_container_stay_as_they_are() {
    use crate::connector::stored::{ChunkStorage, StoredChunk};
    use crate::dataset::fill::FillPattern;
    let errno = |done: crate::base::Result<()>| match done {
        Err(crate::base::Error::Refused { errno, .. }) => errno,
        other => panic!("{other:?}"),
    };
    let part = |scaled: &[u64], mask: u32, bytes: &[u8]| StoredChunk { scaled: scaled.to_vec(), mask, bytes: bytes.to_vec(), offset: None };
    let c = container();
    let (gzip, plain) = (dataset(&c, "gzip", CHUNKED[1]), dataset(&c, "plain", CHUNKED[0]));
    let storage = |id: ObjectId| {
        let info = Connector::dataset(&*c, id).unwrap();
        let (dims, chunk) = (info.shape.dims().unwrap().to_vec(), info.chunks.unwrap());
        ChunkStorage { datatype: info.datatype, dims, chunk, filters: info.filters, profile: info.profile, fill: FillPattern::zero() }
    };
    let (compressed, whole) = (storage(gzip), storage(plain));
    assert!(c.takes_chunks(gzip, &compressed).unwrap() && c.takes_chunks(plain, &whole).unwrap());
    assert!(!c.takes_chunks(gzip, &whole).unwrap() && !c.takes_chunks(plain, &compressed).unwrap());
    c.write(gzip, 350, &[5; 10]).unwrap();
    // The first chunk is `zlib.compress(b"\x07" * 100, 0)` of Python; the encoder never makes it.
    let stored = [&[0x78, 0x01, 0x01, 0x64, 0x00, 0x9b, 0xff][..], &[7; 100], &[0x8a, 0x7a, 0x02, 0xbd]].concat();
    c.store_chunks(gzip, &compressed, &[part(&[3], 0, &stored), part(&[5], 1, &pattern(100))]).unwrap();
    assert_eq!(bytes(&c, gzip)[300..600], [vec![7; 100], vec![0; 100], pattern(100)].concat());
    c.commit().unwrap();
    let chunks = c.chunks(gzip).unwrap().unwrap();
    let mut read = vec![0; 200];
    assert_eq!(chunks.read(&[3], 0, &mut read).unwrap(), stored.len());
    assert_eq!(&read[..stored.len()], stored);
    // Without filters, bytes that are not there have the fill value.
    c.store_chunks(plain, &whole, &[part(&[39], 0, &[8; 30])]).unwrap();
    assert_eq!(bytes(&c, plain)[3900..], [vec![8; 30], vec![0; 70]].concat());
    assert_eq!(errno(c.store_chunks(plain, &whole, &[part(&[40], 0, &[8; 30])])), libc::EINVAL);
    assert_eq!(errno(c.store_chunks(plain, &whole, &[part(&[1], 0, &[8; 101])])), libc::EOPNOTSUPP);
    assert_eq!(errno(c.store_chunks(plain, &compressed, &[part(&[1], 0, &stored)])), libc::EOPNOTSUPP);
    assert_eq!(data(&c, plain), [(3900, 4000)]);
}

#[test]
fn a_copy_makes_its_target_longer_and_leaves_no_elements_past_the_extent() {
    let c = container();
    let fact = r#"{"dtype": "u1", "shape": [250], "maxshape": [null], "chunks": [100], "filters": ["deflate 1"]}"#;
    let (a, b) = (dataset(&c, "a", fact), dataset(&c, "b", fact));
    c.write(a, 0, &pattern(250)).unwrap();
    c.set_size(b, 0).unwrap();
    assert_eq!(copy(&c, (a, 0), (b, 200), 250), 250);
    assert_eq!((copied(&c), decoded(&c)), (3, 0));
    c.set_size(b, 500).unwrap();
    assert_eq!(bytes(&c, b), [vec![0; 200], pattern(250), vec![0; 50]].concat());
    // The source goes on behind what the target takes.
    c.set_size(a, 300).unwrap();
    c.write(a, 250, &[9; 50]).unwrap();
    c.set_size(b, 0).unwrap();
    assert_eq!(copy(&c, (a, 0), (b, 0), 250), 250);
    c.set_size(b, 300).unwrap();
    assert_eq!(bytes(&c, b), [pattern(250), vec![0; 50]].concat());
    let errno = |r: crate::base::Result<u64>| matches!(r, Err(crate::base::Error::Refused { errno: libc::EINVAL, .. }));
    assert!(errno(CopyRange::copy_range(&*c, (a, 0), (a, 100), 101)) && CopyRange::copy_range(&*c, (a, 0), (a, 100), 100).is_ok());
    let fixed = dataset(&c, "f", r#"{"dtype": "u1", "shape": [100], "layout": "contiguous"}"#);
    assert_eq!(copy(&c, (a, 50), (fixed, 0), 100), 100);
    assert_eq!(bytes(&c, fixed), bytes(&c, a)[50..150]);
    assert!(CopyRange::copy_range(&*c, (a, 0), (fixed, 50), 100).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn copies_agree_with_plain_bytes(
        kinds in (0usize..6, 0usize..6, any::<bool>()),
        steps in prop::collection::vec((0u8..6, 0u64..4000, 0u64..4000, 1u64..3000, any::<bool>()), 1..14),
    ) {
        let c = container();
        let (ka, kb) = (kinds.0, if kinds.2 { kinds.0 } else { kinds.1 });
        let ids = [dataset(&c, "a", CHUNKED[ka]), dataset(&c, "b", CHUNKED[kb])];
        let mut models = [vec![0u8; 4000], vec![0u8; 4000]];
        for (step, at, to, len, swap) in steps {
            let (x, y) = if swap { (1, 0) } else { (0, 1) };
            // Whole rows of chunks now and then.
            let (at, to) = if step % 2 == 0 { (at / 700 * 700, to / 700 * 700) } else { (at, to) };
            let len = len.min(4000 - at).min(4000 - to);
            match step {
                0 => {
                    let fresh: Vec<u8> = (0..len).map(|i| (i + at) as u8 | 1).collect();
                    c.write(ids[x], at, &fresh).unwrap();
                    models[x][at as usize..(at + len) as usize].copy_from_slice(&fresh);
                }
                1 => c.commit().unwrap(),
                2 if len > 0 => {
                    c.zero(ids[x], at, len).unwrap();
                    models[x][at as usize..(at + len) as usize].fill(0);
                }
                _ => {
                    let y = if step == 5 && (at + len <= to || to + len <= at) { x } else { y };
                    prop_assert_eq!(copy(&c, (ids[x], at), (ids[y], to), len), len);
                    let part = models[x][at as usize..(at + len) as usize].to_vec();
                    models[y][to as usize..(to + len) as usize].copy_from_slice(&part);
                }
            }
            for i in 0..2 {
                prop_assert_eq!(&bytes(&c, ids[i]), &models[i]);
            }
        }
    }
}
