//! A whole file: opened in memory and walked as tests/mutants does. Checksums are not checked here.
#![no_main]

#[path = "../../tests/walker/mod.rs"]
mod walker;

use h5dir::dataset::environment::Environment;
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

static POOL: LazyLock<Arc<rayon::ThreadPool>> =
    LazyLock::new(|| Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread")));

fuzz_target!(|file: &[u8]| {
    let environment = Arc::new(Environment::with_pool(8 << 20, 128 << 20, POOL.clone()));
    let _ = walker::open_and_walk(file, environment, walker::Bounds::SMALL);
});
