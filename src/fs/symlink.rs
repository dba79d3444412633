//! Targets of symbolic links, and the HDF5 soft links that they are stored as.
//!
//! In HDF5 `..` is an ordinary name; `.` and empty components are skipped. A target without `..` is
//! stored as the same relative path. A target with `..` is stored as an absolute path, which is
//! shown with as many `..` as lead from the directory of the link to the first name that differs,
//! or to the root of the mount if the path begins with [`FROM_ROOT`]. A slash at the end is stored
//! as `/.`: libhdf5 accepts a slash after the name of a dataset, and the kernel does not.
//!
//! What HDF5 cannot express (targets outside the mount, absolute ones, the control directory) is
//! stored after [`VERBATIM`], a path in the control directory, which no object has.
//!
//! A soft link of another writer leads up by the `..` written here only, never out of the mount. A
//! target that cannot be reached is one name that no file has.

use super::name::{CONTROL, file_name, file_name_escaped, unescape};
use std::borrow::Cow;

/// Longest target that the kernel takes, bytes.
const TARGET_MAX: usize = 4095;

/// Path of a soft link that holds a target as it is, before the target.
const VERBATIM: &[u8] = b"/.h5dir/symlink/";

/// Start of an absolute path that is shown with `..` up to the root of the mount. libhdf5 skips
/// empty components and dots.
const FROM_ROOT: &[u8] = b"//./";

/// Start of a target that no file has: an escaped space, which no shown name begins with.
const DANGLING: &[u8] = b"%20";

/// Where a soft link is.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Names of the directory of the link, from the root of the mount.
    pub dir: &'a [Vec<u8>],
    /// Path of the mounted group in the file.
    pub prefix: &'a [Vec<u8>],
}

/// The target that the soft link `path` holds as it is.
pub fn target_of_verbatim(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(VERBATIM).filter(|t| !t.is_empty() && t.len() <= TARGET_MAX && !t.contains(&0))
}

/// True if the symbolic link `target`, in a directory `depth` levels below the root of the mount,
/// cannot leave the mount: it leads up first, at most to the root, and then down.
pub fn stays_inside(target: &[u8], depth: usize) -> bool {
    let up = components(target).take_while(|c| *c == b"..").count();
    target.first() != Some(&b'/') && up <= depth && components(target).skip(up).all(|c| c != b"..")
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".")
}

/// True for a component that libhdf5 skips.
fn is_skipped(component: &[u8]) -> bool {
    component.is_empty() || component == b"."
}

/// Removes the names `start`, and what is skipped between them, from the start of `names`; false if
/// they begin with others.
fn drop_start(names: &mut Vec<&[u8]>, start: &[Vec<u8>]) -> bool {
    start.iter().all(|name| {
        let skipped = names.iter().take_while(|c| is_skipped(c)).count();
        let is_there = names.get(skipped) == Some(&name.as_slice());
        names.drain(..skipped.saturating_add(usize::from(is_there)));
        is_there
    })
}

/// The soft link `path` after the group at `from` was moved to `to`; `None` if it does not lead
/// there.
pub fn moved(path: &[u8], from: &[Vec<u8>], to: &[Vec<u8>]) -> Option<Vec<u8>> {
    let start = if path.starts_with(FROM_ROOT) { FROM_ROOT } else { path.get(..1).filter(|c| *c == b"/")? };
    let mut names: Vec<&[u8]> = path.get(start.len()..)?.split(|b| *b == b'/').collect();
    if target_of_verbatim(path).is_some() || !drop_start(&mut names, from) {
        return None;
    }
    let names: Vec<&[u8]> = to.iter().map(Vec::as_slice).chain(names).collect();
    Some([start, &names.join(&b'/')].concat())
}

