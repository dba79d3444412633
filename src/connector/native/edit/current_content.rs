//! The bytes of a dataset that may change: opened anew for each call.

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::connector::{Connector, Content, Form, ObjectId};
use crate::dataset::layout::{BackgroundTurn, Seek};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Weak};

/// The current bytes of a dataset in one form.
pub struct CurrentContent {
    /// The container.
    pub connector: Weak<NativeConnector>,
    /// Which dataset.
    pub id: ObjectId,
    /// Which of its forms.
    pub form: Form,
}

impl CurrentContent {
    /// The form that is being written, if the dataset is written as a whole.
    fn rewritten<T>(&self, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let connector = self.connector.upgrade()?;
        let objects = &connector.editing.as_ref()?.objects;
        objects.pending(self.id, |p| p.rewrite.as_ref().filter(|r| r.is(self.form)).map(|r| f(&r.form))).flatten()
    }

    fn connector(&self) -> Result<Arc<NativeConnector>> {
        self.connector.upgrade().ok_or_else(|| Error::refused(libc::EIO, "the container is closed"))
    }

    /// Calls `f` with the content after its long preparations, between which others change the
    /// file. If they change this dataset, the preparations begin again.
    fn with_prepared<T>(&self, f: impl FnOnce(&dyn Content) -> Result<T>) -> Result<T> {
        let connector = self.connector()?;
        let (_access, content) = connector.prepared(&|access| access.form_of(self.id, self.form), &|content| content.prepare())?;
        f(&*content)
    }

    fn with<T>(&self, f: impl FnOnce(&dyn Content) -> Result<T>) -> Result<T> {
        let connector = self.connector()?;
        let access = connector.access();
        let content: Arc<dyn Content> = access.form_of(self.id, self.form)?;
        f(&*content)
    }
}

impl CurrentContent {
    /// Reads stored elements.
    fn read_elements(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.connector()?.reading(self.id, &mut |d, reader| {
            if d.datatype.contains_vlen() {
                return Ok(ControlFlow::Break(None));
            }
            let Some(part) = d.bytes.clip(offset, buf) else { return Ok(ControlFlow::Break(Some(0))) };
            let len = part.len();
            Ok(reader.fill(&d.bytes, offset, part)?.map_or(ControlFlow::Break(Some(len)), ControlFlow::Continue))
        })?;
        read.map_or_else(|| self.with_prepared(|c| c.read(offset, buf)), Ok)
    }
}

impl Content for CurrentContent {
    fn size(&self) -> Result<u64> {
        self.rewritten(|form| Ok(form.len() as u64)).unwrap_or_else(|| self.with_prepared(|c| c.size()))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.rewritten(|form| {
            let rest = usize::try_from(offset).ok().and_then(|at| form.get(at..)).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            n
        });
        match read {
            Some(n) => Ok(n),
            None => self.read_elements(offset, buf),
        }
    }

    fn beyond(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.with(|c| Ok(c.beyond(offset, buf))).unwrap_or(false)
    }

    fn allocated(&self) -> Result<u64> {
        self.with(|c| c.allocated())
    }

    fn allocated_exactly(&self) -> Result<u64> {
        self.with(|c| c.allocated_exactly())
    }

    fn block_size(&self) -> u32 {
        self.with(|c| Ok(c.block_size())).unwrap_or(4096)
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.with_prepared(|c| c.seek(offset, what))
    }

    fn written(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.with(|c| c.written(offset))
    }

    fn read_ahead(&self, at: u64, from: u64) -> u64 {
        let Some(connector) = self.connector.upgrade() else { return from };
        let access = connector.access();
        if let Some((other, id)) = connector.other_files().written_elsewhere(self.id) {
            return other.content(id, self.form).map_or(from, |content| content.read_ahead(at, from));
        }
        let Ok(open) = access.dataset(self.id) else { return from };
        let dataset = &open.dataset;
        if dataset.datatype.contains_vlen() {
            return from;
        }
        let turn = SharedTurn { connector: self.connector.clone(), id: self.id, dataset: Arc::downgrade(dataset) };
        let turn: Arc<dyn BackgroundTurn> = Arc::new(turn);
        dataset.layout().read_ahead(&dataset.bytes, &connector.options.environment, at, from, &turn)
    }
}

