//! Regressions of the native connector over files that libhdf5 wrote.

use super::external::Neighbours;
use super::{NativeConnector, Options};
use crate::base::Result;
use crate::connector::Connector;
use crate::dataset::environment::Environment;
use crate::dataset::layout::virtual_::MissingPolicy;
use crate::file::memory::MemoryFile;
use crate::present::Editor;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Links h5py finds in the group.
const LINKS: usize = 13;

/// Opens a file in memory for reading.
pub fn open(bytes: &[u8]) -> Arc<NativeConnector> {
    try_open(bytes).unwrap()
}

/// How text changes a container that can be changed.
pub fn editor(c: &NativeConnector) -> Editor<'_> {
    Editor { connector: c, edit: c }
}

/// How tests open files in memory, with a small cache.
pub fn options() -> Options {
    options_in(Environment::new(1 << 20, 0, 1).unwrap())
}

/// How tests open files in memory, with these caches.
pub fn options_in(environment: Environment) -> Options {
    Options {
        environment: Arc::new(environment),
        neighbours: Arc::new(Neighbours::new(None)),
        missing: MissingPolicy::Error,
        rescue: false,
        log: Default::default(),
    }
}

/// Opens a file in memory for reading, if it can be.
pub fn try_open(bytes: &[u8]) -> Result<Arc<NativeConnector>> {
    NativeConnector::open(Arc::new(MemoryFile::new(bytes)), PathBuf::from("/"), options())
}

/// A dense group whose fractal heap has a deflate filter was EIO.
#[test]
fn dense_groups_in_filtered_heaps_are_listed() {
    let c = open(include_bytes!("../../../tests/fixtures/heaps/filtered12.h5"));
    let group = c.resolve(c.root(), b"/g").unwrap().unwrap();
    let mut n = 0;
    c.list(group, 0, &mut |link, _| {
        assert!(c.lookup(group, &link.name).unwrap().is_some());
        n += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(n, LINKS);
}
