//! Checks a file: walks all structures and reports what does not decode or contradicts itself.

use super::NativeConnector;
use super::access::Access;
use super::claims::{Claims, Depth, claim_all};
use super::file::HdfFile;
use super::object::Object;
use super::space::{Problem as SpaceProblem, Sum};
use crate::base::{Address, Error, Result};
use crate::connector::ObjectKind;
use crate::connector::check::{Check, Checked, FINDINGS_MAX, Finding, Findings, Problem, Progress};
use crate::dataset::chunk::LARGE_DATA;
use crate::format::message::link::{Link, LinkTarget, TYPE_EXTERNAL};
use crate::format::object_header::{self, flag, kind};
use crate::meta::extent::Extent;
use crate::structures::group;
use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// The finding for an engine error at `object`.
fn of_error(object: Option<Address>, error: &Error) -> Finding {
    let (problem, structure, address) = match error {
        Error::Corrupt { structure, address, is_past_end: true, .. } => (Problem::PastEnd, Some(*structure), Some(*address)),
        Error::Limit { structure: structure @ LARGE_DATA, address, .. } => (Problem::NotChecked, Some(*structure), Some(*address)),
        // No file that is known to be sound reaches a limit of metadata.
        Error::Corrupt { structure, address, .. } | Error::Limit { structure, address, .. } => {
            (Problem::Damaged, Some(*structure), Some(*address))
        }
        Error::Unsupported { structure, address, .. } => (Problem::NotChecked, Some(*structure), Some(*address)),
        Error::Missing { .. } => (Problem::MissingFile, None, None),
        Error::Io { address, .. } | Error::OnDisk { address, .. } => (Problem::Damaged, None, Some(*address)),
        Error::Request { .. } | Error::Refused { .. } => (Problem::NotChecked, None, None),
    };
    let detail = error.to_string();
    Finding { problem, object: object.map(|a| a.0), path: None, structure, address: address.map(|a| a.0), detail }
}

fn of_extent(problem: Problem, object: Option<Address>, extent: Extent, detail: String) -> Finding {
    let (structure, address) = (Some(extent.structure), Some(extent.address.0));
    Finding { problem, object: object.map(|a| a.0), path: None, structure, address, detail }
}

fn of_problem(object: Option<Address>, problem: SpaceProblem<'_>) -> Finding {
    let name = |extent: &Extent| format!("{} of {} bytes at {}", extent.structure, extent.len, extent.address);
    match problem {
        SpaceProblem::Unreadable { error, .. } => of_error(object, error),
        SpaceProblem::ClaimedTwice(extent, bytes) => {
            let detail = format!("{bytes} bytes of the {} belong to another structure, too", name(&extent));
            of_extent(Problem::ClaimedTwice, object, extent, detail)
        }
        SpaceProblem::PastEnd(extent, bytes) => {
            let detail = format!("{bytes} bytes of the {} are past the end of the file", name(&extent));
            of_extent(Problem::PastEnd, object, extent, detail)
        }
        SpaceProblem::FreeInUse(Range { start, end }) => {
            let (bytes, address) = (end.saturating_sub(start), Address(start));
            let detail = format!("{bytes} bytes at {address} are listed as free, but a structure has them");
            Finding { problem: Problem::FreeInUse, object: None, path: None, structure: None, address: Some(start), detail }
        }
    }
}

/// Links to an object: those that were found, and those that its header states.
#[derive(Default)]
struct Links {
    found: u32,
    /// `None`: it was not opened, or its links are not counted.
    stated: Option<u32>,
}

/// The walk of a check: sums the extents, and counts what was visited.
struct Checker<'a> {
    sum: Sum<'a>,
    objects: u64,
    decoded: u64,
    claimed: u64,
    /// Bytes of `claimed` that belong to objects before the current one.
    visited: u64,
    /// Bytes of elements of objects before the current one that were decoded.
    decoded_before: u64,
    links: HashMap<Address, Links>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Checker<'_> {
    /// Reports objects that have more or fewer links than they state.
    fn check_links(&mut self, root: Address) {
        // The superblock refers to it.
        let at_root = self.links.entry(root).or_default();
        at_root.found = at_root.found.saturating_add(1);
        let wrong = self.links.iter().filter_map(|(at, links)| Some((*at, links.found, links.stated.filter(|n| *n != links.found)?)));
        let mut wrong: Vec<_> = wrong.collect();
        wrong.sort_unstable();
        for (address, found, stated) in wrong {
            let error = Error::corrupt(object_header::NAME, address, format!("it states {stated} links, and {found} lead to it"));
            self.sum.damaged(Some(address), &error);
        }
    }

    /// Reports progress; `part` of `whole` bytes of the current object's elements are decoded.
    ///
    /// A stored byte and a decoded one are the same work: a few stored bytes may be those of many
    /// elements. What follows is expected to have as many elements for each stored byte.
    fn report_progress(&mut self, part: u64, whole: u64) {
        let current = u128::from(self.claimed.saturating_sub(self.visited).saturating_add(whole));
        let done = current.saturating_mul(part.into()).checked_div(whole.into()).unwrap_or(0).min(current);
        let before = u128::from(self.visited).saturating_add(self.decoded_before.into());
        let known = before.saturating_add(current);
        let rest = u128::from(self.sum.used.total.saturating_sub(self.claimed));
        let expected = rest.saturating_mul(known).checked_div(self.claimed.into()).unwrap_or(rest);
        let number = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        let (bytes, total) = (number(before.saturating_add(done)), number(known.saturating_add(expected)));
        (self.progress)(Progress { objects: self.objects, bytes, total });
    }
}

