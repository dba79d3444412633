//! Test support: packs of chunks written by libhdf5; tests/fixtures/codecs/make_codecs.py defines
//! the format.

use super::registry::{self, Decoder, encoder};
use super::{FilterError, Params};

/// One stored chunk and what libhdf5 decodes it to.
pub(super) struct Record<'a> {
    /// Description of the chunk.
    pub(super) label: &'a str,
    /// Filter identifier.
    pub(super) filter: u16,
    /// Client data values.
    pub(super) cd_values: Vec<u32>,
    /// Stored bytes.
    pub(super) stored: &'a [u8],
    /// Length of the decoded bytes.
    pub(super) length: usize,
    hash: u64,
}

impl Record<'_> {
    /// Parameters as the pipeline sets them.
    pub(super) fn params(&self) -> Params<'_> {
        Params { cd_values: &self.cd_values, expected: self.length, limit: self.length }
    }

    /// Panics unless `got` equals libhdf5's output.
    pub(super) fn compare(&self, got: &Result<Vec<u8>, FilterError>) -> bool {
        match got {
            Ok(b) if b.len() == self.length && fnv1a(b) == self.hash => true,
            Ok(b) => {
                // Shown when the test fails.
                println!("{} {:?}: {} bytes (of {}) differ", self.label, self.cd_values, b.len(), self.length);
                false
            }
            Err(e) => {
                println!("{} {:?}: {e}", self.label, self.cd_values);
                false
            }
        }
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// The records of a pack.
pub(super) fn records(mut pack: &[u8]) -> Vec<Record<'_>> {
    let mut all = Vec::new();
    while !pack.is_empty() {
        let mut next = |n: usize| {
            let (a, b) = pack.split_at(n);
            pack = b;
            a
        };
        let n = usize::from(next(1)[0]);
        let label = std::str::from_utf8(next(n)).unwrap();
        let filter = u16::from_le_bytes(next(2).try_into().unwrap());
        let n = usize::from(next(1)[0]);
        let cd_values = (0..n).map(|_| u32::from_le_bytes(next(4).try_into().unwrap())).collect();
        let n = u32::from_le_bytes(next(4).try_into().unwrap()) as usize;
        let stored = next(n);
        let length = u32::from_le_bytes(next(4).try_into().unwrap()) as usize;
        let hash = u64::from_le_bytes(next(8).try_into().unwrap());
        all.push(Record { label, filter, cd_values, stored, length, hash });
    }
    all
}

fn decoder(filter: u16) -> Decoder {
    registry::decoder(filter).unwrap()
}

/// Checks that every record decodes to libhdf5's output within exactly its length, and not with a
/// limit one byte lower.
pub(super) fn check(pack: &[u8]) {
    let all = records(pack);
    assert!(!all.is_empty());
    let wrong = all.iter().filter(|r| !r.compare(&decoder(r.filter)(r.stored, &r.params()))).count();
    assert_eq!(wrong, 0, "of {}", all.len());
    for r in all.iter().filter(|r| r.length > 0) {
        let p = Params { limit: r.length - 1, ..r.params() };
        assert!(decoder(r.filter)(r.stored, &p).is_err(), "{}: limit ignored", r.label);
    }
    for r in &all {
        check_encoding(r);
    }
}

/// Checks that encoded chunks decode to the original.
fn check_encoding(r: &Record<'_>) {
    let Some(encode) = encoder(r.filter) else { return };
    let data = decoder(r.filter)(r.stored, &r.params()).unwrap();
    match encode(&data, &r.params()) {
        Ok(Some(stored)) => {
            let back = decoder(r.filter)(&stored, &r.params());
            // ZFP is lossy.
            assert!(r.filter == 32013 || back.as_ref() == Ok(&data), "{} {:?}: {:?}", r.label, r.cd_values, back.map(|b| b.len()));
            assert!(stored.len() <= 100 + r.stored.len() * 3, "{}: {} bytes, libhdf5 {}", r.label, stored.len(), r.stored.len());
        }
        Ok(None) => assert!(r.stored.len() * 10 > data.len() * 9, "{}: declined, libhdf5 {} of {}", r.label, r.stored.len(), data.len()),
        Err(e) => panic!("{} {:?}: {e}", r.label, r.cd_values),
    }
}

