//! First phase: publishes the floor, the sessions that ended, and the packs to delete.

use super::state::{GcState, PackId};
use super::view::packs_of;
use super::{Keep, Run, account};
use crate::base::Result;
use crate::iod::objects::failed;
use crate::iod::record::{self, Delta};
use crate::iod::rules::Rule;
use crate::iod::{Extent, Session, Snapshot, keys};
use std::collections::BTreeSet;

/// Records without changes that are looked at for the newest version that changed something.
const EMPTY_RECORDS: u64 = 1000;

/// The session of a run and the version that it is based on.
pub(super) struct Writer {
    pub session: Session,
    pub snapshot: Snapshot,
}

impl Run<'_> {
    /// See the module's description. False: another run got ahead.
    pub(super) fn mark(&mut self) -> Result<bool> {
        let stored = self.state.clone();
        self.look()?;
        let is_first = stored.number == 0;
        if is_first {
            self.state.changed = self.newest_change()?;
        }
        let held = self.is_held();
        self.note_leftovers();
        if held {
            self.note("a transaction that is not finished keeps all versions and packs".into());
        }
        let target = if held { self.state.floor_version().max(1) } else { self.target()? };
        self.report.floor = target;
        let moved = target > stored.floor_version();
        let ended = self.end_sessions(held)?;
        let tags = self.forget_tags();
        let mut writer = if moved && !self.options.dry_run { Some(self.writer()?) } else { None };
        match (is_first, moved) {
            (true, _) => self.count_all(target, writer.as_mut())?,
            (false, true) => self.move_floor(target, writer.as_mut())?,
            (false, false) => {}
        }
        let late = self.late_tags(&mut writer)?;
        if moved {
            self.state.floors.push((target, self.now));
        }
        let doomed = if moved || ended || tags || late { self.doom(target, held)? } else { Vec::new() };
        self.report.doomed = doomed.len() as u64;
        self.report.waiting = target.saturating_sub(stored.swept.max(1));
        self.state.doomed.extend(doomed.into_iter().map(|pack| (pack, self.now)));
        if self.options.dry_run || self.state == stored {
            return Ok(true);
        }
        self.state.publish(self.container.store())
    }

    /// The newest version that changed something, of the first run.
    fn newest_change(&self) -> Result<u64> {
        let newest = self.report.newest;
        for version in (newest.saturating_sub(EMPTY_RECORDS).max(1)..=newest).rev() {
            if let Some((record, _)) = self.container.read_record(version)?
                && !matches!(&record.delta, Delta::Inline(entries) if entries.is_empty())
            {
                return Ok(version);
            }
        }
        Ok(newest)
    }

    fn note_leftovers(&mut self) {
        let before = std::mem::take(&mut self.state.leftovers);
        let since = |name: &String| before.get(name).copied().unwrap_or(self.now);
        self.state.leftovers = self.view.unfinished.iter().map(|name| (name.clone(), since(name))).collect();
    }

    /// The version that the floor moves to.
    fn target(&mut self) -> Result<u64> {
        let (floor, changed) = (self.state.floor_version(), self.state.changed);
        let wanted = match self.options.keep {
            Keep::Versions(count) => changed.saturating_sub(count.saturating_sub(1)),
            Keep::Seconds(seconds) => self.first_after(floor.max(1), changed, self.now.saturating_sub(seconds))?.min(changed),
        };
        let pinned = self.view.oldest_pin().filter(|pin| pin.version < wanted).cloned();
        if let Some(pin) = &pinned {
            let label = String::from_utf8_lossy(&pin.label).into_owned();
            self.note(format!("version {} and later ones are kept: {label} uses it", pin.version));
        }
        Ok(pinned.map_or(wanted, |pin| pin.version).max(floor).max(1))
    }

    /// The first version from `low` to `high` that is newer than `seconds`, or the one after.
    fn first_after(&self, low: u64, high: u64, seconds: u64) -> Result<u64> {
        let (mut low, mut end) = (low, high.saturating_add(1));
        while low < end {
            let middle = low.midpoint(end);
            let (record, _) = self.container.read_record(middle)?.ok_or_else(|| record::fork(middle))?;
            if record.seconds > seconds { end = middle } else { low = middle.saturating_add(1) }
        }
        Ok(low)
    }

    /// Counts sessions as ended that began before the grace and have no pin. True: there are new
    /// ones.
    fn end_sessions(&mut self, held: bool) -> Result<bool> {
        if held {
            return Ok(false);
        }
        let pinned = self.view.sessions();
        let (old, low) = (self.state.dead_below, self.state.dead_below.max(self.state.floor_version()).max(1));
        let end = match self.options.grace {
            0 => self.report.newest.saturating_add(1),
            grace => self.first_after(low, self.report.newest, self.now.saturating_sub(grace))?,
        };
        let is_new = |session: u64| session >= old && session < end && !pinned.contains_key(&session);
        let mut packs = packs_of(self.container, old..end, is_new)?;
        let gone: Vec<u64> = self.state.alive.iter().copied().filter(|session| !pinned.contains_key(session)).collect();
        for session in &gone {
            packs.extend(packs_of(self.container, *session..session.saturating_add(1), |_| true)?);
        }
        if self.state.number == 0 {
            // Later runs know the packs of running sessions by what commits referred to.
            for (session, settled) in &pinned {
                let of_session = packs_of(self.container, *session..session.saturating_add(1), |_| true)?;
                packs.extend(of_session.into_iter().filter(|(_, pack)| pack < settled));
            }
        }
        self.state.dead_below = end.max(old);
        self.state.alive.extend(pinned.keys().copied().filter(|session| *session >= old && *session < end));
        self.state.alive.retain(|session| !gone.contains(session));
        let any = !packs.is_empty() || !gone.is_empty();
        self.note_packs(packs);
        Ok(any)
    }

    /// Puts packs without known references into the table of the floor.
    fn note_packs(&mut self, packs: Vec<PackId>) {
        for pack in packs {
            self.state.base.entry(pack).or_insert(0);
        }
    }

    /// Drops the tables of tags that were removed. True: there were some.
    fn forget_tags(&mut self) -> bool {
        let before = self.state.tags.len();
        let tags = &self.view.tags;
        self.state.tags.retain(|version, _| tags.contains(version));
        self.state.tags.len() < before
    }

    /// Begins the session that writes checkpoints.
    pub(super) fn writer(&self) -> Result<Writer> {
        let mut snapshot = self.container.snapshot(None)?;
        let session = self.container.begin_session(&mut snapshot)?;
        Ok(Writer { session, snapshot })
    }

    /// Writes a checkpoint of `snapshot`, unless there is one.
    fn checkpoint(&self, snapshot: &mut Snapshot, writer: Option<&Writer>) -> Result<()> {
        let Some(writer) = writer.filter(|_| self.container.rules().keep(Rule::FloorCheckpoint)) else { return Ok(()) };
        if snapshot.checkpoint() == snapshot.version() {
            return Ok(());
        }
        self.container.checkpoint(snapshot, &writer.session)
    }

    /// Counts all references, for the first run.
    fn count_all(&mut self, target: u64, writer: Option<&mut Writer>) -> Result<()> {
        let writer = writer.map(|writer| &*writer);
        let mut snapshot = self.container.snapshot(Some(target))?;
        let zeros = std::mem::take(&mut self.state.base);
        self.state.base = account::references(self.container, &snapshot)?;
        self.note_packs(zeros.into_keys().collect());
        self.checkpoint(&mut snapshot, writer)?;
        let tags: Vec<u64> = self.view.tags.iter().copied().filter(|tag| *tag < target).collect();
        for tag in tags {
            self.add_tag(tag, writer)?;
        }
        let changed = self.state.changed;
        self.state.accounted = target;
        self.state.catch_up(self.container, self.report.newest)?;
        self.state.changed = self.state.changed.max(changed);
        Ok(())
    }

    fn add_tag(&mut self, tag: u64, writer: Option<&Writer>) -> Result<()> {
        let mut snapshot = self.container.snapshot(Some(tag))?;
        self.state.tags.insert(tag, account::references(self.container, &snapshot)?);
        self.checkpoint(&mut snapshot, writer)
    }

    /// Keeps tagged versions below the floor that were tagged when the floor had passed them.
    fn late_tags(&mut self, writer: &mut Option<Writer>) -> Result<bool> {
        let floor = self.state.floor_version();
        let late: Vec<u64> = self.view.tags.iter().copied().filter(|tag| *tag < floor && !self.state.tags.contains_key(tag)).collect();
        let mut added = false;
        for tag in late {
            if self.container.read_record(tag)?.is_none() {
                self.note(format!("a tag names version {tag}, which was deleted; remove the tag"));
                continue;
            }
            if writer.is_none() && !self.options.dry_run {
                *writer = Some(self.writer()?);
            }
            self.add_tag(tag, writer.as_ref())?;
            added = true;
        }
        Ok(added)
    }

    /// Moves the floor, and takes the tables of tags on the way.
    fn move_floor(&mut self, target: u64, writer: Option<&mut Writer>) -> Result<()> {
        let writer = writer.map(|writer| &*writer);
        let stops: BTreeSet<u64> = self.view.tags.iter().copied().filter(|tag| *tag < target).collect();
        let mut snapshot = self.container.snapshot(Some(self.state.floor_version()))?;
        let (container, mut state) = (self.container, self.state.clone());
        // The floor itself may be tagged.
        if stops.contains(&snapshot.version()) {
            state.tags.insert(snapshot.version(), account::positive(&state.base));
        }
        state.pass_to(container, &mut snapshot, target, &stops, &mut |snapshot| self.checkpoint(snapshot, writer))?;
        self.state = state;
        Ok(())
    }

    /// Packs to delete: of ended sessions, without references, and without nodes of kept trees.
    fn doom(&mut self, floor: u64, held: bool) -> Result<Vec<PackId>> {
        let state = &self.state;
        let idle: Vec<PackId> = state.base.keys().copied().filter(|p| self.is_garbage(p) && !state.doomed.contains_key(p)).collect();
        if idle.is_empty() || held {
            return Ok(Vec::new());
        }
        let nodes = account::node_packs(self.container, &self.trees(floor)?)?;
        Ok(idle.into_iter().filter(|pack| !nodes.contains(pack)).collect())
    }

    /// True if no value of a kept version or of a running writer is in the pack.
    pub(super) fn is_garbage(&self, pack: &PackId) -> bool {
        let floor = self.state.floor();
        let is_over = match self.view.sessions().get(&pack.0) {
            Some(settled) => pack.1 < *settled,
            None => floor.is_dead(pack.0),
        };
        is_over && self.state.live(pack) == 0
    }

    /// Roots of the trees that are kept: from `floor` on, of tags, and below pinned versions.
    pub(super) fn trees(&self, floor: u64) -> Result<Vec<Extent>> {
        let store = self.container.store();
        let names = store.list_after(keys::CHECKPOINTS, "").map_err(failed("list the checkpoints", 0))?;
        let mut roots = Vec::new();
        for version in names.iter().filter_map(|name| keys::version_of(name)).filter(|version| self.keeps_tree(*version, floor)) {
            roots.extend(self.container.read_checkpoint(version)?.root);
        }
        Ok(roots)
    }

    /// True if the checkpoint of `version` is kept.
    pub(super) fn keeps_tree(&self, version: u64, floor: u64) -> bool {
        version >= floor || self.state.tags.contains_key(&version) || self.view.pins.iter().any(|pin| pin.checkpoint == version)
    }
}

impl GcState {
    /// Drops what was deleted.
    pub(super) fn forget(&mut self, pack: &PackId) {
        self.base.remove(pack);
        self.lengths.remove(pack);
        self.doomed.remove(pack);
        self.rewritten.remove(pack);
    }
}
