//! Names of dimensions without scales, as h5netcdf gives them (`phony_dims="sort"`).
//!
//! Each group has as many dimensions of a length as one of its datasets needs: its own scales of
//! that length, then `phony_dim_N`. N counts through all groups in the order of a walk, from the
//! number of the scales met so far on. So a name depends on all of the file, which is walked once.

use super::scales::{has_list, is_scale};
use crate::base::Result;
use crate::connector::{Connector, LinkTarget, ObjectId, ObjectKind};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Links of all groups in a walk; a container with more has none of these names.
const LINKS_MAX: usize = 10_000;
/// Longest time of a walk.
const WALK_TIMEOUT: Duration = Duration::from_secs(5);

/// The names of the dimensions of datasets without scales.
#[derive(Default)]
pub struct PhonyDimensions {
    names: HashMap<ObjectId, Vec<Vec<u8>>>,
}

/// The names of dimensions without scales, found when one is needed; `None`: they are not known.
pub type Phony<'a> = &'a dyn Fn() -> Option<Arc<PhonyDimensions>>;

/// A dimension of a group.
struct Dimension {
    name: Vec<u8>,
    len: u64,
    /// Most elements; `None`: any number.
    max: Option<u64>,
}

/// Counts through all groups.
struct Walk<'a> {
    connector: &'a dyn Connector,
    until: Instant,
    links: usize,
    scales: u64,
    phony: u64,
    names: HashMap<ObjectId, Vec<Vec<u8>>>,
}

impl PhonyDimensions {
    /// Those of all datasets of the container; none if it has more than 10,000 links, or the walk
    /// takes more than 5 s. Objects that cannot be read are left out.
    pub fn of(connector: &dyn Connector) -> PhonyDimensions {
        let until = Instant::now() + WALK_TIMEOUT;
        let mut walk = Walk { connector, until, links: 0, scales: 0, phony: 0, names: HashMap::new() };
        let (mut waiting, mut seen) = (vec![connector.root()], HashSet::new());
        while let Some(group) = waiting.pop() {
            if !seen.insert(group) {
                continue;
            }
            let Some(groups) = walk.group(group) else { return PhonyDimensions::default() };
            waiting.extend(groups.into_iter().rev());
        }
        PhonyDimensions { names: walk.names }
    }

    /// The names of the dimensions of the dataset `id`, if none has a scale.
    pub(super) fn of_dataset(&self, id: ObjectId) -> Option<&[Vec<u8>]> {
        self.names.get(&id).map(Vec::as_slice)
    }
}

impl Walk<'_> {
    /// Names the dimensions of the datasets of `group`, and returns its groups. `None`: there are
    /// too many links.
    fn group(&mut self, group: ObjectId) -> Option<Vec<ObjectId>> {
        let (mut groups, mut scales, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        // Lengths in the order in which they are met, each with the most dimensions of a dataset.
        let mut needed: Vec<(u64, usize)> = Vec::new();
        for (name, target) in self.links(group)? {
            let Ok(Some((id, kind))) = self.found(group, target) else { continue };
            match kind {
                ObjectKind::Group => groups.push(id),
                ObjectKind::Dataset => {
                    let Ok(info) = self.connector.dataset(id) else { continue };
                    let dims = info.shape.dims().unwrap_or_default().to_vec();
                    if is_scale(self.connector, id).unwrap_or(false) {
                        let max = info.shape.max().first().copied().unwrap_or(Some(0));
                        scales.push(Dimension { name, len: dims.first().copied().unwrap_or(0), max });
                        self.scales = self.scales.saturating_add(1);
                    } else if !has_list(self.connector, id).unwrap_or(true) {
                        for len in &dims {
                            let count = dims.iter().filter(|other| *other == len).count();
                            match needed.iter_mut().find(|(of, _)| of == len) {
                                Some((_, most)) => *most = (*most).max(count),
                                None => needed.push((*len, count)),
                            }
                        }
                        plain.push((id, dims));
                    }
                }
                _ => {}
            }
        }
        let mut all = scales;
        let labeled = |len: u64, all: &[Dimension]| all.iter().filter(|d| d.max == Some(len)).count();
        let missing: Vec<(u64, usize)> = needed.into_iter().map(|(len, count)| (len, count.saturating_sub(labeled(len, &all)))).collect();
        for (len, count) in missing {
            for _ in 0..count {
                let name = format!("phony_dim_{}", self.phony.saturating_add(self.scales)).into_bytes();
                self.phony = self.phony.saturating_add(1);
                all.push(Dimension { name, len, max: Some(len) });
            }
        }
        for (id, dims) in plain {
            let mut used: HashMap<u64, usize> = HashMap::new();
            let mut name = |len: &u64| {
                let number = used.entry(*len).or_default();
                let found = all.iter().filter(|d| d.len == *len).nth(*number);
                *number = number.saturating_add(1);
                found.map(|d| d.name.clone())
            };
            if let Some(names) = dims.iter().map(&mut name).collect() {
                self.names.entry(id).or_insert(names);
            }
        }
        Some(groups)
    }

    /// The links of `group` in the order of h5py: that of their creation if it is tracked, else of
    /// names. `None`: there are too many, or there is no more time.
    fn links(&mut self, group: ObjectId) -> Option<Vec<(Vec<u8>, LinkTarget)>> {
        let room = LINKS_MAX.saturating_sub(self.links);
        let mut all = Vec::new();
        let _ = self.connector.list(group, 0, &mut |link, _| {
            all.push((link.name, link.target));
            if all.len() <= room && Instant::now() < self.until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if all.len() > room || Instant::now() >= self.until {
            return None;
        }
        self.links = self.links.saturating_add(all.len());
        match self.connector.created_links(group, LINKS_MAX).ok().flatten() {
            Some(created) => {
                let at: HashMap<&[u8], usize> = created.iter().enumerate().map(|(i, name)| (name.as_slice(), i)).collect();
                all.sort_by_key(|(name, _)| at.get(name.as_slice()).copied().unwrap_or(usize::MAX));
            }
            None => all.sort_by(|a, b| a.0.cmp(&b.0)),
        }
        Some(all)
    }

    fn found(&self, group: ObjectId, target: LinkTarget) -> Result<Option<(ObjectId, ObjectKind)>> {
        let id = match target {
            LinkTarget::Hard(id) => Some(id),
            LinkTarget::Soft(path) => self.connector.resolve(group, &path)?,
            LinkTarget::External { file, object } => self.connector.external(group, &file, &object)?,
            LinkTarget::UserDefined(_) => None,
        };
        id.map(|id| Ok((id, self.connector.info(id)?.kind))).transpose()
    }
}
