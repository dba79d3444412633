//! An embedder of one file system, whose numbers outside are 1,000 larger.

use super::{At, Embedder, Embedding, Entered, Inside, Use};
use crate::base::locks::Mutex;
use crate::fs::types::{
    Attr, DirEntry, DirEntryPlus, Entry, Errno, FileKind, FsResult, Handle, Ino, OpenMode, Opened, ROOT, Statfs, Whence,
};
use crate::fs::{Done, Invalidate, Operations};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::SystemTime;

const SHIFT: u64 = 1_000;

fn attr(ino: Ino) -> Attr {
    Attr::empty(ino, FileKind::Directory, 0o755, SystemTime::UNIX_EPOCH)
}

/// A file system with the names `a` (2) and `b` (3) in its root, which counts look-ups.
#[derive(Default)]
struct Names {
    is_inside: bool,
    looked_up: Mutex<BTreeMap<u64, i64>>,
    open: Mutex<i64>,
}

impl Names {
    fn count(&self, ino: Ino, by: i64) {
        *self.looked_up.lock().entry(ino.0).or_default() += by;
    }

    /// Files that the embedder did not forget, and their counts.
    fn counted(&self) -> Vec<(u64, i64)> {
        self.looked_up.lock().iter().filter(|(_, n)| **n != 0).map(|(ino, n)| (*ino, *n)).collect()
    }
}

impl Operations for Names {
    fn warning(&self) -> Option<String> {
        Some(if self.is_inside { "inside" } else { "own" }.into())
    }

    fn lookup(&self, _parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let ino = match name {
            b"a" => Ino(2),
            b"b" => Ino(3),
            _ => return Err(Errno(libc::ENOENT)),
        };
        self.count(ino, 1);
        Ok(Entry { attr: attr(ino), generation: 0, volatile: false })
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.count(ino, -(count as i64));
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(attr(ino))
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        Ok(ino.0.to_string().into_bytes())
    }

    fn open(&self, ino: Ino, _mode: OpenMode) -> FsResult<Opened> {
        *self.open.lock() += 1;
        Ok(Opened { handle: Handle(ino.0), keep_cache: true, direct_io: false, no_flush: false })
    }

    fn read(&self, _ino: Ino, handle: Handle, _offset: u64, _buf: &mut [u8]) -> FsResult<usize> {
        Ok(handle.0 as usize)
    }

    fn release(&self, _ino: Ino, _handle: Handle) -> Invalidate {
        *self.open.lock() -= 1;
        Invalidate { attributes: vec![Ino(2)], ..Invalidate::default() }
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.open(ino, OpenMode::default()).map(|opened| opened.handle)
    }

    fn readdir(&self, ino: Ino, _handle: Handle, _offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        for (next, (name, ino)) in (1..).zip([(b"." as &[u8], ino), (b"..", ROOT), (b"a", Ino(2)), (b"b", Ino(3))]) {
            if f(DirEntry { ino, kind: FileKind::Directory, name, next }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        self.readdir(ino, handle, offset, &mut |e| {
            let entry = Entry { attr: attr(e.ino), generation: 0, volatile: false };
            let flow = f(DirEntryPlus { name: e.name, entry, next: e.next });
            if flow.is_continue() && e.next > 2 {
                self.count(e.ino, 1);
            }
            flow
        })
    }

    fn releasedir(&self, _ino: Ino, _handle: Handle) {
        *self.open.lock() -= 1;
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        Err(Errno(libc::ENODATA))
    }

    fn listxattr(&self, _ino: Ino) -> FsResult<Vec<u8>> {
        Ok(Vec::new())
    }

    fn fact(&self, ino: Ino, name: &str, _limit: u64) -> FsResult<Vec<u8>> {
        Ok(format!("{name} of {}", ino.0).into_bytes())
    }

    fn lseek(&self, _ino: Ino, _handle: Handle, offset: u64, _whence: Whence) -> FsResult<u64> {
        Ok(offset)
    }

    fn statfs(&self) -> FsResult<Statfs> {
        Err(Errno(libc::ENOSYS))
    }

    fn is_volatile(&self, ino: Ino) -> bool {
        ino == Ino(2)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), _flags: u32) -> Done<()> {
        let pages = vec![(from.0, 0..1), (to.0, 0..1), (Ino(77), 0..1)];
        Done { result: Ok(()), invalidate: Invalidate { pages, ..Invalidate::default() } }
    }
}

/// Of `a` the embedder keeps one look-up, of `b` none.
#[derive(Default)]
struct Shifted {
    own: Names,
    inside: Names,
    refused: Mutex<Vec<u64>>,
    closed: Mutex<Vec<u64>>,
}

struct File<'a>(&'a Shifted, Ino);

