//! Object comment message (0x000D): text that ends with a NUL.

/// The text in `body`, up to the first NUL or the end.
pub fn decode(body: &[u8]) -> &[u8] {
    body.split(|b| *b == 0).next().unwrap_or_default()
}

/// Encodes the body.
pub fn encode(text: &[u8]) -> Vec<u8> {
    [text, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_ends_at_the_first_nul() {
        assert_eq!(decode(&encode(b"text")), b"text");
        assert_eq!(decode(b"ab\0cd\0\0"), b"ab");
        assert_eq!((decode(b"ab"), decode(b"\0"), decode(b"")), (&b"ab"[..], &b""[..], &b""[..]));
    }
}
