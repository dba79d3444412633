//! Walks two trees side by side and reports in what they differ.

use super::content::{Pieces, Without, bytes_at, first_difference};
use super::report::{At, Difference, Report};
use crate::base::escape::escaped_bytes;
use crate::cli::failure::reason;
use crate::cli::print_error;
use crate::cli::progress::ProgressLine;
use crate::cli::side::container::ObjectSource;
use crate::cli::side::{Content, DEPTH_MAX, FACT_PREFIX, SideKind, Source};
use crate::cli::text;
use crate::cli::tree::join;
use crate::fs::model::{ElementBytes, ObjectModel, SharedGroup, StoredLink, io_error};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::ops::Range;

/// Bytes of local files that are shown.
const BYTES_SHOWN: usize = 16;

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    /// Subdirectories, too.
    pub(super) recursive: bool,
    /// How elements are stored, too.
    pub(super) storage: bool,
    /// Extended attributes of local files, too.
    pub(super) xattrs: bool,
}

/// Why a comparison ended: no more output, or the first difference was enough.
pub(super) enum End {
    /// The output takes no more.
    Output(io::Error),
    /// Nothing more is of interest.
    Done,
}

/// What the bytes of two files are the elements of.
struct Dataset<'a> {
    left: &'a ObjectModel,
    right: &'a ObjectModel,
    /// Its elements are lines.
    is_lines: bool,
    /// Bytes of an element; 0: the elements have no fixed size.
    size: u64,
    /// Ranges of each element that are not compared.
    without: Vec<Range<u64>>,
}

/// A comparison of two trees.
pub(super) struct Comparison<'a> {
    scope: Scope,
    report: Report<'a>,
    /// Objects that could not be compared.
    pub(super) troubles: u64,
    objects: u64,
    /// Pairs of groups with several hard links that were compared.
    groups: HashSet<(SharedGroup, SharedGroup)>,
    pieces: Pieces,
    line: ProgressLine,
}

impl<'a> Comparison<'a> {
    /// Reports to `report`.
    pub(super) fn new(scope: Scope, report: Report<'a>) -> Self {
        Comparison { scope, report, troubles: 0, objects: 0, groups: HashSet::new(), pieces: Pieces::default(), line: ProgressLine::new() }
    }

    /// Ends the output; returns whether there were differences.
    pub(super) fn end(mut self) -> io::Result<bool> {
        self.line.clear();
        let different = self.report.count > 0;
        self.report.end().map(|()| different)
    }

    fn add(&mut self, path: &[u8], difference: &Difference) -> Result<(), End> {
        self.line.clear();
        self.report.add(path, difference).map_err(End::Output)?;
        if self.report.is_done() { Err(End::Done) } else { Ok(()) }
    }

    fn trouble(&mut self, path: &[u8], why: &io::Error) {
        self.troubles = self.troubles.saturating_add(1);
        self.line.clear();
        print_error(&format!("cannot compare {}: {}", escaped_bytes(path), reason(why)));
    }

