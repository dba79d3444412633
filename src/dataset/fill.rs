//! The fill value: the value of elements that were never written.

use crate::base::fill::Fill;
use crate::format::message::fill_value::FillValue;
use std::ops::Range;

/// Time of writing the fill value: never.
const FILL_NEVER: u8 = 1;

/// The bytes of the fill value, repeated over the dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillPattern {
    /// The bytes of one element; empty when every byte is zero.
    element: Vec<u8>,
    /// Programs may read anything from elements that were never written.
    is_unspecified: bool,
}

impl FillPattern {
    /// A fill value of zero bytes.
    pub(crate) fn zero() -> Self {
        FillPattern { element: Vec::new(), is_unspecified: false }
    }

    /// The pattern of a dataset with this fill value message.
    pub(crate) fn of(message: &FillValue, element_size: u64) -> Self {
        let is_unspecified = message.fill == Fill::Undefined || message.write_time == FILL_NEVER;
        FillPattern { is_unspecified, ..Self::of_fill(&message.fill, element_size) }
    }

    fn of_fill(fill: &Fill, element_size: u64) -> Self {
        match fill {
            Fill::Value(value) => Self::new(value, element_size),
            Fill::Default | Fill::Undefined => Self::zero(),
        }
    }

    /// True if elements of `element_size` bytes that were never written have the same bytes with
    /// `fill`.
    pub(crate) fn reads_like(&self, fill: &Fill, element_size: u64) -> bool {
        self.element == Self::of_fill(fill, element_size).element
    }

    /// Repeats `element`; one of another length than the element size counts as zero bytes.
    pub(crate) fn new(element: &[u8], element_size: u64) -> Self {
        if element.len() as u64 != element_size || element.iter().all(|&b| b == 0) {
            Self::zero()
        } else {
            FillPattern { element: element.to_vec(), is_unspecified: false }
        }
    }

    /// True when unwritten elements read as zero bytes, as POSIX holes must.
    pub(crate) fn is_zero(&self) -> bool {
        self.element.is_empty()
    }

    /// True when every program reads unwritten elements as zero bytes, so that zeros need not be
    /// stored. libhdf5 does not read chunks that are not there if the fill value is undefined, or
    /// never written.
    pub(crate) fn stands_for_zeros(&self) -> bool {
        self.is_zero() && !self.is_unspecified
    }

    /// The element's bytes; empty for zero.
    pub(crate) fn element(&self) -> &[u8] {
        &self.element
    }

    /// The ranges of `bytes`, which are those from `offset` of a dataset, whose elements have
    /// another value, and those that hold a part of an element.
    pub(crate) fn differing(&self, bytes: &[u8], offset: u64, element_size: u64) -> Vec<Range<usize>> {
        let size = usize::try_from(element_size).unwrap_or(usize::MAX).max(1);
        let mut value = vec![0; size.min(bytes.len())];
        self.fill(0, &mut value);
        let mut kept: Vec<Range<usize>> = Vec::new();
        let skipped = usize::try_from(offset.checked_rem(element_size.max(1)).unwrap_or(0)).unwrap_or(0);
        let head = size.saturating_sub(skipped).checked_rem(size).unwrap_or(0).min(bytes.len());
        let (first, rest) = bytes.split_at_checked(head).unwrap_or((bytes, &[]));
        kept.extend((!first.is_empty()).then_some(0..head));
        for (i, element) in rest.chunks(size).enumerate() {
            if element == value.as_slice() {
                continue;
            }
            let start = head.saturating_add(i.saturating_mul(size));
            let end = start.saturating_add(element.len());
            match kept.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => kept.push(start..end),
            }
        }
        kept
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
        // Copies one element byte by byte, then doubles the filled part.
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
