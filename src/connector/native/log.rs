//! Files with a log, shown as the program that wrote them sees them.
//!
//! In files of the released log VOL the root group has an attribute with counts; a group of the
//! root has the log; a dataset is an anchor: without elements, with its shape and its ID as
//! attributes. Versions differ in names: those of 1.0, and of 1.4 and later, begin with one
//! underscore, and 1.4 adds one to the names of users that begin with one; those of 1.1 to 1.3
//! begin with two, but for some of 1.1.

use super::access::Access;
use super::file::HdfFile;
use super::log_members::{Counts, SUBFILING, counts, data_range, integers, member, members, named, shape};
use super::log_names::{FileLog, Named};
use super::object::Object;
use super::{NativeConnector, log_members, record_log, released_log};
use crate::base::log_part::{LogPart, LogVisitor};
use crate::base::shape::Extent;
use crate::base::{Address, Error, Result, limits};
use crate::connector::ObjectId;
use crate::dataset::layout::{Anchor, InLog, LogFile, RecordAnchor, ReleasedAnchor, ReleasedLog};
use crate::file::writer_log::WriterLogs;
use crate::format::message::link::LinkTarget;
use crate::structures::group;
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Weak};

/// Name of this structure in errors.
const NAME: &str = "log VOL file";
/// Subfiles of one file.
const SUBFILES_MAX: i64 = 4096;

/// How a container with a log is opened.
#[derive(Debug, Clone, Default)]
pub struct LogAccess {
    /// Show the objects of the log instead of its datasets.
    pub raw: bool,
    /// Name of the container's file, from which those of its subfiles are made.
    pub file_name: OsString,
    /// Where run files of several writers are; `None`: there are none.
    pub writers: Option<WriterLogs>,
}

/// The log of `file`, if it has one.
fn find(connector: &NativeConnector, file: &Arc<HdfFile>) -> Result<Option<FileLog>> {
    let root = Object::open(file, file.root)?;
    let (weak, index) = (connector.this.clone(), file.index);
    for prefix in ["_", "__"] {
        if integers(&root, &named(prefix, "int_att"))?.is_some_and(|counts| counts.len() >= 4) {
            let log = Arc::new(ReleasedLog::new(connector.environment(), Box::new(move || open_files(&weak, index, prefix))));
            let written = connector.editing.is_some().then(|| released_log::open(connector, index, prefix, &log));
            return Ok(Some(FileLog::Released { prefix, log, written }));
        }
    }
    Ok(record_log::find(&root)?.map(|_| FileLog::Records(record_log::open(connector, index))))
}

/// What the dataset object `object` is an anchor of.
fn anchor(log: &FileLog, object: &Object) -> Result<Option<Anchor>> {
    let (prefix, log, written) = match log {
        FileLog::Records(log) => return record_log::anchor(log, object),
        FileLog::Released { prefix, log, written } => (*prefix, log, written),
    };
    let corrupt = |detail: &'static str| Error::corrupt(NAME, object.header.address, detail);
    let number = |name: &str| -> Result<Option<Vec<i64>>> {
        match integers(object, &named(prefix, name))? {
            // Version 1.1.
            None if prefix == "__" => integers(object, &named("_", name)),
            found => Ok(found),
        }
    };
    let Some(id) = number("ID")? else { return Ok(None) };
    let id = id.first().and_then(|id| i32::try_from(*id).ok()).ok_or_else(|| corrupt("an anchor without an ID"))?;
    let dims = number("dims")?.ok_or_else(|| corrupt("an anchor without a shape"))?;
    let max = number("mdims")?;
    if dims.len() > limits::RANK_MAX || max.as_ref().is_some_and(|max| max.len() != dims.len()) {
        return Err(corrupt("an anchor with a wrong rank"));
    }
    let legacy = object.dataspace()?.extent == Extent::Scalar;
    let shape = shape(&dims, max.as_deref()).ok_or_else(|| corrupt("an anchor with a negative dimension"))?;
    if let (Some(log), Ok(id)) = (written, u64::try_from(id)) {
        return Ok(Some(Anchor { shape, log: InLog::Records(RecordAnchor { id, deflate: false, log: log.clone() }) }));
    }
    Ok(Some(Anchor { shape, log: InLog::Released(ReleasedAnchor { id, legacy, log: log.clone() }) }))
}

/// Opens the files that have the log of file number `index`.
fn open_files(connector: &Weak<NativeConnector>, index: u32, prefix: &str) -> Result<Vec<LogFile>> {
    let closed = || Error::corrupt(NAME, Address::UNDEF, "the container is closed");
    let connector = connector.upgrade().ok_or_else(closed)?;
    let access = Access::of_caller(&connector);
    let main = connector.file(index)?;
    let counts = counts(&main, prefix)?;
    if counts.config & SUBFILING == 0 {
        return Ok(vec![open_log(&access, &main, prefix, &counts)?]);
    }
    if !(1..=SUBFILES_MAX).contains(&counts.subfiles) {
        return Err(Error::corrupt(NAME, main.root, format!("{} subfiles", counts.subfiles)));
    }
    let name = String::from_utf8_lossy(main.name.as_bytes()).into_owned();
    let open = |n: i64| {
        let path = format!("{name}.subfiles/{name}.{n}");
        let file = connector.neighbour(&main, path.as_bytes(), "log subfile")?;
        open_log(&access, &file, prefix, &log_members::counts(&file, prefix)?)
    };
    (0..counts.subfiles).map(open).collect()
}

