//! Sparse datasets of containers, compared with a model that knows each element.

use super::access::IodConnector;
use super::check_tests::{checked, details};
use super::tests::{Random, bytes, empty, errno, open, open_in, spec};
use crate::base::element_set::ElementSet;
use crate::connector::edit::{Edit, Elements, Erase};
use crate::connector::{ChunksSpec, Connector, DatasetSpec, FillSpec, FilterSpec, Form, NewValue, ObjectId, Shape};
use crate::dataset::layout::Seek;
use crate::present::parse::parse_datatype;
use std::sync::Arc;

/// Elements have the numbers 0 to 65,535 and this fill value.
const FILL: u16 = 0x0907;

/// What a dataset of two dimensions has: values of defined elements.
#[derive(Clone)]
struct Model {
    rows: usize,
    columns: usize,
    fill: u16,
    elements: Vec<Option<u16>>,
}

impl Model {
    fn new(rows: usize, columns: usize, fill: u16) -> Model {
        Model { rows, columns, fill, elements: vec![None; rows * columns] }
    }

    fn bytes(&self) -> Vec<u8> {
        self.elements.iter().flat_map(|e| e.unwrap_or(self.fill).to_le_bytes()).collect()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            let element = &mut self.elements[(at + i) / 2];
            let mut value = element.unwrap_or(self.fill).to_le_bytes();
            value[(at + i) % 2] = *byte;
            *element = Some(u16::from_le_bytes(value));
        }
    }

    fn punch(&mut self, from: usize, to: usize) {
        for n in from / 2..to.div_ceil(2).min(self.elements.len()) {
            let (start, end) = ((n * 2).max(from), (n * 2 + 2).min(to));
            if end - start == 2 {
                self.elements[n] = None;
            } else if let Some(value) = &mut self.elements[n] {
                let mut two = value.to_le_bytes();
                two[start - n * 2..end - n * 2].fill(0);
                *value = u16::from_le_bytes(two);
            }
        }
    }

    fn resize(&mut self, rows: usize) {
        self.rows = rows;
        self.elements.resize(rows * self.columns, None);
    }

    fn in_block(&self, first: &[u64], end: &[u64]) -> Vec<usize> {
        let inside = |n: &usize| {
            let (row, column) = ((n / self.columns) as u64, (n % self.columns) as u64);
            (first[0]..end[0]).contains(&row) && (first[1]..end[1]).contains(&column)
        };
        (0..self.elements.len()).filter(inside).collect()
    }

    fn defined(&self, first: &[u64], end: &[u64]) -> Vec<usize> {
        self.in_block(first, end).into_iter().filter(|n| self.elements[*n].is_some()).collect()
    }

    /// Compares all that can be read.
    fn check(&self, c: &Arc<IodConnector>, id: ObjectId, random: &mut Random) {
        assert_eq!(bytes(&**c, id), self.bytes());
        let (rows, columns) = (self.rows as u64, self.columns as u64);
        let (a, b) = (random.next(rows + 1), random.next(columns + 1));
        for (first, end) in [([0, 0], [rows, columns]), ([a / 2, b / 2], [a, b])] {
            assert_eq!(numbers(&c.defined(id, &first, &end).unwrap().unwrap(), self), self.defined(&first, &end));
        }
        let content = c.content(id, Form::Main).unwrap();
        let defined: Vec<bool> = self.elements.iter().map(Option::is_some).collect();
        let at = random.next(self.elements.len() as u64 + 1) as usize;
        let next = |from: usize, what: bool| (from..defined.len()).find(|n| defined[*n] == what).map(|n| n as u64 * 2);
        if at < defined.len() {
            let written = next(at, true).map(|start| start..next(start as usize / 2, false).unwrap_or(defined.len() as u64 * 2));
            assert_eq!(content.written(at as u64 * 2).unwrap(), written);
            if self.fill == 0 {
                assert_eq!(content.seek(at as u64 * 2, Seek::Data).unwrap(), next(at, true));
                let hole = next(at, false).unwrap_or(defined.len() as u64 * 2);
                assert_eq!(content.seek(at as u64 * 2, Seek::Hole).unwrap(), Some(hole));
            }
        }
        let is_blank = !defined.contains(&true);
        assert_eq!(content.allocated_exactly().unwrap() == 0, is_blank);
    }
}

