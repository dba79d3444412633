//! What reads and changes objects of a container in a state: its parts. Its methods are in a file
//! for each concept: elements, extents, attributes, references, forms.

use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use super::derived::Derived;
use super::long_values::LongValues;
use super::state::State;
use crate::base::Result;
use crate::dataset::environment::Environment;
use crate::iod::Container;
use std::sync::Arc;

/// Reads and changes objects in a state that its caller has.
pub(super) struct ObjectAccess {
    /// The container.
    pub container: Arc<Container>,
    /// Memory, temporary files and threads for decoding.
    pub env: Arc<Environment>,
    /// Reads chunks.
    pub chunks: Arc<ChunkReader>,
    /// Stores chunks and other long values.
    pub values: Arc<LongValues>,
    /// What was derived from states.
    pub derived: Arc<Derived>,
}

impl ObjectAccess {
    /// Objects of the container of `chunks`.
    pub fn new(chunks: Arc<ChunkReader>, values: Arc<LongValues>, derived: Arc<Derived>) -> Arc<ObjectAccess> {
        let (container, env) = (chunks.container.clone(), chunks.env.clone());
        Arc::new(ObjectAccess { container, env, chunks, values, derived })
    }

    /// The dataset `id`, from the cache or decoded.
    pub fn dataset_of(&self, state: &State, id: u64) -> Result<Arc<Dataset>> {
        self.derived.dataset(state, id)
    }
}
