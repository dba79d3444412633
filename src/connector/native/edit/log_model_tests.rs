//! Random operations on datasets in a log, beside arrays: what a log has is the same after every
//! way of opening, moving and indexing it.
//!
//! `H5DIR_LOG_SEED` and `H5DIR_LOG_SEQUENCES` choose the sequences; a failure prints its seed and
//! its operations.

use super::super::NativeConnector;
use super::super::tests::editor;
use super::fault_tests::bytes;
use super::log_tests::{Opened, crashed, empty, flush, found, open};
use crate::base::{Error, Result};
use crate::connector::edit::{Edit, Erase};
use crate::connector::log::EditLog;
use crate::connector::{Connector, Form, ObjectId, Seek};
use crate::file::fault::{Fault, Plan};
use std::ops::Range;

/// Operations of a sequence.
const OPERATIONS: u64 = 40;
/// Sequences, unless the environment has another number.
const SEQUENCES: u64 = 120;
/// Tenths of a dataset: ranges begin and end at them, or an element beside them.
const TENTHS: u64 = 10;

/// A dataset of the model: shape without the first dimension, bytes of an element, rows, layout.
struct Kind {
    row: u64,
    size: u64,
    rows: u64,
    layout: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind { row: 1, size: 1, rows: 1000, layout: PLAIN },
    Kind { row: 1, size: 1, rows: 1000, layout: DEFLATE },
    Kind { row: 10, size: 4, rows: 20, layout: DEFLATE },
    Kind { row: 7, size: 4, rows: 20, layout: PLAIN },
    Kind { row: 1, size: 1, rows: 300_000, layout: DEFLATE },
];
const PLAIN: &str = r#""layout": "log""#;
const DEFLATE: &str = r#""layout": "log", "profile": "deflate""#;
const CHUNKED: &str = r#""layout": "chunked", "chunks": CHUNKS"#;

impl Kind {
    fn fact(&self, rows: u64, layout: &str) -> String {
        let (dtype, rest) = (if self.size == 1 { "|u1" } else { "<u4" }, self.row);
        let (shape, max, chunks) = match rest {
            1 => (format!("[{rows}]"), "[null]".to_owned(), "[64]".to_owned()),
            _ => (format!("[{rows}, {rest}]"), format!("[null, {rest}]"), format!("[8, {rest}]")),
        };
        let layout = layout.replace("CHUNKS", &chunks);
        format!(r#"{{"dtype": "{dtype}", "shape": {shape}, "maxshape": {max}, {layout}}}"#)
    }
}

/// Elements of a dataset: `None` is one that was not written. `known`: it is known which were.
#[derive(Clone, PartialEq, Default)]
struct Model {
    elements: Vec<Option<u8>>,
    known: bool,
}

impl Model {
    fn bytes(&self, size: u64) -> Vec<u8> {
        self.elements.iter().flat_map(|e| std::iter::repeat_n(e.unwrap_or(0), size as usize)).collect()
    }
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// A range of `all` elements between tenths, now and then an element beside them.
    fn range(&mut self, all: u64) -> Range<u64> {
        let mut at = || (self.below(TENTHS + 1) * all / TENTHS + u64::from(self.below(6) == 0)).min(all);
        let (a, b) = (at(), at());
        a.min(b)..a.max(b)
    }
}

/// A container and what is to be in it.
struct Session {
    opened: Opened,
    models: Vec<Model>,
    durable: Vec<Model>,
    others: u64,
    trace: Vec<String>,
}

/// The elements that are written, found as a program finds them.
fn written(c: &NativeConnector, id: ObjectId, size: u64, count: usize) -> Vec<bool> {
    let content = c.content(id, Form::Main).unwrap();
    let (mut mask, mut at) = (vec![false; count], 0);
    while let Some(data) = content.seek(at, Seek::Data).unwrap() {
        let hole = content.seek(data, Seek::Hole).unwrap().unwrap();
        mask[(data / size) as usize..(hole / size) as usize].fill(true);
        at = hole;
    }
    mask
}

impl Session {
    fn new() -> Session {
        let opened = empty(false, &Plan::new(0, 0, 0, Fault::Short));
        let models = vec![Model::default(); KINDS.len()];
        let mut session = Session { opened, durable: models.clone(), models, others: 0, trace: Vec::new() };
        (0..KINDS.len()).for_each(|n| session.create(n));
        session.commit();
        session
    }