fn numbers(set: &ElementSet, model: &Model) -> Vec<usize> {
    let mut all = Vec::new();
    set.for_each_run(&[model.rows as u64, model.columns as u64], &mut |run| {
        all.extend(run.start as usize..run.end as usize);
        Ok(())
    })
    .unwrap();
    all
}

fn sparse(profile: &str, rows: usize, columns: usize, fill: u16) -> DatasetSpec {
    let value = NewValue::plain(parse_datatype("<u2").unwrap(), Shape::Scalar, fill.to_le_bytes().to_vec());
    DatasetSpec {
        layout: Some("sparse".into()),
        profile: Some(profile.into()),
        chunks: Some(ChunksSpec::Dims(vec![5, 6])),
        maxshape: Some(vec![None, Some(columns as u64)]),
        fillvalue: (fill != 0).then_some(FillSpec::Value(value)),
        ..spec("<u2", &[rows as u64, columns as u64])
    }
}

fn erase(c: &IodConnector) -> &dyn Erase {
    Edit::erase(c).unwrap()
}

/// One operation on the dataset and on the model.
fn operation(c: &IodConnector, id: ObjectId, m: &mut Model, random: &mut Random) {
    let size = m.elements.len() * 2;
    let from = random.next(size as u64) as usize;
    let to = (from + 1 + random.next(40) as usize).min(size);
    let (a, b) = (random.next(m.rows as u64 + 1), random.next(m.columns as u64 + 1));
    let (first, end) = ([a / 2, b / 3], [a, b]);
    match random.next(9) {
        0..4 => {
            let bytes: Vec<u8> = (from..to).map(|n| if n % 3 == 0 { 0 } else { (random.0 >> (n % 50)) as u8 }).collect();
            c.write(id, from as u64, &bytes).unwrap();
            m.write(from, &bytes);
        }
        4 => {
            erase(c).punch(id, from as u64, (to - from) as u64).unwrap();
            m.punch(from, to);
        }
        5 => {
            erase(c).erase(id, &first, &end).unwrap();
            m.in_block(&first, &end).into_iter().for_each(|n| m.elements[n] = None);
        }
        6 => {
            c.zero(id, from as u64, (to - from) as u64).unwrap();
            m.write(from, &vec![0; to - from]);
        }
        7 => {
            let (low, high) = (from / 2, to.div_ceil(2));
            let runs = [low as u64..low as u64 + 1, low as u64 + 2..(high as u64).max(low as u64 + 2)];
            let runs: Vec<_> = runs.into_iter().filter(|run| run.end <= high as u64).collect();
            erase(c).set_defined(id, low as u64..high as u64, &runs).unwrap();
            for n in low..high {
                let wanted = runs.iter().any(|run| run.contains(&(n as u64)));
                m.elements[n] = match m.elements[n] {
                    None if wanted => Some(m.fill),
                    Some(value) if !wanted && value == m.fill => None,
                    same => same,
                };
            }
        }
        _ => {
            let rows = 1 + random.next(16) as usize;
            c.set_size(id, (rows * m.columns * 2) as u64).unwrap();
            m.resize(rows);
        }
    }
}

/// Any operations, commits and remounts leave the values and the defined elements of the model.
#[test]
fn sparse_datasets_know_their_defined_elements() {
    for (profile, fill, seed) in [("map", 0, 1), ("map", FILL, 2), ("filter", 0, 3), ("filter", FILL, 4)] {
        let (store, mut random) = (empty(), Random(seed));
        let mut c = open(&store);
        let mut m = Model::new(9, 11, fill);
        let id = c.create_dataset(c.root(), b"d", &sparse(profile, 9, 11, fill)).unwrap();
        let info = Connector::dataset(&*c, id).unwrap();
        assert_eq!((info.layout, info.profile, info.filters.iter().all(|f| f.id != 32800)), ("sparse", Some(profile), true));
        m.check(&c, id, &mut random);
        for step in 0..160 {
            operation(&c, id, &mut m, &mut random);
            m.check(&c, id, &mut random);
            match step % 8 {
                3 => Edit::commit(&*c).unwrap(),
                7 => {
                    c.close().unwrap();
                    c = open(&store);
                    m.check(&c, id, &mut random);
                }
                _ => {}
            }
        }
        c.close().unwrap();
        let checked = checked(&store, true).unwrap();
        assert!(checked.findings.is_empty(), "{:?}", details(&checked));
    }
}

