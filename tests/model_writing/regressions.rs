//! What the sequences found, each shrunk and named.

use super::operations::{At, Op};
use super::replay;
use super::side::{Side, Told};

fn path(path: &str) -> At {
    At::Path(path.into())
}

fn file(path: &str) -> Op {
    Op::Create { path: path.into(), exclusive: true, slot: None }
}

/// The file does what the model does.
fn holds(start: &str, ops: &[Op]) {
    if let Err(why) = replay(start, ops) {
        panic!("{start}: {why}");
    }
}

/// `st_blocks` left out chunks that were not in the file yet: a copying program took the file for a hole.
#[test]
fn what_waits_in_memory_takes_blocks() {
    holds("new", &[file("a"), Op::Write(path("a"), 5, 83, 1)]);
}

/// A decoded chunk outlived the truncation that removed it from the file, and came back when the dataset grew.
#[test]
fn a_chunk_that_was_cut_off_does_not_come_back() {
    holds("chunks_latest", &[Op::Truncate(path("fixed_z"), 103), Op::Allocate(path("fixed_z"), 99, 28, libc::FALLOC_FL_ZERO_RANGE)]);
}

/// A partial last chunk of an implicit index could not be written back: no commit succeeded any more. The chunks
/// behind it were freed though the index goes on leading to them, and showed old bytes when the dataset grew.
#[test]
fn chunks_of_an_implicit_index_stay_where_they_are() {
    let grown = Op::Write(path("implicit"), 40, 3, 7);
    holds("chunks2_latest", &[Op::Truncate(path("implicit"), 9), Op::Commit, file("a"), Op::Write(path("a"), 0, 5000, 3), grown]);
}

/// A text longer than the one an attribute was made with was refused (ERANGE).
#[test]
fn an_attribute_takes_a_longer_text() {
    let set = |text: &str| Op::SetXattr("d".into(), "user.x".into(), text.into(), 0);
    for start in ["attrs_earliest", "attrs_latest"] {
        holds(start, &[set("ab"), set("abcdef"), set("a"), Op::Remount, set(&"long ".repeat(500))]);
    }
}

/// An external link could not be moved into a group of the oldest kind (EIO).
#[test]
fn an_old_group_takes_an_external_link() {
    holds("groups_earliest", &[Op::Rename("a/b/c/ext".into(), "many/ext".into(), 0), Op::Mkdir("many/g".into())]);
}

/// A listing told the number that a new object would have had, were it not that of one that is gone but still known.
#[test]
fn a_listing_tells_the_number_that_a_lookup_gives() {
    holds("new", &[file("a"), Op::Pin(1, "a".into()), Op::Unlink("a".into()), file("b"), Op::Commit]);
    let (symlink, pin) = (Op::Symlink("s".into(), ".".into()), Op::Pin(1, "s".into()));
    holds("new", &[symlink, pin, Op::Mkdir("b".into()), Op::Rename("s".into(), "b".into(), libc::RENAME_EXCHANGE)]);
    holds("new earliest", &[Op::Many("".into(), 18), Op::Pin(1, "m13".into()), Op::Thin("".into()), Op::Many("".into(), 59), Op::Commit]);
}

/// A second name of a group, shown as a symbolic link, could not be moved about beneath the group (EINVAL).
#[test]
fn a_link_to_an_ancestor_moves_beneath_it() {
    holds("groups_latest", &[Op::Rename("a/b/c/up".into(), "a/n29".into(), 0), Op::Rename("a".into(), "b".into(), 0)]);
}

/// Neither could it be removed or replaced as a symbolic link can (EISDIR).
#[test]
fn a_link_to_an_ancestor_goes_like_a_symbolic_link() {
    let up = || String::from("a/b/c/up");
    for ops in [vec![Op::Unlink(up())], vec![file("x"), Op::Rename("x".into(), up(), 0)]] {
        holds("groups_latest", &ops);
    }
    let (bytes, model) = super::start::both("groups_latest");
    for mut side in [Side::of_file(bytes), Side::of_model(model)] {
        assert_eq!(side.apply(&Op::Unlink(up())), Ok(Told::Nothing));
        assert_eq!(side.find("a").map(|_| ()), Ok(()));
    }
}
