//! The machine stops while a file is recovered: recovering once more ends where the first recovery would have.

use super::images::{self, Image};
use super::random::Random;
use super::sessions::{self, Session};
use super::wrong;
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use h5dir::file::recorder::{Log, RecordedPlace, Recorder};
use h5dir::meta::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Variants of each kind at a step of a recovery.
const VARIANTS: usize = 2;
/// Of the images with something to recover every so many are stopped again.
const EVERY: u64 = if cfg!(debug_assertions) { 199 } else { 5 };

/// What recovering `image` does.
fn recovery(image: &Image) -> Vec<h5dir::file::recorder::Step> {
    let log = Log::default();
    let driver = Arc::new(Recorder::new(Arc::new(GrowingFile::new(image.file.clone())), log.clone()));
    let place = Box::new(RecordedPlace::new(MemoryJournal::new(image.journal.clone()), log.clone()));
    drop(Store::open_writable(driver, place));
    log.lock().clone()
}

fn stop_again(session: &Session, image: &Image) -> Result<u64, String> {
    let (mut count, mut failure) = (0, None);
    let steps = recovery(image);
    images::each(&image.file, image.journal.as_deref(), &steps, &mut Random(count), VARIANTS, &mut |again| {
        count += 1;
        let again = Image { acknowledged: image.acknowledged, ..again };
        if failure.is_none() {
            failure = wrong(session, &again);
        }
    });
    failure.map_or(Ok(count), Err)
}

#[test]
fn recovery_may_be_stopped_too() {
    let all = sessions::all();
    let (next, journals) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(4) {
            s.spawn(|| {
                while let Some(make) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let session = make();
                    images::each(&session.initial, None, &session.log, &mut Random(5), 3, &mut |image| {
                        // Marked ones are those that a journal completes.
                        if image.journal.is_none() || sessions::opens_directly(&image) {
                            return;
                        }
                        if journals.fetch_add(1, Ordering::Relaxed) % EVERY != 0 {
                            return;
                        }
                        let count = stop_again(&session, &image).unwrap_or_else(|why| panic!("{}: {why}", session.name));
                        first.fetch_add(1, Ordering::Relaxed);
                        second.fetch_add(count, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    let (first, second) = (first.into_inner(), second.into_inner());
    println!("{first} recoveries stopped, {second} images of them recovered again");
    let fewest = if cfg!(debug_assertions) { 5 } else { 100 };
    assert!(first >= fewest && second > 2 * first, "too few");
}
