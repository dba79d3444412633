//! Which files of the tree are containers, by their first bytes. What was found is remembered for
//! each file until its stamp changes, so that a listing opens no container.

use super::files::Folder;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::fs::open::{Entry, Identity, Recognized, Stamp};
use foldhash::{HashMap, HashMapExt};
use lru::LruCache;
use std::ffi::OsStr;
use std::num::NonZeroUsize;

/// Files remembered.
const FILES_MAX: NonZeroUsize = NonZeroUsize::new(1 << 18).unwrap();

/// What a regular file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A container.
    Container,
    /// A container that cannot be opened, or a file that cannot be read.
    Unreadable,
    /// Another file.
    Other,
}

/// See the module's description.
pub struct Signatures {
    known: Mutex<LruCache<Identity, (Stamp, Class)>>,
    /// Files that are written through the mount: they are files until they are closed.
    written: Mutex<HashMap<Identity, usize>>,
}

impl Default for Signatures {
    fn default() -> Self {
        Signatures { known: Mutex::new(lru_cache(FILES_MAX)), written: Mutex::new(HashMap::new()) }
    }
}

impl Signatures {
    /// What the regular file `name` of `directory` is. `listed`: for a listing, which may not read
    /// its first bytes.
    pub fn class(&self, directory: &dyn Folder, name: &OsStr, entry: &Entry, listed: bool) -> Class {
        let (identity, stamp) = (entry.status.identity, entry.status.stamp());
        if self.written.lock().contains_key(&identity) {
            return Class::Other;
        }
        if let Some((_, class)) = self.known.lock().get(&identity).filter(|(seen, _)| *seen == stamp) {
            return *class;
        }
        match directory.guess(name).filter(|_| listed) {
            Some(Recognized::Container) => return Class::Container,
            Some(_) => return Class::Other,
            None => {}
        }
        let class = match directory.recognize(name, entry) {
            Ok(Recognized::Container) => Class::Container,
            Ok(Recognized::Other) => Class::Other,
            Ok(Recognized::Damaged) => Class::Unreadable,
            // Another file has the name now: the next look-up finds that one.
            Err(e) if e.raw_os_error() == Some(libc::ESTALE) => return Class::Other,
            Err(e) => {
                tracing::warn!("{}: {e}", crate::base::escape::escaped(std::path::Path::new(name)));
                if directory.guess(name).is_some() {
                    // A request failed: the next one may not.
                    return Class::Unreadable;
                }
                Class::Unreadable
            }
        };
        self.known.lock().put(identity, (stamp, class));
        class
    }

    /// The container in the file, which has `stamp`, cannot be opened.
    pub fn mark_unreadable(&self, identity: Identity, stamp: Stamp) {
        self.known.lock().put(identity, (stamp, Class::Unreadable));
    }

    /// A file is opened for writing (`more`), or closed.
    pub fn count_writer(&self, identity: Identity, more: bool) {
        let mut written = self.written.lock();
        let count = written.entry(identity).or_default();
        *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
        if *count == 0 {
            written.remove(&identity);
        }
    }
}
