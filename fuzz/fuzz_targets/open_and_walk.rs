//! The input as an HDF5 file: opened, listed, every attribute and some bytes of every file read.
//! Metadata checksums are not checked under `cfg(fuzzing)`, or nothing behind them would be reached.
#![no_main]

use h5dir::dataset::environment::Environment;
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, OnceLock};

#[path = "../../tests/walker/mod.rs"]
#[allow(dead_code)]
mod walker;

static POOL: OnceLock<Arc<rayon::ThreadPool>> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let pool = POOL.get_or_init(|| Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread")));
    let environment = Arc::new(Environment::with_pool(4 << 20, 0, pool.clone()));
    walker::open_and_walk(data, environment, walker::Bounds::SMALL);
});
