//! Targets of symbolic links. Those of HDF5 links are relative and never outside the mount.
//!
//! The text of a link that is created through the mount is shown again exactly as it was given,
//! wherever the link or one of its directories is moved. It is stored as a path that libhdf5
//! follows, if there is one. If that path is not shown as the text in every directory (because of
//! `..`, `.` or empty components), the container stores the text beside it. Any other text
//! (absolute, or out of the mount) is stored after [`VERBATIM`], a path in the control directory,
//! which no object has.
//!
//! In HDF5 `..` is an ordinary name, so a soft link of another writer can only lead up by the `..`
//! written here, exactly as many as the link lies deep. A target that cannot be reached is one name
//! that no file has.

use super::name::{CONTROL, file_name, file_name_escaped, unescape};

/// Longest target that the kernel takes, bytes.
const TARGET_MAX: usize = 4095;

/// Path of a soft link that holds a target as it is, before the target.
const VERBATIM: &[u8] = b"/.h5dir/symlink/";

/// Where a soft link is.
#[derive(Clone, Copy)]
pub struct SymlinkPlace<'a> {
    /// Names of the directory of the link, from the root of the mount.
    pub dir: &'a [Vec<u8>],
    /// Path of the mounted group in the file.
    pub prefix: &'a [Vec<u8>],
}

/// A soft link that stands for a symbolic link.
#[derive(Debug, PartialEq, Eq)]
pub struct SoftLink {
    /// Its path.
    pub path: Vec<u8>,
    /// The text of the symbolic link, if the path does not determine it.
    pub text: Option<Vec<u8>>,
}

/// Path of the soft link that holds the target `target` as it is.
pub fn verbatim(target: &[u8]) -> Vec<u8> {
    [VERBATIM, target].concat()
}

/// The text that the symbolic link was created with, of the soft link `path`. `text` returns the
/// text stored beside it, which may be any bytes.
pub fn text_of(path: &[u8], text: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let found = path.strip_prefix(VERBATIM).map(<[u8]>::to_vec).or_else(text);
    found.filter(|t| !t.is_empty() && t.len() <= TARGET_MAX && !t.contains(&0))
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

/// Target of a soft link to `path` in a directory `depth` levels below the root of the mount, which
/// shows the group `prefix` of the file.
pub fn soft(path: &[u8], depth: usize, prefix: &[Vec<u8>]) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut names: Vec<&[u8]> = components(path).collect();
    if path.first() == Some(&b'/') {
        let inside = names.len() >= prefix.len() && names.iter().zip(prefix).all(|(a, b)| a == b);
        if !inside {
            return dangling(b"soft", path);
        }
        names.drain(..prefix.len());
        parts.resize(depth, b"..".to_vec());
        if depth == 0 && !names.is_empty() {
            // Distinguishes it from a relative link.
            parts.push(b".".to_vec());
        }
    }
    // In the root of the mount `.h5dir` is the control directory, not the link of that name.
    let from_root = path.first() == Some(&b'/') || depth == 0;
    if from_root && names.first() == Some(&CONTROL) {
        names.remove(0);
        parts.push(file_name_escaped(CONTROL));
    }
    parts.extend(names.iter().map(|n| file_name(n).into_owned()));
    if parts.is_empty() {
        return b".".to_vec();
    }
    let target = parts.join(&b'/');
    if target.len() > TARGET_MAX { dangling(b"soft", path) } else { target }
}

/// The soft link at `place` for the symbolic link `target`. `has_parent` is false if the names from
/// the root of the mount lead to a file or a link, which has no `..`.
pub fn stored(target: &[u8], place: SymlinkPlace<'_>, has_parent: &dyn Fn(&[Vec<u8>]) -> bool) -> SoftLink {
    if let Some(path) = outside(target, place.prefix).or_else(|| followed(target)) {
        return SoftLink { path, text: None };
    }
    match resolved(target, place, has_parent) {
        // `.` is shown in the same way in every directory.
        Some(path) => SoftLink { path, text: (target != b".").then(|| target.to_vec()) },
        None => SoftLink { path: verbatim(target), text: None },
    }
}