/// A read-only version shows the defined elements that it had.
#[test]
fn versions_have_their_defined_elements() {
    let (store, mut random) = (empty(), Random(9));
    let c = open(&store);
    let mut m = Model::new(9, 11, 0);
    let id = c.create_dataset(c.root(), b"d", &sparse("map", 9, 11, 0)).unwrap();
    let mut versions = Vec::new();
    for _ in 0..6 {
        (0..5).for_each(|_| operation(&c, id, &mut m, &mut random));
        Edit::commit(&*c).unwrap();
        versions.push((c.states.shown().snapshot.version(), m.clone()));
    }
    for (version, m) in versions {
        m.check(&open_in(Arc::new(store.clone()), Some(version)).unwrap(), id, &mut random);
    }
}

/// Two sessions write, punch and erase other elements of the same chunks: both are kept.
#[test]
fn defined_elements_of_two_writers_are_merged() {
    for profile in ["map", "filter"] {
        let store = empty();
        let c = open(&store);
        let mut m = Model::new(10, 12, FILL);
        let id = c.create_dataset(c.root(), b"d", &sparse(profile, 10, 12, FILL)).unwrap();
        let whole: Vec<u8> = (0..120u8).flat_map(|n| [n, 1]).collect();
        c.write(id, 0, &whole[..120]).unwrap();
        m.write(0, &whole[..120]);
        c.close().unwrap();
        let (a, b) = (open(&store), open(&store));
        a.write(id, 4, &[7; 6]).unwrap();
        m.write(4, &[7; 6]);
        erase(&a).erase(id, &[2, 0], &[3, 12]).unwrap();
        m.in_block(&[2, 0], &[3, 12]).into_iter().for_each(|n| m.elements[n] = None);
        erase(&b).punch(id, 12, 7).unwrap();
        m.punch(12, 19);
        b.write(id, 150, &[9; 10]).unwrap();
        m.write(150, &[9; 10]);
        Edit::commit(&*a).unwrap();
        Edit::commit(&*b).unwrap();
        a.close().unwrap();
        b.close().unwrap();
        m.check(&open(&store), id, &mut Random(5));
    }
}

/// A dataset becomes a sparse one, another sparse one, and a dense one.
#[test]
fn layouts_keep_what_is_defined() {
    let (store, mut random) = (empty(), Random(3));
    let c = open(&store);
    let mut m = Model::new(9, 11, 0);
    let chunked = DatasetSpec { layout: Some("chunked".into()), profile: None, ..sparse("map", 9, 11, 0) };
    let id = c.create_dataset(c.root(), b"d", &chunked).unwrap();
    assert!(c.defined(id, &[0, 0], &[9, 11]).unwrap().is_none());
    c.write(id, 20, &[0, 0, 5, 0, 6, 7, 0, 0]).unwrap();
    m.write(22, &[5, 0, 6, 7]);
    c.change_dataset(id, DatasetSpec { undefine_fill: true, ..sparse("map", 9, 11, 0) }, Elements::Kept).unwrap();
    m.check(&c, id, &mut random);
    (0..20).for_each(|_| operation(&c, id, &mut m, &mut random));
    for (spec, fill) in [(sparse("filter", m.rows, 11, 0), 0), (sparse("map", m.rows, 11, FILL), FILL)] {
        Edit::commit(&*c).unwrap();
        c.change_dataset(id, DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![3, 4])), ..spec }, Elements::Kept).unwrap();
        m.fill = fill;
        m.check(&c, id, &mut random);
    }
    let before = m.bytes();
    let dense = DatasetSpec { layout: Some("chunked".into()), profile: None, ..sparse("map", m.rows, 11, FILL) };
    c.change_dataset(id, dense, Elements::Kept).unwrap();
    assert_eq!(bytes(&*c, id), before);
    assert!(c.defined(id, &[0, 0], &[1, 1]).unwrap().is_none());
}

