//! What a file and its journal may look like after the machine stopped: from a log of the steps done to them.
//!
//! A step is durable when a sync of its file came after it. Of the others each may have reached the disk or
//! not, whole or in part (cut at sectors), in any order.

use super::random::Random;
use h5dir::file::recorder::{Step, Target};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What the disk holds.
#[derive(Debug, Clone, Hash, PartialEq, Eq)]
pub struct Image {
    /// The container.
    pub file: Vec<u8>,
    /// The journal, if its name is there.
    pub journal: Option<Vec<u8>>,
    /// Commits that had been acknowledged.
    pub acknowledged: u64,
}

#[derive(Clone)]
enum Change {
    Write(u64, Arc<[u8]>),
    SetLen(u64),
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(offset, data) => {
            let at = *offset as usize;
            if bytes.len() < at + data.len() {
                bytes.resize(at + data.len(), 0);
            }
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        Change::SetLen(len) => bytes.resize(*len as usize, 0),
    }
}

/// A file: what is surely on the disk, and what may be.
#[derive(Clone, Default)]
struct Disk {
    durable: Vec<u8>,
    pending: Vec<Change>,
}

impl Disk {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &change);
        }
    }

    fn with(&self, changes: impl IntoIterator<Item = Change>) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for change in changes {
            apply(&mut bytes, &change);
        }
        bytes
    }

    /// States that the pending changes may leave.
    fn states(&self, random: &mut Random, most: usize) -> Vec<Vec<u8>> {
        let all = || self.pending.iter().cloned();
        let mut out = vec![self.with(all())];
        if self.pending.is_empty() {
            return out;
        }
        out.push(self.durable.clone());
        let n = self.pending.len();
        for _ in 0..n.min(most) {
            let k = random.index(n);
            out.push(self.with(all().enumerate().filter(|(i, _)| *i != k).map(|(_, c)| c)));
            out.push(self.with(all().skip(k).take(1)));
            let chosen: Vec<bool> = (0..n).map(|_| random.next() & 1 == 1).collect();
            out.push(self.with(all().enumerate().filter(|(i, _)| chosen[*i]).map(|(_, c)| c)));
        }
        // Writes of one sync epoch in another order.
        let mut shuffled: Vec<Change> = all().collect();
        for i in (1..n).rev() {
            shuffled.swap(i, random.index(i + 1));
        }
        out.push(self.with(shuffled.into_iter().take(1 + random.index(n))));
        out.extend(self.torn(random, most));
        out
    }

    /// States in which one write is there in part, cut at multiples of 512 or 4,096 bytes.
    fn torn(&self, random: &mut Random, most: usize) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for _ in 0..most.min(self.pending.len()) {
            let k = random.index(self.pending.len());
            let Change::Write(offset, data) = &self.pending[k] else { continue };
            for unit in [512, 4096] {
                let first = (offset / unit + 1) * unit;
                let end = offset + data.len() as u64;
                if first >= end {
                    continue;
                }
                let cuts = (end - first).div_ceil(unit);
                let cut = ((first + unit * (random.next() % cuts)) - offset) as usize;
                let (front, back) = (data[..cut].into(), data[cut..].into());
                for part in [Change::Write(*offset, front), Change::Write(offset + cut as u64, back)] {
                    out.push(self.with(self.pending.iter().take(k).cloned().chain([part.clone()])));
                    out.push(self.with([part]));
                }
            }
        }
        out
    }
}

/// Calls `f` with the images that `log`, done to `initial`, may leave at each of its steps; each once. `most`
/// bounds the variants of each kind at one step.
pub fn each(initial: &[u8], journal: Option<&[u8]>, log: &[Step], random: &mut Random, most: usize, f: &mut dyn FnMut(Image)) {
    let mut disks = [Disk { durable: initial.to_vec(), pending: Vec::new() }, Disk::default()];
    disks[1].durable = journal.unwrap_or_default().to_vec();
    let mut exists = journal.is_some();
    let (mut acknowledged, mut seen) = (0, HashSet::new());
    let index = |t: &Target| usize::from(*t == Target::Journal);
    let mut emit = |disks: &[Disk; 2], exists: bool, acknowledged: u64, random: &mut Random| {
        let files = disks[0].states(random, most);
        let journals: Vec<Option<Vec<u8>>> =
            if exists { disks[1].states(random, most).into_iter().map(Some).collect() } else { vec![None] };
        // All of one with each of the other; both at random would add little.
        let pairs = files.iter().map(|f| (f, &journals[0])).chain(journals.iter().map(|j| (&files[0], j)));
        for (file, journal) in pairs {
            let image = Image { file: file.clone(), journal: journal.clone(), acknowledged };
            let mut hasher = DefaultHasher::new();
            image.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                f(image);
            }
        }
    };
    emit(&disks, exists, acknowledged, random);
    for step in log {
        match step {
            Step::Write(t, offset, data) => disks[index(t)].pending.push(Change::Write(*offset, data.clone())),
            Step::SetLen(t, len) => disks[index(t)].pending.push(Change::SetLen(*len)),
            Step::Sync(t) => disks[index(t)].sync(),
            Step::Create => exists = true,
            Step::Remove => {
                // Its name may still be there.
                emit(&disks, exists, acknowledged, random);
                exists = false;
                disks[1] = Disk::default();
            }
            Step::Acknowledged(n) => acknowledged = *n,
        }
        emit(&disks, exists, acknowledged, random);
    }
}
