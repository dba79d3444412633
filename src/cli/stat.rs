//! `h5dir stat`: shows all metadata of one object without mounting.

use super::ls::{Owners, ViewError, open_view};
use super::{Failure, text, tree};
use crate::base::escape;
use crate::config::args::StatArgs;
use crate::config::resolve;
use crate::config::value::Level;
use crate::fs::{Attr, Errno, FACT_NAMES, FileKind, JsonTree, MountSpec, Operations};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

/// Prefix of extended attributes that h5dir derives.
const FACT_PREFIX: &[u8] = b"user.h5dir.";
/// Namespace of all extended attributes of a mount.
const USER_PREFIX: &[u8] = b"user.";

/// Runs `h5dir stat`.
pub(crate) fn stat(args: &StatArgs) -> Result<(), Failure> {
    let (spec, path) = resolve::view(&args.view)?;
    let (operations, mut owners) = open_view(&spec, "read", Level::Error)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let result = Report::gather(&*operations, &path).and_then(|report| {
        if args.view.json {
            writeln!(out, "{}", escape::json(&format!("{:#}", report.json(&spec))))?
        } else {
            report.print(&spec, &mut owners, &mut out)?
        }
        Ok(out.flush()?)
    });
    result.or_else(|e| e.into_result(&spec, &path))
}

struct Report {
    path: Vec<u8>,
    attr: Attr,
    target: Option<Vec<u8>>,
    facts: Vec<(Vec<u8>, Vec<u8>)>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Report {
    fn gather(operations: &dyn Operations, path: &[u8]) -> Result<Self, ViewError> {
        let path = tree::absolute(path);
        let failed = |e| ViewError::Path(path.clone(), e);
        let attr = tree::resolve(operations, &path).map_err(failed)?;
        let target = if attr.kind == FileKind::Symlink { Some(operations.readlink(attr.ino).map_err(failed)?) } else { None };
        let mut report = Report { path: path.clone(), attr, target, facts: Vec::new(), attributes: Vec::new() };
        let names = operations.listxattr(attr.ino).map_err(failed)?;
        let listed = names.split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
        let facts = FACT_NAMES.into_iter().chain(["name"]).map(|fact| [FACT_PREFIX, fact.as_bytes()].concat());
        for name in facts.chain(listed).collect::<BTreeSet<_>>() {
            let value = match operations.getxattr(attr.ino, &name) {
                // The object has no such fact, or it is too long to be shown.
                Err(Errno(libc::ENODATA | libc::E2BIG)) => continue,
                value => value.map_err(failed)?,
            };
            match (name.strip_prefix(FACT_PREFIX), name.strip_prefix(USER_PREFIX)) {
                (Some(fact), _) => report.facts.push((fact.to_vec(), value)),
                (None, Some(attribute)) => report.attributes.push((attribute.to_vec(), value)),
                (None, None) => report.attributes.push((name.to_vec(), value)),
            }
        }
        Ok(report)
    }

    fn print(&self, spec: &MountSpec, owners: &mut Owners, out: &mut dyn Write) -> io::Result<()> {
        let a = &self.attr;
        let mut line = |key: &str, value: String| writeln!(out, "{key:>9}: {value}");
        line("File", text::name(spec.file.as_os_str().as_encoded_bytes()))?;
        line("Path", text::name(&self.path))?;
        line("Kind", text::kind(a.kind).into())?;
        if let Some(target) = &self.target {
            line("Target", text::name(target))?;
        }
        line("Size", format!("{} bytes", a.size))?;
        line("Blocks", format!("{} of 512 bytes", a.blocks))?;
        line("I/O size", format!("{} bytes", a.blksize))?;
        line("Links", a.nlink.to_string())?;
        line("Inode", a.ino.0.to_string())?;
        line("Mode", format!("{:04o} ({})", a.perm, text::mode(a.kind, a.perm)))?;
        line("Owner", format!("{} ({})", a.uid, owners.user(a.uid)))?;
        line("Group", format!("{} ({})", a.gid, owners.group(a.gid)))?;
        for (key, time) in [("Accessed", a.atime), ("Modified", a.mtime), ("Changed", a.ctime), ("Born", a.btime)] {
            line(key, text::timestamp(time))?;
        }
        for (title, pairs) in [("Facts", &self.facts), ("Attributes", &self.attributes)] {
            if !pairs.is_empty() {
                writeln!(out, "{title}:")?;
            }
            for (name, value) in pairs {
                writeln!(out, "  {}: {}", text::name(name), text::value(value))?;
            }
        }
        Ok(())
    }

    fn json(&self, spec: &MountSpec) -> Value {
        let a = &self.attr;
        let pairs = |pairs: &[(Vec<u8>, Vec<u8>)]| -> Map<String, Value> {
            pairs.iter().map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), text::json(value))).collect()
        };
        json!({
            "file": text::json(spec.file.as_os_str().as_encoded_bytes()),
            "path": text::json(&self.path),
            "kind": text::kind(a.kind),
            "target": self.target.as_deref().map(text::json),
            "size": a.size,
            "blocks": a.blocks,
            "blksize": a.blksize,
            "nlink": a.nlink,
            "ino": a.ino.0,
            "mode": format!("{:04o}", a.perm),
            "uid": a.uid,
            "gid": a.gid,
            "atime": text::timestamp(a.atime),
            "mtime": text::timestamp(a.mtime),
            "ctime": text::timestamp(a.ctime),
            "btime": text::timestamp(a.btime),
            "facts": self.facts.iter().map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), fact_json(name, value))).collect::<Map<_, _>>(),
            "attributes": pairs(&self.attributes),
        })
    }
}

