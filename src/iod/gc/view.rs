//! What keeps versions and packs: pins, tags, unfinished transactions; and packs of ended sessions.

use super::state::PackId;
use crate::base::request_error::is_absent;
use crate::base::{Error, Result};
use crate::iod::objects::failed;
use crate::iod::pin::{PIN_MAX_BYTES, Pin};
use crate::iod::rules::Rule;
use crate::iod::{Container, keys, sealed};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Begin of the names of tags.
const TAGS: &str = "tag/";
/// Begins of the names of unfinished transactions and of the queue.
const UNFINISHED: [&str; 2] = ["t/", "q/"];
/// Signature of tags.
const TAG_SIGNATURE: &[u8; 8] = b"H5IODT1\n";

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Pins that count.
    pub pins: Vec<Pin>,
    /// Names of pins that are over.
    pub over: Vec<String>,
    /// Tagged versions.
    pub tags: BTreeSet<u64>,
    /// Objects of unfinished transactions and of the queue.
    pub unfinished: Vec<String>,
}

fn listed(container: &Container, prefix: &str, after: &str) -> Result<Vec<String>> {
    container.store().list_after(prefix, after).map_err(failed("list the object store", 0))
}

/// All keys that begin with `prefix`: a folder lists its own names only.
fn listed_deep(container: &Container, prefix: &str, after: &str) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for key in listed(container, prefix, after)? {
        match key.matches('/').count() {
            1 => keys.extend(listed(container, &format!("{key}/"), after)?),
            _ => keys.push(key),
        }
    }
    Ok(keys)
}

fn read(container: &Container, name: &str, max: u64) -> Result<Option<Vec<u8>>> {
    match container.store().get(name, 0..max) {
        Err(e) if is_absent(&e) => Ok(None),
        read => read.map(Some).map_err(failed("read a pin or a tag", 0)),
    }
}

impl View {
    /// What is there now; pins count for `grace` seconds after their end.
    pub(super) fn read(container: &Container, now: u64, grace: u64) -> Result<View> {
        let mut view = View::default();
        for name in listed(container, keys::PINS, "")? {
            let Some(bytes) = read(container, &name, PIN_MAX_BYTES)? else { continue };
            let pin = Pin::decode(&bytes).map_err(|e| unreadable(&name, &e))?;
            match pin.lasts_at(now, grace) && container.rules().keep(Rule::Pins) {
                true => view.pins.push(pin),
                false => view.over.push(name),
            }
        }
        for name in listed(container, TAGS, "")?.into_iter().filter(|_| container.rules().keep(Rule::Tags)) {
            let Some(bytes) = read(container, &name, PIN_MAX_BYTES)? else { continue };
            let version = sealed::open(&bytes, TAG_SIGNATURE, "tag", 0).and_then(|mut r| r.u64());
            view.tags.insert(version.map_err(|e| unreadable(&name, &e))?);
        }
        for prefix in UNFINISHED {
            view.unfinished.extend(listed_unfinished(container, prefix)?);
        }
        Ok(view)
    }

    /// The oldest pinned version.
    pub(super) fn oldest_pin(&self) -> Option<&Pin> {
        self.pins.iter().min_by_key(|pin| pin.version)
    }

    /// Sessions of writers whose pins count.
    pub(super) fn sessions(&self) -> BTreeMap<u64, u32> {
        self.pins.iter().filter(|pin| pin.session != 0).map(|pin| (pin.session, pin.settled)).collect()
    }
}

/// Objects of transactions without an end.
fn listed_unfinished(container: &Container, prefix: &str) -> Result<Vec<String>> {
    let names = listed(container, prefix, "")?;
    let mut all = Vec::new();
    for name in names {
        match name.matches('/').count() {
            1 if prefix == "t/" => all.extend(listed(container, &format!("{name}/"), "")?),
            _ => all.push(name),
        }
    }
    let ended: BTreeSet<String> = all.iter().filter_map(|name| name.strip_suffix("/end").map(str::to_owned)).collect();
    all.retain(|name| name.rsplit_once('/').is_none_or(|(folder, _)| !ended.contains(folder)));
    Ok(all)
}

/// Packs of the sessions in `range` that `is_dead`.
pub(super) fn packs_of(container: &Container, range: Range<u64>, is_dead: impl Fn(u64) -> bool) -> Result<Vec<PackId>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let after = keys::pack_name(range.start.saturating_sub(1), u32::MAX);
    let found = listed_deep(container, keys::PACKS, &after)?;
    let packs = found.iter().filter_map(|name| keys::pack_of(name));
    Ok(packs.filter(|(session, _)| range.contains(session) && is_dead(*session)).collect())
}

fn unreadable(name: &str, e: &Error) -> Error {
    let reason = format!("{name} cannot be read, so nothing is deleted: {e}; remove it, or use the h5dir that wrote it");
    Error::refused(libc::EIO, reason)
}
