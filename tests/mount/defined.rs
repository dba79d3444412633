//! Sparse datasets: which elements are defined, through mounts and programs.

use super::python;
use super::support::{Place, h5dir, is_mounted, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmounts what a failed script left.
struct Left(PathBuf);

impl Drop for Left {
    fn drop(&mut self) {
        if is_mounted(&self.0) {
            let _ = run(h5dir(&["umount", "--lazy"]).arg(&self.0));
        }
    }
}

/// Runs a case of `tests/oracle/defined.py`.
#[track_caller]
fn case(name: &str) {
    case_with("defined.py", name, Path::new(""));
}

/// Runs a case of a script with containers in folders, not HDF5 files.
#[track_caller]
fn in_containers(script: &str, name: &str) {
    run_case(script, name, &[("H5DIR_KIND", "iod")]);
}

/// Runs a case of `tests/oracle/structured_cases.py`.
#[track_caller]
fn structured(name: &str) {
    case_with("structured_cases.py", name, Path::new(""));
}

/// Runs a case of a script with plugins of libhdf5 in a folder.
#[track_caller]
fn case_with(script: &str, name: &str, plugins: &Path) {
    run_case(script, name, &[("HDF5_PLUGIN_PATH", &plugins.to_string_lossy())]);
}

/// Runs a case of a script with these environment variables.
#[track_caller]
pub(super) fn run_case(script: &str, name: &str, variables: &[(&str, &str)]) {
    let place = Place::new();
    let at = place.mnt();
    let dir = at.parent().unwrap().to_path_buf();
    let _left = [Left(at), Left(dir.join("mnt2"))];
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle").join(script);
    let binary = env!("CARGO_BIN_EXE_h5dir");
    let mut command = Command::new(python::with_h5py());
    command.arg(script).arg(binary).arg(dir).arg(name).envs(variables.iter().copied());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
}

#[test]
fn random_changes_of_sparse_datasets_agree_with_numpy() {
    case("random_changes");
}

#[test]
fn chunks_that_h5py_wrote_have_no_map() {
    case("stock_writer");
}

#[test]
fn holes_of_copies_stay_undefined() {
    case("tools");
}

#[test]
fn defined_and_erase_are_commands() {
    case("command_line");
}

#[test]
fn impossible_sparse_datasets_are_refused_with_reasons() {
    case("limits");
}

#[test]
fn datasets_become_sparse_and_dense() {
    case("conversion");
}

#[test]
fn sparse_elements_are_of_any_type() {
    case("types");
}

#[test]
fn rows_that_are_added_to_a_sparse_dataset_are_undefined() {
    case("resizing");
}

#[test]
fn datasets_of_any_shape_show_what_is_defined() {
    case("other_shapes");
}

#[test]
fn what_was_written_before_the_description_stays_defined() {
    case("after_the_fact");
}

#[test]
fn rules_make_new_files_sparse() {
    case("create_rules");
}

/// Runs a case of `tests/oracle/sparse_copies.py`.
#[track_caller]
fn copies(name: &str) {
    case_with("sparse_copies.py", name, Path::new(""));
}

#[test]
fn copies_by_programs_keep_what_is_defined() {
    copies("programs");
}

#[test]
fn copies_by_h5dir_keep_what_is_defined() {
    copies("commands");
}

#[test]
fn copies_to_other_kinds_keep_what_is_defined() {
    copies("elsewhere");
}

#[test]
fn random_changes_of_sparse_datasets_in_containers_agree_with_numpy() {
    in_containers("defined.py", "random_changes");
}

#[test]
fn tools_work_on_sparse_datasets_in_containers() {
    ["tools", "types", "resizing", "create_rules"].into_iter().for_each(|case| in_containers("defined.py", case));
}

#[test]
fn copies_of_sparse_datasets_in_containers_keep_what_is_defined() {
    ["programs", "commands"].into_iter().for_each(|case| in_containers("sparse_copies.py", case));
}

#[test]
fn sparse_datasets_in_containers_take_the_attribute_strings_and_ranges() {
    ["attribute", "strings", "ranges", "mappings"].into_iter().for_each(|case| in_containers("sparse_copies.py", case));
}

#[test]
fn an_attribute_sets_what_is_defined_and_no_value() {
    copies("attribute");
}

#[test]
fn copies_of_strings_keep_what_is_defined() {
    copies("strings");
}

#[test]
fn copied_ranges_define_what_their_source_defines() {
    copies("ranges");
}

#[test]
fn stores_to_mappings_define_what_they_change() {
    copies("mappings");
}

/// The folder with the plugin for the filter of sparse chunks, which is built.
fn plugin() -> PathBuf {
    let profile = std::env::var("H5DIR_CARGO_PROFILE").unwrap_or_default();
    let built = Command::new("cargo").args(["build", "--quiet", "-p", "h5dir-filter"]).args(profile.split_whitespace()).status().unwrap();
    assert!(built.success());
    Path::new(env!("CARGO_BIN_EXE_h5dir")).parent().unwrap().to_path_buf()
}

#[test]
fn libhdf5_reads_and_writes_sparse_chunks_with_the_plugin() {
    case_with("defined.py", "plugin", &plugin());
}

#[test]
fn structured_chunks_are_those_of_the_proposal() {
    structured("each_index");
}

#[test]
fn indexes_of_many_structured_chunks_are_those_of_the_proposal() {
    structured("many_chunks");
}

#[test]
fn damaged_structured_datasets_leave_the_others_usable() {
    structured("damage");
}
