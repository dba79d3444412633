//! Paths of objects by address, for the text of object references.
//!
//! The file has no such index: links are walked breadth first, as far as needed, and what was found
//! is kept. Bounded: an object not found among the first links stays without a path.

use super::file::HdfFile;
use super::object::Object;
use crate::base::Address;
use crate::connector::ObjectKind;
use crate::format::message::link::LinkTarget;
use crate::structures::group;
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Most objects visited.
const OBJECTS_MAX: usize = 200_000;

/// Paths found so far.
#[derive(Default)]
pub struct Paths {
    /// Object to its parent and name; the root has none.
    found: HashMap<Address, Option<(Address, Vec<u8>)>>,
    queue: VecDeque<Address>,
    /// State of the file's objects in which they were first looked for.
    generation: u64,
}

impl Paths {
    /// Paths in the state `generation`; none is known yet.
    pub fn new(generation: u64) -> Self {
        Paths { generation, ..Paths::default() }
    }

    /// True if objects are where they were when the first path was found.
    pub fn is_of(&self, generation: u64) -> bool {
        self.generation == generation
    }

    /// A path of the object at `address` in `file`.
    pub fn find(&mut self, file: &Arc<HdfFile>, address: Address) -> Option<Vec<u8>> {
        if self.found.is_empty() {
            self.found.insert(file.root, None);
            self.queue.push_back(file.root);
        }
        while !self.found.contains_key(&address) && self.found.len() < OBJECTS_MAX {
            let next = self.queue.pop_front()?;
            self.visit(file, next);
        }
        self.path(address)
    }

    fn visit(&mut self, file: &Arc<HdfFile>, address: Address) {
        let Ok(object) = Object::open(file, address) else { return };
        if object.info().kind != ObjectKind::Group {
            return;
        }
        let Ok(storage) = object.group_storage() else { return };
        // What cannot be listed has no path.
        let _ = group::list(&file.store, &storage, 0, &mut |link, _| {
            if let LinkTarget::Hard(to) = link.target
                && !self.found.contains_key(&to)
            {
                self.found.insert(to, Some((address, link.name)));
                self.queue.push_back(to);
            }
            Ok(if self.found.len() < OBJECTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = address;
        // Parents were found before their children, so this ends at the root.
        while let Some((parent, name)) = self.found.get(&at)? {
            names.push(name.as_slice());
            at = *parent;
        }
        names.push(b"");
        names.reverse();
        Some(if names.len() == 1 { b"/".to_vec() } else { names.join(&b'/') })
    }
}
