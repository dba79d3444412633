//! All that a mount shows of a file: attributes, facts, extended attributes.

use crate::cli::facts::{FACT_PREFIX, USER_PREFIX, fact_json};
use crate::cli::view::{Owners, ViewError};
use crate::cli::{text, tree};
use crate::fs::{Attr, Errno, FACT_NAMES, FileKind, MountSpec, Operations};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// A file with all that is known of it.
pub(super) struct Report {
    path: Vec<u8>,
    attr: Attr,
    target: Option<Vec<u8>>,
    facts: Vec<(Vec<u8>, Vec<u8>)>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Report {
    /// Reads all of the file at `path`.
    pub(super) fn gather(operations: &dyn Operations, path: &[u8]) -> Result<Self, ViewError> {
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

    /// Prints it as text.
    pub(super) fn print(&self, spec: &MountSpec, owners: &mut Owners, out: &mut dyn Write) -> io::Result<()> {
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

    /// Makes JSON of it.
    pub(super) fn json(&self, spec: &MountSpec) -> Value {
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
        assert_eq!(Report::gather(&sample(), b"/up").unwrap().json(&MountSpec::new("/f.h5"))["target"], "g/../g");
        assert!(Report::gather(&sample(), b"/none").is_err());
    }
}
