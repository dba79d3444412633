//! Free-space managers that libhdf5 wrote, lists of every class, damage.

use super::*;
use crate::base::Address;
use crate::format::Context;

const CTX: &Context = &Context::DEFAULT;
const HEAPS: [&[u8]; 3] = [
    include_bytes!("../../../tests/fixtures/heaps/links10.h5"),
    include_bytes!("../../../tests/fixtures/heaps/links60.h5"),
    include_bytes!("../../../tests/fixtures/heaps/attrs10.h5"),
];
const FILES: [&[u8]; 2] =
    [include_bytes!("../../../tests/fixtures/space/persist.h5"), include_bytes!("../../../tests/fixtures/space/pages.h5")];

/// Round trip and damage of every manager of `client` in `file`; returns their sections.
fn golden(file: &[u8], client: Client) -> Vec<Section> {
    let mut all = Vec::new();
    let start = [b"FSHD\0".as_slice(), &[client.code()]].concat();
    for at in (0..file.len()).filter(|&at| file[at..].starts_with(&start)) {
        let (address, bytes) = (Address(at as u64), &file[at..at + Header::size(CTX) as usize]);
        let h = Header::decode(bytes, address, CTX, client).unwrap();
        assert_eq!(h.encode(CTX), bytes);
        let other = if client == Client::File { Client::FractalHeap } else { Client::File };
        assert!(Header::decode(bytes, address, CTX, other).is_err());
        for i in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[i] ^= 4;
            assert!(Header::decode(&bad, address, CTX, client).is_err() || cfg!(fuzzing), "byte {i}");
            assert!(Header::decode(&bytes[..i], address, CTX, client).is_err());
        }
        if !h.list.is_defined() || h.list_size == 0 {
            continue;
        }
        let list = &file[h.list.0 as usize..(h.list.0 + h.list_size) as usize];
        // Managers of earlier sessions lie in free space.
        let Ok(sections) = h.decode_list(list, address, CTX) else { continue };
        assert!(sections.len() as u64 == h.stored && sections.is_sorted_by_key(|s| s.size));
        assert_eq!(h.encode_list(&sections, address, CTX), list);
        assert!(h.decode_list(list, Address(1), CTX).is_err());
        if h.ghosts == 0 {
            assert_eq!(sections.iter().map(|s| s.size).sum::<u64>(), h.space);
        }
        damage(&h, list, address);
        if client == Client::FractalHeap {
            let fresh = Header::of_heap(h.largest, h.address_bits);
            assert_eq!((h.classes, h.shrink, h.expand), (fresh.classes, fresh.shrink, fresh.expand));
        }
        all.extend(sections);
    }
    all
}

fn damage(h: &Header, list: &[u8], address: Address) {
    for i in 0..list.len() {
        let mut bad = list.to_vec();
        bad[i] ^= 4;
        assert!(h.decode_list(&bad, address, CTX).is_err() || cfg!(fuzzing), "byte {i}");
        assert!(h.decode_list(&list[..i], address, CTX).is_err());
        for stored in [0, 1, 255, 1 << 40] {
            let _ = Header { stored, ..h.clone() }.decode_list(list, address, CTX);
        }
    }
}

#[test]
fn managers_of_heaps_that_libhdf5_wrote() {
    for file in HEAPS {
        let sections = golden(file, Client::FractalHeap);
        assert!(sections.iter().any(|s| s.class == Class::Single));
    }
}

#[test]
fn managers_of_files_that_libhdf5_wrote() {
    let [persist, pages] =
        FILES.map(|file| golden(&file[file.windows(8).position(|w| w == b"\x89HDF\r\n\x1a\n").unwrap()..], Client::File));
    assert!(!persist.is_empty() && persist.iter().all(|s| s.class == Class::Simple));
    assert!(!pages.is_empty() && pages.iter().all(|s| matches!(s.class, Class::Small | Class::Large)));
}

fn header(client: Client, stored: usize, address_bits: u16) -> Header {
    Header { client, stored: stored as u64, list: Address(7), ..Header::of_heap(300, address_bits) }
}