/// Target of a soft link to `path` at `place`.
pub fn soft(path: &[u8], place: Place<'_>) -> Vec<u8> {
    let absolute = path.first() == Some(&b'/');
    // Components as they are spelled, without the slashes at the ends.
    let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').skip_while(|c| c.is_empty()).collect();
    while names.last().is_some_and(|c| c.is_empty()) {
        names.pop();
    }
    let mut up = 0;
    if absolute {
        let from_root = path.starts_with(FROM_ROOT);
        if from_root {
            // The dot.
            names.remove(0);
        }
        if !drop_start(&mut names, place.prefix) {
            return dangling(b"soft", path);
        }
        // One `..` at least distinguishes it from a relative link.
        let most = if from_root { 0 } else { place.dir.len().saturating_sub(1) };
        let common = names.iter().zip(place.dir).take(most).take_while(|(a, b)| **a == b.as_slice()).count();
        names.drain(..common);
        up = place.dir.len().saturating_sub(common);
    }
    let mut parts: Vec<Vec<u8>> = vec![b"..".to_vec(); up];
    if absolute && up == 0 && names.iter().any(|c| !is_skipped(c)) {
        // In the root of the mount it distinguishes the link from a relative one.
        parts.push(b".".to_vec());
    }
    // In the root of the mount `.h5dir` is the control directory, not the link of that name.
    let reaches_root = up == place.dir.len();
    let first = names.iter().position(|c| !is_skipped(c)).filter(|_| reaches_root);
    let slash = names.len().saturating_add(up) > 1 && names.last() == Some(&&b"."[..]);
    parts.extend(names.iter().enumerate().map(|(i, name)| match *name {
        b"." if slash && i.saturating_add(1) == names.len() => Vec::new(),
        name if is_skipped(name) => name.to_vec(),
        CONTROL if first == Some(i) => file_name_escaped(CONTROL),
        name => file_name(name).into_owned(),
    }));
    if parts.is_empty() {
        return b".".to_vec();
    }
    let target = parts.join(&b'/');
    if target.len() > TARGET_MAX { dangling(b"soft", path) } else { target }
}

/// Path of the soft link at `place` for the symbolic link `target`. `is_group` is true for names
/// from the root of the mount that lead to a group.
pub fn stored(target: &[u8], place: Place<'_>, is_group: &dyn Fn(&[Vec<u8>]) -> bool) -> Vec<u8> {
    if let Some(path) = outside(target, place) {
        return path;
    }
    let paths = resolved(target, place.dir, is_group).map(|names| spellings(target, &names, place)).unwrap_or_default();
    let shown = |path: &Vec<u8>| soft(path, place);
    let path = paths.iter().find(|path| shown(path) == target).or(paths.last());
    match path {
        Some(path) if !shown(path).starts_with(DANGLING) => path.clone(),
        _ => [VERBATIM, target].concat(),
    }
}

/// Names from the root of the mount to what the symbolic link `target` in `dir` leads to. `None`:
/// it is not below the root of the mount, or has a name that no link is shown with.
fn resolved(target: &[u8], dir: &[Vec<u8>], is_group: &dyn Fn(&[Vec<u8>]) -> bool) -> Option<Vec<Vec<u8>>> {
    if target.first() == Some(&b'/') {
        return None;
    }
    let mut names = dir.to_vec();
    let mut down = false;
    for shown in components(target) {
        if shown == b".." {
            // `..` of a symbolic link is the parent of its target, and of a missing name an error.
            if down && !is_group(&names) {
                return None;
            }
            names.pop()?;
            continue;
        }
        down = true;
        let name = unescape(shown)?.into_owned();
        let as_shown = if names.is_empty() && name == CONTROL { file_name_escaped(&name) } else { file_name(&name).into_owned() };
        if is_skipped(&name) || name.iter().any(|b| matches!(b, b'/' | 0)) || as_shown != shown {
            return None;
        }
        names.push(name);
    }
    Some(names)
}

