//! Arguments for opening a layout.

use super::log::Anchor;
use super::virtual_::{MissingPolicy, SourceOpener};
use crate::base::datatype::Datatype;
use crate::base::{Address, Result};
use crate::dataset::chunk::key::DatasetKey;
use crate::dataset::environment::RawFiles;
use crate::dataset::fill::FillPattern;
use crate::filter::pipeline::Pipeline;
use crate::format::message::data_layout::DataLayout;
use crate::format::message::dataspace::Dataspace;
use crate::meta::Store;
use std::sync::Arc;

/// The dataset that a layout is opened for.
pub(crate) struct Parts<'a> {
    /// The file.
    pub(crate) store: &'a Arc<Store>,
    /// The object header.
    pub(crate) header: Address,
    /// Key of the dataset in the chunk caches.
    pub(crate) number: DatasetKey,
    /// Data layout message. The compact layout moves the data out of it.
    pub(crate) message: &'a mut DataLayout,
    /// Extent. A virtual dataset sets unlimited dimensions from its sources.
    pub(crate) space: &'a mut Dataspace,
    /// Type of the elements.
    pub(crate) datatype: &'a Datatype,
    /// Value of elements that were never written.
    pub(crate) fill: &'a FillPattern,
    /// Filters.
    pub(crate) pipeline: &'a Pipeline,
    /// Access to the object and the container.
    pub(crate) surroundings: &'a dyn Surroundings,
}

/// Access of a layout to its object and container.
pub(crate) trait Surroundings {
    /// Body of another message of the object header.
    fn message(&self, kind: u16) -> Result<Option<Vec<u8>>>;
    /// Opener of external raw files.
    fn raw_files(&self) -> Arc<dyn RawFiles>;
    /// Opener of the sources of a virtual dataset.
    fn sources(&self) -> Box<dyn SourceOpener + Send + Sync>;
    /// What the object is an anchor of, if the elements of the dataset are in a log.
    fn anchor(&self) -> Result<Option<Anchor>>;
    /// Handling of a missing source of a virtual dataset.
    fn missing(&self) -> MissingPolicy;
}
