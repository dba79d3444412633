//! Damage done to small valid files.

use super::random::Random;
use h5dir::base::checksum::lookup3;
use std::path::{Path, PathBuf};

/// A stretch of the file that ends in, or holds, its own checksum.
pub struct Sealed {
    start: usize,
    end: usize,
    checksum: usize,
}

impl Sealed {
    /// The checksum of the bytes now; a direct block's is taken with its own field zero.
    fn sum(&self, file: &[u8]) -> u32 {
        if self.checksum + 4 == self.end {
            return lookup3(&file[self.start..self.checksum], 0);
        }
        let mut bytes = file[self.start..self.end].to_vec();
        bytes[self.checksum - self.start..][..4].fill(0);
        lookup3(&bytes, 0)
    }

    fn holds(&self, file: &[u8]) -> bool {
        file[self.checksum..self.checksum + 4] == self.sum(file).to_le_bytes()
    }
}

/// A valid file.
pub struct Fixture {
    /// Its name.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its checksummed structures.
    pub sealed: Vec<Sealed>,
}

const SIGNATURES: [&[u8]; 19] = [
    b"OHDR",
    b"OCHK",
    b"BTHD",
    b"BTIN",
    b"BTLF",
    b"FRHP",
    b"FHIB",
    b"FAHD",
    b"FADB",
    b"EAHD",
    b"EAIB",
    b"EASB",
    b"EADB",
    b"SMTB",
    b"SMLI",
    b"FSHD",
    b"MDCI",
    b"\x89HDF", // encoded dataspaces: selections of structured chunks
    b"\x01\0\x08",
];

/// Finds the checksummed structures by their signatures, and their ends by trying.
fn find_sealed(file: &[u8]) -> Vec<Sealed> {
    let mut sealed = Vec::new();
    for start in 0..file.len().saturating_sub(8) {
        let rest = &file[start..];
        if SIGNATURES.iter().any(|s| rest.starts_with(s)) {
            let most = rest.len().min(if rest.starts_with(b"MDCI") { 1 << 14 } else { 3000 });
            let found = (8..=most).map(|n| Sealed { start, end: start + n, checksum: start + n - 4 }).find(|s| s.holds(file));
            sealed.extend(found);
        } else if rest.starts_with(b"FHDB") {
            let sizes = (6..14).map(|n| 1usize << n).filter(|n| *n <= rest.len());
            let all = sizes.flat_map(|n| (13..30).map(move |at| Sealed { start, end: start + n, checksum: start + at }));
            sealed.extend(all.into_iter().find(|s| s.holds(file)));
        }
    }
    // Inner ones (of a cache image) before what is around them.
    sealed.sort_by_key(|s| s.end - s.start);
    sealed
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.extension().is_some_and(|e| e == "h5" || e == "nc" || e == "hdf5")
            && (1..=64 << 10).contains(&path.metadata().unwrap().len())
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The files to begin with.
pub fn fixtures() -> Vec<Fixture> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mutants");
    let paths = files_below(&std::env::var_os("H5DIR_MUTANT_FILES").map_or(own, PathBuf::from));
    let load = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        Fixture { name: path.file_stem().unwrap().to_string_lossy().into_owned(), sealed: find_sealed(&bytes), bytes }
    };
    paths.iter().map(load).collect()
}

const VALUES: [u64; 22] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    64,
    255,
    256,
    4096,
    0x7fff,
    0xffff,
    1 << 20,
    1 << 28,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

/// One damaged copy.
pub fn mutant(f: &Fixture, r: &mut Random) -> Vec<u8> {
    let mut file = f.bytes.clone();
    let mut touched = Vec::new();
    for _ in 0..=r.index(5) {
        let n = file.len();
        // Half of the damage goes where metadata is dense: into checksummed structures.
        let at = match f.sealed.get(r.index(f.sealed.len() * 2)) {
            Some(s) => s.start + r.index(s.end - s.start),
            None => r.index(n),
        };
        let at = at.min(n.saturating_sub(1));
        let len = match r.index(12) {
            0..=2 => {
                file[at] ^= 1 << r.index(8);
                1
            }
            3 | 4 => {
                file[at] = r.next() as u8;
                1
            }
            5..=8 => {
                let width = [1, 2, 4, 8][r.index(4)].min(n - at);
                let value = VALUES[r.index(VALUES.len())];
                let value = if r.index(4) == 0 { value.wrapping_sub(1) } else { value };
                file[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                width
            }
            // An address or a length from elsewhere in the file.
            9 => {
                let width = [2, 4, 8, 8][r.index(4)].min(n - at);
                let from = r.index(n - width);
                file.copy_within(from..from + width, at);
                width
            }
            // A place in the file.
            10 => {
                let width = 8.min(n - at);
                file[at..at + width].copy_from_slice(&(r.index(n) as u64).to_le_bytes()[..width]);
                width
            }
            _ if r.index(3) == 0 => {
                file.truncate(1 + r.index(n));
                break;
            }
            _ => {
                let width = (1 + r.index(200)).min(n - at);
                let from = r.index(n - width);
                file.copy_within(from..from + width, at);
                width
            }
        };
        touched.push(at..at + len);
    }
    // Mostly made right again, or nothing behind the checksum would ever be reached.
    if r.index(8) != 0 {
        let end = file.len();
        for s in f.sealed.iter().filter(|s| s.end <= end && touched.iter().any(|t| t.start < s.end && s.start < t.end)) {
            let sum = s.sum(&file);
            file[s.checksum..s.checksum + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    file
}