    fn name(n: usize) -> String {
        format!("d{n}")
    }

    fn id(&self, n: usize) -> ObjectId {
        found(&self.opened.c, &Session::name(n))
    }

    fn create(&mut self, n: usize) {
        let kind = &KINDS[n];
        let c = &self.opened.c;
        let id = c.create_file(c.root(), Session::name(n).as_bytes()).unwrap();
        editor(c).set_fact(id, "dataset", kind.fact(kind.rows, kind.layout).as_bytes()).unwrap();
        self.models[n] = Model { elements: vec![None; (kind.rows * kind.row) as usize], known: true };
    }

    fn commit(&mut self) {
        self.opened.c.commit().unwrap();
        self.durable.clone_from(&self.models);
    }

    fn check(&self, n: usize) -> std::result::Result<(), String> {
        let (kind, model, id) = (&KINDS[n], &self.models[n], self.id(n));
        let (found, want) = (bytes(&self.opened.c, id), model.bytes(kind.size));
        if found.len() != want.len() {
            return Err(format!("{} bytes of d{n}, not {}", found.len(), want.len()));
        }
        if let Some(at) = found.iter().zip(&want).position(|(a, b)| a != b) {
            return Err(format!("byte {at} of d{n} is {}, not {}", found[at], want[at]));
        }
        let mask = written(&self.opened.c, id, kind.size, model.elements.len());
        match mask.iter().zip(&model.elements).position(|(found, want)| *found != want.is_some()) {
            Some(at) if model.known => Err(format!("element {at} of d{n} is written: {}", mask[at])),
            _ => Ok(()),
        }
    }

    fn check_all(&self) -> std::result::Result<(), String> {
        (0..KINDS.len()).try_for_each(|n| self.check(n))
    }

    fn reopen(&mut self, crash: bool) {
        if crash {
            self.models.clone_from(&self.durable);
        } else {
            self.opened.c.close().unwrap();
            self.durable.clone_from(&self.models);
        }
        self.opened = if crash { crashed(&self.opened) } else { open(self.opened.file.bytes()) };
    }

    fn write(&mut self, n: usize, random: &mut Random) {
        let (kind, model) = (&KINDS[n], &mut self.models[n]);
        let range = random.range(model.elements.len() as u64);
        let value = random.below(255) as u8 + 1;
        self.trace.push(format!("write d{n} {range:?} {value}"));
        if range.is_empty() {
            return;
        }
        let data = vec![value; ((range.end - range.start) * kind.size) as usize];
        model.elements[range.start as usize..range.end as usize].fill(Some(value));
        let id = found(&self.opened.c, &Session::name(n));
        self.opened.c.write(id, range.start * kind.size, &data).unwrap();
    }

    fn punch(&mut self, n: usize, random: &mut Random) {
        let (kind, model) = (&KINDS[n], &mut self.models[n]);
        let range = random.range(model.elements.len() as u64);
        self.trace.push(format!("punch d{n} {range:?}"));
        model.elements[range.start as usize..range.end as usize].fill(None);
        let id = found(&self.opened.c, &Session::name(n));
        Erase::punch(&*self.opened.c, id, range.start * kind.size, (range.end - range.start) * kind.size).unwrap();
    }

    fn resize(&mut self, n: usize, random: &mut Random) {
        let (kind, model) = (&KINDS[n], &mut self.models[n]);
        let rows = random.below(TENTHS + 2) * kind.rows / TENTHS;
        self.trace.push(format!("set_size d{n} {rows} rows"));
        model.elements.resize((rows * kind.row) as usize, None);
        let id = found(&self.opened.c, &Session::name(n));
        self.opened.c.set_size(id, rows * kind.row * kind.size).unwrap();
    }

