//! What a copy prints: the objects that were copied, and its progress.

use crate::base::escape;
use crate::cli::brief::size;
use crate::cli::progress::Meter;
use crate::cli::side::{DEPTH_MAX, SideKind, Source};
use crate::cli::text;
use serde_json::json;
use std::collections::HashSet;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Longest time for which sources are counted before a copy begins.
const COUNTING_TIME: Duration = Duration::from_secs(1);

/// How objects that were copied are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// Not at all.
    None,
    /// `'a' -> 'b'`, as by cp(1).
    Names,
    /// A JSON object each.
    Json,
}

/// See the module's description.
pub(super) struct Report {
    lines: Lines,
    meter: Meter,
    /// The source that the user named, and what it is copied to.
    top: (Vec<u8>, Vec<u8>),
    /// Bytes of all sources; 0: unknown.
    total: u64,
    /// Bytes of the files that were copied.
    finished: u64,
    /// Bytes of the current file, and how many were copied.
    current: (u64, u64),
}

impl Report {
    /// Prints `lines`; `sources`: what is copied.
    pub(super) fn new(lines: Lines, sources: &[Option<Box<dyn Source>>]) -> Report {
        let meter = Meter::new();
        let counted = if meter.is_on() { count(sources) } else { None };
        Report { lines, meter, top: Default::default(), total: counted.unwrap_or(0), finished: 0, current: (0, 0) }
    }

    /// Begins a source that the user named, which is copied to `destination`.
    pub(super) fn begin(&mut self, source: &[u8], destination: Vec<u8>) {
        let slash = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
        self.top = (slash(source), slash(&destination));
    }

    /// Begins a file of `size` bytes, after the one before.
    pub(super) fn begin_file(&mut self, size: u64) {
        self.end_file();
        self.current = (size, 0);
    }

    /// Ends the current file.
    pub(super) fn end_file(&mut self) {
        self.finished = self.finished.saturating_add(std::mem::take(&mut self.current).0);
    }

    /// Counts `bytes` of the current file; `objects` were copied before it.
    pub(super) fn add(&mut self, objects: u64, bytes: u64) {
        self.current.1 = self.current.1.saturating_add(bytes);
        self.show(objects);
    }

    /// Shows the progress.
    pub(super) fn show(&mut self, objects: u64) {
        let done = self.finished.saturating_add(self.current.1.min(self.current.0));
        self.meter.show(done, self.total, || format!("{objects} objects, {}", size(done)));
    }

    /// Removes the line of progress, before a message.
    pub(super) fn clear(&mut self) {
        self.meter.clear();
    }

    /// Prints that the file of `kind` at `path` of the source was copied. A closed standard output
    /// does not end the copy.
    pub(super) fn copied(&mut self, path: &[u8], kind: SideKind) {
        if self.lines == Lines::None {
            return;
        }
        self.meter.clear();
        let below = path.strip_prefix(self.top.0.as_slice()).filter(|below| *below != b"/").unwrap_or_default();
        let there = [self.top.1.as_slice(), below].concat();
        let line = match self.lines {
            Lines::Json => {
                let row = json!({"source": text::json(path), "destination": text::json(&there), "kind": kind.name()});
                escape::json(&row.to_string()).into_owned()
            }
            _ => format!("'{}' -> '{}'", text::name(path), text::name(&there)),
        };
        let _ = writeln!(io::stdout().lock(), "{line}");
    }
}

/// Bytes of all files of `sources`; `None`: they are too many to be counted first, or unknown.
fn count(sources: &[Option<Box<dyn Source>>]) -> Option<u64> {
    let until = Instant::now().checked_add(COUNTING_TIME)?;
    let (mut total, mut shared) = (0u64, HashSet::new());
    for source in sources {
        let source = source.as_ref()?;
        total = total.saturating_add(size_of(&**source));
        let mut pending = below(&**source)?;
        while let Some((depth, source)) = pending.pop() {
            if Instant::now() > until || depth > DEPTH_MAX {
                return None;
            }
            total = total.saturating_add(size_of(&*source));
            let group = source.as_object().and_then(|object| object.shared_group().ok().flatten());
            if source.meta().kind == SideKind::Directory && group.is_none_or(|group| shared.insert(group)) {
                pending.extend(below(&*source)?.into_iter().map(|(_, child)| (depth.saturating_add(1), child)));
            }
        }
    }
    Some(total)
}

fn size_of(source: &dyn Source) -> u64 {
    if source.meta().kind == SideKind::Regular { source.meta().size } else { 0 }
}

/// What is in the directory `source`. `None`: it is too much to be counted.
fn below(source: &dyn Source) -> Option<Vec<(usize, Box<dyn Source>)>> {
    /// Most names of a directory that are counted.
    const NAMES_MAX: usize = 10_000;
    if source.meta().kind != SideKind::Directory {
        return Some(Vec::new());
    }
    let names = source.names().ok().filter(|names| names.len() <= NAMES_MAX)?;
    names.iter().map(|name| Some((1, source.child(name).ok()?))).collect()
}
