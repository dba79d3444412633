//! A process is killed at each call of its store; what it committed before is there.
//!
//! The killed process is this test program, which runs the test `child` alone.

use super::access::IodConnector;
use super::kind::root_entries;
use super::tests::{bytes, open_in};
use crate::base::Result;
use crate::connector::edit::{Edit, Taken};
use crate::connector::{Connector, LinkTarget};
use crate::file::store::ObjectStore;
use crate::file::store::local::LocalStore;
use crate::iod::Container;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Folder of the container, for the child.
const FOLDER: &str = "H5DIR_TEST_KILL_FOLDER";
/// Number of the call at which the child is killed.
const AT: &str = "H5DIR_TEST_KILL_AT";
/// What the child prints after each commit.
const COMMITTED: &str = "committed ";
/// Commits of the child.
const COMMITS: usize = 4;

/// A store at whose call `left` the process is killed: even numbers before it, odd ones after it.
struct Killing {
    store: LocalStore,
    left: AtomicI64,
}

impl Killing {
    fn call<T>(&self, f: impl FnOnce() -> T) -> T {
        let left = self.left.fetch_sub(2, Ordering::SeqCst);
        if left == 0 {
            kill();
        }
        let done = f();
        if left == 1 {
            kill();
        }
        done
    }
}

fn kill() {
    let _ = nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::SIGKILL);
}

impl ObjectStore for Killing {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.call(|| self.store.get(key, range))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.call(|| self.store.put(key, bytes))
    }

    fn settle(&self) -> io::Result<()> {
        self.call(|| self.store.settle())
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.call(|| self.store.create(key, bytes))
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.call(|| self.store.list_after(prefix, after))
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.call(|| self.store.head(key))
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.call(|| self.store.delete(key))
    }
}

/// The files that commit `n` leaves, with their only byte.
fn after(n: usize) -> BTreeSet<(String, u8)> {
    let all: [&[(&str, u8)]; COMMITS + 1] = [&[], &[("a", 1)], &[("a", 1), ("b", 2)], &[("b", 2), ("c", 1)], &[("b", 4), ("c", 1)]];
    all[n].iter().map(|(name, byte)| ((*name).to_owned(), *byte)).collect()
}

/// Makes what commit `n` commits. Files have more bytes than a record takes.
fn change(c: &IodConnector, n: usize) -> Result<()> {
    let root = c.root();
    let file = |name: &[u8], byte: u8| {
        let id = c.create_file(root, name)?;
        c.write(id, 0, &[byte; 9000])
    };
    match n {
        1 => file(b"a", 1),
        2 => file(b"b", 2),
        3 => c.rename((root, b"a"), (root, b"c"), Taken::Refuse).map(drop),
        _ => {
            let link = c.lookup(root, b"b")?.unwrap();
            let LinkTarget::Hard(id) = link.target else { panic!("{link:?}") };
            c.write(id, 0, &[4; 9000])
        }
    }
}

/// The program that is killed; it does nothing without a folder.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let left: i64 = std::env::var(AT).unwrap().parse().unwrap();
    let store = Killing { store: LocalStore::open(Path::new(&folder)).unwrap(), left: left.into() };
    let c = open_in(Arc::new(store), None).unwrap();
    for n in 1..=COMMITS {
        change(&c, n).unwrap();
        Edit::commit(&*c).unwrap();
        println!("{COMMITTED}{n}");
        io::stdout().flush().unwrap();
        if n == 2 {
            let mut state = c.states.next();
            let session = state.session.clone().unwrap();
            c.container.checkpoint(&mut state.snapshot, &session).unwrap();
        }
    }
    c.close().unwrap();
}

/// Runs the child on an empty container; the number of its last commit, and whether it was killed.
fn run(folder: &Path, at: i64) -> (usize, bool) {
    Container::create(Arc::new(LocalStore::open(folder).unwrap()), root_entries()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "connector::iod::kills_tests::child", "--nocapture", "--test-threads=1"]);
    let output = command.env(FOLDER, folder).env(AT, at.to_string()).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().filter_map(|line| line.split_once(COMMITTED)).filter_map(|(_, n)| n.parse().ok()).max();
    assert!(output.status.success() || output.status.code().is_none(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    (last.unwrap_or(0), !output.status.success())
}

/// The files of the container in `folder`, and a further writer's commit.
fn found(folder: &Path) -> BTreeSet<(String, u8)> {
    let open = || open_in(Arc::new(LocalStore::open(folder).unwrap()), None).unwrap();
    let c = open();
    let mut all = BTreeSet::new();
    c.list(c.root(), 0, &mut |link, _| {
        let LinkTarget::Hard(id) = link.target else { panic!("{link:?}") };
        let content = bytes(&*c, id);
        assert!(content.len() == 9000 && content.iter().all(|b| *b == content[0]));
        all.insert((String::from_utf8(link.name).unwrap(), content[0]));
        ControlFlow::Continue(())
    })
    .unwrap();
    c.create_group(c.root(), b"next").unwrap();
    c.close().unwrap();
    let c = open();
    assert!(c.lookup(c.root(), b"next").unwrap().is_some());
    all
}

#[test]
fn a_process_killed_at_any_call_leaves_its_commits() {
    let step = if std::env::var_os("H5DIR_LONG").is_some() { 1 } else { 7 };
    let mut calls = 0;
    for at in (0..).step_by(step) {
        let folder = tempfile::tempdir().unwrap();
        let (committed, killed) = run(folder.path(), at);
        let files = found(folder.path());
        // The commit under way may be complete.
        let next = (committed + 1).min(COMMITS);
        assert!(files == after(committed) || files == after(next), "call {at}, commit {committed}: {files:?}");
        if !killed {
            assert_eq!(committed, COMMITS);
            break;
        }
        calls += 1;
    }
    assert!(calls > 3, "{calls}");
}