/// Shows what the attribute of the root group has.
pub(super) fn dump_counts(file: &Arc<HdfFile>, prefix: &str, f: &mut LogVisitor<'_>) -> Result<()> {
    let Counts { datasets, data, metadata, config, subfiles } = counts(file, prefix)?;
    let number = |n: i64| u64::try_from(n).unwrap_or(u64::MAX);
    LogPart::new("log", 0)
        .number("datasets", number(datasets))
        .number("data_datasets", number(data))
        .number("metadata_datasets", number(metadata))
        .number("configuration", number(config))
        .number("subfiles", number(subfiles))
        .show(f)
}

/// Opens the log group of `file`. A dataset of it that cannot be opened is an error of its entries.
fn open_log(access: &Access<'_>, file: &Arc<HdfFile>, prefix: &str, counts: &Counts) -> Result<LogFile> {
    let mut log = LogFile { store: file.store.clone(), data: Vec::new(), metadata: Vec::new() };
    let root = Object::open(file, file.root)?;
    let found = group::lookup(&file.store, &root.group_storage()?, &named(prefix, "LOG"))?;
    let Some(LinkTarget::Hard(address)) = found.map(|link| link.target) else { return Ok(log) };
    let object = Object::open(file, address)?;
    let (data, metadata) = (named(prefix, "ld_"), named(prefix, "md_"));
    for (name, address) in members(&object)? {
        let number = |prefix: &[u8], count: i64| {
            let digits = std::str::from_utf8(name.strip_prefix(prefix)?).ok()?;
            let number = digits.parse::<usize>().ok()?;
            (number.to_string() == digits && i64::try_from(number).is_ok_and(|n| n < count)).then_some(number)
        };
        let open = || member(access, file, address);
        if let Some(number) = number(&data, counts.data) {
            let range = open().map(|d| data_range(&d)).unwrap_or_else(|e| {
                tracing::warn!("data of the log cannot be read: {e}");
                Address(0)..Address(0)
            });
            place(&mut log.data, number, || Address(0)..Address(0), range);
        } else if let Some(number) = number(&metadata, counts.metadata) {
            let absent = || Err(Error::corrupt(NAME, object.header.address, "a metadata dataset of the log is missing"));
            place(&mut log.metadata, number, absent, open().map(|d| d.bytes));
        }
    }
    let expected = usize::try_from(counts.metadata).unwrap_or(0);
    if log.metadata.len() < expected {
        log.metadata.push(Err(Error::corrupt(NAME, object.header.address, "metadata datasets of the log are missing")));
    }
    Ok(log)
}

/// Stores `value` as number `at`; fills places between with `absent`. Numbers are bounded by how
/// many objects the file has room for.
fn place<T>(all: &mut Vec<T>, at: usize, absent: impl Fn() -> T, value: T) {
    if at >= 1 << 24 {
        return;
    }
    while all.len() <= at {
        all.push(absent());
    }
    if let Some(place) = all.get_mut(at) {
        *place = value;
    }
}

impl Access<'_> {
    /// The log of `file`, if its datasets are shown.
    pub(super) fn log_of(&self, file: &Arc<HdfFile>) -> Option<Arc<FileLog>> {
        if self.connector.options.log.raw {
            return None;
        }
        if let Some(known) = &*file.log.read() {
            return known.clone();
        }
        let found = find(self.connector, file).unwrap_or_else(|e| {
            tracing::warn!("whether the file has a log is not known: {e}");
            None
        });
        file.log.write().get_or_insert_with(|| found.map(Arc::new)).clone()
    }

    /// What `object` is an anchor of, if its elements are in a log.
    pub(super) fn anchor_of(&self, object: &Object) -> Result<Option<Anchor>> {
        self.log_of(&object.file).map_or(Ok(None), |log| anchor(&log, object))
    }

    /// The name by which `name` is stored in `file`; `None` if nothing can have it.
    pub(super) fn stored_name<'a>(&self, file: &Arc<HdfFile>, what: Named, name: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        self.log_of(file).map_or(Some(name.into()), |log| log.stored(what, name).map(|n| n.into_owned().into()))
    }

    /// The name by which the link `name` of a user is stored in `group`. Errors: it is one of the
    /// log.
    pub(super) fn stored_link<'a>(&self, group: ObjectId, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let file = self.connector.file(group.file)?;
        let reserved = || Error::refused(libc::EPERM, format!("the name {} belongs to the log of the file", name.escape_ascii()));
        self.stored_name(&file, links_of(&file, group.address), name).ok_or_else(reserved)
    }

    /// The name by which the attribute `name` of a user is stored. Errors: the log has attributes
    /// of this name.
    pub(super) fn stored_attribute<'a>(&self, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let reserved = || Error::refused(libc::EPERM, "attributes of this name belong to the log of the file");
        self.stored_name(&self.connector.file(0)?, Named::Attribute, name).ok_or_else(reserved)
    }
}

/// Links of the group at `group` of `file`.
pub(super) fn links_of(file: &HdfFile, group: Address) -> Named {
    if group == file.root { Named::RootLink } else { Named::Link }
}
