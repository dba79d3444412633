//! `FILE:/group`: a group as the root of the mount.

use super::mounted::{Mount, copy_fixture};
use super::support::{Place, h5dir, run};

#[test]
fn a_group_becomes_the_root() {
    let mount = Mount::with("links", ":/group", &[]);
    assert_eq!(mount.names(""), ["hard", "own", "sub", "to_cycle"]);
    assert_eq!(mount.read("hard"), b"hello links\n");
    assert_eq!(mount.names(".h5dir/exact"), ["hard", "own", "sub", "to_cycle"]);
    let deeper = Mount::with("links", ":/group/sub", &[]);
    assert_eq!(deeper.names(""), ["third"]);
}

#[test]
fn soft_links_resolve_from_the_root_of_the_file() {
    let mount = Mount::with("links", ":/soft", &[]);
    assert_eq!(mount.link("own"), "%20soft link to %2Fgroup%2Fown");
    assert_eq!(std::fs::read(mount.path("own")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert_eq!(mount.link("chain"), "./own", "it is stored absolute");
    assert_eq!(mount.link("relative"), "own");
}

#[test]
fn a_cycle_through_the_root_ends() {
    let mount = Mount::with("links", ":/cycle", &[]);
    assert_eq!(mount.names(""), ["deep", "self"]);
    assert_eq!(mount.link("self"), ".");
    assert_eq!(mount.link("deep/up"), "..");
    super::mounted::shell(mount.place.dir(), "find mnt | wc -l; du -s mnt");
}

#[test]
fn a_soft_link_may_name_the_group() {
    let mount = Mount::with("links", ":/soft/to_group", &[]);
    assert_eq!(mount.names(""), ["third"]);
}

#[test]
fn a_path_that_is_no_group_is_refused() {
    let place = Place::new();
    let file = copy_fixture("links", place.dir());
    for path in ["/nothing", "/data", "/group/../data"] {
        let target = format!("{}:{path}", file.display());
        let (code, message) = run(h5dir(&["mount", &target]).arg(place.mnt()));
        assert_eq!(code, 5, "{message}");
        let advice = if path == "/data" { "h5dir cat" } else { "h5dir ls" };
        assert!(message.contains(path) && message.contains(advice), "{message}");
    }
}
