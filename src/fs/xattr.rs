//! Extended attributes: HDF5 attributes as `user.NAME`, derived facts as `user.h5dir.NAME`.

use super::FsResult;
use super::cut_names::{CutNames, Names};
use super::name::{unescape, xattr_name};
use super::nodes::{Node, NodeKind};
use super::types::Errno;
use crate::base::Error;
use crate::connector::edit::{Edit, Existing};
use crate::connector::{Connector, ObjectId};

/// The namespace answered.
const USER: &[u8] = b"user.";
/// Derived facts.
const FACTS: &[u8] = b"h5dir.";
/// Longest value the kernel passes on, bytes.
pub const VALUE_MAX: usize = 64 << 10;
/// Longest list of names the kernel passes on, bytes.
pub const LIST_MAX: usize = 64 << 10;
/// Facts that may be longer than an extended attribute can be.
const VARIABLE_FACTS: [&str; 7] = ["attributes", "dataset", "datatype", "dtype", "external", "fillvalue", "filters"];
/// Facts of references, which are numbered; each may be longer, too.
const REFERENCES: &str = "references";
/// Fact that is listed before all others: who copies them in this order makes a dataset by the first, whose others are what it
/// has then.
const FIRST: [&str; 2] = ["dataset", "datatype"];
/// Facts that follow from others and cannot be set; a copy may have others.
const DESCRIPTIVE: [&str; 4] = ["external", "index", "offset", "storage"];
/// Facts that make an object what it is.
const SETTABLE: [&str; 9] = ["chunks", "dataset", "datatype", "dtype", "fillvalue", "filters", "layout", "maxshape", "shape"];
/// Fact that tells the link name of a file whose own name is an escaped one.
const NAME_FACT: &[u8] = b"name";

fn object(node: &Node) -> Option<ObjectId> {
    match &node.kind {
        NodeKind::Broken(_) => None,
        kind => kind.object(),
    }
}

/// Only one namespace is there to be changed; to ask for another is nothing that needs a word in the log.
pub fn ours(name: &[u8]) -> FsResult<()> {
    if name.starts_with(USER) { Ok(()) } else { Err(Errno(libc::EOPNOTSUPP)) }
}

/// The value of the extended attribute `name` of `node`.
pub fn get(connector: &dyn Connector, cut: &CutNames, node: &Node, name: &[u8], failed: &dyn Fn(&Error) -> Errno) -> FsResult<Vec<u8>> {
    let absent = Errno(libc::ENODATA);
    let Some(name) = name.strip_prefix(USER) else { return Err(Errno(libc::EOPNOTSUPP)) };
    let value = match value(connector, cut, node, name) {
        // The connector stops rendering past what an xattr may hold.
        Err(Error::Limit { .. }) => return Err(Errno(libc::E2BIG)),
        other => other.map_err(|e| failed(&e))?.ok_or(absent)?,
    };
    if value.len() > VALUE_MAX { Err(Errno(libc::E2BIG)) } else { Ok(value) }
}

fn value(connector: &dyn Connector, cut: &CutNames, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    if let Some(fact) = name.strip_prefix(FACTS) {
        if fact == NAME_FACT {
            return Ok(node.link_name().map(|n| n.into_vec()));
        }
        let (Some(id), Ok(fact)) = (object(node), std::str::from_utf8(fact)) else { return Ok(None) };
        return connector.fact(id, fact);
    }
    let Some(id) = object(node) else { return Ok(None) };
    match unescape(name) {
        Some(plain) if xattr_name(&plain) == name => connector.attribute_text(id, &plain),
        Some(_) => Ok(None),
        None => {
            let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                let _ = connector.attributes(id)?.iter().all(|a| f(a));
                Ok(())
            };
            match cut.find(Names::Attributes(id), name, &|n| xattr_name(n).into_owned(), &mut visit)? {
                Some(a) => connector.attribute_text(id, &a),
                None => Ok(None),
            }
        }
    }
}

/// Names of the extended attributes of `node`, each followed by NUL: facts first, then attributes
/// as far as the list's limit goes. The rest is in `user.h5dir.attributes` and `.h5dir/attrs`.
pub fn list(connector: &dyn Connector, node: &Node, failed: &dyn Fn(&Error) -> Errno) -> FsResult<Vec<u8>> {
    let mut out = Vec::new();
    let mut add = |parts: &[&[u8]]| {
        let len = parts.iter().map(|p| p.len()).sum::<usize>().saturating_add(1);
        if out.len().saturating_add(len) > LIST_MAX {
            return false;
        }
        parts.iter().for_each(|p| out.extend_from_slice(p));
        out.push(0);
        true
    };
    if node.link_name().is_some_and(|n| n.len() <= VALUE_MAX) {
        add(&[USER, FACTS, NAME_FACT]);
    }
    let Some(id) = object(node) else { return Ok(out) };
    let mut facts = connector.fact_names(id).map_err(|e| failed(&e))?;
    facts.sort_by_key(|f| !FIRST.contains(&f.as_ref()));
    for fact in facts {
        // Facts of ours never break `cp -a`: one that does not fit is not listed.
        let variable = VARIABLE_FACTS.contains(&fact.as_ref()) || fact.starts_with(REFERENCES);
        if !variable || connector.fact_fits(id, &fact, VALUE_MAX).unwrap_or(false) {
            add(&[USER, FACTS, fact.as_bytes()]);
        } else if fact.starts_with(REFERENCES) {
            tracing::warn!("object at {}: {fact} is longer than {VALUE_MAX} bytes and not listed: copies hold null references", id.address);
        }
    }
    for a in connector.attributes(id).map_err(|e| failed(&e))?.iter() {
        // A name that getxattr refuses with E2BIG would have `rsync -X` skip the file. Other errors are for getxattr to return.
        if !connector.attribute_fits(id, a, VALUE_MAX).unwrap_or(true) {
            tracing::info!(
                "object at {}: attribute {:?} is longer than {VALUE_MAX} bytes and not listed; it is below .h5dir/attrs",
                id.address,
                String::from_utf8_lossy(a)
            );
            continue;
        }
        if !add(&[USER, &xattr_name(a)]) {
            tracing::info!("the attribute list is longer than {LIST_MAX} bytes and was cut");
            break;
        }
    }
    Ok(out)
}