/// The turn of a dataset that may change: background work has an access, and never waits for
/// one, as an operation may wait for the background.
struct SharedTurn {
    connector: Weak<NativeConnector>,
    id: ObjectId,
    /// What the work is for.
    dataset: Weak<Dataset>,
}

impl BackgroundTurn for SharedTurn {
    fn run(&self, f: &mut dyn FnMut()) {
        let Some(connector) = self.connector.upgrade() else { return };
        let Some(_access) = connector.try_access() else { return };
        // Another one stands for a dataset that changed.
        let now = connector.datasets.peek(self.id).map(|open| Arc::downgrade(&open.dataset));
        if now.is_some_and(|now| now.ptr_eq(&self.dataset)) {
            f();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::editor;
    use super::super::fault_tests::{bytes, writable};
    use super::*;
    use crate::connector::Connector;
    use crate::connector::edit::Edit;
    use crate::dataset::layout::Front;
    use crate::file::fault::{Fault, Plan};
    use std::time::{Duration, Instant};

    const CHUNK: usize = 64 << 10;
    const CHUNKS: usize = 64;

    /// A writable file with a deflated dataset.
    fn deflated() -> (Arc<NativeConnector>, ObjectId) {
        let c = writable(&Plan::new(0, 0, 0, Fault::Short));
        let id = c.create_file(c.root(), b"d").unwrap();
        let fact = format!(r#"{{"dtype": "u1", "shape": [{}], "chunks": [{CHUNK}], "filters": ["deflate 1"]}}"#, CHUNKS * CHUNK);
        editor(&c).set_fact(id, "dataset", fact.as_bytes()).unwrap();
        (c, id)
    }

    #[test]
    fn the_next_chunks_of_a_writable_file_are_decoded_in_the_background() {
        let (c, id) = deflated();
        c.write(id, 0, &vec![7; CHUNKS * CHUNK]).unwrap();
        c.commit().unwrap();
        c.environment().forget_decoded();
        assert!(c.content(id, Form::Main).unwrap().read_ahead(0, 0) > 0);
        let begin = Instant::now();
        while c.environment().cache.unread_bytes() == 0 && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(c.environment().cache.unread_bytes() > 0);
        assert!(bytes(&c, id) == vec![7; CHUNKS * CHUNK]);
    }

    /// Background work beside writes: readers get what was written last.
    #[test]
    fn chunks_that_change_while_they_are_decoded_ahead_are_read_anew() {
        let (c, id) = deflated();
        let mut want = vec![0u8; CHUNKS * CHUNK];
        for round in 0..120usize {
            let at = round * 7919 * 13 % (CHUNKS * CHUNK - CHUNK);
            let value = (round % 250) as u8 + 1;
            let content = c.content(id, Form::Main).unwrap();
            content.read_ahead(0, 0);
            c.write(id, at as u64, &vec![value; CHUNK]).unwrap();
            want[at..at + CHUNK].fill(value);
            content.read_ahead(at as u64, 0);
            if round % 3 == 0 {
                c.commit().unwrap();
                c.environment().forget_decoded();
            }
            content.read_ahead(0, 0);
            let mut found = vec![0; 2 * CHUNK];
            let from = at.saturating_sub(CHUNK / 2);
            let n = content.read(from as u64, &mut found).unwrap();
            assert!(found[..n] == want[from..from + n], "round {round}");
        }
        assert!(bytes(&c, id) == want);
    }

    /// Bytes of a chunk whose decode needs a permit.
    const LARGE: usize = 4 << 20;

    /// A reader that decodes a chunk of 4 MiB, and waits for the permit meanwhile. Calls `f` with
    /// the dataset then; returns what the reader read.
    fn read_beside(f: impl FnOnce(&NativeConnector, ObjectId) + Send) -> Vec<u8> {
        read_beside_through(false, f)
    }

    /// The same; `mapped`: the reader reads a virtual dataset of which the dataset is a source.
    fn read_beside_through(mapped: bool, f: impl FnOnce(&NativeConnector, ObjectId) + Send) -> Vec<u8> {
        let c = writable(&Plan::new(0, 0, 0, Fault::Short));
        let id = c.create_file(c.root(), b"d").unwrap();
        let fact = format!(r#"{{"dtype": "u1", "shape": [{LARGE}], "chunks": [{LARGE}], "filters": ["deflate 1"]}}"#);
        editor(&c).set_fact(id, "dataset", fact.as_bytes()).unwrap();
        c.write(id, 0, &vec![7; LARGE]).unwrap();
        let read = if mapped { c.create_file(c.root(), b"v").unwrap() } else { id };
        if mapped {
            let mapping = format!(r#"{{"source": ".:/d", "at": "0:{LARGE}"}}"#);
            let fact = format!(r#"{{"dtype": "u1", "shape": [{LARGE}], "layout": "virtual", "virtual": [{mapping}]}}"#);
            editor(&c).set_fact(read, "dataset", fact.as_bytes()).unwrap();
        }
        c.commit().unwrap();
        c.environment().forget_decoded();
        c.set_cache_bytes(8 * LARGE as u64);
        let env = c.environment();
        let permit = env.decoding.enter(u64::MAX);
        let decodes = || env.cache.counters.decodes.load(std::sync::atomic::Ordering::Relaxed);
        let before = decodes();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| bytes(&c, read));
            while decodes() == before {
                std::thread::yield_now();
            }
            let (done, is_done) = std::sync::mpsc::channel();
            let changed = &c;
            let writer = scope.spawn(move || {
                f(changed, id);
                done.send(()).unwrap();
            });
            let passed = is_done.recv_timeout(Duration::from_secs(60));
            drop(permit);
            writer.join().unwrap();
            assert!(passed.is_ok(), "the writer waited for the reader");
            let found = reader.join().unwrap();
            assert!(bytes(&c, id) == found);
            found
        })
    }

    /// A chunk that the cache does not keep would be decoded five times.
    #[test]
    fn chunks_too_large_for_the_cache_are_decoded_once() {
        let (c, id) = deflated();
        c.write(id, 0, &vec![7; CHUNKS * CHUNK]).unwrap();
        c.commit().unwrap();
        c.environment().forget_decoded();
        c.set_cache_bytes(1000);
        let decodes = || c.environment().cache.counters.decodes.load(std::sync::atomic::Ordering::Relaxed);
        let before = decodes();
        let mut buf = vec![0; 10];
        assert_eq!((c.content(id, Form::Main).unwrap().read(5, &mut buf).unwrap(), buf), (10, vec![7; 10]));
        assert_eq!(decodes() - before, 1);
    }

    #[test]
    fn a_writer_does_not_wait_for_a_reader_that_decodes() {
        let read = read_beside(|c, _| {
            let other = c.create_file(c.root(), b"other").unwrap();
            c.write(other, 0, b"bytes").unwrap();
            c.commit().unwrap();
        });
        assert!(read == vec![7; LARGE]);
    }

    /// Sources of a virtual dataset were decoded with the lock of readers.
    #[test]
    fn a_writer_does_not_wait_for_a_reader_that_decodes_a_source() {
        let read = read_beside_through(true, |c, id| {
            let other = c.create_file(c.root(), b"other").unwrap();
            c.write(other, 0, b"bytes").unwrap();
            c.commit().unwrap();
            c.write(id, 5, &[9]).unwrap();
        });
        assert!(read[..5] == [7; 5] && read[5] == 9 && read[6..] == [7; LARGE - 6]);
    }

    /// Records of a log were inflated with the lock of readers.
    #[test]
    fn records_of_a_log_are_inflated_before_they_are_read() {
        let c = writable(&Plan::new(0, 0, 0, Fault::Short));
        let id = c.create_file(c.root(), b"d").unwrap();
        let fact = br#"{"dtype": "u1", "shape": [1000000], "layout": "log", "profile": "deflate"}"#;
        editor(&c).set_fact(id, "dataset", fact).unwrap();
        c.write(id, 0, &[7; 1_000_000]).unwrap();
        c.commit().unwrap();
        c.environment().forget_decoded();
        let (env, mut buf) = (c.environment(), vec![0; 1_000_000]);
        let open = c.access().dataset(id).unwrap();
        let d = &open.dataset.bytes;
        assert!(d.layout.is_long_read(d, &env, 10, 10));
        match d.layout.read_front(d, &env, 0, &mut buf).unwrap() {
            Front::Deferred(work) => {
                // Another reader waits for the same records, not for their lock.
                assert!(matches!(d.layout.read_front(d, &env, 0, &mut [0; 10]).unwrap(), Front::Deferred(_)));
                work();
            }
            Front::Read(n) => panic!("{n} bytes were read at once"),
        }
        assert!(!d.layout.is_long_read(d, &env, 10, 10));
        assert!(matches!(d.layout.read_front(d, &env, 0, &mut buf).unwrap(), Front::Read(1_000_000)));
        assert!(buf == vec![7; 1_000_000]);
        // Caches that keep nothing: it is read at once.
        c.set_cache_bytes(1000);
        c.environment().forget_decoded();
        assert!(matches!(d.layout.read_front(d, &env, 0, &mut buf).unwrap(), Front::Read(1_000_000)));
    }

    #[test]
    fn a_chunk_that_is_replaced_while_a_reader_decodes_it_is_read_anew() {
        let read = read_beside(|c, id| {
            c.write(id, 0, &vec![8; LARGE]).unwrap();
            c.commit().unwrap();
            // Into the space of the old chunk.
            for n in 0..8 {
                let other = c.create_file(c.root(), format!("other{n}").as_bytes()).unwrap();
                c.write(other, 0, &[9; 20_000]).unwrap();
                c.commit().unwrap();
            }
        });
        assert!(read == vec![8; LARGE]);
    }

    #[test]
    fn a_chunk_that_is_removed_while_a_reader_decodes_it_is_read_as_zeros() {
        let read = read_beside(|c, id| {
            c.zero(id, 0, LARGE as u64).unwrap();
            c.commit().unwrap();
        });
        assert!(read == vec![0; LARGE]);
    }

    /// Each write replaces a chunk by one value: no reader sees two values in a chunk.
    #[test]
    fn readers_beside_writers_see_whole_chunks() {
        let (c, id) = deflated();
        c.write(id, 0, &vec![1; CHUNKS * CHUNK]).unwrap();
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..3usize {
                let (c, ends) = (&c, &ends);
                scope.spawn(move || {
                    let content = c.content(id, Form::Main).unwrap();
                    let mut buf = vec![0; 4 * CHUNK];
                    for round in 0.. {
                        let first = (round * 7 + reader * 13) % (CHUNKS - 4);
                        content.read((first * CHUNK) as u64, &mut buf).unwrap();
                        assert!(buf.chunks(CHUNK).all(|chunk| chunk.iter().all(|b| *b == chunk[0] && *b != 0)));
                        if ends.load(std::sync::atomic::Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            for round in 0..150usize {
                c.write(id, ((round * 29) % CHUNKS * CHUNK) as u64, &vec![(round % 200) as u8 + 1; CHUNK]).unwrap();
                if round % 4 == 0 {
                    c.commit().unwrap();
                    c.environment().forget_decoded();
                }
            }
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
