//! Hostile input: every structure of a file is opened and read after each of its bytes was damaged.
//!
//! With `--cfg fuzzing` checksums are not compared, so that the damage reaches every decoder:
//! `cargo rustc --lib --profile test -- --cfg fuzzing`, then run the binary.

use crate::base::Address;
use crate::file::memory::MemoryFile;
use crate::meta::Store;
use crate::structures::btree2::BTree2;
use crate::structures::fractal_heap::FractalHeap;
use crate::structures::global_heap;
use crate::structures::local_heap::LocalHeap;
use crate::structures::shared_messages::SharedMessages;
use flate2::read::ZlibDecoder;
use std::cmp::Ordering;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

const FILES: [&[u8]; 7] = [
    include_bytes!("../../tests/fixtures/heaps/links10.h5"),
    include_bytes!("../../tests/fixtures/heaps/links60.h5"),
    include_bytes!("../../tests/fixtures/heaps/filtered12.h5"),
    include_bytes!("../../tests/fixtures/heaps/attrs10.h5"),
    include_bytes!("../../tests/fixtures/heaps/sohm.h5"),
    include_bytes!("../../tests/fixtures/heaps/vlen.h5"),
    include_bytes!("../../tests/fixtures/heaps/old.h5"),
];

/// Addresses of the structures that the tests open, in the intact file.
fn addresses(bytes: &[u8]) -> Vec<([u8; 4], Address)> {
    let starts = [*b"BTHD", *b"FRHP", *b"GCOL", *b"HEAP", *b"SMTB"];
    let windows = bytes.windows(4).enumerate();
    windows.filter_map(|(i, w)| starts.iter().find(|s| *s == w).map(|s| (*s, Address(i as u64)))).collect()
}

/// Reads all objects and records; returns their number.
fn exercise(bytes: Vec<u8>, at: &[([u8; 4], Address)]) -> usize {
    let starts = bytes.windows(21).filter(|w| w.starts_with(b"SMLI"));
    let lists: Vec<Vec<u8>> = starts.map(|w| w[13..].to_vec()).collect();
    let Ok(store) = Store::open(Arc::new(MemoryFile::new(bytes))) else { return 0 };
    let store = &store;
    // The heap ID of the first record of each shared message list.
    let mut ids: Vec<Vec<u8>> = lists.clone();
    let mut read = 0;
    for (_, address) in at.iter().filter(|(s, _)| s == b"BTHD") {
        let Ok(tree) = BTree2::open(store, *address) else { continue };
        let mut all = Vec::new();
        let _ = tree.iterate(store, &mut |r| {
            all.push(r.to_vec());
            Ok(ControlFlow::Continue(()))
        });
        assert!(all.len() as u64 <= tree.len());
        let _ = tree.iterate_from(store, tree.len() / 2, &mut |_| Ok(ControlFlow::Continue(())));
        let _ = tree.find(store, &mut |r| Ok(r.cmp(all.last().map_or(&[], |l| l))));
        let _ = tree.find_range(store, &mut |_| Ok(Ordering::Equal), &mut |_| Ok(ControlFlow::Continue(())));
        read += all.len();
        ids.extend(all.iter().flat_map(|r| [0, 4, 8].map(|o| r.get(o..).unwrap_or_default().to_vec())));
    }
    for (signature, address) in at {
        match signature {
            b"FRHP" => {
                let decode = Arc::new(|_: &[u8], stored: Vec<u8>, _: u32, n: usize| {
                    let mut out = Vec::new();
                    let _ = ZlibDecoder::new(&stored[..]).take(n as u64).read_to_end(&mut out);
                    Ok(out)
                });
                let Ok(heap) = FractalHeap::open_with_filters(store, *address, decode) else { continue };
                read += ids.iter().filter(|id| heap.object(store, id).is_ok()).count();
                let _ = heap.object(store, &[0x10, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            b"GCOL" => {
                for i in 0..20 {
                    let Ok(o) = global_heap::object(store, *address, i) else { continue };
                    read += usize::from(o.len() < 1 << 20);
                    assert_eq!(global_heap::locate(store, *address, i).unwrap().1, o.len() as u64);
                }
            }
            b"HEAP" => {
                let Ok(heap) = LocalHeap::open(store, *address) else { continue };
                read += (0..300).filter(|&o| heap.name(o).is_ok()).count();
            }
            _ => {
                let Ok(shared) = SharedMessages::open(store, *address, 2) else { continue };
                for id in lists.iter().filter_map(|l| <&[u8; 8]>::try_from(&l[..]).ok()) {
                    read += (0..16).filter(|&t| shared.message(store, t, id).is_ok()).count();
                }
            }
        }
    }
    read
}

#[test]
fn intact_files_are_read() {
    for (i, file) in FILES.iter().enumerate() {
        assert!(exercise(file.to_vec(), &addresses(file)) > 3, "file {i}");
    }
}

#[test]
fn damaged_bytes_do_not_panic() {
    let step = if cfg!(fuzzing) { 1 } else { 7 };
    for file in FILES {
        let at = addresses(file);
        for i in (0..file.len()).step_by(step) {
            if file[i] == 0 && i > 8 && file[i - 8..=i].iter().all(|&b| b == 0) {
                continue;
            }
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = file.to_vec();
                bytes[i] ^= change;
                exercise(bytes, &at);
            }
        }
    }
}

#[test]
fn truncated_files_do_not_panic() {
    for file in FILES {
        let at = addresses(file);
        for n in (0..file.len()).step_by(7) {
            exercise(file[..n].to_vec(), &at);
        }
    }
}

/// Pairs of damaged bytes, chosen by a fixed pseudorandom sequence.
#[test]
fn damaged_pairs_do_not_panic() {
    let rounds = if cfg!(fuzzing) { 200_000 } else { 300 };
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |n: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % n as u64) as usize
    };
    for round in 0..rounds {
        let file = FILES[round % FILES.len()];
        let at = addresses(file);
        let mut bytes = file.to_vec();
        for _ in 0..2 + next(4) {
            // Near the start of a structure: most of a file is padding.
            let start = at.get(next(at.len())).map_or(0, |a| a.1.0 as usize);
            let i = (start + next(160)).min(bytes.len() - 1);
            bytes[i] = [0, 1, 0xff, 0x7f, next(256) as u8][next(5)];
        }
        exercise(bytes, &at);
    }
}