/// What a name that is to be changed stands for.
enum Meant<'a> {
    /// A derived fact.
    Fact(&'a str),
    /// An attribute, there or not.
    Attribute(Vec<u8>),
}

fn meant<'a>(connector: &dyn Connector, cut: &CutNames, id: ObjectId, name: &'a [u8]) -> Result<Option<Meant<'a>>, Error> {
    if let Some(fact) = name.strip_prefix(FACTS) {
        return Ok(std::str::from_utf8(fact).ok().map(Meant::Fact));
    }
    let found = match unescape(name) {
        Some(plain) => (xattr_name(&plain) == name && !plain.is_empty() && !plain.contains(&0)).then(|| plain.into_owned()),
        None => {
            let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                let _ = connector.attributes(id)?.iter().all(|a| f(a));
                Ok(())
            };
            cut.find(Names::Attributes(id), name, &|n| xattr_name(n).into_owned(), &mut visit)?
        }
    };
    Ok(found.map(Meant::Attribute))
}

/// A derived fact before it is changed.
#[derive(PartialEq, Eq)]
enum Fact {
    /// The object has no such fact.
    Absent,
    /// Its text.
    Text(Vec<u8>),
    /// Its text is longer than an extended attribute.
    TooLong,
}

impl From<Option<Vec<u8>>> for Fact {
    fn from(text: Option<Vec<u8>>) -> Self {
        text.map_or(Fact::Absent, Fact::Text)
    }
}

/// Where the attributes of a node are changed.
pub struct Target<'a> {
    /// The container.
    pub connector: &'a dyn Connector,
    /// How it is changed.
    pub edit: &'a dyn Edit,
    /// Names that are shown cut.
    pub cut: &'a CutNames,
    /// The node.
    pub node: &'a Node,
}

impl Target<'_> {
    fn id(&self) -> Result<ObjectId, Error> {
        object(self.node).ok_or_else(|| Error::refused(libc::EPERM, "there is no object that could have attributes"))
    }

    fn fact(&self, id: ObjectId, fact: &str) -> Result<Fact, Error> {
        match self.connector.fact(id, fact) {
            // `user.h5dir.attributes` of an object with more than 64 KiB of attributes can be set, not read.
            Err(Error::Limit { .. }) => Ok(Fact::TooLong),
            text => text.map(Fact::from),
        }
    }

    /// Sets the extended attribute `name`; `flags` are those of setxattr(2). A fact that is set to what it is
    /// is taken: copying programs do that.
    pub fn set(&self, name: &[u8], value: &[u8], flags: i32) -> Result<(), Error> {
        let name = name.strip_prefix(USER).ok_or_else(|| Error::refused(libc::EOPNOTSUPP, "only the namespace user. exists"))?;
        let existing = match flags {
            0 => Existing::Any,
            libc::XATTR_CREATE => Existing::Create,
            libc::XATTR_REPLACE => Existing::Replace,
            _ => return Err(Error::refused(libc::EINVAL, "unknown flags")),
        };
        let id = self.id()?;
        match meant(self.connector, self.cut, id, name)? {
            None => Err(Error::refused(libc::EINVAL, "no attribute can have this name")),
            Some(Meant::Attribute(name)) => match existing {
                // What it is already it stays, whatever its text does not tell.
                Existing::Any if self.connector.attribute_text(id, &name).ok().flatten().as_deref() == Some(value) => Ok(()),
                _ => self.edit.set_attribute(id, &name, value, existing),
            },
            Some(Meant::Fact(fact)) => {
                let ours = fact.as_bytes() == NAME_FACT;
                let now = if ours { self.node.link_name().map(|n| n.into_vec()).into() } else { self.fact(id, fact)? };
                match (existing, &now) {
                    (Existing::Create, Fact::Text(_) | Fact::TooLong) => Err(Error::refused(libc::EEXIST, "the fact is there")),
                    (Existing::Replace, Fact::Absent) => Err(Error::refused(libc::ENODATA, "there is no such fact")),
                    (_, Fact::Text(text)) if text == value => Ok(()),
                    // The copy of a file has this from its own name, when it gets it.
                    _ if ours => Ok(()),
                    _ => self.edit.set_fact(id, fact, value),
                }
            }
        }
    }

    /// Removes the extended attribute `name`.
    pub fn remove(&self, name: &[u8]) -> Result<(), Error> {
        let name = name.strip_prefix(USER).ok_or_else(|| Error::refused(libc::EOPNOTSUPP, "only the namespace user. exists"))?;
        let id = self.id()?;
        let absent = || Error::refused(libc::ENODATA, "there is no such attribute");
        match meant(self.connector, self.cut, id, name)? {
            Some(Meant::Attribute(name)) => self.edit.remove_attribute(id, &name),
            Some(Meant::Fact(fact)) if DESCRIPTIVE.contains(&fact) || fact.as_bytes() == NAME_FACT => Ok(()),
            // Programs that make a copy like its model (`rsync -X`) take away what the model has not, and what it had
            // when they looked. What a fact says goes on to hold.
            Some(Meant::Fact(fact)) if SETTABLE.contains(&fact) || self.fact(id, fact)? != Fact::Absent => Ok(()),
            _ => Err(absent()),
        }
    }
}
