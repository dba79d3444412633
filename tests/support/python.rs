//! The Python whose h5py is what tests are measured against.

use std::path::{Path, PathBuf};

/// `PYTHON`, else that of `.venv` beside the sources, else of `/opt/venv`. Without one the tests fail.
pub fn with_h5py() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    let known = std::env::var_os("PYTHON").map(PathBuf::from).into_iter().chain([beside, "/opt/venv/bin/python".into()]);
    known.into_iter().find(|p| p.exists()).expect("a Python with h5py: set PYTHON")
}
