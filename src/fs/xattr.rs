//! Extended attributes: HDF5 attributes as `user.NAME`, derived facts as `user.h5dir.NAME`.

use super::cut_names::{CutNames, Names};
use super::long_facts::{self, LongFacts, Packed, piece_of};
use super::mounted::{Logged, Mounted};
use super::name::{unescape, xattr_name};
use super::namespace::Node;
use super::types::{Errno, FsResult};
use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::present::{self, Editor, Existing, Prepared};

/// The namespace of all extended attributes.
const USER: &[u8] = b"user.";
/// Derived facts.
const FACTS: &[u8] = b"h5dir.";
/// Longest value the kernel passes on, bytes.
pub const VALUE_MAX: usize = 64 << 10;
/// Longest list of names the kernel passes on, bytes.
pub const LIST_MAX: usize = 64 << 10;
/// Fact of all attributes.
const ATTRIBUTES: &str = "attributes";
/// Fact of the order of links.
const LINKS: &str = "links";
/// Longest [`LINKS`] that is listed as a whole, bytes: ext4 has room for 4 KiB in all.
const LINKS_MAX: usize = 1 << 10;
/// Facts that follow from others and cannot be set; those of a copy may differ.
const DESCRIPTIVE: [&str; 9] = ["external", "index", "key", "log", "offset", "progress", "storage", "value", "virtual"];
/// Facts that define an object.
const SETTABLE: [&str; 15] = [
    "chunks",
    COMMENT,
    "dataset",
    "datatype",
    "dtype",
    "fillvalue",
    "filters",
    "layout",
    "links",
    "map",
    "maxshape",
    "profile",
    "reshape",
    "shape",
    "types",
];
/// Fact of the comment of an object.
const COMMENT: &str = "comment";
/// Fact with the reason of the last failure.
const ERROR_FACT: &[u8] = b"error";
/// Fact with the link name of a file whose own name is escaped.
const NAME_FACT: &[u8] = b"name";

fn object(node: &Node) -> Option<ObjectId> {
    node.item.view.xattr_target(&node.item)
}

/// Fact and number if `name` is the name of a piece of a fact.
pub fn fact_piece(name: &[u8]) -> Option<(&str, u32)> {
    piece_of(std::str::from_utf8(name.strip_prefix(USER)?.strip_prefix(FACTS)?).ok()?)
}

/// True for the name of a derived fact.
pub fn is_fact(name: &[u8]) -> bool {
    name.strip_prefix(USER).is_some_and(|name| name.starts_with(FACTS))
}

/// Checks the namespace of `name`: other ones cannot be changed, which is not worth a line in the
/// log.
pub fn check_namespace(name: &[u8]) -> FsResult<()> {
    if name.starts_with(USER) { Ok(()) } else { Err(Errno(libc::EOPNOTSUPP)) }
}

/// The value of the extended attribute `name` of `node`.
pub fn get(mounted: &Mounted, node: &Node, name: &[u8], failed: &dyn Fn(&Error) -> Errno) -> FsResult<Vec<u8>> {
    let absent = Errno(libc::ENODATA);
    let piece = fact_piece(name);
    let Some(name) = name.strip_prefix(USER) else { return Err(Errno(libc::EOPNOTSUPP)) };
    let value = match (piece, object(node)) {
        (Some(piece), Some(id)) => self::piece(mounted, id, piece),
        _ => value(mounted, node, name),
    };
    let value = match value {
        // The connector stops rendering past what an xattr may hold.
        Err(Error::Limit { .. }) => return Err(Errno(libc::E2BIG)),
        other => other.map_err(|e| failed(&e))?.ok_or(absent)?,
    };
    if value.len() > VALUE_MAX { Err(Errno(libc::E2BIG)) } else { Ok(value) }
}

/// A piece of a fact of the object `id`: the fact has some only if a copy needs them.
fn piece(mounted: &Mounted, id: ObjectId, (fact, number): (&str, u32)) -> Result<Option<Vec<u8>>, Error> {
    let text = || {
        let text = present::fact_within(&*mounted.connector, id, fact, long_facts::TEXT_MAX)?;
        Ok(text.filter(|text| text.len() > whole_max(fact)))
    };
    mounted.long_facts.piece((id, fact, number), mounted.version(), text)
}

/// Longest text of a fact that is listed as a whole, bytes.
fn whole_max(fact: &str) -> usize {
    if fact == LINKS { LINKS_MAX } else { VALUE_MAX }
}

/// What an extended attribute shows.
pub enum Shown {
    /// The derived fact of this name.
    Fact(String),
    /// The attribute of this name.
    Attribute(Vec<u8>),
}