impl Inside for File<'_> {
    fn operations(&self) -> &dyn Operations {
        &self.0.inside
    }

    fn ino(&self) -> Ino {
        self.1
    }

    fn is_beside(&self, _other: &Self) -> bool {
        true
    }

    fn entered(&self, name: &[u8], entry: Entry) -> FsResult<Entered> {
        let entry = Entry { attr: attr(Ino(entry.attr.ino.0 + SHIFT)), ..entry };
        Ok(Entered { entry, surplus: name == b"b" })
    }

    fn refused(&self, entered: &Entered) {
        self.0.refused.lock().push(entered.entry.attr.ino.0);
    }

    fn listed(&self, name: &[u8], inner: Ino) -> Ino {
        if name == b".." { ROOT } else { Ino(inner.0 + SHIFT) }
    }

    fn opened(&self, outside: Ino, opened: Opened, _mode: OpenMode) -> FsResult<Opened> {
        assert_eq!(outside.0, self.1.0 + SHIFT);
        Ok(Opened { handle: Handle(opened.handle.0 + SHIFT), ..opened })
    }

    fn opened_directory(&self, handle: Handle) -> Handle {
        Handle(handle.0 + SHIFT)
    }

    fn outward(&self, invalidate: Invalidate) -> Invalidate {
        invalidate.outward(&|ino| (ino.0 < 10).then_some(Ino(ino.0 + SHIFT)))
    }
}

impl Embedder for Shifted {
    type Inside<'a> = File<'a>;

    fn own(&self) -> &dyn Operations {
        &self.own
    }

    fn at(&self, ino: Ino, by: Use) -> FsResult<At<File<'_>>> {
        Ok(match ino.0.checked_sub(SHIFT) {
            None => At::Own,
            Some(9) if by == Use::Sync => At::Closed,
            Some(inner) => At::Inside(File(self, Ino(inner))),
        })
    }

    fn at_handle(&self, _ino: Ino, handle: Handle) -> FsResult<At<(File<'_>, Handle)>> {
        let inner = |inner| At::Inside((File(self, Ino(inner)), Handle(inner)));
        Ok(handle.0.checked_sub(SHIFT).map_or(At::Own, inner))
    }

    fn at_close(&self, ino: Ino, handle: Handle) -> FsResult<At<(File<'_>, Handle)>> {
        if handle == Handle(SHIFT + 9) { Ok(At::Closed) } else { self.at_handle(ino, handle) }
    }

    fn closed(&self, handle: Handle, inside: Option<&File<'_>>) {
        assert_eq!(inside.is_none(), handle == Handle(SHIFT + 9));
        self.closed.lock().push(handle.0);
    }

    fn forget(&self, _ino: Ino, _count: u64) {}
}

const INSIDE: Ino = Ino(ROOT.0 + SHIFT);

#[test]
fn requests_go_to_where_the_file_is() {
    let all = Embedding(Shifted::default());
    assert_eq!((all.readlink(Ino(5)), all.readlink(Ino(SHIFT + 5))), (Ok(b"5".to_vec()), Ok(b"5".to_vec())));
    assert_eq!(all.getattr(Ino(SHIFT + 5)).unwrap().ino, Ino(SHIFT + 5));
    assert_eq!((all.0.own.counted(), all.lookup(ROOT, b"a").unwrap().attr.ino, all.0.own.counted()), (vec![], Ino(2), vec![(2, 1)]));
    assert!(all.0.inside.counted().is_empty());
}