    /// Compares two files, both at `path`.
    pub(super) fn compare(&mut self, left: &dyn Source, right: &dyn Source, path: &[u8], depth: usize) -> Result<(), End> {
        self.objects = self.objects.saturating_add(1);
        let objects = self.objects;
        self.line.show(|| format!("{objects} objects"));
        let mut found = Vec::new();
        let equal_kinds = match self.compare_one(left, right, depth, &mut found) {
            Ok(equal) => equal,
            Err(e) => {
                self.trouble(path, &e);
                false
            }
        };
        for difference in &found {
            self.add(path, difference)?;
        }
        if equal_kinds && left.meta().kind == SideKind::Directory && (depth == 0 || self.scope.recursive) {
            match self.is_compared(left, right) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) => {
                    self.trouble(path, &e);
                    return Ok(());
                }
            }
            return self.compare_names(left, right, path, depth);
        }
        Ok(())
    }

    /// True if both are groups that were compared at other paths of theirs. Notes groups with
    /// several hard links: a few of them have very many paths.
    fn is_compared(&mut self, left: &dyn Source, right: &dyn Source) -> io::Result<bool> {
        let Some((left, right)) = left.as_object().zip(right.as_object()) else { return Ok(false) };
        let (Some(left), Some(right)) = (left.shared_group()?, right.shared_group()?) else { return Ok(false) };
        Ok(!self.groups.insert((left, right)))
    }

    /// Compares everything but the content of directories. False: they are of different kinds.
    fn compare_one(&mut self, left: &dyn Source, right: &dyn Source, depth: usize, found: &mut Vec<Difference>) -> io::Result<bool> {
        let objects = left.as_object().zip(right.as_object());
        if objects.is_some() && depth > 0 {
            let (a, b) = (left.stored_link()?, right.stored_link()?);
            if a.is_some() || b.is_some() {
                if !is_same_link(a.as_ref(), b.as_ref()) {
                    found.push(Difference::values("link", link_text(a.as_ref()), link_text(b.as_ref())));
                }
                return Ok(false);
            }
        }
        let (a, b) = (left.meta().kind, right.meta().kind);
        if a != b {
            found.push(Difference::values("kind", a.name(), b.name()));
            return Ok(false);
        }
        match (a, objects) {
            (SideKind::Symlink, _) => {
                let (a, b) = (left.target()?, right.target()?);
                if a != b {
                    found.push(Difference::values("target", text::name(&a), text::name(&b)));
                }
                Ok(false)
            }
            (_, Some((left, right))) if !left.is_form() && !right.is_form() => {
                self.compare_objects(left, right, found)?;
                Ok(true)
            }
            _ => {
                if self.scope.xattrs {
                    compare_xattrs(left, right, found)?;
                }
                if a == SideKind::Regular {
                    self.compare_bytes(left, right, None, found)?;
                }
                Ok(true)
            }
        }
    }

    /// Compares two objects of the main trees.
    fn compare_objects(&mut self, left: &ObjectSource, right: &ObjectSource, found: &mut Vec<Difference>) -> io::Result<()> {
        let failed = |e| io_error(&e);
        let Some((a, b)) = left.model()?.zip(right.model()?) else {
            // A directory of HDF5 files has names only; another file of it, or a pair of a map, has
            // bytes only.
            return if left.meta().kind == SideKind::Regular { self.compare_bytes(left, right, None, found) } else { Ok(()) };
        };
        let (differences, elements) = a.differences(&b, self.scope.storage).map_err(failed)?;
        found.extend(differences.into_iter().map(|difference| Difference {
            what: difference.what,
            left: difference.left.map(|value| text::value(&value)),
            right: difference.right.map(|value| text::value(&value)),
            at: difference.at.map(At::Element),
        }));
        let ElementBytes::Without(without) = elements else { return Ok(()) };
        if without.is_empty() && (a.needs_exact_form().map_err(failed)? || b.needs_exact_form().map_err(failed)?) {
            // Different strings may have the same lines.
            return self.compare_bytes(&left.exact()?, &right.exact()?, None, found);
        }
        let size = if a.has_mapped_bytes() { a.element_size().map_err(failed)? } else { 0 };
        let is_lines = a.has_lines().map_err(failed)?;
        self.compare_bytes(left, right, Some(Dataset { left: &a, right: &b, is_lines, size, without }), found)
    }

    /// Compares the bytes of two files. `dataset`: what they are the elements of.
    fn compare_bytes(
        &mut self,
        left: &dyn Source,
        right: &dyn Source,
        dataset: Option<Dataset<'_>>,
        found: &mut Vec<Difference>,
    ) -> io::Result<()> {
        let open = |source: &dyn Source| -> io::Result<Box<dyn Content>> {
            let content = source.open()?;
            Ok(match dataset.as_ref().filter(|dataset| !dataset.without.is_empty()) {
                Some(Dataset { without, size, .. }) => Box::new(Without { content, ranges: without.clone(), size: *size }),
                None => content,
            })
        };
        let (mut a, mut b) = (open(left)?, open(right)?);
        let (size, other) = (a.size()?, b.size()?);
        if size != other && dataset.as_ref().is_none_or(|dataset| !dataset.is_lines) {
            found.push(Difference::values("size", size.to_string(), other.to_string()));
        }
        let Some(place) = first_difference(&mut *a, &mut *b, &mut self.pieces)? else { return Ok(()) };
        if place.offset >= size.min(other) && size != other && found.iter().any(|d| d.what == "size") {
            return Ok(());
        }
        let number = dataset.as_ref().and_then(|d| if d.is_lines { Some(place.newlines) } else { place.offset.checked_div(d.size) });
        if let (Some(Dataset { left, right, .. }), Some(number)) = (&dataset, number) {
            let text = |of: &ObjectModel| of.element_text(number).map_or_else(|_| "(unreadable)".into(), |value| text::value(&value));
            let at = At::Element(left.coordinates(number).map_err(|e| io_error(&e))?);
            found.push(Difference { at: Some(at), ..Difference::values("data", text(left), text(right)) });
            return Ok(());
        }
        let shown = |content: &mut dyn Content| bytes_at(content, place.offset, BYTES_SHOWN).map(|bytes| text::value(&bytes));
        let (x, y) = (shown(&mut *a)?, shown(&mut *b)?);
        found.push(Difference { at: Some(At::Byte(place.offset)), ..Difference::values("data", x, y) });
        Ok(())
    }

    /// Compares what is in two directories.
    fn compare_names(&mut self, left: &dyn Source, right: &dyn Source, path: &[u8], depth: usize) -> Result<(), End> {
        if depth >= DEPTH_MAX {
            self.trouble(path, &io::Error::other(format!("it is {DEPTH_MAX} directories deep")));
            return Ok(());
        }
        let (a, b) = match (left.names(), right.names()) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(e), _) | (_, Err(e)) => {
                self.trouble(path, &e);
                return Ok(());
            }
        };
        let (a, b): (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) = (a.into_iter().collect(), b.into_iter().collect());
        for name in a.union(&b) {
            let below = join(path, name);
            let child = |source: &dyn Source, there: bool| there.then(|| source.child(name)).transpose();
            match (child(left, a.contains(name)), child(right, b.contains(name))) {
                (Ok(Some(l)), Ok(Some(r))) => self.compare(&*l, &*r, &below, depth.saturating_add(1))?,
                (Ok(Some(one)), Ok(None)) => self.add(&below, &Difference::missing(one.meta().kind.name(), false))?,
                (Ok(None), Ok(Some(one))) => self.add(&below, &Difference::missing(one.meta().kind.name(), true))?,
                (Ok(None), Ok(None)) => {}
                (Err(e), _) | (_, Err(e)) => self.trouble(&below, &e),
            }
        }
        Ok(())
    }
}