/// Path of what the relative symbolic link `target` leads to: relative if the target is, too, but
/// for `.` and empty components, and absolute if it has `..`. `None`: that is not below the root of
/// the mount, or has a name that no link is shown with.
fn resolved(target: &[u8], SymlinkPlace { dir, prefix }: SymlinkPlace<'_>, has_parent: &dyn Fn(&[Vec<u8>]) -> bool) -> Option<Vec<u8>> {
    if target.first() == Some(&b'/') {
        return None;
    }
    let mut names = dir.to_vec();
    let (mut leads_up, mut leads_down) = (false, false);
    for shown in components(target) {
        if shown == b".." {
            if leads_down && !has_parent(&names) {
                return None;
            }
            leads_up = true;
            names.pop()?;
            continue;
        }
        leads_down = true;
        let name = unescape(shown)?.into_owned();
        let as_shown = if names.is_empty() && name == CONTROL { file_name_escaped(&name) } else { file_name(&name).into_owned() };
        if matches!(name.as_slice(), b"" | b".") || name.iter().any(|b| matches!(b, b'/' | 0)) || as_shown != shown {
            return None;
        }
        names.push(name);
    }
    let path = match names.strip_prefix(dir).filter(|_| !leads_up) {
        Some([]) => b".".to_vec(),
        Some(below) => below.join(&b'/'),
        None => [&b"/"[..], &[prefix, &names].concat().join(&b'/')].concat(),
    };
    (path.len() <= TARGET_MAX).then_some(path)
}

/// Path of a soft link that leads outside the mounted group, from the target shown for it.
fn outside(target: &[u8], prefix: &[Vec<u8>]) -> Option<Vec<u8>> {
    let shown = unescape(target)?;
    let path = shown.strip_prefix(b" soft link to ")?;
    (soft(path, 0, prefix) == target).then(|| path.to_vec())
}

