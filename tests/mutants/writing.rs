//! Damaged files changed in memory: a handful of operations, a commit, a close. Nothing panics, hangs or takes much memory, and
//! what could be opened for writing and was closed without an error can be opened again.

use super::random::Random;
use super::walker::Seen;
use h5dir::base::Error;
use h5dir::connector::edit::{Edit, Taken};
use h5dir::connector::native::external::Neighbours;
use h5dir::connector::native::{NativeConnector, Options};
use h5dir::connector::{Connector, Form, LinkTarget, ObjectId, ObjectKind};
use h5dir::dataset::environment::Environment;
use h5dir::dataset::layout::virtual_::MissingPolicy;
use h5dir::file::memory::{GrowingFile, MemoryJournal};
use h5dir::file::{FileDriver, Status, WriteDriver};
use h5dir::present::{Editor, Existing};
use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Operations on one mutant.
const OPERATIONS: usize = 14;
/// Objects and names looked at.
const OBJECTS: usize = 24;
/// No dataset is made longer.
const SIZE_MAX: u64 = 1 << 20;

/// What is there: objects, and names with the groups they are in.
struct Found {
    groups: Vec<ObjectId>,
    datasets: Vec<ObjectId>,
    names: Vec<(ObjectId, Vec<u8>)>,
}

