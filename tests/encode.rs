//! Chunks that the filter layer encodes are read by libhdf5: `tests/oracle/encode_check.py` makes datasets of many
//! pipelines, types and patterns, this test encodes their chunks, and the script has libhdf5 read those.
//!
//! Needs a Python with h5py and hdf5plugin: `$PYTHON`, else `.venv/bin/python`, else `/opt/venv/bin/python`; without
//! any the test passes with a note. `H5DIR_ENCODE_SCALE=N` makes about N times as many cases, `H5DIR_SEED=S` others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use h5dir::filter::{FilterSpec, Pipeline};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(serde::Deserialize)]
struct Filter {
    id: u16,
    flags: u16,
    cd_values: Vec<u32>,
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    filters: Vec<Filter>,
}

/// A Python that can run the script.
fn python() -> Option<PathBuf> {
    if let Some(python) = std::env::var_os("PYTHON") {
        return Some(python.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    [here, "/opt/venv/bin/python".into()].into_iter().find(|python| {
        let import = Command::new(python).args(["-c", "import h5py, hdf5plugin"]).output();
        import.is_ok_and(|o| o.status.success())
    })
}

fn run(python: &Path, step: &str, folder: &Path, more: &[String]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/encode_check.py");
    let output = Command::new(python).arg(script).arg(step).arg(folder).args(more).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}{err}");
    assert!(output.status.success(), "{step} failed");
}

#[test]
fn libhdf5_reads_what_is_encoded() {
    let Some(python) = python() else {
        println!("skipped: no Python with h5py and hdf5plugin");
        return;
    };
    let keep = std::env::var_os("H5DIR_ENCODE_KEEP");
    let temporary = tempfile::tempdir().unwrap();
    let folder = keep.as_deref().map_or(temporary.path(), Path::new);
    let scale = std::env::var("H5DIR_ENCODE_SCALE").unwrap_or_else(|_| "1".into());
    run(&python, "make", folder, &[scale]);
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
    assert!(cases.len() > 1000, "{} cases", cases.len());
    for (number, case) in cases.iter().enumerate() {
        let spec = |f: &Filter| FilterSpec { id: f.id, flags: f.flags, name: Vec::new(), cd_values: f.cd_values.clone() };
        let pipeline = Pipeline { filters: case.filters.iter().map(spec).collect() };
        assert!(pipeline.can_encode(), "{}", case.name);
        let raw = std::fs::read(folder.join(format!("{number}.raw"))).unwrap();
        let (encoded, mask) = pipeline.encode(raw.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let back = pipeline.decode(&encoded, mask, raw.len());
        assert!(back.is_ok_and(|b| b.len() == raw.len()), "{}: not read back", case.name);
        std::fs::write(folder.join(format!("{number}.encoded")), encoded).unwrap();
        std::fs::write(folder.join(format!("{number}.mask")), mask.to_string()).unwrap();
    }
    run(&python, "check", folder, &[]);
}
