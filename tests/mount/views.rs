//! The control directory: not listed, and what lies in it.

use super::expected::{self, bytes, entries};
use super::mounted::{Mount, copy_fixture, printed, shell};
use super::python;
use super::support::Place;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

#[test]
fn the_control_directory_is_not_listed_but_can_be_entered() {
    let mount = Mount::fixture("links");
    assert!(!mount.names("").contains(&".h5dir".to_owned()));
    assert_eq!(
        mount.names(".h5dir"),
        [
            "README",
            "arrow",
            "attrs",
            "chunks",
            "csv",
            "defined",
            "exact",
            "images",
            "json",
            "jsonl",
            "kerchunk.json",
            "log",
            "metrics",
            "npy",
            "status",
            "text",
            "tsv",
            "zarr",
            "zarr2",
        ]
    );
    let readme = String::from_utf8(mount.read(".h5dir/README")).unwrap();
    assert_eq!(mount.path(".h5dir/README").metadata().unwrap().len(), readme.len() as u64);
    for name in mount.names(".h5dir") {
        assert!(readme.lines().any(|line| line.split(['/', ' ']).next() == Some(&name)), "{name}: {readme}");
    }
    assert!(!mount.path("group/.h5dir").exists(), "only at the root");
    let found = shell(mount.place.dir(), "find mnt -name .h5dir | wc -l; cd mnt/.h5dir/exact/group && ls");
    assert_eq!(found, "0\nhard\nown\nsub\nto_cycle\n");
}

