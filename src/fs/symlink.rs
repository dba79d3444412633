//! Targets of symbolic links. Those of HDF5 links are relative and never outside the mount.
//!
//! A target that no path in the container stands for (an absolute one, one that leaves the mount)
//! is stored as it is after [`VERBATIM`], a path in the control directory, which no object has.
//!
//! In HDF5 `..` is an ordinary name, so a target can only lead up by the `..` written here, exactly
//! as many as the link lies deep. A target that cannot be reached is one name that no file has.

use super::name::{CONTROL, file_name, file_name_escaped, unescape};

/// Longest target that the kernel takes, bytes.
const TARGET_MAX: usize = 4095;

/// Path of a soft link that holds a target as it is, before the target.
const VERBATIM: &[u8] = b"/.h5dir/symlink/";

/// Path of the soft link that holds `target` as it is.
pub fn verbatim(target: &[u8]) -> Vec<u8> {
    [VERBATIM, target].concat()
}

/// The target that the soft link `path` holds as it is.
pub fn target_of_verbatim(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(VERBATIM).filter(|t| !t.is_empty() && t.len() <= TARGET_MAX && !t.contains(&0))
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
            // Distinguishes it from a relative link, so that a copy is stored the same.
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

/// Path of the soft link for the symbolic link `target` in `directory` (link names from the root of
/// the mount). Shown again, it is `target` or a simpler spelling of it. `None` for a target that no
/// path in the container stands for: see [`verbatim`].
pub fn stored(target: &[u8], directory: &[Vec<u8>], prefix: &[Vec<u8>]) -> Option<Vec<u8>> {
    let depth = directory.len();
    // The target shown for a dangling link contains its path.
    if let Some(path) = unescape(target).as_deref().and_then(|t| t.strip_prefix(b" soft link to "))
        && soft(path, depth, prefix) == target
    {
        return Some(path.to_vec());
    }
    let names: Vec<&[u8]> = components(target).collect();
    let up = names.iter().take_while(|n| **n == b"..").count();
    let rest = names.get(up..)?;
    if target.first() == Some(&b'/') || up > depth {
        return None;
    }
    let at_root = up == depth;
    if at_root && rest.first() == Some(&CONTROL) {
        return None;
    }
    let mut path: Vec<Vec<u8>> = Vec::new();
    let absolute = up > 0 || depth == 0 && target.starts_with(b"./");
    if absolute {
        path.extend(prefix.iter().cloned());
        path.extend(directory.iter().take(depth.saturating_sub(up)).cloned());
    }
    for (i, shown) in rest.iter().enumerate() {
        let name = unescape(shown)?.into_owned();
        let control = i == 0 && at_root && name == CONTROL && **shown == *file_name_escaped(CONTROL);
        path.push(if control || *file_name(&name) == **shown { name } else { return None });
    }
    // Names that cannot be part of a path: they would divide it, or be skipped.
    if path.iter().any(|n| n.is_empty() || n == b"." || n.iter().any(|b| matches!(b, b'/' | 0))) {
        return None;
    }
    let joined = path.join(&b'/');
    Some(match absolute {
        false if joined.is_empty() => b".".to_vec(),
        false => joined,
        true => [b"/", joined.as_slice()].concat(),
    })
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

    #[test]
    fn stored_targets_are_shown_as_they_were_given() {
        let dir = [b"a".to_vec(), b"b".to_vec()];
        let g = [b"g".to_vec()];
        let same: [(&[u8], &[u8]); 7] = [
            (b"x", b"x"),
            (b"x/y", b"x/y"),
            (b".", b"."),
            (b"../../c/d", b"/g/c/d"),
            (b"../..", b"/g"),
            (b"%2E%2E/x", b"../x"),
            (b"%20soft link to %2Fout%2Fx", b"/out/x"),
        ];
        for (target, path) in same {
            assert_eq!(stored(target, &dir, &g).as_deref(), Some(path), "{}", String::from_utf8_lossy(target));
            assert_eq!(soft(path, 2, &g), target);
        }
        assert_eq!(stored(b"%2Eh5dir/x", &[], &[]).as_deref(), Some(&b".h5dir/x"[..]));
        for (target, path) in [(&b"./a"[..], &b"/g/a"[..]), (b"a", b"a"), (b"./%2Eh5dir/x", b"/g/.h5dir/x")] {
            assert_eq!(stored(target, &[], &g).as_deref(), Some(path));
            assert_eq!(soft(path, 0, &g), target);
        }
        // A simpler spelling of the same path.
        assert_eq!(stored(b"../x", &dir, &g).as_deref(), Some(&b"/g/a/x"[..]));
        assert_eq!(stored(b"x//y/", &dir, &g).as_deref(), Some(&b"x/y"[..]));
        for wrong in [&b"/etc/passwd"[..], b"../../../x", b"x/../y", b"../../.h5dir/status", b"%41", b"a%2Fb", b"%00", b"%EMPTY"] {
            assert_eq!(stored(wrong, &dir, &g), None, "{}", String::from_utf8_lossy(wrong));
        }
    }
}
