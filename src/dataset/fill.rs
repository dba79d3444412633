//! The fill value: what elements that were never written read as.

/// One element's bytes, repeated over the dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillPattern {
    /// Empty when every byte is zero.
    element: Vec<u8>,
}

impl FillPattern {
    /// Zero bytes.
    pub fn zero() -> Self {
        FillPattern { element: Vec::new() }
    }

    /// `element` repeated; a pattern of another length than the element size is zero bytes.
    pub fn new(element: &[u8], element_size: u64) -> Self {
        if element.len() as u64 != element_size || element.iter().all(|&b| b == 0) {
            Self::zero()
        } else {
            FillPattern { element: element.to_vec() }
        }
    }

    /// True when holes read as zero bytes, as POSIX demands of holes.
    pub fn is_zero(&self) -> bool {
        self.element.is_empty()
    }

    /// The element's bytes; empty for zero.
    pub fn element(&self) -> &[u8] {
        &self.element
    }

    /// Fills `buf`, whose first byte is byte `offset` of the dataset.
    pub fn fill(&self, offset: u64, buf: &mut [u8]) {
        let n = self.element.len();
        if n == 0 {
            buf.fill(0);
            return;
        }
        let skip = (offset % n as u64) as usize;
        let mut bytes = self.element.iter().cycle().skip(skip);
        // One pattern by bytes, then by doubling copies.
        let first = n.min(buf.len());
        for b in buf.iter_mut().take(first) {
            *b = bytes.next().copied().unwrap_or(0);
        }
        let mut done = first;
        while done > 0 && done < buf.len() {
            let take = done.min(buf.len().saturating_sub(done));
            buf.copy_within(..take, done);
            done = done.saturating_add(take);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_anchored_at_byte_0() {
        let f = FillPattern::new(&[1, 2, 3], 3);
        for offset in 0..7u64 {
            for len in 0..20usize {
                let mut b = vec![0; len];
                f.fill(offset, &mut b);
                assert!(b.iter().enumerate().all(|(i, x)| *x as u64 == (offset + i as u64) % 3 + 1));
            }
        }
        assert!(FillPattern::new(&[0, 0], 2).is_zero() && FillPattern::new(&[1], 2).is_zero());
    }
}