impl Claims for Checker<'_> {
    fn live(&mut self, object: Option<Address>, extent: Extent) {
        self.claimed = self.claimed.saturating_add(extent.len);
        self.sum.live(object, extent);
    }

    fn free(&mut self, range: Range<u64>) {
        self.sum.free(range);
    }

    fn damaged(&mut self, object: Option<Address>, error: &Error) {
        self.sum.damaged(object, error);
    }

    fn opened(&mut self, object: &Object) {
        // Objects that use a named datatype count as links to it.
        if object.info().kind != ObjectKind::Datatype {
            self.links.entry(object.header.address).or_default().stated = Some(object.header.links());
        }
        for check in [message_count, message_flags, free_names] {
            if let Err(e) = check(object) {
                self.sum.damaged(Some(object.header.address), &e);
            }
        }
    }

    fn link(&mut self, group: Address, link: &Link) {
        if let LinkTarget::Hard(target) = link.target {
            let links = self.links.entry(target).or_default();
            links.found = links.found.saturating_add(1);
        }
        if matches!(link.target, LinkTarget::UserDefined { class: TYPE_EXTERNAL, .. }) {
            let name = String::from_utf8_lossy(&link.name);
            let error = Error::corrupt("link message", group, format!("the external link {name:?} names no file and object"));
            self.sum.damaged(Some(group), &error);
        }
    }

    fn visited(&mut self, _object: Address) {
        self.objects = self.objects.saturating_add(1);
        self.visited = self.claimed;
        self.decoded_before = self.decoded;
        self.report_progress(0, 0);
    }

    fn decoded(&mut self, bytes: u64, part: u64, whole: u64) {
        self.decoded = self.decoded.saturating_add(bytes);
        self.report_progress(part, whole);
    }
}

impl Check for NativeConnector {
    fn check(&self, data: bool, progress: &mut dyn FnMut(Progress)) -> Result<Checked> {
        let access = self.access();
        let file = self.file(0)?;
        let mut findings = Findings::default();
        if let Err(e) = file_end(&file) {
            findings.add(of_error(None, &e));
        }
        let cut = file.store.cut()?;
        if let Some((len, _)) = cut {
            findings.add(of_error(None, &file.store.wrong_length(len)));
        }
        if let Err(e) = self.check_writers(&access, &file) {
            findings.add(of_error(None, &e));
        }
        let mut report = |object: Option<Address>, problem: SpaceProblem<'_>| findings.add(of_problem(object, problem));
        let mut checker = Checker {
            sum: Sum::of(&file, &mut report)?,
            objects: 0,
            decoded: 0,
            claimed: 0,
            visited: 0,
            decoded_before: 0,
            links: HashMap::new(),
            progress,
        };
        claim_all(&access, &file, if data { Depth::Elements } else { Depth::Structures }, &mut checker)?;
        // Groups in the lost part of a file that was cut have links, too.
        if cut.is_none() {
            checker.check_links(file.root);
        }
        let (objects, decoded, space, dead) = (checker.objects, checker.decoded, checker.sum.used, checker.sum.dead(FINDINGS_MAX));
        let Findings { listed: mut found, count, not_checked, unnamed } = findings;
        if cut.is_some() {
            past_end(&mut found, file.store.file_len()?);
        }
        add_paths(&file, &mut found);
        Ok(Checked { findings: found, cut, count, not_checked, unnamed, objects, decoded, space, dead })
    }
}

impl NativeConnector {
    /// Errors: run files of log writers beside `file` cannot be joined with its log.
    fn check_writers(&self, access: &Access<'_>, file: &Arc<HdfFile>) -> Result<()> {
        let Some(log) = access.record_log() else { return Ok(()) };
        if log.beside().is_ok_and(|beside| beside.is_empty()) {
            return Ok(());
        }
        // Each dataset must have the shape that writers saw.
        access.each_in_log(&mut |_, _, _| {}).map_err(|e| Error::corrupt("log", file.root, e.to_string()))
    }
}

/// Errors: a version 1 header has another number of messages than it states.
fn message_count(object: &Object) -> Result<()> {
    let header = &object.header;
    let (stated, found) = (usize::from(header.prefix.message_count), header.stored_messages);
    if header.prefix.version > 1 || stated == found {
        return Ok(());
    }
    Err(Error::corrupt(object_header::NAME, header.address, format!("it states {stated} messages and has {found}")))
}

/// Types of messages that may be shared.
const SHAREABLE: [u16; 6] =
    [kind::DATASPACE, kind::DATATYPE, kind::FILL_VALUE_OLD, kind::FILL_VALUE, kind::FILTER_PIPELINE, kind::ATTRIBUTE];

