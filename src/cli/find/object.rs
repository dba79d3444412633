//! An object that was found, and what it is tested for. It is read as far as the tests need it.

use crate::cli::facts::{FACT_PREFIX, fact_json};
use crate::cli::failure::errno_text;
use crate::cli::text;
use crate::config::find_args::{AttrTest, FindArgs, TypeTest};
use crate::fs::model::{ObjectModel, StoredLink};
use crate::fs::open::ObjectKind;
use crate::fs::{Attr, Errno, FileKind, Operations};
use serde_json::{Map, Value, json};

/// Most characters of a type that is compared.
const TYPE_CHARS: usize = 1000;
/// Types whose names have more words after the kind, and the kinds by which they are found.
const KINDS: [&str; 7] = ["compound", "enum", "vlen", "str", "opaque", "datetime64", "timedelta64"];

/// An object, or a link to one that is elsewhere.
pub(super) struct Object<'a> {
    /// The view.
    pub(super) operations: &'a dyn Operations,
    /// The file, as the argument names it.
    pub(super) file: &'a [u8],
    /// Path in the file.
    pub(super) path: &'a [u8],
    /// The group that has it; `None`: the search starts here.
    pub(super) group: Option<&'a ObjectModel>,
    /// Its name there; empty for the root.
    pub(super) name: &'a [u8],
    /// Attributes of the file that shows it.
    pub(super) attr: &'a Attr,
    /// The object; `None`: it is a link, or the pair of a map.
    pub(super) model: Option<&'a ObjectModel>,
}

