//! Link and attribute names to file and xattr names, and back.
//!
//! A name that can be a file name is itself. One that cannot (empty, `.`, `..`, holding `/` or NUL,
//! longer than 255 bytes), and one that could be mistaken for an escaped name, is escaped:
//!
//! - the bytes `%`, `/`, NUL, and the dots of `.` and `..`, become `%` and two upper-case hex
//!   digits;
//! - the empty name becomes `%EMPTY`;
//! - if the result exceeds the limit, it is cut and ends in `%~` and 16 hex digits of a hash of the
//!   whole name (`user.h5dir.name` is that name).
//!
//! So a file name holds `%` and two hex digits, `%~` or `%EMPTY` only if it is an escaped one.

use std::borrow::Cow;

/// Name of the control directory in the root of the mount; not listed.
pub const CONTROL: &[u8] = b".h5dir";
/// Longest file name, bytes.
pub const NAME_MAX: usize = 255;
/// Longest attribute name after `user.`, bytes.
pub const XATTR_NAME_MAX: usize = 250;
const EMPTY: &[u8] = b"%EMPTY";
const CUT: &[u8] = b"%~";
const CUT_LEN: usize = 18;
/// Bytes of the hash at the end of a cut name.
pub const CUT_HASH: usize = 16;

fn is_hex(b: Option<&u8>) -> bool {
    b.is_some_and(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(b))
}

/// True when `name` has the form of an escaped name.
fn looks_escaped(name: &[u8]) -> bool {
    name == EMPTY
        || name.iter().enumerate().any(|(i, b)| {
            let after = |n: usize| name.get(i.saturating_add(n));
            *b == b'%' && (after(1) == Some(&b'~') || (is_hex(after(1)) && is_hex(after(2))))
        })
}

/// FNV-1a, 64 bits: stable across runs and machines, so that escaped names are too.
pub fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Escapes `name`; the hash of a cut name is that of `hashed`.
fn escape<'a>(name: &'a [u8], hashed: &[u8], limit: usize, must: bool, forbidden: impl Fn(u8) -> bool) -> Cow<'a, [u8]> {
    if !must && name.len() <= limit && !looks_escaped(name) {
        return Cow::Borrowed(name);
    }
    if name.is_empty() {
        return Cow::Borrowed(EMPTY);
    }
    let mut out = Vec::with_capacity(name.len().min(limit).saturating_add(8));
    for &b in name {
        if b == b'%' || forbidden(b) {
            out.extend_from_slice(format!("%{b:02X}").as_bytes());
        } else {
            out.push(b);
        }
        // The rest of a name that is too long only counts in the hash.
        if out.len() > limit {
            break;
        }
    }
    if out.len() > limit {
        out.truncate(limit.saturating_sub(CUT_LEN));
        // A cut inside `%XX` would leave a half escape.
        if let Some(at) = out.iter().rposition(|b| *b == b'%').filter(|at| at.saturating_add(3) > out.len()) {
            out.truncate(at);
        }
        out.extend_from_slice(CUT);
        out.extend_from_slice(format!("{:016X}", hash(hashed)).as_bytes());
    }
    Cow::Owned(out)
}

/// The hash that stands at the end of a cut name.
pub fn cut_hash(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok().filter(|d| d.len() == CUT_HASH && d.bytes().all(|b| is_hex(Some(&b))));
    u64::from_str_radix(digits?, 16).ok()
}

/// File name of the link name `name`.
pub fn file_name(name: &[u8]) -> Cow<'_, [u8]> {
    file_name_within(name, NAME_MAX)
}

/// File name of the link name `name` in `limit` bytes, for a place that adds a suffix.
pub fn file_name_within(name: &[u8], limit: usize) -> Cow<'_, [u8]> {
    let dots = matches!(name, b"." | b"..");
    let must = name.is_empty() || dots || name.iter().any(|b| matches!(b, b'/' | 0));
    escape(name, name, limit, must, |b| matches!(b, b'/' | 0) || (dots && b == b'.'))
}

/// Second file name of `name`, with more bytes escaped: for an attribute with the name of a link.
/// All bytes up to the first one that `file_name` does not escape are escaped. If there is no such
/// byte, the result is that of `file_name`.
pub fn file_name_escaped(name: &[u8]) -> Vec<u8> {
    if name.is_empty() {
        return EMPTY.to_vec();
    }
    // A name that holds `%` may be shown as it is, or with every `%` escaped.
    let plain = file_name(name) == name;
    let left = name.iter().position(|b| !matches!(b, b'/' | 0) && (plain || *b != b'%')).unwrap_or(name.len());
    let (head, rest) = name.split_at(left.saturating_add(1).min(name.len()));
    let mut out: Vec<u8> = head.iter().flat_map(|b| format!("%{b:02X}").into_bytes()).collect();
    out.extend_from_slice(&escape(rest, name, usize::MAX, !rest.is_empty(), |b| matches!(b, b'/' | 0)));
    if out.len() > NAME_MAX {
        out.truncate(NAME_MAX.saturating_sub(CUT_LEN.saturating_add(3)));
        if let Some(at) = out.iter().rposition(|b| *b == b'%').filter(|at| at.saturating_add(3) > out.len()) {
            out.truncate(at);
        }
        out.extend_from_slice(CUT);
        out.extend_from_slice(format!("{:016X}", hash(name)).as_bytes());
    }
    out
}