/// The object of `node`, and what of it the extended attribute `name` shows.
pub fn shown(mounted: &Mounted, node: &Node, name: &[u8]) -> Result<Option<(ObjectId, Shown)>, Error> {
    let Some(id) = object(node) else { return Ok(None) };
    if let Some((fact, _)) = fact_piece(name) {
        return Ok(Some((id, Shown::Fact(fact.to_owned()))));
    }
    let Some(name) = name.strip_prefix(USER) else { return Ok(None) };
    Ok(meaning(&*mounted.connector, &mounted.cut_names, id, name)?.map(|meaning| match meaning {
        Meaning::Fact(fact) => (id, Shown::Fact(fact.to_owned())),
        Meaning::Attribute(name) => (id, Shown::Attribute(name)),
    }))
}

/// The derived fact `name` of `node`, of at most `limit` bytes.
pub fn fact(mounted: &Mounted, node: &Node, name: &str, limit: u64, failed: &dyn Fn(&Error) -> Errno) -> FsResult<Vec<u8>> {
    let Some(id) = object(node) else { return Err(Errno(libc::ENODATA)) };
    let connector = &*mounted.connector;
    let text = match piece_of(name) {
        Some(piece) => self::piece(mounted, id, piece),
        None => present::fact_within(connector, id, name, limit),
    };
    match text {
        Ok(Some(text)) if text.len() as u64 <= limit => Ok(text),
        Ok(Some(_)) | Err(Error::Limit { .. }) => Err(Errno(libc::E2BIG)),
        Ok(None) => Err(Errno(libc::ENODATA)),
        Err(e) => Err(failed(&e)),
    }
}

fn value(mounted: &Mounted, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let (connector, cut) = (&*mounted.connector, &mounted.cut_names);
    if let Some(fact) = name.strip_prefix(FACTS) {
        if fact == NAME_FACT {
            return Ok(node.other_link_name().map(|n| n.into_vec()));
        }
        if fact == ERROR_FACT {
            return Ok(object(node).and_then(|id| mounted.reasons.last(id)).map(String::into_bytes));
        }
        let (Some(id), Ok(fact)) = (object(node), std::str::from_utf8(fact)) else { return Ok(None) };
        if present::is_defined_fact(fact) && connector.info(id)?.kind == ObjectKind::Dataset {
            let texts = mounted.defined_facts.get(connector, id, mounted.version())?;
            return Ok(texts.text(fact).map(<[u8]>::to_vec));
        }
        return present::fact(connector, id, fact);
    }
    let Some(id) = object(node) else { return Ok(None) };
    match unescape(name) {
        Some(plain) if xattr_name(&plain) == name => present::attribute_text(connector, id, &plain),
        Some(_) => Ok(None),
        None => {
            let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                let _ = connector.attributes(id)?.iter().all(|a| f(a));
                Ok(())
            };
            match cut.find(Names::Attributes(id), name, &|n| xattr_name(n).into_owned(), &mut visit)? {
                Some(a) => present::attribute_text(connector, id, &a),
                None => Ok(None),
            }
        }
    }
}

/// Names of the extended attributes of `node`, each followed by NUL: the facts that a copy needs,
/// those that are too long in pieces; then attributes as far as the list's limit goes. All other
/// facts can be read by name. Attributes that are not listed are in `user.h5dir.attributes`.
pub fn list(mounted: &Mounted, node: &Node, failed: &dyn Fn(&Error) -> Errno) -> FsResult<Vec<u8>> {
    let connector = &*mounted.connector;
    let Some(id) = object(node) else { return Ok(Vec::new()) };
    let mut facts = present::needed_facts(connector, id, &|| defined_facts(mounted, id)).map_err(|e| failed(&e))?;
    let (attributes, complete) = attribute_names(connector, id).map_err(|e| failed(&e))?;
    if !complete && !facts.iter().any(|fact| fact == ATTRIBUTES) {
        facts.push(ATTRIBUTES.into());
    }
    let mut out = Vec::new();
    for fact in &facts {
        list_fact(mounted, id, fact, &mut |name| add(&mut out, name));
    }
    if !attributes.iter().all(|name| add(&mut out, name)) {
        tracing::info!("object at {id}: the list of attributes is longer than {LIST_MAX} bytes and was cut");
    }
    Ok(out)
}

/// Adds a name to a list if it has room for it.
fn add(out: &mut Vec<u8>, name: &[u8]) -> bool {
    if out.len().saturating_add(name.len()) >= LIST_MAX {
        return false;
    }
    out.extend_from_slice(name);
    out.push(0);
    true
}

