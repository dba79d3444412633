//! Tags that are created while garbage is collected: each order of the events. A tag holds its
//! version, or its creation is refused.

use super::tests::{LONG, Writer, collect, created, is_stale, newest, opened, opened_with, read};
use super::{Options, run};
use crate::base::Result;
use crate::base::locks::Mutex;
use crate::file::store::ObjectStore;
use crate::file::store::memory::MemoryStore;
use crate::iod::Container;
use crate::iod::rules::{Rule, Rules};
use std::io;
use std::ops::Range;
use std::sync::Arc;

type Meanwhile = Box<dyn FnOnce() + Send>;

/// A store that calls a function before the first request of a kind, such as `create tag/`.
struct Stopped {
    store: MemoryStore,
    at: &'static str,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Stopped {
    fn before(store: &MemoryStore, at: &'static str, f: impl FnOnce() + Send + 'static) -> Arc<Stopped> {
        Arc::new(Stopped { store: store.clone(), at, meanwhile: Mutex::new(Some(Box::new(f))) })
    }

    fn request(&self, verb: &str, key: &str) {
        let due = format!("{verb} {key}").starts_with(self.at);
        let meanwhile = if due { self.meanwhile.lock().take() } else { None };
        if let Some(f) = meanwhile {
            f();
        }
    }

    fn is_over(&self) -> bool {
        self.meanwhile.lock().is_none()
    }
}

impl ObjectStore for Stopped {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.request("get", key);
        self.store.get(key, range)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.store.put(key, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.request("create", key);
        self.store.create(key, bytes)
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.request("list", prefix);
        self.store.list_after(prefix, after)
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.store.head(key)
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.request("delete", key);
        self.store.delete(key)
    }
}

/// A container whose value has changed nine times, and the version of the first value.
fn container() -> (MemoryStore, u64) {
    let store = created();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    let version = writer.put(b"k", &[1; LONG]).unwrap();
    for n in 2..9 {
        writer.put(b"k", &[n; LONG]).unwrap();
    }
    writer.end();
    (store, version)
}

/// True if the version has its value.
fn is_kept(store: &MemoryStore, version: u64) -> bool {
    read(&opened(store), Some(version)).is_ok_and(|model| model[b"k".as_slice()] == [1; LONG])
}

/// What a creation of a tag got, and whether its version is there after two more runs.
type Got = (Result<()>, bool);

/// Garbage is collected, and another process creates a tag before the first request `at`.
fn tagged_before(at: &'static str, rules: Rules) -> Got {
    let (store, version) = container();
    let done = Arc::new(Mutex::new(None));
    let (tagger, outcome) = (store.clone(), done.clone());
    let stopped = Stopped::before(&store, at, move || *outcome.lock() = Some(opened_with(&tagger, rules).create_tag("old", version)));
    run(&Container::open(stopped.clone()).unwrap(), &newest(1)).unwrap();
    assert!(stopped.is_over(), "there was no {at}");
    (0..2).for_each(|_| drop(collect(&store, &newest(1))));
    let done = done.lock().take().unwrap();
    let has_tag = opened(&store).tag("old").unwrap().is_some();
    assert_eq!(has_tag, done.is_ok(), "a refused tag is removed");
    (done, is_kept(&store, version))
}

/// A process that creates a tag stands still before the request `at`, while garbage is collected.
fn overtaken_before(at: &'static str, rules: Rules) -> Got {
    let (store, version) = container();
    let meanwhile = store.clone();
    let stopped = Stopped::before(&store, at, move || drop(collect(&meanwhile, &newest(1))));
    let done = Container::open_with(stopped.clone(), rules).unwrap().create_tag("old", version);
    assert!(stopped.is_over(), "there was no {at}");
    (0..2).for_each(|_| drop(collect(&store, &newest(1))));
    (done, is_kept(&store, version))
}

#[test]
fn tags_hold_their_version_or_are_refused() {
    // Before the floor is published, the run finds the tag when it reads tags again.
    for at in ["list tag/", "create g/"] {
        let (done, kept) = tagged_before(at, Rules::default());
        assert!(done.is_ok() && kept, "{at}: {done:?}");
    }
    // The first record is deleted; all of them are.
    let (done, kept) = tagged_before("delete v/", Rules::default());
    assert!(is_stale(&done) && !kept, "{done:?}");
    let (done, kept) = tagged_before("delete d/", Rules::default());
    assert!(done.is_err() && !kept, "{done:?}");
    let (done, kept) = overtaken_before("create tag/", Rules::default());
    assert!(is_stale(&done) && !kept, "{done:?}");
    // The run sees the tag that the suspended process made.
    let (done, kept) = overtaken_before("list g/", Rules::default());
    assert!(is_stale(&done) || kept, "{done:?}");
}

#[test]
fn without_the_floor_a_tag_loses_its_version() {
    let (done, kept) = tagged_before("delete v/", Rules::breaking(Some(Rule::FloorAfterTag)));
    assert!(done.is_ok() && !kept, "{done:?}");
    let (done, kept) = overtaken_before("create tag/", Rules::breaking(Some(Rule::FloorAfterTag)));
    assert!(done.is_ok() && !kept, "{done:?}");
}

/// A version below the floor that has a tag can get another one, which holds it then; others none.
#[test]
fn a_tagged_version_gets_another_tag() {
    let (store, version) = container();
    opened(&store).create_tag("one", version).unwrap();
    // Publishes the floor, and deletes nothing yet.
    let report = collect(&store, &Options { grace: 86_400, ..newest(1) });
    assert_eq!((report.versions, report.floor > version + 1), (0, true), "{report:?}");
    assert!(is_stale(&opened(&store).create_tag("next", version + 1)));
    assert_eq!(opened(&store).tags().unwrap(), ["one"]);
    opened(&store).create_tag("two", version).unwrap();
    opened(&store).remove_tag("one").unwrap();
    (0..3).for_each(|_| drop(collect(&store, &newest(1))));
    assert!(is_kept(&store, version));
}

/// A process that was killed after it created a tag left one that stopped all deletion.
#[test]
fn the_tag_of_a_deleted_version_holds_nothing() {
    let (store, version) = container();
    (0..2).for_each(|_| drop(collect(&store, &newest(1))));
    assert!(opened(&store).read_record(version).unwrap().is_none());
    let tag = crate::iod::Tag { version, seconds: 0, label: Vec::new() };
    store.put("tag/left", &tag.encode()).unwrap();
    let mut writer = Writer::new(Arc::new(store.clone()), 3600);
    for n in 0..9 {
        writer.put(b"k", &[n; LONG]).unwrap();
    }
    writer.end();
    let first = collect(&store, &newest(1));
    let report = collect(&store, &newest(1));
    assert!(first.versions + report.versions > 8, "{first:?} {report:?}");
    assert!(first.notes.iter().any(|note| note.contains("remove the tag")), "{first:?}");
}
