//! Walks two trees side by side and reports in what they differ.

use super::content::{Pieces, bytes_at, first_difference};
use super::element::{ELEMENT_BYTES_MAX, Elements, coordinates, fact_text};
use super::report::{At, Difference, Report};
use crate::base::escape::escaped_bytes;
use crate::cli::failure::reason;
use crate::cli::print_error;
use crate::cli::progress::ProgressLine;
use crate::cli::side::container::ObjectSource;
use crate::cli::side::references::{has_reference, same};
use crate::cli::side::{Content, DEPTH_MAX, FACT_MAX, FACT_PREFIX, Kind, Source, defined, fact};
use crate::cli::text;
use crate::cli::tree::join;
use crate::fs::{JsonTree, StoredLink};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;

/// Facts that `--storage` compares.
const STORAGE: [&str; 5] = ["maxshape", "chunks", "filters", "fillvalue", "layout"];
/// Keys of definitions that are compared with the storage, and what they are.
const DEFINITION_STORAGE: [(&str, &str); 3] =
    [("fillbytes", "fillvalue bytes"), ("filltime", "fill time"), ("alloctime", "allocation time")];
/// Parts of an attribute.
const ATTRIBUTE_PARTS: [&str; 4] = ["type", "shape", "value", "bytes"];
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

/// A container and a group in it with several hard links.
type SharedGroup = (u64, u64);

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
        if equal_kinds && left.meta().kind == Kind::Directory && (depth == 0 || self.scope.recursive) {
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
            (Kind::Symlink, _) => {
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
                if a == Kind::Regular {
                    self.compare_bytes(left, right, None, found)?;
                }
                Ok(true)
            }
        }
    }

    /// Compares two objects of the main trees.
    fn compare_objects(&mut self, left: &ObjectSource, right: &ObjectSource, found: &mut Vec<Difference>) -> io::Result<()> {
        let (a, b) = (fact(left, "kind")?, fact(right, "kind")?);
        if a != b {
            found.push(Difference::values("kind", value_of(a), value_of(b)));
            return Ok(());
        }
        match a.as_deref() {
            Some(b"dataset") => self.compare_datasets(left, right, found)?,
            Some(b"datatype") => {
                let (a, b) = (fact(left, "datatype")?, fact(right, "datatype")?);
                if a != b {
                    found.push(Difference::values("type", value_of(a), value_of(b)));
                }
            }
            Some(b"map") => {
                let (a, b) = (fact(left, "map")?, fact(right, "map")?);
                if a != b {
                    found.push(Difference::values("type", value_of(a), value_of(b)));
                }
            }
            // A pair of a map has bytes only.
            None if left.meta().kind == Kind::Regular => return self.compare_bytes(left, right, None, found),
            Some(b"group") => {}
            _ => return Err(io::Error::other("it cannot be read, or is of an unknown kind; 'h5dir check' says more")),
        }
        let (a, b) = (fact(left, "comment")?, fact(right, "comment")?);
        if a != b {
            found.push(Difference::values("comment", value_of(a), value_of(b)));
        }
        compare_attributes(left, right, found)
    }

    fn compare_datasets(&mut self, left: &ObjectSource, right: &ObjectSource, found: &mut Vec<Difference>) -> io::Result<()> {
        let (a, b) = (definition(left)?, definition(right)?);
        let mut comparable = true;
        for key in ["dtype", "shape"] {
            if a.get(key) != b.get(key) {
                comparable = false;
                let what = if key == "dtype" { "type" } else { key };
                found.push(Difference::values(what, value_of(fact(left, key)?), value_of(fact(right, key)?)));
            }
        }
        for key in STORAGE.iter().filter(|_| self.scope.storage) {
            let (a, b) = (fact(left, key)?, fact(right, key)?);
            if a != b {
                found.push(Difference::values(*key, value_of(a), value_of(b)));
            }
        }
        for (key, what) in DEFINITION_STORAGE.into_iter().filter(|_| self.scope.storage) {
            if a.get(key) != b.get(key) {
                let of = |tree: &JsonTree| tree.get(key).map_or_else(|| "none".into(), fact_text);
                found.push(Difference::values(what, of(&a), of(&b)));
            }
        }
        if !comparable {
            return Ok(());
        }
        if self.scope.storage
            && let (Some(a), Some(b)) = (defined(left)?, defined(right)?)
            && a != b
        {
            found.push(Difference::values("defined", text::value(&a), text::value(&b)));
        }
        let dtype = a.get("dtype").cloned().unwrap_or(JsonTree::Null);
        if has_reference(&dtype) {
            // Their bytes are addresses: what they lead to is compared.
            let (a, b) = (json_value(left)?, json_value(right)?);
            if !same(&a, &b, right.container()) {
                found.push(Difference::values("data", fact_text(&a), fact_text(&b)));
            }
            return Ok(());
        }
        let is_lines = a.get("newlines").is_none() && b.get("newlines").is_none() && is_variable_string(&dtype);
        self.compare_bytes(left, right, Some((left, is_lines)), found)
    }

    /// Compares the bytes of two files. `dataset`: of which dataset both are, and whether its
    /// elements are lines.
    fn compare_bytes(
        &mut self,
        left: &dyn Source,
        right: &dyn Source,
        dataset: Option<(&ObjectSource, bool)>,
        found: &mut Vec<Difference>,
    ) -> io::Result<()> {
        let (mut a, mut b) = (left.open()?, right.open()?);
        let (size, other) = (a.size()?, b.size()?);
        if size != other && dataset.is_none_or(|(_, is_lines)| !is_lines) {
            found.push(Difference::values("size", size.to_string(), other.to_string()));
        }
        let Some(place) = first_difference(&mut *a, &mut *b, &mut self.pieces)? else { return Ok(()) };
        if place.offset >= size.min(other) && size != other && found.iter().any(|d| d.what == "size") {
            return Ok(());
        }
        let shape = dataset.map_or(Ok(None), |(object, _)| fact(object, "shape"))?.unwrap_or_default();
        let dtype = dataset.map_or(Ok(None), |(object, _)| fact(object, "dtype"))?.unwrap_or_default();
        let elements = Elements::new(&dtype, &shape, size).filter(|e| dataset.is_some() && e.size() <= ELEMENT_BYTES_MAX);
        let (at, mut texts) = (place.offset, Vec::new());
        let at = match (elements, dataset) {
            (Some(elements), _) => {
                let start = at.saturating_sub(at.checked_rem(elements.size()).unwrap_or(0));
                for content in [&mut a, &mut b] {
                    texts.push(elements.text(&bytes_at(&mut **content, start, usize::try_from(elements.size()).unwrap_or(0))?));
                }
                elements.at(at)
            }
            (None, Some((_, true))) => {
                for content in [&mut a, &mut b] {
                    texts.push(line_at(&mut **content, place.line)?);
                }
                coordinates(place.newlines, &serde_json::from_slice::<Vec<u64>>(&shape).unwrap_or_default())
            }
            _ => {
                for content in [&mut a, &mut b] {
                    texts.push(text::value(&bytes_at(&mut **content, at, BYTES_SHOWN)?));
                }
                At::Byte(at)
            }
        };
        let mut texts = texts.into_iter();
        found.push(Difference { what: "data".into(), left: texts.next(), right: texts.next(), at: Some(at) });
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
        Some(StoredLink::Group(_)) => "hard link to a group".into(),
        Some(StoredLink::UserDefined(class)) => format!("link of class {class}"),
    }
}