/// Number of facts of the defined elements of the dataset `id` that are listed.
fn defined_facts(mounted: &Mounted, id: ObjectId) -> usize {
    let reason = match mounted.defined_facts.get(&*mounted.connector, id, mounted.version()) {
        Ok(texts) => match texts.count() {
            Some(count) => return count,
            None => "they are more than extended attributes take".to_owned(),
        },
        Err(e) => e.to_string(),
    };
    if mounted.is_first(id, Logged::Defined) {
        tracing::warn!("object at {id}: copies may define other elements, user.h5dir.defined is not listed: {reason}");
    }
    0
}

/// Lists a fact, or its pieces.
fn list_fact(mounted: &Mounted, id: ObjectId, fact: &str, add: &mut dyn FnMut(&[u8]) -> bool) {
    let whole = [USER, FACTS, fact.as_bytes()].concat();
    // A fact of damaged structures is not listed: `cp -a` would fail, and `rsync -X` skip the file.
    match present::fact_fits(&*mounted.connector, id, fact, whole_max(fact)) {
        Ok(Some(true)) => drop(add(&whole)),
        Ok(Some(false)) => {
            let version = mounted.version();
            match present::fact_within(&*mounted.connector, id, fact, long_facts::TEXT_MAX) {
                Ok(Some(text)) => {
                    let packed = mounted.long_facts.keep(id, fact, version, Packed::new(&text));
                    let all = (1..=packed.count()).all(|number| add(&[&whole, b".".as_slice(), number.to_string().as_bytes()].concat()));
                    if !all && mounted.is_first(id, Logged::LongFact) {
                        tracing::warn!("object at {id}: there is no room for the pieces of {fact}: copies lack it");
                    }
                }
                Err(Error::Limit { .. }) => {
                    let most = long_facts::TEXT_MAX;
                    if mounted.is_first(id, Logged::LongFact) {
                        tracing::warn!("object at {id}: {fact} is longer than {most} bytes: it is copied by 'h5dir cp' alone");
                    }
                    // Reading it is E2BIG, so that a copy without it fails.
                    add(&whole);
                }
                Ok(None) | Err(_) => {}
            }
        }
        Ok(None) | Err(_) => {}
    }
}

/// Names of the extended attributes that are attributes, and whether they are all, with values that
/// can be read as a whole.
fn attribute_names(connector: &dyn Connector, id: ObjectId) -> Result<(Vec<Vec<u8>>, bool), Error> {
    let (mut names, mut complete, mut len) = (Vec::new(), true, 0usize);
    for a in connector.attributes(id)?.iter() {
        // `rsync -X` skips a file with a listed name that getxattr refuses with E2BIG. Other errors
        // are returned by getxattr.
        if !present::attribute_fits(connector, id, a, VALUE_MAX).unwrap_or(true) {
            complete = false;
            continue;
        }
        let name = [USER, &xattr_name(a)].concat();
        len = len.saturating_add(name.len()).saturating_add(1);
        names.push(name);
        if len > LIST_MAX {
            complete = false;
            break;
        }
    }
    Ok((names, complete))
}

/// What the name of an extended attribute stands for.
enum Meaning<'a> {
    /// A derived fact.
    Fact(&'a str),
    /// An attribute, present or not.
    Attribute(Vec<u8>),
}

fn meaning<'a>(connector: &dyn Connector, cut: &CutNames, id: ObjectId, name: &'a [u8]) -> Result<Option<Meaning<'a>>, Error> {
    if let Some(fact) = name.strip_prefix(FACTS) {
        return Ok(std::str::from_utf8(fact).ok().map(Meaning::Fact));
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
    Ok(found.map(Meaning::Attribute))
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

/// Changes the extended attributes of a node.
pub struct Target<'a> {
    /// The container.
    pub connector: &'a dyn Connector,
    /// Changes the container.
    pub edit: &'a dyn Edit,
    /// Names that are shown cut.
    pub cut: &'a CutNames,
    /// The node.
    pub node: &'a Node,
}

impl<'a> Target<'a> {
    fn id(&self) -> Result<ObjectId, Error> {
        object(self.node).ok_or_else(|| Error::refused(libc::EPERM, "there is no object that could have attributes"))
    }