/// Errors: flags of a message contradict its type or one another.
fn message_flags(object: &Object) -> Result<()> {
    let header = &object.header;
    for m in header.messages.iter().filter(|m| m.kind < kind::END) {
        let shared = m.flags & (flag::SHARED | flag::SHAREABLE) != 0;
        if shared && !SHAREABLE.contains(&m.kind) || m.flags & flag::SHARED != 0 && m.flags & flag::DONT_SHARE != 0 {
            let detail = format!("a message of type {:#x} has the flags {:#04x}", m.kind, m.flags);
            return Err(Error::corrupt(object_header::NAME, header.address, detail));
        }
    }
    Ok(())
}

/// Errors: the list of free blocks among the names of an old-style group is damaged.
fn free_names(object: &Object) -> Result<()> {
    if object.info().kind != ObjectKind::Group {
        return Ok(());
    }
    group::check_free_names(&object.file.store, &object.group_storage()?)
}

/// Reports damage at or after `end`, the length of the file, as bytes past the end.
fn past_end(found: &mut [Finding], end: u64) {
    let lost = found.iter_mut().filter(|f| f.problem == Problem::Damaged && f.address.is_some_and(|at| at >= end));
    lost.for_each(|f| f.problem = Problem::PastEnd);
}

/// Errors: the superblock records no end of file that it can have.
fn file_end(file: &HdfFile) -> Result<()> {
    let defined = file.store.superblock().eof.defined();
    defined.map(drop).ok_or_else(|| Error::corrupt("superblock", Address(file.store.base()), "it records an impossible end of file"))
}

/// Finds a path for each object with a problem.
fn add_paths(file: &Arc<HdfFile>, found: &mut [Finding]) {
    let wanted: HashSet<u64> = found.iter().filter_map(|f| f.object).collect();
    let (mut paths, mut seen, mut pending) = (HashMap::new(), HashSet::new(), vec![(file.root, Vec::new())]);
    paths.insert(file.root.0, b"/".to_vec());
    while let Some((address, path)) = pending.pop().filter(|_| paths.len() <= wanted.len()) {
        let Ok(object) = Object::open(file, address) else { continue };
        let Some(storage) = (object.info().kind == ObjectKind::Group).then(|| object.group_storage().ok()).flatten() else { continue };
        // What cannot be listed is among the findings.
        let _ = group::list(&file.store, &storage, 0, &mut |link, _| {
            if let LinkTarget::Hard(target) = link.target {
                let child = [path.as_slice(), b"/", &link.name].concat();
                if wanted.contains(&target.0) {
                    paths.entry(target.0).or_insert_with(|| child.clone());
                }
                if seen.insert(target) {
                    pending.push((target, child));
                }
            }
            Ok(ControlFlow::Continue(()))
        });
    }
    for finding in found {
        finding.path = finding.object.and_then(|object| paths.get(&object).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::Connector;
    use crate::connector::native::tests::options_in;
    use crate::dataset::environment::Environment;
    use crate::file::memory::MemoryFile;

    /// What a check with `threads` finds, and the objects in each progress report.
    fn checked(bytes: &[u8], threads: usize) -> Option<(Checked, Vec<u64>)> {
        let options = options_in(Environment::new(1 << 20, 0, threads).unwrap());
        let c = NativeConnector::open(Arc::new(MemoryFile::new(bytes)), "/".into(), options).ok()?;
        let mut objects = Vec::new();
        let checked = Connector::check(&*c).unwrap().check(false, &mut |p| objects.push(p.objects)).ok()?;
        Some((checked, objects))
    }

    #[test]
    fn what_is_too_large_for_the_caches_is_not_damaged() {
        let problem = |structure| of_error(None, &Error::limit(structure, Address(8), "detail")).problem;
        assert_eq!((problem(LARGE_DATA), problem("chunk")), (Problem::NotChecked, Problem::Damaged));
    }

    #[test]
    fn threads_find_the_same_in_the_same_order() {
        let files: [&[u8]; 4] = [
            include_bytes!("../../../tests/fixtures/mount/layouts_new.h5"),
            include_bytes!("../../../tests/fixtures/mount/layouts_old.h5"),
            include_bytes!("../../../tests/fixtures/mount/links.h5"),
            include_bytes!("../../../tests/fixtures/mount/variable.h5"),
        ];
        let mut damaged = 0;
        for bytes in files {
            let whole = checked(bytes, 1).unwrap();
            assert_eq!(whole, checked(bytes, 2).unwrap());
            let steps: Vec<u64> = (1..=whole.0.objects).collect();
            assert_eq!(whole.1, steps, "each object is reported once");
            for at in (0..bytes.len()).step_by(bytes.len() / 40) {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 0x55;
                let one = checked(&bytes, 1);
                damaged += one.as_ref().map_or(0, |(checked, _)| checked.count);
                assert_eq!(one, checked(&bytes, 2), "byte {at}");
            }
        }
        assert!(damaged > 20, "{damaged}");
    }
}
