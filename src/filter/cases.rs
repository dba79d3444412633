//! Test: chunks written by libhdf5 and its plug-ins decode to what libhdf5 reads.
//! `tests/fixtures/filters/make_filters.py` makes the case files and describes their format.

use super::registry::{self, name_of};
use super::{FilterError, FilterSpec, Params, Pipeline};

/// One chunk and what libhdf5 decodes it to (`None`: libhdf5 refuses it).
struct Case {
    name: String,
    pipeline: Pipeline,
    mask: u32,
    decoded: Option<Vec<u8>>,
    stored: Vec<u8>,
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (head, tail) = rest.split_at(n);
    *rest = tail;
    head
}

fn u16(rest: &mut &[u8]) -> u16 {
    u16::from_le_bytes(take(rest, 2).try_into().unwrap())
}

fn u32(rest: &mut &[u8]) -> u32 {
    u32::from_le_bytes(take(rest, 4).try_into().unwrap())
}

fn cases(mut rest: &[u8]) -> Vec<Case> {
    let mut cases = Vec::new();
    let r = &mut rest;
    while !r.is_empty() {
        let length = u16(r).into();
        let name = String::from_utf8(take(r, length).to_vec()).unwrap();
        let filters = (0..u16(r))
            .map(|_| {
                let (id, flags, count) = (u16(r), u16(r), u16(r));
                FilterSpec { id, flags, name: Vec::new(), cd_values: (0..count).map(|_| u32(r)).collect() }
            })
            .collect();
        let mask = u32(r);
        let decoded = match u32(r) {
            u32::MAX => None,
            length => Some(take(r, length as usize).to_vec()),
        };
        let length = u32(r) as usize;
        let stored = take(r, length).to_vec();
        cases.push(Case { name, pipeline: Pipeline { filters }, mask, decoded, stored });
    }
    cases
}

const FILES: [&[u8]; 9] = [
    include_bytes!("../../tests/fixtures/filters/deflate.bin"),
    include_bytes!("../../tests/fixtures/filters/shuffle.bin"),
    include_bytes!("../../tests/fixtures/filters/fletcher32.bin"),
    include_bytes!("../../tests/fixtures/filters/nbit.bin"),
    include_bytes!("../../tests/fixtures/filters/scaleoffset.bin"),
    include_bytes!("../../tests/fixtures/filters/bzip2.bin"),
    include_bytes!("../../tests/fixtures/filters/lzf.bin"),
    include_bytes!("../../tests/fixtures/filters/lz4.bin"),
    include_bytes!("../../tests/fixtures/filters/zstd.bin"),
];

fn check(case: &Case) {
    let Case { name, pipeline, mask, decoded, stored } = case;
    let got = pipeline.decode(stored, *mask, decoded.as_ref().map_or(1000, Vec::len));
    match decoded {
        Some(want) => assert!(got.as_ref().is_ok_and(|g| g == want), "{name}: {:?}", got.map(|g| g == *want)),
        None => assert!(got.is_err(), "{name}: libhdf5 refuses this"),
    }
}

#[test]
fn equal_to_libhdf5() {
    let mut count = 0;
    for case in FILES.into_iter().flat_map(cases) {
        check(&case);
        count += 1;
    }
    assert!(count > 300, "{count} cases");
}

/// Filters whose encoder must produce libhdf5's bytes: no choice of encoding, and LZF, which copies
/// LibLZF's choices.
const SAME_BYTES: [u16; 5] = [2, 3, 5, 6, 32000];

/// Checks that an encoded chunk decodes to the original, and for `SAME_BYTES` equals libhdf5's
/// bytes and mask.
fn check_encoding(case: &Case) -> usize {
    let Case { name, pipeline, mask, decoded, stored } = case;
    let Some(decoded) = decoded else { return 0 };
    let lossy = pipeline.filters.iter().any(|f| f.id == 6 && f.cd_values.first() == Some(&0));
    let same = pipeline.filters.iter().all(|f| SAME_BYTES.contains(&f.id)) && !lossy;
    let (got, got_mask) = match pipeline.encode(decoded.clone()) {
        Ok(encoded) => encoded,
        Err(e) => panic!("{name}: {e}"),
    };
    if same {
        assert_eq!(got_mask, *mask, "{name}: mask");
        assert!(got == *stored, "{name}: {:?}\n{got:02x?}\n{stored:02x?}", pipeline);
    }
    let back = pipeline.decode(&got, got_mask, decoded.len());
    assert!(lossy || back.as_ref().is_ok_and(|b| b == decoded), "{name}: {back:?}");
    usize::from(same)
}

#[test]
fn encoded_like_libhdf5() {
    let same: usize = FILES.into_iter().flat_map(cases).map(|c| check_encoding(&c)).sum();
    assert!(same > 150, "{same} cases with the same bytes");
}

/// Checks many more and larger chunks, written by libhdf5 during the test.
#[test]
fn large_chunks_equal_to_libhdf5() {
    let dir = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/filters/make_filters.py");
    let done = std::process::Command::new(crate::python::with_h5py()).args([script, "--big"]).arg(dir.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut count = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("messages.bin") {
            for case in cases(&std::fs::read(&path).unwrap()) {
                check(&case);
                check_encoding(&case);
                count += 1;
            }
        }
    }
    assert!(count > 6000, "{count} cases");
}