/// Facts whose text is never JSON, though it may look like it.
const TEXT_FACTS: [&str; 6] = ["comment", "fillvalue", "index", "layout", "name", "profile"];

/// A fact as JSON: nested if its text is JSON.
fn fact_json(name: &[u8], value: &[u8]) -> Value {
    let is_text = TEXT_FACTS.iter().any(|text| text.as_bytes() == name);
    // numpy's notation of types is Python.
    let tree = JsonTree::parse_json(value).ok().filter(|_| !is_text);
    tree.and_then(|tree| nested(&tree)).unwrap_or_else(|| text::json(value))
}

/// The tree as JSON; strings that are not UTF-8 become `{"hex": "..."}`. `None`: the name of a
/// field is not UTF-8, or a number is not finite.
fn nested(tree: &JsonTree) -> Option<Value> {
    // The depth of the recursion is the text's, which its parser bounds.
    Some(match tree {
        JsonTree::Null => Value::Null,
        JsonTree::Bool(b) => Value::Bool(*b),
        JsonTree::Number(n) => Value::Number(n.parse().ok()?),
        JsonTree::String(s) => text::json(s),
        JsonTree::Array(items) => Value::Array(items.iter().map(nested).collect::<Option<_>>()?),
        JsonTree::Object(fields) => {
            let field = |(name, value): &(Vec<u8>, JsonTree)| Some((String::from_utf8(name.clone()).ok()?, nested(value)?));
            Value::Object(fields.iter().map(field).collect::<Option<_>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;

    #[test]
    fn facts_and_attributes_are_apart() {
        let report = Report::gather(&sample(), b"/up/d").unwrap();
        let mut out = Vec::new();
        report.print(&MountSpec::new("/f.h5"), &mut Owners::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "Kind: file\n",
            "Size: 5 bytes\n",
            "Blocks: 1 of 512",
            "Links: 1\n",
            "Facts:\n  dtype: <i4\n",
            "units: m\u{b2}\n",
            "raw: 0x0001\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let json = report.json(&MountSpec::new("/f.h5"));
        assert_eq!((&json["facts"]["dtype"], &json["attributes"]["units"]), (&"<i4".into(), &"m\u{b2}".into()));
        assert_eq!(json["attributes"]["raw"], json!("\u{0}\u{1}"));
        assert_eq!((fact_json(b"maxshape", b"[1, null]"), fact_json(b"storage", b"17")), (json!([1, null]), json!(17)));
        assert_eq!((fact_json(b"dtype", b"<f8"), fact_json(b"fillvalue", b"17")), (json!("<f8"), json!("17")));
        let bytes = br#"[{"name":"a","value":"\udcb5m"}]"#;
        assert_eq!(fact_json(b"attributes", bytes), json!([{"name": "a", "value": {"hex": "b56d"}}]));
        assert_eq!(fact_json(b"dtype", br"[('\udc', '<i4')]"), json!(r"[('\udc', '<i4')]"));
        assert_eq!(Report::gather(&sample(), b"/up").unwrap().json(&MountSpec::new("/f.h5"))["target"], "g/../g");
        assert!(Report::gather(&sample(), b"/none").is_err());
    }
}