#[test]
fn an_option_chooses_the_views() {
    let mut mount = Mount::with("links", "", &["-o", r"views=README\,csv\,zarr"]);
    assert_eq!(mount.names(".h5dir"), ["README", "csv", "zarr"]);
    for hidden in ["status", "text", "zarr2"] {
        assert_eq!(std::fs::metadata(mount.path(".h5dir").join(hidden)).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
    let readme = String::from_utf8(mount.read(".h5dir/README")).unwrap();
    assert_eq!(mount.path(".h5dir/README").metadata().unwrap().len(), readme.len() as u64);
    let has = |name: &str| readme.lines().any(|line| line.split(['/', ' ']).next() == Some(name));
    assert!(has("README") && has("csv") && has("zarr") && !has("text") && !has("zarr2") && !has("found"), "{readme}");
    let (code, errors) = printed(Command::new(env!("CARGO_BIN_EXE_h5dir")).arg("status").arg(mount.path("")));
    assert!(code == 4 && errors.contains("with 'status' in --views"), "{errors}");
    assert_eq!(mount.terminate(), Some(0));
    let mount = Mount::with("links", "", &["--views", "-images,-csv"]);
    assert!(mount.names(".h5dir").iter().all(|name| name != "images" && name != "csv") && mount.names(".h5dir").len() > 10);
    let mount = Mount::with("links", "", &["--views=none"]);
    assert_eq!(mount.names(".h5dir"), [""; 0]);
    assert!(!mount.names("").is_empty());
    let (code, errors) = printed(Command::new(env!("CARGO_BIN_EXE_h5dir")).args(["mount", "--views=csv,tvs", "/dev/null", "/mnt"]));
    assert!(code == 2 && errors.contains("no view 'tvs'") && errors.contains("all, none, README, ") && errors.contains("tsv"), "{errors}");
}

#[test]
fn chunks_are_their_stored_bytes() {
    for name in ["layouts_old", "layouts_new"] {
        let mount = Mount::fixture(name);
        let file = std::fs::read(mount.place.dir().join(format!("{name}.h5"))).unwrap();
        for (path, chunks) in entries(&expected::of(name)["chunks"]) {
            let mut want: Vec<(String, &[u8])> = Vec::new();
            for chunk in chunks.as_array().unwrap() {
                let coordinates: Vec<String> = chunk[0].as_array().unwrap().iter().map(|n| n.to_string()).collect();
                let (at, len) = (chunk[1].as_u64().unwrap() as usize, chunk[2].as_u64().unwrap() as usize);
                want.push((coordinates.join("."), &file[at..at + len]));
            }
            want.sort();
            let listed = mount.names(&format!(".h5dir/chunks/{path}"));
            assert_eq!(listed, want.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>(), "{name} {path}");
            for (chunk, data) in want {
                let chunk = format!(".h5dir/chunks/{path}/{chunk}");
                assert_eq!(mount.path(&chunk).metadata().unwrap().len(), data.len() as u64, "{chunk}");
                assert_eq!(mount.read(&chunk), data, "{chunk}");
            }
        }
    }
}

#[test]
fn chunks_have_one_name_each() {
    let mount = Mount::fixture("layouts_new");
    for name in ["00.0", "0", "0.0.0", "+0.0", "0.0.", "-1.0", "99.0", "18446744073709551616.0", "a.b"] {
        assert!(!mount.path(&format!(".h5dir/chunks/fixed/{name}")).exists(), "{name}");
    }
    assert!(mount.path(".h5dir/chunks/fixed/0.0").exists());
    assert!(!mount.path(".h5dir/chunks/sparse_rows/0.0").exists(), "not allocated");
    assert_eq!(mount.names(".h5dir/chunks/contiguous"), [""; 0]);
}

/// The header of a `.npy` file, and what follows it.
fn npy(data: &[u8]) -> (String, &[u8]) {
    assert_eq!(&data[..6], b"\x93NUMPY");
    let (len, at) = match data[6] {
        1 => (usize::from(u16::from_le_bytes([data[8], data[9]])), 10),
        _ => (u32::from_le_bytes([data[8], data[9], data[10], data[11]]) as usize, 12),
    };
    assert_eq!((at + len) % 64, 0, "data is aligned, for mmap");
    (String::from_utf8(data[at..at + len].to_vec()).unwrap(), &data[at + len..])
}

#[test]
fn npy_files_are_a_header_and_the_bytes() {
    let mount = Mount::fixture("types");
    let want = expected::of("types");
    for (path, facts) in entries(&want["facts"]) {
        let Some(dtype) = facts["dtype"].as_str().filter(|_| path != "references") else { continue };
        let data = mount.read(&format!(".h5dir/npy/{path}.npy"));
        let (header, rest) = npy(&data);
        assert_eq!(header.trim_end(), format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': (2, 3), }}"), "{path}");
        assert_eq!(rest, bytes(want["files"][path].as_str().unwrap()), "{path}");
    }
    let mount = Mount::fixture("layouts_new");
    for (path, shape) in [("scalar", "()"), ("compact", "(4, 5)"), ("sparse_long", "(1048576,)"), ("zero_length", "(0, 3)")] {
        let data = mount.read(&format!(".h5dir/npy/{path}.npy"));
        let (header, rest) = npy(&data);
        assert!(header.contains(&format!("'shape': {shape}, ")), "{header}");
        assert_eq!(rest, mount.read(path), "{path}");
        assert_eq!(mount.path(&format!(".h5dir/npy/{path}.npy")).metadata().unwrap().len(), data.len() as u64);
    }
    assert!(!mount.path(".h5dir/npy/compact").exists());
    assert!(mount.names(".h5dir/npy").contains(&"compact.npy".to_owned()));
}

#[test]
fn what_numpy_has_no_notation_for_is_not_among_the_npy_files() {
    let mount = Mount::fixture("variable");
    assert!(!mount.path(".h5dir/npy/strings.npy").exists(), "variable-length");
    assert!(!mount.names(".h5dir/npy").contains(&"strings.npy".to_owned()));
    assert!(mount.path(".h5dir/npy/fixed.npy").exists());
}

#[test]
fn views_show_what_soft_links_point_to() {
    let mount = Mount::fixture("links");
    let own = mount.path(".h5dir/exact/soft/own");
    assert!(own.symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read(own).unwrap(), b"own\n");
    assert!(!mount.path(".h5dir/exact/soft/dangling").exists());
    shell(mount.place.dir(), "find mnt/.h5dir | wc -l; du -s mnt/.h5dir; tar cf - -C mnt/.h5dir . | wc -c");
}

#[test]
fn status_tells_counters_that_move() {
    let mount = Mount::fixture("layouts_new");
    let before = mount.counter("chunks_decoded");
    let data = mount.read("deflated");
    let decoded = mount.counter("chunks_decoded");
    assert!(decoded >= before + 12, "{decoded}: 3 by 4 chunks");
    assert_eq!(mount.read("deflated"), data);
    assert_eq!(mount.counter("chunks_decoded"), decoded, "the page cache is kept across opens");
    let text = mount.text(".h5dir/status");
    assert!(text.starts_with(&format!("version {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(mount.counter("cache_bytes") > 0 && mount.counter("cache_bytes") <= mount.counter("cache_budget_bytes"));
    super::support::eventually("files closed are released", || mount.counter("open_files") == 0);
    let _open = std::fs::File::open(mount.path("lzf")).unwrap();
    assert_eq!(mount.counter("open_files"), 1);
}

/// Prometheus's own parser reads the metrics, and they count what was done.
#[test]
fn metrics_are_in_the_format_of_prometheus() {
    let mount = Mount::fixture("layouts_new");
    mount.read("deflated");
    assert!(std::fs::read(mount.path("gone")).is_err());
    let program = r#"
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
with open(sys.argv[1], newline="") as f:
    families = {f.name: f for f in parse(f.read())}
value = lambda name, family, **labels: [s.value for s in families[family].samples if (s.name, s.labels) == (name, labels)][0]
count = lambda family, **labels: value(family + "_count", family, **labels)
reads, bound = count("h5dir_operation_seconds", operation="read"), {"operation": "read", "le": "+Inf"}
assert reads > 0 and value("h5dir_operation_seconds_bucket", "h5dir_operation_seconds", **bound) == reads
assert 0 < value("h5dir_operation_seconds_sum", "h5dir_operation_seconds", operation="read") < 1000
assert value("h5dir_operation_errors_total", "h5dir_operation_errors", operation="lookup", error="ENOENT") > 0
assert count("h5dir_decode_seconds", filter="deflate") >= 12
assert value("h5dir_read_bytes_total", "h5dir_read_bytes") > 0 and families["h5dir_cache_bytes"].type == "gauge"
assert value("h5dir_chunks_decoded_total", "h5dir_chunks_decoded") >= 12 and families["h5dir_build_info"].samples[0].labels["version"]
"#;
    let done = Command::new(python::with_h5py()).args(["-c", program]).arg(mount.path(".h5dir/metrics")).output().unwrap();
    assert!(done.status.success(), "{}\n{}", String::from_utf8_lossy(&done.stderr), mount.text(".h5dir/metrics"));
}

/// Prometheus's own linter finds nothing in the metrics of a file and of a directory. It is asked
/// where it is installed; `tests/packages/run --long` fetches it.
#[test]
fn promtool_finds_nothing_in_the_metrics() {
    let promtool = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let lint = |text: &str| {
        let mut child = Command::new(&promtool).args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        Some((done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned()))
    };
    let Some((accepted, _)) = lint("# TYPE a_total gauge\na_total 1\n") else {
        println!("promtool is not installed: the metrics are not linted");
        return;
    };
    assert!(!accepted, "a gauge whose name ends in _total is accepted");
    let mount = Mount::fixture("layouts_new");
    mount.read("deflated");
    let place = Place::new();
    let tree = place.dir().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let name = copy_fixture("layouts_new", &tree).file_name().unwrap().to_string_lossy().into_owned();
    let directory = Mount::start(place, &tree, &[]);
    directory.read(&format!("{name}/deflated"));
    for text in [mount.text(".h5dir/metrics"), directory.text(".h5dir/metrics")] {
        assert!(text.contains("h5dir_chunks_decoded_total"), "{text}");
        assert_eq!(lint(&text), Some((true, String::new())));
    }
}

#[test]
fn status_is_read_to_its_end_though_its_size_is_zero() {
    let mount = Mount::fixture("links");
    let mut text = String::new();
    let mut file = std::fs::File::open(mount.path(".h5dir/status")).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() > 5, "{text}");
}