/// Decodes the outermost filter with exact bounds: neither limit nor size hint need slack.
#[test]
fn exact_bounds_suffice() {
    for case in FILES.into_iter().flat_map(cases) {
        let (Some(want), [filter]) = (&case.decoded, case.pipeline.filters.as_slice()) else { continue };
        if case.mask & 1 != 0 {
            continue;
        }
        let decode = registry::decoder(filter.id).unwrap();
        for expected in [want.len(), 0, want.len() / 2, want.len() * 3] {
            let p = Params { cd_values: &filter.cd_values, expected, limit: want.len() };
            let got = decode(&case.stored, &p).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert!(got == *want, "{}", case.name);
            assert!(got.capacity() <= want.len().max(8), "{}: {} bytes of room for {}", case.name, got.capacity(), want.len());
            let p = Params { limit: want.len() - 1, ..p };
            assert!(decode(&case.stored, &p).is_err(), "{}: limit", case.name);
        }
    }
}

/// Damaged bytes cause an error or other output, but never a panic or more output than the limit.
#[test]
fn damaged_chunks() {
    let mut errors = 0u32;
    let mut run = |case: &Case, stored: &[u8]| {
        let filter = case.pipeline.filters.last().unwrap();
        let p = Params { cd_values: &filter.cd_values, expected: 300, limit: 1500 };
        match registry::decoder(filter.id).unwrap()(stored, &p) {
            Ok(out) => assert!(out.len() <= p.limit && out.capacity() <= p.limit, "{}", case.name),
            Err(FilterError::Unknown { .. }) => panic!("{}", case.name),
            Err(_) => errors += 1,
        }
    };
    for case in FILES.into_iter().flat_map(cases) {
        for len in 0..case.stored.len().min(200) {
            run(&case, &case.stored[..len]);
        }
        for at in 0..case.stored.len().min(100) {
            for bit in [0, 3, 7] {
                let mut stored = case.stored.clone();
                stored[at] ^= 1 << bit;
                run(&case, &stored);
            }
        }
    }
    assert!(errors > 1000);
}

/// Damaged client data cause an error or other output, but no panic or more output than the limit.
#[test]
fn damaged_client_data() {
    for case in FILES.into_iter().flat_map(cases) {
        let filter = case.pipeline.filters.last().unwrap();
        let decode = registry::decoder(filter.id).unwrap();
        for at in 0..filter.cd_values.len() {
            for value in [0, 1, 2, 3, 4, 5, 8, 255, 65_536, 1 << 31, u32::MAX] {
                let mut cd_values = filter.cd_values.clone();
                cd_values[at] = value;
                let p = Params { cd_values: &cd_values, expected: 300, limit: 5000 };
                if let Ok(out) = decode(&case.stored, &p) {
                    assert!(out.len() <= p.limit, "{}", case.name);
                }
                let _ = decode(&case.stored, &Params { cd_values: &cd_values[..at], ..p });
            }
        }
    }
}

/// Encoders return an error or an encoding for damaged client data, but do not panic.
#[test]
fn encoding_with_damaged_client_data() {
    for case in FILES.into_iter().flat_map(cases) {
        let filter = case.pipeline.filters.last().unwrap();
        let encode = registry::encoder(filter.id).unwrap();
        let Some(data) = &case.decoded else { continue };
        for at in 0..filter.cd_values.len() {
            for value in [0, 1, 2, 3, 7, 64, 65_536, 1 << 31, u32::MAX] {
                let mut cd_values = filter.cd_values.clone();
                cd_values[at] = value;
                let p = Params { cd_values: &cd_values, expected: data.len(), limit: usize::MAX };
                let _ = encode(data, &p);
                let _ = encode(&data[..data.len() / 2], &p);
                let _ = encode(data, &Params { cd_values: &cd_values[..at], ..p });
            }
        }
    }
    let data: Vec<u8> = (0..200).collect();
    for id in (0..=u16::MAX).filter(|&id| registry::encoder(id).is_some()) {
        assert!(registry::decoder(id).is_some());
        for value in [0, 1, 2, 5, 8, 16, 31, 32, 64, 255, 4096, 1 << 31, u32::MAX] {
            for count in 0..21 {
                for len in [0, 1, 7, 128, 200] {
                    let p = Params { cd_values: &vec![value; count], expected: len, limit: usize::MAX };
                    let _ = registry::encoder(id).unwrap()(&data[..len], &p);
                }
            }
        }
    }
}

#[test]
fn random_bytes() {
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    for id in (0..=u16::MAX).filter(|&id| registry::decoder(id).is_some()) {
        assert_ne!(name_of(id), "unregistered");
        for len in 0..300 {
            let input: Vec<u8> = (0..len).map(|_| random()).collect();
            let p = Params { cd_values: &[4], expected: 100, limit: 1000 };
            if let Ok(out) = registry::decoder(id).unwrap()(&input, &p) {
                assert!(out.len() <= 1000);
            }
        }
    }
}