/// Name after `user.` of the attribute `name`.
pub fn xattr_name(name: &[u8]) -> Cow<'_, [u8]> {
    let ours = name.starts_with(b"h5dir.");
    let must = name.is_empty() || ours || name.contains(&0);
    if ours {
        // Only the first byte needs to differ from our own names.
        let mut out = b"%68".to_vec();
        out.extend_from_slice(&escape(
            name.get(1..).unwrap_or_default(),
            name,
            XATTR_NAME_MAX.saturating_sub(3),
            name.contains(&b'%') || name.contains(&0),
            |b| b == 0,
        ));
        return Cow::Owned(out);
    }
    escape(name, name, XATTR_NAME_MAX, must, |b| b == 0)
}

/// The name that a file or xattr name stands for; `None` when it was cut and must be searched for.
pub fn unescape(shown: &[u8]) -> Option<Cow<'_, [u8]>> {
    if shown == EMPTY {
        return Some(Cow::Borrowed(b""));
    }
    if !looks_escaped(shown) {
        return Some(Cow::Borrowed(shown));
    }
    let mut out = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some((&b, tail)) = rest.split_first() {
        if b == b'%' {
            if tail.first() == Some(&b'~') {
                return None;
            }
            if let Some(hex) = tail.get(..2).filter(|h| is_hex(h.first()) && is_hex(h.get(1))) {
                let value = std::str::from_utf8(hex).ok().and_then(|h| u8::from_str_radix(h, 16).ok())?;
                out.push(value);
                rest = tail.get(2..).unwrap_or_default();
                continue;
            }
        }
        out.push(b);
        rest = tail;
    }
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_pass_through() {
        for n in [&b"a"[..], b"50%", b"100% sure", b"...", b".hidden", b"\xff\xfe", b"a\nb", b"-rf", b" ", &[b'x'; 255]] {
            assert_eq!(file_name(n), n);
            assert_eq!(unescape(n).as_deref(), Some(n));
        }
    }

    #[test]
    fn impossible_names_are_escaped() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b".", b"%2E"),
            (b"..", b"%2E%2E"),
            (b"", b"%EMPTY"),
            (b"a/b", b"a%2Fb"),
            (b"\0", b"%00"),
            (b"%2F", b"%252F"),
            (b"%EMPTY", b"%25EMPTY"),
            (b"x%~", b"x%25~"),
        ];
        for (name, shown) in cases {
            assert_eq!(file_name(name), shown);
            assert_eq!(unescape(shown).as_deref(), Some(name));
        }
        let long = file_name(&[b'x'; 300]).into_owned();
        assert!(long.len() <= NAME_MAX && unescape(&long).is_none());
        assert_ne!(long, file_name(&[b'x'; 301]).into_owned());
    }

    /// Regression: `%2F` the attribute and `%2F` the link were both shown as `%252F`.
    #[test]
    fn the_second_name_of_an_attribute_is_another() {
        let long = [b'y'; 300];
        let names: [&[u8]; 10] = [b"a", b"%2F", b"%", b"%%", b"a/b", b"/x", b"%252F", b"\0%2Fz", &long, &long[..255]];
        for name in names {
            let (first, second) = (file_name(name).into_owned(), file_name_escaped(name));
            assert_ne!(first, second, "{name:?}");
            assert!(second.len() <= NAME_MAX && !second.contains(&b'/'));
            match unescape(&second) {
                Some(n) => assert_eq!(n, name),
                None => assert_eq!(cut_hash(&second[second.len() - CUT_HASH..]), Some(hash(name))),
            }
        }
    }

    #[test]
    fn xattr_names() {
        assert_eq!(xattr_name(b"a/b"), &b"a/b"[..]);
        assert_eq!(xattr_name(b"h5dir.kind"), &b"%685dir.kind"[..]);
        assert_eq!(unescape(b"%685dir.kind").as_deref(), Some(&b"h5dir.kind"[..]));
        assert!(xattr_name(&[b'n'; 251]).len() <= XATTR_NAME_MAX);
        assert_eq!(xattr_name(b""), EMPTY);
        let ours = [b"h5dir.", [b'n'; 300].as_slice()].concat();
        let shown = xattr_name(&ours).into_owned();
        assert!(shown.len() <= XATTR_NAME_MAX);
        assert_eq!(cut_hash(&shown[shown.len() - CUT_HASH..]), Some(hash(&ours)));
    }

    proptest! {
        #[test]
        fn every_short_name_comes_back(name in prop::collection::vec(prop_oneof![Just(b'%'), Just(b'/'), Just(b'.'), Just(0u8), Just(b'2'), Just(b'F'), any::<u8>()], 0..60)) {
            for shown in [file_name(&name).into_owned(), xattr_name(&name).into_owned(), file_name_escaped(&name)] {
                let back = unescape(&shown);
                prop_assert_eq!(back.as_deref(), Some(name.as_slice()));
            }
            let shown = file_name(&name);
            prop_assert!(!shown.is_empty() && !shown.contains(&b'/') && !shown.contains(&0) && !matches!(&*shown, b"." | b".."));
        }
    }
}