#[test]
fn lists_of_every_class() {
    let range = BlockRange { block_offset: 0x1234, row: 5, column: 3, entries: 9 };
    let heap = [Class::Single, Class::FirstRow(range), Class::Indirect(range)];
    let file = [Class::Simple, Class::Small, Class::Large];
    for (client, classes) in [(Client::FractalHeap, heap), (Client::File, file)] {
        for bits in [16, 32, 40, 64] {
            let section = |(i, class): (usize, Class)| Section { size: 10 + i as u64 / 2, offset: 100 * i as u64, class };
            let sections: Vec<_> = classes.into_iter().cycle().take(9).enumerate().map(section).collect();
            let h = header(client, sections.len(), bits);
            let list = h.encode_list(&sections, Address(96), CTX);
            assert_eq!(h.decode_list(&list, Address(96), CTX).unwrap(), sections);
            damage(&h, &list, Address(96));
        }
    }
}

/// Lists with a right checksum and wrong contents.
#[test]
fn corrupt_lists() {
    let sections = [Section { size: 10, offset: 1, class: Class::Single }, Section { size: 10, offset: 50, class: Class::Single }];
    let h = header(Client::FractalHeap, 2, 32);
    let list = h.encode_list(&sections, Address(96), CTX);
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut body = list[..list.len() - 4].to_vec();
        change(&mut body);
        let sum = crate::base::checksum::lookup3(&body, 0);
        body.extend(sum.to_le_bytes());
        body
    };
    // A gap before the checksum is ignored.
    assert_eq!(h.decode_list(&sealed(&|b| b.extend([1, 2, 3])), Address(96), CTX).unwrap(), sections);
    let first = 5 + 8;
    let type_at = first + 1 + 2 + 4;
    for code in [1, 2, 3, 4, 255] {
        assert!(h.decode_list(&sealed(&|b| b[type_at] = code), Address(96), CTX).is_err(), "type {code}");
    }
    for count in [0, 1, 3, 255] {
        assert!(h.decode_list(&sealed(&|b| b[first] = count), Address(96), CTX).is_err(), "{count} sections");
    }
    assert!(h.decode_list(&sealed(&|b| b.truncate(b.len() - 1)), Address(96), CTX).is_err());
    for (size, allocated) in [(10, 9), (1 << 50, 1 << 50)] {
        let bad = Header { list_size: size, list_allocated: allocated, ..h.clone() };
        assert!(Header::decode(&bad.encode(CTX), Address(96), CTX, Client::FractalHeap).is_err());
    }
    let bad = Header { address_bits: 65, ..h };
    assert!(Header::decode(&bad.encode(CTX), Address(96), CTX, Client::FractalHeap).is_err());
}

#[test]
fn a_list_with_a_kept_front_equals_one_encoded_anew() {
    let range = BlockRange { block_offset: 4, row: 1, column: 0, entries: 2 };
    let section = |size, offset| Section { size, offset, class: Class::Single };
    let mut all: Vec<_> = [3, 3, 3, 5, 5, 8, 20, 20].into_iter().zip(1..).map(|(size, at)| section(size, at * 100)).collect();
    all[3].class = Class::FirstRow(range);
    let h = header(Client::FractalHeap, all.len(), 32);
    let list = h.encode_list(&all, Address(96), CTX);
    for same in 0..=all.len() {
        for sizes in [&[][..], &[3], &[3, 5], &[20, 21], &[50]] {
            let mut new: Vec<_> = all[..same].to_vec();
            new.extend(sizes.iter().zip(50..).map(|(size, at)| section(*size, at * 100)));
            if new.is_sorted() {
                let kept = h.encode_list_from(list.clone(), same, &new, Address(96), CTX);
                assert_eq!(kept, h.encode_list(&new, Address(96), CTX), "{same} {sizes:?}");
            }
        }
    }
    assert!(Header::same_widths(3, 255) && !Header::same_widths(255, 256));
}
