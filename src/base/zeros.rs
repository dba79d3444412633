//! Recognizes zeros.

/// Bytes compared at once.
const BLOCK_BYTES: usize = 4096;
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// True if all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(BLOCK_BYTES).all(|part| ZEROS.get(..part.len()) == Some(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_found_wherever_it_is() {
        let mut bytes = vec![0; 3 * BLOCK_BYTES + 5];
        assert!(is_zero(&bytes) && is_zero(&[]));
        for at in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 4] {
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
            bytes[at] = 0;
        }
    }
}
