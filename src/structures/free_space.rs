//! Free-space managers of fractal heaps and of the file.
//!
//! ```text
//! header -> list of sections
//! ```
//!
//! H5.format.4.0, "Free-space Manager".

use crate::base::{Address, Result};
use crate::format::free_space::{Client, Header, LIST_NAME, NAME, Section};
use crate::meta::Store;
use crate::meta::extent::{Extent, Visit};

/// A free-space manager in memory.
#[derive(Debug)]
pub(crate) struct Manager {
    address: Address,
    /// Header.
    pub header: Header,
    /// Stored sections, in the order of the list.
    pub sections: Vec<Section>,
}

impl Manager {
    /// Reads the manager of `client` whose header is at `address`.
    pub fn load(store: &Store, address: Address, client: Client) -> Result<Self> {
        let ctx = store.ctx();
        let header = Header::decode(&store.read(address, Header::size(ctx), NAME)?, address, ctx, client)?;
        let mut manager = Manager { address, header, sections: Vec::new() };
        if manager.has_list() {
            let list = store.read(manager.header.list, manager.header.list_size, LIST_NAME)?;
            manager.sections = manager.header.decode_list(&list, address, ctx)?;
        }
        Ok(manager)
    }

    fn has_list(&self) -> bool {
        self.header.list.is_defined() && self.header.list_size > 0
    }

    /// Visits the header and the list, not the sections.
    pub fn extents(&self, store: &Store, visit: &mut Visit<'_>) -> Result<()> {
        visit(Extent::metadata(self.address, Header::size(store.ctx()), NAME))?;
        if self.has_list() { visit(Extent::metadata(self.header.list, self.header.list_allocated, LIST_NAME)) } else { Ok(()) }
    }
}
