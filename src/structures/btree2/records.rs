//! Records of one node, contiguous in memory.

/// Records of equal size.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    /// Bytes of each, not 0.
    size: usize,
}

impl Records {
    /// The records of `size` bytes that `bytes` hold.
    pub fn new(bytes: Vec<u8>, size: usize) -> Self {
        Records { bytes, size: size.max(1) }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.bytes.len().checked_div(self.size).unwrap_or(0)
    }

    /// True if there is no record.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of all records.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn at(&self, i: usize) -> usize {
        i.saturating_mul(self.size).min(self.bytes.len())
    }

    fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.at(i)..self.at(i.saturating_add(1))
    }

    /// Record `i`.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        self.bytes.get(self.range(i)).filter(|r| !r.is_empty())
    }

    /// Inserts `record`, or several, before record `i`.
    pub fn insert(&mut self, i: usize, record: &[u8]) {
        let at = self.at(i);
        self.bytes.splice(at..at, record.iter().copied());
    }

    /// Removes and returns record `i`.
    pub fn remove(&mut self, i: usize) -> Option<Vec<u8>> {
        let range = self.range(i);
        Some(self.bytes.drain(range).collect()).filter(|r: &Vec<u8>| !r.is_empty())
    }

    /// Replaces record `i` by `record`; returns the old one.
    pub fn replace(&mut self, i: usize, record: &[u8]) -> Option<Vec<u8>> {
        let range = self.range(i);
        let old = self.bytes.get_mut(range).filter(|r| !r.is_empty() && r.len() == record.len())?;
        let was = old.to_vec();
        old.copy_from_slice(record);
        Some(was)
    }

    /// Appends all records of `more`.
    pub fn extend(&mut self, more: &Records) {
        self.bytes.extend_from_slice(&more.bytes);
    }

    /// Appends `record`.
    pub fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
    }

    /// Up to `n` records from record `from` on.
    pub fn part(&self, from: usize, n: usize) -> Records {
        let part = self.bytes.get(self.at(from)..self.at(from.saturating_add(n))).unwrap_or_default();
        Records { bytes: part.to_vec(), size: self.size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insert_remove_and_replace() {
        let mut r = Records::new(vec![1, 1, 3, 3], 2);
        r.insert(1, &[2, 2]);
        r.push(&[4, 4]);
        assert_eq!((r.len(), r.get(1), r.get(4)), (4, Some(&[2, 2][..]), None));
        assert_eq!(
            (r.remove(0), r.remove(7), r.replace(0, &[9, 9]), r.replace(3, &[0, 0])),
            (Some(vec![1, 1]), None, Some(vec![2, 2]), None)
        );
        assert_eq!((r.part(1, 9).into_bytes(), r.part(9, 1).is_empty()), (vec![3, 3, 4, 4], true));
    }
}