fn value_of(fact: Option<Vec<u8>>) -> String {
    fact.map_or_else(|| "none".into(), |text| text::value(&text))
}

fn is_variable_string(dtype: &JsonTree) -> bool {
    let is = |key: &str, value: &str| dtype.get(key).and_then(JsonTree::text) == Some(value.as_bytes());
    is("class", "H5T_STRING") && is("length", "H5T_VARIABLE")
}

/// The definition of a dataset.
fn definition(source: &ObjectSource) -> io::Result<JsonTree> {
    match fact(source, "dataset")?.as_deref().map(JsonTree::parse) {
        Some(Ok(all @ JsonTree::Object(_))) => Ok(all),
        _ => Err(io::Error::other("its description cannot be read")),
    }
}

/// The elements of a dataset as hdf5-json.
fn json_value(source: &ObjectSource) -> io::Result<JsonTree> {
    let form = source.form(&[b"/.h5dir/json", source.path(), b".json"].concat())?;
    let mut content = form.open()?;
    let mut text = Vec::new();
    loop {
        let piece = bytes_at(&mut *content, text.len() as u64, 1 << 20)?;
        text.extend_from_slice(&piece);
        if piece.is_empty() {
            break;
        }
        if text.len() as u64 > FACT_MAX.saturating_add(1 << 20) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
    }
    let mut value = parsed(&text)?;
    match value.get("error") {
        Some(error) => Err(io::Error::other(fact_text(error))),
        None => Ok(value.remove("value").unwrap_or(JsonTree::Null)),
    }
}

/// The line that begins at `offset`, cut.
fn line_at(content: &mut dyn Content, offset: u64) -> io::Result<String> {
    let bytes = bytes_at(content, offset, usize::try_from(ELEMENT_BYTES_MAX).unwrap_or(0))?;
    Ok(text::value(bytes.split(|b| *b == b'\n').next().unwrap_or_default()))
}

fn parsed(text: &[u8]) -> io::Result<JsonTree> {
    JsonTree::parse(text).map_err(|e| io::Error::other(e.to_string()))
}

/// Attributes by name.
fn attributes(source: &ObjectSource) -> io::Result<BTreeMap<Vec<u8>, JsonTree>> {
    let text = fact(source, "attributes")?.unwrap_or_else(|| b"[]".to_vec());
    let JsonTree::Array(list) = parsed(&text)? else { return Err(io::Error::other("its attributes are no list")) };
    let name = |attribute: &JsonTree| attribute.get("name").and_then(JsonTree::text).unwrap_or_default().to_vec();
    Ok(list.into_iter().map(|attribute| (name(&attribute), attribute)).collect())
}

fn compare_attributes(left: &ObjectSource, right: &ObjectSource, found: &mut Vec<Difference>) -> io::Result<()> {
    let (a, b) = (attributes(left)?, attributes(right)?);
    let value = |attribute: Option<&JsonTree>| attribute.map(|a| a.get("value").map_or_else(String::new, fact_text));
    for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
        let what = format!("attribute {}", text::name(name));
        let (Some(x), Some(y)) = (a.get(name), b.get(name)) else {
            found.push(Difference { what, left: value(a.get(name)), right: value(b.get(name)), at: None });
            continue;
        };
        if let Some(error) = x.get("error").or(y.get("error")) {
            return Err(io::Error::other(format!("{what} cannot be read: {}", fact_text(error))));
        }
        let refers = x.get("type").is_some_and(has_reference);
        for part in ATTRIBUTE_PARTS {
            let (x, y) = (x.get(part).unwrap_or(&JsonTree::Null), y.get(part).unwrap_or(&JsonTree::Null));
            let equal = if refers { same(x, y, right.container()) } else { x == y };
            if !equal {
                let what = if part == "value" { what.clone() } else { format!("{what} {part}") };
                found.push(Difference::values(what, fact_text(x), fact_text(y)));
            }
        }
    }
    Ok(())
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
