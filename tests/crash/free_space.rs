//! The machine stops while a session reuses space: the record of its free space names no byte that the last commit uses.

use super::images::{self, Image};
use super::random::Random;
use h5dir::connector::check::{Check, Finding, Problem};
use h5dir::connector::native::NativeConnector;
use h5dir::file::FileDriver;
use h5dir::file::commit::Root;
use h5dir::file::free_record::FreeRecord;
use h5dir::file::journal;
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use h5dir::file::recorder::{Log, RecordedPlace, Recorder, Step};
use h5dir::file::space::{Pages, Pool, Ranges};
use h5dir::file::transaction::Transaction;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a file before a session.
const START: u64 = 4096;
const COMMITS: u8 = 40;
/// Byte of the root sector with the number of the commit.
const NUMBER_AT: u64 = 100;
/// First byte of a marked root sector.
const MARKED: u8 = 255;

type Extents = Vec<(Range<u64>, Pool)>;

/// What is wrong with a recovered container that reading it does not show: bytes of a structure that
/// belong to another one, or that the file names as free.
pub fn contradiction(connector: &NativeConnector) -> Option<String> {
    let checked = match Check::check(connector, false, &mut |_| {}) {
        Ok(checked) => checked,
        Err(e) => return Some(format!("it cannot be checked: {e}")),
    };
    let of_space = |f: &&Finding| matches!(f.problem, Problem::ClaimedTwice | Problem::FreeInUse | Problem::PastEnd);
    checked.findings.iter().find(of_space).map(|f| format!("{:?} at {:?}: {}", f.problem, f.address, f.detail))
}

/// Space in use after each commit, and the steps of the session.
fn session(random: &mut Random, pages: Option<Pages>) -> (Vec<Extents>, Vec<Step>) {
    let log = Log::default();
    let file = Arc::new(Recorder::new(Arc::new(GrowingFile::new(vec![0; START as usize])), log.clone()));
    let place = RecordedPlace::new(MemoryJournal::new(None), log.clone());
    let t = Transaction::new(file, Box::new(place), START).unwrap();
    pages.into_iter().for_each(|pages| t.set_pages(pages));
    let (mut live, mut states) = (Extents::new(), vec![Extents::new()]);
    for commit in 1..=COMMITS {
        t.begin();
        for _ in 0..random.index(12) {
            if !live.is_empty() && random.index(2) == 0 {
                let (range, pool) = live.swap_remove(random.index(live.len()));
                t.free(range, pool);
                continue;
            }
            let len = [40, 300, 512, 2000, 6000][random.index(5)] + random.index(40) as u64;
            let pool = [Pool::Metadata, Pool::Raw][random.index(2)];
            let (at, _) = t.allocate(len, [1, 8, 512][random.index(3)], pool).unwrap();
            t.write(at, &vec![commit; len as usize]).unwrap();
            live.push((at..at + len, pool));
        }
        if !live.is_empty() && random.index(3) > 0 {
            let (range, _) = &live[random.index(live.len())];
            t.write(range.start, &[commit]).unwrap();
        }
        t.write(NUMBER_AT, &[commit]).unwrap();
        t.finish(true);
        states.push(live.clone());
        t.commit(&|_, _| Ok(Root { offset: 0, extended: vec![1; 48], marked: vec![MARKED; 48], settled: vec![1; 48] })).unwrap();
        log.lock().push(Step::Acknowledged(u64::from(commit)));
    }
    let steps = log.lock().clone();
    (states, steps)
}

/// The free space that an image keeps, and the number of its last commit.
fn kept(image: &Image) -> Option<(FreeRecord, usize)> {
    let file = GrowingFile::new(image.file.clone());
    let owner = file.status().unwrap().identity;
    let place = journal::free_record(&GrowingFile::new(image.journal.clone()?), owner).unwrap()?;
    let (record, _) = FreeRecord::read(&file, place, 48, image.file.len() as u64).unwrap()?;
    let number = if image.file[0] == MARKED { image.acknowledged as usize + 1 } else { usize::from(image.file[NUMBER_AT as usize]) };
    Some((record, number))
}

#[test]
fn a_record_of_free_space_names_no_byte_in_use() {
    let (mut images, mut records, mut free) = (0u64, 0u64, 0u64);
    for seed in 1..=if cfg!(debug_assertions) { 6 } else { 40 } {
        let pages = (seed % 3 == 0).then_some(Pages { size: 4096, origin: 0 });
        let (states, steps) = session(&mut Random(seed), pages);
        images::each(&[0; START as usize], None, &steps, &mut Random(seed), 4, &mut |image| {
            images += 1;
            let Some((record, commit)) = kept(&image) else { return };
            let mut used = Ranges::default();
            states[commit].iter().for_each(|(range, _)| used.insert(range.clone()));
            for range in record.free.iter() {
                let wrong = used.split(range.clone()).into_iter().find(|(_, used)| *used);
                assert_eq!(wrong, None, "session {seed}, image {images}, commit {commit}: {range:?} is named as free");
            }
            (records, free) = (records + 1, free + record.free.bytes());
        });
    }
    println!("{images} images, {records} with a record, {} bytes in each", free / records.max(1));
    assert!(records > images / 2 && free / records > 4000, "too little is recorded");
}
