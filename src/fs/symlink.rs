//! Targets of symbolic links: relative, and never out of the mount.
//!
//! In HDF5 `..` is an ordinary name, so a target can only lead up by the `..` written here, exactly
//! as many as the link lies deep. A target that cannot be reached is one name that no file has.

use super::name::{file_name, file_name_escaped};
use super::view::CONTROL;

/// Longest target that the kernel takes, bytes.
const TARGET_MAX: usize = 4095;

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
    }
    // The root's own `.h5dir` is not the link of that name.
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

/// Target that leads `up` directories up from the link's own directory (0 = to it).
pub fn up(up: usize) -> Vec<u8> {
    if up == 0 { b".".to_vec() } else { vec![&b".."[..]; up].join(&b'/') }
}

/// A target that no file has: it begins with an escaped space, and no name is shown with one.
pub fn dangling(what: &[u8], text: &[u8]) -> Vec<u8> {
    // Escaped as one component: what is left of `/` and NUL cannot be resolved.
    file_name_escaped(&[b" ", what, b" link to ", text].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_targets_become_relative() {
        assert_eq!(soft(b"/a/b", 0, &[]), b"a/b");
        assert_eq!(soft(b"/a//b/", 2, &[]), b"../../a/b");
        assert_eq!(soft(b"a/./b", 2, &[]), b"a/b");
        assert_eq!(soft(b"/", 1, &[]), b"..");
        assert_eq!(soft(b"/", 0, &[]), b".");
        assert_eq!(soft(b"/.h5dir/x", 1, &[]), b"../%2Eh5dir/x", "the link of that name, not the control directory");
        assert_eq!(soft(b".h5dir", 1, &[]), b".h5dir");
    }

    #[test]
    fn no_target_leaves_the_mount() {
        assert_eq!(soft(b"/../../../etc/passwd", 0, &[]), b"%2E%2E/%2E%2E/%2E%2E/etc/passwd");
        assert_eq!(soft(b"../../..", 0, &[]), b"%2E%2E/%2E%2E/%2E%2E");
        let long = soft(&b"/a".repeat(3000), 0, &[]);
        assert!(long.len() <= 255 && !long.contains(&b'/'));
        let target = dangling(b"external", b"../../etc/shadow:/");
        assert_eq!(target, b"%20external link to ..%2F..%2Fetc%2Fshadow:%2F");
        // A link of that name, or of the name it stands for, is shown otherwise.
        assert_ne!(file_name(&target), target);
        assert_ne!(file_name(b" external link to ../../etc/shadow:/"), target);
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
}