/// `tar` sets the defined elements before it writes the bytes.
#[test]
fn announced_elements_are_applied_when_the_writer_closes() {
    let store = empty();
    let c = open(&store);
    let mut m = Model::new(9, 11, 0);
    let id = c.create_dataset(c.root(), b"d", &sparse("map", 9, 11, 0)).unwrap();
    erase(&c).set_defined(id, 0..99, &[3..4, 7..9]).unwrap();
    let mut all = vec![0; 198];
    all[14] = 5;
    c.write(id, 0, &all).unwrap();
    assert!(c.finish(id, true).unwrap());
    erase(&c).writer_closed(id);
    [(3, 0), (7, 5), (8, 0)].into_iter().for_each(|(n, value)| m.elements[n] = Some(value));
    m.check(&c, id, &mut Random(1));
    assert!(!c.finish(id, true).unwrap());
    let dense = c.create_dataset(c.root(), b"dense", &spec("<u2", &[4])).unwrap();
    assert_eq!(errno(&erase(&c).set_defined(dense, 0..4, &[0..1, 2..3])), libc::EOPNOTSUPP);
}

/// Layouts that need an index of the file format are refused, with the reason.
#[test]
fn structured_chunks_are_refused() {
    let c = open(&empty());
    let refused = c.create_dataset(c.root(), b"d", &sparse("structured", 9, 11, 0)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("structured"), "{refused}");
}

/// Chunks of a dataset far larger than memory are punched, erased and counted by those that are
/// there.
#[test]
fn costs_are_those_of_the_chunks_that_are_there() {
    let store = empty();
    let c = open(&store);
    let big = DatasetSpec { maxshape: None, chunks: Some(ChunksSpec::Dims(vec![64, 64])), ..sparse("map", 1 << 24, 1 << 24, 0) };
    let id = c.create_dataset(c.root(), b"d", &big).unwrap();
    let at = |row: u64, column: u64| ((row << 24) + column) * 2;
    for n in 0..3u64 {
        c.write(id, at(n << 22, n << 21), &[1; 8]).unwrap();
    }
    let set = c.defined(id, &[0, 0], &[1 << 24, 1 << 24]).unwrap().unwrap();
    assert_eq!((set.elements(), set.blocks()), (12, 3));
    erase(&c).punch(id, 0, at(1 << 23, 0)).unwrap();
    erase(&c).erase(id, &[1 << 23, 0], &[1 << 24, (1 << 22) + 1]).unwrap();
    let content = c.content(id, Form::Main).unwrap();
    let first = at(2 << 22, (2 << 21) + 1);
    assert_eq!(content.written(0).unwrap(), Some(first..first + 6));
    assert_eq!(content.written(first + 6).unwrap(), None);
}