fn survey(c: &dyn Connector) -> Found {
    let mut found = Found { groups: Vec::new(), datasets: Vec::new(), names: Vec::new() };
    let (mut pending, mut seen) = (vec![c.root()], HashSet::new());
    while let Some(id) = pending.pop() {
        if !seen.insert(id) || seen.len() > OBJECTS {
            continue;
        }
        let Ok(info) = c.info(id) else { continue };
        match info.kind {
            ObjectKind::Group => found.groups.push(id),
            ObjectKind::Dataset => found.datasets.push(id),
            _ => {}
        }
        if info.kind != ObjectKind::Group {
            continue;
        }
        let mut left = OBJECTS;
        let _ = c.list(id, 0, &mut |link, _| {
            if let LinkTarget::Hard(target) = link.target {
                pending.push(target);
            }
            found.names.push((id, link.name));
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    found
}

fn any<T: Clone>(of: &[T], r: &mut Random) -> Option<T> {
    of.get(r.index(of.len())).cloned()
}

const FACTS: [(&str, &str); 7] = [
    ("shape", "[5]"),
    ("dtype", "\"<i4\""),
    ("chunks", "[8]"),
    ("filters", "[{\"id\": 1, \"values\": [6]}]"),
    ("fillvalue", "7"),
    ("maxshape", "[null]"),
    ("attributes", "{\"zz\": {\"dtype\": \"<f8\", \"shape\": [2], \"value\": [1, 2]}}"),
];

fn on_dataset(c: &NativeConnector, id: ObjectId, r: &mut Random) -> Result<(), Error> {
    let edit = Connector::edit(c).unwrap();
    let size = c.content(id, Form::Main).and_then(|c| c.size()).unwrap_or(0).min(SIZE_MAX);
    let at = r.next() % (size + 100);
    match r.index(6) {
        0 | 1 => edit.write(id, at, &vec![0x5a; 1 + r.index(3000)]),
        2 => edit.set_size(id, at),
        3 => edit.set_size(id, size + r.next() % 5000),
        4 => edit.zero(id, at, 1 + r.next() % 5000),
        _ => {
            let (fact, text) = FACTS[r.index(FACTS.len())];
            Editor { connector: c, edit }.set_fact(id, fact, text.as_bytes())
        }
    }
}

fn on_names(edit: &dyn Edit, found: &Found, r: &mut Random) -> Result<(), Error> {
    let Some(group) = any(&found.groups, r) else { return Ok(()) };
    let new = [b'z', b'0' + r.index(6) as u8];
    let old = any(&found.names, r).unwrap_or((group, b"nothing".to_vec()));
    match r.index(8) {
        0 => {
            let id = edit.create_file(group, &new)?;
            edit.write(id, 0, &vec![1; r.index(9000)])
        }
        1 => edit.create_group(group, &new).map(drop),
        2 => edit.symlink(group, &new, b"some/where"),
        3 => match any(&found.datasets, r) {
            Some(id) => edit.link(group, &new, id),
            None => Ok(()),
        },
        4 | 5 => edit.unlink(old.0, &old.1, r.index(2) == 0).map(drop),
        6 => edit.rename((old.0, &old.1), (group, &new), Taken::Replace).map(drop),
        _ => {
            let other = any(&found.names, r).unwrap_or((group, b"none".to_vec()));
            edit.rename((old.0, &old.1), (other.0, &other.1), if r.index(2) == 0 { Taken::Exchange } else { Taken::Replace }).map(drop)
        }
    }
}

fn on_attributes(c: &NativeConnector, id: ObjectId, r: &mut Random) -> Result<(), Error> {
    let edit = Connector::edit(c).unwrap();
    let names = c.attributes(id).map(|n| n.iter().take(40).map(|n| n.to_vec()).collect::<Vec<_>>()).unwrap_or_default();
    let old = any(&names, r).unwrap_or_else(|| b"none".to_vec());
    match r.index(4) {
        0 => Editor { connector: c, edit }.set_attribute(id, b"zz new", &vec![b'x'; r.index(300)], Existing::Any),
        1 => Editor { connector: c, edit }.set_attribute(id, &old, b"12", Existing::Replace),
        2 => edit.remove_attribute(id, &old),
        _ => edit.set_mtime(id, 12).map(drop),
    }
}

/// A disk that is soon full: what lengths a damaged file asks for does not count as memory.
struct Small(GrowingFile);

/// Its size.
const DISK: u64 = 32 << 20;

impl FileDriver for Small {
    fn status(&self) -> io::Result<Status> {
        self.0.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
}

impl WriteDriver for Small {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check(offset.saturating_add(bytes.len() as u64))?;
        self.0.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check(len)?;
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Small {
    fn check(&self, end: u64) -> io::Result<()> {
        if end > DISK { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }
}

/// Opens `bytes` for writing, changes something, closes it; `None` when it cannot be opened.
pub fn open_and_change(bytes: &[u8], environment: Arc<Environment>, seed: u64) -> Option<Seen> {
    let file = Arc::new(Small(GrowingFile::new(bytes.to_vec())));
    let options = |environment| Options {
        environment,
        neighbours: Arc::new(Neighbours::new(None)),
        missing: MissingPolicy::Fill,
        rescue: false,
        log: Default::default(),
    };
    let open = |environment| {
        let place = Box::new(MemoryJournal::default());
        NativeConnector::writable_over(file.clone(), place, PathBuf::from("/"), options(environment))
    };
    let connector = open(environment.clone()).ok()?;
    let edit = Connector::edit(&*connector).unwrap();
    let mut r = Random(seed);
    let mut seen = Seen::default();
    let mut found = survey(&*connector);
    for i in 0..OPERATIONS {
        let done = match (r.index(3), any(&found.datasets, &mut r), any(&found.groups, &mut r)) {
            (0, Some(id), _) => on_dataset(&connector, id, &mut r),
            (1, dataset, group) => match dataset.filter(|_| r.index(3) > 0).or(group) {
                Some(id) => on_attributes(&connector, id, &mut r),
                None => Ok(()),
            },
            _ => on_names(edit, &found, &mut r),
        };
        seen.nodes += u64::from(done.is_ok());
        seen.errors += u64::from(done.is_err());
        if i % 5 == 4 {
            seen.errors += u64::from(edit.commit().is_err());
            // Objects that are gone are not asked for any more, as the file system would not.
            found = survey(&*connector);
        } else if done.is_ok() && r.index(2) == 0 {
            found = survey(&*connector);
        }
    }
    let closed = edit.close();
    drop(connector);
    if closed.is_ok() {
        let again = open(Arc::new(Environment::with_pool(1 << 20, 0, environment.pool.clone())));
        // Two structures in one place cannot be told apart, but the file is one still.
        let lost = again.err().map(|e| e.to_string());
        let lost = lost.filter(|e| e.contains("superblock") || e.contains("signature") && !e.contains("continuation"));
        assert!(lost.is_none(), "closed without an error, and then: {lost:?}; {:x?}", file.0.bytes().get(..64));
    }
    seen.lost += u64::from(closed.is_err());
    Some(seen)
}