/// Soft links at `place` for `target`, which leads to `names`: as it is spelled, from the root of
/// the mount, and last the plain path.
fn spellings(target: &[u8], names: &[Vec<u8>], place: Place<'_>) -> Vec<Vec<u8>> {
    let joined = |parts: &[&[Vec<u8>]]| parts.concat().join(&b'/');
    let absolute = |parts: &[&[Vec<u8>]]| [b"/".as_slice(), &joined(parts)].concat();
    let mut tail: Vec<&[u8]> = target.split(|b| *b == b'/').collect();
    let up = tail.iter().take_while(|c| **c == b"..").count();
    tail.drain(..up);
    if let Some(last) = tail.last_mut().filter(|c| c.is_empty()) {
        *last = b".";
    }
    let tail: Vec<Vec<u8>> = tail
        .iter()
        .map(|c| if is_skipped(c) { Some(c.to_vec()) } else { unescape(c).map(Cow::into_owned) })
        .map(Option::unwrap_or_default)
        .collect();
    let plain = absolute(&[place.prefix, names]);
    if up > 0 {
        let above = place.dir.get(..place.dir.len().saturating_sub(up)).unwrap_or_default();
        let spelled = joined(&[place.prefix, above, &tail]);
        return vec![[b"/", spelled.as_slice()].concat(), [FROM_ROOT, &spelled].concat(), plain];
    }
    // In the root of the mount `./` distinguishes an absolute link from a relative one.
    let from_root = place.dir.is_empty() && tail.first().is_some_and(|c| c == b".");
    let relative = joined(&[&tail]);
    match names.strip_prefix(place.dir) {
        Some(below) if from_root => vec![plain, relative, joined(&[below])],
        Some(below) => vec![relative, joined(&[below])],
        None => vec![plain],
    }
}

/// Path of a soft link that leads outside the mounted group, from the target shown for it.
fn outside(target: &[u8], place: Place<'_>) -> Option<Vec<u8>> {
    let shown = unescape(target)?;
    let path = shown.strip_prefix(b" soft link to ")?;
    (soft(path, place) == target).then(|| path.to_vec())
}

/// File and path of the external link that is shown as `target`. The last `:/` separates them.
pub fn external(target: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let text = unescape(target)?;
    let text = text.strip_prefix(b" external link to ")?;
    if dangling(b"external", text) != target {
        return None;
    }
    let at = text.windows(2).rposition(|w| w == b":/").or_else(|| text.iter().rposition(|b| *b == b':'))?;
    Some((text.get(..at)?.to_vec(), text.get(at.checked_add(1)?..)?.to_vec()))
}

/// Target `up` directories above the directory of the link (0 = that directory).
pub fn up(up: usize) -> Vec<u8> {
    if up == 0 { b".".to_vec() } else { vec![&b".."[..]; up].join(&b'/') }
}

