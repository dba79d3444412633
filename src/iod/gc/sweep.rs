//! Second phase: deletes what was published the grace ago, and is still not needed.

use super::state::PackId;
use super::{Run, account};
use crate::base::{Error, Result};
use crate::iod::keys;
use crate::iod::objects::failed;
use crate::iod::rules::Rule;
use std::collections::BTreeSet;

impl Run<'_> {
    /// See the module's description. False: another run got ahead.
    pub(super) fn sweep(&mut self) -> Result<bool> {
        let rules = self.container.rules();
        let is_due = |since: u64| !rules.keep(Rule::Grace) || since.saturating_add(self.options.grace) <= self.now;
        let floor = self.state.floors.iter().filter(|(_, since)| is_due(*since)).map(|(version, _)| *version).max();
        let floor = floor.unwrap_or(0).max(self.state.swept);
        let packs: Vec<PackId> = self.state.doomed.iter().filter(|(_, since)| is_due(**since)).map(|(pack, _)| *pack).collect();
        let leftovers: Vec<String> =
            self.state.leftovers.iter().filter(|(_, since)| is_due(**since)).map(|(name, _)| name.clone()).collect();
        if self.options.dry_run {
            return Ok(true);
        }
        if floor <= self.state.swept && packs.is_empty() && leftovers.is_empty() && self.view.over.is_empty() {
            return self.rewrite_packs();
        }
        if (floor > self.state.swept || !packs.is_empty()) && rules.keep(Rule::Fence) {
            // Commits under way of sessions that count as ended are based on an older version now,
            // and fail. Those that came before are seen.
            self.writer()?;
        }
        self.look()?;
        self.delete_leftovers(&leftovers)?;
        if let Some(reason) = self.blocked(floor)? {
            self.note(format!("nothing is deleted in this run: {reason}"));
            return Ok(true);
        }
        self.delete_versions(floor)?;
        self.delete_packs(&packs)?;
        for name in std::mem::take(&mut self.view.over) {
            self.delete(&name)?;
            self.report.others = self.report.others.saturating_add(1);
        }
        self.state.swept = floor;
        let last = self.state.floor_version();
        self.state.floors.retain(|(version, _)| *version > floor || *version == last);
        if !self.state.publish(self.container.store())? {
            return Ok(false);
        }
        self.report.doomed = self.state.doomed.len() as u64;
        self.report.waiting = last.saturating_sub(floor);
        self.rewrite_packs()
    }

    /// Why nothing may be deleted now: something came since the floor was published.
    fn blocked(&self, floor: u64) -> Result<Option<String>> {
        if let Some(pin) = self.view.pins.iter().find(|pin| pin.version < floor) {
            return Ok(Some(format!("{} uses version {}", String::from_utf8_lossy(&pin.label), pin.version)));
        }
        for tag in self.view.tags.iter().filter(|tag| **tag < floor && !self.state.tags.contains_key(tag)) {
            // The tag of a version that is gone holds nothing.
            if self.container.read_record(*tag)?.is_some() {
                return Ok(Some(format!("version {tag} was tagged meanwhile")));
            }
        }
        Ok(self.is_held().then(|| "a transaction is not finished".into()))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.container.again("delete an object", || self.container.store().delete(name))
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.container.store().list_after(prefix, "").map_err(failed("list the object store", 0))
    }

    /// Deletes records and checkpoints before `floor`.
    fn delete_versions(&mut self, floor: u64) -> Result<()> {
        if floor <= self.state.swept {
            return Ok(());
        }
        let name = keys::checkpoint_name(floor);
        let has_checkpoint = self.container.store().head(&name).map_err(failed("read a checkpoint", floor))?.is_some();
        if !has_checkpoint && self.container.rules().keep(Rule::FloorCheckpoint) {
            return Err(Error::refused(libc::EIO, format!("the checkpoint {name} is missing: nothing is deleted")));
        }
        let old = |name: &String| keys::version_of(name).filter(|version| *version < floor);
        let checkpoints = self.names(keys::CHECKPOINTS)?;
        let checkpoints = checkpoints.iter().filter(|name| old(name).is_some_and(|version| !self.keeps_tree(version, floor)));
        let records = self.names(keys::RECORDS)?;
        let records = records.iter().filter(|name| old(name).is_some_and(|version| !self.state.tags.contains_key(&version)));
        let mut deleted = 0u64;
        for name in checkpoints.chain(records) {
            self.delete(name)?;
            deleted = deleted.saturating_add(1);
        }
        self.report.versions = self.report.versions.saturating_add(deleted);
        Ok(())
    }

    /// Deletes packs, but for those that are needed again.
    fn delete_packs(&mut self, packs: &[PackId]) -> Result<()> {
        if packs.is_empty() {
            return Ok(());
        }
        let nodes: BTreeSet<PackId> = account::node_packs(self.container, &self.trees(self.state.swept.max(1))?)?;
        for pack in packs {
            if !self.is_garbage(pack) {
                self.state.doomed.remove(pack);
            } else if !nodes.contains(pack) {
                self.delete(&keys::pack_name(pack.0, pack.1))?;
                self.state.forget(pack);
                self.report.packs = self.report.packs.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Deletes objects of transactions that were never finished, if no writer of their time runs.
    fn delete_leftovers(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() || self.is_held() {
            return Ok(());
        }
        let gone: Vec<String> = names.iter().filter(|name| self.view.unfinished.contains(name)).cloned().collect();
        for name in gone {
            self.delete(&name)?;
            self.state.leftovers.remove(&name);
            self.view.unfinished.retain(|other| *other != name);
            self.report.others = self.report.others.saturating_add(1);
        }
        Ok(())
    }
}