/// Regression: facts beyond the size of an extended attribute, warnings and names that change were
/// those of the trait, not of the file system.
#[test]
fn what_the_trait_has_a_default_for_is_asked_of_the_file_system_too() {
    let all = Embedding(Shifted::default());
    assert_eq!(all.warning().as_deref(), Some("own"));
    assert_eq!(all.fact(Ino(SHIFT + 5), "dims", 9).unwrap(), b"dims of 5");
    assert!(all.is_volatile(Ino(SHIFT + 2)) && !all.is_volatile(Ino(SHIFT + 3)));
}

#[test]
fn a_look_up_that_the_embedder_does_not_keep_is_forgotten() {
    let all = Embedding(Shifted::default());
    for _ in 0..2 {
        assert_eq!(all.lookup(INSIDE, b"a").unwrap().attr.ino, Ino(SHIFT + 2));
        assert_eq!(all.lookup(INSIDE, b"b").unwrap().attr.ino, Ino(SHIFT + 3));
    }
    assert_eq!(all.0.inside.counted(), [(2, 2)]);
}

#[test]
fn a_listing_counts_what_the_kernel_took() {
    let all = Embedding(Shifted::default());
    let handle = all.opendir(INSIDE).unwrap();
    let list = |takes: &dyn Fn(&[u8]) -> bool| {
        let mut numbers = Vec::new();
        let mut f = |e: DirEntryPlus<'_>| {
            numbers.push(e.entry.attr.ino.0);
            if takes(e.name) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        all.readdirplus(INSIDE, handle, 0, &mut f).unwrap();
        numbers
    };
    assert_eq!(list(&|_| true), [INSIDE.0, ROOT.0, SHIFT + 2, SHIFT + 3]);
    // The look-up of `b` was forgotten again.
    assert_eq!(all.0.inside.counted(), [(2, 1)]);
    assert_eq!(list(&|name| name != b"a"), [INSIDE.0, ROOT.0, SHIFT + 2]);
    assert_eq!((all.0.inside.counted(), all.0.refused.lock().clone()), (vec![(2, 1)], vec![SHIFT + 2]));
    all.releasedir(INSIDE, handle);
    assert_eq!((*all.0.inside.open.lock(), all.0.closed.lock().clone()), (0, vec![handle.0]));
}

#[test]
fn an_open_file_is_closed_once_even_if_its_file_system_is_closed() {
    let all = Embedding(Shifted::default());
    let opened = all.open(Ino(SHIFT + 4), OpenMode::default()).unwrap();
    assert_eq!(all.read(Ino(SHIFT + 4), opened.handle, 0, &mut []).unwrap(), 4);
    assert_eq!(all.release(Ino(SHIFT + 4), opened.handle).attributes, [Ino(SHIFT + 2)]);
    assert!(all.release(Ino(SHIFT + 9), Handle(SHIFT + 9)).attributes.is_empty());
    assert_eq!((*all.0.inside.open.lock(), all.0.closed.lock().clone()), (0, vec![SHIFT + 4, SHIFT + 9]));
    assert!(all.flush(Ino(SHIFT + 9), Handle(SHIFT + 9)).result.is_ok() && all.fsync(Ino(SHIFT + 9)).result.is_ok());
}

#[test]
fn names_move_within_one_file_system() {
    let all = Embedding(Shifted::default());
    assert_eq!(all.rename((ROOT, b"a"), (INSIDE, b"b"), 0).result, Err(Errno(libc::EXDEV)));
    assert_eq!(all.link(Ino(SHIFT + 2), ROOT, b"c").result.unwrap_err(), Errno(libc::EXDEV));
    assert_eq!(all.copy_range((Handle(2), 0), (Handle(SHIFT + 2), 0), 1).result, Err(Errno(libc::EOPNOTSUPP)));
    // In the numbers outside; what the kernel does not know is left out.
    let pages = all.rename((INSIDE, b"a"), (Ino(SHIFT + 2), b"b"), 0).invalidate.pages;
    assert_eq!(pages, [(INSIDE, 0..1), (Ino(SHIFT + 2), 0..1)]);
    assert_eq!(all.rename((ROOT, b"a"), (ROOT, b"b"), 0).invalidate.pages.len(), 3);
}