/// Path that libhdf5 follows as a program follows `target`. `None`: no path is shown as `target` in
/// every directory.
fn followed(target: &[u8]) -> Option<Vec<u8>> {
    let mut path: Vec<Vec<u8>> = Vec::new();
    for shown in target.split(|b| *b == b'/') {
        let name = unescape(shown)?.into_owned();
        // Names that would be skipped or divide the path, and other spellings of names, as `..`.
        let divides = matches!(name.as_slice(), b"" | b".") || name.iter().any(|b| matches!(b, b'/' | 0));
        // In the root of the mount the name of the control directory is shown in another way.
        let control = path.is_empty() && name == CONTROL;
        if divides || control || *file_name(&name) != *shown {
            return None;
        }
        path.push(name);
    }
    Some(path.join(&b'/'))
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

    #[test]
    fn absolute_targets_become_relative() {
        assert_eq!(soft(b"/a/b", 0, &[]), b"./a/b");
        assert_eq!(soft(b"a/b", 0, &[]), b"a/b");
        assert_eq!(soft(b"/a//b/", 2, &[]), b"../../a/b");
        assert_eq!(soft(b"a/./b", 2, &[]), b"a/b");
        assert_eq!(soft(b"/", 1, &[]), b"..");
        assert_eq!(soft(b"/", 0, &[]), b".");
        assert_eq!(soft(b"/.h5dir/x", 1, &[]), b"../%2Eh5dir/x", "the link of that name, not the control directory");
        assert_eq!(soft(b".h5dir", 1, &[]), b".h5dir");
    }

    #[test]
    fn no_target_leaves_the_mount() {
        assert_eq!(soft(b"/../../../etc/passwd", 0, &[]), b"./%2E%2E/%2E%2E/%2E%2E/etc/passwd");
        assert_eq!(soft(b"../../..", 0, &[]), b"%2E%2E/%2E%2E/%2E%2E");
        let long = soft(&b"/a".repeat(3000), 0, &[]);
        assert!(long.len() <= 255 && !long.contains(&b'/'));
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
        let prefix = [b"g".to_vec()];
        assert_eq!(soft(b"/g/x", 1, &prefix), b"../x");
        assert!(!soft(b"/x", 1, &prefix).starts_with(b".."));
    }

    #[test]
    fn to_an_ancestor() {
        assert_eq!(up(0), b".");
        assert_eq!(up(2), b"../..");
    }

    fn names(path: &str) -> Vec<Vec<u8>> {
        path.split('/').filter(|c| !c.is_empty()).map(|c| c.as_bytes().to_vec()).collect()
    }

    /// `l` is a link.
    fn stored_in(target: &str, dir: &str, prefix: &str) -> (String, Option<String>) {
        let has_parent = |names: &[Vec<u8>]| names.iter().all(|n| n != b"l");
        let link = stored(target.as_bytes(), SymlinkPlace { dir: &names(dir), prefix: &names(prefix) }, &has_parent);
        let string = |bytes| String::from_utf8(bytes).unwrap();
        (string(link.path), link.text.map(string))
    }

    #[test]
    fn targets_in_the_mount_are_stored_as_paths_that_libhdf5_follows() {
        let cases = [
            ("../c", "a", "/g/c"),
            ("../c", "a/b", "/g/a/c"),
            ("../../a/c", "a/b", "/g/a/c"),
            ("../../a/./c//", "a/b", "/g/a/c"),
            ("..", "a", "/g"),
            ("../", "a/b", "/g/a"),
            (".././c", "a", "/g/c"),
            ("../b/c", "a/b", "/g/a/b/c"),
            ("b/../c", "a", "/g/a/c"),
            ("b/../../l/c", "a", "/g/l/c"),
            ("../%2Eh5dir/x", "a", "/g/.h5dir/x"),
            ("../../a/%2E%2E", "a/b", "/g/a/.."),
            ("./x", "a/b", "x"),
            ("./", "a", "."),
            ("x//y/", "a", "x/y"),
            (".h5dir/x", "a", ".h5dir/x"),
            ("%2Eh5dir/x", "", ".h5dir/x"),
        ];
        for (target, dir, path) in cases {
            assert_eq!(stored_in(target, dir, "g"), (path.to_owned(), Some(target.to_owned())), "{target} in {dir}");
        }
        assert_eq!(stored_in("../c", "a", "").0, "/c");
        assert_eq!(stored_in("..", "a", "").0, "/");
    }

    /// Every path is shown as its target in every directory.
    #[test]
    fn other_targets_have_no_text_beside_them() {
        let g = [b"g".to_vec()];
        let followed = ["x", "x/y", "%2E%2E/x", "100%", "a/.h5dir", ".hidden", ".", "%20soft link to %2Fout%2Fx"];
        let verbatim = "../../x l/../x ../l/.. ../../../d / /etc/passwd /g/x ../.h5dir/status %41 a%2Fb %00 %EMPTY ../%41";
        let verbatim = verbatim.split(' ').chain(["%20soft link to %2Fg%2Fx"]);
        for (target, is_verbatim) in followed.into_iter().map(|t| (t, false)).chain(verbatim.map(|t| (t, true))) {
            let (path, text) = stored_in(target, "a", "g");
            assert_eq!((path.as_bytes().starts_with(VERBATIM), text), (is_verbatim, None), "{path}");
            for depth in 0..4 {
                let shown = text_of(path.as_bytes(), || None).unwrap_or_else(|| soft(path.as_bytes(), depth, &g));
                assert_eq!(shown.escape_ascii().to_string(), target);
            }
        }
        assert_eq!(stored_in("%2E%2E/x", "a", "g").0, "../x");
        assert_eq!(stored_in("%20soft link to %2Fout%2Fx", "a", "g").0, "/out/x");
        assert_eq!(stored_in("../../x", "a", "g").0, "/.h5dir/symlink/../../x");
        assert_eq!(stored_in(".h5dir/status", "", "g").0, "/.h5dir/symlink/.h5dir/status");
        let long = "../".to_owned() + &"n/".repeat(2046);
        assert_eq!(stored_in(&long, "a", "a_longer_name").0, "/.h5dir/symlink/".to_owned() + &long, "its path is too long");
    }

    #[test]
    fn stored_texts_that_no_target_has_are_ignored() {
        let text = |text: &[u8]| text_of(b"/c", || Some(text.to_vec()));
        assert_eq!(text(b"../c"), Some(b"../c".to_vec()));
        assert_eq!((text(b""), text(b"a\0b"), text(&[b'a'; 4096])), (None, None, None));
        assert_eq!(text_of(b"/.h5dir/symlink/", || Some(b"x".to_vec())), None);
        assert_eq!(text_of(b"/.h5dir/symlink/../x", || Some(b"x".to_vec())), Some(b"../x".to_vec()));
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