    fn editor(&self) -> Editor<'_> {
        Editor { connector: self.connector, edit: self.edit }
    }

    fn fact(&self, id: ObjectId, fact: &str) -> Result<Fact, Error> {
        match present::fact(self.connector, id, fact) {
            // `user.h5dir.attributes` of an object with more than 64 KiB of attributes can be set,
            // not read.
            Err(Error::Limit { .. }) => Ok(Fact::TooLong),
            text => text.map(Fact::from),
        }
    }

    /// Prepares [`Target::set`] while other operations continue, if it takes long.
    pub fn prepare(&self, name: &[u8], value: &[u8]) -> Result<Option<Prepared<'a>>, Error> {
        let (Some(name), Some(id)) = (name.strip_prefix(USER), object(self.node)) else { return Ok(None) };
        match meaning(self.connector, self.cut, id, name)? {
            Some(Meaning::Fact(fact)) if SETTABLE.contains(&fact) => match self.fact(id, fact)? {
                Fact::Text(now) if now == value => Ok(None),
                _ => Editor { connector: self.connector, edit: self.edit }.prepare_fact(id, fact, value),
            },
            _ => Ok(None),
        }
    }

    /// Sets the extended attribute `name`; `flags` are those of setxattr(2). Setting a fact to its
    /// present value succeeds: programs that copy files do that.
    pub fn set(&self, name: &[u8], value: &[u8], flags: i32) -> Result<(), Error> {
        let name = name.strip_prefix(USER).ok_or_else(|| Error::refused(libc::EOPNOTSUPP, "only the namespace user. exists"))?;
        let existing = match flags {
            0 => Existing::Any,
            libc::XATTR_CREATE => Existing::Create,
            libc::XATTR_REPLACE => Existing::Replace,
            _ => return Err(Error::refused(libc::EINVAL, "unknown flags")),
        };
        let id = self.id()?;
        match meaning(self.connector, self.cut, id, name)? {
            None => Err(Error::refused(libc::EINVAL, "no attribute can have this name")),
            Some(Meaning::Attribute(name)) => match existing {
                // The same text changes nothing: the text may not show the whole value.
                Existing::Any if present::attribute_text(self.connector, id, &name).ok().flatten().as_deref() == Some(value) => Ok(()),
                _ => self.editor().set_attribute(id, &name, value, existing),
            },
            // Also where it is the present one: it counts for bytes that are written next.
            Some(Meaning::Fact(fact)) if existing == Existing::Any && present::is_defined_fact(fact) => {
                self.editor().set_fact(id, fact, value)
            }
            Some(Meaning::Fact(fact)) => {
                let ours = fact.as_bytes() == NAME_FACT;
                let now = if ours { self.node.other_link_name().map(|n| n.into_vec()).into() } else { self.fact(id, fact)? };
                match (existing, &now) {
                    (Existing::Create, Fact::Text(_) | Fact::TooLong) => Err(Error::refused(libc::EEXIST, "the fact is there")),
                    (Existing::Replace, Fact::Absent) => Err(Error::refused(libc::ENODATA, "there is no such fact")),
                    (_, Fact::Text(text)) if text == value => Ok(()),
                    // The name of a copy follows from its file name.
                    _ if ours => Ok(()),
                    _ => self.editor().set_fact(id, fact, value),
                }
            }
        }
    }

    /// Adds the piece of a fact; sets the fact if it was the last one.
    pub fn add_piece(&self, facts: &LongFacts, (fact, number): (&str, u32), value: &[u8]) -> Result<(), Error> {
        match facts.add((self.id()?, fact, number), value)? {
            Some(text) => self.set(&[USER, FACTS, fact.as_bytes()].concat(), &text, 0),
            None => Ok(()),
        }
    }

    /// Removes the extended attribute `name`.
    pub fn remove(&self, name: &[u8]) -> Result<(), Error> {
        let name = name.strip_prefix(USER).ok_or_else(|| Error::refused(libc::EOPNOTSUPP, "only the namespace user. exists"))?;
        let id = self.id()?;
        let absent = || Error::refused(libc::ENODATA, "there is no such attribute");
        match meaning(self.connector, self.cut, id, name)? {
            Some(Meaning::Attribute(name)) => self.edit.remove_attribute(id, &name),
            Some(Meaning::Fact(fact)) if DESCRIPTIVE.contains(&fact) || fact.as_bytes() == NAME_FACT || piece_of(fact).is_some() => Ok(()),
            Some(Meaning::Fact(COMMENT)) if self.fact(id, COMMENT)? != Fact::Absent => self.edit.set_comment(id, &[]),
            // `rsync -X` removes attributes that the source does not have. Removing a fact succeeds
            // and changes nothing.
            Some(Meaning::Fact(fact)) if SETTABLE.contains(&fact) || self.fact(id, fact)? != Fact::Absent => Ok(()),
            _ => Err(absent()),
        }
    }
}