/// Checks that truncated and bit-flipped records (small ones: at all positions) neither panic nor
/// exceed the limit.
pub(super) fn damage(pack: &[u8], few: usize) {
    let all = records(pack);
    let step = all.len().div_ceil(few).max(1);
    for r in all.iter().step_by(step) {
        let decode = decoder(r.filter);
        let p = Params { limit: r.length.saturating_mul(2), ..r.params() };
        let stride = r.stored.len().div_ceil(400).max(1);
        for at in (0..r.stored.len()).step_by(stride) {
            let mut bad = r.stored.to_vec();
            for mask in [1, 0x80, 0xff] {
                bad[at] ^= mask;
                if let Ok(out) = decode(&bad, &p) {
                    assert!(out.len() <= p.limit);
                }
                bad[at] = r.stored[at];
            }
            if let Ok(out) = decode(&r.stored[..at], &p) {
                assert!(out.len() <= p.limit);
            }
        }
        // A header of all ones, or of zeros.
        for n in 1..r.stored.len().min(48) {
            for fill in [0, 0xff, 0x7f] {
                let mut bad = r.stored.to_vec();
                bad[..n].fill(fill);
                let _ = decode(&bad, &p);
            }
        }
        // Client data of another dataset.
        for i in 0..r.cd_values.len() {
            for v in [0, 1, 3, 0x7fff_ffff, u32::MAX] {
                let mut cd = r.cd_values.clone();
                cd[i] = v;
                let _ = decode(r.stored, &Params { cd_values: &cd, ..p });
            }
            let _ = decode(r.stored, &Params { cd_values: &r.cd_values[..i], ..p });
        }
    }
    let p = Params { cd_values: &all[0].cd_values, expected: 100, limit: 100 };
    assert!(decoder(all[0].filter)(&[], &p).map_or(true, |out| out.is_empty()), "something out of nothing");
}

/// Elements of odd sizes, over 255 bytes, and of array type, through several filters.
#[test]
fn golden_compound() {
    check(include_bytes!("../../tests/fixtures/codecs/compound.pack"));
}

/// Mutates the packs of H5DIR_CODEC_SWEEP at random for H5DIR_CODEC_FUZZ seconds: no panic, no
/// output beyond the limit, no slow decode.
#[test]
fn fuzz() {
    let (Some(dir), Some(seconds)) = (std::env::var_os("H5DIR_CODEC_SWEEP"), std::env::var("H5DIR_CODEC_FUZZ").ok()) else { return };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(seconds.parse().unwrap());
    let packs: Vec<Vec<u8>> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "pack"))
        .map(|p| std::fs::read(p).unwrap())
        .collect();
    let all: Vec<Record<'_>> = packs.iter().flat_map(|p| records(p)).filter(|r| r.stored.len() < 20_000 && !r.stored.is_empty()).collect();
    let mut state = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n.max(1) as u64) as usize
    };
    let (mut count, mut fine, mut slowest) = (0u64, 0u64, std::time::Duration::ZERO);
    while std::time::Instant::now() < deadline {
        let r = &all[random(all.len())];
        let mut bad = r.stored.to_vec();
        for _ in 0..=random(4) {
            let head = bad.len().min(200);
            let at = if random(3) == 0 { random(bad.len()) } else { random(head) };
            match random(4) {
                0 => bad[at] ^= 1 << random(8),
                1 => bad[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                2 => bad[at] = random(256) as u8,
                _ => bad.truncate(at.max(1)),
            }
        }
        let mut cd = r.cd_values.clone();
        if random(8) == 0 && !cd.is_empty() {
            let i = random(cd.len());
            cd[i] = [0, 1, 2, 255, 1 << 16, u32::MAX][random(6)];
        }
        let limit = [r.length, r.length * 4, r.length / 2, 1 << 20][random(4)];
        let started = std::time::Instant::now();
        if let Ok(out) = decoder(r.filter)(&bad, &Params { cd_values: &cd, expected: r.length, limit }) {
            assert!(out.len() <= limit);
            fine += 1;
        }
        let took = started.elapsed();
        if took > slowest {
            println!("{took:?} {} limit {limit}", r.label);
            slowest = took;
        }
        count += 1;
    }
    println!("{count} mutations, {fine} still decode, slowest {slowest:?}");
}

/// Checks a directory of packs from `make_codecs.py --sweep DIR`, if H5DIR_CODEC_SWEEP names one.
#[test]
fn sweep() {
    let Some(dir) = std::env::var_os("H5DIR_CODEC_SWEEP") else { return };
    let (mut count, mut wrong) = (0, 0);
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "pack") {
            continue;
        }
        let pack = std::fs::read(&path).unwrap();
        let started = std::time::Instant::now();
        let (mut n, mut bad, mut bytes) = (0, 0, 0);
        for r in records(&pack) {
            let got = decoder(r.filter)(r.stored, &r.params());
            n += 1;
            bytes += r.length;
            bad += usize::from(!r.compare(&got));
            if r.compare(&got) {
                check_encoding(&r);
            }
        }
        println!("{}: {n} chunks, {bad} wrong, {bytes} bytes in {:?}", path.display(), started.elapsed());
        count += n;
        wrong += bad;
    }
    assert_eq!(wrong, 0, "of {count}");
}