/// A target that no file has: it begins with an escaped space, which no shown name does.
pub fn dangling(what: &[u8], text: &[u8]) -> Vec<u8> {
    // Escaped as one component: without `/` and NUL it cannot be resolved.
    file_name_escaped(&[b" ", what, b" link to ", text].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<Vec<u8>> {
        path.split('/').filter(|c| !c.is_empty()).map(|c| c.as_bytes().to_vec()).collect()
    }

    fn soft_in(path: &str, dir: &str, prefix: &str) -> String {
        String::from_utf8(soft(path.as_bytes(), Place { dir: &names(dir), prefix: &names(prefix) })).unwrap()
    }

    /// `l` and what is below it are no groups.
    fn stored_in(target: &str, dir: &str, prefix: &str) -> String {
        let is_group = |names: &[Vec<u8>]| names.iter().all(|n| n != b"l");
        String::from_utf8(stored(target.as_bytes(), Place { dir: &names(dir), prefix: &names(prefix) }, &is_group)).unwrap()
    }

    #[test]
    fn absolute_targets_become_relative() {
        let cases = [
            ("/a/b", "", "./a/b"),
            ("a/b", "", "a/b"),
            ("/a//b/", "c/d", "../../a//b"),
            ("a/./b", "c/d", "a/./b"),
            ("/", "a", ".."),
            ("/", "", "."),
            ("/a/c", "a/b", "../c"),
            ("/a/b", "a/b", "../b"),
            ("/a/b/c", "a/b", "../b/c"),
            ("//./a/c", "a/b", "../../a/c"),
            ("/a/x/y", "a/b/c", "../../x/y"),
            ("/.h5dir/x", "a", "../%2Eh5dir/x"),
            (".h5dir", "a", ".h5dir"),
            ("./.h5dir", "", "./%2Eh5dir"),
            ("/a/.h5dir", "a/b", "../.h5dir"),
        ];
        for (path, dir, target) in cases {
            assert_eq!(soft_in(path, dir, ""), target, "{path} in {dir}");
        }
    }

    #[test]
    fn no_target_leaves_the_mount() {
        assert_eq!(soft_in("/../../../etc/passwd", "", ""), "./%2E%2E/%2E%2E/%2E%2E/etc/passwd");
        assert_eq!(soft_in("../../..", "", ""), "%2E%2E/%2E%2E/%2E%2E");
        let long = soft_in(&"/a".repeat(3000), "", "");
        assert!(long.len() <= 255 && !long.contains('/'));
        let target = dangling(b"external", b"../../etc/shadow:/");
        assert_eq!(target, b"%20external link to ..%2F..%2Fetc%2Fshadow:%2F");
        // A link with that name, escaped or not, is shown differently.
        assert_ne!(file_name(&target), target);
        assert_ne!(file_name(b" external link to ../../etc/shadow:/"), target);
    }

    #[test]
    fn the_target_of_an_external_link_contains_file_and_path() {
        let pair = |file: &[u8], path: &[u8]| Some((file.to_vec(), path.to_vec()));
        assert_eq!(external(b"%20external link to ..%2Fother.h5:%2Fa%2Fb"), pair(b"../other.h5", b"/a/b"));
        assert_eq!(external(b"%20external link to C:%2Fx.h5:%2Fa"), pair(b"C:/x.h5", b"/a"));
        assert_eq!(external(b"%20external link to x.h5:a"), pair(b"x.h5", b"a"));
        let long = dangling(b"external", &[&b"x".repeat(300)[..], b":/a"].concat());
        for other in [&b"x.h5:/a"[..], b" external link to x:/a", b"%20external link to x", b"%20soft link to %2Fx", &long] {
            assert_eq!(external(other), None);
        }
    }

    #[test]
    fn below_a_mounted_group() {
        assert_eq!(soft_in("/g/x", "a", "g"), "../x");
        assert_eq!(soft_in("//./g//a/x", "a/b", "g"), "../..//a/x");
        assert!(!soft_in("/x", "a", "g").starts_with(".."));
    }

    #[test]
    fn to_an_ancestor() {
        assert_eq!(up(0), b".");
        assert_eq!(up(2), b"../..");
    }

    /// The path that a target leads to is stored, and the target is shown as it was given.
    #[test]
    fn targets_are_stored_as_paths_that_libhdf5_follows() {
        let cases = [
            ("x", "a/b", "x"),
            ("./x", "a/b", "./x"),
            ("./x", "", "/g/x"),
            (".", "", "/g"),
            (".", "a", "."),
            ("x//y/", "a", "x//y/."),
            ("%2E%2E/x", "", "../x"),
            (".h5dir/x", "a", ".h5dir/x"),
            ("%2Eh5dir/x", "", ".h5dir/x"),
            ("../%2Eh5dir", "a", "/g/.h5dir"),
            ("../c", "a", "/g/c"),
            ("../c", "a/b", "/g/a/c"),
            ("../../a/c", "a/b", "//./g/a/c"),
            ("../../a/./c/", "a/b", "//./g/a/./c/."),
            ("..", "a", "/g"),
            ("../", "a/b", "/g/a/."),
            ("..//c", "a/b", "/g/a//c"),
            (".././c", "a", "/g/./c"),
            ("../b/c", "a/b", "/g/a/b/c"),
        ];
        for (target, dir, path) in cases {
            assert_eq!(stored_in(target, dir, "g"), path, "{target} in {dir}");
            assert_eq!(soft_in(path, dir, "g"), target, "{path} in {dir}");
        }
        assert_eq!(stored_in(".././c", "a", ""), "/./c");
        assert_eq!(soft_in("/./c", "a", ""), ".././c");
        assert_eq!(stored_in("x/../y", "a", "g"), "y");
        assert_eq!(stored_in("x/../../y", "a", "g"), "/g/y");
        assert_eq!(stored_in("../x/./../y", "a", "g"), "/g/y");
        assert_eq!(stored_in("%20soft link to %2Fout%2Fx", "a", "g"), "/out/x");
    }

    #[test]
    fn other_targets_are_stored_as_they_are() {
        let long = "n/".repeat(2047) + "n";
        let targets = ["/", "/etc/passwd", "/g/x", "../..", "../../x", "../.h5dir/status", "l/../x", "%41", "a%2Fb", "%00", "%EMPTY"];
        for target in targets.into_iter().chain(["%20soft link to %2Fg%2Fx", &("../".to_owned() + &long)]) {
            assert_eq!(stored_in(target, "a", "g"), format!("/.h5dir/symlink/{target}"));
        }
        assert_eq!(stored_in(".h5dir/status", "", ""), "/.h5dir/symlink/.h5dir/status");
        assert_eq!(target_of_verbatim(b"/.h5dir/symlink/../x"), Some(&b"../x"[..]));
        assert_eq!(target_of_verbatim(b"/.h5dir/symlink/"), None);
    }

    /// What a copy of a link stores is the link.
    #[test]
    fn shown_targets_lead_to_the_same_path() {
        for path in ["/a/b/c", "/", "/x", "/a", "/a/b", "/a//x/.", "//./a/x", "x/y", "./x", "/a/b/d/e"] {
            for dir in ["", "a", "a/b", "a/b/c", "q/r"] {
                let shown = soft_in(path, dir, "");
                let again = stored_in(&shown, dir, "");
                assert_eq!(soft_in(&again, dir, ""), shown, "{path} in {dir}");
                assert!(again == path || path.contains('.'), "{path} in {dir}: {shown}, {again}");
            }
        }
    }

    #[test]
    fn links_into_a_moved_group_follow_it() {
        let moved = |path: &str| moved(path.as_bytes(), &names("a/b"), &names("c")).map(|p| String::from_utf8(p).unwrap());
        assert_eq!(moved("/a/b").as_deref(), Some("/c"));
        assert_eq!(moved("/a//b/./x/.").as_deref(), Some("/c/./x/."));
        assert_eq!(moved("//./a/b/x").as_deref(), Some("//./c/x"));
        for other in ["/a/x", "a/b", "/a/bc", "/x/a/b", "/a", "/.h5dir/symlink/a/b"] {
            assert_eq!(moved(other), None);
        }
    }

    #[test]
    fn targets_that_stay_inside_lead_up_first_and_at_most_to_the_root() {
        let inside: [(&[u8], usize); 6] =
            [(b"x", 0), (b"./x//y/", 0), (b"../x", 1), (b".././../x/y", 2), (b"..", 3), (b"%2E%2E/..x/...", 0)];
        inside.iter().for_each(|(target, depth)| assert!(stays_inside(target, *depth), "{}", target.escape_ascii()));
        let outside: [(&[u8], usize); 6] = [(b"..", 0), (b"../../x", 1), (b"/", 9), (b"/x", 9), (b"x/../y", 9), (b"../x/./..", 9)];
        outside.iter().for_each(|(target, depth)| assert!(!stays_inside(target, *depth), "{}", target.escape_ascii()));
    }
}