/// Damaged chunks are errors on their elements alone, and never more memory than a chunk.
#[test]
fn damaged_sets_are_errors() {
    let c = open(&empty());
    let id = c.create_dataset(c.root(), b"d", &sparse("filter", 9, 11, 0)).unwrap();
    c.write(id, 0, &[3; 2]).unwrap();
    Edit::commit(&*c).unwrap();
    let mut state = c.states.next();
    let key = c.objects.dataset_of(&state, id.serial()).unwrap().chunk_key(0);
    let cell = state.get(&key).unwrap().unwrap();
    let stored = state.container.bytes_of(&key, &cell).unwrap();
    drop(state);
    for (len, bit) in (0..stored.len()).map(|len| (len, None)).chain((0..stored.len() * 8).map(|bit| (stored.len(), Some(bit)))) {
        let mut damaged = stored[..len].to_vec();
        if let Some(bit) = bit {
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        state = c.states.next();
        state.put(key.clone(), &damaged).unwrap();
        drop(state);
        let mut buf = [0; 4];
        let content = c.content(id, Form::Main).unwrap();
        let (read, defined) = (content.read(0, &mut buf).is_ok(), c.defined(id, &[0, 0], &[9, 11]).is_ok());
        assert!(len == stored.len() || !read && !defined, "{len} bytes");
        let _ = content.written(0);
    }
}

/// A punch that emptied a chunk conflicted with writes of its other elements.
#[test]
fn a_chunk_that_one_empties_takes_what_another_writes() {
    for punch_first in [true, false] {
        let store = empty();
        let c = open(&store);
        let mut m = Model::new(10, 12, 0);
        let id = c.create_dataset(c.root(), b"d", &sparse("map", 10, 12, 0)).unwrap();
        c.write(id, 0, &[1, 2]).unwrap();
        c.close().unwrap();
        let (a, b) = (open(&store), open(&store));
        erase(&a).punch(id, 0, 2).unwrap();
        b.write(id, 6, &[7; 4]).unwrap();
        m.write(6, &[7; 4]);
        let order = if punch_first { [&a, &b] } else { [&b, &a] };
        order.into_iter().for_each(|c| Edit::commit(&**c).unwrap());
        a.close().unwrap();
        b.close().unwrap();
        m.check(&open(&store), id, &mut Random(5));
    }
}

/// An element at the end of a piece was defined by a copy of its halves.
#[test]
fn copies_define_no_more_than_their_source() {
    let c = open(&empty());
    let spec = |n: u64| DatasetSpec {
        layout: Some("sparse".into()),
        profile: Some("filter".into()),
        chunks: Some(ChunksSpec::Dims(vec![50_000])),
        ..spec(r#"{"class":"H5T_OPAQUE","tag":"","size":3}"#, &[n])
    };
    let elements = 800_000u64;
    let (a, b) = (c.create_dataset(c.root(), b"a", &spec(elements)).unwrap(), c.create_dataset(c.root(), b"b", &spec(elements)).unwrap());
    for n in [0, 5, 349_524, 349_526, 699_049, 799_999] {
        c.write(a, n * 3, &[n as u8 | 1; 3]).unwrap();
    }
    c.write(b, 100, &[9; 3000]).unwrap();
    let mut at = 0;
    while at < elements * 3 {
        at += Edit::copy_range(&*c).unwrap().copy_range((a, at), (b, at), elements * 3 - at).unwrap();
    }
    let set = |id| c.defined(id, &[0], &[elements]).unwrap().unwrap();
    assert_eq!((set(b), set(a).elements()), (set(a), 6));
    assert!(bytes(&*c, a) == bytes(&*c, b));
}

/// `"undefine":"fill"` did nothing if nothing else changed; a fill value of strings defined all.
#[test]
fn undefined_elements_follow_the_fill_value() {
    let c = open(&empty());
    let mut m = Model::new(9, 11, 0);
    let id = c.create_dataset(c.root(), b"d", &sparse("map", 9, 11, 0)).unwrap();
    c.write(id, 0, &[0, 0, 5, 0, 0, 0]).unwrap();
    m.write(2, &[5, 0]);
    c.change_dataset(id, DatasetSpec { undefine_fill: true, ..DatasetSpec::default() }, Elements::Kept).unwrap();
    m.check(&c, id, &mut Random(1));
    let text = |value: &str| {
        let form = [&(value.len() as u32).to_le_bytes(), value.as_bytes()].concat();
        Some(FillSpec::Value(NewValue::plain(parse_datatype("str").unwrap(), Shape::Scalar, form)))
    };
    let strings =
        DatasetSpec { layout: Some("sparse".into()), chunks: Some(ChunksSpec::Dims(vec![3])), fillvalue: text("ff"), ..spec("str", &[6]) };
    let v = c.create_dataset(c.root(), b"v", &strings).unwrap();
    c.hold(v);
    c.set_size(v, 0).unwrap();
    c.write(v, 0, b"a\nb\nc\nff\ne\nf\n").unwrap();
    c.finish(v, true).unwrap();
    c.release(v);
    erase(&c).erase(v, &[1], &[2]).unwrap();
    let runs = || {
        let mut runs = Vec::new();
        let set = c.defined(v, &[0], &[6]).unwrap().unwrap();
        set.for_each_run(&[6], &mut |run| {
            runs.push(run);
            Ok(())
        })
        .unwrap();
        runs
    };
    assert_eq!((bytes(&*c, v), runs()), (b"a\nff\nc\nff\ne\nf\n".to_vec(), vec![0..1, 2..6]));
    c.change_dataset(v, DatasetSpec { fillvalue: text("gg"), ..DatasetSpec::default() }, Elements::Kept).unwrap();
    assert_eq!((bytes(&*c, v), runs()), (b"a\ngg\nc\nff\ne\nf\n".to_vec(), vec![0..1, 2..6]));
    c.change_dataset(v, DatasetSpec { fillvalue: text("ff"), undefine_fill: true, ..DatasetSpec::default() }, Elements::Kept).unwrap();
    assert_eq!((bytes(&*c, v), runs()), (b"a\nff\nc\nff\ne\nf\n".to_vec(), vec![0..1, 2..3, 4..6]));
}

/// A sparse chunk was stored that no mount with the same cache could read.
#[test]
fn chunks_that_could_not_be_read_are_not_written() {
    let c = open(&empty());
    let large = DatasetSpec {
        layout: Some("sparse".into()),
        profile: Some("filter".into()),
        chunks: Some(ChunksSpec::Dims(vec![1 << 26])),
        ..spec("<f8", &[1 << 27])
    };
    let id = c.create_dataset(c.root(), b"d", &large).unwrap();
    assert_eq!(errno(&c.write(id, 0, &[1; 8])), libc::EFBIG);
    assert!(c.defined(id, &[0], &[1 << 27]).unwrap().unwrap().is_empty());
}

/// A copy of structured chunks takes the profile that takes its filters.
#[test]
fn structured_chunks_become_a_profile_that_takes_their_filters() {
    let c = open(&empty());
    let filter = |id: u16| FilterSpec { id, flags: 0, name: Vec::new(), cd_values: if id == 1 { vec![1] } else { Vec::new() } };
    for (filters, profile) in [(vec![], "map"), (vec![2, 1], "map"), (vec![2], "filter"), (vec![3], "filter")] {
        let name = format!("{filters:?}");
        let filters = Some(filters.into_iter().map(filter).collect());
        let spec = DatasetSpec { converts_layout: true, filters, ..sparse("structured", 9, 11, 0) };
        let id = c.create_dataset(c.root(), name.as_bytes(), &spec).unwrap();
        assert_eq!(Connector::dataset(&*c, id).unwrap().profile, Some(profile), "{name}");
    }
}

/// A change of the fill value looked at every byte of the extent.
#[test]
fn a_new_fill_value_costs_what_is_there() {
    let c = open(&empty());
    let big = DatasetSpec { maxshape: None, chunks: Some(ChunksSpec::Dims(vec![64, 64])), ..sparse("map", 1 << 24, 1 << 24, 0) };
    let id = c.create_dataset(c.root(), b"d", &big).unwrap();
    c.write(id, 1 << 40, &[1; 8]).unwrap();
    c.change_dataset(id, DatasetSpec { shape: None, maxshape: None, ..sparse("map", 1, 1, FILL) }, Elements::Kept).unwrap();
    let content = c.content(id, Form::Main).unwrap();
    assert_eq!(content.written(0).unwrap(), Some(1 << 40..(1 << 40) + 8));
    let mut buf = [0; 12];
    content.read((1 << 40) - 2, &mut buf).unwrap();
    assert_eq!(buf, [7, 9, 1, 1, 1, 1, 1, 1, 1, 1, 7, 9]);
}

/// A few bytes in a chunk with filters took the memory of the whole chunk.
#[test]
fn few_bytes_of_a_filtered_chunk_take_little_memory() {
    let c = open(&empty());
    let deflate = FilterSpec { id: 1, flags: 0, name: Vec::new(), cd_values: vec![1] };
    let large = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![1 << 20])), filters: Some(vec![deflate]), ..spec("u1", &[4 << 20]) };
    let id = c.create_dataset(c.root(), b"d", &large).unwrap();
    c.write(id, 1 << 20, &[5; 100]).unwrap();
    assert_eq!(c.states.shown().dirty_bytes, 100);
    Edit::commit(&*c).unwrap();
    assert_eq!(bytes(&*c, id)[(1 << 20) - 1..(1 << 20) + 101], [[0].as_slice(), &[5; 100], &[0]].concat());
}