/// True if two links are shown with the same text, or, if one has no text, have the same path.
fn is_same_link(a: Option<&StoredLink>, b: Option<&StoredLink>) -> bool {
    match (a, b) {
        (Some(StoredLink::Soft { text: Some(a), .. }), Some(StoredLink::Soft { text: Some(b), .. })) => a == b,
        (Some(StoredLink::Soft { path: a, .. }), Some(StoredLink::Soft { path: b, .. })) => a == b,
        _ => a == b,
    }
}

fn link_text(link: Option<&StoredLink>) -> String {
    match link {
        None => "no link".into(),
        Some(StoredLink::Soft { path, text }) => format!("soft link to {}", text::name(text.as_ref().unwrap_or(path))),
        Some(StoredLink::External { file, object }) => format!("external link to {}:{}", text::name(file), text::name(object)),
        Some(StoredLink::Above(levels)) => format!("hard link to the group {levels} above"),
        Some(StoredLink::UserDefined(class)) => format!("link of class {class}"),
    }
}

/// Compares the extended attributes of files that are not both objects.
fn compare_xattrs(left: &dyn Source, right: &dyn Source, found: &mut Vec<Difference>) -> io::Result<()> {
    let all = |source: &dyn Source| -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        source.xattr_names()?.into_iter().map(|name| Ok((name.clone(), source.xattr(&name)?))).collect()
    };
    let (a, b) = (all(left)?, all(right)?);
    for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
        let (x, y) = (a.get(name), b.get(name));
        if x != y {
            let what = if name.starts_with(FACT_PREFIX) { "fact" } else { "attribute" };
            let what = format!("{what} {}", text::name(name));
            found.push(Difference { what, left: x.map(|v| text::value(v)), right: y.map(|v| text::value(v)), at: None });
        }
    }
    Ok(())
}