    /// Moves a dataset to another layout.
    fn convert(&mut self, n: usize, random: &mut Random) {
        let layout = [PLAIN, DEFLATE, CHUNKED, DEFLATE][random.below(4) as usize];
        self.trace.push(format!("convert d{n} {layout}"));
        let rows = self.models[n].elements.len() as u64 / KINDS[n].row;
        editor(&self.opened.c).set_fact(self.id(n), "dataset", KINDS[n].fact(rows, layout).as_bytes()).unwrap();
        self.models[n].known = false;
        if layout == CHUNKED {
            // Back into a log at once: other operations are of logs.
            editor(&self.opened.c).set_fact(self.id(n), "dataset", KINDS[n].fact(rows, DEFLATE).as_bytes()).unwrap();
        }
    }

    /// An operation on two datasets that fails.
    fn fail(&mut self, n: usize, random: &mut Random) {
        let range = random.range(self.models[n].elements.len() as u64);
        self.trace.push(format!("fail d{n} {range:?}"));
        let (id, size) = (self.id(n), KINDS[n].size);
        let data = vec![9; ((range.end - range.start) * size) as usize];
        let failed = self.opened.c.operate(&[id], |change| -> Result<()> {
            change.data().write(id, Form::Main, range.start * size, &data)?;
            change.log().flush_log(super::flush::LogFlush::Within)?;
            Err(Error::refused(libc::EIO, "a test"))
        });
        assert!(failed.is_err());
    }

    fn step(&mut self, random: &mut Random) -> std::result::Result<(), String> {
        let n = random.below(KINDS.len() as u64) as usize;
        match random.below(40) {
            0..14 => self.write(n, random),
            14..20 => self.punch(n, random),
            20..24 => self.resize(n, random),
            24..28 => {
                self.trace.push("commit".into());
                self.commit();
            }
            28 => {
                self.trace.push("flush".into());
                flush(&self.opened.c);
            }
            29..31 => {
                self.trace.push("crash".into());
                self.reopen(true);
                return self.check(n);
            }
            31..34 => {
                self.trace.push("remount".into());
                self.reopen(false);
                if random.below(2) == 0 {
                    return self.check_all();
                }
            }
            34 => {
                self.trace.push("compact".into());
                self.opened.c.compact(None, &mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
                self.durable.clone_from(&self.models);
            }
            35 => {
                self.trace.push("rebuild".into());
                self.opened.c.rebuild_index().unwrap();
                self.durable.clone_from(&self.models);
            }
            36 => self.convert(n, random),
            37 => {
                self.trace.push(format!("create again d{n}"));
                let c = self.opened.c.clone();
                c.unlink(c.root(), Session::name(n).as_bytes(), false).unwrap();
                self.create(n);
            }
            38 => self.fail(n, random),
            _ => {
                self.others += 1;
                self.trace.push("other file".into());
                let c = &self.opened.c;
                let id = c.create_file(c.root(), format!("other{}", self.others).as_bytes()).unwrap();
                c.write(id, 0, b"other").unwrap();
            }
        }
        self.check(n)
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

/// Elements of logs came back that were erased or replaced: in deflated records of which a part was
/// replaced and then erased, and in datasets that only control records had changed.
#[test]
fn logs_agree_with_arrays() {
    let (first, count) = (number("H5DIR_LOG_SEED", 1), number("H5DIR_LOG_SEQUENCES", SEQUENCES));
    println!("seeds {first} to {}, {OPERATIONS} operations each", first + count - 1);
    for seed in first..first + count {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut session = Session::new();
        for _ in 0..OPERATIONS {
            let done = session.step(&mut random);
            assert_eq!(done, Ok(()), "seed {seed}: {:#?}", session.trace);
        }
        for crash in [true, false, true] {
            session.commit();
            session.reopen(crash);
            let done = session.check_all();
            assert_eq!(done, Ok(()), "seed {seed}, opened after all, crash {crash}: {:#?}", session.trace);
        }
    }
}