impl Object<'_> {
    /// `FILE:/PATH`.
    pub(super) fn text(&self) -> Vec<u8> {
        [self.file, b":", self.path].concat()
    }

    /// Whether it passes the tests of `args`, the cheap ones first. Error: it cannot be read.
    pub(super) fn matches(&self, args: &FindArgs) -> Result<bool, String> {
        if !args.name.iter().all(|test| test.0.matches(&[], self.name)) {
            return Ok(false);
        }
        if !args.types.is_empty() {
            let kind = self.kind()?;
            if !args.types.iter().any(|test| Some(*test) == kind) {
                return Ok(false);
            }
        }
        if !args.size.is_empty() {
            let Some(bytes) = self.bytes()? else { return Ok(false) };
            if !args.size.iter().all(|test| test.matches(bytes)) {
                return Ok(false);
            }
        }
        if let Some(wanted) = &args.dtype
            && !self.has_type(wanted)?
        {
            return Ok(false);
        }
        for test in &args.attributes {
            if !self.has_attribute(test)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The link that leads to it, if that is stored as a link.
    fn stored_link(&self) -> Result<Option<StoredLink>, String> {
        self.group.map_or(Ok(None), |group| group.stored_link(self.name).map_err(|e| e.to_string()))
    }

    fn kind(&self) -> Result<Option<TypeTest>, String> {
        if let Some(model) = self.model {
            return Ok(match model.kind().map_err(|e| e.to_string())? {
                ObjectKind::Group => Some(TypeTest::Group),
                ObjectKind::Dataset => Some(TypeTest::Dataset),
                ObjectKind::Datatype => Some(TypeTest::Datatype),
                ObjectKind::Map => Some(TypeTest::Map),
                ObjectKind::Unknown => None,
            });
        }
        Ok(match self.stored_link()? {
            // A hard link to a group above it.
            Some(StoredLink::Above(_)) => Some(TypeTest::Group),
            None if self.attr.kind == FileKind::Regular => None,
            _ => Some(TypeTest::Link),
        })
    }

    /// Bytes of the elements of a dataset.
    fn bytes(&self) -> Result<Option<u64>, String> {
        let Some(model) = self.model.filter(|_| self.attr.kind == FileKind::Regular) else { return Ok(None) };
        Ok(model.brief(0).map_err(|e| e.to_string())?.bytes)
    }

    fn fact(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match self.operations.getxattr(self.attr.ino, &[FACT_PREFIX, name.as_bytes()].concat()) {
            Ok(value) => Ok(Some(value)),
            Err(Errno(libc::ENODATA | libc::E2BIG | libc::EOPNOTSUPP)) => Ok(None),
            Err(Errno(errno)) => Err(errno_text(errno)),
        }
    }

    /// True if its elements are of the type `wanted`: as numpy names it (byte order is optional),
    /// as `ls -l` names it, or its kind alone.
    fn has_type(&self, wanted: &str) -> Result<bool, String> {
        let Some(model) = self.model.filter(|_| self.attr.kind == FileKind::Regular) else { return Ok(false) };
        let brief = model.brief(TYPE_CHARS).map_err(|e| e.to_string())?.datatype;
        let kind = KINDS.into_iter().find(|kind| {
            let rest = brief.strip_prefix(kind);
            rest.is_some_and(|rest| rest.starts_with(['{', '[', ' ']))
        });
        let plain = brief.split_once(" BE").map_or(brief.as_str(), |(plain, _)| plain);
        if [brief.as_str(), plain].contains(&wanted) || kind == Some(wanted) {
            return Ok(true);
        }
        let Some(fact) = self.fact("dtype")? else { return Ok(false) };
        let fact = String::from_utf8_lossy(&fact);
        let order = |text: &str| text.starts_with(['<', '>', '|', '=']);
        let without = if order(&fact) { fact.get(1..).unwrap_or_default() } else { &fact };
        // A type of one byte has no order.
        let wanted_without = wanted.get(1..).filter(|_| order(wanted) && fact.starts_with('|'));
        Ok(*fact == *wanted || without == wanted || wanted_without == Some(without))
    }

    fn has_attribute(&self, test: &AttrTest) -> Result<bool, String> {
        let Some(model) = self.model else { return Ok(false) };
        let text = |name: &[u8]| model.attribute_text(name).map_err(|e| format!("attribute {}: {e}", text::name(name)));
        let names = model.attribute_names().map_err(|e| e.to_string())?;
        for name in &names {
            let is_named = match test.name.exact() {
                Some(exact) => name == exact.as_bytes(),
                None => test.name.matches(&String::from_utf8_lossy(name)),
            };
            if is_named
                && test.value.as_ref().map_or(Ok(true), |value| text(name).map(|text| value.matches(&String::from_utf8_lossy(&text))))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is known of it. What cannot be read is left out.
    pub(super) fn json(&self) -> Value {
        let kind = match self.kind() {
            Ok(Some(TypeTest::Group)) => "group",
            Ok(Some(TypeTest::Dataset)) => "dataset",
            Ok(Some(TypeTest::Link)) => "link",
            Ok(Some(TypeTest::Datatype)) => "datatype",
            Ok(Some(TypeTest::Map)) => "map",
            Ok(None) | Err(_) => "unknown",
        };
        let mut row = Map::new();
        row.insert("file".into(), text::json(self.file));
        row.insert("path".into(), text::json(self.path));
        row.insert("type".into(), kind.into());
        for name in ["dtype", "shape", "maxshape", "chunks", "filters"] {
            if let Some(value) = self.model.and_then(|_| self.fact(name).ok().flatten()) {
                row.insert(name.into(), fact_json(name.as_bytes(), &value));
            }
        }
        if let Ok(Some(bytes)) = self.bytes() {
            row.insert("size".into(), bytes.into());
        }
        if let Some(count) = self.model.and_then(|model| model.attribute_names().ok()).map(|names| names.len()) {
            row.insert("attributes".into(), count.into());
        }
        match self.stored_link() {
            Ok(Some(StoredLink::Soft { path, text })) => drop(row.insert("target".into(), text::json(&text.unwrap_or(path)))),
            Ok(Some(StoredLink::External { file, object })) => {
                row.insert("target".into(), json!({"file": text::json(&file), "path": text::json(&object)}));
            }
            _ => {}
        }
        Value::Object(row)
    }
}
