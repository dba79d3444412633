//! What a view may use of the mounted container, and what a change through a view did.

use super::chosen::ViewChoice;
use crate::base::Error;
use crate::base::locks::Mutex;
use crate::connector::{Connector, ObjectId};
use crate::fs::cut_names::CutNames;
use crate::fs::symlink;
use crate::fs::types::Errno;
use foldhash::HashMap;
use std::any::{Any, TypeId};
use std::path::Path;
use std::sync::Arc;

/// The file system around the views.
pub trait Host {
    /// Logs an object that cannot be read, once per object; returns the errno for the caller.
    fn failed(&self, id: Option<ObjectId>, error: &Error) -> Errno;
    /// Logs a change that failed, once per object; returns the errno for the caller.
    fn refused(&self, id: Option<ObjectId>, error: &Error) -> Errno;
    /// Counters of the mount: names and values.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// The mounted container, as a view sees it.
pub struct Context<'a> {
    /// The container.
    pub connector: &'a Arc<dyn Connector>,
    /// Path of the mounted group in its file, as link names.
    pub prefix: &'a [Vec<u8>],
    /// Names that are shown cut.
    pub cut_names: &'a CutNames,
    /// The container's file, for log lines.
    pub file: &'a Path,
    /// The container can be changed.
    pub changing: bool,
    /// Trees of transactions are shown.
    pub trees: bool,
    /// The views below `.h5dir`.
    pub views: &'a ViewChoice,
    /// Links may lead out of the mount.
    pub outside_links: bool,
    /// What views keep between requests.
    pub buffers: &'a Buffers,
    /// Log and counters.
    pub host: &'a dyn Host,
}

impl Context<'_> {
    /// The text that the symbolic link `link` (group and name) was created with, which is a soft
    /// link to `path`.
    pub fn text_of_link(&self, (group, name): (ObjectId, &[u8]), path: &[u8]) -> Option<Vec<u8>> {
        symlink::text_of(path, || self.connector.link_facts(group, name).ok()?.text?.of(path))
    }
}

/// State that views keep for one mount, one value per type.
#[derive(Default)]
pub struct Buffers(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Buffers {
    /// The value of type `T`, made when it is first asked for.
    pub fn get<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let value = self.0.lock().entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        // The key is the type of the value.
        value.downcast().unwrap_or_default()
    }
}

/// Objects that a change through a view affected.
#[derive(Debug, Default)]
pub struct Effects {
    /// Their content changed.
    pub changed: Vec<ObjectId>,
    /// Names of links in these groups changed.
    pub groups: Vec<ObjectId>,
    /// Names of attributes of these objects changed.
    pub attributes: Vec<ObjectId>,
    /// Lost its last name.
    pub removed: Option<ObjectId>,
}

impl Effects {
    /// The content of `id` changed.
    pub fn changed(id: ObjectId) -> Self {
        Effects { changed: vec![id], ..Effects::default() }
    }

    /// The names of the attributes of `id` changed.
    pub fn attributes(id: ObjectId) -> Self {
        Effects { attributes: vec![id], ..Effects::default() }
    }

    /// Links of `group` changed, and `removed` lost its last name.
    pub fn links(group: ObjectId, removed: Option<ObjectId>) -> Self {
        Effects { groups: vec![group], removed, ..Effects::default() }
    }
}
